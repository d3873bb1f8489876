"""Positions of partitions, as immutable states that are replaced at every event.

No I/O, no clock. An assigned partition goes from NEEDS_COMMITTED (OffsetFetch) to FETCHING, with NEEDS_RESET
(ListOffsets, by policy) between them if there is no offset. A new leader, whose log may be shorter, leads to
NEEDS_VALIDATION (KIP-320).

Every assignment, seek and reset gives the partition a new *serial*. A response to a request with an older serial is
dropped. This is the fetch barrier. It ensures that no record from before a seek, revocation or loss is returned after
it.
"""

from collections.abc import Callable, Container, Iterable, Iterator
from enum import Enum
from itertools import count
from typing import Final
from uuid import UUID

from kohort.common import KohortError, TopicPartition
from kohort.common.named_tuple import NamedTuple
from kohort.coordinator_client.errors import NoOffset, OffsetOutOfRange, Truncation
from kohort.coordinator_client.offset_reset import OffsetReset, ResetKind, ResetPolicy
from kohort.coordinator_client.offsets._partition_states import PartitionStates
from kohort.network.backoff import FRESH, Attempts
from kohort.network.errors import IllegalState, OperationTimeout
from kohort.network.group_types import OffsetAndMetadata
from kohort.network.metadata import NO_EPOCH, NO_TOPIC_ID, ClusterView
from kohort.network.offset_requests import EARLIEST, LATEST, EpochLookup, ListedOffset


class FetchState(Enum):
    """The phases of a partition."""

    NEEDS_COMMITTED = "needs committed offset"  # OffsetFetch is due; ends with an offset or in NEEDS_RESET
    NEEDS_RESET = "needs reset"  # ListOffsets is due for `reset_to`
    NEEDS_VALIDATION = "needs validation"  # OffsetForLeaderEpoch is due to a new leader
    FETCHING = "fetching"  # `offset` is the next record to read
    FAILED = "failed"  # an error was raised to the user; only a seek or a new assignment ends this phase


SOUGHT: Final = "seek"
OUTSIDE: Final = "the position is outside the log"
"""Reasons for a reset that also decide how it goes on; all others are text for the user."""

KNOWN: Final = frozenset({FetchState.FETCHING, FetchState.NEEDS_VALIDATION, FetchState.FAILED})
"""The phases in which `offset` is the position. A FAILED partition keeps the position that it has reached."""


class PartitionState(NamedTuple):
    """The state of one partition.

    `offset` is the next record to return. `validated` is the leader epoch under which the offset is known to exist.

    `epoch` is the newest leader epoch, if known, of the log up to `offset`. It is that of the last record returned, or
    the one that a broker sent with the offset (OffsetFetch, ListOffsets, OffsetForLeaderEpoch).
    """

    phase: FetchState
    serial: int
    offset: int = -1
    epoch: int = NO_EPOCH
    validated: int = NO_EPOCH
    reset_to: int = LATEST
    wanted: int | None = None
    reason: str = ""
    in_flight: bool = False
    attempts: Attempts = FRESH


class Position(NamedTuple):
    """The position of a partition, with leader epoch and topic id to detect a changed log.

    `leader_epoch` is that of the last record that was read. If no record has been read, it is the one that the broker
    sent with `offset`. It is -1 if unknown. `seek` accepts it, and detects a truncation by it (KIP-320). `topic_id` is
    zero from brokers before 2.8. A topic that was deleted and created again has another one.
    """

    offset: int
    leader_epoch: int = NO_EPOCH
    topic_id: UUID = NO_TOPIC_ID


class ListOffsetsLookup(NamedTuple):
    """One partition of a ListOffsets request that is due."""

    partition: TopicPartition
    timestamp: int
    serial: int
    leader_epoch: int


SETTLED: Final = frozenset({FetchState.FETCHING, FetchState.FAILED})
"""The phases in which no request is due for a position, but for a new leader."""


