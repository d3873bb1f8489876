"""The formats of batches and records, magic 0, 1 and 2, as construct declarations.

Each begins with its base offset (int64) and its length (int32). Byte 16 has its format, the *magic*, so a reader knows
the end before it knows the format. `record_batch.py` reads and writes with these declarations, and `wire explain` shows
batches with them.
Format: https://kafka.apache.org/documentation/#messageformat
"""

import io
from typing import Any

from construct import Struct

from kohort.protocol.construct_types import INT8, INT16, INT32, Fixed, Malformed, Subcon, Varint, take

INT64, UINT32 = Fixed("int64"), Fixed("uint32")
VARINT, VARLONG = Varint(32, signed=True), Varint(64, signed=True)

CODEC_MASK, APPEND_TIME_BIT, TRANSACTIONAL_BIT, CONTROL_BIT = 0x07, 0x08, 0x10, 0x20
LOG_OVERHEAD_BYTES = 12
MAGIC_AT = 16
BATCH_HEADER_BYTES = 61  # of magic 2
LEAST_BYTES = {0: 26, 1: 34, 2: BATCH_HEADER_BYTES}  # size of an empty batch, by magic


class SizedBytes(Subcon):
    """A size and that many bytes. A negative size is null, as in Kafka's own reader, unless `nullable` is False."""

    def __init__(self, size: Subcon, *, nullable: bool = True) -> None:
        super().__init__()
        self.size = size
        self.nullable = nullable

    def _parse(self, stream: io.BytesIO, context: object, path: str) -> bytes | None:
        size = self.size._parse(stream, context, path)
        if size < 0:
            if not self.nullable:
                raise Malformed(f"a size of {size}", path, stream.tell())
            return None
        return take(stream, size, path)

    def _build(self, obj: Any, stream: io.BytesIO, context: object, path: str) -> Any:
        self.size._build(-1 if obj is None else len(obj), stream, context, path)
        stream.write(obj or b"")
        return obj


class Counted(Subcon):
    """A varint count and that many values of `one`. Each takes at least `least_bytes`, which limits a false count."""

    def __init__(self, one: Struct, *, least_bytes: int) -> None:
        super().__init__()
        self.one = one
        self.least_bytes = least_bytes

    def _parse(self, stream: io.BytesIO, context: object, path: str) -> list[Any]:
        count = VARINT._parse(stream, context, path)
        left = len(stream.getbuffer()) - stream.tell()
        if not 0 <= count <= left // self.least_bytes:
            raise Malformed(f"a count of {count} with {left} bytes left", path, stream.tell())
        return [self.one._parsereport(stream, context, path) for _ in range(count)]

    def _build(self, obj: Any, stream: io.BytesIO, context: object, path: str) -> Any:
        VARINT._build(len(obj), stream, context, path)
        for one in obj:
            self.one._build(one, stream, context, path)
        return obj


HEADER = Struct("key" / SizedBytes(VARINT, nullable=False), "value" / SizedBytes(VARINT))

# A record of magic 2, behind its varint length.
RECORD = Struct(
    "attributes" / INT8,
    "timestamp_delta" / VARLONG,
    "offset_delta" / VARINT,
    "key" / SizedBytes(VARINT),
    "value" / SizedBytes(VARINT),
    "headers" / Counted(HEADER, least_bytes=2),
)

# A batch of magic 2, up to its records. The CRC-32C covers `attributes` and everything behind it.
BATCH_HEADER = Struct(
    "base_offset" / INT64,
    "length" / INT32,  # of everything behind this field
    "partition_leader_epoch" / INT32,
    "magic" / INT8,
    "crc" / UINT32,
    "attributes" / INT16,
    "last_offset_delta" / INT32,
    "base_timestamp" / INT64,
    "max_timestamp" / INT64,
    "producer_id" / INT64,
    "producer_epoch" / INT16,
    "base_sequence" / INT32,
    "count" / INT32,
)
CRC_COVERS_FROM = 21

# A message of magic 0 or 1, behind its offset and size. The CRC-32 covers `magic` and everything behind it.
MESSAGES = {
    0: Struct(
        "crc" / UINT32, "magic" / INT8, "attributes" / INT8, "key" / SizedBytes(INT32), "value" / SizedBytes(INT32)
    ),
    1: Struct(
        "crc" / UINT32,
        "magic" / INT8,
        "attributes" / INT8,
        "timestamp" / INT64,
        "key" / SizedBytes(INT32),
        "value" / SizedBytes(INT32),
    ),
}

# The key of a control record (KIP-98).
CONTROL_KEY = Struct("version" / INT16, "type" / INT16)
