"""Operations of a share consumer as OpenTelemetry spans. Needs the extra `kohort[opentelemetry]`, and an SDK to export
them.

    from opentelemetry import trace
    from kohort.share_consumer.spans import ShareConsumerSpans

    ShareConsumerSpans(trace.get_tracer("my.service"), consumer)

Spans, attributes and kinds are named by the semantic conventions for messaging. Names without a convention start with
`kohort.`. No spans are created without a `ShareConsumerSpans`.
"""

from collections.abc import Sequence

from kohort.common import KohortError
from kohort.common.optional_libraries import needed
from kohort.network.message_spans import (
    MOST_LINKS,
    Attributes,
    clock_of,
    links_of_all,
    operation_of,
    span_name,
)
from kohort.share_consumer.consumer_base import ShareConsumerBase
from kohort.share_consumer.share_records import AcknowledgeOutcome, ShareRecords

with needed("spans", "'kohort[opentelemetry]'"):
    from opentelemetry.trace import SpanKind, Status, StatusCode, Tracer


class ShareConsumerSpans:
    """Spans of a share consumer's polls and commits.

    Only polls that return records or fail have a span. `poll` spans (operation type "receive") are linked with the
    spans named in record headers, at most `most_links`. They have the highest delivery count of their records. `commit`
    spans are of type "settle", with the number of offsets whose acknowledgement failed. Both are children of the span
    that is current at the call.
    """

    def __init__(self, tracer: Tracer, consumer: ShareConsumerBase, *, most_links: int = MOST_LINKS) -> None:
        self._tracer = tracer
        self._driver = consumer._driver
        self._most_links = most_links
        self._began = 0.0
        config = consumer.config
        self._common: Attributes = {
            "messaging.system": "kafka",
            "messaging.client.id": config.client_id,
            "messaging.consumer.group.name": config.group,
        }
        consumer._observer = self

    # --- called by the consumer

    def began(self, now: float) -> None:
        """Record the start of a poll or a commit (`now`: monotonic s)."""
        self._began = now

    def brought(self, batches: Sequence[ShareRecords]) -> None:
        """Create the span of a poll that returns records."""
        if batches:
            more: Attributes = {
                "messaging.batch.message_count": sum(map(len, batches)),
                "kohort.delivery_count": max(one.delivery_count for one in batches),
            }
            self._span("poll", more, None, batches)

    def committed(self, failed: Sequence[AcknowledgeOutcome]) -> None:
        """Create the span of a commit."""
        count = sum(one.last_offset - one.first_offset + 1 for one in failed)
        self._span("commit", {"kohort.failed_acknowledgements": count}, failed[0].error if failed else None)

    def failed(self, operation: str, error: KohortError) -> None:
        """Create the span of a poll or a commit that raises `error`."""
        self._span(operation, {}, error)

    def _span(
        self, operation: str, more: Attributes, error: KohortError | None, batches: Sequence[ShareRecords] = ()
    ) -> None:
        partitions = {one.topic_partition for one in batches}
        kind = "receive" if operation == "poll" else "settle"
        attributes = operation_of(self._common, operation, kind, partitions) | more
        if error is not None:
            attributes["error.type"] = type(error).__name__
        wall, now = clock_of(self._driver)
        links = links_of_all((one.columns for one in batches), self._most_links)
        name = span_name(operation, partitions)
        span = self._tracer.start_span(name, None, SpanKind.CLIENT, attributes, links, wall(self._began))
        if error is not None:
            span.set_status(Status(StatusCode.ERROR, error.message))
        span.end(wall(now))
