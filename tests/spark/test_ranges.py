"""Offset ranges: every offset is read once, in pieces that are as even as they can be."""

import pickle
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.common import TopicPartition
from kohort.spark.errors import PlanError
from kohort.spark.ranges import OffsetRange, shared, split


def test_a_range_is_a_plain_value() -> None:
    one = OffsetRange("t", 3, 10, 25)
    assert pickle.loads(pickle.dumps(one)) == one
    assert len({one, OffsetRange("t", 3, 10, 25)}) == 1
    assert (len(one), one.place) == (15, TopicPartition("t", 3))
    with pytest.raises(AttributeError):
        one.start = 11  # type: ignore[misc]


@pytest.mark.parametrize(("start", "stop"), [(-1, 5), (5, 4), (-2, -1)])
def test_a_range_that_runs_backwards_is_refused_with_its_place(start: int, stop: int) -> None:
    with pytest.raises(PlanError, match=rf"topic=t, partition=3, start={start}, stop={stop}"):
        OffsetRange("t", 3, start, stop)


lengths = st.lists(st.integers(0, 500), max_size=8)


@given(lengths, st.none() | st.integers(1, 60), st.none() | st.integers(1, 300))
def test_split_keeps_every_offset_once_and_its_promises(sizes: list[int], least: int | None, most: int | None) -> None:
    whole = [OffsetRange("t", partition, 7, 7 + size) for partition, size in enumerate(sizes)]
    pieces = split(whole, min_partitions=least, max_records_per_partition=most)
    assert [(p.partition, n) for p in pieces for n in range(p.start, p.stop)] == [
        (w.partition, n) for w in whole for n in range(w.start, w.stop)
    ]
    assert all(len(piece) for piece in pieces)
    assert len(pieces) >= min(least or 0, sum(sizes))
    assert most is None or all(len(piece) <= most for piece in pieces)
    for one, two in pairwise(pieces):
        assert one < two


def test_a_partition_may_have_a_limit_of_its_own() -> None:
    whole = [OffsetRange("t", partition, 0, 10) for partition in range(3)]
    limits = {TopicPartition("t", 0): 3, TopicPartition("t", 1): 8, TopicPartition("u", 2): 1}
    pieces = split(whole, max_records_per_partition=6, most_offsets=limits)
    assert [(p.partition, len(p)) for p in pieces] == [(0, 3), (0, 3), (0, 2), (0, 2), (1, 5), (1, 5), (2, 5), (2, 5)]


@given(lengths)
def test_without_settings_ranges_stay_whole(sizes: list[int]) -> None:
    whole = [OffsetRange("t", partition, 0, size) for partition, size in enumerate(sizes)]
    assert split(reversed(whole)) == tuple(one for one in whole if len(one))


def test_the_longest_is_cut_first() -> None:
    pieces = split([OffsetRange("t", 0, 0, 100), OffsetRange("t", 1, 0, 900)], min_partitions=4)
    assert [(p.partition, len(p)) for p in pieces] == [(0, 100), (1, 300), (1, 300), (1, 300)]


@pytest.mark.parametrize("wish", ["min_partitions", "max_records_per_partition"])
@pytest.mark.parametrize(("value", "says"), [(0, "at least 1, not 0"), ("4", "a whole number, not '4'")])
def test_a_request_for_nothing_is_refused(wish: str, value: Any, says: str) -> None:
    with pytest.raises(PlanError, match=f"{wish} must be {says}"):
        split([], **{wish: value})


@given(sizes=st.lists(st.integers(1, 300), max_size=12), most=st.integers(0, 500), pieces=st.integers(1, 3))
def test_sharing_keeps_ranges_and_their_order_and_its_promises(sizes: list[int], most: int, pieces: int) -> None:
    ranges = [cut for number, size in enumerate(sizes) for cut in OffsetRange("t", number, 5, 5 + size).cut(pieces)]
    tasks = shared(ranges, most)
    assert [one for task in tasks for one in task] == ranges
    assert all(len({one.place for one in task}) == len(task) for task in tasks)
    assert all(len(task) == 1 or sum(map(len, task)) <= most for task in tasks)
    for task, following in pairwise(tasks):
        first = following[0]
        assert task[-1].place == first.place or sum(map(len, task)) + len(first) > most
