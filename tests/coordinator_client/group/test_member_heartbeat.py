"""One test a cell: what an error of Heartbeat or OffsetCommit makes of a member (E-04, E-05)."""

import pytest

from kohort.common.errors import KohortError
from kohort.coordinator_client.group import events as ev
from kohort.coordinator_client.group.error_actions import FencedInstance, GroupRefused
from kohort.coordinator_client.group.states import CoordinatorState
from kohort.coordinator_client.hooks import Lost, RebalanceReason
from kohort.network.errors import AuthorizationFailed
from tests.coordinator_client.group.member_rig import Rig, assert_silent, fatal, tps

T = tps("t-0..2")


# ------------------------------------------------------------------------------------------------------ E-04 Heartbeat


@pytest.mark.proves("E-04", "G-14", "F-03")
def test_heartbeat_27_counts_only_when_stable() -> None:
    rig = Rig()
    rig.reach_syncing()
    rig.heartbeat(27)
    assert rig.state == "SYNCING"
    rig.synced(assigned=T)
    rig.heartbeat(27)
    assert rig.state == "ASSIGNING"
    rig.run_hook()
    assert rig.state == "STABLE", "what was ignored is not remembered: the next heartbeat says it again"
    rig.heartbeat(27)
    assert rig.state == "REVOKING"
    rig.heartbeat(27)
    assert rig.state == "REVOKING"


@pytest.mark.proves("E-04", "F-03", "F-10")
@pytest.mark.parametrize(
    ("code", "member_id", "why"),
    [(22, "m1", RebalanceReason.STALE_GENERATION), (25, "", RebalanceReason.UNKNOWN_MEMBER)],
)
def test_heartbeat_of_an_expelled_member_loses_and_rejoins(code: int, member_id: str, why: RebalanceReason) -> None:
    rig = Rig()
    rig.reach_stable(T, generation=6)
    rig.heartbeat(code)
    assert rig.state == "LOSING"
    assert rig.ready.view.fetchable == frozenset()
    event = rig.hook.event
    assert isinstance(event, Lost)
    assert (event.partitions, event.generation, event.cause.reason) == (T, 6, why)
    assert len(rig.requested("JoinGroup")) == 1, "not before the user knows"
    rig.run_hook()
    assert rig.last("JoinGroup").member_id == member_id
    assert rig.owned == frozenset()


@pytest.mark.proves("E-04")
@pytest.mark.parametrize("code", [22, 25, 82])
def test_heartbeat_about_an_identity_we_no_longer_have_is_ignored(code: int) -> None:
    rig = Rig()
    rig.reach_stable((), generation=1)
    rig.after(3)
    stale = rig.waiting("Heartbeat").serial
    rig.post(ev.RebalanceEnforced("test"))
    rig.again((), generation=2)
    rig.run_hook()
    rig.beat(code, serial=stale)
    assert rig.state == "STABLE"
    assert rig.ready.view.identity.generation == 2


@pytest.mark.proves("E-04", "F-06", "G-12", "B-21")
@pytest.mark.parametrize("code", [15, 16])
def test_heartbeat_at_the_wrong_node_rediscovers_without_a_rebalance(code: int) -> None:
    rig = Rig()
    rig.reach_stable(T)
    rig.heartbeat(code)
    assert rig.state == "STABLE"
    assert rig.ready.view.fetchable == T
    rig.after(1)
    rig.found(node=2)
    rig.heartbeat()
    assert rig.waiting("Heartbeat").to.node_id == 2
    assert rig.last("Heartbeat").generation_id == 1
    assert len(rig.requested("JoinGroup")) == 1


@pytest.mark.proves("E-04")
def test_heartbeat_while_the_group_is_loaded_waits_for_the_next() -> None:
    rig = Rig()
    rig.reach_stable(T)
    rig.heartbeat(14)
    assert rig.state == "STABLE"
    rig.heartbeat()
    assert rig.member._coordinator.state is CoordinatorState.KNOWN


