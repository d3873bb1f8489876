# cython: freethreading_compatible=True
# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""Nodes that read and write wire fields.

A message of one version is a tree of these nodes. `kohort.protocol.compiled_codec` builds it once from the message's
declaration, so there is no second list of fields. The nodes handle bytes and integers only. A read is a walk over
[at, end): no node reads a byte before `_need` has checked the bounds. Values are tuples, strings, ints and bytes. A
tuple is of the message's own subclass, allocated once and filled in place. A `records` field is a memoryview of the
frame, never a copy.

Invalid bytes or values are raised as `Malformed`, which collects the path of fields while it propagates.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.float cimport PyFloat_AsDouble, PyFloat_FromDouble
from cpython.list cimport PyList_AsTuple
from cpython.long cimport PyLong_AsLongLong, PyLong_FromLong, PyLong_FromLongLong
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF, Py_XDECREF
from cpython.tuple cimport PyTuple_GET_ITEM, PyTuple_GET_SIZE, PyTuple_New, PyTuple_SET_ITEM
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport INT64_MAX, INT64_MIN, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy, memset

from collections.abc import Mapping
from uuid import SafeUUID, UUID

from kohort.fastpath._byteorder cimport load16, load32, load64, store16, store32, store64
from kohort.fastpath._memory cimport Pieces, part_of
from kohort.fastpath._varint cimport put_uvarint

cdef extern from "Python.h":
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL
    bint PyLong_Check(object value)
    object PyNumber_Index(object value)
    bint PyUnicode_Check(object value)
    void PyObject_GC_UnTrack(object value)
    PyObject *new_int "PyLong_FromLong"(long value) except NULL
    PyObject *new_bytes "PyBytes_FromStringAndSize"(const char *start, Py_ssize_t size) except NULL
    int resize_bytes "_PyBytes_Resize"(PyObject **place, Py_ssize_t size) except -1
    ctypedef struct PyTupleObject:
        PyObject **ob_item

cdef extern from *:
    """
    /* From CPython 3.14 on a tuple caches its hash, and -1 is "not yet". */
    static inline PyObject *new_tuple(PyObject *kind, Py_ssize_t items) {
        PyObject *value = PyType_GenericAlloc((PyTypeObject *)kind, items);
    #if PY_VERSION_HEX >= 0x030E0000
        if (value) ((PyTupleObject *)value)->ob_hash = -1;
    #endif
        /* What a parse gives is a tree without cycles that nobody can change, so the collector need never walk it:
           on a large answer that walk costs more than the parse. */
        if (value) PyObject_GC_UnTrack(value);
        return value;
    }
    """
    object new_tuple(object kind, Py_ssize_t items)


class Malformed(Exception):
    """The reason of an error, its offset in the buffer (None for a build), and its field.

    `steps` is the path to the field, innermost first: names, and ints for elements of arrays.
    """

    def __init__(self, reason, offset=None):
        super().__init__(reason)
        self.reason = reason
        self.offset = offset
        self.steps = []


# ---- reading -------------------------------------------------------------------------------------------------------

cdef struct Cursor:
    const uint8_t *start
    const uint8_t *at
    const uint8_t *end
    PyObject *frame  # a memoryview of the whole buffer, borrowed: `records` values are parts of it
    int64_t budget  # remaining memory for values, in bytes
    PyObject *arrays[16]  # arrays of int32 that were read, borrowed from the value being read, with their offsets
    const uint8_t *arrays_at[16]


cdef int _bad(Cursor *c, const uint8_t *where, str reason) except -1:
    raise Malformed(reason, where - c.start)


cdef inline int _need(Cursor *c, Py_ssize_t count) except -1:
    if c.end - c.at < count:
        _bad(c, c.at, f"cut short: {count} bytes required, {c.end - c.at} left")
    return 0


