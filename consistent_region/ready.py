"""The work that a region member has due: one frozen value, the only output of the event side of `RegionMember`.

The duties of a driver
----------------------
1. Call `member.step(event, now)` for each event, in order.
2. Call `ready = member.ready(now)`.
3. Do the work of `ready`.
4. Poll the group's consumer as `polling` allows, handle the records of `member.take`, and return at `wake_at` at the
   latest.

`request` is a level: it is given until its response was stepped or the state changed, one at a time. A request with a
lost response is therefore repeated. Responses: Look, BeginCheckpoint -> `Looked`; RequestReset -> `ResetGranted`;
GoBack -> `WentBack`; TakeCut -> `CutTaken`, and later `SnapshotsWritten`; Contribute -> `Contributed`. Each may end in
`CoordinatorFailed`, or in `Broke` for a fatal error.
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
    """Request a barrier from the coordinator, which begins none while members are absent or partitions move."""

    epoch: int


@dataclass(frozen=True, slots=True)
class RequestReset:
    """Request a reset of the whole region. Forced resets do not count.

    `generation`: the group generation that makes it necessary, so that the requests of many members for one rebalance
    are one reset. None if the cause is not a rebalance.
    """

    epoch: int
    reason: str
    forced: bool
    generation: int | None


@dataclass(frozen=True, slots=True)
class GoBack:
    """Join the region's epoch: read its newest checkpoint, restore the states of tasks, seek what is assigned."""


@dataclass(frozen=True, slots=True)
class TakeCut:
    """Cut the states (nothing is being handled) at these offsets. Their snapshots are written afterwards."""

    offsets: Positions


@dataclass(frozen=True, slots=True)
class Contribute:
    """Contribute the written snapshots of the cut."""

    barrier: Barrier


RegionRequest = CheckGroup | BeginCheckpoint | RequestReset | GoBack | TakeCut | Contribute


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
    """Edge. Commit to the group, as information for users and tools. The region itself never reads it back."""

    request: RegionRequest | None
    """Level."""

    paused: bool
    """Level: whether all assigned partitions are to be paused (the queue is full, or memory is short)."""

    polling: Polling
    """Level."""

    notices: tuple[RegionNotice, ...]
    """Edge."""

    wake_at: float | None
    """Level: the time of the next call of `ready` (monotonic seconds). None: only after events."""
