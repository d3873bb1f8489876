# ruff: noqa: E501 -- one setting a line reads as the table it is
"""The consumer's settings, once each: kohort's name (units last), Kafka's name, type, default, bounds and a description.

`SETTINGS` is the table. `ConsumerConfig` is one checked set of values. Docs, `Consumer(**settings)` and
`Consumer.from_config({...})` all read the same fields. All clients share those of connections and security.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final, Literal, Self

from kohort.coordinator_client.group.member_timers import MemberSettings
from kohort.coordinator_client.offset_reset import ResetPolicy
from kohort.network.client_config import (
    ALLOW_AUTO_CREATE_TOPICS,
    BOOTSTRAP_TIMEOUT_MS,
    DEFAULT_API_TIMEOUT_MS,
    ENABLE_METRICS_PUSH,
    ClientConfig,
    check_fetch_size,
)
from kohort.network.errors import ConfigError
from kohort.network.settings_table import INT32_MAX, MIB, Setting, none_if_empty, row, wrong_type

# The client-side assignors by Kafka's class names, so that a Java properties file can be used as it is.
ASSIGNORS_BY_KAFKA_NAME: Final = MappingProxyType(
    {
        "org.apache.kafka.clients.consumer.RangeAssignor": "range",
        "org.apache.kafka.clients.consumer.RoundRobinAssignor": "roundrobin",
        "org.apache.kafka.clients.consumer.StickyAssignor": "sticky",
        "org.apache.kafka.clients.consumer.CooperativeStickyAssignor": "cooperative-sticky",
    }
)


def _check_assignors(setting: Setting, value: Any) -> tuple[Any, ...]:
    items = tuple(value.split(",")) if isinstance(value, str) else value
    if not isinstance(items, Iterable):
        raise wrong_type(setting, value, "names or assignors")
    items = tuple(_assignor_name(item) if isinstance(item, str) else item for item in items)
    if not items:
        raise ConfigError("assignors must name at least one", setting=setting.name)
    if strange := [item for item in items if not isinstance(item, str) and not hasattr(item, "assign")]:
        raise ConfigError(
            f"not an assignor: {strange[0]!r}", hint="name one, or pass an instance with assign()", setting=setting.name
        )
    return items


def _assignor_name(text: str) -> str:
    return ASSIGNORS_BY_KAFKA_NAME.get(text.strip(), text.strip())


def _check_reset(setting: Setting, value: Any) -> str:
    if not isinstance(value, str):
        raise wrong_type(setting, value)
    ResetPolicy.of(value)
    return value


class ConsumerConfig(ClientConfig):
    """One checked set of settings. Make it with `ConsumerConfig.of(**settings)` or `ConsumerConfig.from_kafka({...})`."""

    # fmt: off
    # --- identity
    group: str | None = row("group.id", "sent", None, "The group to join. Without a group only assign() is possible.", optional=True)
    group_instance_id: str | None = row("group.instance.id", "sent", None, "Makes the member static: it keeps its partitions if it returns within the session timeout (KIP-345).", optional=True)
    enable_metrics_push: bool = ENABLE_METRICS_PUSH
    rack: str | None = row("client.rack", "sent", None, "The client's rack. Records are read from a replica there if the broker offers one (KIP-392).", optional=True, read=none_if_empty)

    # --- membership
    assignors: tuple[Any, ...] = row("partition.assignment.strategy", "list", ("range",), "Assignors in order of preference, by name or as instances. The group uses one that all members list.", check=_check_assignors)
    protocol: str = row("group.protocol", "str", "classic", "classic: a member computes the assignment. consumer: the coordinator does (KIP-848).", choices=("classic", "consumer"), read=str.lower)
    remote_assignor: str | None = row("group.remote.assignor", "sent", None, "The requested assignor of the coordinator, under protocol consumer. Default: the group's.", optional=True)
    session_timeout_ms: int = row("session.timeout.ms", "int", 45_000, "Time without a heartbeat after which the coordinator removes the member.", low=1, high=INT32_MAX)
    heartbeat_interval_ms: int = row("heartbeat.interval.ms", "int", 3_000, "Time between heartbeats. Use at most a third of the session timeout. A third of max_poll_interval_ms is used if that is less.", low=1, high=INT32_MAX)
    max_poll_interval_ms: int = row("max.poll.interval.ms", "int", 300_000, "Maximum time between polls, after which the member leaves the group. Also the rebalance timeout.", low=1, high=INT32_MAX)
    exclude_internal_topics: bool = row("exclude.internal.topics", "bool", True, "Exclude Kafka's internal topics from patterns.")
    allow_auto_create_topics: bool = ALLOW_AUTO_CREATE_TOPICS

    # --- offsets
    auto_offset_reset: str = row("auto.offset.reset", "str", "latest", "The start without a valid committed offset, or if the leader does not have its epoch: earliest, latest, none (an error), nearest, or by_duration:PT1H (KIP-1106). nearest is latest for a position above the log's end, otherwise earliest. After a truncation reading continues at the end of the common log, and none raises Truncation.", check=_check_reset)
    enable_auto_commit: bool = row("enable.auto.commit", "bool", False, "Commit the records of earlier polls at intervals, before a rebalance and on close. An unchanged offset is stored again every 10 minutes.")
    auto_commit_interval_ms: int = row("auto.commit.interval.ms", "int", 5_000, "Time between automatic commits.", low=1, high=INT32_MAX)
    isolation_level: str = row("isolation.level", "str", "read_uncommitted", "read_committed hides records of open and aborted transactions.", choices=("read_uncommitted", "read_committed"))

    # --- fetching
    fetch_min_bytes: int = row("fetch.min.bytes", "int", 1, "Minimum bytes of a Fetch response, for which a broker waits.", low=0, high=INT32_MAX)
    fetch_max_wait_ms: int = row("fetch.max.wait.ms", "int", 500, "Maximum time that a broker waits for fetch_min_bytes.", low=0, high=INT32_MAX, aliases=("fetch.wait.max.ms",))
    fetch_max_bytes: int = row("fetch.max.bytes", "int", 8 * MIB, "Maximum bytes of records in a Fetch response. A single larger batch is still returned. If many brokers are read, half of max_buffered_bytes is shared among them, at least 1 MiB each.", low=1, high=INT32_MAX)
    max_partition_fetch_bytes: int = row("max.partition.fetch.bytes", "int", 8 * MIB, "Maximum bytes of one partition in a Fetch response. A single larger batch is still returned.", low=1, high=INT32_MAX, aliases=("fetch.message.max.bytes",))
    max_buffered_bytes: int = row("kohort.max.buffered.bytes", "int", 64 * MIB, "Maximum fetched bytes that are not polled yet. No Fetch is sent while there are more.", low=1)
    max_poll_records: int = row("max.poll.records", "int", 0, "Maximum records of one poll. 0 means one fetched slice of each partition.", low=0)
    on_corrupt: Literal["raise", "skip_batch"] = row("kohort.on.corrupt", "str", "raise", "Handling of a corrupt batch. raise: raise CorruptRecord and stay before the batch. skip_batch: log it and list it in `columns.corrupt`.", choices=("raise", "skip_batch"))
    max_decompressed_bytes: int = row("kohort.max.decompressed.bytes", "int", 64 * MIB, "Maximum decompressed bytes of a batch. A larger batch is an error.", low=1, high=INT32_MAX)

    # --- calls
    bootstrap_timeout_ms: int = BOOTSTRAP_TIMEOUT_MS
    default_api_timeout_ms: int = DEFAULT_API_TIMEOUT_MS
    # fmt: on

    @classmethod
    def of(cls, **settings: Any) -> Self:
        config = super().of(**settings)
        if config.protocol == "consumer" and "assignors" in settings:  # also the default, if it is named
            raise ConfigError(
                "assignors do nothing under protocol='consumer': the coordinator assigns",
                hint="name one of the coordinator's with remote_assignor, or stay with protocol='classic'",
                setting="assignors",
            )
        return config

    def check(self) -> None:
        """Raises ConfigError if two settings disagree."""
        super().check()
        if self.heartbeat_interval_ms >= self.session_timeout_ms:
            raise ConfigError(
                f"heartbeat_interval_ms ({self.heartbeat_interval_ms}) must be below "
                f"session_timeout_ms ({self.session_timeout_ms})",
                hint="set it to a third of session_timeout_ms",
                setting="heartbeat_interval_ms",
            )
        check_fetch_size(self.fetch_max_bytes, self.max_frame_bytes)
        if self.remote_assignor is not None and self.protocol != "consumer":
            raise ConfigError(
                "remote_assignor needs protocol='consumer'", hint="name assignors instead", setting="remote_assignor"
            )
        if self.group_instance_id is not None and self.group is None:
            raise ConfigError("group_instance_id without a group", hint="name the group", setting="group_instance_id")
        if self.enable_auto_commit and self.group is None:
            raise ConfigError("enable_auto_commit without a group", hint="name the group", setting="enable_auto_commit")

    def for_member(self, jitter: float, member_id: str = "") -> MemberSettings:
        """Return the settings of the group's machine. `jitter` in [0, 1) and `member_id` are this member's own."""
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


SETTINGS: Mapping[str, Setting] = ConsumerConfig.table
