"""One test a cell: what each error code of each API makes of a member (E-01 to E-06), and what F-03 to F-11 say."""

import pytest

from kohort.assignors import GroupView, MemberSubscription, Plan, Rebalance
from kohort.coordinator_client import events as ev
from kohort.coordinator_client.errors import AuthorizationFailed
from kohort.coordinator_client.hooks import Lost, Why
from kohort.coordinator_client.leading import AssignorFailed, MemberUnreadable
from kohort.coordinator_client.reactions import FencedInstance, GroupProtocolError, GroupRefused, InconsistentGroup
from kohort.coordinator_client.states import CoordinatorState
from kohort.fastpath.errors import KohortError, WireError
from kohort.protocol.apis.find_coordinator import Coordinator, FindCoordinatorResponse
from kohort.protocol.apis.join_group import JoinGroupResponseMember
from kohort.protocol.errors import ERRORS
from tests.coordinator_client.rig import GROUP, Rig, as_leader, said, tps

T = tps("t-0..2")


def fatal(rig: Rig) -> KohortError:
    error = rig.ready.view.fatal
    assert error is not None
    return error


def assert_silent(rig: Rig) -> None:
    """A member that failed sends nothing, ever."""
    rig.sends.clear()
    for _ in range(5):
        rig.after(60)
    assert rig.sends == []
    assert rig.ready.wake_at is None


# ------------------------------------------------------------------------------------------------- E-01 FindCoordinator


@pytest.mark.proves("E-01", "F-06")
@pytest.mark.parametrize("code", [14, 15])
def test_find_coordinator_not_ready_backs_off_and_asks_again(code: int) -> None:
    rig = Rig(retry_backoff_ms=100, retry_backoff_ms_max=1_000)
    rig.subscribe("t")
    waits = []
    for _ in range(6):
        rig.found(code)
        assert rig.ready.wake_at is not None
        waits.append(rig.ready.wake_at - rig.now)
        rig.after(waits[-1])
    assert len(rig.asked("FindCoordinator")) == 7
    assert waits == sorted(waits), "each wait is as long as the one before, or longer"
    assert waits[-1] == pytest.approx(1.0)
    assert "coordinator_missing" in rig.kinds
    rig.found()
    assert rig.asked("JoinGroup")


@pytest.mark.proves("E-01")
@pytest.mark.parametrize(("code", "error"), [(30, AuthorizationFailed), (24, GroupRefused), (99, GroupRefused)])
def test_find_coordinator_fatal(code: int, error: type[KohortError]) -> None:
    rig = Rig()
    rig.subscribe("t")
    rig.found(code)
    assert rig.state == "FAILED"
    assert isinstance(fatal(rig), error)
    assert isinstance(fatal(rig), GroupRefused)
    assert fatal(rig).place["group"] == GROUP
    assert_silent(rig)


@pytest.mark.proves("E-01")
@pytest.mark.parametrize("count", [0, 2])
def test_find_coordinator_must_name_exactly_one(count: int) -> None:
    rig = Rig()
    rig.subscribe("t")
    one = Coordinator(key=GROUP, node_id=1, host="one", port=9092)
    answer = FindCoordinatorResponse(coordinators=(one,) * count)
    rig.tell(ev.CoordinatorFound(rig.waiting("FindCoordinator").serial, answer))
    assert isinstance(fatal(rig), GroupProtocolError)
    assert rig.state == "FAILED"


@pytest.mark.proves("E-01")
def test_find_coordinator_in_its_old_form_is_understood() -> None:
    rig = Rig()
    rig.subscribe("t")
    rig.tell(
        ev.CoordinatorFound(
            rig.waiting("FindCoordinator").serial, FindCoordinatorResponse(node_id=4, host="four", port=9094)
        )
    )
    assert rig.waiting("JoinGroup").to == (4, "four", 9094)


@pytest.mark.proves("E-01")
def test_a_search_whose_connection_breaks_goes_on_elsewhere() -> None:
    rig = Rig()
    rig.subscribe("t")
    rig.tell(ev.Disconnected(rig.waiting("FindCoordinator").serial, None, "connection refused"))
    rig.after(1)
    assert len(rig.asked("FindCoordinator")) == 2
    assert rig.waiting("FindCoordinator").to is None


@pytest.mark.proves("E-01")
def test_no_permission_on_a_manual_assignments_group_is_told_too() -> None:
    rig = Rig()
    rig.tell(ev.CoordinatorWanted())
    rig.found(30)
    assert isinstance(fatal(rig), AuthorizationFailed)


