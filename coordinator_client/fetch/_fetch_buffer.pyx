# cython: freethreading_compatible=True
# cython: language_level=3
"""The buffer of fetched, undecoded records, and attributes of its owner. No signal handler cuts a method in two, since it is compiled."""

from collections import OrderedDict, deque
from itertools import islice

cimport cython
from cpython.dict cimport PyDict_GetItem
from cpython.object cimport PyObject

cdef enum:  # of a `CompletedFetch`
    PARTITION = 0
    RECORDS = 1
    SERIAL = 4


@cython.final
cdef class FetchBuffer:
    """`CompletedFetch` slices in order, by partition; partitions are polled in turn.

    All slices of a partition have the same serial. The driver's thread adds slices. The caller's thread reads and
    removes them. Removing a slice twice is safe.

    A partition whose records may not be returned now is set aside, and polls skip it. A slice in hand is being decoded
    or was returned to the caller. It stays in the buffer until that is settled, and does not count as waiting.
    `total_bytes` is the size of all slices.
    """

    def __cinit__(self):
        self._line = OrderedDict()
        self._aside = {}
        self._bytes = {}
        self._in_hand = {}
        self.total_bytes = 0

    cdef object queue(self, partition):
        cdef PyObject *found = PyDict_GetItem(self._line, partition)
        if found == NULL and self._aside:
            found = PyDict_GetItem(self._aside, partition)
        return None if found == NULL else <object>found

    cdef bint has_slices(self) except -1:
        return len(self._line) > 0 or len(self._aside) > 0

    cpdef put(self, slice_):
        """Append a slice; slices of the partition with another serial are dropped."""
        partition = (<tuple>slice_)[PARTITION]
        cdef Py_ssize_t size = len((<tuple>slice_)[RECORDS])
        queue = self.queue(partition)
        if queue is not None and (<tuple>queue[-1])[SERIAL] != (<tuple>slice_)[SERIAL]:
            self.drop(partition)
            queue = None
        if queue is None:
            if self._in_hand:
                self._in_hand.pop(partition, None)
            self._line[partition] = deque((slice_,))
            self._bytes[partition] = size
        else:
            queue.append(slice_)
            self._bytes[partition] += size
        self.total_bytes += size

    def line(self, most=None):
        """The next partitions in turn, at most `most` of them."""
        return list(islice(self._line, most))

    cpdef set_aside(self, partition):
        """Take a partition out of the line until it is `readmitted`."""
        queue = self._line.pop(partition, None)
        if queue is not None:
            self._aside[partition] = queue

    def readmitted(self, partitions):
        """Append partitions that were set aside to the line."""
        for partition in self._aside.keys() & partitions:
            self._line[partition] = self._aside.pop(partition)

    cpdef take_in_hand(self, slice_):
        """Mark the first slice of a partition as being decoded."""
        self._in_hand[(<tuple>slice_)[PARTITION]] = slice_

    cpdef remove(self, slice_, rest):
        """Remove a slice if it is the first of its partition, or replace it by `rest`.

        After a removal the partition goes to the end of the line.
        """
        partition = (<tuple>slice_)[PARTITION]
        queue = self.queue(partition)
        if queue is None or queue[0] is not slice_:
            return
        if rest is not None:
            self._in_hand[partition] = rest
            queue[0] = rest
            return
        if len(queue) == 1:
            self.drop(partition)
            return
        size = len((<tuple>slice_)[RECORDS])
        self._in_hand.pop(partition, None)
        self.total_bytes -= size
        self._bytes[partition] -= size
        queue.popleft()
        if partition in self._line:
            self._line.move_to_end(partition)

    cpdef drop(self, partition):
        """Drop all slices of a partition."""
        self._line.pop(partition, None)
        if self._aside:
            self._aside.pop(partition, None)
        if self._in_hand:
            self._in_hand.pop(partition, None)
        self.total_bytes -= <Py_ssize_t>self._bytes.pop(partition, 0)

    def drop_newest(self, partition):
        """Drop the last slice of a partition to free memory; it will be fetched again."""
        queue = self.queue(partition)
        if queue is None:
            return None
        dropped = queue.pop()
        self._bytes[partition] -= len((<tuple>dropped)[RECORDS])
        self.total_bytes -= len((<tuple>dropped)[RECORDS])
        if not queue:
            self.drop(partition)
        return dropped

    def last(self, partition):
        """The last slice of a partition; None if there is none, or if it is in hand."""
        queue = self.queue(partition)
        if queue is None or queue[-1] is self._in_hand.get(partition):
            return None
        return queue[-1]

    cpdef first(self, partition):
        """The first slice of a partition, including one in hand."""
        queue = self.queue(partition)
        return None if queue is None else queue[0]

    cpdef Py_ssize_t bytes_of(self, partition) except -1:
        """Bytes of a partition that wait, without the slice in hand."""
        cdef PyObject *waiting = PyDict_GetItem(self._bytes, partition)
        cdef PyObject *held
        if waiting == NULL:
            return 0
        held = PyDict_GetItem(self._in_hand, partition)
        return <Py_ssize_t><object>waiting - (len((<tuple>held)[RECORDS]) if held != NULL else 0)

    def __iter__(self):
        """All partitions with slices."""
        return iter([*self._line, *self._aside])

    def __bool__(self):
        return self.has_slices()


cdef class FetcherFields:
    """Of a `Fetcher`; see `network/_follow_up.pyx`. `held_back` is also read without the lock."""


cdef class SessionFields:
    """Of a `FetchSession`."""
