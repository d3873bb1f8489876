"""Validates arguments of public methods. A (topic, partition) tuple is accepted as a TopicPartition."""

import re
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Iterable, Mapping
from operator import index
from typing import Any

from kohort.common import TopicPartition
from kohort.fastpath import Record, RecordColumns

LONGEST_S = 2_000_000.0
"""The longest wait (23 days). Longer waits are cut to it, because selectors take int32 milliseconds."""

HOOKS = ("on_revoked", "on_assigned", "on_lost")

INT16_MAX, INT32_MAX, INT64_MAX = 2**15 - 1, 2**31 - 1, 2**63 - 1
INLINE_FLAGS = ((re.A, "a"), (re.I, "i"), (re.M, "m"), (re.S, "s"), (re.X, "x"))


def pattern_given(pattern: str | re.Pattern[str]) -> str:
    """The pattern as text that matches the same. Flags given to `re.compile` are put in front of it."""
    if isinstance(pattern, str):
        return pattern
    beside = pattern.flags & ~re.compile(pattern.pattern).flags
    letters = "".join(letter for flag, letter in INLINE_FLAGS if beside & flag)
    return f"(?{letters}){pattern.pattern}" if letters else pattern.pattern


def unsendable(text: str) -> str:
    """Return the reason why no request can carry `text`; empty if one can."""
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        return f"UTF-8 has no character {text[error.start]!r} (at {error.start})"
    return f"it has {size} bytes of UTF-8, and the limit is {INT16_MAX}" if size > INT16_MAX else ""


def name_given(name: str, field: str, *, empty: bool = False) -> str:
    """Return a valid name of a group, a member or a resource.

    Raises TypeError for a value that is not a str. Raises ValueError for an empty name, unless `empty` allows it, and
    for a name that no request can carry. Both name `field`.
    """
    if not isinstance(name, str):
        raise TypeError(f"{field} is a str, not {name!r}")
    if not name and not empty:
        raise ValueError(f"{field} is empty")
    if reason := unsendable(name):
        raise ValueError(f"{field} cannot be sent: {reason}: {name[:80]!r}")
    return name


def names_given(names: Iterable[str], field: str, *, empty: bool = False) -> tuple[str, ...]:
    """Return valid names. Raises TypeError for a single string in place of a list, and the errors of `name_given`."""
    if isinstance(names, str):
        raise TypeError(f"{field} is a list of names, not one string; write [{names!r}]")
    if not isinstance(names, Iterable):
        raise TypeError(f"{field} is a list of names, not {names!r}")
    return tuple(name_given(name, f"a name in {field}", empty=empty) for name in names)


def topic_given(topic: str) -> str:
    """Raises TypeError if the topic is not a str, ValueError if no request can carry it.

    Other invalid names are rejected by the broker.
    """
    if not isinstance(topic, str):
        raise TypeError(f"a topic's name is a str, not {topic!r}")
    if reason := unsendable(topic):
        raise ValueError(f"invalid topic name: {topic[:80]!r}: {reason}")
    return topic


def partition_given(partition: tuple[str, int]) -> TopicPartition:
    """Raises TypeError and ValueError for an invalid partition.

    The check is made here because the driver could not report the error to the caller.
    """
    if isinstance(partition, str):
        raise TypeError(f"a partition is (topic, number), not one string: write TopicPartition({partition!r}, 0)")
    try:
        topic, number = partition
        number = index(number)
    except (TypeError, ValueError):
        raise TypeError(
            f"a partition is (topic, number), as in TopicPartition('payments', 0), not {partition!r}"
        ) from None
    if not 0 <= number <= INT32_MAX:
        raise ValueError(f"a partition's number is from 0 to {INT32_MAX}: {partition!r}")
    return TopicPartition(topic_given(topic), number)


def each_partition(partitions: object) -> list[TopicPartition]:
    """Return partitions in order. Raises TypeError for a single partition, and the errors of `partition_given`."""
    if isinstance(partitions, TopicPartition) or _is_pair(partitions):
        raise TypeError(f"a list of partitions is needed, not one partition; write [{partitions!r}]")
    if isinstance(partitions, str):
        raise TypeError(
            f"a list of partitions is needed, not one string; write [TopicPartition({partitions!r}, 0)], "
            f"or subscribe([{partitions!r}]) for all partitions of a topic"
        )
    if not isinstance(partitions, Iterable):
        raise TypeError(f"a list of partitions is needed, not {partitions!r}")
    return [partition_given(one) for one in partitions]


def _is_pair(value: object) -> bool:
    return isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], str) and isinstance(value[1], int)


def partitions_given(partitions: Iterable[TopicPartition] | None) -> frozenset[TopicPartition] | None:
    return None if partitions is None else frozenset(each_partition(partitions))


def mapping_given(values: object, what: str) -> Mapping[TopicPartition, Any]:
    """Return values by partition. Raises TypeError with the name `what`.

    The error has the correct expression for the most frequent mistakes.
    """
    if isinstance(values, Mapping):
        return values
    if isinstance(values, RecordColumns):
        raise TypeError(f"{what} by partition are needed, not RecordColumns; write columns.next_offsets")
    if isinstance(values, Record):
        raise TypeError(
            f"{what} by partition are needed, not a Record; write "
            "{TopicPartition(record.topic, record.partition): record.offset + 1}"
        )
    raise TypeError(f"{what} by partition are needed, as in {{TopicPartition('payments', 0): 42}}, not {values!r}")


