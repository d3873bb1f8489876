"""The member of a KIP-848 group, sentence by sentence: joins, reports, reconciles, is fenced, leaves."""

import random
from collections.abc import Callable

import pytest

from kohort.coordinator_client import Consumer
from kohort.coordinator_client.group import events as ev
from kohort.coordinator_client.group.error_actions import (
    CommitVerdict,
    FencedInstance,
    GroupProtocolError,
    GroupRefused,
    UnreleasedInstance,
    commit_verdict,
)
from kohort.coordinator_client.group.states import CONSUMER_GROUP_TRANSITIONS, MemberState, StateTracker, Trigger
from kohort.coordinator_client.hooks import Assigned, Lost, Revoked
from kohort.coordinator_client.subscription_state import PauseMarks, Subscription
from kohort.network.errors import AuthorizationFailed
from kohort.network.request_versions import fit
from kohort.protocol.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from kohort.protocol.catalogue import API as CATALOGUE
from kohort.protocol.errors import UnsupportedVersion
from kohort.testing.fake_broker import Alter, FakeBroker
from tests.coordinator_client.consumer_helpers import PATIENCE_S, poll_until
from tests.coordinator_client.group.consumer_member_rig import API, MEMBER_ID, EpochRig, by_id
from tests.coordinator_client.group.member_rig import GROUP, assert_silent, fatal, tps

T = tps("t-0..3")


def stable(assigned: frozenset[object] | None = None, *topics: str, **settings: object) -> EpochRig:
    rig = EpochRig(**settings)  # type: ignore[arg-type]
    rig.reach_stable(T if assigned is None else assigned, *topics)  # type: ignore[arg-type]
    return rig


def has_no_good_response(rig: EpochRig, code: int | None) -> None:
    """The heartbeat gets an error code, or for None its connection ends; the next one is due."""
    if code is None:
        rig.cut(API)
    else:
        rig.coordinator_responds(code)
    if code != 14:
        rig.found()
    rig.after(0.2)


# --------------------------------------------------------------------------------------------------- joining, staying


@pytest.mark.proves("G-01")
def test_a_join_says_everything_and_a_beat_only_what_changed() -> None:
    rig = EpochRig(rack_id="r1", remote_assignor="range", max_poll_interval_ms=90_000)
    rig.reach_joining("t", "u")
    join = rig.report
    assert (join.member_id, join.member_epoch) == (MEMBER_ID, 0)
    assert (join.rack_id, join.server_assignor, join.rebalance_timeout_ms) == ("r1", "range", 90_000)
    assert join.subscribed_topic_names == ("t", "u")
    assert join.topic_partitions == ()
    rig.coordinator_responds(epoch=3, assigned=())
    rig.run_hook()
    rig.coordinator_responds(epoch=3)
    beat = rig.next_report()
    assert (beat.member_id, beat.member_epoch) == (MEMBER_ID, 3)
    unchanged = (beat.rack_id, beat.server_assignor, beat.subscribed_topic_names, beat.topic_partitions)
    assert unchanged == (None, None, None, None)
    assert beat.rebalance_timeout_ms == -1


def test_the_coordinator_says_how_often_it_wants_to_hear_from_us() -> None:
    rig = stable()
    before = len(rig.requested(API))
    rig.after(4.9)
    assert len(rig.requested(API)) == before
    rig.after(0.2)
    assert len(rig.requested(API)) == before + 1


@pytest.mark.proves("G-08")
def test_what_is_assigned_is_taken_and_acknowledged_at_once() -> None:
    rig = EpochRig()
    rig.reach_joining()
    rig.coordinator_responds(epoch=2, assigned=T)
    assert (rig.state, rig.hook.event.partitions) == ("ASSIGNING", T)
    assert rig.ready.view.fetchable == frozenset()  # on_assigned may say where to start
    rig.run_hook()
    assert (rig.state, rig.owned, rig.ready.view.fetchable) == ("STABLE", T, T)
    assert rig.report.topic_partitions == by_id(T)
    assert rig.ready.view.identity.generation == 2


@pytest.mark.proves("G-10")
def test_an_empty_assignment_is_as_stable_as_any() -> None:
    rig = stable(frozenset())
    assert rig.owned == frozenset()
    rig.assign(T, epoch=2)
    assert rig.hook.event.partitions == T


@pytest.mark.proves("G-08", "G-14")
def test_only_what_moves_is_let_go_and_acknowledged_when_it_is_committed() -> None:
    rig = stable()
    rig.assign(tps("t-0..1"), epoch=2)
    call = rig.start_hook()
    assert isinstance(call.event, Revoked)
    assert (call.event.partitions, call.before, call.after) == (tps("t-2..3"), T, tps("t-0..1"))
    assert rig.ready.view.fetchable == tps("t-0..1")  # what stays is read all along
    assert rig.next_report().topic_partitions is None  # nothing is acknowledged while the hook runs
    rig.coordinator_responds(epoch=2)
    rig.end_hook(call, commit={next(iter(tps("t-2"))): 7})
    assert rig.order is not None
    assert (rig.order.identity.generation, rig.order.identity.member_id) == (2, MEMBER_ID)
    assert rig.requested(API)[-1].topic_partitions is None
    rig.settle()
    assert rig.report.topic_partitions == by_id(tps("t-0..1"))
    taken = rig.run_hook()
    assert isinstance(taken.event, Assigned)
    assert (taken.event.partitions, rig.state) == (frozenset(), "STABLE")


def test_one_assignment_may_take_and_bring() -> None:
    rig = stable(tps("t-0..1"))
    rig.assign(tps("t-1..2"), epoch=4)
    assert rig.hook.event.partitions == tps("t-0")
    rig.run_hook()
    assert rig.hook.event.partitions == tps("t-2")
    rig.run_hook()
    assert (rig.state, rig.owned) == ("STABLE", tps("t-1..2"))
    assert rig.report.topic_partitions == by_id(tps("t-1..2"))


