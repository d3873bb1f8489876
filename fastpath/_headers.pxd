# The headers of one record, and of a slice. header_span is here because pickling uses it too.

from libc.stdint cimport int32_t, int64_t, uint8_t

from kohort.fastpath._store cimport Store
from kohort.fastpath._varint cimport varint


cdef struct HeaderTotals:
    int64_t count
    int64_t name_bytes
    int64_t value_bytes


cdef inline const uint8_t *header_span(const uint8_t *p, const uint8_t *end, HeaderTotals *totals) noexcept nogil:
    """Add one record's headers to the totals and return their end; NULL if they pass the end (the buffer was changed).
    """
    cdef int32_t count = 0, size = 0, h
    p = varint(p, end, &count)
    for h in range(count):
        p = varint(p, end, &size)
        if p == NULL or size < 0 or size > end - p:
            return NULL
        totals.name_bytes += size
        p = varint(p + size, end, &size)
        if p == NULL or size > end - p:
            return NULL
        if size > 0:
            totals.value_bytes += size
            p += size
        totals.count += 1
    return p


cdef tuple headers_at(const uint8_t *p, const uint8_t *end, bint in_bytes)
cdef object header_layout(Store store, Py_ssize_t start, Py_ssize_t stop)
