"""Brokers whose clocks err: silent, late or undecided members are kept too long, or given up too soon.

No bent response shows this, so the scripted broker's coordinator itself is changed; only TIMING checks look long
enough.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kohort.testing.fake_broker import FakeBroker, GroupCoordinator, GroupState
from tests.conformance.bending import Fault

NEVER = 1e12
Behaviour = Callable[[GroupCoordinator], None]


def changed(behaviour: Behaviour) -> Callable[[FakeBroker], None]:
    return lambda broker: behaviour(broker._cluster.groups.classic)


def _instead(coordinator: GroupCoordinator, name: str, make: Callable[[Any], Any]) -> None:
    """`make` gets the method as it is and gives another."""
    setattr(coordinator, name, make(getattr(coordinator, name)))


def silence_is_forgiven(coordinator: GroupCoordinator) -> None:
    def make(expire: Any) -> Any:
        def patient(now: float) -> None:
            for group in coordinator.groups.values():
                for member in group.members.values():
                    member.deadline = NEVER
            expire(now)

        return patient

    _instead(coordinator, "expire", make)


def unused_ids_are_kept(coordinator: GroupCoordinator) -> None:
    def make(expire: Any) -> Any:
        def patient(now: float) -> None:
            for group in coordinator.groups.values():
                group.pending = dict.fromkeys(group.pending, NEVER)
            expire(now)

        return patient

    _instead(coordinator, "expire", make)


def unused_ids_have_no_member(coordinator: GroupCoordinator) -> None:
    def make(progress: Any) -> Any:
        def hasty(group: Any, now: float) -> None:
            kept, group.pending = group.pending, {}
            progress(group, now)
            group.pending = kept

        return hasty

    _instead(coordinator, "_progress", make)


def _without_deadline_in(*states: GroupState) -> Behaviour:
    def behaviour(coordinator: GroupCoordinator) -> None:
        def make(expire: Any) -> Any:
            def patient(now: float) -> None:
                for group in coordinator.groups.values():
                    if group.state in states and not group.gathering:
                        group.deadline = None
                expire(now)

            return patient

        _instead(coordinator, "expire", make)

    return behaviour


def generations_without_members(coordinator: GroupCoordinator) -> None:
    def make(time_is_up: Any) -> Any:
        def hasty(group: Any, now: float) -> None:
            before, joining = group.generation, group.state is GroupState.PREPARING
            time_is_up(group, now)
            if joining and group.state is GroupState.PREPARING and group.members and group.generation == before:
                group.generation += 1

        return hasty

    _instead(coordinator, "_time_is_up", make)


def late_static_members_are_dropped(coordinator: GroupCoordinator) -> None:
    def make(time_is_up: Any) -> Any:
        def strict(group: Any, now: float) -> None:
            if group.state is GroupState.PREPARING and any(each.joining for each in group.members.values()):
                for member in [each for each in group.members.values() if each.joining is None]:
                    coordinator._forget(group, member)
            time_is_up(group, now)

        return strict

    _instead(coordinator, "_time_is_up", make)


def _keeps_deadline(name: str, where: Callable[[Any], bool] = lambda group: True) -> Behaviour:
    """The call gets its response, and does not extend the deadline."""

    def behaviour(coordinator: GroupCoordinator) -> None:
        def make(call: Any) -> Any:
            def deaf(first: Any, *rest: Any, **named: Any) -> Any:
                group = coordinator.groups.get(first if isinstance(first, str) else first.group_id)
                deadlines = {} if group is None else {each: each.deadline for each in group.members.values()}
                response = call(first, *rest, **named)
                if group is not None and where(group):
                    for member, deadline in deadlines.items():
                        member.deadline = deadline
                return response

            return deaf

        _instead(coordinator, name, make)

    return behaviour


FAULTS: tuple[Fault, ...] = (
    Fault("members may be silent as long as they like", changed(silence_is_forgiven), ("D5", "I6b", "I6")),
    Fault("an id that was given is kept for ever", changed(unused_ids_are_kept), ("B21a", "B21b")),
    Fault("an id that was given delays no member", changed(unused_ids_have_no_member), ("B21b",)),
    Fault(
        "a member that does not rejoin is waited for",
        changed(_without_deadline_in(GroupState.PREPARING)),
        ("B20", "I6", "D2b", "B22"),
    ),
    Fault(
        "a member that never syncs is waited for",
        changed(_without_deadline_in(GroupState.COMPLETING, GroupState.STABLE)),
        ("C10",),
    ),
    Fault("a generation begins without members", changed(generations_without_members), ("B22",)),
    Fault("a static member that is late is dropped", changed(late_static_members_are_dropped), ("I6",)),
    Fault("heartbeats are no sign of life", changed(_keeps_deadline("heartbeat")), ("D5b", "D2b", "B20", "D5")),
    Fault(
        "heartbeats during a rebalance are no sign of life",
        changed(_keeps_deadline("heartbeat", lambda group: group.state is GroupState.PREPARING)),
        ("D2b",),
    ),
    Fault("commits are no sign of life", changed(_keeps_deadline("commit_error")), ("D7",)),
)
