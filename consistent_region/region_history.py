"""The history of one region member, as frozen values, for people, pictures and tools."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from kohort.common.topic_partition import TopicPartition
from kohort.consistent_region import events as ev
from kohort.consistent_region.region_member import RegionMember
from kohort.consistent_region.states import READING, RegionState

KEPT_MOMENTS: Final = 1_000
NOWHERE: Final[frozenset[TopicPartition]] = frozenset()

Kind = Literal["state", "assigned", "revoked", "lost", "reset_wanted", "went_back", "checkpoint"]
_HOOKS: Final[dict[type, Kind]] = {
    ev.PartitionsAssigned: "assigned",
    ev.StateTaken: "assigned",
    ev.PartitionsRevoked: "revoked",
    ev.HandedOver: "revoked",
    ev.PartitionsLost: "lost",
}
_RESETS: Final[dict[type, str]] = {
    ev.RegionSubscribed: "this member has a past in the region",
    ev.PartitionsRevoked: "partitions moved after records were read",
    ev.PartitionsLost: "the group went on without this member",
    ev.PartitionsAssigned: "partitions came that have no start",
    ev.StateTaken: "partitions came that have no start",
    ev.RegionCommitSettled: "a commit to the group failed",
}


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """One entry of a region member's timeline. `at_s` is in monotonic seconds.

    `kind`: the kind of event, where "state" is any other change of `state`. `state`: the state after the event.
    `epoch`: the region's resets known to this member. `checkpoint`: the base of its state, None for the initial state.
    `generation`: the group's, -1 between two generations. `partitions`: those that were assigned (all of them) or went.
    `records`: the number of records that took effect since this process began, including those that a reset undid.
    """

    at_s: float
    kind: Kind
    state: RegionState
    epoch: int
    checkpoint: int | None
    generation: int
    partitions: frozenset[TopicPartition]
    records: int
    text: str = ""


class RegionHistory:
    """Watches a member: `saw` after each of its steps. Any thread may read `timeline`. `on_moment` is called for each
    entry on the thread that writes it. Its exceptions wait in `problem`: they must not end a step halfway."""

    def __init__(self, on_moment: Callable[[HistoryEntry], object] | None = None) -> None:
        self.timeline: tuple[HistoryEntry, ...] = ()
        self.problem: Exception | None = None
        self._on_moment = on_moment
        self._state = RegionState.INITIALIZED
        self._checkpoint: int | None = None
        self._owned = NOWHERE

    def saw(self, member: RegionMember, at_s: float, event: ev.Event | None = None) -> None:
        """Put down what is different since the last call, and which partitions `event` moved."""
        if (hook := _HOOKS.get(type(event))) is not None:
            partitions, self._owned = self._owned, NOWHERE
            if isinstance(event, ev.PartitionsAssigned):
                partitions = self._owned = event.partitions
            elif isinstance(event, ev.HandedOver):
                self._owned, partitions = partitions - event.partitions, event.partitions
            self._put(member, at_s, hook, partitions)
        if member.state is not self._state:
            kind, text = self._change(member.state, event)
            self._state = member.state
            self._put(member, at_s, kind, NOWHERE, text)
        elif member.state in READING and member.base is not None and member.base != self._checkpoint:
            self._put(member, at_s, "checkpoint", NOWHERE, f"checkpoint {member.base} is complete")
        self._checkpoint = member.base

    def _change(self, state: RegionState, event: ev.Event | None) -> tuple[Kind, str]:
        match state:
            case RegionState.CR_RESET_PENDING:
                known = event.reason if isinstance(event, ev.Dispossessed) else _RESETS.get(type(event))
                return "reset_wanted", known or "the region went back"
            case RegionState.RESET_COMPLETE:
                return "went_back", ""
            case _:
                return "state", state.value

    def _put(
        self, member: RegionMember, at_s: float, kind: Kind, partitions: frozenset[TopicPartition], text: str = ""
    ) -> None:
        records = member.metrics["records_submitted_total"]
        moment = HistoryEntry(
            at_s, kind, member.state, member.epoch, member.base, member.generation, partitions, records, text
        )
        self.timeline = (*self.timeline[-(KEPT_MOMENTS - 1) :], moment)
        if self._on_moment is not None:
            try:
                self._on_moment(moment)
            except Exception as problem:
                self.problem = self.problem or problem
