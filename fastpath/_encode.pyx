# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Records to one batch: what Produce sends and Fetch answers."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcpy
cimport cython

from kohort.fastpath._memory cimport Block, Source, view_of
from kohort.fastpath._records cimport APPEND_TIME_BIT, BATCH_OVERHEAD, CONTROL_BIT, LOG_OVERHEAD, TRANSACTIONAL_BIT, crc32c

from kohort.fastpath.compression import CODECS, codec_of


@cython.final
cdef class _Writer:
    """Bytes appended to a growing block."""

    cdef Block block
    cdef Py_ssize_t at

    def __cinit__(self, Py_ssize_t size):
        self.block = Block(size)
        self.at = 0

    cdef inline int room(self, Py_ssize_t more) except -1:
        if self.at + more > self.block.size:
            self.block.resize(max(self.at + more, self.block.size * 2))
        return 0

    cdef inline void varint(self, int64_t value) noexcept:
        """Zigzag; the caller made room for ten bytes."""
        cdef uint64_t raw = (<uint64_t>value << 1) ^ <uint64_t>(value >> 63)
        cdef uint8_t *p = <uint8_t *>self.block.data + self.at
        while raw >= 0x80:
            p[0] = <uint8_t>(raw | 0x80)
            p += 1
            raw >>= 7
        p[0] = <uint8_t>raw
        self.at = p + 1 - <uint8_t *>self.block.data

    cdef int nullable(self, data) except -1:
        """A varint size (-1: None) and the bytes."""
        cdef Py_buffer view
        if data is None:
            self.room(10)
            self.varint(-1)
            return 0
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            if view.len > 0x7FFFFFFF:
                raise ValueError("a key, value or header of 2 GiB and more")
            self.room(10 + view.len)
            self.varint(view.len)
            memcpy(self.block.data + self.at, view.buf, view.len)
            self.at += view.len
        finally:
            PyBuffer_Release(&view)
        return 0


cdef inline int varint_size(int64_t value) noexcept:
    cdef uint64_t raw = (<uint64_t>value << 1) ^ <uint64_t>(value >> 63)
    cdef int size = 1
    while raw >= 0x80:
        raw >>= 7
        size += 1
    return size


cdef inline void put(char *p, int64_t value, int size) noexcept:
    """Big-endian."""
    cdef int i
    for i in range(size):
        p[size - 1 - i] = <char>(value & 0xFF)
        value >>= 8


def encode(
    records,
    *,
    codec="none",
    level=None,
    base_offset=None,
    int64_t timestamp_ms=-1,
    log_append_time_ms=None,
    int64_t producer_id=-1,
    int producer_epoch=-1,
    int base_sequence=-1,
    int partition_leader_epoch=-1,
    bint transactional=False,
    bint control=False,
):
    """One record batch of magic 2 as bytes: what Produce sends and Fetch answers.

    `records`: `Record`s (or RecordColumns), or tuples (key, value[, timestamp_ms[, headers]]) with keys and values as
    bytes or None and headers as an iterable or mapping of str to bytes or None. `timestamp_ms`: for records that carry
    none. Offsets are the `Record`s' own; with `base_offset` they are counted from there, and from 0 for tuples.
    `codec`: "none", "gzip", "snappy", "lz4", "zstd"; `level` is the codec's own.

    Raises ValueError for no records, offsets that do not grow and values out of range.
    """
    cdef _Writer body = _Writer(4096)
    cdef _Writer fields = _Writer(4096)
    cdef int64_t first_offset = -1, first_timestamp = 0, most_timestamp = 0, offset, timestamp, before = -1
    cdef Py_ssize_t count = 0
    cdef Py_ssize_t size
    cdef bint counted = base_offset is not None
    number = codec_of(codec)
    for item in records:
        if isinstance(item, tuple):
            key, value, stamp, headers = item + (None, None, None, None)[len(item):]
            place = None
        else:
            key, value, stamp, headers, place = item.key, item.value, item.timestamp_ms, item.headers, item.offset
        timestamp = timestamp_ms if stamp is None else stamp
        if count == 0:
            first_offset = base_offset if counted else 0 if place is None else place
            first_timestamp = most_timestamp = timestamp
        offset = first_offset + count if counted or place is None else <int64_t>place
        if offset - first_offset <= before - first_offset and count:
            raise ValueError(f"offsets must grow: {offset} comes after {before}")
        if offset - first_offset > 0x7FFFFFFF:
            raise ValueError(f"offset {offset} is too far from the batch's first, {first_offset}")
        before = offset
        most_timestamp = max(most_timestamp, timestamp)

        fields.at = 0
        fields.room(32)
        fields.block.data[0] = 0  # attributes
        fields.at = 1
        fields.varint(timestamp - first_timestamp)
        fields.varint(offset - first_offset)
        fields.nullable(key)
        fields.nullable(value)
        fields.room(10)
        if headers:
            pairs = tuple(headers.items() if hasattr(headers, "items") else headers)
            fields.varint(len(pairs))
            for name, content in pairs:
                fields.nullable(name.encode() if isinstance(name, str) else name)
                fields.nullable(content)
        else:
            fields.varint(0)
        size = fields.at
        body.room(10 + size)
        body.varint(size)
        memcpy(body.block.data + body.at, fields.block.data, size)
        body.at += size
        count += 1
    if count == 0:
        raise ValueError("a batch holds at least one record")

    body.block.resize(body.at)
    payload = body.block if number == 0 else CODECS[number].compress(body.block, level)
    size = len(payload)
    if BATCH_OVERHEAD + size > 0x7FFFFFFF:
        raise ValueError("a batch of 2 GiB and more")
    out = PyBytes_FromStringAndSize(NULL, BATCH_OVERHEAD + size)
    cdef char *p = PyBytes_AS_STRING(out)
    cdef int attributes = (
        <int>number
        | (0 if log_append_time_ms is None else APPEND_TIME_BIT)
        | (TRANSACTIONAL_BIT if transactional else 0)
        | (CONTROL_BIT if control else 0)
    )
    put(p, first_offset, 8)
    put(p + 8, BATCH_OVERHEAD - LOG_OVERHEAD + size, 4)
    put(p + 12, partition_leader_epoch, 4)
    p[16] = 2
    put(p + 21, attributes, 2)
    put(p + 23, before - first_offset, 4)
    put(p + 27, first_timestamp, 8)
    put(p + 35, most_timestamp if log_append_time_ms is None else <int64_t>log_append_time_ms, 8)
    put(p + 43, producer_id, 8)
    put(p + 51, producer_epoch, 2)
    put(p + 53, base_sequence, 4)
    put(p + 57, count, 4)
    cdef Source source = Source(payload)
    memcpy(p + BATCH_OVERHEAD, source.view.buf, size)
    put(p + 17, crc32c()(view_of(<uint8_t *>p + 21, BATCH_OVERHEAD - 21 + size)), 4)
    return out
