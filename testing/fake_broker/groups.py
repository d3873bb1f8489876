"""All groups of a cluster, of all kinds. Names are unique, and only an empty group changes its kind."""

from __future__ import annotations

from itertools import count
from typing import Any

from kohort.common.topic_partition import TopicPartition
from kohort.protocol.errors import ErrorCode
from kohort.testing.fake_broker.classic_coordinator import GroupCoordinator
from kohort.testing.fake_broker.classic_group import Committed, FakeGroup, GroupState
from kohort.testing.fake_broker.consumer_coordinator import ConsumerCoordinator
from kohort.testing.fake_broker.consumer_group import ConsumerGroup, ConsumerGroupState
from kohort.testing.fake_broker.settings import CoordinatorSettings
from kohort.testing.fake_broker.share_coordinator import ShareCoordinator
from kohort.testing.fake_broker.share_group import ShareGroup, ShareGroupState
from kohort.testing.fake_broker.streams_coordinator import StreamsCoordinator
from kohort.testing.fake_broker.streams_group import StreamsGroup, StreamsGroupState

NEWEST_COMMIT = 9
"""A transaction's offsets are fenced as those that OffsetCommit brings from this version on."""
EMPTY = (GroupState.EMPTY, ConsumerGroupState.EMPTY, ShareGroupState.EMPTY, StreamsGroupState.EMPTY)
AnyGroup = FakeGroup | ConsumerGroup | ShareGroup | StreamsGroup


class Groups:
    """Dispatches to `classic`, `consumer`, `share` and `streams`, which keep the groups of their kind."""

    def __init__(self, settings: CoordinatorSettings | None = None) -> None:
        self.settings = settings or CoordinatorSettings()
        self.classic = GroupCoordinator(self.settings)
        self.consumer = ConsumerCoordinator(self.settings)
        self.share = ShareCoordinator(self.settings)
        self.streams = StreamsCoordinator(self.settings)
        self._undecided: dict[tuple[str, int], dict[TopicPartition, Committed]] = {}
        self._orders = count(1)

    @property
    def _kinds(self) -> tuple[dict[str, Any], ...]:
        return (self.consumer.groups, self.classic.groups, self.share.groups, self.streams.groups)

    def of(self, group_id: str) -> AnyGroup | None:
        """The group of this name, of any type."""
        return next((groups[group_id] for groups in self._kinds if group_id in groups), None)

    def all(self) -> list[AnyGroup]:
        """Every group there is."""
        return [group for groups in self._kinds for group in groups.values()]

    def become_classic(self, group_id: str) -> bool:
        """True if a classic member may join. An empty group of the other kind is replaced; its offsets stay."""
        other = self.consumer.groups.get(group_id)
        if other is not None and other.state is ConsumerGroupState.EMPTY:
            self.classic.groups[group_id] = FakeGroup(group_id, offsets=self.consumer.groups.pop(group_id).offsets)
        return self.of(group_id) is None or group_id in self.classic.groups

    def become_consumer(self, group_id: str) -> bool:
        """True if a KIP-848 member may join. An empty group of the other kind is replaced; its offsets stay."""
        other = self.classic.groups.get(group_id)
        if other is not None and other.state is GroupState.EMPTY and not other.pending:
            self.consumer.groups[group_id] = ConsumerGroup(group_id, self.classic.groups.pop(group_id).offsets)
        return self.of(group_id) is None or group_id in self.consumer.groups

    def commit_error(
        self, group_id: str, epoch: int, member_id: str, instance_id: str | None, *, version: int, now: float
    ) -> int:
        """The error code with which an OffsetCommit as a whole is refused, or 0; the group exists afterwards."""
        if group_id in self.consumer.groups:
            return self.consumer.commit_error(group_id, epoch, member_id, version=version)
        if group_id in self.streams.groups:
            return self.streams.commit_error(group_id, epoch, member_id, version=version)
        if group_id in self.share.groups:
            return ErrorCode.GROUP_ID_NOT_FOUND
        return self.classic.commit_error(group_id, epoch, member_id, instance_id, now=now)

    def transaction_error(
        self, group_id: str, epoch: int, member_id: str, instance_id: str | None, *, now: float
    ) -> int:
        """The error code with which a TxnOffsetCommit as a whole is refused, or 0. Producers from before KIP-447
        name no member."""
        group = self.of(group_id)
        if epoch < 0 and not member_id and instance_id is None and not isinstance(group, ShareGroup | None):
            return ErrorCode.NONE
        error = self.commit_error(group_id, epoch, member_id, instance_id, version=NEWEST_COMMIT, now=now)
        return ErrorCode.NONE if error == ErrorCode.REBALANCE_IN_PROGRESS else error

    def commit(
        self, group_id: str, partition: TopicPartition, committed: Committed, *, producer_id: int | None = None
    ) -> int:
        """Keep one partition's offset, until the producer's transaction is committed if one is named; returns its
        error code."""
        if len((committed.metadata or "").encode()) > self.settings.offset_metadata_max_bytes:
            return ErrorCode.OFFSET_METADATA_TOO_LARGE
        committed = committed._replace(order=next(self._orders))
        if producer_id is not None:
            self._undecided.setdefault((group_id, producer_id), {})[partition] = committed
        else:
            self.offsets(group_id)[partition] = committed
        return ErrorCode.NONE

    def decide(self, group_id: str, producer_id: int, *, committed: bool) -> None:
        """Ends a producer's transaction: its offsets become the group's, or are dropped. Later commits stay."""
        undecided, decided = self._undecided.pop((group_id, producer_id), {}), self.offsets(group_id)
        if committed:
            for partition, one in undecided.items():
                decided[partition] = max(one, decided.get(partition, one), key=lambda each: each.order)

    def is_undecided(self, group_id: str, partition: TopicPartition) -> bool:
        """True if an open transaction has an offset of it (KIP-447)."""
        return any(group == group_id and partition in kept for (group, _), kept in self._undecided.items())

    def offsets(self, group_id: str) -> dict[TopicPartition, Committed]:
        """A group's committed offsets; empty if there is no such group."""
        group = self.of(group_id)
        return group.offsets if group is not None else {}

    def forget_topic(self, topic: str) -> None:
        """Delete a topic's committed offsets in each group."""
        for offsets in (*(group.offsets for group in self.all()), *self._undecided.values()):
            for partition in [one for one in offsets if one.topic == topic]:
                del offsets[partition]

    def leave(self, group_id: str, members: list[tuple[str, str | None]], *, now: float) -> list[int]:
        """LeaveGroup for (member id, instance id) each; returns their error codes."""
        if group_id in self.consumer.groups:
            return self.consumer.leave(group_id, members)
        return self.classic.leave(group_id, members, now=now)

    def delete(self, group_id: str) -> int:
        """DeleteGroups for one group, with its offsets; returns its error code (KIP-229)."""
        group = self.of(group_id)
        if group is None:
            return ErrorCode.GROUP_ID_NOT_FOUND
        if group.state not in EMPTY:
            return ErrorCode.NON_EMPTY_GROUP
        for groups in self._kinds:
            groups.pop(group_id, None)
        return ErrorCode.NONE

    def expire(self, now: float) -> None:
        """Do what is due by now."""
        self.classic.expire(now)
        self.consumer.expire(now)
        self.share.expire(now)
        self.streams.expire(now)

    def next_deadline(self) -> float | None:
        """The time at which `expire` is next due, or None."""
        kinds = (self.classic, self.consumer, self.share, self.streams)
        return min((due for one in kinds if (due := one.next_deadline()) is not None), default=None)
