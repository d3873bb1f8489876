"""A coordinator's decisions: pure functions from a region's record and a request to the next record.

Every coordinator runs these functions, with one transaction for each call, on any store. The rules:

* Every write has the writer's incarnation, and most writes its epoch. Writes of an older incarnation are rejected
  (`FencedError`).
* A checkpoint begins if every present member is in the region's epoch and reports the same group generation, and these
  members own every partition together. Its barrier names them. It ends without a manifest if one of them reports
  another generation, restarts, or a reset begins. All contributions are therefore cuts of one assignment, in which
  every partition has one owner.
* A checkpoint is complete when each member of the barrier has contributed, and no partition that the region ever owned
  is missing.
* A member is present while its lease runs. Every write renews the lease, and so does an occasional look. The lease ends
  when the member leaves, or when it expires. An absent member has no partitions, but a state: its last contribution is
  part of every manifest until the member returns under its name. Its work after that contribution was undone when its
  partitions moved. So no checkpoint waits for an absent member, and no state is lost.
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
    FencedError,
    InconsistentCheckpointError,
    NotRegisteredError,
    RegionStopped,
    ResetFailedError,
)
from kohort.consistent_region.manifest import Contribution, Manifest, merged
from kohort.consistent_region.offsets import Positions, RegionPosition
from kohort.consistent_region.region_record import CLOCKS_APART_S, MemberRecord, RegionRecord

NO_EPOCH = -1
NO_GENERATION = -1


def created(region: str, group: str, now: float, lineage: str) -> RegionRecord:
    """A region without registered members."""
    return RegionRecord(region=region, group=group, last_at=now, past=StorePast(lineage))


def register(record: RegionRecord, region: str, member: str) -> tuple[RegionRecord, CheckpointTicket, bool]:
    """The member's next incarnation, and whether it has a past to take up. Ends a barrier that named the last one.

    Raises ConfigurationError if the group belongs to another region, RegionStopped if this one was stopped.
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
    before = record.members.get(member)
    past = before is not None or record.newest is not None
    known = MemberRecord(
        incarnation=before.incarnation + 1 if before else 1,
        epoch=NO_EPOCH if past else record.epoch,
        generation=NO_GENERATION,
        owned=0,
        since=before.since if before else record.next_sequence,
    )
    # The barrier would wait for the previous process. If its manifest completed after this process had read an older
    # one, the manifest would have effects that this process lacks.
    record = _memory_gone(_abandon(replace(record, members={**record.members, member: known})), member)
    return record, CheckpointTicket(region, record.group, member, known.incarnation), past


def deregister(record: RegionRecord, ticket: CheckpointTicket) -> RegionRecord:
    """Record a clean stop of the member. Its state stays part of every checkpoint."""
    known = _known(record, ticket)
    gone = known._replace(epoch=NO_EPOCH, generation=NO_GENERATION, owned=0, lease_deadline=0.0)
    return _memory_gone(_abandon(replace(record, members={**record.members, ticket.member: gone})), ticket.member)


def renewed(record: RegionRecord, ticket: CheckpointTicket, now: float, lease_s: float) -> RegionRecord:
    """Renew the member's lease. Raises NotRegisteredError, FencedError."""
    known = _known(record, ticket)._replace(lease_deadline=now + lease_s, lease_s=lease_s)
    return replace(record, members={**record.members, ticket.member: known})


def lease_left_s(record: RegionRecord, ticket: CheckpointTicket, now: float, lease_s: float) -> float:
    """The time (s) for which the member counts as here. Raises NotRegisteredError, FencedError."""
    known = _known(record, ticket)
    return known.lease_deadline - now if known.here(now, lease_s) else 0.0


def view(record: RegionRecord, now: float) -> MembershipView:
    """The view of the region that members get."""
    # `now` is before `last_at` only after a restart of the clock. The age is unknown then, and counts as 0.
    age_s = max(now - record.last_at, 0.0)
    return MembershipView(record.epoch, record.newest, record.barrier, age_s, record.stopped, record.past)


def expired(record: RegionRecord, now: float, max_resets: int) -> RegionRecord:
    """A barrier that waits past its deadline is a failed checkpoint: the region resets, and that counts."""
    if now < record.last_at - CLOCKS_APART_S:
        # The clock was restarted. Until it reaches its old value, no period and no deadline would pass.
        return replace(_abandon(record), last_at=now)
    if record.barrier is None or now < record.deadline:
        return record
    return _new_epoch(record, f"checkpoint {record.barrier.sequence} was not complete in time", False, None, max_resets)


