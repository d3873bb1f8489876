# cython: freethreading_compatible=True
# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Encodes columns of rows to record batches, and computes their partitions, without a Python object for any row.

The output is byte for byte that of `_encode` for the same rows.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcpy
cimport cython

from kohort.fastpath._encode cimport body_of, put_varint, varint_size
from kohort.fastpath._memory cimport Block, Source

cdef enum:
    RECORD_BYTES_MOST = 0x7FFFFFFF - 64
    MURMUR_SEED = 0x9747B28C
    MURMUR_M = 0x5BD1E995
    CRC32_POLYNOMIAL = 0xEDB88320
    NULL_ROW = -1
    CHANGED_ROW = -2

_CHANGED = "the rows changed while they were read: pass buffers that no thread writes to"

cdef uint32_t[256] _crc32_table


cdef void _make_table() noexcept:
    cdef uint32_t i, entry
    cdef int _bit
    for i in range(256):
        entry = i
        for _bit in range(8):
            entry = (entry >> 1) ^ (CRC32_POLYNOMIAL if entry & 1 else 0)
        _crc32_table[i] = entry


_make_table()


cdef uint32_t crc32_of(const uint8_t *p, Py_ssize_t size) noexcept nogil:
    cdef uint32_t crc = ~<uint32_t>0
    cdef Py_ssize_t i
    for i in range(size):
        crc = (crc >> 8) ^ _crc32_table[(crc ^ p[i]) & 0xFF]
    return ~crc


cdef uint32_t murmur2_of(const uint8_t *p, Py_ssize_t size) noexcept nogil:
    cdef uint32_t h = <uint32_t>MURMUR_SEED ^ <uint32_t>size, k
    cdef Py_ssize_t left = size
    while left >= 4:
        memcpy(&k, p, 4)
        k *= <uint32_t>MURMUR_M
        k ^= k >> 24
        k *= <uint32_t>MURMUR_M
        h *= <uint32_t>MURMUR_M
        h ^= k
        p += 4
        left -= 4
    if left == 3:
        h ^= <uint32_t>p[2] << 16
    if left >= 2:
        h ^= <uint32_t>p[1] << 8
    if left >= 1:
        h ^= p[0]
        h *= <uint32_t>MURMUR_M
    h ^= h >> 13
    h *= <uint32_t>MURMUR_M
    h ^= h >> 15
    return h


def murmur2(const uint8_t[::1] key not None):
    """MurmurHash2 as in the default partitioner of Kafka's Java client, without the sign bit."""
    return murmur2_of(&key[0] if key.shape[0] else NULL, key.shape[0]) & 0x7FFFFFFF


@cython.final
cdef class BytesRows:
    """Binary values in Arrow's layout: `offsets` (int32, or int64 if `wide`) into `data`, and a validity bitmap. Rows
    are counted from `first`.

    The caller owns the buffers and may change them meanwhile. Each row's offsets are therefore read once and checked
    where they are used. Raises ValueError if the offsets or the bitmap are too short, or the offsets shrink or leave
    `data`.
    """

    cdef Source offsets_source, data_source, validity_source
    cdef const int32_t *narrow
    cdef const int64_t *broad
    cdef const uint8_t *data
    cdef const uint8_t *valid
    cdef Py_ssize_t first
    cdef int64_t limit
    cdef readonly Py_ssize_t count

    def __init__(self, offsets, data, validity=None, *, bint wide=False, Py_ssize_t first=0, Py_ssize_t count=0):
        cdef Py_ssize_t i
        cdef int64_t at, before
        if first < 0 or count < 0:
            raise ValueError("the first row must not be negative")
        self.offsets_source = Source(offsets)
        if self.offsets_source.view.len < (first + count + 1) * (8 if wide else 4):
            raise ValueError("fewer offsets than rows")
        if wide:
            self.broad = <const int64_t *>self.offsets_source.view.buf
        else:
            self.narrow = <const int32_t *>self.offsets_source.view.buf
        if data is not None:
            self.data_source = Source(data)
            self.data = <const uint8_t *>self.data_source.view.buf
            self.limit = self.data_source.view.len
        if validity is not None:
            self.validity_source = Source(validity)
            if self.validity_source.view.len < (first + count + 7) // 8:
                raise ValueError("a bitmap shorter than its rows")
            self.valid = <const uint8_t *>self.validity_source.view.buf
        self.first = first
        self.count = count
        before = 0
        for i in range(first, first + count + 1):
            at = self.broad[i] if wide else self.narrow[i]
            if at < before or at > self.limit:
                raise ValueError("offsets that shrink or leave the data")
            before = at

    def __len__(self):
        return self.count

    cdef inline Py_ssize_t row(self, Py_ssize_t index, const uint8_t **p) noexcept nogil:
        """The size of a row and its start; NULL_ROW for null, CHANGED_ROW if the offsets have become invalid."""
        cdef int64_t start, stop
        index += self.first
        if self.valid != NULL and not self.valid[index >> 3] >> (index & 7) & 1:
            return NULL_ROW
        if self.broad != NULL:
            start = (<const volatile int64_t *>self.broad)[index]
            stop = (<const volatile int64_t *>self.broad)[index + 1]
        else:
            start = (<const volatile int32_t *>self.narrow)[index]
            stop = (<const volatile int32_t *>self.narrow)[index + 1]
        if not 0 <= start <= stop <= self.limit:
            return CHANGED_ROW
        p[0] = self.data + start
        return stop - start


