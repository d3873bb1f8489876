cdef struct Half:
    long long count
    double total
    double most


cdef class SampledWindow:
    cdef readonly long long count
    cdef double began
    cdef Half filling, before

    cpdef add(self, double value, double now)
    cdef void turn(self, double now) noexcept
