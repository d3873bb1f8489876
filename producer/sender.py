"""Sends batches to brokers and handles their responses: order, sequence numbers, retries.

No clock, no I/O. `VERDICTS` maps error codes to actions. A code that is not in the table is retried if Kafka marks it
as retriable. Otherwise the batch fails.
"""

from collections.abc import Callable, Mapping
from enum import Enum
from functools import partial
from itertools import islice
from math import inf
from typing import TYPE_CHECKING, Final

from kohort.common import KohortError, TopicPartition, WireError
from kohort.common.log_context import logger
from kohort.common.named_tuple import NamedTuple
from kohort.fastpath._encode import Body, compressed, sealed
from kohort.network.backoff import FRESH
from kohort.network.errors import AuthorizationFailed
from kohort.network.frame_reader import LENGTH_BYTES
from kohort.network.metadata import BrokerNode, ClusterView
from kohort.network.request_manager import earliest
from kohort.network.requests import (
    NOTHING_FOLLOWS,
    USUAL_BYTES,
    ConnectionPurpose,
    Endpoint,
    PendingRequest,
    PollResult,
    RequestResult,
    ResponseReceived,
    SendFailed,
    UnsentRequest,
)
from kohort.network.throttle import LONGEST_S
from kohort.producer._direct_send import DirectRoute, DirectSend, DirectSends
from kohort.producer.errors import DeliveryTimeout
from kohort.producer.producer_batch import PartitionQueue, ProducerBatch, ProducerId
from kohort.producer.producer_context import ProducerContext
from kohort.producer.record_accumulator import RecordAccumulator
from kohort.producer.transaction_manager import TransactionManager
from kohort.protocol.apis.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from kohort.protocol.catalogue import API
from kohort.protocol.errors import BrokerError, ErrorCode, UnsupportedVersion, error_name, is_retriable
from kohort.protocol.schema import first_version
from kohort.protocol.wire import read_response

if TYPE_CHECKING:
    from uuid import UUID

    from kohort.network._poller import IdleConnection

log = logger("kohort.producer")

UnsealedBody = tuple[TopicPartition, ProducerId, int, Body | None]
"""A batch of a request: its partition, its producer's id, its first sequence number, and its records."""
ACKS: Final[Mapping[str, int]] = {"all": -1, "1": 1, "0": 0}
PRODUCE: Final = API["Produce"]
WRITTEN: Final = PartitionProduceResponse(index=-1, error_code=0, base_offset=-1)  # with acks=0
BEFORE_TOPIC_IDS: Final = first_version(TopicProduceData, "topic_id") - 1
FIRST_VERSION_OF_ZSTD = 7  # brokers before 2.1 do not support zstd (KIP-110)
GROWS: Final = 0.1  # fraction of the delivery timeout for which a batch that cannot be sent takes records
HELPED_BYTES: Final = 16 << 10  # a smaller batch is compressed sooner than a helper is woken
MOST_ALONE_BYTES: Final = 16 << 10  # of a record that is sent on the caller's thread
EXAMPLE: Final = b"\xff" * 24  # records in a request: no name of a topic has these bytes, and an id is shorter
EXAMPLE_FIELDS: Final = bytes(4) + bytes([len(EXAMPLE) + 1]) + EXAMPLE  # after the partition's number, 0
EXAMPLE_OFFSET: Final = -2  # three in a row are as different from names and ids
EXAMPLE_WRITTEN: Final = PartitionProduceResponse(
    index=0,
    error_code=0,
    base_offset=EXAMPLE_OFFSET,
    log_append_time_ms=EXAMPLE_OFFSET,
    log_start_offset=EXAMPLE_OFFSET,
)
EXAMPLE_OFFSETS: Final = bytes(4 + 2) + 3 * EXAMPLE_OFFSET.to_bytes(8, "big", signed=True)  # after a partition and code
NO_TAGS: Final = bytes(1)  # of a response's header


class BatchVerdict(Enum):
    """The effect of an error code on a batch."""

    DONE = "the batch is in the log"
    RETRY = "send the same batch again"
    SPLIT = "the batch is too large: send its records in two batches (KIP-126)"
    BUMP_EPOCH = "the broker does not know the sequence: bump the epoch and renumber, once earlier batches are settled"
    REFUSED = "the batch fails for good"


