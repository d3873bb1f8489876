"""Retries as values: the delay and the failed attempts. Randomness and time are arguments.

Delays grow exponentially and have jitter, so that a thousand members that lost one broker do not reconnect at the same
moment (KIP-580).
"""

from kohort.common.named_tuple import NamedTuple

NEVER = float("inf")


class Backoff(NamedTuple):
    """Delays in milliseconds: `initial_ms * 2 ** (failures - 1)`, at most `max_ms`, blurred by +/- `jitter`."""

    initial_ms: float
    max_ms: float
    jitter: float = 0.2

    def delay_s(self, failures: int, chance: float) -> float:
        """Seconds to wait after `failures` failures in a row (1 is the first). `chance` is random, in [0, 1)."""
        if failures <= 0:
            return 0.0
        # 2 ** 1000 does not fit a float; past 30 doublings every backoff is at its ceiling anyway.
        grown_ms = min(self.initial_ms * 2.0 ** min(failures - 1, 30), self.max_ms)
        return grown_ms * (1 - self.jitter + 2 * self.jitter * chance) / 1000


class Attempts(NamedTuple):
    """Failures in a row, and the time (monotonic s) before which no retry is allowed."""

    failures: int = 0
    not_before: float = 0.0

    def failed(self, now: float, backoff: Backoff, chance: float) -> "Attempts":
        failures = self.failures + 1
        return Attempts(failures, now + backoff.delay_s(failures, chance))

    def may_try(self, now: float) -> bool:
        return now >= self.not_before


FRESH = Attempts()
