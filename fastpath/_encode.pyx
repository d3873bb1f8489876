# cython: freethreading_compatible=True
# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Encodes records to one batch, as in Produce requests and Fetch responses.

There are two steps, because a producer knows its id, epoch and sequence only when it sends. First the records are
encoded and compressed once to a `Body`. Then `seal` puts the header before it, once for each send.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport INT64_MIN, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy
cimport cython

from kohort.fastpath._memory cimport Block, Pieces, Source, view_of
from kohort.fastpath._records cimport APPEND_TIME_BIT, BATCH_OVERHEAD, CONTROL_BIT, LOG_OVERHEAD, TRANSACTIONAL_BIT, crc32c

from kohort.fastpath.compression import CODECS, codec_of


cdef int64_t NEXT = INT64_MIN
"""The offset after the last one of a batch."""


@cython.final
cdef class Writer:
    """Bytes appended to a growing block."""

    def __cinit__(self, Py_ssize_t size):
        self.block = Block(size)
        self.at = 0

    cdef int room(self, Py_ssize_t more) except -1:
        if self.at + more > self.block.size:
            self.block.resize(max(self.at + more, self.block.size * 2))
        return 0

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


cdef inline void put(char *p, int64_t value, int size) noexcept:
    """Big-endian."""
    cdef int i
    for i in range(size):
        p[size - 1 - i] = <char>(value & 0xFF)
        value >>= 8


@cython.final
cdef class Body:
    """The records of a batch, encoded and compressed, without the header; see `seal`."""

    def __len__(self):
        return len(self.payload)


cdef Body body_of(
    Block block, codec, level, Py_ssize_t count, int64_t first_offset, int64_t last_offset,
    int64_t first_timestamp_ms, int64_t max_timestamp_ms,
):
    """Return a body of `block`, with the size of its content."""
    cdef Body body = Body.__new__(Body)
    body.codec = 0 if codec == "none" else codec_of(codec)
    body.payload = block if body.codec == 0 else CODECS[body.codec].compress(block, level)
    if BATCH_OVERHEAD + len(body.payload) > 0x7FFFFFFF:
        raise ValueError("a batch of 2 GiB and more")
    body.count = count
    body.first_offset = first_offset
    body.last_offset = last_offset
    body.first_timestamp_ms = first_timestamp_ms
    body.max_timestamp_ms = max_timestamp_ms
    return body


def compressed(Body body not None, codec, level=None):
    """Return the body of uncompressed records in a codec."""
    return body_of(
        body.payload, codec, level, body.count, body.first_offset, body.last_offset, body.first_timestamp_ms,
        body.max_timestamp_ms,
    )


@cython.final
cdef class BatchBuilder:
    """A batch that grows record by record."""

    def __cinit__(self, int64_t first_offset=0):
        self.body = Writer(4096)
        self.fields = Writer(512)
        self.first_offset = self.last_offset = first_offset

    @property
    def size(self):
        """Bytes of the records so far, before compression."""
        return self.body.at

    def append(self, key, value, int64_t timestamp_ms, headers=None):
        """Append one record as `encode` does, and return the batch's size with it. An exception changes nothing."""
        return self.add(NEXT, timestamp_ms, key, value, headers)

    cdef Py_ssize_t add(self, int64_t offset, int64_t timestamp, key, value, headers) except -1:
        return self.lay_out(offset, timestamp, key, value, _named(headers) if headers else ())

    @cython.critical_section
    cdef Py_ssize_t lay_out(self, int64_t offset, int64_t timestamp, key, value, tuple headers) except -1:
        cdef Writer fields = self.fields
        cdef Py_ssize_t size
        if offset == NEXT:
            offset = self.first_offset if self.count == 0 else self.last_offset + 1
        if self.count == 0:
            self.first_offset = offset
            self.first_timestamp_ms = self.max_timestamp_ms = timestamp
        elif offset <= self.last_offset:
            raise ValueError(f"offsets must grow: {offset} follows {self.last_offset}")
        if offset - self.first_offset > 0x7FFFFFFF:
            raise ValueError(f"offset {offset} is too far from the batch's first, {self.first_offset}")
        fields.at = 0
        fields.room(32)
        fields.block.data[0] = 0  # attributes
        fields.at = 1
        fields.varint(timestamp - self.first_timestamp_ms)
        fields.varint(offset - self.first_offset)
        fields.nullable(key)
        fields.nullable(value)
        fields.room(10)
        fields.varint(len(headers))
        for name, content in headers:
            fields.nullable(name)
            fields.nullable(content)
        size = fields.at
        self.body.room(10 + size)
        self.body.varint(size)
        memcpy(self.body.block.data + self.body.at, fields.block.data, size)
        self.body.at += size
        self.last_offset = offset
        self.max_timestamp_ms = max(self.max_timestamp_ms, timestamp)
        self.count += 1
        return self.body.at

    @cython.critical_section
    def finish(self, codec="none", level=None):
        """Return the body of all appended records. The builder cannot be used afterwards."""
        if self.count == 0:
            raise ValueError("a batch holds at least one record")
        self.body.block.resize(self.body.at)
        return body_of(
            self.body.block, codec, level, self.count, self.first_offset, self.last_offset,
            self.first_timestamp_ms, self.max_timestamp_ms,
        )


