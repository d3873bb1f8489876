cdef class FetchBuffer:
    cdef object _line
    cdef dict _aside, _bytes, _in_hand
    cdef readonly Py_ssize_t total_bytes

    cdef object queue(self, partition)
    cdef bint has_slices(self) except -1
    cpdef put(self, slice_)
    cpdef set_aside(self, partition)
    cpdef take_in_hand(self, slice_)
    cpdef remove(self, slice_, rest)
    cpdef drop(self, partition)
    cpdef first(self, partition)
    cpdef Py_ssize_t bytes_of(self, partition) except -1
