"""Queue of unsettled offset commits, fenced by generation and assignment epoch.

Commits of a partition are sent in order. One request is in flight at a time, with every offset that may be sent and
that a broker can store with the others. Commits of one partition that are put while an earlier one is in flight are
settled together, by the offset of the last.

A commit interrupted by a rebalance is held. Under the next generation it is sent again for the partitions that are
still owned under the same epoch. It fails for the others, which have another owner.

UNKNOWN_TOPIC_OR_PARTITION may come from a broker with old metadata. The partition's commit is retried until a Metadata
response, requested after the error, lacks the topic or has it under another topic id. (KAFKA-16224 and KAFKA-20959 are
about clients that retry for ever, and delay their rebalance by that.)
"""

from collections import deque
from collections.abc import Callable, Mapping, Set
from heapq import heapify, heappop, heappush
from itertools import count, takewhile
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from uuid import UUID

from kohort.common import KohortError, TopicPartition
from kohort.common.named_tuple import NamedTuple
from kohort.coordinator_client.errors import RebalanceInProgress, TopicRecreated
from kohort.coordinator_client.group.error_actions import VERDICTS_WITHOUT_MEMBER, CommitVerdict, commit_verdict
from kohort.coordinator_client.group.ready import MemberView
from kohort.coordinator_client.group.states import MemberState
from kohort.network.backoff import FRESH, Attempts, Backoff
from kohort.network.error_mapping import UNKNOWN_TOPIC_GRACE_S
from kohort.network.errors import AuthorizationFailed, CommitFailed, OperationTimeout, UnknownTopic
from kohort.network.group_types import ConsumerGroupMetadata, OffsetAndMetadata
from kohort.network.metadata import NO_TOPIC_ID
from kohort.network.metadata_refresh import MetadataRefresher
from kohort.network.offset_requests import Offsets, commit_codes, commit_request, stored_at_once
from kohort.network.promise import Promise
from kohort.protocol.errors import BrokerError, ErrorCode

if TYPE_CHECKING:
    from kohort.protocol.apis.offset_commit import OffsetCommitRequest, OffsetCommitResponse

UNKNOWN_OUTCOME = -1
NOT_THE_COORDINATOR = frozenset({ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR})
AUTHORIZATION_CODES = frozenset({ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.GROUP_AUTHORIZATION_FAILED})
LEDGER_LENGTH = 1_000

OnDone = Callable[[Mapping[TopicPartition, OffsetAndMetadata], KohortError | None], object]


class LedgerEntry(NamedTuple):
    """One settled commit: time (monotonic s), generation, offsets, and outcome ("" on success).

    `sent_at` is the time of the first request; None if it was not sent. `refused` are the partitions that were not
    committed. `error` is the name of the error's class.
    """

    at: float
    generation: int
    offsets: Offsets
    outcome: str
    sent_at: float | None = None
    refused: frozenset[TopicPartition] = frozenset()
    error: str = ""


class Commit:
    """An unsettled commit: `wanted` as it was put, of which `offsets` remains.

    - `epochs`: the assignment epochs at the call.
    - `topic_ids`: ids of topics that were read; metadata may no longer have them.
    - `order`: the serial of the state machine's CommitOrder that it serves; `identity` is then fixed.
    - `late_at`: for auto-commit, the time (monotonic s) at which to report that it is not stored yet.
    - `on_done`: the callback of the user.
    - `promise`: it ends when the commit is settled.
    - `number`: its sequence number among the users' commits.
    - `adrift`: the partitions whose log was replaced since.
    - `errors`, `refused`: the error and the error code of each partition that was not committed.
    """

    def __init__(
        self,
        wanted: Offsets,
        epochs: Mapping[TopicPartition, int],
        deadline: float,
        *,
        identity: ConsumerGroupMetadata | None = None,
        order: int | None = None,
        blocking: bool = False,
        topic_ids: Mapping[TopicPartition, UUID] = MappingProxyType({}),
        late_at: float | None = None,
        on_done: OnDone | None = None,
    ) -> None:
        self.wanted = wanted
        self.offsets = dict(wanted)
        self.epochs = epochs
        self.deadline = deadline
        self.identity = identity
        self.order = order
        self.blocking = blocking
        self.topic_ids = topic_ids
        self.late_at = late_at
        self.on_done = on_done
        self.promise: Promise[None] = Promise()
        self.number = 0
        self.sent: ConsumerGroupMetadata | None = None
        self.sent_at: float | None = None
        self.stored: dict[TopicPartition, OffsetAndMetadata] = {}
        self.refused: dict[TopicPartition, int] = {}
        self.errors: dict[TopicPartition, KohortError] = {}
        self.adrift: set[TopicPartition] = set()
        self.entries: dict[TopicPartition, QueuedCommit] = {}


