# Spans, their runs, and the Store, which holds columns of spans.

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from kohort.fastpath._memory cimport Block, Source

cdef extern from *:
    """
    #define KOHORT_NO_HEADERS 0xFFFFFFFFu
    """
    const uint32_t NO_HEADERS "KOHORT_NO_HEADERS"  # in the column with the starts of records' headers


cdef struct Span:
    uint32_t start
    int32_t size  # -1: null


# A run of records with spans into one buffer and one timestamp type: one batch, or several joined batches.
cdef struct Run:
    Py_ssize_t first  # index of its first record
    const uint8_t *data
    Py_ssize_t size
    int32_t buffer  # index into Store.buffers
    int32_t timestamp_type


@cython.final
cdef class Store:
    cdef Py_ssize_t count, capacity
    cdef Block offsets_block, timestamps_block, keys_block, values_block, headers_block
    cdef int64_t *offsets
    cdef int64_t *timestamps
    cdef Span *keys
    cdef Span *values
    cdef uint32_t *headers
    cdef list buffers  # what the runs point into, by number
    cdef Source source
    cdef Run *runs
    cdef Py_ssize_t run_count, run_capacity

    cdef void _point(self, Py_ssize_t capacity) noexcept
    cdef int reserve(self, Py_ssize_t more) except -1
    cdef int add_run(self, const uint8_t *data, Py_ssize_t size, int32_t buffer, int32_t timestamp_type) except -1

    # Inlined in every unit, because it is called for each item and each pickled record.
    cdef inline Run *last_run(self) noexcept nogil:
        return self.runs + (self.run_count - 1)

    cdef inline Run *run_of(self, Py_ssize_t index) noexcept nogil:
        cdef Py_ssize_t low = 0, high = self.run_count - 1, middle
        while low < high:
            middle = (low + high + 1) >> 1
            if self.runs[middle].first <= index:
                low = middle
            else:
                high = middle - 1
        return &self.runs[low]
