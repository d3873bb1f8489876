"""The check of numbers in options and in JSON."""

import math

import typer


def json_number(text: str) -> float:
    """Parse a float of JSON. Raises ValueError for NaN and infinities, which only Python's reader takes for JSON."""
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"not a number in JSON: {text}")
    return value


def finite(number: float | None) -> float | None:
    """Return the number. Raises BadParameter for infinity, and for nan, which passes `min` and `max`."""
    if number is not None and not math.isfinite(number):
        raise typer.BadParameter(f"{number} is not a finite number")
    return number
