# cython: freethreading_compatible=True
# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Memory that holds columns and record bytes.

Blocks return to a small pool when their last reader releases them. A poll loop that drops its columns reuses pages that
are already mapped.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer
from cpython.mem cimport PyMem_RawFree, PyMem_RawMalloc, PyMem_RawRealloc
from cpython.memoryview cimport PyMemoryView_Check, PyMemoryView_FromObject
from cpython.object cimport PyObject
cimport cython

cdef extern from "Python.h":
    PyObject *PyMemoryView_GET_BASE(object view)

cdef extern from *:
    """
    // Under AddressSanitizer every block has its exact size, so that one byte too far is found.
    #ifdef __SANITIZE_ADDRESS__
    #define KOHORT_POOLED 0
    #else
    #define KOHORT_POOLED 1
    #endif

    // Without a GIL, threads that shared one shelf waited for its lock, and took blocks out of other cores' caches.
    #ifdef Py_GIL_DISABLED
    #define KOHORT_SHELVES 8

    #ifdef _MSC_VER
    #define KOHORT_THREAD_LOCAL __declspec(thread)
    #else
    #define KOHORT_THREAD_LOCAL __thread
    #endif

    static KOHORT_THREAD_LOCAL int kohort_own_shelf = -1;
    static PyMutex kohort_shelf_mutex[KOHORT_SHELVES];
    static Py_ssize_t kohort_threads;
    static int kohort_shelf(void) {
        if (kohort_own_shelf < 0)
            kohort_own_shelf = (int)(_Py_atomic_add_ssize(&kohort_threads, 1) % KOHORT_SHELVES);
        return kohort_own_shelf;
    }
    #define KOHORT_LOCK_SHELF(shelf) PyMutex_Lock(&kohort_shelf_mutex[shelf])
    #define KOHORT_UNLOCK_SHELF(shelf) PyMutex_Unlock(&kohort_shelf_mutex[shelf])
    static Py_ssize_t kohort_add(Py_ssize_t *total, Py_ssize_t more) {
        return _Py_atomic_add_ssize(total, more) + more;
    }
    #else
    #define KOHORT_SHELVES 1
    #define kohort_shelf() 0
    #define KOHORT_LOCK_SHELF(shelf)
    #define KOHORT_UNLOCK_SHELF(shelf)
    static Py_ssize_t kohort_add(Py_ssize_t *total, Py_ssize_t more) { return *total += more; }
    #endif
    """
    const bint POOLED "KOHORT_POOLED"
    const int SHELVES "KOHORT_SHELVES"
    int own_shelf "kohort_shelf"() noexcept
    void lock_shelf "KOHORT_LOCK_SHELF"(int shelf) noexcept
    void unlock_shelf "KOHORT_UNLOCK_SHELF"(int shelf) noexcept
    Py_ssize_t added "kohort_add"(Py_ssize_t *total, Py_ssize_t more) noexcept

cdef enum:
    SMALLEST_CLASS = 12  # 4 KiB
    MOST_UNPOOLED_BYTES = 1 << 11  # malloc is as fast for these, and 10,000 slices of a record take less memory
    ALIGNED_BYTES = 64
    CLASSES = 31
    POOL_DEPTH = 64  # of a shelf

cdef Py_ssize_t POOL_BYTES_MAX = 32 << 20
cdef char *_pool[8][31][64]  # by shelf and size class
cdef int _pooled[8][31]
cdef Py_ssize_t _pool_bytes = 0


cdef char *_taken(int power) noexcept:
    """A block of a size class out of the pool; NULL if it has none."""
    cdef char *data = NULL
    cdef int step, shelf, own
    if POOLED and power < CLASSES:
        own = own_shelf()
        for step in range(SHELVES):
            shelf = (own + step) % SHELVES
            lock_shelf(shelf)
            if _pooled[shelf][power]:
                _pooled[shelf][power] -= 1
                data = _pool[shelf][power][_pooled[shelf][power]]
            unlock_shelf(shelf)
            if data != NULL:
                added(&_pool_bytes, -(<Py_ssize_t>1 << power))
                break
    return data


cdef bint _kept(char *data, int power) noexcept:
    """Put a block of a size class into the pool. Returns False if there is no room for it."""
    cdef Py_ssize_t capacity = <Py_ssize_t>1 << power
    cdef bint room = False
    cdef int shelf
    if POOLED and power < CLASSES:
        room = added(&_pool_bytes, capacity) <= POOL_BYTES_MAX
        if room:
            shelf = own_shelf()
            lock_shelf(shelf)
            room = _pooled[shelf][power] < POOL_DEPTH
            if room:
                _pool[shelf][power][_pooled[shelf][power]] = data
                _pooled[shelf][power] += 1
            unlock_shelf(shelf)
        if not room:
            added(&_pool_bytes, -capacity)
    return room


cdef inline int _class_of(Py_ssize_t size) noexcept nogil:
    cdef int power = SMALLEST_CLASS
    while (<Py_ssize_t>1 << power) < size:
        power += 1
    return power


