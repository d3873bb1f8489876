"""Which bounces take a group from one assignor to another, worked out by the coordinator's own rule.

The coordinator of a classic group uses an assignor that every member lists: of those, the one that most members list
first among them. A member whose list shares nothing with the group's is refused (InconsistentGroupProtocol). And a
client is COOPERATIVE only if every assignor in its list is, because it must decide what to give up before it knows
which one the group will use (KIP-429). So the old one leaves the lists only when everybody has the new one.
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
        """After how many restarted members the group turns to another assignor, if it does."""
        return next((number for number, name in enumerate(self.used) if name != self.used[0]), None)

    @property
    def kohort_setting(self) -> str:
        return f"assignors={list(self.settings)!r}"

    @property
    def java_setting(self) -> str:
        names = (f"org.apache.kafka.clients.consumer.{_JAVA_CLASSES.get(name, name)}" for name in self.settings)
        return f"partition.assignment.strategy={','.join(names)}"


def plan_migration(old: Assignor, new: Assignor, members: int) -> list[Bounce]:
    """The bounces, in order; none where both are the same. Raises `AssignorError` for a group of no members."""
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
    """The coordinator's choice among members' lists. Raises `AssignorError` where they share nothing.

    Of equal votes it takes the first by name here; a broker may take either, which is why a migration whose outcome
    hangs on a tie is only sure once all members have the same list.
    """
    shared = set(lists[0]).intersection(*lists[1:])
    if not shared:
        raise AssignorError("the members' lists share no assignor: the coordinator refuses whoever joins last")
    votes = Counter(next(name for name in names if name in shared) for names in lists)
    return min(votes, key=lambda name: (-votes[name], name))
