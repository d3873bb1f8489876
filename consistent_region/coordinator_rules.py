"""A coordinator's decisions: pure functions from a region's record and a request to the next record.

Every coordinator runs these functions, with one transaction for each call, on any store. The rules:

* Every write has the writer's incarnation, and most writes its epoch. Writes of another incarnation are rejected
  (`FencedError`).
* A checkpoint begins if present members, in the region's epoch and in one group generation, own every partition
  together. Its barrier names them. It ends without a manifest if one of them reports
  another generation, restarts, takes a task, or a reset begins. All contributions are therefore cuts of one assignment,
  in which every task has one owner.
* A checkpoint is complete when each member of the barrier has contributed its tasks, and no partition that the region
  ever owned is missing.
* A member is present while its lease runs. Every write renews the lease, and so does an occasional look. The lease ends
  when the member leaves, or when it expires. No checkpoint waits for an absent member, nor for one whose partitions
  others have by now. Its record is deleted after a time. States belong to tasks, and the next owner of a task takes its
  state.
* A reset is a new epoch. Requests of many members for one rebalance are one reset. Requests after the first name an
  older epoch, or a generation that has already had its reset.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType

from kohort.common.topic_partition import TopicPartition
from kohort.consistent_region import hand_over
from kohort.consistent_region.checkpoint_barrier import Barrier, CheckpointTicket, MembershipView, StorePast
from kohort.consistent_region.errors import (
    BarrierOver,
    ConfigurationError,
    RegionStopped,
    ResetFailedError,
    StateVersionError,
    TaskTaken,
)
from kohort.consistent_region.manifest import Manifest, TaskSnapshot, merged
from kohort.consistent_region.offsets import Positions, RegionPosition
from kohort.consistent_region.region_record import CLOCKS_APART_S, MemberRecord, RegionRecord
from kohort.consistent_region.tasks import TaskId
from kohort.consistent_region.witness import continued

NO_EPOCH = -1
NO_GENERATION = -1
FORGOTTEN_AFTER_S = 600.0
RENEWED_BELOW = 2 / 3


def created(region: str, group: str, now: float, lineage: str) -> RegionRecord:
    """A region without registered members."""
    return RegionRecord(region=region, group=group, last_at=now, past=StorePast(lineage))


def register(
    record: RegionRecord, region: str, member: str, version: int, incarnation: int, now: float, lease_s: float
) -> tuple[RegionRecord, CheckpointTicket, bool]:
    """A registration of the member, and whether it has a past to take up. Ends a barrier that named the last one.

    Raises ConfigurationError if the group belongs to another region, and RegionStopped if this one was stopped. Raises
    StateVersionError while members whose states have another version are present.
    """
    if record.region != region:
        raise ConfigurationError(
            "the group is in another consistent region already",
            hint="give each region a group of its own",
            group=record.group,
            region=record.region,
            wanted=region,
        )
    _check_running(record)
    members = {name: one for name, one in record.members.items() if not _over(one, now, lease_s)}
    for name, one in members.items():
        if name != member and one.version != version and one.here(now, lease_s):
            raise StateVersionError(
                "members of another state_version are present",
                hint="stop them first, or give this member their state_version",
                member=name,
                version=one.version,
                wanted=version,
            )
    before = members.get(member)
    past = before is not None or record.newest is not None
    known = MemberRecord(
        incarnation=incarnation,
        epoch=NO_EPOCH if past else record.epoch,
        generation=NO_GENERATION,
        owned=0,
        version=version,
    )
    # The barrier would wait for the previous process. If its manifest completed after this process had read an older
    # one, the manifest would have effects that this process lacks.
    members[member] = known
    record = replace(record, members=members).without_barrier()
    return hand_over.released(record, member), CheckpointTicket(region, record.group, member, incarnation), past


def deregister(record: RegionRecord, ticket: CheckpointTicket, now: float) -> RegionRecord:
    """Record a clean stop of the member. Its tasks stay at the newest checkpoint, or where it handed them over."""
    known = record.member(ticket)
    gone = known._replace(epoch=NO_EPOCH, generation=NO_GENERATION, owned=0, lease_deadline=now)
    record = record.with_member(ticket, gone).without_barrier()
    return hand_over.released(record, ticket.member)


def renewed(record: RegionRecord, ticket: CheckpointTicket, now: float, lease_s: float) -> RegionRecord:
    """Renew the member's lease. Raises NotRegisteredError, FencedError."""
    known = record.member(ticket)._replace(lease_deadline=now + lease_s, lease_s=lease_s)
    return record.with_member(ticket, known)


