# Writer, BatchBuilder and Body, which `_rows` shares with `_encode`.

cimport cython
from libc.stdint cimport int64_t, uint8_t, uint64_t

from kohort.fastpath._memory cimport Block
from kohort.fastpath._varint cimport put_uvarint


@cython.final
cdef class Writer:
    cdef Block block
    cdef Py_ssize_t at

    cdef int room(self, Py_ssize_t more) except -1
    cdef int nullable(self, data) except -1

    # Inlined in every unit, because it is called for each field. Zigzag; the caller has reserved ten bytes.
    cdef inline void varint(self, int64_t value) noexcept:
        self.at = put_varint(<uint8_t *>self.block.data + self.at, value) - <uint8_t *>self.block.data


@cython.final
cdef class Body:
    cdef readonly object payload
    cdef readonly int codec
    cdef readonly Py_ssize_t count
    cdef readonly int64_t first_offset, last_offset, first_timestamp_ms, max_timestamp_ms


@cython.final
cdef class BatchBuilder:
    cdef Writer body, fields
    cdef readonly Py_ssize_t count
    cdef readonly int64_t first_offset, last_offset, first_timestamp_ms, max_timestamp_ms

    cdef Py_ssize_t add(self, int64_t offset, int64_t timestamp, key, value, headers) except -1
    cdef Py_ssize_t lay_out(self, int64_t offset, int64_t timestamp, key, value, tuple headers) except -1


cdef Body body_of(
    Block block, codec, level, Py_ssize_t count, int64_t first_offset, int64_t last_offset,
    int64_t first_timestamp_ms, int64_t max_timestamp_ms,
)


cdef inline uint8_t *put_varint(uint8_t *p, int64_t value) noexcept nogil:
    return put_uvarint(p, (<uint64_t>value << 1) ^ <uint64_t>(value >> 63))


cdef inline int varint_size(int64_t value) noexcept nogil:
    cdef uint64_t raw = (<uint64_t>value << 1) ^ <uint64_t>(value >> 63)
    cdef int size = 1
    while raw >= 0x80:
        raw >>= 7
        size += 1
    return size