# ------------------------------------------------------------------------------------------------------ E-02 JoinGroup


@pytest.mark.proves("E-02", "F-06")
@pytest.mark.parametrize("code", [14, 27])
def test_join_not_now_retries_the_same_node(code: int) -> None:
    rig = Rig()
    rig.reach_joining()
    rig.joined(code)
    assert len(rig.asked("JoinGroup")) == 1, "not at once"
    rig.after(1)
    assert len(rig.asked("JoinGroup")) == 2
    assert rig.waiting("JoinGroup").to.node_id == 1
    assert len(rig.asked("FindCoordinator")) == 1


@pytest.mark.proves("E-02", "F-06")
@pytest.mark.parametrize("code", [15, 16])
def test_join_at_the_wrong_node_rediscovers(code: int) -> None:
    rig = Rig()
    rig.reach_joining()
    rig.joined(code)
    assert rig.ready.view.coordinator is None
    rig.after(1)
    rig.found(node=2, host="two")
    rig.after(1)
    assert rig.waiting("JoinGroup").to.node_id == 2


@pytest.mark.proves("E-02", "F-11")
def test_join_with_a_forgotten_id_goes_on_without_one() -> None:
    rig = Rig()
    rig.reach_stable(T)
    rig.heartbeat(27)
    rig.run_hook()
    assert rig.last("JoinGroup").member_id == "m1"
    rig.joined(25)
    assert rig.last("JoinGroup").member_id == ""
    assert rig.state == "JOINING"
    assert rig.ready.hook is None, "an eager member has let everything go by then"


@pytest.mark.proves("E-02")
def test_join_takes_the_id_it_is_given_and_joins_at_once_without_callbacks() -> None:
    """KIP-394: the first join of a dynamic member is refused with an id to come back with."""
    rig = Rig()
    rig.reach_joining()
    rig.joined(79, me="given")
    assert [each.member_id for each in rig.asked("JoinGroup")] == ["", "given"]
    assert rig.ready.hook is None
    assert rig.state == "JOINING"
    rig.joined(me="given", generation=1)
    assert rig.ready.view.identity.member_id == "given"


@pytest.mark.proves("F-18")
@pytest.mark.parametrize("given", ["", "consumer-1-5f0c", "Ünïcode/ with spaces", "x" * 4_000])
def test_a_member_id_is_the_coordinators_to_choose_and_opaque_to_us(given: str) -> None:
    rig = Rig()
    rig.reach_joining()
    rig.joined(79, me=given)
    assert rig.last("JoinGroup").member_id == given


@pytest.mark.proves("F-17")
def test_errors_of_the_first_design_that_never_came_to_the_wire_have_no_code() -> None:
    assert not {"HEARTBEAT_FREQUENCY_TOO_HIGH", "REBALANCE_FAILED"} & {info.name for info in ERRORS.values()}


@pytest.mark.proves("E-02", "F-01")
@pytest.mark.parametrize(
    ("code", "error"),
    [
        (82, FencedInstance),
        (23, InconsistentGroup),
        (26, GroupRefused),
        (24, GroupRefused),
        (30, AuthorizationFailed),
        (81, GroupRefused),
        (35, GroupRefused),
        (22, GroupRefused),
        (4242, GroupRefused),
    ],
)
def test_join_fatal(code: int, error: type[KohortError]) -> None:
    rig = Rig()
    rig.reach_joining()
    rig.joined(code)
    assert rig.state == "FAILED"
    raised = fatal(rig)
    assert isinstance(raised, error)
    assert isinstance(raised, GroupRefused)
    assert raised.code == code
    assert str(code) in str(raised)
    assert raised.place["api"] == "JoinGroup"
    assert raised.hint or code == 4242
    assert_silent(rig)


@pytest.mark.proves("E-02")
def test_a_join_that_loses_its_connection_keeps_the_member_id() -> None:
    rig = Rig()
    rig.reach_stable(())
    rig.heartbeat(27)
    assert rig.state == "JOINING"
    rig.cut("JoinGroup")
    rig.after(1)
    rig.found(node=2)
    rig.after(1)
    assert rig.last("JoinGroup").member_id == "m1"


@pytest.mark.proves("E-02")
@pytest.mark.parametrize("answer", [{"protocol": "unheard-of"}, {"protocol_type": "connect"}, {"protocol": None}])
def test_join_to_another_kind_of_group_is_fatal(answer: dict[str, str]) -> None:
    rig = Rig()
    rig.reach_joining()
    rig.joined(**answer)  # type: ignore[arg-type]
    assert isinstance(fatal(rig), InconsistentGroup)
    assert not rig.asked("SyncGroup")


