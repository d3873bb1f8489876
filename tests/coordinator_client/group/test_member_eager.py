"""The EAGER walk: revoke all, commit, join, sync, assign; and the requests that the coordinator gets on the way."""

import pytest

from kohort.coordinator_client.group import events as ev
from kohort.coordinator_client.group.member_timers import MemberSettings, MemberTimers
from kohort.coordinator_client.group.states import CoordinatorState
from kohort.coordinator_client.hooks import Assigned, RebalanceReason, Revoked, Start
from kohort.network.find_coordinator import CoordinatorNode
from kohort.network.requests import Endpoint
from tests.coordinator_client.group.member_rig import GROUP, Rig, as_leader, said, tps

T = tps("t-0..2")


@pytest.mark.proves("F-08")
def test_a_member_without_a_subscription_sends_no_request() -> None:
    rig = Rig()
    assert rig.state == "OUT"
    assert rig.sends == []
    assert rig.ready.wake_at is None
    assert rig.member._coordinator.state is CoordinatorState.UNKNOWN


@pytest.mark.proves("G-01", "F-08")
def test_a_subscription_starts_the_walk_with_any_broker() -> None:
    rig = Rig()
    rig.subscribe("t")
    assert [(send.api, send.to) for send in rig.sends] == [("FindCoordinator", None)]
    send = rig.waiting("FindCoordinator")
    assert send.request.coordinator_keys == (GROUP,)
    assert rig.state == "JOINING"


@pytest.mark.proves("G-01", "G-02", "F-01", "G-03")
def test_the_join_goes_to_the_coordinator_with_timeouts_and_subscription() -> None:
    rig = Rig(session_timeout_ms=10_000, max_poll_interval_ms=60_000, rack_id="r1")
    rig.reach_joining("t", "u")
    send = rig.waiting("JoinGroup")
    assert send.to == CoordinatorNode(1, Endpoint("one", 9092))
    assert send.request.session_timeout_ms == 10_000
    assert send.request.rebalance_timeout_ms == 60_000
    assert send.timeout_ms >= 65_000, "the coordinator sits on a join for the whole rebalance timeout"
    assert send.request.protocol_type == "consumer"
    assert [each.name for each in send.request.protocols] == ["range"]
    assert rig.reported().topics == ("t", "u")
    assert rig.reported().rack_id == "r1"


@pytest.mark.proves("F-09", "F-12", "G-04")
def test_a_follower_syncs_with_nothing_and_takes_its_own() -> None:
    rig = Rig()
    rig.reach_joining()
    assert rig.last("JoinGroup").member_id == ""
    rig.joined(generation=7, me="m7")
    sync = rig.last("SyncGroup")
    assert (sync.generation_id, sync.member_id, sync.assignments) == (7, "m7", ())
    assert (sync.protocol_type, sync.protocol_name) == ("consumer", "range")
    rig.synced(assigned=tps("t-1"))
    assert rig.state == "ASSIGNING"
    event = rig.hook.event
    assert isinstance(event, Assigned)
    assert (event.partitions, event.generation, event.cause.reason) == (tps("t-1"), 7, RebalanceReason.FIRST_JOIN)


@pytest.mark.proves("G-03", "G-04", "G-05")
def test_the_leader_plans_for_all_members() -> None:
    rig = Rig()
    rig.topics(t=3)
    rig.reach_joining()
    rig.joined(**as_leader(said("m1", "t"), said("m2", "t")))
    assert rig.plan() == {"m1": tps("t-0", "t-1"), "m2": tps("t-2")}
    assert rig.member._leadership.leads


@pytest.mark.proves("G-18")
def test_a_group_of_one_leads_at_once() -> None:
    rig = Rig("roundrobin")
    rig.topics(t=3)
    rig.reach_joining()
    rig.joined(protocol="roundrobin", **as_leader(said("m1", "t")))
    assert rig.plan() == {"m1": T}
    rig.synced(assigned=rig.plan()["m1"])
    rig.run_hook()
    assert rig.owned == T
    assert rig.state == "STABLE"


@pytest.mark.proves("G-04")
def test_a_leader_waits_for_topics_that_only_others_subscribe_to() -> None:
    rig = Rig()
    rig.topics(t=1)
    rig.reach_joining()
    rig.joined(**as_leader(said("m1", "t"), said("m2", "u")))
    assert rig.state == "PLANNING"
    assert rig.ready.wanted.names == {"t", "u"}
    assert not rig.ready.view.commits_open
    rig.topics(u=2)
    assert rig.plan() == {"m1": tps("t-0"), "m2": tps("u-0", "u-1")}


@pytest.mark.proves("G-04")
def test_a_topic_that_does_not_exist_does_not_hold_the_plan_up() -> None:
    rig = Rig()
    rig.topics(t=1)
    rig.reach_joining()
    rig.joined(**as_leader(said("m1", "t"), said("m2", "ghost")))
    rig.topics(ghost=0)
    assert rig.plan() == {"m1": tps("t-0"), "m2": frozenset()}


