"""Sends ShareFetch and ShareAcknowledge, and handles their responses. No clock, no I/O.

Each broker has one session (`share_session.py`). A ShareFetch is sent while a poll waits and nothing is parked, so no
lock runs out in a buffer that nothing reads. Acknowledgements ride on it. Without a ShareFetch they are sent by
ShareAcknowledge: at once for a commit and for renewals, otherwise after `LINGER_S`.

When a session is lost, its parked records are dropped, and the broker is made to release what it keeps of it.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Any, Final, NamedTuple
from uuid import UUID

from kohort.common import KohortError, TopicPartition
from kohort.common.log_context import logger
from kohort.common.topic_partition import grouped
from kohort.fastpath import CorruptRecord, RecordColumns, decode
from kohort.network.backoff import FRESH, Attempts
from kohort.network.error_mapping import group_error, topic_error
from kohort.network.errors import ConnectionFailed
from kohort.network.metadata import BrokerNode
from kohort.network.request_manager import earliest
from kohort.network.requests import (
    ConnectionPurpose,
    Endpoint,
    NoResponse,
    PendingRequest,
    PollResult,
    RequestResult,
    ResponseReceived,
    SendFailed,
    UnsentRequest,
)
from kohort.protocol.apis.share_acknowledge import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
)
from kohort.protocol.apis.share_fetch import (
    FetchPartition,
    FetchTopic,
    ForgottenTopic,
    ShareFetchRequest,
    ShareFetchResponse,
)
from kohort.protocol.errors import BrokerError, ErrorCode, UnsupportedVersion
from kohort.protocol.schema import Buffer
from kohort.share_consumer.errors import LockLost
from kohort.share_consumer.share_context import ShareContext
from kohort.share_consumer.share_member import Assignment, unsupported
from kohort.share_consumer.share_records import (
    GAP,
    SETTLED,
    UNREADABLE,
    AcknowledgeOutcome,
    AcknowledgeType,
    AckRange,
    AcquiredRange,
    SessionLife,
    SharePartition,
    ShareRecords,
    acquired_part,
    merged,
    split,
)
from kohort.share_consumer.share_session import SessionRequest, ShareSession

log = logger("kohort.share_consumer")

LINGER_S: Final = 0.1
RENEWALS_TRIED: Final = 4
"""The most renewals of a held record in the second half of its lock."""
MOST_FAILURES: Final = 10_000
"""The most failed ranges that are kept for the next commit."""
MOST_ACQUIRED: Final = 1 << 24
"""The most acquired offsets of a response: each takes a byte here. The broker's window is some thousands."""
DEFAULT_LOCK_MS: Final = 30_000
"""The default of `share.record.lock.duration.ms`, until a response has the group's."""

SESSION_GONE: Final = frozenset(
    {
        ErrorCode.SHARE_SESSION_NOT_FOUND,
        ErrorCode.INVALID_SHARE_SESSION_EPOCH,
        ErrorCode.SHARE_SESSION_LIMIT_REACHED,
    }
)
"""Errors after which the next request opens a new session."""

MOVED: Final = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})
"""Errors with a new leader in the response. Only with them `current_leader` has a meaning (SH-74)."""

FINAL: Final = MOVED | {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID}
"""Retriable errors that end an acknowledgement all the same: the state of the records is gone (SH-66)."""

ACQUIRE_MODES: Final = {"batch_optimized": 0, "record_limit": 1}
AckCodes = Mapping[SharePartition, tuple[int, str | None]]
"""The error codes of acknowledgements, with their messages."""


@dataclass(slots=True, eq=False)
class ParkedFetch:
    """Acquired records that no poll has returned. `batches`, `error` and `rest` are filled when they are decoded.

    `rest`: the ranges above the limit of one decoding. It takes this one's place once its batches are returned.
    """

    topic: str
    place: SharePartition
    records: Buffer
    ranges: tuple[AcquiredRange, ...]
    life: SessionLife
    lock_until: float
    batches: list[ShareRecords] | None = None
    error: CorruptRecord | None = None
    rest: "ParkedFetch | None" = None

    def releases(self) -> list[AckRange]:
        """A release of each range that no poll has returned. It raises no error."""
        if self.batches is None:
            return [_release(one.first_offset, one.last_offset) for one in self.ranges]
        left = [_release(one.first_offset, one.last_offset) for one in self.batches if not one.returned]
        return left + (self.rest.releases() if self.rest is not None else [])


