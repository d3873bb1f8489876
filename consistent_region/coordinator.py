"""The coordinator of a region, as its members call it: rules over a store, one transaction a call.

There is no coordinating process. Every member runs this class on a store that all of them share, so the death
of a member does not stop the region. Transactions run one at a time.
"""

import secrets
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from kohort.common.named_tuple import NamedTuple
from kohort.common.topic_partition import TopicPartition
from kohort.consistent_region import coordinator_rules, hand_over
from kohort.consistent_region.checkpoint_barrier import Barrier, CheckpointTicket, MembershipView
from kohort.consistent_region.errors import (
    CorruptManifest,
    InconsistentCheckpointError,
    NotRegisteredError,
    ResetFailedError,
)
from kohort.consistent_region.manifest import Block, Manifest, StateReference, TaskSnapshot, TaskState, decode, encode
from kohort.consistent_region.offsets import Positions, starts_of
from kohort.consistent_region.region_record import RegionRecord, decode_record, encode_record
from kohort.consistent_region.setting_checks import check_implements, check_positive, check_whole
from kohort.consistent_region.settings import CHECKPOINT_TIMEOUT_S
from kohort.consistent_region.store import Key, Store, StoreTransaction
from kohort.consistent_region.tasks import TaskId

MAX_CONSECUTIVE_RESETS: Final = 5
# A number that counts up comes twice if the store is set back, and two processes of one name would not differ.
INCARNATION_BITS: Final = 48
KEPT_CHECKPOINTS: Final = 3
LEASE_S: Final = 30.0
TaskPartitions = Mapping[TaskId, Sequence[TopicPartition]]


class Admission(NamedTuple):
    """The result of a registration. `past`: True if there is something to go back to first."""

    ticket: CheckpointTicket
    view: MembershipView
    past: bool


class TaskStart(NamedTuple):
    """The start of a task. `cut` is None for the initial state. `offsets`: of all its partitions, also of those that
    the cut does not have. `sequence`: the checkpoint whose effects the cut has. It is None for a cut that another
    member handed over."""

    offsets: Positions
    cut: TaskState | None = None
    sequence: int | None = None


class TaskStarts(NamedTuple):
    """The response to a request for tasks: the view, and the start of each task that is to be started. `term`: this
    member owns them under it, and later owners have higher terms. `waiting`: tasks whose last owner still writes their
    cut; they are to be requested again."""

    view: MembershipView
    starts: Mapping[TaskId, TaskStart]
    term: int
    waiting: frozenset[TaskId] = frozenset()

    @property
    def arriving(self) -> frozenset[TaskId]:
        """The tasks whose states are still to be read."""
        cuts = {task: one.cut for task, one in self.starts.items() if one.cut is not None}
        return frozenset(task for task, cut in cuts.items() if any(block.data is None for block in cut.blocks))

    @property
    def unfinished(self) -> bool:
        """True while a task waits, or a state is still to be read."""
        return bool(self.waiting or self.arriving)

    @property
    def positions(self) -> Positions:
        """The start of each partition."""
        return {place: at for one in self.starts.values() for place, at in one.offsets.items()}


