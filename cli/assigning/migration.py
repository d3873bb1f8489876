"""The rolling restarts that take a group from one assignor to another, by the coordinator's rule.

The coordinator of a classic group uses an assignor that every member lists. Of those, it takes the one that most
members list first among them. A member whose list shares nothing with the group's is refused
(InconsistentGroupProtocol). A client is COOPERATIVE only if every assignor in its list is, because it revokes
partitions before it knows the group's assignor (KIP-429). So the old assignor leaves the lists only after every member
lists the new one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from kohort.assignors import Assignor, AssignorError, Rebalance

_JAVA_CLASSES = {
    "range": "RangeAssignor",
    "roundrobin": "RoundRobinAssignor",
    "sticky": "StickyAssignor",
    "cooperative-sticky": "CooperativeStickyAssignor",
}


@dataclass(frozen=True, slots=True)
class Bounce:
    """One rolling restart. `used`: the group's assignor after 0, 1, ... members have been restarted."""

    settings: tuple[str, ...]
    mode: Rebalance
    used: tuple[str, ...]

    @property
    def turns_at(self) -> int | None:
        """The number of restarted members at which the group changes its assignor, None if it does not."""
        return next((number for number, name in enumerate(self.used) if name != self.used[0]), None)

    @property
    def kohort_setting(self) -> str:
        return f"assignors={list(self.settings)!r}"

    @property
    def java_setting(self) -> str:
        names = (f"org.apache.kafka.clients.consumer.{_JAVA_CLASSES.get(name, name)}" for name in self.settings)
        return f"partition.assignment.strategy={','.join(names)}"


def plan_migration(old: Assignor, new: Assignor, members: int) -> list[Bounce]:
    """Return the bounces in order, none if both are the same. Raises `AssignorError` for a group of no members."""
    if members < 1:
        raise AssignorError(f"a group of {members} members has nothing to migrate")
    if old.name == new.name:
        return []
    known = {old.name: old, new.name: new}
    bounces = []
    before: tuple[str, ...] = (old.name,)
    for after in ((new.name, old.name), (new.name,)):
        used = tuple(chosen([after] * done + [before] * (members - done)) for done in range(members + 1))
        cooperative = all(known[name].rebalance is Rebalance.COOPERATIVE for name in after)
        bounces.append(Bounce(after, Rebalance.COOPERATIVE if cooperative else Rebalance.EAGER, used))
        before = after
    return bounces


def chosen(lists: Sequence[Sequence[str]]) -> str:
    """Return the coordinator's choice among members' lists. Raises `AssignorError` if they share nothing.

    Of equal votes the first by name is taken here. A broker may take either. The outcome of a migration with a tie is
    therefore certain only once all members have the same list.
    """
    shared = set(lists[0]).intersection(*lists[1:])
    if not shared:
        raise AssignorError("the members' lists share no assignor: the coordinator refuses the last member to join")
    votes = Counter(next(name for name in names if name in shared) for names in lists)
    return min(votes, key=lambda name: (-votes[name], name))
