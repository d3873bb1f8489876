"""The membership of share groups as a coordinator implements it: a machine without socket, thread or clock (KIP-932).

Every call brings `now` (seconds, any origin). Heartbeats also bring the current topics.

Omissions:

- the delay between the first join and the first assignment, in which a real broker initializes share partitions
- stickiness: a plan may move more partitions than needed
"""

from __future__ import annotations

from collections.abc import Mapping

from kohort.protocol.apis.consumer_group_heartbeat import Assignment
from kohort.protocol.apis.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from kohort.protocol.errors import ErrorCode
from kohort.testing.fake_broker.consumer_coordinator import by_topic
from kohort.testing.fake_broker.consumer_group import GroupTopic
from kohort.testing.fake_broker.heartbeats import (
    HeartbeatRefused,
    check_epoch,
    end_sessions,
    known_member,
    next_deadline,
)
from kohort.testing.fake_broker.settings import CoordinatorSettings
from kohort.testing.fake_broker.share_group import FakeShareMember, ShareGroup

JOIN, LEAVE = 0, -1
LONGEST_MEMBER_ID = 36


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
        except HeartbeatRefused as refused:
            return ShareGroupHeartbeatResponse(error_code=refused.code, error_message=refused.message)

    def expire(self, now: float) -> None:
        """Remove the members whose session has ended."""
        end_sessions(self.groups, _remove, now)

    def next_deadline(self) -> float | None:
        """The time at which `expire` is next due, or None."""
        return next_deadline(self.groups)

    def _leave(self, request: ShareGroupHeartbeatRequest) -> ShareGroupHeartbeatResponse:
        group = self._group(request)
        _remove(group, known_member(group, request.member_id))
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
            raise HeartbeatRefused(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The share group has reached its maximum capacity of {len(group.members)} members.",
            )
        if joins:
            member = group.members.get(request.member_id) or FakeShareMember(request.member_id, now)
        else:
            member = known_member(group, request.member_id)
            check_epoch(member, request.member_epoch)
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
        reports = joins or named is not None or member.assigned != before
        return ShareGroupHeartbeatResponse(
            member_id=member.member_id,
            member_epoch=member.epoch,
            heartbeat_interval_ms=self.settings.group_share_heartbeat_interval_ms,
            assignment=Assignment(topic_partitions=by_topic(member.assigned)) if reports else None,
        )

    def _group(self, request: ShareGroupHeartbeatRequest) -> ShareGroup:
        """The group; a join makes it."""
        group = self.groups.get(request.group_id)
        if group is None and request.member_epoch != JOIN:
            raise HeartbeatRefused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group_id} not found.")
        return group or ShareGroup(request.group_id)


def _remove(group: ShareGroup, member: FakeShareMember) -> None:
    del group.members[member.member_id]
    group.target.pop(member.member_id, None)
    group.epoch += 1
    if not group.members:
        group.target_epoch = group.epoch


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
            raise HeartbeatRefused(ErrorCode.INVALID_REQUEST, what)
