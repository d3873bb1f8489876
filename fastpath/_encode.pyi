from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from kohort.fastpath.compression import Codec

class RecordLike(Protocol):
    """What `encode` reads of a record that is not a tuple."""

    @property
    def offset(self) -> int: ...
    @property
    def timestamp_ms(self) -> int: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> Sequence[tuple[str, bytes | None]]: ...

def encode(
    records: Iterable[RecordLike | tuple[Any, ...]],
    *,
    codec: str | int | Codec = "none",
    level: int | None = None,
    base_offset: int | None = None,
    timestamp_ms: int = -1,
    log_append_time_ms: int | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    partition_leader_epoch: int = -1,
    transactional: bool = False,
    control: bool = False,
) -> bytes: ...
