"""F-08: each edge of the transition table has a walk that takes it, and no walk takes one that is not there."""

from collections.abc import Callable

import pytest

from kohort.common.errors import KohortError
from kohort.coordinator_client.group import events as ev
from kohort.coordinator_client.group.states import TRANSITIONS, StateTracker, Trigger
from tests.coordinator_client.group.member_rig import Rig, as_leader, said, tps
from tests.coordinator_client.group.test_member_cooperative import Cooperative

T = tps("t-0..1")
OFFSETS = dict.fromkeys(T, 1)
GENTLE = {"protocol": "gentle"}


def eager(state: str) -> Rig:
    """An EAGER member in `state`: holding T where it can, sent away by a heartbeat's response."""
    rig = Rig(max_poll_interval_ms=20_000)
    if state == "OUT":
        return rig
    rig.subscribe("t")
    if state == "SEARCHING":
        return rig
    rig.found()
    if state == "JOINING":
        return rig
    if state == "PLANNING":
        rig.joined(**as_leader(said("m1", "t"), said("m2", "u")))
        return rig
    rig.joined()
    if state == "SYNCING":
        return rig
    rig.synced(assigned=() if state == "IDLE" else T)
    if state == "ASSIGNING":
        return rig
    rig.run_hook()
    if state in ("STABLE", "IDLE"):
        return rig
    rig.heartbeat(25 if state == "LOSING" else 27)
    if state in ("LOSING", "REVOKING"):
        return rig
    rig.run_hook(commit=OFFSETS)
    assert state == "COMMITTING"
    return rig


def cooperative(state: str) -> Rig:
    """A COOPERATIVE member in `state`, holding T; REVOKING and COMMITTING are about t-1 alone."""
    rig = Rig(Cooperative(), max_poll_interval_ms=20_000)
    rig.reach_stable(T, protocol="gentle")
    if state == "STABLE":
        return rig
    rig.heartbeat(27)
    if state == "JOINING":
        return rig
    if state == "PLANNING":
        rig.joined(generation=2, **GENTLE, **as_leader(said("m1", "t"), said("m2", "u")))  # type: ignore[arg-type]
        return rig
    rig.joined(generation=2, **GENTLE)  # type: ignore[arg-type]
    if state == "SYNCING":
        return rig
    if state == "ASSIGNING":
        rig.synced(assigned=tps("t-0..2"))
        return rig
    rig.synced(assigned=tps("t-0"))
    if state == "REVOKING":
        return rig
    rig.run_hook(commit=OFFSETS)
    assert state == "COMMITTING"
    return rig


def close(rig: Rig) -> Rig:
    rig.post(ev.CloseRequested(rig.now + 5))
    return rig


def stall(rig: Rig) -> Rig:
    rig.after(21)
    return rig


def stalled(rig: Rig) -> Rig:
    assert stall(rig).state == "STALLED"
    return rig


def refuse(rig: Rig) -> Rig:
    """A fatal error, by way of the next heartbeat."""
    rig.after(3)
    rig.post(ev.RequestFailed(rig.waiting("Heartbeat").serial, KohortError("no")))
    return rig


def refuse_inside_hook(rig: Rig) -> Rig:
    call = rig.start_hook()
    refuse(rig)
    rig.end_hook(call)
    return rig


def failed(rig: Rig) -> Rig:
    rig.joined(30)
    return rig


def close_inside_hook(rig: Rig) -> Rig:
    call = rig.start_hook()
    close(rig)
    rig.end_hook(call)
    return rig


def searching_and_stalled() -> Rig:
    rig = eager("SEARCHING")
    rig.after(21)
    assert rig.state == "STALLED"
    rig.found(30)
    return rig


