# cython: freethreading_compatible=True
# cython: language_level=3
"""`send` and `recv_into` of sockets that never block, without releasing the GIL.

Such a call takes some microseconds. A thread that releases the GIL for it may wait 5 ms for other threads before it has
the GIL again, for each call. Calls with much data release it, and calls on TLS sockets and on Windows.
"""

import os
import socket

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from libc.errno cimport errno

cdef extern from *:
    """
    #include <errno.h>

    #ifdef _WIN32

    #define KOHORT_HAS_SOCKETS 0
    #define kohort_send(fd, data, size) -1
    #define kohort_recv(fd, to, size) -1

    #else

    #include <sys/socket.h>

    #ifndef MSG_NOSIGNAL
    #define MSG_NOSIGNAL 0
    #endif

    #define KOHORT_HAS_SOCKETS 1
    #define kohort_send(fd, data, size) send(fd, data, size, MSG_NOSIGNAL)
    #define kohort_recv(fd, to, size) recv(fd, to, size, 0)

    #endif

    #define kohort_was_interrupted() (errno == EINTR)
    """
    const bint HAS_SOCKETS "KOHORT_HAS_SOCKETS"
    Py_ssize_t c_send "kohort_send"(int fd, const void *data, Py_ssize_t size) noexcept
    Py_ssize_t c_recv "kohort_recv"(int fd, void *to, Py_ssize_t size) noexcept
    bint was_interrupted "kohort_was_interrupted"() noexcept

cdef object PLAIN = socket.socket
cdef Py_ssize_t MOST_BYTES = 1 << 16


cdef int _plain(sock, Py_ssize_t size) except -2:
    """The descriptor of a socket to use here; -1 if its own method is to be called."""
    return sock.fileno() if HAS_SOCKETS and type(sock) is PLAIN and size <= MOST_BYTES else -1


def send(sock, data):
    """As `sock.send(data)`, of a socket that never blocks."""
    cdef Py_buffer view
    cdef Py_ssize_t sent = -1
    cdef int fd = _plain(sock, len(data))
    if fd < 0:
        return sock.send(data)
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        while sent < 0:
            sent = c_send(fd, view.buf, view.len)
            if sent < 0 and not was_interrupted():
                raise OSError(errno, os.strerror(errno))
    finally:
        PyBuffer_Release(&view)
    return sent


def recv_into(sock, target):
    """As `sock.recv_into(target)`, of a socket that never blocks."""
    cdef Py_buffer view
    cdef Py_ssize_t count = -1
    cdef int fd = _plain(sock, len(target))
    if fd < 0:
        return sock.recv_into(target)
    PyObject_GetBuffer(target, &view, PyBUF_WRITABLE)
    try:
        while count < 0:
            count = c_recv(fd, view.buf, view.len)
            if count < 0 and not was_interrupted():
                raise OSError(errno, os.strerror(errno))
    finally:
        PyBuffer_Release(&view)
    return count
