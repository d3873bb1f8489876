# cython: freethreading_compatible=True
# cython: language_level=3, boundscheck=False, wraparound=False
"""Waits for the sockets of a loop's drivers, and serves connections in their steady state without a turn of a driver.

In the steady state a connection has one request in flight, from whose response the next request follows
(`PendingRequest.follow_up`), or nothing. Such a response is read, handled and followed up here. Everything else is
returned as a ready socket, with the bytes that were read left in the reader, for a turn of the driver.

A caller that waits for the records of such a connection may serve it itself (`Lease`). Two changes of threads a response
are saved. No Python code runs in it, so no signal handler does, and no turn of the driver runs beside it.

Callers are woken after this thread has released the GIL. Otherwise they would wake up twice, once to wait for the GIL.
Requests are sent after that, because a call of `send` takes longer than the wake-up of a caller.
"""

import os
import selectors
import socket
from collections import deque

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.exc cimport PyErr_CheckSignals
from cpython.time cimport monotonic
from libc.errno cimport errno
from libc.math cimport ceil

from kohort.fastpath._byteorder cimport be32
from kohort.network._follow_up cimport add_request, next_request
from kohort.network._guard cimport LONGEST_WAIT_S, Bell, Guard, Waiter, shared_word
from kohort.network._guard cimport PyThread_release_lock, PyThread_type_lock

from kohort.network.broker_connection import LATE_S
from kohort.network.requests import Stage
from kohort.network.frame_reader import LENGTH_BYTES, SCRATCH_BYTES

