"""Commits on their way: one at a time and in order, fenced by generation and assignment epoch.

A commit that a rebalance has overtaken is held, not failed: under the next generation it is sent again for those
partitions that are still owned under the same epoch, and fails for the others, because somebody else owns them.
"""

from collections import deque
from collections.abc import Callable, Mapping
from itertools import count, takewhile
from typing import Any, NamedTuple

from kohort.coordinator_client.errors import AuthorizationFailed, CommitFailed, OperationTimeout, RebalanceInProgress
from kohort.coordinator_client.events import Identity, OffsetToCommit
from kohort.coordinator_client.given import epoch_given, mapping_given, name_given, offset_given, partition_given
from kohort.coordinator_client.metadata import NO_TOPIC_ID
from kohort.coordinator_client.reactions import CommitVerdict, commit_verdict
from kohort.coordinator_client.ready import MemberView
from kohort.coordinator_client.retry import FRESH, Attempts, Backoff
from kohort.coordinator_client.states import MemberState
from kohort.fastpath import KohortError, TopicPartition
from kohort.protocol.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from kohort.protocol.errors import BrokerError

BEFORE_TOPIC_IDS = 9  # the last version of OffsetCommit and OffsetFetch that names topics by name
UNKNOWN_OUTCOME = -1
RETRIED_WITHOUT_MEMBER = frozenset({3, 5, 6, 7, 14, 15, 16})
NOT_THE_COORDINATOR = frozenset({15, 16})
UNKNOWN_MEMBER = 25
AUTHORIZATION_CODES = frozenset({29, 30})
LEDGER_LENGTH = 1_000

Offsets = Mapping[TopicPartition, OffsetToCommit]
Finished = Callable[[KohortError | None], None]


class LedgerEntry(NamedTuple):
    """One commit: when it was settled (s, monotonic), under which generation, what, and how it ended ("" is well).

    `sent_at`: when it first went out; None if it never did. `refused`: the partitions that were not committed, and
    `error`: the name of the error's class.
    """

    at: float
    generation: int
    offsets: Offsets
    outcome: str
    sent_at: float | None = None
    refused: frozenset[TopicPartition] = frozenset()
    error: str = ""


class Commit:
    """A commit that is not settled. `offsets` is what remains of it, `epochs` the assignment it was made under.

    `order`: the serial of the machine's CommitOrder that it serves, whose identity is then fixed. `in_doubt`: it was
    sent, and its connection ended before an answer came. `number`: its place among all that users made. `adrift`: the
    partitions whose log is another since.
    """

    def __init__(
        self,
        offsets: dict[TopicPartition, OffsetToCommit],
        epochs: Mapping[TopicPartition, int],
        deadline: float,
        finished: Finished,
        *,
        identity: Identity | None = None,
        order: int | None = None,
        blocking: bool = False,
    ) -> None:
        self.offsets = offsets
        self.epochs = epochs
        self.deadline = deadline
        self.finished = finished
        self.identity = identity
        self.order = order
        self.blocking = blocking
        self.number = 0
        self.sent: Identity | None = None
        self.sent_at: float | None = None
        self.newer_than: int | None = None
        self.in_doubt = False
        self.attempts: Attempts = FRESH
        self.stored: dict[TopicPartition, OffsetToCommit] = {}
        self.refused: dict[TopicPartition, int] = {}
        self.errors: list[KohortError] = []
        self.codes: dict[TopicPartition, int] = {}
        self.adrift: set[TopicPartition] = set()


