"""Topics that come and go: patterns, partitions added, deletions, and the members that must rejoin because of it."""

from typing import Any

import pytest

from kohort.coordinator_client.group import events as ev
from kohort.coordinator_client.group.member_context import TOPICS_PATIENCE_S
from kohort.coordinator_client.hooks import RebalanceReason
from kohort.coordinator_client.subscription_state import Subscription
from kohort.network.metadata import TopicInfo, TopicsChanged
from tests.coordinator_client.group.member_rig import Rig, TopicsOnly, as_leader, said, tps


def by_pattern(include: str, exclude: str | None = None, **settings: Any) -> Rig:
    rig = Rig(**settings)
    rig.post(ev.Subscribed(Subscription.matching(include, exclude)))
    rig.found()
    return rig


@pytest.mark.proves("F-16")
def test_a_pattern_waits_for_all_topics_before_it_joins() -> None:
    rig = by_pattern("pay.*", ".*_test")
    assert rig.ready.wanted.all_topics
    assert not rig.requested("JoinGroup")
    rig.topics(pays=1)
    assert not rig.requested("JoinGroup"), "one topic's metadata is not all topics"
    rig.topics(True, pays=1, payments=2, pay_test=1, other=1)
    assert rig.reported().topics == ("payments", "pays")


@pytest.mark.proves("F-16")
def test_internal_topics_are_left_out_unless_requested() -> None:
    topics = {"__consumer_offsets": TopicInfo(50, internal=True), "a": TopicInfo(1)}
    both = ("__consumer_offsets", "a")
    for setting, allowed, expected in ((True, False, ("a",)), (True, True, both), (False, False, both)):
        rig = Rig(exclude_internal_topics=setting)
        rig.post(ev.Subscribed(Subscription.matching(".*", internal=allowed)))
        rig.found()
        rig.post(TopicsChanged(topics, complete=True))
        assert rig.reported().topics == expected


@pytest.mark.proves("F-16", "G-13", "B-41")
def test_a_new_topic_that_matches_makes_the_member_rejoin() -> None:
    rig = by_pattern("pay.*")
    rig.topics(True, pays=1)
    rig.joined()
    rig.synced(assigned=tps("pays-0"))
    rig.run_hook()
    rig.topics(True, pays=1, other=1)
    assert rig.state == "STABLE"
    rig.topics(True, pays=1, payments=1)
    assert rig.state == "REVOKING"
    assert rig.hook.event.cause.reason is RebalanceReason.TOPICS_CHANGED
    assert rig.hook.event.cause.detail == "payments"
    rig.run_hook()
    assert rig.reported().topics == ("payments", "pays")


@pytest.mark.proves("G-13", "B-41")
@pytest.mark.parametrize("late", [False, True], ids=["in time", "late"])
def test_a_rebalance_of_others_joins_with_the_topics_that_match_now(late: bool) -> None:
    rig = by_pattern("pay.*")
    rig.topics(True, pays=1)
    rig.joined()
    rig.synced(assigned=tps("pays-0"))
    rig.run_hook()
    for generation in (2, 3):
        before = rig.ready.wanted
        rig.heartbeat(27)
        assert (rig.state, rig.ready.wanted.attempt) == ("STABLE", before.attempt + 1)
        if late:
            rig.after(TOPICS_PATIENCE_S)
        else:
            rig.topics(True, pays=1, **dict.fromkeys([f"pay{number}" for number in range(generation)], 1))
        assert rig.hook.event.cause.reason is RebalanceReason.REBALANCE_IN_PROGRESS
        rig.run_hook()
        newest = [] if late else [f"pay{number}" for number in range(generation)]
        assert rig.reported().topics == (*newest, "pays")
        rig.joined(generation=generation)
        rig.synced(assigned=tps("pays-0"))
        rig.run_hook()
        assert rig.state == "STABLE"


@pytest.mark.proves("G-13")
def test_a_wait_for_the_topics_of_a_pattern_is_over_once() -> None:
    rig = Rig()
    rig.reach_stable(tps("t-0"))
    rig.post(ev.Subscribed(Subscription.matching("u.*")))
    rig.heartbeat(27)
    assert rig.ready.wake_at == pytest.approx(rig.now + TOPICS_PATIENCE_S)
    rig.after(TOPICS_PATIENCE_S)
    assert rig.state == "STABLE", "the pattern is not resolved"
    assert rig.ready.wake_at is not None
    assert rig.ready.wake_at > rig.now, "it waits for an event"
    rig.heartbeat(22)  # the membership is lost
    rig.run_hook()
    rig.topics(True, t=1, u1=1)
    rig.joined(generation=3)
    rig.synced()
    rig.run_hook()
    assert (rig.state, rig.reported().topics) == ("STABLE", ("u1",))
    before = rig.ready.wanted.attempt
    rig.heartbeat(27)
    assert rig.ready.wanted.attempt == before + 1