@pytest.mark.proves("E-02")
def test_an_answer_to_a_join_that_nobody_waits_for_any_more_changes_nothing() -> None:
    """The never-ending rejoin of other clients: a generation reset while a join was under way."""
    rig = Rig()
    rig.reach_joining()
    stale = rig.waiting("JoinGroup").serial
    rig.cut("JoinGroup")
    rig.after(1)
    rig.found(node=2)
    rig.after(1)
    first = rig.waiting("JoinGroup")
    assert first.serial != stale
    rig.sends[:] = [send for send in rig.sends if send.serial != first.serial]
    rig.joined(generation=9, me="ghost")  # answers the first join
    assert rig.ready.view.identity.member_id == ""
    assert rig.state == "JOINING"
    rig.sends.append(first)
    rig.joined(generation=10, me="m1")
    assert rig.ready.view.identity == (GROUP, 10, "m1", None)


# ------------------------------------------------------------------------------------------------------ E-03 SyncGroup


@pytest.mark.proves("E-03")
def test_sync_while_the_group_changed_again_rejoins_with_the_same_id() -> None:
    rig = Rig()
    rig.reach_syncing()
    rig.synced(27)
    assert rig.state == "JOINING"
    assert rig.last("JoinGroup").member_id == "m1"
    assert rig.last("JoinGroup").reason.startswith(Why.SYNC_REFUSED.value)


@pytest.mark.proves("E-03")
def test_sync_of_an_old_generation_rejoins_with_the_id() -> None:
    rig = Rig()
    rig.reach_syncing()
    rig.synced(22)
    assert (rig.state, rig.last("JoinGroup").member_id) == ("JOINING", "m1")
    assert rig.ready.view.identity.generation == -1


@pytest.mark.proves("E-03")
def test_sync_of_an_unknown_member_rejoins_without_id() -> None:
    rig = Rig()
    rig.reach_syncing()
    rig.synced(25)
    assert (rig.state, rig.last("JoinGroup").member_id) == ("JOINING", "")


@pytest.mark.proves("E-03", "F-06")
@pytest.mark.parametrize("code", [15, 16])
def test_sync_at_the_wrong_node_rediscovers_and_rejoins(code: int) -> None:
    rig = Rig()
    rig.reach_syncing()
    rig.synced(code)
    rig.after(1)
    rig.found(node=2)
    rig.after(1)
    assert rig.waiting("JoinGroup").to.node_id == 2
    assert rig.last("JoinGroup").member_id == "m1"


@pytest.mark.proves("E-03")
@pytest.mark.parametrize(("code", "error"), [(82, FencedInstance), (30, AuthorizationFailed), (77, GroupRefused)])
def test_sync_fatal(code: int, error: type[KohortError]) -> None:
    rig = Rig()
    rig.reach_syncing()
    rig.synced(code)
    assert isinstance(fatal(rig), error)
    assert rig.state == "FAILED"


@pytest.mark.proves("E-03")
def test_sync_overtaken_by_a_heartbeat_that_reset_the_generation_is_discarded() -> None:
    rig = Rig()
    rig.reach_syncing()
    rig.after(3)
    rig.beat(22)
    assert rig.state == "JOINING"
    rig.synced(assigned=T)
    assert rig.state == "JOINING"
    assert rig.owned == frozenset()


@pytest.mark.proves("E-03", "B-19")
@pytest.mark.parametrize("raw", [b"", b"\x00", b"\x00\x00\x00\x00\x00\x07", b"\xff\xff\x00\x00\x00\x00\x00\x00"])
def test_an_assignment_that_is_none_is_an_error(raw: bytes) -> None:
    rig = Rig()
    rig.reach_syncing()
    rig.synced(raw=raw)
    assert isinstance(fatal(rig), WireError)
    assert rig.state == "FAILED"


@pytest.mark.proves("E-03", "B-19")
def test_an_assignment_of_a_newer_version_is_read_as_far_as_we_know_it() -> None:
    rig = Rig()
    rig.reach_syncing()
    rig.synced(raw=b"\x00\x09\x00\x00\x00\x00\xff\xff\xff\xff and whatever else")
    assert rig.state == "ASSIGNING"


