cdef class PartitionStates(dict):
    cdef readonly set changed, unchecked
    cdef readonly dict unsettled, moved
    cdef readonly long long revision
    cdef frozenset settled

    cpdef advance(self, partition, state)
    cpdef bint consumed(self, partition, long long serial, next_offset, epoch, fetched_under) except -1
