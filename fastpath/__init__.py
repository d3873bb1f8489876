"""The data plane: bytes to columns, and the error house's ground floor."""

from kohort.fastpath._records import BytesColumn, Record, RecordColumns, decode, encode
from kohort.fastpath.compression import Codec
from kohort.fastpath.errors import (
    CorruptRecord,
    DecompressionLimit,
    KohortError,
    UnsupportedCodec,
    UnsupportedMagic,
    WireError,
)
from kohort.fastpath.topic_partition import TopicPartition

__all__ = [
    "BytesColumn",
    "Codec",
    "CorruptRecord",
    "DecompressionLimit",
    "KohortError",
    "Record",
    "RecordColumns",
    "TopicPartition",
    "UnsupportedCodec",
    "UnsupportedMagic",
    "WireError",
    "decode",
    "encode",
]
