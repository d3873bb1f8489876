"""A transactional producer's machine among coordinators and brokers that fail, all out of one seed.

The brokers are the handlers of the fake broker, without its sockets. Responses are lost, connections break,
coordinators move, batches are too large, time passes while requests are in flight, and transactions time out. In
version 2 of transactions, a request of a broken connection may also arrive later, in any transaction.
"""

from collections import defaultdict, deque
from collections.abc import Coroutine
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, Self, cast

from kohort.common import TopicPartition
from kohort.fastpath import decode
from kohort.fastpath.batches import batches
from kohort.network.errors import ConnectionFailed
from kohort.network.group_types import ConsumerGroupMetadata, OffsetAndMetadata
from kohort.network.requests import (
    FinalizedFeatures,
    NoResponse,
    PendingRequest,
    RequestResult,
    ResponseReceived,
    UnsentRequest,
)
from kohort.producer._open_batch import Delivery
from kohort.producer.callback_queue import CallbackQueue
from kohort.producer.errors import ProducerFenced
from kohort.producer.producer_batch import ProducerId
from kohort.producer.transaction_manager import OffsetsOrder
from kohort.producer.transaction_states import TxnState
from kohort.protocol.catalogue import API, choose_version
from kohort.protocol.errors import ErrorCode
from kohort.protocol.schema import Response
from kohort.testing.fake_broker.cluster import Address, FakeCluster, FakePartition
from kohort.testing.fake_broker.handler_context import Work
from kohort.testing.fake_broker.handlers import HANDLERS
from kohort.testing.fake_broker.interventions import Call
from tests.producer.producer_world import TOPIC, World

PARTITIONS = 3
TOO_LARGE_ONES = 0.01  # share of records
NODES = (1, 2)
GROUP, SOURCE = "g", TopicPartition("source", 0)
RANGES = {key: handler.VERSIONS for key, handler in HANDLERS.items()}
COORDINATED = frozenset({"InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn", "TxnOffsetCommit", "EndTxn"})


@dataclass
class Transaction:
    """One transaction of the program: its values by partition, its offset, and its outcome."""

    values: dict[int, list[bytes]] = field(default_factory=lambda: {number: [] for number in range(PARTITIONS)})
    order: OffsetsOrder | None = None
    commits: bool = True
    committed: bool | None = None


class _Sent(NamedTuple):
    """A request in a broker's socket."""

    pending: PendingRequest
    version: int
    request: Any
    node: int

    @classmethod
    def of(cls, outgoing: UnsentRequest) -> Self:
        pending = outgoing.request
        version = choose_version(pending.api, RANGES, pending.max_version, pending.min_version)
        request = pending.request(version) if callable(pending.request) else pending.request
        return cls(pending, version, request, outgoing.endpoint.port if outgoing.endpoint is not None else NODES[0])


