"""Tests of rebalance hooks without a broker: run them with `pytest examples/test_hooks.py`.

`Totals` is the code under test. It sums payments by partition, and returns the offsets to commit when partitions are
revoked. The broker is in memory, and the tests cause its rebalances.
"""

import time

from kohort import Consumer, Lost, RebalanceHooks, Revoked, TopicPartition
from kohort.protocol.apis.heartbeat import HeartbeatResponse
from kohort.testing import FakeBroker
from kohort.testing.fake_broker import Answer, Close

REBALANCE_IN_PROGRESS, UNKNOWN_MEMBER_ID = 27, 25


class Totals(RebalanceHooks):
    """Sums by partition. `done` has the offsets that may be committed."""

    def __init__(self) -> None:
        self.sums: dict[TopicPartition, int] = {}
        self.done: dict[TopicPartition, int] = {}

    def take(self, consumer: Consumer) -> None:
        """Add the payments of one poll."""
        for columns in consumer.poll(0.2):
            for record in columns:
                place = TopicPartition(record.topic, record.partition)
                self.sums[place] = self.sums.get(place, 0) + int(record.value or b"0")
            self.done |= columns.next_offsets

    def on_revoked(self, event: Revoked) -> dict[TopicPartition, int]:
        """Commit the summed offsets and drop the sums. The next owner reads on from there."""
        return {place: self.done.pop(place) for place in event.partitions if self.sums.pop(place, None) is not None}

    def on_lost(self, event: Lost) -> None:
        """Drop the sums without a commit, because another member may own the partitions already."""
        for place in event.partitions:
            self.sums.pop(place, None)
            self.done.pop(place, None)


def _consumer(broker: FakeBroker) -> Consumer:
    return Consumer(
        broker.bootstrap,
        group="billing",
        auto_offset_reset="earliest",
        heartbeat_interval_ms=100,
        session_timeout_ms=1500,
        retry_backoff_ms=10,
        reconnect_backoff_ms=10,
    )


def _until(totals: Totals, consumer: Consumer, expected: int) -> None:
    deadline = time.monotonic() + 15
    while sum(totals.sums.values()) != expected:
        assert time.monotonic() < deadline, totals.sums
        totals.take(consumer)


def test_what_the_hook_answers_is_committed_before_the_partitions_go() -> None:
    totals = Totals()
    with FakeBroker(topics={"payments": 1}) as broker, _consumer(broker) as consumer:
        broker.produce("payments", 0, [(None, b"10"), (None, b"5")])
        consumer.subscribe(["payments"], hooks=totals)
        _until(totals, consumer, 15)
        reported = HeartbeatResponse(error_code=REBALANCE_IN_PROGRESS)
        broker.control("Heartbeat", lambda call: Answer(reported), times=1)
        generation = broker.group("billing").generation
        while broker.group("billing").generation == generation:
            totals.take(consumer)
        assert broker.group("billing").offsets[TopicPartition("payments", 0)].offset == 2


def test_lost_partitions_are_not_committed() -> None:
    totals = Totals()
    with FakeBroker(topics={"payments": 1}) as broker, _consumer(broker) as consumer:
        broker.produce("payments", 0, [(None, b"10")])
        consumer.subscribe(["payments"], hooks=totals)
        _until(totals, consumer, 10)
        gone = HeartbeatResponse(error_code=UNKNOWN_MEMBER_ID)
        broker.control("Heartbeat", lambda call: Answer(gone), times=1)
        while totals.sums:
            totals.take(consumer)
        assert broker.group("billing").offsets == {}
        _until(totals, consumer, 10)  # the consumer joins again without sums


def test_a_lost_connection_is_none_of_the_hooks_business() -> None:
    totals = Totals()
    with FakeBroker(topics={"payments": 1}) as broker, _consumer(broker) as consumer:
        broker.control("Fetch", lambda call: Close(reset=True), times=3)
        broker.produce("payments", 0, [(None, b"7")])
        consumer.subscribe(["payments"], hooks=totals)
        _until(totals, consumer, 7)
        assert broker.group("billing").generation == 1
