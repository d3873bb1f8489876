"""What ends a check early, and what ends a run."""

from kohort.common.errors import KohortError


class ConformanceError(KohortError):
    """The run cannot go on, or cannot start."""


class TargetUnreachable(ConformanceError):
    """Nothing at the address answers as a Kafka broker would; the hint says what it may be instead."""


class SelectionError(ConformanceError):
    """`--only` names a check that there is none of."""


class ProfileError(ConformanceError):
    """A profile of deviations that cannot be read."""


class CheckEnd(Exception):  # not an error: a verdict on its way up
    """Ends a check; never leaves the runner."""


class Failed(CheckEnd):
    """The broker did not do what is expected: what was looked at, and both sides."""

    def __init__(self, what: str, expected: object, observed: object) -> None:
        super().__init__(f"{what}: expected {expected}, observed {observed}")
        self.what, self.expected, self.observed = what, expected, observed


class Blocked(CheckEnd):
    """The set-up before the point in question did not work, so that nothing can be said about the point."""


class NotApplicable(CheckEnd):
    """The rule says nothing about this broker, and why."""


class PeerClosed(CheckEnd):
    """The broker closed the connection instead of answering."""


class NoAnswer(CheckEnd):
    """No answer within the time that every answer must come in."""