def report(record: RegionRecord, ticket: CheckpointTicket, generation: int, owned: int) -> RegionRecord:
    """The member has so many partitions of `generation` now. Ends a barrier of any other."""
    known = _known(record, ticket)._replace(generation=generation, owned=owned)
    record = replace(record, members={**record.members, ticket.member: known})
    if record.barrier is not None and record.barrier.generation != generation:
        record = _abandon(record)
    return record


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
    known = _known(record, ticket)
    _check_running(record)
    if epoch < record.epoch:
        return record
    if generation is not None and generation == record.reset_generation and ticket.member not in record.moved:
        # The member goes back alone, within this epoch, because no other member has the records of its partitions in
        # its state. Until then it is not in the epoch, so that no checkpoint begins.
        record = _abandon(replace(record, members={**record.members, ticket.member: known._replace(epoch=NO_EPOCH)}))
        return hand_over.forgotten(record, ticket.member)
    return _new_epoch(record, reason, forced, generation, max_resets)


def go_back(
    record: RegionRecord,
    ticket: CheckpointTicket,
    generation: int,
    owned: int,
    holds: Collection[TopicPartition] | None = None,
) -> RegionRecord:
    """Join the member to the region's epoch. It goes back to the checkpoint that it reads in the same transaction.

    `holds`: the member's partitions, if partitions are handed over. If other members have read them further in this
    epoch, the epoch ends, and all members go back.
    """
    known = _known(record, ticket)
    _check_running(record)
    if holds is not None:
        if hand_over.conflict(record, ticket, holds):
            record = _new_epoch(record, "a member that goes back has what others have read", True, None, 1)
        record = hand_over.holding(record, ticket, holds)
    joined = known._replace(epoch=record.epoch, generation=generation, owned=owned)
    return replace(record, members={**record.members, ticket.member: joined})


def check_named(record: RegionRecord, ticket: CheckpointTicket, manifest: Manifest) -> None:
    """Raises ResetFailedError if the member should be part of the checkpoint and is not (CR-62).

    One that registered after it was begun has no state in it, and starts with its initial one.
    """
    if manifest.of(ticket.member) is None and record.members[ticket.member].since <= manifest.sequence:
        raise ResetFailedError(
            "the checkpoint holds no contribution of this member", member=ticket.member, sequence=manifest.sequence
        )


def begin_checkpoint(
    record: RegionRecord, ticket: CheckpointTicket, epoch: int, now: float, timeout_s: float, lease_s: float
) -> RegionRecord:
    """Return the record with a barrier, or unchanged if there is a barrier or partitions of present members move."""
    known = _known(record, ticket)
    _check_running(record)
    if record.barrier is not None or epoch != record.epoch:
        return record
    here = {name: one for name, one in record.members.items() if one is known or one.here(now, lease_s)}
    if not here.keys() >= set(record.moved):
        return _new_epoch(record, "a member is gone that had handed over, or taken", True, None, 1)
    generations = {one.generation for one in here.values()}
    if any(one.epoch != record.epoch for one in here.values()):
        return record
    if len(generations) != 1 or NO_GENERATION in generations:
        return record
    if sum(one.owned for one in here.values()) < len(record.initial):
        return record  # an absent member has partitions of this generation: wait for the next generation
    barrier = Barrier(record.next_sequence, record.epoch, generations.pop(), tuple(sorted(here)))
    return replace(
        record,
        barrier=barrier,
        contributions=(),
        deadline=now + timeout_s,
        last_at=now,
        next_sequence=record.next_sequence + 1,
    )


def contribute(
    record: RegionRecord,
    ticket: CheckpointTicket,
    barrier: Barrier,
    contribution: Contribution,
    now: float,
    before: Manifest | None = None,
) -> tuple[RegionRecord, Manifest | None]:
    """Add a contribution. The last one completes the checkpoint and returns its manifest.

    `before`: the newest manifest. It has the states of members that the barrier does not name.

    Raises BarrierOver if the barrier is over (nothing was written). Raises InconsistentCheckpointError if the
    contributions contradict each other: that checkpoint can never complete (`failed`).
    """
    _known(record, ticket)
    if record.barrier != barrier or contribution.member != ticket.member:
        raise BarrierOver("the barrier is over", member=ticket.member, sequence=barrier.sequence, epoch=barrier.epoch)
    if any(one.member == ticket.member for one in record.contributions):
        return record, None  # the response was lost, and the request was sent again
    taken: dict[TopicPartition, str] = {tp: one.member for one in record.contributions for tp in one.offsets}
    for partition in contribution.offsets:
        if partition in taken:
            raise InconsistentCheckpointError(
                "two members contributed the same partition",
                topic=partition.topic,
                partition=partition.partition,
                members=f"{taken[partition]},{ticket.member}",
                sequence=barrier.sequence,
            )
    contributions = (*record.contributions, contribution)
    record = replace(record, contributions=contributions)
    if len(contributions) < len(barrier.members):
        return record, None
    carried = _carried(barrier, before)
    manifest = merged(
        region=record.region,
        group=record.group,
        sequence=barrier.sequence,
        epoch=barrier.epoch,
        generation=barrier.generation,
        members=(*barrier.members, *(one.member for one in carried)),
        contributions=(*contributions, *carried),
        ever_owned=record.initial,
    )
    # A period counts from here: one that is shorter than what a checkpoint takes must leave time for records, too.
    return replace(_completed(_abandon(record), manifest), failures=0, moved=(), last_at=now), manifest