cdef tuple _named(headers):
    """Pairs of a name in bytes and its content."""
    cdef list pairs = []
    for name, content in headers.items() if hasattr(headers, "items") else headers:
        if name is None:  # a broker would reject the whole batch, with its other records
            raise ValueError("a header without a name")
        pairs.append((name.encode() if isinstance(name, str) else name, content))
    return tuple(pairs)


def seal(Body body, **fields):
    """Return a whole batch: header, checksum and `body`. `fields`: as of `sealed`."""
    return bytes(sealed(body, **fields))


def sealed(
    Body body,
    *,
    base_offset=None,
    log_append_time_ms=None,
    int64_t producer_id=-1,
    int producer_epoch=-1,
    int base_sequence=-1,
    int partition_leader_epoch=-1,
    bint transactional=False,
    bint control=False,
):
    """Return a whole batch in two pieces: the header with its checksum, and the payload of `body`, which is not copied.

    Fields as in `encode`.
    """
    cdef Source source = Source(body.payload)
    cdef Py_ssize_t size = source.view.len
    cdef int64_t first_offset = body.first_offset if base_offset is None else <int64_t>base_offset
    head = PyBytes_FromStringAndSize(NULL, BATCH_OVERHEAD)
    cdef char *p = PyBytes_AS_STRING(head)
    cdef int attributes = (
        body.codec
        | (0 if log_append_time_ms is None else APPEND_TIME_BIT)
        | (TRANSACTIONAL_BIT if transactional else 0)
        | (CONTROL_BIT if control else 0)
    )
    put(p, first_offset, 8)
    put(p + 8, BATCH_OVERHEAD - LOG_OVERHEAD + size, 4)
    put(p + 12, partition_leader_epoch, 4)
    p[16] = 2
    put(p + 21, attributes, 2)
    put(p + 23, body.last_offset - body.first_offset, 4)
    put(p + 27, body.first_timestamp_ms, 8)
    put(p + 35, body.max_timestamp_ms if log_append_time_ms is None else <int64_t>log_append_time_ms, 8)
    put(p + 43, producer_id, 8)
    put(p + 51, producer_epoch, 2)
    put(p + 53, base_sequence, 4)
    put(p + 57, body.count, 4)
    checksum = crc32c()(view_of(<uint8_t *>p + 21, BATCH_OVERHEAD - 21))
    put(p + 17, crc32c()(view_of(<uint8_t *>source.view.buf, size), checksum), 4)
    return Pieces(head, body.payload)


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
    """Return one record batch of magic 2 as bytes, as in Produce requests and Fetch responses.

    `records`: `Record`s (or RecordColumns), or tuples (key, value[, timestamp_ms[, headers]]). Keys and values are
    bytes or None. Headers are an iterable or mapping of str to bytes or None. `timestamp_ms` is the timestamp of
    records without one, in ms since the epoch. Offsets are those of the `Record`s. With `base_offset` they count from
    it, and for tuples from 0. `codec`: "none", "gzip", "snappy", "lz4", "zstd". `level` is the codec's own.

    Raises ValueError for no records, offsets that do not grow, headers without a name, and values out of range.
    """
    cdef BatchBuilder builder = BatchBuilder()
    cdef int64_t offset
    cdef bint counted = base_offset is not None
    codec_of(codec)  # an unknown codec is rejected before the records are encoded
    for item in records:
        if isinstance(item, tuple):
            key, value, stamp, headers = item + (None, None, None, None)[len(item):]
            place = None
        else:
            key, value, stamp, headers, place = item.key, item.value, item.timestamp_ms, item.headers, item.offset
        if counted or place is None:
            offset = builder.last_offset + 1 if builder.count else base_offset if counted else 0
        else:
            offset = place
        builder.add(offset, timestamp_ms if stamp is None else stamp, key, value, headers)
    return seal(
        builder.finish(codec, level),
        log_append_time_ms=log_append_time_ms,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        partition_leader_epoch=partition_leader_epoch,
        transactional=transactional,
        control=control,
    )
