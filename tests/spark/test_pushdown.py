"""Filters as bounds of a plan: what is taken over exactly, what Spark has to look at again, and what that reads."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

datasource = pytest.importorskip("pyspark.sql.datasource")
if not hasattr(datasource, "EqualTo"):
    pytest.skip("PySpark gives sources its filters since 4.1", allow_module_level=True)

from pyspark.sql.datasource import (  # noqa: E402 -- after it is known that there are any
    EqualNullSafe,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from kohort.spark import OffsetRange, plan  # noqa: E402
from kohort.spark.options import SourceOptions  # noqa: E402
from kohort.spark.pushdown import narrowed  # noqa: E402
from kohort.spark.ranges import ALL, Within  # noqa: E402
from kohort.spark.source import SCHEMA, PushingReader  # noqa: E402
from tests.spark.sent import varied  # noqa: E402
from tests.support.broker_selection import SelectedBroker  # noqa: E402

FIRST = datetime.fromtimestamp(1_700_000_000, UTC)
PARTITION, OFFSET, TOPIC, TIME = ("partition",), ("offset",), ("topic",), ("timestamp",)


@pytest.mark.parametrize(
    ("filters", "within"),
    [
        ([EqualTo(PARTITION, 2)], Within(partition_range=range(2, 3))),
        ([In(PARTITION, (0, 2)), In(PARTITION, (2, 5))], Within(partitions=frozenset({2}))),
        ([GreaterThan(PARTITION, 1), LessThanOrEqual(PARTITION, 5)], Within(partition_range=range(2, 6))),
        ([GreaterThanOrEqual(OFFSET, 7), LessThan(OFFSET, 9)], Within(offset_range=range(7, 9))),
        ([LessThan(OFFSET, 9), LessThan(OFFSET, 4)], Within(offset_range=range(4))),
        ([EqualNullSafe(OFFSET, 3)], Within(offset_range=range(3, 4))),
        ([EqualTo(TOPIC, "a"), In(TOPIC, ("a", "b"))], Within(topics=frozenset({"a"}))),
        ([IsNotNull(TOPIC), IsNotNull(OFFSET)], Within()),
    ],
)
def test_what_is_bounded_exactly_spark_need_not_look_at(filters: list[Any], within: Within) -> None:
    assert narrowed(filters) == (within, [])


@pytest.mark.parametrize(
    ("one", "within"),
    [
        (GreaterThanOrEqual(TIME, FIRST), Within(time_low_ms=1_700_000_000_000)),
        (GreaterThan(TIME, FIRST + timedelta(microseconds=1)), Within(time_low_ms=1_700_000_000_001)),
        (EqualTo(TIME, FIRST + timedelta(milliseconds=5)), Within(time_low_ms=1_700_000_000_005)),
        (LessThan(TIME, FIRST), Within()),
        (GreaterThan(TIME, datetime(2023, 1, 1)), Within()),
        (Not(EqualTo(PARTITION, 1)), Within()),
        (IsNull(OFFSET), Within()),
        (IsNotNull(("key",)), Within()),
        (EqualTo(("value",), b"x"), Within()),
        (EqualTo(PARTITION, None), Within()),
        (EqualTo(OFFSET, True), Within()),
        (EqualTo(("headers", "key"), "x"), Within()),
        (StringStartsWith(TOPIC, "a"), Within()),
    ],
)
def test_what_is_not_exact_is_left_to_spark(one: Any, within: Within) -> None:
    assert narrowed([one]) == (within, [one])


@pytest.mark.broker
@pytest.mark.parametrize(
    ("within", "bounds"),
    [
        (Within(partition_range=range(1, ALL.stop)), {1: (0, 10), 2: (0, 10)}),
        (Within(partitions=frozenset({0}), offset_range=range(4, 6)), {0: (4, 6)}),
        (Within(offset_range=range(50, ALL.stop)), {}),
        (Within(topics=frozenset({"another"})), {}),
        (Within(time_low_ms=1_700_000_010_000), {0: (4, 10), 1: (3, 10), 2: (3, 10)}),
        (Within(time_low_ms=1_900_000_000_000), {}),
        (Within(time_low_ms=1_700_000_010_000, offset_range=range(4)), {1: (3, 4), 2: (3, 4)}),
    ],
)
def test_a_plan_is_cut_to_its_bounds(
    broker: SelectedBroker, topic: str, send: Callable[..., None], within: Within, bounds: dict[int, tuple[int, int]]
) -> None:
    send(topic, varied(30))
    found = plan(broker.bootstrap, topics=[topic], within=within)
    assert found == tuple(OffsetRange(topic, partition, *bound) for partition, bound in bounds.items())


@pytest.mark.broker
def test_a_reader_with_filters_plans_less(broker: SelectedBroker, topic: str, send: Callable[..., None]) -> None:
    send(topic, varied(30))
    options = SourceOptions.of({"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic}, streaming=False)
    reader = PushingReader(options, SCHEMA)
    late = GreaterThan(TIME, FIRST + timedelta(seconds=20))
    assert list(reader.pushFilters([EqualTo(PARTITION, 1), late])) == [late]
    (only,) = reader.partitions()
    assert only.value == (OffsetRange(topic, 1, 7, 10),)