def spread(
    BytesRows keys not None, int partitions, str hashing, int otherwise, Py_ssize_t start, Py_ssize_t stop,
):
    """Return the partition of each key from `start` to `stop` as int32, by "murmur2" (Java) or "crc32" (librdkafka).

    `otherwise`: the partition of null keys, and with crc32 also of empty keys. Raises ValueError for rows out of range,
    RuntimeError if `keys` change meanwhile.
    """
    if partitions < 1 or hashing not in ("murmur2", "crc32"):
        raise ValueError("partitions must be at least 1, and the hash murmur2 or crc32")
    if not 0 <= start <= stop <= keys.count:
        raise ValueError("fewer rows than requested")
    cdef Block out = Block(max(stop - start, 1) * 4)
    cdef int32_t *target = <int32_t *>out.data
    cdef bint java = hashing == "murmur2"
    cdef const uint8_t *p = NULL
    cdef Py_ssize_t i, size
    cdef bint changed = False
    with nogil:
        for i in range(stop - start):
            size = keys.row(start + i, &p)
            if size == CHANGED_ROW:
                changed = True
                break
            if size < 0 or (size == 0 and not java):
                target[i] = otherwise
            elif java:
                target[i] = (murmur2_of(p, size) & 0x7FFFFFFF) % <uint32_t>partitions
            else:
                target[i] = crc32_of(p, size) % <uint32_t>partitions
    if changed:
        raise RuntimeError(_CHANGED)
    return memoryview(out).cast("i")[: stop - start]


def grouped(const int32_t[::1] partition_of not None, int partitions, int64_t first=0):
    """Group rows by partition, in their order. Returns (rows as int64, start of each partition and the end).

    Rows are numbered from `first`. Raises ValueError for a partition out of range, RuntimeError if `partition_of`
    changes meanwhile.
    """
    cdef Py_ssize_t count = partition_of.shape[0], i
    cdef Block out = Block(max(count, 1) * 8), tally = Block((partitions + 1) * 8)
    cdef int64_t *rows = <int64_t *>out.data
    cdef int64_t *starts = <int64_t *>tally.data
    cdef int32_t one
    for i in range(partitions + 1):
        starts[i] = 0
    for i in range(count):
        one = partition_of[i]
        if not 0 <= one < partitions:
            raise ValueError(f"row {first + i} is for partition {one}, of {partitions}")
        starts[one + 1] += 1
    for i in range(partitions):
        starts[i + 1] += starts[i]
    bounds = tuple(starts[i] for i in range(partitions + 1))
    for i in range(count):
        one = partition_of[i]
        if not 0 <= one < partitions or starts[one] >= <int64_t>bounds[one + 1]:
            raise RuntimeError(_CHANGED)
        rows[starts[one]] = first + i
        starts[one] += 1
    return memoryview(out).cast("q")[:count], bounds


