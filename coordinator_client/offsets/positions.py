"""Where each partition is read: one frozen state a partition, replaced at every event. No I/O, no clock.

A partition that is assigned walks NEEDS_COMMITTED (ask the coordinator) > NEEDS_RESET (no offset: ask ListOffsets, by
policy) > FETCHING, with NEEDS_VALIDATION whenever a new leader took over and might have a shorter log (KIP-320).

Every assignment, seek and reset gives the partition a new *serial*. Whatever was asked or fetched for an older serial
is void when it arrives: that is the fetch barrier, and the reason why no record from before a seek, revoke or loss can
surface after it.
"""

from collections.abc import Callable, Container, Iterable, Iterator
from enum import Enum
from itertools import count
from typing import Final, NamedTuple
from uuid import UUID

from kohort.common import KohortError, TopicPartition
from kohort.coordinator_client.errors import NoOffset, OffsetOutOfRange, Truncation
from kohort.coordinator_client.offsets.offset_reset import OffsetReset, ResetKind, ResetPolicy
from kohort.network.backoff import FRESH, Attempts
from kohort.network.errors import IllegalState, OperationTimeout
from kohort.network.group_types import OffsetAndMetadata
from kohort.network.metadata import NO_EPOCH, NO_TOPIC_ID, ClusterView
from kohort.network.offset_requests import EARLIEST, LATEST, EpochAsk, ListedOffset


class FetchState(Enum):
    """What a partition waits for."""

    NEEDS_COMMITTED = "needs committed offset"  # OffsetFetch is owed; ends with an offset or in NEEDS_RESET
    NEEDS_RESET = "needs reset"  # ListOffsets is owed for `reset_to`
    NEEDS_VALIDATION = "needs validation"  # OffsetForLeaderEpoch is owed to a new leader
    FETCHING = "fetching"  # `offset` is where the next record is read
    FAILED = "failed"  # an error was raised to the user; only a seek or a new assignment leads out


SOUGHT: Final = "seek"
OUTSIDE: Final = "the position is outside the log"
"""Reasons for a reset that also decide how it goes on; all others are text for the user."""

KNOWN: Final = frozenset({FetchState.FETCHING, FetchState.NEEDS_VALIDATION, FetchState.FAILED})
"""The phases in which an offset that is there is the position: also what cannot be read on has been read so far."""


class PartitionState(NamedTuple):
    """`offset` is the next record to hand out; `validated` the leader epoch under which it is known to exist.

    `epoch` is the newest leader epoch, if known, that the log up to `offset` contained: of the last record that was
    handed out, or as a broker named it beside the offset (OffsetFetch, ListOffsets, OffsetForLeaderEpoch).
    """

    phase: FetchState
    serial: int
    offset: int = -1
    epoch: int = NO_EPOCH
    validated: int = NO_EPOCH
    reset_to: int = LATEST
    wanted: int | None = None
    reason: str = ""
    asking: bool = False
    attempts: Attempts = FRESH


class Position(NamedTuple):
    """Where a partition is read, with what a later reader needs to find out whether it is still the same place.

    `leader_epoch` is that of the last record that was read, or the one that the broker named beside `offset` while no
    record has been read since. It is -1 where it is unknown. `seek` takes it, and finds a truncation by it (KIP-320).
    `topic_id` is zero from brokers before 2.8. A topic that was deleted and created again has another one.
    """

    offset: int
    leader_epoch: int = NO_EPOCH
    topic_id: UUID = NO_TOPIC_ID


class FetchPoint(NamedTuple):
    """From where the user has yet to read, and the serial that an answer must still match."""

    offset: int
    serial: int
    leader_epoch: int


class ListAsk(NamedTuple):
    """One partition of a ListOffsets request that is owed."""

    partition: TopicPartition
    timestamp: int
    serial: int
    leader_epoch: int


class _States(dict[TopicPartition, PartitionState]):
    """States by partition. `changed` names those that were set since it was last cleared."""

    def __init__(self) -> None:
        super().__init__()
        self.changed: set[TopicPartition] = set()

    def __setitem__(self, partition: TopicPartition, state: PartitionState) -> None:
        self.changed.add(partition)  # first, so that an interrupt between the two leaves no change unnoticed
        super().__setitem__(partition, state)


