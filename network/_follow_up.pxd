from libc.stdint cimport uint8_t

from kohort.network._guard cimport Guard


cdef class ConnectionFields:
    cdef public object stage, tape, wire, _waiting, _held
    cdef public dict _in_flight
    cdef public Guard guard
    cdef public Py_ssize_t max_frame_bytes
    cdef public bint served


cdef class ReaderFields:
    cdef public bytearray scratch
    cdef public Py_ssize_t fill
    cdef public object large


cdef class ChannelFields:
    cdef public object sock, to_write, failure, defect


cdef class FollowUp:
    cdef bytes next_body(self, frame, const uint8_t *start, Py_ssize_t size, int version, double now)


cdef bytes next_request(ConnectionFields connection, frame, const uint8_t *start, Py_ssize_t size, double now)
cdef bytes add_request(ConnectionFields connection, request, api_key, int version, double now, bytes body)