WALKS: dict[str, Callable[[], object]] = {
    "OUT SUBSCRIBED": lambda: eager("OUT").subscribe("t"),
    "OUT GAVE_UP": lambda: (rig := eager("SEARCHING"), rig.post(ev.Unsubscribed()), rig.found(30)),
    "OUT CLOSED": lambda: close(eager("OUT")),
    "LOSING FREE_TO_JOIN": lambda: eager("LOSING").run_hook(),
    "LOSING FREE_TO_LEAVE": lambda: (rig := eager("LOSING"), close(rig), rig.run_hook()),
    "LOSING FREE_TO_STOP": lambda: (rig := eager("STABLE"), refuse(rig), rig.run_hook()),
    "LOSING CLOSED": lambda: (rig := eager("LOSING"), close(rig), rig.after(6)),
    "REVOKING LET_GO": lambda: eager("REVOKING").run_hook(commit=OFFSETS),
    "REVOKING FREE_TO_JOIN": lambda: eager("REVOKING").run_hook(),
    "REVOKING FREE_TO_TAKE": lambda: cooperative("REVOKING").run_hook(),
    "REVOKING FREE_TO_LEAVE": lambda: (rig := eager("STABLE"), close(rig), rig.run_hook()),
    "REVOKING FREE_TO_STOP": lambda: refuse_inside_hook(eager("REVOKING")),
    "REVOKING MUST_REVOKE": lambda: close_inside_hook(cooperative("REVOKING")),
    "REVOKING LOST": lambda: eager("REVOKING").heartbeat(25),
    "REVOKING STALLED": lambda: stall(eager("REVOKING")),
    "REVOKING CLOSED": lambda: (rig := eager("REVOKING"), close(rig), rig.after(6)),
    "COMMITTING FREE_TO_JOIN": lambda: eager("COMMITTING").settle(),
    "COMMITTING FREE_TO_TAKE": lambda: cooperative("COMMITTING").settle(),
    "COMMITTING FREE_TO_LEAVE": lambda: (rig := eager("COMMITTING"), close(rig), rig.settle()),
    "COMMITTING FREE_TO_STOP": lambda: refuse(eager("COMMITTING")),
    "COMMITTING MUST_REVOKE": lambda: (rig := cooperative("COMMITTING"), close(rig), rig.settle()),
    "COMMITTING LOST": lambda: cooperative("COMMITTING").heartbeat(25),
    "COMMITTING STALLED": lambda: stall(cooperative("COMMITTING")),
    "COMMITTING CLOSED": lambda: (rig := eager("COMMITTING"), close(rig), rig.after(6)),
    "JOINING JOINED": lambda: eager("JOINING").joined(),
    "JOINING LEADS": lambda: eager("PLANNING"),
    "JOINING AGAIN": lambda: eager("JOINING").joined(79, me="given"),
    "JOINING MUST_REVOKE": lambda: close(cooperative("JOINING")),
    "JOINING MUST_LEAVE": lambda: close(eager("JOINING")),
    "JOINING LOST": lambda: cooperative("JOINING").joined(25),
    "JOINING LOST_NOTHING": lambda: eager("JOINING").joined(25),
    "JOINING STALLED": lambda: stall(eager("JOINING")),
    "JOINING GAVE_UP": lambda: eager("JOINING").joined(30),
    "PLANNING PLANNED": lambda: eager("PLANNING").topics(t=1, u=1),
    "PLANNING MUST_REVOKE": lambda: close(cooperative("PLANNING")),
    "PLANNING MUST_LEAVE": lambda: close(eager("PLANNING")),
    "PLANNING LOST": lambda: cooperative("PLANNING").heartbeat(25),
    "PLANNING LOST_NOTHING": lambda: eager("PLANNING").heartbeat(25),
    "PLANNING STALLED": lambda: stall(eager("PLANNING")),
    "PLANNING GAVE_UP": lambda: refuse(eager("PLANNING")),
    "SYNCING ASSIGNED": lambda: eager("SYNCING").synced(assigned=T),
    "SYNCING MUST_REVOKE": lambda: cooperative("REVOKING"),
    "SYNCING AGAIN": lambda: eager("SYNCING").synced(27),
    "SYNCING MUST_LEAVE": lambda: close(eager("SYNCING")),
    "SYNCING LOST": lambda: cooperative("SYNCING").synced(25),
    "SYNCING LOST_NOTHING": lambda: eager("SYNCING").synced(25),
    "SYNCING STALLED": lambda: stall(eager("SYNCING")),
    "SYNCING GAVE_UP": lambda: eager("SYNCING").synced(30),
    "ASSIGNING TAKEN": lambda: eager("ASSIGNING").run_hook(),
    "ASSIGNING MUST_REVOKE": lambda: close(cooperative("ASSIGNING")),
    "ASSIGNING MUST_LEAVE": lambda: close(eager("ASSIGNING")),
    "ASSIGNING LOST": lambda: cooperative("ASSIGNING").heartbeat(25),
    "ASSIGNING LOST_NOTHING": lambda: eager("ASSIGNING").heartbeat(25),
    "ASSIGNING STALLED": lambda: stall(eager("ASSIGNING")),
    "ASSIGNING GAVE_UP": lambda: refuse(eager("ASSIGNING")),
    "ASSIGNING CLOSED": lambda: (rig := eager("ASSIGNING"), rig.start_hook(), close(rig), rig.after(6)),
    "STABLE MUST_REVOKE": lambda: eager("STABLE").heartbeat(27),
    "STABLE MUST_JOIN": lambda: cooperative("STABLE").heartbeat(27),
    "STABLE MUST_LEAVE": lambda: close(eager("IDLE")),
    "STABLE LOST": lambda: eager("STABLE").heartbeat(25),
    "STABLE LOST_NOTHING": lambda: eager("IDLE").heartbeat(25),
    "STABLE STALLED": lambda: stall(eager("STABLE")),
    "STABLE GAVE_UP": lambda: eager("IDLE").heartbeat(30),
    "STALLED LOST": lambda: (rig := stalled(eager("STABLE")), rig.post(ev.Polled(rig.now))),
    "STALLED POLLED_AGAIN": lambda: (rig := stalled(eager("IDLE")), rig.post(ev.Polled(rig.now))),
    "STALLED GAVE_UP": lambda: (rig := searching_and_stalled(), rig.post(ev.Polled(rig.now))),
    "STALLED MUST_LEAVE": lambda: close(stalled(eager("IDLE"))),
    "STALLED CLOSED": lambda: (
        rig := eager("REVOKING"),
        rig.start_hook(),
        stalled(rig),
        close(rig),
        rig.after(6),
    ),
    "LEAVING LEFT": lambda: (rig := eager("IDLE"), rig.post(ev.Unsubscribed()), rig.left()),
    "LEAVING SUBSCRIBED": lambda: (rig := eager("IDLE"), rig.post(ev.Unsubscribed()), rig.subscribe("t")),
    "LEAVING CLOSED": lambda: (rig := eager("IDLE"), close(rig), rig.after(5)),
    "FAILED SUBSCRIBED": lambda: failed(eager("JOINING")).subscribe("u"),
    "FAILED MUST_LEAVE": lambda: close(failed(eager("JOINING"))),
}

EDGES = [f"{state.name} {trigger.name}" for state, row in TRANSITIONS.items() for trigger in row]


@pytest.mark.proves("F-08")
@pytest.mark.parametrize("edge", EDGES)
def test_each_edge_has_a_walk_that_takes_it(edge: str, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[str] = []

    def recorded(tracker: StateTracker, trigger: Trigger) -> None:
        taken.append(f"{tracker.state.name} {trigger.name}")
        transition(tracker, trigger)

    transition = StateTracker.transition
    monkeypatch.setattr(StateTracker, "transition", recorded)
    WALKS[edge]()
    assert edge in taken


def test_no_walk_is_left_of_an_edge_that_is_gone() -> None:
    assert set(WALKS) == set(EDGES)
