"""One member of one consistent region, as a pure machine on top of a group member's hooks.

It has two sides. The *event side* is `step` and `ready`, as in the group client: events in, one frozen value out. The
*processing side* is `take` and `submitted`: records of one partition under a permit, and the return of the permit. A
driver may run both on one thread, in turns, or on two threads under one lock. The machine has no socket, thread, clock
or store.

Its invariants:

* *State and positions belong together.* Both come from one checkpoint (`WentBack`) or one start (`Assigned`), and then
  grow together, slice by slice (`submitted`). Events that separate them lead to CR_RESET_PENDING. These are moves of
  partitions after records were read, a loss, and an epoch that another member began. In CR_RESET_PENDING no record is
  kept or submitted.
* *Requests are levels.* A reset is requested while in CR_RESET_PENDING, a contribution is made while WRITING. A lost
  response or a slow handler therefore cannot block a member.
* *The epoch is the coordinator's.* The machine never increments it. It learns of a newer epoch and goes back.
"""

from collections import deque
from collections.abc import Callable
from math import inf
from typing import Any, Final

from kohort.common.errors import KohortError
from kohort.common.foreign_text import MOST_NOTICE_CHARACTERS, cut, escaped
from kohort.consistent_region import events as ev
from kohort.consistent_region.checkpoint_barrier import NO_PAST, Barrier, MembershipView
from kohort.consistent_region.errors import (
    CoordinatorUnavailable,
    RegionError,
    RegionStopped,
    ResetFailedError,
    StoreLost,
)
from kohort.consistent_region.offsets import OffsetManager, Positions
from kohort.consistent_region.ready import (
    BeginCheckpoint,
    CheckGroup,
    Contribute,
    GoBack,
    Polling,
    RegionNotice,
    RegionReady,
    RegionRequest,
    RequestReset,
    TakeCut,
)
from kohort.consistent_region.record_queue import RecordBuffer, partition_of
from kohort.consistent_region.settings import RegionSettings
from kohort.consistent_region.states import (
    CLEAN,
    ENDED,
    PHASES,
    READING,
    SUBMITTING,
    TRANSITIONS,
    RegionPhase,
    RegionState,
    RegionTrigger,
    Step,
)
from kohort.consistent_region.triggers import OperatorDriven, Periodic
from kohort.consistent_region.witness import Witness, check_memory

FIGURES: Final = (
    "partitions_assigned",
    "consumed_topics",
    "partition_rebalances_total",
    "partitions_handed_over_total",
    "drain_ms_last",
    "drain_ms_max",
    "checkpoint_ms_last",
    "checkpoint_ms_max",
    "queue_full_pauses_total",
    "low_memory_pauses_total",
    "failed_control_requests_total",
    "commit_failures_total",
    "resets_total",
    "checkpoints_total",
    "records_submitted_total",
)

REQUEST_ATTEMPTS: Final = 12
BACKOFF_S: Final = 0.05
BACKOFF_S_MAX: Final = 5.0
BUSY_LOOK_S: Final = 0.01
POLL_TROUBLES: Final = 3
POLL_TROUBLES_WITHIN_S: Final = 15.0
NO_GENERATION: Final = -1