cdef enum:  # bytes of a Python object, besides its contents
    TUPLE_BYTES = 56
    STRING_BYTES = 56
    INT_BYTES = 32
    SLOT_BYTES = 8
    SPAN_BYTES = 456
    UUID_BYTES = 120
    TAG_BYTES = 120  # of a tag in a set that grows


cdef inline int _spend(Cursor *c, int64_t size) except -1:
    """Count the memory of a value before it is made: small elements on the wire become large objects."""
    c.budget -= size
    if c.budget < 0:
        _bad(c, c.at, "the values take more memory than a response may")
    return 0


cdef int _read_uvarint(Cursor *c, uint32_t *value) except -1:
    cdef const uint8_t *start = c.at
    cdef uint64_t result = 0
    cdef int shift = 0
    cdef uint8_t byte
    while shift <= 28:
        _need(c, 1)
        byte = c.at[0]
        c.at += 1
        result |= (<uint64_t>(byte & 0x7F)) << shift
        if byte < 0x80:
            if result > 0xFFFFFFFF:
                break
            value[0] = <uint32_t>result
            return 0
        shift += 7
    _bad(c, start, "a varint longer than 32 bits")


cdef enum:
    NULL_LENGTH = -1
    SLACK_BYTES = 256  # for the fields behind records


cdef Py_ssize_t _read_length(Cursor *c, Sized node, int width, str unit) except -2:
    """Return the length of a string, bytes or array, at most the number of remaining bytes. NULL_LENGTH for null."""
    cdef const uint8_t *start = c.at
    cdef Py_ssize_t length
    cdef uint32_t plus_one = 0
    if node.compact:
        _read_uvarint(c, &plus_one)
        length = <Py_ssize_t>plus_one - 1
    elif width == 2:
        _need(c, 2)
        length = <int16_t>load16(c.at)
        c.at += 2
    else:
        _need(c, 4)
        length = <int32_t>load32(c.at)
        c.at += 4
    if length == NULL_LENGTH and not node.nullable:
        _bad(c, start, "null, but the version does not allow null")
    if length < NULL_LENGTH:
        _bad(c, start, f"a negative length: {length}")
    if length > c.end - c.at:
        _bad(c, start, f"a length of {length} {unit} where {c.end - c.at} bytes are left")
    return length


cdef enum Op:
    CALL  # read through the node
    READ_INT16  # the most frequent number types are read by the struct itself, without a call
    READ_INT32


cdef class Node:
    """The type of one field. Subclasses differ only in `read` and `write`."""

    cdef Op op

    cdef object read(self, Cursor *c):
        raise NotImplementedError

    cdef int write(self, Writer w, object value) except -1:
        raise NotImplementedError


cdef class Writer:
    """Bytes that grow. `reserve` allocates room before anything is stored."""

    cdef PyObject *room  # bytes, of which `size` are written
    cdef uint8_t *data
    cdef Py_ssize_t size
    cdef Py_ssize_t capacity

    def __cinit__(self):
        self.capacity = 256
        self.room = new_bytes(NULL, self.capacity)
        self.data = <uint8_t *>PyBytes_AS_STRING(<object>self.room)

    def __dealloc__(self):
        Py_XDECREF(self.room)

    cdef inline uint8_t *reserve(self, Py_ssize_t count) except NULL:
        if self.capacity - self.size < count:
            self.resize(max(2 * self.capacity, self.size + count + SLACK_BYTES))
        self.size += count
        return self.data + self.size - count

    cdef int resize(self, Py_ssize_t capacity) except -1:
        resize_bytes(&self.room, capacity)
        self.data = <uint8_t *>PyBytes_AS_STRING(<object>self.room)
        self.capacity = capacity
        return 0

    cdef bytes finish(self):
        """The bytes. Nothing can be written afterwards."""
        self.resize(self.size)
        return <bytes>self.room

    cdef int put(self, const void *source, Py_ssize_t count) except -1:
        memcpy(self.reserve(count), source, count)
        return 0

    cdef int put_buffer(self, object value) except -1:
        cdef Py_buffer view
        PyObject_GetBuffer(value, &view, PyBUF_SIMPLE)
        try:
            return self.put(view.buf, view.len)
        finally:
            PyBuffer_Release(&view)

    cdef int put_uvarint(self, uint32_t value) except -1:
        cdef uint8_t *p = self.reserve(5)
        self.size -= p + 5 - put_uvarint(p, value)
        return 0

    cdef int put_length(self, Sized node, int width, Py_ssize_t length) except -1:
        if length > (0x7FFF if width == 2 else 0x7FFFFFFF):
            raise Malformed(f"a length of {length} is more than the length field can hold")
        if node.compact:
            return self.put_uvarint(<uint32_t>(length + 1))
        if width == 2:
            store16(self.reserve(2), <uint16_t>length)
        else:
            store32(self.reserve(4), <uint32_t>length)
        return 0

    cdef int put_null(self, Sized node, int width) except -1:
        if not node.nullable:
            raise Malformed("null, but the version does not allow null")
        return self.put_length(node, width, NULL_LENGTH)


