# cython: freethreading_compatible=True
# cython: language_level=3
"""The request that follows from the response to the only request in flight (`PendingRequest.follow_up`).

The twin is a full turn: `BrokerConnection.received`, and a new request by `BrokerConnection.send`.

Classes whose names end in `Fields` are bases of classes of Python: attributes that compiled code uses for each response.
Elsewhere it finds an attribute by its name, in a dict. For a trickle of records, that was a fifth of the instructions.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_Next
from cpython.object cimport PyObject
from libc.stdint cimport uint8_t, uint32_t
from libc.string cimport memcpy

from kohort.fastpath._byteorder cimport be32, store32
from kohort.fastpath._tuples cimport new
from kohort.network._guard cimport Guard

from kohort.network.requests import NOTHING_FOLLOWS, AwaitedResponse, Stage
from kohort.protocol.wire import OpenRequest

cdef enum:
    CORRELATION_ID_AT = 4
    CORRELATION_ID_END = 8
    REQUEST = 0  # of a request in flight
    VERSION = 1
    TIMEOUT_S = 3  # of a `PendingRequest`
    FOLLOW_UP = 6
    API_KEY = 1  # of an open request
    MOST_CORRELATION_ID = 0x7FFFFFFF


cdef object READY = Stage.READY


cdef class ConnectionFields:
    """Of a `BrokerConnection`."""


cdef class ReaderFields:
    """Of a `FrameReader`."""


cdef class ChannelFields:
    """Of a `Channel`."""


cdef class FollowUp:
    """A `PendingRequest.follow_up` of compiled code."""

    cdef bytes next_body(self, frame, const uint8_t *start, Py_ssize_t size, int version, double now):
        """`start` and `size` are those of `frame`, a memoryview."""
        raise NotImplementedError

    def __call__(self, frame, int version, double now):
        """Handle a response, and return the body of the next request. None if anything is unusual."""
        cdef Py_buffer view
        PyObject_GetBuffer(frame, &view, PyBUF_SIMPLE)
        try:
            return self.next_body(frame, <const uint8_t *>view.buf, view.len, version, now)
        finally:
            PyBuffer_Release(&view)


cdef bytes next_request(ConnectionFields connection, frame, const uint8_t *start, Py_ssize_t size, double now):
    """The next request to write, if the only request in flight has handled its response. It is empty if there is none.
    None: nothing changed."""
    cdef dict in_flight = connection._in_flight
    cdef PyObject *key
    cdef PyObject *value
    cdef Py_ssize_t at = 0
    cdef bytes body
    cdef int version
    if len(in_flight) != 1 or connection._waiting or connection._held or connection.tape is not None:
        return None
    PyDict_Next(in_flight, &at, &key, &value)
    sent, correlation_id = <object>value, <object>key
    request = (<tuple>sent)[REQUEST]
    follow_up = (<tuple>request)[FOLLOW_UP]
    if follow_up is None or connection.stage is not READY or not connection.served or size < CORRELATION_ID_END:
        return None
    if be32(start + CORRELATION_ID_AT) != <long long>correlation_id:
        return None
    version = (<tuple>sent)[VERSION]
    body = _body(connection.guard, follow_up, frame, start, size, version, now)
    if body is None:
        return None
    wire = connection.wire
    opened = wire.open.popleft()
    del in_flight[correlation_id]  # last: from now on another thread may send on the connection
    if body == NOTHING_FOLLOWS:
        return NOTHING_FOLLOWS
    return add_request(connection, request, (<tuple>opened)[API_KEY], version, now, body)


cdef bytes add_request(ConnectionFields connection, request, api_key, int version, double now, bytes body):
    """The frame of a request, which is in flight from now on. `wire.headers` has a header, or it is made."""
    wire = connection.wire
    header = wire.headers.get((api_key, version))
    if header is None:
        header = wire.add_header(api_key, version)
    next_id = wire.next_id
    wire.next_id = 0 if <long long>next_id == MOST_CORRELATION_ID else next_id + 1
    wire.open.append(new(OpenRequest, (next_id, api_key, version)))
    connection._in_flight[next_id] = new(
        AwaitedResponse, (request, version, now + <double>(<tuple>request)[TIMEOUT_S])
    )
    return _framed((<tuple>header)[0], next_id, (<tuple>header)[1], body)


cdef bytes _body(
    Guard guard, follow_up, frame, const uint8_t *start, Py_ssize_t size, int version, double now
):
    if guard is not None:
        guard.acquire()
    try:
        if isinstance(follow_up, FollowUp):
            return (<FollowUp>follow_up).next_body(frame, start, size, version, now)
        return follow_up(frame, version, now)
    finally:
        if guard is not None:
            guard.release()


cdef bytes _framed(bytes before, uint32_t correlation_id, bytes after, bytes body):
    cdef Py_ssize_t head = PyBytes_GET_SIZE(before), middle = PyBytes_GET_SIZE(after), rest = PyBytes_GET_SIZE(body)
    cdef Py_ssize_t size = head + 4 + middle + rest
    cdef bytes frame = PyBytes_FromStringAndSize(NULL, 4 + size)
    cdef uint8_t *p = <uint8_t *>PyBytes_AS_STRING(frame)
    store32(p, <uint32_t>size)
    memcpy(p + 4, PyBytes_AS_STRING(before), head)
    store32(p + 4 + head, correlation_id)
    memcpy(p + 8 + head, PyBytes_AS_STRING(after), middle)
    memcpy(p + 8 + head + middle, PyBytes_AS_STRING(body), rest)
    return frame


def follow_up(ConnectionFields connection, frame, double now):
    """As `next_request`."""
    cdef Py_buffer view
    PyObject_GetBuffer(frame, &view, PyBUF_SIMPLE)
    try:
        return next_request(connection, frame, <const uint8_t *>view.buf, view.len, now)
    finally:
        PyBuffer_Release(&view)
