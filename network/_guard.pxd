cdef extern from "pythread.h":
    ctypedef void *PyThread_type_lock
    void PyThread_release_lock(PyThread_type_lock lock) noexcept nogil

cdef extern from *:
    """
    // A word that one thread writes while others read it.
    #ifndef KOHORT_SHARED_WORD
    #define KOHORT_SHARED_WORD
    #ifdef _MSC_VER
    typedef volatile unsigned long kohort_shared_word;
    #else
    typedef _Atomic unsigned long kohort_shared_word;
    #endif
    #endif
    """
    ctypedef unsigned long shared_word "kohort_shared_word"
    ctypedef bint shared_flag "kohort_shared_word"


cdef double LONGEST_WAIT_S


cdef class Waiter:
    cdef PyThread_type_lock lock


cdef class Bell:
    cdef shared_word _rings
    cdef list waiters
    cdef int event_fd  # of a thread that polls sockets meanwhile; -1 if none does

    cdef list rung(self)
    cdef bint join_polling(self, int event_fd, unsigned long seen) except -1
    cdef int part_polling(self) except -1
    cdef bint _join(self, Waiter waiter, unsigned long seen) except -1
    cdef int _part(self, Waiter waiter) except -1


cdef class Guard:
    cdef PyThread_type_lock lock
    cdef shared_word owner
    cdef object reentered

    cdef int acquire(self) except -1
    cdef bint try_acquire(self) except -1
    cdef bint is_mine(self) noexcept
    cdef void release(self) noexcept


cdef class Door:
    cdef shared_word owner
    cdef shared_word _depth
    cdef object elsewhere
    cdef public object look
    cdef object _handed

    cdef object current(self)
    cdef int hand(self, value) except -1
    cdef int refuse_others(self) except -1
    cdef int left(self) except -1
