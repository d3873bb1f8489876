# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Record batches to columns and back: the part of the data plane that touches every record.

Layout. A decoded record is 36 bytes in five columns: offset and timestamp (int64), key and value as *spans* (where the
bytes start and how many there are, -1 for null), and where its headers start. A span points into the buffer that was
fetched, or into the one that its batch was decompressed to: no key and no value is copied by `decode`. Bytes objects
are made when a `Record` is asked for them; Arrow's contiguous layout is made by one pass without the GIL when
`to_arrow` or a column's `data` is asked for, and its view layout needs no copy of the bytes at all.

Two passes. First every batch's header, checksum and codec (one call into a library each), then one walk over its
records without the GIL, which checks each length against the end before it is used and writes the columns.

Memory comes from `Block`s, which go back to a small pool when the last reader lets go: a poll loop that drops its
columns keeps reusing warm pages.

The readable twin, on construct: `kohort/protocol/record_batch.py`. Every test of decoding runs on both.
Format: https://kafka.apache.org/documentation/#recordbatch
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_RawFree, PyMem_RawMalloc, PyMem_RawRealloc
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stdint cimport INT64_MAX, INT64_MIN, int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset
cimport cython

from array import array
from collections import namedtuple
from itertools import accumulate, pairwise
from zlib import crc32

from kohort.fastpath.compression import CODECS, LEGACY_LZ4, Broken, Codec, DoesNotFit, codec_of
from kohort.fastpath.errors import CorruptRecord, DecompressionLimit, UnsupportedCodec, UnsupportedMagic
from kohort.fastpath.topic_partition import TopicPartition

cdef extern from *:
    """
    #if defined(__GNUC__) || defined(__clang__)
    #define kohort_be16(p) ({ uint16_t v_; memcpy(&v_, (p), 2); (int16_t)__builtin_bswap16(v_); })
    #define kohort_be32(p) ({ uint32_t v_; memcpy(&v_, (p), 4); (int32_t)__builtin_bswap32(v_); })
    #define kohort_be64(p) ({ uint64_t v_; memcpy(&v_, (p), 8); (int64_t)__builtin_bswap64(v_); })
    #else
    #error "kohort's data plane is written for little-endian machines with GCC or Clang"
    #endif

    // Under AddressSanitizer every block is as large as asked for, so that one byte too far is seen.
    #ifdef __SANITIZE_ADDRESS__
    #define KOHORT_POOLED 0
    #else
    #define KOHORT_POOLED 1
    #endif
    """
    const bint POOLED "KOHORT_POOLED"
    int16_t be16 "kohort_be16"(const void *p) noexcept nogil
    int32_t be32 "kohort_be32"(const void *p) noexcept nogil
    int64_t be64 "kohort_be64"(const void *p) noexcept nogil


cdef struct Span:
    uint32_t start
    int32_t size  # -1: null


# A run of records whose spans point into one buffer and share a timestamp type: one for each batch, or a few joined.
cdef struct Run:
    Py_ssize_t first  # index of its first record
    const uint8_t *data
    Py_ssize_t size
    int32_t buffer  # index into Store.buffers
    int32_t timestamp_type


cdef enum:
    BATCH_OVERHEAD = 61  # base offset to record count, magic 2
    MAGIC_AT = 16
    LOG_OVERHEAD = 12  # base offset and length: what `length` does not count
    LEAST_RECORD_BYTES = 7
    COLUMNS_RECORD_BYTES = 36
    CODEC_MASK = 0x07
    APPEND_TIME_BIT = 0x08
    TRANSACTIONAL_BIT = 0x10
    CONTROL_BIT = 0x20
    ABORT_MARKER = 0
    NO_TIMESTAMP = -1
    ROOM_BYTES = 8 << 20  # for columns, however much a batch decompresses to

cdef uint32_t NO_HEADERS = 0xFFFFFFFF

ctypedef enum Fault:
    FINE = 0
    LENGTH_LIES
    VARINT_LIES
    OFFSET_DELTA_LIES
    KEY_LIES
    VALUE_LIES
    HEADER_COUNT_LIES
    HEADER_KEY_LIES
    HEADER_VALUE_LIES
    RECORD_HAS_MORE
    BATCH_HAS_MORE

_FAULTS = {
    LENGTH_LIES: "a record's length points past the end of its batch",
    VARINT_LIES: "a varint is longer than its type or runs past the end of its record",
    OFFSET_DELTA_LIES: "offset deltas must grow and stay within the batch's last offset delta",
    KEY_LIES: "a key's length points past the end of its record",
    VALUE_LIES: "a value's length points past the end of its record",
    HEADER_COUNT_LIES: "a record's header count is negative or more than its bytes can hold",
    HEADER_KEY_LIES: "a header key's length is negative or points past the end of its record",
    HEADER_VALUE_LIES: "a header value's length points past the end of its record",
    RECORD_HAS_MORE: "a record is longer than its fields",
    BATCH_HAS_MORE: "bytes follow the last record that the batch counts",
}


# ---------------------------------------------------------------------------------------------------------------------
# Memory
# ---------------------------------------------------------------------------------------------------------------------
cdef enum:
    SMALLEST_CLASS = 12  # 4 KiB; below that malloc is as good
    CLASSES = 31
    POOL_DEPTH = 8

cdef Py_ssize_t POOL_BYTES_MAX = 32 << 20
cdef char *_pool[31][8]
cdef int _pooled[31]
cdef Py_ssize_t _pool_bytes = 0


cdef inline int _class_of(Py_ssize_t size) noexcept nogil:
    cdef int power = SMALLEST_CLASS
    while (<Py_ssize_t>1 << power) < size:
        power += 1
    return power


@cython.final
@cython.no_gc
cdef class Block:
    """Memory that anything speaking the buffer protocol can read and write, pooled when its last reader lets go."""

    cdef char *data
    cdef readonly Py_ssize_t size
    cdef Py_ssize_t capacity

    def __cinit__(self, Py_ssize_t size):
        global _pool_bytes
        if size < 0 or size > (<Py_ssize_t>1 << 40):
            raise MemoryError(f"no block of {size} bytes")
        cdef int power = _class_of(size)
        self.size = size
        self.capacity = (<Py_ssize_t>1 << power) if POOLED else size
        if POOLED and power < CLASSES and _pooled[power]:
            _pooled[power] -= 1
            self.data = _pool[power][_pooled[power]]
            _pool_bytes -= self.capacity
            return
        self.data = <char *>PyMem_RawMalloc(self.capacity)
        if self.data == NULL:
            raise MemoryError(f"no block of {size} bytes")

    def __dealloc__(self):
        global _pool_bytes
        cdef int power
        if self.data == NULL:
            return
        power = _class_of(self.capacity)
        if (
            POOLED and power < CLASSES and _pooled[power] < POOL_DEPTH and _pool_bytes + self.capacity <= POOL_BYTES_MAX
        ):
            _pool[power][_pooled[power]] = self.data
            _pooled[power] += 1
            _pool_bytes += self.capacity
        else:
            PyMem_RawFree(self.data)

    cdef int resize(self, Py_ssize_t size) except -1:
        """Room for `size` bytes, keeping those already there; only before anybody else holds a pointer."""
        cdef Py_ssize_t capacity = (<Py_ssize_t>1 << _class_of(size)) if POOLED else size
        cdef char *data
        if capacity > self.capacity or not POOLED:
            data = <char *>PyMem_RawRealloc(self.data, capacity)
            if data == NULL:
                raise MemoryError(f"no block of {size} bytes")
            self.data = data
            self.capacity = capacity
        self.size = size
        return 0

    cdef void discard(self) noexcept:
        """Back to the system instead of the pool: for a block that turned out too small."""
        PyMem_RawFree(self.data)
        self.data = NULL
        self.size = 0

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, self.data, self.size, 0, flags)

    def __len__(self):
        return self.size


cdef class _Source:
    """A buffer of somebody else's, held for as long as columns point into it."""

    cdef Py_buffer view
    cdef bint held

    def __cinit__(self, buffer):
        PyObject_GetBuffer(buffer, &self.view, PyBUF_SIMPLE)
        self.held = True

    def __dealloc__(self):
        if self.held:
            PyBuffer_Release(&self.view)