def lay_out(
    BytesRows keys,
    BytesRows values,
    timestamps_ms,
    int64_t timestamp_ms,
    rows,
    Py_ssize_t start,
    Py_ssize_t stop,
    Py_ssize_t max_bytes,
    codec="none",
    level=None,
):
    """Return (Body, next) for the rows from `start` on that fit `max_bytes` before compression, at least one row.

    `keys`, `values`: None for nulls only. `timestamps_ms`: a buffer of int64 by row, or None for `timestamp_ms` in all
    rows. `rows`: a buffer of int64 with the row of each place, or None if places are rows. Raises ValueError for places
    that are not rows, RuntimeError if any of the buffers changes meanwhile.
    """
    cdef Source times = None, order = None
    cdef const int64_t *stamps = NULL
    cdef const int64_t *places = NULL
    cdef Py_ssize_t count = values.count if values is not None else keys.count if keys is not None else 0
    cdef Py_ssize_t least = count, i, row, size, total, at
    if keys is not None:
        least = min(least, keys.count)
    if timestamps_ms is not None:
        times = Source(timestamps_ms)
        stamps = <const int64_t *>times.view.buf
        least = min(least, times.view.len // 8)
    if rows is not None:
        order = Source(rows)
        places = <const int64_t *>order.view.buf
        if order.view.len // 8 < stop:
            raise ValueError("fewer places than requested")
    elif stop > least:
        raise ValueError("fewer rows than requested")
    if not 0 <= start < stop:
        raise ValueError("a batch holds at least one record")

    cdef const uint8_t *key = NULL
    cdef const uint8_t *value = NULL
    cdef Py_ssize_t key_size = -1, value_size = -1
    cdef int64_t first_stamp = 0, most_stamp = 0, stamp
    cdef int problem = 0
    cdef Block block
    cdef uint8_t *p
    cdef uint8_t *end
    total = 0
    i = start
    with nogil:
        while i < stop:
            row = (<const volatile int64_t *>places)[i] if places != NULL else i
            if not 0 <= row < least:
                problem = 1
                break
            stamp = (<const volatile int64_t *>stamps)[row] if stamps != NULL else timestamp_ms
            if i == start:
                first_stamp = most_stamp = stamp
            if keys is not None:
                key_size = keys.row(row, &key)
            if values is not None:
                value_size = values.row(row, &value)
            if key_size == CHANGED_ROW or value_size == CHANGED_ROW:
                problem = 3
                break
            size = _record_size(stamp - first_stamp, i - start, key_size, value_size)
            if size > RECORD_BYTES_MOST:
                problem = 2
                break
            size += varint_size(size)
            if i > start and total + size > max_bytes:
                break
            total += size
            if stamp > most_stamp:
                most_stamp = stamp
            i += 1
    if problem == 1:
        raise ValueError(f"place {i} is row {row}, of {least}")
    if problem == 2:
        raise ValueError("a record of 2 GiB and more")
    if problem == 3:
        raise RuntimeError(_CHANGED)
    block = Block(total)
    stop = i
    with nogil:
        p = <uint8_t *>block.data
        end = p + total
        for i in range(start, stop):
            row = (<const volatile int64_t *>places)[i] if places != NULL else i
            if not 0 <= row < least:
                problem = 3
                break
            stamp = (<const volatile int64_t *>stamps)[row] if stamps != NULL else timestamp_ms
            if keys is not None:
                key_size = keys.row(row, &key)
            if values is not None:
                value_size = values.row(row, &value)
            if key_size == CHANGED_ROW or value_size == CHANGED_ROW:
                problem = 3
                break
            size = _record_size(stamp - first_stamp, i - start, key_size, value_size)
            if size + varint_size(size) > end - p:
                problem = 3
                break
            p = put_varint(p, size)
            p[0] = 0  # attributes
            p = put_varint(p + 1, stamp - first_stamp)
            p = put_varint(p, i - start)
            p = put_bytes(p, key, key_size)
            p = put_bytes(p, value, value_size)
            p[0] = 0  # no headers
            p += 1
    if problem or p != end:
        raise RuntimeError(_CHANGED)
    at = stop - start
    return body_of(block, codec, level, at, 0, at - 1, first_stamp, most_stamp), stop


cdef inline Py_ssize_t _record_size(int64_t stamp, int64_t place, Py_ssize_t key, Py_ssize_t value) noexcept nogil:
    return (
        2 + varint_size(stamp) + varint_size(place)
        + varint_size(key) + max(key, 0)
        + varint_size(value) + max(value, 0)
    )


cdef inline uint8_t *put_bytes(uint8_t *p, const uint8_t *data, Py_ssize_t size) noexcept nogil:
    p = put_varint(p, size)
    if size > 0:
        memcpy(p, data, size)
        p += size
    return p
