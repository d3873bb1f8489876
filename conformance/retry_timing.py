"""How long a run waits for what a sound broker says within milliseconds, and how often it sends the request again."""

from __future__ import annotations

from dataclasses import dataclass

FIRST_STEP_S = 0.03
LONGEST_STEP_S = 0.25
GROWTH = 1.3
TRIES = 3
BRIEF_S = 0.5


@dataclass
class Expected:
    """One thing that set-ups wait for, over a whole run: how often it came, and how often a full wait was in vain."""

    came: int = 0
    missed: int = 0

    def patience_s(self, usual_s: float) -> float:
        """Return `usual_s`, or a moment once `TRIES` full waits were in vain and none was not.

        Without that bound a broker that never sends it costs every check its full wait.
        """
        return usual_s if self.came or self.missed < TRIES else min(usual_s, BRIEF_S)


def steps() -> list[float]:
    """Return the pauses between two requests, in seconds; the last one repeats."""
    found = [FIRST_STEP_S]
    while found[-1] < LONGEST_STEP_S:
        found.append(min(found[-1] * GROWTH, LONGEST_STEP_S))
    return found


STEPS_S = tuple(steps())
