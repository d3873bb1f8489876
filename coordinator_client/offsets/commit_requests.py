"""Makes the automatic commits of a consumer, sends and settles all its commits, and calls their callbacks."""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import islice
from math import inf
from typing import Final
from uuid import UUID

from kohort.common import KohortError, TopicPartition, WireError
from kohort.common.named_tuple import NamedTuple
from kohort.coordinator_client.consumer_context import ConsumerContext
from kohort.coordinator_client.consumer_metadata import ConsumerMetadata
from kohort.coordinator_client.errors import CommitRewind, TopicRecreated
from kohort.coordinator_client.group.events import CommitRefused, CommitSettled
from kohort.coordinator_client.group.ready import CommitOrder, MemberView
from kohort.coordinator_client.offsets.fenced_commit_queue import (
    NOT_THE_COORDINATOR,
    UNKNOWN_OUTCOME,
    Commit,
    CommitQueue,
    OnDone,
)
from kohort.coordinator_client.offsets.positions import Positions
from kohort.coordinator_client.subscription_state import AssignedPartitions
from kohort.network.error_mapping import group_error
from kohort.network.errors import AuthorizationFailed, CommitFailed, IllegalState, UnknownTopic
from kohort.network.find_coordinator import CoordinatorNode
from kohort.network.frame_reader import LENGTH_BYTES
from kohort.network.group_types import OffsetAndMetadata
from kohort.network.metadata import NO_TOPIC_ID
from kohort.network.notices import Notice
from kohort.network.offset_requests import BEFORE_TOPIC_IDS, plain
from kohort.network.promise import Promise
from kohort.network.request_manager import earliest
from kohort.network.request_versions import fit
from kohort.network.requests import (
    NOTHING_FOLLOWS,
    USUAL_BYTES,
    NoResponse,
    PendingRequest,
    PollResult,
    RequestResult,
    ResponseReceived,
    SendFailed,
    UnsentRequest,
)
from kohort.protocol.catalogue import API
from kohort.protocol.errors import ErrorCode, error_name
from kohort.protocol.wire import read_response

SAMPLE = 20
OFFSET_COMMIT = API["OffsetCommit"]

RENEWAL_S: Final = 300.0
"""Time (s) between renewals: automatic commits of offsets that were not stored since the last renewal.

An unchanged offset is thus stored every 10 minutes. Brokers expire offsets by their age (`offsets.retention.minutes`),
except in a live group that subscribes to the topic (KIP-211).
"""


