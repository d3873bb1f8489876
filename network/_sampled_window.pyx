# cython: freethreading_compatible=True
# cython: language_level=3
"""Samples of what happens for each response or poll. They are compiled, because they are taken that often."""

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
