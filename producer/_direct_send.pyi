from collections.abc import Callable, Mapping
from typing import final
from uuid import UUID

from typing_extensions import Buffer

from kohort.network._guard import Guard
from kohort.network._poller import IdleConnection
from kohort.network.requests import RequestResult
from kohort.producer._open_batch import Delivery, OnDelivery
from kohort.producer.producer_batch import PartitionQueue
from kohort.producer.producer_context import ProducerContext
from kohort.producer.record_accumulator import RecordAccumulator
from kohort.producer.sender import Sender, SentRequest
from kohort.producer.transaction_manager import TransactionManager

@final
class DirectSends:
    """The state that the direct sends of a producer have in common."""

    lock: Guard | None
    now: Callable[[], float]
    def __init__(
        self,
        sender: Sender,
        context: ProducerContext,
        accumulator: RecordAccumulator,
        transactions: TransactionManager,
        in_flight: dict[int, int],
        numbered: bool,
        most_bytes: int,
    ) -> None: ...

@final
class DirectRoute:
    """The way of records of a topic to a broker."""

    stamp: object
    node: int
    topic_ids: Mapping[str, UUID]
    def __init__(
        self,
        connection: IdleConnection,
        head: bytes,
        tail: bytes,
        response_head: bytes,
        response_tail: bytes,
        stamp: object,
        node: int,
        topic_ids: Mapping[str, UUID],
    ) -> None: ...
    @property
    def is_open(self) -> bool: ...

@final
class DirectSend:
    """Sends records of a partition, each on its own."""

    route: DirectRoute
    def __init__(self, shared: DirectSends, lane: PartitionQueue, route: DirectRoute) -> None: ...
    def __call__(
        self,
        key: Buffer | None,
        value: Buffer | None,
        headers: bytes | None,
        timestamp_ms: int | None,
        on_delivery: OnDelivery | None,
    ) -> Delivery | None: ...
    def append(
        self,
        now: float,
        size: int,
        key: Buffer | None,
        value: Buffer | None,
        headers: bytes | None,
        timestamp_ms: int | None,
        on_delivery: OnDelivery | None,
    ) -> Delivery | None: ...

@final
class DirectResponse:
    """The end of a request with one record."""

    def sent(self) -> SentRequest: ...
    def done(self, outcome: RequestResult, now: float) -> None: ...
    def __call__(self, frame: memoryview, version: int, now: float) -> bytes | None: ...