@pytest.mark.proves("E-03", "B-19")
def test_an_assignment_outside_the_subscription_is_not_taken() -> None:
    rig = Rig()
    rig.reach_syncing()
    rig.synced(assigned=tps("stranger-0"))
    assert rig.state == "JOINING"
    assert rig.owned == frozenset()
    assert len(rig.asked("JoinGroup")) == 1, "a leader that errs must not be hammered"
    rig.after(1)
    assert "stranger" in rig.last("JoinGroup").reason


@pytest.mark.proves("E-03")
@pytest.mark.parametrize("answer", [{"protocol": "roundrobin"}, {"protocol_type": "connect"}])
def test_sync_under_another_protocol_is_fatal(answer: dict[str, str]) -> None:
    rig = Rig()
    rig.reach_syncing()
    rig.synced(assigned=T, **answer)  # type: ignore[arg-type]
    assert isinstance(fatal(rig), InconsistentGroup)


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
@pytest.mark.parametrize(("code", "member_id", "why"), [(22, "m1", Why.STALE_GENERATION), (25, "", Why.UNKNOWN_MEMBER)])
def test_heartbeat_of_an_expelled_member_loses_and_rejoins(code: int, member_id: str, why: Why) -> None:
    rig = Rig()
    rig.reach_stable(T, generation=6)
    rig.heartbeat(code)
    assert rig.state == "LOSING"
    assert rig.ready.view.fetchable == frozenset()
    event = rig.hook.event
    assert isinstance(event, Lost)
    assert (event.partitions, event.generation, event.cause.why) == (T, 6, why)
    assert len(rig.asked("JoinGroup")) == 1, "not before the user knows"
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
    rig.tell(ev.RebalanceEnforced("test"))
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
    assert len(rig.asked("JoinGroup")) == 1


@pytest.mark.proves("E-04")
def test_heartbeat_while_the_group_is_loaded_waits_for_the_next() -> None:
    rig = Rig()
    rig.reach_stable(T)
    rig.heartbeat(14)
    assert rig.state == "STABLE"
    rig.heartbeat()
    assert rig.ready.view.coordinator_state is CoordinatorState.KNOWN


@pytest.mark.proves("E-04", "B-42", "B-31")
@pytest.mark.parametrize(("code", "error"), [(82, FencedInstance), (30, AuthorizationFailed), (1234, GroupRefused)])
def test_heartbeat_fatal_tells_of_the_loss_first(code: int, error: type[KohortError]) -> None:
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
    rig.tell(ev.Refused(rig.waiting("Heartbeat").serial, error))
    rig.run_hook()
    assert fatal(rig) is error
    assert rig.state == "FAILED"


@pytest.mark.proves("E-01")
def test_a_search_that_cannot_be_sent_is_fatal() -> None:
    rig = Rig()
    rig.subscribe("t")
    error = KohortError("no common version")
    rig.tell(ev.Refused(rig.waiting("FindCoordinator").serial, error))
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
    assert len(rig.asked("JoinGroup")) == 2


# ------------------------------------------------------------------------------------------------- the dead coordinator


@pytest.mark.proves("F-05", "F-07", "G-12")
def test_a_closed_connection_is_a_dead_coordinator_and_nothing_else() -> None:
    rig = Rig()
    rig.reach_stable(T)
    rig.tell(ev.Disconnected(None, 1, "closed by peer"))
    assert len(rig.asked("FindCoordinator")) == 2, "the first search starts at once"
    assert rig.state == "STABLE"
    assert rig.ready.view.fetchable == T


@pytest.mark.proves("F-05")
def test_another_nodes_connection_is_no_news() -> None:
    rig = Rig()
    rig.reach_stable(T)
    rig.tell(ev.Disconnected(None, 7, "closed by peer"))
    assert rig.ready.view.coordinator_state is CoordinatorState.KNOWN


@pytest.mark.proves("F-05", "B-24", "B-25")
def test_silence_for_a_session_is_a_dead_coordinator() -> None:
    rig = Rig(session_timeout_ms=10_000, request_timeout_ms=30_000)
    rig.reach_stable(T)
    rig.after(3)
    assert rig.waiting("Heartbeat").timeout_ms <= 10_000
    rig.after(6.9)
    assert len(rig.asked("FindCoordinator")) == 1
    rig.after(0.2)
    assert len(rig.asked("FindCoordinator")) == 2
    assert rig.state == "STABLE"