@pytest.mark.proves("F-16")
def test_a_deleted_topic_leaves_the_subscription() -> None:
    rig = by_pattern("pay.*")
    rig.topics(True, pays=1, payments=1)
    rig.joined()
    rig.synced(assigned=tps("pays-0", "payments-0"))
    rig.run_hook()
    rig.topics(True, pays=1)
    rig.run_hook()
    assert rig.reported().topics == ("pays",)


@pytest.mark.proves("F-16")
def test_a_pattern_that_matches_nothing_is_a_member_all_the_same() -> None:
    rig = by_pattern("nothing.*")
    rig.topics(True, pays=1)
    assert rig.reported().topics == ()
    rig.joined()
    rig.synced()
    rig.run_hook()
    assert rig.state == "STABLE"


@pytest.mark.proves("F-16", "E-03")
def test_a_topic_of_our_pattern_that_the_leader_knew_first_is_no_stranger() -> None:
    rig = by_pattern("pay.*")
    rig.topics(True, pays=1)
    rig.joined()
    rig.synced(assigned=tps("pays-0", "paynow-0"))
    rig.run_hook()
    assert rig.state == "STABLE"
    assert rig.owned == tps("pays-0", "paynow-0")
    rig.topics(True, pays=1, paynow=1)
    assert rig.state == "STABLE", "our metadata has caught up: nothing new"


@pytest.mark.proves("F-16")
def test_a_new_pattern_is_not_joined_with_before_it_is_resolved() -> None:
    rig = Rig()
    rig.reach_stable(tps("t-0"))
    rig.post(ev.Subscribed(Subscription.matching("u.*")))
    assert rig.state == "STABLE"
    assert rig.ready.view.fetchable == tps("t-0")
    rig.heartbeat(27)
    assert rig.state == "STABLE", "what to keep is not known before what is wanted"
    rig.topics(True, t=1, u1=1)
    assert rig.state == "REVOKING"


@pytest.mark.proves("G-13", "B-41", "F-13")
def test_added_partitions_are_the_leaders_affair() -> None:
    rig = Rig()
    rig.topics(t=2)
    rig.reach_joining()
    rig.joined(**as_leader(said("m1", "t"), said("m2", "t")))
    rig.synced(assigned=tps("t-0"))
    rig.run_hook()
    rig.topics(t=2)
    assert rig.state == "STABLE"
    rig.topics(t=3)
    assert rig.state == "REVOKING"
    assert rig.hook.event.cause == rig.hook.event.cause.__class__(RebalanceReason.TOPICS_CHANGED, "t")
    rig.run_hook()
    rig.joined(generation=2, **as_leader(said("m1", "t"), said("m2", "t")))
    assert sum(len(each) for each in rig.plan().values()) == 3


@pytest.mark.proves("G-13")
def test_a_follower_leaves_added_partitions_to_its_leader() -> None:
    rig = Rig()
    rig.topics(t=2)
    rig.reach_stable(tps("t-0"))
    rig.topics(t=3)
    assert rig.state == "STABLE"


@pytest.mark.proves("G-13")
def test_a_change_that_comes_while_the_plan_is_under_way_is_not_forgotten() -> None:
    rig = Rig()
    rig.topics(t=2)
    rig.reach_joining()
    rig.joined(**as_leader(said("m1", "t")))
    rig.topics(t=4)
    rig.synced(assigned=tps("t-0..1"))
    rig.run_hook()
    assert rig.state == "REVOKING"


@pytest.mark.proves("G-13")
def test_a_change_before_the_plan_is_in_the_plan() -> None:
    rig = Rig()
    rig.reach_joining("t", "u")
    rig.joined(**as_leader(said("m1", "t", "u")))
    rig.topics(t=2)
    rig.topics(t=4)
    assert rig.state == "PLANNING"
    rig.topics(u=1)
    rig.synced(assigned=rig.plan()["m1"])
    rig.run_hook()
    assert rig.state == "STABLE"
    assert rig.owned == tps("t-0..3", "u-0")


@pytest.mark.proves("G-13")
def test_a_leader_watches_topics_that_only_others_subscribe_to() -> None:
    rig = Rig()
    rig.topics(t=1, u=1)
    rig.reach_joining()
    rig.joined(**as_leader(said("m1", "t"), said("m2", "u")))
    rig.synced(assigned=tps("t-0"))
    rig.run_hook()
    assert rig.ready.wanted.names == {"t", "u"}
    rig.topics(u=2)
    assert rig.state == "REVOKING"


