"""Writes messages of magic 0 and 1, as brokers before 0.11 stored them. kohort only reads them."""

import zlib
from collections.abc import Iterable
from typing import Any

from kohort.fastpath.compression import CODECS, Codec, codec_of
from kohort.protocol.construct_types import INT32
from kohort.protocol.record_batch import NewRecord
from kohort.protocol.record_format import APPEND_TIME_BIT, INT64, MESSAGES, UINT32


def encode_messages(
    records: Iterable[tuple[Any, ...]],
    *,
    magic: int,
    codec: str | int = "none",
    base_offset: int = 0,
    log_append_time_ms: int | None = None,
) -> bytes:
    """Return messages of magic 0 or 1, as brokers before 0.11 stored them. Compressed messages have one wrapper."""
    new = [NewRecord(*record) for record in records]
    number = codec_of(codec)
    relative = magic == 1 and number != Codec.NONE
    append_bit = APPEND_TIME_BIT if log_append_time_ms is not None and magic == 1 else 0
    plain = b"".join(
        build_message(
            magic,
            delta if relative else base_offset + delta,
            record.key,
            record.value,
            timestamp=log_append_time_ms if append_bit and not relative else record.timestamp_ms,
            attributes=0 if relative else append_bit,
        )
        for delta, record in enumerate(new)
    )
    if number == Codec.NONE:
        return plain
    return build_message(
        magic,
        base_offset + len(new) - 1,
        None,
        CODECS[number].compress(plain, None),
        timestamp=log_append_time_ms if append_bit else max(record.timestamp_ms for record in new),
        attributes=number | append_bit,
    )


def build_message(
    magic: int,
    offset: int,
    key: bytes | None,
    value: bytes | None,
    *,
    timestamp: int | None = None,
    attributes: int = 0,
) -> bytes:
    """Return one message of magic 0 or 1 with its offset, size and CRC-32."""
    fields = {"crc": 0, "magic": magic, "attributes": attributes, "timestamp": timestamp, "key": key, "value": value}
    covered = MESSAGES[magic].build(fields)[UINT32.size :]
    body = UINT32.build(zlib.crc32(covered)) + covered
    return bytes(INT64.build(offset) + INT32.build(len(body)) + body)