cdef extern from *:
    """
    #include <errno.h>

    #ifdef _WIN32

    #define KOHORT_HAS_SOCKETS 0
    #define kohort_recv(fd, to, size) -1
    #define kohort_send(fd, data, size) -1

    #else

    #include <sys/socket.h>

    #ifndef MSG_NOSIGNAL
    #define MSG_NOSIGNAL 0
    #endif

    #define KOHORT_HAS_SOCKETS 1
    #define kohort_recv(fd, to, size) recv(fd, to, size, 0)
    #define kohort_send(fd, data, size) send(fd, data, size, MSG_NOSIGNAL)

    #endif

    #define kohort_was_interrupted() (errno == EINTR)
    #define kohort_must_wait() (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)
    #define KOHORT_MOST_EVENTS 64
    #define KOHORT_MOST_LOCKS 16
    #define KOHORT_MOST_SENDS 16

    typedef struct { int fd; int mask; } kohort_event;
    typedef struct { int fd; const char *data; Py_ssize_t size; Py_ssize_t sent; } kohort_outgoing;

    /* Send what the sockets take. Returns the number of those that did not take everything. */
    static int kohort_send_all(kohort_outgoing *requests, int count) {
        int i, short_ones = 0;

        for (i = 0; i < count; i++) {
            requests[i].sent = kohort_send(requests[i].fd, requests[i].data, requests[i].size);

            short_ones += requests[i].sent < requests[i].size;
        }

        return short_ones;
    }

    #ifdef __linux__

    #include <poll.h>
    #include <sys/epoll.h>
    #include <sys/eventfd.h>
    #include <string.h>
    #include <unistd.h>

    #define KOHORT_ADD EPOLL_CTL_ADD
    #define KOHORT_CHANGE EPOLL_CTL_MOD
    #define KOHORT_REMOVE EPOLL_CTL_DEL

    static int kohort_watch(int epoll, int how, int fd, int mask) {
        struct epoll_event event;

        memset(&event, 0, sizeof event);

        event.events = (mask & 1 ? EPOLLIN : 0) | (mask & 2 ? EPOLLOUT : 0);

        event.data.fd = fd;

        return epoll_ctl(epoll, how, fd, &event);
    }

    static int kohort_wait(int epoll, kohort_event *found, int timeout_ms) {
        struct epoll_event events[KOHORT_MOST_EVENTS];

        int count = epoll_wait(epoll, events, KOHORT_MOST_EVENTS, timeout_ms), i;

        for (i = 0; i < count; i++) {
            found[i].fd = events[i].data.fd;

            found[i].mask = (events[i].events & ~EPOLLOUT ? 1 : 0) | (events[i].events & ~EPOLLIN ? 2 : 0);
        }

        return count;
    }

    /* Poll sockets for reading, after the eventfd at the first place, which is reset. The masks are set. */
    static int kohort_poll(kohort_event *sockets, int count, int timeout_ms) {
        struct pollfd polled[KOHORT_MOST_EVENTS];

        eventfd_t value;

        int i, ready;

        for (i = 0; i < count; i++) polled[i] = (struct pollfd){sockets[i].fd, POLLIN, 0};

        ready = poll(polled, count, timeout_ms);

        for (i = 0; i < count; i++) sockets[i].mask = ready > 0 && polled[i].revents;

        if (sockets[0].mask) eventfd_read(sockets[0].fd, &value);

        return ready;
    }

    /* Let polls report a socket only once it holds so many bytes, or has ended. */
    static int kohort_low_water(int fd, int bytes) {
        return setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &bytes, sizeof bytes);
    }

    #define kohort_event_fd() eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)
    #define kohort_epoll() epoll_create1(EPOLL_CLOEXEC)
    #define kohort_close(fd) close(fd)

    #else

    #define kohort_poll(sockets, count, timeout_ms) -1
    #define kohort_low_water(fd, bytes) -1
    #define kohort_event_fd() -1
    #define kohort_epoll() -1
    #define kohort_close(fd) -1

    #define KOHORT_ADD 0
    #define KOHORT_CHANGE 0
    #define KOHORT_REMOVE 0
    #define kohort_watch(epoll, how, fd, mask) -1
    #define kohort_wait(epoll, found, timeout_ms) -1

    #endif
    """
    const bint HAS_SOCKETS "KOHORT_HAS_SOCKETS"
    enum:
        ADD "KOHORT_ADD"
        CHANGE "KOHORT_CHANGE"
        REMOVE "KOHORT_REMOVE"
        MOST_EVENTS "KOHORT_MOST_EVENTS"
        MOST_LOCKS "KOHORT_MOST_LOCKS"
        MOST_SENDS "KOHORT_MOST_SENDS"
    ctypedef struct Event "kohort_event":
        int fd
        int mask
    ctypedef struct Outgoing "kohort_outgoing":
        int fd
        const char *data
        Py_ssize_t size
        Py_ssize_t sent
    Py_ssize_t recv "kohort_recv"(int fd, void *to, Py_ssize_t size) noexcept
    int send_all "kohort_send_all"(Outgoing *requests, int count) noexcept nogil
    Py_ssize_t one_send "kohort_send"(int fd, const void *data, Py_ssize_t size) noexcept
    bint must_wait "kohort_must_wait"() noexcept
    bint was_interrupted "kohort_was_interrupted"() noexcept
    int watch "kohort_watch"(int epoll, int how, int fd, int mask) noexcept
    int epoll_wait "kohort_wait"(int epoll, Event *found, int timeout_ms) noexcept nogil
    int poll_sockets "kohort_poll"(Event *sockets, int count, int timeout_ms) noexcept nogil
    int low_water "kohort_low_water"(int fd, int bytes) noexcept
    int new_event_fd "kohort_event_fd"() noexcept
    int new_epoll "kohort_epoll"() noexcept
    int close_fd "kohort_close"(int fd) noexcept

cdef int READ = selectors.EVENT_READ
cdef double LONGEST_SLEEP_S = 60.0
cdef Py_ssize_t LENGTH = LENGTH_BYTES
cdef Py_ssize_t SCRATCH = SCRATCH_BYTES
cdef object READY = Stage.READY
cdef int STEADY_RESPONSES = 3
# Linux acknowledges segments that are not read as late as after 40 ms. A broker sends 10 until then. Each partition's two
# have 105 bytes and more.
cdef int MOST_UNREAD_BYTES = 256
cdef double LATE_AFTER_S = LATE_S
cdef double LEASE_S = 0.1  # for which a caller may stay away
cdef double LONGEST_LEASE_S = 1.0  # without a look whether the caller still waits