def test_an_assignment_that_comes_while_a_hook_runs_is_the_next_one() -> None:
    rig = stable()
    rig.assign(tps("t-0..2"), epoch=2)
    call = rig.start_hook()
    rig.next_report()
    rig.coordinator_responds(epoch=3, assigned=tps("t-0..1"))
    rig.end_hook(call)
    rig.run_hook()  # on_assigned of the first
    assert (rig.state, rig.hook.event.partitions) == ("REVOKING", tps("t-2"))


# ---------------------------------------------------------------------------------------------------- acknowledgements


def reports(rig: EpochRig) -> list[tuple[object, ...]]:
    """The owned partitions in each heartbeat; null if the heartbeat left them out."""
    return [one.topic_partitions for one in rig.requested(API)]


@pytest.mark.proves("G-13", "G-15")
def test_an_assignment_that_a_new_subscription_leaves_nothing_of_is_acknowledged_as_nothing() -> None:
    rig = EpochRig()
    rig.reach_joining()
    rig.topics(u=8)
    rig.subscribe("u")  # the first assignment is on its way
    rig.coordinator_responds(epoch=1, assigned=T)
    assert rig.report.subscribed_topic_names == ("u",)
    assert rig.report.topic_partitions == ()
    rig.run_hook()
    rig.coordinator_responds(epoch=1, assigned=())  # the coordinator takes back what was never taken
    assert rig.report.topic_partitions == ()
    rig.coordinator_responds(epoch=2, assigned=tps("u-0"))
    rig.run_hook()
    assert rig.report.topic_partitions == by_id(tps("u-0"))
    rig.coordinator_responds(epoch=2)
    assert rig.next_report().topic_partitions is None


@pytest.mark.proves("B-39", "G-15")
def test_what_was_let_go_before_the_coordinator_asked_for_it_is_reported_again_when_it_asks() -> None:
    rig = stable(T | tps("k-0"), "t", "k")
    rig.topics(t=8, lives={"t": 1})  # deleted and created again: metadata is the first to know
    assert rig.run_hook().event.partitions == T
    rig.run_hook()
    assert rig.report.topic_partitions == by_id(tps("k-0"))
    rig.coordinator_responds(epoch=1)
    rig.next_report()
    rig.coordinator_responds(epoch=1, assigned=tps("k-0"))
    assert rig.report.topic_partitions == by_id(tps("k-0"))
    rig.coordinator_responds(epoch=2, assigned=T | tps("k-0"), lives={"t": 1})
    rig.run_hook()
    assert rig.report.topic_partitions == by_id(T | tps("k-0"), {"t": 1})
    assert rig.owned == T | tps("k-0")


@pytest.mark.parametrize("again", [T, T | tps("x-0")], ids=["repeated", "with a topic that was not requested"])
def test_an_assignment_that_changes_nothing_is_acknowledged_at_once_and_once(again: frozenset[object]) -> None:
    rig = stable()
    rig.topics(x=1)
    before = len(reports(rig))
    rig.assign(again, epoch=2)  # type: ignore[arg-type]
    rig.coordinator_responds(epoch=2)
    rig.next_report()
    assert reports(rig)[before:] == [None, by_id(T), None]
    assert rig.state == "STABLE"


def test_partitions_of_a_topic_without_a_name_do_not_hold_the_acknowledgement_of_the_others_up() -> None:
    rig = stable()
    rig.assign(T | tps("new-0"), epoch=2)
    assert rig.report.topic_partitions == by_id(T)
    rig.coordinator_responds(epoch=2)
    rig.topics(new=1)  # not subscribed to: left where it is
    assert rig.next_report().topic_partitions is None
    rig.coordinator_responds(epoch=2)
    rig.assign(tps("t-0..1"), epoch=2)
    rig.run_hook()
    assert rig.report.topic_partitions == by_id(tps("t-0..1"))


def test_an_assignment_that_comes_while_a_hook_runs_is_acknowledged_when_it_is_so_and_not_before() -> None:
    rig = stable()
    rig.assign(tps("t-0..2"), epoch=2)
    rig.run_hook()  # on_revoked of t-3
    assert rig.report.topic_partitions == by_id(tps("t-0..2"))
    call = rig.start_hook()  # on_assigned, which takes its time
    rig.coordinator_responds(epoch=2, assigned=tps("t-0"))
    before = len(reports(rig))
    rig.next_report()
    rig.coordinator_responds(epoch=2)
    rig.end_hook(call)
    rig.run_hook()
    assert reports(rig)[before:] == [None, by_id(tps("t-0"))]
    rig.coordinator_responds(epoch=3)
    rig.run_hook()
    assert rig.next_report().topic_partitions is None


@pytest.mark.proves("G-16")
@pytest.mark.parametrize("code", [14, 15, None])
def test_an_acknowledgement_without_a_good_response_is_sent_again(code: int | None) -> None:
    rig = stable()
    rig.assign(tps("t-0..1"), epoch=2)
    rig.run_hook()
    assert rig.report.topic_partitions == by_id(tps("t-0..1"))
    has_no_good_response(rig, code)
    assert rig.report.topic_partitions == by_id(tps("t-0..1"))
    before = len(reports(rig))
    rig.coordinator_responds(epoch=2, assigned=tps("t-0..1"))  # a full report makes the coordinator repeat itself
    rig.run_hook()
    rig.coordinator_responds(epoch=2)
    rig.next_report()
    assert reports(rig)[before:] == [by_id(tps("t-0..1")), None]


def test_a_full_report_that_goes_out_while_a_hook_runs_does_not_settle_what_is_owed_after_it() -> None:
    rig = stable()
    rig.assign(tps("t-0..1"), epoch=2)
    call = rig.start_hook()
    rig.next_report()
    rig.cut(API)
    rig.found()
    assert rig.report.topic_partitions == by_id(T)  # on_revoked still runs: nothing is let go yet
    rig.coordinator_responds(epoch=2, assigned=tps("t-0..1"))
    rig.end_hook(call)
    assert rig.report.topic_partitions == by_id(tps("t-0..1"))


