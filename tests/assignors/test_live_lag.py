"""The lag assignor in a live group: its leader measures the lag of each partition."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from kohort.assignors.lag import LagAssignor, lag_from_offsets
from kohort.common import TopicPartition
from kohort.coordinator_client import Consumer
from kohort.coordinator_client.replay import replay
from kohort.protocol import tape
from tests.support.broker_selection import SelectedBroker

UNEVEN = (3, 3, 200, 3, 3)


def fill(broker: SelectedBroker, topic: str, counts: Sequence[int] = UNEVEN) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for partition, waiting in enumerate(counts):
        for _ in range(waiting):
            producer.produce(topic, b"x", partition=partition)
    assert producer.flush(20) == 0


def poll_until_shares(members: Sequence[Consumer], wanted: set[frozenset[int]]) -> None:
    limit = time.monotonic() + 120
    shares: set[frozenset[int]] = set()
    while shares != wanted:
        assert time.monotonic() < limit, shares
        for consumer in members:
            consumer.poll(0.05)
        shares = {frozenset(each.partition for each in consumer.assignment) for consumer in members}


@pytest.mark.broker
def test_the_partition_that_waits_most_gets_a_member_of_its_own(
    broker: SelectedBroker, make_topic: Callable[..., str], unique: Callable[[str], str]
) -> None:
    topic, group = make_topic(5), unique("lag")
    fill(broker, topic)

    def lag_of(partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        with Consumer(broker.bootstrap, group=group) as offsets:
            stored = offsets.committed(partitions)
            committed = {each: one.offset if (one := stored[each]) else None for each in partitions}
            return lag_from_offsets(committed, offsets.end_offsets(partitions), offsets.beginning_offsets(partitions))

    def join() -> Consumer:
        consumer = Consumer(broker.bootstrap, group=group, assignors=[LagAssignor(lag_of)], heartbeat_interval_ms=100)
        consumer.subscribe([topic])
        consumer.pause()
        return consumer

    with join() as first, join() as second:
        poll_until_shares((first, second), {frozenset({2}), frozenset({0, 1, 3, 4})})


@pytest.mark.broker
@pytest.mark.proves("G-03", "G-04")
def test_by_name_the_leader_measures_by_itself(
    broker: SelectedBroker, make_topic: Callable[..., str], unique: Callable[[str], str], tmp_path: Path
) -> None:
    topic, group = make_topic(5), unique("lag")
    fill(broker, topic, (203, 3, 200, 3, 3))
    path = tmp_path / "tape"

    def join(tape: str | None = None) -> Consumer:
        consumer = Consumer(
            broker.bootstrap,
            group=group,
            assignors=["lag"],
            heartbeat_interval_ms=100,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            tape=tape,
        )
        consumer.subscribe([topic])
        consumer.pause()
        return consumer

    with Consumer(broker.bootstrap, group=group) as before:
        before.assign([TopicPartition(topic, 0)])
        before.commit({TopicPartition(topic, 0): 200})  # what was handled waits no more
    with join(str(path)) as first, join() as second:
        poll_until_shares((first, second), {frozenset({2}), frozenset({0, 1, 3, 4})})
        troubles = [trouble for rebalance in first.timeline() for trouble in rebalance.troubles]
        assert not [trouble for trouble in troubles if "without knowing" in trouble]
    taped = [each for each in tape.read(path.read_text().splitlines()) if each.api != "Fetch"]
    assert {"OffsetFetch", "ListOffsets"} <= {each.api for each in taped}
    syncs = [step for step in replay(taped) if step.api == "SyncGroup"]
    assert syncs
    assert [step.difference for step in syncs] == [None] * len(syncs)