# ---------------------------------------------------------------------------------------------------------------------
# Columns
# ---------------------------------------------------------------------------------------------------------------------
@cython.final
cdef class _Store:
    """The columns of one decode; every slice of them shares it."""

    cdef Py_ssize_t count, capacity
    cdef Block offsets_block, timestamps_block, keys_block, values_block, headers_block
    cdef int64_t *offsets
    cdef int64_t *timestamps
    cdef Span *keys
    cdef Span *values
    cdef uint32_t *headers
    cdef list buffers  # what the runs point into, by number
    cdef _Source source
    cdef Run *runs
    cdef Py_ssize_t run_count, run_capacity

    def __cinit__(self, Py_ssize_t capacity):
        self.buffers = []
        self.count = self.capacity = 0
        self.run_count = self.run_capacity = 0
        self.runs = NULL
        self.offsets_block = Block(capacity * sizeof(int64_t))
        self.timestamps_block = Block(capacity * sizeof(int64_t))
        self.keys_block = Block(capacity * sizeof(Span))
        self.values_block = Block(capacity * sizeof(Span))
        self.headers_block = Block(capacity * sizeof(uint32_t))
        self._point(capacity)

    def __dealloc__(self):
        PyMem_RawFree(self.runs)

    cdef void _point(self, Py_ssize_t capacity) noexcept:
        self.capacity = capacity
        self.offsets = <int64_t *>self.offsets_block.data
        self.timestamps = <int64_t *>self.timestamps_block.data
        self.keys = <Span *>self.keys_block.data
        self.values = <Span *>self.values_block.data
        self.headers = <uint32_t *>self.headers_block.data

    cdef int reserve(self, Py_ssize_t more) except -1:
        cdef Py_ssize_t capacity = self.count + more
        if capacity <= self.capacity:
            return 0
        capacity = max(capacity, self.capacity * 2)
        self.offsets_block.resize(capacity * sizeof(int64_t))
        self.timestamps_block.resize(capacity * sizeof(int64_t))
        self.keys_block.resize(capacity * sizeof(Span))
        self.values_block.resize(capacity * sizeof(Span))
        self.headers_block.resize(capacity * sizeof(uint32_t))
        self._point(capacity)
        return 0

    cdef int add_run(self, const uint8_t *data, Py_ssize_t size, int32_t buffer, int32_t timestamp_type) except -1:
        cdef Run *last
        cdef Run *bigger
        if self.run_count:
            last = &self.runs[self.run_count - 1]
            if last.data == data and last.timestamp_type == timestamp_type:
                return 0
        if self.run_count == self.run_capacity:
            self.run_capacity = self.run_capacity * 2 + 4
            bigger = <Run *>PyMem_RawRealloc(self.runs, self.run_capacity * sizeof(Run))
            if bigger == NULL:
                raise MemoryError("no room for another run of records")
            self.runs = bigger
        self.runs[self.run_count] = Run(self.count, data, size, buffer, timestamp_type)
        self.run_count += 1
        return 0

    cdef Run *last_run(self) noexcept nogil:
        return self.runs + (self.run_count - 1)

    cdef Run *run_of(self, Py_ssize_t index) noexcept nogil:
        cdef Py_ssize_t low = 0, high = self.run_count - 1, middle
        while low < high:
            middle = (low + high + 1) >> 1
            if self.runs[middle].first <= index:
                low = middle
            else:
                high = middle - 1
        return &self.runs[low]


@cython.final
@cython.freelist(64)
cdef class Record:
    """One record of a partition: a place in its columns, whose bytes are made when they are asked for.

    It keeps its columns, and so the fetched buffer, alive; `bytes` taken from it do not. Equal to any record with the
    same topic, partition, offset, timestamp, key, value and headers.
    """

    cdef RecordColumns columns
    cdef Run *run
    cdef Py_ssize_t index

    @property
    def topic(self):
        return self.columns.topic

    @property
    def partition(self):
        return self.columns.partition

    @property
    def offset(self):
        return self.columns.store.offsets[self.index]

    @property
    def timestamp_ms(self):
        """Milliseconds since the epoch, or -1 where the record has none (magic 0)."""
        return self.columns.store.timestamps[self.index]

    @property
    def timestamp_type(self):
        """"create", "append" (the broker's own clock) or "none"."""
        return _TIMESTAMP_TYPES[self.run.timestamp_type]

    @property
    def key(self):
        """bytes, or None."""
        cdef Span span = self.columns.store.keys[self.index]
        if span.size < 0:
            return None
        return PyBytes_FromStringAndSize(<const char *>self.run.data + span.start, span.size)

    @property
    def value(self):
        """bytes, or None: a tombstone."""
        cdef Span span = self.columns.store.values[self.index]
        if span.size < 0:
            return None
        return PyBytes_FromStringAndSize(<const char *>self.run.data + span.start, span.size)

    @property
    def headers(self):
        """A tuple of (name, bytes or None), in the order they were written; a name may come more than once."""
        cdef uint32_t start = self.columns.store.headers[self.index]
        if start == NO_HEADERS:
            return ()
        return _headers_at(self.run.data + start, self.run.data + self.run.size)

    cdef tuple _values(self):
        return (self.topic, self.partition, self.offset, self.timestamp_ms, self.key, self.value, self.headers)

    def __eq__(self, other):
        if not isinstance(other, Record):
            return NotImplemented
        return self._values() == (<Record>other)._values()

    def __hash__(self):
        return hash(self._values())

    def __repr__(self):
        return (
            f"Record(topic={self.topic!r}, partition={self.partition}, offset={self.offset}, "
            f"timestamp_ms={self.timestamp_ms}, key={self.key!r}, value={self.value!r}, headers={self.headers!r})"
        )

    def __reduce__(self):
        cdef RecordColumns alone = self.columns.part(self.index, self.index + 1)
        return _first_of, (alone,)


def _first_of(columns):
    return columns[0]


_TIMESTAMP_TYPES = {0: "create", 1: "append", -1: "none"}


cdef tuple _headers_at(const uint8_t *p, const uint8_t *end):
    cdef int32_t count = 0, size = 0
    cdef int32_t i
    cdef list headers = []
    p = varint(p, end, &count)
    for i in range(count):
        p = varint(p, end, &size)
        if p == NULL or size < 0 or size > end - p:
            break
        name = (<const char *>p)[:size].decode("utf-8", "replace")
        p += size
        p = varint(p, end, &size)
        if p == NULL or size > end - p:
            break
        if size < 0:
            headers.append((name, None))
        else:
            headers.append((name, PyBytes_FromStringAndSize(<const char *>p, size)))
            p += size
    return tuple(headers)


@cython.final
cdef class _Iterator:
    cdef RecordColumns columns
    cdef Run *run
    cdef Run *last_run
    cdef Py_ssize_t index, stop

    def __iter__(self):
        return self

    def __next__(self):
        if self.index >= self.stop:
            raise StopIteration
        while self.run < self.last_run and self.run[1].first <= self.index:
            self.run += 1
        cdef Record record = Record.__new__(Record)
        record.columns = self.columns
        record.run = self.run
        record.index = self.index
        self.index += 1
        return record