VERDICTS: Final[Mapping[int, BatchVerdict]] = {
    ErrorCode.NONE: BatchVerdict.DONE,
    ErrorCode.DUPLICATE_SEQUENCE_NUMBER: BatchVerdict.DONE,  # an earlier attempt succeeded
    ErrorCode.MESSAGE_TOO_LARGE: BatchVerdict.SPLIT,
    ErrorCode.RECORD_LIST_TOO_LARGE: BatchVerdict.SPLIT,  # larger than a segment of the log
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: BatchVerdict.BUMP_EPOCH,
    ErrorCode.UNKNOWN_PRODUCER_ID: BatchVerdict.BUMP_EPOCH,
    ErrorCode.INVALID_PRODUCER_EPOCH: BatchVerdict.BUMP_EPOCH,
}


def verdict(code: int) -> BatchVerdict:
    """The effect of an error code of Produce on the batch."""
    known = VERDICTS.get(code)
    if known is not None:
        return known
    return BatchVerdict.RETRY if is_retriable(code) else BatchVerdict.REFUSED


class SentBatch(NamedTuple):
    """A batch in a request, and the producer's id that it was sent with."""

    lane: PartitionQueue
    batch: ProducerBatch
    producer: ProducerId


class SentRequest(NamedTuple):
    """A Produce request to a broker at a time (monotonic s), and the ids of its topics."""

    node: int
    batches: list[SentBatch]
    topic_ids: "Mapping[str, UUID]"
    at: float


