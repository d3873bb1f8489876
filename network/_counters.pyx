# cython: freethreading_compatible=True
# cython: language_level=3
"""Counters of any client. They are compiled, because some grow with each response or poll."""

cimport cython


@cython.final
cdef class Counters:
    """Counters of a client, which only grow, from 0. Some are used by consumers only."""
