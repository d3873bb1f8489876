"""The membership of share groups as a coordinator implements it: a machine without socket, thread or clock (KIP-932).

Every call brings `now` (seconds, any origin). Heartbeats also bring the current topics.

Omissions:

- the delay between the first join and the first assignment, in which a real broker initializes share partitions
- stickiness: a plan may move more partitions than needed
"""

from __future__ import annotations

from collections.abc import Mapping

from kohort.protocol.apis.share_group_heartbeat import (
    Assignment,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)
from kohort.protocol.errors import ErrorCode
from kohort.testing.fake_broker.consumer_coordinator import by_topic
from kohort.testing.fake_broker.consumer_group import GroupTopic
from kohort.testing.fake_broker.settings import CoordinatorSettings
from kohort.testing.fake_broker.share_group import FakeShareMember, ShareGroup

JOIN, LEAVE = 0, -1
LONGEST_MEMBER_ID = 36


class ShareHeartbeatRefused(Exception):
    """An error code, with its message, for a heartbeat."""

    def __init__(self, code: int, message: str | None = None) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message


class ShareCoordinator:
    """The share groups of a cluster."""

    def __init__(self, settings: CoordinatorSettings) -> None:
        self.settings = settings
        self.groups: dict[str, ShareGroup] = {}

    def heartbeat(
        self, request: ShareGroupHeartbeatRequest, *, client_id: str, topics: Mapping[str, GroupTopic], now: float
    ) -> ShareGroupHeartbeatResponse:
        """Handle one heartbeat: a join, a leave, or a sign of life."""
        try:
            _check(request)
            if request.member_epoch == LEAVE:
                return self._leave(request)
            return self._beat(request, client_id, topics, now)
        except ShareHeartbeatRefused as refused:
            return ShareGroupHeartbeatResponse(error_code=refused.code, error_message=refused.message)

    def expire(self, now: float) -> None:
        """Remove the members whose session has ended."""
        for group in self.groups.values():
            for member in [each for each in group.members.values() if each.deadline <= now]:
                _remove(group, member)

    def next_deadline(self) -> float | None:
        """The time at which `expire` is next due, or None."""
        return min((one.deadline for group in self.groups.values() for one in group.members.values()), default=None)

    def _leave(self, request: ShareGroupHeartbeatRequest) -> ShareGroupHeartbeatResponse:
        group = self._group(request)
        _remove(group, _known(group, request))
        return ShareGroupHeartbeatResponse(member_id=request.member_id, member_epoch=LEAVE)

    def _beat(
        self, request: ShareGroupHeartbeatRequest, client_id: str, topics: Mapping[str, GroupTopic], now: float
    ) -> ShareGroupHeartbeatResponse:
        joins = request.member_epoch == JOIN
        group = self._group(request)
        if (
            request.member_id not in group.members
            and joins
            and len(group.members) >= self.settings.group_share_max_size
        ):
            raise ShareHeartbeatRefused(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The share group has reached its maximum capacity of {len(group.members)} members.",
            )
        if joins:
            member = group.members.get(request.member_id) or FakeShareMember(request.member_id, now)
        else:
            member = _known(group, request)
            _check_epoch(member, request.member_epoch)
        is_new, before = member.member_id not in group.members, member.assigned
        self.groups[request.group_id] = group
        group.members[member.member_id] = member
        member.client_id = client_id
        member.rack_id = request.rack_id if request.rack_id is not None else member.rack_id
        named = request.subscribed_topic_names
        wanted = member.topics if named is None else frozenset(named)
        changed, member.topics = wanted != member.topics, wanted
        subscribed = frozenset().union(*(one.topics for one in group.members.values()))
        seen = {name: topics[name] for name in sorted(subscribed) if name in topics}
        if is_new or changed or seen != group.seen:
            group.seen, group.epoch = seen, group.epoch + 1
        if group.epoch > group.target_epoch:
            group.plan()
        if member.epoch != group.target_epoch:
            member.previous_epoch, member.epoch = member.epoch, group.target_epoch
        member.assigned = group.target.get(member.member_id, member.assigned)
        member.deadline = now + self.settings.group_share_session_timeout_ms / 1000
        tells = joins or named is not None or member.assigned != before
        return ShareGroupHeartbeatResponse(
            member_id=member.member_id,
            member_epoch=member.epoch,
            heartbeat_interval_ms=self.settings.group_share_heartbeat_interval_ms,
            assignment=Assignment(
                topic_partitions=tuple(
                    TopicPartitions(topic_id=one.topic_id, partitions=one.partitions)
                    for one in by_topic(member.assigned)
                )
            )
            if tells
            else None,
        )

    def _group(self, request: ShareGroupHeartbeatRequest) -> ShareGroup:
        """The group; a join makes it."""
        group = self.groups.get(request.group_id)
        if group is None and request.member_epoch != JOIN:
            raise ShareHeartbeatRefused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group_id} not found.")
        return group or ShareGroup(request.group_id)


def _remove(group: ShareGroup, member: FakeShareMember) -> None:
    del group.members[member.member_id]
    group.target.pop(member.member_id, None)
    group.epoch += 1
    if not group.members:
        group.target_epoch = group.epoch


def _known(group: ShareGroup, request: ShareGroupHeartbeatRequest) -> FakeShareMember:
    member = group.members.get(request.member_id)
    if member is None:
        message = f"Member {request.member_id} is not a member of group {group.group_id}."
        raise ShareHeartbeatRefused(ErrorCode.UNKNOWN_MEMBER_ID, message)
    return member


def _check_epoch(member: FakeShareMember, epoch: int) -> None:
    """Accept the previous epoch: the last response may be lost."""
    if epoch not in (member.epoch, member.previous_epoch):
        raise ShareHeartbeatRefused(
            ErrorCode.FENCED_MEMBER_EPOCH, f"epoch {epoch}; the member's is {member.epoch}. It must join again."
        )


def _check(request: ShareGroupHeartbeatRequest) -> None:
    joins = request.member_epoch == JOIN
    for wrong, what in (
        (not request.member_id, "MemberId can't be empty."),
        (len(request.member_id) > LONGEST_MEMBER_ID, None),
        (not request.group_id, "GroupId can't be empty."),
        (
            request.member_epoch < LEAVE,
            f"MemberEpoch is {request.member_epoch}, but must be greater than or equal to -1.",
        ),
        (request.rack_id == "", "RackId can't be empty."),
        (joins and not request.subscribed_topic_names, "SubscribedTopicNames must be set in first request."),
    ):
        if wrong:
            raise ShareHeartbeatRefused(ErrorCode.INVALID_REQUEST, what)
