# cython: freethreading_compatible=True
# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Fetch responses and requests of an open session (KIP-227), without a value for each field.

`fetch_response` reads only what a session in its steady state receives. For everything else it returns None, and the
codec of `kohort.protocol` reads the frame.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from collections import namedtuple

from kohort.fastpath._byteorder cimport be16, be32, be64, store32, store64

SliceEnd = namedtuple("SliceEnd", "next_offset leader_epoch")
SliceEnd.__doc__ = """The end of the last complete batch; `next_offset` is None if there is no complete batch."""

FetchedPartition = namedtuple(
    "FetchedPartition", "topic_id number high_watermark last_stable log_start records next_offset leader_epoch"
)
FetchedPartition.__doc__ = """One partition of a response. `topic_id` is in bytes.

`records`: None without any. `next_offset` and `leader_epoch` are those of the last complete batch.
"""

cdef object new = tuple.__new__

cdef enum:
    LENGTH_FIELD_END = 12
    BATCH_HEAD = 17  # base offset, length of the rest, leader epoch (magic 2 only), magic
    LAST_OFFSET_DELTA_AT = 23
    RESPONSE_HEAD = 9  # length, correlation id, and no tagged fields
    TOPIC_ID = 16
    REQUESTED_PARTITION = 33
    LONGEST_UVARINT = 5

FIRST_VERSION = 13
"""The first version of Fetch with topic ids."""

LAST_VERSION = 18


cdef struct LastBatch:
    int64_t base_offset
    int32_t delta
    int32_t leader_epoch


cdef bint _last_batch(const uint8_t *p, Py_ssize_t size, LastBatch *found) noexcept nogil:
    """Walk the batch headers to the last complete batch; False if there is none with a valid head."""
    cdef Py_ssize_t at = 0, last = -1
    cdef int64_t length, following
    while size - at >= BATCH_HEAD:
        length = be32(p + at + 8)
        following = at + LENGTH_FIELD_END + length
        if length < BATCH_HEAD - LENGTH_FIELD_END or following > size:
            break
        last = at
        at = <Py_ssize_t>following
    if last < 0:
        return False
    found.base_offset = be64(p + last)
    found.delta = 0
    found.leader_epoch = -1
    if <signed char>p[last + 16] < 2:
        return True
    if be32(p + last + 8) < LAST_OFFSET_DELTA_AT + 4 - LENGTH_FIELD_END:
        return False
    found.delta = be32(p + last + LAST_OFFSET_DELTA_AT)
    found.leader_epoch = be32(p + last + 12)
    return True


def slice_end(records):
    """Walk the batch headers to the last complete batch. Corrupt headers are reported later, by decode."""
    cdef Py_buffer view
    cdef LastBatch found
    cdef bint whole
    PyObject_GetBuffer(records, &view, PyBUF_SIMPLE)
    whole = _last_batch(<const uint8_t *>view.buf, view.len, &found)
    PyBuffer_Release(&view)
    return SliceEnd(<object>found.base_offset + found.delta + 1, found.leader_epoch) if whole else SliceEnd(None, -1)


cdef struct Cursor:
    const uint8_t *at
    const uint8_t *end
    bint unusual  # the bytes are not those of a steady state, or are cut short


cdef inline const uint8_t *_take(Cursor *c, Py_ssize_t count) noexcept:
    """The next `count` bytes; NULL, and `unusual`, if there are fewer."""
    cdef const uint8_t *p = c.at
    if c.unusual or count < 0 or c.end - p < count:
        c.unusual = True
        return NULL
    c.at += count
    return p


cdef inline uint32_t _uvarint(Cursor *c) noexcept:
    cdef uint64_t value = 0
    cdef int shift = 0
    cdef const uint8_t *p
    while shift < 7 * LONGEST_UVARINT:
        p = _take(c, 1)
        if p == NULL:
            return 0
        value |= <uint64_t>(p[0] & 0x7F) << shift
        if p[0] < 0x80:
            if value >> 32:
                break
            return <uint32_t>value
        shift += 7
    c.unusual = True
    return 0


cdef inline void _no_tags(Cursor *c) noexcept:
    if _uvarint(c):
        c.unusual = True