cdef int64_t _integer(object value, int64_t low, int64_t high, str kind) except? -1:
    cdef int64_t number
    try:
        number = PyLong_AsLongLong(value if PyLong_Check(value) else PyNumber_Index(value))
    except (OverflowError, TypeError):
        raise Malformed(f"{_shown(value)} is not a valid {kind}") from None
    if number < low or number > high:
        raise Malformed(f"{_shown(value)} is not a valid {kind}")
    return number


cdef str _shown(object value):
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}..."


# ---- numbers -------------------------------------------------------------------------------------------------------

cdef class Int8(Node):
    cdef object read(self, Cursor *c):
        _need(c, 1)
        c.at += 1
        return PyLong_FromLong(<signed char>(c.at - 1)[0])

    cdef int write(self, Writer w, object value) except -1:
        cdef int64_t number = _integer(value, -0x80, 0x7F, "int8")
        w.reserve(1)[0] = <uint8_t>number
        return 0


cdef class Int16(Node):
    def __cinit__(self):
        self.op = READ_INT16

    cdef object read(self, Cursor *c):
        _need(c, 2)
        c.at += 2
        return PyLong_FromLong(<int16_t>load16(c.at - 2))

    cdef int write(self, Writer w, object value) except -1:
        cdef int64_t number = _integer(value, -0x8000, 0x7FFF, "int16")
        store16(w.reserve(2), <uint16_t>number)
        return 0


cdef class UInt16(Node):
    cdef object read(self, Cursor *c):
        _need(c, 2)
        c.at += 2
        return PyLong_FromLong(load16(c.at - 2))

    cdef int write(self, Writer w, object value) except -1:
        cdef int64_t number = _integer(value, 0, 0xFFFF, "uint16")
        store16(w.reserve(2), <uint16_t>number)
        return 0


cdef class Int32(Node):
    def __cinit__(self):
        self.op = READ_INT32

    cdef object read(self, Cursor *c):
        _need(c, 4)
        c.at += 4
        return PyLong_FromLong(<int32_t>load32(c.at - 4))

    cdef int write(self, Writer w, object value) except -1:
        cdef int64_t number = _integer(value, -0x80000000, 0x7FFFFFFF, "int32")
        store32(w.reserve(4), <uint32_t>number)
        return 0


cdef class UInt32(Node):
    cdef object read(self, Cursor *c):
        _need(c, 4)
        c.at += 4
        return PyLong_FromLongLong(load32(c.at - 4))

    cdef int write(self, Writer w, object value) except -1:
        cdef int64_t number = _integer(value, 0, 0xFFFFFFFF, "uint32")
        store32(w.reserve(4), <uint32_t>number)
        return 0


cdef class Int64(Node):
    cdef object read(self, Cursor *c):
        _need(c, 8)
        c.at += 8
        return PyLong_FromLongLong(<int64_t>load64(c.at - 8))

    cdef int write(self, Writer w, object value) except -1:
        cdef int64_t number = _integer(value, INT64_MIN, INT64_MAX, "int64")
        store64(w.reserve(8), <uint64_t>number)
        return 0


