"""COOPERATIVE (KIP-429): what stays is never touched, what moves takes two rounds; and how a group gets there."""

from collections.abc import Callable
from typing import Any

import pytest

from kohort.assignors import Assignor, GroupView, MemberSubscription, Plan, Rebalance, get
from kohort.common.topic_partition import TopicPartition
from kohort.coordinator_client.group import events as ev
from kohort.coordinator_client.hooks import Assigned, Lost, RebalanceReason, Revoked, Start
from tests.coordinator_client.group.member_rig import Rig, as_leader, said, tps

T = tps("t-0..3")


class Cooperative:
    """Claims what a cooperative assignor claims; as a leader it plans as `range` does."""

    name = "gentle"
    rebalance = Rebalance.COOPERATIVE

    def subscription(self, topics: object, owned: object, generation: int) -> MemberSubscription:
        return MemberSubscription(
            topics=tuple(topics),  # type: ignore[arg-type]
            owned_partitions=tuple(owned),  # type: ignore[arg-type]
            generation_id=generation,
        )

    def assign(self, group: GroupView) -> Plan:
        return get("range").assign(group)


def cooperative(*more: str | Assignor, **settings: Any) -> Rig:
    return Rig(Cooperative(), *more, **settings)


def stable(rig: Rig, *names: str, generation: int = 1) -> None:
    rig.reach_stable(tps(*names), generation=generation, protocol="gentle")


@pytest.mark.proves("G-08", "G-15")
def test_a_join_lets_nothing_go() -> None:
    rig = cooperative()
    stable(rig, "t-0..3")
    rig.heartbeat(27)
    assert rig.state == "JOINING"
    assert rig.ready.hook is None
    assert rig.ready.view.fetchable == T


@pytest.mark.proves("G-03", "G-08")
def test_a_join_claims_what_is_held_and_since_when() -> None:
    rig = cooperative(rack_id="r")
    stable(rig, "t-0..3", generation=5)
    rig.heartbeat(27)
    reported = rig.reported("gentle")
    assert [(each.topic, each.partitions) for each in reported.owned_partitions] == [("t", (0, 1, 2, 3))]
    assert (reported.generation_id, reported.rack_id) == (5, "r")


@pytest.mark.proves("G-08")
def test_round_one_revokes_what_moves_and_round_two_takes_what_came_free() -> None:
    rig = cooperative()
    stable(rig, "t-0..3")
    kept_epoch = rig.ready.view.assignment[min(T)].epoch
    rig.heartbeat(27)
    rig.joined(generation=2, protocol="gentle")
    assert rig.ready.view.fetchable == T, "all of it is still read while the group gathers"
    rig.synced(assigned=tps("t-0..1"))
    assert rig.state == "REVOKING"
    event = rig.hook.event
    assert isinstance(event, Revoked)
    assert (event.partitions, event.assignment) == (tps("t-2..3"), T)
    assert rig.ready.view.fetchable == tps("t-0..1")
    rig.run_hook(commit=dict.fromkeys(tps("t-2..3"), 9))
    assert rig.order is not None
    assert rig.order.identity.generation == 2, "committed under the new generation, which still lets us"
    rig.settle()
    call = rig.run_hook()
    assert isinstance(call.event, Assigned)
    assert (call.event.partitions, call.event.assignment) == (frozenset(), tps("t-0..1"))
    assert rig.state == "JOINING", "and once more, for what was let go is free only now"
    assert rig.last("JoinGroup").reason == RebalanceReason.FOLLOW_UP.value
    assert rig.ready.view.fetchable == tps("t-0..1")
    rig.again(tps("t-0..1"), generation=3, protocol="gentle")
    rig.run_hook()
    assert rig.state == "STABLE"
    assert rig.ready.view.assignment[min(T)].epoch == kept_epoch, "what never moved keeps its epoch, and its buffers"


