"""The data plane: bytes to columns, and the error house's ground floor."""

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
    "CorruptRecord",
    "DecompressionLimit",
    "KohortError",
    "TopicPartition",
    "UnsupportedCodec",
    "UnsupportedMagic",
    "WireError",
]
