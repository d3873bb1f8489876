# ruff: noqa: E501 -- one setting a line reads as the table it is
"""The settings that every client has: brokers, connections, retries, security.

A class of settings below (`ConsumerConfig`, `ProducerConfig`, `AdminConfig`) adds its own rows. A row that some clients
share, but not all, stands here as a value.
"""

from typing import Any, Final

from kohort.network.auth.security_config import SecurityConfig
from kohort.network.errors import ConfigError
from kohort.network.settings_table import INT32_MAX, MIB, row, split_address

# fmt: off
BOOTSTRAP_TIMEOUT_MS: Final[Any] = row("kohort.bootstrap.timeout.ms", "int", 10_000, "Time at the start without a reachable broker after which calls raise ConnectionFailed.", low=0, high=INT32_MAX)
DEFAULT_API_TIMEOUT_MS: Final[Any] = row("default.api.timeout.ms", "int", 60_000, "Time-out of calls without a timeout argument.", low=1, high=INT32_MAX)
ALLOW_AUTO_CREATE_TOPICS: Final[Any] = row("allow.auto.create.topics", "bool", False, "Let Metadata requests create missing topics, if the broker allows it.")
ENABLE_METRICS_PUSH: Final[Any] = row("enable.metrics.push", "bool", True, "Push metrics to brokers that request them (KIP-714). Needs kohort[opentelemetry]. Nothing is sent without a request.")
# fmt: on


class ClientConfig(SecurityConfig):
    """The settings of connections and security."""

    # fmt: off
    bootstrap: tuple[str, ...] = row("bootstrap.servers", "list", (), "Addresses of the first brokers, as host:port. One reachable broker is enough.", aliases=("metadata.broker.list",))
    client_id: str = row("client.id", "sent", "kohort", "Shown in the broker's logs, quotas and metrics.")
    max_frame_bytes: int = row("kohort.max.frame.bytes", "int", 128 * MIB, "Maximum bytes of a response. A longer one is rejected before memory is allocated.", low=1, high=INT32_MAX)
    request_timeout_ms: int = row("request.timeout.ms", "int", 30_000, "Time after which a request without a response closes its connection.", low=1, high=INT32_MAX)
    connection_setup_timeout_ms: int = row("socket.connection.setup.timeout.ms", "int", 10_000, "Time-out of connecting, TLS and SASL.", low=1, high=INT32_MAX)
    reconnect_backoff_ms: int = row("reconnect.backoff.ms", "int", 50, "First delay before a reconnection.", low=0, high=INT32_MAX)
    reconnect_backoff_max_ms: int = row("reconnect.backoff.max.ms", "int", 1_000, "Longest delay before a reconnection.", low=0, high=INT32_MAX)
    retry_backoff_ms: int = row("retry.backoff.ms", "int", 100, "First delay before a retry.", low=0, high=INT32_MAX)
    retry_backoff_max_ms: int = row("retry.backoff.max.ms", "int", 1_000, "Longest delay before a retry.", low=0, high=INT32_MAX)
    metadata_max_age_ms: int = row("metadata.max.age.ms", "int", 300_000, "Maximum age of metadata, after which it is requested again.", low=1, high=INT32_MAX)
    metadata_recovery_strategy: str = row("metadata.recovery.strategy", "str", "rebootstrap", "rebootstrap: use `bootstrap` again if no known broker responds (KIP-899).", choices=("rebootstrap", "none"), read=str.lower)
    metadata_cluster_check_enable: bool = row("metadata.cluster.check.enable", "bool", True, "Use `bootstrap` again when a known address has another cluster or, from Kafka 4.4 on, another broker (KIP-1242). Off if `metadata_recovery_strategy` is none.")
    receive_buffer_bytes: int = row("receive.buffer.bytes", "int", -1, "SO_RCVBUF; -1 means the system's default.", low=-1, high=INT32_MAX)
    send_buffer_bytes: int = row("send.buffer.bytes", "int", -1, "SO_SNDBUF; -1 means the system's default.", low=-1, high=INT32_MAX)
    tape: str | None = row("kohort.tape", "str", None, "File to which every frame is appended as a JSON line, without secrets (`kohort wire explain` reads it). Each client needs its own file.", optional=True)
    # fmt: on

    def check(self) -> None:
        """Raises ConfigError if two settings disagree, or one is missing that others need."""
        if not self.bootstrap:
            raise ConfigError("bootstrap names no broker", hint='give one as "host:port"', setting="bootstrap")
        for address in self.bootstrap:
            split_address(address)
        if self.security_protocol.startswith("SASL") and self.sasl_mechanism is None:
            raise ConfigError(f"{self.security_protocol} needs sasl_mechanism", setting="sasl_mechanism")
        if self.sasl_mechanism == "OAUTHBEARER":
            from kohort.network.auth import oauth_tokens  # other mechanisms do not need it

            oauth_tokens.check(self)
        elif self.sasl_mechanism == "GSSAPI":
            from kohort.network.auth import kerberos_tickets

            kerberos_tickets.check(self)
        elif self.sasl_mechanism and (self.sasl_username is None or self.sasl_password is None):
            raise ConfigError(f"{self.sasl_mechanism} needs sasl_username and sasl_password", setting="sasl_username")


def check_fetch_size(fetch_max_bytes: int, max_frame_bytes: int) -> None:
    """Raises ConfigError if a response of this size would be rejected."""
    if fetch_max_bytes > max_frame_bytes:
        raise ConfigError(
            f"fetch_max_bytes ({fetch_max_bytes}) must not exceed max_frame_bytes ({max_frame_bytes})",
            hint="lower fetch_max_bytes, since a response has at most that and one batch",
            setting="fetch_max_bytes",
        )


def shared_settings(config: ClientConfig) -> dict[str, Any]:
    """The settings of connections and security, for another client of the same cluster. The tape is not shared."""
    return {name: getattr(config, name) for name in ClientConfig.table if name != "tape"}
