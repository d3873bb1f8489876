from collections.abc import Mapping
from typing import final
from uuid import UUID

from typing_extensions import Buffer

from kohort.network._poller import IdleConnection
from kohort.network.requests import PendingRequest
from kohort.producer._open_batch import Delivery, OnDelivery
from kohort.producer.producer_batch import PartitionQueue, ProducerBatch

@final
class DirectSend:
    """Sends records of a topic to a broker, each on its own."""

    stamp: object
    node: int
    topic_ids: Mapping[str, UUID]
    def __init__(
        self,
        connection: IdleConnection,
        head: bytes,
        tail: bytes,
        stamp: object,
        node: int,
        topic_ids: Mapping[str, UUID],
    ) -> None: ...
    @property
    def is_open(self) -> bool: ...
    def append(
        self,
        lane: PartitionQueue,
        batch: ProducerBatch,
        request: PendingRequest,
        in_flight: dict[int, int],
        numbered: bool,
        now: float,
        key: Buffer | None,
        value: Buffer | None,
        headers: bytes | None,
        timestamp_ms: int | None,
        on_delivery: OnDelivery | None,
    ) -> Delivery | None: ...
