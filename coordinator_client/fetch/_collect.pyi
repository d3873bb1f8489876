from collections.abc import Callable, Container
from typing import Any

from kohort.common import TopicPartition
from kohort.coordinator_client.consumer_config import ConsumerConfig
from kohort.coordinator_client.consumer_context import ConsumerContext
from kohort.coordinator_client.consumer_core import ConsumerCore
from kohort.coordinator_client.fetch.completed_fetch import CollectedFetch, DecodedFetch
from kohort.coordinator_client.fetch.fetcher import Fetcher
from kohort.coordinator_client.offsets._partition_states import PartitionStates
from kohort.coordinator_client.offsets.positions import Positions
from kohort.coordinator_client.poll_loop import HookOutcome, Observer
from kohort.fastpath import RecordColumns
from kohort.network._guard import Door, Guard, Visit
from kohort.network._poller import DriverFields
from kohort.network._samples import Counters, PollTimes
from kohort.network.metadata_refresh import MetadataRefresher
from kohort.network.network_client import Driver

class CoreFields:
    """Of a `ConsumerCore`; see `network/_follow_up.pyx`.

    `has_updates`: a waiting poll should look again. `owes_loss`: the hook `on_lost` will follow, but is not due yet.
    """

    polls: PollTimes
    commits_by_poll: bool
    has_updates: bool
    owes_loss: bool
    def notify(self) -> None: ...

class CollectorFields:
    """Of a `FetchCollector`. `most_at_once`: the slices that were looked at under one hold of the lock."""

    lock: Guard
    door: Door
    driver: Driver[Any]
    fetcher: Fetcher
    states: PartitionStates
    counters: Counters
    most_at_once: int
    config: ConsumerConfig
    context: ConsumerContext
    metadata: MetadataRefresher
    positions: Positions
    readable: Callable[[float], Container[TopicPartition] | None]
    decoded: dict[TopicPartition, DecodedFetch]
    last_timestamps: dict[TopicPartition, int]
    def settle(self) -> None: ...
    def settle_step(self) -> bool: ...

class PollFields:
    """Of a `PollLoop`. The visiting thread uses them. Others read `closed`, and set `has_wakeup`."""

    door: Door
    in_hook: bool
    in_callback: bool
    outcome: HookOutcome | None
    error: BaseException | None
    _callback: Callable[[], object] | None
    _observer: Observer | None
    has_wakeup: bool
    closed: bool
    def acquire(
        self, *, in_hooks: bool = True, when_crashed: bool = False, when_closed: bool = False, catch_up: bool = True
    ) -> Visit: ...
    def poll_begins(self, *, handled: bool = True, alone: bool = True) -> None: ...
    def poll_ends(self) -> None: ...
    def use(self, driver: DriverFields, core: CoreFields, collector: CollectorFields) -> None: ...

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
    guard: Guard, collector: CollectorFields, decode: Callable[..., RecordColumns], most: int, most_bytes: int
) -> CollectedFetches | None: ...
def action_is_due(core: ConsumerCore) -> bool: ...
def readable(core: ConsumerCore, now: float) -> frozenset[TopicPartition] | None: ...
def usual_look(session: PollFields, most: int) -> CollectedFetches | None: ...
def usual_poll(session: PollFields, until: float, most: int) -> CollectedFetches | None: ...
