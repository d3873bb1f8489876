"""Heartbeats of groups whose members have an epoch: a refusal, the member that sends one, and its session."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar

from kohort.protocol.errors import ErrorCode


class GroupMember(Protocol):
    """The parts of a member that its session needs."""

    deadline: float
    epoch: int
    previous_epoch: int


M = TypeVar("M", bound=GroupMember)


class MemberGroup(Protocol[M]):
    """The parts of a group that its members' sessions need."""

    group_id: str
    members: dict[str, M]


G = TypeVar("G", bound="MemberGroup[Any]")


class HeartbeatRefused(Exception):
    """An error code, with its message, for a heartbeat."""

    def __init__(self, code: int, message: str | None = None) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message


def known_member(group: MemberGroup[M], member_id: str) -> M:
    """The member of that id. Raises HeartbeatRefused if there is none."""
    member = group.members.get(member_id)
    if member is None:
        message = f"Member {member_id} is not a member of group {group.group_id}."
        raise HeartbeatRefused(ErrorCode.UNKNOWN_MEMBER_ID, message)
    return member


def check_epoch(member: GroupMember, epoch: int) -> None:
    """Accept the previous epoch: the last response may be lost. Raises HeartbeatRefused for any other."""
    if epoch not in (member.epoch, member.previous_epoch):
        raise HeartbeatRefused(
            ErrorCode.FENCED_MEMBER_EPOCH, f"epoch {epoch}; the member's is {member.epoch}. It must join again."
        )


def end_sessions(groups: Mapping[str, G], remove: Callable[[G, Any], object], now: float) -> None:
    """Remove each member whose session has ended."""
    for group in groups.values():
        for member in [each for each in group.members.values() if each.deadline <= now]:
            remove(group, member)


def next_deadline(groups: Mapping[str, MemberGroup[Any]]) -> float | None:
    """The time at which the next session ends, or None."""
    return min((one.deadline for group in groups.values() for one in group.members.values()), default=None)
