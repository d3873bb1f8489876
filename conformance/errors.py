"""Exceptions that end a check early, and errors that end a run."""

from kohort.common.errors import KohortError


class ConformanceError(KohortError):
    """The run cannot go on, or cannot start."""


class TargetUnreachable(ConformanceError):
    """The address does not respond like a Kafka broker. The hint has the probable cause."""


class SelectionError(ConformanceError):
    """`--only` matches no check."""


class ProfileError(ConformanceError):
    """A profile of deviations that cannot be read."""


class CheckEnd(Exception):  # not an error: a verdict on its way up
    """Ends a check; never leaves the runner."""


class Failed(CheckEnd):
    """The broker did not do what is expected. Has the subject, the expected and the observed value."""

    def __init__(self, what: str, expected: object, observed: object) -> None:
        super().__init__(f"{what}: expected {expected}, observed {observed}")
        self.what, self.expected, self.observed = what, expected, observed


class Blocked(CheckEnd):
    """The set-up of the check failed, so the check has no result."""


class NotApplicable(CheckEnd):
    """The rule does not apply to this broker, for the given reason."""


class PeerClosed(CheckEnd):
    """The broker closed the connection instead of sending a response."""


class MissingResponse(CheckEnd):
    """No response within the time-out."""
