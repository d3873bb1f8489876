"""Checks the members of the group and their partitions after every assignment.

If a cause would keep all checkpoints from completing, the member ends with an error that names it.

A stranger (CR-87) reads partitions, but the region lacks their records. A member of a region has a client id of its own
form. A group member with another client id, or with that of an unregistered name, is a stranger. Partitions that the
region has read may also have no owner: their topic was deleted, or is not subscribed to any more.
"""

from collections.abc import Callable, Collection, Iterable
from typing import Protocol

from kohort.common.errors import KohortError
from kohort.common.topic_partition import TopicPartition
from kohort.consistent_region.errors import StrangerError, UnreadError

LOOK_AFTER_S = 1.0
LOOK_AGAIN_S = 5.0
LOOK_TIMEOUT_S = 2.0
MOST_NAMED = 10
UNREAD_LOOKS = 3  # a leader may learn of a topic late, and then the group rebalances


class GroupMemberInfo(Protocol):
    """One member, as `kohort.Consumer.group_members` returns it."""

    @property
    def member_id(self) -> str: ...
    @property
    def client_id(self) -> str: ...
    @property
    def host(self) -> str: ...
    @property
    def assignment(self) -> frozenset[TopicPartition] | None: ...


def client_id(given: str, region: str, member: str) -> str:
    """Return the client id of a region's member; `given` is the user's client id."""
    return f"{given}/{region}/{member}"


def strangers(mates: Iterable[GroupMemberInfo], region: str, members: Collection[str]) -> list[GroupMemberInfo]:
    """Return the group members that are not members of the region."""
    known = tuple(client_id("", region, name) for name in members)
    return [one for one in mates if not one.client_id.endswith(known)]


def unread(mates: Collection[GroupMemberInfo], begun: Collection[TopicPartition]) -> frozenset[TopicPartition]:
    """Return the partitions of `begun` that no member owns; none while members or assignments are not all known."""
    known = [one.assignment for one in mates if one.assignment is not None]
    if not mates or len(known) < len(mates):
        return frozenset()
    return frozenset(begun).difference(*known)


class GroupCheck:
    """Checks the group's members shortly after each assignment. Raises StrangerError, UnreadError.

    `mates`: `Consumer.group_members`. `members` and `begun` (the partitions with an initial offset) come from the
    coordinator. They are called second, because each member registers before it joins the group.
    """

    def __init__(
        self,
        region: str,
        group: str,
        mates: Callable[[float], Iterable[GroupMemberInfo]],
        members: Callable[[], Collection[str]],
        begun: Callable[[], Collection[TopicPartition]],
    ) -> None:
        self._region = region
        self._group = group
        self._mates = mates
        self._members = members
        self._begun = begun
        self._due_at: float | None = None
        self._unread_looks = 0

    def assigned(self, now: float) -> None:
        """Handles an assignment: a member may have joined too."""
        self._due_at = now + LOOK_AFTER_S
        self._unread_looks = 0

    def look(self, now: float) -> str | None:
        """Check the group if a check is due. Returns the reason if the check failed, else None."""
        if self._due_at is None or now < self._due_at:
            return None
        self._due_at = None
        try:
            mates = tuple(self._mates(LOOK_TIMEOUT_S))
            found, left = strangers(mates, self._region, self._members()), unread(mates, self._begun())
        except KohortError as error:
            self._due_at = now + LOOK_AGAIN_S
            return str(error)
        if found:
            raise StrangerError(
                "a consumer that is no member of the region is in its group",
                hint="stop it, or give it a group of its own",
                group=self._group,
                region=self._region,
                strangers=", ".join(f"{one.client_id} at {one.host} ({one.member_id})" for one in found),
            )
        self._unread_looks = self._unread_looks + 1 if left else 0
        if self._unread_looks == UNREAD_LOOKS:
            raise UnreadError(
                "partitions of the region are not assigned to any member, so checkpoints cannot complete",
                hint="subscribe to the topic again, or run `kohort region forget` if it was deleted",
                group=self._group,
                region=self._region,
                partitions=", ".join(f"{one.topic}-{one.partition}" for one in sorted(left)[:MOST_NAMED]),
            )
        if left:
            self._due_at = now + LOOK_AGAIN_S
        return None
