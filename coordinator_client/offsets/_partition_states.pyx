# cython: freethreading_compatible=True
# cython: language_level=3
"""The states of partitions. No signal handler cuts a change in two, since it is compiled."""

cimport cython
from cpython.dict cimport PyDict_GetItem, PyDict_SetItem
from cpython.object cimport PyObject

from kohort.fastpath._tuples cimport new

from kohort.network.metadata import NO_EPOCH

cdef long long UNKNOWN_EPOCH = NO_EPOCH

cdef enum:  # of a `PartitionState`
    SERIAL = 1


@cython.final
cdef class PartitionStates(dict):
    """States by partition, and the partitions that a turn has to look at.

    `changed`: those that were set since it was last cleared. `moved`: the same without those of `advance`. `unchecked`:
    those that were set since their leader epoch was compared. `unsettled`: those whose position is being found out:
    their phase is not one of `settled`. `revision` grows with each change but those of `advance`.
    """

    def __init__(self, frozenset settled):
        self.settled = settled
        self.changed, self.unchecked, self.unsettled, self.moved = set(), set(), {}, {}
        self.revision = 0

    def __setitem__(self, partition, state):
        self.revision += 1
        self.moved[partition] = None
        self.advance(partition, state)
        if state.phase in self.settled:
            self.unsettled.pop(partition, None)
        else:
            self.unsettled[partition] = None

    cpdef advance(self, partition, state):
        """Set a state that is fetched as before: records were returned, or an epoch is known to be valid."""
        self.changed.add(partition)
        self.unchecked.add(partition)
        PyDict_SetItem(self, partition, state)

    def drop(self, partition):
        """Remove a partition."""
        self.pop(partition, None)
        self.changed.discard(partition)
        self.unchecked.discard(partition)
        self.unsettled.pop(partition, None)
        self.moved.pop(partition, None)
        self.revision += 1

    cpdef bint consumed(self, partition, long long serial, next_offset, epoch, fetched_under) except -1:
        """As `Positions.consumed`."""
        cdef PyObject *found = PyDict_GetItem(self, partition)
        if found == NULL:
            return False
        state = <object>found
        if <long long>(<tuple>state)[SERIAL] != serial:
            return False
        phase, same, offset, kept, validated, reset_to, wanted, reason, in_flight, attempts = <tuple>state
        if <long long>epoch != UNKNOWN_EPOCH:
            kept = epoch
        if UNKNOWN_EPOCH != <long long>fetched_under < <long long>validated:
            validated = fetched_under
        if <long long>next_offset > <long long>offset:
            offset = next_offset
        self.advance(
            partition,
            new(type(state), (phase, same, offset, kept, validated, reset_to, wanted, reason, in_flight, attempts)),
        )
        return True