@pytest.mark.proves("E-04", "B-42", "B-31")
@pytest.mark.parametrize(("code", "error"), [(82, FencedInstance), (30, AuthorizationFailed), (1234, GroupRefused)])
def test_heartbeat_fatal_reports_the_loss_first(code: int, error: type[KohortError]) -> None:
    rig = Rig(instance_id="i")
    rig.reach_stable(T)
    rig.heartbeat(code)
    assert rig.state == "LOSING"
    assert isinstance(fatal(rig), error)
    call = rig.run_hook()
    assert isinstance(call.event, Lost)
    assert rig.state == "FAILED"
    assert_silent(rig)


@pytest.mark.proves("E-04", "B-30")
def test_a_request_that_cannot_be_sent_at_all_is_fatal_with_its_own_error() -> None:
    rig = Rig()
    rig.reach_stable(T)
    rig.after(3)
    error = KohortError("authentication failed")
    rig.post(ev.RequestFailed(rig.waiting("Heartbeat").serial, error))
    rig.run_hook()
    assert fatal(rig) is error
    assert rig.state == "FAILED"


@pytest.mark.proves("E-01")
def test_a_search_that_cannot_be_sent_is_fatal() -> None:
    rig = Rig()
    rig.subscribe("t")
    error = KohortError("no common version")
    rig.post(ev.RequestFailed(rig.waiting("FindCoordinator").serial, error))
    assert fatal(rig) is error
    assert rig.state == "FAILED"


@pytest.mark.proves("E-04")
def test_a_new_subscription_revives_a_failed_member() -> None:
    rig = Rig()
    rig.reach_joining()
    rig.joined(30)
    rig.subscribe("t")
    assert rig.ready.view.fatal is None
    assert rig.state == "JOINING"
    assert len(rig.requested("JoinGroup")) == 2


# --------------------------------------------------------------------------------------------- E-05, as it touches us


@pytest.mark.proves("E-05", "G-14")
def test_commit_27_requests_a_rejoin_and_keeps_the_generation() -> None:
    rig = Rig()
    rig.reach_stable(T, generation=3)
    rig.post(ev.CommitRefused(27, rig.ready.view.identity, T))
    assert rig.state == "REVOKING"
    assert rig.hook.event.cause.reason is RebalanceReason.COMMIT_REFUSED
    assert rig.ready.view.identity.generation == 3


@pytest.mark.proves("E-05", "S-12")
@pytest.mark.parametrize("code", [22, 25])
def test_commit_of_a_lost_member_loses(code: int) -> None:
    rig = Rig()
    rig.reach_stable(T)
    rig.post(ev.CommitRefused(code, rig.ready.view.identity, T))
    assert rig.state == "LOSING"
    assert isinstance(rig.hook.event, Lost)


@pytest.mark.proves("E-05")
@pytest.mark.parametrize("code", [22, 25, 27, 82])
def test_commit_of_an_old_generation_says_nothing_of_the_new_one(code: int) -> None:
    rig = Rig()
    rig.reach_stable(T, generation=3)
    old = rig.ready.view.identity
    rig.post(ev.RebalanceEnforced())
    rig.run_hook()
    rig.again(T, generation=4)
    rig.run_hook()
    rig.post(ev.CommitRefused(code, old, T))
    assert rig.state == "STABLE"


@pytest.mark.proves("E-05", "B-23")
@pytest.mark.parametrize("code", [7, 15, 16])
def test_commit_at_the_wrong_node_rediscovers(code: int) -> None:
    rig = Rig()
    rig.reach_stable(T)
    rig.post(ev.CommitRefused(code, rig.ready.view.identity, T))
    assert rig.state == "STABLE"
    assert len(rig.requested("FindCoordinator")) == 2


@pytest.mark.proves("E-05", "B-42")
def test_commit_of_a_fenced_member_is_fatal() -> None:
    rig = Rig(instance_id="i")
    rig.reach_stable(T)
    rig.post(ev.CommitRefused(82, rig.ready.view.identity, T))
    rig.run_hook()
    assert isinstance(fatal(rig), FencedInstance)


@pytest.mark.proves("E-05")
@pytest.mark.parametrize("code", [3, 12, 14, 28, 29])
def test_other_errors_of_a_commit_leave_membership_alone(code: int) -> None:
    rig = Rig()
    rig.reach_stable(T)
    rig.post(ev.CommitRefused(code, rig.ready.view.identity, T))
    assert rig.state == "STABLE"
    assert rig.member.timeline.rebalances[-1].commits_refused == tuple((tp, code) for tp in sorted(T))
