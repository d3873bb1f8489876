"""Triggers of a region's checkpoints."""

from dataclasses import dataclass

from kohort.consistent_region.setting_checks import check_positive, check_whole


@dataclass(frozen=True, slots=True)
class Periodic:
    """Begins a checkpoint the given seconds after the last was complete. The first member to find it due begins it.

    Raises ConfigurationError unless `seconds` is a positive, finite number.
    """

    seconds: float

    def __post_init__(self) -> None:
        check_positive("seconds", self.seconds)


@dataclass(frozen=True, slots=True)
class OperatorDriven:
    """After so many records submitted by one member, which then waits in `make_consistent` until all are consistent."""

    records: int

    def __post_init__(self) -> None:
        check_whole("records", self.records)


@dataclass(frozen=True, slots=True)
class Manual:
    """Only when `make_consistent` is called."""


Trigger = Periodic | OperatorDriven | Manual
