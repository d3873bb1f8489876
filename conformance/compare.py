"""Compares two reports: the cells in which two brokers, or two versions of one, differ."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kohort.conformance.report import Report
from kohort.conformance.verdict import CheckVerdict, Result


@dataclass(frozen=True, slots=True)
class Difference:
    """A cell whose verdicts differ. A side is None if its report does not have the cell."""

    check: str
    version: int
    left: Result | None
    right: Result | None

    @property
    def is_one_sided(self) -> bool:
        """True if one of the two has no verdict, so that they do not contradict each other."""
        sides = (self.left, self.right)
        return any(
            side is None or side.verdict in (CheckVerdict.NOT_APPLICABLE, CheckVerdict.BLOCKED) for side in sides
        )


def differences(left: Report, right: Report) -> list[Difference]:
    """Return every cell whose verdicts differ, in the left report's order, then the right report's own cells."""
    first, second = _cells(left.results), _cells(right.results)
    found = []
    for key in dict.fromkeys((*first, *second)):
        one, other = first.get(key), second.get(key)
        if (one.verdict if one else None) is not (other.verdict if other else None):
            found.append(Difference(*key, one, other))
    return found


def _cells(results: Iterable[Result]) -> dict[tuple[str, int], Result]:
    return {(result.check, result.version): result for result in results}
