"""A plan's view of logs that grow while it is made."""

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any, NamedTuple, TypeVar

import pytest

from kohort import Consumer, TopicPartition
from kohort.spark import DataLossError, OffsetRange, PlanError, PlanGap, ReadPlan, plan
from kohort.spark.plan import EPOCH, LogRange
from kohort.testing.fake_broker import FakeBroker

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


T = TypeVar("T")


class Listed(NamedTuple):
    offset: int


class Growing:
    """A consumer's results; after each, every log grows by records of the times 10 and 20 ms."""

    def __init__(self, times_ms: Mapping[TopicPartition, Iterable[int]]) -> None:
        self.logs = {place: list(times) for place, times in times_ms.items()}

    def _grown(self, response: T) -> T:
        for log in self.logs.values():
            log += [10, 20]
        return response

    def end_offsets(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return self._grown({place: len(self.logs[place]) for place in places})

    def beginning_offsets(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return self._grown(dict.fromkeys(places, 0))

    def committed(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, Listed]:
        return self._grown({place: Listed(len(self.logs[place])) for place in places})

    def offsets_for_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, Listed | None]:
        found = {}
        for place, time_ms in times.items():
            late = [offset for offset, at in enumerate(self.logs[place]) if at >= time_ms]
            found[place] = Listed(late[0]) if late else None
        return self._grown(found)


@pytest.mark.parametrize("time_ms", [5, 15, 25])
def test_a_time_is_no_offset_behind_records_that_came_while_it_was_looked_up(time_ms: int) -> None:
    """Records written meanwhile are neither passed over by a reader from a time, nor read by a reader up to it."""
    consumer: Any = Growing({A: [1, 2, 3], B: [1, 30]})
    log = LogRange(consumer, (A, B), has_group=False)
    point = EPOCH + timedelta(milliseconds=time_ms)
    assert log.resolve(point, "start") == {A: 3, B: 1}
    stops = log.resolve(point + timedelta(milliseconds=5), "stop")
    assert stops == {A: 3, B: 1}
    log.check(stops, "stop")


@pytest.mark.parametrize("name", ["start", "stop"])
def test_a_time_before_all_that_kafka_counts_is_refused(name: str) -> None:
    consumer: Any = Growing({A: [1, 2, 3]})
    log = LogRange(consumer, (A,), has_group=False)
    assert log.resolve(EPOCH, name) == {A: 0}
    with pytest.raises(PlanError, match=rf"^{name} is a time before 1970: 1969-12-31 23:59:59.*'earliest'"):
        log.resolve(EPOCH - timedelta(seconds=1), name)


def test_a_group_that_reads_on_while_a_plan_is_made_has_lost_nothing() -> None:
    """The group reads on after the ends of the logs were requested for a start by time."""
    consumer: Any = Growing({A: [1, 2, 30], B: [1]})
    log = LogRange(consumer, (A, B), has_group=True)
    starts, stops = log.resolve(EPOCH + timedelta(milliseconds=30), "start"), log.resolve("committed", "stop")
    assert (starts, stops) == ({A: 2, B: 1}, {A: 7, B: 5})
    log.check(stops, "stop")
    assert log.clamped(stops) == stops


def test_where_a_group_goes_on_that_has_read_a_plan() -> None:
    ranges = (OffsetRange("t", 0, 5, 9), OffsetRange("t", 0, 9, 12), OffsetRange("t", 1, 0, 2))
    gaps = (PlanGap("t", 1, "retention", 3, 7), PlanGap("t", 2, "rewound", 4, 25), PlanGap("u", 0, "new", 0, 0))
    assert ReadPlan(ranges, gaps).stops == {A: 12, B: 2, TopicPartition("t", 2): 4}
    assert ReadPlan().stops == {}


def test_a_group_whose_log_was_created_again_reads_what_comes_after_the_first_plan_of_it() -> None:
    with FakeBroker(topics={"t": 1}) as fake, Consumer(fake.bootstrap, group="g") as consumer:
        fake.commit("g", {A: 25})
        found = []
        for _ in range(4):
            fake.produce("t", 0, [(None, b"value")] * 5)
            ranges = plan(fake.bootstrap, topics=["t"], start="committed", group="g", on_data_loss="skip")
            consumer.commit(ranges.stops)
            found.append((tuple(ranges), [gap.kind for gap in ranges.gaps]))
    assert [gaps for _, gaps in found] == [["rewound"], [], [], []]
    assert [ranges for ranges, _ in found] == [(), *((OffsetRange("t", 0, at, at + 5),) for at in (5, 10, 15))]


def test_a_plain_pair_is_a_partition_and_any_whole_number_an_offset() -> None:
    class Number:
        """As of numpy."""

        def __index__(self) -> int:
            return 2

    consumer: Any = Growing({A: [1, 2, 3]})
    log = LogRange(consumer, (A,), has_group=False)
    pairs: Any = {("t", 0): Number()}
    assert log.resolve(pairs, "start") == {A: 2}
    with pytest.raises(DataLossError, match="outside the log"):
        log.check(log.resolve({("t", 0): 9}, "start"), "start")  # type: ignore[dict-item]
    with pytest.raises(PlanError, match=r"outside the plan \(topic=t, partition=9\)"):
        log.resolve(pairs | {("t", 9): 5}, "start")
