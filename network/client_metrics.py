"""Counters and windows of any client."""

from math import inf
from typing import Final

WINDOW_S: Final = 30.0


class Counters:
    """Counters of a client, which only grow. Some are used by consumers only."""

    polls: int = 0
    hooks: int = 0
    slices: int = 0
    records: int = 0
    fetches: int = 0
    fetch_failures: int = 0
    fetched_bytes: int = 0
    corrupt_batches: int = 0
    commits: int = 0
    commits_refused: int = 0
    resets: int = 0
    requests: int = 0
    request_failures: int = 0
    throttled_ms: int = 0
    connections_opened: int = 0
    connections_ended: int = 0


class SampledWindow:
    """Mean, maximum and rate of what was measured in the last 30 to 60 s, as Java's client has it by default.

    Two halves: the one being filled, and the one before it. Times are monotonic seconds.
    """

    __slots__ = ("_before", "_began", "_filling", "count")

    def __init__(self) -> None:
        self.count = 0
        self._began = -inf
        self._filling = self._before = (0, 0.0, -inf)

    def add(self, value: float, now: float) -> None:
        """One measurement."""
        if now - self._began >= WINDOW_S:
            self._turn(now)
        count, total, most = self._filling
        self._filling = (count + 1, total + value, value if value > most else most)
        self.count += 1

    def _turn(self, now: float) -> None:
        age_s = now - self._began
        if age_s >= WINDOW_S:
            self._before = self._filling if age_s < 2 * WINDOW_S else (0, 0.0, -inf)
            self._filling = (0, 0.0, -inf)
            self._began = now

    def mean(self, now: float) -> float | None:
        """None: nothing was measured in that time."""
        self._turn(now)
        count = self._filling[0] + self._before[0]
        return (self._filling[1] + self._before[1]) / count if count else None

    def most(self, now: float) -> float | None:
        """As `mean`."""
        self._turn(now)
        most = max(self._filling[2], self._before[2])
        return None if most == -inf else most

    def rate(self, now: float) -> float:
        """Measurements a second."""
        self._turn(now)
        over_s = now - self._began + (WINDOW_S if self._before[0] else 0.0)
        return (self._filling[0] + self._before[0]) / max(over_s, WINDOW_S)
