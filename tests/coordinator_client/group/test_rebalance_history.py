"""The history of a member: cause, member, phases with durations, moved partitions, refused commits."""

import pytest

from kohort.coordinator_client.group import events as ev
from kohort.coordinator_client.group.states import KEPT_REBALANCES, KEPT_STEPS, MemberState, Timeline
from kohort.coordinator_client.hooks import RebalanceCause, RebalanceReason
from tests.coordinator_client.group.member_rig import Rig, as_leader, said, tps
from tests.coordinator_client.group.test_member_cooperative import Cooperative

T = tps("t-0..1")


def test_a_rebalance_is_reported_from_cause_to_outcome_with_durations() -> None:
    rig = Rig()
    rig.reach_stable(T, generation=4)
    rig.heartbeat(27)
    started = rig.now
    rig.after(0.5)  # the user's handler runs on
    call = rig.start_hook()
    rig.after(0.25)  # the hook takes its time
    rig.end_hook(call, commit=dict.fromkeys(T, 1))
    rig.after(0.125)
    rig.settle()
    rig.after(2)
    rig.joined(generation=5)
    rig.after(1)
    rig.synced(assigned=tps("t-0"))
    rig.run_hook()
    reported = rig.member.timeline.rebalances[-1]
    assert reported.cause.reason is RebalanceReason.REBALANCE_IN_PROGRESS
    assert (reported.started_at, reported.ended_at, reported.outcome) == (started, rig.now, MemberState.STABLE)
    assert [(phase.state.name, phase.lasted_s(rig.now)) for phase in reported.phases] == [
        ("REVOKING", 0.75),
        ("COMMITTING", 0.125),
        ("JOINING", 2),
        ("SYNCING", 1),
        ("ASSIGNING", 0),
    ]
    assert reported.seconds_in(MemberState.JOINING, rig.now) == 2
    assert (reported.revoked, reported.added, reported.kept, reported.lost) == (T, tps("t-0"), frozenset(), frozenset())
    assert (reported.generation, reported.protocol, reported.leader, reported.attempts) == (5, "range", False, 1)
    assert "rebalance_ended" in rig.kinds


def test_a_leader_reports_members_that_came_and_left() -> None:
    rig = Rig()
    rig.topics(t=2)
    rig.reach_joining()
    rig.joined(**as_leader(said("m1", "t"), said("m2", "t")))
    rig.synced(assigned=tps("t-0"))
    rig.run_hook()
    assert rig.member.timeline.rebalances[-1].members_joined == frozenset(), "the one to compare with is not known yet"
    rig.heartbeat(27)
    rig.run_hook()
    rig.joined(generation=2, **as_leader(said("m1", "t"), said("m3", "t")))
    reported = rig.member.timeline.rebalances[-1]
    assert reported.members_joined == {"m3"}
    assert reported.members_left == {"m2"}


def test_a_cooperative_rebalance_is_two_stories_of_which_the_second_says_it_follows_up() -> None:
    rig = Rig(Cooperative())
    rig.reach_stable(T, protocol="gentle")
    rig.heartbeat(27)
    rig.again(tps("t-0"), generation=2, protocol="gentle")
    rig.run_hook()
    rig.run_hook()
    first, second = rig.member.timeline.rebalances[-2:]
    assert (first.revoked, first.kept, first.outcome) == (tps("t-1"), tps("t-0"), MemberState.STABLE)
    assert second.cause.reason is RebalanceReason.FOLLOW_UP
    assert second.ended_at is None
    assert rig.member.timeline.current is second


def test_a_loss_is_reported_with_what_was_lost() -> None:
    rig = Rig()
    rig.reach_stable(T)
    rig.heartbeat(25)
    rig.run_hook()
    reported = rig.member.timeline.rebalances[-1]
    assert (reported.cause.reason, reported.lost) == (RebalanceReason.UNKNOWN_MEMBER, T)
    assert reported.ended_at is None, "it goes on until the member stands again"


def test_a_loss_in_the_middle_is_a_trouble_of_the_same_story() -> None:
    rig = Rig()
    rig.reach_stable(())
    rig.heartbeat(27)
    count = len(rig.member.timeline.rebalances)
    rig.joined(25)
    assert len(rig.member.timeline.rebalances) == count
    reported = rig.member.timeline.rebalances[-1]
    assert reported.cause.reason is RebalanceReason.REBALANCE_IN_PROGRESS
    assert any(RebalanceReason.UNKNOWN_MEMBER.value in line for line in reported.troubles)


@pytest.mark.proves("E-05")
def test_refused_commits_are_reported_with_their_codes() -> None:
    rig = Rig()
    rig.reach_stable(T)
    rig.post(ev.CommitRefused(27, rig.ready.view.identity, T))
    assert rig.member.timeline.rebalances[-2].commits_refused == tuple((tp, 27) for tp in sorted(T))


def test_the_history_is_bounded_and_what_was_read_of_it_stays_as_it_was() -> None:
    timeline = Timeline()
    timeline.begin(RebalanceCause(RebalanceReason.ENFORCED), 0.0)
    read = timeline.rebalances
    for number in range(3 * KEPT_REBALANCES):
        timeline.entered(MemberState.JOINING, number)
        timeline.end(MemberState.STABLE, number)
        timeline.begin(RebalanceCause(RebalanceReason.ENFORCED, str(number)), number)
    assert len(timeline.rebalances) == KEPT_REBALANCES
    assert timeline.rebalances[-1].cause.detail == str(3 * KEPT_REBALANCES - 1)
    assert len(read) == 1
    assert read[0].phases == ()


def test_a_rebalance_without_end_is_a_bounded_story() -> None:
    rig = Rig()
    rig.reach_syncing("t")
    for generation in range(2, 3 * KEPT_STEPS):
        rig.after(0.1)
        rig.synced(27)
        rig.after(0.1)
        rig.joined(generation=generation)
    reported = rig.member.timeline.rebalances[-1]
    assert reported.ended_at is None
    assert reported.attempts == 3 * KEPT_STEPS - 1
    assert len(reported.phases) == len(reported.troubles) == KEPT_STEPS
    assert reported.phases[-1].state is MemberState.SYNCING, "the newest are kept"


def test_facts_without_a_rebalance_are_nobodys() -> None:
    timeline = Timeline()
    timeline.noted(generation=3)
    timeline.add_error("alone")
    timeline.attempt()
    timeline.commit_refused(T, 27)
    timeline.end(MemberState.OUT, 1.0)
    assert timeline.rebalances == ()
    assert timeline.current is None
