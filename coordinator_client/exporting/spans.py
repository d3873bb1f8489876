"""Consumer operations as OpenTelemetry spans. Needs the extra `kohort[opentelemetry]`, and an SDK to export them.

    from opentelemetry import trace
    from kohort.coordinator_client.exporting.spans import ConsumerSpans

    ConsumerSpans(trace.get_tracer("my.service"), consumer)

Spans, attributes and kinds are named by the semantic conventions for messaging. Names without a convention start with
`kohort.`. No spans are created without a `ConsumerSpans`.
"""

from collections.abc import Iterable

from kohort.common import KohortError, TopicPartition
from kohort.common.optional_libraries import needed
from kohort.coordinator_client.consumer_base import ConsumerBase
from kohort.coordinator_client.group.states import RebalanceRecord
from kohort.coordinator_client.offsets.fenced_commit_queue import LedgerEntry
from kohort.coordinator_client.sensors import FAILURES
from kohort.fastpath import RecordColumns
from kohort.network.message_spans import (
    MOST_LINKS,
    Attributes,
    clock_of,
    links_of,
    links_of_all,
    operation_of,
    span_name,
)

with needed("spans", "'kohort[opentelemetry]'"):
    from opentelemetry.context import Context
    from opentelemetry.trace import SpanKind, Status, StatusCode, Tracer

__all__ = ["MOST_LINKS", "ConsumerSpans", "links_of"]


class ConsumerSpans:
    """Spans of a consumer's polls, commits and rebalances.

    Only polls that return records or fail have a span. `poll` spans (operation type "receive") are linked with the
    spans named in record headers, at most `most_links`. They are not children of these spans. `commit` spans are of
    type "settle". Both are children of the span that is current at the call. A rebalance is a separate trace, created
    at the end of the next call; its phases are events.
    """

    def __init__(self, tracer: Tracer, consumer: ConsumerBase, *, most_links: int = MOST_LINKS) -> None:
        self._tracer = tracer
        self._commit_log, self._timeline = consumer.commit_log, consumer.timeline
        self._driver = consumer._session.driver
        self._most_links = most_links
        self._began = 0.0
        self._brought = False
        config = consumer._config
        self._common: Attributes = {"messaging.system": "kafka", "messaging.client.id": config.client_id}
        if config.group is not None:
            self._common["messaging.consumer.group.name"] = config.group
        self._group = config.group or ""
        # Earlier commits and rebalances get no spans.
        self._last_commit = next(iter(reversed(consumer.commit_log())), None)
        self._reported_until = max((one.started_at for one in self._ended()), default=float("-inf"))
        consumer._session.observer = self

    # --- called by the session

    def poll_began(self, now: float) -> None:
        """Record the start of a poll (`now`: monotonic s)."""
        self._began, self._brought = now, False

    def poll_brought(self, slices: list[RecordColumns]) -> None:
        """Create the span of a poll that returns records."""
        if any(map(len, slices)):
            self._brought = True
            self._poll_span({TopicPartition(one.topic, one.partition) for one in slices if len(one)}, slices, None)

    def poll_failed(self, error: KohortError) -> None:
        """Create the span of a poll that raises `error`, unless it has one already."""
        match error.place:
            case {"topic": str(topic), "partition": int(partition)}:
                named = {TopicPartition(topic, partition)}
            case _:
                named = set()
        if not self._brought:
            self._poll_span(named, (), error)

    def look(self) -> None:
        """Create spans of commits and rebalances that have ended since the last call."""
        ledger = self._commit_log()
        if ledger and ledger[-1] is not self._last_commit:
            known = [place for place, entry in enumerate(ledger) if entry is self._last_commit]
            self._last_commit = ledger[-1]
            for entry in ledger[known[0] + 1 if known else 0 :]:
                self._commit_span(entry)
        for rebalance in self._ended():
            if rebalance.started_at > self._reported_until:
                self._reported_until = rebalance.started_at
                self._rebalance_span(rebalance)

    # --- spans

    def _poll_span(
        self, partitions: set[TopicPartition], slices: Iterable[RecordColumns], error: KohortError | None
    ) -> None:
        count = sum(map(len, slices))
        attributes = operation_of(self._common, "poll", "receive", partitions) | {
            "messaging.batch.message_count": count
        }
        if count == 1:
            attributes["messaging.kafka.offset"] = next(one[0].offset for one in slices if len(one))
        if error is not None:
            attributes["error.type"] = type(error).__name__
        wall, now = clock_of(self._driver)
        span = self._tracer.start_span(
            span_name("poll", partitions),
            None,
            SpanKind.CLIENT,
            attributes,
            links_of_all(slices, self._most_links),
            wall(self._began),
        )
        if error is not None:
            span.set_status(Status(StatusCode.ERROR, error.message))
        span.end(wall(now))

    def _commit_span(self, entry: LedgerEntry) -> None:
        partitions = set(entry.offsets) or set(entry.refused)
        attributes = operation_of(self._common, "commit", "settle", partitions)
        attributes["kohort.generation"] = entry.generation
        if len(entry.offsets) == 1:
            (found,) = entry.offsets.values()
            attributes["messaging.kafka.offset"] = found.offset
        if entry.error:
            attributes["error.type"] = entry.error
        began = entry.at if entry.sent_at is None else entry.sent_at
        wall, _now = clock_of(self._driver)
        span = self._tracer.start_span(
            span_name("commit", partitions), None, SpanKind.CLIENT, attributes, start_time=wall(began)
        )
        if entry.outcome:
            span.set_status(Status(StatusCode.ERROR, entry.outcome))
        span.end(wall(entry.at))

    def _rebalance_span(self, rebalance: RebalanceRecord) -> None:
        attributes: Attributes = {
            **self._common,
            "kohort.rebalance.cause": str(rebalance.cause),
            "kohort.rebalance.outcome": rebalance.outcome.name.lower() if rebalance.outcome is not None else "",
            "kohort.rebalance.leader": rebalance.leader,
            "kohort.rebalance.attempts": rebalance.attempts,
            "kohort.generation": rebalance.generation,
        }
        if rebalance.protocol is not None:
            attributes["kohort.rebalance.assignor"] = rebalance.protocol
        for name in ("revoked", "added", "lost", "kept"):
            attributes[f"kohort.rebalance.{name}"] = len(getattr(rebalance, name))
        bad = rebalance.outcome in FAILURES
        if bad and rebalance.outcome is not None:
            attributes["error.type"] = rebalance.outcome.name.lower()
        wall, _now = clock_of(self._driver)
        ended_at = rebalance.started_at if rebalance.ended_at is None else rebalance.ended_at
        span = self._tracer.start_span(
            f"rebalance {self._group}",
            Context(),
            SpanKind.INTERNAL,
            attributes,
            start_time=wall(rebalance.started_at),
        )
        for phase in rebalance.phases:
            lasted = {"kohort.phase.duration_s": phase.lasted_s(ended_at)}
            span.add_event(phase.state.name.lower(), lasted, wall(phase.started_at))
        for trouble in rebalance.troubles:
            span.add_event("trouble", {"exception.message": trouble}, wall(ended_at))
        if bad:
            span.set_status(Status(StatusCode.ERROR, "; ".join(rebalance.troubles[-1:]) or None))
        span.end(wall(ended_at))

    # --- inner

    def _ended(self) -> list[RebalanceRecord]:
        return [one for one in self._timeline() if one.ended_at is not None]
