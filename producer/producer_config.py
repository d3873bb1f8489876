# ruff: noqa: E501 -- one setting a line keeps the table readable
"""The producer's settings.

Those of connections and security are the consumer's (`coordinator_client.consumer_config`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from kohort.coordinator_client.consumer_config import ALIASES, SETTINGS, Config
from kohort.network.errors import ConfigError
from kohort.network.settings_table import INT32_MAX, KIB, MIB, Setting, Settings, by_our_names, checked, row, unknown

# Settings of the consumer's table that a producer has: connections, security, retries.
CONNECTING: Mapping[str, Setting] = MappingProxyType(
    {
        name: SETTINGS[name]
        for name in (
            "bootstrap",
            "client_id",
            "allow_auto_create_topics",
            "max_frame_bytes",
            "request_timeout_ms",
            "bootstrap_timeout_ms",
            "connection_setup_timeout_ms",
            "reconnect_backoff_ms",
            "reconnect_backoff_max_ms",
            "retry_backoff_ms",
            "retry_backoff_max_ms",
            "metadata_max_age_ms",
            "metadata_recovery_strategy",
            "receive_buffer_bytes",
            "send_buffer_bytes",
            "tape",
            *(name for name in SETTINGS if name.startswith(("security_", "ssl_", "sasl_"))),
        )
    }
)


class Producing(Settings):
    """The producer's own settings."""

    # fmt: off
    transactional_id: str | None = row("transactional.id", "sent", None, "Makes the producer transactional; of two with the same id the newer fences the older.", optional=True)
    transaction_timeout_ms: int = row("transaction.timeout.ms", "int", 60_000, "A transaction that is open for longer is aborted by the coordinator.", low=1, high=INT32_MAX)
    compression: str = row("compression.type", "str", "none", "How batches are compressed.", choices=("none", "gzip", "snappy", "lz4", "zstd"))
    compression_level: int | None = row("kohort.compression.level", "int", None, "The codec's own level.", low=-(1 << 17), high=22, optional=True)
    partitioner: str = row("partitioner", "str", "murmur2", "How keys choose partitions: as Java's clients do (murmur2) or as librdkafka's (crc32).", choices=("murmur2", "crc32"))
    linger_ms: int = row("linger.ms", "int", 5, "How long a batch that is not full waits for more records, at least; as long as it cannot be sent it takes more.", low=0, high=INT32_MAX)
    batch_bytes: int = row("batch.size", "int", 256 * KIB, "A batch is full at, before compression.", low=1, high=INT32_MAX)
    buffer_bytes: int = row("buffer.memory", "int", 64 * MIB, "Most bytes of records that are not acknowledged; sending waits beyond.", low=1)
    max_request_bytes: int = row("max.request.size", "int", 4 * MIB, "Most bytes of batches in one request; also of one record.", low=1, high=INT32_MAX)
    max_in_flight: int = row("max.in.flight.requests.per.connection", "int", 5, "Requests that wait for a broker's answer at the same time; more than five would risk order.", low=1, high=5)
    max_block_ms: int = row("max.block.ms", "int", 60_000, "How long a call may wait for room, metadata or the coordinator.", low=0, high=INT32_MAX)
    delivery_timeout_ms: int = row("delivery.timeout.ms", "int", 120_000, "A record that is not acknowledged by then is given up; with its batch, which may be older by a tenth of that, or by linger_ms if that is more.", low=1, high=INT32_MAX)
    # fmt: on


PRODUCING: Mapping[str, Setting] = Producing.table
_BY_KAFKA_NAME: Mapping[str, Setting] = MappingProxyType(
    {one.kafka: one for one in (*CONNECTING.values(), *PRODUCING.values())}
    | {name: CONNECTING[ours] for name, ours in ALIASES.items() if ours in CONNECTING}
    | {"queue.buffering.max.ms": PRODUCING["linger_ms"]}
)
# Java's and librdkafka's names of partitioners.
_PARTITIONERS = {"murmur2_random": "murmur2", "consistent_random": "crc32"}
# Fixed settings: a properties file may contain them only with these values.
_FIXED = {"acks": ("all", "-1"), "enable.idempotence": ("true",)}


@dataclass(frozen=True, slots=True)
class ProducerConfig:
    """A checked set of settings: `connecting` for connections, `producing` for the rest."""

    connecting: Config
    producing: Producing = field(default_factory=Producing)

    @classmethod
    def of(cls, **settings: Any) -> "ProducerConfig":
        """Create from our own names. Raises ConfigError as `Config.of` does."""
        connecting: dict[str, Any] = {}
        producing: dict[str, Any] = {}
        for name, value in settings.items():
            if name in CONNECTING:
                connecting[name] = value
            elif name in PRODUCING:
                producing[name] = checked(PRODUCING[name], value)
            else:
                raise unknown(name, (*CONNECTING, *PRODUCING), "setting")
        config = cls(Config.of(**connecting), Producing(**producing))
        _agree(config.producing, config.connecting)
        return config

    @classmethod
    def from_kafka(cls, properties: Mapping[str, Any]) -> "ProducerConfig":
        """Create from Kafka's dotted names; values may be strings.

        The only allowed values of acks and enable.idempotence are all and true.
        """
        for name, allowed in _FIXED.items():
            if name in properties and str(value := properties[name]).lower() not in allowed:
                raise ConfigError(f"{name} is always {allowed[0]}", hint="leave it out", setting=name, value=value)
        free = {name: value for name, value in properties.items() if name not in _FIXED}
        ours = by_our_names(free, _BY_KAFKA_NAME)
        if (chosen := ours.get("partitioner")) in _PARTITIONERS:
            ours["partitioner"] = _PARTITIONERS[chosen]
        return cls.of(**ours)


def _agree(producing: Producing, connecting: Config) -> None:
    if producing.batch_bytes > producing.max_request_bytes:
        raise ConfigError(
            f"batch_bytes ({producing.batch_bytes}) must not exceed max_request_bytes ({producing.max_request_bytes})",
            hint="a request carries whole batches",
            setting="batch_bytes",
        )
    if producing.max_request_bytes > producing.buffer_bytes:
        raise ConfigError(
            f"max_request_bytes ({producing.max_request_bytes}) must not exceed buffer_bytes "
            f"({producing.buffer_bytes})",
            hint="a request is made of what is in the buffer",
            setting="buffer_bytes",
        )
    if producing.compression == "gzip" and (producing.compression_level or 0) < 0:
        raise ConfigError(
            f"compression_level ({producing.compression_level}) must be at least 0 for gzip",
            hint="leave it out: that is the codec's usual one",
            setting="compression_level",
        )
    if producing.delivery_timeout_ms < producing.linger_ms + connecting.request_timeout_ms:
        raise ConfigError(
            f"delivery_timeout_ms ({producing.delivery_timeout_ms}) must cover linger_ms ({producing.linger_ms}) "
            f"and request_timeout_ms ({connecting.request_timeout_ms})",
            hint="lower request_timeout_ms, or allow deliveries more time",
            setting="delivery_timeout_ms",
        )
