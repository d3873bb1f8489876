"""The delays and the number of attempts of a record."""

from kohort.common.named_tuple import NamedTuple


class Retry(NamedTuple):
    """A handler's failure is followed by another attempt after a delay.

    `attempts`: the most attempts, with the first. `delay_s`: before the second attempt. `factor`: of each further
    delay. `max_delay_s`: the longest delay. `no_retry`: errors after which there is no further attempt.
    """

    attempts: int = 5
    delay_s: float = 1.0
    factor: float = 2.0
    max_delay_s: float = 60.0
    no_retry: tuple[type[Exception], ...] = ()

    def after_s(self, attempt: int) -> float:
        """The delay (s) after a failed attempt; the first attempt is 1. It raises no error."""
        delay_s = self.delay_s
        for _ in range(attempt - 1):
            if delay_s >= self.max_delay_s:
                break
            delay_s *= self.factor
        return min(delay_s, self.max_delay_s)