@pytest.mark.proves("G-15")
@pytest.mark.parametrize("code", [14, 16, None])
def test_a_full_report_keeps_what_is_being_committed_from_its_next_owner(code: int | None) -> None:
    rig = stable()
    rig.assign(tps("t-0..1"), epoch=2)
    call = rig.start_hook()
    rig.next_report()
    rig.end_hook(call, commit={next(iter(tps("t-2"))): 7})
    assert rig.state == "COMMITTING"
    has_no_good_response(rig, code)
    assert rig.report.topic_partitions == by_id(tps("t-0..2"))
    rig.coordinator_responds(epoch=2, assigned=tps("t-0..1"))
    rig.settle()
    assert rig.report.topic_partitions == by_id(tps("t-0..1"))


@pytest.mark.proves("E-09")
def test_a_member_that_is_fenced_owes_nothing_of_its_old_epoch() -> None:
    rig = stable()
    rig.assign(tps("t-0..1"), epoch=2)
    rig.next_report()
    rig.coordinator_responds(110)
    rig.run_hook()
    assert (rig.report.member_epoch, rig.report.topic_partitions) == (0, ())
    rig.coordinator_responds(epoch=5, assigned=())
    assert rig.report.topic_partitions == ()  # of the new one
    rig.coordinator_responds(epoch=5)
    rig.run_hook()
    assert rig.next_report().topic_partitions is None


@pytest.mark.proves("G-15", "G-16")
@pytest.mark.parametrize("seed", range(150))
def test_after_any_events_the_last_assignment_is_followed_by_a_report_of_what_is_owned(seed: int) -> None:
    chance = random.Random(seed)
    rig = EpochRig(instance_id=chance.choice([None, "i"]))
    rig.topics(t=8, u=8)
    rig.subscribe("t")
    for _ in range(chance.randrange(20, 120)):
        happened_to(rig, chance)
    rig.subscribe("t", "u")
    assert_settles(rig)
    beats = rig.requested(API)
    said = [number for number, one in enumerate(beats) if one.topic_partitions is not None]
    assert beats[said[-1]].topic_partitions == by_id(rig.owned)
    # Everything is settled now, and an assignment for which nothing has to move comes.
    owned = rig.owned
    for _ in range(2):
        before = len(reports(rig))
        rig.assign(owned, epoch=rig.ready.view.identity.generation + 1)
        rig.coordinator_responds(epoch=rig.ready.view.identity.generation)
        rig.next_report()
        assert reports(rig)[before:] == [None, by_id(owned), None]
        rig.coordinator_responds(epoch=rig.ready.view.identity.generation)


def assert_settles(rig: EpochRig) -> None:
    """A calm coordinator and user, until nothing is left to do: the last assignment was taken and acknowledged."""
    quiet = 0
    for _ in range(120):
        if rig.state == "FAILED":
            rig.subscribe("t", "u")
        rig.post(ev.Polled(rig.now))
        if rig.ready.hook is not None and not rig.member._owned.callback_running:
            rig.run_hook()
        if rig.member._membership.commit_order is not None:
            rig.settle()
        if rig.member._in_flight.is_in_flight("FindCoordinator"):
            rig.found()
        if rig.member._in_flight.is_in_flight(API):
            epoch, null = max(rig.ready.view.identity.generation, 1), rig.report.topic_partitions is None
            releases, joins = rig.report.member_epoch < 0, rig.report.member_epoch == 0
            rig.coordinator_responds(epoch=-2 if releases else epoch, assigned=tps("t-0..2") if joins else None)
            quiet = quiet + 1 if null and rig.state == "STABLE" and rig.ready.hook is None else 0
        if quiet > 2 and not rig.member._in_flight.is_in_flight(API):
            return
        rig.after(2.6)
    raise AssertionError(f"it does not settle: {rig.state}, {reports(rig)[-5:]}")


# ------------------------------------------------------------------------------------------------------ topic names


def test_a_topic_whose_name_is_not_known_is_looked_up_and_the_rest_does_not_wait_for_ever() -> None:
    rig = EpochRig()
    rig.subscribe("t", "u")
    rig.topics(t=4)
    rig.found()
    rig.coordinator_responds(epoch=1, assigned=tps("t-0", "u-0"))
    assert rig.state == "JOINING"
    assert rig.ready.wanted.all_topics
    requested = rig.ready.wanted.attempt
    rig.after(5.1)
    assert (rig.state, rig.hook.event.partitions) == ("ASSIGNING", tps("t-0"))
    assert rig.ready.wanted.attempt > requested  # metadata that cannot name it is requested again
    rig.run_hook()
    rig.coordinator_responds(epoch=1)
    rig.topics(u=1)
    assert (rig.state, rig.hook.event.partitions) == ("ASSIGNING", tps("u-0"))
    rig.run_hook()
    assert set(rig.report.topic_partitions or ()) == set(by_id(tps("t-0", "u-0")))
    assert not rig.ready.wanted.all_topics


@pytest.mark.proves("G-08")
def test_a_topic_that_metadata_lacks_for_a_while_stays_until_the_coordinator_takes_it() -> None:
    rig = stable()
    rig.topics(t=0)  # as of a broker that is behind, or of an authorizer that is away
    assert (rig.state, rig.owned, rig.ready.view.fetchable) == ("STABLE", T, T)
    rig.after(6.0)
    assert (rig.state, rig.owned) == ("STABLE", T)
    rig.coordinator_responds(epoch=2, assigned=T | tps("t-4"))
    rig.run_hook()
    assert rig.report.topic_partitions == by_id(T | tps("t-4"))
    rig.coordinator_responds(epoch=2)
    rig.assign((), epoch=3)
    call = rig.run_hook()
    assert isinstance(call.event, Revoked)
    assert call.event.partitions == T | tps("t-4")


@pytest.mark.proves("B-39")
def test_a_topic_created_again_is_let_go_under_its_old_id_before_it_is_taken_under_the_new_one() -> None:
    rig = stable(tps("t-0..1"))
    rig.topics(t=2, lives={"t": 1})
    rig.next_report()
    rig.coordinator_responds(epoch=2, assigned=tps("t-0..1"), lives={"t": 1})
    call = rig.run_hook()
    assert isinstance(call.event, Revoked)
    assert call.event.partitions == tps("t-0..1")
    rig.run_hook()
    rig.coordinator_responds(epoch=2)
    assert (rig.state, rig.hook.event.partitions) == ("ASSIGNING", tps("t-0..1"))
    rig.run_hook()
    assert rig.report.topic_partitions == by_id(tps("t-0..1"), {"t": 1})


