"""Static membership (KIP-345) and its leader that comes back (KIP-814)."""

import pytest

from kohort.assignors import Assignor
from kohort.coordinator_client.group import events as ev
from kohort.coordinator_client.group.error_actions import FencedInstance
from kohort.coordinator_client.hooks import Lost
from kohort.protocol.membership import StickyUserData, parse_sticky
from tests.coordinator_client.group.member_rig import Rig, TopicsOnly, said, tps, wire

T = tps("t-0..1")


@pytest.mark.proves("G-17")
def test_the_instance_id_is_in_every_request() -> None:
    rig = Rig(instance_id="pod-1", leave_on_close=True)
    rig.reach_stable(T)
    rig.heartbeat(27)
    rig.run_hook(commit=dict.fromkeys(T, 1))
    assert rig.order is not None
    assert rig.order.identity.instance_id == "pod-1"
    rig.settle()
    rig.again(T, generation=2)
    rig.run_hook()
    rig.heartbeat()
    rig.post(ev.CloseRequested(rig.now + 5))
    rig.run_hook()
    for api in ("JoinGroup", "SyncGroup", "Heartbeat"):
        assert {request.group_instance_id for request in rig.requested(api)} == {"pod-1"}
    assert rig.last("LeaveGroup").members[0].group_instance_id == "pod-1"


@pytest.mark.proves("G-17")
def test_close_of_a_static_member_does_not_leave() -> None:
    rig = Rig(instance_id="pod-1")
    rig.reach_stable(T)
    rig.post(ev.CloseRequested(rig.now + 5))
    rig.run_hook()
    assert rig.state == "CLOSED"
    assert not rig.requested("LeaveGroup")


@pytest.mark.proves("G-17")
def test_unsubscribe_of_a_static_member_does_not_leave() -> None:
    rig = Rig(instance_id="pod-1")
    rig.reach_stable(T)
    rig.post(ev.Unsubscribed())
    rig.run_hook()
    assert rig.state == "OUT"
    assert not rig.requested("LeaveGroup")


@pytest.mark.proves("G-17")
def test_a_stalled_static_member_goes_silent_without_leaving() -> None:
    rig = Rig(instance_id="pod-1", max_poll_interval_ms=10_000)
    rig.reach_stable(T)
    rig.after(11)
    assert rig.state == "STALLED"
    assert not rig.requested("LeaveGroup")
    beats = len(rig.requested("Heartbeat"))
    rig.after(30)
    assert len(rig.requested("Heartbeat")) == beats


@pytest.mark.proves("G-17", "B-42")
def test_the_older_holder_of_an_instance_id_is_fenced_and_stays_so() -> None:
    rig = Rig(instance_id="pod-1")
    rig.reach_stable(T)
    rig.heartbeat(82)
    call = rig.run_hook()
    assert isinstance(call.event, Lost)
    assert rig.state == "FAILED"
    assert isinstance(rig.ready.view.fatal, FencedInstance)
    assert len(rig.requested("JoinGroup")) == 1, "it does not fight for the name"


@pytest.mark.proves("G-17")
def test_a_returning_leader_that_must_not_assign_syncs_with_nothing_but_keeps_watch() -> None:
    """KIP-814: the coordinator has the assignment still; the leader still must look after the group's topics."""
    rig = Rig(instance_id="pod-1")
    rig.topics(t=2)
    rig.reach_joining("t")
    members = (said("m1", "t", instance="pod-1"), said("m2", "t", "u", instance="pod-2"))
    rig.joined(leader=None, members=members, skip=True)
    assert rig.state == "SYNCING"
    assert rig.last("SyncGroup").assignments == ()
    rig.synced(assigned=T)
    rig.run_hook()
    assert rig.state == "STABLE"
    assert rig.ready.wanted.names == {"t", "u"}
    rig.topics(u=3)
    assert rig.state == "STABLE", "that u has 3 partitions is new to us, not to the group"
    rig.topics(u=4)
    assert rig.state == "REVOKING", "that it has 4 now is new to the group"


@pytest.mark.proves("G-17")
@pytest.mark.parametrize("looked_up", ["before the join", "after it"])
def test_a_returning_leader_assigns_a_topic_that_did_not_exist_at_its_return(looked_up: str) -> None:
    rig = Rig(instance_id="pod-1")
    if looked_up == "before the join":
        rig.topics(t=2, u=0)
    rig.reach_joining("t", "u")
    rig.joined(leader=None, members=(said("m1", "t", "u", instance="pod-1"),), skip=True)
    rig.synced(assigned=T)
    rig.run_hook()
    if looked_up == "after it":
        rig.topics(t=2, u=0)
    assert rig.state == "STABLE"
    rig.topics(t=2, u=3)
    assert rig.state == "REVOKING"


@pytest.mark.proves("G-17")
@pytest.mark.parametrize(
    "assignor", ["range", "sticky", "cooperative-sticky", TopicsOnly()], ids=["range", "sticky", "cooperative", "own"]
)
def test_a_member_with_other_topics_than_its_predecessor_joins_differently(assignor: str | Assignor) -> None:
    """A coordinator returns the predecessor's assignment again to an equal join."""
    rig = Rig(assignor, instance_id="pod-1")
    rig.reach_joining("u")
    protocol = rig.last("JoinGroup").protocols[0].name
    rig.joined(generation=7, protocol=protocol)
    rig.synced(assigned=T)
    rig.after(1)
    first, second = rig.requested("JoinGroup")
    assert first.protocols != second.protocols
    rig.joined(generation=8, protocol=protocol)
    rig.synced(assigned=tps("u-0"))
    rig.run_hook()
    assert (rig.state, rig.owned) == ("STABLE", tps("u-0"))


@pytest.mark.proves("G-17")
def test_an_assignment_that_was_not_accepted_is_not_claimed() -> None:
    rig = Rig("sticky", instance_id="pod-1")
    rig.reach_stable(T, protocol="sticky")
    rig.heartbeat(27)
    rig.run_hook()
    assert parse_sticky(rig.reported("sticky").user_data or b"") == StickyUserData(
        previous_assignment=wire(T), generation=1
    )
    rig.again(tps("u-0"), generation=2, protocol="sticky")
    rig.after(1)
    assert parse_sticky(rig.reported("sticky").user_data or b"") == StickyUserData(previous_assignment=(), generation=2)
