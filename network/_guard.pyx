# cython: freethreading_compatible=True
# cython: language_level=3
"""Locks that no signal handler can leave held, or release for another thread.

CPython runs signal handlers between bytecodes: after a call, at a backward jump, at a function's entry. A handler that
raises there cuts a Python function in two, also `threading.Condition.__enter__`. Compiled code is not cut: each method
here takes effect whole, or raises and has no effect.
"""

from sys import platform
from time import monotonic

cimport cython
from cpython.exc cimport PyErr_CheckSignals
from libc.math cimport INFINITY

cdef extern from "pythread.h":
    ctypedef enum PyLockStatus:
        PY_LOCK_ACQUIRED
    PyThread_type_lock PyThread_allocate_lock() noexcept
    void PyThread_free_lock(PyThread_type_lock lock) noexcept
    PyLockStatus PyThread_acquire_lock_timed(PyThread_type_lock lock, long long us, int interruptible) noexcept nogil
    unsigned long PyThread_get_thread_ident() noexcept nogil

cdef extern from *:
    """
    #ifdef __linux__
    #include <sys/eventfd.h>
    #define kohort_signal_event(fd) eventfd_write(fd, 1)
    #else
    #define kohort_signal_event(fd) -1
    #endif
    """
    int signal_event "kohort_signal_event"(int fd) noexcept

cdef double LONGEST_WAIT_S = 0.1 if platform == "win32" else 1.0
"""The longest wait for a lock without a look for signals. No signal ends such a wait on Windows. Elsewhere a signal ends
it, but not if it comes just before the wait, or if the system delivers it to another thread."""


cdef bint _acquired(PyThread_type_lock lock, double timeout_s) except -1:
    """Acquire a lock; raises the exception of a signal handler that runs meanwhile, without the lock. Negative: no
    time-out."""
    cdef PyLockStatus status = PyThread_acquire_lock_timed(lock, 0, 0)
    cdef double until, left
    if status == PY_LOCK_ACQUIRED:
        return True
    left = INFINITY if timeout_s < 0 else timeout_s
    until = <double>monotonic() + left
    while left > 0:
        left = min(left, LONGEST_WAIT_S)
        with nogil:
            status = PyThread_acquire_lock_timed(lock, <long long>(left * 1e6), 1)
        if status == PY_LOCK_ACQUIRED:
            return True
        PyErr_CheckSignals()
        left = until - <double>monotonic()
    return False


@cython.final
cdef class Guard:
    """A lock with an owner. `reentered` makes the error for a thread that acquires the lock that it owns.

    Such a thread runs a signal handler that has interrupted the owner.
    """

    def __cinit__(self, reentered):
        self.lock = PyThread_allocate_lock()
        if self.lock == NULL:
            raise MemoryError("no lock can be made")
        self.owner = 0
        self.reentered = reentered

    def __dealloc__(self):
        if self.lock != NULL:
            PyThread_free_lock(self.lock)

    cdef int acquire(self) except -1:
        if self.is_mine():
            raise self.reentered()
        _acquired(self.lock, -1)
        self.owner = PyThread_get_thread_ident()
        return 0

    cdef bint try_acquire(self) except -1:
        """Acquire the lock if it is free; True if it was."""
        if not _acquired(self.lock, 0):
            return False
        self.owner = PyThread_get_thread_ident()
        return True

    cdef void release(self) noexcept:
        self.owner = 0
        PyThread_release_lock(self.lock)

    cdef bint is_mine(self) noexcept:
        return self.owner == PyThread_get_thread_ident()

    @property
    def owned(self):
        """The current thread holds the lock."""
        return self.is_mine()

    def run(self, function, *args):
        """Call `function` with the lock held, and return its value. The lock is released after any exception."""
        self.acquire()
        try:
            return function(*args)
        finally:
            self.release()

    def __enter__(self):
        """For threads in which no signal handler runs. The main thread calls `run`."""
        self.acquire()

    def __exit__(self, *_error):
        self.release()


@cython.final
cdef class ReentrantLock:
    """A lock that its owner may hold several times. `hold` waits for it.

    `with threading.RLock()` does not do here. From Python 3.14 on, a handler may raise behind its `__enter__`, where no
    `with` protects yet, and the lock is left held.
    """

    cdef PyThread_type_lock lock
    cdef shared_word owner
    cdef unsigned long depth

    def __cinit__(self):
        self.lock = PyThread_allocate_lock()
        if self.lock == NULL:
            raise MemoryError("no lock can be made")

    def __dealloc__(self):
        if self.lock != NULL:
            PyThread_free_lock(self.lock)

    def hold(self):
        """Wait for the lock, and hold it until the result is released. A dropped result is released."""
        cdef Hold hold = Hold.__new__(Hold)
        if self.owner != PyThread_get_thread_ident():
            _acquired(self.lock, -1)
            self.owner = PyThread_get_thread_ident()
        self.depth += 1
        hold.lock = self
        return hold

    cdef int released(self) noexcept:
        self.depth -= 1
        if not self.depth:
            self.owner = 0
            PyThread_release_lock(self.lock)
        return 0


@cython.final
cdef class Hold:
    """A context manager. An exception behind `__enter__`, where no `with` protects yet, drops it and so releases the
    lock."""

    cdef ReentrantLock lock

    def __dealloc__(self):
        if self.lock is not None:
            self.lock.released()

    def __enter__(self):
        return self

    def __exit__(self, *_error):
        self.release()

    def release(self):
        """It has no effect if the lock is released."""
        cdef ReentrantLock lock = self.lock
        self.lock = None
        if lock is not None:
            lock.released()


