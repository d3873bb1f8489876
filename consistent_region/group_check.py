"""Checks the members of the group and their partitions after every assignment.

If a cause would keep all checkpoints from completing, the member ends with an error that names it.

A stranger (CR-87) reads partitions, but the region lacks their records. A member of a region has a client id of its own
form. A group member with another client id, or with that of an unregistered name, is a stranger. Partitions that the
region has read may also have no owner: their topic was deleted, or is not subscribed to any more. Partitions of one
task may have several owners, or topics of one set different numbers of partitions.
"""

from collections.abc import Callable, Collection, Iterable

from kohort.common.errors import KohortError
from kohort.common.topic_partition import TopicPartition
from kohort.consistent_region.coordinator import RegionCoordinator
from kohort.consistent_region.errors import RegionError, SplitTaskError, StrangerError, UnreadError
from kohort.consistent_region.tasks import TaskId, TaskMap
from kohort.coordinator_client.offsets.describe_group import GroupMemberDescription

LOOK_AFTER_S = 1.0
LOOK_AGAIN_S = 5.0
LOOK_TIMEOUT_S = 2.0
MOST_NAMED = 10
PERSISTENT_LOOKS = 3  # a leader may learn of a topic late, and then the group rebalances


def client_id(given: str, region: str, member: str) -> str:
    """Return the client id of a region's member; `given` is the user's client id."""
    return f"{given}/{region}/{member}"


def strangers(
    mates: Iterable[GroupMemberDescription], region: str, members: Collection[str]
) -> list[GroupMemberDescription]:
    """Return the group members that are not members of the region."""
    known = tuple(client_id("", region, name) for name in members)
    return [one for one in mates if not one.client_id.endswith(known)]


def unread(mates: Collection[GroupMemberDescription], begun: Collection[TopicPartition]) -> frozenset[TopicPartition]:
    """Return the partitions of `begun` that no member owns; none while members or assignments are not all known."""
    known = [one.assignment for one in mates if one.assignment is not None]
    if not mates or len(known) < len(mates):
        return frozenset()
    return frozenset(begun).difference(*known)


def split(mates: Collection[GroupMemberDescription], task_map: TaskMap) -> dict[TaskId, list[str]]:
    """Return the tasks whose partitions several members own, with these members."""
    owners: dict[TaskId, set[str]] = {}
    for one in mates:
        for task in task_map.grouped(one.assignment or ()):
            owners.setdefault(task, set()).add(one.client_id)
    return {task: sorted(names) for task, names in sorted(owners.items()) if len(names) > 1}


class GroupCheck:
    """Checks the group's members shortly after each assignment.

    Raises StrangerError at once, and UnreadError, SplitTaskError and NotCopartitionedError if several looks agree.

    `mates`: `Consumer.group_members`. The coordinator is requested second, because each member registers before it
    joins the group.
    """

    def __init__(
        self,
        coordinator: RegionCoordinator,
        mates: Callable[[float], Iterable[GroupMemberDescription]],
        task_map: TaskMap,
    ) -> None:
        self._coordinator = coordinator
        self._place = {"group": coordinator.group, "region": coordinator.region}
        self._mates = mates
        self._task_map = task_map
        self._due_at: float | None = None
        self._wrong_looks = 0

    def assigned(self, now: float) -> None:
        """Handles an assignment: a member may have joined too."""
        self._due_at = now + LOOK_AFTER_S
        self._wrong_looks = 0

    def look(self, now: float) -> str | None:
        """Check the group if a check is due. Returns the reason if the check failed, else None."""
        if self._due_at is None or now < self._due_at:
            return None
        self._due_at = None
        try:
            mates = tuple(self._mates(LOOK_TIMEOUT_S))
            found = strangers(mates, self._coordinator.region, self._coordinator.members())
            begun = self._coordinator.initial()
        except KohortError as error:
            self._due_at = now + LOOK_AGAIN_S
            return str(error)
        if found:
            raise StrangerError(
                "a consumer that is no member of the region is in its group",
                hint="stop it, or give it a group of its own",
                **self._place,
                strangers=", ".join(f"{one.client_id} at {one.host} ({one.member_id})" for one in found),
            )
        if (wrong := self._wrong(mates, begun)) is None:
            self._wrong_looks = 0
            return None
        self._wrong_looks += 1
        if self._wrong_looks == PERSISTENT_LOOKS:
            raise wrong
        self._due_at = now + LOOK_AGAIN_S
        return None

    def _wrong(
        self, mates: Collection[GroupMemberDescription], begun: Collection[TopicPartition]
    ) -> RegionError | None:
        """The fault of an assignment that stays as it is."""
        if left := unread(mates, begun):
            return UnreadError(
                "partitions of the region are not assigned to any member, so checkpoints cannot complete",
                hint="subscribe to the topic again, or run `kohort region forget` if it was deleted",
                partitions=", ".join(f"{one.topic}-{one.partition}" for one in sorted(left)[:MOST_NAMED]),
                **self._place,
            )
        if tasks := split(mates, self._task_map):
            task, owners = next(iter(tasks.items()))
            return SplitTaskError(
                "the assignor gives partitions of one task to several members",
                hint="assignors that keep them together are range and copartition",
                task=str(task),
                members=", ".join(owners),
                **self._place,
            )
        try:
            self._task_map.check_counts(begun)
        except RegionError as error:
            return error
        return None