class Sender:
    """The sender of one `ProducerCore`; used under its lock.

    `run_aside` runs the compression of a batch on another thread, and calls the second function with the result under
    the lock. `is_plain` returns False if a response may concern other parts. `came_to_rest` is called when the last
    batch is settled without a poll. `idle_connection` returns the connection to an address for requests of an API and
    version.
    """

    def __init__(
        self, context: ProducerContext, accumulator: RecordAccumulator, transactions: TransactionManager
    ) -> None:
        self._context = context
        self._accumulator = accumulator
        self._transactions = transactions
        self._in_flight: dict[int, int] = {}  # node -> requests in flight
        self._throttled: dict[int, float] = {}  # node -> the end of its throttle time (monotonic s)
        self.idempotent = context.config.idempotent
        self._request_s = context.request_s
        self.blocked = False  # True if the last poll has found a batch that waits for metadata
        self._compresses = context.config.compression != "none"
        self._has_responses = ACKS[context.config.acks] != 0
        self._sends_alone = not self._compresses and not context.config.linger_ms
        most = min(MOST_ALONE_BYTES, context.config.max_request_bytes)
        self.direct = DirectSends(self, context, accumulator, transactions, self._in_flight, self.idempotent, most)
        self._routes: dict[tuple[str, int], DirectRoute | None] = {}  # by topic and node
        self.stamped: tuple[ClusterView | None, object] = (None, None)  # the metadata that `_routes` are made of
        # A batch expires as a whole, so records that are appended late would expire too soon.
        self._grows_s = max(context.config.linger_ms, context.config.delivery_timeout_ms * GROWS) / 1000
        self.run_aside: Callable[[Callable[[], Body], Callable[[Body], None]], None] = _at_once
        self.is_plain: Callable[[], bool] = _never
        self.idle_connection: Callable[[Endpoint, int, int], IdleConnection | None] = _no_connection
        self.came_to_rest: Callable[[], object] = _never

    @property
    def requests_in_flight(self) -> int:
        """The number of Produce requests without a response."""
        return sum(self._in_flight.values())

    def is_at_rest(self) -> bool:
        """True if no queue has a batch. Queues without any are no longer visited."""
        busy = self._accumulator.busy
        for place, lane in list(busy.items()):
            if lane.queue or lane.rewrite:
                return False
            del busy[place]
            lane.waits_since = inf
        return True

    # --- sending

    def poll(self, now: float) -> PollResult:
        """Return the batches that may be sent."""
        accumulator, config, sensors = self._accumulator, self._context.config, self._context.sensors
        due = inf if accumulator.pressed else now - config.linger_ms / 1000
        late = now - self._grows_s  # the delivery time-out is longer
        groups: dict[int, list[SentBatch]] = {}
        sizes: dict[int, int] = {}
        self.blocked = False
        for place, lane in list(accumulator.busy.items()):
            if lane.queue and lane.queue[0].created_at <= late:
                self._expire(lane, now)
            if lane.rewrite and not lane.in_flight:
                self._transactions.recount(lane)
            if not lane.queue:
                del accumulator.busy[place]
                lane.waits_since = inf
                continue
            if self._compresses:
                self._compress(lane)
            growing = lane.open
            closed = len(lane.queue) - (growing is not None)
            lingered = growing is not None and growing.created_at <= due
            if not lingered and lane.in_flight == closed:
                continue
            node = self._node(lane, now)
            if node is None:
                accumulator.skip_for_now(lane, now)
                continue
            if lane.in_flight == closed:
                accumulator.close_lane(lane)
                if self._compresses:
                    self._compress(lane)
            batch = lane.queue[lane.in_flight]
            body = batch.body
            assert body is not None
            size = len(body)
            if batch.encoding or (node in groups and sizes[node] + size > config.max_request_bytes):
                continue
            groups.setdefault(node, []).append(self._take(lane, batch, node))
            sensors.sent(batch, now)
            sizes[node] = sizes.get(node, 0) + size
            accumulator.busy[place] = accumulator.busy.pop(place)  # to the end, so that others come first
        accumulator.pressed = False
        requests = [self._request(node, group, now) for node, group in groups.items()]
        return PollResult(tuple(requests), self._next_poll_at(now))

    def _compress(self, lane: PartitionQueue) -> None:
        """Have the closed batches of a queue compressed before they can be sent, several side by side."""
        config = self._context.config
        for batch in islice(lane.queue, lane.in_flight, lane.closed):
            body = batch.body
            if body is None or body.codec or batch.encoding or batch.size < HELPED_BYTES:
                continue
            batch.encoding = True

            def done(made: Body, batch: ProducerBatch = batch) -> None:
                batch.encoding = False
                batch.compressed_to(made)

            self.run_aside(partial(compressed, body, config.compression, config.compression_level), done)

    def _node(self, lane: PartitionQueue, now: float) -> int | None:
        """The broker to which the queue's next batch may be sent now.

        None if it may not; an open batch continues to grow then.
        """
        context = self._context
        most = 1 if lane.failing or (self.idempotent and not lane.known) else context.config.max_in_flight
        if lane.rewrite or lane.in_flight >= most or not lane.attempts.may_try(now):
            return None
        if self.idempotent and not self._transactions.may_send(lane.partition):
            return None
        view = context.metadata.view
        leader, topic_id = view.leader(lane.partition), view.topic_id(lane.partition.topic)
        if leader is None:
            self.blocked = True
            context.metadata.request_update()
            return None
        if lane.in_flight and (lane.node != leader.node or lane.topic_id != topic_id.int):
            return None  # two brokers, or two topics of this name, would not keep the order
        if lane.topic_id != topic_id.int:
            lane.topic_id, lane.known = topic_id.int, False  # the log of another topic knows no producer id
        if now < self._throttled.get(leader.node, 0.0):
            return None  # the connection would hold the request, and a batch in a request does not expire
        return leader.node if self._in_flight.get(leader.node, 0) < context.config.max_in_flight else None

    def _take(self, lane: PartitionQueue, batch: ProducerBatch, node: int) -> SentBatch:
        lane.number(batch, self._transactions.producer)
        lane.node = node
        lane.in_flight += 1
        lane.waits_since = inf
        batch.in_flight = True
        self._transactions.joined(lane.partition)
        return SentBatch(lane, batch, lane.producer)

    def _request(self, node: int, group: list[SentBatch], now: float) -> UnsentRequest:
        context = self._context
        view, records = context.metadata.view, 0
        most, least = self._transactions.limits("Produce")
        # A broker of another cluster may have the leader's address by now, and a topic of this name, but not its id.
        ids: dict[str, UUID] = {}
        bodies: list[UnsealedBody] = []
        for one in group:
            topic, records = one.lane.partition.topic, records + one.batch.count
            sequence = one.batch.sequence if self.idempotent else -1
            bodies.append((one.lane.partition, one.producer, sequence, one.batch.body))
            if topic not in ids:
                ids[topic] = view.topic_id(topic)
                if not ids[topic].int:  # NO_TOPIC_ID
                    most = min(most or BEFORE_TOPIC_IDS, BEFORE_TOPIC_IDS)
        self._in_flight[node] = self._in_flight.get(node, 0) + 1
        context.sensors.request_records.add(records, now)
        sent = SentRequest(node, group, ids, now)
        request = partial(self._sealed, bodies, ids)
        done, follow_up = partial(self.done, sent), partial(self.follow_up, sent)
        pending = PendingRequest("Produce", request, done, self._request_s, most, least, follow_up, self._has_responses)
        return UnsentRequest(ConnectionPurpose.DATA, view.brokers[node].endpoint, pending)

    def _sealed(self, bodies: list[UnsealedBody], ids: "Mapping[str, UUID]", version: int) -> ProduceRequest:
        """The request with these batches. It is made on the driver's thread without the lock."""
        codec, level = self._context.config.compression, self._context.config.compression_level
        if codec == "zstd" and version < FIRST_VERSION_OF_ZSTD:
            raise UnsupportedVersion(
                "the broker is too old for zstd",
                hint="choose another compression",
                api="Produce",
                version=version,
                least=FIRST_VERSION_OF_ZSTD,
            )
        topics: dict[str, list[PartitionProduceData]] = {}
        for (topic, partition), producer, sequence, body in bodies:
            assert body is not None
            pieces = sealed(
                body if body.codec or codec == "none" else compressed(body, codec, level),
                producer_id=producer.id,
                producer_epoch=producer.epoch,
                base_sequence=sequence,
                transactional=self._context.config.transactional_id is not None,
            )
            topics.setdefault(topic, []).append(PartitionProduceData(index=partition, records=pieces))
        return self._produce_request(topics, ids)

    def _produce_request(
        self, topics: Mapping[str, list[PartitionProduceData]], ids: "Mapping[str, UUID]"
    ) -> ProduceRequest:
        config = self._context.config
        data = [
            TopicProduceData(name=name, topic_id=ids[name], partition_data=tuple(partitions))
            for name, partitions in topics.items()
        ]
        return ProduceRequest(
            transactional_id=config.transactional_id,
            acks=ACKS[config.acks],
            timeout_ms=config.request_timeout_ms,
            topic_data=tuple(data),
        )

    # --- records on their own

    @staticmethod
    def sent(
        lane: PartitionQueue,
        batch: ProducerBatch,
        producer: ProducerId,
        node: int,
        topic_ids: "Mapping[str, UUID]",
        at: float,
    ) -> SentRequest:
        """A request with one batch."""
        return SentRequest(node, [SentBatch(lane, batch, producer)], topic_ids, at)

    def allow_alone(self, lane: PartitionQueue, node: int, version: int) -> None:
        """Let the next record of a partition be sent alone, since its last request was settled without a turn."""
        topic, stamp = lane.partition.topic, self._stamp()
        direct = lane.direct
        if direct is not None and direct.route.stamp is stamp and direct.route.is_open:
            return
        lane.direct = None
        leader = self._context.metadata.view.leader(lane.partition)
        if leader is None or leader.node != node:
            return
        route = self._routes.get((topic, node))
        if route is None or not route.is_open:
            route = self._routes[topic, node] = self._route(topic, leader, version)
        if route is not None:
            lane.direct = DirectSend(self.direct, lane, route)

    def _stamp(self) -> object:
        """It changes with the metadata. A route keeps it, since old metadata would take memory."""
        view = self._context.metadata.view
        if view is not self.stamped[0]:
            self.stamped = (view, object())
            self._routes.clear()
        return self.stamped[1]

    def _route(self, topic: str, leader: BrokerNode, version: int) -> DirectRoute | None:
        topic_id = self._context.metadata.view.topic_id(topic)
        connection = self.idle_connection(leader.endpoint, PRODUCE.key, version)
        if connection is None or not PRODUCE.request.is_flexible(version):
            return None
        if version > BEFORE_TOPIC_IDS and not topic_id.int:
            return None
        ids = {topic: topic_id}
        request = self._produce_request({topic: [PartitionProduceData(index=0, records=EXAMPLE)]}, ids)
        head, tail = PRODUCE.request.build(request, version).split(EXAMPLE_FIELDS)
        written = TopicProduceResponse(name=topic, topic_id=topic_id, partition_responses=(EXAMPLE_WRITTEN,))
        response = PRODUCE.response.build(ProduceResponse(responses=(written,), throttle_time_ms=0), version)
        response_head, response_tail = response.split(EXAMPLE_OFFSETS)
        response_head = NO_TAGS + response_head
        return DirectRoute(connection, head, tail, response_head, response_tail, self._stamp(), leader.node, ids)

    # --- responses

    def follow_up(self, sent: SentRequest, frame: memoryview, version: int, now: float) -> bytes | None:
        """Settle the batches of a request if they are in the log, and are all that there are.

        Then nothing follows from the response. The full turn is `done` and a poll.
        """
        busy = self._accumulator.busy
        if len(busy) != len(sent.batches) or len(frame) > USUAL_BYTES or not self.is_plain():
            return None
        for lane in busy.values():
            if len(lane.queue) != 1 or lane.rewrite:
                return None
        try:
            response = read_response(PRODUCE, frame[LENGTH_BYTES:], version)
        except WireError:
            return None
        found = _by_partition(sent, response, version)
        if response.throttle_time_ms or response.node_endpoints or len(found) != len(busy):
            return None
        for place, one in found.items():
            if one.error_code or one.current_leader.leader_id >= 0 or place not in busy:
                return None
        self._context.counters.requests += 1
        self._received(sent, response, now)
        self._settle(sent, found, now)
        if self._sends_alone and len(sent.batches) == 1:
            self.allow_alone(sent.batches[0].lane, sent.node, version)
        self.is_at_rest()
        self.came_to_rest()
        return NOTHING_FOLLOWS

    def done(self, sent: SentRequest, outcome: RequestResult, now: float) -> None:
        context = self._context
        responses: Mapping[TopicPartition, PartitionProduceResponse] = {}
        if isinstance(outcome, ResponseReceived) and outcome.value is None:
            responses = {one.batch.partition: WRITTEN for one in sent.batches}
            self._received(sent, None, now)
        elif isinstance(outcome, ResponseReceived):
            responses = _by_partition(sent, outcome.value, outcome.version)
            self._received(sent, outcome.value, now)
            brokers = [BrokerNode(one.node_id, one.host, one.port, one.rack) for one in outcome.value.node_endpoints]
            leaders = [
                (place, one.current_leader.leader_id, one.current_leader.leader_epoch)
                for place, one in responses.items()
            ]
            context.metadata.update_leaders(brokers, leaders)
        else:
            self._throttled.pop(sent.node, None)  # a throttle time ends with its connection
            context.metadata.request_update()
            if isinstance(outcome, SendFailed):
                context.fail(outcome.error)
        self._settle(sent, responses, now)

    def _received(self, sent: SentRequest, response: ProduceResponse | None, now: float) -> None:
        self._context.sensors.request_ms.add((now - sent.at) * 1000, now)
        if response is not None:
            self._context.sensors.throttle_ms.add(response.throttle_time_ms, now)
            if response.throttle_time_ms > 0:
                until = now + min(response.throttle_time_ms / 1000, LONGEST_S)
                self._throttled[sent.node] = max(until, self._throttled.get(sent.node, 0.0))

    def _settle(
        self, sent: SentRequest, responses: Mapping[TopicPartition, PartitionProduceResponse], now: float
    ) -> None:
        self._in_flight[sent.node] -= 1
        for one in sent.batches:
            # One by one: the first may fail a transaction, which drops batches that are no longer in flight.
            one.lane.in_flight -= 1
            one.batch.in_flight = False
            response = responses.get(one.batch.partition)
            if response is None:
                self._again(one, now)
            else:
                self._judge(one, response, now)
        self._context.updated()

    def _judge(self, sent: SentBatch, response: PartitionProduceResponse, now: float) -> None:
        lane, batch, producer = sent
        match verdict(response.error_code):
            case BatchVerdict.DONE:
                lane.attempts, lane.known = FRESH, True
                batch.base_offset = response.base_offset if not response.error_code else -1
                self._accumulator.settle(lane, batch)
                lane.failing = lane.failing and lane.in_flight > 0
            case BatchVerdict.RETRY:
                log.info("%s: %s, sending again", batch.partition, error_name(response.error_code))
                self._context.metadata.request_update()
                self._again(sent, now)
            case BatchVerdict.BUMP_EPOCH:
                if lane.queue[0] is batch and lane.producer == producer:
                    self._transactions.lost_count(lane, response.error_code)
                self._again(sent, now)
            case BatchVerdict.SPLIT if batch.count > 1 and not batch.done:
                # Brokers look at the size first. So an earlier attempt whose response was lost has been refused, too.
                log.warning("%s: a batch of %d records is too large, sending it in two", batch.partition, batch.count)
                lane.split(batch)
                self._context.sensors.splits += 1
            case BatchVerdict.SPLIT | BatchVerdict.REFUSED:
                batch.unsure = batch.unsure or response.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
                lane.give_back(batch)
                self._accumulator.settle(lane, batch, refusal(batch, response))

    def _again(self, sent: SentBatch, now: float) -> None:
        """Retry a batch after a backoff, before the batches behind it."""
        lane = sent.lane
        if not lane.failing or not lane.in_flight:
            lane.attempts = self._context.failed(lane.attempts, now)
        lane.failing = sent.batch.unsure = True
        self._context.sensors.retried_records += sent.batch.count
        fatal = self._context.fatal()
        if fatal is not None and not sent.batch.done:
            self._accumulator.settle(lane, sent.batch, fatal)

    # --- time-outs and failures

    def _expire(self, lane: PartitionQueue, now: float) -> None:
        give_up = now - self._context.config.delivery_timeout_ms / 1000
        growing = lane.open
        if growing is not None and growing.created_at <= now - self._grows_s:
            self._accumulator.close_lane(lane)
        while lane.queue and lane.queue[0].created_at <= give_up and not lane.in_flight:
            batch = lane.queue[0]
            error = DeliveryTimeout(
                f"not acknowledged within {self._context.config.delivery_timeout_ms} ms",
                hint="check that the partition has a leader and enough replicas in sync, and that no quota is exceeded",
                **batch.partition._asdict(),
                sent=batch.sequence >= 0,
            )
            self._accumulator.settle(lane, batch, error)

    def _next_poll_at(self, now: float) -> float | None:
        """The time (monotonic s) of the next lingering batch, delivery time-out, retry or end of a throttle time."""
        config = self._context.config
        linger_s, delivery_s = config.linger_ms / 1000, config.delivery_timeout_ms / 1000
        times = list(self._throttled.values())
        for lane in self._accumulator.busy.values():
            growing = lane.open
            if growing is not None:
                times += (growing.created_at + linger_s, growing.created_at + self._grows_s)
            if lane.queue:
                times.append(lane.queue[0].created_at + delivery_s)
            if lane.attempts.failures:
                times.append(lane.attempts.not_before)
        return earliest(now, times)


