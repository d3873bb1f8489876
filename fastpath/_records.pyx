# cython: freethreading_compatible=True
# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Decodes record batches to columns. This is the part of the data plane that handles every record.

There are two passes. The first checks every batch's header, checksum and codec, with one library call each. The second
walks over the records without the GIL. It checks each length against the end before use, and writes the columns.

Related units are `_memory` (pooled blocks), `_store` (the layout of records in columns) and `_columns` (Record,
RecordColumns). `_bytes_column` and `_headers` have Arrow's layouts, `_byteorder.pxd` and `_varint.pxd` numbers, and
`_encode` the encoding.

The readable twin, on construct: `kohort/protocol/record_batch.py`. Every test of decoding runs on both.
Format: https://kafka.apache.org/documentation/#recordbatch
"""

from libc.stdint cimport INT64_MAX, INT64_MIN, int8_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
cimport cython

from zlib import crc32

from kohort.fastpath._byteorder cimport be16, be32, be64
from kohort.fastpath._columns cimport columns_of
from kohort.fastpath._memory cimport Block, Source, exporter_of, view_of
from kohort.fastpath._store cimport NO_HEADERS, Span, Store
from kohort.fastpath._varint cimport varint, varlong

from kohort.fastpath.checksum import crc32c_function
from kohort.fastpath.compression import CODECS, LEGACY_LZ4, Broken, Codec, DoesNotFit
from kohort.fastpath.errors import CorruptRecord, DecompressionLimit, UnsupportedCodec, UnsupportedMagic

cdef enum:
    MAGIC_AT = 16
    LEAST_RECORD_BYTES = 7
    COLUMNS_RECORD_BYTES = 36
    ABORT_MARKER = 0
    NO_TIMESTAMP = -1
    ROOM_BYTES = 8 << 20  # for columns, for any decompressed size of a batch
    MOST_GUESSED_RECORDS = 1 << 20  # reserved before any checksum was compared
    MOST_BEHIND_WATERMARK = 0x7FFFFFFF  # a broker may append between reading its high watermark and reading its log

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
    """Append the records of one batch of magic 2 to the columns, from `from_offset` on, until `room` are taken."""
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
        p = varlong(p + 1, record_end, &timestamp_delta)  # after the attributes, which have no meaning yet
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
        into.offsets[n] = base_offset + offset_delta  # cannot overflow, because the sum in the header did not
        into.timestamps[n] = append_timestamp if append else <int64_t>(<uint64_t>base_timestamp + <uint64_t>timestamp_delta)
        headers = p
        p = varint(p, record_end, &header_count)
        if p == NULL:
            return VARINT_LIES
        if header_count == 0:
            into.headers[n] = NO_HEADERS
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
    """Estimate the columns' size from unchecked headers. `Store.reserve` allocates more if needed."""
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
    return min(total, MOST_GUESSED_RECORDS)


cdef object crc32c():
    """The library's function, found at first use."""
    return crc32c_function()


cdef struct Message:  # one message of magic 0 or 1
    int64_t offset
    int64_t timestamp
    Span key
    Span value
    int32_t attributes


cdef Fault parse_message(
    const uint8_t *base, const uint8_t *p, const uint8_t *end, uint8_t magic, Message *message
) noexcept nogil:
    """Read a message of magic 0 or 1 that begins at `p` with its offset and must end at `end`. Its CRC is already
    checked."""
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
LEAST_BYTES[:] = [26, 34, BATCH_OVERHEAD]  # size of an empty batch, by magic