@dataclass(slots=True)
class RegionCoordinator:
    """The coordinator of one region. `clock` returns seconds shared by all members of the region, by default the
    store's.

    Every method may raise CoordinatorUnavailable, after which nothing was written. `max_consecutive_resets`: this
    number of resets without a complete checkpoint between them stops the region. Forced resets do not count. `lease_s`:
    a member that renewed no lease in this time is left out of checkpoints, once other members have its partitions.
    Raises ConfigurationError.
    """

    store: Store
    region: str
    group: str
    clock: Callable[[], float] | None = None
    checkpoint_timeout_s: float = CHECKPOINT_TIMEOUT_S
    max_consecutive_resets: int = MAX_CONSECUTIVE_RESETS
    kept_checkpoints: int = KEPT_CHECKPOINTS
    lease_s: float = LEASE_S
    _read: tuple[bytes, RegionRecord | None] = field(default=(b"", None), init=False, repr=False)

    def __post_init__(self) -> None:
        check_implements("coordinator", self.store, Store, "coordinator")
        for name in ("checkpoint_timeout_s", "lease_s"):
            check_positive(name, getattr(self, name))
        for name in ("max_consecutive_resets", "kept_checkpoints"):
            check_whole(name, getattr(self, name))

    # --- membership

    def register(self, member: str, version: int = 1) -> Admission:
        """Register a member, whose states have this version. The first call creates the region.

        A known name gets another incarnation, which fences the previous one. Raises ConfigurationError (the group is
        in another region), RegionStopped, StateVersionError.
        """
        with self.store.transaction() as books:
            lineage, incarnation = uuid.uuid4().hex, secrets.randbits(INCARNATION_BITS)
            record = self._record(books) or coordinator_rules.created(self.region, self.group, self._now(), lineage)
            record, ticket, past = coordinator_rules.register(
                record, self.region, member, version, incarnation, self._now(), self.lease_s
            )
            record = self._keep(books, record, ticket)
            return Admission(ticket, self._view(record), past)

    def deregister(self, ticket: CheckpointTicket) -> None:
        """Deregister a member after a clean stop. Raises FencedError."""
        with self.store.transaction() as books:
            self._keep(books, coordinator_rules.deregister(self._known(books), ticket, self._now()))

    def members(self) -> tuple[str, ...]:
        """The registered names."""
        with self.store.read() as books:
            record = self._record(books)
            return tuple(sorted(record.members)) if record else ()

    def report(self, ticket: CheckpointTicket, generation: int, owned: int) -> MembershipView:
        """The member has so many partitions of this group generation now (-1: none). Raises FencedError."""
        return self._changed(ticket, lambda record: coordinator_rules.report(record, ticket, generation, owned))

    def look(self, ticket: CheckpointTicket | None = None) -> MembershipView:
        """Return the region's current view. Ends a checkpoint that is past its deadline, and renews the lease of
        `ticket`.

        Raises NotRegisteredError, and FencedError for an outdated ticket.
        """
        data, known = self._read
        record = None if self.store.changed(self.group, data) else known
        if record is None:
            with self.store.read() as books:
                record = self._stored(books)
        now = self._now()
        late = record.barrier is not None and now >= record.deadline
        if late or (ticket is not None and coordinator_rules.runs_low(record, ticket, now, self.lease_s)):
            with self.store.transaction() as books:
                record = self._keep(books, self._known(books), ticket)
        return self._view(record)

    # --- where partitions begin

    def initial(self) -> Positions:
        """The first offset of each partition that the region ever owned. Never cached: another member may just have set
        it."""
        return self.record().initial

    def put_initial(self, ticket: CheckpointTicket, positions: Positions) -> Positions:
        """Propose initial offsets, and return the valid ones, which are those proposed first (CR-16)."""
        with self.store.transaction() as books:
            record = coordinator_rules.put_initial(self._known(books), ticket, positions)
            self._keep(books, record)
            return record.initial

    # --- resets

    def request_reset(
        self, ticket: CheckpointTicket, epoch: int, reason: str, *, forced: bool, generation: int | None
    ) -> MembershipView:
        """Request a new epoch. Raises FencedError, RegionStopped."""
        most = self.max_consecutive_resets
        return self._changed(
            ticket,
            lambda record: coordinator_rules.request_reset(
                record, ticket, epoch, reason, forced=forced, generation=generation, max_resets=most
            ),
        )

    def go_back(self, ticket: CheckpointTicket, tasks: TaskPartitions) -> TaskStarts:
        """Join the region's epoch, and read the newest checkpoint of these tasks, or their initial state.

        The member is in no generation until it reports one. Raises ResetFailedError if a state cannot be read: the
        region never takes another one by itself.
        """
        with self.store.transaction() as books:
            record = coordinator_rules.go_back(self._known(books), ticket, tasks)
            starts = self._starts(books, record, tasks, {})
            record = self._keep(books, record, ticket)
            return TaskStarts(self._view(record), starts, record.term)

    # --- tasks that move

    def hand_over(
        self,
        ticket: CheckpointTicket,
        epoch: int,
        base: int | None,
        cuts: Mapping[TaskId, TaskState],
        *,
        leaving: Collection[TaskId] = (),
        left: int | None = None,
    ) -> tuple[MembershipView, bool]:
        """Hand over tasks at cuts that grew from checkpoint `base`, and announce the cuts of those `leaving`.

        `left`: the number of partitions that the member keeps, in no generation; None changes neither. Also returns
        whether another member may start from there, which is false if the epoch is over, or a checkpoint was completed
        since. Raises NotRegisteredError, FencedError.
        """
        named = [TaskSnapshot.of(task, ticket.member, cut) for task, cut in cuts.items()]
        with self.store.transaction() as books:
            record = self._known(books)
            handed = hand_over.hand_over(record, ticket, epoch, base, named, leaving)
            if handed is not None:
                self._put_states(books, cuts.values())
                record = handed
            if left is not None:
                record = coordinator_rules.report(record, ticket, coordinator_rules.NO_GENERATION, left)
            record = self._keep(books, record, ticket)
            return self._view(record), handed is not None

    def take(
        self,
        ticket: CheckpointTicket,
        epoch: int,
        generation: int,
        owned: int,
        tasks: TaskPartitions,
        *,
        blocks_later: bool = False,
    ) -> TaskStarts:
        """The member has so many partitions of a group generation now, and starts these tasks.

        With `blocks_later` the starts lack the data of blocks, which `state` returns. The member is in no generation
        then, nor while one of its tasks waits for the cut of its last owner. There are no starts if the region has gone
        on to another epoch. Raises FencedError, and ResetFailedError if a state cannot be read.
        """
        with self.store.transaction() as books:
            record = self._known(books)
            starts: Mapping[TaskId, TaskStart] = {}
            waiting: frozenset[TaskId] = frozenset()
            taken = hand_over.take(record, ticket, epoch, tasks, self._now(), self.lease_s)
            if taken is not None:
                record, handed, waiting = taken
                started = {task: ours for task, ours in tasks.items() if task not in waiting}
                starts = self._starts(books, record, started, handed, blocks_later=blocks_later)
            response = TaskStarts(self._view(record), starts, record.term, waiting)
            if response.unfinished:
                generation = coordinator_rules.NO_GENERATION
            record = coordinator_rules.report(record, ticket, generation, owned)
            record = self._keep(books, record, ticket)
            return response._replace(view=self._view(record))

    # --- checkpoints

    def begin_checkpoint(self, ticket: CheckpointTicket, epoch: int) -> MembershipView:
        """Begin a barrier if all members are present and no partition moves. The view has the barrier, if any."""
        bounds = self.checkpoint_timeout_s, self.lease_s
        return self._changed(
            ticket, lambda record: coordinator_rules.begin_checkpoint(record, ticket, epoch, self._now(), *bounds)
        )

    def contribute(
        self, ticket: CheckpointTicket, barrier: Barrier, cuts: Mapping[TaskId, TaskState]
    ) -> MembershipView:
        """One member's tasks. The last one writes the manifest, in the same transaction that makes it the newest.

        Raises BarrierOver (written: nothing), InconsistentCheckpointError (the region resets), FencedError.
        """
        named = [TaskSnapshot.of(task, ticket.member, cut) for task, cut in cuts.items()]
        with self.store.transaction() as books:
            record = self._known(books)
            try:
                record, manifest = coordinator_rules.contribute(record, ticket, barrier, named, self._now())
            except InconsistentCheckpointError as error:
                self._keep(books, coordinator_rules.new_epoch(record, str(error), self.max_consecutive_resets))
                problem = error
            else:
                self._put_states(books, cuts.values())
                if manifest is not None:
                    books.put(Key("manifest", self.group, _number(manifest.sequence)), encode(manifest))
                    if len(record.complete) > self.kept_checkpoints:
                        record = self._retire(books, record, record.complete[-self.kept_checkpoints - 1], states=True)
                return self._view(self._keep(books, record, ticket))
        raise problem

    def put_block(self, ticket: CheckpointTicket, block: Block) -> None:
        """Store a block of a snapshot before its contribution. Raises FencedError."""
        with self.store.transaction() as books:
            self._keep(books, self._stored(books), ticket)
            assert block.data is not None
            books.put(Key("state", self.group, block.reference.digest), block.data)

    def load(self, snapshot: TaskSnapshot) -> TaskState:
        """Return a task's cut of a checkpoint, with its blocks. Raises ResetFailedError, CorruptManifest."""
        with self.store.read() as books:
            return self._cut(books, snapshot)

    def checkpoints(self) -> tuple[int, ...]:
        """Those that can be gone back to, oldest first."""
        with self.store.read() as books:
            record = self._record(books)
            return record.complete if record else ()

    def manifest(self, sequence: int) -> Manifest:
        """Return one manifest. Raises ResetFailedError (retired or unknown), CorruptManifest (damaged)."""
        with self.store.read() as books:
            coordinator_rules.check_known_sequence(self._stored(books), sequence)
            return self._manifest(books, sequence)

    def manifests(self) -> tuple[Manifest, ...]:
        """All that can be gone back to, oldest first, as of one moment: a region that runs retires one a checkpoint."""
        with self.store.read() as books:
            record = self._record(books)
            return tuple(self._manifest(books, one) for one in record.complete) if record else ()

    def whole(self, sequence: int) -> Manifest:
        """As `manifest`, and every state that it names is there, and what was stored."""
        with self.store.read() as books:
            coordinator_rules.check_known_sequence(self._stored(books), sequence)
            manifest = self._manifest(books, sequence)
            for cut in manifest.tasks:
                self._cut(books, cut)
            return manifest

    def state(self, reference: StateReference) -> bytes:
        """A snapshot. Raises ResetFailedError if it is not there, CorruptManifest if it is not what was stored."""
        with self.store.read() as books:
            return self._state(books, reference)

    def retire(self, up_to: int) -> tuple[int, ...]:
        """Delete checkpoints up to a sequence, except the newest, and the states that nothing needs then.

        While members run, the states stay until a later checkpoint deletes them. A member may have a state that it got
        by a hand-over, which is in no checkpoint yet.
        """
        with self.store.transaction() as books:
            record = self._stored(books)  # a late barrier is ended by methods with `max_consecutive_resets`
            before = record.complete
            now = self._now()
            running = any(one.here(now, self.lease_s) for one in record.members.values())
            record = self._retire(books, record, up_to, states=not running)
            self._keep(books, record)
            return tuple(one for one in before if one not in record.complete)

    def rewind(self, sequence: int) -> tuple[int, ...]:
        """Make the whole region go back to a checkpoint, or with 0 to its initial state. For operators: no member calls
        it.

        Later checkpoints are deleted, and their sequences returned. Running members follow, and a stopped region runs
        again. Raises ResetFailedError for a checkpoint that does not exist or cannot be read.
        """
        with self.store.transaction() as books:
            record, gone = coordinator_rules.rewound(self._known(books), sequence)
            if sequence:
                for cut in self._manifest(books, sequence).tasks:
                    self._cut(books, cut)
            for one in gone:
                books.delete(Key("manifest", self.group, _number(one)))
            self._forget_states(books, record)
            self._keep(books, record)
            return gone

    def forget(self, topics: Collection[str]) -> tuple[TopicPartition, ...]:
        """Let the region continue without deleted topics, from its newest checkpoint. Returns their partitions. For
        operators.

        A task that no member reads any more is dropped with its state at the next checkpoint. A topic that is read
        again counts as a new one. Raises ConfigurationError for a topic that the region has not read, and while members
        run.
        """
        with self.store.transaction() as books:
            record = self._known(books)
            before = None if record.newest is None else self._manifest(books, record.newest)
            record, gone, manifest = coordinator_rules.without(record, topics, self._now(), self.lease_s, before)
            if manifest is not None:
                books.put(Key("manifest", self.group, _number(manifest.sequence)), encode(manifest))
            self._keep(books, record)
            return gone

    def accept_store(self) -> str:
        """Accept the region as its store has it, and return its new lineage. For operators, after a store was lost or
        went back.

        Raises ConfigurationError while members run.
        """
        with self.store.transaction() as books:
            record = coordinator_rules.store_accepted(self._known(books), uuid.uuid4().hex, self._now(), self.lease_s)
            self._keep(books, record)
            return record.past.lineage

    def record(self) -> RegionRecord:
        """All that is known of the region, for people."""
        with self.store.read() as books:
            return self._stored(books)

    def watch(self) -> tuple[RegionRecord, MembershipView]:
        """Return the region's record and the view that members get: as `look`, but nothing is written."""
        record = self.record()
        return record, self._view(record)

    # --- inner

    def _changed(self, ticket: CheckpointTicket, change: Callable[[RegionRecord], RegionRecord]) -> MembershipView:
        with self.store.transaction() as books:
            return self._view(self._keep(books, change(self._known(books)), ticket))

    def _now(self) -> float:
        return self.store.clock() if self.clock is None else self.clock()

    def _record(self, books: StoreTransaction) -> RegionRecord | None:
        data = books.get(Key("region", self.group))
        if data is None:
            return None
        # Most looks find what the last one found. The bytes are compared, so this is never older than the store.
        if data != self._read[0]:
            self._read = (data, decode_record(data))
        return self._read[1]

    def _stored(self, books: StoreTransaction) -> RegionRecord:
        record = self._record(books)
        if record is None:
            raise NotRegisteredError(
                "the coordinator has no region of this name",
                region=self.region,
                group=self.group,
                hint="register a member",
            )
        return record

    def _known(self, books: StoreTransaction) -> RegionRecord:
        return coordinator_rules.expired(self._stored(books), self._now(), self.max_consecutive_resets)

    def _keep(
        self, books: StoreTransaction, record: RegionRecord, ticket: CheckpointTicket | None = None
    ) -> RegionRecord:
        """Write the record, which also renews the writer's lease. Unchanged values are not written, because a write is
        synced to the disk.
        """
        now = self._now()
        if ticket is not None and coordinator_rules.runs_low(record, ticket, now, self.lease_s):
            record = coordinator_rules.renewed(record, ticket, now, self.lease_s)
        if record is not self._read[1]:
            books.put(Key("region", self.group), encode_record(record))
        return record

    def _view(self, record: RegionRecord) -> MembershipView:
        return coordinator_rules.view(record, self._now())

    def _starts(
        self,
        books: StoreTransaction,
        record: RegionRecord,
        tasks: TaskPartitions,
        handed: Mapping[TaskId, TaskSnapshot],
        *,
        blocks_later: bool = False,
    ) -> dict[TaskId, TaskStart]:
        manifest = None if record.newest is None or not tasks else self._manifest(books, record.newest)
        if manifest is not None:
            coordinator_rules.check_covered(record, manifest)
        cuts = {one.task: one for one in manifest.tasks} if manifest else {}
        tasks_of = {place: task for task, one in cuts.items() for place in one.offsets}
        starts = {}
        for task, partitions in tasks.items():
            for partition in partitions:
                coordinator_rules.check_task(partition, task, tasks_of.get(partition, task))
            cut = handed.get(task) or cuts.get(task)
            places = starts_of(partitions, cut.offsets if cut else {}, record.initial)
            state = None if cut is None else self._cut(books, cut, blocks_later=blocks_later)
            due = (cut and cut.effects_of) or record.newest
            starts[task] = TaskStart(places, state, None if task in handed else due)
        return starts

    def _manifest(self, books: StoreTransaction, sequence: int) -> Manifest:
        data = books.get(Key("manifest", self.group, _number(sequence)))
        if data is None:
            raise ResetFailedError("the checkpoint's manifest is gone", sequence=sequence, region=self.region)
        return decode(data, region=self.region, group=self.group, sequence=sequence)

    def _put_states(self, books: StoreTransaction, cuts: Iterable[TaskState]) -> None:
        """Write what the store lacks. Raises ResetFailedError if it lacks a block that it had."""
        stored = frozenset(books.names("state", self.group))
        for cut in cuts:
            for reference, data in (Block.of(cut.state), *cut.blocks):
                if reference.digest in stored:
                    continue
                if data is None:
                    raise ResetFailedError("a block of the snapshot is gone from the store", digest=reference.digest)
                books.put(Key("state", self.group, reference.digest), data)

    def _cut(self, books: StoreTransaction, cut: TaskSnapshot, *, blocks_later: bool = False) -> TaskState:
        blocks = tuple(Block(one, None if blocks_later else self._state(books, one)) for one in cut.blocks)
        return TaskState(cut.offsets, self._state(books, cut.state), cut.version, blocks)

    def _state(self, books: StoreTransaction, reference: StateReference) -> bytes:
        state = books.get(Key("state", self.group, reference.digest))
        if state is None:
            raise ResetFailedError("the state that a checkpoint names is gone", digest=reference.digest)
        if StateReference.of(state) != reference:
            raise CorruptManifest("a stored state contradicts its digest", digest=reference.digest)
        return state

    def _retire(self, books: StoreTransaction, record: RegionRecord, up_to: int, *, states: bool) -> RegionRecord:
        record, gone = coordinator_rules.retire(record, up_to)
        if not gone:
            return record
        for sequence in gone:
            books.delete(Key("manifest", self.group, _number(sequence)))
        if states:
            self._forget_states(books, record)
        return record

    def _forget_states(self, books: StoreTransaction, record: RegionRecord) -> None:
        """Delete the states that no checkpoint needs."""
        try:
            needed = coordinator_rules.in_use((self._manifest(books, one) for one in record.complete), record)
        except ResetFailedError:
            return  # an old manifest is damaged: which states it needs is unknown, so all of them stay
        for digest in books.names("state", self.group):
            if digest not in needed:
                books.delete(Key("state", self.group, digest))


def _number(sequence: int) -> str:
    return f"{sequence:020d}"  # so that the store's order is the order of the numbers