class AutoCommitState:
    """Tracks offsets to commit automatically, and detects backward commits.

    `on_poll()` is called at the start of each poll. Only records returned by *earlier* polls count as handled, never
    the batch that the user is still working on (S-04). It receives only changes, so its cost does not grow with the
    number of partitions.
    """

    def __init__(self, interval_s: float | None) -> None:
        self.interval_s = interval_s
        self._committed: dict[TopicPartition, int] = {}
        self._handled: dict[TopicPartition, OffsetAndMetadata] = {}
        self._renewed: set[TopicPartition] = set()  # stored since the last renewal
        self._renew_at = 0.0
        self._next = 0.0

    def on_poll(self, changes: Mapping[TopicPartition, OffsetAndMetadata | None]) -> None:
        """Record the positions reached by earlier polls. None: the position is unknown. Repeating a call is safe."""
        if self.interval_s is not None:
            for partition, found in changes.items():
                if found is None:
                    self._handled.pop(partition, None)
                else:
                    self._handled[partition] = found
            self._next = 0.0 if self._next == inf else self._next

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Record a commit of the caller, which replaces what earlier polls have reached.

        Otherwise an automatic commit would move it back, since the last poll's records do not count as handled.
        """
        for partition in self._handled.keys() & offsets.keys():
            self._handled[partition] = offsets[partition]._replace(metadata="")

    def pause(self) -> None:
        """Suspend automatic commits until the next poll: close waits until no commit is in flight."""
        self._next = inf

    def due(self, now: float) -> dict[TopicPartition, OffsetAndMetadata]:
        """Offsets to commit automatically now; empty before the interval has passed."""
        if self.interval_s is None or now < self._next:
            return {}
        self._next = now + self.interval_s
        if now < self._renew_at:
            return self.uncommitted()
        self._renew_at = now + RENEWAL_S
        due = self.unrenewed()
        self._renewed.clear()
        return due

    def next_poll_at(self) -> float | None:
        return None if self.interval_s is None or self._next == inf else self._next

    def uncommitted(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Offsets handled and not committed, for a rebalance and for close.

        Empty unless commits are automatic.
        """
        return {
            partition: found for partition, found in self._handled.items() if self._committed.get(partition) != found[0]
        }

    def unrenewed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """As `uncommitted`, with the offsets that were not stored since the last renewal."""
        return self.uncommitted() | {one: to for one, to in self._handled.items() if one not in self._renewed}

    def backward_commits(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> dict[TopicPartition, int]:
        """Partitions that a commit would move backwards, with the committed offset."""
        return {
            partition: self._committed[partition]
            for partition, found in offsets.items()
            if found.offset < self._committed.get(partition, -1)
        }

    def committed(self, partition: TopicPartition) -> int | None:
        """The committed offset, as far as it is known."""
        return self._committed.get(partition)

    def known(self, stored: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Record committed offsets that were read from the coordinator."""
        for partition, found in stored.items():
            self._committed[partition] = found.offset

    def renewed(self, stored: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Record committed offsets that the coordinator has stored."""
        self.known(stored)
        self._renewed.update(stored)

    def drop(self, partition: TopicPartition) -> None:
        """Remove a partition that is no longer read, or whose log was replaced.

        An offset of the old log must not be committed again, and must not block a commit in the new log.
        """
        self._committed.pop(partition, None)
        self._handled.pop(partition, None)
        self._renewed.discard(partition)


class PlannedCommit(NamedTuple):
    """Offsets to commit, with the assignment epochs and topic ids at the time of the call."""

    wanted: dict[TopicPartition, OffsetAndMetadata]
    epochs: Mapping[TopicPartition, int]
    topic_ids: Mapping[TopicPartition, UUID]


class CommitRequestManager:
    """Handles the commits of a consumer; used under the driver's lock.

    `topic_ids` are the ids of the topics that were read. `membership` returns the membership that fences a commit, and
    None without one. `is_quiet` returns False if the end of a commit may concern other parts. `report` passes on errors
    that no call raises.
    """

    def __init__(
        self,
        context: ConsumerContext,
        cluster: ConsumerMetadata,
        book: AutoCommitState,
        positions: Positions,
        topic_ids: Mapping[str, UUID],
        assignment: Callable[[], AssignedPartitions],
        membership: Callable[[], MemberView | None],
        is_quiet: Callable[[], bool],
        report: Callable[[Notice], None],
    ) -> None:
        self._context = context
        self._cluster = cluster
        self.queue = CommitQueue(context.config.group or "", context.backoff, context.metadata, self._on_settled)
        self._book = book
        self._positions = positions
        self._topic_ids = topic_ids
        self._assignment = assignment
        self._membership = membership
        self._is_quiet = is_quiet
        self._report = report
        self.callbacks: deque[Callable[[], object]] = deque()  # the caller's thread takes them
        self._calls: dict[TopicPartition, deque[Commit]] = {}
        self._ended: dict[Commit, Callable[[], object]] = {}
        self._automatic: dict[Commit, None] = {}
        self._automatic_is_late = False
        self._reported: dict[TopicPartition, int] = {}
        self._dropped: dict[TopicPartition, int] = {}
        self._coordinator: CoordinatorNode | None = None  # the last one that was known

    def poll(self, now: float) -> PollResult:
        """Return the request that is due, and fail commits past their deadline."""
        commit_at = self._book.next_poll_at() if self._assignment() else None
        if not self.queue and (commit_at is None or now < commit_at):
            return PollResult((), commit_at)
        coordinator = self._cluster.coordinator()
        if coordinator is not None and coordinator != self._coordinator:
            self._coordinator = coordinator
            self.queue.end_backoff()  # its delays are due to another coordinator
        self.queue.expire(now, self._context.fatal() if coordinator is None else None)
        waits = self.queue.waits
        due = {one: to for one, to in self._book.due(now).items() if not waits(one, to.offset)}
        if due and not self._context.closing():
            # Auto-commit may go backwards after a seek: only offsets given by the caller are checked for that.
            deadline = now + self._context.config.default_api_timeout_ms / 1000
            self.put(due, deadline=deadline, allow_rewind=True, late_at=now + self._context.request_s)
        requests = () if coordinator is None else self._due_request(coordinator, now)
        self._report_dropped()
        self._report_late(now)
        late_at = (one.late_at for one in islice(self._automatic, 1))
        commit_at = self._book.next_poll_at() if self._assignment() else None
        return PollResult(requests, earliest(now, (*self.queue.next_poll_at(), *late_at, commit_at)))

    def _due_request(self, coordinator: CoordinatorNode, now: float) -> tuple[UnsentRequest, ...]:
        request = self.queue.ready_requests(self._membership(), now)
        if request is None:
            return ()
        requested = self.queue.in_flight

        def done(outcome: RequestResult, when: float) -> None:
            if self.queue.in_flight is not requested:
                return  # it was given up at its deadline; another request may be in flight now
            match outcome:
                case ResponseReceived(value):
                    self._context.sensors.commit_ms.add((when - now) * 1000, when)
                    refused = self.queue.on_response(value)
                    if set(refused) & NOT_THE_COORDINATOR:
                        self._cluster.finder.lost(coordinator.endpoint)
                    if requested is not None:
                        for code, partitions in refused.items():
                            self._context.post_event(CommitRefused(code, requested.identity, partitions))
                case SendFailed(error):
                    self.queue.not_sent(error, when)
                case NoResponse(error):
                    self._cluster.coordinator_lost(coordinator.endpoint, error)
                    self.queue.unanswered(when, self._context.chance())

        def follow_up(frame: memoryview, version: int, when: float) -> bytes | None:
            return self._follow_up(frame, version, when, now) if self.queue.in_flight is requested else None

        pending = PendingRequest(
            "OffsetCommit",
            lambda version: fit(request, version),
            done,
            self._context.request_s,
            # By name, a broker would store an offset of a deleted topic for one that was created under its name.
            BEFORE_TOPIC_IDS if any(topic.topic_id == NO_TOPIC_ID for topic in request.topics) else None,
            follow_up=follow_up,
        )
        return (UnsentRequest(self._context.offsets_purpose(), coordinator.endpoint, pending),)

    def _follow_up(self, frame: memoryview, version: int, now: float, sent_at: float) -> bytes | None:
        """Settle the commits of the request in flight if all are stored, and are all that there are.

        Then nothing follows from the response. The full turn is `done` and a poll.
        """
        if len(frame) > USUAL_BYTES or not self._is_quiet():
            return None
        try:
            response = read_response(OFFSET_COMMIT, frame[LENGTH_BYTES:], version)
        except WireError:
            return None
        if response.throttle_time_ms or not self.queue.complete_stored(response, now):
            return None
        self._context.counters.requests += 1
        self._context.sensors.commit_ms.add((now - sent_at) * 1000, now)
        return NOTHING_FOLLOWS

    def log_gone(self, partition: TopicPartition) -> None:
        """Handle a log that was truncated or recreated below the position.

        Responses that arrive later refer to the old log and are ignored.
        """
        self._book.drop(partition)
        self.queue.log_gone(partition)

    def _on_settled(self, commit: Commit, error: KohortError | None) -> None:
        self._book.renewed({one: found for one, found in commit.stored.items() if one not in commit.adrift})
        for partition in commit.stored if self._reported or self._dropped else ():
            self._reported.pop(partition, None)
            self._dropped.pop(partition, None)
        self._context.counters.commits += error is None
        self._context.counters.commits_refused += error is not None
        if commit.order is not None:
            self._context.post_event(CommitSettled(commit.order, dict(commit.refused)))
            return
        if commit in self._automatic:
            del self._automatic[commit]
            self._report_refused(commit)
        if commit.on_done is not None:
            # The caller's thread runs it; no frame of the library precedes the user's.
            self._ended[commit] = partial(commit.on_done, commit.wanted, error)
            self._call_back(commit)
        self._context.notify()  # close waits until none is left
        commit.promise.end(error)

    def order(self, order: CommitOrder) -> None:
        """Queue a commit that the group's state machine needs before it joins."""
        known = dict.fromkeys(order.offsets, NO_TOPIC_ID) | self._ids_read(order.offsets)  # all were assigned
        self.queue.put(
            Commit(order.offsets, {}, order.deadline, identity=order.identity, order=order.serial, topic_ids=known)
        )

    def _ids_read(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, UUID]:
        """The ids of the topics that were read. If a topic was created again: the old ones, until a poll raises it."""
        ids = {one: self._topic_ids[one.topic] for one in partitions if one.topic in self._topic_ids}
        for partition in ids.keys() & self._positions.errors.keys():
            error = self._positions.errors[partition]
            old = error.place.get("old_id") if isinstance(error, TopicRecreated) else None
            if isinstance(old, UUID):
                ids[partition] = old
        return ids

    # --- reports of errors that no call raises

    def _report_dropped(self) -> None:
        """Report offsets dropped with their topic, each once, although auto-commit retries them."""
        by_error: dict[str, dict[str, list[str]]] = {}
        for partition, offset, error in self.queue.drain_dropped():
            if self._dropped.get(partition) != offset.offset:
                self._dropped[partition] = offset.offset
                found = by_error.setdefault(error.message, {}).setdefault(partition.topic, [])
                found.append(f"{partition.partition}={offset.offset}")
        for message, topics in by_error.items():
            offsets = "; ".join(f"{topic}: {', '.join(found)}" for topic, found in sorted(topics.items()))
            self._warn("commit_dropped", f"{message}; dropped offsets by topic and partition: {offsets}")

    def _report_late(self, now: float) -> None:
        """Report an auto-commit that is not settled within the request time-out.

        Earlier retries are not reported.
        """
        oldest = next(iter(self._automatic), None)
        late = oldest is not None and oldest.late_at is not None and now >= oldest.late_at
        if oldest is not None and late and not self._automatic_is_late:
            codes = {entry.code for entry in oldest.entries.values()} - {0}
            why = f" (last refusal: {', '.join(error_name(code) for code in sorted(codes))})" if codes else ""
            offsets = _sample(f"{partition}={to.offset}" for partition, to in sorted(oldest.offsets.items()))
            self._warn("auto_commit_late", f"auto-commit is not stored yet, and is tried again{why}: {offsets}")
        self._automatic_is_late = late

    def _report_refused(self, commit: Commit) -> None:
        """Report an auto-commit error when it first occurs for a partition.

        The same error is reported again after a commit of the partition was stored.
        """
        new: dict[tuple[int, type], list[TopicPartition]] = {}
        for partition, error in commit.errors.items():
            if isinstance(error, UnknownTopic | TopicRecreated):
                continue  # reported as dropped
            if isinstance(error, CommitFailed) and self._membership() is not None:
                continue  # the rebalance, or the loss of membership, is reported by itself
            code = commit.refused[partition]
            if self._reported.get(partition) != code:
                self._reported[partition] = code
                new.setdefault((code, type(error)), []).append(partition)
        for (code, _kind), partitions in new.items():
            error = commit.errors[partitions[0]]
            cause = error_name(code) if code != UNKNOWN_OUTCOME else error.message
            offsets = _sample(f"{one}={commit.wanted[one].offset}" for one in sorted(partitions))
            self._warn("auto_commit_refused", f"auto-commit is not stored: {cause}: {offsets}")
            if isinstance(error, AuthorizationFailed):
                self._raise_unauthorized(code, partitions)

    def _raise_unauthorized(self, code: int, partitions: list[TopicPartition]) -> None:
        group = self._context.config.group
        if code == ErrorCode.GROUP_AUTHORIZATION_FAILED:
            self._context.put_error(group_error(code, group))
            return
        for topic in sorted({partition.topic for partition in partitions}):
            message = f"auto-commit: not allowed to commit offsets of the topic {topic}"
            hint = "grant READ on the topic, or set enable_auto_commit=False"
            self._context.put_error(AuthorizationFailed(message, hint=hint, topic=topic, group=group))

    def _warn(self, kind: str, text: str) -> None:
        self._report(Notice(kind, text))

    @property
    def owed(self) -> bool:
        """True if commits are in flight or may be sent now; leaving the group would make them fail."""
        member = self._membership()
        return len(self.queue) > 0 and (member is None or member.commits_open)

    def _call_back(self, commit: Commit) -> None:
        """Queue callbacks that are due, after those of earlier commits of any of their partitions."""
        looked_at = [commit]
        while looked_at:
            one = looked_at.pop()
            if one not in self._ended or any(self._calls[partition][0] is not one for partition in one.wanted):
                continue
            self.callbacks.append(self._ended.pop(one))
            followers: dict[Commit, None] = {}
            for partition in one.wanted:
                self._calls[partition].popleft()
                if not self._calls[partition]:
                    del self._calls[partition]
                else:
                    followers[self._calls[partition][0]] = None
            looked_at += sorted(followers, key=lambda follower: follower.number, reverse=True)

    def put(
        self,
        offsets: Mapping[TopicPartition, int | OffsetAndMetadata] | None,
        *,
        deadline: float,
        allow_rewind: bool = False,
        blocking: bool = False,
        late_at: float | None = None,
        on_done: OnDone | None = None,
    ) -> "Promise[None]":
        """Queue a commit; the promise ends when it is settled. None: all positions, as far as poll has returned.

        `late_at`: for auto-commit, the time (monotonic s) at which to report that it is not stored yet. None for a
        commit of the caller.
        """
        planned = self.planned(offsets, allow_rewind=allow_rewind)
        return self.put_planned(planned, deadline=deadline, blocking=blocking, late_at=late_at, on_done=on_done)

    def planned(
        self, offsets: Mapping[TopicPartition, int | OffsetAndMetadata] | None, *, allow_rewind: bool
    ) -> PlannedCommit:
        """The commit as of now, without side effects.

        Raises IllegalState without a group, CommitRewind for a backward commit, and the errors of `plain`.
        """
        if self._context.config.group is None:
            raise IllegalState("committing needs a group", hint='use Consumer(..., group="...")')
        wanted = self._positions.snapshot() if offsets is None else plain(offsets)
        wanted = {partition: self._with_epoch(partition, to) for partition, to in wanted.items()}
        backwards = {} if allow_rewind else self._book.backward_commits(wanted)
        if backwards:
            partition, committed = next(iter(backwards.items()))
            raise CommitRewind(
                f"the commit of {wanted[partition].offset} would go back behind {committed}",
                hint="commit(..., allow_rewind=True) if that is meant",
                **partition._asdict(),
            )
        owned = self._assignment()
        epochs = {partition: owned[partition].epoch for partition in wanted if partition in owned}
        return PlannedCommit(wanted, epochs, self._ids_read(wanted))

    def put_planned(
        self,
        planned: PlannedCommit,
        *,
        deadline: float,
        blocking: bool = False,
        late_at: float | None = None,
        on_done: OnDone | None = None,
    ) -> "Promise[None]":
        """Queue a planned commit; see `put`."""
        wanted, epochs, known = planned
        commit = Commit(wanted, epochs, deadline, blocking=blocking, topic_ids=known, late_at=late_at, on_done=on_done)
        for partition in wanted if on_done is not None else ():
            self._calls.setdefault(partition, deque()).append(commit)
        if not wanted:
            self._on_settled(commit, None)
        elif (fatal := self._context.fatal()) is not None:
            self._on_settled(commit, fatal)
        else:
            if late_at is not None:
                self._automatic[commit] = None
            else:
                self._book.on_commit(wanted)
            self.queue.put(commit)
        return commit.promise

    def _with_epoch(self, partition: TopicPartition, to: OffsetAndMetadata) -> OffsetAndMetadata:
        # With the epoch, the next owner can detect that the log was truncated below this offset (KIP-320).
        state = self._positions.get(partition)
        if to.leader_epoch >= 0 or state is None or state.offset != to.offset:
            return to
        return to._replace(leader_epoch=state.epoch)


def _sample(texts: Iterable[str]) -> str:
    """The first SAMPLE texts, for a message."""
    found = iter(texts)
    text = ", ".join(islice(found, SAMPLE))
    more = sum(1 for _ in found)
    return f"{text} and {more} more" if more else text
