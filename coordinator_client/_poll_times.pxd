from kohort.network._sampled_window cimport SampledWindow


cdef class PollTimes:
    cdef readonly long long begun, ended
    cdef readonly double began_at, ended_at
    cdef readonly SampledWindow between_ms, idle_ratio

    cpdef begin(self, double now)
    cpdef end(self, double now)