cdef class Float64(Node):
    cdef object read(self, Cursor *c):
        _need(c, 8)
        c.at += 8
        cdef uint64_t bits = load64(c.at - 8)
        cdef double number
        memcpy(&number, &bits, 8)
        return PyFloat_FromDouble(number)

    cdef int write(self, Writer w, object value) except -1:
        if not isinstance(value, (int, float)):
            raise Malformed(f"{_shown(value)} is not a valid float64")
        cdef double number = PyFloat_AsDouble(float(value))
        cdef uint64_t bits
        memcpy(&bits, &number, 8)
        store64(w.reserve(8), bits)
        return 0


cdef class Bool(Node):
    cdef object read(self, Cursor *c):
        _need(c, 1)
        c.at += 1
        return (c.at - 1)[0] != 0

    cdef int write(self, Writer w, object value) except -1:
        if value is not True and value is not False:
            raise Malformed(f"a bool is required, not {_shown(value)}")
        w.reserve(1)[0] = value is True
        return 0


cdef object _set_int = UUID.int.__set__
cdef object _set_is_safe = UUID.is_safe.__set__
cdef object _unknown = SafeUUID.unknown


cdef object _uuid(bytes raw):
    """`UUID(bytes=raw)`, without the calls of Python in its constructor."""
    made = UUID.__new__(UUID)
    _set_int(made, int.from_bytes(raw, "big"))
    _set_is_safe(made, _unknown)
    return made


cdef class Uuid(Node):
    cdef object read(self, Cursor *c):
        _need(c, 16)
        _spend(c, UUID_BYTES)
        c.at += 16
        return _uuid(PyBytes_FromStringAndSize(<const char *>c.at - 16, 16))

    cdef int write(self, Writer w, object value) except -1:
        if not isinstance(value, UUID):
            raise Malformed(f"a uuid.UUID is required, not {_shown(value)}")
        cdef bytes raw = value.int.to_bytes(16, "big")
        return w.put(PyBytes_AS_STRING(raw), 16)


# ---- lengths before bytes ------------------------------------------------------------------------------------------

cdef class Sized(Node):
    """A length and that many bytes, or null if `nullable`."""

    cdef bint compact
    cdef bint nullable

    def __init__(self, *, bint compact, bint nullable):
        self.compact = compact
        self.nullable = nullable


cdef class Text(Sized):
    cdef object read(self, Cursor *c):
        cdef const uint8_t *start = c.at
        cdef Py_ssize_t length = _read_length(c, self, 2, "bytes")
        if length == NULL_LENGTH:
            return None
        if length > 0x7FFF:
            _bad(c, start, f"a string of {length} bytes, more than the maximum of {0x7FFF}")
        if length:
            _spend(c, STRING_BYTES + length)
        try:
            text = PyUnicode_DecodeUTF8(<const char *>c.at, length, NULL)
        except UnicodeDecodeError as error:
            _bad(c, start, f"not valid UTF-8: {error.reason}")
        c.at += length
        return text

    cdef int write(self, Writer w, object value) except -1:
        cdef Py_ssize_t length = 0
        cdef const char *utf8
        if value is None:
            return w.put_null(self, 2)
        if not PyUnicode_Check(value):
            raise Malformed(f"a str is required, not {_shown(value)}")
        try:
            utf8 = PyUnicode_AsUTF8AndSize(value, &length)
        except UnicodeEncodeError as error:
            raise Malformed(f"not valid UTF-8: {error.reason}") from None
        w.put_length(self, 2, length)
        return w.put(utf8, length)