@cython.final
cdef class _Registered:
    """A socket that was registered with a driver and a channel, and the parts of them that a response needs."""


cdef _Registered _registered(sock, tuple owner):
    cdef _Registered made = _Registered.__new__(_Registered)
    driver, channel = owner
    made.owner, made.driver, made.channel, made.sock = owner, driver, channel, sock
    made.core, made.bell, made.endpoints = driver.core, driver.bell, driver.core.endpoints
    made.connection, made.reader = channel.connection, channel.reader
    made.fd, made.plain = sock.fileno(), HAS_SOCKETS and channel.tls is None
    made.lease, made.steady, made.leased = driver.lease, 0, False
    made.missing = made.low_water = 0
    return made


cdef unsigned long _process = 0  # another one in each forked child; `os.getpid` would call the system


def _mark_child():
    global _process
    _process += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_mark_child)


cdef class DriverFields:
    """Of a `Driver`; see `_follow_up.pyx`. `turns` grows before and after each turn in which the core may change, and when
    it ends."""

    def __cinit__(self):
        self.process = _process

    cdef bint was_forked(self) noexcept:
        return self.process != _process

    @property
    def is_forked(self):
        """True in a forked child of the process that made this driver."""
        return self.was_forked()


@cython.final
cdef class Lease:
    """The sockets of a driver that a caller serves while it waits in a poll. They are not armed in the driver's epoll then.

    `guard` is held by the caller while it serves, and by each turn of the driver. A socket is given back if
    its response is unusual, or if the caller stays away. A turn takes it back to send another request.
    The driver's thread keeps everything else: the group, heartbeats, commits, metadata, and the deadlines of requests.

    A caller calls `wait`. An event loop watches the descriptor of `open` instead, and calls `serve_ready`.

    Exists on Linux only, and for plain sockets. Elsewhere `wait` waits for the bell.
    """

    def __cinit__(self, driver, poller, reentered):
        self.driver, self.poller, self.bell = driver, poller, driver.bell
        self.guard = Guard(reentered)
        self.leased = []
        self.event_fd = self.epoll = -1
        self.has_lent = False

    def __dealloc__(self):
        self.close_descriptors()

    def close(self):
        """Close the descriptors of a driver that has ended. An event loop has removed its reader.

        Otherwise a closed client would keep them until it is collected. A signal handler may close inside a wait.
        """
        self.close_descriptors()

    cdef int close_descriptors(self) noexcept:
        if self.event_fd >= 0:
            close_fd(self.event_fd)
        if self.epoll >= 0:
            close_fd(self.epoll)
        self.event_fd = self.epoll = -1
        return 0

    @property
    def size(self):
        """The number of sockets that a caller has."""
        return <unsigned long>self.count

    cpdef bint wait(self, unsigned long seen, double timeout_s) except -1:
        """As `Bell.wait`, and serve the leased sockets. It waits not at all if `timeout_s` is not above zero."""
        cdef Event sockets[MOST_EVENTS]
        cdef _Registered one
        cdef list leased
        cdef double until
        cdef int count = 1
        if not self.count:
            self.wanted = timeout_s > 0
            return self.bell.wait(seen, timeout_s)
        leased = self.sockets()
        for one in leased:
            sockets[count].fd = one.fd
            count += 1
        until = monotonic() + min(timeout_s, LONGEST_WAIT_S)
        while _wait_once(self, seen, until, leased, sockets, count):
            pass  # a response comes in pieces, and the rest of one follows at once
        return True

    def open(self):
        """Lend sockets to an event loop from now on. Returns the descriptor that it has to watch for reading; -1 if
        there are no leases here."""
        if self.epoll < 0:
            self.epoll = new_epoll()
        self.looped = self.wanted = self.epoll >= 0
        return self.epoll

    def serve_ready(self, announce):
        """Serve the sockets that are readable, on the thread of an event loop. Calls `announce()` if the core has
        updates."""
        cdef Event ready[MOST_EVENTS]
        cdef _Registered one
        cdef list leased = self.sockets()
        cdef int place, count = epoll_wait(self.epoll, ready, 0)
        self.used_ms = <unsigned long>(monotonic() * 1e3)
        for place in range(count):
            for one in leased:
                if one.fd == ready[place].fd:
                    self.serve(one)
        if self.driver.core.has_updates:
            announce()

    cdef list sockets(self):
        self.guard.acquire()
        leased = list(self.leased)
        self.guard.release()
        return leased

    cdef bint serve(self, _Registered one) except -1:
        """True if a part of a response came."""
        cdef bint usual = False
        self.guard.acquire()
        try:
            if not one.leased:
                return False
            try:
                usual = _serve(one) and (one.request is None or self.send(one))
            except BaseException as defect:  # the turn raises it
                one.channel.defect = defect
            if not usual:
                self.take_back(one)
                (<Poller>self.poller).give_turn(one)
            else:
                self.set_low_water(one)
            return usual and one.request is None
        finally:
            self.guard.release()

    cdef int set_low_water(self, _Registered one) noexcept:
        """Let the rest of a response wake this thread once. A broker sends two segments for each partition of it."""
        cdef int unread = min(one.missing, MOST_UNREAD_BYTES)
        if one.low_water != unread:
            one.low_water = unread
            low_water(one.fd, max(unread, 1))
        return 0

    cdef bint send(self, _Registered one) except -1:
        cdef Py_ssize_t count = one_send(one.fd, PyBytes_AS_STRING(one.request), PyBytes_GET_SIZE(one.request))
        if count == PyBytes_GET_SIZE(one.request):
            return True
        one.connection.write(memoryview(one.request)[max(count, 0) :])
        return False

    cdef bint holds(self, _Registered one) except -1:
        """True if a caller serves the socket. Otherwise this thread sees all that a caller has done to it."""
        self.guard.acquire()
        try:
            return one.leased
        finally:
            self.guard.release()

    cpdef int give_back(self) except -1:
        """Give all sockets back, before the caller waits for the bell only. An event loop always wants them."""
        self.wanted = self.looped
        if not self.count:
            return 0
        self.guard.acquire()
        try:
            self.take_all_back()
        finally:
            self.guard.release()
        return 0

    cdef int take_all_back(self) except -1:
        """As `take_back`, for all of them."""
        for one in list(self.leased):
            self.take_back(one)
        return 0

    cdef int take_back(self, _Registered one) except -1:
        """Let the driver's thread watch a socket again. The guard is held."""
        self.leased.remove(one)
        self.count = len(self.leased)
        one.leased, one.steady = False, 0
        one.missing = 0
        self.set_low_water(one)
        if self.looped:
            watch(self.epoll, REMOVE, one.fd, 0)
        watch((<Poller>self.poller).epoll, CHANGE, one.fd, READ)  # it fails for a closed socket
        return 0

    cdef bint can_lend(self) except -1:
        if self.looped:
            return self.count < MOST_EVENTS
        if self.event_fd < 0:
            self.event_fd = new_event_fd()
        return self.event_fd >= 0 and self.count < MOST_EVENTS - 1

    cdef int lend(self, _Registered one) except -1:
        if not self.can_lend():
            return 0
        self.guard.acquire()
        try:
            if watch((<Poller>self.poller).epoll, CHANGE, one.fd, 0) < 0:
                return 0
            if self.looped and watch(self.epoll, ADD, one.fd, READ) < 0:
                watch((<Poller>self.poller).epoll, CHANGE, one.fd, READ)
                return 0
            self.has_lent = True
            self.leased.append(one)
            one.leased = True
            self.used_ms = <unsigned long>(monotonic() * 1e3)
            self.count = len(self.leased)
        finally:
            self.guard.release()
        return 1

    cdef double ends_at(self) except -1:
        """The time (monotonic s) to look whether the caller still comes."""
        if self.inside:
            return monotonic() + LONGEST_LEASE_S
        return self.used_ms / 1e3 + (LONGEST_LEASE_S if self.looped else LEASE_S)

    cdef int end_if_unused(self) except -1:
        if not self.inside and self.ends_at() <= monotonic() and self.guard.try_acquire():
            try:
                self.take_all_back()
            finally:
                self.guard.release()
        return 0


