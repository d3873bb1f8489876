"""The share consumer without sockets, thread and clock, which are in the driver.

`ShareHeartbeats` has the member, and `ShareFetcher` the sessions, the parked records and the acknowledgements. All run
under the driver's lock. Changes are made on the driver's thread, because a signal handler may raise on the caller's.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import NamedTuple
from uuid import UUID

from kohort.common import KohortError
from kohort.common.log_context import logger
from kohort.network._guard import Door
from kohort.network.client_core import ClientCore
from kohort.network.errors import ConcurrentUseError, IllegalState
from kohort.network.metadata_refresh import MetadataRefresher, WantedTopics
from kohort.network.metadata_updater import MetadataUpdater
from kohort.network.request_manager import earliest, poll_all
from kohort.network.requests import PollResult
from kohort.share_consumer.errors import ShareConsumerClosed
from kohort.share_consumer.share_config import ShareConsumerConfig
from kohort.share_consumer.share_context import ShareContext
from kohort.share_consumer.share_fetcher import ParkedFetch, ShareFetcher
from kohort.share_consumer.share_heartbeats import ShareHeartbeats
from kohort.share_consumer.share_records import AcknowledgeOutcome, ShareRecords
from kohort.share_consumer.share_sensors import ShareSensors
from kohort.share_consumer.states import ShareState

log = logger("kohort.share_consumer")


class Handed(NamedTuple):
    """The result of a call: batches of a poll that ended at `at` (monotonic s), or failures of a commit.

    Its last step hands it over, and the next call takes it. So a result that a signal handler kept from the caller
    comes again.
    """

    batches: Sequence[ShareRecords] = ()
    failures: Sequence[AcknowledgeOutcome] = ()
    at: float | None = None


LEAST_DEMAND_S = 0.05
"""The time in which records are requested for a poll at least, so that polls which do not wait have records in time."""

LEAVE_S = 5.0
"""The longest time that a dropped consumer takes to leave."""


class ShareConsumerCore(ClientCore[ShareConsumerConfig]):
    """The state of one share consumer; see the module. `chance` returns random numbers in [0, 1)."""

    def __init__(self, config: ShareConsumerConfig, *, chance: Callable[[], float], started: float) -> None:
        super().__init__(config, chance=chance, started=started)
        self.metadata = MetadataRefresher(self.backoff, config.metadata_max_age_ms / 1000)
        self.cluster = MetadataUpdater(
            self,
            lambda: self.heartbeats.member.topics,
            on_metadata=lambda _changed: self._updated(),
            on_coordinator_lost=lambda endpoint, _error: self.heartbeats.coordinators.lost(endpoint),
            on_data_lost=lambda endpoint, now: self.fetcher.connection_lost(endpoint, now),
        )
        self.door = Door(_elsewhere)
        self.sensors = ShareSensors()
        self.retired: Callable[[], None] | None = None  # dropped unclosed: called once the group was left
        context = ShareContext(
            config,
            _member_id(chance),
            self.metadata,
            self.counters,
            self.sensors,
            self.backoff,
            chance,
            self.cluster.send_to_any,
            self.fail,
            self.put_error,
            self._updated,
        )
        self.heartbeats = ShareHeartbeats(context)
        self.fetcher = ShareFetcher(context, lambda: self.heartbeats.member.assignment)
        self.subscription: frozenset[str] = frozenset()
        self.errors: deque[KohortError] = deque()  # for polls
        self._leaves_by = inf

    # ------------------------------------------------------------------ called by the driver

    def log_fields(self) -> Mapping[str, object]:
        """The fields of log lines of the driver's thread."""
        return {"client_id": self.config.client_id, "group": self.config.group}

    def poll(self, now: float, wall_ms: int) -> PollResult:
        """Handle everything that happened, and return the requests to send."""
        self.cluster.bootstrap_failed(now)
        if self.retired is not None and self._leaves_by == inf:
            self.begin_close(None, now, now + LEAVE_S)
        if self.fetcher.closing and (self.fetcher.closed or now >= self._leaves_by):
            self.heartbeats.member.leave()
        if not self.fetcher.parked:  # else the caller has been woken, and is slow
            self.heartbeats.member.waited(min(now, self.fetcher.demand_until))
        others = poll_all((self.heartbeats, self.fetcher), now) if self._fatal is None else PollResult((), None)
        cluster = self.cluster.poll(now)  # last, since the others request updates and coordinators
        if self.retired is not None and self.left(now):
            self.retired()
        self._polled()
        times = (cluster.next_poll_at, others.next_poll_at, self._leaves_by)
        return PollResult(cluster.requests + others.requests, earliest(now, times))

    @property
    def bootstrap_s(self) -> float:
        """Time (s) at the start after which the client ends if no broker was reached."""
        return self.config.bootstrap_timeout_ms / 1000

    def fail(self, error: KohortError) -> None:
        """End the consumer: every later call raises the error."""
        if self._fatal is None:
            self._fatal = error
            self.heartbeats.member.fail(error)
            if not isinstance(error, ShareConsumerClosed):
                log.error("the share consumer failed and must be closed: %s", error)
        self._fresh = True

    def put_error(self, error: KohortError) -> None:
        """Have the next poll raise an error, once for any number of occurrences before that poll."""
        if not any(type(one) is type(error) and str(one) == str(error) for one in self.errors):
            self.errors.append(error)
        self._fresh = True

    # ------------------------------------------------------------------ called for the user's thread

    def subscribe(self, topics: frozenset[str], now: float) -> None:
        """Replace the subscription. No topics end it."""
        self._check()
        self.fetcher.give_back(topics, now)
        self.subscription = topics
        self.metadata.set_topics(WantedTopics(topics))
        self.cluster.forget_missing()
        self.heartbeats.member.subscribe(topics, now)

    def take(self, handed: Handed | None) -> None:
        """The caller has the result of its last call. It may be repeated."""
        if handed is not None:
            self.fetcher.take(handed.batches)
            self.fetcher.forget(handed.failures)
            if handed.at is not None:
                self.sensors.polls.end(handed.at)

    def begin_poll(self, handed: Handed | None, now: float, until: float) -> None:
        """As `poll_on`, at the start of a call."""
        self.take(handed)
        self.sensors.polls.begin(now)
        self.poll_on(None, now, until)

    def poll_on(self, handed: Handed | None, now: float, until: float) -> None:
        """Queue the acknowledgements of returned records, and request more until `until`.

        Raises the error that ended the consumer. Raises IllegalState without a subscription, and in explicit mode while
        records are not acknowledged.
        """
        self.take(handed)
        self._check()
        if not self.subscription:
            raise IllegalState("poll without a subscription", hint="call subscribe first")
        if self.config.acknowledgement_mode == "explicit":
            for batch in self.fetcher.held():
                if batch.pending and batch.session.alive:
                    raise IllegalState(
                        f"{batch.pending} records of the last poll have no acknowledgement",
                        hint="acknowledge each record before the next poll",
                        topic=batch.topic,
                        partition=batch.partition,
                    )
        self._settle(now, forgets_lost=True)
        self.heartbeats.member.polled(now)
        # A poll that raises an error requests no records.
        self.fetcher.demand_until = -inf if self.errors else max(until, now + LEAST_DEMAND_S)

    def end_demand(self) -> None:
        """The poll has raised an error, so it waits no longer."""
        self.fetcher.demand_until = -inf

    def begin_commit(self, handed: Handed | None, now: float) -> None:
        """Send the acknowledgements of returned records at once."""
        self.take(handed)
        self._check()
        self._settle(now)
        self.fetcher.flushes = True

    def begin_close(self, handed: Handed | None, now: float, leaves_by: float) -> None:
        """Send noted acknowledgements, close the sessions, which releases all other records, and leave the group."""
        self.take(handed)
        if not self.fetcher.closing:
            self.fetcher.settle(now)
            self.fetcher.closing = True
        self._leaves_by = leaves_by

    def _settle(self, now: float, *, forgets_lost: bool = False) -> None:
        if self.config.acknowledgement_mode == "implicit":
            for batch in self.fetcher.held():
                batch.accept_pending()
        self.fetcher.settle(now, forgets_lost=forgets_lost)

    def left(self, now: float) -> bool:
        """True if sessions and membership have ended, or the time for it is over."""
        is_out = self.heartbeats.member.state in (ShareState.OUT, ShareState.FAILED)
        return now >= self._leaves_by or self._fatal is not None or (self.fetcher.closed and is_out)

    def ready(self, now: float) -> list[ParkedFetch]:
        """The parked fetches. Raises the error that ended the consumer."""
        self._check()
        return self.fetcher.ready(now)

    @property
    def unsettled(self) -> bool:
        """True while acknowledgements wait or are in flight. Raises the error that ended the consumer."""
        if self.fetcher.unsettled:
            self._check()
        return self.fetcher.unsettled

    def _check(self) -> None:
        if self._fatal is not None:
            raise self._fatal


def _member_id(chance: Callable[[], float]) -> str:
    return str(UUID(int=int(chance() * 2**64) << 64 | int(chance() * 2**64), version=4))


def _elsewhere() -> ConcurrentUseError:
    return ConcurrentUseError("another thread uses this share consumer", hint="one thread at a time")