@pytest.mark.proves("G-04")
def test_metadata_that_never_comes_does_not_hold_the_plan_up_for_ever() -> None:
    rig = Rig(session_timeout_ms=10_000)
    rig.topics(t=1)
    rig.reach_joining()
    rig.joined(**as_leader(said("m1", "t"), said("m2", "slow")))
    for _ in range(4):
        rig.heartbeat() if rig.state == "PLANNING" else None
    assert rig.state == "SYNCING"
    assert rig.plan() == {"m1": tps("t-0"), "m2": frozenset()}


@pytest.mark.proves("G-15", "F-13")
def test_eager_order_is_revoke_all_commit_join_sync_assign() -> None:
    rig = Rig()
    rig.reach_stable(T)
    assert rig.ready.view.fetchable == T
    rig.heartbeat(27)
    assert rig.state == "REVOKING"
    event = rig.hook.event
    assert isinstance(event, Revoked)
    assert (event.partitions, event.assignment, event.cause.reason) == (T, T, RebalanceReason.REBALANCE_IN_PROGRESS)
    assert rig.ready.view.fetchable == frozenset(), "nothing is fetched or returned from the moment it must go"
    assert len(rig.requested("JoinGroup")) == 1, "no join before the hook"
    rig.run_hook(commit=dict.fromkeys(T, 5))
    assert rig.state == "COMMITTING"
    assert rig.order is not None
    assert rig.order.identity.generation == 1
    assert {tp: each.offset for tp, each in rig.order.offsets.items()} == dict.fromkeys(T, 5)
    assert len(rig.requested("JoinGroup")) == 1, "no join before the commit"
    rig.settle()
    assert rig.state == "JOINING"
    assert rig.owned == frozenset()
    assert rig.last("JoinGroup").member_id == "m1", "the same member joins again"
    rig.again(tps("t-0"), generation=2)
    assert rig.hook.event.partitions == tps("t-0")
    rig.run_hook()
    assert rig.ready.view.fetchable == tps("t-0")


@pytest.mark.proves("G-15")
def test_an_eager_join_claims_nothing() -> None:
    rig = Rig()
    rig.reach_stable(T)
    rig.heartbeat(27)
    rig.run_hook()
    assert rig.reported().owned_partitions == ()


@pytest.mark.proves("G-10")
def test_an_idle_member_is_a_member_of_good_standing() -> None:
    rig = Rig()
    rig.reach_syncing()
    rig.synced(assigned=())
    assert rig.hook.event.partitions == frozenset()
    rig.run_hook()
    assert rig.state == "STABLE"
    for _ in range(50):
        rig.heartbeat()
    assert rig.state == "STABLE"
    assert rig.ready.view.ownership_deadline > rig.now


@pytest.mark.proves("G-13")
def test_with_nothing_to_let_go_there_is_no_revocation() -> None:
    rig = Rig()
    rig.reach_stable(())
    rig.heartbeat(27)
    assert rig.state == "JOINING"
    assert rig.ready.hook is None


@pytest.mark.proves("F-12")
def test_the_generation_is_the_coordinators_to_count_and_used_only_after_its_response() -> None:
    rig = Rig()
    rig.reach_stable(T, generation=4)
    rig.heartbeat(27)
    assert rig.ready.view.identity.generation == 4
    rig.run_hook()
    assert rig.ready.view.identity.generation == 4
    rig.joined(generation=5)
    assert rig.last("SyncGroup").generation_id == 5
    rig.synced(assigned=T)
    rig.run_hook()
    rig.after(3)
    assert rig.last("Heartbeat").generation_id == 5


def next_heartbeat(rig: Rig, code: int = 0) -> float:
    """Send the next heartbeat, and respond to it with an error code. Returns its time."""
    sent = len(rig.requested("Heartbeat"))
    assert rig.ready.wake_at is not None
    rig.now = rig.ready.wake_at
    rig.after(0)
    assert len(rig.requested("Heartbeat")) == sent + 1
    rig.beat(code)
    return rig.now


@pytest.mark.proves("F-02", "S-13")
def test_heartbeats_need_no_poll_and_come_early_once_and_then_at_their_interval() -> None:
    rig = Rig(heartbeat_interval_ms=2_000)
    rig.reach_stable(T)
    times = [next_heartbeat(rig) for _beat in range(5)]
    assert times == pytest.approx([100.2, 102.2, 104.2, 106.2, 108.2])


