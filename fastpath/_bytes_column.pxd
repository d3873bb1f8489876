# BytesColumn, the keys or the values of a slice.

cimport cython

from kohort.fastpath._store cimport Span, Store


@cython.final
cdef class BytesColumn:
    cdef Store store
    cdef Py_ssize_t start, stop
    cdef Span *spans


cdef BytesColumn bytes_column(Store store, Py_ssize_t start, Py_ssize_t stop, Span *spans)
