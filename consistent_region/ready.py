"""The work that a region member has due: one frozen value, the only output of the event side of `RegionMember`.

How a driver must use it
------------------------
1. `member.step(event, now)` for what happened, in order; 2. `ready = member.ready(now)`; 3. do what it says; 4. poll
the group's consumer as `polling` allows, handle what `member.take` gives, come back at `wake_at` at the latest.

`ask` is a level: it is given until its response was stepped (or the state moved on), never two at a time. So a request
whose response was lost is repeated. Responses: Look, BeginCheckpoint -> `Looked`; RequestReset -> `ResetGranted`;
GoBack -> `WentBack`; Contribute -> `Contributed`; each may end in `CoordinatorFailed` or, where nothing helps, `Broke`.
"""

from dataclasses import dataclass
from enum import Enum

from kohort.common.errors import KohortError
from kohort.consistent_region.checkpoint_barrier import Barrier
from kohort.consistent_region.offsets import Positions
from kohort.consistent_region.states import RegionPhase, RegionState


class Polling(Enum):
    """The way in which the consumer is to be polled."""

    STOPPED = "not at all"
    THROTTLED = "at once, then a pause of 100 ms that any event ends"
    FULL = "as fast as records come"


@dataclass(frozen=True, slots=True)
class CheckGroup:
    """Request the coordinator's view of the region."""


@dataclass(frozen=True, slots=True)
class BeginCheckpoint:
    """Request a barrier from the coordinator; it gives none while members are missing or move."""

    epoch: int


@dataclass(frozen=True, slots=True)
class RequestReset:
    """Request a reset of the whole region. `generation`: the group generation that makes it necessary, so that the
    requests of many members for one rebalance are one reset; None if it is no rebalance. `forced` resets do not
    count."""

    epoch: int
    reason: str
    forced: bool
    generation: int | None


@dataclass(frozen=True, slots=True)
class GoBack:
    """Join the region's epoch: read its newest checkpoint, restore the state, seek what is assigned."""


@dataclass(frozen=True, slots=True)
class Contribute:
    """Snapshot the state (nothing is being handled) and contribute it with these offsets."""

    barrier: Barrier
    offsets: Positions


RegionRequest = CheckGroup | BeginCheckpoint | RequestReset | GoBack | Contribute


@dataclass(frozen=True, slots=True)
class RegionNotice:
    """A notice for people although nothing failed. `kind` is stable and meant for code."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class RegionReady:
    """Everything a driver has to do now, in this order."""

    state: RegionState
    phase: RegionPhase
    fatal: KohortError | None
    """Level. Raise it, after closing."""

    commit: Positions | None
    """Edge. Commit to the group, as advice to people and tools; the region itself never reads it back."""

    ask: RegionRequest | None
    """Level."""

    paused: bool
    """Level: whether all assigned partitions are to be paused (the queue is full, or memory is short)."""

    polling: Polling
    """Level."""

    notices: tuple[RegionNotice, ...]
    """Edge."""

    wake_at: float | None
    """Level: call `ready` again at this time (monotonic seconds); None: only on events."""
