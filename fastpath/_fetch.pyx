# cython: freethreading_compatible=True
# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Fetch responses and requests of an open session (KIP-227), without a value for each field.

`fetch_response` reads only what a session in its steady state receives. For everything else it returns None, and the
codec of `kohort.protocol` reads the frame.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Malloc, PyMem_Realloc
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

from collections import namedtuple

from kohort.fastpath._byteorder cimport be16, be32, be64, store32, store64
from kohort.fastpath._tuples cimport new
from kohort.fastpath._varint cimport put_uvarint

SliceEnd = namedtuple("SliceEnd", "next_offset leader_epoch")
SliceEnd.__doc__ = """The end of the last complete batch; `next_offset` is None if there is no complete batch."""

FetchedPartition = namedtuple(
    "FetchedPartition", "topic_id number high_watermark last_stable log_start records next_offset leader_epoch"
)
FetchedPartition.__doc__ = """One partition of a response. `topic_id` is in bytes.

`records`: None without any. `next_offset` and `leader_epoch` are those of the last complete batch.
"""

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

cdef int FIRST = FIRST_VERSION
cdef int LAST = LAST_VERSION


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


cdef bint _partition(Cursor *c, const uint8_t *start, const uint8_t *topic_id, FetchedSpan *found) noexcept:
    """Read a partition. False if anything in it is unusual."""
    cdef const uint8_t *head = _take(c, 30)
    cdef const uint8_t *replica
    cdef Py_ssize_t size
    cdef LastBatch last
    if head == NULL or be16(head + 4) != 0 or _uvarint(c) > 1:  # an error, aborted transactions
        return False
    replica = _take(c, 4)
    if replica == NULL or be32(replica) >= 0:
        return False
    size = <Py_ssize_t>_uvarint(c) - 1
    found.topic_id, found.number = topic_id, be32(head)
    found.high_watermark, found.last_stable, found.log_start = be64(head + 6), be64(head + 14), be64(head + 22)
    found.records_at, found.records_size, found.next_offset, found.leader_epoch = c.at - start, 0, -1, -1
    if size > 0:
        if _take(c, size) == NULL or not _last_batch(start + found.records_at, size, &last):
            return False
        if last.base_offset < 0 or last.delta < 0 or last.base_offset >= INT64_MAX - last.delta:
            return False
        found.records_size = size
        found.next_offset, found.leader_epoch = last.base_offset + last.delta + 1, last.leader_epoch
    _no_tags(c)
    return not c.unusual


@cython.final
cdef class FetchedSpans:
    """The partitions of a response, which is read again and again into the same memory."""

    def __cinit__(self):
        self.spans, self.count, self.capacity = NULL, 0, 0

    def __dealloc__(self):
        PyMem_Free(self.spans)

    cdef int reserve(self) except -1:
        """Make room for one more."""
        cdef Py_ssize_t capacity
        cdef FetchedSpan *spans
        if self.count == self.capacity:
            capacity = 2 * self.capacity + 4
            spans = <FetchedSpan *>PyMem_Realloc(self.spans, capacity * sizeof(FetchedSpan))
            if spans == NULL:
                raise MemoryError("no memory for the partitions of a response")
            self.spans, self.capacity = spans, capacity
        return 0

    cdef bint read(
        self, const uint8_t *start, Py_ssize_t size, int version, int32_t session_id, Py_ssize_t most
    ) except -1:
        """Read a frame with its length. False unless it is usual, as `fetch_response`."""
        cdef Cursor cursor = Cursor(start, start + size, False)
        cdef Cursor *c = &cursor
        cdef const uint8_t *head
        cdef const uint8_t *topic_id
        cdef Py_ssize_t topics, partitions
        self.count = 0
        if not FIRST <= version <= LAST:
            return False
        head = _take(c, RESPONSE_HEAD + 10)
        if head == NULL or head[8] != 0 or be32(head + 9) != 0 or be16(head + 13) != 0 or be32(head + 15) != session_id:
            return False
        topics = <Py_ssize_t>_uvarint(c) - 1
        while topics > 0 and not c.unusual:
            topics -= 1
            topic_id = _take(c, TOPIC_ID)
            if topic_id == NULL:
                return False
            partitions = <Py_ssize_t>_uvarint(c) - 1
            if partitions < 0:
                return False
            while partitions > 0:
                partitions -= 1
                if self.count == most:
                    return False
                self.reserve()
                if not _partition(c, start, topic_id, &self.spans[self.count]):
                    return False
                self.count += 1
            _no_tags(c)
        _no_tags(c)
        return not c.unusual and topics >= 0 and c.at == c.end


def fetch_response(frame, int version, int session_id, Py_ssize_t most):
    """The partitions of a response; None unless it is usual: no error, no throttle time, no tagged field.

    `frame` is a memoryview that begins with the length. `most`: the number of partitions that the session has. No
    record is copied.
    """
    cdef Py_buffer view
    cdef FetchedSpans found = FetchedSpans.__new__(FetchedSpans)
    PyObject_GetBuffer(frame, &view, PyBUF_SIMPLE)
    try:
        if not found.read(<const uint8_t *>view.buf, view.len, version, session_id, most):
            return None
        return [_fetched(frame, &found.spans[place]) for place in range(found.count)]
    finally:
        PyBuffer_Release(&view)


