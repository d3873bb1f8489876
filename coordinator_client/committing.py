"""Commits as the core sees them: made, sent, answered, remembered, called back."""

from collections import deque
from collections.abc import Callable, Mapping, Set
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from kohort.coordinator_client.commits import BEFORE_TOPIC_IDS, NOT_THE_COORDINATOR, Commit, plain
from kohort.coordinator_client.connections import Answered, Ask, Endpoint, NotSent, Outcome, Unanswered
from kohort.coordinator_client.errors import CommitRewind, IllegalState
from kohort.coordinator_client.events import CommitRefused, CommitSettled, Identity, OffsetToCommit
from kohort.coordinator_client.fit import fit
from kohort.coordinator_client.outgoing import Line
from kohort.coordinator_client.promise import Promise
from kohort.coordinator_client.ready import CommitOrder, MemberView
from kohort.coordinator_client.states import MemberState
from kohort.fastpath import KohortError, TopicPartition

if TYPE_CHECKING:
    from kohort.coordinator_client.core import Core


OnDone = Callable[[Mapping[TopicPartition, OffsetToCommit], KohortError | None], object]


class PlannedCommit(NamedTuple):
    """What is to be committed, and the epochs of the assignment that it was made under."""

    wanted: Mapping[TopicPartition, OffsetToCommit]
    epochs: Mapping[TopicPartition, int]


