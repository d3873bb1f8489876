# cython: freethreading_compatible=True
# cython: language_level=3
"""Times of the caller's polls. No signal handler cuts a change in two, since it is compiled."""

cimport cython
from libc.math cimport INFINITY

from kohort.network._sampled_window cimport SampledWindow


@cython.final
cdef class PollTimes:
    """Begin and end of polls (monotonic s), used under the driver's lock.

    `begun` and `ended` are their numbers, `began_at` and `ended_at` the times of the last ones, -inf without one.
    `between_ms` are the times from one begin to the next. `idle_ratio` is the part of the time that is inside poll.
    """

    def __cinit__(self):
        self.begun = self.ended = 0
        self.began_at = self.ended_at = -INFINITY
        self.between_ms, self.idle_ratio = SampledWindow(), SampledWindow()

    cpdef begin(self, double now):
        """Record the begin of a poll."""
        if self.begun:
            self.between_ms.add((now - self.began_at) * 1000, now)
        self.begun += 1
        self.began_at = now

    cpdef end(self, double now):
        """Record the end of a poll: the user's code continues."""
        cdef double since = self.ended_at if self.ended else self.began_at
        if self.begun and now > since:
            self.idle_ratio.add((now - self.began_at) / (now - since), now)
        self.ended += 1
        self.ended_at = now
