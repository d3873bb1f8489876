# cython: freethreading_compatible=True
# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The columns of one decode, before they have a topic, a partition or a slice.

A decoded record takes 36 bytes in five columns. They are offset and timestamp (int64), key and value as *spans*, and
the start of its headers. A span is a start and a size in bytes, -1 for null. It points into the fetched buffer, or into
the buffer with the decompressed batch. `decode` copies no key and no value.
"""

from cpython.mem cimport PyMem_RawFree, PyMem_RawRealloc
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
cimport cython

from kohort.fastpath._memory cimport Block


@cython.final
cdef class Store:
    """The columns of one decode, shared by all its slices."""

    def __cinit__(self, Py_ssize_t capacity):
        self.buffers = []
        self.count = self.capacity = 0
        self.run_count = self.run_capacity = 0
        self.runs = NULL
        self.offsets_block = Block(capacity * sizeof(int64_t))
        self.timestamps_block = Block(capacity * sizeof(int64_t))
        self.keys_block = Block(capacity * sizeof(Span))
        self.values_block = Block(capacity * sizeof(Span))
        self.headers_block = Block(capacity * sizeof(uint32_t))
        self._point(capacity)

    def __dealloc__(self):
        PyMem_RawFree(self.runs)

    cdef void _point(self, Py_ssize_t capacity) noexcept:
        self.capacity = capacity
        self.offsets = <int64_t *>self.offsets_block.data
        self.timestamps = <int64_t *>self.timestamps_block.data
        self.keys = <Span *>self.keys_block.data
        self.values = <Span *>self.values_block.data
        self.headers = <uint32_t *>self.headers_block.data

    cdef int reserve(self, Py_ssize_t more) except -1:
        cdef Py_ssize_t capacity = self.count + more
        if capacity <= self.capacity:
            return 0
        capacity = max(capacity, self.capacity * 2)
        try:
            self.offsets_block.resize(capacity * sizeof(int64_t))
            self.timestamps_block.resize(capacity * sizeof(int64_t))
            self.keys_block.resize(capacity * sizeof(Span))
            self.values_block.resize(capacity * sizeof(Span))
            self.headers_block.resize(capacity * sizeof(uint32_t))
        except MemoryError:
            self._point(self.capacity)  # some of the blocks have moved
            raise
        self._point(capacity)
        return 0

    cdef int add_run(self, const uint8_t *data, Py_ssize_t size, int32_t buffer, int32_t timestamp_type) except -1:
        cdef Run *last
        cdef Run *bigger
        cdef Py_ssize_t capacity
        if self.run_count:
            last = &self.runs[self.run_count - 1]
            if last.data == data and last.timestamp_type == timestamp_type:
                return 0
        if self.run_count == self.run_capacity:
            capacity = self.run_capacity * 2 + 4
            bigger = <Run *>PyMem_RawRealloc(self.runs, capacity * sizeof(Run))
            if bigger == NULL:
                raise MemoryError("cannot allocate another run of records")
            self.runs = bigger
            self.run_capacity = capacity
        self.runs[self.run_count] = Run(self.count, data, size, buffer, timestamp_type)
        self.run_count += 1
        return 0