class QueuedCommit:
    """Successive commits of one partition that are settled together. Only the last offset is sent.

    All have one assignment epoch (`epoch`, None: not assigned), one topic id (`topic_id`, None: not in metadata) and
    one metadata string. `newer_than`: a rebalance interrupted it in this generation, so it waits for a later one.
    `unknown_after`: the number of the last Metadata request before UNKNOWN_TOPIC_OR_PARTITION was received.
    """

    __slots__ = (
        "attempts",
        "closed",
        "code",
        "commits",
        "epoch",
        "in_doubt",
        "in_flight",
        "metadata",
        "newer_than",
        "order",
        "partition",
        "sent",
        "sent_at",
        "topic_id",
        "unknown_after",
        "unknown_since",
    )

    def __init__(
        self, partition: TopicPartition, epoch: int | None, topic_id: UUID | None, metadata: str, order: bool
    ) -> None:
        self.partition = partition
        self.epoch = epoch
        self.topic_id = topic_id
        self.metadata = metadata
        self.order = order
        self.commits: dict[Commit, None] = {}
        self.closed = False
        self.in_flight = False
        self.sent: ConsumerGroupMetadata | None = None
        self.sent_at: float | None = None
        self.in_doubt = False
        self.newer_than: int | None = None
        self.attempts: Attempts = FRESH
        self.code = 0
        self.unknown_after: int | None = None
        self.unknown_since = 0.0

    @property
    def last(self) -> OffsetAndMetadata:
        """The offset to send."""
        return next(reversed(self.commits)).offsets[self.partition]

    def takes(self, epoch: int | None, topic_id: UUID | None, metadata: str) -> bool:
        """True if one more commit may join these: none was sent, and the keys are equal."""
        fresh = self.sent is None and not self.closed
        return fresh and (self.epoch, self.topic_id, self.metadata) == (epoch, topic_id, metadata)

    def add(self, commit: Commit) -> None:
        self.commits[commit] = None
        commit.entries[self.partition] = self


class SentCommit(NamedTuple):
    """One OffsetCommit request and the identity it was sent under."""

    identity: ConsumerGroupMetadata
    entries: tuple[QueuedCommit, ...]


class Dropped(NamedTuple):
    """An offset that cannot be committed any more: its topic was deleted, or created again."""

    partition: TopicPartition
    offset: OffsetAndMetadata
    error: KohortError


