from typing import final

from typing_extensions import Buffer

from kohort.fastpath._encode import Body
from kohort.fastpath.compression import Codec

def murmur2(key: Buffer) -> int: ...

@final
class BytesRows:
    count: int
    def __init__(
        self,
        offsets: Buffer,
        data: Buffer | None,
        validity: Buffer | None = None,
        *,
        wide: bool = False,
        first: int = 0,
        count: int = 0,
    ) -> None: ...
    def __len__(self) -> int: ...

def spread(keys: BytesRows, partitions: int, hashing: str, otherwise: int, start: int, stop: int) -> memoryview: ...
def grouped(partition_of: Buffer, partitions: int, first: int = 0) -> tuple[memoryview, tuple[int, ...]]: ...
def lay_out(
    keys: BytesRows | None,
    values: BytesRows | None,
    timestamps_ms: Buffer | None,
    timestamp_ms: int,
    rows: Buffer | None,
    start: int,
    stop: int,
    max_bytes: int,
    codec: str | int | Codec = "none",
    level: int | None = None,
) -> tuple[Body, int]: ...