class RegionMember:
    """The machine. `name`: the label of this process. States belong to tasks, and the next process has another name.

    `state`, `phase`: of the member, as in `states.py`. `epoch`: the region's, of the state and the positions. `base`:
    the checkpoint that the state is based on; None is the initial state. `generation`: the group's, of the partitions;
    -1 between generations. `checkpoint_requested`: by `make_consistent`, until a checkpoint with a later cut is over.
    `completed_at`: the time of the last checkpoint with this member's states. Only the machine changes them.

    Raises `IllegalTransition` (a defect of kohort) but no other error. Other errors are in `Ready.fatal`.
    """

    def __init__(self, name: str, settings: RegionSettings) -> None:
        self.name = name
        self.settings = settings
        self.offsets = OffsetManager()
        self.metrics: dict[str, int] = dict.fromkeys(FIGURES, 0)
        self._now = -inf
        self.state = RegionState.INITIALIZED
        self.phase = RegionPhase.OPEN
        self.epoch = 0
        self.base: int | None = None
        self.generation = NO_GENERATION
        self._relaunched = False
        self._past = NO_PAST
        self._newest_seen = 0
        self.completed_at: float | None = None

        self._buffer = RecordBuffer(settings, self.metrics)
        self._permit: ev.RecordSlice | None = None
        self._throttled = False

        self._reset: RequestReset | None = None
        self._region_epoch = 0
        self._barrier: Barrier | None = None
        self._draining_since = inf
        self._cut_positions: Positions = {}
        self._written = False
        self._since_checkpoint = 0
        self._counted_at_cut = 0
        self.checkpoint_requested = False
        self._is_cut_requested = False
        self._checkpoint_due_at = inf
        self._begin_not_before = -inf

        self._look_at = -inf
        self._request_failures = 0
        self._request_not_before = -inf
        self._poll_troubles: deque[float] = deque(maxlen=POLL_TROUBLES)
        self._fatal: KohortError | None = None
        self._commit: Positions | None = None
        self._notices: list[RegionNotice] = []

    # ------------------------------------------------------------------------------------------------- the event side

    def step(self, event: ev.Event, now: float) -> None:
        """Take in what happened at `now` (monotonic seconds)."""
        self._now = max(now, self._now)
        if self.state not in ENDED:
            _HANDLERS[type(event)](self, event)

    def ready(self, now: float) -> RegionReady:
        """Return the work due at `now`. Commits and notices are given once, the rest while it is true."""
        self._now = max(now, self._now)
        self._advance()
        commit, self._commit = self._commit, None
        notices, self._notices = tuple(self._notices), []
        return RegionReady(
            state=self.state,
            phase=self.phase,
            fatal=self._fatal,
            commit=commit,
            request=self._send() if self._now >= self._request_not_before else None,
            paused=self._buffer.paused,
            polling=self._polling(),
            notices=notices,
            wake_at=self._wake_at(),
        )

    @property
    def queued(self) -> int:
        """The number of records that wait for the handler."""
        return len(self._buffer)

    @property
    def unhandled(self) -> int:
        """As `queued`, with the records under a permit."""
        permit = self._permit
        return self.queued + (0 if permit is None else len(permit))

    @property
    def witness(self) -> Witness:
        """The evidence that a commit of this member leaves."""
        return Witness(self._past.lineage, self.base or 0)

    # -------------------------------------------------------------------------------------------- the processing side

    def take(self, now: float, most: int) -> ev.RecordSlice | None:
        """Return up to `most` records of one partition, under a permit that `submitted` returns.

        None if there are none or they must wait.
        """
        self._now = max(now, self._now)
        if self.state is not RegionState.RECORDS_FETCHED or self.phase not in SUBMITTING or self._must_wait():
            return None
        if self._permit is not None or not self._buffer.ready:
            return None
        trigger = self.settings.trigger
        if isinstance(trigger, OperatorDriven):
            most = min(most, trigger.records - self._since_checkpoint)
        records = self._buffer.take(most)
        position = self.offsets.next_of(partition_of(records))
        if position is None or records[0].offset < position.offset:
            self._void("a record was read that the state holds already", forced=True)
            return None
        self._permit = records
        self._throttled = False
        return records

    def submitted(self, records: ev.RecordSlice, done: int, now: float) -> None:
        """The first `done` of `records` took effect: the permit is back, and the others wait again."""
        self._give_back(records, now)
        partition = partition_of(records)
        if self.state is not RegionState.RECORDS_FETCHED or partition not in self.offsets:
            self._notice(
                "late_submission",
                f"{partition.topic}-{partition.partition} offset {records[0].offset} took effect after a revocation; "
                "the reset undoes it",
            )
            return
        if done < len(records):
            self._buffer.put_back(records[done:], aside=self.phase not in SUBMITTING)
        self.offsets.advance(partition, records[:done].next_offset)
        self._since_checkpoint += done
        self.metrics["records_submitted_total"] += done

    def failed(self, records: ev.RecordSlice, error: KohortError, now: float) -> None:
        """The handler raised: the permit is back, and the region cannot go on here (CR-83)."""
        self._give_back(records, now)
        self._give_up(error)

    def make_consistent(self, now: float) -> None:
        """Have the region take a checkpoint. Nothing is submitted here until it is over."""
        self._now = max(now, self._now)
        self.checkpoint_requested = True

    @property
    def consistent(self) -> bool:
        """True if the checkpoint that `make_consistent` requested is over."""
        return not self._must_wait()

    # ------------------------------------------------------------------------------------------------ what is due when

    def _advance(self) -> None:
        if self.state in ENDED:
            return
        if self.phase is RegionPhase.DRAINING and self._permit is None:
            self._go_phase(Step.EMPTIED)
            if self.settings.commit_point == "drain":
                self._commit = self.offsets.positions() or None
        if self.phase is not RegionPhase.OPEN and self._now >= self._draining_since + self.settings.drain_timeout_s:
            self._void("a checkpoint took longer than drain_timeout_s", forced=False)

    def _send(self) -> RegionRequest | None:
        if self.state in ENDED or self.state is RegionState.INITIALIZED:
            return None
        if self.state is RegionState.CR_RESET_PENDING:
            if self._reset is not None and self._region_epoch <= self.epoch:
                return self._reset
            return GoBack() if self._permit is None else self._look()
        if self._barrier is not None and self._barrier.generation == self.generation:
            if self.phase is RegionPhase.DRAINED:
                return TakeCut(self.offsets.positions())
            if self.phase is RegionPhase.WRITING and self._written:
                return Contribute(self._barrier)
        if self._wants_checkpoint() and self._now >= self._begin_not_before:
            return BeginCheckpoint(self.epoch)
        return self._look()

    def _look(self) -> CheckGroup | None:
        return CheckGroup() if self._now >= self._look_at else None

    def _wants_checkpoint(self) -> bool:
        if self.state not in READING or self.phase is not RegionPhase.OPEN or self.generation == NO_GENERATION:
            return False
        return self._must_wait() or self._now >= self._checkpoint_due_at

    def _must_wait(self) -> bool:
        trigger = self.settings.trigger
        counted = isinstance(trigger, OperatorDriven) and self._since_checkpoint >= trigger.records
        return counted or self.checkpoint_requested

    def _polling(self) -> Polling:
        if self.state in ENDED or self.phase not in SUBMITTING:
            return Polling.STOPPED
        if self.state in (RegionState.INITIALIZED, RegionState.EVENT_THREAD_STARTED):
            return Polling.STOPPED
        if self._throttled or self.state is RegionState.CR_RESET_PENDING:
            return Polling.THROTTLED
        return Polling.FULL

    def _wake_at(self) -> float | None:
        if self.state in ENDED:
            return None
        requests = [self._look_at]
        if self.state in READING and self.phase is RegionPhase.OPEN and self.generation != NO_GENERATION:
            due_at = -inf if self._must_wait() else self._checkpoint_due_at
            requests.append(max(due_at, self._begin_not_before))
        if self.phase in (RegionPhase.DRAINED, RegionPhase.WRITING):
            requests.append(-inf)
        times = [max(min(requests), self._request_not_before)]
        if self.phase is not RegionPhase.OPEN:
            times.append(self._draining_since + self.settings.drain_timeout_s)
        soonest = min(times)
        return None if soonest == inf else max(soonest, self._now)

    # ------------------------------------------------------------------------------------------------- what happened

    def _on_registered(self, event: ev.Registered) -> None:
        self._go(RegionTrigger.REGISTERED)
        self._relaunched = event.relaunched
        self.epoch = event.view.epoch
        self.base = event.view.newest
        self._past = event.view.past
        self._saw(event.view)

    def _on_subscribed(self, _event: ev.RegionSubscribed) -> None:
        # A relaunched member has a past in the region that is not in its memory: no record before that is taken up.
        self._go(RegionTrigger.RELAUNCHED if self._relaunched else RegionTrigger.FIRST_LIFE)

    def _on_revoked(self, event: ev.PartitionsRevoked) -> None:
        self.generation = NO_GENERATION
        self.offsets.register(())  # a reset between this and the next assignment has nothing to seek
        if self.state in CLEAN:
            self._buffer.clear()
        else:
            self._void("partitions moved", forced=True, generation=event.generation)

    def _on_lost(self, event: ev.PartitionsLost) -> None:
        self.generation = NO_GENERATION
        self.offsets.register(())
        self._void("the group went on without this member", forced=True, generation=event.generation)

    def _on_assigned(self, event: ev.PartitionsAssigned) -> None:
        self._enter_generation(event)
        if self.state is RegionState.RECORDS_FETCHED:
            self._void("partitions came without a revocation", forced=True, generation=event.generation)
        elif self.state in CLEAN:
            self.offsets.forget()
            self.offsets.place(event.starts)
            if event.view is None or self.offsets.unplaced:
                self._void("the report of an assignment to the coordinator failed", forced=True)
        self._buffer.clear()

    # Partitions that move without a reset (COOPERATIVE groups). See `hand_over.py` for why each record counts once.

    def _on_handed_over(self, event: ev.HandedOver) -> None:
        """Handle partitions that moved away. Nothing else changes, since no other task has effects of their records."""
        self.generation = NO_GENERATION
        self.metrics["partitions_handed_over_total"] += len(event.partitions) if event.view is not None else 0
        self.offsets.register(self.offsets.partitions - event.partitions)
        self._buffer.keep(self.offsets.partitions)
        if event.view is not None:
            self._saw(event.view)

    def _on_taken(self, event: ev.StateTaken) -> None:
        """Handle assigned partitions. `starts` has the positions of the new ones."""
        self._enter_generation(event)
        if self.state in READING:
            self.offsets.place(event.starts)
        if self.state in READING and (event.view is None or self.offsets.unplaced - event.arriving):
            missing = "they were not handed over" if event.view is not None else "the report to the coordinator failed"
            self._void(f"partitions came, and {missing}", forced=True)
        self._buffer.check_room()

    def _on_tasks_started(self, event: ev.TasksStarted) -> None:
        if self.state in READING:
            self.offsets.place(event.starts)

    def _on_polled(self, event: ev.RecordsPolled) -> None:
        self._poll_troubles.clear()
        if self.state not in READING:
            return
        # Between generations only what stays is read on: nothing, unless partitions are handed over.
        between = self.generation == NO_GENERATION
        unplaced = self.offsets.unplaced  # of tasks that have not arrived: they are sought when they have
        slices = [
            one
            for one in event.slices
            if (not between or partition_of(one) in self.offsets) and partition_of(one) not in unplaced
        ]
        if not slices:
            return
        if self.state is not RegionState.RECORDS_FETCHED:
            self._go(RegionTrigger.FETCHED)
        self._buffer.extend(slices)

    def _on_poll_failed(self, event: ev.PollFailed) -> None:
        if event.trouble is ev.PollTrouble.FATAL:
            self._give_up(event.error)
            return
        if event.trouble is ev.PollTrouble.RETRIABLE:
            self._throttled = True
            return
        self._poll_troubles.append(self._now)
        if len(self._poll_troubles) == POLL_TROUBLES and self._now - self._poll_troubles[0] <= POLL_TROUBLES_WITHIN_S:
            self._give_up(event.error)

    def _on_looked(self, event: ev.Looked) -> None:
        self._responded()
        self._saw(event.view)
        if self.phase is RegionPhase.OPEN and self._wants_checkpoint():
            # The coordinator began no barrier: a member is absent, or partitions move. A request is cheap, but not
            # free.
            self._begin_not_before = self._now + min(self.settings.look_interval_s, 0.1)

    def _on_reset_granted(self, event: ev.ResetGranted) -> None:
        self._responded()
        # Granted now, or begun before by another member: in both cases there is a checkpoint to go back to.
        self._reset = None
        self._saw(event.view)

    def _on_went_back(self, event: ev.WentBack) -> None:
        self._responded()
        if self.state is not RegionState.CR_RESET_PENDING:
            return
        self.epoch = event.view.epoch
        self.base = event.view.newest
        self._reset = None
        self._buffer.clear()
        self.offsets.forget()
        self.offsets.place(event.starts)
        self._since_checkpoint = 0
        self._throttled = True
        self._go(RegionTrigger.WENT_BACK)
        self.metrics["resets_total"] += 1
        self._saw(event.view)
        if self.offsets.unplaced:
            self._void("a partition has no start", forced=True)

    def _on_positions_read(self, event: ev.PositionsRead) -> None:
        """Move behind records that no handler gets. Retention removes them, which is no loss of data."""
        waiting = self._buffer.partitions
        known = self.offsets.positions()
        self.offsets.place(
            {
                one: at
                for one, at in event.positions.items()
                if one not in waiting and one in known and at.offset > known[one].offset
            }
        )

    def _on_cut_taken(self, _event: ev.CutTaken) -> None:
        self._responded()
        self._cut_positions = self.offsets.positions()
        self._counted_at_cut = self._since_checkpoint
        self._is_cut_requested = self.checkpoint_requested
        self._written = False
        self._measured("drain")
        self._go_phase(Step.CUT)
        self._put_drained_back()

    def _on_written(self, _event: ev.SnapshotsWritten) -> None:
        self._written = True

    def _on_contributed(self, event: ev.Contributed) -> None:
        self._responded()
        if self.phase is RegionPhase.WRITING:
            self._go_phase(Step.CONTRIBUTED)
        self._saw(event.view)

    def _on_dispossessed(self, event: ev.Dispossessed) -> None:
        self._responded()
        self._void(event.reason, forced=True)

    def _on_coordinator_failed(self, event: ev.CoordinatorFailed) -> None:
        self._request_failures += 1
        self.metrics["failed_control_requests_total"] += 1
        if self._request_failures >= REQUEST_ATTEMPTS:
            self._give_up(
                CoordinatorUnavailable(
                    f"the region's coordinator failed {self._request_failures} times in a row: {event.error}",
                    hint="look after its store, then start the member again",
                    member=self.name,
                )
            )
        self._request_not_before = self._now + min(BACKOFF_S * 2**self._request_failures, BACKOFF_S_MAX)

    def _on_reregistered(self, event: ev.Reregistered) -> None:
        same = event.view.past.lineage == self._past.lineage
        if self.base is not None and not same:
            self._give_up(
                StoreLost(
                    "the coordinator has lost the checkpoint that this member's state grew from",
                    hint="restore its store, or start the members again to begin from the initial state",
                    member=self.name,
                    sequence=self.base,
                )
            )
            return
        self._responded()
        self._past = event.view.past
        self._newest_seen = self._newest_seen if same else 0
        # Its epochs are counted from the beginning again.
        self.epoch = self._region_epoch = event.view.epoch
        self._void("the coordinator had forgotten this member", forced=True)
        self._saw(event.view)

    def _on_commit_settled(self, event: ev.RegionCommitSettled) -> None:
        if event.error is None:
            return
        self.metrics["commit_failures_total"] += 1
        self._notice("commit_failed", str(event.error))
        if self.settings.on_commit_failure == "reset":
            self._void("a commit to the group failed", forced=False)

    def _on_memory_low(self, event: ev.MemoryLow) -> None:
        self._buffer.memory(low=event.low)

    def _on_broke(self, event: ev.Broke) -> None:
        self._give_up(event.error)

    def _on_stop(self, _event: ev.StopRequested) -> None:
        self._buffer.clear()
        self._end_phase()
        self._go(RegionTrigger.CLOSED)

    # ---------------------------------------------------------------------------------------------------------- inner

    def _saw(self, view: MembershipView) -> None:
        """Handles the view of the region, which is in every response of the coordinator."""
        try:
            check_memory(self._past, self._newest_seen, view)
        except ResetFailedError as error:
            self._give_up(error)
            return
        self._newest_seen = view.newest or 0
        busy = self.phase is not RegionPhase.OPEN or self.state is RegionState.CR_RESET_PENDING
        self._look_at = self._now + (BUSY_LOOK_S if busy else self.settings.look_interval_s)
        self._region_epoch = max(self._region_epoch, view.epoch)
        if isinstance(self.settings.trigger, Periodic):
            self._checkpoint_due_at = self._now + max(self.settings.trigger.seconds - view.age_s, 0.0)
        if view.stopped is not None:
            self._give_up(RegionStopped("the region was stopped", reason=view.stopped, member=self.name))
        elif self.state in READING and view.epoch > self.epoch:
            self._follow()
        else:
            if self.phase is not RegionPhase.OPEN:
                self._watch(view)
            if self.state in READING and self.phase is RegionPhase.OPEN:
                self._meet(view)

    def _meet(self, view: MembershipView) -> None:
        barrier = view.barrier
        if not self.offsets.partitions:
            self.base = view.newest  # no state of this member grew from an older one
        if view.newest != self.base:
            self._void("a checkpoint was completed without this member", forced=True)
            return
        if barrier is None or self.name not in barrier.members:
            return
        if (barrier.epoch, barrier.generation) != (self.epoch, self.generation) or self.offsets.unplaced:
            return
        self._barrier = barrier
        self._draining_since = self._now
        self._go_phase(Step.BARRIER)
        if not isinstance(self.settings.trigger, OperatorDriven):
            self._buffer.set_aside()

    def _watch(self, view: MembershipView) -> None:
        assert self._barrier is not None
        sequence = self._barrier.sequence
        # A newer checkpoint completed without this member, and this one perhaps never: going back resolves it.
        if view.newest == sequence:
            self._completed(sequence)
        elif view.barrier is None or view.barrier.sequence != sequence:
            self._notice("checkpoint_abandoned", f"checkpoint {sequence} was abandoned; no record is lost")
            self._since_checkpoint = 0
            self._end_phase()

    def _completed(self, sequence: int) -> None:
        self.base = sequence
        self.completed_at = self._now
        self._measured("checkpoint")
        self.metrics["checkpoints_total"] += 1
        if self.settings.commit_point == "checkpoint_complete":
            self._commit = self._cut_positions or None
        self._since_checkpoint -= self._counted_at_cut
        if self._is_cut_requested:  # a request since the cut is for records that this checkpoint does not have
            self.checkpoint_requested = False
        self._throttled = True
        self._end_phase()

    def _measured(self, what: str) -> None:
        """Keep the time since the barrier, as the last one and the longest."""
        took_ms = round((self._now - self._draining_since) * 1000)
        self.metrics[f"{what}_ms_last"] = took_ms
        self.metrics[f"{what}_ms_max"] = max(took_ms, self.metrics[f"{what}_ms_max"])

    def _end_phase(self, step: Step = Step.ENDED) -> None:
        if self.phase is RegionPhase.OPEN:
            return
        self._barrier = None
        self._draining_since = inf
        self._go_phase(step)
        self._put_drained_back()

    def _put_drained_back(self) -> None:
        try:
            self._buffer.bring_back()
        except RegionError as error:
            self._give_up(error)

    def _void(self, reason: str, *, forced: bool, generation: int = NO_GENERATION) -> None:
        """Request a reset of the region, since state and positions no longer match here."""
        if self.state is RegionState.CR_RESET_PENDING:
            self._buffer.clear()
            return
        of = None if generation == NO_GENERATION else generation
        # Where tasks move one by one, the member goes back alone: no other state has effects of its records.
        alone = forced and self.settings.hand_over
        self._reset = None if alone else RequestReset(self.epoch, reason, forced, of)
        self._enter_reset()
        self._notice("reset_wanted", reason)

    def _follow(self) -> None:
        """Others have begun a new epoch."""
        self._reset = None
        self._enter_reset()

    def _enter_reset(self) -> None:
        self._buffer.clear()
        self._end_phase(Step.RESET)
        self._go(RegionTrigger.MUST_RESET)
        self._request_not_before = -inf

    def _give_back(self, records: ev.RecordSlice, now: float) -> None:
        self._now = max(now, self._now)
        if records is not self._permit:
            raise RegionError("these records are under no permit", topic=records.topic, offset=records[0].offset)
        self._permit = None

    def _enter_generation(self, event: ev.PartitionsAssigned) -> None:
        self.metrics["partitions_assigned"] = len(event.partitions)
        self.metrics["consumed_topics"] = len({one.topic for one in event.partitions})
        self.metrics["partition_rebalances_total"] += 1
        self.generation = event.generation
        if event.view is not None:
            self._saw(event.view)
        self.offsets.register(event.partitions)

    def _responded(self) -> None:
        self._request_failures = 0
        self._request_not_before = -inf

    def _give_up(self, error: KohortError) -> None:
        if self.state in ENDED:
            return
        self._fatal = error
        self._buffer.clear()
        self._go(RegionTrigger.GAVE_UP)

    def _notice(self, kind: str, text: str) -> None:
        self._notices.append(RegionNotice(kind, cut(escaped(text), MOST_NOTICE_CHARACTERS)))

    def _go(self, trigger: RegionTrigger) -> None:
        self.state = TRANSITIONS[self.state][trigger]

    def _go_phase(self, step: Step) -> None:
        self.phase = PHASES[self.phase][step]