class CommitQueue:
    """The unsettled commits, in one queue per partition, and the one request in flight.

    `ready_requests` returns the request to send now, and `on_response` takes its response. `complete` settles it, after
    the state machine has processed the errors. `expire` fails commits past their deadline. A commit is settled when
    each of its partitions is. `on_settled` then receives it with its first error. Offsets of a partition are sent in
    the order of the calls; partitions do not wait for each other. The cost of a call depends only on the number of
    partitions and of commits that it settles.
    """

    def __init__(
        self,
        group_id: str,
        backoff: Backoff,
        metadata: MetadataRefresher,
        on_settled: Callable[[Commit, KohortError | None], None],
    ) -> None:
        self.group_id = group_id
        self.backoff = backoff
        self.in_flight: SentCommit | None = None
        self.ledger: deque[LedgerEntry] = deque(maxlen=LEDGER_LENGTH)
        self._metadata = metadata
        self._on_settled = on_settled
        self._open: dict[Commit, None] = {}
        self._blocking: dict[Commit, None] = {}
        self._deadlines: list[tuple[float, int, Commit]] = []
        self._order: dict[QueuedCommit, None] = {}
        self._queues: dict[TopicPartition, deque[QueuedCommit]] = {}
        self._retried: dict[QueuedCommit, None] = {}
        self._awaiting_verdict: tuple[SentCommit, dict[TopicPartition, int]] | None = None
        self._settled: list[Commit] = []
        self._dropped: list[Dropped] = []
        self._serials = count(1)
        self._numbers = count(1)

    def put(self, commit: Commit) -> None:
        is_order = commit.order is not None
        commit.number = 0 if is_order else next(self._numbers)
        self._open[commit] = None
        if commit.blocking:
            self._blocking[commit] = None
        heappush(self._deadlines, (commit.deadline, next(self._serials), commit))
        for partition, to in commit.offsets.items():
            key = (commit.epochs.get(partition), self._topic_id(commit, partition), to.metadata)
            if is_order:
                entry = QueuedCommit(partition, *key, order=True)
                self._order[entry] = None
            else:
                queue = self._queues.setdefault(partition, deque())
                if not queue or not queue[-1].takes(*key):
                    queue.append(QueuedCommit(partition, *key, order=False))
                entry = queue[-1]
            entry.add(commit)

    def _topic_id(self, commit: Commit, partition: TopicPartition) -> UUID | None:
        view, read = self._metadata.view, commit.topic_ids.get(partition)
        if read is not None:
            return read
        return None if view.partition(partition) is None else view.topic_id(partition.topic)

    @property
    def partitions(self) -> Set[TopicPartition]:
        """Partitions with unsettled commits."""
        return self._queues.keys() | {entry.partition for entry in self._order} if self._order else self._queues.keys()

    def __len__(self) -> int:
        """The number of unsettled commits. Without one, nothing is in flight and nothing is due."""
        return len(self._open)

    def waits(self, partition: TopicPartition, offset: int) -> bool:
        """True if `offset` is the last one put for the partition, and is not settled."""
        queue = self._queues.get(partition)
        return queue is not None and queue[-1].last.offset == offset

    def log_gone(self, partition: TopicPartition) -> None:
        """Mark queued commits of a partition whose log was replaced.

        Commits that are put later refer to the new log.
        """
        for entry in [*self._queues.get(partition, ()), *(one for one in self._order if one.partition == partition)]:
            entry.closed = True
            for commit in entry.commits:
                commit.adrift.add(partition)

    def drain_dropped(self) -> list[Dropped]:
        """Offsets dropped since the last call, because their topic does not exist any more."""
        dropped, self._dropped = self._dropped, []
        return dropped

    def ready_requests(self, view: MemberView | None, now: float) -> "OffsetCommitRequest | None":
        """The request with the offsets that may be sent now, as many as a broker stores at once.

        A commit ordered by the state machine is sent first and alone. It has its own identity, and the rebalance waits
        for it.
        """
        if self.in_flight is not None or self._awaiting_verdict is not None:
            return None
        identity = ConsumerGroupMetadata(self.group_id) if view is None else view.identity
        due = [entry for entry in list(self._order) if self._exists(entry, now) and entry.attempts.may_try(now)]
        if due:
            (commit,) = due[0].commits
            identity = commit.identity or identity
            due = [entry for entry in due if commit in entry.commits]
        elif view is None or view.commits_open:
            ordered = {entry.partition for entry in self._order}
            heads = (self._head(partition, view, now) for partition in list(self._queues) if partition not in ordered)
            due = [entry for entry in heads if entry is not None]
        self._flush(now)
        if not due:
            return None
        wanted = next(stored_at_once(self.group_id, {entry.partition: entry.last for entry in due}))
        if len(wanted) < len(due):
            due = due[: len(wanted)]
            for entry in due:  # it comes last next time: otherwise later ones would starve
                if entry.partition in self._queues:
                    self._queues[entry.partition] = self._queues.pop(entry.partition)
        for entry in due:
            entry.in_flight = True
            entry.sent = identity
            entry.sent_at = now if entry.sent_at is None else entry.sent_at
        self.in_flight = SentCommit(identity, tuple(due))
        return commit_request(identity, wanted, {one.partition: one.topic_id or NO_TOPIC_ID for one in due})

    def _head(self, partition: TopicPartition, view: MemberView | None, now: float) -> QueuedCommit | None:
        """The commit of a partition that may be sent now; commits that never may be sent fail."""
        while queue := self._queues.get(partition):
            entry = queue[0]
            if self._held(entry, view):
                # The first commit waits for a rebalance, which would wait for the thread blocked by a later commit.
                waited_for = (commit.entries.get(partition) for commit in self._blocking)
                passing = next((one for one in waited_for if one is not None and not self._held(one, view)), None)
                if passing is None:
                    return None
                entry = passing
            error = self._fenced(entry, view)
            if error is not None:
                self._refuse_all(entry, UNKNOWN_OUTCOME, error)
            elif self._exists(entry, now):
                return entry if entry.attempts.may_try(now) else None
        return None

    def _held(self, entry: QueuedCommit, view: MemberView | None) -> bool:
        """True if the commit waits for a later generation than the one that a rebalance ended."""
        if entry.newer_than is None or view is None:
            return False
        if entry.sent is not None and view.identity.member_id != entry.sent.member_id:
            return False  # membership was lost meanwhile, so `_fenced` will fail it
        return not view.commits_open or view.identity.generation <= entry.newer_than

    def _fenced(self, entry: QueuedCommit, view: MemberView | None) -> CommitFailed | None:
        # Lost partitions stay in the assignment until on_lost has run. An empty group would accept their commit, since
        # without a generation it looks like one of a consumer with manual assignment.
        if view is None:
            lost = entry.sent is not None and entry.sent.generation >= 0  # sent by a member that has left
        else:
            owned = view.assignment.get(entry.partition)
            lost = view.identity.generation < 0 or owned is None or entry.epoch not in (None, owned.epoch)
        if not lost:
            return None
        what = "it was known whether its offset was committed" if entry.in_doubt else "its offset was committed"
        had = entry.epoch is not None
        return CommitFailed(
            f"the partition was given away before {what}" if had else "the partition is not this member's",
            hint="the new owner starts at the last committed offset",
            **entry.partition._asdict(),
        )

    def _exists(self, entry: QueuedCommit, now: float) -> bool:
        """True unless the topic was deleted (and maybe created again); the commit then fails."""
        error = self._topic_error(entry, now)
        if error is None:
            return True
        self._dropped.append(Dropped(entry.partition, entry.last, error))
        self._refuse_all(entry, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, error)
        return False

    def _topic_error(self, entry: QueuedCommit, now: float) -> KohortError | None:
        (topic, number), view = entry.partition, self._metadata.view
        found, was = view.topic_id(topic), entry.topic_id
        if found != was and was is not None and NO_TOPIC_ID not in (found, was):
            # A broker that identifies topics by name would store it for the new topic, and records would be skipped.
            return TopicRecreated(
                "not committed: the topic was deleted and created again",
                topic=topic,
                partition=number,
                offset=entry.last.offset,
                old_id=was,
                new_id=found,
            )
        if entry.unknown_after is None or self._metadata.last_with_response <= entry.unknown_after:
            return None
        if (
            view.partition(entry.partition) is not None
            or view.refused.get(topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        ):
            return None
        if was is None and now < entry.unknown_since + UNKNOWN_TOPIC_GRACE_S:
            return None  # not in metadata so far: it may have just been created
        return UnknownTopic(
            "not committed: the topic or the partition does not exist",
            topic=topic,
            partition=number,
            offset=entry.last.offset,
        )

    def complete_stored(self, response: "OffsetCommitResponse", now: float) -> bool:
        """Settle the request in flight, if all that is queued is stored, and the state machine has ordered no commit.

        False: nothing has changed.
        """
        sent, queued = self.in_flight, sum(map(len, self._queues.values()))
        if sent is None or self._order or queued != len(sent.entries):
            return False
        codes = _codes(response, sent)
        if not all(entry.commits and codes.get(entry.partition) == 0 for entry in sent.entries):
            return False
        self.in_flight, self._awaiting_verdict = None, (sent, codes)
        self.complete(None, now, 0.0)
        return True

    def on_response(self, response: "OffsetCommitResponse") -> dict[int, frozenset[TopicPartition]]:
        """Partitions by error code other than 0, for the state machine to process before `complete`."""
        sent, self.in_flight = self.in_flight, None
        if sent is None:
            return {}
        codes = _codes(response, sent)
        self._awaiting_verdict = (sent, codes)
        by_code: dict[int, set[TopicPartition]] = {}
        for partition, code in codes.items():
            if code:
                by_code.setdefault(code, set()).add(partition)
        return {code: frozenset(partitions) for code, partitions in by_code.items()}

    @property
    def has_response(self) -> bool:
        """True if a response waits for `complete`."""
        return self._awaiting_verdict is not None

    def complete(self, view: MemberView | None, now: float, chance: float) -> None:
        """Settle the request that has a response, by partition, with the current membership."""
        if self._awaiting_verdict is None:
            return
        (sent, codes), self._awaiting_verdict = self._awaiting_verdict, None
        for entry in sent.entries:
            entry.in_flight = entry.in_doubt = False
            if not entry.commits:
                continue
            entry.code = code = codes.get(entry.partition, UNKNOWN_OUTCOME)  # missing in the response
            if code == 0:
                self._stored(entry)
                continue
            verdict = self._verdict(entry, code, view)
            if verdict in (CommitVerdict.RETRY, CommitVerdict.CHECK_TOPIC):
                self._retry(entry, now, chance)
                if verdict is CommitVerdict.CHECK_TOPIC:
                    self._check_topic(entry, now)
                if entry.order and view is not None:
                    next(iter(entry.commits)).identity = view.identity  # a newer epoch of the same member (KIP-848)
            elif verdict is CommitVerdict.HOLD:
                self._hold(entry, code)
            else:
                self._refuse_all(entry, code, _error(verdict, code, entry.partition, self.group_id, view))
        self._flush(now)

    def _verdict(self, entry: QueuedCommit, code: int, view: MemberView | None) -> CommitVerdict:
        if view is None or entry.sent is None:
            return VERDICTS_WITHOUT_MEMBER.get(code, CommitVerdict.RAISE)
        verdict = commit_verdict(code, entry.sent, view)
        retried = verdict in (CommitVerdict.RETRY, CommitVerdict.CHECK_TOPIC)
        if retried and entry.order and view.state is not MemberState.COMMITTING:
            return CommitVerdict.FAIL  # no longer awaited, and its partitions are not owned by this identity
        return verdict

    def _retry(self, entry: QueuedCommit, now: float, chance: float) -> None:
        entry.attempts = entry.attempts.failed(now, self.backoff, chance)
        self._retried[entry] = None

    def end_backoff(self) -> None:
        """Retry all commits at once."""
        for entry in self._retried:
            entry.attempts = FRESH
        self._retried.clear()

    def _check_topic(self, entry: QueuedCommit, now: float) -> None:
        """Request metadata of the topic.

        A request made before the error does not count, since its response may be as old.
        """
        if entry.unknown_after is None:
            entry.unknown_since = now
            self._metadata.add_transient((entry.partition.topic,))
        entry.unknown_after = self._metadata.requests_sent
        self._metadata.request_update()

    def _hold(self, entry: QueuedCommit, code: int) -> None:
        entry.newer_than = entry.sent.generation if entry.sent else -1
        for commit in list(entry.commits) if entry.order else [one for one in self._blocking if one in entry.commits]:
            # A caller that waits for it would block the rebalance.
            error = RebalanceInProgress(
                "the group is rebalancing", hint="poll, then commit again what is still owned", group=self.group_id
            )
            self._refuse(commit, entry.partition, code, error)

    def unanswered(self, now: float, chance: float) -> None:
        """Retry after a lost connection. The outcome is unknown, and storing an offset twice is safe."""
        sent, self.in_flight = self.in_flight, None
        for entry in sent.entries if sent is not None else ():
            entry.in_flight, entry.in_doubt, entry.code = False, True, 0
            if entry.commits:
                self._retry(entry, now, chance)

    def not_sent(self, error: KohortError, now: float) -> None:
        """Fail the commits of a request that cannot be sent."""
        sent, self.in_flight = self.in_flight, None
        for entry in sent.entries if sent is not None else ():
            self._refuse_all(entry, UNKNOWN_OUTCOME, error)
        self._flush(now)

    def expire(self, now: float, because: KohortError | None = None) -> None:
        """Fail commits past their deadline, or all if no more requests can be sent `because` of an error."""
        for commit in self._overdue(now) if because is None else [*self._open]:
            error = because or OperationTimeout(
                "no response to OffsetCommit in time",
                hint="commit again, since the outcome is unknown",
                group=self.group_id,
            )
            self._give_up(commit, error)
        if self.in_flight is not None and not any(entry.commits for entry in self.in_flight.entries):
            self.in_flight = None
        self._flush(now)

    def _overdue(self, now: float) -> list[Commit]:
        overdue = []
        while self._deadlines and (self._deadlines[0][2] not in self._open or now >= self._deadlines[0][0]):
            _deadline, _serial, commit = heappop(self._deadlines)
            if commit in self._open:
                overdue.append(commit)
        if len(self._deadlines) > 2 * len(self._open) + 100:  # settled commits may remain behind an unsettled one
            self._deadlines = [one for one in self._deadlines if one[2] in self._open]
            heapify(self._deadlines)
        return overdue

    def release_blocked(self, error: KohortError, now: float) -> None:
        """Fail blocking commits that would deadlock with a callback.

        The callback waits for the caller's thread, which waits for a commit that cannot go on before the callback has
        returned.
        """
        for commit in list(self._blocking):
            if not any(entry.in_flight for entry in commit.entries.values()):
                self._give_up(commit, error)
        self._flush(now)

    def next_poll_at(self) -> list[float]:
        """Times (monotonic s) of the next deadline and retries.

        All retry times are included. One that has passed while there is no coordinator must not hide the deadline.
        """
        deadlines = [deadline for deadline, _serial, _commit in self._deadlines[:1]]
        return [*deadlines, *(entry.attempts.not_before for entry in self._retried if not entry.in_flight)]

    # --- inner

    def _stored(self, entry: QueuedCommit) -> None:
        """Settle an entry whose offset is stored, and the earlier entries of its partition."""
        done = [entry]
        if not entry.order:
            queue = self._queues[entry.partition]
            done = [*takewhile(lambda one: one is not entry, queue), entry]
        for one in done:
            for commit in one.commits:
                self._note_sent(commit, entry)
                commit.stored[entry.partition] = commit.offsets.pop(entry.partition)
                del commit.entries[entry.partition]
                if not commit.offsets:
                    self._settled.append(commit)
            one.commits.clear()
            self._remove(one)

    def _refuse_all(self, entry: QueuedCommit, code: int, error: KohortError) -> None:
        for commit in list(entry.commits):
            self._refuse(commit, entry.partition, code, error)

    def _give_up(self, commit: Commit, error: KohortError) -> None:
        for partition in list(commit.offsets):
            self._refuse(commit, partition, UNKNOWN_OUTCOME, error)

    def _refuse(self, commit: Commit, partition: TopicPartition, code: int, error: KohortError) -> None:
        entry = commit.entries.pop(partition)
        self._note_sent(commit, entry)
        del entry.commits[commit], commit.offsets[partition]
        commit.refused[partition] = code
        commit.errors[partition] = error
        if not entry.commits:
            self._remove(entry)
        if not commit.offsets:
            self._settled.append(commit)

    @staticmethod
    def _note_sent(commit: Commit, entry: QueuedCommit) -> None:
        if entry.sent is not None:
            commit.sent = entry.sent
            commit.sent_at = entry.sent_at if commit.sent_at is None else commit.sent_at

    def _remove(self, entry: QueuedCommit) -> None:
        self._retried.pop(entry, None)
        if entry.order:
            del self._order[entry]
        else:
            queue = self._queues[entry.partition]
            queue.remove(entry)
            if not queue:
                del self._queues[entry.partition]
        if entry.unknown_after is not None:
            self._metadata.remove_transient((entry.partition.topic,))

    def _flush(self, now: float) -> None:
        """Finish settled commits, in the order of the calls."""
        settled, self._settled = self._settled, []
        for commit in sorted(settled, key=lambda one: one.number):
            self._finish(commit, now)

    def _finish(self, commit: Commit, now: float) -> None:
        del self._open[commit]
        if not self._open:
            self._deadlines.clear()  # `expire` is not called without commits
        self._blocking.pop(commit, None)
        generation = commit.sent.generation if commit.sent else -1
        first = next(iter(commit.errors.values()), None)
        if commit.stored:
            self.ledger.append(LedgerEntry(now, generation, commit.stored, "", commit.sent_at))
        if first is not None:
            refused = frozenset(commit.refused)
            entry = LedgerEntry(now, generation, {}, str(first), commit.sent_at, refused, type(first).__name__)
            self.ledger.append(entry)
        self._on_settled(commit, first)


def _codes(response: "OffsetCommitResponse", sent: SentCommit) -> dict[TopicPartition, int]:
    known = {one.topic_id: one.partition.topic for one in sent.entries if one.topic_id is not None}
    return commit_codes(response, known)


def _error(
    verdict: CommitVerdict, code: int, partition: TopicPartition, group_id: str, view: MemberView | None
) -> KohortError:
    place: dict[str, Any] = {"group": group_id, **partition._asdict()}
    if verdict is CommitVerdict.FENCED and view is not None and view.fatal is not None:
        return view.fatal
    if verdict is CommitVerdict.FAIL:
        return CommitFailed(
            "the group has gone on without this member: its partitions may have another owner",
            hint="do not commit again; poll, and read on from the last committed offset",
            **place,
        )
    if view is None and code == ErrorCode.UNKNOWN_MEMBER_ID:
        hint = "stop them first, or commit for another group"
        return CommitFailed("the group has members, which alone may commit its offsets", hint=hint, **place)
    if code in AUTHORIZATION_CODES:
        return AuthorizationFailed("not allowed to commit", hint="grant READ on the group and on the topic", **place)
    return BrokerError(code, api="OffsetCommit", **place)