class Committer:
    """The queue. `owed` gives the request to send now; `answered` takes its answer; `judge` settles, once the machine
    has been told of refusals; `expire` ends what has waited too long."""

    def __init__(self, group_id: str, backoff: Backoff) -> None:
        self.group_id = group_id
        self.backoff = backoff
        self.in_flight: Commit | None = None
        self.ledger: deque[LedgerEntry] = deque(maxlen=LEDGER_LENGTH)
        self._queue: deque[Commit] = deque()
        self._judged: Commit | None = None
        self._numbers = count(1)

    def put(self, commit: Commit) -> None:
        # The machine waits for its order with everybody else's rebalance: it goes before what users queued.
        if commit.order is not None:
            self._queue.appendleft(commit)
        else:
            commit.number = next(self._numbers)
            self._queue.append(commit)

    def _line_up(self, commit: Commit) -> None:
        """Where it was before it was sent, for it may have passed some that are held."""
        before = takewhile(lambda other: other.number < commit.number, self._queue)
        self._queue.insert(sum(1 for _ in before), commit)

    @property
    def unsettled(self) -> list[Commit]:
        return [*self._queue, *filter(None, (self.in_flight, self._judged))]

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        """Of which anything is not settled."""
        return frozenset(partition for commit in self.unsettled for partition in commit.offsets)

    def __len__(self) -> int:
        return len(self._queue) + (self.in_flight is not None) + (self._judged is not None)

    def owed(self, view: MemberView | None, outside: Identity, now: float) -> OffsetCommitRequest | None:
        """The request for the first commit that may go now. `outside`: the identity where there is no membership."""
        if self.in_flight is not None or self._judged is not None:
            return None
        held = False
        for commit in list(self._queue):
            if commit.newer_than is not None and not self._reopened(commit, view):
                held = True
                continue
            if held and commit.order is None and not commit.blocking:
                continue
            identity = commit.identity or (view.identity if view is not None else outside)
            if commit.order is None and view is not None:
                if not view.commits_open:
                    continue
                self._fence(commit, view)
                if not commit.offsets:
                    self._queue.remove(commit)
                    self._finish(commit, now)
                    continue
            if not commit.attempts.may_try(now):
                return None  # later commits wait as well: overtaking would let an older offset be the last word
            self._queue.remove(commit)
            self.in_flight = commit
            commit.sent = identity
            commit.sent_at = now if commit.sent_at is None else commit.sent_at
            return commit_request(identity, commit.offsets)
        return None

    def _reopened(self, commit: Commit, view: MemberView | None) -> bool:
        if view is None:
            return False
        if commit.sent is not None and view.identity.member_id != commit.sent.member_id:
            return True  # membership was lost meanwhile, and the fence will say so: nothing to wait for
        return view.commits_open and view.identity.generation > (commit.newer_than or -1)

    def _fence(self, commit: Commit, view: MemberView) -> None:
        # Lost partitions stay in the assignment until on_lost has been run, but without a generation a commit would be
        # let in by a group that is empty, where it looks like one of somebody who assigns by hand.
        lost = view.identity.generation < 0
        what = "it was known whether its offset was committed" if commit.in_doubt else "its offset was committed"
        for partition in list(commit.offsets):
            owned = view.assignment.get(partition)
            if lost or owned is None or owned.epoch != commit.epochs.get(partition, owned.epoch):
                had = partition in commit.epochs
                error = CommitFailed(
                    f"the partition was given away before {what}" if had else "the partition is not this member's",
                    hint="whoever owns it starts at the last committed offset",
                    topic=partition.topic,
                    partition=partition.partition,
                )
                self._refuse(commit, partition, UNKNOWN_OUTCOME, error)

    def answered(self, response: OffsetCommitResponse) -> dict[int, frozenset[TopicPartition]]:
        """Codes by partition, other than 0: what the machine must be told before `judge` is called."""
        commit, self.in_flight = self.in_flight, None
        if commit is None:
            return {}
        commit.in_doubt = False
        commit.codes = {
            TopicPartition(topic.name, one.partition_index): one.error_code
            for topic in response.topics
            for one in topic.partitions
        }
        self._judged = commit
        by_code: dict[int, set[TopicPartition]] = {}
        for partition, code in commit.codes.items():
            if code:
                by_code.setdefault(code, set()).add(partition)
        return {code: frozenset(partitions) for code, partitions in by_code.items()}

    def judge(self, view: MemberView | None, now: float, chance: float) -> None:
        """Settle the answered commit partition by partition, given the member as it stands now."""
        commit, self._judged = self._judged, None
        if commit is None:
            return
        again = False
        for partition in list(commit.offsets):
            code = commit.codes.get(partition, UNKNOWN_OUTCOME)  # what an answer leaves out it does not vouch for
            if code == 0:
                commit.stored[partition] = commit.offsets.pop(partition)
                continue
            verdict = self._verdict(commit, code, view)
            if verdict is CommitVerdict.RETRY:
                again = True
                if commit.identity is not None and view is not None:
                    commit.identity = view.identity  # a newer epoch of the same member (KIP-848)
            elif verdict is CommitVerdict.HOLD:
                self._hold(commit, partition, code, view)
            else:
                self._refuse(commit, partition, code, _error(verdict, code, partition, self.group_id, view))
        if not commit.offsets:
            self._finish(commit, now)
            return
        if again:
            commit.attempts = commit.attempts.failed(now, self.backoff, chance)
        self._line_up(commit)

    def _verdict(self, commit: Commit, code: int, view: MemberView | None) -> CommitVerdict:
        if view is None or commit.sent is None:
            return CommitVerdict.RETRY if code in RETRIED_WITHOUT_MEMBER else CommitVerdict.RAISE
        verdict = commit_verdict(code, commit.sent, view)
        if verdict is CommitVerdict.RETRY and commit.order is not None and view.state is not MemberState.COMMITTING:
            return CommitVerdict.FAIL  # nobody waits for it, and as who we are now nothing of it is ours to commit
        return verdict

    def _hold(self, commit: Commit, partition: TopicPartition, code: int, view: MemberView | None) -> None:
        if commit.order is not None or commit.blocking:
            # Whoever waits for it would keep the rebalance itself from going on.
            error = RebalanceInProgress(
                "the group is rebalancing", hint="poll, then commit again what is still owned", group=self.group_id
            )
            self._refuse(commit, partition, code, error)
            return
        commit.newer_than = commit.sent.generation if commit.sent else -1

    def unanswered(self, now: float, chance: float) -> None:
        """The connection ended first: whether it was stored is unknown, and storing it twice does no harm."""
        commit, self.in_flight = self.in_flight, None
        if commit is not None:
            commit.in_doubt = True
            commit.attempts = commit.attempts.failed(now, self.backoff, chance)
            self._line_up(commit)

    def not_sent(self, error: KohortError, now: float) -> None:
        """It cannot be sent at all."""
        commit, self.in_flight = self.in_flight, None
        if commit is not None:
            for partition in list(commit.offsets):
                self._refuse(commit, partition, UNKNOWN_OUTCOME, error)
            self._finish(commit, now)

    def expire(self, now: float, *, everything: bool = False, because: KohortError | None = None) -> None:
        """End what has waited past its deadline; or everything, where nothing will be sent any more."""
        for commit in [*self._queue, *([self.in_flight] if self.in_flight else [])]:
            if now < commit.deadline and not everything:
                continue
            if commit is self.in_flight:
                self.in_flight = None
            else:
                self._queue.remove(commit)
            error = because or OperationTimeout(
                "no answer to a commit in time", hint="whether it was stored is unknown", group=self.group_id
            )
            for partition in list(commit.offsets):
                self._refuse(commit, partition, UNKNOWN_OUTCOME, error)
            self._finish(commit, now)

    def release_blocked(self, error: KohortError, now: float) -> None:
        """A hook waits for the caller, who waits for a commit that waits for the hook: end the commit."""
        for commit in list(self._queue):
            if commit.blocking:
                self._queue.remove(commit)
                for partition in list(commit.offsets):
                    self._refuse(commit, partition, UNKNOWN_OUTCOME, error)
                self._finish(commit, now)

    def wakes(self) -> list[float]:
        """When to take a turn again if nothing happens (s, monotonic). All of them: one that has passed, for there is
        no coordinator yet to try again with, must not hide a deadline."""
        return [
            *(commit.deadline for commit in self.unsettled),
            *(commit.attempts.not_before for commit in self._queue if commit.attempts.failures),
        ]

    # --- inner

    def _refuse(self, commit: Commit, partition: TopicPartition, code: int, error: KohortError) -> None:
        commit.offsets.pop(partition, None)
        commit.refused[partition] = code
        commit.errors.append(error)

    def _finish(self, commit: Commit, now: float) -> None:
        generation = commit.sent.generation if commit.sent else -1
        if commit.stored:
            self.ledger.append(LedgerEntry(now, generation, commit.stored, "", commit.sent_at))
        if commit.refused:
            first, refused = commit.errors[0], frozenset(commit.refused)
            entry = LedgerEntry(now, generation, {}, str(first), commit.sent_at, refused, type(first).__name__)
            self.ledger.append(entry)
        commit.finished(commit.errors[0] if commit.errors else None)


