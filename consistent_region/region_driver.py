"""Drives a region member: does the work of `RegionReady`, and steps the machine with the results.

One thread runs the event side (coordinator calls, polling, hooks) and the processing side (handler) in turn. No record
is therefore submitted while partitions move, and a drain ends as soon as it is requested. The consumer, the
coordinator, the state and the clock are arguments, so the seeded simulation of the tests runs this very code.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from math import inf
from typing import Any, Protocol
from uuid import UUID

from kohort.common.errors import KohortError
from kohort.common.foreign_text import exception_text
from kohort.common.log_context import logger
from kohort.common.topic_partition import TopicPartition
from kohort.consistent_region import events as ev
from kohort.consistent_region import ready as rd
from kohort.consistent_region.checkpoint_barrier import Barrier, CheckpointTicket, MembershipView
from kohort.consistent_region.coordinator import RegionCoordinator, TaskStarts
from kohort.consistent_region.effects import TaskTerm
from kohort.consistent_region.errors import (
    BarrierOver,
    CoordinatorUnavailable,
    DataLossError,
    InconsistentCheckpointError,
    NotRegisteredError,
    RegionError,
    ResetFailedError,
    TaskTaken,
    TopicRecreatedError,
    TruncationError,
)
from kohort.consistent_region.group_check import GroupCheck
from kohort.consistent_region.log_lineage import Lineage, Whereabouts
from kohort.consistent_region.offsets import Positions, RegionPosition
from kohort.consistent_region.record_queue import partition_of
from kohort.consistent_region.region_history import RegionHistory
from kohort.consistent_region.region_member import NO_GENERATION, RegionMember
from kohort.consistent_region.start_positions import Lookups, StartPosition, beginnings, check_log
from kohort.consistent_region.states import ENDED, READING, RegionPhase
from kohort.consistent_region.task_states import TaskStates
from kohort.consistent_region.tasks import TaskId, TaskMap
from kohort.consistent_region.witness import Witness, check_term, check_witnesses, witness_of
from kohort.coordinator_client.hooks import Assigned, Lost, RebalanceHooks, Revoked
from kohort.coordinator_client.offset_reset import OffsetReset
from kohort.coordinator_client.offsets.describe_group import GroupMemberDescription
from kohort.network.arguments import check_returned
from kohort.network.errors import IllegalState, OperationTimeout
from kohort.network.group_types import OffsetAndMetadata

log = logger("kohort.region")

THROTTLE_S = 0.1
MEMORY_LOOK_S = 1.0
WRITE_S, WRITE_S_MAX = 0.01, 0.1
RECORDS_A_TURN = 10_000
HAND_OVER_ATTEMPTS = 3
TAKE_AGAIN_S = 0.05
ALL_TOGETHER = TaskMap()
Handler = Callable[[Any, Any], object]


class GroupConsumer(Lookups, Protocol):
    """The part of `kohort.Consumer` that a region needs."""

    @property
    def assignment(self) -> frozenset[TopicPartition]: ...
    def poll(self, timeout_s: float) -> Iterable[ev.RecordSlice]: ...
    def seek(self, partition: TopicPartition, offset: int, *, leader_epoch: int = -1) -> None: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def hold(self, partitions: Iterable[TopicPartition]) -> None: ...
    def release(self, partitions: Iterable[TopicPartition]) -> None: ...
    def commit_async(self, offsets: Any, on_done: Any, *, allow_rewind: bool = False) -> None: ...
    def topic_id(self, topic: str) -> UUID: ...
    def position_of(self, partition: TopicPartition, timeout_s: float | None = None) -> Whereabouts: ...
    def group_members(self, timeout_s: float) -> Iterable[GroupMemberDescription]: ...


class RegionDriver(RebalanceHooks):
    """Drives one member.

    `clock` returns monotonic seconds. `turn` never sleeps longer than in `poll`. `matched`: as in `beginnings`.
    `handler(record, state)` is called once for each record, with the state of its task. With `batch_records`,
    `handler(columns, state)` is called with up to so many records of one partition. An exception in it ends the member.
    The next owner of the task handles these records again, from the state before them.
    """

    def __init__(
        self,
        member: RegionMember,
        coordinator: RegionCoordinator,
        consumer: GroupConsumer,
        states: TaskStates,
        handler: Handler,
        clock: Callable[[], float],
        *,
        task_map: TaskMap = ALL_TOGETHER,
        start: StartPosition | None = None,
        matched: Callable[[], Iterable[TopicPartition]] | None = None,
        on_data_loss: str = "raise",
        batch_records: int | None = None,
        records_a_turn: int = RECORDS_A_TURN,
        history: RegionHistory | None = None,
        memory_low: Callable[[], bool] | None = None,
    ) -> None:
        self.member = member
        self.coordinator = coordinator
        self.consumer = consumer
        self.states = states
        self.handler = handler
        self.task_map = task_map
        self.clock = clock
        self.start = start or StartPosition()
        self.matched = matched
        self.on_data_loss = on_data_loss
        self.ticket: CheckpointTicket | None = None
        self.batch_records = batch_records
        self.records_a_turn = records_a_turn
        self.history = history or RegionHistory()
        self._group_check = GroupCheck(coordinator, consumer.group_members, task_map)
        self._lineage = Lineage(consumer.topic_id, consumer.position_of)
        self._paused = False
        self._memory_low = memory_low
        self._memory_look_at = -inf
        self._wrote_at = inf  # when the last part ended, while others follow
        self._waiting: dict[TaskId, list[TopicPartition]] = {}
        self._arriving: dict[TaskId, Positions] = {}
        self._take_again_at = -inf
        self._unreported = False  # the generation, since a task arrives

    # --- turns

    def register(self) -> None:
        """Raises ConfigurationError, RegionStopped, CoordinatorUnavailable: nothing is subscribed then."""
        admission = self.coordinator.register(self.member.name, self.states.version)
        self.ticket = admission.ticket
        self._step(ev.Registered(admission.view, admission.past))

    def subscribed(self) -> None:
        """The consumer has been given the topics, and this as its hooks."""
        self._step(ev.RegionSubscribed())

    def turn(self, wait_s: float) -> float:
        """Do the due work, and wait in poll up to `wait_s` for records. Returns how long (s) the caller may sleep.

        Raises the error that ends the member.
        """
        self._look_at_memory()
        self._look_at_company()
        ready = self._ready()
        if ready.request is not None:
            self._perform(ready.request)
        if self.member.phase is RegionPhase.WRITING:
            self._write()
        self._move_tasks()
        if ready.request is not None:
            ready = self._ready()
        self._pause(ready.paused)
        if self.states.leaving or self._arriving:
            wait_s = 0.0
        elif self._waiting:
            wait_s = min(wait_s, TAKE_AGAIN_S)
        idle_s = self._poll(ready, wait_s)
        return 0.0 if self._process() else idle_s

    def stop(self) -> None:
        """Discard queued records, and report the stop to the coordinator. Never raises."""
        self._step(ev.StopRequested())
        if self.ticket is not None:
            for last in (self._let_go, lambda: self.coordinator.deregister(self._ticket)):
                try:
                    last()
                except RegionError as error:
                    log.warning("stopping: %s", error)
        if self.history.problem is not None:
            log.warning("on_moment raised %r", self.history.problem)

    # --- hooks

    def on_revoked(self, event: Revoked) -> None:
        left = event.assignment - event.partitions
        if self.member.settings.hand_over:
            view = self._hand_over(event.partitions, left)
            self._step(ev.HandedOver(event.partitions, event.generation, view))
        else:
            self._report(NO_GENERATION, 0)
            self._step(ev.PartitionsRevoked(event.generation))
        self._keep(left)

    def on_lost(self, event: Lost) -> None:
        self._report(NO_GENERATION, 0)
        self._step(ev.PartitionsLost(event.generation))
        self._keep(())

    def on_assigned(self, event: Assigned) -> Mapping[TopicPartition, OffsetAndMetadata] | None:
        view, starts = self._take(event.assignment, event.generation)
        self._group_check.assigned(self.clock())
        if self.member.settings.hand_over:
            self._step(ev.StateTaken(event.assignment, event.generation, starts, view, self._unread))
            if self._unread:
                self.consumer.hold(self._unread)
        else:
            self._step(ev.PartitionsAssigned(event.assignment, event.generation, starts, view))
        if self.member.state not in READING:
            return None  # the reset seeks
        starts |= {one: at for places in self._arriving.values() for one, at in places.items()}
        # With its epoch the consumer notices a log that was truncated and written again (KIP-320).
        return {one: OffsetAndMetadata(at.offset, at.leader_epoch) for one, at in starts.items()}

    def on_gap(self, gap: OffsetReset) -> None:
        """The consumer could not read where it was to. Inside an epoch that is data loss, and never passed over."""
        if gap.wanted is None or gap.skipped is None or self.member.state not in READING:
            return
        place: dict[str, Any] = {**gap.partition._asdict(), "offset": gap.wanted}
        if gap.skipped < 0:
            self._step(ev.Broke(TruncationError(f"the log was cut: {gap.reason}", log_end=gap.start, **place)))
        elif self.on_data_loss != "earliest":
            text = f"records are gone from the log: {gap.reason}"
            self._step(ev.Broke(DataLossError(text, log_start=gap.start, **place)))

    # --- tasks that move (see `hand_over.py`)

    def _hand_over(
        self, partitions: frozenset[TopicPartition], left: frozenset[TopicPartition]
    ) -> MembershipView | None:
        """Store the cuts of tasks for their next owners. None if these will start from the newest checkpoint."""
        member = self.member
        if member.state in ENDED:
            return None  # a look would renew the lease that the stop has ended
        try:
            tasks = self.task_map.grouped(partitions)
            while tasks.keys() & self._arriving.keys():
                self._place(self._read_states(lambda: False))
            going = {task: ours for task, ours in tasks.items() if task not in self._waiting}
            for _ in range(HAND_OVER_ATTEMPTS):
                # The effects of a checkpoint that is complete by now are carried out here, and are in no cut.
                self._step(ev.Looked(self._look()))
                offsets = self._offsets(one for ours in going.values() for one in ours)
                if member.state not in READING or len(offsets) < len(going):
                    break
                cuts = self.states.leave(offsets)
                leaving = offsets.keys() - cuts.keys()
                view, handed = self.coordinator.hand_over(
                    self._ticket, member.epoch, member.base, cuts, leaving=leaving, left=len(left)
                )
                if handed:
                    return view
                self.states.drop_leaving(leaving)
        except KohortError as error:
            self._move_failed(error)
        self._report(NO_GENERATION, len(left))
        return None

    def _take(
        self, partitions: frozenset[TopicPartition], generation: int
    ) -> tuple[MembershipView | None, dict[TopicPartition, RegionPosition]]:
        """Start the tasks that are new here. Returns the view, None if there was none, and the starts of partitions."""
        member = self.member
        try:
            if member.state in ENDED:
                return None, {}
            self._begin(partitions)
            if member.state not in READING:
                return self.coordinator.report(self._ticket, generation, len(partitions)), {}
            tasks = self.task_map.grouped(partitions)
            if tasks.keys() & self.states.leaving:
                self._let_go()  # and it comes back
            # A partition that was added to a task that is here already starts without its state.
            placed = {one for one in partitions if member.offsets.next_of(one) is not None} | self._unread
            live = tasks.keys() & self.states.states.keys()
            new = {task: [one for one in ours if task not in live or one not in placed] for task, ours in tasks.items()}
            new = {task: ours for task, ours in new.items() if ours and task not in self._waiting}
            reported = NO_GENERATION if self._unread else generation
            response = self.coordinator.take(
                self._ticket, member.epoch, reported, len(partitions), new, blocks_later=member.settings.hand_over
            )
            starts = self._started(response, live)
            self._waiting |= {task: new[task] for task in response.waiting}
            self._unreported = bool(self._unread)
        except (CoordinatorUnavailable, NotRegisteredError, OperationTimeout) as error:
            log.warning("assigned without a coordinator: %s", error)  # no starts: the member will go back
        except KohortError as error:
            self._step(ev.Broke(error))
        else:
            return response.view, starts
        return None, {}

    def _started(self, response: TaskStarts, live: Collection[TaskId] = ()) -> dict[TopicPartition, RegionPosition]:
        """Start tasks, except the states of `live` ones. Returns the starts of partitions whose tasks are ready."""
        starts = self._on_the_log(response.positions)
        self._lineage.placed(starts)
        new = {task: start for task, start in response.starts.items() if task not in live}
        lineage = response.view.past.lineage
        evidence = self.states.fence(new, TaskTerm(lineage, response.term))
        if evidence or (new and self.states.latest_term > response.term):
            # If this process was stopped since the response, later owners have gone on.
            record, view = self.coordinator.watch()
            check_witnesses(evidence, view)
            check_term(self.states.latest_term, record.term)
        self.states.start(new, lineage, self.coordinator.state)
        self._arriving |= {
            task: {one: starts.pop(one) for one in new[task].offsets} for task in response.arriving & new.keys()
        }
        return starts

    @property
    def _unread(self) -> frozenset[TopicPartition]:
        """The partitions of tasks that wait for a cut, or whose state is not read yet."""
        return frozenset(one for ours in (*self._waiting.values(), *self._arriving.values()) for one in ours)

    def _keep(self, partitions: Iterable[TopicPartition]) -> None:
        """Drop all of the tasks that have none of these partitions."""
        tasks = self.task_map.grouped(partitions)
        self.states.keep(tasks)
        self._give_up_arrivals(tasks)

    def _give_up_arrivals(self, but: Collection[TaskId] = ()) -> None:
        unread = self._unread
        self._waiting = {task: ours for task, ours in self._waiting.items() if task in but}
        self._arriving = {task: starts for task, starts in self._arriving.items() if task in but}
        if gone := unread - self._unread:
            self.consumer.release(gone)

    def _move_tasks(self) -> None:
        """Write cuts of leaving tasks, and read states of arriving ones, for a part of the time."""
        if not (self.states.leaving or self._unreported) or self.member.state not in READING:
            return
        try:
            if self.states.leaving:
                self._write_leaving(self._for_a_part())
            if self._unreported:
                self._read_arriving()
        except KohortError as error:
            self._move_failed(error)
        self._wrote_at = self.clock() if self.states.leaving or self._unreported else inf

    def _move_failed(self, error: KohortError) -> None:
        """Try again, go back where a state is gone, or end."""
        if isinstance(error, CoordinatorUnavailable | NotRegisteredError | OperationTimeout):
            log.warning("tasks that move: %s", error)
        elif isinstance(error, ResetFailedError):
            self._step(ev.Dispossessed(error.message))
        else:
            self._step(ev.Broke(error))

    def _write_leaving(self, enough: Callable[[], bool]) -> None:
        cuts = self.states.write_leaving(enough, lambda block: self.coordinator.put_block(self._ticket, block))
        # One by one: a task that has another owner by now must not keep back others, whose next owners wait for them.
        for task, cut in cuts.items():
            _view, handed = self.coordinator.hand_over(self._ticket, self.member.epoch, self.member.base, {task: cut})
            self.states.drop_leaving([task])
            if not handed:
                log.warning("the region went on before task %s was handed over", task)

    def _let_go(self) -> None:
        """Hand over all leaving tasks now."""
        while self.states.leaving:
            self._write_leaving(lambda: False)

    def _read_arriving(self) -> None:
        assigned = self.consumer.assignment
        if self._waiting and self.clock() >= self._take_again_at:
            self._take_again_at = self.clock() + TAKE_AGAIN_S
            response = self.coordinator.take(
                self._ticket, self.member.epoch, NO_GENERATION, len(assigned), self._waiting, blocks_later=True
            )
            starts = self._started(response)
            # The others wait on: if the region has gone on to another epoch, the reset releases their partitions.
            self._waiting = {task: ours for task, ours in self._waiting.items() if task not in response.starts}
            self._place(starts)
            self._step(ev.Looked(response.view))
        self._place(self._read_states(self._for_a_part()))
        if not self._unread:
            view = self.coordinator.report(self._ticket, self.member.generation, len(assigned))
            self._unreported = False
            self._step(ev.Looked(view))

    def _read_states(self, enough: Callable[[], bool]) -> Positions:
        """Read the state of an arriving task until `enough()`. Returns its starts if it is read."""
        task = self.states.restore(enough)
        starts = {} if task is None else self._arriving.pop(task)
        self._lineage.check(starts)  # a topic may have been created again while a large state was read
        return starts

    def _place(self, starts: Positions) -> None:
        """Read the partitions of arrived tasks from these positions on."""
        if starts:
            self._seek(starts)
            self._step(ev.TasksStarted(starts))
            self.consumer.release(starts)

    def _seek(self, starts: Positions) -> None:
        for partition, position in starts.items():
            try:
                self.consumer.seek(partition, position.offset, leader_epoch=position.leader_epoch)
            except IllegalState:
                # The partition was lost meanwhile, as the next poll reports. Its next owner gets its own start offset.
                log.info("%s went before it was sought", partition)

    def _for_a_part(self) -> Callable[[], bool]:
        """Return a function that is true once a part of a turn was spent, so that a third of the time is."""
        begun_at = self.clock()
        until = begun_at + min(max((begun_at - self._wrote_at) / 2, WRITE_S), WRITE_S_MAX)
        return lambda: self.clock() >= until

    def _offsets(self, partitions: Iterable[TopicPartition]) -> dict[TaskId, Positions]:
        """The positions of tasks, with the epochs of what was polled. A task without a position is left out."""
        reported = self._lineage.reported(self.member.offsets.positions())
        tasks = self.task_map.grouped(partitions)
        found = {task: {one: reported[one] for one in ours if one in reported} for task, ours in tasks.items()}
        return {task: at for task, at in found.items() if at and task in self.states.states}

    # --- inner

    def _ready(self) -> rd.RegionReady:
        """Return the due work, and do the part that is given only once."""
        ready = self.member.ready(self.clock())
        self.history.saw(self.member, self.clock())
        for notice in ready.notices:
            log.warning("%s: %s", notice.kind, notice.text)
        if ready.fatal is not None:
            raise ready.fatal
        if self.history.problem is not None:
            raise self.history.problem
        if ready.commit is not None:
            self._commit(ready.commit)
        return ready

    @property
    def _ticket(self) -> CheckpointTicket:
        if self.ticket is None:
            raise NotRegisteredError("not registered", member=self.member.name)
        return self.ticket

    def _step(self, event: ev.Event) -> None:
        complete = self.member.metrics["checkpoints_total"]
        self.member.step(event, self.clock())
        self.history.saw(self.member, self.clock(), event)
        if self.member.metrics["checkpoints_total"] > complete:
            try:
                self.states.completed(self.member.witness)
            except KohortError as error:
                self.member.step(ev.Broke(error), self.clock())

    def _report(self, generation: int, owned: int) -> None:
        """Report the partitions of the member: no checkpoint waits for one without any. If this fails, a checkpoint may
        time out."""
        if self.member.state in ENDED or self.ticket is None:
            return
        try:
            self.coordinator.report(self.ticket, generation, owned)
        except (CoordinatorUnavailable, NotRegisteredError) as error:
            log.warning("report: %s", error)
        except RegionError as error:
            self._step(ev.Broke(error))

    def _perform(self, request: rd.RegionRequest) -> None:
        try:
            try:
                event = self._respond(request)
            except NotRegisteredError:
                event = self._register_again()
        except (CoordinatorUnavailable, OperationTimeout) as error:  # transient: the store or brokers
            log.warning("%s: %s", type(request).__name__, error)
            event = ev.CoordinatorFailed(error)
        except KohortError as error:
            event = ev.Broke(error)
        self._step(event)

    def _respond(self, request: rd.RegionRequest) -> ev.Event:
        match request:
            case rd.CheckGroup():
                return ev.Looked(self._look())
            case rd.BeginCheckpoint(epoch):
                return ev.Looked(self.coordinator.begin_checkpoint(self._ticket, epoch))
            case rd.RequestReset(epoch, reason, forced, generation):
                log.info("reset of epoch %d: %s", epoch, reason)
                return ev.ResetGranted(
                    self.coordinator.request_reset(self._ticket, epoch, reason, forced=forced, generation=generation)
                )
            case rd.GoBack():
                return self._go_back()
            case rd.TakeCut(offsets):
                self._step(ev.PositionsRead(self._read_to(offsets)))
                self.states.take_cut(self._offsets(offsets))
                return ev.CutTaken()
            case rd.Contribute(barrier):
                return self._contribute(barrier)

    def _read_to(self, positions: Positions) -> dict[TopicPartition, RegionPosition]:
        """The consumer's positions, as far as they are known."""
        found = {}
        for partition, at in positions.items():
            with suppress(KohortError):  # not known yet, or in a log that the next poll reports
                here = self.consumer.position_of(partition, 0.0)
                found[partition] = at._replace(offset=here.offset, leader_epoch=here.leader_epoch)
        return found

    def _look(self) -> MembershipView:
        return self.coordinator.look(self._ticket)

    def _register_again(self) -> ev.Event:
        """Register again after a loss of the coordinator's store, before anything is written into the new store
        (CR-03)."""
        log.warning("%s is not registered at the coordinator any more: registering again", self.member.name)
        self.ticket = None  # if only the response is lost, the old ticket belongs to another process
        admission = self.coordinator.register(self.member.name, self.states.version)
        self.ticket = admission.ticket
        return ev.Reregistered(admission.view)

    def _go_back(self) -> ev.Event:
        assigned = self.consumer.assignment
        self._begin(assigned)
        tasks = self.task_map.grouped(assigned)
        self.states.drop_leaving(tuple(self.states.leaving))
        self.states.keep(tasks)
        self._give_up_arrivals()
        self._unreported = False
        # In no generation until the states are restored: a barrier waits no longer than the restore of a large one may
        # take.
        back = self.coordinator.go_back(self._ticket, tasks)
        starts = self._started(back)
        self._seek(starts)
        self.coordinator.report(self._ticket, self.member.generation, len(assigned))
        return ev.WentBack(back.view, starts)

    def _write(self) -> None:
        """Write a part of the cut's snapshots."""
        try:
            written = self.states.write(self._for_a_part())
            self.states.store(lambda block: self.coordinator.put_block(self._ticket, block))
        except (CoordinatorUnavailable, NotRegisteredError) as error:
            log.warning("a block of a snapshot: %s", error)  # the contribution writes it
        except KohortError as error:
            self._step(ev.Broke(error))
            return
        self._wrote_at = inf if written else self.clock()
        if written:
            self._step(ev.SnapshotsWritten())

    def _contribute(self, barrier: Barrier) -> ev.Event:
        try:
            return ev.Contributed(self.coordinator.contribute(self._ticket, barrier, self.states.contribution()))
        except (TaskTaken, ResetFailedError) as error:
            return ev.Dispossessed(error.message)
        except BarrierOver:
            return ev.Looked(self._look())
        except InconsistentCheckpointError as error:
            log.warning("checkpoint %d: %s", barrier.sequence, error)
            return ev.Looked(self._look())

    def _witnesses(self, partitions: Iterable[TopicPartition]) -> list[Witness]:
        # A sink's transaction that a killed member left open is no evidence. The sink ends it later.
        found = self.consumer.committed(partitions, stable=False).values()
        return [one for one in (witness_of(at.metadata) for at in found if at is not None) if one is not None]

    def _begin(self, partitions: Iterable[TopicPartition]) -> None:
        """Compare the store with the group's offsets, and see to it that every partition has a beginning."""
        evidence = self._witnesses(partitions)
        record, view = self.coordinator.watch()  # never cached: an earlier view may lack the evidence's checkpoint
        check_witnesses(evidence, view)
        wanted = frozenset(partitions)
        initial = record.initial
        if wanted <= initial.keys():
            return
        found = beginnings(wanted, initial, self.start, self.consumer, self.matched)
        if not initial:
            self.task_map.check_counts(found)
        self.coordinator.put_initial(self._ticket, self._lineage.named(found))

    def _on_the_log(self, starts: Positions) -> dict[TopicPartition, RegionPosition]:
        self._lineage.check(starts)
        try:
            gaps = check_log(starts, self.consumer, on_data_loss=self.on_data_loss)
        except TruncationError as error:
            # The known id may be that of a topic that was deleted. A topic of its name that is new has a shorter log.
            self.consumer.partitions_for(str(error.place["topic"]), fresh=True)
            self._lineage.check(starts)
            raise
        for partition, records in gaps.items():
            log.warning("%s: %d records are gone from the log", partition, records)
        return {one: at._replace(offset=at.offset + gaps.get(one, 0)) for one, at in starts.items()}

    def _commit(self, positions: Positions) -> None:
        owned = self.consumer.assignment
        metadata = self.member.witness.metadata
        offsets = {
            one: OffsetAndMetadata(position.offset, metadata=metadata)
            for one, position in positions.items()
            if one in owned
        }
        if not offsets:
            return

        def settled(_offsets: object, error: Exception | None) -> None:
            known = error if error is None or isinstance(error, KohortError) else RegionError(str(error))
            self._step(ev.RegionCommitSettled(known))

        # A region that commits while draining may have gone back behind its committed offsets.
        self.consumer.commit_async(offsets, settled, allow_rewind=True)

    def _look_at_memory(self) -> None:
        if self._memory_low is None or self.clock() < self._memory_look_at:
            return
        self._memory_look_at = self.clock() + MEMORY_LOOK_S
        self._step(ev.MemoryLow(self._memory_low()))

    def _look_at_company(self) -> None:
        try:
            trouble = self._group_check.look(self.clock())
        except RegionError as error:
            self._step(ev.Broke(error))
        else:
            if trouble is not None:
                log.info("the members of the group could not be listed: %s", trouble)

    def _pause(self, wanted: bool) -> None:
        if wanted != self._paused:
            self.consumer.pause() if wanted else self.consumer.resume()
            self._paused = wanted

    def _poll(self, ready: rd.RegionReady, wait_s: float) -> float:
        """Poll as the machine allows. Returns the time (s) without work to do."""
        now = self.clock()
        due_s = wait_s if ready.wake_at is None else min(max(ready.wake_at - now, 0.0), wait_s)
        if ready.polling is rd.Polling.STOPPED:
            return due_s
        # Records that wait for a checkpoint, and not for the handler, are no work meanwhile.
        busy = self.member.queued > 0 and self.member.state in READING and self.member.consistent
        full = ready.polling is rd.Polling.FULL and not busy
        try:
            slices = [one for one in self.consumer.poll(due_s if full else 0.0) if len(one)]
        except KohortError as problem:
            error = self._lineage.typed(problem)
            self._step(ev.PollFailed(_trouble(error), error))
            return min(due_s, THROTTLE_S)
        self._lineage.polled(map(partition_of, slices))
        self._step(ev.RecordsPolled(slices))
        return 0.0 if full or busy or slices else min(due_s, THROTTLE_S)

    def _process(self) -> bool:
        """Handle records while there are permits, up to a turn's worth."""
        # Limits the time of a turn, so that with a slow handler a barrier waits for one record and not for a whole
        # turn.
        until = self.clock() + self.member.settings.look_interval_s
        left = self.records_a_turn
        while left > 0:
            now = self.clock()
            begun = left < self.records_a_turn
            records = None if begun and now >= until else self.member.take(now, min(left, self.batch_records or left))
            if records is None:
                return begun
            left -= self._handle(records, until)
        return True

    def _handle(self, records: ev.RecordSlice, until: float) -> int:
        """Handle records under one permit, until `until` or a request for a checkpoint. Returns how many."""
        member, clock, handler, done = self.member, self.clock, self.handler, 0
        state = self.states.select(self.task_map.task_of(partition_of(records)))
        try:
            if self.batch_records is not None:
                check_returned(handler(records, state), "handler")
                done = len(records)
            else:
                for record in records:
                    returned = handler(record, state)
                    if returned is not None:  # spares two calls for each record
                        check_returned(returned, "handler")
                    done += 1
                    if member.checkpoint_requested or clock() >= until:
                        break
        except BaseException as problem:
            error = problem if isinstance(problem, KohortError) else _handler_error(records[done:], problem)
            member.failed(records, error, clock())
            if error is problem or not isinstance(problem, Exception):
                raise
            raise error from problem
        member.submitted(records, done, clock())
        return done


def _trouble(error: KohortError) -> ev.PollTrouble:
    # The group client retries all transient errors by itself. Errors that it raises need a person, or are unknown.
    if isinstance(error, (TopicRecreatedError, TruncationError)):
        return ev.PollTrouble.FATAL
    return ev.PollTrouble.RETRIABLE if getattr(error, "retriable", False) else ev.PollTrouble.OTHER


def _handler_error(records: ev.RecordSlice, problem: BaseException) -> RegionError:
    """`records` begin with the one that was being handled."""
    return RegionError(
        f"the handler raised {exception_text(problem)}",
        hint="mended, the member handles this record again",
        **partition_of(records)._asdict(),
        offset=records[0].offset if len(records) else records.next_offset,
    )
