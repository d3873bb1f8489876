from libc.stdint cimport uint8_t


cdef class FollowUp:
    cdef bytes next_body(self, frame, const uint8_t *start, Py_ssize_t size, int version, double now)


cdef bytes next_request(connection, frame, const uint8_t *start, Py_ssize_t size, double now)