def absent(record: RegionRecord, barrier: Barrier) -> bool:
    """True if there are members that the barrier does not wait for."""
    return not record.members.keys() <= set(barrier.members)


def failed(record: RegionRecord, reason: str, max_resets: int) -> RegionRecord:
    """The checkpoint under way can never complete: go back, and count it."""
    return _new_epoch(record, reason, False, None, max_resets)


def put_initial(record: RegionRecord, ticket: CheckpointTicket, positions: Positions) -> RegionRecord:
    """Set the initial offsets of partitions. Existing ones are kept (I7)."""
    _known(record, ticket)
    for partition, position in positions.items():
        if position.offset < 0:
            raise ValueError(f"an initial offset is not negative: {partition} -> {position.offset}")
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
    begun = _new_epoch(record, "an operator went back", True, None, 1)
    # Of these numbers, any may be in a committed offset. None is used again.
    past = replace(record.past, voided_up_to=record.next_sequence - 1)
    return replace(begun, complete=kept, past=past), gone


def store_accepted(record: RegionRecord, lineage: str, now: float, lease_s: float) -> RegionRecord:
    """Give the region, as its store has it, a new lineage, so that evidence of others does not count. For operators.

    Raises ConfigurationError while members are present.
    """
    _check_none_here(record, now, lease_s)
    begun = _new_epoch(record, "an operator accepted the store", True, None, 1)
    return replace(begun, past=StorePast(lineage, accepted=True))


def without(
    record: RegionRecord, topics: Collection[str], now: float, lease_s: float, before: Manifest | None
) -> tuple[RegionRecord, tuple[TopicPartition, ...], Manifest | None]:
    """Remove topics from the region. Their effects on the state remain. For operators.

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
    record = replace(_new_epoch(record, "an operator had a topic forgotten", True, None, 1), initial=left)
    if before is None:
        return record, gone, None
    parts = tuple(_narrowed(one, left) for one in before.contributions)
    manifest = replace(before, sequence=record.next_sequence, epoch=record.epoch, contributions=parts)
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
    """Digests of the states that a checkpoint, or the one under way, still needs."""
    parts = [*(part for one in manifests for part in one.contributions), *record.contributions]
    return frozenset(part.state.digest for part in parts)


def _known(record: RegionRecord, ticket: CheckpointTicket) -> MemberRecord:
    known = record.members.get(ticket.member)
    if known is None:
        raise NotRegisteredError(
            "the member is not registered at the coordinator", member=ticket.member, hint="register it"
        )
    if known.incarnation != ticket.incarnation:
        raise FencedError(
            "another process has started under this member's name",
            hint="a member's name belongs to one process at a time",
            member=ticket.member,
            incarnation=ticket.incarnation,
            newest=known.incarnation,
        )
    return known


def _completed(record: RegionRecord, manifest: Manifest) -> RegionRecord:
    # An absent member without a state in the manifest starts from its initial state.
    members = {
        name: one if name in manifest.members else one._replace(since=manifest.sequence + 1)
        for name, one in record.members.items()
    }
    return replace(record, complete=(*record.complete, manifest.sequence), members=members)


def _narrowed(part: Contribution, left: Positions) -> Contribution:
    offsets = {one: at for one, at in part.offsets.items() if one in left}
    return part if len(offsets) == len(part.offsets) else replace(part, offsets=offsets, carried=part.taken_at)


def _memory_gone(record: RegionRecord, member: str) -> RegionRecord:
    """Handle the loss of the member's state since the checkpoint. Where others read on from there, all go back."""
    if member in record.moved:
        return _new_epoch(record, "a member is gone that had handed over, or taken", True, None, 1)
    return hand_over.forgotten(record, member)


def _carried(barrier: Barrier, before: Manifest | None) -> tuple[Contribution, ...]:
    parts = before.contributions if before is not None else ()
    gone = (one for one in parts if one.member not in barrier.members)
    return tuple(replace(one, offsets={}, carried=one.taken_at) for one in gone)


def _check_running(record: RegionRecord) -> None:
    if record.stopped is not None:
        raise RegionStopped("the region was stopped", reason=record.stopped, region=record.region)


def _abandon(record: RegionRecord) -> RegionRecord:
    return replace(record, barrier=None, contributions=(), deadline=0.0)


def _new_epoch(
    record: RegionRecord, reason: str, forced: bool, generation: int | None, max_resets: int
) -> RegionRecord:
    failures = 0 if forced else record.failures + 1
    stopped = f"{failures} resets in a row: {reason}" if failures >= max_resets else None
    return replace(
        _abandon(record),
        epoch=record.epoch + 1,
        failures=failures,
        stopped=stopped,
        reset_generation=record.reset_generation if generation is None else generation,
        held={},
        handed={},
        moved=(),
    )