cdef bint _wait_once(
    Lease lease, unsigned long seen, double until, list leased, Event *sockets, int count
) except -1:
    """True if only parts of responses came."""
    cdef _Registered one
    cdef double left = until - monotonic()
    cdef int ready, place, timeout_ms = 0 if left <= 0 else <int>ceil(left * 1e3)
    cdef bint only_parts
    sockets[0].fd = lease.event_fd
    if lease.event_fd < 0 or not lease.bell.join_polling(lease.event_fd, seen):
        return False
    lease.inside = 1
    with nogil:
        ready = poll_sockets(sockets, count, timeout_ms)
    lease.used_ms = <unsigned long>(monotonic() * 1e3)
    lease.inside = 0
    lease.bell.part_polling()
    PyErr_CheckSignals()
    only_parts = ready > 0 and not sockets[0].mask
    for place in range(1, count):
        if sockets[place].mask:
            one = leased[place - 1]
            only_parts = lease.serve(one) and only_parts
    return only_parts


@cython.final
cdef class Poller:
    """The sockets of a loop. Each is registered with its driver and its channel, or with None.

    `rung` has the drivers that other threads woke, after which they send a byte to the socket `bell`.

    Python's selectors release the GIL for each registration, which the thread may then wait for. So on
    Linux the selector is only made and closed.
    """

    def __cinit__(self, rung, bell):
        self.selector = selectors.DefaultSelector()
        self.epoll = self.selector.fileno() if hasattr(selectors, "EpollSelector") else -1
        self.rung, self.bell, self.bell_fd = rung, bell, bell.fileno()
        self.handed_over = deque()
        self.owners, self.fds = {}, {}
        self.woken, self.senders, self.leases = [], [], []

    def register(self, sock, int events, owner):
        fd = sock.fileno()
        if self.epoll < 0:
            self.selector.register(sock, events, owner)
        elif watch(self.epoll, ADD, fd, events) < 0:
            raise OSError(errno, os.strerror(errno))
        self.owners[fd] = None if owner is None else _registered(sock, owner)
        self.fds[sock] = fd

    def modify(self, sock, int events, owner):
        self.reclaim(sock)
        if self.epoll < 0:
            self.selector.modify(sock, events, owner)
        elif watch(self.epoll, CHANGE, self.fds[sock], events) < 0:
            raise OSError(errno, os.strerror(errno))

    def unregister(self, sock):
        """Forget a socket, which may be closed already."""
        self.reclaim(sock)
        fd = self.fds.pop(sock)
        self.owners.pop(fd, None)
        if self.epoll < 0:
            self.selector.unregister(sock)
        else:
            watch(self.epoll, REMOVE, fd, 0)  # it fails for a closed one

    def close(self):
        self.selector.close()

    def reclaim(self, sock):
        """Take a socket back from a caller, if it serves it. `Lease.guard` is held."""
        cdef _Registered found
        fd = self.fds.get(sock)
        if fd is None or self.owners[fd] is None:
            return
        found = self.owners[fd]
        if found.leased:
            found.lease.take_back(found)

    def idle_connection(self, sock, api_key, int version):
        """The connection of a registered socket for requests of an API, or None if it is not plain."""
        cdef _Registered one = self.owners.get(self.fds.get(sock))
        cdef IdleConnection made
        if one is None or not one.plain:
            return None
        made = IdleConnection.__new__(IdleConnection)
        made.one, made.poller, made.api_key, made.version = one, self, api_key, version
        made.header = (api_key, version)
        return made

    cdef int give_turn(self, _Registered one) except -1:
        """Have the loop give a turn for a socket that was served by another thread."""
        self.handed_over.append((one.owner, READ))
        self.rung.append(one.driver)
        one_send(self.bell_fd, b"!", 1)
        return 0

    cdef double _left(self, double until) except? -1:
        """The seconds to wait. Leases of callers that stay away end now."""
        cdef double now = monotonic()
        cdef Lease lease
        cdef list kept = []
        if self.leases:
            for lease in self.leases:
                lease.end_if_unused()
                if lease.count:
                    kept.append(lease)
                    until = min(until, max(lease.ends_at(), now + 0.001))
            self.leases = kept
        return min(until - now, LONGEST_SLEEP_S)

    def wait(self, double until):
        """Wait until a socket needs a turn, `rung` has an entry, or the time (monotonic s) has come.

        Returns the ready sockets as (what it was registered with, ready for). Steady connections are served meanwhile.
        """
        cdef Event events[MOST_EVENTS]
        cdef PyThread_type_lock locks[MOST_LOCKS]
        cdef Outgoing requests[MOST_SENDS]
        cdef int count, place, sleepers, sends, short_sends, timeout_ms
        cdef double left
        cdef list ready = [], woken, senders
        while True:
            left = 0.0 if self.rung else self._left(until)
            woken, self.woken = self.woken, []
            senders, self.senders = self.senders, []
            sleepers, sends = _locks_of(woken, locks), _requests_of(senders, requests)
            timeout_ms = 0 if left <= 0 else <int>ceil(left * 1e3)
            with nogil:
                for place in range(sleepers):
                    PyThread_release_lock(locks[place])
                short_sends = send_all(requests, sends)
                count = 0 if short_sends or self.epoll < 0 else epoll_wait(self.epoll, events, timeout_ms)
            if short_sends:
                _leave_rest(senders, requests, ready)
            elif self.epoll >= 0:
                for place in range(count):
                    self._see(events[place].fd, events[place].mask, ready)
            else:
                found = self.selector.select(max(left, 0.0))
                count = len(found)
                for key, mask in found:
                    self._see(key.fd, mask, ready)
            if ready or self.rung or count <= 0 or monotonic() >= until:
                self._finish(ready)
                while self.handed_over:
                    ready.append(self.handed_over.popleft())
                return ready

    cdef int _finish(self, list ready) except -1:
        """Wake the callers, and send the requests, before a turn."""
        cdef Outgoing requests[MOST_SENDS]
        cdef list woken, senders
        cdef int sends, short_sends
        woken, self.woken = self.woken, []
        senders, self.senders = self.senders, []
        _wake(woken)
        sends = _requests_of(senders, requests)
        if sends:
            with nogil:
                short_sends = send_all(requests, sends)
            if short_sends:
                _leave_rest(senders, requests, ready)
        return 0

    cdef int _see(self, int fd, int mask, list ready) except -1:
        """Serve a socket, or add it to those that are ready."""
        cdef _Registered found
        if fd not in self.owners:
            return 0
        found = self.owners[fd]
        if found is None:
            ready.append((None, mask))
            return 0
        if found.lease.has_lent and found.lease.holds(found):  # its connection has ended
            found.lease.give_back()
        try:
            if mask == READ and len(self.senders) < MOST_SENDS and _serve(found):
                if found.request is not None:
                    # The request itself, too: once the socket is lent, the caller may serve it before this is sent.
                    self.senders.append((found, found.request))
                if found.core.has_updates:
                    if found.connection._in_flight:  # the caller waits for the next response
                        self._lend(found)  # before the ring: the caller must not begin to wait for the bell only
                    else:
                        found.driver.turns = found.driver.turns + 1  # more than records may have come, see `is_usual`
                    self.woken += found.bell.rung()
                    if found.driver.on_update is not None:
                        found.driver.on_update()
                return 0
            found.steady = 0
        except BaseException as defect:  # a turn raises it: other drivers of this thread must go on
            found.channel.defect = defect
        ready.append((found.owner, mask))
        return 0


    cdef int _lend(self, _Registered found) except -1:
        """Lend the socket to the caller, if one waits for it and can have it."""
        cdef Lease lease = found.lease
        if not lease.wanted or found.steady < STEADY_RESPONSES or not found.plain or self.epoll < 0:
            return 0
        if lease.lend(found) and lease not in self.leases:
            self.leases.append(lease)
        return 0


