"""KIP-848 as a coordinator implements it: a machine without socket, thread or clock, beside that of classic groups.

Every call brings `now` (seconds, any origin). Heartbeats also bring the current topics. Nothing is parked: each
response is sent at once.

Omissions:

- groups with members of both protocols; a group changes its type only while it is empty
- RE2; patterns are Python's
- assignment by racks
- commits of a past epoch for partitions that stayed (KIP-1251)
- authorization, and loading states

While the next assignment is delayed (KIP-1263, `group_consumer_assignment_interval_ms`), a member that changes its
subscription keeps its target. Kafka removes unsubscribed topics at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import count

from kohort.common.topic_partition import grouped
from kohort.protocol.apis.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from kohort.protocol.errors import ErrorCode
from kohort.testing.fake_broker.consumer_group import (
    ASSIGNORS,
    LEFT_FOR_A_WHILE,
    ConsumerGroup,
    FakeConsumerMember,
    GroupTopic,
    Place,
    Places,
)
from kohort.testing.fake_broker.heartbeats import HeartbeatRefused
from kohort.testing.fake_broker.settings import CoordinatorSettings

LEAVING = -1


class ConsumerCoordinator:
    """All groups of this kind of one cluster; member ids given out are counted, so that a run repeats itself."""

    def __init__(self, settings: CoordinatorSettings) -> None:
        self.settings = settings
        self.groups: dict[str, ConsumerGroup] = {}
        self._numbers = count(1)

    def heartbeat(
        self,
        request: ConsumerGroupHeartbeatRequest,
        *,
        version: int,
        client_id: str | None,
        topics: Mapping[str, GroupTopic],
        now: float,
    ) -> ConsumerGroupHeartbeatResponse:
        """ConsumerGroupHeartbeat: a join, a report or a leave."""
        try:
            _check(request, version)
            if request.member_epoch < 0:
                return self._leave(request)
            return self._beat(request, client_id or "", topics, now)
        except HeartbeatRefused as refused:
            return ConsumerGroupHeartbeatResponse(error_code=refused.code, error_message=refused.message)

    def leave(self, group_id: str, members: Iterable[tuple[str, str | None]]) -> list[int]:
        """LeaveGroup for (member id, instance id) each, as administrators remove members; returns their error codes."""
        group = self.groups[group_id]
        outcome: list[int] = []
        for member_id, instance_id in members:
            member = group.members.get(member_id)
            if not member_id and instance_id is not None:
                member = group.static(instance_id)
            outcome.append(ErrorCode.UNKNOWN_MEMBER_ID if member is None else ErrorCode.NONE)
            if member is not None:
                _remove(group, member)
        return outcome

    def commit_error(self, group_id: str, epoch: int, member_id: str, *, version: int) -> int:
        """The error code with which an OffsetCommit as a whole is refused, or 0."""
        group = self.groups[group_id]
        if epoch < 0 and not group.members:
            return ErrorCode.NONE
        if member_id in group.members and version < 9:
            return ErrorCode.UNSUPPORTED_VERSION
        return _epoch_error(group, member_id, epoch)

    def fetch_error(self, group_id: str, epoch: int, member_id: str | None) -> int:
        """The error code with which an OffsetFetch is refused, or 0. A request without a member comes from an
        administrator."""
        if epoch < 0 and member_id is None:
            return ErrorCode.NONE
        return _epoch_error(self.groups[group_id], member_id, epoch)

    def expire(self, now: float) -> None:
        """Remove members without a heartbeat for a session, or that did not revoke partitions in time."""
        for group in self.groups.values():
            for member in [each for each in group.members.values() if _due(each) <= now]:
                _remove(group, member)

    def next_deadline(self) -> float | None:
        """The time at which `expire` is next due, or None."""
        return min((_due(member) for group in self.groups.values() for member in group.members.values()), default=None)

    def _leave(self, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
        group = self._group(request)
        member = _known(group, request)
        if request.member_epoch == LEFT_FOR_A_WHILE:
            member.epoch = LEFT_FOR_A_WHILE
        else:
            _remove(group, member)
        return ConsumerGroupHeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch)

    def _beat(
        self, request: ConsumerGroupHeartbeatRequest, client_id: str, topics: Mapping[str, GroupTopic], now: float
    ) -> ConsumerGroupHeartbeatResponse:
        joins = request.member_epoch == 0
        group = self._group(request)
        full = len(group.members) >= self.settings.group_consumer_max_size
        if full and request.member_id not in group.members:
            raise HeartbeatRefused(
                ErrorCode.GROUP_MAX_SIZE_REACHED, f"the group has {len(group.members)} members, its most"
            )
        member = self._member(group, request, now) if joins else _known(group, request)
        owned = _places(request.topic_partitions)
        if not joins:  # a former member may join again
            _check_epoch(member, request.member_epoch, owned)
        before = member.topics, member.assigned
        self.groups[request.group_id] = group
        group.members[member.member_id] = member
        _update(member, request, client_id, topics)
        seen = {name: topics[name] for name in sorted(group.subscribed()) if name in topics}
        if member.topics != before[0] or seen != group.seen or not group.epoch:
            group.seen, group.epoch = seen, group.epoch + 1
        interval_s = self.settings.group_consumer_assignment_interval_ms / 1000
        if group.epoch > group.target_epoch and now >= group.planned_at + interval_s:
            group.plan()
            group.planned_at = now
        group.reconcile(member, owned, now)
        member.deadline = now + self.settings.group_consumer_session_timeout_ms / 1000
        reports = joins or _says_all(request) or member.assigned != before[1]
        return ConsumerGroupHeartbeatResponse(
            member_id=member.member_id,
            member_epoch=member.epoch,
            heartbeat_interval_ms=self.settings.group_consumer_heartbeat_interval_ms,
            assignment=Assignment(topic_partitions=by_topic(member.assigned)) if reports else None,
        )

    def _group(self, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroup:
        """The group; a first heartbeat makes it."""
        group = self.groups.get(request.group_id)
        if group is None and request.member_epoch:
            raise HeartbeatRefused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group_id} not found.")
        return group or ConsumerGroup(request.group_id)

    def _member(self, group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest, now: float) -> FakeConsumerMember:
        """The member of a first heartbeat: a new one, a returning one, or one that replaces a static member."""
        member_id = request.member_id or f"member-{next(self._numbers):08d}"
        holder = group.static(request.instance_id) if request.instance_id is not None else None
        if holder is None:
            return group.members.get(member_id) or FakeConsumerMember(member_id, request.instance_id, now)
        if holder.epoch != LEFT_FOR_A_WHILE:
            raise HeartbeatRefused(
                ErrorCode.UNRELEASED_INSTANCE_ID, f"{request.instance_id} is in use by {holder.member_id}."
            )
        del group.members[holder.member_id]
        group.target[member_id] = group.target.pop(holder.member_id, frozenset())
        holder.member_id, holder.epoch, holder.previous_epoch = member_id, 0, 0
        return holder


def by_topic(places: Places) -> tuple[TopicPartitions, ...]:
    """Partitions in the form of a heartbeat's response."""
    numbers = grouped(sorted(places))
    return tuple(TopicPartitions(topic_id=topic_id, partitions=tuple(found)) for topic_id, found in numbers.items())


