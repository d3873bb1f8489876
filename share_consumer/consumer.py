"""`ShareConsumer`: the blocking member of a share group."""

from collections.abc import Iterator
from typing import Never, Self

from kohort.network._guard import Visit
from kohort.network.arguments import seconds_given
from kohort.network.errors import ConcurrentUseError
from kohort.network.process_exit import OPEN
from kohort.share_consumer.consumer_base import LONGEST_POLL_S, Failures, OnAcknowledged, ShareConsumerBase
from kohort.share_consumer.share_config import ShareConsumerConfig
from kohort.share_consumer.share_core import Handed
from kohort.share_consumer.share_records import ShareRecords


class ShareConsumer(ShareConsumerBase):
    """A member of a share group (KIP-932): a queue on Kafka's topics, with an acknowledgement for each record.

        with ShareConsumer("localhost:9092", group="jobs") as consumer:
            consumer.subscribe(["work"])
            for batch in consumer:
                for record in batch:
                    consumer.acknowledge(record, "accept")
                failures = consumer.commit()

    `settings`: by kohort's names, see `kohort.share_consumer.SETTINGS`. A new group starts at the end of the log: set
    `share.auto.offset.reset=earliest` on the group to change it.

    With `acknowledgement_mode="implicit"`, the next poll or commit accepts the returned records that were not
    acknowledged. With "explicit", poll raises IllegalState while such records exist. Close releases them in both modes.

    `on_acknowledged` is called inside poll, commit and close with an `AcknowledgeOutcome` for each range of offsets.

    One thread at a time may use it (ConcurrentUseError), except for `wakeup`. Heartbeats run on a thread of their own.
    Every error derives from KohortError.

    A signal handler may call `wakeup`, and may raise. If it raises inside a call, no record, failure or callback is
    lost: records come with the next poll, and failures with the next commit.
    """

    def _begin(self, config: ShareConsumerConfig, on_acknowledged: OnAcknowledged | None) -> None:
        super()._begin(config, on_acknowledged)
        OPEN[self] = ShareConsumer._close_at_exit

    def poll(self, timeout_s: float = 1.0, **strange: Never) -> list[ShareRecords]:
        """Return acquired records, a ShareRecords for each range with one delivery count.

        Waits up to `timeout_s` seconds for the first. Raises pending errors. Raises IllegalState before `subscribe`,
        and in explicit mode while records of an earlier poll are not acknowledged.
        """
        timeout_s = seconds_given(timeout_s, **strange)
        visit = self._enter()
        found, handed = self._poll(visit, timeout_s, every=True)
        # The last step: a signal handler that raises before it leaves all records where they were.
        visit.handed = handed
        return found

    def __iter__(self) -> Iterator[ShareRecords]:
        """Yield batches, for ever. Each step is a poll. Iteration ends when the consumer is closed."""
        while not self._closed:
            visit = self._enter()
            found, handed = self._poll(visit, LONGEST_POLL_S, every=False)
            visit.handed = handed
            yield from found

    def _poll(self, visit: Visit, timeout_s: float, *, every: bool) -> tuple[list[ShareRecords], Handed]:
        """The result of a poll, and its form for the next call. An error ends the visit."""
        try:
            return self._returned(self._collect(timeout_s, every=every))
        except BaseException as problem:
            visit.leave()
            self._report("poll", problem)
            if problem is self._error:
                self._error = None  # the last step: no signal handler takes its place after this
            raise

    def _collect(self, timeout_s: float, *, every: bool) -> list[ShareRecords]:
        """Return all parked batches, or the first with records and those without before it."""
        driver = self._driver
        until = self._begin_poll(timeout_s)
        while True:
            self._raise_due()
            self._call_back()
            parked = self._handle.wait_for(self._look, max(until - driver.now(), 0.0))
            if parked is None:
                return []
            batches = self._batches(parked, every=every)
            if any(len(batch) for batch in batches):
                return batches
            self._poll_on(batches, driver.now(), until)

    def commit(self, timeout_s: float | None = None) -> Failures:
        """Send the noted acknowledgements, and wait for their outcomes.

        In implicit mode, all other returned records are accepted. Returns the acknowledgements that failed since the
        last commit, by partition and offset: BrokerError, LockLost, or ConnectionFailed if the outcome is unknown.
        Raises OperationTimeout if there is no response in time. A later commit returns the failures then.
        """
        seconds = self._commit_s(timeout_s)
        visit = self._enter()
        try:
            self._begin_commit()
            failures, handed = self._failed(self._handle.wait_for(self._committed, seconds))
        except BaseException as problem:
            visit.leave()
            self._report("commit", problem)
            raise
        visit.handed = handed  # the last step, as in poll
        return failures

    def close(self, timeout_s: float = 30.0) -> None:
        """Send noted acknowledgements, release all other records, leave the group, close every connection.

        It ends after `timeout_s` seconds at the latest. It skips steps that are not finished by then. Safe to call
        again. If a signal handler has raised in it, all other calls raise ShareConsumerClosed, and another `close`
        completes it.
        """
        timeout_s = seconds_given(timeout_s)
        driver = self._driver
        driver.check_same_process()
        if self._over:
            return
        with self._door.visit():
            self._closed = True
            until = driver.now() + timeout_s
            try:
                if not driver.stopping:
                    self._begin_close(until)
                    self._handle.wait_for(self._left, timeout_s)
                self._call_back()
            finally:
                if self._parted(until):
                    self._end()
                    driver.stop(max(until - driver.now(), 1.0))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def _close_at_exit(self, timeout_s: float) -> None:
        try:
            self.close(timeout_s)
        except ConcurrentUseError:  # a daemon thread uses it
            self._leave_at_exit(timeout_s)