@pytest.mark.proves("F-05", "B-27")
def test_a_coordinator_that_is_named_again_and_again_but_dead_is_not_hammered() -> None:
    rig = Rig(retry_backoff_ms=100, retry_backoff_ms_max=1_000)
    rig.reach_stable(T)
    started = rig.now
    while rig.now < started + 60:
        if rig.ready.view.coordinator is not None:
            rig.tell(ev.Disconnected(None, 1, "connection refused"))
        elif rig.sends[-1].api == "FindCoordinator":
            rig.found()
        wake = rig.ready.wake_at
        assert wake is not None
        rig.after(max(wake - rig.now, 0.001))
    assert len(rig.asked("FindCoordinator")) < 90
    assert rig.state == "STABLE"


@pytest.mark.proves("F-06", "F-07")
def test_a_coordinator_found_too_late_makes_a_new_member_of_us() -> None:
    rig = Rig()
    rig.reach_stable(T)
    rig.tell(ev.Disconnected(None, 1, "down"))
    rig.after(25)
    rig.found(node=2)
    rig.after(3)
    rig.beat(25)
    call = rig.run_hook()
    assert isinstance(call.event, Lost)
    assert rig.last("JoinGroup").member_id == ""


@pytest.mark.proves("F-05", "B-24")
@pytest.mark.parametrize("api", ["FindCoordinator", "JoinGroup", "SyncGroup", "LeaveGroup"])
def test_an_outcome_that_never_comes_is_not_waited_for_for_ever(api: str) -> None:
    """Even if whoever sends for us forgets a request altogether."""
    rig = Rig(rebalance_timeout_ms=60_000, max_poll_interval_ms=3_600_000, session_timeout_ms=3_600_000)
    rig.subscribe("t")
    if api in ("JoinGroup", "SyncGroup"):
        rig.found()
    if api == "SyncGroup":
        rig.joined()
    if api == "LeaveGroup":
        rig.found()
        rig.joined()
        rig.synced()
        rig.run_hook()
        rig.tell(ev.Unsubscribed())
    before, waiting = len(rig.sends), rig.waiting(api)
    rig.after(waiting.timeout_ms / 1000 + 3)
    assert rig.state == ("OUT" if api == "LeaveGroup" else "JOINING")
    if api != "LeaveGroup":
        rig.after(1)
        assert "FindCoordinator" in [send.api for send in rig.sends[before:]], "it looks for the coordinator again"


@pytest.mark.proves("B-22")
def test_a_coordinator_killed_between_join_and_sync_costs_one_more_join() -> None:
    rig = Rig()
    rig.reach_syncing()
    rig.cut("SyncGroup")
    assert rig.state == "JOINING"
    rig.after(1)
    rig.found(node=2)
    rig.after(1)
    rig.again(T, generation=2)
    call = rig.run_hook()
    assert call.event.partitions == T
    assert rig.state == "STABLE"


# --------------------------------------------------------------------------------------------- E-05, as it touches us


@pytest.mark.proves("E-05", "G-14")
def test_commit_27_asks_for_a_rejoin_and_keeps_the_generation() -> None:
    rig = Rig()
    rig.reach_stable(T, generation=3)
    rig.tell(ev.CommitRefused(27, rig.ready.view.identity, T))
    assert rig.state == "REVOKING"
    assert rig.hook.event.cause.why is Why.COMMIT_REFUSED
    assert rig.ready.view.identity.generation == 3


@pytest.mark.proves("E-05", "S-12")
@pytest.mark.parametrize("code", [22, 25])
def test_commit_of_a_lost_member_loses(code: int) -> None:
    rig = Rig()
    rig.reach_stable(T)
    rig.tell(ev.CommitRefused(code, rig.ready.view.identity, T))
    assert rig.state == "LOSING"
    assert isinstance(rig.hook.event, Lost)


@pytest.mark.proves("E-05")
@pytest.mark.parametrize("code", [22, 25, 27, 82])
def test_commit_of_an_old_generation_says_nothing_of_the_new_one(code: int) -> None:
    rig = Rig()
    rig.reach_stable(T, generation=3)
    old = rig.ready.view.identity
    rig.tell(ev.RebalanceEnforced())
    rig.run_hook()
    rig.again(T, generation=4)
    rig.run_hook()
    rig.tell(ev.CommitRefused(code, old, T))
    assert rig.state == "STABLE"


@pytest.mark.proves("E-05", "B-23")
@pytest.mark.parametrize("code", [7, 15, 16])
def test_commit_at_the_wrong_node_rediscovers(code: int) -> None:
    rig = Rig()
    rig.reach_stable(T)
    rig.tell(ev.CommitRefused(code, rig.ready.view.identity, T))
    assert rig.state == "STABLE"
    assert len(rig.asked("FindCoordinator")) == 2


