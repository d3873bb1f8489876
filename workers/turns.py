"""The consumer's side of a run before each poll and at its end, for threads and tasks alike."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from time import monotonic
from typing import Any

from kohort.common import KohortError, TopicPartition
from kohort.common.log_context import logger
from kohort.coordinator_client.consumer_base import ConsumerBase
from kohort.coordinator_client.hooks import Offsets, RebalanceHooks
from kohort.fastpath import RecordColumns
from kohort.network.errors import IllegalState
from kohort.share_consumer import ShareRecords
from kohort.share_consumer.consumer_base import ShareConsumerBase
from kohort.workers.keyed_jobs import KeyedJobs
from kohort.workers.run_plan import COMMIT_S, AnyConsumer, keyed_jobs, share_jobs

log = logger("kohort.workers")


class ShareTurn:
    """The turns of a share consumer. Acknowledgements go with its polls."""

    def __init__(self, consumer: ShareConsumerBase, dead_letter: str | None) -> None:
        self.jobs = share_jobs(consumer, dead_letter)
        self.consumer = consumer
        self.result: Sequence[ShareRecords] = ()  # of a poll, until there are jobs of it
        self._paused = False

    def before_poll(self) -> None:
        """Pause the consumer while records wait for a handler: other members may have handlers for more."""
        if self.jobs.blocked is not self._paused:
            self._pause(self.jobs.blocked)

    def take_result(self) -> None:
        """Make jobs of the polled records."""
        self.jobs.add(self.result)
        self.result = ()

    def last_commit(self) -> dict[str, Any]:
        """A commit without arguments sends all acknowledgements. The consumer is the caller's again, and not paused."""
        with suppress(KohortError):  # it may be closed, or have failed
            self._pause(False)
        for batch in self.result:  # an interrupt came before its jobs, and in implicit mode a commit would accept it
            with suppress(KohortError):
                self.consumer.acknowledge(batch, "release")
        return {}

    def _pause(self, paused: bool) -> None:
        (self.consumer.pause if paused else self.consumer.resume)()
        self._paused = paused


class KeyedTurn:
    """The turns of a Consumer: commits, and pauses of partitions of which enough records are here."""

    def __init__(self, consumer: ConsumerBase, dead_letter: str | None) -> None:
        self.jobs = keyed_jobs(consumer, dead_letter)
        self.consumer = consumer
        self.result: Sequence[RecordColumns] = ()  # of a poll, until there are jobs of it
        self._committed_at = monotonic()
        self._paused: frozenset[TopicPartition] = frozenset()

    def before_poll(self) -> None:
        """Commit what is done, at intervals, and pause or resume partitions."""
        now = monotonic()
        if now - self._committed_at >= COMMIT_S and (due := self.jobs.due()):
            # Back, too: the caller may have sought back, or the log may have lost its end.
            self.consumer.commit_async(due, partial(self._on_commit, due), allow_rewind=True)
            self._committed_at = now
        full = self.jobs.full & self.consumer.assignment
        if full != self._paused:
            self.consumer.pause(full)
            self.consumer.resume(self._paused - full)  # also one that is revoked, since it may be assigned again
            self._paused = full

    def take_result(self) -> None:
        """Make jobs of the polled records."""
        self.jobs.add(self.result)
        self.result = ()

    def last_commit(self) -> dict[str, Any] | None:
        """The offsets of the records that are done. The consumer is the caller's again, and reads on behind them."""
        self.take_result()  # an interrupt may have come first: the records are not done
        with suppress(KohortError):  # it may be closed, or have failed
            self._give_back()
        due = self.jobs.due()
        return {"offsets": due, "allow_rewind": True} if due else None

    def _give_back(self) -> None:
        self.consumer.resume(self._paused | self.jobs.full)  # an interrupt may have come behind `pause`
        # Else the next run would commit offsets behind these records.
        for partition, offset in self.jobs.unfinished().items():
            with suppress(IllegalState):  # it may be revoked meanwhile
                self.consumer.seek(partition, offset)

    def _on_commit(self, offsets: dict[TopicPartition, int], _stored: object, error: Exception | None) -> None:
        if error is None:
            self.jobs.committed(offsets)
        else:
            log.info("a commit failed, and is repeated if the partitions stay here: %s", error)


def turn_of(consumer: AnyConsumer, dead_letter: str | None) -> ShareTurn | KeyedTurn:
    """The turns of a consumer of either kind."""
    if isinstance(consumer, ShareConsumerBase):
        return ShareTurn(consumer, dead_letter)
    return KeyedTurn(consumer, dead_letter)


class RunHooks(RebalanceHooks):
    """Hooks of a run, which call those of the subscription too. `work`: the running handlers, for which a revocation
    waits up to `timeout_s`."""

    def __init__(self, jobs: KeyedJobs, work: Any, timeout_s: float) -> None:
        self.jobs = jobs
        self.work = work
        self.timeout_s = timeout_s
        self.former = RebalanceHooks()

    def done_of(self, partitions: frozenset[TopicPartition]) -> Offsets:
        """The offsets to commit of partitions that are revoked, which are dropped."""
        due = {each: offset for each, offset in self.jobs.due().items() if each in partitions}
        self.jobs.drop(partitions)
        return due


@contextmanager
def hooked(turn: KeyedTurn, hooks: RunHooks) -> Iterator[None]:
    """Have the consumer call the hooks of a run, which call the former ones."""
    hooks.former = turn.consumer.replace_hooks(hooks)
    try:
        yield
    finally:
        turn.consumer.replace_hooks(hooks.former)
