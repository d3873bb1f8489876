"""Translates pushed filters (PySpark 4.1+) to bounds of a plan, so that fewer records are fetched."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from kohort.spark.plan import EPOCH
from kohort.spark.ranges import ALL, Within

_MILLISECOND = timedelta(milliseconds=1)


def narrowed(filters: Iterable[Any]) -> tuple[Within, list[Any]]:
    """(the bounds, the filters that Spark must still apply itself).

    `partition`, `topic` and `offset` are bounded exactly. A `timestamp` is bounded from below only, and Spark applies
    the filter again. Records need not be sorted by time, so a time has no last offset.
    """
    within, left = Within(), []
    for one in filters:
        within, exact = _narrow(within, one)
        if not exact:
            left.append(one)
    return within, left


def _narrow(within: Within, one: Any) -> tuple[Within, bool]:
    column = one.attribute[0] if len(getattr(one, "attribute", ())) == 1 else None
    kind = type(one).__name__
    if kind == "IsNotNull" and column in ("topic", "partition", "offset", "timestamp"):
        return within, True
    if column is None or column not in _COLUMNS or not hasattr(one, "value"):
        return within, False
    return _COLUMNS[column](within, kind, one.value)


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _by_partition(within: Within, kind: str, value: Any) -> tuple[Within, bool]:
    if kind == "In" and all(map(_whole, value)):
        return replace(within, partitions=_both(within.partitions, frozenset(value))), True
    if kind not in _INTERVALS or not _whole(value):
        return within, False
    return replace(within, partition_range=_overlap(within.partition_range, _INTERVALS[kind](value))), True


def _by_offset(within: Within, kind: str, value: Any) -> tuple[Within, bool]:
    if kind not in _INTERVALS or not _whole(value):
        return within, False
    return replace(within, offset_range=_overlap(within.offset_range, _INTERVALS[kind](value))), True


def _by_topic(within: Within, kind: str, value: Any) -> tuple[Within, bool]:
    if kind in ("EqualTo", "EqualNullSafe") and isinstance(value, str):
        return replace(within, topics=_both(within.topics, frozenset({value}))), True
    if kind == "In" and all(isinstance(one, str) for one in value):
        return replace(within, topics=_both(within.topics, frozenset(value))), True
    return within, False


def _by_time(within: Within, kind: str, value: Any) -> tuple[Within, bool]:
    if kind not in _FROM or not isinstance(value, datetime) or value.tzinfo is None:
        return within, False
    # Timestamps of records are milliseconds, so a time within a millisecond is rounded up.
    from_ms = -((EPOCH - value) // _MILLISECOND)
    return replace(within, time_low_ms=max(within.time_low_ms, from_ms)), False


def _overlap(one: range, other: range) -> range:
    return range(max(one.start, other.start), min(one.stop, other.stop))


def _both(one: frozenset[Any] | None, other: frozenset[Any]) -> frozenset[Any]:
    return other if one is None else one & other


_INTERVALS: Mapping[str, Callable[[int], range]] = {
    "EqualTo": lambda value: range(value, value + 1),
    "EqualNullSafe": lambda value: range(value, value + 1),
    "GreaterThan": lambda value: range(value + 1, ALL.stop),
    "GreaterThanOrEqual": lambda value: range(value, ALL.stop),
    "LessThan": lambda value: range(value),
    "LessThanOrEqual": lambda value: range(value + 1),
}
_FROM = ("EqualTo", "EqualNullSafe", "GreaterThan", "GreaterThanOrEqual")
_COLUMNS: Mapping[str, Callable[[Within, str, Any], tuple[Within, bool]]] = {
    "partition": _by_partition,
    "offset": _by_offset,
    "topic": _by_topic,
    "timestamp": _by_time,
}
