# cython: freethreading_compatible=True
# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Records of one slice of a partition, as columns, and as views of single records.

Columns are sliced, compared, converted to Arrow and pickled. Bytes objects are made when a `Record` reads them.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcpy
cimport cython

from kohort.fastpath._bytes_column cimport bytes_column
from kohort.fastpath._headers cimport HeaderTotals, header_layout, header_span, headers_at
from kohort.fastpath._memory cimport Block, Source
from kohort.fastpath._store cimport NO_HEADERS, Run, Span, Store

from kohort.common.topic_partition import TopicPartition


@cython.final
@cython.freelist(64)
cdef class Record:
    """One record of a partition: an index into its columns. Its bytes objects are made when they are read.

    It keeps its columns, and so the fetched buffer, alive. `bytes` objects read from it do not. It equals any record
    with the same topic, partition, offset, timestamp, key, value and headers.
    """

    def __init__(self):
        raise TypeError("records are made by decode only")  # one without columns would read memory that is not its own

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
        """Milliseconds since the epoch, or -1 if the record has no timestamp (magic 0)."""
        return self.columns.store.timestamps[self.index]

    @property
    def timestamp_type(self):
        """"create", "append" (the broker's clock) or "none"."""
        return _TIMESTAMP_TYPES[self.run.timestamp_type]

    @property
    def key(self):
        """The key as bytes, or None."""
        cdef Span span = self.columns.store.keys[self.index]
        if span.size < 0:
            return None
        return PyBytes_FromStringAndSize(<const char *>self.run.data + span.start, span.size)

    @property
    def value(self):
        """The value as bytes, or None for a tombstone."""
        cdef Span span = self.columns.store.values[self.index]
        if span.size < 0:
            return None
        return PyBytes_FromStringAndSize(<const char *>self.run.data + span.start, span.size)

    @property
    def headers(self):
        """A tuple of (name, bytes or None), in the order of the record. A name may be repeated."""
        return _headers_of(self, False)

    @property
    def _raw_headers(self):
        """As `headers`, with the bytes of the names, to write them again unchanged."""
        return _headers_of(self, True)

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


cdef tuple _headers_of(Record record, bint in_bytes):
    cdef uint32_t start = record.columns.store.headers[record.index]
    if start == NO_HEADERS:
        return ()
    return headers_at(record.run.data + start, record.run.data + record.run.size, in_bytes)


def _first_of(columns):
    return columns[0]


_TIMESTAMP_TYPES = {0: "create", 1: "append", -1: "none"}


