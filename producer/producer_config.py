# ruff: noqa: E501 -- one setting a line keeps the table readable
"""The producer's settings. Those of connections and security are every client's (`network/client_config.py`)."""

from collections.abc import Mapping
from typing import Any, Self

from kohort.network.arguments import INT64_MAX
from kohort.network.client_config import ALLOW_AUTO_CREATE_TOPICS, ENABLE_METRICS_PUSH, ClientConfig
from kohort.network.errors import ConfigError
from kohort.network.settings_table import INT32_MAX, KIB, MIB, Setting, checked, from_text, none_if_empty, row
from kohort.producer.partitioner import NAMES, Partitioner

# Java's and librdkafka's names of partitioners, and Java's partitioner.ignore.keys.
_JAVAS = "org.apache.kafka.clients.producer."
_PARTITIONERS = {
    "murmur2_random": "murmur2",
    "consistent_random": "crc32",
    f"{_JAVAS}internals.DefaultPartitioner": "murmur2",
    f"{_JAVAS}UniformStickyPartitioner": "uniform_sticky",
}
_IGNORE_KEYS = Setting("ignore_keys", "partitioner.ignore.keys", "bool", False, "")
_IDEMPOTENCE = "enable.idempotence"
_ACKS = {"-1": "all"}


def _partitioner(text: str) -> str:
    return _PARTITIONERS.get(text, text)


def _acks(setting: Setting, value: Any) -> str:
    text = str(value).lower()
    text = _ACKS.get(text, text)
    if isinstance(value, bool) or text not in ("0", "1", "all"):
        raise ConfigError(f"acks must be 0, 1 or 'all', not {value!r}", setting=setting.name)
    return text


