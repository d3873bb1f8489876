"""Checks the arguments of a record. An error has the argument's name, its topic, and a hint.

Each function returns the value that is sent, or raises TypeError or ValueError.
"""

from datetime import datetime
from operator import index
from typing import Any, Final, NoReturn

from kohort.network.arguments import INT64_MAX

_LONGEST_SHOWN: Final = 80


def partition_given(partition: Any, topic: object) -> int:
    """The number of a partition. numpy's integers are allowed, and a bool is not."""
    if isinstance(partition, bool) or not hasattr(partition, "__index__"):
        raise TypeError(f"partition must be an integer or None, not {_shown(partition)}{_at(topic)}")
    return index(partition)


def timestamp_given(timestamp_ms: Any, topic: object) -> int:
    """A time in ms since the epoch. A fraction of a millisecond would be lost, so a float is refused."""
    if isinstance(timestamp_ms, bool) or not hasattr(timestamp_ms, "__index__"):
        hint = ": write int(when.timestamp() * 1000)" if isinstance(timestamp_ms, datetime) else ""
        hint = ": round it to whole milliseconds" if isinstance(timestamp_ms, float) else hint
        raise TypeError(
            f"timestamp_ms must be an integer, in ms since the epoch, not {_shown(timestamp_ms)}{hint}{_at(topic)}"
        )
    number = index(timestamp_ms)
    if not 0 <= number <= INT64_MAX:
        raise ValueError(
            f"timestamp_ms is in ms since the epoch, and not negative or above 2**63 - 1, not {number}{_at(topic)}"
        )
    return number


def callback_refused(on_delivery: object, topic: object) -> NoReturn:
    """Raises TypeError: it cannot be called, or is a coroutine function."""
    if callable(on_delivery):
        raise TypeError(f"on_delivery is a plain function: a coroutine function is not awaited here{_at(topic)}")
    raise TypeError(f"on_delivery must be a function, not {_shown(on_delivery)}{_at(topic)}")


def bytes_refused(field: str, value: object, topic: object) -> NoReturn:
    """Raises TypeError: `value` has no bytes, or not in one piece."""
    if isinstance(value, memoryview):
        raise TypeError(f"{field} must be bytes-like in one piece, not a memoryview with steps: copy it{_at(topic)}")
    hint = f": encode it, as in {field.rpartition(' ')[2]}.encode()" if isinstance(value, str) else ": encode it first"
    raise TypeError(f"{field} must be bytes-like or None, not {_shown(value)}{hint}{_at(topic)}")


def header_pairs(headers: Any, topic: object) -> list[tuple[bytes, Any]]:
    """The names, encoded, and the values of headers, which are a mapping or pairs."""
    if isinstance(headers, str | bytes) or not hasattr(headers, "__iter__"):
        raise TypeError(f"headers must be a mapping or pairs of a name and bytes, not {_shown(headers)}{_at(topic)}")
    pairs = []
    for pair in headers.items() if hasattr(headers, "items") else headers:
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise TypeError(f"a header is a pair of a name and bytes or None, not {_shown(pair)}{_at(topic)}")
        name, content = pair
        if name is None:  # a broker would reject the whole batch, with its other records
            raise ValueError(f"a header without a name: remove it{_at(topic)}")
        pairs.append((_name(name, topic), content))
    return pairs


def _name(name: Any, topic: object) -> bytes:
    try:
        return name.encode() if isinstance(name, str) else bytes(memoryview(name))
    except UnicodeEncodeError:
        raise ValueError(f"a header's name has no UTF-8: {_shown(name)}{_at(topic)}") from None
    except TypeError:
        raise TypeError(f"a header's name must be a string, not {_shown(name)}{_at(topic)}") from None


def _shown(value: object) -> str:
    shown = repr(value)
    cut = shown if len(shown) <= _LONGEST_SHOWN else f"{shown[:_LONGEST_SHOWN]}..."
    return f"{type(value).__name__} {cut}"


def _at(topic: object) -> str:
    return f" (topic={topic})" if isinstance(topic, str) else ""
