"""Sizes of records, estimated from samples."""

from collections.abc import Iterator
from typing import Any

import pytest

from kohort import TopicPartition
from kohort.spark import OffsetRange, plan, record_size
from kohort.spark.record_size import _longest_first, bytes_an_offset, most_offsets
from kohort.testing.fake_broker import FakeBroker, Hold

SMALL, LARGE, LATE = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("a", 2)


@pytest.fixture
def fake() -> Iterator[FakeBroker]:
    """Logs of 100 offsets. In the middle the first has ten records of 10 bytes, the others of 1,000 bytes."""
    with FakeBroker(topics={"a": 3}) as broker:
        for place, size in ((SMALL, 10), (LARGE, 1000), (LATE, 1000)):
            broker.skip(*place, 50)
            broker.produce(*place, [(None, bytes(size))] * 10)
            broker.skip(*place, 100)
        yield broker


def test_a_skewed_partition_is_cut_by_its_own_bytes(fake: FakeBroker) -> None:
    found = plan(fake.bootstrap, topics=["a"], max_bytes_per_partition=10_000)
    assert [sum(one.partition == number for one in found) for number in range(3)] == [1, 10, 10]


def test_each_topic_is_sampled_before_its_shorter_ranges() -> None:
    """Partitions that time has not sufficed for have the average of their topic, so each topic needs a sample."""
    ranges = [
        OffsetRange("a", 0, 0, 9),
        OffsetRange("a", 1, 0, 50),
        OffsetRange("b", 0, 3, 3),
        OffsetRange("b", 1, 0, 5),
    ]
    assert _longest_first(ranges) == [ranges[1], ranges[3], ranges[0]]


@pytest.mark.parametrize("at_once", [1, 2, 500])
def test_partitions_are_sampled_some_at_a_time(fake: FakeBroker, monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    monkeypatch.setattr(record_size, "SAMPLES_AT_ONCE", at_once)
    ranges = [OffsetRange(*place, 0, 100) for place in (SMALL, LARGE, LATE)]
    settings: dict[str, Any] = {"bootstrap": fake.bootstrap}
    assert bytes_an_offset(ranges, settings) == {SMALL: 10.0, LARGE: 1000.0, LATE: 1000.0}
    assert most_offsets(ranges, 5000, settings) == {SMALL: 500, LARGE: 5, LATE: 5}


def test_a_partition_without_a_response_has_the_average_of_its_topic(
    fake: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_size, "SAMPLE_TIMEOUT_S", 1.5)
    monkeypatch.setattr(record_size, "SAMPLES_AT_ONCE", 1)
    silence = Hold()

    def of_late(call: Any) -> Hold | None:
        return silence if any(each.partition == 2 for one in call.request.topics for each in one.partitions) else None

    fake.control("Fetch", of_late)
    ranges = [OffsetRange(*place, 0, 100) for place in (SMALL, LARGE, LATE)]
    found = bytes_an_offset(ranges, {"bootstrap": fake.bootstrap})
    silence.release()
    assert found == {SMALL: 10.0, LARGE: 1000.0, LATE: 505.0}
