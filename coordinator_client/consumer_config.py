# ruff: noqa: E501 -- one setting a line reads as the table it is
"""Every setting, once: our name (units last), Kafka's name, type, default, bounds and a sentence.

`SETTINGS` is the table; `Config` is one checked set of values. Docs, `Consumer(**settings)` and
`Consumer.from_config({...})` all read the same fields.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal

from kohort.coordinator_client.group.member_config import MemberSettings
from kohort.network.errors import ConfigError
from kohort.network.settings_table import (
    INT32_MAX,
    MIB,
    Setting,
    Settings,
    by_our_names,
    checked,
    row,
    split_address,
    unknown,
)

LOOPBACK = ("localhost", "127.0.0.1", "::1")


class Config(Settings):
    """One checked set of settings. Make it with `Config.of(**settings)` or `Config.from_kafka({...})`."""

    # fmt: off
    # --- who and where
    bootstrap: tuple[str, ...] = row("bootstrap.servers", "list", (), "Brokers to ask first, as host:port; one that answers is enough.")
    group: str | None = row("group.id", "sent", None, "The group to be a member of; without one a consumer only assigns.", optional=True)
    group_instance_id: str | None = row("group.instance.id", "sent", None, "Makes the member static: it comes back to its partitions within the session timeout (KIP-345).", optional=True)
    client_id: str = row("client.id", "sent", "kohort", "Shown in the broker's logs, quotas and metrics.")
    enable_metrics_push: bool = row("enable.metrics.push", "bool", True, "Whether a consumer pushes its metrics to a broker that asks for them (KIP-714); needs kohort[opentelemetry], and nothing is sent where no broker asks.")
    rack: str | None = row("client.rack", "sent", None, "Where this client is: read from a replica there if the broker offers one (KIP-392).", optional=True)

    # --- membership
    assignors: tuple[Any, ...] = row("partition.assignment.strategy", "assignors", ("range",), "Assignors in order of preference, by name or as instances; the group uses one that all members list.")
    protocol: str = row("group.protocol", "str", "classic", "classic: a member assigns the group; consumer: the coordinator does (KIP-848).", choices=("classic", "consumer"))
    remote_assignor: str | None = row("group.remote.assignor", "sent", None, "The coordinator's assignor to ask for, under protocol consumer; without it the group's.", optional=True)
    session_timeout_ms: int = row("session.timeout.ms", "int", 45_000, "A member silent for longer is dead to the group.", low=1, high=INT32_MAX)
    heartbeat_interval_ms: int = row("heartbeat.interval.ms", "int", 3_000, "Between heartbeats; at most a third of the session timeout is wise.", low=1, high=INT32_MAX)
    max_poll_interval_ms: int = row("max.poll.interval.ms", "int", 300_000, "A member that does not poll for longer leaves the group; also how long a rebalance waits for it.", low=1, high=INT32_MAX)
    exclude_internal_topics: bool = row("exclude.internal.topics", "bool", True, "Whether a pattern leaves out Kafka's own topics.")
    allow_auto_create_topics: bool = row("allow.auto.create.topics", "bool", False, "Whether asking for a topic may create it (if the broker agrees).")

    # --- offsets
    auto_offset_reset: str = row("auto.offset.reset", "reset", "latest", "Where to start without a committed offset, when it is out of range, or when the leader does not know its epoch: earliest, latest, none (an error), nearest, or by_duration:PT1H (KIP-1106). A truncated log is read on from where both logs agree; none raises Truncation.")
    enable_auto_commit: bool = row("enable.auto.commit", "bool", False, "Commit what earlier polls returned: at intervals, before a rebalance and on close.")
    auto_commit_interval_ms: int = row("auto.commit.interval.ms", "int", 5_000, "Between automatic commits.", low=1, high=INT32_MAX)
    isolation_level: str = row("isolation.level", "str", "read_uncommitted", "read_committed hides records of open and aborted transactions.", choices=("read_uncommitted", "read_committed"))

    # --- fetching
    fetch_min_bytes: int = row("fetch.min.bytes", "int", 1, "A broker waits until it has as much to answer ...", low=0, high=INT32_MAX)
    fetch_max_wait_ms: int = row("fetch.max.wait.ms", "int", 500, "... or until so long has passed.", low=0, high=INT32_MAX)
    fetch_max_bytes: int = row("fetch.max.bytes", "int", 8 * MIB, "Most bytes of records in one answer; a single larger batch still comes.", low=1, high=INT32_MAX)
    max_partition_fetch_bytes: int = row("max.partition.fetch.bytes", "int", 8 * MIB, "Most bytes of one partition in one answer; a single larger batch still comes.", low=1, high=INT32_MAX)
    max_buffered_bytes: int = row("kohort.max.buffered.bytes", "int", 64 * MIB, "Fetched and not yet polled: no Fetch is sent while there is more.", low=1)
    max_poll_records: int = row("max.poll.records", "int", 0, "Most records one poll returns; 0 is as many as one fetched slice of each partition holds.", low=0)
    on_corrupt: Literal["raise", "skip_batch"] = row("kohort.on.corrupt", "str", "raise", "A batch that contradicts itself or its checksum: raise CorruptRecord and stay before it, or skip_batch, log it and list it in `columns.corrupt`.", choices=("raise", "skip_batch"))
    max_decompressed_bytes: int = row("kohort.max.decompressed.bytes", "int", 64 * MIB, "A batch that would grow past it is refused.", low=1, high=INT32_MAX)

    # --- connections
    max_frame_bytes: int = row("kohort.max.frame.bytes", "int", 128 * MIB, "A longer answer is refused before anything is allocated.", low=1, high=INT32_MAX)
    request_timeout_ms: int = row("request.timeout.ms", "int", 30_000, "A request without an answer for as long closes its connection.", low=1, high=INT32_MAX)
    default_api_timeout_ms: int = row("default.api.timeout.ms", "int", 60_000, "How long a call without a timeout of its own may take.", low=1, high=INT32_MAX)
    bootstrap_timeout_ms: int = row("kohort.bootstrap.timeout.ms", "int", 10_000, "If no broker has been reached for as long at the start, calls raise ConnectionFailed.", low=0, high=INT32_MAX)
    connection_setup_timeout_ms: int = row("socket.connection.setup.timeout.ms", "int", 10_000, "Until a connection is open and shaken hands.", low=1, high=INT32_MAX)
    reconnect_backoff_ms: int = row("reconnect.backoff.ms", "int", 50, "First wait before connecting again.", low=0, high=INT32_MAX)
    reconnect_backoff_max_ms: int = row("reconnect.backoff.max.ms", "int", 1_000, "Longest wait before connecting again.", low=0, high=INT32_MAX)
    retry_backoff_ms: int = row("retry.backoff.ms", "int", 100, "First wait before asking again.", low=0, high=INT32_MAX)
    retry_backoff_max_ms: int = row("retry.backoff.max.ms", "int", 1_000, "Longest wait before asking again.", low=0, high=INT32_MAX)
    metadata_max_age_ms: int = row("metadata.max.age.ms", "int", 300_000, "Topics, partitions and leaders are asked for again after.", low=1, high=INT32_MAX)
    metadata_recovery_strategy: str = row("metadata.recovery.strategy", "str", "rebootstrap", "What to do when no known broker answers: start from `bootstrap` again, or not (KIP-899).", choices=("rebootstrap", "none"))
    receive_buffer_bytes: int = row("receive.buffer.bytes", "int", -1, "SO_RCVBUF; -1 leaves it to the system.", low=-1, high=INT32_MAX)
    send_buffer_bytes: int = row("send.buffer.bytes", "int", -1, "SO_SNDBUF; -1 leaves it to the system.", low=-1, high=INT32_MAX)
    tape: str | None = row("kohort.tape", "str", None, "File to which every frame is appended as a JSON line, without secrets (`kohort wire explain` reads it).", optional=True)

    # --- security
    security_protocol: str = row("security.protocol", "str", "PLAINTEXT", "How brokers are spoken to.", choices=("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"))
    ssl_ca_path: str | None = row("ssl.ca.location", "str", None, "PEM file of the authorities to trust; without it the system's.", optional=True)
    ssl_cert_path: str | None = row("ssl.certificate.location", "str", None, "PEM file of the client's certificate (mutual TLS).", optional=True)
    ssl_key_path: str | None = row("ssl.key.location", "str", None, "PEM file of the client's key.", optional=True)
    ssl_key_password: str | None = row("ssl.key.password", "str", None, "Opens the client's key.", optional=True)
    ssl_check_hostname: bool = row("kohort.ssl.check.hostname", "bool", True, "Whether the broker's certificate must name the host that was called.")
    ssl_context: Any = row("kohort.ssl.context", "any", None, "An ssl.SSLContext of your own; wins over the ssl_ settings.", optional=True)
    sasl_mechanism: str | None = row("sasl.mechanism", "str", None, "How to prove who we are.", choices=("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI"), optional=True)
    sasl_username: str | None = row("sasl.username", "sent", None, "For PLAIN and SCRAM.", optional=True)
    sasl_password: str | None = row("sasl.password", "sent", None, "For PLAIN and SCRAM; never logged.", optional=True)
    sasl_oauth_token: Any = row("kohort.sasl.oauth.token", "callable", None, "For OAUTHBEARER: called without arguments on a thread of its own; returns a token, (token, expires_at) or (token, expires_at, extensions), expires_at in seconds since 1970.", optional=True)
    sasl_oauth_token_endpoint_url: str | None = row("sasl.oauthbearer.token.endpoint.url", "str", None, "For OAUTHBEARER: the issuer that is asked for tokens with the client's credentials.", optional=True)
    sasl_oauth_allowed_urls: tuple[str, ...] = row("org.apache.kafka.sasl.oauthbearer.allowed.urls", "list", (), "The only token endpoints that the client's secret may be sent to.")
    sasl_oauth_client_id: str | None = row("sasl.oauthbearer.client.credentials.client.id", "str", None, "Who asks the issuer for tokens.", optional=True)
    sasl_oauth_client_secret: str | None = row("sasl.oauthbearer.client.credentials.client.secret", "str", None, "Proves it to the issuer; never logged.", optional=True)
    sasl_oauth_header_urlencode: bool = row("sasl.oauthbearer.header.urlencode", "bool", False, "Whether id and secret are URL-encoded first, as RFC 6749 wants it and not every issuer.")
    sasl_oauth_scope: str | None = row("sasl.oauthbearer.scope", "str", None, "What the token is asked for.", optional=True)
    sasl_oauth_extensions: tuple[str, ...] = row("sasl.oauthbearer.extensions", "list", (), "SASL extensions to show with the token (KIP-342), as name=value.")
    sasl_oauth_ca_path: str | None = row("https.ca.location", "str", None, "PEM file of the authorities to trust for the token endpoint; without it the system's.", optional=True)
    sasl_oauth_timeout_ms: int = row("kohort.sasl.oauth.timeout.ms", "int", 10_000, "How long a connection waits for a token.", low=1, high=INT32_MAX)
    sasl_kerberos_service_name: str = row("sasl.kerberos.service.name", "sent", "kafka", "For GSSAPI: brokers are SERVICE/HOST to the KDC, and this is the service.")
    sasl_kerberos_principal: str | None = row("sasl.kerberos.principal", "str", None, "For GSSAPI: who we are, if keytab or cache hold several.", optional=True)
    sasl_kerberos_keytab: str | None = row("sasl.kerberos.keytab", "str", None, "For GSSAPI: the file with our key; without it the tickets count that kinit has got.", optional=True)
    sasl_kerberos_ccache: str | None = row("kohort.sasl.kerberos.ccache", "str", None, "For GSSAPI: where tickets are, as KRB5CCNAME has it, which counts otherwise.", optional=True)
    # fmt: on

    @classmethod
    def of(cls, **settings: Any) -> "Config":
        """Check settings by our own names.

        Raises ConfigError: unknown name (with the nearest known one), wrong type, out of bounds, or two that disagree.
        """
        values = {}
        for name, value in settings.items():
            setting = SETTINGS.get(name)
            if setting is None:
                raise unknown(name, SETTINGS, "setting")
            values[name] = checked(setting, value)
        config = cls(**values)
        _agree(config)
        return config

    @classmethod
    def from_kafka(cls, properties: Mapping[str, Any]) -> "Config":
        """Check settings by Kafka's dotted names; values may be strings, as in a properties file."""
        return cls.of(**by_our_names(properties, BY_KAFKA_NAME))

    def for_member(self, jitter: float, member_id: str = "") -> MemberSettings:
        """The settings of the group's machine; `jitter` in [0, 1) and `member_id` are this member's own."""
        return MemberSettings(
            group_id=self.group or "",
            instance_id=self.group_instance_id,
            rack_id=self.rack,
            session_timeout_ms=self.session_timeout_ms,
            heartbeat_interval_ms=self.heartbeat_interval_ms,
            max_poll_interval_ms=self.max_poll_interval_ms,
            request_timeout_ms=self.request_timeout_ms,
            retry_backoff_ms=self.retry_backoff_ms,
            retry_backoff_ms_max=self.retry_backoff_max_ms,
            jitter=jitter,
            exclude_internal_topics=self.exclude_internal_topics,
            member_id=member_id,
            remote_assignor=self.remote_assignor,
        )


