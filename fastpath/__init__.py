"""The data plane: bytes to columns, and errors of record batches."""

from typing import TYPE_CHECKING

from kohort.common.errors import KohortError, WireError
from kohort.common.topic_partition import TopicPartition
from kohort.fastpath._bytes_column import BytesColumn
from kohort.fastpath._columns import Record, RecordColumns
from kohort.fastpath._records import decode
from kohort.fastpath.compression import Codec
from kohort.fastpath.errors import CorruptRecord, DecompressionLimit, UnsupportedCodec, UnsupportedMagic

if TYPE_CHECKING:
    from kohort.fastpath._encode import encode as encode
    from kohort.fastpath.segment import open_segment as open_segment

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
    "open_segment",
]


if not TYPE_CHECKING:  # a name that is missing is an error of a type checker

    def __getattr__(name: str) -> object:
        # A consumer neither encodes nor opens a segment, and the imports of mmap and pathlib take time.
        if name == "open_segment":
            from kohort.fastpath.segment import open_segment

            return open_segment
        if name == "encode":
            from kohort.fastpath._encode import encode

            return encode
        raise AttributeError(f"module 'kohort.fastpath' has no attribute {name!r}")