@pytest.mark.proves("G-08")
def test_what_arrives_is_fetched_after_its_hook_and_what_stays_all_the_time() -> None:
    rig = cooperative()
    stable(rig, "t-0")
    rig.heartbeat(27)
    rig.again(tps("t-0..1"), generation=2, protocol="gentle")
    assert rig.ready.view.fetchable == tps("t-0")
    call = rig.run_hook(start={min(tps("t-1")): 77})
    assert isinstance(call.event, Assigned)
    assert (call.event.partitions, call.event.assignment) == (tps("t-1"), tps("t-0..1"))
    assert rig.ready.view.fetchable == tps("t-0..1")
    assert rig.ready.view.assignment[min(tps("t-1"))].start == Start(77)
    assert rig.state == "STABLE", "nothing was lost here: no second round"


@pytest.mark.proves("G-08", "G-13")
def test_topics_no_longer_subscribed_are_let_go_before_the_join() -> None:
    rig = cooperative()
    rig.reach_stable(tps("t-0", "u-0"), "t", "u", protocol="gentle")
    rig.subscribe("t")
    assert rig.state == "REVOKING"
    assert rig.hook.event.partitions == tps("u-0")
    assert rig.hook.event.cause.reason is RebalanceReason.SUBSCRIPTION_CHANGED
    assert rig.ready.view.fetchable == tps("t-0")
    rig.run_hook()
    assert rig.reported("gentle").topics == ("t",)
    assert rig.reported("gentle").owned_partitions[0].topic == "t"


@pytest.mark.proves("G-08")
def test_a_subscription_that_shrinks_while_a_join_waits_lets_go_before_it_is_sent() -> None:
    rig = cooperative()
    rig.reach_stable(tps("t-0", "u-0"), "t", "u", protocol="gentle")
    rig.heartbeat(27)
    rig.joined(14)
    assert rig.state == "JOINING"
    rig.subscribe("t")
    rig.after(1)
    assert rig.state == "REVOKING"
    assert rig.hook.event.partitions == tps("u-0")


@pytest.mark.proves("G-08", "F-12")
def test_a_sync_that_fails_keeps_everything_and_claims_it_again() -> None:
    rig = cooperative()
    stable(rig, "t-0..1")
    rig.heartbeat(27)
    rig.joined(generation=2, protocol="gentle")
    rig.synced(27)
    assert rig.state == "JOINING"
    assert rig.ready.view.fetchable == tps("t-0..1")
    assert rig.reported("gentle").owned_partitions[0].partitions == (0, 1)
    assert rig.reported("gentle").generation_id == 2


def _loses_the_connection(rig: Rig) -> None:
    rig.cut("SyncGroup")
    rig.found()


def _finds_a_loading_coordinator(rig: Rig) -> None:
    rig.synced(14)
    rig.after(1)


@pytest.mark.proves("G-08", "E-03")
@pytest.mark.parametrize("ends", [_loses_the_connection, _finds_a_loading_coordinator])
def test_a_join_after_a_sync_without_a_result_equals_the_join_before(ends: Callable[[Rig], None]) -> None:
    """To a join that is equal the coordinator returns its generation. Another one makes a leader plan again."""
    rig = cooperative()
    stable(rig, "t-0..1", generation=5)
    rig.heartbeat(27)
    for _ in range(2):
        before = rig.last("JoinGroup")
        rig.joined(generation=6, protocol="gentle")
        ends(rig)
        assert rig.last("JoinGroup") is not before
        assert rig.last("JoinGroup").protocols == before.protocols
    rig.again(tps("t-0..1"), generation=6, protocol="gentle")
    rig.run_hook()
    rig.heartbeat(27)
    assert rig.reported("gentle").generation_id == 6