@cython.final
cdef class _Iterator:
    cdef RecordColumns columns
    cdef Run *run
    cdef Run *last_run
    cdef Py_ssize_t index, stop

    def __iter__(self):
        return self

    def __next__(self):
        record = self.following()
        if record is None:
            raise StopIteration  # here, outside of the section, it makes no traceback
        return record

    @cython.critical_section
    cdef Record following(self):
        """The next record; None at the end."""
        if self.index >= self.stop:
            return None
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
    """The records of one slice of a partition, as columns. Iteration yields `Record` views.

    `len()` counts records. A slice `columns[a:b]` shares the same buffers. `next_offset` is the offset of the next
    fetch. It is behind everything that the slice covers, including control batches, aborted batches and compacted
    tails. A pickle has the values of the slice alone, without the rest of its fetch.
    """

    def __init__(self):
        raise TypeError("columns are made by decode only")

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
                raise ValueError("columns support slices with step 1 only")
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
        if self.corrupt and (start > self.start or stop < self.stop):
            before = self.next_offset if start == self.stop else self.store.offsets[start]
            columns.corrupt = tuple([
                one for one in self.corrupt
                if (start == self.start or one.resumed_at > before) and one.resumed_at <= columns.next_offset
            ])
        return columns

    @property
    def next_offsets(self):
        """{TopicPartition: next_offset}, the argument of `Consumer.commit`."""
        return {TopicPartition(self.topic, self.partition): self.next_offset}

    @property
    def offsets(self):
        """A read-only memoryview of int64."""
        return self._int64_view(self.store.offsets_block)

    @property
    def timestamps_ms(self):
        """A read-only memoryview of int64: milliseconds since the epoch, or -1."""
        return self._int64_view(self.store.timestamps_block)

    cdef int64_t last_timestamp(self) noexcept:
        """Of the last record, which must exist."""
        return self.store.timestamps[self.stop - 1]

    cdef _int64_view(self, Block block):
        return memoryview(block)[self.start * 8 : self.stop * 8].toreadonly().cast("q")

    @property
    def keys(self):
        """The keys as a BytesColumn."""
        return bytes_column(self.store, self.start, self.stop, self.store.keys)

    @property
    def values(self):
        """The values as a BytesColumn."""
        return bytes_column(self.store, self.start, self.stop, self.store.values)

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
        """The HeaderLayout, made at first use; None if no record of the slice has a header."""
        return header_layout(self.store, self.start, self.stop)

    def compact(self):
        """Return the same records in buffers of their own, so that few records do not keep the whole fetch in memory.
        """
        return _unpickle(*_pickle(self))

    def __reduce__(self):
        return _unpickle, _pickle(self)

    def to_arrow(self, schema=None):
        """Return a pyarrow.RecordBatch over the same buffers. See `kohort.fastpath.arrow.record_batch` for columns and
        types."""
        from kohort.fastpath.arrow import record_batch

        return record_batch(self, schema)

    def to_pandas(self, schema=None):
        """Return a pandas.DataFrame, through Arrow."""
        from kohort.fastpath.arrow import pandas_frame

        return pandas_frame(self, schema)

    def to_polars(self, schema=None):
        """Return a polars.DataFrame, through Arrow. Keys and values have polars' view layout and are not copied."""
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
# Pickling
# ---------------------------------------------------------------------------------------------------------------------
cdef tuple _pickle(RecordColumns columns):
    """The slice's own bytes: key, value and headers of each record end to end, and the columns over them."""
    cdef Store store = columns.store
    cdef Py_ssize_t start = columns.start, stop = columns.stop, i
    cdef Run *first = store.run_of(start)
    cdef Run *last = store.last_run()
    cdef Run *run = first
    cdef HeaderTotals totals = HeaderTotals(0, 0, 0)
    cdef int64_t total = 0, headers_left = 0, at = 0
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
                headers_left += end - p
    if not sound:
        raise RuntimeError("the decoded buffer was changed while columns pointed into it")
    total += headers_left
    if total > 0x7FFFFFFF:
        raise OverflowError("a slice of 2 GiB or more cannot be pickled: slice it first")
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
                if end == NULL or end - p > headers_left:  # the keys and values behind them need their room, too
                    sound = False
                    break
                headers_left -= end - p
                header_starts[i - start] = <uint32_t>at
                memcpy(out + at, p, end - p)
                at += end - p
    if not sound:
        raise RuntimeError("the decoded buffer was changed while columns pointed into it")
    return (
        columns.topic, columns.partition, columns.next_offset, columns.corrupt, bytes(columns.offsets),
        bytes(columns.timestamps_ms), bytes(columns.timestamp_types), keys, values, headers, data, columns.complete,
    )


def _unpickle(
    str topic, int partition, int64_t next_offset, tuple corrupt, bytes offsets, bytes timestamps, bytes types,
    bytes keys, bytes values, bytes headers, bytes data, bint complete,
):
    cdef Py_ssize_t count = len(types), i
    cdef Py_ssize_t size = len(data)
    if not len(offsets) == len(timestamps) == len(keys) == len(values) == count * 8 or len(headers) != count * 4:
        raise ValueError("pickled columns of different lengths")
    cdef Store store = Store(count)
    memcpy(store.offsets, PyBytes_AS_STRING(offsets), count * 8)
    memcpy(store.timestamps, PyBytes_AS_STRING(timestamps), count * 8)
    memcpy(store.keys, PyBytes_AS_STRING(keys), count * 8)
    memcpy(store.values, PyBytes_AS_STRING(values), count * 8)
    memcpy(store.headers, PyBytes_AS_STRING(headers), count * 4)
    store.buffers.append(data)
    store.source = Source(data)
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
    return columns_of(store, topic, partition, next_offset, corrupt, complete)


cdef inline bint _within(Span span, Py_ssize_t size) noexcept:
    return span.size < 0 or <Py_ssize_t>span.start + span.size <= size


cdef RecordColumns columns_of(Store store, str topic, int partition, int64_t next_offset, tuple corrupt, bint complete):
    cdef RecordColumns columns = RecordColumns.__new__(RecordColumns)
    if store.run_count == 0:  # always present, so that no caller needs a check
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
