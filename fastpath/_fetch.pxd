# Fetch responses and requests of an open session, for compiled code.

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t


cdef struct FetchedSpan:  # one partition of a response; it points into the frame
    const uint8_t *topic_id
    int32_t number
    int64_t high_watermark
    int64_t last_stable
    int64_t log_start
    Py_ssize_t records_at
    Py_ssize_t records_size  # 0: there are none
    int64_t next_offset  # this and the epoch are those of the last complete batch
    int32_t leader_epoch


cdef struct ChangedPartition:  # one partition of a request
    const uint8_t *topic_id
    int32_t number
    int32_t leader_epoch
    int64_t offset
    int32_t most_bytes


@cython.final
cdef class FetchedSpans:
    cdef FetchedSpan *spans
    cdef Py_ssize_t count, capacity

    cdef int reserve(self) except -1
    cdef bint read(
        self, const uint8_t *start, Py_ssize_t size, int version, int32_t session_id, Py_ssize_t most
    ) except -1


cdef bytes fetch_request_body(
    bytes before_epoch, int32_t epoch, const ChangedPartition *changed, Py_ssize_t count, bytes after_topics
)
