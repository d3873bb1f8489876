"""Thousands of partitions: a poll looks at each slice once, and at a few of them while it holds the lock once."""

from collections.abc import Iterator
from typing import Any

import pytest

from kohort.common import TopicPartition
from kohort.coordinator_client import Consumer
from kohort.coordinator_client.fetch import fetch_collector
from kohort.coordinator_client.fetch._collect import readable
from kohort.coordinator_client.fetch.completed_fetch import MOST_AT_ONCE, CompletedFetch
from kohort.fastpath import decode, encode

COUNT = 2_000
ALL = [TopicPartition(f"t{number // 5}", number % 5) for number in range(COUNT)]
RECORD = memoryview(encode([(None, b"v")], timestamp_ms=1))


@pytest.fixture
def consumer(request: pytest.FixtureRequest) -> Iterator[Consumer]:
    """One small record of each partition is parked."""
    with Consumer("127.0.0.1:1", bootstrap_timeout_ms=600_000, **getattr(request, "param", {})) as one:
        one.assign(dict.fromkeys(ALL, 0))
        session = one._session

        def park() -> None:
            for partition in ALL:
                serial = session.core.positions.state(partition).serial
                session.core.fetcher.parked.put(CompletedFetch(partition, RECORD, 0, 1, serial, 0, ()))

        session.driver.lock.run(park)
        yield one


class Watched:
    """Partitions that notes each one that it is asked about."""

    def __init__(self, partitions: frozenset[TopicPartition], looks: list[TopicPartition]) -> None:
        self._partitions = partitions
        self._looks = looks

    def __contains__(self, partition: TopicPartition) -> bool:
        self._looks.append(partition)
        return partition in self._partitions


@pytest.fixture
def looked_at(consumer: Consumer, monkeypatch: pytest.MonkeyPatch) -> list[TopicPartition]:
    """Each partition that is checked: before its records are decoded, and before they are returned, unless neither a
    turn nor much time came between."""
    looks: list[TopicPartition] = []
    session = consumer._session
    monkeypatch.setattr(
        session.collector, "readable", lambda now: Watched(readable(session.core, now) or frozenset(), looks)
    )
    return looks


@pytest.mark.proves("B-36")
def test_a_poll_looks_at_each_partition_once_and_holds_the_lock_for_a_few(
    consumer: Consumer, looked_at: list[TopicPartition]
) -> None:
    assert len(consumer.poll(0)) == COUNT
    assert len(looked_at) == 2 * COUNT
    assert consumer.poll(0) == []
    assert len(looked_at) == 2 * COUNT, "what was handed over is looked at no more"
    assert 0 < consumer._session.collector.most_at_once <= MOST_AT_ONCE
    assert consumer.metrics()["records_consumed_total"] == COUNT


def test_an_iteration_looks_at_one_partition_each(consumer: Consumer, looked_at: list[TopicPartition]) -> None:
    for count, _columns in enumerate(consumer, 1):
        if count == COUNT:
            break
    assert COUNT <= len(looked_at) <= 1.1 * COUNT
    assert consumer._session.collector.most_at_once <= MOST_AT_ONCE


def test_paused_partitions_in_front_are_walked_over_once(consumer: Consumer, looked_at: list[TopicPartition]) -> None:
    paused = ALL[: COUNT // 2]
    consumer.pause(paused)
    for count, columns in enumerate(consumer, 1):
        assert TopicPartition(columns.topic, columns.partition) not in paused[:100]
        if count == COUNT // 2:
            break
    assert sum(partition in paused for partition in looked_at) <= 1.1 * len(paused)
    assert COUNT // 2 <= sum(partition not in paused for partition in looked_at) <= 0.55 * COUNT
    looks = len(looked_at)
    assert consumer.poll(0) == []
    assert len(looked_at) == looks
    consumer.resume(paused)
    assert len(consumer.poll(0)) == COUNT // 2
    assert len(looked_at) == looks + COUNT


def test_what_is_void_is_dropped_once(consumer: Consumer, looked_at: list[TopicPartition]) -> None:
    core = consumer._session.core

    def void(core: object) -> None:
        for partition in ALL[: COUNT // 2]:
            consumer._session.core.positions.invalidate(partition)

    consumer._session.call(void)
    assert len(consumer.poll(0)) == COUNT // 2
    assert consumer.poll(0) == []
    assert len(looked_at) == COUNT
    assert core.fetcher.parked.total_bytes == 0


@pytest.mark.parametrize("consumer", [{"max_poll_records": 10}], indirect=True)
def test_a_cap_on_records_decodes_a_few_slices_ahead(consumer: Consumer, monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[int] = []

    def counted(*given: Any, **more: Any) -> Any:
        decoded.append(1)
        return decode(*given, **more)

    monkeypatch.setattr(fetch_collector, "decode", counted)
    for _ in range(6):
        assert len(consumer.poll(0)) == 10
    assert MOST_AT_ONCE <= len(decoded) <= 2 * MOST_AT_ONCE, "what was decoded ahead is kept"