def runs_low(record: RegionRecord, ticket: CheckpointTicket, now: float, lease_s: float) -> bool:
    """True if the member's lease is to be renewed. Raises NotRegisteredError, FencedError."""
    known = record.member(ticket)
    return not known.here(now, lease_s) or known.lease_deadline - now < lease_s * RENEWED_BELOW


def view(record: RegionRecord, now: float) -> MembershipView:
    """The view of the region that members get."""
    # `now` is before `last_at` only after a restart of the clock. The age is unknown then, and counts as 0.
    age_s = max(now - record.last_at, 0.0)
    return MembershipView(record.epoch, record.newest, record.barrier, age_s, record.stopped, record.past)


def expired(record: RegionRecord, now: float, max_resets: int) -> RegionRecord:
    """A barrier that waits past its deadline is a failed checkpoint: the region resets, and that counts."""
    if now < record.last_at - CLOCKS_APART_S:
        # The clock was restarted. Until it reaches its old value, no period and no deadline would pass.
        return replace(record.without_barrier(), last_at=now)
    if record.barrier is None or now < record.deadline:
        return record
    return new_epoch(record, f"checkpoint {record.barrier.sequence} was not complete in time", max_resets)


def report(record: RegionRecord, ticket: CheckpointTicket, generation: int, owned: int) -> RegionRecord:
    """The member has so many partitions of `generation` now. Ends a barrier of any other."""
    known = record.member(ticket)
    reported = known._replace(generation=generation, owned=owned)
    if reported != known:
        record = record.with_member(ticket, reported)
    if record.barrier is not None and record.barrier.generation != generation:
        record = record.without_barrier()
    return record if owned else hand_over.released(record, ticket.member, leaving=True)


def request_reset(
    record: RegionRecord,
    ticket: CheckpointTicket,
    epoch: int,
    reason: str,
    *,
    forced: bool,
    generation: int | None,
    max_resets: int,
) -> RegionRecord:
    """Begin a new epoch, unless the request's epoch is over, or its generation has had its reset already."""
    known = record.member(ticket)
    _check_running(record)
    if epoch < record.epoch:
        return record
    if generation is not None and generation == record.reset_generation:
        # The member goes back alone, within this epoch. Until then it is not in the epoch, so that no checkpoint
        # begins.
        record = record.with_member(ticket, known._replace(epoch=NO_EPOCH)).without_barrier()
        return hand_over.released(record, ticket.member)
    return new_epoch(record, reason, max_resets, forced=forced, generation=generation)


def go_back(record: RegionRecord, ticket: CheckpointTicket, tasks: Iterable[TaskId]) -> RegionRecord:
    """Join the member to the region's epoch, in no generation.

    Its tasks go back to the checkpoint that it reads in the same transaction.
    """
    known = record.member(ticket)
    _check_running(record)
    joined = known._replace(epoch=record.epoch, generation=NO_GENERATION, owned=0)
    record = record.with_member(ticket, joined).without_barrier()
    return hand_over.holding(hand_over.released(record, ticket.member), ticket, tasks)


def begin_checkpoint(
    record: RegionRecord, ticket: CheckpointTicket, epoch: int, now: float, timeout_s: float, lease_s: float
) -> RegionRecord:
    """Return the record with a barrier of the members in this generation, if they own all partitions together.

    Unchanged if there is a barrier, or if partitions move. Members without partitions are not waited for. A region
    without any partition has no checkpoint: it would drop the states that a forgotten topic left to the next owners.
    """
    known = record.member(ticket)
    _check_running(record)
    if record.barrier is not None or epoch != record.epoch:
        return record
    own = (record.epoch, known.generation)
    ready = {
        name: one
        for name, one in record.members.items()
        if (one is known or one.here(now, lease_s)) and (one.epoch, one.generation) == own
    }
    # A static member that was killed is replaced within the generation. Its record stays until its lease ends.
    holders = {ticket.member, *record.held.values()}
    replaced = {name for name, one in ready.items() if one.owned and name not in holders}
    least = max(1, len(record.initial))
    if _owned(ready, replaced) >= least:
        ready = {name: one for name, one in ready.items() if name not in replaced}
    if known.generation == NO_GENERATION or _owned(ready) < least:
        return record  # another member has partitions of this generation, or they are moving
    barrier = Barrier(record.next_sequence, record.epoch, known.generation, tuple(sorted(ready)))
    return replace(
        record,
        barrier=barrier,
        contributed=(),
        tasks=(),
        deadline=now + timeout_s,
        last_at=now,
        next_sequence=record.next_sequence + 1,
    )