cdef class Blob(Sized):
    cdef object read(self, Cursor *c):
        cdef Py_ssize_t length = _read_length(c, self, 4, "bytes")
        if length == NULL_LENGTH:
            return None
        if length:
            _spend(c, STRING_BYTES + length)
        c.at += length
        return PyBytes_FromStringAndSize(<const char *>c.at - length, length)

    cdef int write(self, Writer w, object value) except -1:
        if value is None:
            return w.put_null(self, 4)
        if not isinstance(value, (bytes, bytearray, memoryview)):
            raise Malformed(f"bytes are required, not {_shown(value)}")
        w.put_length(self, 4, value.nbytes if isinstance(value, memoryview) else len(value))
        return w.put_buffer(value)


cdef class Span(Blob):
    """Record batches, read as a memoryview of their part of the frame. They may be written in pieces."""

    cdef object read(self, Cursor *c):
        cdef Py_ssize_t length = _read_length(c, self, 4, "bytes")
        if length == NULL_LENGTH:
            return None
        _spend(c, SPAN_BYTES)
        c.at += length
        return part_of(<object>c.frame, c.at - length, length)

    cdef int write(self, Writer w, object value) except -1:
        if not isinstance(value, Pieces):
            return Blob.write(self, w, value)
        w.put_length(self, 4, len(value))
        w.put_buffer((<Pieces>value).head)
        return w.put_buffer((<Pieces>value).rest)


cdef class Array(Sized):
    """A count and that many elements, as a tuple."""

    cdef Node element

    def __init__(self, Node element, *, bint compact, bint nullable):
        super().__init__(compact=compact, nullable=nullable)
        self.element = element

    cdef object read(self, Cursor *c):
        cdef Py_ssize_t count = _read_length(c, self, 4, "elements")
        cdef Py_ssize_t index = 0
        cdef tuple items
        if count == NULL_LENGTH:
            return None
        _spend(c, TUPLE_BYTES + count * SLOT_BYTES)
        try:
            # The count is untrusted: memory for all elements is allocated only if the bytes for all of them are
            # present.
            if count * <Py_ssize_t>sizeof(void *) <= c.end - c.at:
                items = PyTuple_New(count)
                PyObject_GC_UnTrack(items)
                while index < count:
                    item = self.element.read(c)
                    Py_INCREF(item)
                    PyTuple_SET_ITEM(items, index, item)
                    index += 1
                return items
            growing = []
            while index < count:
                growing.append(self.element.read(c))
                index += 1
            return PyList_AsTuple(growing)
        except Malformed as error:
            error.steps.append(index)
            raise

    cdef int write(self, Writer w, object value) except -1:
        cdef Py_ssize_t index = 0
        cdef tuple items = _elements(value)
        if items is None:
            return w.put_null(self, 4)
        w.put_length(self, 4, PyTuple_GET_SIZE(items))
        try:
            while index < PyTuple_GET_SIZE(items):
                self.element.write(w, <object>PyTuple_GET_ITEM(items, index))
                index += 1
        except Malformed as error:
            error.steps.append(index)
            raise
        return 0


cdef class Int32Array(Sized):
    """Replica lists and partition numbers. They are most of a Metadata response, so elements are read without a call.
    """

    cdef object read(self, Cursor *c):
        cdef Py_ssize_t count = _read_length(c, self, 4, "elements")
        cdef Py_ssize_t index
        cdef PyObject *seen
        cdef tuple items
        if count == NULL_LENGTH:
            return None
        if count * 4 > c.end - c.at:
            index = (c.end - c.at) // 4
            c.at += index * 4
            error = Malformed(f"cut short: 4 bytes required, {c.end - c.at} left", c.at - c.start)
            error.steps.append(index)
            raise error
        if count == 0:
            return ()
        # A cluster has few different replica lists, and a partition's in-sync replicas nearly always equal its
        # replicas. Equal lists therefore share one tuple.
        cdef uint32_t place = (load32(c.at) * 31 + load32(c.at + (count - 1) * 4) * 7 + <uint32_t>count) % 16
        seen = c.arrays[place]
        if seen != NULL and PyTuple_GET_SIZE(<tuple>seen) == count and not memcmp(c.at, c.arrays_at[place], count * 4):
            c.at += count * 4
            return <object>seen
        _spend(c, TUPLE_BYTES + count * (SLOT_BYTES + INT_BYTES))
        items = PyTuple_New(count)
        PyObject_GC_UnTrack(items)
        cdef PyObject **places = (<PyTupleObject *>items).ob_item
        for index in range(count):
            places[index] = new_int(<int32_t>load32(c.at + index * 4))
        c.arrays[place] = <PyObject *>items
        c.arrays_at[place] = c.at
        c.at += count * 4
        return items

    cdef int write(self, Writer w, object value) except -1:
        cdef Py_ssize_t index = 0
        cdef int64_t number
        cdef tuple items = _elements(value)
        if items is None:
            return w.put_null(self, 4)
        w.put_length(self, 4, PyTuple_GET_SIZE(items))
        try:
            while index < PyTuple_GET_SIZE(items):
                number = _integer(<object>PyTuple_GET_ITEM(items, index), -0x80000000, 0x7FFFFFFF, "int32")
                store32(w.reserve(4), <uint32_t>number)
                index += 1
        except Malformed as error:
            error.steps.append(index)
            raise
        return 0


