"""Tables of metrics. Each field of a frozen dataclass is one: kind, unit, Java's group and name, description."""

from collections.abc import Iterator, Mapping
from dataclasses import field, fields
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

from kohort.common.named_tuple import NamedTuple
from kohort.network._samples import Counters, PollTimes, SampledWindow


class MetricKind(Enum):
    """A counter only grows while its client lives; a gauge is a current or recent value."""

    COUNTER = "counter"
    GAUGE = "gauge"


class MetricSpec(NamedTuple):
    """One row of a table.

    `unit`: ms, s, bytes, ratio, or "" for counts. `java`: (group, name) in Java's client, or None. `by_partition`: true
    if the value is a mapping of TopicPartition.
    """

    name: str
    kind: MetricKind
    unit: str
    java: tuple[str, str] | None
    about: str
    by_partition: bool = False


def figure(kind: MetricKind, unit: str, java: str | None, about: str, *, by_partition: bool = False) -> Any:
    """A field that is a row of the table; `java` is written "group/name", without "-metrics"."""
    place = None if java is None else tuple(java.split("/"))
    return field(metadata={"kind": kind, "unit": unit, "java": place, "about": about, "by_partition": by_partition})


class ClientMetrics(Mapping[str, Any]):
    """A client's metrics at one time: attributes, and a mapping by the same names. `figures` is the table.

    `client`: the kind of client, as in names of metrics. `labels`: the attributes that identify a client, and their
    names in OpenTelemetry. `closed`: true once close was called.
    """

    __slots__ = ()

    figures: ClassVar[Mapping[str, MetricSpec]]
    client: ClassVar[str]
    labels: ClassVar[Mapping[str, str]]
    if TYPE_CHECKING:

        @property
        def closed(self) -> bool: ...

    def __getitem__(self, name: str) -> Any:
        if name not in self.figures:
            raise KeyError(name)
        return getattr(self, name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.figures)

    def __len__(self) -> int:
        return len(self.figures)


def figures_of(kind: type[Any]) -> Mapping[str, MetricSpec]:
    """The rows of a table by name."""
    rows = (MetricSpec(name=one.name, **one.metadata) for one in fields(kind) if one.metadata)
    return MappingProxyType({row.name: row for row in rows})


def spread(name: str, window: SampledWindow, now: float) -> dict[str, Any]:
    """The average and the maximum of a window. `name` has {} in the place of "avg" and "max"."""
    return {name.format("avg"): window.mean(now), name.format("max"): window.most(now)}


def ago(at: float | None, now: float) -> float | None:
    """The time (s) since `at`; None without one."""
    return None if at is None else max(now - at, 0.0)


def poll_values(polls: PollTimes, now: float) -> dict[str, Any]:
    """The values that every consumer has of its polls."""
    return {
        "last_poll_ago_s": ago(polls.began_at if polls.begun else None, now),
        **spread("time_between_poll_{}_ms", polls.between_ms, now),
        "poll_idle_ratio_avg": polls.idle_ratio.mean(now),
    }


def connection_values(counters: Counters) -> dict[str, Any]:
    """The values that every client has of its connections and requests."""
    return {
        "connection_count": counters.connections_opened - counters.connections_ended,
        "connection_creation_total": counters.connections_opened,
        "connection_close_total": counters.connections_ended,
        "request_total": counters.requests,
        "request_failures_total": counters.request_failures,
        "throttled_ms_total": counters.throttled_ms,
    }