class ProducerConfig(ClientConfig):
    """A checked set of settings. Make it with `ProducerConfig.of(**settings)` or `ProducerConfig.from_kafka({...})`.

    Both raise ConfigError for an unknown name, a wrong type, a value out of bounds, and settings that contradict each
    other.
    """

    stand_ins = frozenset({_IGNORE_KEYS.kafka})

    # fmt: off
    allow_auto_create_topics: bool = ALLOW_AUTO_CREATE_TOPICS._replace(default=True)
    transactional_id: str | None = row("transactional.id", "sent", None, "Makes the producer transactional. A newer producer with the same id fences the older.", optional=True)
    transaction_timeout_ms: int = row("transaction.timeout.ms", "int", 60_000, "The coordinator aborts a transaction that is open for longer.", low=1, high=INT32_MAX)
    acks: str = row("acks", "any", "all", "The replicas that acknowledge a record: all in sync, 1 (the leader), or 0 (none: a record is lost silently). Only all is idempotent.", check=_acks, aliases=("request.required.acks",))
    compression: str = row("compression.type", "str", "none", "The compression type of batches.", choices=("none", "gzip", "snappy", "lz4", "zstd"), aliases=("compression.codec",))
    compression_level: int | None = row("kohort.compression.level", "int", None, "The codec's own level.", low=-(1 << 17), high=22, optional=True)
    partitioner: str | Partitioner = row("partitioner", "callable", "murmur2", "Chooses partitions by the key's hash: murmur2 (Java's clients) or crc32 (librdkafka). uniform_sticky ignores keys. A function gets topic, key, value and the number of partitions.", choices=NAMES, read=_partitioner, aliases=("partitioner.class",))
    adaptive_partitioning: bool = row("partitioner.adaptive.partitioning.enable", "bool", True, "Records without a key go less often to partitions with more queued batches (KIP-794).")
    availability_timeout_ms: int = row("partitioner.availability.timeout.ms", "int", 0, "Records without a key avoid brokers for which a batch has waited longer; 0 for never.", low=0, high=INT32_MAX)
    rack: str | None = row("client.rack", "sent", None, "The client's rack, for `rack_aware_partitioning`.", optional=True, read=none_if_empty)
    rack_aware_partitioning: bool = row("partitioner.rack.aware", "bool", False, "Records without a key go to partitions with a leader in `rack`, if there are any (KIP-1123).")
    linger_ms: int = row("linger.ms", "int", 5, "Minimum time that a batch that is not full waits for more records. It accepts records until it can be sent.", low=0, high=INT32_MAX, aliases=("queue.buffering.max.ms",))
    batch_bytes: int = row("batch.size", "int", 256 * KIB, "Size of a full batch, before compression.", low=1, high=INT32_MAX)
    buffer_bytes: int = row("buffer.memory", "int", 64 * MIB, "Maximum bytes of unacknowledged records. send() waits while there are more.", low=1, high=INT64_MAX)
    max_request_bytes: int = row("max.request.size", "int", 4 * MIB, "Maximum bytes of batches in one request, and of one record before compression.", low=1, high=INT32_MAX)
    max_in_flight: int = row("max.in.flight.requests.per.connection", "int", 5, "Maximum requests in flight per broker. The order is guaranteed up to five.", low=1, high=5, aliases=("max.in.flight",))
    max_block_ms: int = row("max.block.ms", "int", 60_000, "Maximum time that a call waits for room, metadata or the coordinator.", low=0, high=INT32_MAX)
    on_delivery: Any = row("kohort.on.delivery", "callable", None, "A function that is called with the Delivery of each settled record, unless `send` has another one.", optional=True)
    delivery_timeout_ms: int = row("delivery.timeout.ms", "int", 120_000, "Time after which an unacknowledged record fails, with its batch. Its batch may be older by a tenth of it, or by linger_ms if that is more. A batch in flight fails up to request_timeout_ms later.", low=1, high=INT32_MAX, aliases=("message.timeout.ms",))
    enable_metrics_push: bool = ENABLE_METRICS_PUSH
    # fmt: on

    @classmethod
    def from_kafka(cls, properties: Mapping[str, Any]) -> Self:
        """Check settings by Kafka's dotted names; values may be strings.

        enable.idempotence must be true with acks=all, and false with others. partitioner.ignore.keys stands for
        uniform_sticky.
        """
        ours = {name: value for name, value in properties.items() if name not in (_IDEMPOTENCE, _IGNORE_KEYS.kafka)}
        given = properties.get(_IGNORE_KEYS.kafka, False)
        if checked(_IGNORE_KEYS, from_text(_IGNORE_KEYS, given) if isinstance(given, str) else given):
            ours = {"partitioner": "uniform_sticky"} | ours  # a function ignores keys, or not, by itself
        config = super().from_kafka(ours)
        value = properties.get(_IDEMPOTENCE, config.idempotent)
        if str(value).lower() != str(config.idempotent).lower():
            raise ConfigError(
                f"{_IDEMPOTENCE} is always {str(config.idempotent).lower()} with acks={config.acks}",
                hint="leave it out",
                setting=_IDEMPOTENCE,
                value=value,
            )
        return config

    @property
    def idempotent(self) -> bool:
        """True if brokers drop duplicates (KIP-98)."""
        return self.acks == "all"

    def check(self) -> None:
        """Raises ConfigError if two settings disagree."""
        super().check()
        if self.transactional_id is not None and not self.idempotent:
            raise ConfigError(
                f"a transactional producer has acks=all, not {self.acks}", hint="leave it out", setting="acks"
            )
        if self.batch_bytes > self.max_request_bytes:
            raise ConfigError(
                f"batch_bytes ({self.batch_bytes}) must not exceed max_request_bytes ({self.max_request_bytes})",
                hint="lower batch_bytes, since a request has whole batches",
                setting="batch_bytes",
            )
        if self.max_request_bytes > self.buffer_bytes:
            raise ConfigError(
                f"max_request_bytes ({self.max_request_bytes}) must not exceed buffer_bytes ({self.buffer_bytes})",
                hint="lower max_request_bytes, or raise buffer_bytes",
                setting="buffer_bytes",
            )
        if self.compression in ("gzip", "lz4") and (self.compression_level or 0) < 0:
            raise ConfigError(
                f"compression_level ({self.compression_level}) must be at least 0 for {self.compression}",
                hint="leave it out: that is the codec's usual one",
                setting="compression_level",
            )
        if self.delivery_timeout_ms < self.linger_ms + self.request_timeout_ms:
            raise ConfigError(
                f"delivery_timeout_ms ({self.delivery_timeout_ms}) must cover linger_ms ({self.linger_ms}) "
                f"and request_timeout_ms ({self.request_timeout_ms})",
                hint="lower request_timeout_ms, or allow deliveries more time",
                setting="delivery_timeout_ms",
            )
