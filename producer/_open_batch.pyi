from collections.abc import Callable, Iterable, Mapping
from typing import Any, Self, final

from typing_extensions import Buffer

from kohort.common import KohortError
from kohort.fastpath._encode import Body
from kohort.producer._direct_send import DirectSend
from kohort.producer.producer_batch import Delivered, ProducerBatch

OnDelivery = Callable[["Delivery"], object]

def encoded_headers(
    headers: Mapping[str, bytes | None] | Iterable[tuple[str, bytes | None]], topic: str | None = None
) -> bytes | None: ...
def record_size(key: Buffer | None, value: Buffer | None, headers: bytes | None = None) -> int: ...

@final
class BufferedBytes:
    used: int
    limit: int
    def __init__(self, limit: int) -> None: ...

class OpenBatch:
    """The records of one partition, which are sent together. It takes records until it is closed."""

    count: int
    size: int
    closed: bool
    body: Body | None
    buffered: BufferedBytes
    done: bool
    def __init__(self, buffered: BufferedBytes, limit: int, on_delivery: OnDelivery | None = None) -> None: ...
    def append(
        self,
        key: Buffer | None,
        value: Buffer | None,
        headers: bytes | None,
        timestamp_ms: int | None,
        on_delivery: OnDelivery | None = None,
        put: Callable[[Self], Any] | None = None,
    ) -> Delivery | None: ...
    def enqueue(self, body: Body, put: Callable[[Self], Any]) -> bool: ...
    def close(self) -> None: ...
    def compressed_to(self, body: Body) -> None: ...
    @property
    def has_callbacks(self) -> bool: ...
    @property
    def calls_back_all(self) -> bool: ...
    def call_back(self) -> int: ...
    def adopt(self, body: Body) -> None: ...
    def free(self) -> None: ...
    def release(self) -> None: ...

@final
class Delivery:
    """The result of a sent record; thread-safe."""

    batch: ProducerBatch
    index: int
    def done(self) -> bool:
        """True if the record is acknowledged or has failed."""

    def result(self, timeout_s: float | None = None) -> Delivered:
        """Wait until the record is acknowledged, and return its position.

        Raises its error (BrokerError, DeliveryTimeout, TransactionAborted, ...), and OperationTimeout after `timeout_s`
        seconds (None: `delivery_timeout_ms` ends the wait).
        """

    def exception(self, timeout_s: float | None = None) -> KohortError | None:
        """Wait as `result`, and return the error of the record; None if it is acknowledged."""

@final
class TopicBatches:
    """The open batches of a topic, by partition."""

    partitions: int
    sticky: int
    def __init__(self, partitions: int, hashing: str) -> None: ...
    def choose(self, key: Buffer | None) -> int: ...
    def open(self, partition: int, batch: OpenBatch) -> None: ...
    def send_alone(self, partition: int, direct: DirectSend) -> None: ...
    def stick_to(self, partition: int) -> None: ...

@final
class OpenBatches:
    """The open batches of a producer, by topic."""

    def __init__(self) -> None: ...
    def topic(self, name: str) -> TopicBatches | None: ...
    def put(self, name: str, batches: TopicBatches) -> None: ...
    def clear(self) -> None: ...
    def append(
        self,
        topic: str,
        key: Buffer | None,
        value: Buffer | None,
        headers: bytes | None,
        partition: int | None,
        timestamp_ms: int | None,
        on_delivery: OnDelivery | None = None,
    ) -> Delivery | None: ...