@cython.final
cdef class IdleConnection:
    """A connection on which another thread may send a request while it has none in flight.

    The thread calls `enter`, `send` and `leave`, in compiled code. `send` has no code in Python, so no signal handler can
    cut it in two. The driver's thread receives the response, and keeps everything else of the connection.
    """

    @property
    def is_open(self):
        """The connection can still be used."""
        return self.one.channel.sock is self.one.sock and self.one.connection.stage is READY

    cdef bint enter(self, double now, double timeout_s) except -1:
        """Keep the driver's turns out until `leave`. False if one is in progress, or the connection is not idle."""
        cdef Guard guard = self.one.lease.guard
        cdef bint idle = False
        if not guard.try_acquire():
            return False
        try:
            idle = self.is_idle(now, timeout_s)
        finally:
            if not idle:
                guard.release()
        return idle

    cdef bint is_idle(self, double now, double timeout_s) except -1:
        cdef ConnectionFields connection = self.one.connection
        cdef ChannelFields channel = self.one.channel
        if not self.is_open or self.one.driver.stopping or not connection.served or connection.tape is not None:
            return False
        if connection._in_flight or connection._waiting or connection._held or channel.to_write:
            return False
        if connection._out or connection.is_removed or now < <double>connection._throttle.until:
            return False
        # The driver's thread looks after the connection soon enough for the request's deadline, and for `late_at`.
        return <double>channel.due_at <= now + min(timeout_s, LATE_AFTER_S) and self.header in connection.wire.headers

    cdef int send(self, request, double now, bytes body) except -1:
        """Send a request. What the socket does not take is left to a turn, and so is an error of the socket."""
        cdef bytes frame = add_request(self.one.connection, request, self.api_key, self.version, now, body)
        cdef Py_ssize_t count = one_send(self.one.fd, PyBytes_AS_STRING(frame), PyBytes_GET_SIZE(frame))
        if count < PyBytes_GET_SIZE(frame):
            self.one.channel.to_write.append(memoryview(frame)[max(count, 0) :])
            self.one.connection._unwritten.append(None)
            self.poller.give_turn(self.one)
        return 0

    cdef int leave(self) except -1:
        self.one.lease.guard.release()
        return 0