@cython.final
cdef class RecordColumns:
    """The records of one slice of a partition, as columns; iterating gives `Record` views.

    `len()` counts records. A slice `columns[a:b]` shares the same buffers. `next_offset` is where to fetch next: behind
    everything this slice covers, also what was not returned (control and aborted batches, compacted tails).
    Pickles by value, without the rest of the fetch that it came from.
    """

    cdef _Store store
    cdef Py_ssize_t start, stop
    cdef readonly str topic
    cdef readonly int partition
    cdef readonly int64_t next_offset
    cdef readonly tuple corrupt  # CorruptRecords of the batches that on_corrupt="skip_batch" skipped
    cdef readonly bint complete  # False: the buffer holds more, to be decoded from next_offset

    def __len__(self):
        return self.stop - self.start

    def __iter__(self):
        cdef _Iterator records = _Iterator.__new__(_Iterator)
        records.columns = self
        records.index = self.start
        records.stop = self.stop
        records.run = self.store.run_of(self.start)
        records.last_run = self.store.last_run()
        return records

    def __getitem__(self, place):
        cdef Py_ssize_t index, start, stop, step
        if isinstance(place, slice):
            start, stop, step = place.indices(self.stop - self.start)
            if step != 1:
                raise ValueError("columns are sliced in steps of one")
            return self.part(self.start + start, self.start + max(start, stop))
        index = place
        if index < 0:
            index += self.stop - self.start
        if not 0 <= index < self.stop - self.start:
            raise IndexError(f"record {place} of {len(self)}")
        cdef Record record = Record.__new__(Record)
        record.columns = self
        record.index = self.start + index
        record.run = self.store.run_of(record.index)
        return record

    cdef RecordColumns part(self, Py_ssize_t start, Py_ssize_t stop):
        cdef RecordColumns columns = RecordColumns.__new__(RecordColumns)
        columns.store = self.store
        columns.topic = self.topic
        columns.partition = self.partition
        columns.corrupt = self.corrupt
        columns.complete = self.complete and stop == self.stop
        columns.start = start
        columns.stop = stop
        columns.next_offset = self.next_offset if stop == self.stop else self.store.offsets[stop]
        return columns

    @property
    def next_offsets(self):
        """{TopicPartition: next_offset}: what `Consumer.commit` takes."""
        return {TopicPartition(self.topic, self.partition): self.next_offset}

    @property
    def offsets(self):
        """A read-only memoryview of int64."""
        return self._int64_view(self.store.offsets_block)

    @property
    def timestamps_ms(self):
        """A read-only memoryview of int64: milliseconds since the epoch, or -1."""
        return self._int64_view(self.store.timestamps_block)

    cdef _int64_view(self, Block block):
        return memoryview(block)[self.start * 8 : self.stop * 8].toreadonly().cast("q")

    @property
    def keys(self):
        """BytesColumn."""
        return BytesColumn.of(self, self.store.keys)

    @property
    def values(self):
        """BytesColumn."""
        return BytesColumn.of(self, self.store.values)

    @property
    def timestamp_types(self):
        """A read-only memoryview of int8: 0 created by the producer, 1 appended by the broker, -1 no timestamp."""
        cdef Block types = Block(self.stop - self.start)
        cdef Py_ssize_t i
        cdef Run *run = self.store.run_of(self.start)
        cdef Run *last = self.store.last_run()
        for i in range(self.start, self.stop):
            while run < last and run[1].first <= i:
                run += 1
            (<int8_t *>types.data)[i - self.start] = <int8_t>run.timestamp_type
        return memoryview(types).toreadonly().cast("b")

    @property
    def headers(self):
        """HeaderLayout, made when it is asked for; None when no record of the slice has a header."""
        return _header_layout(self)

    def compact(self):
        """The same records in buffers of their own: what keeps a few records without the whole fetch."""
        return _unpickle(*_pickle(self))

    def __reduce__(self):
        return _unpickle, _pickle(self)

    def to_arrow(self, schema=None):
        """A pyarrow.RecordBatch over the same buffers; see `kohort.fastpath.arrow.record_batch` for columns and types."""
        from kohort.fastpath.arrow import record_batch

        return record_batch(self, schema)

    def to_pandas(self, schema=None):
        """A pandas.DataFrame, through Arrow."""
        return self.to_arrow(schema).to_pandas()

    def to_polars(self, schema=None):
        """A polars.DataFrame, through Arrow; keys and values are polars' own view layout and stay where they are."""
        from kohort.fastpath.arrow import polars_frame

        return polars_frame(self, schema)

    def __repr__(self):
        return (
            f"RecordColumns(topic={self.topic!r}, partition={self.partition}, records={len(self)}, "
            f"next_offset={self.next_offset})"
        )

    def __eq__(self, other):
        if not isinstance(other, RecordColumns):
            return NotImplemented
        cdef RecordColumns that = other
        return (
            self.topic == that.topic and self.partition == that.partition and self.next_offset == that.next_offset
            and len(self) == len(that) and all(ours == theirs for ours, theirs in zip(self, that))
        )

    __hash__ = None


# ---------------------------------------------------------------------------------------------------------------------
# Arrow's layouts of spans
# ---------------------------------------------------------------------------------------------------------------------
cdef struct View:  # Arrow's binary view: bytes of 12 and fewer sit in it, longer ones start at buffers[buffer][start]
    int32_t size
    uint8_t prefix[4]
    int32_t buffer
    int32_t start


