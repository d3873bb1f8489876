"""Counters and samples of a running producer; none of them is updated per record.

`producer_metrics.py` makes the metrics of them. All are written under the driver's lock.
"""

from kohort.network._samples import SampledWindow
from kohort.producer.producer_batch import ProducerBatch


class ProducerSensors:
    """Samples of batches and requests, and counts of records."""

    def __init__(self) -> None:
        self.queue_ms = SampledWindow()
        self.batch_bytes = SampledWindow()
        self.compression = SampledWindow()
        self.request_records = SampledWindow()
        self.request_ms = SampledWindow()
        self.throttle_ms = SampledWindow()
        self.sent_records = self.retried_records = self.failed_records = self.splits = 0

    def sent(self, batch: ProducerBatch, now: float) -> None:
        """Record that a batch is sent. What is sent again is counted as a record only."""
        self.sent_records += batch.count
        if batch.unsure or batch.body is None:
            return
        size = len(batch.body)
        self.queue_ms.add((now - batch.created_at) * 1000, now)
        self.batch_bytes.add(size, now)
        if batch.size:  # the parts of a split batch have none
            self.compression.add(size / batch.size, now)