cdef tuple _elements(object value):
    if value is None:
        return None
    if not isinstance(value, (tuple, list)):
        raise Malformed(f"a tuple or a list is required, not {_shown(value)}")
    return tuple(value)


# ---- structs and messages ------------------------------------------------------------------------------------------

cdef enum Role:
    PRESENT  # this version has the field
    DROPPED  # the version lacks the field, and the value may be dropped
    REFUSED  # the version lacks the field, and a value other than the blank one would be lost


cdef class Struct(Node):
    """The fields of one version, in wire order, read into the slots of `kind`, a tuple subclass.

    `fields`: (slot, name, node) in wire order. `tags`: None for a classic struct, else (tag, slot, name, node) of its
    tagged fields in order of tag. `blank`: by slot, the value of a field that the version lacks. `refused`: names of
    fields that the version lacks and that must be blank in a build. `missing`: the sentinel of a field that was not
    given.
    """

    cdef object kind
    cdef tuple names
    cdef tuple blank
    cdef object missing
    cdef Py_ssize_t width
    cdef Py_ssize_t count
    cdef Py_ssize_t cost
    cdef Py_ssize_t *slots
    cdef PyObject **nodes
    cdef Op *ops
    cdef uint8_t *roles
    cdef tuple fields
    cdef tuple tags
    cdef dict by_tag

    def __cinit__(self):
        self.slots = NULL
        self.nodes = NULL
        self.ops = NULL
        self.roles = NULL

    def __init__(self, kind, tuple names, tuple fields, tags, tuple blank, refused, missing):
        if not issubclass(kind, tuple) or len(names) != len(blank):
            raise TypeError(f"{kind} cannot hold {names}")
        self.kind = kind
        self.names = names
        self.blank = blank
        self.missing = missing
        self.width = len(names)
        self.count = len(fields)
        self.fields = fields
        self.tags = tags
        self.by_tag = {tag: (slot, name, node) for tag, slot, name, node in tags or ()}
        self.slots = <Py_ssize_t *>PyMem_Malloc(max(1, self.count) * sizeof(Py_ssize_t))
        self.nodes = <PyObject **>PyMem_Malloc(max(1, self.count) * sizeof(PyObject *))
        self.ops = <Op *>PyMem_Malloc(max(1, self.count) * sizeof(Op))
        self.roles = <uint8_t *>PyMem_Malloc(max(1, self.width))
        if self.slots == NULL or self.nodes == NULL or self.ops == NULL or self.roles == NULL:
            raise MemoryError
        for index, name in enumerate(names):
            self.roles[index] = REFUSED if name in refused else DROPPED
        for _, slot, _, node in tags or ():
            self.claim(slot, node)
        for index, (slot, _, node) in enumerate(fields):
            self.claim(slot, node)
            self.slots[index] = slot
            self.nodes[index] = <PyObject *>node  # owned by self.fields
            self.ops[index] = (<Node>node).op
        numbers = sum([isinstance(node, (Int16, UInt16, Int32, UInt32, Int64, Float64)) for _, _, node in fields])
        self.cost = TUPLE_BYTES + self.width * SLOT_BYTES + <Py_ssize_t>numbers * INT_BYTES

    def __dealloc__(self):
        PyMem_Free(self.slots)
        PyMem_Free(self.nodes)
        PyMem_Free(self.ops)
        PyMem_Free(self.roles)

    cdef int claim(self, Py_ssize_t slot, object node) except -1:
        if not 0 <= slot < self.width or self.roles[slot] == PRESENT or not isinstance(node, Node):
            raise ValueError(f"{self.kind.__name__} has no slot {slot} for {node}")
        self.roles[slot] = PRESENT
        return 0

    cdef object read(self, Cursor *c):
        cdef Py_ssize_t index
        _spend(c, self.cost)
        # Allocated as the tuple subclass and filled in place: `kind(*values)` would build each value twice.
        value = new_tuple(self.kind, self.width)
        cdef PyObject **items = (<PyTupleObject *>value).ob_item
        index = 0
        try:
            while index < self.count:
                if self.ops[index] == READ_INT32:
                    _need(c, 4)
                    items[self.slots[index]] = new_int(<int32_t>load32(c.at))
                    c.at += 4
                elif self.ops[index] == READ_INT16:
                    _need(c, 2)
                    items[self.slots[index]] = new_int(<int16_t>load16(c.at))
                    c.at += 2
                else:
                    item = (<Node>self.nodes[index]).read(c)
                    Py_INCREF(item)
                    items[self.slots[index]] = <PyObject *>item
                index += 1
        except Malformed as error:
            error.steps.append(self.fields[index][1])
            raise
        for index in range(self.width):
            if items[index] == NULL:
                items[index] = PyTuple_GET_ITEM(self.blank, index)
                Py_INCREF(<object>items[index])
        if self.tags is not None:
            if c.at < c.end and c.at[0] == 0:
                c.at += 1
            else:
                self.read_tags(c, items)
        return value

    cdef int read_tags(self, Cursor *c, PyObject **items) except -1:
        cdef const uint8_t *start = c.at
        cdef const uint8_t *end
        cdef uint32_t count = 0, tag = 0, size = 0
        cdef set seen = set()
        name = None
        try:
            _read_uvarint(c, &count)
            # A tagged field takes two bytes at least: its tag and its size.
            if <Py_ssize_t>count * 2 > c.end - c.at:
                _bad(c, start, f"{count} tagged fields where {c.end - c.at} bytes are left")
            while count:
                count -= 1
                start = c.at
                _read_uvarint(c, &tag)
                if tag in seen:
                    _bad(c, start, f"tag {tag} is repeated")
                _spend(c, TAG_BYTES)
                seen.add(tag)
                _read_uvarint(c, &size)
                if <Py_ssize_t>size > c.end - c.at:
                    _bad(c, start, f"tag {tag} of {size} bytes where {c.end - c.at} are left")
                end = c.at + size
                known = self.by_tag.get(tag)
                if known is None:
                    c.at = end
                    continue
                slot, name, node = known
                item = (<Node>node).read(c)
                name = None
                if c.at != end:
                    _bad(c, start, f"tag {tag}: its value does not fill its size of {size} bytes")
                _put(items + <Py_ssize_t>slot, item)
        except Malformed as error:
            if name is not None:
                error.steps.append(name)
            error.steps.append("_tags")
            raise
        return 0

    cdef int write(self, Writer w, object value) except -1:
        cdef Py_ssize_t index
        cdef tuple items
        if type(value) is self.kind or isinstance(value, self.kind):
            items = <tuple>value
        else:
            items = self.from_mapping(value)
        for index in range(self.width):
            item = <object>PyTuple_GET_ITEM(items, index)
            if self.roles[index] == PRESENT:
                if item is self.missing:
                    self.complain(index, "no value and no default")
            elif self.roles[index] == REFUSED and item is not self.missing and item != self.blank[index]:
                self.complain(index, "the version does not have the field: the value cannot be omitted")
        index = 0
        try:
            while index < self.count:
                (<Node>self.nodes[index]).write(w, <object>PyTuple_GET_ITEM(items, self.slots[index]))
                index += 1
        except Malformed as error:
            error.steps.append(self.fields[index][1])
            raise
        if self.tags is not None:
            self.write_tags(w, items)
        return 0

    cdef int complain(self, Py_ssize_t slot, str reason) except -1:
        error = Malformed(reason)
        error.steps.append(self.names[slot])
        raise error

    cdef tuple from_mapping(self, value):
        if not isinstance(value, Mapping):
            raise Malformed(f"{self.kind.__name__} or a mapping is required, not {type(value).__name__}")
        given = dict(zip(self.names, self.kind._defaults))
        given.update(value)
        if len(given) > self.width:
            error = Malformed(f"{self.kind.__name__} has no field of this name")
            error.steps.append(next(name for name in given if name not in self.names))
            raise error
        return tuple(given.values())

    cdef int write_tags(self, Writer w, tuple items) except -1:
        cdef Writer body
        present = [entry for entry in self.tags if items[entry[1]] != self.blank[entry[1]]]
        w.put_uvarint(len(present))
        for tag, slot, name, node in present:
            body = Writer()
            try:
                (<Node>node).write(body, items[slot])
            except Malformed as error:
                error.steps += (name, "_tags")
                raise
            w.put_uvarint(tag)
            w.put_uvarint(body.size)
            w.put(body.data, body.size)
        return 0


