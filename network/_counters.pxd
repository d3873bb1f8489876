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
