"""A producer's machine among brokers that lose responses, break connections and refuse: all out of one seed.

The brokers keep the rules of KIP-98 as Kafka's do. They accept the next sequence number and duplicates of the last five
batches. Others are OUT_OF_ORDER_SEQUENCE_NUMBER, and an older epoch is INVALID_PRODUCER_EPOCH.
"""

import random
import uuid
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any

from kohort.common import TopicPartition
from kohort.fastpath import decode
from kohort.fastpath.batches import batches
from kohort.network._guard import Guard
from kohort.network._poller import IdleConnection
from kohort.network.errors import ConnectionFailed
from kohort.network.requests import (
    NOTHING_FOLLOWS,
    ConnectionPurpose,
    Endpoint,
    NoResponse,
    PendingRequest,
    PollResult,
    RequestResult,
    ResponseReceived,
)
from kohort.producer._open_batch import Delivery
from kohort.producer.producer_batch import ProducerBatch
from kohort.producer.producer_config import ProducerConfig
from kohort.producer.producer_core import ProducerCore
from kohort.protocol.apis.init_producer_id import InitProducerIdResponse
from kohort.protocol.apis.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kohort.protocol.apis.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from kohort.protocol.catalogue import API
from kohort.protocol.framing import frame as framed
from tests.producer.direct_peer import DirectPeer
from tests.support.sent_requests import sent

TOPIC = "t"
TOO_LARGE, OUT_OF_ORDER, OLD_EPOCH = 10, 45, 47
BATCHES_REMEMBERED = 5


@dataclass
class Written:
    """A partition's log, and what it remembers of the producer."""

    values: list[bytes] = field(default_factory=list)
    epoch: int = -1
    next_sequence: int = 0
    recent: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=BATCHES_REMEMBERED))
    leader: int = 0

    def append(self, records: bytes) -> tuple[int, int]:
        """(error code, base offset)"""
        (head,) = batches(records)
        if head.producer_epoch < self.epoch:
            return OLD_EPOCH, -1
        if head.producer_epoch > self.epoch:
            if head.base_sequence:
                return OUT_OF_ORDER, -1
            self.epoch, self.next_sequence = head.producer_epoch, 0
            self.recent.clear()
        for sequence, offset in self.recent:
            if sequence == head.base_sequence:
                return 0, offset
        if head.base_sequence != self.next_sequence:
            return OUT_OF_ORDER, -1
        offset = len(self.values)
        self.values += [bytes(value or b"") for value in decode(records).values]
        self.next_sequence += len(self.values) - offset
        self.recent.append((head.base_sequence, offset))
        return 0, offset


