"""Builds Fetch requests and handles their responses. No I/O and no clock; records are not decoded.

One Fetch of a session is in flight per broker. The next one is sent while the caller decodes the last response. It
starts at the end of the buffered records, until `max_buffered_bytes` are buffered. No Fetch is sent to a broker while
one of its partitions has reached its buffer limit. Such a request would contain only the idle partitions. The broker
would hold it for `fetch_max_wait_ms`, and the busy partition would run out of records (similar to KAFKA-17182).

The broker holds a session's request for `fetch_max_wait_ms` if its partitions have no records. A partition that was
assigned, resumed or moved meanwhile is not in that request, and its records would have to wait. They are requested
without a session and without a wait. One such request is in flight per broker.
"""

import uuid
from collections.abc import Callable, Container, Iterable, Mapping, Set
from itertools import count, filterfalse
from math import inf
from typing import Any

from kohort.common import TopicPartition
from kohort.common.named_tuple import NamedTuple
from kohort.coordinator_client.consumer_config import ConsumerConfig
from kohort.coordinator_client.errors import FetchFailed, TopicRecreated
from kohort.coordinator_client.fetch._fetch_buffer import FetchBuffer, FetcherFields
from kohort.coordinator_client.fetch.completed_fetch import CompletedFetch
from kohort.coordinator_client.fetch.fetch_session import (
    OPENING,
    FetchSession,
    FetchSessionPart,
    LogOffsets,
    RequestedFetch,
    Wanted,
)
from kohort.coordinator_client.offsets.positions import Positions
from kohort.fastpath import CorruptRecord
from kohort.fastpath._fetch import slice_end
from kohort.network.backoff import FRESH, Attempts, Backoff
from kohort.network.errors import AuthorizationFailed
from kohort.network.metadata import NO_NODE, NO_TOPIC_ID, BrokerNode, ClusterView, PartitionView
from kohort.protocol.apis.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)
from kohort.protocol.errors import ErrorCode, error_name

BEFORE_TOPIC_IDS = 12  # the last version of Fetch that names topics by name
READ_COMMITTED = 1
CONSUMER = ReplicaState(replica_id=-1, replica_epoch=-1)
SOON_OVER_PARTITIONS = 10
LEAST_FETCH_BYTES = 1 << 20
INT32_MAX, INT64_MAX = (1 << 31) - 1, (1 << 63) - 1

SESSION_ERRORS = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)
STALE_METADATA = frozenset(
    {
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.LISTENER_NOT_FOUND,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
    }
)
TOPIC_GONE = frozenset(
    {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INCONSISTENT_TOPIC_ID}
)
RETRIED_BY_WAITING = frozenset(
    {
        ErrorCode.OFFSET_OUT_OF_RANGE,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    }
)


class FetchOrder(NamedTuple):
    """A Fetch request for `node`; `at_most` limits its version if topics have no ids.

    `is_sessionless`: beside the request of the broker's session, which is in flight.
    """

    node: int
    request: FetchRequest
    at_most: int | None
    is_sessionless: bool = False


class FetchInFlight(NamedTuple):
    """A request in flight. `names`: the session that knows the request's topics by id. A broker need not know it."""

    names: FetchSession
    requested: Mapping[TopicPartition, RequestedFetch]


class FetchOutcome:
    """A Fetch response of `node`, the state of the client at its arrival, and the results for other components.

    `stale`: metadata must be refreshed. `leaders` and `brokers`: new leaders and their addresses (KIP-951).
    `parked_bytes`: bytes added to the buffer.
    """

    def __init__(self, node: int, view: ClusterView, now: float, wall_ms: int, chance: float) -> None:
        self.node, self.view = node, view
        self.now, self.wall_ms, self.chance = now, wall_ms, chance
        self.stale = False
        self.leaders: list[tuple[TopicPartition, int, int]] = []
        self.brokers: list[BrokerNode] = []
        self.parked_bytes = 0


class Replica(NamedTuple):
    """A preferred read replica named by the leader (KIP-392), used until `until` (monotonic s)."""

    node: int
    until: float


