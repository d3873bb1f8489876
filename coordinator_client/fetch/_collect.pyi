from collections.abc import Callable

from kohort.common import TopicPartition
from kohort.coordinator_client.consumer_core import ConsumerCore
from kohort.coordinator_client.fetch.completed_fetch import CollectedFetch, DecodedFetch
from kohort.coordinator_client.fetch.fetch_collector import FetchCollector
from kohort.coordinator_client.poll_loop import PollLoop
from kohort.fastpath import RecordColumns
from kohort.network._guard import Door, Guard

class CollectedFetches:
    """The slices that a poll gathers.

    `columns`: for the user. `items`: the sources of `columns`. `kept`: slices that were decoded and kept.
    """

    corrupt: int
    @property
    def columns(self) -> list[RecordColumns]: ...
    @property
    def items(self) -> list[CollectedFetch]: ...
    @property
    def kept(self) -> list[DecodedFetch]: ...
    @property
    def errors(self) -> list[DecodedFetch]: ...

class ReturnedFetches:
    """The slices that a poll has returned and that are not settled yet. `settled` items of it are done.

    `outlived`: a settled slice's partition has a new leader. Its end offset is requested before later slices are used.
    """

    outlived: bool
    settled: int
    def __init__(self, collected: CollectedFetches) -> None: ...
    @property
    def items(self) -> tuple[CollectedFetch, ...]: ...
    @property
    def records(self) -> int: ...
    @property
    def corrupt(self) -> int: ...

def collect_usual(
    guard: Guard, collector: FetchCollector, decode: Callable[..., RecordColumns], most: int, most_bytes: int
) -> CollectedFetches | None: ...
def settle(guard: Guard, collector: FetchCollector, door: Door, handed: ReturnedFetches, most: int) -> bool: ...
def settle_step(collector: FetchCollector, door: Door, most: int) -> bool: ...
def action_is_due(core: ConsumerCore) -> bool: ...
def readable(core: ConsumerCore, now: float) -> frozenset[TopicPartition] | None: ...
def usual_look(session: PollLoop, most: int) -> CollectedFetches | None: ...
def usual_poll(session: PollLoop, until: float, most: int) -> CollectedFetches | None: ...