def _error(
    verdict: CommitVerdict, code: int, partition: TopicPartition, group_id: str, view: MemberView | None
) -> KohortError:
    place: dict[str, Any] = {"group": group_id, "topic": partition.topic, "partition": partition.partition}
    if verdict is CommitVerdict.FENCED and view is not None and view.fatal is not None:
        return view.fatal
    if verdict is CommitVerdict.FAIL:
        return CommitFailed(
            "the group has gone on without this member: its partitions may have another owner",
            hint="do not commit again; poll, and read from the last committed offset",
            **place,
        )
    if view is None and code == UNKNOWN_MEMBER:
        hint = "stop them first, or commit for another group"
        return CommitFailed("the group has members, and its offsets are theirs", hint=hint, **place)
    if code in AUTHORIZATION_CODES:
        return AuthorizationFailed("not allowed to commit", **place)
    return BrokerError(code, api="OffsetCommit", **place)


def commit_request(identity: Identity, offsets: Offsets) -> OffsetCommitRequest:
    """The request that commits `offsets` as `identity`; a group without members lets one in that has no generation."""
    topics: dict[str, list[OffsetCommitRequestPartition]] = {}
    for partition, found in sorted(offsets.items()):
        topics.setdefault(partition.topic, []).append(
            OffsetCommitRequestPartition(
                partition_index=partition.partition,
                committed_offset=found.offset,
                committed_leader_epoch=found.leader_epoch,
                committed_metadata=found.metadata,
            )
        )
    return OffsetCommitRequest(
        group_id=identity.group_id,
        generation_id_or_member_epoch=identity.generation,
        member_id=identity.member_id,
        group_instance_id=identity.instance_id,
        topics=tuple(
            OffsetCommitRequestTopic(name=name, topic_id=NO_TOPIC_ID, partitions=tuple(ps))
            for name, ps in topics.items()
        ),
    )


def plain(offsets: Mapping[TopicPartition, object]) -> dict[TopicPartition, OffsetToCommit]:
    """What users write (an int, a tuple or an OffsetToCommit by partition), checked.

    Raises ValueError for a negative offset or partition and for metadata that no request can carry, TypeError for what
    is not an offset, or no partition.
    """
    return {partition_given(one): _offset(one, value) for one, value in mapping_given(offsets, "offsets").items()}


def _offset(partition: TopicPartition, value: object) -> OffsetToCommit:
    if isinstance(value, bool) or not isinstance(value, int | tuple) or (isinstance(value, tuple) and len(value) > 3):
        raise TypeError(f"an offset is an int or (offset, leader epoch, metadata), not {value!r}")
    found = OffsetToCommit(value) if isinstance(value, int) else OffsetToCommit(*value)
    if not isinstance(found.offset, int) or not isinstance(found.leader_epoch, int):
        raise TypeError(f"an offset is an int or (offset, leader epoch, metadata), not {value!r}")
    if found.offset < 0:
        raise ValueError(f"a committed offset is not negative: {partition} -> {found.offset}")
    offset_given(found.offset)
    epoch_given(found.leader_epoch)
    if found.metadata:
        name_given(found.metadata, "the metadata of an offset")
    return found
