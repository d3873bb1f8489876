"""The check of numbers in options and in JSON."""

import math

import typer


def json_number(text: str) -> float:
    """Parse a float of JSON. Raises ValueError for NaN and infinities, which only Python's reader takes for JSON."""
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"not a number in JSON: {text}")
    return value


def whole(text: str) -> int | None:
    """Return the number that a text of at most 18 ASCII digits is, or None for another text. Raises no error."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= 18 else None


def finite(number: float | None) -> float | None:
    """Return the number. Raises BadParameter for infinity, and for nan, which passes `min` and `max`."""
    if number is not None and not math.isfinite(number):
        raise typer.BadParameter(f"{number} is not a finite number")
    return number