@pytest.mark.proves("G-08")
def test_a_join_after_an_unfit_assignment_differs_from_the_join_before() -> None:
    """To a join that is equal the coordinator returns the same assignment again."""
    rig = cooperative()
    stable(rig, "t-0..1", generation=5)
    rig.heartbeat(27)
    rig.again(tps("strange-0"), generation=6, protocol="gentle")
    rig.after(1)
    assert rig.state == "JOINING"
    assert rig.reported("gentle").owned_partitions[0].partitions == (0, 1)
    assert rig.reported("gentle").generation_id == 6


@pytest.mark.proves("G-08", "B-26", "E-02")
def test_an_expelled_member_loses_all_of_it() -> None:
    rig = cooperative()
    stable(rig, "t-0..1", generation=4)
    rig.heartbeat(27)
    rig.joined(25)
    assert rig.state == "LOSING"
    event = rig.hook.event
    assert isinstance(event, Lost)
    assert (event.partitions, event.generation) == (tps("t-0..1"), 4)
    assert rig.ready.view.fetchable == frozenset()
    rig.run_hook()
    assert rig.reported("gentle").owned_partitions == ()
    assert rig.reported("gentle").generation_id == -1
    assert rig.last("JoinGroup").member_id == ""


@pytest.mark.proves("G-08", "E-03")
def test_lost_between_join_and_sync() -> None:
    rig = cooperative()
    stable(rig, "t-0..1")
    rig.heartbeat(27)
    rig.joined(generation=2, protocol="gentle")
    rig.synced(25)
    assert rig.state == "LOSING"
    rig.run_hook()
    assert (rig.state, rig.owned) == ("JOINING", frozenset())


@pytest.mark.proves("G-08")
def test_kept_partitions_can_be_committed_while_the_group_gathers_but_not_while_it_is_assigned() -> None:
    rig = cooperative()
    stable(rig, "t-0..1")
    rig.heartbeat(27)
    assert rig.state == "JOINING"
    assert rig.ready.view.commits_open
    rig.joined(generation=2, protocol="gentle")
    assert [rig.ready.view.commits_open] == [False]
    rig.synced(assigned=tps("t-0"))
    assert rig.ready.view.commits_open


@pytest.mark.proves("G-08", "E-05")
def test_a_commit_that_loses_the_race_against_our_own_join_is_no_loss() -> None:
    rig = cooperative()
    stable(rig, "t-0..1")
    rig.heartbeat(27)
    rig.post(ev.CommitRefused(22, rig.ready.view.identity, tps("t-0")))
    assert rig.state == "JOINING"
    assert rig.ready.view.fetchable == tps("t-0..1")


@pytest.mark.proves("G-08")
def test_a_commit_that_is_not_settled_in_time_does_not_hold_the_group_up() -> None:
    rig = cooperative(request_timeout_ms=4_000)
    stable(rig, "t-0..1")
    rig.heartbeat(27)
    rig.again(tps("t-0"), generation=2, protocol="gentle")
    rig.run_hook(commit=dict.fromkeys(tps("t-1"), 3))
    assert rig.state == "COMMITTING"
    rig.after(4.1)
    assert rig.state == "ASSIGNING"
    assert "commit_late" in rig.kinds
    rig.settle()
    assert rig.state == "ASSIGNING", "a settlement without a waiter changes nothing"


@pytest.mark.proves("G-08")
def test_what_a_commit_was_refused_for_is_reported_and_the_group_goes_on() -> None:
    rig = cooperative()
    stable(rig, "t-0..1")
    rig.heartbeat(27)
    rig.again(tps("t-0"), generation=2, protocol="gentle")
    rig.run_hook(commit=dict.fromkeys(tps("t-1"), 3))
    rig.settle(t_1=12)
    assert rig.state == "ASSIGNING"
    assert "commit_refused" in rig.kinds
    assert any("OFFSET_METADATA_TOO_LARGE" in line for line in rig.member.timeline.rebalances[-1].troubles)