@pytest.mark.proves("F-02", "G-13")
def test_short_generations_delay_the_first_heartbeat_of_the_next_and_a_long_one_ends_that() -> None:
    rig = Rig(heartbeat_interval_ms=2_000)
    rig.reach_stable(T)
    waits = []
    for generation in range(2, 8):
        began = rig.now
        waits.append(next_heartbeat(rig, code=27) - began)
        rig.run_hook()
        rig.joined(generation=generation)
        rig.synced(assigned=T)
        rig.run_hook()
        assert rig.state == "STABLE"
    assert waits == pytest.approx([0.2, 0.4, 0.8, 1.6, 2.0, 0.2])


@pytest.mark.proves("F-02", "G-13")
def test_generations_that_no_heartbeat_has_ended_delay_no_first_heartbeat() -> None:
    timers = MemberTimers(MemberSettings("g", heartbeat_interval_ms=2_000))

    def first_heartbeat_s(since: float) -> float:
        timers.restarted(since)
        timers.stable_since(since)
        return timers.next_heartbeat_at - since

    # A member that gives up partitions joins again at once.
    assert [first_heartbeat_s(since) for since in (100.0, 100.1, 100.2)] == pytest.approx([0.2] * 3)
    timers.last_heartbeat_at = 100.4
    assert first_heartbeat_s(100.5) == pytest.approx(0.4)
    assert first_heartbeat_s(100.6) == pytest.approx(0.4)
    assert first_heartbeat_s(102.6) == pytest.approx(0.2)


@pytest.mark.proves("F-02")
def test_a_slow_callback_delays_no_heartbeat() -> None:
    rig = Rig(heartbeat_interval_ms=2_000)
    rig.reach_syncing()
    rig.synced(assigned=T)
    assert [next_heartbeat(rig), next_heartbeat(rig)] == pytest.approx([102.0, 104.0])
    rig.after(1.9)
    rig.run_hook()
    assert rig.state == "STABLE"
    assert next_heartbeat(rig) == pytest.approx(106.0)


@pytest.mark.proves("F-09", "F-10")
def test_the_member_id_is_learnt_once_and_sent_in_everything() -> None:
    rig = Rig()
    rig.reach_stable(T, generation=3)
    rig.heartbeat(27)
    rig.run_hook(commit={min(T): 1})
    assert rig.order is not None
    assert rig.order.identity.member_id == "m1"
    rig.settle()
    assert rig.last("JoinGroup").member_id == "m1"
    rig.joined(generation=4)
    assert rig.last("SyncGroup").member_id == "m1"
    rig.synced(assigned=T)
    rig.run_hook()
    rig.after(3)
    assert rig.last("Heartbeat").member_id == "m1"
    rig.post(ev.CloseRequested(rig.now + 5))
    rig.run_hook()
    assert rig.last("LeaveGroup").members[0].member_id == "m1"


@pytest.mark.proves("F-14")
def test_no_member_is_declared_dead_while_a_join_is_under_way() -> None:
    rig = Rig(session_timeout_ms=6_000, rebalance_timeout_ms=120_000)
    rig.reach_stable(T)
    rig.after(3)
    stale = rig.waiting("Heartbeat").serial
    rig.beat(27)
    rig.run_hook()
    assert rig.state == "JOINING"
    before = len(rig.requested("Heartbeat"))
    for _ in range(40):
        rig.after(3)
    rig.beat(25, serial=stale)
    assert rig.state == "JOINING"
    assert len(rig.requested("Heartbeat")) == before, "a joining member does not beat"
    assert rig.member._coordinator.state is CoordinatorState.KNOWN
    rig.joined(generation=2)
    assert rig.state == "SYNCING"


@pytest.mark.proves("G-13")
def test_on_assigned_may_say_where_to_start() -> None:
    rig = Rig()
    rig.reach_syncing()
    rig.synced(assigned=T)
    first, second, third = sorted(T)
    assert rig.ready.view.fetchable == frozenset(), "not before the hook has had its say"
    rig.run_hook(start={first: 40, second: 0})
    assignment = rig.ready.view.assignment
    assert [assignment[tp].start for tp in (first, second, third)] == [Start(40), Start(0), None]


@pytest.mark.proves("S-01")
def test_every_assignment_gives_what_it_brings_a_new_epoch() -> None:
    rig = Rig()
    rig.reach_stable(T)
    before = rig.ready.view.assignment[min(T)].epoch
    rig.heartbeat(27)
    rig.run_hook()
    rig.again(T, generation=2)
    rig.run_hook()
    assert rig.ready.view.assignment[min(T)].epoch > before, (
        "what was fetched before the revocation is not ours to show"
    )


@pytest.mark.proves("G-03")
def test_several_assignors_are_offered_in_order_of_preference() -> None:
    rig = Rig("roundrobin", "range")
    rig.reach_joining()
    assert [each.name for each in rig.last("JoinGroup").protocols] == ["roundrobin", "range"]
    rig.topics(t=2)
    rig.joined(protocol="range", **as_leader(said("m1", "t")))
    assert rig.member._membership.protocol == "range"
    assert rig.last("SyncGroup").protocol_name == "range"
