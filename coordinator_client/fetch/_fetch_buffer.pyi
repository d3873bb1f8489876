from collections.abc import Iterator, Set

from kohort.common import TopicPartition
from kohort.coordinator_client.fetch.completed_fetch import CompletedFetch
from kohort.coordinator_client.fetch.fetch_session import LogOffsets, RequestedFetch, RequestTemplate, Wanted
from kohort.network.metadata import ClusterView

class FetchBuffer:
    """`CompletedFetch` slices in order, by partition; partitions are polled in turn.

    All slices of a partition have the same serial. The driver's thread adds slices. The caller's thread reads and
    removes them. Removing a slice twice is safe.

    A partition whose records may not be returned now is set aside, and polls skip it. A slice in hand is being decoded
    or was returned to the caller. It stays in the buffer until that is settled, and does not count as waiting.
    `total_bytes` is the size of all slices.
    """

    @property
    def total_bytes(self) -> int: ...
    def put(self, slice_: CompletedFetch) -> None: ...
    def line(self, most: int | None = None) -> list[TopicPartition]: ...
    def set_aside(self, partition: TopicPartition) -> None: ...
    def readmitted(self, partitions: Set[TopicPartition]) -> None: ...
    def take_in_hand(self, slice_: CompletedFetch) -> None: ...
    def remove(self, slice_: CompletedFetch, rest: CompletedFetch | None) -> None: ...
    def drop(self, partition: TopicPartition) -> None: ...
    def drop_newest(self, partition: TopicPartition) -> CompletedFetch | None: ...
    def last(self, partition: TopicPartition) -> CompletedFetch | None: ...
    def first(self, partition: TopicPartition) -> CompletedFetch | None: ...
    def bytes_of(self, partition: TopicPartition) -> int: ...
    def __iter__(self) -> Iterator[TopicPartition]: ...
    def __bool__(self) -> bool: ...

class FetcherFields:
    """Of a `Fetcher`; see `network/_follow_up.pyx`. `held_back` is also read without the lock."""

    parked: FetchBuffer
    ends: dict[TopicPartition, LogOffsets]
    in_flight: dict[int, dict[TopicPartition, RequestedFetch]]
    ahead: dict[TopicPartition, RequestedFetch]
    last_requested: dict[int, int]
    until: dict[TopicPartition, int]
    stale_log_offsets: set[TopicPartition]
    orders: Iterator[int]
    revision: int
    held_back: bool

class SessionFields:
    """Of a `FetchSession`."""

    steady_under: tuple[int, int, ClusterView] | None
    template: RequestTemplate | None
    session_partitions: dict[TopicPartition, Wanted]
    names: dict[bytes, str]
    session_id: int
    epoch: int