class Sent(NamedTuple):
    """A request in flight. `acquires`: its response may have records."""

    session: ShareSession
    acks: Mapping[SharePartition, tuple[AckRange, ...]]
    at: float
    acquires: bool


OnResponse = Callable[[Sent, Any, float], None]


class ShareFetcher:
    """The sessions with all brokers, the parked records, and the acknowledgements of a consumer."""

    def __init__(self, context: ShareContext, assignment: Callable[[], Assignment]) -> None:
        self._context = context
        self._assignment = assignment
        self.sessions: dict[int, ShareSession] = {}
        self.parked: list[ParkedFetch] = []
        self.hand: dict[SharePartition, list[ShareRecords]] = {}
        self.outcomes: deque[AcknowledgeOutcome] = deque()  # for the callback
        self.failures: deque[AcknowledgeOutcome] = deque(maxlen=MOST_FAILURES)
        self.lock_timeout_ms: int | None = None
        self.demand_until = -inf
        self.paused = False
        self.flushes = False
        self.closing = False
        self.reports = False  # outcomes are kept for a callback
        self.acknowledgements_sent = self.acknowledgements_failed = 0
        self._implicit = context.config.acknowledgement_mode == "implicit"
        self._names: dict[UUID, str] = {}
        self._remade = False  # a topic was made again, so one name has records of two
        self._attempts: dict[int, Attempts] = {}
        self._barred: dict[SharePartition, Attempts] = {}
        self._fetching: set[int] = set()
        self._acks_in_flight: dict[int, Mapping[SharePartition, tuple[AckRange, ...]]] = {}
        self._deferred: list[ShareRecords] = []  # whose acknowledgements wait for the outcome of a renewal

    # ------------------------------------------------------------------ requests

    def poll(self, now: float) -> PollResult:
        """Return the requests that are due."""
        if now >= self._renew_at and not self.closing:
            self._renew(now)
        self._queue_deferred(now)
        wanted = self._wanted(now)
        requests: list[UnsentRequest] = []
        for node in wanted.keys() - self.sessions.keys():
            self.sessions[node] = ShareSession(node)
        # The broker whose last fetch is the oldest is first: in record_limit mode only one is fetched from.
        for node, session in sorted(self.sessions.items(), key=lambda one: (one[1].fetched_at, one[0])):
            if not session.in_flight and now >= self._attempts.get(node, FRESH).not_before:
                requests += self._next(session, wanted.get(node, frozenset()), now)
        if self.flushes and not self.unsettled:
            self.flushes = False
        return PollResult(tuple(requests), earliest(now, self._times(now)))

    def _next(self, session: ShareSession, wanted: frozenset[SharePartition], now: float) -> tuple[UnsentRequest, ...]:
        if session.stale:
            return self._release_stale(session, now)
        if self.closing:
            if not session.is_open():
                return ()
            if session.renews:  # first, since other acknowledgements of its records wait for its outcome
                return self._acknowledge(session, session.acknowledge(), now)
            self._release_forgotten(session, now)
            return self._acknowledge(session, session.close(), now)
        fetches = bool(wanted) and self._demands(now)
        if session.waiting and not (fetches and session.may_ride(wanted)):
            age_s = now - (session.waiting_since or now)
            if fetches or self.flushes or session.renews or age_s >= LINGER_S:
                return self._acknowledge(session, session.acknowledge(), now)
        return self._fetch(session, session.fetch(wanted), now) if fetches else ()

    def _release_stale(self, session: ShareSession, now: float) -> tuple[UnsentRequest, ...]:
        """Open a session without records for the partitions of the lost one, and close it."""
        if session.is_open():
            # The response has nothing to settle: the broker has released the records, and closed the session for them.
            return self._acknowledge(session, session.released(), now, lambda *_: session.emptied())
        known = {topic.id for topic in self._context.metadata.view.topics.values()}
        session.stale = frozenset(place for place in session.stale if place.topic_id in known)
        if not session.stale or now >= session.stale_until:
            session.stale = frozenset()
            return ()
        return self._fetch(session, session.reopened(session.stale), now, acquires=False)

    def _release_forgotten(self, session: ShareSession, now: float) -> None:
        """Queue releases of records in partitions that the session has no more. Its close does not release them."""
        for one in self.parked:
            if one.life is session.life and one.place not in session.partitions:
                session.wait(one.place, one.releases(), now)
        for place, batches in self.hand.items():
            for batch in batches:
                if batch.session is session.life and place not in session.partitions:
                    session.wait(place, (_release(*run) for run in batch.open_runs()), now)

    def _renew(self, now: float) -> None:
        """Queue renewals of held records whose session has no request in flight. Expired locks are reported."""
        batches = [batch for batch in self.held() if batch.session.alive]
        for session in self.sessions.values():
            session.renew_at = inf
        for batch in batches:
            acks, session = batch.held(), self.sessions[batch.session.node]
            if acks and now >= batch.held_until:
                self._lose_held(batch, "the lock has expired")
            elif acks:
                waits = session.in_flight or now < self._attempts.get(session.node, FRESH).not_before
                if now >= batch.renew_at and not waits:
                    session.wait(batch.place, acks, now)
                    batch.renew_at = now + self._renewal_s / RENEWALS_TRIED
                session.renew_at = min(session.renew_at, batch.renew_at, batch.held_until)

    @property
    def _renew_at(self) -> float:
        return min((one.renew_at for one in self.sessions.values()), default=inf)

    @property
    def _renewal_s(self) -> float:
        """The age of a lock at which it is renewed."""
        return (self.lock_timeout_ms or 0) / 2000

    def hold(self, batch: ShareRecords) -> bool:
        """Renew the locks of a batch until its records are acknowledged. Returns False if it has no open records."""
        if not self._has(batch) or not batch.session.alive or not batch.hold():
            return False
        batch.renew_at = batch.held_until - self._renewal_s
        session = self.sessions[batch.session.node]
        session.renew_at = min(session.renew_at, batch.renew_at)
        return True

    def _demands(self, now: float) -> bool:
        if self.paused or now >= self.demand_until or self.parked:
            return False
        return not (self._fetching and self._context.config.acquire_mode == "record_limit")

    def _wanted(self, now: float) -> dict[int, frozenset[SharePartition]]:
        """The assigned partitions by the broker that leads them. Missing topics and leaders are requested."""
        view = self._context.metadata.view
        named = {topic.id: topic for topic in view.topics.values()}
        found: dict[int, set[SharePartition]] = {}
        for topic_id, numbers in self._assignment().items():
            topic = named.get(topic_id)
            if topic is None:
                self._context.metadata.request_update()
                continue
            if topic_id not in self._names:
                self._remade |= topic.name in self._names.values()
                self._names[topic_id] = topic.name
            for number in numbers:
                known, place = topic.partitions.get(number), SharePartition(topic_id, number)
                if known is None or known.leader not in view.brokers:
                    self._context.metadata.request_update()
                elif now >= self._barred.get(place, FRESH).not_before:
                    found.setdefault(known.leader, set()).add(place)
        return {node: frozenset(places) for node, places in found.items()}

    def _times(self, now: float) -> Iterable[float | None]:
        yield from (one.not_before for one in self._attempts.values())
        yield from (one.not_before for one in self._barred.values())
        renew_at = self._renew_at
        if renew_at != inf:
            yield renew_at if renew_at > now else now + LINGER_S
        yield from (
            one.waiting_since + LINGER_S for one in self.sessions.values() if one.waiting_since and not one.in_flight
        )

    def _fetch(
        self, session: ShareSession, part: SessionRequest, now: float, *, acquires: bool = True
    ) -> tuple[UnsentRequest, ...]:
        config = self._context.config
        # A session has one request in flight, so a longer wait would delay a renewal, and what follows the poll.
        wait_until = min(self.demand_until, session.renew_at + self._renewal_s / 2)
        by_topic = grouped(
            (place.topic_id, _fetch_partition(place, part)) for place in sorted({*part.added, *part.acks})
        )
        request = ShareFetchRequest(
            group_id=config.group,
            member_id=self._context.member_id,
            share_session_epoch=part.epoch,
            max_wait_ms=int(min(config.fetch_max_wait_ms, 1000 * (wait_until - now))) if acquires else 0,
            min_bytes=config.fetch_min_bytes if acquires else 0,
            max_bytes=config.fetch_max_bytes if acquires else 0,
            max_records=config.max_poll_records if acquires else 0,
            batch_size=config.max_poll_records,
            share_acquire_mode=ACQUIRE_MODES[config.acquire_mode],
            topics=tuple(FetchTopic(topic_id=topic, partitions=tuple(ones)) for topic, ones in by_topic.items()),
            forgotten_topics_data=tuple(
                ForgottenTopic(topic_id=topic, partitions=tuple(numbers))
                for topic, numbers in grouped(part.forgotten).items()
            ),
        )
        self._fetching.add(session.node)
        session.fetched_at = now
        self._context.counters.fetches += 1
        return self._send("ShareFetch", request, self._on_fetched, session, part, now, acquires=acquires)

    def _acknowledge(
        self, session: ShareSession, part: SessionRequest, now: float, handle: OnResponse | None = None
    ) -> tuple[UnsentRequest, ...]:
        by_topic = grouped(
            (topic, AcknowledgePartition(partition_index=number, acknowledgement_batches=_batches(acks)))
            for (topic, number), acks in sorted(part.acks.items())
        )
        request = ShareAcknowledgeRequest(
            group_id=self._context.config.group,
            member_id=self._context.member_id,
            share_session_epoch=part.epoch,
            is_renew_ack=any(one.renews for acks in part.acks.values() for one in acks),
            topics=tuple(AcknowledgeTopic(topic_id=topic, partitions=tuple(ones)) for topic, ones in by_topic.items()),
        )
        return self._send("ShareAcknowledge", request, handle or self._on_acknowledged, session, part, now)

    def _send(
        self,
        api: str,
        request: Any,
        handle: OnResponse,
        session: ShareSession,
        part: SessionRequest,
        now: float,
        *,
        acquires: bool = False,
    ) -> tuple[UnsentRequest, ...]:
        sent = Sent(session, part.acks, now, acquires)
        if part.acks:
            self._acks_in_flight[session.node] = part.acks
        done = partial(self._on_result, sent, handle)
        config = self._context.config
        pending = PendingRequest(api, request, done, self._context.request_s + config.fetch_max_wait_ms / 1000)
        broker = self._context.metadata.view.brokers.get(session.node)
        if broker is None:
            done(NoResponse(ConnectionFailed("the broker is not known any more", node=session.node)), now)
            return ()
        return (UnsentRequest(ConnectionPurpose.DATA, broker.endpoint, pending),)

    # ------------------------------------------------------------------ responses

    def _on_result(self, sent: Sent, handle: OnResponse, outcome: RequestResult, now: float) -> None:
        session, node = sent.session, sent.session.node
        self._fetching.discard(node)
        self._acks_in_flight.pop(node, None)
        self._context.updated()
        if not isinstance(outcome, ResponseReceived):
            if isinstance(outcome, SendFailed) and isinstance(outcome.error, UnsupportedVersion):
                self._context.fail(unsupported(self._context.config.group))
            self._session_lost(sent, outcome.error, now, in_doubt=sent.acquires)
            return
        response = outcome.value
        if response.error_code:
            self._on_session_error(sent, response, now)
            return
        session.responded()
        self._attempts.pop(node, None)  # the broker responds again
        if response.acquisition_lock_timeout_ms > 0:
            self.lock_timeout_ms = response.acquisition_lock_timeout_ms
        handle(sent, response, now)

    def _on_session_error(self, sent: Sent, response: Any, now: float) -> None:
        group = self._context.config.group
        error = BrokerError(response.error_code, response.error_message, api="ShareFetch", group=group)
        if response.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED:
            self._context.fail(group_error(response.error_code, group))
        elif response.error_code == ErrorCode.UNSUPPORTED_VERSION:
            self._context.fail(unsupported(group))
        elif response.error_code not in SESSION_GONE:
            log.warning("the share session with broker %d ended: %s", sent.session.node, error)
        # A broker may acquire records, and then fail because of a topic that was deleted.
        in_doubt = sent.acquires and response.error_code not in SESSION_GONE
        self._session_lost(sent, error, now, in_doubt=in_doubt)

    def _session_lost(self, sent: Sent, error: KohortError, now: float, *, in_doubt: bool) -> None:
        """The request in flight has failed, and with it the session. `in_doubt`: it may have acquired records."""
        session, node = sent.session, sent.session.node
        places = session.partitions if in_doubt else frozenset()
        for place, acks in sent.acks.items():
            self._report(place, acks, error)
        self._end_life(session, places | sent.acks.keys(), now)
        if self.closing:
            session.stale = frozenset()  # the end of the connection comes soon, and may be all that is left to do
        self._attempts[node] = self._context.failed(self._attempts.get(node, FRESH), now)
        self._context.metadata.request_update()

    def connection_lost(self, endpoint: Endpoint, now: float) -> None:
        """A connection has ended. Its session is lost. A request in flight would fail and show it."""
        brokers = self._context.metadata.view.brokers
        for session in self.sessions.values():
            broker = brokers.get(session.node)
            if broker is not None and broker.endpoint == endpoint and session.is_open() and not session.in_flight:
                self._end_life(session, frozenset(), now)
                self._context.updated()

    def _end_life(self, session: ShareSession, places: frozenset[SharePartition], now: float) -> None:
        """The session is lost: its acknowledgements are void, and no record of it is returned any more.

        `places`: more partitions in which the broker may keep records of it.
        """
        life = session.life
        lost = {place for place, batches in self.hand.items() if any(one.session is life for one in batches)}
        lost |= {one.place for one in self.parked if one.life is life} | places
        for place, void in session.lost().items():
            lost.add(place)
            self._report(place, void, _lock_lost("the session with the broker has ended", self._at(place)))
        for batch in self.held():
            if batch.session is life:
                self._lose_held(batch, "the session with the broker has ended")
        self.parked = [one for one in self.parked if one.life.alive]
        if not lost <= session.stale:
            session.stale |= lost
            session.stale_until = now + (self.lock_timeout_ms or DEFAULT_LOCK_MS) / 1000

    def _lose_held(self, batch: ShareRecords, reason: str) -> None:
        """Report the held records of a batch, which are not acquired any more."""
        held = batch.held()
        for one in held:
            batch.mark(one, SETTLED)
        lost = [one._replace(quiet=False) for one in held]
        self._report(batch.place, lost, _lock_lost(reason, self._at(batch.place)))

    def _on_fetched(self, sent: Sent, response: ShareFetchResponse, now: float) -> None:
        codes: dict[SharePartition, tuple[int, str | None]] = {}
        lock_until = sent.at + (self.lock_timeout_ms or 0) / 1000
        size = acquired = 0
        for topic in response.responses:
            if topic.topic_id not in self._names:  # it was not requested
                continue
            for one in topic.partitions:
                place = SharePartition(topic.topic_id, one.partition_index)
                codes[place] = one.acknowledge_error_code, one.acknowledge_error_message
                if one.error_code:
                    self._on_partition_error(place, one.error_code, now)
                else:
                    self._barred.pop(place, None)
                if one.acquired_records:
                    ranges = tuple(
                        AcquiredRange(each.first_offset, each.last_offset, each.delivery_count)
                        for each in one.acquired_records
                        if each.first_offset <= each.last_offset
                    )
                    count = sum(each.last_offset - each.first_offset + 1 for each in ranges)
                    if acquired + count > MOST_ACQUIRED:
                        at = self._at(place)._asdict()
                        self._context.put_error(KohortError("the response has too wide acquired ranges", **at))
                        continue
                    acquired += count
                    self._void(place, ranges)
                    records = one.records if one.records is not None else b""
                    name, life = self._names[topic.topic_id], sent.session.life
                    self.parked.append(ParkedFetch(name, place, records, ranges, life, lock_until))
                    size += len(records)
        self._context.counters.fetched_bytes += size
        self._context.sensors.fetched((now - sent.at) * 1000, response.throttle_time_ms, size, acquired, now)
        self._learn_leaders(response)
        self._settle_acks(sent, codes, now)

    def _on_acknowledged(self, sent: Sent, response: ShareAcknowledgeResponse, now: float) -> None:
        codes = {
            SharePartition(topic.topic_id, one.partition_index): (one.error_code, one.error_message)
            for topic in response.responses
            for one in topic.partitions
        }
        self._learn_leaders(response)
        self._settle_acks(sent, codes, now)

    def _learn_leaders(self, response: Any) -> None:
        moved = [
            (TopicPartition(self._names[topic.topic_id], one.partition_index), one.current_leader)
            for topic in response.responses
            for one in topic.partitions
            if one.error_code in MOVED and topic.topic_id in self._names
        ]
        if moved:
            brokers = [BrokerNode(one.node_id, one.host, one.port, one.rack) for one in response.node_endpoints]
            leaders = [(partition, leader.leader_id, leader.leader_epoch) for partition, leader in moved]
            self._context.metadata.update_leaders(brokers, leaders)
            self._context.metadata.request_update()

    def _on_partition_error(self, place: SharePartition, code: int, now: float) -> None:
        """The partition is left out of requests for a while. Errors that a refresh does not cure are raised once."""
        first = place not in self._barred
        self._barred[place] = self._context.failed(self._barred.get(place, FRESH), now)
        if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED and first:
            self._context.put_error(topic_error(self._at(place).topic, code))
        elif code == ErrorCode.CORRUPT_MESSAGE and first:
            self._context.put_error(BrokerError(code, api="ShareFetch", **self._at(place)._asdict()))
        else:
            self._context.metadata.request_update()

    # ------------------------------------------------------------------ acknowledgements

    def _settle_acks(self, sent: Sent, codes: AckCodes, now: float) -> None:
        lock_until = sent.at + (self.lock_timeout_ms or 0) / 1000
        for place, acks in sent.acks.items():
            code, message = codes.get(place, (ErrorCode.INVALID_RECORD_STATE, "the response lacks the partition"))
            at = self._at(place)._asdict()
            error = BrokerError(code, message, api="ShareAcknowledge", **at) if code else None
            if error is not None and error.retriable and error.code not in FINAL:
                again = [one for one in acks if now < one.give_up_at]
                if again and not self.closing:
                    node = sent.session.node
                    sent.session.wait(place, again, now)
                    self._attempts[node] = self._context.failed(self._attempts.get(node, FRESH), now)
                    acks = tuple(one for one in acks if one not in again)
            if error is None:
                renewals = grouped((one.batch, one) for one in acks if one.batch is not None and one.renews)
                for batch, ranges in renewals.items():
                    batch.renewed(ranges, lock_until)
                    batch.renew_at = batch.held_until - self._renewal_s
            else:
                for one in acks:
                    if one.batch is not None and not one.quiet:
                        one.batch.not_renewed(one)
            self._report(place, acks, error)

    def _report(self, place: SharePartition, acks: Iterable[AckRange], error: KohortError | None) -> None:
        at = self._at(place)
        for one in acks:
            if one.quiet:
                continue
            self.acknowledgements_sent += 1
            outcome = AcknowledgeOutcome(at, one.first_offset, one.last_offset, error, one.types)
            if error is not None:
                self.acknowledgements_failed += 1
                self._context.sensors.locks_lost += isinstance(error, LockLost)
                self.failures.append(outcome)
                log.info("acknowledgement failed: %s [%d] %d to %d: %s", *at, *outcome[1:3], error)
            if self.reports:
                self.outcomes.append(outcome)

    def _void(self, place: SharePartition, ranges: tuple[AcquiredRange, ...]) -> None:
        """Records are acquired again, so an earlier lock on them has expired. Its acknowledgements are not sent."""

        def overlaps(first: int, last: int) -> bool:
            return any(first <= one.last_offset and one.first_offset <= last for one in ranges)

        for session in self.sessions.values():
            waiting = session.waiting.get(place, [])
            void = [one for one in waiting if overlaps(one.first_offset, one.last_offset)]
            if void:
                session.waiting[place] = [one for one in waiting if one not in void]
                self._report(place, void, _lock_lost("the lock has expired", self._at(place)))
        self.parked = [
            one
            for one in self.parked
            if one.place != place or not any(overlaps(each.first_offset, each.last_offset) for each in one.ranges)
        ]
        for batch in self.hand.get(place, ()):
            for one in ranges:
                first, last = max(one.first_offset, batch.first_offset), min(one.last_offset, batch.last_offset)
                if first <= last:
                    lost = batch.expected(first, last, implicit=self._implicit)
                    batch.mark(AckRange(first, last, bytes(last - first + 1), batch), SETTLED)
                    self._report(place, lost, _lock_lost("the lock has expired", self._at(place)))

    def take(self, batches: Iterable[ShareRecords]) -> None:
        """The caller has these batches now, and its poll has ended. It may be repeated."""
        for batch in batches:
            if not batch.returned:
                batch.returned = True
                self._context.counters.records += len(batch)
                self._context.sensors.redelivered += len(batch) if batch.delivery_count > 1 else 0
                self._keep(batch)  # also of a lost session, whose acknowledgements fail then
        left: list[ParkedFetch] = []
        for one in self.parked:
            if one.batches is None or not all(batch.returned for batch in one.batches):
                left.append(one)
                continue
            if one.error is not None:
                self._context.put_error(one.error)
            if one.rest is not None:
                left.append(one.rest)
        self.parked = left

    def forget(self, failures: Iterable[AcknowledgeOutcome]) -> None:
        """The caller has these failures now. It may be repeated."""
        returned = set(map(id, failures))
        if returned:
            left = [one for one in self.failures if id(one) not in returned]
            self.failures = deque(left, MOST_FAILURES)

    def give_back(self, topics: frozenset[str], now: float) -> None:
        """Release the parked records of topics that are not among `topics`, which are subscribed."""
        left: list[ParkedFetch] = []
        for one in self.parked:
            if one.topic in topics:
                left.append(one)
            else:
                self.sessions[one.life.node].wait(one.place, one.releases(), now)
        self.parked = left

    def _keep(self, batch: ShareRecords) -> None:
        self.hand.setdefault(batch.place, []).append(batch)

    def settle(self, now: float, *, forgets_lost: bool = False) -> None:
        """Queue all acknowledgements that the caller has noted. `forgets_lost`: drop records whose session is lost."""
        renewing = self._renewing()
        for place, batches in list(self.hand.items()):
            for batch in batches:
                if batch not in renewing:
                    self._queue(batch, now)
                elif batch not in self._deferred:
                    self._deferred.append(batch)
            kept = [one for one in batches if not one.settled and (one.session.alive or not forgets_lost)]
            if kept:
                self.hand[place] = kept
            else:
                del self.hand[place]

    def _queue(self, batch: ShareRecords, now: float) -> None:
        give_up_at = now + self._context.config.default_api_timeout_ms / 1000
        place, acks = batch.place, [one._replace(give_up_at=give_up_at) for one in batch.take_typed()]
        if acks and batch.session.alive:
            self.sessions[batch.session.node].wait(place, acks, now)
        elif acks:
            self._report(place, acks, _lock_lost("the session with the broker has ended", self._at(place)))

    def _queue_deferred(self, now: float) -> None:
        if self._deferred:
            renewing, deferred = self._renewing(), self._deferred
            self._deferred = [one for one in deferred if one in renewing]
            for batch in deferred:
                if batch not in renewing:
                    self._queue(batch, now)

    def _renewing(self) -> set[ShareRecords | None]:
        """The batches with a renewal by the caller that has no outcome yet."""
        under_way = (*(one.waiting for one in self.sessions.values()), *self._acks_in_flight.values())
        ranges = (one for by_place in under_way for acks in by_place.values() for one in acks)
        return {one.batch for one in ranges if one.renews and not one.quiet}

    def held(self) -> Iterable[ShareRecords]:
        """The batches that the caller has and that can be acknowledged."""
        return [batch for batches in self.hand.values() for batch in batches]

    def _has(self, batch: ShareRecords) -> bool:
        return batch in self.hand.get(batch.place, ())

    def acknowledge_batch(self, batch: ShareRecords, how: AcknowledgeType) -> bool:
        """Note the acknowledgement of a batch. Returns False if it is not acquired."""
        return self._has(batch) and batch.acknowledge(how)

    def acknowledge(self, topic: str, partition: int, offset: int, timestamp_ms: int, how: AcknowledgeType) -> bool:
        """Note the acknowledgement of one record. Returns False if it is not acquired."""
        return any(
            batch.acknowledge(how, offset)
            for place, batches in reversed(self.hand.items())
            if place.partition == partition and self._names[place.topic_id] == topic
            for batch in reversed(batches)
            if not self._remade or batch.has(offset, timestamp_ms)
        )

    @property
    def unsettled(self) -> bool:
        """True while acknowledgements wait or are in flight."""
        waits = any(one.waiting for one in self.sessions.values())
        return waits or bool(self._acks_in_flight) or bool(self._deferred)

    @property
    def closed(self) -> bool:
        """True if every session is closed."""
        return not any(one.is_open() or one.in_flight for one in self.sessions.values())

    def ready(self, now: float) -> list[ParkedFetch]:
        """The parked fetches whose locks have not expired. The others are dropped.

        The poll returns them and waits no longer. Nothing is fetched until the next poll, also if their session is lost
        meanwhile. So the caller can acknowledge what it has.
        """
        if any(now >= one.lock_until for one in self.parked):
            self.parked = [one for one in self.parked if now < one.lock_until]
        if self.parked:
            self.demand_until = -inf
        return list(self.parked)

    def _at(self, place: SharePartition) -> TopicPartition:
        return TopicPartition(self._names[place.topic_id], place.partition)


