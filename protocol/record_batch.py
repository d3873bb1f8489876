"""Reads and writes record batches of magic 0, 1 and 2: the readable reference of `kohort.fastpath`.

A partition's records are a sequence of *batches*, declared in `record_format.py`.

- Magic 2 (since Kafka 0.11): one header for all records, and a CRC-32C of everything behind the checksum. Records have
  varints and deltas. They are compressed together, without the header. Control batches (transaction markers) have no
  user records.
- Magic 0 and 1: each message has its own CRC-32. Compressed messages are the value of one wrapper message. Magic 1 adds
  a timestamp. Its inner messages are numbered from 0, and the wrapper has the offset of the last one.

`decode` and `encode` define reading and writing in plain Python. Tests run the same cases on this module and on the
Cython of `kohort.fastpath`.
Format: https://kafka.apache.org/documentation/#messageformat
"""

import io
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import crc32c
from construct import Struct

from kohort.common.named_tuple import NamedTuple
from kohort.fastpath.compression import CODECS, LEGACY_LZ4, Broken, Codec, DoesNotFit, codec_of
from kohort.fastpath.errors import CorruptRecord, DecompressionLimit, UnsupportedCodec, UnsupportedMagic
from kohort.protocol.construct_types import INT8, INT32, Malformed, take
from kohort.protocol.record_format import (
    APPEND_TIME_BIT,
    BATCH_HEADER,
    BATCH_HEADER_BYTES,
    CODEC_MASK,
    CONTROL_BIT,
    CONTROL_KEY,
    CRC_COVERS_FROM,
    INT64,
    LEAST_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC_AT,
    MESSAGES,
    RECORD,
    TRANSACTIONAL_BIT,
    UINT32,
    VARINT,
)

ABORT_MARKER = 0
NO_TIMESTAMP = -1