@pytest.mark.proves("E-05", "B-42")
def test_commit_of_a_fenced_member_is_fatal() -> None:
    rig = Rig(instance_id="i")
    rig.reach_stable(T)
    rig.tell(ev.CommitRefused(82, rig.ready.view.identity, T))
    rig.run_hook()
    assert isinstance(fatal(rig), FencedInstance)


@pytest.mark.proves("E-05")
@pytest.mark.parametrize("code", [3, 12, 14, 28, 29])
def test_other_errors_of_a_commit_leave_membership_alone(code: int) -> None:
    rig = Rig()
    rig.reach_stable(T)
    rig.tell(ev.CommitRefused(code, rig.ready.view.identity, T))
    assert rig.state == "STABLE"
    assert rig.member.timeline.rebalances[-1].commits_refused == tuple((tp, code) for tp in sorted(T))


# ------------------------------------------------------------------------------------------------------ leader's errors


class Rogue:
    """An assignor that does what `plan` does."""

    name = "range"
    rebalance = Rebalance.EAGER

    def __init__(self, plan: object) -> None:
        self.plan = plan

    def subscription(self, topics: object, owned: object, generation: int) -> MemberSubscription:
        return MemberSubscription(tuple(topics))  # type: ignore[arg-type]

    def assign(self, group: GroupView) -> Plan:
        if isinstance(self.plan, Exception):
            raise self.plan
        return self.plan  # type: ignore[return-value]


@pytest.mark.proves("G-04")
@pytest.mark.parametrize(
    "plan",
    [
        RuntimeError("division by cucumber"),
        {"m1": tps("t-0"), "m2": tps("t-0")},
        {"m1": tps("t-9")},
        {"nobody": tps("t-0")},
        {"m2": tps("t-0")},
        None,
    ],
    ids=["raises", "one partition twice", "no such partition", "no such member", "not subscribed", "no plan"],
)
def test_a_rogue_assignor_stops_its_leader_and_nobody_else(plan: object) -> None:
    rig = Rig(Rogue(plan))
    rig.topics(t=2, u=2)
    rig.reach_joining()
    rig.joined(**as_leader(said("m1", "t"), said("m2", "u")))
    assert isinstance(fatal(rig), AssignorFailed)
    assert fatal(rig).place["assignor"] == "range"
    assert not rig.asked("SyncGroup"), "no plan at all, rather than a wrong one"


@pytest.mark.proves("B-20")
def test_a_member_that_speaks_gibberish_is_named() -> None:
    rig = Rig()
    rig.topics(t=2)
    rig.reach_joining()
    rig.joined(
        leader=None, members=(said("m1", "t"), JoinGroupResponseMember(member_id="alien", metadata=b"\x00\x01\xff"))
    )
    assert isinstance(fatal(rig), MemberUnreadable)
    assert fatal(rig).place["member"] == "alien"


@pytest.mark.proves("B-20")
def test_a_member_whose_extras_are_unreadable_is_read_as_version_0() -> None:
    rig = Rig()
    rig.topics(t=2)
    rig.reach_joining()
    mangled = b"\x00\x03" + said("m2", "t").metadata[2:-4]  # claims version 3 and ends too early
    rig.joined(leader=None, members=(said("m1", "t"), JoinGroupResponseMember(member_id="m2", metadata=mangled)))
    assert rig.plan() == {"m1": tps("t-0"), "m2": tps("t-1")}


@pytest.mark.proves("E-06")
@pytest.mark.parametrize(("code", "member_code"), [(16, 0), (0, 25), (30, 0)])
def test_any_answer_to_a_leave_ends_it(code: int, member_code: int) -> None:
    rig = Rig()
    rig.reach_stable(())
    rig.tell(ev.CloseRequested(rig.now + 5))
    assert rig.state == "LEAVING"
    rig.left(code, member_code)
    assert rig.state == "CLOSED"
    assert "leave_failed" in rig.kinds


@pytest.mark.proves("E-06")
def test_a_leave_that_cannot_be_sent_ends_too() -> None:
    rig = Rig()
    rig.reach_stable(())
    rig.tell(ev.CloseRequested(rig.now + 5))
    rig.tell(ev.Refused(rig.waiting("LeaveGroup").serial, KohortError("no common version")))
    assert rig.state == "CLOSED"
