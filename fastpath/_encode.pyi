from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, final

from typing_extensions import Buffer

from kohort.fastpath._memory import Pieces
from kohort.fastpath.compression import Codec

class RecordLike(Protocol):
    """The attributes of a record that `encode` reads."""

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

@final
class Body:
    payload: Buffer
    codec: int
    count: int
    first_offset: int
    last_offset: int
    first_timestamp_ms: int
    max_timestamp_ms: int
    def __len__(self) -> int: ...

@final
class BatchBuilder:
    count: int
    first_offset: int
    last_offset: int
    first_timestamp_ms: int
    max_timestamp_ms: int
    def __init__(self, first_offset: int = 0) -> None: ...
    @property
    def size(self) -> int: ...
    def append(
        self,
        key: Buffer | None,
        value: Buffer | None,
        timestamp_ms: int,
        headers: Mapping[str, bytes | None] | Iterable[tuple[str | bytes, bytes | None]] | None = None,
    ) -> int: ...
    def finish(self, codec: str | int | Codec = "none", level: int | None = None) -> Body: ...

def compressed(body: Body, codec: str | int | Codec, level: int | None = None) -> Body: ...
def seal(
    body: Body,
    *,
    base_offset: int | None = None,
    log_append_time_ms: int | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    partition_leader_epoch: int = -1,
    transactional: bool = False,
    control: bool = False,
) -> bytes: ...
def sealed(
    body: Body,
    *,
    base_offset: int | None = None,
    log_append_time_ms: int | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    partition_leader_epoch: int = -1,
    transactional: bool = False,
    control: bool = False,
) -> Pieces: ...
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
