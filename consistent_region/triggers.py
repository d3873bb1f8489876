"""Triggers of a region's checkpoints."""

from dataclasses import dataclass

from kohort.consistent_region.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class Periodic:
    """Begins a checkpoint the given seconds after the last was complete. The first member to find it due begins it.

    Raises ConfigurationError if `seconds` is not above 0.
    """

    seconds: float

    def __post_init__(self) -> None:
        if not self.seconds > 0:
            raise ConfigurationError(f"a period is longer than nothing: {self.seconds} s", setting="trigger")


@dataclass(frozen=True, slots=True)
class OperatorDriven:
    """After so many records submitted by one member, which then waits in `make_consistent` until all are consistent."""

    records: int

    def __post_init__(self) -> None:
        if isinstance(self.records, bool) or not isinstance(self.records, int) or self.records < 1:
            raise ConfigurationError(f"records must be a whole number, not {self.records!r}", setting="trigger")


@dataclass(frozen=True, slots=True)
class Manual:
    """Only when `make_consistent` is called."""


Trigger = Periodic | OperatorDriven | Manual