class Positions:
    """The partitions that are read, and where. `policy` decides when there is no offset to go by; `gone` hears of each
    partition whose log has no such place any more as it was read up to."""

    def __init__(self, policy: ResetPolicy, gone: Callable[[TopicPartition], None] = lambda _partition: None) -> None:
        self.policy = policy
        self._gone = gone
        self._states = _States()
        self._serials: Iterator[int] = count(1)
        self._errors: dict[TopicPartition, KohortError] = {}
        self._gaps: list[OffsetReset] = []

    # --- what is assigned

    def assign(
        self,
        partition: TopicPartition,
        *,
        start: int | None,
        has_group: bool,
        wall_ms: int,
        epoch: int = NO_EPOCH,
    ) -> None:
        """Begin to read: at `start`, or where the group committed, or by policy.

        `epoch`: the leader epoch of the record before `start`.
        """
        if start is not None:
            self._begin(partition, start, epoch)
        elif has_group:
            self._states[partition] = PartitionState(FetchState.NEEDS_COMMITTED, next(self._serials))
        else:
            self._reset(partition, None, "no offset was given", wall_ms)

    def drop(self, partition: TopicPartition) -> None:
        self._states.pop(partition, None)
        self._states.changed.discard(partition)
        self._errors.pop(partition, None)

    def __contains__(self, partition: TopicPartition) -> bool:
        return partition in self._states

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(self._states)

    def __len__(self) -> int:
        return len(self._states)

    def state(self, partition: TopicPartition) -> PartitionState:
        """Raises IllegalState if the partition is not assigned."""
        found = self._states.get(partition)
        if found is None:
            raise IllegalState(
                "the partition is not assigned", hint="see assignment", topic=partition[0], partition=partition[1]
            )
        return found

    def get(self, partition: TopicPartition) -> PartitionState | None:
        return self._states.get(partition)

    # --- moved by the user

    def seek(self, partition: TopicPartition, offset: int, epoch: int = NO_EPOCH) -> None:
        """Read on at `offset`; everything fetched before is void."""
        self.state(partition)
        self.clear_error((partition,))
        self._begin(partition, offset, epoch)

    def _begin(self, partition: TopicPartition, offset: int, epoch: int) -> None:
        phase = FetchState.FETCHING if epoch == NO_EPOCH else FetchState.NEEDS_VALIDATION
        self._states[partition] = PartitionState(phase, next(self._serials), offset, epoch)

    def seek_by_time(self, partition: TopicPartition, timestamp: int) -> None:
        """Read on at EARLIEST, LATEST or the first record not older than a time in ms, found out by asking."""
        self.state(partition)
        self.clear_error((partition,))
        self._states[partition] = PartitionState(
            FetchState.NEEDS_RESET, next(self._serials), reset_to=timestamp, reason=SOUGHT
        )

    def consumed(
        self,
        partition: TopicPartition,
        serial: int,
        next_offset: int,
        epoch: int = NO_EPOCH,
        fetched_under: int = NO_EPOCH,
    ) -> bool:
        """A slice was handed out: move behind it. False (and no move) if the barrier has voided it meanwhile.

        `leader_epoch_at_fetch`: the epoch of the leader that gave it. What a later one said of the old place says
        nothing of the new one.
        """
        state = self._states.get(partition)
        if state is None or state.serial != serial:
            return False
        kept = state.epoch if epoch == NO_EPOCH else epoch
        validated = state.validated if fetched_under == NO_EPOCH else min(state.validated, fetched_under)
        self._states[partition] = state._replace(offset=max(next_offset, state.offset), epoch=kept, validated=validated)
        return True

    # --- what may be fetched

    def point(self, partition: TopicPartition) -> FetchPoint | None:
        """Where to fetch, or None while that is not known."""
        state = self._states.get(partition)
        if state is None or state.phase is not FetchState.FETCHING:
            return None
        return FetchPoint(state.offset, state.serial, state.validated)

    def known_position(self, partition: TopicPartition) -> int | None:
        """The next offset to hand out, or None while it is being found out."""
        state = self.state(partition)
        return state.offset if state.phase in KNOWN and state.offset >= 0 else None

    def position_with_epoch(self, partition: TopicPartition, view: ClusterView) -> Position | None:
        """As `known_position`, with epoch and topic id; None also while nothing is known of the topic."""
        state, offset = self.state(partition), self.known_position(partition)
        if offset is None or partition.topic not in view.topics:
            return None
        return Position(offset, state.epoch, view.topic_id(partition.topic))

    def snapshot(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Every known position, as it would be committed."""
        return {
            partition: OffsetAndMetadata(state.offset, state.epoch)
            for partition, state in self._states.items()
            if state.phase in KNOWN and state.offset >= 0
        }

    def changes(self) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """The part of `snapshot` that may have changed since it was `noted`. None: the position is not known."""
        found: dict[TopicPartition, OffsetAndMetadata | None] = {}
        for partition in self._states.changed:
            state = self._states[partition]
            known = state.phase in KNOWN and state.offset >= 0
            found[partition] = OffsetAndMetadata(state.offset, state.epoch) if known else None
        return found

    def noted(self, changes: Iterable[TopicPartition]) -> None:
        """Leave these out of the next `changes`, unless they are set again."""
        self._states.changed.difference_update(changes)

    # --- committed offsets

    @property
    def needs_committed(self) -> bool:
        return any(state.phase is FetchState.NEEDS_COMMITTED for state in self._states.values())

    def owed_committed(self, now: float, saving: Container[TopicPartition] = ()) -> dict[TopicPartition, int]:
        """Partitions whose committed offset has to be asked for, each with its serial; they are marked as being asked
        about. Those in `saving` wait."""
        due = [partition for partition in self._due(FetchState.NEEDS_COMMITTED, now) if partition not in saving]
        owed = {partition: self._states[partition].serial for partition in due}
        self._mark(owed)
        return owed

    def is_current(self, partition: TopicPartition, serial: int) -> bool:
        """Whether nothing has happened to a partition since it had this serial."""
        state = self._states.get(partition)
        return state is not None and state.serial == serial

    def committed(self, partition: TopicPartition, found: OffsetAndMetadata | None, wall_ms: int) -> None:
        """The coordinator answered: an offset, or None where nothing is committed."""
        state = self._states.get(partition)
        if state is None or state.phase is not FetchState.NEEDS_COMMITTED:
            return
        if found is None:
            self._reset(partition, None, "nothing is committed", wall_ms)
            return
        phase = FetchState.FETCHING if found.leader_epoch == NO_EPOCH else FetchState.NEEDS_VALIDATION
        self._states[partition] = PartitionState(phase, state.serial, found.offset, found.leader_epoch)

    # --- resets

    def owed_lists(self, view: ClusterView, now: float) -> dict[int, list[ListAsk]]:
        """ListOffsets to send, by leader; partitions without a leader wait for metadata."""
        owed: dict[int, list[ListAsk]] = {}
        for partition in list(self._due(FetchState.NEEDS_RESET, now)):
            known = view.partition(partition)
            if known is None or known.leader not in view.brokers:
                continue
            state = self._states[partition]
            ask = ListAsk(partition, state.reset_to, state.serial, known.leader_epoch)
            owed.setdefault(known.leader, []).append(ask)
            self._mark((partition,))
        return owed

    def listed(self, ask: ListAsk, found: ListedOffset, wall_ms: int) -> None:
        """ListOffsets answered. No record as late as a given time: read what comes from now on."""
        state = self._states.get(ask.partition)
        if state is None or state.serial != ask.serial or state.phase is not FetchState.NEEDS_RESET:
            return
        if found.offset < 0 and state.reset_to not in (EARLIEST, LATEST):
            self._states[ask.partition] = state._replace(reset_to=LATEST, asking=False, attempts=FRESH)
            return
        undecided = self.policy.kind is ResetKind.NEAREST and state.reset_to == EARLIEST and state.reason == OUTSIDE
        if undecided and state.wanted is not None and found.offset <= state.wanted:
            # The broker did not say on which side of the log the position was; the log's start does.
            self._states[ask.partition] = state._replace(reset_to=LATEST, asking=False, attempts=FRESH)
            return
        self._states[ask.partition] = PartitionState(
            FetchState.FETCHING, state.serial, found.offset, found.leader_epoch, validated=ask.leader_epoch
        )
        if state.reason != SOUGHT:
            self._gaps.append(OffsetReset(ask.partition, state.wanted, found.offset, state.reason))

    def out_of_range(
        self, partition: TopicPartition, serial: int, offset: int, log_start: int | None, wall_ms: int
    ) -> None:
        """A leader said that `offset` is outside its log. Ignored if the position has moved meanwhile (E-07)."""
        state = self._states.get(partition)
        if state is None or state.serial != serial or state.offset != offset:
            return
        below = None if log_start is None or log_start < 0 else offset < log_start
        reason = {True: "the position is below the log's start", False: "the position is above the log's end"}
        self._reset(partition, offset, OUTSIDE if below is None else reason[below], wall_ms, below_start=below)

    # --- leader epochs (KIP-320)

    def owed_validations(self, view: ClusterView, now: float) -> dict[int, list[EpochAsk]]:
        """OffsetForLeaderEpoch to send, by leader. A new leader puts every position of known epoch up for it."""
        for partition, state in list(self._states.items()):
            known = view.partition(partition)
            if state.phase is not FetchState.FETCHING or known is None or known.leader_epoch <= state.validated:
                continue
            if state.epoch == NO_EPOCH or state.validated == NO_EPOCH:
                # Nothing was read under an older leader, so there is nothing that could have been cut.
                self._states[partition] = state._replace(validated=known.leader_epoch)
            else:
                self._states[partition] = state._replace(phase=FetchState.NEEDS_VALIDATION)
        owed: dict[int, list[EpochAsk]] = {}
        for partition in list(self._due(FetchState.NEEDS_VALIDATION, now)):
            known = view.partition(partition)
            if known is None or known.leader not in view.brokers:
                continue
            state = self._states[partition]
            if known.leader_epoch in (NO_EPOCH, state.epoch) or state.epoch == NO_EPOCH:
                # Within one epoch a log is never cut; without one there is nothing to compare.
                self._states[partition] = state._replace(phase=FetchState.FETCHING, validated=known.leader_epoch)
                continue
            ask = EpochAsk(partition, state.epoch, state.serial, known.leader_epoch)
            owed.setdefault(known.leader, []).append(ask)
            self._mark((partition,))
        return owed

    def validated(self, ask: EpochAsk, end_offset: int, end_epoch: int, wall_ms: int) -> None:
        """Handles an OffsetForLeaderEpoch response: a position beyond `end_offset` was cut off (KIP-320).

        `end_epoch` is the newest epoch of the leader's log that is not above `ask.epoch`; it ends at `end_offset`.
        Both are -1 (UNDEFINED) if `ask.epoch` is newer than all that the leader knows. The policy decides then.
        """
        state = self._states.get(ask.partition)
        if state is None or state.serial != ask.serial or state.phase is not FetchState.NEEDS_VALIDATION:
            return
        if state.epoch != ask.epoch:
            # What had been fetched before was read on meanwhile, into a later epoch, of which the answer says nothing.
            self._states[ask.partition] = state._replace(asking=False, attempts=FRESH)
        elif end_offset < 0 or end_epoch < 0:
            # UNDEFINED: the epoch is newer than all that the leader's log contains, so this is not the log that was
            # read, and it is not known up to where the two agree.
            self._reset_unknown(ask.partition, state, wall_ms)
        elif end_offset < state.offset:
            self._truncated(ask.partition, state, end_offset, end_epoch, ask.leader_epoch, wall_ms)
        else:
            self._states[ask.partition] = state._replace(
                phase=FetchState.FETCHING, validated=ask.leader_epoch, asking=False, attempts=FRESH
            )

    def skip_validation(self, ask: EpochAsk) -> None:
        """A broker too old to be asked: read on, as clients did before KIP-320."""
        state = self._states.get(ask.partition)
        if state is not None and state.serial == ask.serial and state.phase is FetchState.NEEDS_VALIDATION:
            self._states[ask.partition] = state._replace(
                phase=FetchState.FETCHING, validated=ask.leader_epoch, asking=False, attempts=FRESH
            )

    def diverged(
        self,
        partition: TopicPartition,
        serial: int,
        end_offset: int,
        end_epoch: int,
        leader_epoch: int,
        wall_ms: int,
    ) -> None:
        """A Fetch response of the leader of `leader_epoch` named the end of the common log (KIP-595)."""
        state = self._states.get(partition)
        if state is None or state.serial != serial:
            return
        if end_offset < state.offset:
            self._truncated(partition, state, end_offset, end_epoch, leader_epoch, wall_ms)
        else:
            self.invalidate(partition)  # the position is sound; what was fetched beyond it is not

    # --- trying again, and what surfaced

    def ask_failed(self, partitions: Iterable[TopicPartition], attempts: Attempts) -> None:
        """Whatever was being asked about these has failed in a retriable way."""
        for partition in partitions:
            state = self._states.get(partition)
            if state is not None and state.asking:
                self._states[partition] = state._replace(asking=False, attempts=attempts)

    def fail(self, partition: TopicPartition, error: KohortError, *, adrift: bool = False) -> None:
        """An error that only the user can resolve: it surfaces in the next poll, and the partition rests.

        `adrift`: the log has no such place any more, so there is no position either, and nothing to commit.
        """
        state = self._states.get(partition)
        if state is None:
            return
        failed = state._replace(phase=FetchState.FAILED, serial=next(self._serials), asking=False)
        self._states[partition] = failed._replace(offset=-1, epoch=NO_EPOCH) if adrift else failed
        self._errors[partition] = error
        if adrift:
            self._gone(partition)

    def invalidate(self, partition: TopicPartition) -> None:
        """Give up what was fetched and fetch again from the position."""
        state = self._states.get(partition)
        if state is not None:
            self._states[partition] = state._replace(serial=next(self._serials), asking=False)

    def clear_error(self, partitions: Iterable[TopicPartition]) -> None:
        """The user has said where to read these: what kept them from being read is settled."""
        for partition in partitions:
            self._errors.pop(partition, None)

    @property
    def error_is_due(self) -> bool:
        """There is one to take."""
        return bool(self._errors)

    def take_error(self) -> KohortError | None:
        return self._errors.pop(next(iter(self._errors))) if self._errors else None

    def take_gaps(self) -> list[OffsetReset]:
        gaps, self._gaps = self._gaps, []
        return gaps

    def next_poll_at(self) -> list[float]:
        """When each thing that has failed may be tried again (s, monotonic)."""
        return [
            state.attempts.not_before
            for state in self._states.values()
            if state.attempts.failures and not state.asking and state.phase is not FetchState.FETCHING
        ]

    @property
    def settling(self) -> bool:
        """Whether any partition is not being fetched yet."""
        return any(state.phase not in (FetchState.FETCHING, FetchState.FAILED) for state in self._states.values())

    # --- inner

    def _due(self, phase: FetchState, now: float) -> Iterator[TopicPartition]:
        for partition, state in self._states.items():
            if state.phase is phase and not state.asking and state.attempts.may_try(now):
                yield partition

    def _mark(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            self._states[partition] = self._states[partition]._replace(asking=True)

    def _truncated(
        self,
        partition: TopicPartition,
        state: PartitionState,
        end_offset: int,
        end_epoch: int,
        leader_epoch: int,
        wall_ms: int,
    ) -> None:
        """The leader of `leader_epoch` has another log than the one that was read, from `end_offset` on."""
        if self.policy.timestamp(wall_ms, below_start=False) is None:
            self._fail_truncated(partition, state, end_offset)
            return
        self._states[partition] = PartitionState(
            FetchState.FETCHING, next(self._serials), end_offset, end_epoch, validated=leader_epoch
        )
        self._gaps.append(OffsetReset(partition, state.offset, end_offset, "the log was truncated"))
        self._gone(partition)

    def _reset_unknown(self, partition: TopicPartition, state: PartitionState, wall_ms: int) -> None:
        """The leader does not know the position's epoch: the policy decides, since no common offset is known."""
        if self.policy.timestamp(wall_ms, below_start=None) is None:
            self._fail_truncated(partition, state, None)
        else:
            self._reset(partition, state.offset, "the leader's log does not contain the position's epoch", wall_ms)

    def _fail_truncated(self, partition: TopicPartition, state: PartitionState, end_offset: int | None) -> None:
        error = Truncation(
            "the log was cut behind the position"
            if end_offset is not None
            else "the leader's log does not contain the leader epoch of the position",
            hint="records that were read no longer exist; seek() to go on, or set auto_offset_reset",
            topic=partition.topic,
            partition=partition.partition,
            offset=state.offset,
            leader_epoch=state.epoch,
            diverges_at=end_offset,
        )
        self.fail(partition, error, adrift=True)

    def _reset(
        self,
        partition: TopicPartition,
        wanted: int | None,
        reason: str,
        wall_ms: int,
        *,
        below_start: bool | None = None,
    ) -> None:
        timestamp = self.policy.timestamp(wall_ms, below_start=below_start)
        if wanted is not None:
            self._gone(partition)
        self._states[partition] = PartitionState(
            FetchState.NEEDS_RESET,
            next(self._serials),
            reset_to=LATEST if timestamp is None else timestamp,
            wanted=wanted,
            reason=reason,
        )
        if timestamp is None:
            self.fail(partition, _no_policy(partition, wanted, reason))


def unknown_position(partition: TopicPartition) -> OperationTimeout:
    return OperationTimeout(
        "the position is not known yet", hint="poll first", topic=partition[0], partition=partition[1]
    )


def _no_policy(partition: TopicPartition, wanted: int | None, reason: str) -> KohortError:
    kind = NoOffset if wanted is None else OffsetOutOfRange
    return kind(
        reason,
        hint="seek() to where to read, or set auto_offset_reset",
        topic=partition.topic,
        partition=partition.partition,
        offset=wanted,
    )
