"""An executor's reading, where a log is not what it was when the driver planned."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kohort.spark import OffsetRange, lending
from kohort.spark import reader as reading
from kohort.spark.reader import read_ranges
from kohort.testing.fake_broker import Delay, FakeBroker

Read = Callable[..., list[tuple[str, int, int]]]


@pytest.fixture
def fake() -> Iterator[FakeBroker]:
    """A broker with ten records in one partition."""
    with FakeBroker(topics={"t": 1}) as broker:
        fill(broker, "t")
        yield broker
        while lending._idle:
            lending._idle.pop()[1].close()


def fill(fake: FakeBroker, topic: str, partition: int = 0) -> None:
    for number in range(10):
        fake.produce(topic, partition, [(None, b"%d" % number)])


@pytest.fixture
def read(fake: FakeBroker, monkeypatch: pytest.MonkeyPatch) -> Read:
    """`read(*ranges, skip_lost=...)`: (topic, partition, offset) of what comes."""
    monkeypatch.setattr(reading, "ASK_AFTER_S", 0.3)
    settings: dict[str, Any] = {"bootstrap": fake.bootstrap, "default_api_timeout_ms": 2000}

    def reader(*ranges: OffsetRange, skip_lost: bool = True) -> list[tuple[str, int, int]]:
        slices = read_ranges(ranges, settings, skip_lost=skip_lost)
        return [(columns.topic, columns.partition, offset) for columns in slices for offset in columns.offsets]

    return reader


@pytest.mark.proves("B-40")
def test_a_log_that_ends_early_is_read_to_its_end_also_where_its_leader_is_slow(fake: FakeBroker, read: Read) -> None:
    fake.control("Fetch", lambda call: Delay(1.0), times=1)
    assert read(OffsetRange("t", 0, 5, 20)) == [("t", 0, offset) for offset in range(5, 10)]
