"""Sent records as OpenTelemetry spans. Needs the extra `kohort[opentelemetry]`, and an SDK to export them.

    from opentelemetry import trace
    from kohort.producer.spans import ProducerSpans

    ProducerSpans(trace.get_tracer("my.service"), producer)

Spans, attributes and kinds are named by the semantic conventions for messaging. No spans are created without a
`ProducerSpans`.
"""

from collections import deque
from typing import Any

from kohort.common import KohortError
from kohort.common.optional_libraries import needed
from kohort.network._guard import Door
from kohort.producer._open_batch import Delivery
from kohort.producer.producer_base import ProducerBase
from kohort.producer.producer_batch import Headers
from kohort.producer.record_arguments import header_pairs

with needed("spans", "'kohort[opentelemetry]'"):
    from opentelemetry.propagate import inject
    from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer, set_span_in_context

Attributes = dict[str, str | bool | int | float]


class ProducerSpans:
    """A span for each record of `send`, a child of the span that is current at the call.

    The record's headers get the context of its span (`traceparent`, or what the application's propagators write), to
    which the spans of consumers link. A span ends when a later call (`send`, `poll`, `flush`, `close`) sees the outcome
    of its record. A span of an AsyncProducer ends when the loop sees it.
    """

    def __init__(self, tracer: Tracer, producer: ProducerBase) -> None:
        self._tracer = tracer
        config = producer._driver.core.config
        self._common: Attributes = {
            "messaging.system": "kafka",
            "messaging.client.id": config.client_id,
            "messaging.operation.name": "send",
            "messaging.operation.type": "send",
        }
        self._unsettled: deque[tuple[Delivery, Span]] = deque()
        self._door = Door(_EndedElsewhere)  # which an interrupt cannot leave locked
        producer._watch(self)

    # --- called by the producer

    def began(self, topic: str, value: bytes | None, headers: Headers | None) -> tuple[Span, Headers]:
        """Start the span of a record. Returns it, and the record's headers with its context."""
        attributes = self._common | {"messaging.destination.name": topic}
        if value is None:
            attributes["messaging.kafka.message.tombstone"] = True
        span = self._tracer.start_span(f"send {topic}", None, SpanKind.PRODUCER, attributes)
        carrier: dict[str, str] = {}
        try:
            inject(carrier, set_span_in_context(span))
            ours: dict[Any, bytes | None] = {name.encode(): text.encode() for name, text in carrier.items()}
            given = header_pairs(() if headers is None else headers, topic)
        except BaseException as error:
            self.failed(span, error)
            raise
        return span, [*(pair for pair in given if pair[0] not in ours), *ours.items()]

    def failed(self, span: Span, error: BaseException) -> None:
        """End the span of a record that is not sent."""
        _fail(span, error)
        span.end()

    def sent(self, span: Span, delivery: Delivery) -> None:
        """Keep the span of a record until its outcome is known."""
        self._unsettled.append((delivery, span))
        self.look(most=1)

    def look(self, most: int | None = None) -> None:
        """End the spans whose records are settled. `most`: the number of unsettled records that end the look."""
        try:
            with self._door.visit():
                if self._door.depth == 1:  # otherwise a signal handler has interrupted another look
                    self._look(most)
        except _EndedElsewhere:
            return

    def _look(self, most: int | None) -> None:
        """As `look`. An interrupt loses no span, as each is in the queue until it has ended."""
        unsettled, waiting = self._unsettled, 0
        for _ in range(len(unsettled)):
            delivery, span = unsettled[0]
            if delivery.done():
                _end(delivery, span)
                unsettled.popleft()
                continue
            unsettled.rotate(-1)
            waiting += 1
            if waiting == most:
                break
        unsettled.rotate(waiting)


class _EndedElsewhere(Exception):
    """Another thread ends spans."""


def _end(delivery: Delivery, span: Span) -> None:
    batch, index = delivery.batch.place(delivery.index)
    span.set_attribute("messaging.destination.partition.id", str(batch.partition.partition))
    if batch.error is not None:
        _fail(span, batch.error)
    elif batch.base_offset >= 0:
        span.set_attribute("messaging.kafka.offset", batch.base_offset + index)
    span.end()


def _fail(span: Span, error: BaseException) -> None:
    span.set_attribute("error.type", type(error).__name__)
    span.set_status(Status(StatusCode.ERROR, error.message if isinstance(error, KohortError) else str(error)))
