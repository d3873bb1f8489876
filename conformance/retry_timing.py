"""Time-outs and retry intervals of a run, for states that a sound broker reaches within milliseconds."""

from __future__ import annotations

from dataclasses import dataclass

FIRST_STEP_S = 0.03
LONGEST_STEP_S = 0.25
GROWTH = 1.3
TRIES = 3
BRIEF_S = 0.5


@dataclass
class Expected:
    """Counts, over a whole run, how often an awaited state came, and how often a full wait timed out."""

    came: int = 0
    missed: int = 0

    def patience_s(self, usual_s: float) -> float:
        """Return `usual_s`, or at most `BRIEF_S` after `TRIES` full waits that timed out and none that did not.

        Without that bound, each check would wait in full for a state that the broker never reaches.
        """
        return usual_s if self.came or self.missed < TRIES else min(usual_s, BRIEF_S)


def steps() -> list[float]:
    """Return the pauses between two requests, in seconds. The last one repeats."""
    found = [FIRST_STEP_S]
    while found[-1] < LONGEST_STEP_S:
        found.append(min(found[-1] * GROWTH, LONGEST_STEP_S))
    return found


STEPS_S = tuple(steps())