cdef int _wake(list woken) except -1:
    cdef Waiter waiter
    for waiter in woken:
        PyThread_release_lock(waiter.lock)
    return 0


cdef int _locks_of(list woken, PyThread_type_lock *locks) except -1:
    """Take the locks of the waiters, which must live until the locks are released. Those beyond the array are released
    at once."""
    cdef Waiter waiter
    cdef int count = 0
    for waiter in woken:
        if count < MOST_LOCKS:
            locks[count] = waiter.lock
            count += 1
        else:
            PyThread_release_lock(waiter.lock)
    return count


cdef int _requests_of(list senders, Outgoing *requests) except -1:
    """The requests of the senders, which must live until they are sent."""
    cdef _Registered one
    cdef bytes request
    cdef int count = 0
    for one, request in senders:
        requests[count] = Outgoing(one.fd, PyBytes_AS_STRING(request), PyBytes_GET_SIZE(request), 0)
        count += 1
    return count


cdef int _leave_rest(list senders, Outgoing *requests, list ready) except -1:
    """Leave to turns what their sockets did not take. An error of a socket is that of its next `write`, too."""
    cdef _Registered one
    cdef bytes request
    cdef int place
    for place, (one, request) in enumerate(senders):
        if requests[place].sent < requests[place].size:
            one.connection.write(memoryview(request)[max(requests[place].sent, 0) :])
            ready.append((one.owner, READ))
    return 0


