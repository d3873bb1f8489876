"""Simulation of an event in a group under an assignor, round by round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kohort.assignors import Assignor, GroupView, Plan, Rebalance, make_plan
from kohort.assignors.group import Member
from kohort.assignors.group_file import from_json, to_json
from kohort.assignors.plan import NO_MEMBER
from kohort.cli.assigning.events import BadEvent, Document, check_size, happen
from kohort.cli.assigning.java_plans import JavaPlans
from kohort.common.whole_number import whole

MOST_ROUNDS = 5
_STICKY = frozenset({"sticky", "rack-sticky", "cooperative-sticky", "rack-cooperative-sticky"})
#: Java's plan for the comparison: the final plan, not the one after the first round.
_JAVA_NAME = {"range": "range", "roundrobin": "roundrobin", "sticky": "sticky", "cooperative-sticky": "target"}


@dataclass(frozen=True, slots=True)
class State:
    """A settled plan in numbers. `far`: partitions read from another rack, None without racks; `lag`: by member."""

    plan: Plan
    loads: Mapping[str, int]
    skew: int
    far_by_member: Mapping[str, int]
    lag: Mapping[str, int] | None

    @classmethod
    def of(cls, plan: Plan) -> State:
        loads = {member: len(plan[member]) for member in plan}
        return cls(plan, loads, _spread(loads), _far(plan), _lag(plan))

    @property
    def far(self) -> int | None:
        return sum(self.far_by_member.values()) if self.plan.group.racks is not None else None

    @property
    def lag_spread(self) -> int | None:
        return None if self.lag is None else _spread(self.lag)


@dataclass(frozen=True, slots=True)
class Beside:
    """Java's plan for the same event: the number of partitions with another owner than ours, and its state."""

    differs: int
    moves: int
    state: State


@dataclass(frozen=True, slots=True)
class SimulationResult:
    """The effect of the event under one assignor.

    `moves`: partitions with a new owner. `forced`: moves whose old owner left or no longer subscribes to the topic.
    `stopped`: partitions whose owner stays in the group but stops reading, if only for the rebalance. `rounds`:
    rebalances until no partition moves.
    """

    assignor: str
    rebalance: Rebalance
    before: State
    after: State
    moves: int
    forced: int
    stopped: int
    rounds: int
    java: Beside | None = field(default=None)


def simulate(document: Document, assignor: Assignor, event: str | None, java: JavaPlans | None) -> SimulationResult:
    """Simulate the event in the settled group of the document, and settle it again.

    Members that own partitions in the document start with those. A group without owners is planned first.
    Raises `PlanError` for a plan that would break the group, and what `happen` raises.
    """
    group = from_json(document)
    before = (
        _as_owned(group) if any(member.owned_partitions for member in group.members) else settle(group, assignor)[0]
    )
    owned = {**document, "members": _owning(document["members"], before)}
    changed = from_json(happen(owned, event) if event else owned)
    after, rounds = settle(changed, assignor)
    was, now = _named(before), _named(after)
    held = {where for member in changed.members for where in map(changed.partition, member.owned_partitions)}
    moved = [where for where, owner in was.items() if where in now and now[where] != owner]
    forced = [where for where in moved if where not in held]
    eager = assignor.rebalance is Rebalance.EAGER
    return SimulationResult(
        assignor=assignor.name,
        rebalance=assignor.rebalance,
        before=State.of(before),
        after=State.of(after),
        moves=len(moved),
        forced=len(forced),
        stopped=len(held) if eager and rounds else len(moved) - len(forced),
        rounds=rounds,
        java=None if java is None else _beside(java, changed, assignor, after, was),
    )


def settle(group: GroupView, assignor: Assignor) -> tuple[Plan, int]:
    """Return (the final plan, the number of rebalances)."""
    view = _reported(group, assignor, None)
    for rounds in range(1, MOST_ROUNDS + 1):
        plan = make_plan(assignor, view)
        if NO_MEMBER not in plan.owners:
            return plan, rounds
        view = _reported(view, assignor, plan)
    return plan, MOST_ROUNDS