# ------------------------------------------------------------------------------------------------------ subscriptions


@pytest.mark.proves("G-11")
def test_another_subscription_is_sent_at_once_and_what_it_drops_is_let_go_at_once() -> None:
    rig = stable(tps("t-0", "u-0"), "t", "u")
    rig.subscribe("u", "v")
    assert rig.report.subscribed_topic_names == ("u", "v")
    assert (rig.state, rig.hook.event.partitions) == ("REVOKING", tps("t-0"))


@pytest.mark.proves("F-16")
def test_a_pattern_of_ours_is_sent_as_names() -> None:
    rig = EpochRig()
    rig.post(ev.Subscribed(Subscription.matching("t.*", "tx")))
    assert rig.ready.wanted.all_topics
    rig.found()
    assert rig.requested(API) == []  # a join that names nothing would be refused
    rig.topics(complete=True, t1=1, tx=1, u=1)
    assert rig.report.subscribed_topic_names == ("t1",)
    assert rig.report.subscribed_topic_regex is None


def test_a_pattern_of_the_brokers_is_sent_as_it_is_and_taken_back_by_name() -> None:
    rig = EpochRig()
    rig.subscribe_on_broker("t.*")
    rig.found()
    assert (rig.report.subscribed_topic_regex, rig.report.subscribed_topic_names) == ("t.*", ())
    rig.coordinator_responds(epoch=1, assigned=tps("t1-0"))
    rig.topics(complete=True, t1=1)
    rig.run_hook()
    rig.coordinator_responds(epoch=1)
    assert rig.owned == tps("t1-0")
    rig.subscribe("t1")
    assert (rig.report.subscribed_topic_regex, rig.report.subscribed_topic_names) == ("", ("t1",))


@pytest.mark.proves("E-09", "G-16")
@pytest.mark.parametrize("code", [14, 16, None])
def test_a_pattern_of_the_brokers_is_taken_back_also_if_the_first_response_is_an_error(code: int | None) -> None:
    rig = EpochRig()
    rig.subscribe_on_broker("t.*")
    rig.found()
    rig.coordinator_responds(epoch=1, assigned=())
    rig.run_hook()
    rig.coordinator_responds(epoch=1)
    rig.subscribe("t1")
    has_no_good_response(rig, code)
    assert (rig.report.subscribed_topic_regex, rig.report.subscribed_topic_names) == ("", ("t1",))
    rig.coordinator_responds(epoch=1)
    assert rig.next_report().subscribed_topic_regex is None  # said once and acknowledged, it need not be said again


@pytest.mark.proves("G-17", "F-16")
def test_a_static_member_with_names_removes_the_pattern_of_its_predecessor_in_each_full_report() -> None:
    rig = stable(instance_id="i-1")
    join, acknowledgement = rig.requested(API)
    assert (join.subscribed_topic_regex, join.subscribed_topic_names) == ("", ("t",))
    assert acknowledgement.subscribed_topic_regex is None
    rig.next_report()
    rig.cut(API)
    rig.found()
    assert (rig.report.subscribed_topic_regex, rig.report.subscribed_topic_names) == ("", ("t",))
    assert fit(rig.report, 0) == rig.report._replace(subscribed_topic_regex=None)
    assert fit(rig.report, 1) == rig.report


@pytest.mark.proves("F-16")
def test_a_pattern_is_never_left_out_for_a_version_that_has_none() -> None:
    rig = EpochRig()
    rig.subscribe_on_broker("t.*")
    rig.found()
    with pytest.raises(UnsupportedVersion, match="patterns"):
        fit(rig.report, 0)
    assert fit(rig.report, 1) == rig.report


@pytest.mark.proves("F-16")
def test_a_broker_without_patterns_is_named_by_each_poll_until_topics_are_subscribed() -> None:
    with (
        FakeBroker(topics={"t": 1}, versions={API: (0, 0)}) as fake,
        Consumer(fake.bootstrap, group="g", protocol="consumer") as consumer,
    ):
        consumer.subscribe(broker_pattern="t.*")
        for _ in range(2):
            with pytest.raises(UnsupportedVersion, match=r"pattern=.* instead of broker_pattern"):
                poll_until(consumer, lambda: False)
        consumer.subscribe(["t"])
        poll_until(consumer, lambda: len(consumer.assignment) == 1)


def test_a_dynamic_member_that_never_had_a_pattern_says_nothing_of_one() -> None:
    rig = stable()
    assert {one.subscribed_topic_regex for one in rig.requested(API)} == {None}


@pytest.mark.proves("F-16", "G-16")
@pytest.mark.parametrize("code", [25, 110])
def test_a_fenced_member_that_had_a_pattern_removes_it_when_it_joins_again_with_names(code: int) -> None:
    rig = EpochRig()
    rig.subscribe_on_broker("t.*")
    rig.found()
    rig.coordinator_responds(code)  # fenced by 110 it is still a member, with its pattern
    rig.subscribe("t1")
    rig.after(0.2)
    assert (rig.report.member_epoch, rig.report.subscribed_topic_regex) == (0, "")


# ------------------------------------------------------------------------------------------------------------- errors


@pytest.mark.proves("E-09")
@pytest.mark.parametrize("code", [25, 69, 110])
def test_a_fenced_member_loses_all_and_joins_again_with_the_same_id(code: int) -> None:
    rig = stable()
    rig.next_report()
    rig.coordinator_responds(code)
    assert rig.state == "LOSING"
    assert isinstance(rig.hook.event, Lost)
    assert rig.ready.view.fetchable == frozenset()
    rig.run_hook()
    assert (rig.report.member_id, rig.report.member_epoch) == (MEMBER_ID, 0)
    assert (rig.report.topic_partitions, rig.report.subscribed_topic_names) == ((), ("t",))
    assert rig.owned == frozenset()