class World:
    """A producer of its own and the brokers it talks to. `run` lets things happen; `calm` lets everything settle."""

    topic_id = uuid.UUID(int=1)

    def __init__(
        self, seed: int, *, partitions: int = 3, nodes: int = 2, racks: Sequence[str | None] = (), **settings: Any
    ) -> None:
        self.chance = random.Random(seed)
        self.now = 1_000.0
        self.nodes = nodes
        self.racks = racks or [None] * nodes
        self.logs = {TopicPartition(TOPIC, n): Written(leader=n % nodes) for n in range(partitions)}
        self.faults = 0.3
        self.most_bytes = 1 << 30  # of a batch, as max.message.bytes
        self.too_large = TOO_LARGE
        self.refusals: tuple[int, ...] = ()  # codes that end a batch, even one that is in the log already
        self.sends = 0.4  # share of steps in which a record is sent
        self.jumps = 0.0  # share of responses before which time passes
        self.code_of: Callable[[TopicPartition], int] = lambda _place: 0
        self.sent: list[tuple[Delivery, bytes]] = []
        self.requested: list[str] = []
        self.core = ProducerCore(
            ProducerConfig.of(bootstrap="b:1", **{"batch_bytes": 120, "linger_ms": 5, **settings}),
            chance=self.chance.random,
            started=self.now,
        )
        self._pipes: dict[str, deque[PendingRequest]] = {}
        self._must_poll, self._polls_at = True, inf  # as in a driver
        self.turns_for_records = self.followed_up = self.sent_alone = 0
        self._peers: dict[str, DirectPeer] = {}  # by pipe; only without linger_ms is a record sent alone
        self.core.sender.idle_connection = self._idle_connection
        self.core.sender.direct.lock, self.core.sender.direct.now = Guard(RuntimeError), lambda: self.now

    # --- the caller

    def send(
        self, value: bytes, partition: int | None = None, on_delivery: Callable[[Delivery], object] | None = None
    ) -> ProducerBatch | None:
        given = (TOPIC, None, value, None, partition, 1, on_delivery)
        delivery = self.core.accumulator.open.append(*given) or self.core.append(self.now, *given)
        if delivery is None:
            self.core.add_topic(TOPIC)
            self._must_poll = True
            return None
        self.sent.append((delivery, value))
        self._receive()
        return delivery.batch

    def _receive(self) -> None:
        """Take a record that was sent alone into the pipe of its broker."""
        for name, peer in self._peers.items():
            if (pending := peer.request()) is not None:
                self.sent_alone += 1
                self._pipes.setdefault(name, deque()).append(pending)

    def _idle_connection(self, endpoint: Endpoint, _api_key: int, version: int) -> IdleConnection | None:
        name = self._pipe(ConnectionPurpose.DATA, endpoint)
        if name not in self._peers:
            self._peers[name] = DirectPeer(endpoint, self.core, version)
        return self._peers[name].idle_connection()

    def partitions(self, topic: str = TOPIC) -> int | None:
        """The number of partitions of the topic; None while that is requested."""
        self.core.add_topic(topic)
        return self.core.partitions(topic)

    # --- time

    def turn(self) -> None:
        """One turn of the driver; its requests are in the brokers' sockets then."""
        self.now += 0.001
        self._poll(self.core.poll)

    def turn_for_records(self) -> None:
        """As `turn`, as a driver takes it after a send, if nothing else has happened."""
        self.now += 0.001
        only_records = not self._must_poll and self.now < self._polls_at
        self.turns_for_records += only_records
        self._poll(self.core.poll_added if only_records else self.core.poll)

    def _poll(self, poll: Callable[[float, int], PollResult]) -> None:
        self._must_poll = False
        result = poll(self.now, 1)
        self._polls_at = inf if result.next_poll_at is None else result.next_poll_at
        for outgoing in sent(result):
            self._pipes.setdefault(self._pipe(outgoing.purpose, outgoing.endpoint), deque()).append(outgoing.request)

    def respond_to_one(self) -> None:
        """One broker works off its oldest request, or its connection breaks."""
        if self.jumps and self.chance.random() < self.jumps:
            self.now += self.chance.choice((0.1, 0.3, 1.0))
        full = [name for name, pipe in self._pipes.items() if pipe]
        if not full:
            self.now += self.chance.choice((0.001, 0.1, 1.0))
            return
        name = self.chance.choice(full)
        pipe = self._pipes[name]
        pending = pipe[0]
        trouble = self.chance.random() < self.faults
        if trouble and pending.api == "Produce":
            if self.chance.random() < 0.5:
                self.carry_out(pending)  # done, and its response lost
            self._must_poll = True
            if name in self._peers:
                self._peers.pop(name).close()
            while pipe:
                pipe.popleft().done(NoResponse(ConnectionFailed("it broke")), self.now)
            return
        pipe.popleft()
        if name in self._peers:
            self._peers[name].responded()
        outcome = self.carry_out(pending, self.chance.random() < self.faults)
        if pending.follow_up is not None and not pipe and self._is_followed_up(pending.follow_up, outcome):
            self.followed_up += 1
            return
        pending.done(outcome, self.now)
        self._must_poll = self._must_poll or not self.core.is_at_rest()

    def _is_followed_up(self, follow_up: Callable[[memoryview, int, float], bytes | None], outcome: Any) -> bool:
        body = API["Produce"].response.build(outcome.value, outcome.version)
        frame = framed((0).to_bytes(4, "big"), b"\0", body)
        return follow_up(memoryview(frame), outcome.version, self.now) == NOTHING_FOLLOWS

    def run(self, steps: int) -> None:
        for _ in range(steps):
            happening = self.chance.random()
            if happening < self.sends:
                self.send(b"%d" % len(self.sent), self.chance.choice((None, 0, 1, 2)))
            elif happening < 0.7:
                self.turn_for_records()
            else:
                self.respond_to_one()

    def calm(self) -> None:
        """No more faults, until nothing is unsettled."""
        self.faults = 0.0
        for _ in range(10_000):
            self.core.accumulator.close_batches()
            self.turn()
            self.respond_to_one()
            if self.core.accumulator.idle:
                return
        raise AssertionError("it never came to rest")

    # --- the brokers

    def carry_out(self, pending: PendingRequest, trouble: bool = False) -> RequestResult:
        self.requested.append(pending.api)
        match pending.api:
            case "Metadata":
                return ResponseReceived(self._metadata(), 12)
            case "InitProducerId":
                return ResponseReceived(
                    InitProducerIdResponse(throttle_time_ms=0, error_code=0, producer_id=7, producer_epoch=0), 4
                )
            case "Produce":
                return ResponseReceived(self._produce(pending.request(11), trouble), 11)
        raise AssertionError(f"no response here to {pending.api}")

    def _produce(self, request: Any, trouble: bool) -> ProduceResponse:
        topics = []
        for topic in request.topic_data:
            responses = []
            for data in topic.partition_data:
                place = TopicPartition(topic.name, data.index)
                code, offset = self.code_of(place), -1
                if len(data.records) > self.most_bytes:
                    code = self.too_large
                if not code and trouble and self.chance.random() < 0.5:
                    code = self.chance.choice((6, 7, 19, *self.refusals))
                if not code:
                    code, offset = self.logs[place].append(bytes(data.records))
                responses.append(PartitionProduceResponse(index=data.index, error_code=code, base_offset=offset))
            topics.append(TopicProduceResponse(name=topic.name, partition_responses=tuple(responses)))
        return ProduceResponse(responses=tuple(topics))

    def _metadata(self) -> MetadataResponse:
        partitions = tuple(
            MetadataResponsePartition(
                error_code=0,
                partition_index=place.partition,
                leader_id=log.leader,
                leader_epoch=1,
                replica_nodes=(log.leader,),
                isr_nodes=(log.leader,),
                offline_replicas=(),
            )
            for place, log in self.logs.items()
        )
        topic = MetadataResponseTopic(
            error_code=0, name=TOPIC, topic_id=self.topic_id, is_internal=False, partitions=partitions
        )
        brokers = tuple(
            MetadataResponseBroker(node_id=n, host="b", port=n + 1, rack=self.racks[n]) for n in range(self.nodes)
        )
        return MetadataResponse(
            throttle_time_ms=0, brokers=brokers, cluster_id="c", controller_id=0, topics=(topic,), error_code=0
        )

    @staticmethod
    def _pipe(purpose: ConnectionPurpose, endpoint: Endpoint | None) -> str:
        return f"{purpose.value} {endpoint}"