SETTINGS: Mapping[str, Setting] = Config.table
# Names by which other clients know the same things, and ours of them.
ALIASES: Mapping[str, str] = MappingProxyType(
    {
        "metadata.broker.list": "bootstrap",
        "fetch.wait.max.ms": "fetch_max_wait_ms",
        "fetch.message.max.bytes": "max_partition_fetch_bytes",
        "sasl.mechanisms": "sasl_mechanism",
        "sasl.oauthbearer.client.id": "sasl_oauth_client_id",
        "sasl.oauthbearer.client.secret": "sasl_oauth_client_secret",
    }
)
BY_KAFKA_NAME: Mapping[str, Setting] = MappingProxyType(
    {setting.kafka: setting for setting in SETTINGS.values()} | {name: SETTINGS[ours] for name, ours in ALIASES.items()}
)
"""The rows by Kafka's names, and by those that other clients have for the same things."""


def _agree(config: Config) -> None:
    if not config.bootstrap:
        raise ConfigError("bootstrap names no broker", hint='give one as "host:port"', setting="bootstrap")
    for address in config.bootstrap:
        split_address(address)
    if config.heartbeat_interval_ms >= config.session_timeout_ms:
        raise ConfigError(
            f"heartbeat_interval_ms ({config.heartbeat_interval_ms}) must be below "
            f"session_timeout_ms ({config.session_timeout_ms})",
            hint="a third of it is usual",
            setting="heartbeat_interval_ms",
        )
    if config.fetch_max_bytes > config.max_frame_bytes:
        raise ConfigError(
            f"fetch_max_bytes ({config.fetch_max_bytes}) must not exceed max_frame_bytes ({config.max_frame_bytes})",
            hint="an answer carries one batch more than fetch_max_bytes at most",
            setting="fetch_max_bytes",
        )
    if config.protocol == "consumer" and config.assignors != SETTINGS["assignors"].default:
        raise ConfigError(
            "assignors do nothing under protocol='consumer': the coordinator assigns",
            hint="name one of the coordinator's with remote_assignor, or stay with protocol='classic'",
            setting="assignors",
        )
    if config.remote_assignor is not None and config.protocol != "consumer":
        raise ConfigError(
            "remote_assignor needs protocol='consumer'", hint="name assignors instead", setting="remote_assignor"
        )
    if config.group_instance_id is not None and config.group is None:
        raise ConfigError("group_instance_id without a group", hint="name the group", setting="group_instance_id")
    if config.enable_auto_commit and config.group is None:
        raise ConfigError("enable_auto_commit without a group", hint="name the group", setting="enable_auto_commit")
    if config.security_protocol.startswith("SASL") and config.sasl_mechanism is None:
        raise ConfigError(f"{config.security_protocol} needs sasl_mechanism", setting="sasl_mechanism")
    if config.sasl_mechanism == "OAUTHBEARER":
        from kohort.network.auth import oauth_tokens  # which reads Config, and which nobody else needs

        oauth_tokens.check(config)
    elif config.sasl_mechanism == "GSSAPI":
        from kohort.network.auth import kerberos_tickets

        kerberos_tickets.check(config)
    elif config.sasl_mechanism and (config.sasl_username is None or config.sasl_password is None):
        raise ConfigError(f"{config.sasl_mechanism} needs sasl_username and sasl_password", setting="sasl_username")