@pytest.mark.proves("E-09")
@pytest.mark.parametrize("code", [23, 30, 35, 42, 81, 82, 112, 128])
def test_what_no_retry_cures_is_raised_and_reported_as_a_loss(code: int) -> None:
    rig = stable()
    rig.next_report()
    rig.coordinator_responds(code)
    assert isinstance(rig.hook.event, Lost)
    leaves = code in (42, 112, 128)
    assert rig.report.member_epoch == (-1 if leaves else 1), "a coordinator that refuses a field keeps the member"
    rig.run_hook()
    error = fatal(rig)
    assert isinstance(error, GroupRefused)
    assert (error.code, error.place["api"]) == (code, API)
    assert rig.state == "FAILED"
    assert_silent(rig)


@pytest.mark.proves("E-09")
def test_the_id_of_a_group_of_another_type_is_an_error() -> None:
    """A first heartbeat makes a missing group, so GROUP_ID_NOT_FOUND has another meaning there."""
    rig = EpochRig()
    rig.reach_joining("t")
    rig.coordinator_responds(69)
    error = fatal(rig)
    assert isinstance(error, GroupRefused)
    assert (error.code, error.hint is not None and "another type" in error.hint) == (69, True)
    assert rig.state == "FAILED"
    assert_silent(rig)


CUSTOM = "Cannot upgrade classic group billing to consumer group because an unsupported custom assignor is in use."


@pytest.mark.proves("E-09")
def test_joins_go_on_while_members_prevent_the_conversion_of_their_classic_group() -> None:
    rig = EpochRig(session_timeout_ms=10_000)
    rig.reach_joining("t")
    for _ in range(2):
        before = len(rig.requested(API))
        for _ in range(5):
            rig.coordinator_responds(69, message=CUSTOM)
            assert (rig.state, rig.ready.view.fatal) == ("JOINING", None)
            rig.after(1.3)
        assert len(rig.requested(API)) == before + 5
        rig.coordinator_responds(epoch=1, assigned=T)  # such a member has left
        rig.run_hook()
        assert (rig.state, rig.owned) == ("STABLE", T)
        rig.coordinator_responds(25)
        rig.run_hook()
    assert rig.kinds.count("group_not_converted") == 2


@pytest.mark.proves("E-09")
def test_a_classic_group_that_is_not_converted_for_a_session_is_an_error() -> None:
    rig = EpochRig(session_timeout_ms=10_000)
    rig.reach_joining("t")
    rig.coordinator_responds(69, message=CUSTOM)
    (notice,) = (one for one in rig.notices if one.kind == "group_not_converted")
    assert CUSTOM in notice.text
    rig.after(9.9)
    rig.coordinator_responds(69, message=CUSTOM)
    assert rig.ready.view.fatal is None
    rig.after(1.3)
    rig.coordinator_responds(69, message=CUSTOM)
    error = fatal(rig)
    assert isinstance(error, GroupRefused)
    assert (error.code, CUSTOM in error.message) == (69, True)


@pytest.mark.proves("E-09", "B-31")
def test_a_topic_without_permission_is_an_error_once_and_the_membership_goes_on() -> None:
    rig = stable()
    rig.next_report()
    before = len(rig.requested(API))
    ready = rig.coordinator_responds(29)
    assert isinstance(ready.error, AuthorizationFailed)
    assert ready.error.place == {"group": GROUP}
    assert (rig.state, rig.owned, rig.ready.hook, rig.ready.view.fatal) == ("STABLE", T, None, None)
    assert rig.after(0.01).error is None
    assert len(rig.requested(API)) == before, "not without a pause"
    rig.after(0.2)
    again = rig.report
    assert (again.member_epoch, again.subscribed_topic_names) == (1, ("t",))
    assert rig.coordinator_responds().error is None
    rig.next_report()


@pytest.mark.proves("E-09", "B-31")
def test_poll_raises_that_a_permission_is_missing_and_goes_on_once_it_is_there() -> None:
    def refuse(response: ConsumerGroupHeartbeatResponse) -> ConsumerGroupHeartbeatResponse:
        return response._replace(error_code=29, error_message="no", assignment=None)

    with (
        FakeBroker(topics={"t": 1}) as fake,
        Consumer(fake.bootstrap, group="g", protocol="consumer") as consumer,
    ):
        fake.control(API, lambda call: Alter(refuse), times=1)
        consumer.subscribe(["t"])
        with pytest.raises(AuthorizationFailed):
            consumer.poll(PATIENCE_S)
        poll_until(consumer, lambda: len(consumer.assignment) == 1)


@pytest.mark.proves("E-09")
def test_a_coordinator_that_loads_gets_another_request_and_takes_nothing() -> None:
    rig = stable()
    rig.next_report()
    rig.coordinator_responds(14)
    assert (rig.state, rig.owned) == ("STABLE", T)
    rig.after(0.2)
    again = rig.report
    assert (again.member_epoch, again.topic_partitions) == (1, by_id(T))  # all is said again


@pytest.mark.proves("E-09", "G-16")
@pytest.mark.parametrize("code", [15, 16])
def test_another_coordinator_is_looked_for_and_gets_everything(code: int) -> None:
    rig = stable()
    rig.next_report()
    rig.coordinator_responds(code)
    assert rig.ready.view.coordinator is None
    assert (rig.state, rig.owned, rig.ready.view.fetchable) == ("STABLE", T, T)
    rig.found(node=2, host="two")
    assert (rig.report.member_epoch, rig.report.subscribed_topic_names) == (1, ("t",))
    assert rig.report.topic_partitions == by_id(T)


@pytest.mark.proves("G-16")
def test_after_a_lost_response_everything_is_said_again() -> None:
    rig = stable()
    rig.next_report()
    rig.cut(API)
    rig.found()
    assert rig.report.topic_partitions == by_id(T)
    assert rig.report.rebalance_timeout_ms == rig.settings.rebalance_ms