def _places(said: tuple[TopicPartitions, ...] | None) -> Places | None:
    if said is None:
        return None
    return frozenset(Place(topic.topic_id, number) for topic in said for number in topic.partitions)


def _due(member: FakeConsumerMember) -> float:
    return member.deadline if member.revoke_by is None else min(member.deadline, member.revoke_by)


def _epoch_error(group: ConsumerGroup, member_id: str | None, epoch: int) -> int:
    member = group.members.get(member_id or "")
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return ErrorCode.NONE if member.epoch == epoch else ErrorCode.STALE_MEMBER_EPOCH


def _remove(group: ConsumerGroup, member: FakeConsumerMember) -> None:
    del group.members[member.member_id]
    group.target.pop(member.member_id, None)
    group.epoch += 1


def _check(request: ConsumerGroupHeartbeatRequest, version: int) -> None:
    joins = request.member_epoch == 0
    says_topics = bool(request.subscribed_topic_names) or bool(request.subscribed_topic_regex)
    for wrong, what in (
        (not request.group_id, "GroupId can't be empty."),
        (request.instance_id == "", "InstanceId can't be empty."),
        (request.rack_id == "", "RackId can't be empty."),
        (not request.member_id and (version >= 1 or not joins), "MemberId can't be empty."),
        (request.member_epoch < LEFT_FOR_A_WHILE, "MemberEpoch is invalid."),
        (request.member_epoch == LEFT_FOR_A_WHILE and request.instance_id is None, "InstanceId can't be null."),
        (joins and request.rebalance_timeout_ms == -1, "RebalanceTimeoutMs must be provided in first request."),
        (joins and request.topic_partitions != (), "TopicPartitions must be empty when (re-)joining."),
        (joins and not says_topics, "SubscribedTopicNames or SubscribedTopicRegex must be set in first request."),
    ):
        if wrong:
            raise HeartbeatRefused(ErrorCode.INVALID_REQUEST, what)
    if request.server_assignor is not None and request.server_assignor not in ASSIGNORS:
        raise HeartbeatRefused(
            ErrorCode.UNSUPPORTED_ASSIGNOR, f"{request.server_assignor} is none of {', '.join(ASSIGNORS)}."
        )
    try:
        re.compile(request.subscribed_topic_regex or "")
    except re.error as error:
        message = f"{request.subscribed_topic_regex!r} is no pattern: {error}."
        raise HeartbeatRefused(ErrorCode.INVALID_REGULAR_EXPRESSION, message) from None