@cython.final
cdef class BytesColumn:
    """Keys or values of columns as a sequence of bytes (None: null), or as the buffers of Arrow's binary layouts."""

    cdef RecordColumns columns
    cdef Span *spans
    cdef object _layout

    @staticmethod
    cdef BytesColumn of(RecordColumns columns, Span *spans):
        cdef BytesColumn column = BytesColumn.__new__(BytesColumn)
        column.columns = columns
        column.spans = spans
        return column

    def __len__(self):
        return self.columns.stop - self.columns.start

    def __getitem__(self, place):
        cdef Py_ssize_t index = place, count = self.columns.stop - self.columns.start
        if index < 0:
            index += count
        if not 0 <= index < count:
            raise IndexError(f"record {place} of {count}")
        index += self.columns.start
        cdef Span span = self.spans[index]
        if span.size < 0:
            return None
        return PyBytes_FromStringAndSize(<const char *>self.columns.store.run_of(index).data + span.start, span.size)

    @property
    def nbytes(self):
        """The sum of the sizes, nulls counting nothing."""
        cdef int64_t total = 0
        cdef Py_ssize_t i
        for i in range(self.columns.start, self.columns.stop):
            if self.spans[i].size > 0:
                total += self.spans[i].size
        return total

    @property
    def null_count(self):
        cdef Py_ssize_t i, nulls = 0
        for i in range(self.columns.start, self.columns.stop):
            nulls += self.spans[i].size < 0
        return nulls

    @property
    def validity(self):
        """A bit for each record, set where it is not null, lowest bit first; None when there is no null."""
        cdef Py_ssize_t i, count = len(self)
        cdef Span *spans = self.spans + self.columns.start
        if not self.null_count:
            return None
        cdef Block bits = Block((count + 7) // 8)
        memset(bits.data, 0, bits.size)
        for i in range(count):
            bits.data[i >> 3] |= (spans[i].size >= 0) << (i & 7)
        return memoryview(bits).toreadonly()

    def contiguous(self, *, wide=False):
        """(offsets, data): copied end to end in one pass; offsets are int32, or int64 when `wide`; one more than records.

        Raises OverflowError when the bytes need `wide` offsets.
        """
        cdef int64_t total = self.nbytes
        if total > 0x7FFFFFFF and not wide:
            raise OverflowError(f"{total} bytes in one column need wide (int64) offsets")
        cdef Py_ssize_t count = len(self)
        cdef Block offsets = Block((count + 1) * (8 if wide else 4))
        cdef Block data = Block(total)
        cdef bint is_wide = wide
        cdef _Store store = self.columns.store
        with nogil:
            gather(
                self.spans, self.columns.start, self.columns.stop, store.run_of(self.columns.start), store.last_run(),
                offsets.data, data.data, is_wide,
            )
        return memoryview(offsets).toreadonly().cast("q" if wide else "i"), memoryview(data).toreadonly()

    def views(self):
        """(views, buffers): Arrow's binary view layout over the buffers that were fetched; only 16 bytes a record are new."""
        cdef Py_ssize_t count = len(self)
        cdef Block views = Block(count * sizeof(View))
        cdef _Store store = self.columns.store
        with nogil:
            fill_views(
                self.spans, self.columns.start, self.columns.stop, store.run_of(self.columns.start), store.last_run(),
                <View *>views.data,
            )
        return memoryview(views).toreadonly(), tuple(store.buffers)


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


# ---------------------------------------------------------------------------------------------------------------------
# Decode
# ---------------------------------------------------------------------------------------------------------------------
# Every reader takes where it is and where it must stop, and returns where it ended: NULL when it would pass the end.
cdef inline const uint8_t *varint(const uint8_t *p, const uint8_t *end, int32_t *value) noexcept nogil:
    cdef uint32_t raw, shift, byte
    if p == NULL or p >= end:
        return NULL
    raw = p[0]
    p += 1
    if raw >= 0x80:
        raw &= 0x7F
        shift = 7
        while True:
            if p >= end or shift > 28:
                return NULL
            byte = p[0]
            if shift == 28 and byte & 0x70:  # more bits than the type has
                return NULL
            p += 1
            raw |= <uint32_t>(byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
    value[0] = <int32_t>((raw >> 1) ^ (0 - (raw & 1)))
    return p


cdef inline const uint8_t *varlong(const uint8_t *p, const uint8_t *end, int64_t *value) noexcept nogil:
    cdef uint64_t raw
    cdef uint32_t shift, byte
    if p == NULL or p >= end:
        return NULL
    raw = p[0]
    p += 1
    if raw >= 0x80:
        raw &= 0x7F
        shift = 7
        while True:
            if p >= end or shift > 63:
                return NULL
            byte = p[0]
            if shift == 63 and byte & 0x7E:  # more bits than the type has
                return NULL
            p += 1
            raw |= <uint64_t>(byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
    value[0] = <int64_t>((raw >> 1) ^ (0 - (raw & 1)))
    return p


cdef struct Target:  # where the columns of one batch begin
    int64_t *offsets
    int64_t *timestamps
    Span *keys
    Span *values
    uint32_t *headers


cdef Fault parse_records(
    const uint8_t *base,
    const uint8_t *p,
    const uint8_t *end,
    int32_t count,
    int64_t base_offset,
    int32_t last_offset_delta,
    int64_t base_timestamp,
    int64_t append_timestamp,
    bint append,
    int64_t from_offset,
    Py_ssize_t room,
    Target into,
    Py_ssize_t *taken,
) noexcept nogil:
    """The records of one batch of magic 2 into columns: those at `from_offset` and after, until `room` are taken."""
    cdef const uint8_t *record_end
    cdef const uint8_t *key
    cdef int32_t length = 0, offset_delta = 0, key_size = 0, value_size = 0, header_count = 0, size = 0
    cdef int32_t before = -1, i, h
    cdef int64_t timestamp_delta = 0
    cdef Py_ssize_t n = 0
    cdef const uint8_t *headers
    for i in range(count):
        if n == room:
            taken[0] = n
            return FINE
        p = varint(p, end, &length)
        if p == NULL:
            return VARINT_LIES
        if length < LEAST_RECORD_BYTES - 1 or length > end - p:
            return LENGTH_LIES
        record_end = p + length
        p = varlong(p + 1, record_end, &timestamp_delta)  # behind the attributes, which mean nothing yet
        p = varint(p, record_end, &offset_delta)
        p = varint(p, record_end, &key_size)
        if p == NULL:
            return VARINT_LIES
        if offset_delta <= before or offset_delta > last_offset_delta:
            return OFFSET_DELTA_LIES
        before = offset_delta
        key = p
        if key_size > 0:
            if key_size > record_end - p:
                return KEY_LIES
            p += key_size
        p = varint(p, record_end, &value_size)
        if p == NULL:
            return VARINT_LIES
        if value_size > record_end - p:
            return VALUE_LIES
        into.keys[n].start = <uint32_t>(key - base)
        into.keys[n].size = key_size if key_size >= 0 else -1
        into.values[n].start = <uint32_t>(p - base)
        into.values[n].size = value_size if value_size >= 0 else -1
        if value_size > 0:
            p += value_size
        into.offsets[n] = base_offset + offset_delta  # cannot overflow: the header's sum did not
        into.timestamps[n] = append_timestamp if append else <int64_t>(<uint64_t>base_timestamp + <uint64_t>timestamp_delta)
        headers = p
        p = varint(p, record_end, &header_count)
        if p == NULL:
            return VARINT_LIES
        if header_count == 0:
            into.headers[n] = 0xFFFFFFFF
        else:
            if header_count < 0 or header_count > (record_end - p) >> 1:
                return HEADER_COUNT_LIES
            into.headers[n] = <uint32_t>(headers - base)
            for h in range(header_count):
                p = varint(p, record_end, &size)
                if p == NULL:
                    return VARINT_LIES
                if size < 0 or size > record_end - p:
                    return HEADER_KEY_LIES
                p = varint(p + size, record_end, &size)
                if p == NULL:
                    return VARINT_LIES
                if size > record_end - p:
                    return HEADER_VALUE_LIES
                if size > 0:
                    p += size
        if p != record_end:
            return RECORD_HAS_MORE
        n += base_offset + offset_delta >= from_offset
    if p != end:
        return BATCH_HAS_MORE
    taken[0] = n
    return FINE


cdef struct Batch:  # one batch's header, magic 2
    int64_t base_offset
    int64_t size  # with its log overhead
    int64_t next_offset
    int64_t base_timestamp
    int64_t max_timestamp
    int64_t producer_id
    int32_t last_offset_delta
    int32_t count
    int32_t attributes


cdef inline void read_header(const uint8_t *p, Batch *batch) noexcept nogil:
    batch.base_offset = be64(p)
    batch.size = <int64_t>be32(p + 8) + LOG_OVERHEAD
    batch.attributes = be16(p + 21)
    batch.last_offset_delta = be32(p + 23)
    batch.next_offset = <int64_t>(<uint64_t>batch.base_offset + <uint64_t><int64_t>batch.last_offset_delta + 1)
    batch.base_timestamp = be64(p + 27)
    batch.max_timestamp = be64(p + 35)
    batch.producer_id = be64(p + 43)
    batch.count = be32(p + 57)


cdef Py_ssize_t count_records(const uint8_t *p, const uint8_t *end) noexcept nogil:
    """How many records the headers promise: a first guess at the columns' room, never more than bytes could hold."""
    cdef Py_ssize_t total = 0
    cdef int64_t size, count, most
    while end - p >= BATCH_OVERHEAD:
        size = <int64_t>be32(p + 8) + LOG_OVERHEAD
        if p[16] != 2 or size < BATCH_OVERHEAD or size > end - p:
            break
        count = be32(p + 57)
        most = (size - BATCH_OVERHEAD) // LEAST_RECORD_BYTES if be16(p + 21) & 7 == 0 else size * 2
        if count > 0:
            total += min(count, most)
        p += size
    return total


cdef object _crc32c_of = None


cdef object crc32c():
    """The library's function; imported at first use because its own imports take half of what `import kohort` may."""
    global _crc32c_of
    if _crc32c_of is None:
        from crc32c import crc32c as function

        _crc32c_of = function
    return _crc32c_of


cdef inline object view_of(const uint8_t *p, Py_ssize_t size):
    return PyMemoryView_FromMemory(<char *>p, size, 0x100)  # PyBUF_READ


cdef struct Message:  # one message of magic 0 or 1
    int64_t offset
    int64_t timestamp
    Span key
    Span value
    int32_t attributes


cdef Fault parse_message(
    const uint8_t *base, const uint8_t *p, const uint8_t *end, uint8_t magic, Message *message
) noexcept nogil:
    """A message of magic 0 or 1 which begins at `p` with its offset and must end at `end`; its CRC is checked before."""
    cdef int32_t size
    message.offset = be64(p)
    message.attributes = p[17]
    message.timestamp = NO_TIMESTAMP
    p += 18
    if magic == 1:
        message.timestamp = be64(p)
        p += 8
    size = be32(p)
    p += 4
    if size > end - p - 4:
        return KEY_LIES
    message.key = Span(<uint32_t>(p - base), size if size >= 0 else -1)
    if size > 0:
        p += size
    if end - p < 4:
        return KEY_LIES
    size = be32(p)
    p += 4
    if size > end - p:
        return VALUE_LIES
    message.value = Span(<uint32_t>(p - base), size if size >= 0 else -1)
    if size > 0:
        p += size
    return FINE if p == end else RECORD_HAS_MORE


cdef Py_ssize_t[3] LEAST_BYTES
LEAST_BYTES[:] = [26, 34, BATCH_OVERHEAD]  # a batch that holds nothing, by magic


@cython.final
cdef class _Decoder:
    """One call of `decode`: what it was asked for, and how far it is."""

    cdef _Store store
    cdef const uint8_t *start
    cdef Py_ssize_t size
    cdef str topic
    cdef int partition
    cdef int64_t from_offset, next_offset, limit
    cdef int64_t reached  # where the batch before ended
    cdef int64_t held  # bytes decompressed for records that are in the columns
    cdef bint full
    cdef object crc32c
    cdef list pending  # (first offset, producer id) of aborted transactions that have not begun
    cdef set aborting  # producer ids inside one
    cdef Block block  # of the batch at hand, None where its records are in the buffer
    cdef const uint8_t *data
    cdef const uint8_t *data_end

    cdef object corrupt(self, reason, int64_t offset):
        return CorruptRecord(f"corrupt record batch: {reason}", hint=_CORRUPT_HINT, **self.place(offset))

    cdef dict place(self, int64_t offset):
        return {
            "topic": self.topic or None, "partition": None if self.partition < 0 else self.partition, "offset": offset
        }

    cdef int64_t frame(self, const uint8_t *p, const uint8_t *end) except -1:
        """The size of the batch at `p`; 0 for a part of one. A size or a magic that cannot be is nobody's part."""
        cdef int64_t size
        if end - p < LOG_OVERHEAD:
            return 0
        size = <int64_t>be32(p + 8) + LOG_OVERHEAD
        if size < LEAST_BYTES[0]:
            raise self.corrupt("a batch is shorter than any header", be64(p))
        if size <= end - p:
            return size
        if end - p > MAGIC_AT:
            self.check_magic(p)
        return 0

    cdef int check_magic(self, const uint8_t *p) except -1:
        cdef int magic = <int8_t>p[MAGIC_AT]
        if magic < 0:
            raise self.corrupt(f"magic {magic} is no record format", be64(p))
        if magic > 2:
            raise UnsupportedMagic(f"a record batch of magic {magic}, newer than any known", **self.place(be64(p)))
        return 0

    cdef int64_t end_of_corrupt(self, const uint8_t *p, int64_t size) except -1:
        """Where to go on behind a corrupt batch. Its header is believed where the checksum holds, or where its count and
        last offset delta agree; else only one offset is given up, so that no lie can make a reader jump."""
        cdef uint64_t end = max(be64(p), 0)
        cdef int32_t last_offset_delta, count
        if p[16] == 2 and size >= BATCH_OVERHEAD:
            last_offset_delta, count = be32(p + 23), be32(p + 57)
            if last_offset_delta >= 0 and (
                last_offset_delta == <int64_t>count - 1
                or <uint32_t>be32(p + 17) == <uint32_t>self.crc32c(view_of(p + 21, size - 21))
            ):
                end += last_offset_delta
        return min(end, <uint64_t>0x7FFFFFFFFFFFFFFE) + 1

    cdef int batch(self, const uint8_t *p, int64_t size) except -1:
        """The batch at `p` into the columns; nothing is changed when it raises."""
        cdef int64_t base_offset = be64(p)
        cdef uint8_t magic = p[MAGIC_AT]
        self.check_magic(p)
        if size < LEAST_BYTES[magic]:
            raise self.corrupt("a batch is shorter than its header", base_offset)
        if magic == 2:
            return self.batch_v2(p, size)
        return self.batch_legacy(p, size, magic)

    cdef int batch_v2(self, const uint8_t *p, int64_t size) except -1:
        cdef Batch batch
        cdef Span key
        read_header(p, &batch)
        if <uint32_t>be32(p + 17) != <uint32_t>self.crc32c(view_of(p + 21, size - 21)):
            raise self.corrupt("a batch's CRC-32C does not match its bytes", batch.base_offset)
        if batch.count < 0 or batch.last_offset_delta < 0 or batch.base_offset < 0 or batch.next_offset < 0:
            raise self.corrupt("a batch's offset, count or last offset delta is out of range", batch.base_offset)
        if batch.base_offset < self.reached:
            raise self.corrupt("offsets go back behind the batch before", batch.base_offset)
        self.reached = batch.next_offset

        while self.pending and self.pending[0][0] < batch.next_offset:
            self.aborting.add(self.pending.pop(0)[1])
        if batch.attributes & CONTROL_BIT:
            # Also before `from_offset`: a marker that is passed over would leave its producer aborting for good.
            if self.aborting and batch.producer_id in self.aborting and self.records(p, size, &batch, INT64_MIN):
                key = self.store.keys[self.store.count]
                if key.size >= 4 and be16(self.data + key.start + 2) == ABORT_MARKER:
                    self.aborting.discard(batch.producer_id)
            return self.passed(batch.next_offset)
        if batch.next_offset <= self.from_offset or (
            self.aborting and batch.attributes & TRANSACTIONAL_BIT and batch.producer_id in self.aborting
        ):
            return self.passed(batch.next_offset)

        cdef Py_ssize_t taken = self.records(p, size, &batch, self.from_offset)
        self.keep(taken, self.data, self.data_end, self.block, batch.attributes & APPEND_TIME_BIT != 0)
        if self.full:
            if taken:
                self.next_offset = self.store.offsets[self.store.count - 1] + 1
            return 0
        return self.passed(batch.next_offset)

    cdef Py_ssize_t records(self, const uint8_t *p, int64_t size, const Batch *batch, int64_t from_offset) except -1:
        """The records of the batch at `p`, put behind the columns' last record; how many. Their spans count from `data`.

        Sets `full` when there may be more of them than there is room for.
        """
        cdef const uint8_t *records = p + BATCH_OVERHEAD
        cdef int32_t codec = batch.attributes & CODEC_MASK
        cdef Py_ssize_t room = max(batch.count, 1), taken = 0, n = self.store.count
        cdef Fault fault
        cdef Target into
        cdef bint append = batch.attributes & APPEND_TIME_BIT != 0
        cdef const uint8_t *end = p + size
        self.block = None
        self.data, self.data_end = self.start, end
        if codec:
            self.block = self.decompressed(codec, view_of(records, end - records), batch.base_offset, 2)
            if self.block is None:
                self.full = True
                return 0
            self.data = records = <const uint8_t *>self.block.data
            self.data_end = end = records + self.block.size
            room = min(room, self.room(self.block.size))
        if batch.count > (end - records) // LEAST_RECORD_BYTES:
            raise self.corrupt("a batch counts more records than its bytes can hold", batch.base_offset)
        self.store.reserve(room)
        into = Target(
            self.store.offsets + n, self.store.timestamps + n, self.store.keys + n, self.store.values + n,
            self.store.headers + n,
        )
        cdef const uint8_t *data = self.data
        with nogil:
            fault = parse_records(
                data, records, end, batch.count, batch.base_offset, batch.last_offset_delta, batch.base_timestamp,
                batch.max_timestamp, append, from_offset, room, into, &taken,
            )
        if fault != FINE:
            raise self.corrupt(_FAULTS[fault], batch.base_offset)
        self.full = taken == room and room < batch.count
        return taken

    cdef int batch_legacy(self, const uint8_t *p, int64_t size, uint8_t magic) except -1:
        cdef Message wrapper
        cdef Block block = None
        cdef int32_t codec, timestamp_type = -1
        cdef int64_t first, last, shift = 0
        cdef Py_ssize_t n = self.store.count, found = 1, early = 0, i
        cdef const uint8_t *end = self.start + self.size
        self.message(self.start, p, p + size, magic, &wrapper, wrapper_offset=be64(p))
        codec = wrapper.attributes & CODEC_MASK
        if magic == 1:
            timestamp_type = 1 if wrapper.attributes & APPEND_TIME_BIT else 0
        if codec:
            if wrapper.value.size < 0:
                raise self.corrupt("a compressed message has no value to decompress", wrapper.offset)
            block = self.decompressed(
                codec, view_of(self.start + wrapper.value.start, wrapper.value.size), wrapper.offset, magic
            )
            if block is None:
                self.full = True
                return 0
            end = <const uint8_t *>block.data + block.size
            found = self.inner_messages(block, magic, wrapper.offset)
            last = self.store.offsets[n + found - 1]
            if magic == 1 and wrapper.offset:  # some versions of librdkafka produced wrappers of offset 0
                if last > wrapper.offset:
                    raise self.corrupt("a compressed message's offset is before its last inner message's", wrapper.offset)
                shift = <int64_t>(<uint64_t>wrapper.offset - <uint64_t>last)
            elif wrapper.offset and last != wrapper.offset:
                raise self.corrupt("a compressed message's offset is not its last inner message's", wrapper.offset)
        else:
            self.store.reserve(1)
            self.put(n, &wrapper)
        for i in range(n, n + found):
            self.store.offsets[i] = <int64_t>(<uint64_t>self.store.offsets[i] + <uint64_t>shift)
            if timestamp_type == 1:
                self.store.timestamps[i] = wrapper.timestamp
            if not 0 <= self.store.offsets[i] < INT64_MAX or (i > n and self.store.offsets[i] <= self.store.offsets[i - 1]):
                raise self.corrupt("offsets of messages must grow", wrapper.offset)
            early += self.store.offsets[i] < self.from_offset
        first, last = self.store.offsets[n], self.store.offsets[n + found - 1]
        if first < self.reached:
            raise self.corrupt("offsets go back behind the batch before", wrapper.offset)
        for i in range(n, n + found - early):
            self.store.offsets[i] = self.store.offsets[i + early]
            self.store.timestamps[i] = self.store.timestamps[i + early]
            self.store.keys[i] = self.store.keys[i + early]
            self.store.values[i] = self.store.values[i + early]
        self.keep(found - early, <const uint8_t *>block.data if codec else self.start, end, block, timestamp_type)
        return self.passed(last + 1)

    cdef Py_ssize_t inner_messages(self, Block block, uint8_t magic, int64_t wrapper_offset) except -1:
        """The messages inside a compressed one, put behind the columns' last record; how many."""
        cdef const uint8_t *data = <const uint8_t *>block.data
        cdef const uint8_t *p = data
        cdef const uint8_t *end = data + block.size
        cdef Py_ssize_t found = 0
        cdef int64_t size
        cdef Message message
        while p < end:
            size = <int64_t>be32(p + 8) + LOG_OVERHEAD if end - p >= LEAST_BYTES[magic] else 0
            if size < LEAST_BYTES[magic] or size > end - p:
                raise self.corrupt("a compressed message ends inside a message", wrapper_offset)
            if p[16] != magic:
                raise self.corrupt("a compressed message mixes formats", wrapper_offset)
            self.message(data, p, p + size, magic, &message, wrapper_offset)
            if message.attributes & CODEC_MASK:
                raise self.corrupt("a compressed message holds another one", wrapper_offset)
            self.store.reserve(found + 1)
            self.put(self.store.count + found, &message)
            found += 1
            p += size
        if found == 0:
            raise self.corrupt("a compressed message holds no messages", wrapper_offset)
        return found

    cdef int message(
        self, const uint8_t *base, const uint8_t *p, const uint8_t *end, uint8_t magic, Message *message,
        int64_t wrapper_offset,
    ) except -1:
        if <uint32_t>be32(p + 12) != <uint32_t>crc32(view_of(p + 16, end - p - 16)):
            raise self.corrupt("a message's CRC-32 does not match its bytes", wrapper_offset)
        cdef Fault fault = parse_message(base, p, end, magic, message)
        if fault != FINE:
            raise self.corrupt(_FAULTS[fault], wrapper_offset)
        return 0

    cdef inline void put(self, Py_ssize_t at, const Message *message) noexcept:
        self.store.offsets[at] = message.offset
        self.store.timestamps[at] = message.timestamp
        self.store.keys[at] = message.key
        self.store.values[at] = message.value
        self.store.headers[at] = NO_HEADERS

    cdef int keep(
        self, Py_ssize_t taken, const uint8_t *data, const uint8_t *end, Block block, int32_t timestamp_type
    ) except -1:
        """Count `taken` records, already in their places, as the columns'."""
        if taken == 0:
            return 0
        cdef int32_t number = 0
        if block is not None:
            self.store.buffers.append(block)
            number = <int32_t>len(self.store.buffers) - 1
            self.held += block.size
        self.store.add_run(data, end - data if block is not None else self.size, number, timestamp_type)
        self.store.count += taken
        return 0

    cdef inline int passed(self, int64_t next_offset) noexcept:
        self.reached = next_offset
        if next_offset > self.next_offset:
            self.next_offset = next_offset
        return 0

    cdef Py_ssize_t room(self, Py_ssize_t size) noexcept:
        """How many records of a batch of `size` bytes may be taken: columns are memory that a bomb can ask for, too."""
        cdef int64_t left = self.limit - self.held - size - self.store.count * COLUMNS_RECORD_BYTES
        return max(left, ROOM_BYTES) // COLUMNS_RECORD_BYTES

    cdef Block decompressed(self, int codec, source, int64_t offset, int magic):
        """The payload in a block of its own; None when columns already hold so much that it must wait for the next call."""
        cdef int64_t size
        cdef Block block
        compression = LEGACY_LZ4 if codec == 3 and magic == 0 else CODECS.get(codec)
        if compression is None:
            raise UnsupportedCodec(f"compression codec {codec} is not one that Kafka has", **self.place(offset))
        try:
            size = min(max(compression.size_bound(source, self.limit), 64), self.limit)
            if self.held and self.held + size + self.store.count * COLUMNS_RECORD_BYTES > self.limit:
                return None
            while True:
                block = Block(size)
                try:
                    block.resize(compression.decompress_into(source, block))
                except DoesNotFit:
                    block.discard()
                    if size >= self.limit:
                        name = Codec(codec).name.lower()
                        raise DecompressionLimit(
                            f"a {name} batch decompresses to more than {self.limit} bytes",
                            hint="raise max_decompressed_bytes if the producer is trusted", **self.place(offset),
                        ) from None
                    size = min(size * 2, self.limit)
                else:
                    return block
        except Broken as error:
            raise self.corrupt(f"{Codec(codec).name.lower()}: {error}", offset) from None


_CORRUPT_HINT = "the batch can be skipped by seeking past it, or read again from another replica"


def decode(
    buffer,
    *,
    str topic="",
    int partition=-1,
    int64_t from_offset=0,
    aborted=(),
    int64_t max_decompressed_bytes=64 << 20,
    str on_corrupt="raise",
):
    """The `records` of one partition of a Fetch response, or a log segment's bytes, as columns.

    `buffer`: any contiguous bytes; the columns point into it, so it must not change while they live. A partial batch at
    the end, as brokers send it, is left for the next fetch. `from_offset`: the position; records before it are not
    returned. `aborted`: the response's (producer_id, first_offset) pairs under read_committed; records of those
    transactions are not returned, nor are control records ever.

    `max_decompressed_bytes` bounds what one batch may become, and with 8 MiB more all that a call takes beside `buffer`:
    when the next batch would pass it, the columns end there, with `complete` False; call again with
    `from_offset=columns.next_offset`.

    `on_corrupt`: "raise", or "skip_batch", which goes on behind a corrupt batch and lists it in `columns.corrupt`. (A
    batch whose length cannot be true is always raised: nobody knows where the next one begins.)

    Raises CorruptRecord, and its kinds UnsupportedMagic, UnsupportedCodec and DecompressionLimit, carrying topic,
    partition and the offset of the batch; `error.decoded` holds the columns that precede it.
    """
    if on_corrupt not in ("raise", "skip_batch"):
        raise ValueError(f'on_corrupt is "raise" or "skip_batch", not {on_corrupt!r}')
    cdef _Source source = _Source(buffer)
    if source.view.len > 0x7FFFFFFF:
        raise ValueError("decode takes less than 2 GiB at once")
    cdef const uint8_t *p = <const uint8_t *>source.view.buf
    cdef const uint8_t *end = p + source.view.len
    cdef int64_t size
    cdef list corrupt = []
    cdef _Decoder decoder = _Decoder.__new__(_Decoder)
    decoder.store = _Store(count_records(p, end))
    decoder.store.buffers.append(memoryview(buffer).toreadonly().cast("B"))
    decoder.store.source = source
    decoder.start = p
    decoder.size = source.view.len
    decoder.topic = topic
    decoder.partition = partition
    decoder.from_offset = decoder.next_offset = from_offset
    decoder.limit = max_decompressed_bytes
    decoder.crc32c = crc32c()
    decoder.pending = sorted([(first, producer) for producer, first in aborted])
    decoder.aborting = set()
    try:
        while not decoder.full:
            size = decoder.frame(p, end)
            if size == 0:
                break
            try:
                decoder.batch(p, size)
            except CorruptRecord as error:
                if on_corrupt == "raise":
                    raise
                corrupt.append(error)
                decoder.next_offset = max(decoder.next_offset, decoder.end_of_corrupt(p, size))
            p += size
    except CorruptRecord as error:
        error.decoded = _columns(decoder.store, topic, partition, decoder.next_offset, tuple(corrupt), False)
        raise
    return _columns(decoder.store, topic, partition, decoder.next_offset, tuple(corrupt), not decoder.full)


# ---------------------------------------------------------------------------------------------------------------------
# Headers
# ---------------------------------------------------------------------------------------------------------------------
HeaderLayout = namedtuple("HeaderLayout", "total present offsets name_offsets names value_offsets values validity")
HeaderLayout.__doc__ = """All headers of a slice in Arrow's layout of list<struct<key: string, value: binary>>.

`total`: how many in all. `present`: a bit for each record, set where it has any. `offsets` (int32): where each record's
begin, one more than records. `names` and `values` with their int32 offsets. `validity`: a bit for each value.
"""


cdef struct HeaderTotals:
    int64_t count
    int64_t name_bytes
    int64_t value_bytes


cdef const uint8_t *header_span(
    const uint8_t *p, const uint8_t *end, HeaderTotals *totals
) noexcept nogil:
    """The end of one record's headers, added to the totals; NULL if they run past the end (the buffer was changed)."""
    cdef int32_t count = 0, size = 0, h
    p = varint(p, end, &count)
    for h in range(count):
        p = varint(p, end, &size)
        if p == NULL or size < 0 or size > end - p:
            return NULL
        totals.name_bytes += size
        p = varint(p + size, end, &size)
        if p == NULL or size > end - p:
            return NULL
        if size > 0:
            totals.value_bytes += size
            p += size
        totals.count += 1
    return p


cdef _header_layout(RecordColumns columns):
    cdef _Store store = columns.store
    cdef Py_ssize_t start = columns.start, stop = columns.stop, i
    cdef HeaderTotals totals = HeaderTotals(0, 0, 0)
    cdef Run *first = store.run_of(start)
    cdef Run *last = store.last_run()
    cdef Run *run = first
    cdef bint sound = True
    with nogil:
        for i in range(start, stop):
            while run < last and run[1].first <= i:
                run += 1
            if store.headers[i] != NO_HEADERS:
                if header_span(run.data + store.headers[i], run.data + run.size, &totals) == NULL:
                    sound = False
                    break
    if not sound:
        raise RuntimeError("the decoded buffer was changed while columns pointed into it")
    if totals.count == 0:
        return None
    if totals.name_bytes > 0x7FFFFFFF or totals.value_bytes > 0x7FFFFFFF:
        raise OverflowError("headers of 2 GiB and more in one slice")

    cdef Block present = Block((stop - start + 7) // 8)
    cdef Block offsets = Block((stop - start + 1) * 4)
    cdef Block name_offsets = Block((totals.count + 1) * 4)
    cdef Block names = Block(totals.name_bytes)
    cdef Block value_offsets = Block((totals.count + 1) * 4)
    cdef Block values = Block(totals.value_bytes)
    cdef Block validity = Block((totals.count + 7) // 8)
    cdef const uint8_t *p
    cdef const uint8_t *end
    cdef int32_t count = 0, size = 0, h, done = 0, name_at = 0, value_at = 0
    memset(present.data, 0, present.size)
    memset(validity.data, 0, validity.size)
    run = first
    with nogil:
        for i in range(start, stop):
            while run < last and run[1].first <= i:
                run += 1
            (<int32_t *>offsets.data)[i - start] = done
            if store.headers[i] == NO_HEADERS:
                continue
            present.data[(i - start) >> 3] |= 1 << ((i - start) & 7)
            end = run.data + run.size
            p = varint(run.data + store.headers[i], end, &count)
            for h in range(count):
                p = varint(p, end, &size)
                if p == NULL or size < 0 or size > end - p or name_at + size > totals.name_bytes or done >= totals.count:
                    sound = False
                    break
                (<int32_t *>name_offsets.data)[done] = name_at
                memcpy(names.data + name_at, p, size)
                name_at += size
                p = varint(p + size, end, &size)
                if p == NULL or size > end - p or (size > 0 and value_at + size > totals.value_bytes):
                    sound = False
                    break
                (<int32_t *>value_offsets.data)[done] = value_at
                if size >= 0:
                    memcpy(values.data + value_at, p, size)
                    value_at += size
                    p += size
                    validity.data[done >> 3] |= 1 << (done & 7)
                done += 1
            if not sound:
                break
        (<int32_t *>offsets.data)[stop - start] = done
        (<int32_t *>name_offsets.data)[done] = name_at
        (<int32_t *>value_offsets.data)[done] = value_at
    if not sound or done != totals.count:
        raise RuntimeError("the decoded buffer was changed while columns pointed into it")
    name_view, name_offset_view = memoryview(names), memoryview(name_offsets).cast("i")
    if not _is_utf8(names, name_offsets, totals.count):
        name_view, name_offset_view = _repaired(name_view, name_offset_view)
    return HeaderLayout(
        totals.count,
        memoryview(present).toreadonly(),
        memoryview(offsets).toreadonly().cast("i"),
        name_offset_view.toreadonly(),
        name_view.toreadonly(),
        memoryview(value_offsets).toreadonly().cast("i"),
        memoryview(values).toreadonly(),
        memoryview(validity).toreadonly(),
    )


cdef bint _is_utf8(Block names, Block offsets, int64_t count):
    cdef const int32_t *at = <const int32_t *>offsets.data
    cdef int64_t i
    try:
        (<const char *>names.data)[:names.size].decode("utf-8")
    except UnicodeDecodeError:
        return False
    for i in range(count):  # sound end to end, but is each? None may begin inside a character.
        if at[i] < names.size and (<uint8_t>names.data[at[i]] & 0xC0) == 0x80:
            return False
    return True


def _repaired(names, offsets):
    """Names that are no UTF-8 as Java reads them: with U+FFFD where they are broken."""
    parts = [bytes(names[a:b]).decode("utf-8", "replace").encode() for a, b in pairwise(offsets)]
    return memoryview(b"".join(parts)), memoryview(array("i", accumulate(map(len, parts), initial=0)))


# ---------------------------------------------------------------------------------------------------------------------
# Pickling
# ---------------------------------------------------------------------------------------------------------------------
cdef tuple _pickle(RecordColumns columns):
    """The slice's own bytes, gathered: each record's key, value and headers end to end, and the columns over them."""
    cdef _Store store = columns.store
    cdef Py_ssize_t start = columns.start, stop = columns.stop, i
    cdef Run *first = store.run_of(start)
    cdef Run *last = store.last_run()
    cdef Run *run = first
    cdef HeaderTotals totals = HeaderTotals(0, 0, 0)
    cdef int64_t total = 0, at = 0
    cdef const uint8_t *p
    cdef const uint8_t *end
    cdef bint sound = True
    with nogil:
        for i in range(start, stop):
            while run < last and run[1].first <= i:
                run += 1
            total += max(store.keys[i].size, 0) + max(store.values[i].size, 0)
            if store.headers[i] != NO_HEADERS:
                p = run.data + store.headers[i]
                end = header_span(p, run.data + run.size, &totals)
                if end == NULL:
                    sound = False
                    break
                total += end - p
    if not sound:
        raise RuntimeError("the decoded buffer was changed while columns pointed into it")
    if total > 0x7FFFFFFF:
        raise OverflowError("a slice of 2 GiB and more cannot be pickled at once; slice it")
    data = PyBytes_FromStringAndSize(NULL, total)
    keys = PyBytes_FromStringAndSize(NULL, (stop - start) * sizeof(Span))
    values = PyBytes_FromStringAndSize(NULL, (stop - start) * sizeof(Span))
    headers = PyBytes_FromStringAndSize(NULL, (stop - start) * sizeof(uint32_t))
    cdef char *out = PyBytes_AS_STRING(data)
    cdef Span *key_spans = <Span *>PyBytes_AS_STRING(keys)
    cdef Span *value_spans = <Span *>PyBytes_AS_STRING(values)
    cdef uint32_t *header_starts = <uint32_t *>PyBytes_AS_STRING(headers)
    cdef Span span
    run = first
    with nogil:
        for i in range(start, stop):
            while run < last and run[1].first <= i:
                run += 1
            span = store.keys[i]
            key_spans[i - start] = Span(<uint32_t>at, span.size)
            if span.size > 0:
                memcpy(out + at, run.data + span.start, span.size)
                at += span.size
            span = store.values[i]
            value_spans[i - start] = Span(<uint32_t>at, span.size)
            if span.size > 0:
                memcpy(out + at, run.data + span.start, span.size)
                at += span.size
            header_starts[i - start] = NO_HEADERS
            if store.headers[i] != NO_HEADERS:
                p = run.data + store.headers[i]
                end = header_span(p, run.data + run.size, &totals)
                if end == NULL or at + (end - p) > total:
                    sound = False
                    break
                header_starts[i - start] = <uint32_t>at
                memcpy(out + at, p, end - p)
                at += end - p
    if not sound:
        raise RuntimeError("the decoded buffer was changed while columns pointed into it")
    return (
        columns.topic, columns.partition, columns.next_offset, columns.corrupt, bytes(columns.offsets),
        bytes(columns.timestamps_ms), bytes(columns.timestamp_types), keys, values, headers, data,
    )


def _unpickle(
    str topic, int partition, int64_t next_offset, tuple corrupt, bytes offsets, bytes timestamps, bytes types, bytes keys,
    bytes values, bytes headers, bytes data,
):
    cdef Py_ssize_t count = len(types), i
    cdef Py_ssize_t size = len(data)
    if not len(offsets) == len(timestamps) == len(keys) == len(values) == count * 8 or len(headers) != count * 4:
        raise ValueError("pickled columns of different lengths")
    cdef _Store store = _Store(count)
    memcpy(store.offsets, PyBytes_AS_STRING(offsets), count * 8)
    memcpy(store.timestamps, PyBytes_AS_STRING(timestamps), count * 8)
    memcpy(store.keys, PyBytes_AS_STRING(keys), count * 8)
    memcpy(store.values, PyBytes_AS_STRING(values), count * 8)
    memcpy(store.headers, PyBytes_AS_STRING(headers), count * 4)
    store.buffers.append(memoryview(data))
    store.source = _Source(data)
    cdef const uint8_t *start = <const uint8_t *>store.source.view.buf
    cdef const int8_t *kinds = <const int8_t *>PyBytes_AS_STRING(types)
    for i in range(count):
        if not (_within(store.keys[i], size) and _within(store.values[i], size)) or (
            store.headers[i] != NO_HEADERS and store.headers[i] >= size
        ):
            raise ValueError("pickled columns that point outside their data")
        store.count = i
        if i == 0 or store.last_run().timestamp_type != kinds[i]:
            store.add_run(start, size, 0, kinds[i])
    store.count = count
    return _columns(store, topic, partition, next_offset, corrupt)


cdef inline bint _within(Span span, Py_ssize_t size) noexcept:
    return span.size < 0 or <Py_ssize_t>span.start + span.size <= size


cdef RecordColumns _columns(
    _Store store, str topic, int partition, int64_t next_offset, tuple corrupt, bint complete=True
):
    cdef RecordColumns columns = RecordColumns.__new__(RecordColumns)
    if store.run_count == 0:  # so that nobody has to ask whether there is one
        store.add_run(<const uint8_t *>store.source.view.buf, store.source.view.len, 0, 0)
    columns.store = store
    columns.topic = topic
    columns.partition = partition
    columns.start = 0
    columns.stop = store.count
    columns.next_offset = next_offset
    columns.corrupt = corrupt
    columns.complete = complete
    return columns


# ---------------------------------------------------------------------------------------------------------------------
# Encode
# ---------------------------------------------------------------------------------------------------------------------
@cython.final
cdef class _Writer:
    """Bytes appended to a growing block."""

    cdef Block block
    cdef Py_ssize_t at

    def __cinit__(self, Py_ssize_t size):
        self.block = Block(size)
        self.at = 0

    cdef inline int room(self, Py_ssize_t more) except -1:
        if self.at + more > self.block.size:
            self.block.resize(max(self.at + more, self.block.size * 2))
        return 0

    cdef inline void varint(self, int64_t value) noexcept:
        """Zigzag; the caller made room for ten bytes."""
        cdef uint64_t raw = (<uint64_t>value << 1) ^ <uint64_t>(value >> 63)
        cdef uint8_t *p = <uint8_t *>self.block.data + self.at
        while raw >= 0x80:
            p[0] = <uint8_t>(raw | 0x80)
            p += 1
            raw >>= 7
        p[0] = <uint8_t>raw
        self.at = p + 1 - <uint8_t *>self.block.data

    cdef int nullable(self, data) except -1:
        """A varint size (-1: None) and the bytes."""
        cdef Py_buffer view
        if data is None:
            self.room(10)
            self.varint(-1)
            return 0
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            if view.len > 0x7FFFFFFF:
                raise ValueError("a key, value or header of 2 GiB and more")
            self.room(10 + view.len)
            self.varint(view.len)
            memcpy(self.block.data + self.at, view.buf, view.len)
            self.at += view.len
        finally:
            PyBuffer_Release(&view)
        return 0


cdef inline int varint_size(int64_t value) noexcept:
    cdef uint64_t raw = (<uint64_t>value << 1) ^ <uint64_t>(value >> 63)
    cdef int size = 1
    while raw >= 0x80:
        raw >>= 7
        size += 1
    return size


cdef inline void put(char *p, int64_t value, int size) noexcept:
    """Big-endian."""
    cdef int i
    for i in range(size):
        p[size - 1 - i] = <char>(value & 0xFF)
        value >>= 8


def encode(
    records,
    *,
    codec="none",
    level=None,
    base_offset=None,
    int64_t timestamp_ms=-1,
    log_append_time_ms=None,
    int64_t producer_id=-1,
    int producer_epoch=-1,
    int base_sequence=-1,
    int partition_leader_epoch=-1,
    bint transactional=False,
    bint control=False,
):
    """One record batch of magic 2 as bytes: what Produce sends and Fetch answers.

    `records`: `Record`s (or RecordColumns), or tuples (key, value[, timestamp_ms[, headers]]) with keys and values as
    bytes or None and headers as an iterable or mapping of str to bytes or None. `timestamp_ms`: for records that carry
    none. Offsets are the `Record`s' own; with `base_offset` they are counted from there, and from 0 for tuples.
    `codec`: "none", "gzip", "snappy", "lz4", "zstd"; `level` is the codec's own.

    Raises ValueError for no records, offsets that do not grow and values out of range.
    """
    cdef _Writer body = _Writer(4096)
    cdef _Writer fields = _Writer(4096)
    cdef int64_t first_offset = -1, first_timestamp = 0, most_timestamp = 0, offset, timestamp, before = -1
    cdef Py_ssize_t count = 0
    cdef Py_ssize_t size
    cdef bint counted = base_offset is not None
    number = codec_of(codec)
    for item in records:
        if isinstance(item, tuple):
            key, value, stamp, headers = item + (None, None, None, None)[len(item):]
            place = None
        else:
            key, value, stamp, headers, place = item.key, item.value, item.timestamp_ms, item.headers, item.offset
        timestamp = timestamp_ms if stamp is None else stamp
        if count == 0:
            first_offset = base_offset if counted else 0 if place is None else place
            first_timestamp = most_timestamp = timestamp
        offset = first_offset + count if counted or place is None else <int64_t>place
        if offset - first_offset <= before - first_offset and count:
            raise ValueError(f"offsets must grow: {offset} comes after {before}")
        if offset - first_offset > 0x7FFFFFFF:
            raise ValueError(f"offset {offset} is too far from the batch's first, {first_offset}")
        before = offset
        most_timestamp = max(most_timestamp, timestamp)

        fields.at = 0
        fields.room(32)
        fields.block.data[0] = 0  # attributes
        fields.at = 1
        fields.varint(timestamp - first_timestamp)
        fields.varint(offset - first_offset)
        fields.nullable(key)
        fields.nullable(value)
        fields.room(10)
        if headers:
            pairs = tuple(headers.items() if hasattr(headers, "items") else headers)
            fields.varint(len(pairs))
            for name, content in pairs:
                fields.nullable(name.encode() if isinstance(name, str) else name)
                fields.nullable(content)
        else:
            fields.varint(0)
        size = fields.at
        body.room(10 + size)
        body.varint(size)
        memcpy(body.block.data + body.at, fields.block.data, size)
        body.at += size
        count += 1
    if count == 0:
        raise ValueError("a batch holds at least one record")

    body.block.resize(body.at)
    payload = body.block if number == 0 else CODECS[number].compress(body.block, level)
    size = len(payload)
    if BATCH_OVERHEAD + size > 0x7FFFFFFF:
        raise ValueError("a batch of 2 GiB and more")
    out = PyBytes_FromStringAndSize(NULL, BATCH_OVERHEAD + size)
    cdef char *p = PyBytes_AS_STRING(out)
    cdef int attributes = (
        <int>number | (0 if log_append_time_ms is None else 8) | (0x10 if transactional else 0) | (0x20 if control else 0)
    )
    put(p, first_offset, 8)
    put(p + 8, BATCH_OVERHEAD - LOG_OVERHEAD + size, 4)
    put(p + 12, partition_leader_epoch, 4)
    p[16] = 2
    put(p + 21, attributes, 2)
    put(p + 23, before - first_offset, 4)
    put(p + 27, first_timestamp, 8)
    put(p + 35, most_timestamp if log_append_time_ms is None else <int64_t>log_append_time_ms, 8)
    put(p + 43, producer_id, 8)
    put(p + 51, producer_epoch, 2)
    put(p + 53, base_sequence, 4)
    put(p + 57, count, 4)
    cdef _Source source = _Source(payload)
    memcpy(p + BATCH_OVERHEAD, source.view.buf, size)
    put(p + 17, crc32c()(view_of(<uint8_t *>p + 21, BATCH_OVERHEAD - 21 + size)), 4)
    return out