@cython.final
cdef class _Decoder:
    """One call of `decode`: its arguments and its progress."""

    cdef Store store
    cdef const uint8_t *start
    cdef Py_ssize_t size
    cdef str topic
    cdef int partition
    cdef int64_t from_offset, next_offset, limit, high_watermark
    cdef int64_t reached  # end of the previous batch
    cdef int64_t held  # bytes decompressed for records in the columns
    cdef bint full
    cdef object crc32c
    cdef list pending  # (first offset, producer id) of aborted transactions that have not begun, the next one last
    cdef set aborting  # producer ids inside one
    cdef Block block  # of the current batch, None if its records are in the buffer
    cdef const uint8_t *data
    cdef const uint8_t *data_end

    cdef object corrupt(self, reason, int64_t offset):
        return CorruptRecord(f"corrupt record batch: {reason}", hint=_CORRUPT_HINT, **self.place(offset))

    cdef dict place(self, int64_t offset):
        return {
            "topic": self.topic or None, "partition": None if self.partition < 0 else self.partition, "offset": offset
        }

    cdef int64_t frame(self, const uint8_t *p, const uint8_t *end) except -1:
        """The size of the batch at `p`; 0 for part of a batch. An impossible size or magic raises, also for part of a
        batch."""
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
            raise self.corrupt(f"magic {magic} is not a record format", be64(p))
        if magic > 2:
            raise UnsupportedMagic(f"a record batch of magic {magic}, newer than any known", **self.place(be64(p)))
        return 0

    cdef bint is_sound(self, const uint8_t *p, const uint8_t *end) except -1:
        """Return whether a complete batch is at `p` and its checksum matches."""
        cdef int64_t size
        if end - p < LEAST_BYTES[0]:
            return False
        size = <int64_t>be32(p + 8) + LOG_OVERHEAD
        if p[MAGIC_AT] > 2 or size < LEAST_BYTES[p[MAGIC_AT]] or size > end - p:
            return False
        if p[MAGIC_AT] == 2:
            return <uint32_t>be32(p + 17) == <uint32_t>self.crc32c(view_of(p + 21, size - 21))
        return <uint32_t>be32(p + 12) == <uint32_t>crc32(view_of(p + 16, size - 16))

    cdef int64_t claimed_end(self, const uint8_t *p, int64_t size) except -2:
        """The offset behind a corrupt batch by its own header; -1 if the header contradicts itself."""
        cdef uint64_t end = be64(p)
        cdef int32_t last_offset_delta, count
        if be64(p) < 0:
            return -1
        if p[MAGIC_AT] == 2 and size >= BATCH_OVERHEAD:
            last_offset_delta, count = be32(p + 23), be32(p + 57)
            if last_offset_delta < 0 or (last_offset_delta != <int64_t>count - 1 and not self.is_sound(p, p + size)):
                return -1
            end += last_offset_delta
        return end + 1 if end < INT64_MAX else -1

    cdef int64_t behind_corrupt(self, const uint8_t *p, int64_t size, const uint8_t *end) except -1:
        """The offset behind the corrupt batch at `p`, at which reading goes on.

        The base offset is outside of the checksum. A corrupt batch alone therefore moves the position by one offset
        only. The position moves past the whole batch if the next batch in the buffer confirms its end. It also does if
        the batch begins at or before the position and ends within the log. It does not move if the next batch begins
        at or before it, since an earlier call has passed the corrupt batch.
        """
        cdef int64_t position = self.next_offset, claimed = self.claimed_end(p, size), base_offset = be64(p), following
        p += size
        if end - p >= 8:
            following = be64(p)
            if following >= self.reached and not self.is_beyond(following) and (
                following <= position or following == claimed or self.is_sound(p, end)
            ):
                return max(position, following)
        if base_offset <= position < claimed <= self.high_watermark:
            return claimed
        return position + (position < INT64_MAX)

    cdef inline bint is_beyond(self, int64_t offset) noexcept:
        return self.high_watermark >= 0 and offset - self.high_watermark > MOST_BEHIND_WATERMARK

    cdef inline bint begins_below(self, int64_t offset) except -1:
        """Return whether the next aborted transaction begins below an offset."""
        cdef Py_ssize_t last = len(self.pending) - 1
        return last >= 0 and self.pending[last][0] < offset

    cdef int batch(self, const uint8_t *p, int64_t size) except -1:
        """Append the batch at `p` to the columns. An exception changes nothing."""
        cdef int64_t base_offset = be64(p)
        cdef uint8_t magic = p[MAGIC_AT]
        self.check_magic(p)
        if size < LEAST_BYTES[magic]:
            raise self.corrupt("a batch is shorter than its header", base_offset)
        try:
            if magic == 2:
                return self.batch_v2(p, size)
            return self.batch_legacy(p, size, magic)
        except MemoryError:
            raise DecompressionLimit(
                "not enough memory for the records of a batch",
                hint="lower max_decompressed_bytes and max_partition_fetch_bytes, or skip the batch",
                **self.place(base_offset),
            ) from None

    cdef int batch_v2(self, const uint8_t *p, int64_t size) except -1:
        cdef Batch batch
        cdef Span key
        read_header(p, &batch)
        if <uint32_t>be32(p + 17) != <uint32_t>self.crc32c(view_of(p + 21, size - 21)):
            raise self.corrupt("a batch's CRC-32C does not match its bytes", batch.base_offset)
        if batch.count < 0 or batch.last_offset_delta < 0 or batch.base_offset < 0 or batch.next_offset < 0:
            raise self.corrupt("a batch's offset, count or last offset delta is out of range", batch.base_offset)
        if self.is_beyond(batch.next_offset):
            raise self.corrupt(_BEYOND, batch.base_offset)
        if batch.base_offset < self.reached:
            raise self.corrupt("its offsets are below those of the batch before", batch.base_offset)
        self.reached = batch.next_offset

        while self.begins_below(batch.next_offset):
            self.aborting.add(self.pending.pop()[1])
        if batch.attributes & CONTROL_BIT:
            # Also before `from_offset`: if a marker were skipped, its producer would count as aborted forever.
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
        """Append the records of the batch at `p` to the columns, and return their number. Their spans count from
        `data`.

        Sets `full` if there may be more records than there is room for.
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
        if codec and (batch.count or records < end):  # compaction may leave an empty batch with its codec
            self.block = self.decompressed(codec, view_of(records, end - records), batch.base_offset, 2)
            if self.block is None:
                self.full = True
                return 0
            self.data = records = <const uint8_t *>self.block.data
            self.data_end = end = records + self.block.size
        room = min(room, self.room(0 if self.block is None else self.block.size))
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
        if self.is_beyond(last):
            raise self.corrupt(_BEYOND, wrapper.offset)
        if first < self.reached:
            raise self.corrupt("its offsets are below those of the batch before", wrapper.offset)
        for i in range(n, n + found - early):
            self.store.offsets[i] = self.store.offsets[i + early]
            self.store.timestamps[i] = self.store.timestamps[i + early]
            self.store.keys[i] = self.store.keys[i + early]
            self.store.values[i] = self.store.values[i + early]
        self.keep(found - early, <const uint8_t *>block.data if codec else self.start, end, block, timestamp_type)
        return self.passed(last + 1)

    cdef Py_ssize_t inner_messages(self, Block block, uint8_t magic, int64_t wrapper_offset) except -1:
        """Append the messages inside a compressed message to the columns, and return their number."""
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
        """Count `taken` records, which are already in place, as part of the columns."""
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

    cdef inline int64_t left(self) noexcept:
        """The bytes below the limit that neither columns nor decompressed records take. Negative above the limit."""
        return self.limit - self.held - self.store.count * COLUMNS_RECORD_BYTES

    cdef Py_ssize_t room(self, Py_ssize_t size) noexcept:
        """The number of records of a batch of `size` decompressed bytes that may be taken. It limits the columns'
        memory for a bomb.
        """
        return max(self.left() - size, ROOM_BYTES) // COLUMNS_RECORD_BYTES

    cdef Block decompressed(self, int codec, source, int64_t offset, int magic):
        """The payload in its own block; None if the columns are so large that it must wait for the next call."""
        cdef int64_t size, most = self.left()
        cdef Block block
        compression = LEGACY_LZ4 if codec == 3 and magic == 0 else CODECS.get(codec)
        if compression is None:
            raise UnsupportedCodec(f"compression codec {codec} is unknown", **self.place(offset))
        try:
            size = min(max(compression.size_bound(source, self.limit), 64), self.limit)
            if size > most:
                return None
            while True:
                block = Block(size)
                try:
                    block.resize(compression.decompress_into(source, block))
                except DoesNotFit:
                    block.discard()
                    if size >= most:
                        if self.store.count:  # the bound is too low for some frames
                            return None
                        name = Codec(codec).name.lower()
                        raise DecompressionLimit(
                            f"a {name} batch decompresses to more than {self.limit} bytes",
                            hint="raise max_decompressed_bytes if such batches are expected", **self.place(offset),
                        ) from None
                    size = min(size * 2, most)
                else:
                    return block
        except Broken as error:
            raise self.corrupt(f"{Codec(codec).name.lower()}: {error}", offset) from None


_BEYOND = "its offsets are far above the response's high watermark"
_CORRUPT_HINT = "seek past the batch, or read it again from another replica"


def decode(
    buffer,
    *,
    str topic="",
    int partition=-1,
    int64_t from_offset=0,
    aborted=(),
    int64_t max_decompressed_bytes=64 << 20,
    str on_corrupt="raise",
    int64_t high_watermark=-1,
):
    """Return the `records` of one partition of a Fetch response, or the bytes of a log segment, as columns.

    `buffer`: any contiguous bytes. The columns point into it, so it must not change while they are in use. Brokers end
    a response with part of a batch, which is ignored. `from_offset`: the position. Records before it are not returned.
    `aborted`: the (producer_id, first_offset) pairs of a read_committed response. Records of those transactions are not
    returned. Control records are never returned.

    `max_decompressed_bytes` limits the decompressed size of one batch. It also limits the total memory of a call beside
    `buffer` to 8 MiB more. Only the columns of a compressed message of magic 0 or 1 may exceed it. If the next batch
    would, the columns end there with `complete` False. Then call again with `from_offset=columns.next_offset`.

    `on_corrupt`: "raise", or "skip_batch", which goes on behind a corrupt batch. `columns.corrupt` lists the skipped
    batches with their `resumed_at` offsets, except those before `from_offset`. A batch with an impossible length is
    always raised, because the next one is not found. So is one behind which the buffer ends before the position, since
    an equal request has an equal response. A skipped batch may be the marker of an aborted transaction. The
    columns end behind it if one is open. Fetch again from `next_offset` then, because that response has a new list.

    `high_watermark`: the partition's, from the response; -1 if unknown. A corrupt last batch of the buffer is
    skipped as a whole if it begins at or before the position. It must also end at or below the high watermark.
    Otherwise the position moves by one offset. Batches more than 2**31 - 1 offsets above the high watermark are corrupt.

    Raises ValueError if `max_decompressed_bytes` is not between 1 and 2**31 - 1. Raises CorruptRecord, and its
    subclasses UnsupportedMagic, UnsupportedCodec and DecompressionLimit, with topic, partition and the offset of the
    batch. `error.decoded` has the columns before it.
    """
    if on_corrupt not in ("raise", "skip_batch"):
        raise ValueError(f'on_corrupt is "raise" or "skip_batch", not {on_corrupt!r}')
    if not 0 < max_decompressed_bytes <= 0x7FFFFFFF:
        raise ValueError(f"max_decompressed_bytes must be between 1 and {0x7FFFFFFF}, not {max_decompressed_bytes}")
    exporter = exporter_of(buffer)
    cdef Source source = Source(exporter)
    if source.view.len > 0x7FFFFFFF:
        raise ValueError("decode accepts less than 2 GiB in one call")
    cdef const uint8_t *p = <const uint8_t *>source.view.buf
    cdef const uint8_t *end = p + source.view.len
    cdef int64_t size, reached
    cdef list corrupt = []
    cdef object passed = None
    cdef _Decoder decoder = _Decoder.__new__(_Decoder)
    decoder.store = Store(count_records(p, end))
    decoder.store.buffers.append(exporter)
    decoder.store.source = source
    decoder.start = p
    decoder.size = source.view.len
    decoder.topic = topic
    decoder.partition = partition
    decoder.from_offset = decoder.next_offset = from_offset
    decoder.limit = max_decompressed_bytes
    decoder.high_watermark = high_watermark
    decoder.crc32c = crc32c()
    decoder.pending = sorted([(first, producer) for producer, first in aborted], reverse=True) if aborted else []
    decoder.aborting = set() if aborted else None
    try:
        while not decoder.full:
            size = decoder.frame(p, end)
            if size == 0:
                break
            if decoder.left() < 0:
                decoder.full = True
                break
            reached = decoder.reached
            try:
                decoder.batch(p, size)
            except CorruptRecord as error:
                if on_corrupt == "raise":
                    raise
                decoder.reached, passed = reached, error
                decoder.next_offset = error.resumed_at = decoder.behind_corrupt(p, size, end)
                if error.resumed_at > from_offset:
                    corrupt.append(error)
                    if decoder.aborting or decoder.begins_below(decoder.next_offset):
                        break  # if it was a marker, its producer would count as aborted behind it
            p += size
        if passed is not None and decoder.next_offset == from_offset < INT64_MAX and not decoder.full:
            raise passed
    except CorruptRecord as error:
        error.decoded = columns_of(decoder.store, topic, partition, decoder.next_offset, tuple(corrupt), False)
        raise
    return columns_of(decoder.store, topic, partition, decoder.next_offset, tuple(corrupt), not decoder.full)
