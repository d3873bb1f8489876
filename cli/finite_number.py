"""The check of options that are numbers with a fraction."""

import math

import typer


def finite(number: float | None) -> float | None:
    """Return the number. Raises BadParameter for infinity, and for nan, which passes `min` and `max`."""
    if number is not None and not math.isfinite(number):
        raise typer.BadParameter(f"{number} is not a finite number")
    return number
