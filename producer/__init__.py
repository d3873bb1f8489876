"""Producer, idempotent and transactional, over the same driver as Consumer."""

from kohort.producer._open_batch import Delivery
from kohort.producer.errors import (
    BufferFull,
    DeliveryTimeout,
    ProducerClosed,
    ProducerFenced,
    RecordTooLarge,
    TransactionAborted,
    TransactionError,
)
from kohort.producer.producer import Producer
from kohort.producer.producer_batch import Delivered, Deliveries
from kohort.producer.producer_config import ProducerConfig

SETTINGS = ProducerConfig.table

__all__ = [
    "SETTINGS",
    "BufferFull",
    "Deliveries",
    "Delivered",
    "Delivery",
    "DeliveryTimeout",
    "Producer",
    "ProducerClosed",
    "ProducerConfig",
    "ProducerFenced",
    "RecordTooLarge",
    "TransactionAborted",
    "TransactionError",
]
