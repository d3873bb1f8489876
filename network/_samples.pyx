# cython: freethreading_compatible=True
# cython: language_level=3
"""Samples and counters of what happens for each response or poll. They are compiled, because it happens that often.

No signal handler cuts a change in two.
"""

cimport cython
from libc.math cimport INFINITY, fmax

WINDOW_S = 30.0

cdef double HALF_S = WINDOW_S

cdef inline Half _empty() noexcept:
    return Half(0, 0.0, -INFINITY)


@cython.final
cdef class SampledWindow:
    """Mean, maximum and rate of what was measured in the last 30 to 60 s, as Java's client has it by default.

    Two halves: the one being filled, and the one before it. Times are monotonic seconds. `count`: all measurements.
    """

    def __cinit__(self):
        self.count = 0
        self.began = -INFINITY
        self.filling = _empty()
        self.before = _empty()

    cpdef add(self, double value, double now):
        """One measurement."""
        self.turn(now)
        self.filling.count += 1
        self.filling.total += value
        self.filling.most = fmax(self.filling.most, value)
        self.count += 1

    cdef void turn(self, double now) noexcept:
        cdef double age_s = now - self.began
        if age_s >= HALF_S:
            self.before = self.filling if age_s < 2 * HALF_S else _empty()
            self.filling = _empty()
            self.began = now

    def mean(self, double now):
        """None: nothing was measured in that time."""
        cdef long long count
        self.turn(now)
        count = self.filling.count + self.before.count
        return (self.filling.total + self.before.total) / count if count else None

    def most(self, double now):
        """As `mean`."""
        cdef double most
        self.turn(now)
        most = fmax(self.filling.most, self.before.most)
        return None if most == -INFINITY else most

    def rate(self, double now):
        """Measurements a second."""
        cdef double over_s
        self.turn(now)
        over_s = now - self.began + (HALF_S if self.before.count else 0.0)
        return (self.filling.count + self.before.count) / fmax(over_s, HALF_S)


@cython.final
cdef class Counters:
    """Counters of a client, which only grow, from 0. Some are used by consumers only."""


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