class Committing:
    """Belongs to one Core, and is used under the same lock."""

    def __init__(self, core: "Core") -> None:
        self._core = core
        self.callbacks: deque[Callable[[], object]] = deque()  # the caller's thread takes them

    def turn(self, now: float) -> None:
        """Send what may be sent, end what has waited too long."""
        hopeless = self._core.fatal if self._core.cluster.coordinator() is None else None
        self._core.committer.expire(now, everything=hopeless is not None, because=hopeless)
        due = self._core.book.due(now)
        if due and not self._core.closing:
            # Who has sought back is committed there: the guard against rewinds is for offsets that somebody wrote down.
            self.put(due, deadline=now + self._core.config.default_api_timeout_ms / 1000, allow_rewind=True)
        coordinator = self._core.cluster.coordinator()
        if coordinator is None:
            return
        outside = Identity(self._core.config.group or "", instance_id=None)
        request = self._core.committer.owed(self._membership, outside, now)
        if request is None:
            return
        asked = self._core.committer.in_flight

        def done(outcome: Outcome, when: float) -> None:
            if self._core.committer.in_flight is not asked:
                return  # it was given up at its deadline, and what is under way now has an answer of its own
            match outcome:
                case Answered(value):
                    self._core.meters.commit_ms.add((when - now) * 1000, when)
                    sent = asked.sent if asked is not None else None
                    refused = self._core.committer.answered(value)
                    if set(refused) & NOT_THE_COORDINATOR:
                        self._core.cluster.coordinator_gone()
                    if self._core.member is not None and sent is not None:
                        for code, partitions in refused.items():
                            self._core.tell_member(CommitRefused(code, sent, partitions))
                case NotSent(error):
                    self._core.committer.not_sent(error, when)
                case Unanswered():
                    self._core.cluster.coordinator_gone()
                    self._core.committer.unanswered(when, self._core.chance())

        ask = Ask("OffsetCommit", lambda version: fit(request, version), done, self._core.request_s, BEFORE_TOPIC_IDS)
        self._core.send(self.offsets_line, Endpoint(coordinator.host, coordinator.port), ask)

    @property
    def _membership(self) -> MemberView | None:
        """What fences a commit; None where there is no membership to. Who unsubscribes has one until it has let go."""
        core = self._core
        parting = core.view is not None and core.view.identity.generation >= 0 and not core.manual
        return core.view if core.subscription is not None or parting else None

    @property
    def offsets_line(self) -> Line:
        """How commits, and questions about them, go to the coordinator: by its own connection, unless a join waits
        there. Brokers read nothing behind a request that they have not answered, and a join may take minutes."""
        joining = self._core.view is not None and self._core.view.state is MemberState.JOINING
        return Line.CONTROL if joining else Line.GROUP

    def remember(self, stored: Mapping[TopicPartition, OffsetToCommit]) -> None:
        for partition, found in stored.items():
            self._core.book.known(partition, found.offset)

    def log_gone(self, partition: TopicPartition) -> None:
        """The log has no such place any more as it was read up to; nor does what is answered later speak of the new
        one."""
        self._core.book.drop(partition)
        for commit in self._core.committer.unsettled:
            commit.adrift.add(partition)

    def _settled(self, commit: Commit, error: KohortError | None) -> None:
        self.remember({one: found for one, found in commit.stored.items() if one not in commit.adrift})
        self._core.counters.commits += error is None
        self._core.counters.commits_refused += error is not None

    def order(self, order: CommitOrder) -> None:
        """The group's machine wants these committed before it joins."""

        def finished(error: KohortError | None) -> None:
            self._settled(commit, error)
            self._core.tell_member(CommitSettled(order.serial, dict(commit.refused)))

        commit = Commit(dict(order.offsets), {}, order.deadline, finished, identity=order.identity, order=order.serial)
        self._core.committer.put(commit)

    @property
    def owed(self) -> bool:
        """Whether commits are under way, or may go now: a goodbye would have them refused."""
        member = self._membership
        return len(self._core.committer) > 0 and (member is None or member.commits_open)

    @property
    def saving(self) -> Set[TopicPartition]:
        """Partitions of which a commit is under way that has to be stored before anybody asks where they were left.

        By hand a partition goes and comes back at once. A member's commit may wait for the next generation, and the
        fence ends it if the partition went meanwhile.
        """
        return self._core.committer.partitions if self._core.manual else frozenset()

    def before_parting(self, deadline: float) -> None:
        """What is handled and not committed, of a manual assignment, which has no on_revoked that would commit it."""
        unsaved = self._core.book.unsaved()
        if self._core.subscription is None and unsaved:
            self.put(unsaved, deadline=deadline, allow_rewind=True)

    def put(
        self,
        offsets: Mapping[TopicPartition, int | OffsetToCommit] | None,
        *,
        deadline: float,
        allow_rewind: bool = False,
        blocking: bool = False,
        on_done: OnDone | None = None,
    ) -> "Promise[None]":
        """Queue a commit; the promise ends when it is settled. None: all positions, as far as poll has returned."""
        planned = self.planned(offsets, allow_rewind=allow_rewind)
        return self.queue(planned, deadline=deadline, blocking=blocking, on_done=on_done)

    def planned(
        self, offsets: Mapping[TopicPartition, int | OffsetToCommit] | None, *, allow_rewind: bool
    ) -> PlannedCommit:
        """The commit as of now. Changes nothing. Raises IllegalState without a group, CommitRewind, and what `plain`
        raises."""
        if self._core.config.group is None:
            raise IllegalState("committing needs a group", hint='Consumer(..., group="...")')
        wanted = self._core.positions.snapshot() if offsets is None else plain(offsets)
        wanted = {partition: self._with_epoch(partition, to) for partition, to in wanted.items()}
        backwards = {} if allow_rewind else self._core.book.rewinds(wanted)
        if backwards:
            partition, committed = next(iter(backwards.items()))
            raise CommitRewind(
                f"the commit of {wanted[partition].offset} would go back behind {committed}",
                hint="commit(..., allow_rewind=True) if that is meant",
                topic=partition.topic,
                partition=partition.partition,
            )
        return PlannedCommit(wanted, {partition: owned.epoch for partition, owned in self._core.assignment.items()})

    def queue(
        self, planned: PlannedCommit, *, deadline: float, blocking: bool = False, on_done: OnDone | None = None
    ) -> "Promise[None]":
        """As `put`, of what is planned."""
        future: Promise[None] = Promise()
        wanted, epochs = planned

        def finished(error: KohortError | None) -> None:
            self._settled(commit, error)
            if on_done is not None:
                # The caller's thread takes it; no frame of ours comes before the user's.
                self.callbacks.append(partial(on_done, wanted, error))
            self._core.news = True  # close waits until none is left
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)

        commit = Commit(dict(wanted), epochs, deadline, finished, blocking=blocking)
        if not wanted:
            finished(None)
        elif self._core.fatal is not None:
            finished(self._core.fatal)
        else:
            self._core.committer.put(commit)
        return future

    def _with_epoch(self, partition: TopicPartition, to: OffsetToCommit) -> OffsetToCommit:
        # The epoch lets the next owner notice that the log behind this offset was cut (KIP-320).
        state = self._core.positions.get(partition)
        if to.leader_epoch >= 0 or state is None or state.offset != to.offset:
            return to
        return to._replace(leader_epoch=state.epoch)