@cython.final
cdef class Waiter:
    """A thread that waits for a ring."""

    def __cinit__(self):
        self.lock = PyThread_allocate_lock()
        if self.lock == NULL:
            raise MemoryError("no lock can be made")
        PyThread_acquire_lock_timed(self.lock, 0, 0)

    def __dealloc__(self):
        PyThread_free_lock(self.lock)


@cython.final
cdef class Bell:
    """Wakes threads that wait outside of any lock. Read `rings`, look whether there is anything to do, then `wait`:
    a ring in between ends the wait at once."""

    def __cinit__(self):
        self.waiters = []
        self.event_fd = -1

    @property
    def rings(self):
        return <unsigned long>self._rings

    def ring(self):
        """Wake all waiting threads. It may be called from any thread, and from a signal handler."""
        cdef Waiter waiter
        for waiter in self.rung():
            PyThread_release_lock(waiter.lock)

    @cython.critical_section
    cdef list rung(self):
        """Count a ring. The caller must release the lock of each waiter that is returned, once."""
        cdef list none = []
        cdef list woken = self.waiters
        self._rings = self._rings + 1
        self.waiters = none
        if self.event_fd >= 0:
            signal_event(self.event_fd)
            self.event_fd = -1
        return woken

    @cython.critical_section
    cdef bint join_polling(self, int event_fd, unsigned long seen) except -1:
        """Let the next ring signal an eventfd, which one thread polls; False if there was a ring since `seen`."""
        if self._rings != seen:
            return False
        self.event_fd = event_fd
        return True

    @cython.critical_section
    cdef int part_polling(self) except -1:
        self.event_fd = -1
        return 0

    @cython.critical_section
    cdef bint _join(self, Waiter waiter, unsigned long seen) except -1:
        """Let `waiter` be woken by the next ring; False if there was one since `seen`."""
        if self._rings != seen:
            return False
        self.waiters.append(waiter)
        return True

    @cython.critical_section
    cdef int _part(self, Waiter waiter) except -1:
        if waiter in self.waiters:
            self.waiters.remove(waiter)  # without an allocation, which may run another thread that joins
        return 0

    def wait(self, unsigned long seen, double timeout_s):
        """Sleep until `rings` differs from `seen`; False after `timeout_s` seconds. Raises the exception of a signal
        handler."""
        cdef Waiter waiter
        if self._rings != seen:
            return True
        if timeout_s <= 0:
            return False
        waiter = Waiter()
        if not self._join(waiter, seen):
            return True
        try:
            _acquired(waiter.lock, timeout_s)
            return self._rings != seen
        finally:
            self._part(waiter)


@cython.final
cdef class Door:
    """Admits one thread at a time. A thread may visit repeatedly.

    `elsewhere` makes the error for another thread. `look` is called before the outermost visit ends. `handed` is the
    `Visit.handed` of a visit that is not settled yet.
    """

    def __cinit__(self, elsewhere):
        self.elsewhere = elsewhere

    @property
    def depth(self):
        return <unsigned long>self._depth

    @property
    def handed(self):
        """It is set by the visiting thread, and settled by that or by the driver's."""
        return self.current()

    @handed.setter
    def handed(self, value):
        self.hand(value)

    @cython.critical_section
    cdef object current(self):
        return self._handed

    @cython.critical_section
    cdef int hand(self, value) except -1:
        self._handed = value
        return 0

    cdef int refuse_others(self) except -1:
        if self._depth and self.owner != PyThread_get_thread_ident():
            raise self.elsewhere()
        return 0

    @cython.critical_section
    cdef int left(self) except -1:
        self._depth = self._depth - 1
        return 0

    @cython.critical_section
    def check(self):
        """Raises the error of `elsewhere` while another thread is inside."""
        self.refuse_others()

    @cython.critical_section
    def visit(self):
        """Enter. The visit lasts until it is left. A dropped visit is left."""
        cdef Visit visit = Visit.__new__(Visit)
        self.refuse_others()
        self.owner = PyThread_get_thread_ident()
        self._depth = self._depth + 1
        visit.door = self
        return visit


@cython.final
cdef class Visit:
    """A context manager. An exception behind `__enter__`, where no `with` protects yet, drops it and so ends it."""

    cdef Door door

    def __dealloc__(self):
        if self.door is not None:
            self.door.left()

    def __enter__(self):
        return self

    def __exit__(self, *_error):
        self.leave()

    def leave(self):
        """End the visit. It has no effect if the visit has ended."""
        cdef Door door = self.door
        if door is None:
            return
        try:
            if door.look is not None and door._depth == 1:
                door.look()
        finally:
            if self.door is not None:
                self.door = None
                door.left()

    @property
    def handed(self):
        """An assignment hands a value to the door and ends the visit, in one step. No handler runs between it and a
        `return` or `yield` of what is in a local variable. `Door.look` is not called."""
        return None if self.door is None else self.door.current()

    @handed.setter
    def handed(self, value):
        cdef Door door = self.door
        self.door = None
        door.hand(value)
        door.left()


def keep_result(outcome, function, argument):
    """Call `function(argument)` and store the result as `outcome.result`, in one step.

    Otherwise the result of a call that ends with a pending signal would be lost. `outcome.returned` is then True,
    unless the result must still be awaited.
    """
    result = function(argument)
    outcome.result = result
    outcome.returned = not hasattr(type(result), "__await__")
