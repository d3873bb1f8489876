"""The common part of Consumer and AsyncConsumer."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self
from uuid import UUID

from kohort.assignors import Assignor
from kohort.common import TopicPartition
from kohort.coordinator_client.consumer_config import ConsumerConfig
from kohort.coordinator_client.consumer_core import ConsumerCore
from kohort.coordinator_client.group.states import RebalanceRecord
from kohort.coordinator_client.hooks import RebalanceHooks
from kohort.coordinator_client.offset_reset import OffsetReset
from kohort.coordinator_client.offsets.describe_group import GroupMemberDescription
from kohort.coordinator_client.offsets.fenced_commit_queue import LedgerEntry
from kohort.coordinator_client.poll_loop import PollLoop
from kohort.coordinator_client.subscription_state import PauseReason, Subscription
from kohort.network._guard import Visit
from kohort.network.arguments import (
    callback_given,
    each_partition,
    ends_given,
    epoch_given,
    hooks_given,
    offset_given,
    partition_given,
    partitions_given,
    pattern_given,
    seconds_given,
    topic_given,
)
from kohort.network.errors import IllegalState
from kohort.network.group_types import ConsumerGroupMetadata, OffsetAndMetadata
from kohort.network.notices import Notice
from kohort.network.offset_requests import EARLIEST, LATEST, ListedOffset
from kohort.network.promise import Promise

if TYPE_CHECKING:
    from typing import Unpack

    from kohort.coordinator_client.consumer_settings import ConsumerSettings
    from kohort.coordinator_client.health import Health
    from kohort.coordinator_client.metrics.metrics_table import ConsumerMetrics

ALL = 1 << 30
Offsets = Mapping[TopicPartition, int | OffsetAndMetadata]


class ConsumerBase:
    """State, arguments and checks of Consumer and AsyncConsumer: everything that does not wait."""

    _config: ConsumerConfig
    _session: PollLoop
    _awaits = False  # whether hooks may be coroutine functions

    def __init__(
        self,
        bootstrap: str | Sequence[str] = (),
        *,
        group: str | None = None,
        assignors: Sequence[str | Assignor] | None = None,
        on_reset: Callable[[OffsetReset], None] | None = None,
        **settings: "Unpack[ConsumerSettings]",
    ) -> None:
        named = {} if assignors is None else {"assignors": assignors}
        self._begin(ConsumerConfig.of(bootstrap=bootstrap, group=group, **named, **settings), on_reset)

    @classmethod
    def from_config(
        cls, properties: Mapping[str, Any], *, on_reset: Callable[[OffsetReset], None] | None = None
    ) -> Self:
        """Create from Kafka's dotted names; values may be strings. Unknown names raise ConfigError with the nearest
        name."""
        consumer = cls.__new__(cls)
        consumer._begin(ConsumerConfig.from_kafka(properties), on_reset)
        return consumer

    def _begin(self, config: ConsumerConfig, on_reset: Callable[[OffsetReset], None] | None) -> None:
        callback_given(on_reset, "on_reset")
        self._config = config
        self._session = PollLoop(config, on_reset)

    @property
    def config(self) -> ConsumerConfig:
        """The checked settings."""
        return self._config

    # --- what to read

    def subscribe(
        self,
        topics: Iterable[str] | None = None,
        *,
        pattern: str | re.Pattern[str] | None = None,
        exclude: str | None = None,
        broker_pattern: str | None = None,
        hooks: RebalanceHooks | None = None,
    ) -> None:
        """Join the group for `topics`, or for all topics that match `pattern` (whole name) and not `exclude`.

        `broker_pattern` is matched by the coordinator instead (RE2, whole name; needs `protocol="consumer"`). It
        replaces an earlier subscription. `hooks` are called inside poll. Raises IllegalState for invalid combinations
        of topics and patterns, TypeError for hooks that cannot be called.
        """
        given = sum(one is not None for one in (topics, pattern, broker_pattern))
        if given != 1:
            raise IllegalState(
                "subscribe to topics or to a pattern, and not to both"
                if given
                else "subscribe needs topics or a pattern, and neither was given",
                hint="call subscribe([...]), subscribe(pattern=...) or subscribe(broker_pattern=...)",
            )
        if hooks is not None:
            hooks_given(hooks, awaits=self._awaits)
        if topics is not None:
            subscription = Subscription.of(topics)
        elif broker_pattern is not None:
            subscription = Subscription(broker_pattern=broker_pattern)
        else:
            assert pattern is not None
            text = pattern_given(pattern)
            subscription = Subscription.matching(text, exclude, internal=not self._config.exclude_internal_topics)
        with self._enter():
            self._session.call(lambda core: core.subscribe(subscription))
            self._session.hooks = hooks or RebalanceHooks()  # now: what is refused leaves the earlier ones in place

    def replace_hooks(self, hooks: RebalanceHooks) -> RebalanceHooks:
        """Replace the hooks of the subscription, and return the former ones. Raises TypeError for hooks that cannot be
        called."""
        hooks_given(hooks, awaits=self._awaits)
        with self._enter():
            former, self._session.hooks = self._session.hooks, hooks
        return former

    def assign(
        self,
        partitions: Iterable[TopicPartition] | Mapping[TopicPartition, int],
        *,
        until: Mapping[TopicPartition, int] = MappingProxyType({}),
    ) -> None:
        """Read exactly these partitions, without membership. Partitions that stay keep their positions.

        A mapping also gives the start offsets, before any lookup. Each call seeks to them, as `seek` does, also for
        partitions that stay. `until`: the end offset of some partitions, which is the first offset that is not read.
        Nothing behind it is fetched or returned. A position equal to it means that all records are read. Raises
        TypeError for an invalid list of partitions. Raises ValueError if `until` has a partition that is not among
        `partitions`, and for an invalid offset.
        """
        wanted = frozenset(each_partition(partitions))
        given = partitions if isinstance(partitions, Mapping) else {}
        starts = {partition_given(one): offset_given(offset) for one, offset in given.items()}
        ends = ends_given(until, wanted)
        with self._enter():
            self._save_by_hand()
            self._session.call(lambda core: core.assign(wanted, starts, ends))

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that this consumer reads. It changes only at hook calls (inside poll) and in assign."""
        with self._session.acquire():
            return self._session.read(lambda core: core.visible)

    @property
    def subscription(self) -> Subscription | None:
        """The topics or the pattern of `subscribe`; None without a subscription."""
        with self._session.acquire():
            return self._session.read(lambda core: core.subscription)

    def topic_id(self, topic: str) -> UUID:
        """The current topic id in the metadata (KIP-516). A topic that was deleted and created again has another id.

        Zero before the first metadata of the topic, and from brokers before 2.8.
        """
        with self._session.acquire():
            return self._session.read(lambda core: core.metadata.view.topic_id(topic))

    # --- positions

    def seek(self, partition: TopicPartition, offset: int, *, leader_epoch: int = -1) -> None:
        """Read on at `offset`. Raises IllegalState for an unassigned partition, ValueError for an invalid offset."""
        offset, epoch = offset_given(offset), epoch_given(leader_epoch)
        with self._session.acquire():
            self._session.call(lambda core: core.seek(partition_given(partition), offset, epoch))

    def seek_to_beginning(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Read on at the start of the log (of all assigned partitions by default)."""
        self._seek_by_time(partitions, EARLIEST)

    def seek_to_end(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Read on at the end of the log, as it is when the broker responds."""
        self._seek_by_time(partitions, LATEST)

    def _seek_by_time(self, partitions: Iterable[TopicPartition] | None, timestamp: int) -> None:
        with self._session.acquire():
            chosen = self.assignment if partitions is None else frozenset(each_partition(partitions))

            def seek(core: ConsumerCore) -> None:
                for partition in chosen:
                    core.seek_by_time(partition, timestamp)

            self._session.call(seek)

    def commit_async(
        self,
        offsets: Offsets | None = None,
        on_done: Callable[[Mapping[TopicPartition, OffsetAndMetadata], Exception | None], None] | None = None,
        *,
        allow_rewind: bool = False,
    ) -> None:
        """As `commit`, without waiting. `on_done(offsets, error or None)` is called inside poll.

        Callbacks of commits that share a partition are called in the order of the calls. Commits that wait for an
        earlier one of the same partition are sent as one: the last offset is stored, and each callback is called.
        """
        callback_given(on_done, "on_done")
        with self._session.acquire(catch_up=False):
            deadline = self._deadline(None)
            planned = self._session.read(lambda core: core.commits.planned(offsets, allow_rewind=allow_rewind))
            self._session.driver.enqueue(
                lambda core: core.commits.put_planned(planned, deadline=deadline, on_done=on_done), adds=True
            )

    def group_metadata(self) -> ConsumerGroupMetadata:
        """The group identity of this member, present or last. Offsets of records it read are fenced by it (KIP-447)."""
        with self._session.acquire():
            return self._session.read(lambda core: core.identity)

    def enforce_rebalance(self, reason: str = "requested by the user") -> None:
        """Request a rebalance of the group (KIP-568). It happens in later polls."""
        with self._session.acquire():
            self._session.call(lambda core: core.enforce_rebalance(reason))

    # --- pausing

    def pause(
        self,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        topics: Iterable[str] = (),
        pattern: str | None = None,
    ) -> None:
        """Stop returning records of assigned partitions, of topics, or of a pattern of topics; without arguments, of
        all.

        The member stays in the group and must continue to poll. Fetched records are kept, and returned after resume.
        """
        with self._session.acquire():
            self._session.call(lambda core: core.pause(partitions_given(partitions), _several(topics), pattern))

    def resume(
        self,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        topics: Iterable[str] = (),
        pattern: str | None = None,
    ) -> None:
        """Remove the marks of `pause` with the same arguments."""
        with self._session.acquire():
            self._session.call(lambda core: core.resume(partitions_given(partitions), _several(topics), pattern))

    def hold(self, partitions: Iterable[TopicPartition]) -> None:
        """Pause partitions even if they are not assigned or do not exist. Only `release` resumes them."""
        chosen = partitions_given(partitions) or frozenset()
        with self._session.acquire():
            self._session.call(lambda core: core.mark(core.marks.hold(chosen)))

    def release(self, partitions: Iterable[TopicPartition]) -> None:
        """Lift `hold`."""
        chosen = partitions_given(partitions) or frozenset()
        with self._session.acquire():
            self._session.call(lambda core: core.mark(core.marks.release(chosen)))

    def paused(self) -> dict[TopicPartition, PauseReason]:
        """The assigned partitions that are paused, and why."""
        with self._session.acquire():
            return self._session.read(lambda core: core.marks.paused(core.visible))

    def wakeup(self) -> None:
        """The running poll, or else the next one, raises WakeupError. Any thread and any signal handler may call it."""
        self._session.wakeup()

    # --- seeing

    def health(self) -> "Health":
        """Return the health of this consumer, for probes.

        Any thread may call it. In a signal handler it may raise ConcurrentUseError.
        """
        return self._session.health()

    def metrics(self) -> "ConsumerMetrics":
        """Return all metrics at this time (docs/metrics.md).

        Any thread may call it. In a signal handler it may raise ConcurrentUseError.
        """
        return self._session.metrics()

    def timeline(self) -> tuple[RebalanceRecord, ...]:
        """The rebalances of this member, newest last: cause, members, duration of each phase, moved partitions."""
        return self._session.read(lambda core: core.member.timeline.rebalances if core.member else ())

    def notices(self) -> tuple[Notice, ...]:
        """Return the latest events that raised no error, newest last, such as a dropped commit ("commit_dropped").

        Any thread may call it. The logger "kohort.consumer" has a line for each at the moment it happens.
        """
        return self._session.read(lambda core: tuple(core.notices))

    def commit_log(self) -> tuple[LedgerEntry, ...]:
        """The last commits: when (s, monotonic), under which generation, what, and how each ended."""
        return self._session.read(lambda core: tuple(core.commits.queue.ledger))

    # --- inner

    def _enter(self) -> Visit:
        """Enter a call. Raises CallbackError in a hook."""
        return self._session.acquire(in_hooks=False)

    def _save_by_hand(self) -> None:
        self._session.call(lambda core: core.before_leave(self._deadline(None)))

    def _seconds(self, timeout_s: float | None) -> float:
        return self._config.default_api_timeout_ms / 1000 if timeout_s is None else seconds_given(timeout_s)

    def _deadline(self, timeout_s: float | None) -> float:
        return self._session.driver.now() + self._seconds(timeout_s)

    def _seconds_behind(self, lag: Mapping[TopicPartition, int]) -> dict[TopicPartition, float | None]:
        now_ms = self._session.driver.wall_ms()
        since = self._session.read(
            lambda core: {one: core.waiting_since_ms(one) for one, records in lag.items() if records}
        )
        return {
            one: 0.0 if one not in since else None if (at := since[one]) is None else max(now_ms - at, 0) / 1000
            for one in lag
        }

    def _put_commit(self, offsets: Offsets | None, timeout_s: float | None, allow_rewind: bool) -> "Promise[None]":
        deadline = self._deadline(timeout_s)
        return self._session.handle.add(
            lambda core: core.commits.put(offsets, deadline=deadline, allow_rewind=allow_rewind, blocking=True)
        )

    def _request_committed(
        self, partitions: Iterable[TopicPartition], timeout_s: float | None, *, stable: bool = True
    ) -> "Promise[dict[TopicPartition, OffsetAndMetadata | None]]":
        wanted = tuple(each_partition(partitions))
        deadline = self._deadline(timeout_s)
        return self._session.call(lambda core: core.lookups.look_up_committed(wanted, deadline, stable=stable))

    def _request_offsets(
        self, wanted: dict[TopicPartition, int], timeout_s: float | None, *, stable: bool = True
    ) -> "Promise[Mapping[TopicPartition, ListedOffset]]":
        deadline = self._deadline(timeout_s)
        return self._session.call(lambda core: core.lookups.look_up(wanted, deadline, stable=stable))

    def _request_topic(self, topic: str, timeout_s: float | None, fresh: bool) -> "Promise[tuple[TopicPartition, ...]]":
        wanted, deadline = topic_given(topic), self._deadline(timeout_s)
        return self._session.call(lambda core: core.lookups.look_up_topic(wanted, deadline, fresh=fresh))

    def _request_members(self, timeout_s: float | None) -> "Promise[tuple[GroupMemberDescription, ...]]":
        deadline = self._deadline(timeout_s)
        return self._session.call(lambda core: core.lookups.describe_group(deadline))

    def _request_topics(self, timeout_s: float | None) -> "Promise[dict[str, tuple[TopicPartition, ...]]]":
        deadline = self._deadline(timeout_s)
        return self._session.call(lambda core: core.lookups.look_up_topics(deadline))


def _several(topics: Iterable[str]) -> tuple[str, ...]:
    return (topics,) if isinstance(topics, str) else tuple(topics)