def _reported(group: GroupView, assignor: Assignor, plan: Plan | None) -> GroupView:
    """Return the group as its members describe it in JoinGroup, with their owned partitions and user data."""
    members = {}
    for member in group.members:
        owned = [group.partition(index) for index in member.owned_partitions] if plan is None else list(plan[member.id])
        reported = assignor.subscription(member.topics, owned, member.generation)
        members[member.id] = {
            "topics": member.topics,
            "owned": reported.owned_partitions if assignor.rebalance is Rebalance.COOPERATIVE else (),
            "generation": member.generation,
            "rack": member.rack,
            "instance_id": member.instance_id,
            "user_data": _user_data(member, reported.user_data, assignor.name),
        }
    document = to_json(group)
    lag = {(topic, n): waiting for topic, row in document.get("lag", {}).items() for n, waiting in enumerate(row)}
    return GroupView.of(document["partitions"], members, document.get("racks"), lag if group.lag is not None else None)


def _user_data(member: Member, reported: bytes | None, assignor: str) -> bytes | None:
    """Return the user data of the file (a weight, or a user's own), except that ownership is always encoded again."""
    return reported if assignor in _STICKY or member.user_data is None else member.user_data


def _as_owned(group: GroupView) -> Plan:
    """Return the plan that the members claim. A partition that two of them claim has no owner."""
    claimed: dict[int, list[int]] = {}
    for number, member in enumerate(group.members):
        for index in member.owned_partitions:
            claimed.setdefault(index, []).append(number)
    owned: dict[str, list[tuple[str, int]]] = {}
    for index, members in claimed.items():
        if len(members) == 1:
            owned.setdefault(group.members[members[0]].id, []).append(group.partition(index))
    return Plan.of(group, owned)


def _owning(members: Mapping[str, Mapping[str, Any]], plan: Plan) -> dict[str, dict[str, Any]]:
    return {
        name: {
            **said,
            "owned": {topic: list(row) for topic, row in plan[name].by_topic()},
            "generation": max(1, said.get("generation", 1)),
        }
        for name, said in members.items()
    }


def _beside(
    java: JavaPlans, group: GroupView, assignor: Assignor, ours: Plan, was: Mapping[object, str]
) -> Beside | None:
    name = _JAVA_NAME.get(assignor.name)
    if name is None:
        return None
    theirs = java.plans(_reported(group, assignor, None), [name])[name]
    mine, their = _named(ours), _named(theirs)
    differs = sum(mine[where] != their.get(where) for where in mine)
    return Beside(
        differs, sum(where in their and their[where] != owner for where, owner in was.items()), State.of(theirs)
    )


def _named(plan: Plan) -> dict[object, str]:
    return {partition: member for member in plan for partition in plan[member]}


def _spread(row: Mapping[str, int]) -> int:
    return max(row.values(), default=0) - min(row.values(), default=0)


def _far(plan: Plan) -> dict[str, int]:
    group = plan.group
    if group.racks is None:
        return {}
    far = dict.fromkeys(plan, 0)
    for index, owner in enumerate(plan.owners):
        if owner != NO_MEMBER:
            member = group.members[owner]
            far[member.id] += member.rack is not None and member.rack not in group.racks[index]
    return far


def _lag(plan: Plan) -> dict[str, int] | None:
    lag = plan.group.lag
    if lag is None:
        return None
    return {member: sum(lag[index] for index in plan[member].indexes) for member in plan}


def from_numbers(topics: Sequence[str], members: int, racks: int, lag: int) -> Document:
    """Build a group from numbers: topics as NAME:PARTITIONS, every member subscribed to all of them.

    Racks are assigned to members in turn, and each partition has replicas in two racks. `lag` is the greatest lag. The
    k-th partition has the k-th part of it.
    """
    partitions: dict[str, int] = {}
    for topic in topics:
        name, _, text = topic.rpartition(":")
        count = whole(text)
        if not name or count is None:
            raise BadEvent(f"a topic is NAME:PARTITIONS, not {topic!r}")
        partitions[name] = count
    width = len(str(members))
    named = [f"member-{number:0{width}}" for number in range(1, members + 1)]
    document: Document = {
        "kohort": "group",
        "version": 1,
        "partitions": partitions,
        "members": {name: {"topics": list(partitions)} for name in named},
    }
    check_size(document)
    if racks:
        for number, name in enumerate(named):
            document["members"][name]["rack"] = f"rack-{number % racks + 1}"
        document["racks"] = {
            topic: [[f"rack-{(n + k) % racks + 1}" for k in range(min(2, racks))] for n in range(count)]
            for topic, count in partitions.items()
        }
    if lag:
        ranks = iter(range(1, sum(partitions.values()) + 1))
        document["lag"] = {topic: [lag // next(ranks) for _ in range(count)] for topic, count in partitions.items()}
    return document