cdef object _partition(Cursor *c, object frame, const uint8_t *start, bytes topic_id):
    cdef const uint8_t *head = _take(c, 30)
    cdef const uint8_t *replica
    cdef Py_ssize_t size, at
    cdef LastBatch last
    if head == NULL or be16(head + 4) != 0 or _uvarint(c) > 1:  # an error, aborted transactions
        return None
    replica = _take(c, 4)
    if replica == NULL or be32(replica) >= 0:
        return None
    size = <Py_ssize_t>_uvarint(c) - 1
    records, next_offset = None, -1
    last.leader_epoch = -1
    if size > 0:
        at = c.at - start
        if _take(c, size) == NULL or not _last_batch(start + at, size, &last):
            return None
        if last.base_offset < 0 or last.delta < 0 or last.base_offset >= INT64_MAX - last.delta:
            return None
        records, next_offset = frame[at : at + size], last.base_offset + last.delta + 1
    _no_tags(c)
    if c.unusual:
        return None
    return new(
        FetchedPartition,
        (
            topic_id,
            be32(head),
            be64(head + 6),
            be64(head + 14),
            be64(head + 22),
            records,
            next_offset,
            last.leader_epoch,
        ),
    )


def fetch_response(frame, int version, int session_id, Py_ssize_t most):
    """The partitions of a response; None unless it is usual: no error, no throttle time, no tagged field.

    `frame` is a memoryview that begins with the length. `most`: the number of partitions that the session has. No
    record is copied.
    """
    cdef Py_buffer view
    if not FIRST_VERSION <= version <= LAST_VERSION:
        return None
    PyObject_GetBuffer(frame, &view, PyBUF_SIMPLE)
    try:
        return _response(frame, <const uint8_t *>view.buf, view.len, session_id, most)
    finally:
        PyBuffer_Release(&view)


cdef object _response(object frame, const uint8_t *start, Py_ssize_t size, int32_t session_id, Py_ssize_t most):
    cdef Cursor cursor = Cursor(start, start + size, False)
    cdef Cursor *c = &cursor
    cdef const uint8_t *head = _take(c, RESPONSE_HEAD + 10)
    cdef const uint8_t *p
    cdef Py_ssize_t topics, partitions
    cdef list found = []
    if head == NULL or head[8] != 0 or be32(head + 9) != 0 or be16(head + 13) != 0 or be32(head + 15) != session_id:
        return None
    topics = <Py_ssize_t>_uvarint(c) - 1
    while topics > 0 and not c.unusual:
        topics -= 1
        p = _take(c, TOPIC_ID)
        if p == NULL:
            return None
        topic_id = PyBytes_FromStringAndSize(<const char *>p, TOPIC_ID)
        partitions = <Py_ssize_t>_uvarint(c) - 1
        if partitions < 0:
            return None
        while partitions > 0:
            partitions -= 1
            one = _partition(c, frame, start, topic_id)
            if one is None or len(found) == most:
                return None
            found.append(one)
        _no_tags(c)
    _no_tags(c)
    return None if c.unusual or topics < 0 or c.at != c.end else found


cdef inline uint8_t *_put_uvarint(uint8_t *p, uint32_t value) noexcept:
    while value >= 0x80:
        p[0] = <uint8_t>(value | 0x80)
        p += 1
        value >>= 7
    p[0] = <uint8_t>value
    return p + 1


def fetch_request_topics(list changed):
    """The array of topics of a Fetch request, encoded.

    `changed`: (topic id in bytes, partition, leader epoch, offset, most bytes) of each partition. Those of one topic
    are next to each other.
    """
    cdef Py_ssize_t count = len(changed), at = 0, until, i, topics = 0
    cdef uint8_t *p
    cdef bytes topic_id, previous = None
    for one in changed:
        topic_id = one[0]
        if len(topic_id) != TOPIC_ID:
            raise ValueError("a topic id has 16 bytes")
        topics += previous is None or topic_id != previous
        previous = topic_id
    buffer = PyBytes_FromStringAndSize(
        NULL, LONGEST_UVARINT + topics * (TOPIC_ID + LONGEST_UVARINT + 1) + count * REQUESTED_PARTITION
    )
    cdef uint8_t *start = <uint8_t *>PyBytes_AS_STRING(buffer)
    p = _put_uvarint(start, <uint32_t>(topics + 1))
    while at < count:
        topic_id = changed[at][0]
        until = at + 1
        while until < count and changed[until][0] == topic_id:
            until += 1
        memcpy(p, PyBytes_AS_STRING(topic_id), TOPIC_ID)
        p = _put_uvarint(p + TOPIC_ID, <uint32_t>(until - at + 1))
        for i in range(at, until):
            _id, number, leader_epoch, offset, most_bytes = changed[i]
            store32(p, <uint32_t><int32_t>number)
            store32(p + 4, <uint32_t><int32_t>leader_epoch)
            store64(p + 8, <uint64_t><int64_t>offset)
            store32(p + 16, 0xFFFFFFFF)  # the epoch of the last record that was fetched: -1
            store64(p + 20, 0xFFFFFFFFFFFFFFFF)  # a follower's log start: -1
            store32(p + 28, <uint32_t><int32_t>most_bytes)
            p[32] = 0
            p += REQUESTED_PARTITION
        p[0] = 0
        p += 1
        at = until
    return buffer[: p - start]
