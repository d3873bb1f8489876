"""The jobs of a run: started, held for a retry, sent to the dead-letter topic. No clock, no threads, no I/O."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Final, NamedTuple

from kohort.common import KohortError, TopicPartition
from kohort.common.log_context import logger
from kohort.workers.dead_letters import DeadLetters
from kohort.workers.errors import HandlerFailed
from kohort.workers.job import Job, Jobs
from kohort.workers.retry import Retry

log = logger("kohort.workers")

SHORTEST_S: Final = 0.001
"""The shortest wait for what is due."""


class RunTotals(NamedTuple):
    """Attempts of a run by outcome: effects that are done, retries, and records in the dead-letter topic."""

    done: int = 0
    retries: int = 0
    dead_letters: int = 0


class Held(NamedTuple):
    """A job that waits until `at` (monotonic s). `error` is the handler's, if the dead letter is to be sent again."""

    at: float
    serial: int
    job: Job
    error: Exception | None


class RunState:
    """The state of a run; see the module. `stopping`: no job starts any more."""

    def __init__(self, jobs: Jobs, retry: Retry, dead_letters: DeadLetters | None, max_held: int) -> None:
        self.jobs = jobs
        self._running: dict[int, Job] = {}  # by id
        self.totals = RunTotals()
        self._retry = retry
        self._dead_letters = dead_letters
        self._max_held = max_held
        self._held: list[Held] = []
        self._serial = count()
        self._failure: HandlerFailed | None = None
        self.stopping = self._deferring = False

    def next(self) -> Job | None:
        """The next job to start, which counts as running from `started` on; None if there is none."""
        return None if self.stopping or self._is_full() else self.jobs.next()

    def started(self, job: Job) -> None:
        """A handler has the job."""
        self._running[id(job)] = job
        self.jobs.started(job)

    def finished(self, job: Job, error: Exception | None, now: float) -> None:
        """A handler has returned, or has failed. After an error here, the record is put back."""
        try:
            self._settle(job, error, now)
        except BaseException:  # of the consumer, or of a signal handler
            with suppress(KohortError):
                self.cancelled(job)
            raise
        self._running.pop(id(job), None)

    def _settle(self, job: Job, error: Exception | None, now: float) -> None:
        if error is None:
            self.jobs.done(job)
            self.totals = self.totals._replace(done=self.totals.done + 1)
            return
        log.info("a handler failed on %r, attempt %d: %r", job.record, job.attempt, error)
        if self.jobs.is_gone(job):
            return  # the next owner of the partition handles the record
        is_last = job.attempt >= self._retry.attempts or self.jobs.is_last(job.attempt)
        if isinstance(error, self._retry.no_retry) or is_last:
            if self._dead_letters is None:
                self._failed(job, error)
            else:
                self._dead_letters.send(job, error)
            return
        self.totals = self.totals._replace(retries=self.totals.retries + 1)
        if self.stopping or (self.jobs.releases and len(self._held) >= self._max_held):
            self.jobs.again(job)
        else:
            self._hold(job, None, now)

    def _failed(self, job: Job, error: Exception) -> None:
        try:
            self.jobs.failed(job, error)
        except HandlerFailed as failure:
            if not (self.stopping or self._deferring):
                raise
            self._failure = self._failure or failure

    @contextmanager
    def failures_deferred(self) -> Iterator[None]:
        """Until the end of the block, HandlerFailed is not raised. The next `tick` raises it."""
        self._deferring = True
        try:
            yield
        finally:
            self._deferring = False

    def outcome(self) -> RunTotals:
        """The totals of a run that has ended. Raises HandlerFailed if a last attempt failed while it ended."""
        if self._failure is not None:
            raise self._failure
        return self.totals

    def broken(self, job: Job, error: BaseException) -> None:
        """An error that is no failure of the handler. The first one ends the run, and is raised here."""
        self.cancelled(job)
        if not self.stopping:
            raise error

    def cancelled(self, job: Job) -> None:
        """A started job has no outcome. It has no effect on one that has."""
        if self._running.pop(id(job), None) is not None:
            self.jobs.put_back(job)

    def tick(self, now: float) -> None:
        """Handle what is due: retries, outcomes of dead letters, and a failure that was deferred."""
        if self._failure is not None and not (self.stopping or self._deferring):
            raise self._failure
        while self._held and (due := self._held[0]).at <= now:
            if due.error is None:
                self.jobs.again(due.job)
            elif self._dead_letters is not None:
                self._dead_letters.send(due.job, due.error)
            heappop(self._held)  # last: an error may come before, and `stop` puts it back
        for job, error, failure in self._dead_letters.settled() if self._dead_letters is not None else ():
            if failure is None:
                self.jobs.dead(job)
                self.totals = self.totals._replace(dead_letters=self.totals.dead_letters + 1)
            elif self.stopping:
                self.jobs.put_back(job)
            else:
                log.warning("the dead letter of %r failed and is sent again: %r", job.record, failure)
                self._hold(job, error, now)

    def wait_s(self, now: float, longest_s: float) -> float:
        """The time until the next `tick` as far as it is known, and at most `longest_s`."""
        return min(max(self._held[0].at - now, SHORTEST_S), longest_s) if self._held else longest_s

    def stop(self) -> None:
        """Start no more jobs, and give up the delays of retries."""
        self.stopping = True
        held, self._held = self._held, []
        for one in held:
            self.jobs.put_back(one.job)
        self.jobs.stop()

    def give_up(self) -> None:
        """Put back all records without an outcome, except those of running handlers."""
        self.stop()
        for job in self._dead_letters.given_up() if self._dead_letters is not None else ():
            self.jobs.put_back(job)

    @property
    def running(self) -> int:
        """The number of started jobs that have not finished."""
        return len(self._running)

    def running_of(self, partitions: Iterable[TopicPartition]) -> int:
        """The number of started jobs with records of these partitions."""
        places = frozenset(partitions)
        return sum((job.record.topic, job.record.partition) in places for job in self._running.values())

    @property
    def idle(self) -> bool:
        """True if no handler runs and no dead letter is on its way."""
        return not self.running and not (self._dead_letters is not None and self._dead_letters.waiting)

    def _is_full(self) -> bool:
        """True if so many records are held that no others start. Those of partitions that are gone do not count."""
        if self.jobs.releases or len(self._held) < self._max_held:
            return False
        self._held = [one for one in self._held if not self.jobs.is_gone(one.job)]
        heapify(self._held)
        return len(self._held) >= self._max_held

    def _hold(self, job: Job, error: Exception | None, now: float) -> None:
        heappush(self._held, Held(now + self._retry.after_s(job.attempt), next(self._serial), job, error))