cdef bint _serve(_Registered one) except -1:
    """Handle the response in a readable socket, and send the next request, or keep it as `one.request`. False: a turn
    has to look at the socket."""
    cdef Py_ssize_t fill, count, size
    cdef ConnectionFields connection = one.connection
    cdef ReaderFields reader = one.reader
    cdef ChannelFields channel = one.channel
    cdef unsigned char *scratch = <unsigned char *>PyByteArray_AS_STRING(reader.scratch)
    cdef bytes frame, request
    one.request = None
    one.missing = 0
    if connection.stage is not READY or one.driver.stopping or channel.to_write or channel.sock is not one.sock:
        return False
    if reader.large is not None:
        return False
    fill = reader.fill
    if one.plain:
        count = recv(one.fd, scratch + fill, SCRATCH - fill)
        if count < 0:
            if must_wait():
                return True
            channel.failure = OSError(errno, os.strerror(errno))
    else:
        count = channel.receive()
        if count < 0:
            return True
    if count <= 0:
        return False
    fill += count
    reader.fill = fill
    if fill < LENGTH:
        return one.plain or not channel.withholds
    size = LENGTH + be32(scratch)
    if size < LENGTH or size > SCRATCH or fill > size or size - LENGTH > connection.max_frame_bytes:
        return False
    if fill < size:
        one.missing = <int>(size - fill)
        return one.plain or not channel.withholds
    if one.endpoints.last_error is not None:
        return False
    frame = PyBytes_FromStringAndSize(<const char *>scratch, size)
    request = next_request(
        connection, memoryview(frame), <const unsigned char *>PyBytes_AS_STRING(frame), size, monotonic()
    )
    if request is None:
        return False
    reader.fill = 0
    # A follow-up of a connection that is lent runs on the caller's thread, so it must be compiled. That of a commit is not,
    # and nothing follows from it.
    one.steady = one.steady + 1 if request else 0
    if not request:
        return one.plain or not channel.withholds
    if one.plain and (one.leased or one.driver.on_update is None):  # which may release the GIL
        one.request = request
        return True
    count = channel.send(request)
    if count < PyBytes_GET_SIZE(request):
        connection.write(memoryview(request)[count:])
        return False
    return one.plain or not channel.withholds


