"""Parts of OpenTelemetry spans that consumers share: names, links with the spans of record headers, and times.

Needs the extra `kohort[opentelemetry]`.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from kohort.common import TopicPartition
from kohort.common.optional_libraries import needed
from kohort.fastpath import Record, RecordColumns
from kohort.network.network_client import Driver

with needed("spans", "'kohort[opentelemetry]'"):
    from opentelemetry.context import Context
    from opentelemetry.propagate import extract
    from opentelemetry.propagators.textmap import Getter
    from opentelemetry.trace import Link, get_current_span

MOST_LINKS: Final = 128  # of one span: what an SDK keeps by default

Attributes = dict[str, str | bool | int | float]
Carrier = Mapping[str, str]


def operation_of(common: Attributes, name: str, kind: str, partitions: set[TopicPartition]) -> Attributes:
    """The attributes of an operation on partitions. `kind`: the type of the operation."""
    found = {**common, "messaging.operation.name": name, "messaging.operation.type": kind}
    topics = {one.topic for one in partitions}
    if len(topics) == 1:
        found["messaging.destination.name"] = next(iter(topics))
    if len(partitions) == 1:
        found["messaging.destination.partition.id"] = str(next(iter(partitions)).partition)
    return found


def span_name(operation: str, partitions: set[TopicPartition]) -> str:
    """The operation, with the topic if there is one."""
    topics = {one.topic for one in partitions}
    return f"{operation} {next(iter(topics))}" if len(topics) == 1 else operation


def links_of(record: Record) -> list[Link]:
    """Link to the span named in a record's headers.

    The headers are `traceparent`, or those that the application's propagators read. For an application's own span
    around its processing:

        tracer.start_as_current_span("process payments", kind=SpanKind.CONSUMER, links=links_of(record))
    """
    carrier = {name.lower(): value.decode("latin-1") for name, value in record.headers if value is not None}
    if not carrier:
        return []
    context = get_current_span(extract(carrier, Context(), _HEADERS)).get_span_context()
    if not context.is_valid:
        return []
    attributes: Attributes = {
        "messaging.destination.name": record.topic,
        "messaging.destination.partition.id": str(record.partition),
        "messaging.kafka.offset": record.offset,
    }
    return [Link(context, attributes)]


def links_of_all(slices: Iterable[RecordColumns], most: int) -> list[Link]:
    """Links to the spans named in record headers, each span once, at most so many."""
    found: dict[tuple[int, int], Link] = {}
    for columns in slices:
        if columns.headers is None:
            continue
        for record in columns:
            if len(found) == most:
                return list(found.values())
            for link in links_of(record):
                found.setdefault((link.context.trace_id, link.context.span_id), link)
    return list(found.values())


def clock_of(driver: Driver[Any]) -> tuple[Callable[[float], int], float]:
    """A function from monotonic times to ns since 1970, and the current monotonic time.

    Earlier times are wrong if a clock was set since.
    """
    wall_ms, now = driver.wall_ms(), driver.now()
    return lambda moment: wall_ms * 1_000_000 - int((now - moment) * 1e9), now


class _Headers(Getter[Carrier]):
    def get(self, carrier: Carrier, key: str) -> list[str] | None:
        return [carrier[key.lower()]] if key.lower() in carrier else None

    def keys(self, carrier: Carrier) -> list[str]:
        return list(carrier)


_HEADERS: Final = _Headers()