cdef inline Py_ssize_t _capacity_of(Py_ssize_t size) noexcept nogil:
    if not POOLED:
        return size
    if size <= MOST_UNPOOLED_BYTES:
        return (size // ALIGNED_BYTES + 1) * ALIGNED_BYTES
    return <Py_ssize_t>1 << _class_of(size)


@cython.final
@cython.no_gc
cdef class Block:
    """Memory with the buffer protocol, readable and writable. It returns to the pool when its last reader releases it.
    """

    def __cinit__(self, Py_ssize_t size):
        if size < 0 or size > (<Py_ssize_t>1 << 40):
            raise MemoryError(f"cannot allocate a block of {size} bytes")
        self.size = size
        self.capacity = _capacity_of(size)
        if size > MOST_UNPOOLED_BYTES:
            self.data = _taken(_class_of(size))
        if self.data == NULL:
            self.data = <char *>PyMem_RawMalloc(self.capacity)
        if self.data == NULL:
            raise MemoryError(f"cannot allocate a block of {size} bytes")

    def __dealloc__(self):
        cdef bint pooled = self.capacity > MOST_UNPOOLED_BYTES + ALIGNED_BYTES
        if self.data != NULL and not (pooled and _kept(self.data, _class_of(self.capacity))):
            PyMem_RawFree(self.data)

    cdef int resize(self, Py_ssize_t size) except -1:
        """Make room for `size` bytes and keep the present ones. Call it only before any other object has a pointer."""
        cdef Py_ssize_t capacity = _capacity_of(size)
        cdef char *data
        if capacity > self.capacity or not POOLED:
            data = <char *>PyMem_RawRealloc(self.data, capacity)
            if data == NULL:
                raise MemoryError(f"cannot allocate a block of {size} bytes")
            self.data = data
            self.capacity = capacity
        self.size = size
        return 0

    cdef void discard(self) noexcept:
        """Return the memory to the system instead of the pool, for a block that was too small."""
        PyMem_RawFree(self.data)
        self.data = NULL
        self.size = 0

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, self.data, self.size, 0, flags)

    def __len__(self):
        return self.size


cdef class Source:
    """A buffer of another object, held while columns point into it."""

    def __cinit__(self, buffer):
        PyObject_GetBuffer(buffer, &self.view, PyBUF_SIMPLE)
        self.held = True

    def __dealloc__(self):
        if self.held:
            PyBuffer_Release(&self.view)


@cython.final
cdef class Window:
    """A part of another object's buffer, with the buffer protocol: the rest from `start` on, or what `part_of` takes.

    Each memoryview of it counts its own views. CPython counts those of one memoryview without a lock, also without a
    GIL. A thread that decodes one part of a frame therefore shares no count with one that drops another part. cramjam
    needs a Window, too: without a GIL it writes into no memoryview.
    """

    def __cinit__(self, buffer, Py_ssize_t start=0):
        PyObject_GetBuffer(buffer, &self.view, PyBUF_SIMPLE)
        self.held = True
        if not 0 <= start <= self.view.len:
            raise ValueError(f"no byte {start} in a buffer of {self.view.len}")
        self.start = <char *>self.view.buf + start
        self.size = self.view.len - start

    def __dealloc__(self):
        if self.held:
            PyBuffer_Release(&self.view)

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, self.start, self.size, self.view.readonly, flags)

    def __len__(self):
        return self.size


cdef object exporter_of(buffer):
    """A buffer that counts its own views: for a memoryview the `Window` of its bytes, and any other buffer itself.

    Raises BufferError for bytes that are not contiguous, and ValueError for a memoryview that was released.
    """
    cdef Py_buffer view
    if not PyMemoryView_Check(buffer):
        return buffer
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        return _window(buffer, <char *>view.buf, view.len)
    finally:
        PyBuffer_Release(&view)


cdef object part_of(frame, const uint8_t *start, Py_ssize_t size):
    """A memoryview of `size` bytes from `start` on, which is a place in the buffer that the memoryview `frame` shows. It
    counts its own views. The caller holds the buffer of `frame`."""
    return PyMemoryView_FromObject(_window(frame, <char *>start, size))


cdef Window _window(view, char *start, Py_ssize_t size):
    cdef PyObject *base = PyMemoryView_GET_BASE(view)
    cdef Window window
    if base != NULL and isinstance(<object>base, Window):
        window = <Window>base
        if window.start == start and window.size == size:
            return window
    window = Window.__new__(Window, <object>base if base != NULL else view)
    window.start, window.size = start, size
    return window


@cython.final
cdef class Pieces:
    """Bytes in two pieces, which are joined where they are written. So what they are written to is their only copy."""

    def __init__(self, bytes head not None, rest not None):
        self.head = head
        self.rest = rest

    def __len__(self):
        return len(self.head) + len(self.rest)

    def __bytes__(self):
        return b"".join((self.head, self.rest))