def _by_partition(
    sent: SentRequest, response: ProduceResponse, version: int
) -> dict[TopicPartition, PartitionProduceResponse]:
    """The responses of a request by partition. Since `BEFORE_TOPIC_IDS` they have no names of topics."""
    names: dict[int, str] = {}  # by the ids as numbers, since a UUID's own hash is a call of Python
    if version > BEFORE_TOPIC_IDS:
        for name, topic_id in sent.topic_ids.items():
            names[topic_id.int] = name
    found: dict[TopicPartition, PartitionProduceResponse] = {}
    for topic in response.responses:
        name = names.get(topic.topic_id.int, topic.name)
        for partition in topic.partition_responses:
            found[TopicPartition(name, partition.index)] = partition
    return found


def _never() -> bool:
    return False


def _no_connection(_endpoint: Endpoint, _api_key: int, _version: int) -> None:
    """Without a driver, all requests are returned by polls."""


def _at_once(compress: Callable[[], Body], done: Callable[[Body], None]) -> None:
    done(compress())


def refusal(batch: ProducerBatch, response: PartitionProduceResponse) -> KohortError:
    """The error of a rejected batch for its caller."""
    place = batch.partition._asdict()
    if response.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        return AuthorizationFailed("not allowed to write to the topic", hint="grant WRITE on it", **place)
    wrong = "; ".join(
        f"record {one.batch_index}: {one.batch_index_error_message}" for one in response.record_errors[:3]
    )
    text = "; ".join(part for part in (response.error_message, wrong) if part) or None
    return BrokerError(response.error_code, text, api="Produce", **place)
