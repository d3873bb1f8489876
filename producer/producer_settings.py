"""The settings of a producer by name and type. Made by `make docs` from `ProducerConfig`."""

from collections.abc import Callable
from typing import Any, Literal

from kohort.network.client_settings import ClientSettings

Acks = Literal["all", "-1", "0", "1", -1, 0, 1]
CompressionType = Literal["none", "gzip", "snappy", "lz4", "zstd"]
Partitioner = Literal["murmur2", "crc32", "uniform_sticky"]


class ProducerSettings(ClientSettings, total=False):
    """Keyword arguments of a producer."""

    allow_auto_create_topics: bool
    """Let Metadata requests create missing topics, if the broker allows it."""

    transactional_id: str | None
    """Makes the producer transactional. A newer producer with the same id fences the older."""

    transaction_timeout_ms: int
    """The coordinator aborts a transaction that is open for longer."""

    acks: Acks
    """The replicas that acknowledge a record: all in sync, 1 (the leader), or 0 (none: a record is lost silently). Only
    all is idempotent."""

    compression: CompressionType
    """The compression type of batches."""

    compression_level: int | None
    """The codec's own level."""

    partitioner: Partitioner | Callable[..., Any]
    """Chooses partitions by the key's hash: murmur2 (Java's clients) or crc32 (librdkafka). uniform_sticky ignores
    keys. A function gets topic, key, value and the number of partitions."""

    adaptive_partitioning: bool
    """Records without a key go less often to partitions with more queued batches (KIP-794)."""

    availability_timeout_ms: int
    """Records without a key avoid brokers for which a batch has waited longer; 0 for never."""

    rack: str | None
    """The client's rack, for `rack_aware_partitioning`."""

    rack_aware_partitioning: bool
    """Records without a key go to partitions with a leader in `rack`, if there are any (KIP-1123)."""

    linger_ms: int
    """Minimum time that a batch that is not full waits for more records. It accepts records until it can be sent."""

    batch_bytes: int
    """Size of a full batch, before compression."""

    buffer_bytes: int
    """Maximum bytes of unacknowledged records. send() waits while there are more."""

    max_request_bytes: int
    """Maximum bytes of batches in one request, and of one record before compression."""

    max_in_flight: int
    """Maximum requests in flight per broker. The order is guaranteed up to five."""

    max_block_ms: int
    """Maximum time that a call waits for room, metadata or the coordinator."""

    on_delivery: Callable[..., Any] | None
    """A function that is called with the Delivery of each settled record, unless `send` has another one."""

    delivery_timeout_ms: int
    """Time after which an unacknowledged record fails, with its batch. Its batch may be older by a tenth of it, or by
    linger_ms if that is more. A batch in flight fails up to request_timeout_ms later."""

    enable_metrics_push: bool
    """Push metrics to brokers that request them (KIP-714). Needs kohort[opentelemetry]. Nothing is sent without a
    request."""
