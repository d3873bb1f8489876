from kohort.network._guard cimport shared_flag


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


cdef class FetcherFields:
    cdef public FetchBuffer parked
    cdef public dict ends, in_flight, ahead, last_requested, until
    cdef public set stale_log_offsets
    cdef public object orders
    cdef public long long revision
    cdef public shared_flag held_back


cdef class SessionFields:
    cdef public object steady_under, template
    cdef public dict session_partitions, names
    cdef public long long session_id, epoch