class Fetcher(FetcherFields):
    """Fetch sessions and in-flight requests by broker, buffered records by partition."""

    def __init__(self, config: ConsumerConfig, positions: Positions) -> None:
        self.config = config
        self.positions = positions
        self.parked = FetchBuffer()
        self.ends = {}
        self.stale_log_offsets = set()  # partitions resumed, without a response since
        self.sessions: dict[int, FetchSession] = {}
        self.in_flight = {}
        self._sessionless: dict[int, FetchInFlight] = {}
        # Partitions of which a request without a session brought no records. More of them would bring none either.
        self._exhausted: dict[int, dict[TopicPartition, RequestedFetch]] = {}
        self.ahead = {}
        self._replicas: dict[TopicPartition, Replica] = {}
        self._attempts: dict[TopicPartition, Attempts] = {}
        self._node_attempts: dict[int, Attempts] = {}
        self.orders = count(1)
        self.last_requested = {}
        self.revision = 0  # grows with each change of what may be fetched from where, but for positions and metadata
        # Since the last walk, `_narrow` changes of `revision` may lead to requests for `_candidates` only.
        self._candidates: dict[TopicPartition, None] = {}
        self._narrow = 0
        self._sources: set[int] = set()  # brokers from which partitions are fetched
        self._has_idle = False  # since the last walk, a broker has no request in flight any more
        self._walk_at = -inf  # the partitions are walked from this time on, with or without a change
        self._walked_for = (-1, -1)
        self._walked_view: ClusterView | None = None
        self._reader_is_behind = False  # a partition is fetched again once its buffered records are taken
        self.held_back = False  # a request was delayed by the buffer limits: sent once buffered records are taken
        self.until = {}  # end offsets of partitions that are read up to an end

    @property
    def _backoff(self) -> Backoff:
        return Backoff(self.config.retry_backoff_ms, self.config.retry_backoff_max_ms)

    # --- requests

    def ready_requests(
        self, view: ClusterView, allowed: Callable[[TopicPartition], bool], now: float
    ) -> list[FetchOrder]:
        """The requests to send now. `allowed`: true for a partition that may be fetched and is not paused.

        The partitions are walked only if something has changed since the last walk that may lead to a request. If that
        is a seek or a resume, only its partitions are walked. A caller may seek thousands of partitions one by one.
        """
        positions = self.positions
        revisions = (self.revision, positions.revision)
        changed = now >= self._walk_at or revisions != self._walked_for or view is not self._walked_view
        if not changed and not self._has_idle:
            return []
        candidates = self._only_candidates(view, now)
        if changed:
            self._candidates, self._narrow = {}, 0
            positions.states.moved.clear()
        if candidates is None:
            self._sources = set()
        self._has_idle, self._walked_for, self._walked_view = False, revisions, view
        wanted: dict[int, dict[TopicPartition, Wanted]] = {}
        beside: dict[int, dict[TopicPartition, Wanted]] = {}
        busy: set[int] = set()
        live_bytes = 0 if candidates is None else self.parked.total_bytes
        self._reader_is_behind = False
        for partition in positions if candidates is None else candidates:
            if not allowed(partition):
                continue
            live_bytes += self.parked.bytes_of(partition) if candidates is None else 0
            node = self._source(partition, view, now)
            if node is None:
                continue
            self._sources.add(node)
            is_waiting = node in self.in_flight
            # A response for other partitions is no reason for a request beside a session's.
            if (is_waiting and not changed) or not self._node_attempts.get(node, FRESH).may_try(now):
                continue
            if (is_waiting or self._sessionless) and self._is_requested(node, partition):
                continue
            if self._is_full(partition):
                busy.add(node)
            elif (want := self._want(partition, view, now)) is not None:
                (beside if is_waiting else wanted).setdefault(node, {})[partition] = want
        most_bytes = self._most_bytes(len(self._sources))
        requests = len(self.in_flight) + len(self._sessionless)
        room = self.config.max_buffered_bytes - live_bytes - requests * most_bytes
        orders: list[FetchOrder] = []
        # If the budget has no room for all, the broker with the oldest request is next: otherwise some would starve.
        for node in sorted(wanted, key=lambda node: self.last_requested.get(node, 0)):
            # One request is always sent: otherwise a budget smaller than one fetch would block for ever.
            if node in busy or (room < most_bytes and (live_bytes or self.in_flight or orders)):
                continue
            orders.append(self._order(node, wanted[node], view, most_bytes))
            room -= most_bytes
        for node, partitions in beside.items():
            if room >= most_bytes:
                orders.append(self._sessionless_order(node, partitions, view, most_bytes))
                room -= most_bytes
        self.held_back = bool(busy) or len(orders) < len(wanted) + len(beside)
        times = [*self.next_poll_at(), *(replica.until for replica in self._replicas.values())]
        waits = self.held_back or self._reader_is_behind
        self._walk_at = now if waits else min((at for at in times if at > now), default=inf)
        return orders

    def _only_candidates(self, view: ClusterView, now: float) -> list[TopicPartition] | None:
        """The partitions to walk, if all others lead to no request; otherwise None.

        The buffer has room for a request to each of their brokers, even if the records of paused partitions count.
        """
        positions = self.positions
        others = self.revision - self._walked_for[0] != self._narrow or view is not self._walked_view
        if self._has_idle or others or now >= self._walk_at:
            return None
        found = [one for one in self._candidates | positions.states.moved if one in positions]
        nodes = {node for one in found if (node := self._source(one, view, now)) is not None}
        requests = len(self.in_flight) + len(self._sessionless) + len(nodes)
        needed = self.parked.total_bytes + requests * self._most_bytes(len(self._sources | nodes))
        return found if needed <= self.config.max_buffered_bytes else None

    def _most_bytes(self, brokers: int) -> int:
        """The most bytes of a response, so that half of the budget has room for a request to each broker.

        A broker without records holds its request for `fetch_max_wait_ms`. Another broker's records must not wait.
        """
        share = self.config.max_buffered_bytes // (2 * max(brokers, 1))
        return min(self.config.fetch_max_bytes, max(share, LEAST_FETCH_BYTES))

    def _order(
        self, node: int, wanted: Mapping[TopicPartition, Wanted], view: ClusterView, most_bytes: int
    ) -> FetchOrder:
        session = self.sessions.setdefault(node, FetchSession())
        # A broker keeps about 1000 sessions, for minutes after their last use: a short read does not open one.
        kept = len(wanted) > SOON_OVER_PARTITIONS or not wanted.keys() <= self.until.keys()
        pending = session.next_request(wanted, kept=kept)
        self.last_requested[node] = next(self.orders)
        self.in_flight[node] = self._requested(wanted, view)
        order = self._request(node, wanted, pending, most_bytes, self.config.fetch_max_wait_ms)
        plain = not (
            self._attempts
            or self._node_attempts
            or self._replicas
            or self._sessionless
            or self._reader_is_behind
            or self.held_back
            or pending.forgotten
        )
        session.steady_under = (self.revision, self.positions.revision, view) if plain else None
        return order

    def _sessionless_order(
        self, node: int, wanted: Mapping[TopicPartition, Wanted], view: ClusterView, most_bytes: int
    ) -> FetchOrder:
        names = FetchSession()
        pending = names.next_request(wanted, kept=False)
        self._sessionless[node] = FetchInFlight(names, self._requested(wanted, view))
        return self._request(node, wanted, pending, most_bytes, max_wait_ms=0)._replace(is_sessionless=True)

    def _requested(
        self, wanted: Mapping[TopicPartition, Wanted], view: ClusterView
    ) -> dict[TopicPartition, RequestedFetch]:
        state = self.positions.state
        return {
            partition: RequestedFetch(state(partition).serial, want.offset, want.leader_epoch, known.leader)
            for partition, want in wanted.items()
            if (known := view.partition(partition)) is not None  # always so, see `_want`
        }

    def _request(
        self,
        node: int,
        wanted: Mapping[TopicPartition, Wanted],
        pending: FetchSessionPart,
        most_bytes: int,
        max_wait_ms: int,
    ) -> FetchOrder:
        config = self.config
        request = FetchRequest(
            replica_state=CONSUMER,
            max_wait_ms=max_wait_ms,
            min_bytes=config.fetch_min_bytes,
            max_bytes=most_bytes,
            isolation_level=READ_COMMITTED if config.isolation_level == "read_committed" else 0,
            session_id=pending.session_id,
            session_epoch=pending.epoch,
            topics=_by_topic(pending.changed),
            forgotten_topics_data=_forgotten(pending.forgotten),
            rack_id=config.rack or "",
        )
        nameless = any(want.topic_id == NO_TOPIC_ID for want in wanted.values())
        return FetchOrder(node, request, BEFORE_TOPIC_IDS if nameless else None)

    def _want(self, partition: TopicPartition, view: ClusterView, now: float) -> Wanted | None:
        point = self.positions.point(partition)
        known = view.partition(partition)
        if point is None or known is None or not self._attempts.get(partition, FRESH).may_try(now):
            return None
        offset = self._next_offset(partition, point.serial, point.offset)
        if offset > point.offset and self.ahead[partition].leader_epoch < known.leader_epoch:
            # Buffered records are of an older leader. Their end offset is not validated against this leader's log yet.
            self._reader_is_behind = True
            return None
        if offset >= self.until.get(partition, offset + 1):
            return None
        # Followers have no epoch of their own: the request has the leader's.
        return Wanted(view.topic_id(partition.topic), offset, known.leader_epoch, self.config.max_partition_fetch_bytes)

    def _next_offset(self, partition: TopicPartition, serial: int, position: int) -> int:
        """The offset after all records that were fetched under this serial."""
        ahead = self.ahead.get(partition)
        return ahead.offset if ahead is not None and ahead.serial == serial else position

    def _source(self, partition: TopicPartition, view: ClusterView, now: float) -> int | None:
        replica = self._replicas.get(partition)
        if replica is not None:
            if now < replica.until and _is_up(replica.node, partition, view):
                return replica.node
            del self._replicas[partition]
            self.revision += 1
        leader = view.leader(partition)
        return leader.node if leader else None

    def _is_full(self, partition: TopicPartition) -> bool:
        last = self.parked.last(partition)
        if last is None:
            return False
        # One response may be buffered while the next is in flight; more would only delay other partitions.
        return last.end == last.start or self.parked.bytes_of(partition) > self.config.max_partition_fetch_bytes

    def _is_requested(self, node: int, partition: TopicPartition) -> bool:
        """True if a request in flight brings what the partition wants, or one beside the session's has found nothing.

        A partition in a backoff is not requested beside the session's request, either.
        """
        serial = self.positions.state(partition).serial
        beside = self._sessionless.get(node)
        if node not in self.in_flight:
            return beside is not None and _has(beside.requested, partition, serial)
        if (
            partition in self._attempts
            or _has(self.in_flight[node], partition, serial)
            or _has(self._exhausted.get(node, {}), partition, serial)
        ):
            return True
        if beside is not None:
            self._candidates[partition] = None  # once that request has its response
        return beside is not None

    # --- responses

    def on_response(
        self,
        node: int,
        response: FetchResponse,
        view: ClusterView,
        *,
        now: float,
        wall_ms: int,
        chance: float,
        is_sessionless: bool = False,
    ) -> FetchOutcome:
        """Buffer the records, and apply each partition's error to its position."""
        outcome = FetchOutcome(node, view, now, wall_ms, chance)
        fetch = self.sessionless_ended(node) if is_sessionless else self._session_returned(node)
        if response.error_code and not is_sessionless:
            session = fetch.names
            # A session that the broker lost is reopened at once. An error on opening is retried after a backoff.
            lost = response.error_code in SESSION_ERRORS and session.epoch != OPENING
            session.reset(gone=response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
            if not lost:
                self._node_attempts[node] = self._node_attempts.get(node, FRESH).failed(now, self._backoff, chance)
                outcome.stale = response.error_code not in SESSION_ERRORS
            return outcome
        for topic in response.responses:
            name = topic.topic or fetch.names.topic_name(topic.topic_id)
            if name is None:
                continue
            for data in topic.partitions:
                partition = TopicPartition(name, data.partition_index)
                pending = fetch.requested.get(partition)
                state = self.positions.get(partition)
                # The fetch barrier: a seek, revocation or loss since the request has changed the partition's serial.
                if pending is None or state is None or state.serial != pending.serial:
                    continue
                # The records before it were dropped meanwhile (`trim`).
                if pending.offset != self._next_offset(partition, state.serial, state.offset):
                    continue
                self._one(outcome, partition, data, pending)
                if data.records and fetch.names.epoch == OPENING:
                    fetch.names.move_back(partition)
        outcome.brokers = [BrokerNode(b.node_id, b.host, b.port, b.rack) for b in response.node_endpoints]
        if is_sessionless:
            for partition, pending in fetch.requested.items():
                if (ahead := self.ahead.get(partition)) is not None and ahead.offset > pending.offset:
                    del self._exhausted[node][partition]
        else:
            self._node_attempts.pop(node, None)
            fetch.names.responded(response.session_id)
        return outcome

    def _session_returned(self, node: int) -> FetchInFlight:
        """The session's request, which is not in flight any more. Its next one has all partitions."""
        self._exhausted.pop(node, None)
        self._has_idle = True
        return FetchInFlight(self.sessions.setdefault(node, FetchSession()), self.in_flight.pop(node, {}))

    def sessionless_ended(self, node: int) -> FetchInFlight:
        """The request without a session, which is not in flight any more. Its partitions count as exhausted.

        They wait for the session's next request, also if the request was lost.
        """
        self.revision += 1
        fetch = self._sessionless.pop(node)
        self._exhausted.setdefault(node, {}).update(fetch.requested)
        self._narrow += 1
        self._candidates |= dict.fromkeys(fetch.requested)
        return fetch

    def _one(
        self, outcome: FetchOutcome, partition: TopicPartition, data: PartitionData, pending: RequestedFetch
    ) -> None:
        node, view, now = outcome.node, outcome.view, outcome.now
        if data.current_leader.leader_id >= 0:
            leader = data.current_leader
            outcome.leaders.append((partition, leader.leader_id, leader.leader_epoch))
        if data.error_code:
            self._refused(outcome, partition, data, pending)
            return
        # A partition that is redirected to a follower keeps them: that follower may have just refused it.
        if data.preferred_read_replica < 0 and self._attempts.pop(partition, None) is not None:
            self.revision += 1
        self.stale_log_offsets.discard(partition)
        self.ends[partition] = LogOffsets(data.high_watermark, data.last_stable_offset, data.log_start_offset)
        if data.diverging_epoch.end_offset >= 0:
            if _is_of_leader(node, data, pending, view.partition(partition)):
                end, epoch = data.diverging_epoch.end_offset, data.diverging_epoch.epoch
                self.positions.diverged(partition, pending.serial, end, epoch, pending.leader_epoch, outcome.wall_ms)
            else:
                self._back_to_leader(outcome, partition)
            return
        if data.preferred_read_replica >= 0:
            self._send_elsewhere(outcome, partition, data.preferred_read_replica)
        if data.records:
            self._park(partition, data, pending)
            outcome.parked_bytes += len(data.records)
            if self._source(partition, view, now) != node:
                self.revision += 1  # the request to its present broker is behind these records

    def _send_elsewhere(self, outcome: FetchOutcome, partition: TopicPartition, replica: int) -> None:
        """Use the preferred read replica that the leader named (KIP-392)."""
        if _is_up(replica, partition, outcome.view):
            self._replicas[partition] = Replica(replica, outcome.now + self.config.metadata_max_age_ms / 1000)
            self.revision += 1
            return
        # The follower came back after the last metadata. Until a refresh, the leader would redirect to it at once.
        outcome.stale = True
        self._wait(outcome, partition)

    def _park(self, partition: TopicPartition, data: PartitionData, pending: RequestedFetch) -> None:
        records = memoryview(data.records or b"")
        end = slice_end(records)
        next_offset = pending.offset if end.next_offset is None else max(end.next_offset, pending.offset)
        # The log may grow beyond the high watermark meanwhile, but decode treats an offset further on as corrupt.
        if next_offset > (data.high_watermark + INT32_MAX if data.high_watermark >= 0 else INT64_MAX):
            next_offset = pending.offset
        aborted = tuple((one.producer_id, one.first_offset) for one in data.aborted_transactions or ())
        self.parked.put(
            CompletedFetch(
                partition,
                records,
                pending.offset,
                next_offset,
                pending.serial,
                end.leader_epoch,
                aborted,
                pending.leader_epoch,
                data.high_watermark,
            )
        )
        self.ahead[partition] = pending._replace(offset=next_offset)

    def change_allowed(self, began: Set[TopicPartition]) -> None:
        """Other partitions may be fetched than before. Without one that may be fetched now (`began`), no request
        follows."""
        walked = self.revision, self.positions.revision
        self.revision += 1
        if not began and self._walked_for == walked:
            self._walked_for = self.revision, walked[1]
        else:
            self._narrow += 1
            self._candidates |= dict.fromkeys(began)

    def _refused(
        self, outcome: FetchOutcome, partition: TopicPartition, data: PartitionData, pending: RequestedFetch
    ) -> None:
        node, view = outcome.node, outcome.view
        positions = self.positions
        code = data.error_code
        if node != pending.leader:
            # A follower may lag behind or be shut down; only the leader's response counts (KIP-392).
            self._back_to_leader(outcome, partition)
            return
        self._replicas.pop(partition, None)
        self.revision += 1
        place: dict[str, Any] = {**partition._asdict(), "offset": pending.offset}
        # An error ahead of the position is handled once the position is there; until then it is retried.
        is_position = pending.offset == positions.state(partition).offset
        if (
            code == ErrorCode.OFFSET_OUT_OF_RANGE
            and is_position
            and _is_of_leader(node, data, pending, view.partition(partition))
        ):
            log_start = data.log_start_offset if data.log_start_offset >= 0 else None
            positions.out_of_range(partition, pending.serial, pending.offset, log_start, outcome.wall_ms)
            return
        if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            positions.fail(
                partition, AuthorizationFailed("not allowed to read the topic", hint="grant READ on it", **place)
            )
            return
        if code == ErrorCode.CORRUPT_MESSAGE:
            positions.fail(partition, CorruptRecord("the broker found the batch corrupt", **place))
            return
        if code in STALE_METADATA or code in TOPIC_GONE or code in RETRIED_BY_WAITING:
            outcome.stale = outcome.stale or code not in RETRIED_BY_WAITING
            self._wait(outcome, partition)
            return
        positions.fail(partition, FetchFailed(f"the broker refused to fetch: {error_name(code)} ({code})", **place))

    def _back_to_leader(self, outcome: FetchOutcome, partition: TopicPartition) -> None:
        """Fetch from the leader again, after a backoff.

        Without the backoff, the leader may name the same follower at once (KIP-392).
        """
        self._replicas.pop(partition, None)
        self._wait(outcome, partition)

    def _wait(self, outcome: FetchOutcome, partition: TopicPartition) -> None:
        """Leave the partition out of requests until its backoff is over."""
        attempts = self._attempts.get(partition, FRESH)
        self._attempts[partition] = attempts.failed(outcome.now, self._backoff, outcome.chance)
        self.revision += 1

    def failed(self, node: int, *, now: float, chance: float) -> None:
        """Handle a lost request. The session state is unknown, so the next request opens a new session."""
        self._session_returned(node).names.reset()
        # An unresponsive follower is used again only if the leader names it again (KIP-392).
        self._replicas = {one: replica for one, replica in self._replicas.items() if replica.node != node}
        self.revision += 1
        self._node_attempts[node] = self._node_attempts.get(node, FRESH).failed(now, self._backoff, chance)

    # --- buffered records

    def next_slice(self, partition: TopicPartition, allowed: Container[TopicPartition]) -> CompletedFetch | None:
        """The slice of a partition to decode next; it stays buffered until it is removed.

        None if it may not be returned now. A partition that is not allowed is set aside, and a slice with an outdated
        serial is dropped.
        """
        first = self.parked.first(partition)
        if first is None or not self.positions.is_current(partition, first.serial):
            self.drop(partition)
            return None
        if partition not in allowed:
            self.parked.set_aside(partition)
            return None
        self.parked.take_in_hand(first)
        return first

    def drop(self, partition: TopicPartition) -> None:
        """Drop the buffered records of a partition that was revoked, lost or moved."""
        self.parked.drop(partition)
        self.ahead.pop(partition, None)

    def refetch(self, partition: TopicPartition) -> None:
        """Drop what was fetched of a partition, and fetch again from its position."""
        self.drop(partition)
        self.positions.invalidate(partition)

    def forget(self, partition: TopicPartition) -> None:
        """Remove all state of a partition that is no longer assigned."""
        self.drop(partition)
        for known in (self.ends, self._replicas, self._attempts, self.until):
            known.pop(partition, None)
        self.stale_log_offsets.discard(partition)
        self.revision += 1

    def trim(self, allowed: Callable[[TopicPartition], bool]) -> None:
        """Limit the buffered bytes of paused partitions.

        The newest slices are dropped, and fetched again later.
        """
        excess = self.parked.total_bytes - 2 * self.config.max_buffered_bytes
        if excess <= 0:
            return
        for partition in filterfalse(allowed, list(self.parked)):
            while excess > 0 and (dropped := self.parked.drop_newest(partition)) is not None:
                excess -= len(dropped.records)
                self.ahead[partition] = RequestedFetch(dropped.serial, dropped.start, dropped.leader_epoch_at_fetch)

    def known_ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The end offsets from the last responses; last stable offsets under read_committed.

        Paused partitions are not fetched, so their end offset may be outdated.
        """
        stable = self.config.isolation_level == "read_committed"
        ends = {one: self.ends[one] for one in partitions if one in self.ends}
        return {
            one: end.last_stable if stable and end.last_stable >= 0 else end.high_watermark for one, end in ends.items()
        }

    def fresh_ends(self, partitions: Set[TopicPartition]) -> dict[TopicPartition, int]:
        """As `known_ends`, without partitions that had no response since fetching them was resumed.

        Also without those whose request is delayed by the buffer limits, or by records of an older leader.
        """
        if self.held_back or self._reader_is_behind:
            partitions = partitions & set().union(*self.in_flight.values())
        return self.known_ends(partitions - self.stale_log_offsets)

    def next_poll_at(self) -> list[float]:
        """Times (monotonic s) at which failed partitions and brokers may be retried."""
        return [one.not_before for one in (*self._attempts.values(), *self._node_attempts.values())]


def _has(requested: Mapping[TopicPartition, RequestedFetch], partition: TopicPartition, serial: int) -> bool:
    """True if the partition was requested under this serial."""
    pending = requested.get(partition)
    return pending is not None and pending.serial == serial


def recreated(partition: TopicPartition, before: object, after: object, offset: int | None) -> TopicRecreated:
    """The error for a position in a topic that was deleted and created again (B-39)."""
    return TopicRecreated(
        "the topic was deleted and created again, so old positions are invalid",
        hint="call seek() for the new topic",
        **partition._asdict(),
        offset=offset,
        old_id=before,
        new_id=after,
    )


def _is_up(node: int, partition: TopicPartition, view: ClusterView) -> bool:
    """True if metadata has the broker and its replica of the partition is not offline."""
    known = view.partition(partition)
    return node in view.brokers and known is not None and node not in known.offline


def _is_of_leader(node: int, data: PartitionData, pending: RequestedFetch, known: PartitionView | None) -> bool:
    """True if the partition's leader sent the response, and no newer leader is known or named."""
    named = data.current_leader
    if known is None or (named.leader_id not in (NO_NODE, node) and named.leader_epoch > pending.leader_epoch):
        return False
    return node == pending.leader == known.leader and pending.leader_epoch == known.leader_epoch


def _by_topic(changed: Mapping[TopicPartition, Wanted]) -> tuple[FetchTopic, ...]:
    """The partitions in this order. A topic may have several entries."""
    topics: list[tuple[str, uuid.UUID, list[FetchPartition]]] = []
    for partition, want in changed.items():
        if not topics or topics[-1][0] != partition.topic:
            topics.append((partition.topic, want.topic_id, []))
        topics[-1][2].append(
            FetchPartition(
                partition=partition.partition,
                current_leader_epoch=want.leader_epoch,
                fetch_offset=want.offset,
                partition_max_bytes=want.max_bytes,
                replica_directory_id=NO_TOPIC_ID,
            )
        )
    return tuple(
        FetchTopic(topic=name, topic_id=topic_id, partitions=tuple(partitions)) for name, topic_id, partitions in topics
    )


def _forgotten(forgotten: Mapping[TopicPartition, uuid.UUID]) -> tuple[ForgottenTopic, ...]:
    topics: dict[tuple[str, uuid.UUID], list[int]] = {}
    for partition, topic_id in forgotten.items():
        topics.setdefault((partition.topic, topic_id), []).append(partition.partition)
    return tuple(
        ForgottenTopic(topic=name, topic_id=topic_id, partitions=tuple(numbers))
        for (name, topic_id), numbers in topics.items()
    )