cdef int _put(PyObject **place, object item) except -1:
    """Replace the blank in a new tuple, to which there is no other reference yet."""
    cdef PyObject *old = place[0]
    Py_INCREF(item)
    place[0] = <PyObject *>item
    Py_DECREF(<object>old)
    return 0


cdef class Nullable(Node):
    """A struct that may be null. Before it is one signed byte: negative for null."""

    cdef Node struct

    def __init__(self, Node struct):
        self.struct = struct

    cdef object read(self, Cursor *c):
        _need(c, 1)
        c.at += 1
        return None if <signed char>(c.at - 1)[0] < 0 else self.struct.read(c)

    cdef int write(self, Writer w, object value) except -1:
        w.reserve(1)[0] = 0xFF if value is None else 1
        return 0 if value is None else self.struct.write(w, value)


def read(Node node, buffer, Py_ssize_t at=0, int64_t budget=INT64_MAX):
    """Return the value that starts at `at` of a contiguous buffer, and the offset of its end.

    Raises Malformed, also if the values would take more than `budget` bytes of memory.
    """
    cdef Py_buffer view
    cdef Cursor c
    frame = memoryview(buffer)
    PyObject_GetBuffer(frame, &view, PyBUF_SIMPLE)
    try:
        if not 0 <= at <= view.len:
            raise ValueError(f"offset {at} is outside of {view.len} bytes")
        c.start = <const uint8_t *>view.buf
        c.at = c.start + at
        c.end = c.start + view.len
        c.frame = <PyObject *>frame
        c.budget = budget
        memset(c.arrays, 0, sizeof(c.arrays))
        value = node.read(&c)
        return value, c.at - c.start
    finally:
        PyBuffer_Release(&view)


def write(Node node, value):
    """Return the bytes of `value`. Raises Malformed."""
    cdef Writer w = Writer()
    node.write(w, value)
    return w.finish()


def write_frame(Node node, bytes header, value):
    """Return a frame: its length, the header and the bytes of `value`. Raises Malformed."""
    cdef Writer w = Writer()
    w.reserve(4)
    w.put_buffer(header)
    node.write(w, value)
    store32(w.data, <uint32_t>(w.size - 4))
    return w.finish()
