"""The subscription, the partitions owned because of it, and those paused: three frozen values.

`Subscription` is replaced by the user, `AssignedPartitions` by the group, `PauseMarks` by the user. At the end of a
rebalance the group replaces `PauseMarks` too. Nothing here is mutated, so a reader on any thread holds a consistent
value, and "did it change" is a comparison.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from types import MappingProxyType
from typing import Any, Generic, TypeVar

from kohort.common.frozen import Frozen
from kohort.common.named_tuple import NamedTuple
from kohort.common.topic_partition import TopicPartition
from kohort.coordinator_client.hooks import Assigned, HookCall, Start
from kohort.network.arguments import unsendable
from kohort.network.errors import IllegalState

T = TypeVar("T")


class _once(Generic[T]):
    """functools.cached_property without its lock, which until Python 3.12 all instances of a class share.

    A thousand members in one process would wait for the lock. Computing a value twice is harmless.
    """

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self._compute = compute

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: Any, owner: type | None = None) -> T:
        value: T = self._compute(instance)
        instance.__dict__[self._name] = value
        return value


class _SubscriptionFields(NamedTuple):
    topics: frozenset[str] = frozenset()
    include: str | None = None
    exclude: str | None = None
    internal: bool = False
    broker_pattern: str | None = None


class Subscription(_SubscriptionFields):
    """A subscription by names or by pattern.

    `include` and not `exclude` are matched against the whole topic name. Alternatively the coordinator matches
    `broker_pattern` (KIP-848, RE2 syntax). A pattern never matches an internal topic (`__consumer_offsets`, ...) unless
    `internal` allows it.
    """

    @classmethod
    def of(cls, topics: Iterable[str]) -> "Subscription":
        """By name. A lone string is refused: its letters are never meant."""
        if isinstance(topics, str):
            raise IllegalState("subscribe takes a list of topics, not one string", hint=f"write [{topics!r}]")
        names = frozenset(topics)
        if not all(isinstance(name, str) and name for name in names):
            raise IllegalState("a topic name is a non-empty string", topics=sorted(map(repr, names)))
        if strange := [name for name in names if unsendable(name)]:
            raise IllegalState(f"invalid topic name: {strange[0][:80]!r}")
        return cls(topics=names)

    @classmethod
    def matching(cls, include: str, exclude: str | None = None, *, internal: bool = False) -> "Subscription":
        """By pattern (Python regular expressions). Raises `IllegalState` for one that does not compile."""
        for pattern in (include, exclude):
            try:
                re.compile(pattern or "")
            except re.error as error:
                raise IllegalState(f"not a regular expression: {error}", pattern=pattern) from error
        return cls(include=include, exclude=exclude, internal=internal)

    @property
    def by_pattern(self) -> bool:
        """True if topics are chosen by a pattern of Python."""
        return self.include is not None

    @_once
    def _patterns(self) -> tuple[re.Pattern[str] | None, re.Pattern[str] | None]:
        return (
            None if self.include is None else re.compile(self.include),
            None if self.exclude is None else re.compile(self.exclude),
        )

    def matches(self, topic: str, *, internal: bool = False) -> bool:
        """True if a topic of this name is subscribed. `internal`: the broker marks the topic as internal.

        Any topic may match a pattern of the coordinator.
        """
        if self.broker_pattern is not None:
            return True
        include, exclude = self._patterns
        if include is None:
            return topic in self.topics
        if internal and not self.internal:
            return False
        return include.fullmatch(topic) is not None and (exclude is None or exclude.fullmatch(topic) is None)

    def resolved(self, known: Mapping[str, bool]) -> frozenset[str]:
        """Return the subscribed topics, given all topics of the cluster (name -> internal).

        Explicit names are returned even if unknown: a topic may be subscribed to before it exists.
        """
        if not self.by_pattern:
            return self.topics
        return frozenset(topic for topic, internal in known.items() if self.matches(topic, internal=internal))


class Owned(NamedTuple):
    """One owned partition.

    `epoch` is the number of its assignment, which grows with each new assignment. Records of another epoch must not be
    returned. `start`: the start offset from `on_assigned`; None: the committed offset, else by the reset policy.
    `Assignment.started` creates a new value for each given start, so that the object's identity distinguishes a
    repeated start.
    """

    epoch: int
    start: Start | None = None


class AssignedPartitions(Frozen, Mapping[TopicPartition, Owned]):
    """The owned partitions. `epoch`: of the newest assignment, even if it brought nothing."""

    epoch: int
    owned: Mapping[TopicPartition, Owned]

    def __init__(self, epoch: int = 0, owned: Mapping[TopicPartition, Owned] = MappingProxyType({})) -> None:
        vars(self).update(epoch=epoch, owned=owned)

    def __getitem__(self, partition: TopicPartition) -> Owned:
        return self.owned[partition]

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(self.owned)

    def __len__(self) -> int:
        return len(self.owned)

    @_once
    def partitions(self) -> frozenset[TopicPartition]:
        """All partitions of the assignment."""
        return frozenset(self.owned)

    def brought(self, partitions: Iterable[TopicPartition]) -> "AssignedPartitions":
        """The next assignment: `partitions` join what is kept, under a new epoch."""
        epoch = self.epoch + 1
        return AssignedPartitions(
            epoch, {**self.owned, **{partition: Owned(epoch) for partition in sorted(partitions)}}
        )

    def without(self, partitions: Iterable[TopicPartition]) -> "AssignedPartitions":
        """The assignment after `partitions` are gone; the rest keeps its epochs."""
        gone = frozenset(partitions)
        return AssignedPartitions(self.epoch, {tp: owned for tp, owned in self.owned.items() if tp not in gone})

    def started(self, positions: Mapping[TopicPartition, Start]) -> "AssignedPartitions":
        """The assignment with the positions that `on_assigned` returned; those of partitions not owned are ignored."""
        reported = {tp: Owned(self.owned[tp].epoch, position) for tp, position in positions.items() if tp in self.owned}
        return AssignedPartitions(self.epoch, {**self.owned, **reported})

    def moved(self, partition: TopicPartition, after: "AssignedPartitions") -> bool:
        """True if `partition` is not owned all the while from here to `after`."""
        was, now = self.get(partition), after.get(partition)
        return now is None or was is None or was.epoch != now.epoch

    def replaced(self, partitions: Iterable[TopicPartition]) -> "AssignedPartitions":
        """A manual assignment: exactly `partitions`; those owned already keep their epochs."""
        wanted = frozenset(partitions)
        return self.without(self.partitions - wanted).brought(wanted - self.partitions)


class PauseReason(Enum):
    """The reason for which a partition is paused."""

    CONSUMER = "the whole consumer is paused"
    TOPIC = "its topic is paused"
    PATTERN = "its topic matches a paused pattern"
    HELD = "it is held, assigned or not"
    PARTITION = "it is paused while it is assigned"


class PauseMarks(NamedTuple):
    """The pause marks of the user (KIP-822, extended). They belong to the caller's thread, like the hooks.

    There are five kinds, each with its own resume call. A partition is paused while any mark covers it:

    * `partitions`: while assigned. At the end of a rebalance a mark stays if the partition is owned (again), and is
      removed otherwise. This holds under EAGER and COOPERATIVE, and after a loss.
    * `topics`, `patterns`: of the subscription, for all present and later assignments, existing topics or not.
    * `held`: any partition, owned or not. Only the user removes it.
    * `whole`: everything.

    A rebalance changes marks at one moment, `settled` with the `Assigned` call. Until then they are kept for any number
    of attempts, and `on_revoked` may change them. The user's last call is valid.
    """

    partitions: frozenset[TopicPartition] = frozenset()
    topics: frozenset[str] = frozenset()
    patterns: tuple[str, ...] = ()
    held: frozenset[TopicPartition] = frozenset()
    whole: bool = False

    # -- by partition

    def pause(self, partitions: Iterable[TopicPartition], assigned: frozenset[TopicPartition]) -> "PauseMarks":
        """Pause assigned partitions; `IllegalState` if one is not assigned."""
        wanted = frozenset(partitions)
        if strange := wanted - assigned:
            raise IllegalState(
                "only an assigned partition can be paused",
                hint="use hold() for partitions that are not assigned",
                partitions=", ".join(map(str, sorted(strange))),
            )
        return self._replace(partitions=self.partitions | wanted)

    def resume(self, partitions: Iterable[TopicPartition]) -> "PauseMarks":
        """Lift the partition marks; a partition that a wider mark covers stays paused by that one."""
        return self._replace(partitions=self.partitions - frozenset(partitions))

    # -- by topic and pattern

    def pause_topics(self, topics: Iterable[str], subscription: Subscription | None) -> "PauseMarks":
        """Pause topics of the subscription; `IllegalState` if one is not subscribed to."""
        wanted = frozenset([topics] if isinstance(topics, str) else topics)
        strange = {topic for topic in wanted if subscription is None or not subscription.matches(topic)}
        if strange:
            raise IllegalState("only a subscribed topic can be paused", topics=", ".join(sorted(strange)))
        return self._replace(topics=self.topics | wanted)

    def resume_topics(self, topics: Iterable[str]) -> "PauseMarks":
        """Remove the marks of these topics. Raises no error."""
        return self._replace(topics=self.topics - frozenset([topics] if isinstance(topics, str) else topics))

    def pause_pattern(self, pattern: str, subscription: Subscription | None) -> "PauseMarks":
        """Pause all matching topics of the subscription, now and later; `IllegalState` without a subscription."""
        if subscription is None:
            raise IllegalState("a pattern can be paused only while subscribed", pattern=pattern)
        try:
            re.compile(pattern)
        except re.error as error:
            raise IllegalState(f"not a regular expression: {error}", pattern=pattern) from error
        return self if pattern in self.patterns else self._replace(patterns=(*self.patterns, pattern))

    def resume_pattern(self, pattern: str) -> "PauseMarks":
        """Remove the mark of exactly this pattern."""
        return self._replace(patterns=tuple(each for each in self.patterns if each != pattern))

    # -- outside the assignment, and everything

    def hold(self, partitions: Iterable[TopicPartition]) -> "PauseMarks":
        """Pause partitions outside the assignment. Raises no error."""
        return self._replace(held=self.held | frozenset(partitions))

    def release(self, partitions: Iterable[TopicPartition]) -> "PauseMarks":
        """Remove the marks of `hold`. Raises no error."""
        return self._replace(held=self.held - frozenset(partitions))

    def pause_all(self) -> "PauseMarks":
        """Pause the whole consumer."""
        return self._replace(whole=True)

    def resume_all(self) -> "PauseMarks":
        """Remove the whole-consumer mark only. Narrower marks remain."""
        return self._replace(whole=False)

    # -- changes by the group

    def settled(self, hook: HookCall) -> "PauseMarks":
        """Return the marks before `hook` is run: at `Assigned` a partition mark stays only on owned partitions."""
        return self.kept_on(hook.after) if isinstance(hook.event, Assigned) else self

    def kept_on(self, assigned: frozenset[TopicPartition]) -> "PauseMarks":
        """Partition marks outside `assigned` are forgotten."""
        return self if self.partitions <= assigned else self._replace(partitions=self.partitions & assigned)

    def resubscribed(self, subscription: Subscription | None) -> "PauseMarks":
        """The subscription was replaced, or given up (None): marks that hang on what it no longer has are gone."""
        if subscription is None:
            return self._replace(partitions=frozenset(), topics=frozenset(), patterns=())
        return self._replace(
            partitions=frozenset(tp for tp in self.partitions if subscription.matches(tp.topic)),
            topics=frozenset(topic for topic in self.topics if subscription.matches(topic)),
        )

    # -- queries

    def reason(self, partition: TopicPartition) -> PauseReason | None:
        """The widest reason for which `partition` is paused; None if it is not."""
        if self.whole:
            return PauseReason.CONSUMER
        if partition.topic in self.topics:
            return PauseReason.TOPIC
        if any(re.fullmatch(pattern, partition.topic) for pattern in self.patterns):
            return PauseReason.PATTERN
        if partition in self.held:
            return PauseReason.HELD
        return PauseReason.PARTITION if partition in self.partitions else None

    def covered(self, assigned: Iterable[TopicPartition]) -> Iterable[TopicPartition]:
        """The partitions of `assigned` that are paused, and maybe others."""
        if self.whole:
            return assigned
        if self.topics or self.patterns:
            return self.paused(assigned)
        return self.partitions | self.held

    def paused(self, assigned: Iterable[TopicPartition]) -> dict[TopicPartition, PauseReason]:
        """The partitions of `assigned` that are paused, and why."""
        if self == _NOTHING:
            return {}
        return {tp: reason for tp in assigned if (reason := self.reason(tp)) is not None}


_NOTHING = PauseMarks()