@pytest.mark.proves("G-08")
def test_a_response_for_partitions_that_are_not_owned_is_left_out() -> None:
    rig = cooperative()
    stable(rig, "t-0..1")
    rig.heartbeat(27)
    rig.again(tps("t-0"), generation=2, protocol="gentle")
    rig.run_hook(commit=dict.fromkeys(tps("t-0..1", "x-0"), 3))
    assert rig.order is not None
    assert rig.order.offsets.keys() == tps("t-0..1"), "what is kept may be committed on the occasion"
    assert "commit_dropped" in rig.kinds


# ---------------------------------------------------------------------------------------------------------- migration


@pytest.mark.proves("G-08")
def test_a_mixed_list_walks_eagerly_and_offers_both() -> None:
    """First rolling restart: [cooperative, eager]. Until every member offers the cooperative one the group uses the
    eager one, and a member cannot know before the join which it will be."""
    rig = cooperative("range")
    rig.reach_joining()
    assert [each.name for each in rig.last("JoinGroup").protocols] == ["gentle", "range"]
    rig.joined(protocol="range")
    rig.synced(assigned=T)
    rig.run_hook()
    rig.heartbeat(27)
    assert rig.hook.event.partitions == T
    rig.run_hook()
    assert rig.reported("gentle").owned_partitions == (), "it has let go: to claim it would withhold it from all others"
    rig.again(T, generation=2, protocol="gentle")
    assert rig.hook.event.partitions == T
    rig.run_hook()
    assert rig.state == "STABLE"


@pytest.mark.proves("G-08")
def test_second_restart_makes_the_member_cooperative_in_a_group_that_is_still_mixed() -> None:
    rig = cooperative()
    rig.topics(t=4)
    rig.reach_joining()
    rig.joined(
        protocol="gentle",
        leader=None,
        members=(said("m1", "t"), said("m2", "t")),
    )
    assert rig.plan() == {"m1": tps("t-0..1"), "m2": tps("t-2..3")}
    rig.synced(assigned=tps("t-0..1"))
    rig.run_hook()
    rig.heartbeat(27)
    assert rig.ready.hook is None
    assert rig.reported("gentle").owned_partitions[0].partitions == (0, 1)


@pytest.mark.proves("G-07", "G-16")
def test_an_eager_assignor_gets_what_was_held_last_as_a_memory() -> None:
    seen: list[tuple[tuple[TopicPartition, ...], int]] = []

    class Remembering(Cooperative):
        name = "remembering"
        rebalance = Rebalance.EAGER

        def subscription(self, topics: object, owned: object, generation: int) -> MemberSubscription:
            seen.append((tuple(owned), generation))  # type: ignore[arg-type]
            return MemberSubscription(tuple(topics))  # type: ignore[arg-type]

    rig = Rig(Remembering())
    rig.reach_stable(tps("t-0..1"), generation=3, protocol="remembering")
    rig.heartbeat(27)
    rig.run_hook()
    rig.again(tps("t-0"), generation=4, protocol="remembering")
    rig.run_hook()
    rig.heartbeat(25)
    rig.run_hook()
    assert seen == [((), -1), (tuple(sorted(tps("t-0..1"))), 3), ((), -1)], "what was lost is no memory"


@pytest.mark.proves("G-04")
def test_a_cooperative_leader_sees_everybodys_claims() -> None:
    views = []

    class Looking(Cooperative):
        def assign(self, group: GroupView) -> Plan:
            views.append(group)
            return super().assign(group)

    rig = Rig(Looking())
    rig.topics(t=4)
    rig.reach_joining()
    rig.joined(
        protocol="gentle",
        generation=9,
        **as_leader(
            said("m1", "t"),
            said("m2", "t", owned=tps("t-2"), generation=8, rack="r2", instance="i2", user_data=b"note"),
        ),
    )
    (view,) = views
    other = view.members[view.number_of_member["m2"]]
    assert [view.partition(index) for index in other.owned_partitions] == sorted(tps("t-2"))
    assert (other.generation, other.rack, other.instance_id, other.user_data) == (8, "r2", "i2", b"note")