def test_a_refused_join_is_not_tried_again_at_once() -> None:
    rig = EpochRig()
    rig.reach_joining()
    rig.coordinator_responds(25)
    assert len(rig.requested(API)) == 1
    rig.after(0.2)
    assert len(rig.requested(API)) == 2


def test_an_epoch_that_cannot_be_is_a_protocol_error() -> None:
    rig = EpochRig()
    rig.reach_joining()
    rig.coordinator_responds(epoch=0, assigned=())
    assert isinstance(fatal(rig), GroupProtocolError)
    assert rig.report.member_epoch == -1, "a group that has not refused us is left"


def test_a_response_about_an_epoch_that_we_have_left_changes_nothing() -> None:
    rig = stable()
    rig.next_report()
    stale = rig.waiting(API).serial
    rig.post(ev.Unsubscribed())
    rig.run_hook()
    assert rig.state == "LEAVING"
    rig.post(ev.ConsumerGroupHeartbeatResponded(stale, rig.sends[-1].request))  # type: ignore[arg-type]  # not even looked at
    assert rig.state == "LEAVING"


# ------------------------------------------------------------------------------------------------ held instance ids


def refused_111(**settings: object) -> EpochRig:
    """A static member whose join is refused, since its instance id is not released."""
    rig = EpochRig(instance_id="i-1", **settings)  # type: ignore[arg-type]
    rig.reach_joining()
    rig.coordinator_responds(111)
    return rig


@pytest.mark.proves("G-17", "E-09")
@pytest.mark.parametrize("why", ["the response was lost", "it was fenced"])
def test_a_static_member_releases_its_own_earlier_join_and_joins_again(why: str) -> None:
    rig = EpochRig(instance_id="i-1")
    if why == "it was fenced":
        rig.reach_stable(T)
        rig.next_report()
        rig.coordinator_responds(110)
        rig.run_hook()
    else:
        rig.reach_joining()
        rig.cut(API)
        rig.found()
    assert rig.report.member_epoch == 0
    rig.coordinator_responds(111)
    assert (rig.report.member_epoch, rig.report.member_id, rig.report.instance_id) == (-2, MEMBER_ID, "i-1")
    rig.coordinator_responds(epoch=-2)
    assert (rig.state, rig.report.member_epoch, rig.report.topic_partitions) == ("JOINING", 0, ())
    rig.coordinator_responds(epoch=4, assigned=T)
    rig.run_hook()
    assert (rig.state, rig.owned, rig.ready.view.fatal) == ("STABLE", T, None)
    assert "instance_held" not in rig.kinds


@pytest.mark.proves("G-17", "E-09")
@pytest.mark.parametrize("code", [82, 25, 69])
def test_while_another_member_holds_the_instance_id_joins_go_on_with_backoff(code: int) -> None:
    rig = refused_111(session_timeout_ms=10_000)
    rig.coordinator_responds(code)
    (notice,) = (one for one in rig.notices if one.kind == "instance_held")
    assert "'i-1'" in notice.text
    assert "'billing'" in notice.text
    before = len(rig.requested(API))
    for _ in range(5):
        rig.after(1.3)
        assert rig.report.member_epoch == 0, "it is known by now that the hold is another member's"
        rig.coordinator_responds(111)
        assert (rig.state, rig.ready.view.fatal) == ("JOINING", None)
    assert len(rig.requested(API)) == before + 5
    rig.after(1.3)
    rig.coordinator_responds(epoch=1, assigned=T)  # the other member's session is over
    rig.run_hook()
    assert (rig.state, rig.owned) == ("STABLE", T)
    assert rig.kinds.count("instance_held") == 1


@pytest.mark.proves("G-17", "E-09")
def test_an_instance_id_that_is_held_for_longer_than_a_session_is_an_error_that_names_it() -> None:
    rig = refused_111(session_timeout_ms=10_000)
    rig.coordinator_responds(82)
    rig.after(9.9)
    rig.coordinator_responds(111)
    assert rig.ready.view.fatal is None
    rig.after(1.3)
    rig.coordinator_responds(111)
    error = fatal(rig)
    assert isinstance(error, UnreleasedInstance)
    assert (error.code, error.place["instance_id"], error.place["group"]) == (111, "i-1", "billing")
    assert rig.state == "FAILED"
    assert_silent(rig)
    rig.subscribe("u")  # the caller tries once more, and has a session's time again
    rig.coordinator_responds(111)
    rig.coordinator_responds(82)
    assert (rig.state, rig.ready.view.fatal) == ("JOINING", None)


@pytest.mark.proves("G-17")
def test_a_member_that_waited_for_its_instance_id_releases_it_when_it_is_its_own() -> None:
    rig = refused_111(session_timeout_ms=10_000)
    rig.coordinator_responds(82)
    rig.after(1.3)
    rig.coordinator_responds(epoch=1, assigned=T)
    rig.run_hook()
    rig.coordinator_responds(epoch=1)
    for _ in range(3):  # longer than a session
        rig.next_report()
        rig.coordinator_responds(epoch=1)
    rig.next_report()
    rig.coordinator_responds(110)
    rig.run_hook()
    rig.coordinator_responds(111)
    assert (rig.state, rig.report.member_epoch) == ("JOINING", -2)


@pytest.mark.parametrize("code", [14, 16, None])
def test_a_release_without_a_good_response_is_sent_again(code: int | None) -> None:
    rig = refused_111()
    has_no_good_response(rig, code)
    assert rig.report.member_epoch == -2
    rig.coordinator_responds(epoch=-2)
    assert rig.report.member_epoch == 0


def test_a_join_that_is_lost_while_another_member_held_the_instance_id_is_released_too() -> None:
    rig = refused_111(session_timeout_ms=10_000)
    rig.coordinator_responds(82)
    rig.after(0.2)
    rig.cut(API)  # this one may have worked
    rig.found()
    rig.after(1.3)
    rig.coordinator_responds(111)
    assert rig.report.member_epoch == -2
    rig.coordinator_responds(epoch=-2)
    assert rig.report.member_epoch == 0


