"""A group at one moment."""

from dataclasses import dataclass

from kohort.admin import GroupDescription


@dataclass(frozen=True, slots=True)
class TimedSnapshot:
    """A group at one moment. `at_s`: seconds since the first snapshot. `lag`: the sum over all partitions."""

    at_s: float
    group: GroupDescription
    lag: int
