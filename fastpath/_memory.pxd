# Block is pooled memory, Source holds another object's buffer, Window is a part of one, Pieces are two, and view_of
# lends bytes to a library for one call.

cimport cython
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stdint cimport uint8_t


@cython.final
@cython.no_gc
cdef class Block:
    cdef char *data
    cdef readonly Py_ssize_t size
    cdef Py_ssize_t capacity

    cdef int resize(self, Py_ssize_t size) except -1
    cdef void discard(self) noexcept


cdef class Source:
    cdef Py_buffer view
    cdef bint held


@cython.final
cdef class Window:
    cdef Py_buffer view
    cdef bint held
    cdef char *start
    cdef Py_ssize_t size


cdef object exporter_of(buffer)
cdef object part_of(frame, const uint8_t *start, Py_ssize_t size)


@cython.final
cdef class Pieces:
    cdef readonly object head, rest


cdef inline object view_of(const uint8_t *p, Py_ssize_t size):
    return PyMemoryView_FromMemory(<char *>p, size, 0x100)  # PyBUF_READ
