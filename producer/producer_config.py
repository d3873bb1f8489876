# ruff: noqa: E501 -- one setting a line keeps the table readable
"""The producer's settings. Those of connections and security are every client's (`network/client_config.py`)."""

from collections.abc import Mapping
from typing import Any, Self

from kohort.network.client_config import ALLOW_AUTO_CREATE_TOPICS, ClientConfig
from kohort.network.errors import ConfigError
from kohort.network.settings_table import INT32_MAX, KIB, MIB, row

# Java's and librdkafka's names of partitioners.
_PARTITIONERS = {"murmur2_random": "murmur2", "consistent_random": "crc32"}
# Fixed settings: a properties file may contain them only with these values.
_FIXED = {"acks": ("all", "-1"), "enable.idempotence": ("true",)}


def _partitioner(text: str) -> str:
    return _PARTITIONERS.get(text, text)


class ProducerConfig(ClientConfig):
    """A checked set of settings."""

    # fmt: off
    allow_auto_create_topics: bool = ALLOW_AUTO_CREATE_TOPICS
    transactional_id: str | None = row("transactional.id", "sent", None, "Makes the producer transactional; of two with the same id the newer fences the older.", optional=True)
    transaction_timeout_ms: int = row("transaction.timeout.ms", "int", 60_000, "A transaction that is open for longer is aborted by the coordinator.", low=1, high=INT32_MAX)
    compression: str = row("compression.type", "str", "none", "How batches are compressed.", choices=("none", "gzip", "snappy", "lz4", "zstd"))
    compression_level: int | None = row("kohort.compression.level", "int", None, "The codec's own level.", low=-(1 << 17), high=22, optional=True)
    partitioner: str = row("partitioner", "str", "murmur2", "How keys choose partitions: as Java's clients do (murmur2) or as librdkafka's (crc32).", choices=("murmur2", "crc32"), read=_partitioner)
    linger_ms: int = row("linger.ms", "int", 5, "How long a batch that is not full waits for more records, at least; as long as it cannot be sent it takes more.", low=0, high=INT32_MAX, aliases=("queue.buffering.max.ms",))
    batch_bytes: int = row("batch.size", "int", 256 * KIB, "A batch is full at, before compression.", low=1, high=INT32_MAX)
    buffer_bytes: int = row("buffer.memory", "int", 64 * MIB, "Most bytes of records that are not acknowledged; sending waits beyond.", low=1)
    max_request_bytes: int = row("max.request.size", "int", 4 * MIB, "Most bytes of batches in one request; also of one record.", low=1, high=INT32_MAX)
    max_in_flight: int = row("max.in.flight.requests.per.connection", "int", 5, "Requests that wait for a broker's answer at the same time; more than five would risk order.", low=1, high=5)
    max_block_ms: int = row("max.block.ms", "int", 60_000, "How long a call may wait for room, metadata or the coordinator.", low=0, high=INT32_MAX)
    delivery_timeout_ms: int = row("delivery.timeout.ms", "int", 120_000, "A record that is not acknowledged by then is given up; with its batch, which may be older by a tenth of that, or by linger_ms if that is more.", low=1, high=INT32_MAX)
    # fmt: on

    @classmethod
    def from_kafka(cls, properties: Mapping[str, Any]) -> Self:
        """Check settings by Kafka's dotted names; values may be strings.

        The only allowed values of acks and enable.idempotence are all and true.
        """
        for name, allowed in _FIXED.items():
            if name in properties and str(value := properties[name]).lower() not in allowed:
                raise ConfigError(f"{name} is always {allowed[0]}", hint="leave it out", setting=name, value=value)
        return super().from_kafka({name: value for name, value in properties.items() if name not in _FIXED})

    def check(self) -> None:
        """Raises ConfigError if two settings disagree."""
        super().check()
        if self.batch_bytes > self.max_request_bytes:
            raise ConfigError(
                f"batch_bytes ({self.batch_bytes}) must not exceed max_request_bytes ({self.max_request_bytes})",
                hint="a request carries whole batches",
                setting="batch_bytes",
            )
        if self.max_request_bytes > self.buffer_bytes:
            raise ConfigError(
                f"max_request_bytes ({self.max_request_bytes}) must not exceed buffer_bytes ({self.buffer_bytes})",
                hint="a request is made of what is in the buffer",
                setting="buffer_bytes",
            )
        if self.compression == "gzip" and (self.compression_level or 0) < 0:
            raise ConfigError(
                f"compression_level ({self.compression_level}) must be at least 0 for gzip",
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
