# cython: freethreading_compatible=True
# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Keys or values of a slice, as Python bytes or in Arrow's binary layouts.

A bytes object is made when its item is read. `contiguous` makes the contiguous layout in one pass without the GIL. The
view layout copies no bytes.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy, memset
cimport cython

from kohort.fastpath._memory cimport Block
from kohort.fastpath._store cimport Run, Span, Store


cdef struct View:  # Arrow's binary view: up to 12 bytes inline, or a start in buffers[buffer]
    int32_t size
    uint8_t prefix[4]
    int32_t buffer
    int32_t start


@cython.final
cdef class BytesColumn:
    """Keys or values of columns as a sequence of bytes (None: null), or as the buffers of Arrow's binary layouts."""

    def __init__(self):
        raise TypeError("a BytesColumn is a property of columns")

    def __len__(self):
        return self.stop - self.start

    def __getitem__(self, place):
        cdef Py_ssize_t index, start, stop, step, count = self.stop - self.start
        if isinstance(place, slice):
            start, stop, step = place.indices(count)
            if step != 1:
                raise ValueError("columns support slices with step 1 only")
            return bytes_column(self.store, self.start + start, self.start + max(start, stop), self.spans)
        index = place
        if index < 0:
            index += count
        if not 0 <= index < count:
            raise IndexError(f"record {place} of {count}")
        index += self.start
        cdef Span span = self.spans[index]
        if span.size < 0:
            return None
        return PyBytes_FromStringAndSize(<const char *>self.store.run_of(index).data + span.start, span.size)

    @property
    def nbytes(self):
        """The total size of the values in bytes. A null counts as 0."""
        cdef int64_t total = 0
        cdef Py_ssize_t i
        for i in range(self.start, self.stop):
            if self.spans[i].size > 0:
                total += self.spans[i].size
        return total

    @property
    def null_count(self):
        cdef Py_ssize_t i, nulls = 0
        for i in range(self.start, self.stop):
            nulls += self.spans[i].size < 0
        return nulls

    @property
    def validity(self):
        """A bit for each record, set if it is not null, lowest bit first. None if there is no null."""
        cdef Py_ssize_t i, count = len(self)
        cdef Span *spans = self.spans + self.start
        if not self.null_count:
            return None
        cdef Block bits = Block((count + 7) // 8)
        memset(bits.data, 0, bits.size)
        for i in range(count):
            bits.data[i >> 3] |= (spans[i].size >= 0) << (i & 7)
        return memoryview(bits).toreadonly()

    def contiguous(self, *, wide=False):
        """Return (offsets, data), with the values copied end to end in one pass. There is one more offset than records.

        Offsets are int32, or int64 if `wide`. Raises OverflowError if the bytes need `wide` offsets.
        """
        cdef int64_t total = self.nbytes
        if total > 0x7FFFFFFF and not wide:
            raise OverflowError(f"{total} bytes in one column need wide (int64) offsets")
        cdef Py_ssize_t count = len(self)
        cdef Block offsets = Block((count + 1) * (8 if wide else 4))
        cdef Block data = Block(total)
        cdef bint is_wide = wide
        with nogil:
            gather(
                self.spans, self.start, self.stop, self.store.run_of(self.start), self.store.last_run(),
                offsets.data, data.data, is_wide,
            )
        return memoryview(offsets).toreadonly().cast("q" if wide else "i"), memoryview(data).toreadonly()

    def views(self):
        """Return (views, buffers): Arrow's binary view layout over the fetched buffers. Only 16 bytes a record are new.
        """
        cdef Py_ssize_t count = len(self)
        cdef Block views = Block(count * sizeof(View))
        with nogil:
            fill_views(
                self.spans, self.start, self.stop, self.store.run_of(self.start), self.store.last_run(),
                <View *>views.data,
            )
        buffers = tuple([memoryview(buffer).toreadonly().cast("B") for buffer in self.store.buffers])
        return memoryview(views).toreadonly(), buffers


cdef BytesColumn bytes_column(Store store, Py_ssize_t start, Py_ssize_t stop, Span *spans):
    cdef BytesColumn column = BytesColumn.__new__(BytesColumn)
    column.store = store
    column.start = start
    column.stop = stop
    column.spans = spans
    return column


cdef void gather(
    const Span *spans, Py_ssize_t start, Py_ssize_t stop, const Run *run, const Run *last, char *offsets, char *data, bint wide
) noexcept nogil:
    cdef int64_t written = 0
    cdef Py_ssize_t i
    cdef Span span
    for i in range(start, stop):
        while run < last and run[1].first <= i:
            run += 1
        if wide:
            (<int64_t *>offsets)[i - start] = written
        else:
            (<int32_t *>offsets)[i - start] = <int32_t>written
        span = spans[i]
        if span.size > 0:
            memcpy(data + written, run.data + span.start, span.size)
            written += span.size
    if wide:
        (<int64_t *>offsets)[stop - start] = written
    else:
        (<int32_t *>offsets)[stop - start] = <int32_t>written


cdef void fill_views(
    const Span *spans, Py_ssize_t start, Py_ssize_t stop, const Run *run, const Run *last, View *views
) noexcept nogil:
    cdef Py_ssize_t i
    cdef Span span
    cdef View view
    for i in range(start, stop):
        while run < last and run[1].first <= i:
            run += 1
        span = spans[i]
        memset(&view, 0, sizeof(View))
        if span.size > 12:
            view.size = span.size
            memcpy(view.prefix, run.data + span.start, 4)
            view.buffer = run.buffer
            view.start = <int32_t>span.start
        elif span.size > 0:
            view.size = span.size
            memcpy(view.prefix, run.data + span.start, span.size)
        views[i - start] = view