# `send` and `recv_into` without releasing the GIL. Such a call takes some microseconds. A thread that releases the GIL for
# it may wait 5 ms for other threads before it has the GIL again, for each call. Calls with much data release it, and calls
# on TLS sockets and on Windows.

cdef object PLAIN = socket.socket
cdef Py_ssize_t MOST_BYTES = 1 << 16


cdef int _plain(sock, Py_ssize_t size) except -2:
    """The descriptor of a socket to use here; -1 if its own method is to be called."""
    return sock.fileno() if HAS_SOCKETS and type(sock) is PLAIN and size <= MOST_BYTES else -1


def send(sock, data):
    """As `sock.send(data)`, of a socket that never blocks."""
    cdef int fd = _plain(sock, len(data))
    return sock.send(data) if fd < 0 else _transferred(fd, data, PyBUF_SIMPLE)


def recv_into(sock, target):
    """As `sock.recv_into(target)`, of a socket that never blocks."""
    cdef int fd = _plain(sock, len(target))
    return sock.recv_into(target) if fd < 0 else _transferred(fd, target, PyBUF_WRITABLE)


def ring(bell):
    """Wake the thread that waits for the other end of `bell`."""
    try:
        send(bell, b"!")
    except OSError:  # full: a wake-up is pending already; closed: the thread has ended
        pass


def take_rings(bell, room):
    """Read what `ring` has sent from the other end."""
    try:
        recv_into(bell, room)
    except BlockingIOError:
        pass


cdef Py_ssize_t _transferred(int fd, data, int access) except -1:
    """Receive into a buffer that is to be writable, and send any other."""
    cdef Py_buffer view
    cdef Py_ssize_t count = -1
    PyObject_GetBuffer(data, &view, access)
    try:
        while count < 0:
            count = recv(fd, view.buf, view.len) if access == PyBUF_WRITABLE else one_send(fd, view.buf, view.len)
            if count < 0 and not was_interrupted():
                raise OSError(errno, os.strerror(errno))
    finally:
        PyBuffer_Release(&view)
    return count
