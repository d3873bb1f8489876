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


cdef class Counters:
    cdef public long long hooks
    cdef public long long slices
    cdef public long long records
    cdef public long long fetches
    cdef public long long fetch_failures
    cdef public long long fetched_bytes
    cdef public long long corrupt_batches
    cdef public long long commits
    cdef public long long commits_refused
    cdef public long long resets
    cdef public long long requests
    cdef public long long request_failures
    cdef public long long throttled_ms
    cdef public long long connections_opened
    cdef public long long connections_ended


cdef class PollTimes:
    cdef readonly long long begun, ended
    cdef readonly double began_at, ended_at
    cdef readonly SampledWindow between_ms, idle_ratio

    cpdef begin(self, double now)
    cpdef end(self, double now)
