# Named tuples of compiled code. `tuple.__new__(kind, values)` would take three times as long.

from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_GET_ITEM, PyTuple_GET_SIZE, PyTuple_SET_ITEM

cdef extern from *:
    """
    /* From CPython 3.14 on a tuple caches its hash, and -1 is "not yet". */
    static inline PyObject *kohort_empty(PyObject *kind, Py_ssize_t items) {
        PyObject *value = PyType_GenericAlloc((PyTypeObject *)kind, items);
    #if PY_VERSION_HEX >= 0x030E0000
        if (value) ((PyTupleObject *)value)->ob_hash = -1;
    #endif
        return value;
    }
    """
    object empty_tuple "kohort_empty"(object kind, Py_ssize_t items)


cdef inline object new(object kind, tuple values):
    """The values as a tuple of another kind. Their number is not checked."""
    cdef Py_ssize_t count = PyTuple_GET_SIZE(values), place
    made = empty_tuple(kind, count)
    for place in range(count):
        value = <object>PyTuple_GET_ITEM(values, place)
        Py_INCREF(value)
        PyTuple_SET_ITEM(made, place, value)
    return made
