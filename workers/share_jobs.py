"""Jobs of a share consumer: each record is acknowledged by itself."""

from collections import deque
from collections.abc import Sequence
from contextlib import suppress

from kohort.common.log_context import logger
from kohort.network.errors import IllegalState
from kohort.share_consumer import ShareRecords
from kohort.share_consumer.consumer_base import ShareConsumerBase
from kohort.workers.job import Job, Jobs

log = logger("kohort.workers")


class ShareJobs(Jobs):
    """Holds acquired records until their jobs are done; see `Jobs`.

    `delivery_limit`: the deliveries after which the broker archives a record. A record whose lock is lost comes again
    by itself. The consumer refuses its outcome, which is dropped.
    """

    releases = True

    def __init__(self, consumer: ShareConsumerBase, delivery_limit: int) -> None:
        self._consumer = consumer
        self._delivery_limit = delivery_limit
        self._jobs: deque[Job] = deque()

    def add(self, polled: Sequence[ShareRecords]) -> None:
        for batch in polled:
            jobs = [Job(record, batch.delivery_count, None) for record in batch]
            with suppress(IllegalState):  # the lock is lost: the records come again
                self._consumer.hold(batch)
                self._jobs.extend(jobs)

    def next(self) -> Job | None:
        return self._jobs[0] if self._jobs else None

    def started(self, job: Job) -> None:
        """The record has a handler, so that `stop` does not release it. Until then an interrupt may have come."""
        self._jobs.popleft()

    @property
    def blocked(self) -> bool:
        return bool(self._jobs)

    def is_last(self, attempt: int) -> bool:
        return attempt >= self._delivery_limit

    def done(self, job: Job) -> None:
        self._acknowledge(job, "accept")

    def again(self, job: Job) -> None:
        self._acknowledge(job, "release")

    def dead(self, job: Job) -> None:
        self._acknowledge(job, "reject")

    def failed(self, job: Job, error: Exception) -> None:
        log.warning("%r is rejected after attempt %d: %r", job.record, job.attempt, error)
        self._acknowledge(job, "reject")

    put_back = again

    def stop(self) -> None:
        while self._jobs:
            self.put_back(self._jobs.popleft())

    def _acknowledge(self, job: Job, how: str) -> None:
        try:
            self._consumer.acknowledge(job.record, how)
        except IllegalState:
            log.info("the lock of %r is lost, so it is delivered again", job.record)
