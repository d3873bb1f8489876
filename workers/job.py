"""One attempt of a handler, and the consumer's side of attempts."""

from typing import Any, NamedTuple, Protocol

from kohort.fastpath import Record


class Job(NamedTuple):
    """One attempt with a record. `attempt` is 1 at first. `origin` belongs to the `Jobs` that made it."""

    record: Record
    attempt: int
    origin: Any


class Jobs(Protocol):
    """Makes jobs of polled records, and gives their outcomes to the consumer. One thread uses it.

    By default no job is the last or is gone, and what has no outcome needs no call.
    """

    @property
    def releases(self) -> bool:
        """True if a failed record is given back to the broker. Otherwise it stays here until it is done."""

    def add(self, polled: Any) -> None:
        """Take the result of a poll."""

    def next(self) -> Job | None:
        """The next job that may start. `started` follows."""

    def started(self, job: Job) -> None:
        """A handler has the job that `next` has returned."""
        return

    @property
    def blocked(self) -> bool:
        """True if there are records without a started job."""

    def is_last(self, attempt: int) -> bool:
        """True if the broker allows no further attempt."""
        return False

    def is_gone(self, job: Job) -> bool:
        """True if another member handles the record again, so that an outcome has no effect."""
        return False

    def done(self, job: Job) -> None:
        """The effect of the handler, or the dead letter, is done."""

    def again(self, job: Job) -> None:
        """The delay of a failed job is over."""

    def dead(self, job: Job) -> None:
        """The dead letter of the job is in the log."""

    def failed(self, job: Job, error: Exception) -> None:
        """The last attempt has failed, and there is no dead-letter topic."""

    def put_back(self, job: Job) -> None:
        """The job does not start, because the run ends."""
        return

    def stop(self) -> None:
        """Put back the records that have no job."""
        return
