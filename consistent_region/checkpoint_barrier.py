"""Frozen values that a coordinator returns to the members of a region."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Barrier:
    """A checkpoint under way. Only `members` contribute, once each, and only under this epoch and generation.

    The names and the generation are part of it, so that a cut can never mix two assignments.
    """

    sequence: int
    epoch: int
    generation: int
    members: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MembershipView:
    """The region as its coordinator has it; every call returns it.

    `epoch`: how many times it was reset. `newest`: the newest complete checkpoint, None before the first. `age_s`:
    seconds since a checkpoint was last complete, or begun in vain, or since the region began. `stopped`: why it was
    stopped for good, if it was.
    """

    epoch: int
    newest: int | None
    barrier: Barrier | None
    age_s: float
    stopped: str | None = None


@dataclass(frozen=True, slots=True)
class CheckpointTicket:
    """The identity of a member to its coordinator; every write carries it. A relaunch gets a higher incarnation.
    Later writes of the previous incarnation are refused."""

    region: str
    group: str
    member: str
    incarnation: int