class Positions:
    """The partitions that are read, and their positions.

    `policy` applies if there is no offset. `gone` is called with each partition whose log was truncated or recreated
    below the position. `last_timestamps`: the timestamps (ms) of the last records that were returned, -1 without one.
    `errors`: the errors that poll has yet to raise. `failures`: the errors of all FAILED partitions.
    """

    def __init__(self, policy: ResetPolicy, gone: Callable[[TopicPartition], None] = lambda _partition: None) -> None:
        self.policy = policy
        self._gone = gone
        self.states = PartitionStates(SETTLED)
        self._serials: Iterator[int] = count(1)
        self.errors: dict[TopicPartition, KohortError] = {}
        self.failures: dict[TopicPartition, KohortError] = {}
        self.last_timestamps: dict[TopicPartition, int] = {}
        self._gaps: list[OffsetReset] = []
        self._checked_view: ClusterView | None = None

    # --- assignment

    def assign(
        self,
        partition: TopicPartition,
        *,
        start: int | None,
        has_group: bool,
        wall_ms: int,
        epoch: int = NO_EPOCH,
    ) -> None:
        """Start reading at `start`, at the committed offset, or by policy.

        `epoch`: the leader epoch of the record before `start`.
        """
        if start is not None:
            self._begin(partition, next(self._serials), start, epoch)
        elif has_group:
            self.states[partition] = PartitionState(FetchState.NEEDS_COMMITTED, next(self._serials))
        else:
            self._reset(partition, None, "no offset was given", wall_ms)

    def drop(self, partition: TopicPartition) -> None:
        """Forget a partition, with its error and the time of its last record."""
        self.states.drop(partition)
        self.clear_error((partition,))
        self.last_timestamps.pop(partition, None)

    def __contains__(self, partition: TopicPartition) -> bool:
        return partition in self.states

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(self.states)

    def __len__(self) -> int:
        return len(self.states)

    @property
    def revision(self) -> int:
        """It grows with each change of a state, unless it is fetched as before."""
        return self.states.revision

    def state(self, partition: TopicPartition) -> PartitionState:
        """The state of a partition. Raises IllegalState if the partition is not assigned."""
        found = self.states.get(partition)
        if found is None:
            raise IllegalState(
                "the partition is not assigned",
                hint="assign() it, or poll until the group has assigned it",
                topic=partition[0],
                partition=partition[1],
            )
        return found

    def get(self, partition: TopicPartition) -> PartitionState | None:
        """The state of a partition, or None if it is not assigned."""
        return self.states.get(partition)

    # --- moved by the user

    def seek(self, partition: TopicPartition, offset: int, epoch: int = NO_EPOCH) -> None:
        """Continue at `offset`; records fetched before are dropped."""
        self._leave(partition)
        self._begin(partition, next(self._serials), offset, epoch)

    def _leave(self, partition: TopicPartition) -> None:
        self.state(partition)
        self.clear_error((partition,))
        self.last_timestamps.pop(partition, None)

    def _begin(self, partition: TopicPartition, serial: int, offset: int, epoch: int) -> None:
        phase = FetchState.FETCHING if epoch == NO_EPOCH else FetchState.NEEDS_VALIDATION
        self.states[partition] = PartitionState(phase, serial, offset, epoch)

    def seek_by_time(self, partition: TopicPartition, timestamp: int) -> None:
        """Continue at EARLIEST, LATEST or the first record not older than a time in ms.

        The offset is found with ListOffsets.
        """
        self._leave(partition)
        self.states[partition] = PartitionState(
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
        """Advance the position after a slice was returned. False, without a change, if its serial is outdated.

        `fetched_under`: the leader epoch of the request. A validation by a newer leader applied to the previous
        position, so it does not cover the new one.
        """
        return self.states.consumed(partition, serial, next_offset, epoch, fetched_under)

    # --- fetching

    def point(self, partition: TopicPartition) -> PartitionState | None:
        """The state of a partition that is fetched from its offset; None while that is unknown."""
        state = self.states.get(partition)
        return state if state is not None and state.phase is FetchState.FETCHING else None

    def known_position(self, partition: TopicPartition) -> int | None:
        """The next offset to return; None while it is unknown."""
        state = self.state(partition)
        return state.offset if state.phase in KNOWN and state.offset >= 0 else None

    def position_with_epoch(self, partition: TopicPartition, view: ClusterView) -> Position | None:
        """As `known_position`, with epoch and topic id; None also without metadata of the topic."""
        state, offset = self.state(partition), self.known_position(partition)
        if offset is None or partition.topic not in view.topics:
            return None
        return Position(offset, state.epoch, view.topic_id(partition.topic))

    def snapshot(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Every known position, as it would be committed."""
        return {
            partition: OffsetAndMetadata(state.offset, state.epoch)
            for partition, state in self.states.items()
            if state.phase in KNOWN and state.offset >= 0
        }

    def changes(self) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """The part of `snapshot` that may have changed since it was `noted`. None: the position is not known."""
        found: dict[TopicPartition, OffsetAndMetadata | None] = {}
        for partition in self.states.changed:
            state = self.states[partition]
            known = state.phase in KNOWN and state.offset >= 0
            found[partition] = OffsetAndMetadata(state.offset, state.epoch) if known else None
        return found

    def noted(self, changes: Iterable[TopicPartition]) -> None:
        """Leave these out of the next `changes`, unless they are set again."""
        self.states.changed.difference_update(changes)

    def needs_lookup(self, view: ClusterView) -> bool:
        """True if a request for a position may be due, or a retry may be awaited."""
        return bool(self.states.unsettled or self.states.unchecked) or view is not self._checked_view

    # --- committed offsets

    @property
    def needs_committed(self) -> bool:
        """True if a partition waits for its committed offset."""
        return any(self.states[partition].phase is FetchState.NEEDS_COMMITTED for partition in self.states.unsettled)

    def owed_committed(
        self, view: ClusterView, now: float, saving: Container[TopicPartition] = ()
    ) -> dict[TopicPartition, int]:
        """Partitions to request with OffsetFetch, each with its serial. They are marked as in flight.

        Those in `saving` wait, and those of a topic without metadata: its id keeps offsets of a deleted topic out.
        """
        due = [
            partition
            for partition in self._due(FetchState.NEEDS_COMMITTED, now)
            if partition not in saving and not view.may_appear(partition.topic)
        ]
        owed = {partition: self.states[partition].serial for partition in due}
        self._mark(owed)
        return owed

    def is_current(self, partition: TopicPartition, serial: int) -> bool:
        """True if the partition still has this serial."""
        state = self.states.get(partition)
        return state is not None and state.serial == serial

    def committed(self, partition: TopicPartition, found: OffsetAndMetadata | None, wall_ms: int) -> None:
        """Handle an OffsetFetch response: an offset, or None if nothing is committed."""
        state = self.states.get(partition)
        if state is None or state.phase is not FetchState.NEEDS_COMMITTED:
            return
        if found is None:
            self._reset(partition, None, "nothing is committed", wall_ms)
        else:
            self._begin(partition, state.serial, found.offset, found.leader_epoch)

    # --- resets

    def owed_lists(self, view: ClusterView, now: float) -> dict[int, list[ListOffsetsLookup]]:
        """ListOffsets to send, by leader; partitions without a leader wait for metadata."""
        owed: dict[int, list[ListOffsetsLookup]] = {}
        for partition in list(self._due(FetchState.NEEDS_RESET, now)):
            known = view.partition(partition)
            if known is None or known.leader not in view.brokers:
                continue
            state = self.states[partition]
            lookup = ListOffsetsLookup(partition, state.reset_to, state.serial, known.leader_epoch)
            owed.setdefault(known.leader, []).append(lookup)
            self._mark((partition,))
        return owed

    def listed(self, lookup: ListOffsetsLookup, found: ListedOffset) -> None:
        """Handle a ListOffsets response. If no record is as late as the requested time, continue at LATEST."""
        state = self._awaiting(lookup, FetchState.NEEDS_RESET)
        if state is None:
            return
        none_as_late = found.offset < 0 and state.reset_to not in (EARLIEST, LATEST)
        # OFFSET_OUT_OF_RANGE does not show on which side of the log the position was. The log's start decides.
        undecided = self.policy.kind is ResetKind.NEAREST and state.reset_to == EARLIEST and state.reason == OUTSIDE
        if none_as_late or (undecided and state.wanted is not None and found.offset <= state.wanted):
            self.states[lookup.partition] = state._replace(reset_to=LATEST, in_flight=False, attempts=FRESH)
            return
        self.states[lookup.partition] = PartitionState(
            FetchState.FETCHING, state.serial, found.offset, found.leader_epoch, validated=lookup.leader_epoch
        )
        if state.reason != SOUGHT:
            self._gaps.append(OffsetReset(lookup.partition, state.wanted, found.offset, state.reason))

    def out_of_range(
        self, partition: TopicPartition, serial: int, offset: int, log_start: int | None, wall_ms: int
    ) -> None:
        """Handle OFFSET_OUT_OF_RANGE from the leader. Ignored if the position has moved meanwhile (E-07)."""
        state = self.states.get(partition)
        if state is None or state.serial != serial or state.offset != offset:
            return
        below = None if log_start is None or log_start < 0 else offset < log_start
        reason = {True: "the position is below the log's start", False: "the position is above the log's end"}
        self._reset(partition, offset, OUTSIDE if below is None else reason[below], wall_ms, below_start=below)

    # --- leader epochs (KIP-320)

    def owed_validations(self, view: ClusterView, now: float) -> dict[int, list[EpochLookup]]:
        """OffsetForLeaderEpoch to send, by leader. A new leader triggers it for every position of known epoch."""
        # With the same metadata, only a position that has changed may be older than its leader.
        unchecked = list(self.states.unchecked if view is self._checked_view else self.states)
        self._checked_view = view
        self.states.unchecked.clear()
        for partition in unchecked:
            state, known = self.states[partition], view.partition(partition)
            if state.phase is not FetchState.FETCHING or known is None or known.leader_epoch <= state.validated:
                continue
            if state.epoch == NO_EPOCH or state.validated == NO_EPOCH:
                # No record was read under an older leader, so no record can have been truncated.
                self.states.advance(partition, state._replace(validated=known.leader_epoch))
            else:
                self.states[partition] = state._replace(phase=FetchState.NEEDS_VALIDATION)
        owed: dict[int, list[EpochLookup]] = {}
        for partition in list(self._due(FetchState.NEEDS_VALIDATION, now)):
            known = view.partition(partition)
            if known is None or known.leader not in view.brokers:
                continue
            state = self.states[partition]
            if known.leader_epoch in (NO_EPOCH, state.epoch) or state.epoch == NO_EPOCH:
                # Within one epoch a log is never truncated; without an epoch there is nothing to compare.
                self.states[partition] = state._replace(phase=FetchState.FETCHING, validated=known.leader_epoch)
                continue
            lookup = EpochLookup(partition, state.epoch, state.serial, known.leader_epoch)
            owed.setdefault(known.leader, []).append(lookup)
            self._mark((partition,))
        return owed

    def validated(self, lookup: EpochLookup, end_offset: int, end_epoch: int, wall_ms: int) -> None:
        """Handle an OffsetForLeaderEpoch response.

        A position beyond `end_offset` was truncated (KIP-320). `end_epoch` is the newest epoch of the leader's log that
        is not above the epoch of the request. It ends at `end_offset`. Both are -1 (UNDEFINED) if that epoch is newer
        than every epoch of the leader's log. The policy applies then.
        """
        state = self._awaiting(lookup, FetchState.NEEDS_VALIDATION)
        if state is None:
            return
        if state.epoch != lookup.epoch:
            # Records buffered before were polled meanwhile, up to a later epoch. The response does not cover it.
            self.states[lookup.partition] = state._replace(in_flight=False, attempts=FRESH)
        elif end_offset < 0 or end_epoch < 0:
            # UNDEFINED: the epoch is newer than every epoch of the leader's log. It is not the log that was read, and
            # the end of their common part is unknown.
            self._reset_unknown(lookup.partition, state, wall_ms)
        elif end_offset < state.offset:
            self._truncated(lookup.partition, state, end_offset, end_epoch, lookup.leader_epoch, wall_ms)
        else:
            self.take_as_valid(lookup)

    def take_as_valid(self, lookup: EpochLookup) -> None:
        """Take the position as valid. Also for a broker that does not support the request (as before KIP-320)."""
        state = self._awaiting(lookup, FetchState.NEEDS_VALIDATION)
        if state is not None:
            self.states[lookup.partition] = state._replace(
                phase=FetchState.FETCHING, validated=lookup.leader_epoch, in_flight=False, attempts=FRESH
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
        """Handle a diverging epoch in a Fetch response of the leader of `leader_epoch` (KIP-595).

        `end_offset` is the end of the common log.
        """
        state = self.states.get(partition)
        if state is None or state.serial != serial:
            return
        if end_offset < state.offset:
            self._truncated(partition, state, end_offset, end_epoch, leader_epoch, wall_ms)
        else:
            self.invalidate(partition)  # the position is valid; records fetched beyond it are not

    # --- retries and errors

    def lookup_failed(self, partitions: Iterable[TopicPartition], attempts: Attempts) -> None:
        """Handle a retriable failure of the requests in flight for these partitions."""
        for partition in partitions:
            state = self.states.get(partition)
            if state is not None and state.in_flight:
                self.states[partition] = state._replace(in_flight=False, attempts=attempts)

    def fail(self, partition: TopicPartition, error: KohortError, *, adrift: bool = False) -> None:
        """Set an error that only the user can resolve.

        The next poll raises it, and the partition is not fetched. `adrift`: the log was truncated or recreated below
        the position, so there is no position and nothing to commit.
        """
        state = self.states.get(partition)
        if state is None:
            return
        failed = state._replace(phase=FetchState.FAILED, serial=next(self._serials), in_flight=False)
        self.states[partition] = failed._replace(offset=-1, epoch=NO_EPOCH) if adrift else failed
        self.errors[partition] = self.failures[partition] = error
        if adrift:
            self._gone(partition)

    def invalidate(self, partition: TopicPartition) -> None:
        """Drop what was fetched and fetch again from the position."""
        state = self.states.get(partition)
        if state is not None:
            self.states[partition] = state._replace(serial=next(self._serials), in_flight=False)

    def clear_error(self, partitions: Iterable[TopicPartition]) -> None:
        """Clear the errors of partitions whose position the user has set."""
        for partition in partitions:
            self.errors.pop(partition, None)
            self.failures.pop(partition, None)

    def take_error(self) -> KohortError | None:
        """Remove the error of one partition, and return it. None if there is no error."""
        return self.errors.pop(next(iter(self.errors))) if self.errors else None

    def take_gaps(self) -> list[OffsetReset]:
        """Return the resets since the last call."""
        gaps, self._gaps = self._gaps, []
        return gaps

    def next_poll_at(self) -> list[float]:
        """Times (monotonic s) of the next retries."""
        unsettled = (self.states[partition] for partition in self.states.unsettled)
        return [state.attempts.not_before for state in unsettled if state.attempts.failures and not state.in_flight]

    # --- inner

    def _due(self, phase: FetchState, now: float) -> Iterator[TopicPartition]:
        for partition in self.states.unsettled:
            state = self.states[partition]
            if state.phase is phase and not state.in_flight and state.attempts.may_try(now):
                yield partition

    def _awaiting(self, lookup: ListOffsetsLookup | EpochLookup, phase: FetchState) -> PartitionState | None:
        """The state of which a request was made; None if it is not in this phase any more, or has moved."""
        state = self.states.get(lookup.partition)
        return state if state is not None and state.serial == lookup.serial and state.phase is phase else None

    def _mark(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            self.states[partition] = self.states[partition]._replace(in_flight=True)

    def _truncated(
        self,
        partition: TopicPartition,
        state: PartitionState,
        end_offset: int,
        end_epoch: int,
        leader_epoch: int,
        wall_ms: int,
    ) -> None:
        """Handle a truncation: the log of `leader_epoch`'s leader differs from `end_offset` on."""
        if self.policy.timestamp(wall_ms, below_start=False) is None:
            self._fail_truncated(partition, state, end_offset)
            return
        self.states[partition] = PartitionState(
            FetchState.FETCHING, next(self._serials), end_offset, end_epoch, validated=leader_epoch
        )
        self._gaps.append(OffsetReset(partition, state.offset, end_offset, "the log was truncated"))
        self._gone(partition)

    def _reset_unknown(self, partition: TopicPartition, state: PartitionState, wall_ms: int) -> None:
        """Handle a leader that does not have the position's epoch.

        No common offset is known, so the policy applies.
        """
        if self.policy.timestamp(wall_ms, below_start=None) is None:
            self._fail_truncated(partition, state, None)
        else:
            self._reset(partition, state.offset, "the leader's log does not contain the position's epoch", wall_ms)

    def _fail_truncated(self, partition: TopicPartition, state: PartitionState, end_offset: int | None) -> None:
        error = Truncation(
            "the log was cut behind the position"
            if end_offset is not None
            else "the leader's log does not contain the leader epoch of the position",
            hint="seek() to a valid offset, or set auto_offset_reset",
            **partition._asdict(),
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
        self.states[partition] = PartitionState(
            FetchState.NEEDS_RESET,
            next(self._serials),
            reset_to=LATEST if timestamp is None else timestamp,
            wanted=wanted,
            reason=reason,
        )
        if timestamp is None:
            self.fail(partition, _no_policy(partition, wanted, reason))


def unknown_position(partition: TopicPartition) -> OperationTimeout:
    """The error of a call that needs a position which is not known yet."""
    return OperationTimeout(
        "the position is not known yet", hint="poll first", topic=partition[0], partition=partition[1]
    )


def _no_policy(partition: TopicPartition, wanted: int | None, reason: str) -> KohortError:
    kind = NoOffset if wanted is None else OffsetOutOfRange
    return kind(
        reason,
        hint="seek() to where to read, or set auto_offset_reset",
        **partition._asdict(),
        offset=wanted,
    )
