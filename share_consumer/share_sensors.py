"""Counters and samples of a share consumer; none is updated per record. `share_metrics.py` makes metrics of them.

All are written under the driver's lock.
"""

from kohort.network._samples import SampledWindow


class ShareSensors:
    """Samples of polls, ShareFetch responses and heartbeats."""

    def __init__(self) -> None:
        self.between_polls_ms = SampledWindow()
        self.idle_ratio = SampledWindow()
        self.fetch_ms = SampledWindow()
        self.fetch_bytes = SampledWindow()
        self.fetch_records = SampledWindow()
        self.throttle_ms = SampledWindow()
        self.heartbeat_ms = SampledWindow()
        self.heartbeat_at: float | None = None
        self.rebalances = 0
        self.redelivered = 0
        self.locks_lost = 0
        self.polled_at: float | None = None
        self._poll_ended_at: float | None = None

    def polled(self, now: float) -> None:
        """Record the start of a poll."""
        if self.polled_at is not None:
            self.between_polls_ms.add((now - self.polled_at) * 1000, now)
        self.polled_at = now

    def poll_ended(self, at: float) -> None:
        """Record the end of a poll, at a time (monotonic s) before the next call. It may be repeated."""
        since = self._poll_ended_at if self._poll_ended_at is not None else self.polled_at
        if since is not None and self.polled_at is not None and at > since:
            self.idle_ratio.add((at - self.polled_at) / (at - since), at)
            self._poll_ended_at = at

    def fetched(self, took_ms: float, throttle_ms: int, size: int, records: int, now: float) -> None:
        """Record a ShareFetch response with so many bytes of batches and acquired records."""
        self.fetch_ms.add(took_ms, now)
        self.throttle_ms.add(throttle_ms, now)
        if size:
            self.fetch_bytes.add(size, now)
            self.fetch_records.add(records, now)

    def heartbeat(self, sent_at: float, now: float) -> None:
        """Record the response to a heartbeat."""
        self.heartbeat_ms.add((now - sent_at) * 1000, now)
        self.heartbeat_at = sent_at
