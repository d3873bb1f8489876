"""One test a cell: what an error makes of a member that searches, joins, syncs or leaves (E-01 to E-03, E-06)."""

import pytest

from kohort.common.errors import KohortError, WireError
from kohort.coordinator_client.group import events as ev
from kohort.coordinator_client.group.error_actions import (
    FencedInstance,
    GroupProtocolError,
    GroupRefused,
    InconsistentGroup,
)
from kohort.coordinator_client.hooks import RebalanceReason
from kohort.network.errors import AuthorizationFailed
from kohort.protocol.apis.find_coordinator import Coordinator, FindCoordinatorResponse
from kohort.protocol.errors import ERRORS
from tests.coordinator_client.group.member_rig import GROUP, Rig, assert_silent, fatal, tps

T = tps("t-0..2")


# ------------------------------------------------------------------------------------------------- E-01 FindCoordinator


@pytest.mark.proves("E-01", "F-06")
@pytest.mark.parametrize("code", [14, 15])
def test_find_coordinator_not_ready_backs_off_and_retries(code: int) -> None:
    rig = Rig(retry_backoff_ms=100, retry_backoff_ms_max=1_000)
    rig.subscribe("t")
    waits = []
    for _ in range(6):
        rig.found(code)
        assert rig.ready.wake_at is not None
        waits.append(rig.ready.wake_at - rig.now)
        rig.after(waits[-1])
    assert len(rig.requested("FindCoordinator")) == 7
    assert waits == sorted(waits), "each wait is as long as the one before, or longer"
    assert waits[-1] == pytest.approx(1.0)
    assert "coordinator_missing" in rig.kinds
    rig.found()
    assert rig.requested("JoinGroup")


def test_a_search_that_goes_on_is_reported_ever_less_often() -> None:
    rig = Rig(retry_backoff_ms=100, retry_backoff_ms_max=1_000)
    rig.subscribe("t")
    for _ in range(9):
        rig.found(15)
        assert rig.ready.wake_at is not None
        rig.after(rig.ready.wake_at - rig.now)
    reported = [notice.text for notice in rig.notices if notice.kind == "coordinator_missing"]
    assert [text.split(" attempts")[0] for text in reported] == [f"no coordinator after {n}" for n in (1, 2, 4, 8)]


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
    response = FindCoordinatorResponse(coordinators=(one,) * count)
    rig.post(ev.FindCoordinatorResponded(rig.waiting("FindCoordinator").serial, response))
    assert isinstance(fatal(rig), GroupProtocolError)
    assert rig.state == "FAILED"


@pytest.mark.proves("E-01")
def test_find_coordinator_in_its_old_form_is_understood() -> None:
    rig = Rig()
    rig.subscribe("t")
    rig.post(
        ev.FindCoordinatorResponded(
            rig.waiting("FindCoordinator").serial, FindCoordinatorResponse(node_id=4, host="four", port=9094)
        )
    )
    assert rig.waiting("JoinGroup").to == (4, ("four", 9094))


@pytest.mark.proves("E-01")
def test_a_search_whose_connection_breaks_goes_on_elsewhere() -> None:
    rig = Rig()
    rig.subscribe("t")
    rig.post(ev.Disconnected(rig.waiting("FindCoordinator").serial, None, "connection refused"))
    rig.after(1)
    assert len(rig.requested("FindCoordinator")) == 2
    assert rig.waiting("FindCoordinator").to is None


@pytest.mark.proves("E-01")
def test_no_permission_that_is_known_only_after_an_unsubscribe_is_reported_too() -> None:
    rig = Rig()
    rig.subscribe("t")
    rig.post(ev.Unsubscribed())
    rig.found(30)
    assert isinstance(fatal(rig), AuthorizationFailed)


# ------------------------------------------------------------------------------------------------------ E-02 JoinGroup


@pytest.mark.proves("E-02", "F-06")
@pytest.mark.parametrize("code", [14, 27])
def test_join_not_now_retries_the_same_node(code: int) -> None:
    rig = Rig()
    rig.reach_joining()
    rig.joined(code)
    assert len(rig.requested("JoinGroup")) == 1, "not at once"
    rig.after(1)
    assert len(rig.requested("JoinGroup")) == 2
    assert rig.waiting("JoinGroup").to.node_id == 1
    assert len(rig.requested("FindCoordinator")) == 1


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
    assert [each.member_id for each in rig.requested("JoinGroup")] == ["", "given"]
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


def test_a_join_without_a_common_assignor_is_refused_with_the_names_of_this_members() -> None:
    rig = Rig("sticky", "roundrobin")
    rig.reach_joining()
    rig.joined(23)
    with pytest.raises(InconsistentGroup, match="sticky, roundrobin"):
        raise fatal(rig)


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
@pytest.mark.parametrize("response", [{"protocol": "unheard-of"}, {"protocol_type": "connect"}, {"protocol": None}])
def test_join_to_another_kind_of_group_is_fatal(response: dict[str, str]) -> None:
    rig = Rig()
    rig.reach_joining()
    rig.joined(**response)  # type: ignore[arg-type]
    assert isinstance(fatal(rig), InconsistentGroup)
    assert not rig.requested("SyncGroup")