def _says_all(request: ConsumerGroupHeartbeatRequest) -> bool:
    """True if a heartbeat leaves nothing out. Its member missed a response and needs all fields."""
    says_topics = request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
    return request.rebalance_timeout_ms >= 0 and says_topics and request.topic_partitions is not None


def _known(group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest) -> FakeConsumerMember:
    """The member that a later heartbeat comes from."""
    if request.instance_id is None:
        member = group.members.get(request.member_id)
    else:
        member = group.static(request.instance_id)
        if member is not None and member.member_id != request.member_id:
            raise HeartbeatRefused(
                ErrorCode.FENCED_INSTANCE_ID, f"{request.instance_id} belongs to {member.member_id}."
            )
    if member is None:
        raise HeartbeatRefused(
            ErrorCode.UNKNOWN_MEMBER_ID, f"Member {request.member_id} is not a member of {group.group_id}."
        )
    return member


def _check_epoch(member: FakeConsumerMember, epoch: int, owned: Places | None) -> None:
    """Accept the previous epoch from a member that owns no more than its target. The last response may be lost."""
    if epoch == member.epoch:
        return
    if epoch > member.epoch or epoch != member.previous_epoch or owned is None or not owned <= member.assigned:
        raise HeartbeatRefused(
            ErrorCode.FENCED_MEMBER_EPOCH, f"epoch {epoch}; the member's is {member.epoch}. It must join again."
        )


def _update(
    member: FakeConsumerMember, request: ConsumerGroupHeartbeatRequest, client_id: str, topics: Mapping[str, GroupTopic]
) -> None:
    """Apply a heartbeat. Fields that it omits are unchanged."""
    member.instance_id = request.instance_id if request.instance_id is not None else member.instance_id
    member.client_id = client_id
    member.rack_id = request.rack_id if request.rack_id is not None else member.rack_id
    member.assignor = request.server_assignor or member.assignor
    if request.rebalance_timeout_ms >= 0:
        member.rebalance_timeout_s = request.rebalance_timeout_ms / 1000
    if request.subscribed_topic_names is not None:
        member.named = frozenset(request.subscribed_topic_names)
    if request.subscribed_topic_regex is not None:
        member.pattern = request.subscribed_topic_regex
    matches = re.compile(member.pattern).fullmatch if member.pattern else None
    member.topics = member.named | frozenset(filter(matches, topics) if matches else ())
