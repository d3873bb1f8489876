"""Checks of settings, whose refusals are errors of the region."""

from collections.abc import Callable
from typing import Any, Final, TypeVar

from kohort.consistent_region.errors import ConfigurationError

_T = TypeVar("_T")

LARGEST: Final = 1 << 53
"""Above any sensible setting. A record with a larger number could be stored, and not be read again."""


def check_positive(name: str, value: float) -> None:
    """Raise ConfigurationError unless the value is positive and finite, as a stored record and a consumer require."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < LARGEST:
        raise ConfigurationError(f"{name} must be more than 0 and less than {LARGEST}, not {value!r}", setting=name)


def check_whole(name: str, value: int) -> None:
    """Raise ConfigurationError unless the value is a whole number of 1 or more, as a stored record requires."""
    check_positive(name, value)
    if not isinstance(value, int):
        raise ConfigurationError(f"{name} must be a whole number, not {value!r}", setting=name)


def check_implements(what: str, value: object, protocol: type, setting: str) -> None:
    """Raise ConfigurationError unless the value is an instance with the methods of a protocol."""
    if isinstance(value, type):
        raise ConfigurationError(f"{what} is a class, and not an instance of {value.__name__}", setting=setting)
    methods = [name for name, part in vars(protocol).items() if callable(part) and not name.startswith("_")]
    if lacks := [name for name in methods if not callable(getattr(value, name, None))]:
        raise ConfigurationError(
            f"{what} lacks methods of a {protocol.__name__}: {', '.join(lacks)}",
            setting=setting,
            found=type(value).__name__,
        )


def given_as(check: Callable[[Any, str], _T], value: Any, setting: str) -> _T:
    """Return `check(value, setting)`. Raises its TypeError or ValueError as a ConfigurationError."""
    try:
        return check(value, setting)
    except (TypeError, ValueError) as wrong:
        raise ConfigurationError(str(wrong), setting=setting) from None
