"""Counters and samples of a share consumer; none is updated per record. `share_metrics.py` makes metrics of them.

All are written under the driver's lock.
"""

from kohort.network._samples import PollTimes, SampledWindow


class ShareSensors:
    """Samples of polls, ShareFetch responses and heartbeats."""

    def __init__(self) -> None:
        self.polls = PollTimes()
        self.fetch_ms = SampledWindow()
        self.fetch_bytes = SampledWindow()
        self.fetch_records = SampledWindow()
        self.throttle_ms = SampledWindow()
        self.heartbeat_ms = SampledWindow()
        self.heartbeat_at: float | None = None
        self.rebalances = 0
        self.redelivered = 0
        self.locks_lost = 0

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