def contribute(
    record: RegionRecord, ticket: CheckpointTicket, barrier: Barrier, tasks: Collection[TaskSnapshot], now: float
) -> tuple[RegionRecord, Manifest | None]:
    """Add a member's tasks. The last member completes the checkpoint, and its manifest is returned.

    Raises BarrierOver if the barrier is over, and TaskTaken if a task has another owner: nothing is written. Raises
    InconsistentCheckpointError if the
    contributions contradict each other: that checkpoint can never complete (`new_epoch`).
    """
    record.member(ticket)
    if record.barrier != barrier or ticket.member not in barrier.members:
        raise BarrierOver("the barrier is over", member=ticket.member, sequence=barrier.sequence, epoch=barrier.epoch)
    if ticket.member in record.contributed:
        return record, None  # the response was lost, and the request was sent again
    for one in tasks:
        if (holder := record.held.get(one.task)) != ticket.member:
            raise TaskTaken("another member has started the task", task=str(one.task), holder=holder)
    record = replace(record, contributed=(*record.contributed, ticket.member), tasks=(*record.tasks, *tasks))
    all_in = len(record.contributed) == len(barrier.members)
    place = (record.region, record.group, barrier.sequence, barrier.epoch, barrier.generation)
    manifest = merged(Manifest(*place, record.tasks), record.initial if all_in else ())
    if not all_in:
        return record, None
    # A period counts from here: one that is shorter than what a checkpoint takes must leave time for records, too.
    return replace(
        _completed(record.without_barrier(), manifest), failures=0, handed={}, leaving={}, last_at=now
    ), manifest


def put_initial(record: RegionRecord, ticket: CheckpointTicket, positions: Positions) -> RegionRecord:
    """Set the initial offsets of partitions. Existing ones are kept (I7).

    New ones end a barrier under way. They are in no contribution of members that do not know the assignment yet.
    """
    record.member(ticket)
    for partition, position in positions.items():
        if position.offset < 0:
            raise ValueError(f"an initial offset is not negative: {partition} -> {position.offset}")
    if positions.keys() - record.initial.keys():
        record = record.without_barrier()
    initial: Mapping[TopicPartition, RegionPosition] = {**positions, **record.initial}
    return replace(record, initial=MappingProxyType(dict(sorted(initial.items()))))


def retire(record: RegionRecord, up_to: int) -> tuple[RegionRecord, tuple[int, ...]]:
    """Retire checkpoints up to `up_to`, but never the newest. Also returns the retired ones."""
    gone = tuple(one for one in record.complete[:-1] if one <= up_to)
    kept = tuple(one for one in record.complete if one not in gone)
    return replace(record, complete=kept, retired_up_to=max([record.retired_up_to, *gone])), gone


def rewound(record: RegionRecord, sequence: int) -> tuple[RegionRecord, tuple[int, ...]]:
    """Make `sequence` the newest checkpoint (0: the initial state), to which all members go back. For operators.

    A stopped region runs again. Also returns the later sequences, which are deleted. Raises ResetFailedError for a
    checkpoint that was retired or never existed.
    """
    if sequence:
        check_known_sequence(record, sequence)
    gone = tuple(one for one in record.complete if one > sequence)
    kept = tuple(one for one in record.complete if one <= sequence)
    begun = new_epoch(record, "an operator went back", forced=True)
    # Of these numbers, any may be in a committed offset. None is used again.
    past = replace(record.past, voided_up_to=record.next_sequence - 1)
    return replace(begun, complete=kept, covered=0, past=past), gone


def store_accepted(record: RegionRecord, lineage: str, now: float, lease_s: float) -> RegionRecord:
    """Give the region, as its store has it, a new lineage, so that evidence of others does not count. For operators.

    Raises ConfigurationError while members are present.
    """
    _check_none_here(record, now, lease_s)
    begun = new_epoch(record, "an operator accepted the store", forced=True)
    return replace(begun, past=StorePast(continued(record.past.lineage, record.newest or 0, lineage), accepted=True))