@pytest.mark.proves("E-02")
def test_a_response_to_a_join_that_is_not_waited_for_changes_nothing() -> None:
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
    rig.joined(generation=9, me="ghost")  # the response to the first join
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
    assert rig.last("JoinGroup").reason.startswith(RebalanceReason.SYNC_REFUSED.value)


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
    rig.synced(raw=b"\x00\x09\x00\x00\x00\x00\xff\xff\xff\xff and some more")
    assert rig.state == "ASSIGNING"


@pytest.mark.proves("E-03", "B-19")
def test_an_assignment_outside_the_subscription_is_not_taken() -> None:
    rig = Rig()
    rig.reach_syncing()
    rig.synced(assigned=tps("stranger-0"))
    assert rig.state == "JOINING"
    assert rig.owned == frozenset()
    assert len(rig.requested("JoinGroup")) == 1, "a leader that errs must not be hammered"
    rig.after(1)
    assert "stranger" in rig.last("JoinGroup").reason


@pytest.mark.proves("E-03")
@pytest.mark.parametrize("response", [{"protocol": "roundrobin"}, {"protocol_type": "connect"}])
def test_sync_under_another_protocol_is_fatal(response: dict[str, str]) -> None:
    rig = Rig()
    rig.reach_syncing()
    rig.synced(assigned=T, **response)  # type: ignore[arg-type]
    assert isinstance(fatal(rig), InconsistentGroup)


# ------------------------------------------------------------------------------------------------------ E-06 LeaveGroup


@pytest.mark.proves("E-06")
@pytest.mark.parametrize(("code", "member_code"), [(0, 25), (30, 0)])
def test_an_error_of_a_leave_ends_it(code: int, member_code: int) -> None:
    rig = Rig()
    rig.reach_stable(())
    rig.post(ev.CloseRequested(rig.now + 5))
    assert rig.state == "LEAVING"
    rig.left(code, member_code)
    assert rig.state == "CLOSED"
    assert "leave_failed" in rig.kinds


@pytest.mark.proves("E-06")
@pytest.mark.parametrize("code", [14, 15, 16])
def test_a_leave_is_sent_again_if_the_coordinator_moves(code: int) -> None:
    rig = Rig()
    rig.reach_stable(())
    rig.post(ev.CloseRequested(rig.now + 5))
    rig.left(code)
    assert rig.state == "LEAVING"
    rig.found(node=2, host="two")
    first, again = (send for send in rig.sends if send.api == "LeaveGroup")
    assert again.request == first.request
    assert again.to is not None
    assert again.to.node_id == 2
    rig.left()
    assert rig.state == "CLOSED"


@pytest.mark.proves("E-06")
def test_a_leave_is_sent_again_with_growing_delays_until_the_time_of_close_is_over() -> None:
    rig = Rig(retry_backoff_ms=1_000, retry_backoff_ms_max=1_000)
    rig.reach_stable(())
    rig.post(ev.CloseRequested(rig.now + 5))
    until, searches = rig.now + 5, len(rig.requested("FindCoordinator"))
    rig.left(14)
    while rig.state == "LEAVING":
        if len(rig.requested("FindCoordinator")) > searches:
            searches += 1
            rig.found()
            rig.left(14)
        else:
            assert rig.ready.wake_at is not None
            rig.after(rig.ready.wake_at - rig.now)
    assert (rig.state, rig.now) == ("CLOSED", until)
    assert 5 <= len(rig.requested("LeaveGroup")) <= 7


@pytest.mark.proves("E-06")
def test_a_leave_that_cannot_be_sent_ends_too() -> None:
    rig = Rig()
    rig.reach_stable(())
    rig.post(ev.CloseRequested(rig.now + 5))
    rig.post(ev.RequestFailed(rig.waiting("LeaveGroup").serial, KohortError("no common version")))
    assert rig.state == "CLOSED"


@pytest.mark.proves("E-02")
def test_a_leader_that_keeps_giving_what_was_not_asked_for_is_asked_ever_more_slowly() -> None:
    rig = Rig(retry_backoff_ms=100, retry_backoff_ms_max=1_000)
    rig.reach_joining("t")
    waits = []
    for generation in range(1, 7):
        rig.joined(generation=generation)
        rig.synced(assigned=tps("stranger-0"))
        assert rig.ready.wake_at is not None
        waits.append(rig.ready.wake_at - rig.now)
        rig.after(waits[-1])
    assert waits == sorted(waits)
    assert waits[-1] == pytest.approx(1.0)
    rig.joined(generation=9)
    rig.synced(assigned=T)
    assert rig.hook.event.partitions == T


def test_a_leave_that_cannot_be_sent_is_reported_and_the_member_is_out() -> None:
    rig = Rig()
    rig.reach_stable(tps("t-0"))
    rig.post(ev.CloseRequested(rig.now + 30))
    rig.run_hook()
    rig.post(ev.RequestFailed(rig.waiting("LeaveGroup").serial, KohortError("too old")))
    assert rig.state == "CLOSED"
    assert [(one.kind, one.text) for one in rig.notices if one.kind == "leave_failed"] == [("leave_failed", "too old")]