class PlainRecord(NamedTuple):
    """One record, as values. `timestamp_type` is "create", "append" or, without a timestamp (magic 0), "none"."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    timestamp_type: str
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True)
class Decoded:
    """The result of `decode`: records, the next offset to read, and the batches that were skipped as corrupt."""

    records: tuple[PlainRecord, ...]
    next_offset: int
    corrupt: tuple[CorruptRecord, ...] = ()

    def __len__(self) -> int:
        return len(self.records)

    def __iter__(self) -> Iterator[PlainRecord]:
        return iter(self.records)


class _Lie(Exception):
    """A batch that contradicts itself. It is raised as CorruptRecord with the topic and the partition."""


@dataclass(frozen=True, slots=True)
class _Batch:
    """One batch as read: its range of offsets, and the fields that decide if its records are returned."""

    read: Callable[[], Sequence[PlainRecord]]  # a batch that is not returned is not read beyond its checksum
    base_offset: int
    next_offset: int
    producer_id: int = -1
    transactional: bool = False
    control: bool = False


def decode(
    buffer: Any,
    *,
    topic: str = "",
    partition: int = -1,
    from_offset: int = 0,
    aborted: Iterable[tuple[int, int]] = (),
    max_decompressed_bytes: int = 64 << 20,
    on_corrupt: str = "raise",
    high_watermark: int = -1,
) -> Decoded:
    """Decode as `kohort.fastpath.decode` does, in plain Python: same arguments, same records, same errors."""
    if not 0 < max_decompressed_bytes <= INT32_MAX:
        raise ValueError(f"max_decompressed_bytes must be between 1 and {INT32_MAX}, not {max_decompressed_bytes}")
    view = memoryview(buffer).cast("B")
    pending = sorted(((first, producer) for producer, first in aborted), reverse=True)
    aborting: set[int] = set()
    records: list[PlainRecord] = []
    corrupt: list[CorruptRecord] = []
    passed: CorruptRecord | None = None
    next_offset, reached, at = from_offset, 0, 0
    while (frame := _frame(view[at:], _Place(topic, partition))) is not None:
        at += len(frame)
        place, before = _Place(topic, partition, INT64.parse(frame[:8])), reached
        try:
            with place.of_faults():
                batch = _read_batch(frame, place, max_decompressed_bytes)
                if _is_beyond(batch.next_offset, high_watermark):
                    raise _Lie("its offsets are far above the response's high watermark")
                if batch.base_offset < reached:
                    raise _Lie("its offsets are below those of the batch before")
                reached = batch.next_offset
                while pending and pending[-1][0] < batch.next_offset:
                    aborting.add(pending.pop()[1])
                if batch.control:
                    # Also before `from_offset`: if a marker were skipped, its producer would count as aborted forever.
                    if batch.producer_id in aborting and _is_abort_marker(batch.read()):
                        aborting.discard(batch.producer_id)
                elif batch.next_offset > from_offset and not (batch.transactional and batch.producer_id in aborting):
                    records += (record for record in batch.read() if record.offset >= from_offset)
        except CorruptRecord as error:
            if on_corrupt == "raise":
                raise
            reached, passed = before, error
            next_offset = _behind_corrupt(frame, view[at:], next_offset, before, high_watermark)
            error.resumed_at = next_offset
            if next_offset > from_offset:
                corrupt.append(error)
                if aborting or (pending and pending[-1][0] < next_offset):
                    break  # if it was a marker, its producer would count as aborted behind it
        else:
            next_offset = max(next_offset, batch.next_offset)
    if passed is not None and next_offset == from_offset < INT64_MAX:
        raise passed
    return Decoded(tuple(records), next_offset, tuple(corrupt))


class _Place(NamedTuple):
    """The position of a batch, for its records and its errors."""

    topic: str
    partition: int
    offset: int = -1

    def names(self) -> dict[str, Any]:
        return {
            "topic": self.topic or None,
            "partition": None if self.partition < 0 else self.partition,
            "offset": self.offset,
        }

    def corrupt(self, reason: str) -> CorruptRecord:
        hint = "seek past the batch, or read it again from another replica"
        return CorruptRecord(f"corrupt record batch: {reason}", hint=hint, **self.names())

    @contextmanager
    def of_faults(self) -> Iterator[None]:
        """Context manager that raises invalid bytes as CorruptRecord."""
        try:
            yield
        except Malformed as error:
            raise self.corrupt(f"{error.reason} in {error.path}") from None
        except (_Lie, Broken) as error:
            raise self.corrupt(str(error)) from None


def _frame(view: memoryview, place: _Place) -> memoryview | None:
    """Return the bytes of the first batch, or None for no batch or part of one. Raises on an impossible length or
    magic."""
    if len(view) < LOG_OVERHEAD_BYTES:
        return None
    length = INT32.parse(view[8:12])
    if length < LEAST_BYTES[0] - LOG_OVERHEAD_BYTES:
        raise place._replace(offset=INT64.parse(view[:8])).corrupt("a batch is shorter than any header")
    frame = view[: LOG_OVERHEAD_BYTES + length]
    if len(frame) == LOG_OVERHEAD_BYTES + length:
        return frame
    if len(frame) > MAGIC_AT:
        _magic(frame, place._replace(offset=INT64.parse(view[:8])))
    return None


def _magic(frame: memoryview, place: _Place) -> int:
    magic: int = INT8.parse(frame[MAGIC_AT : MAGIC_AT + 1])
    if magic < 0:
        raise place.corrupt(f"magic {magic} is not a record format")
    if magic > 2:
        raise UnsupportedMagic(f"a record batch of magic {magic}, newer than any known", **place.names())
    return magic


def _read_batch(frame: memoryview, place: _Place, limit: int) -> _Batch:
    magic = _magic(frame, place)
    if len(frame) < LEAST_BYTES[magic]:
        raise _Lie("a batch is shorter than its header")
    return _read_v2(frame, place, limit) if magic == 2 else _read_legacy(frame, magic, place, limit)


def _read_v2(frame: memoryview, place: _Place, limit: int) -> _Batch:
    header = BATCH_HEADER.parse(bytes(frame[:BATCH_HEADER_BYTES]))
    if header.crc != crc32c.crc32c(frame[CRC_COVERS_FROM:]):
        raise _Lie("a batch's CRC-32C does not match its bytes")
    next_offset = header.base_offset + header.last_offset_delta + 1
    if header.count < 0 or header.last_offset_delta < 0 or header.base_offset < 0 or next_offset >= 1 << 63:
        raise _Lie("a batch's offset, count or last offset delta is out of range")

    def read() -> list[PlainRecord]:
        payload = frame[BATCH_HEADER_BYTES:]
        if not header.count and not payload:
            return []  # compaction may leave an empty batch with its codec
        return _records_v2(header, _decompressed(header.attributes & CODEC_MASK, payload, limit, place), place)

    return _Batch(
        read,
        header.base_offset,
        next_offset,
        header.producer_id,
        bool(header.attributes & TRANSACTIONAL_BIT),
        bool(header.attributes & CONTROL_BIT),
    )


def _records_v2(header: Any, payload: bytes, place: _Place) -> list[PlainRecord]:
    append = header.attributes & APPEND_TIME_BIT
    records: list[PlainRecord] = []
    stream = io.BytesIO(payload)
    delta_before = -1
    for _ in range(header.count):
        record = _whole(RECORD, _record_bytes(stream))
        if not delta_before < record.offset_delta <= header.last_offset_delta:
            raise _Lie("offset deltas must grow and stay within the batch's last offset delta")
        delta_before = record.offset_delta
        records.append(
            PlainRecord(
                place.topic,
                place.partition,
                header.base_offset + record.offset_delta,
                header.max_timestamp if append else _wrapped(header.base_timestamp + record.timestamp_delta),
                "append" if append else "create",
                record.key,
                record.value,
                tuple((pair.key.decode("utf-8", "replace"), pair.value) for pair in record.headers),
            )
        )
    if stream.read(1):
        raise _Lie("bytes follow the last record that the batch counts")
    return records


def _record_bytes(stream: io.BytesIO) -> bytes:
    length = VARINT._parse(stream, None, "length")
    if length < 0:
        raise _Lie("a record's length is negative")
    return take(stream, length, "record")


def _whole(struct: Struct, data: bytes) -> Any:
    """Parse all of `data` as `struct`."""
    stream = io.BytesIO(data)
    value = struct.parse_stream(stream)
    if stream.read(1):
        raise _Lie("a record is longer than its fields")
    return value


def _wrapped(timestamp: int) -> int:
    # Java's longs wrap, and a delta that overflows is legal on the wire.
    return (timestamp + (1 << 63)) % (1 << 64) - (1 << 63)


def _is_abort_marker(records: Sequence[PlainRecord]) -> bool:
    key = records[0].key if records else None
    return key is not None and len(key) >= 4 and CONTROL_KEY.parse(key).type == ABORT_MARKER


def _read_legacy(frame: memoryview, magic: int, place: _Place, limit: int) -> _Batch:
    wrapper = _read_message(frame, magic)
    messages = [(place.offset, wrapper)]
    codec = wrapper.attributes & CODEC_MASK
    if codec:
        if wrapper.value is None:
            raise _Lie("a compressed message has no value to decompress")
        payload = _decompressed(codec, memoryview(wrapper.value), limit, place, magic)
        messages = list(_inner_messages(memoryview(payload), magic))
        last = messages[-1][0]
        if magic == 1 and place.offset:  # some versions of librdkafka produced wrappers of offset 0
            if last > place.offset:
                raise _Lie("a compressed message's offset is before its last inner message's")
            messages = [(place.offset - last + offset, message) for offset, message in messages]
        elif place.offset and last != place.offset:
            raise _Lie("a compressed message's offset is not its last inner message's")
    offsets = [offset for offset, _ in messages]
    if not 0 <= offsets[0] <= offsets[-1] < (1 << 63) - 1 or any(
        after <= before for before, after in pairwise(offsets)
    ):
        raise _Lie("offsets of messages must grow")
    append = magic == 1 and wrapper.attributes & APPEND_TIME_BIT
    records = [
        PlainRecord(
            place.topic,
            place.partition,
            offset,
            NO_TIMESTAMP if magic == 0 else wrapper.timestamp if append else message.timestamp,
            "none" if magic == 0 else "append" if append else "create",
            message.key,
            message.value,
            (),
        )
        for offset, message in messages
    ]
    return _Batch(lambda: records, offsets[0], offsets[-1] + 1)


def _read_message(frame: memoryview, magic: int) -> Any:
    if UINT32.parse(frame[LOG_OVERHEAD_BYTES:MAGIC_AT]) != zlib.crc32(frame[MAGIC_AT:]):
        raise _Lie("a message's CRC-32 does not match its bytes")
    return _whole(MESSAGES[magic], bytes(frame[LOG_OVERHEAD_BYTES:]))


def _inner_messages(view: memoryview, magic: int) -> Iterator[tuple[int, Any]]:
    if not view:
        raise _Lie("a compressed message holds no messages")
    while view:
        if len(view) < LEAST_BYTES[magic]:
            raise _Lie("a compressed message ends inside a message")
        size = INT32.parse(view[8:12])
        frame = view[: LOG_OVERHEAD_BYTES + size]
        if size < LEAST_BYTES[magic] - LOG_OVERHEAD_BYTES or len(frame) < LOG_OVERHEAD_BYTES + size:
            raise _Lie("a compressed message ends inside a message")
        if frame[MAGIC_AT] != magic:
            raise _Lie("a compressed message mixes formats")
        message = _read_message(frame, magic)
        if message.attributes & CODEC_MASK:
            raise _Lie("a compressed message holds another one")
        yield INT64.parse(frame[:8]), message
        view = view[len(frame) :]


def _decompressed(codec: int, source: memoryview, limit: int, place: _Place, magic: int = 2) -> bytes:
    if codec == Codec.NONE:
        return bytes(source)
    compression = CODECS.get(codec)
    if compression is None:
        raise UnsupportedCodec(f"compression codec {codec} is unknown", **place.names())
    if codec == Codec.LZ4 and magic == 0:
        compression = LEGACY_LZ4
    size = min(max(compression.size_bound(source, limit), 64), limit)
    while True:
        target = bytearray(size)
        try:
            return bytes(target[: compression.decompress_into(source, target)])
        except DoesNotFit:
            if size >= limit:
                name = Codec(codec).name.lower()
                text = f"a {name} batch decompresses to more than {limit} bytes"
                hint = "raise max_decompressed_bytes if such batches are expected"
                raise DecompressionLimit(text, hint=hint, **place.names()) from None
            size = min(size * 2, limit)


INT32_MAX = (1 << 31) - 1
INT64_MAX = (1 << 63) - 1


def _is_beyond(offset: int, high_watermark: int) -> bool:
    # A broker may append between reading its high watermark and reading its log.
    return high_watermark >= 0 and offset - high_watermark > INT32_MAX


def _is_sound(view: memoryview) -> bool:
    """Return True if `view` begins with a complete batch with a valid checksum."""
    if len(view) < LEAST_BYTES[0] or view[MAGIC_AT] > 2:
        return False
    magic, size = view[MAGIC_AT], INT32.parse(view[8:12]) + LOG_OVERHEAD_BYTES
    if not LEAST_BYTES[magic] <= size <= len(view):
        return False
    if magic == 2:
        return bool(UINT32.parse(view[17:21]) == crc32c.crc32c(view[CRC_COVERS_FROM:size]))
    return bool(UINT32.parse(view[12:16]) == zlib.crc32(view[16:size]))


def _claimed_end(frame: memoryview) -> int:
    """Return the offset behind a corrupt batch by its own header; -1 if the header contradicts itself."""
    end = int(INT64.parse(frame[:8]))
    if frame[MAGIC_AT] == 2 and len(frame) >= BATCH_HEADER_BYTES:
        header = BATCH_HEADER.parse(bytes(frame[:BATCH_HEADER_BYTES]))
        agrees = header.last_offset_delta == header.count - 1 or _is_sound(frame)
        if header.last_offset_delta < 0 or not agrees:
            return -1
        end = end + header.last_offset_delta if end >= 0 else -1
    return end + 1 if 0 <= end < INT64_MAX else -1


def _behind_corrupt(frame: memoryview, rest: memoryview, position: int, reached: int, high_watermark: int) -> int:
    """Return the offset behind a corrupt batch, at which reading goes on. See the twin."""
    claimed, base_offset = _claimed_end(frame), int(INT64.parse(frame[:8]))
    if len(rest) >= 8:
        following = int(INT64.parse(rest[:8]))
        confirmed = following <= position or following == claimed or _is_sound(rest)
        if following >= reached and confirmed and not _is_beyond(following, high_watermark):
            return max(position, following)
    return claimed if base_offset <= position < claimed <= high_watermark else min(position + 1, INT64_MAX)


# ------------------------------------------------------------------------------------------------------------------
# writing
# ------------------------------------------------------------------------------------------------------------------
Headers = Iterable[tuple[str, bytes | None]]


class NewRecord(NamedTuple):
    """A record before its batch assigns an offset delta."""

    key: bytes | None
    value: bytes | None
    timestamp_ms: int = NO_TIMESTAMP
    headers: Headers = ()


def encode(
    records: Iterable[tuple[Any, ...]],
    *,
    codec: str | int = "none",
    level: int | None = None,
    base_offset: int = 0,
    log_append_time_ms: int | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    partition_leader_epoch: int = -1,
    transactional: bool = False,
    control: bool = False,
) -> bytes:
    """Encode tuples as `kohort.fastpath.encode` does: one batch of magic 2."""
    new = [NewRecord(*record) for record in records]
    if not new:
        raise ValueError("a batch holds at least one record")
    base_timestamp = new[0].timestamp_ms
    number = codec_of(codec)
    plain = b"".join(
        build_record(record, record.timestamp_ms - base_timestamp, delta) for delta, record in enumerate(new)
    )
    append = log_append_time_ms is not None
    return build_batch(
        plain if number == Codec.NONE else CODECS[number].compress(plain, level),
        attributes=number
        | (APPEND_TIME_BIT if append else 0)
        | (TRANSACTIONAL_BIT if transactional else 0)
        | (CONTROL_BIT if control else 0),
        base_offset=base_offset,
        last_offset_delta=len(new) - 1,
        base_timestamp=base_timestamp,
        max_timestamp=log_append_time_ms if append else max(record.timestamp_ms for record in new),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        partition_leader_epoch=partition_leader_epoch,
        count=len(new),
    )


def build_record(record: NewRecord, timestamp_delta: int, offset_delta: int) -> bytes:
    """Return a record of magic 2 with its length."""
    pairs = [{"key": name.encode(), "value": value} for name, value in record.headers]
    body = RECORD.build(
        {
            "attributes": 0,
            "timestamp_delta": timestamp_delta,
            "offset_delta": offset_delta,
            "key": record.key,
            "value": record.value,
            "headers": pairs,
        }
    )
    return bytes(VARINT.build(len(body)) + body)


def build_batch(payload: bytes, **fields: Any) -> bytes:
    """Return a batch of magic 2 around `payload`, with `fields` (names of BATCH_HEADER) and a valid length and
    checksum."""
    header = {
        "base_offset": 0,
        "length": BATCH_HEADER_BYTES - LOG_OVERHEAD_BYTES + len(payload),
        "partition_leader_epoch": -1,
        "magic": 2,
        "crc": 0,
        "attributes": 0,
        "last_offset_delta": 0,
        "base_timestamp": 0,
        "max_timestamp": 0,
        "producer_id": -1,
        "producer_epoch": -1,
        "base_sequence": -1,
        "count": 0,
    } | fields
    if unknown := set(header) - {subcon.name for subcon in BATCH_HEADER.subcons}:
        raise ValueError(f"a batch has no fields {sorted(unknown)}")
    covered = (BATCH_HEADER.build(header) + payload)[CRC_COVERS_FROM:]
    return bytes(BATCH_HEADER.build(header | {"crc": crc32c.crc32c(covered)}) + payload)
