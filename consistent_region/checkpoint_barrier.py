"""Frozen values that a coordinator returns to the members of a region."""

from dataclasses import dataclass
from typing import Final


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
class StorePast:
    """The past of a store. A `lineage` is one history of one region, from its first registration on.

    The lineage of an accepted store also names earlier ones (see `witness.py`).
    `voided_up_to`: the highest checkpoint that an operator went back behind. `accepted`: an operator
    accepted this store in the place of others, so evidence of them does not count.
    """

    lineage: str = ""
    voided_up_to: int = 0
    accepted: bool = False


NO_PAST: Final = StorePast()


@dataclass(frozen=True, slots=True)
class MembershipView:
    """A view of the region at its coordinator, which every call returns.

    `epoch`: the number of resets. `newest`: the newest complete checkpoint, None before the first. `age_s`: seconds
    since the last checkpoint was completed or abandoned, or since the region began. `stopped`: the reason if the region
    was stopped for good. `past`: the past of the store.
    """

    epoch: int
    newest: int | None
    barrier: Barrier | None
    age_s: float
    stopped: str | None = None
    past: StorePast = NO_PAST


@dataclass(frozen=True, slots=True)
class CheckpointTicket:
    """The identity of a member to its coordinator, in every write.

    A relaunch gets another incarnation. Later writes of the previous one are rejected.
    """

    region: str
    group: str
    member: str
    incarnation: int