_HANDLERS: Final[dict[type, Callable[[RegionMember, Any], None]]] = {
    ev.Registered: RegionMember._on_registered,
    ev.RegionSubscribed: RegionMember._on_subscribed,
    ev.PartitionsRevoked: RegionMember._on_revoked,
    ev.PartitionsAssigned: RegionMember._on_assigned,
    ev.HandedOver: RegionMember._on_handed_over,
    ev.StateTaken: RegionMember._on_taken,
    ev.TasksStarted: RegionMember._on_tasks_started,
    ev.PartitionsLost: RegionMember._on_lost,
    ev.RecordsPolled: RegionMember._on_polled,
    ev.PollFailed: RegionMember._on_poll_failed,
    ev.Looked: RegionMember._on_looked,
    ev.ResetGranted: RegionMember._on_reset_granted,
    ev.WentBack: RegionMember._on_went_back,
    ev.PositionsRead: RegionMember._on_positions_read,
    ev.CutTaken: RegionMember._on_cut_taken,
    ev.SnapshotsWritten: RegionMember._on_written,
    ev.Contributed: RegionMember._on_contributed,
    ev.Dispossessed: RegionMember._on_dispossessed,
    ev.CoordinatorFailed: RegionMember._on_coordinator_failed,
    ev.Reregistered: RegionMember._on_reregistered,
    ev.RegionCommitSettled: RegionMember._on_commit_settled,
    ev.MemoryLow: RegionMember._on_memory_low,
    ev.Broke: RegionMember._on_broke,
    ev.StopRequested: RegionMember._on_stop,
}
