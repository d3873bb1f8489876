"""The partitions that a member owns, and the one due hook call about them.

At most one call is due. While it runs, the member leaves its state only by loss or stall. Hooks are therefore called in
the order of the events, each before its consequences.
"""

from collections.abc import Iterable
from typing import Final

from kohort.common.topic_partition import TopicPartition
from kohort.coordinator_client.hooks import Assigned, HookCall, HookEvent
from kohort.coordinator_client.subscription_state import AssignedPartitions

NOTHING: Final[frozenset[TopicPartition]] = frozenset()


class OwnedPartitions:
    """The owned partitions and the due hook.

    `assignment`: the owned partitions. `newly_assigned`: those of the last sync, until their `on_assigned` is done.
    `previously_owned`, `last_generation`: the result of the last assignment, for sticky assignors. `hook`: the due
    call. `callback_running`: the caller has taken it.
    """

    __slots__ = (
        "_fetchable",
        "_fetchable_for",
        "assignment",
        "callback_running",
        "hook",
        "last_generation",
        "newly_assigned",
        "previously_owned",
    )

    def __init__(self) -> None:
        self.assignment = AssignedPartitions()
        self.newly_assigned = NOTHING
        self.previously_owned = NOTHING
        self.last_generation = -1
        self.hook: HookCall | None = None
        self.callback_running = False
        self._fetchable = NOTHING
        self._fetchable_for: tuple[AssignedPartitions, HookCall | None, bool] = (self.assignment, None, False)

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        """All that is owned."""
        return self.assignment.partitions

    def accept(self, generation: int) -> None:
        """The newly assigned partitions are owned now, in this generation."""
        self.assignment = self.assignment.brought(self.newly_assigned)
        self.previously_owned, self.last_generation = self.partitions, generation

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        """Remove partitions that are not owned any more."""
        self.assignment = self.assignment.without(partitions)

    def forget_generation(self) -> None:
        """Membership is gone: nothing arrives any more, and nothing is worth remembering to an assignor."""
        self.newly_assigned = NOTHING
        self.previously_owned, self.last_generation = NOTHING, -1

    # -- the hook

    def call(
        self, serial: int, event: HookEvent, before: frozenset[TopicPartition], then: frozenset[TopicPartition]
    ) -> None:
        """Set the due call. `before` and `then` are the user's visible assignment while it runs and after it."""
        self.hook = HookCall(serial, event, before, then)
        self.callback_running = False

    def withdraw(self) -> None:
        """Withdraw the call that was not taken. Partitions it would have brought are dropped."""
        if self.hook is not None and isinstance(self.hook.event, Assigned):
            self.drop(self.hook.event.partitions)
        self.hook = None

    def started(self, serial: int) -> bool:
        """The caller took the call of this serial. Returns True if it is the due one."""
        if self.hook is None or serial != self.hook.serial:
            return False
        self.callback_running = True
        return True

    def ended(self, serial: int) -> HookCall | None:
        """The call of this serial is done: the call, if that is the one that was due."""
        hook = self.hook
        if hook is None or serial != hook.serial:
            return None
        self.hook, self.callback_running = None, False
        return hook

    # -- the view

    def fetchable(self, *, alive: bool) -> frozenset[TopicPartition]:
        """Owned, of a living membership, not on its way out, and past its `on_assigned`."""
        assignment, hook = self.assignment, self.hook
        before = self._fetchable_for
        if before[0] is not assignment or before[1] is not hook or before[2] is not alive:
            waiting = NOTHING if hook is None else hook.event.partitions
            self._fetchable = assignment.partitions - waiting if alive else NOTHING
            self._fetchable_for = (assignment, hook, alive)
        return self._fetchable
