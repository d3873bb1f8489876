# Lease holds the sockets that a waiting caller serves itself. _Registered is a socket with its driver. IdleConnection is
# for a request from another thread.

from kohort.network._follow_up cimport ChannelFields, ConnectionFields, ReaderFields
from kohort.network._guard cimport Bell, Guard, shared_flag, shared_word


cdef class Lease


cdef class DriverFields:
    cdef public shared_word turns
    cdef public shared_flag stopping
    cdef unsigned long process
    cdef public Guard lock
    cdef public Bell bell
    cdef public Lease lease

    cdef bint was_forked(self) noexcept


cdef class _Registered:
    cdef object owner, core, endpoints, sock
    cdef DriverFields driver
    cdef ChannelFields channel
    cdef ConnectionFields connection
    cdef ReaderFields reader
    cdef Bell bell
    cdef bytes request  # to send
    cdef Lease lease
    cdef int fd
    cdef int steady  # responses in a row from which a request followed here
    cdef int missing  # bytes of the response that is being read
    cdef int low_water  # bytes below which polls do not report the socket; 0 is the system's default
    cdef bint plain, leased


cdef class Lease:
    cdef readonly Guard guard
    cdef Bell bell
    cdef object driver, poller
    cdef list leased
    cdef int event_fd, epoll
    cdef bint has_lent
    cdef shared_word count, wanted, looped, inside, used_ms

    cdef int close_descriptors(self) noexcept
    cpdef bint wait(self, unsigned long seen, double timeout_s) except -1
    cdef bint serve(self, _Registered one) except -1
    cdef int set_low_water(self, _Registered one) noexcept
    cdef bint send(self, _Registered one) except -1
    cdef list sockets(self)
    cdef bint holds(self, _Registered one) except -1
    cpdef int give_back(self) except -1
    cdef int take_all_back(self) except -1
    cdef int take_back(self, _Registered one) except -1
    cdef bint can_lend(self) except -1
    cdef int lend(self, _Registered one) except -1
    cdef double ends_at(self) except -1
    cdef int end_if_unused(self) except -1


cdef class Poller:
    cdef object selector, rung, bell, handed_over
    cdef int epoll, bell_fd
    cdef dict owners, fds
    cdef list woken, senders, leases

    cdef int give_turn(self, _Registered one) except -1
    cdef double _left(self, double until) except? -1
    cdef int _finish(self, list ready) except -1
    cdef int _see(self, int fd, int mask, list ready) except -1
    cdef int _lend(self, _Registered found) except -1


cdef class IdleConnection:
    cdef _Registered one
    cdef Poller poller
    cdef object api_key
    cdef int version
    cdef tuple header

    cdef bint enter(self, double now, double timeout_s) except -1
    cdef bint is_idle(self, double now, double timeout_s) except -1
    cdef int send(self, request, double now, bytes body) except -1
    cdef int leave(self) except -1