cdef object _fetched(frame, const FetchedSpan *one):
    records = frame[one.records_at : one.records_at + one.records_size] if one.records_size else None
    return new(
        FetchedPartition,
        (
            PyBytes_FromStringAndSize(<const char *>one.topic_id, TOPIC_ID),
            one.number,
            one.high_watermark,
            one.last_stable,
            one.log_start,
            records,
            one.next_offset,
            one.leader_epoch,
        ),
    )


cdef Py_ssize_t _topics_limit(const ChangedPartition *changed, Py_ssize_t count) noexcept:
    """The most bytes that the array of topics takes."""
    cdef Py_ssize_t topics = 0, place
    for place in range(count):
        topics += place == 0 or memcmp(changed[place].topic_id, changed[place - 1].topic_id, TOPIC_ID) != 0
    return LONGEST_UVARINT + topics * (TOPIC_ID + LONGEST_UVARINT + 1) + count * REQUESTED_PARTITION


cdef uint8_t *_put_topics(uint8_t *p, const ChangedPartition *changed, Py_ssize_t count) noexcept:
    """Write the array of topics. Those partitions of one topic that are next to each other are one entry."""
    cdef Py_ssize_t at = 0, until, topics = 0, place
    cdef const ChangedPartition *one
    for place in range(count):
        topics += place == 0 or memcmp(changed[place].topic_id, changed[place - 1].topic_id, TOPIC_ID) != 0
    p = put_uvarint(p, <uint32_t>(topics + 1))
    while at < count:
        until = at + 1
        while until < count and memcmp(changed[until].topic_id, changed[at].topic_id, TOPIC_ID) == 0:
            until += 1
        memcpy(p, changed[at].topic_id, TOPIC_ID)
        p = put_uvarint(p + TOPIC_ID, <uint32_t>(until - at + 1))
        for place in range(at, until):
            one = &changed[place]
            store32(p, <uint32_t>one.number)
            store32(p + 4, <uint32_t>one.leader_epoch)
            store64(p + 8, <uint64_t>one.offset)
            store32(p + 16, 0xFFFFFFFF)  # the epoch of the last record that was fetched: -1
            store64(p + 20, 0xFFFFFFFFFFFFFFFF)  # a follower's log start: -1
            store32(p + 28, <uint32_t>one.most_bytes)
            p[32] = 0
            p += REQUESTED_PARTITION
        p[0] = 0
        p += 1
        at = until
    return p


cdef bytes fetch_request_body(
    bytes before_epoch, int32_t epoch, const ChangedPartition *changed, Py_ssize_t count, bytes after_topics
):
    """The body of a request: the bytes before the session's epoch, that epoch, the topics, and the bytes behind them."""
    cdef Py_ssize_t before = PyBytes_GET_SIZE(before_epoch), after = PyBytes_GET_SIZE(after_topics)
    cdef bytes buffer = PyBytes_FromStringAndSize(NULL, before + 4 + _topics_limit(changed, count) + after)
    cdef uint8_t *start = <uint8_t *>PyBytes_AS_STRING(buffer)
    cdef uint8_t *p
    memcpy(start, PyBytes_AS_STRING(before_epoch), before)
    store32(start + before, <uint32_t>epoch)
    p = _put_topics(start + before + 4, changed, count)
    memcpy(p, PyBytes_AS_STRING(after_topics), after)
    return PyBytes_FromStringAndSize(<const char *>start, p + after - start)


def fetch_request_topics(list changed):
    """The array of topics of a Fetch request, encoded.

    `changed`: (topic id in bytes, partition, leader epoch, offset, most bytes) of each partition. Those of one topic
    are next to each other.
    """
    cdef Py_ssize_t count = len(changed), place
    cdef ChangedPartition *rows = <ChangedPartition *>PyMem_Malloc(max(count, 1) * sizeof(ChangedPartition))
    cdef bytes topic_id, buffer
    cdef uint8_t *start
    if rows == NULL:
        raise MemoryError("no memory for the partitions of a request")
    try:
        for place in range(count):
            topic_id, number, leader_epoch, offset, most_bytes = changed[place]
            if len(topic_id) != TOPIC_ID:
                raise ValueError("a topic id has 16 bytes")
            rows[place] = ChangedPartition(
                <const uint8_t *>PyBytes_AS_STRING(topic_id), number, leader_epoch, offset, most_bytes
            )
        buffer = PyBytes_FromStringAndSize(NULL, _topics_limit(rows, count))
        start = <uint8_t *>PyBytes_AS_STRING(buffer)
        return buffer[: _put_topics(start, rows, count) - start]
    finally:
        PyMem_Free(rows)