@pytest.mark.proves("G-13")
def test_a_leader_that_no_longer_leads_no_longer_watches() -> None:
    rig = Rig()
    rig.topics(t=1)
    rig.reach_joining()
    rig.joined(**as_leader(said("m1", "t")))
    rig.synced(assigned=tps("t-0"))
    rig.run_hook()
    rig.heartbeat(27)
    rig.run_hook()
    rig.again((), generation=2)
    rig.run_hook()
    assert not rig.member._leadership.leads
    rig.topics(t=2)
    assert rig.state == "STABLE"


@pytest.mark.proves("G-13")
def test_a_leader_with_a_rack_watches_where_replicas_are() -> None:
    def metadata(rack: str) -> TopicsChanged:
        info = TopicInfo(1, racks={0: frozenset({rack})})
        return TopicsChanged({"t": info}, requested=frozenset({"t"}))

    for rack_id, outcome in ((None, "STABLE"), ("r1", "REVOKING")):
        rig = Rig(rack_id=rack_id)
        rig.post(metadata("r1"))
        rig.reach_joining()
        rig.joined(**as_leader(said("m1", "t", rack=rack_id)))
        rig.synced(assigned=tps("t-0"))
        rig.run_hook()
        rig.post(metadata("r2"))
        assert rig.state == outcome


@pytest.mark.proves("B-18")
def test_partition_counts_below_zero_are_no_metadata() -> None:
    rig = Rig()
    rig.topics(t=2)
    rig.reach_joining()
    rig.joined(**as_leader(said("m1", "t")))
    rig.synced(assigned=tps("t-0..1"))
    rig.run_hook()
    rig.post(TopicsChanged({"t": TopicInfo(-1)}))
    assert rig.state == "STABLE"


@pytest.mark.proves("G-13")
@pytest.mark.parametrize("reason", ["", "I added a node"])
def test_enforced_rebalance_joins_with_the_users_reason(reason: str) -> None:
    """KIP-568, and KIP-800 for the reason."""
    rig = Rig()
    rig.reach_stable(tps("t-0"))
    rig.post(ev.RebalanceEnforced(reason))
    assert rig.hook.event.cause.reason is RebalanceReason.ENFORCED
    rig.run_hook()
    assert reason in rig.last("JoinGroup").reason
    assert len(rig.last("JoinGroup").reason) <= 255


@pytest.mark.proves("G-13")
def test_an_enforced_rebalance_joins_differently_with_an_assignor_that_reports_topics_only() -> None:
    """A coordinator rebalances for a follower only if its subscription has changed."""
    rig = Rig(TopicsOnly())
    rig.reach_stable(tps("t-0"), generation=5, protocol="topics-only")
    rig.post(ev.RebalanceEnforced(""))
    rig.run_hook()
    first, second = rig.requested("JoinGroup")
    assert first.protocols != second.protocols
    assert rig.reported("topics-only").generation_id == 5


@pytest.mark.proves("G-13")
def test_a_reason_longer_than_the_protocol_allows_is_cut() -> None:
    rig = Rig()
    rig.reach_stable(())
    rig.post(ev.RebalanceEnforced("x" * 1_000))
    assert len(rig.last("JoinGroup").reason) == 255


@pytest.mark.proves("G-13")
def test_enforcing_during_a_rebalance_is_a_no_op() -> None:
    rig = Rig()
    rig.reach_syncing()
    rig.post(ev.RebalanceEnforced("now!"))
    assert "rebalance_not_enforced" in rig.kinds
    rig.synced(assigned=tps("t-0"))
    rig.run_hook()
    assert rig.state == "STABLE"


@pytest.mark.proves("G-13")
def test_the_same_subscription_again_changes_nothing() -> None:
    rig = Rig()
    rig.reach_stable(tps("t-0"))
    rig.subscribe("t")
    assert rig.state == "STABLE"


@pytest.mark.proves("G-13")
def test_a_subscription_that_changes_during_a_rebalance_is_joined_with_after_it() -> None:
    rig = Rig()
    rig.reach_syncing("t")
    rig.subscribe("t", "u")
    rig.synced(assigned=tps("t-0"))
    rig.run_hook()
    assert rig.state == "REVOKING"
    rig.run_hook()
    assert rig.reported().topics == ("t", "u")


def test_a_cause_names_the_first_five_topics_that_changed() -> None:
    names = "abcdefg"
    few: Any = dict.fromkeys(names, 1)
    more: Any = dict.fromkeys(names, 2)
    rig = Rig()
    rig.topics(**few)
    rig.reach_joining(*names)
    rig.joined(**as_leader(said("m1", *names)))
    rig.synced(assigned=tps("a-0"))
    rig.run_hook()
    rig.topics(**few)
    rig.topics(**more)
    assert rig.hook.event.cause.reason is RebalanceReason.TOPICS_CHANGED
    assert rig.hook.event.cause.detail == "a, b, c, d, e"