def test_a_member_that_closes_while_it_releases_leaves_and_nothing_else() -> None:
    rig = refused_111()
    rig.post(ev.CloseRequested(rig.now + 30))
    assert rig.report.member_epoch == -2
    rig.coordinator_responds(82)
    assert (rig.state, rig.ready.view.fatal) == ("CLOSED", None)


def test_another_subscription_after_a_release_begins_without_one() -> None:
    rig = refused_111()
    rig.post(ev.Unsubscribed())
    rig.coordinator_responds(epoch=-2)
    assert rig.state == "OUT"
    rig.subscribe("t")
    assert rig.report.member_epoch == 0


# ------------------------------------------------------------------------------------------------------------ commits


@pytest.mark.proves("E-05")
def test_a_commit_of_an_old_epoch_is_sent_again_under_the_new_one_which_is_requested_at_once() -> None:
    rig = stable()
    before = len(rig.requested(API))
    sent = rig.ready.view.identity
    rig.post(ev.CommitRefused(113, sent, T))
    assert len(rig.requested(API)) == before + 1
    assert commit_verdict(113, sent, rig.ready.view) is CommitVerdict.RETRY
    rig.coordinator_responds(epoch=9)
    assert rig.ready.view.identity.generation == 9


@pytest.mark.proves("E-05")
@pytest.mark.parametrize("code", [25, 110, 113])
def test_a_commit_of_a_member_that_is_fenced_fails(code: int) -> None:
    rig = stable()
    sent = rig.ready.view.identity
    rig.post(ev.CommitRefused(25, sent, T))
    assert rig.state == "LOSING"
    assert commit_verdict(code, sent, rig.ready.view) is CommitVerdict.FAIL


# ------------------------------------------------------------------------------------------------------------ pausing


@pytest.mark.proves("K-13", "K-02", "K-03")
def test_pause_marks_stay_on_what_is_kept_and_go_with_what_moves() -> None:
    rig = stable()
    marks = PauseMarks().pause(T, T)
    rig.assign(tps("t-0..1"), epoch=2)
    marks = marks.settled(rig.hook)
    assert marks.paused(T).keys() == T  # while it is let go it is as it was
    rig.run_hook()
    marks = marks.settled(rig.hook)
    rig.run_hook()
    assert marks.partitions == tps("t-0..1")
    rig.coordinator_responds(epoch=2)
    rig.assign(T, epoch=3)
    marks = marks.settled(rig.hook)
    assert marks.paused(T).keys() == tps("t-0..1")  # what comes back is not paused


# ------------------------------------------------------------------------------------------------------------ leaving


@pytest.mark.proves("G-15")
def test_leaving_lets_go_commits_and_says_minus_one() -> None:
    rig = stable()
    rig.post(ev.CloseRequested(rig.now + 30))
    rig.run_hook(commit=dict.fromkeys(T, 5))
    assert rig.state == "COMMITTING"
    rig.settle()
    assert (rig.report.member_epoch, rig.report.member_id) == (-1, MEMBER_ID)
    rig.coordinator_responds(epoch=-1)
    assert rig.state == "CLOSED"


@pytest.mark.proves("G-17")
@pytest.mark.parametrize(("leave_on_close", "epoch"), [(None, -2), (False, -2), (True, -1)])
def test_a_static_member_leaves_for_a_while_by_default(leave_on_close: bool | None, epoch: int) -> None:
    rig = stable(instance_id="i-1", leave_on_close=leave_on_close)
    assert all(request.instance_id == "i-1" for request in rig.requested(API))
    rig.post(ev.CloseRequested(rig.now + 30))
    rig.run_hook()
    assert (rig.report.member_epoch, rig.report.instance_id) == (epoch, "i-1")


@pytest.mark.proves("E-06")
@pytest.mark.parametrize("code", [14, 15, 16])
def test_a_leave_is_sent_again_if_the_coordinator_moves(code: int) -> None:
    rig = stable()
    rig.post(ev.CloseRequested(rig.now + 30))
    rig.run_hook()
    rig.coordinator_responds(code)
    assert rig.state == "LEAVING"
    rig.found(node=2, host="two")
    assert (rig.report.member_epoch, rig.report.member_id, rig.waiting(API).to.node_id) == (-1, MEMBER_ID, 2)
    rig.coordinator_responds(epoch=-1)
    assert rig.state == "CLOSED"


@pytest.mark.proves("S-13")
def test_a_handler_that_takes_too_long_leaves_and_finds_its_partitions_lost() -> None:
    rig = stable(max_poll_interval_ms=10_000)
    rig.post(ev.PollEnded(rig.now))
    rig.next_report()
    rig.coordinator_responds()
    rig.after(5.1)
    assert (rig.state, rig.report.member_epoch) == ("STALLED", -1)
    rig.post(ev.Polled(rig.now))
    assert isinstance(rig.hook.event, Lost)
    rig.run_hook()
    assert (rig.report.member_epoch, rig.report.member_id) == (0, MEMBER_ID)


def test_unsubscribing_and_subscribing_again_is_a_join_like_the_first() -> None:
    rig = stable()
    rig.post(ev.Unsubscribed())
    rig.run_hook()
    rig.coordinator_responds(epoch=-1)
    assert rig.state == "OUT"
    rig.subscribe("t")
    assert (rig.report.member_epoch, rig.report.member_id) == (0, MEMBER_ID)


def test_a_rebalance_cannot_be_enforced_where_the_coordinator_assigns() -> None:
    rig = stable()
    rig.post(ev.RebalanceEnforced("because"))
    assert rig.state == "STABLE"
    assert "rebalance_not_enforced" in rig.kinds


def test_the_lease_begins_with_the_join_and_ends_with_the_rebalance_timeout() -> None:
    rig = EpochRig(session_timeout_ms=60_000, max_poll_interval_ms=30_000)
    rig.reach_joining()
    joined_at = rig.now
    rig.coordinator_responds(epoch=1, assigned=T)
    assert rig.ready.view.ownership_deadline == pytest.approx(joined_at + 30)
    rig.run_hook()
    rig.coordinator_responds(epoch=1)
    rig.next_report()
    revoked_at = rig.now
    rig.coordinator_responds(epoch=2, assigned=tps("t-0"))
    assert rig.state == "REVOKING"
    rig.next_report()
    rig.coordinator_responds(epoch=2)
    assert rig.ready.view.ownership_deadline == pytest.approx(revoked_at + 30), "the coordinator waits for this member"
    rig.run_hook()
    rig.coordinator_responds(epoch=2)
    assert rig.ready.view.ownership_deadline == pytest.approx(rig.now + 30)


