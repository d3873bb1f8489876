# ruff: noqa: E501 -- one setting a line keeps the table readable
"""The settings of a share consumer. Those of connections and security are every client's (`network/client_config.py`)."""

from collections.abc import Mapping
from typing import Any, Self

from kohort.network.client_config import BOOTSTRAP_TIMEOUT_MS, DEFAULT_API_TIMEOUT_MS, ClientConfig, check_fetch_size
from kohort.network.errors import ConfigError
from kohort.network.settings_table import INT32_MAX, MIB, none_if_empty, row

# Settings of a consumer that a share group has in its own place, if at all. Java's client refuses them too.
_OF_THE_GROUP = {
    "auto.offset.reset": "set share.auto.offset.reset on the group",
    "isolation.level": "set share.isolation.level on the group",
    "session.timeout.ms": "set share.session.timeout.ms on the group",
    "heartbeat.interval.ms": "set share.heartbeat.interval.ms on the group",
    "enable.auto.commit": "use acknowledgement_mode",
    "group.instance.id": "leave it out: a share group has no static members",
    "group.protocol": "leave it out: a share group has one protocol",
    "group.remote.assignor": "leave it out: the coordinator chooses the assignor",
    "partition.assignment.strategy": "leave it out: the coordinator assigns",
    "interceptor.classes": "leave it out",
}


class ShareConsumerConfig(ClientConfig):
    """A checked set of settings. Make it with `ShareConsumerConfig.of(**settings)` or `ShareConsumerConfig.from_kafka({...})`.

    Both raise ConfigError for an unknown name, a wrong type, a value out of bounds, and settings that contradict each
    other.
    """

    # fmt: off
    group: str = row("group.id", "sent", "", "The share group to join.")
    rack: str | None = row("client.rack", "sent", None, "The client's rack, which the coordinator may use to assign partitions.", optional=True, read=none_if_empty)
    acknowledgement_mode: str = row("share.acknowledgement.mode", "str", "implicit", "implicit: the next poll or commit accepts the records that were not acknowledged. explicit: poll refuses while such records exist.", choices=("implicit", "explicit"), read=str.lower)
    acquire_mode: str = row("share.acquire.mode", "str", "batch_optimized", "batch_optimized: acquire up to the end of a batch. record_limit: acquire at most max_poll_records, from one broker at a time (KIP-1206).", choices=("batch_optimized", "record_limit"), read=str.lower)
    max_poll_records: int = row("max.poll.records", "int", 500, "Maximum records of a ShareFetch response. batch_optimized exceeds it up to the end of a batch.", low=1, high=INT32_MAX)
    max_poll_interval_ms: int = row("max.poll.interval.ms", "int", 300_000, "Maximum time between polls, after which the member leaves the group.", low=1, high=INT32_MAX)
    fetch_min_bytes: int = row("fetch.min.bytes", "int", 1, "Minimum bytes of a ShareFetch response, for which a broker waits.", low=0, high=INT32_MAX)
    fetch_max_wait_ms: int = row("fetch.max.wait.ms", "int", 500, "Maximum time that a broker waits for fetch_min_bytes.", low=0, high=INT32_MAX, aliases=("fetch.wait.max.ms",))
    fetch_max_bytes: int = row("fetch.max.bytes", "int", 8 * MIB, "Maximum bytes of records in a ShareFetch response.", low=1, high=INT32_MAX)
    max_decompressed_bytes: int = row("kohort.max.decompressed.bytes", "int", 64 * MIB, "Maximum decompressed bytes of a batch. A larger batch is an error.", low=1, high=INT32_MAX)
    bootstrap_timeout_ms: int = BOOTSTRAP_TIMEOUT_MS
    default_api_timeout_ms: int = DEFAULT_API_TIMEOUT_MS
    # fmt: on

    @classmethod
    def from_kafka(cls, properties: Mapping[str, Any]) -> Self:
        """Check settings by Kafka's dotted names; values may be strings.

        Raises ConfigError for settings that belong to the share group, with the place where they are set.
        """
        for name, hint in _OF_THE_GROUP.items():
            if name in properties:
                raise ConfigError(f"{name} is no setting of a share consumer", hint=hint, setting=name)
        return super().from_kafka(properties)

    def check(self) -> None:
        """Raises ConfigError if two settings disagree, or the group is missing."""
        super().check()
        if not self.group:
            raise ConfigError("a share consumer needs a group", hint="name the group", setting="group")
        check_fetch_size(self.fetch_max_bytes, self.max_frame_bytes)