class TransactionWorld(World):
    """A producer, its program and its brokers. `faults` is the share of requests that meet one.

    `called`: the numbers of the records whose callbacks were called, by partition. `most_bytes`: that of the topic.
    """

    def __init__(self, seed: int, version: int, *, late: bool, most_bytes: int, **settings: Any) -> None:
        super().__init__(
            seed,
            nodes=len(NODES),
            transactional_id="tx",
            transaction_timeout_ms=20_000,
            **{"request_timeout_ms": 2_000, "delivery_timeout_ms": 8_000, **settings},
        )
        self.cluster = FakeCluster(None, {"transaction.version": version})
        self.cluster.addresses = {node: Address("b", node) for node in NODES}
        self.cluster.create_topic(TOPIC, PARTITIONS).most_bytes = most_bytes
        self.cluster.create_topic(SOURCE.topic, 1)
        self.core.endpoints.finalized(FinalizedFeatures(0, self.cluster.features))
        self.version, self.most_bytes = version, most_bytes
        self.transactions = self.core.transactions
        self.called: dict[int, list[int]] = defaultdict(list)
        self._callbacks = CallbackQueue(self.core.accumulator.callbacks, _nothing)
        self.begun: list[Transaction] = []
        self.used: set[ProducerId] = set()
        self._queues: dict[str, deque[_Sent]] = {}
        self._fences = False
        self._late: list[_Sent] | None = [] if late else None

    def time(self) -> float:
        """The clock of the fake's coordinators."""
        return self.now

    # --- the program

    def step(self) -> None:
        """The program does the next thing that it may do now."""
        transactions, now = self.transactions, self.begun[-1] if self.begun else None
        if transactions.state is TxnState.FAILED:
            assert now is not None
            now.committed = False
            transactions.abort()
        elif transactions.state is TxnState.IDLE:
            if now is not None and now.committed is None:
                now.committed = now.commits
            transactions.begin()
            self.begun.append(Transaction())
        elif transactions.state is TxnState.OPEN:
            assert now is not None
            self._fill(now)

    def _fill(self, now: Transaction) -> None:
        happening = self.chance.random()
        if happening < 0.7:
            number, value = self.chance.randrange(PARTITIONS), self._value()
            if self.send(value, number, partial(self._note, len(self.sent))) is not None:
                now.values[number].append(value)
        elif happening < 0.8:
            if now.order is None:
                offset = OffsetAndMetadata(len(self.begun))
                now.order = self.transactions.order({SOURCE: offset}, ConsumerGroupMetadata(GROUP, -1, ""))
        elif happening < 0.95:
            self.transactions.commit()
        else:
            now.commits = False
            self.transactions.abort()

    def _value(self) -> bytes:
        """Now and then one that no batch may have, so that its transaction fails."""
        size = self.most_bytes if self.chance.random() < TOO_LARGE_ONES else self.chance.choice((1, 1, 20, 60, 120))
        return b"%d-%d:" % (len(self.begun), len(self.sent)) + b"x" * size

    def _note(self, number: int, delivery: Delivery) -> None:
        assert delivery.done()
        self.called[delivery.batch.partition.partition].append(number)

    # --- time

    def turn(self) -> None:
        self.now += 0.001
        # Coordinators of version 1 fence a producer whose transaction took too long.
        self._fences |= self.cluster.expire(self.now) and self.version == 1
        fatal = self.core.fatal
        assert fatal is None or (self._fences and isinstance(fatal, ProducerFenced)), fatal
        for outgoing in self.core.poll(self.now, 1).requests:
            self._queues.setdefault(self._pipe(outgoing.purpose, outgoing.endpoint), deque()).append(_Sent.of(outgoing))

    def respond_to_one(self) -> None:
        full = [name for name, queue in self._queues.items() if queue]
        if self.chance.random() < 0.15 * (self.faults > 0):
            self.now += self.chance.choice((0.1, 0.5, 1.0, 3.0))
        if self._late and self.chance.random() < 0.2:
            self._carried_out(self._late.pop(self.chance.randrange(len(self._late))))
        if not full:
            self.now += self.chance.choice((0.001, 0.1, 1.0))
            return
        queue = self._queues[self.chance.choice(full)]
        trouble = self.chance.random() < self.faults
        if trouble and self.chance.random() < 0.5:
            self._break(queue)
            return
        sent = queue.popleft()
        refused = self.chance.random() < 0.3 if trouble else False
        if refused and sent.pending.api in COORDINATED:
            self.cluster.coordinator_nodes["tx"] = self.chance.choice(NODES)
        sent.pending.done(self._carried_out(sent), self.now)

    def _break(self, queue: deque[_Sent]) -> None:
        """A connection ends. Its first request is carried out, or not, or later."""
        fate = self.chance.random()
        if fate < 0.5:
            self._carried_out(queue[0])
        elif self._late is not None and queue[0].pending.api in ("Produce", "TxnOffsetCommit", "EndTxn"):
            self._late.append(queue[0])
        while queue:
            queue.popleft().pending.done(NoResponse(ConnectionFailed("it broke")), self.now)

    def run(self, steps: int) -> None:
        for _ in range(steps):
            happening = self.chance.random()
            if happening < 0.35:
                self.step()
            elif happening < 0.6:
                self.turn()
            elif happening < 0.65:
                self._callbacks.call()
            else:
                self.respond_to_one()

    def calm(self) -> None:
        """No more faults, until the program's last transaction is settled."""
        self.faults = 0.0
        if self.transactions.state is TxnState.OPEN:
            self.transactions.commit()
        for _ in range(20_000):
            self.turn()
            self.respond_to_one()
            if self.transactions.settled:
                break
        else:
            raise AssertionError(f"it never came to rest: {self.transactions.state}")
        if self.begun and self.begun[-1].committed is None:
            now = self.begun[-1]
            now.committed = now.commits and self.transactions.state is TxnState.IDLE
        self._callbacks.call()

    # --- the brokers

    def _carried_out(self, sent: _Sent) -> RequestResult:
        pending, version, request = sent.pending, sent.version, sent.request
        call = Call(API[pending.api].key, pending.api, version, 0, "c", request, sent.node, 0, 0)
        work = Work(call, self.cluster, RANGES, cast("Any", self), _nothing, _nothing, _nothing)  # type: ignore[arg-type]
        self.requested.append(pending.api)
        self.used.add(self.transactions.producer)
        response = _run(cast("Any", HANDLERS[call.api_key].handle(work, request)))
        assert response is not None
        if pending.api == "Produce" and self.faults and self.chance.random() < 0.05:
            response = _times_out(response)
        return ResponseReceived(response, version)

    # --- the judge

    def seen(self) -> dict[int, list[bytes]]:
        """The values that a read_committed reader sees, by partition."""
        return {number: _committed(one) for number, one in enumerate(self.cluster.topics[TOPIC].partitions)}

    def expected(self) -> dict[int, list[bytes]]:
        """The values of the transactions that the program knows as committed."""
        return {
            number: [value for one in self.begun if one.committed for value in one.values[number]]
            for number in range(PARTITIONS)
        }

    def offset(self) -> int:
        """The group's committed offset; -1 for none."""
        found = self.cluster.groups.offsets(GROUP).get(SOURCE)
        return -1 if found is None else found.offset

    def expected_offset(self) -> int:
        return max((number for number, one in enumerate(self.begun, 1) if one.committed and one.order), default=-1)


def _committed(partition: FakePartition) -> list[bytes]:
    pending: dict[int, list[bytes]] = {}
    seen: list[bytes] = []
    aborts = {one.last_offset for one in partition.transactions.aborted}
    for stored in partition.log._batches:
        (head,) = batches(stored.data)
        if head.control:
            ended = pending.pop(head.producer_id, [])
            seen += ended if stored.base_offset not in aborts else []
        else:
            pending.setdefault(head.producer_id, []).extend(bytes(value or b"") for value in decode(stored.data).values)
    return seen


def _times_out(response: Any) -> Any:
    """The batches are written, and the replicas late."""
    return response._replace(
        responses=tuple(
            topic._replace(
                partition_responses=tuple(
                    one._replace(error_code=one.error_code or ErrorCode.REQUEST_TIMED_OUT)
                    for one in topic.partition_responses
                )
            )
            for topic in response.responses
        )
    )


def _run(work: Coroutine[Any, Any, Response | None]) -> Response | None:
    """The result of a handler that waits for nothing."""
    try:
        work.send(None)
    except StopIteration as over:
        return cast("Response | None", over.value)
    raise AssertionError("the handler waits")


def _nothing(*_: object) -> None:
    """No fetch waits here, and the world expires transactions itself."""