def test_no_response_for_a_session_is_a_dead_coordinator_and_ends_showing_but_not_owning() -> None:
    rig = stable(session_timeout_ms=10_000)
    rig.after(11)
    assert rig.ready.view.ownership_deadline < rig.now
    assert rig.ready.view.coordinator is None
    assert rig.owned == T


# -------------------------------------------------------------------------------------------------------- all of it


def test_every_request_can_be_built_in_every_version_that_can_say_it() -> None:
    rig = stable(rack_id="r", remote_assignor="uniform", instance_id="i")
    rig.assign(tps("t-0"), epoch=2)
    rig.run_hook()
    rig.run_hook()
    rig.post(ev.CloseRequested(rig.now + 30))
    rig.run_hook()
    message = CATALOGUE[API].request
    for request in rig.requested(API):
        for version in (0, 1):
            said = fit(request, version)
            assert message.parse(message.build(said, version), version) == said
            assert said == request or (version, request.subscribed_topic_regex) == (0, "")


@pytest.mark.proves("F-08")
@pytest.mark.parametrize("seed", range(100))
def test_under_any_events_no_walk_leaves_the_table(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: set[tuple[MemberState, Trigger]] = set()

    def recorded(tracker: StateTracker, trigger: Trigger) -> None:
        assert tracker._table is CONSUMER_GROUP_TRANSITIONS
        taken.add((tracker.state, trigger))
        transition(tracker, trigger)

    transition = StateTracker.transition
    monkeypatch.setattr(StateTracker, "transition", recorded)
    chance = random.Random(seed)
    rig = EpochRig(max_poll_interval_ms=20_000, instance_id=chance.choice([None, "i"]))
    rig.topics(t=8, u=8)
    for _ in range(400):
        happened_to(rig, chance)
        view = rig.ready.view
        assert view.fetchable <= view.assignment.partitions
        assert view.identity.generation >= 0 or not view.fetchable
        if rig.state == "STABLE" and rig.report.topic_partitions is not None and not rig.ready.hook:
            assert set(view.assignment.partitions) <= tps("t-0..7", "u-0..7")
    rig.post(ev.CloseRequested(rig.now + 5))
    rig.after(10)
    assert rig.state == "CLOSED"
    assert len(taken) > 8


def happened_to(rig: EpochRig, chance: random.Random) -> None:
    """Something that may happen, happens."""
    beats = rig.member._in_flight.is_in_flight(API)
    finds = rig.member._in_flight.is_in_flight("FindCoordinator")
    calls = rig.ready.hook is not None and not rig.member._owned.callback_running
    anything = frozenset(chance.sample(sorted(tps("t-0..7", "u-0..3")), chance.randrange(8)))
    epoch = max(rig.ready.view.identity.generation, 0) + chance.randrange(1, 3)
    moves: list[tuple[float, bool, Callable[[], object]]] = [
        (3, True, lambda: rig.after(chance.choice([0.05, 0.5, 3.0, 6.0]))),
        (1, True, lambda: rig.subscribe(*chance.sample(["t", "u"], chance.randrange(1, 3)))),
        (0.2, True, lambda: rig.post(ev.Unsubscribed())),
        (2, True, lambda: rig.post(ev.Polled(rig.now))),
        (1, True, lambda: rig.post(ev.PollEnded(rig.now))),
        (6, finds, lambda: rig.found(chance.choice([0, 0, 0, 15]))),
        (6, beats, lambda: rig.coordinator_responds(epoch=epoch, assigned=anything)),
        (4, beats, lambda: rig.coordinator_responds(epoch=epoch)),
        (1, beats, lambda: rig.coordinator_responds(chance.choice([14, 15, 16, 25, 110]))),
        (
            0.5,
            beats and rig.report.member_epoch <= 0,
            lambda: rig.coordinator_responds(111 if rig.report.member_epoch else 82),
        ),
        (0.05, beats, lambda: rig.coordinator_responds(112)),
        (0.5, beats, lambda: rig.cut(API)),
        (6, calls, lambda: rig.run_hook(commit=dict.fromkeys(rig.owned, 1) if chance.random() < 0.5 else None)),
        (2, rig.member._membership.commit_order is not None, lambda: rig.settle()),
        (0.5, True, lambda: rig.post(ev.CommitRefused(chance.choice([25, 113]), rig.ready.view.identity, T))),
    ]
    possible = [(weight, move) for weight, can, move in moves if can]
    chance.choices([move for _, move in possible], [weight for weight, _ in possible])[0]()


def test_its_table_has_every_state_it_can_come_to_and_each_can_end() -> None:
    reached, new = set(), {MemberState.OUT}
    while new:
        reached |= new
        new = {state for each in new for state in CONSUMER_GROUP_TRANSITIONS[each].values()} - reached
    assert reached == set(CONSUMER_GROUP_TRANSITIONS)
    assert set(MemberState) - reached == {MemberState.PLANNING, MemberState.SYNCING}


@pytest.mark.proves("G-17")
@pytest.mark.parametrize("code", [82, 25])
def test_a_static_member_whose_commit_is_of_an_unknown_member_learns_from_a_heartbeat_if_it_is_fenced(
    code: int,
) -> None:
    rig = stable(instance_id="i")
    before = len(rig.requested(API))
    rig.post(ev.CommitRefused(25, rig.ready.view.identity, T))
    assert (rig.state, len(rig.requested(API))) == ("STABLE", before + 1)
    rig.coordinator_responds(code)
    assert rig.state == "LOSING"
    assert isinstance(rig.ready.view.fatal, FencedInstance) is (code == 82)