def without(
    record: RegionRecord, topics: Collection[str], now: float, lease_s: float, before: Manifest | None
) -> tuple[RegionRecord, tuple[TopicPartition, ...], Manifest | None]:
    """Remove topics from the region. Their effects remain in the states of tasks that are read again. For operators.

    All members go back to a checkpoint equal to the newest one, `before`, without the partitions of these topics. Also
    returns those partitions. Raises ConfigurationError for a topic that the region has not read. Also raises it while
    members are present, because they would read records since the checkpoint again.
    """
    place = {"region": record.region, "group": record.group}
    known = {one.topic for one in record.initial}
    if strange := sorted(set(topics) - known):
        hint = f"its topics are {', '.join(sorted(known)) or 'none yet'}"
        raise ConfigurationError("the region has not read this topic", hint=hint, topic=", ".join(strange), **place)
    _check_none_here(record, now, lease_s)
    gone = tuple(one for one in record.initial if one.topic in topics)
    left = MappingProxyType({one: at for one, at in record.initial.items() if one.topic not in topics})
    record = replace(new_epoch(record, "an operator had a topic forgotten", forced=True), initial=left)
    if before is None:
        return record, gone, None
    # The effects of `before` may have been carried out, under its number.
    tasks = tuple(
        replace(
            one,
            offsets={place: at for place, at in one.offsets.items() if place in left},
            effects_of=one.effects_of or before.sequence,
        )
        for one in before.tasks
    )
    manifest = replace(before, sequence=record.next_sequence, epoch=record.epoch, tasks=tasks)
    return replace(_completed(record, manifest), next_sequence=manifest.sequence + 1), gone, manifest


def _check_none_here(record: RegionRecord, now: float, lease_s: float) -> None:
    if here := sorted(name for name, one in record.members.items() if one.here(now, lease_s)):
        raise ConfigurationError(
            "members of the region run",
            hint="stop all members first; a killed member counts until its lease ends",
            members=", ".join(here),
            region=record.region,
            group=record.group,
        )


def check_covered(record: RegionRecord, manifest: Manifest) -> None:
    """Raises ResetFailedError if the newest checkpoint lacks a task that it had (CR-62).

    Partitions that were added later are in no checkpoint, and start at their initial offsets.
    """
    if len(manifest.offsets) < record.covered:
        raise ResetFailedError(
            "the checkpoint lacks tasks that it had",
            sequence=manifest.sequence,
            partitions=len(manifest.offsets),
            covered=record.covered,
        )


def check_task(partition: TopicPartition, task: TaskId, before: TaskId) -> None:
    """Raise ConfigurationError if the checkpoint has the partition in another task than the member's settings."""
    if task != before:
        raise ConfigurationError(
            "the checkpoint has the partition in another task",
            hint="a region keeps its setting tasks=; another one is for another group",
            setting="tasks",
            task=str(task),
            before=str(before),
            **partition._asdict(),
        )


def check_known_sequence(record: RegionRecord, sequence: int) -> None:
    """Raise ResetFailedError for a checkpoint that was retired or never existed (CR-54)."""
    if sequence not in record.complete:
        was = "was retired" if sequence <= record.retired_up_to else "is not known"
        raise ResetFailedError(
            f"checkpoint {sequence} {was}",
            hint=f"there are {', '.join(map(str, record.complete)) or 'none'}",
            region=record.region,
        )


def in_use(manifests: Iterable[Manifest], record: RegionRecord) -> frozenset[str]:
    """Digests of the states that a checkpoint, the one under way, or the next owner of a task still needs."""
    cuts = [*(cut for one in manifests for cut in one.tasks), *record.tasks, *record.handed.values()]
    return frozenset(one.digest for cut in cuts for one in cut.references)


def _owned(members: Mapping[str, MemberRecord], but: Collection[str] = ()) -> int:
    return sum(one.owned for name, one in members.items() if name not in but)


def _completed(record: RegionRecord, manifest: Manifest) -> RegionRecord:
    return replace(record, complete=(*record.complete, manifest.sequence), covered=len(manifest.offsets))


def _over(member: MemberRecord, now: float, lease_s: float) -> bool:
    """True if the member was absent for so long that its group has expelled it, too."""
    return not member.here(now, lease_s) and not now - FORGOTTEN_AFTER_S < member.lease_deadline <= now


def _check_running(record: RegionRecord) -> None:
    if record.stopped is not None:
        raise RegionStopped("the region was stopped", reason=record.stopped, region=record.region)


def new_epoch(
    record: RegionRecord, reason: str, max_resets: int = 1, *, forced: bool = False, generation: int | None = None
) -> RegionRecord:
    """Have all members go back. Stops the region after `max_resets` in a row, of which those `forced` do not count."""
    failures = 0 if forced else record.failures + 1
    stopped = f"{failures} resets in a row: {reason}" if failures >= max_resets else None
    return replace(
        record.without_barrier(),
        epoch=record.epoch + 1,
        failures=failures,
        stopped=stopped,
        reset_generation=record.reset_generation if generation is None else generation,
        held={},
        handed={},
        leaving={},
    )