def times_given(times_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Return times (ms since 1970) by partition. Raises TypeError if a value is not an int, ValueError if it is
    negative."""
    times = {}
    for one, time in mapping_given(times_ms, "times (ms since 1970)").items():
        try:
            times[partition_given(one)] = index(time)
        except TypeError:
            partition_given(one)
            raise TypeError(f"a time is an int, in ms since 1970, not {time!r}") from None
        if not 0 <= time <= INT64_MAX:
            raise ValueError(f"a time is not negative and has 63 bits: {time}")
    return times


def seconds_given(timeout_s: float, **strange: object) -> float:
    """Return a time-out (s) between 0 and LONGEST_S. Infinity is LONGEST_S, and a negative number is 0.

    `strange`: unknown keyword arguments of the call. Raises TypeError for them, and for a value that is not a number.
    Raises ValueError for NaN.
    """
    if not strange and type(timeout_s) is float and 0.0 <= timeout_s <= LONGEST_S:
        return timeout_s  # as nearly each poll calls it
    for name, value in strange.items():
        hint = (
            f"; it is timeout_s, in seconds: timeout_s={value / 1000 if name.endswith('ms') else value!r}"
            if (name.startswith("timeout") and isinstance(value, int | float))
            else ""
        )
        raise TypeError(f"no argument {name!r}{hint}")
    try:
        seconds = 0.0 + timeout_s
    except TypeError:
        raise TypeError(
            f"timeout_s is a number of seconds, not {timeout_s!r}; float('inf') waits for as long as possible"
        ) from None
    except OverflowError:
        return LONGEST_S if timeout_s > 0 else 0.0
    if seconds != seconds:
        raise ValueError("timeout_s is a number of seconds, not NaN")
    return min(max(seconds, 0.0), LONGEST_S)


def hooks_given(hooks: Any, *, awaits: bool) -> Any:
    """`hooks` of a subscription. `awaits`: whether they may be coroutine functions. Raises TypeError."""
    if isinstance(hooks, type):
        raise TypeError(f"hooks is an instance, not the class {hooks.__name__}; write hooks={hooks.__name__}()")
    if not all(callable(getattr(hooks, name, None)) for name in HOOKS):
        raise TypeError(
            f"hooks is an instance of a subclass of RebalanceHooks, with {', '.join(HOOKS)}; {hooks!r} is none"
        )
    if not awaits:
        for name in HOOKS:
            if is_async(getattr(hooks, name)):
                raise TypeError(f"{name} is a coroutine function, which only AsyncConsumer awaits; write def {name}")
    return hooks


def function_given(function: Callable[..., object], field: str) -> None:
    """Raises TypeError for what cannot be called, and for a coroutine function, which nothing would await."""
    if not callable(function):
        raise TypeError(f"{field} is a function, not {function!r}")
    if is_async(function):
        raise _not_awaited(field)


def not_awaited(result: object, field: str) -> TypeError | None:
    """The error of a function that has returned a coroutine, as a lambda may, or a generator. None of its code has run.

    Returns None for any other result.
    """
    if result is None or not isinstance(result, Coroutine | Generator | AsyncGenerator):
        return None
    if not isinstance(result, Coroutine):
        return TypeError(f"{field} is a plain function: nothing runs the generator that it returns")
    result.close()
    return _not_awaited(field)


def check_returned(result: object, field: str) -> None:
    """Raises the error of `not_awaited`."""
    if (error := not_awaited(result, field)) is not None:
        raise error


def _not_awaited(field: str) -> TypeError:
    return TypeError(f"{field} is a plain function: a coroutine function is not awaited here")


def callback_given(callback: Callable[..., object] | None, field: str) -> None:
    """As `function_given`, for a function that may be None."""
    if callback is not None:
        function_given(callback, field)


def is_async(function: object) -> bool:
    """True for a coroutine function, and for an object whose call is one."""
    from inspect import iscoroutinefunction  # imported here, because most consumers are created without functions

    return iscoroutinefunction(function) or iscoroutinefunction(getattr(type(function), "__call__", None))  # noqa: B004


def ends_given(until: Mapping[TopicPartition, int], partitions: frozenset[TopicPartition]) -> dict[TopicPartition, int]:
    """Raise ValueError for an end whose partition is not among `partitions`."""
    ends = {partition_given(one): _offset_number(offset) for one, offset in mapping_given(until, "offsets").items()}
    if strange := sorted(ends.keys() - partitions):
        raise ValueError(f"`until` names a partition that is not to be read: {strange[0]}")
    return ends


def offset_given(offset: int) -> int:
    """Raises ValueError for an offset that no log has. A broker would treat -2 and -1 as out of range."""
    offset = _offset_number(offset)
    if offset < 0:
        raise ValueError(f"an offset is not negative: {offset}")
    if offset > INT64_MAX:
        raise ValueError(f"an offset has 63 bits: {offset}")
    return offset


def _offset_number(offset: object) -> int:
    try:
        return index(offset)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"an offset is an int, not {offset!r}") from None


def epoch_given(leader_epoch: int) -> int:
    """Return a valid leader epoch; -1 means unknown. Raises ValueError for an invalid one."""
    try:
        leader_epoch = index(leader_epoch)
    except TypeError:
        raise TypeError(f"a leader epoch is an int, not {leader_epoch!r}") from None
    if not -1 <= leader_epoch <= INT32_MAX:
        raise ValueError(f"a leader epoch is from 0 to {INT32_MAX}, or -1 where it is not known: {leader_epoch}")
    return leader_epoch
