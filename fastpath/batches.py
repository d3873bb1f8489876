"""Iterates over batch headers without reading records, to walk and to show log segments."""

from collections.abc import Iterator
from struct import Struct
from typing import TYPE_CHECKING
from zlib import crc32

from kohort.common.named_tuple import NamedTuple
from kohort.fastpath.checksum import crc32c_function
from kohort.fastpath.compression import Codec
from kohort.fastpath.errors import CorruptRecord, UnsupportedMagic

if TYPE_CHECKING:
    from typing_extensions import Buffer

_LOG_OVERHEAD = Struct(">qi")  # base offset, length of what follows
_V2 = Struct(">qiibIhiqqqhii")
_MESSAGE = Struct(">qiIbb")
_TIMESTAMP = Struct(">q")
_MAGIC_AT, _V2_CRC_FROM, _MESSAGE_CRC_FROM = 16, 21, 16
_LEAST_BYTES = {0: 26, 1: 34, 2: _V2.size}


class BatchInfo(NamedTuple):
    """The header of a batch. For magic 0 and 1: a message, or a wrapper with the offset of its last inner message."""

    position: int  # in the buffer, bytes
    size_bytes: int
    magic: int
    base_offset: int
    last_offset: int
    codec: Codec | int  # an int if no version of Kafka defines the codec
    record_count: int | None  # None: counting a wrapper's inner messages needs decompression
    timestamp_type: str  # "create", "append" or "none"
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    partition_leader_epoch: int = -1
    transactional: bool = False
    control: bool = False

    @property
    def next_offset(self) -> int:
        return self.last_offset + 1


def batches(buffer: "Buffer", *, start: int = 0) -> Iterator[BatchInfo]:
    """Yield the headers in `buffer` from byte `start` on, where a batch must begin. Part of a batch at the end is
    ignored.

    Checksums are not checked: see `is_sound`. Raises CorruptRecord and UnsupportedMagic if the next batch cannot be
    found, with `offset` and `position`.
    """
    view = memoryview(buffer).cast("B")
    at = start
    while at + _LOG_OVERHEAD.size <= len(view):
        offset, length = _LOG_OVERHEAD.unpack_from(view, at)
        size = _LOG_OVERHEAD.size + length
        if offset == 0 and length == 0 and not any(view[at : at + 1024]):
            return  # the rest of a preallocated file
        if size < _LEAST_BYTES[0]:
            raise CorruptRecord("a batch is shorter than any header", offset=offset, position=at)
        if at + size > len(view):
            return
        magic = view[at + _MAGIC_AT]
        if magic not in _LEAST_BYTES:
            raise UnsupportedMagic(f"a record batch of magic {magic}, which is unknown", offset=offset, position=at)
        if size < _LEAST_BYTES[magic]:
            raise CorruptRecord("a batch is shorter than its header", offset=offset, position=at)
        yield _batch(view, at, size) if magic == 2 else _message(view, at, size)
        at += size


def is_sound(buffer: "Buffer", batch: BatchInfo) -> bool:
    """Return True if the batch's checksum (of a wrapper: the outer one) matches its bytes."""
    view = memoryview(buffer).cast("B")[batch.position : batch.position + batch.size_bytes]
    if batch.magic == 2:
        return bool(_V2.unpack_from(view)[4] == crc32c_function()(view[_V2_CRC_FROM:]))
    return bool(_MESSAGE.unpack_from(view)[2] == crc32(view[_MESSAGE_CRC_FROM:]))


def _batch(view: memoryview, at: int, size: int) -> BatchInfo:
    base_offset, _, leader_epoch, magic, _, attributes, last_delta, *rest = _V2.unpack_from(view, at)
    base_timestamp, max_timestamp, producer_id, producer_epoch, base_sequence, count = rest
    return BatchInfo(
        at,
        size,
        magic,
        base_offset,
        base_offset + last_delta,
        _codec(attributes),
        count,
        "append" if attributes & 0x08 else "create",
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        leader_epoch,
        bool(attributes & 0x10),
        bool(attributes & 0x20),
    )


def _message(view: memoryview, at: int, size: int) -> BatchInfo:
    offset, _, _, magic, attributes = _MESSAGE.unpack_from(view, at)
    timestamp = _TIMESTAMP.unpack_from(view, at + _MESSAGE.size)[0] if magic == 1 else -1
    codec = _codec(attributes)
    kind = "none" if magic == 0 else "append" if attributes & 0x08 else "create"
    return BatchInfo(at, size, magic, offset, offset, codec, None if codec else 1, kind, timestamp, timestamp)


def _codec(attributes: int) -> Codec | int:
    number = attributes & 0x07
    return Codec(number) if number in set(Codec) else number