def _fetch_partition(place: SharePartition, part: SessionRequest) -> FetchPartition:
    batches = _batches(part.acks.get(place, ()))
    return FetchPartition(partition_index=place.partition, partition_max_bytes=0, acknowledgement_batches=batches)


def _batches(acks: Iterable[AckRange]) -> tuple[AcknowledgementBatch, ...]:
    return tuple(
        AcknowledgementBatch(
            first_offset=one.first_offset, last_offset=one.last_offset, acknowledge_types=one.wire_types
        )
        for one in acks
    )


def _release(first_offset: int, last_offset: int) -> AckRange:
    """A release by the client itself, of records that the caller does not have or has not acknowledged."""
    types = bytes([AcknowledgeType.RELEASE]) * (last_offset - first_offset + 1)
    return AckRange(first_offset, last_offset, types, None, quiet=True)


def _lock_lost(reason: str, at: TopicPartition) -> LockLost:
    return LockLost(reason, hint="the broker delivers the records again", **at._asdict())


def decode_parked(parked: ParkedFetch, max_decompressed_bytes: int) -> None:
    """Decode parked records to batches, one for each acquired range, and note the error of a corrupt batch.

    Ranges above the limit are left to `parked.rest`. Records of a corrupt batch are released, because another replica
    or transfer may be sound.
    """
    columns, broken = _decoded(parked, max_decompressed_bytes)
    corrupt = (*columns.corrupt, broken) if broken is not None else columns.corrupt
    missing = UNREADABLE if corrupt else GAP
    ranges = merged(parked.ranges)
    if not columns.complete and broken is None:
        ranges, behind = split(ranges, columns.next_offset)
        if behind:
            parked.rest = ParkedFetch(
                parked.topic, parked.place, parked.records, tuple(behind), parked.life, parked.lock_until
            )
    parked.error = corrupt[0] if corrupt else None
    parked.batches = [
        ShareRecords(
            acquired_part(columns, one),
            one.first_offset,
            one.last_offset,
            one.delivery_count,
            parked.place,
            parked.life,
            parked.lock_until,
            missing,
        )
        for one in ranges
    ]


def _decoded(parked: ParkedFetch, max_decompressed_bytes: int) -> tuple[RecordColumns, CorruptRecord | None]:
    """The records up to the limit, and the error of bytes behind which no batch can be found."""
    try:
        columns = decode(
            parked.records,
            topic=parked.topic,
            partition=parked.place.partition,
            from_offset=min((one.first_offset for one in parked.ranges), default=0),
            on_corrupt="skip_batch",
            max_decompressed_bytes=max_decompressed_bytes,
        )
    except CorruptRecord as error:
        if error.decoded is None:
            raise
        return error.decoded, error
    last = max((one.last_offset for one in parked.ranges), default=-1)
    if not columns.complete or columns.next_offset > last or columns.corrupt:
        return columns, None
    return columns, CorruptRecord(
        "the response lacks the bytes of acquired records",
        hint="they are released, and delivered again",
        topic=parked.topic,
        partition=parked.place.partition,
        offset=columns.next_offset,
    )
