"""A group at one moment."""

from dataclasses import dataclass

from kohort.admin import GroupDescription


@dataclass(frozen=True, slots=True)
class TimedSnapshot:
    """`at_s`: seconds since the first look. `lag`: records that wait, in all partitions together."""

    at_s: float
    group: GroupDescription
    lag: int
