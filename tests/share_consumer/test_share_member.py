"""The member of a share group as a machine: heartbeats, epochs, fencing, leaving."""

import pytest

from kohort.common import KohortError
from kohort.network.errors import AuthorizationFailed
from kohort.protocol.apis.share_group_heartbeat import ShareGroupHeartbeatResponse
from kohort.protocol.errors import BrokerError, ErrorCode
from kohort.share_consumer.errors import ShareGroupsUnsupported
from kohort.share_consumer.share_config import ShareConsumerConfig
from kohort.share_consumer.share_core import ShareConsumerCore
from kohort.share_consumer.share_member import ACTIONS
from kohort.share_consumer.states import TRANSITIONS, ShareState, ShareTrigger
from tests.share_consumer.member_hand import TOPIC, Hand


def joined(**settings: float) -> Hand:
    hand = Hand(**settings)  # type: ignore[arg-type]
    hand.subscribe("work")
    hand.beat(partitions=(0, 1))
    return hand


@pytest.mark.proves("SH-02", "SH-04")
def test_the_first_heartbeat_has_all_fields_and_a_later_one_only_what_changed() -> None:
    hand = Hand()
    assert hand.none_due()
    hand.subscribe("work", "a")
    first = hand.beat(epoch=2, partitions=(0,))
    assert (first.member_epoch, first.rack_id, first.subscribed_topic_names) == (0, "r1", ("a", "work"))
    assert hand.member.assignment == {TOPIC: (0,)}
    assert hand.none_due()
    hand.pass_s(5)
    second = hand.beat(epoch=3)
    assert (second.member_id, second.member_epoch) == (first.member_id, 2)
    assert (second.rack_id, second.subscribed_topic_names) == (None, None)
    assert (hand.member.epoch, hand.member.assignment) == (3, {TOPIC: (0,)})  # null changes nothing


@pytest.mark.proves("SH-04")
def test_an_assignment_replaces_the_whole_assignment() -> None:
    hand = joined()
    hand.pass_s(5)
    hand.beat(partitions=())
    assert hand.member.assignment == {}


@pytest.mark.proves("SH-06")
@pytest.mark.parametrize("how", ["no response", "error"])
def test_after_a_failure_the_next_heartbeat_has_all_fields_again(how: str) -> None:
    hand = joined()
    hand.pass_s(5)
    serial, _request = hand.request()
    if how == "error":
        assert not hand.respond(serial, error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    else:
        hand.member.on_failure(serial, hand.now)
    assert hand.none_due()  # before the backoff is over
    hand.pass_s(0.2)
    request = hand.beat(epoch=4, partitions=(1,))
    assert (request.member_epoch, request.rack_id, request.subscribed_topic_names) == (2, "r1", ("work",))
    assert hand.member.assignment == {TOPIC: (1,)}


@pytest.mark.proves("SH-08", "SH-02")
@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH])
def test_a_fenced_member_drops_its_assignment_and_joins_with_the_same_id(code: ErrorCode) -> None:
    hand = joined()
    hand.pass_s(5)
    hand.fail(code)
    assert (hand.member.state, hand.member.assignment) == (ShareState.JOINING, {})
    request = hand.beat(epoch=9, partitions=(0,))
    assert (request.member_epoch, request.member_id) == (0, "member-1")
    assert request.subscribed_topic_names == ("work",)
    assert hand.member.state is ShareState.STABLE


@pytest.mark.proves("SH-18")
def test_a_group_of_another_type_is_fatal_and_a_group_that_vanished_is_joined_again() -> None:
    hand = Hand()
    hand.subscribe("work")
    hand.fail(ErrorCode.GROUP_ID_NOT_FOUND)
    assert hand.member.state is ShareState.FAILED
    assert isinstance(hand.member.error, BrokerError)
    assert "another type" in str(hand.member.error.hint)

    again = joined()
    again.pass_s(5)
    again.fail(ErrorCode.GROUP_ID_NOT_FOUND)
    assert again.member.state is ShareState.JOINING


@pytest.mark.proves("SH-22")
def test_a_coordinator_that_moves_costs_neither_membership_nor_assignment() -> None:
    hand = joined()
    hand.pass_s(5)
    assert hand.fail(ErrorCode.NOT_COORDINATOR)
    assert (hand.member.state, hand.member.epoch, hand.member.assignment) == (ShareState.STABLE, 2, {TOPIC: (0, 1)})
    hand.pass_s(1)
    assert hand.request()[1].member_epoch == 2


@pytest.mark.proves("SH-23")
def test_a_topic_without_right_is_reported_and_the_member_stays() -> None:
    hand = joined()
    hand.pass_s(5)
    hand.fail(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    assert isinstance(hand.member.error, AuthorizationFailed)
    assert hand.member.state is ShareState.STABLE


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, AuthorizationFailed),
        (ErrorCode.UNSUPPORTED_VERSION, ShareGroupsUnsupported),
        (ErrorCode.GROUP_MAX_SIZE_REACHED, BrokerError),
        (ErrorCode.INVALID_REQUEST, BrokerError),
    ],
)
def test_other_errors_are_fatal_and_nothing_more_is_sent(code: ErrorCode, kind: type[KohortError]) -> None:
    hand = joined()
    hand.pass_s(5)
    hand.fail(code)
    assert isinstance(hand.member.error, kind)
    assert (hand.member.state, hand.member.assignment) == (ShareState.FAILED, {})
    hand.pass_s(100)
    assert hand.none_due()
    assert code not in ACTIONS


@pytest.mark.proves("SH-19")
def test_the_interval_of_a_response_counts_from_the_request() -> None:
    hand = joined()
    sent_at = hand.now
    hand.pass_s(5)
    serial, _request = hand.request()
    hand.pass_s(2)
    response = ShareGroupHeartbeatResponse(member_epoch=2, heartbeat_interval_ms=7000)
    hand.member.on_response(serial, response, sent_at + 5, hand.now)
    hand.pass_s(4.9)
    assert hand.none_due()
    hand.pass_s(0.2)
    assert not hand.none_due()


def test_an_empty_first_assignment_is_looked_at_soon_and_ever_more_rarely() -> None:
    hand = Hand()
    hand.subscribe("work")
    hand.beat(partitions=())
    waits = []
    for _ in range(6):
        due = hand.member.next_poll_at()
        assert due is not None
        waits.append(round(due - hand.now, 3))
        hand.now = due
        hand.beat()
    assert waits == [0.25, 0.5, 1.0, 2.0, 4.0, 5.0]


@pytest.mark.proves("SH-20")
def test_a_member_that_is_not_polled_leaves_and_joins_again_with_the_next_poll() -> None:
    hand = joined(max_poll_interval_s=10.0)
    hand.pass_s(5)
    hand.beat()
    hand.pass_s(5)
    _serial, request = hand.request()
    assert (request.member_epoch, hand.member.state) == (-1, ShareState.STALLED)
    assert hand.member.assignment == {}
    hand.pass_s(100)
    assert hand.none_due()
    hand.member.polled(hand.now)
    assert hand.request()[1].member_epoch == 0


@pytest.mark.proves("SH-21")
def test_leave_is_sent_at_once_even_with_a_heartbeat_in_flight_and_any_outcome_ends_it() -> None:
    hand = joined()
    hand.pass_s(5)
    old, _request = hand.request()
    hand.member.leave()
    serial, request = hand.request()
    assert (request.member_epoch, hand.member.state) == (-1, ShareState.LEAVING)
    assert hand.none_due()
    hand.respond(old, member_epoch=3)  # of the heartbeat before: no effect
    assert hand.none_due()
    hand.respond(serial, error_code=ErrorCode.UNKNOWN_MEMBER_ID)
    assert hand.member.state is ShareState.OUT


@pytest.mark.proves("SH-21")
@pytest.mark.parametrize("code", [14, 15, 16])
def test_a_leave_is_sent_again_if_the_coordinator_moves(code: int) -> None:
    hand = joined()
    hand.member.leave()
    assert hand.fail(code), "the coordinator is looked up"
    assert (hand.none_due(), hand.member.state) == (True, ShareState.LEAVING)
    due = hand.member.next_poll_at()
    assert due is not None
    hand.now = due
    serial, request = hand.request()
    assert request.member_epoch == -1
    hand.respond(serial, member_epoch=-1)
    assert hand.member.state is ShareState.OUT


@pytest.mark.proves("SH-21")
def test_a_leave_without_a_response_is_sent_again_for_a_while() -> None:
    """All brokers may be down."""
    hand, sent = joined(), 0
    hand.member.leave()
    until = hand.now + 2
    while not hand.member.end_late_leave(hand.now):
        serial, _request = hand.request()
        sent += 1
        hand.member.on_failure(serial, hand.now)
        due = hand.member.next_poll_at()
        assert due is not None
        hand.now = min(due, hand.member.leave_by)
    assert (hand.member.state, hand.now, hand.none_due()) == (ShareState.OUT, until, True)
    assert sent > 2


def test_the_late_response_to_a_leave_that_was_given_up_is_not_that_of_a_join() -> None:
    hand = joined()
    hand.member.leave()
    serial, _request = hand.request()
    hand.member.on_failure(serial, hand.now)
    hand.pass_s(1)
    serial, _request = hand.request()
    hand.subscribe("other")
    hand.pass_s(1)
    assert hand.member.end_late_leave(hand.now)
    hand.respond(serial, member_epoch=-1)
    assert hand.request()[1].member_epoch == 0


def test_a_subscription_during_a_leave_that_meets_a_moving_coordinator_joins_at_once() -> None:
    hand = joined()
    hand.member.leave()
    serial, _request = hand.request()
    hand.subscribe("other")
    hand.respond(serial, error_code=ErrorCode.NOT_COORDINATOR)
    assert hand.request()[1].member_epoch == 0


def test_a_member_that_never_joined_leaves_without_a_request() -> None:
    hand = Hand()
    hand.subscribe("work")
    hand.member.leave()
    assert (hand.member.state, hand.none_due()) == (ShareState.OUT, True)


def test_a_subscription_during_a_leave_joins_when_that_has_ended() -> None:
    hand = joined()
    hand.member.leave()
    serial, _request = hand.request()
    hand.subscribe("other")
    hand.respond(serial, member_epoch=-1)
    request = hand.beat(partitions=())
    assert (request.member_epoch, request.subscribed_topic_names) == (0, ("other",))


def test_a_subscription_that_changes_is_sent_at_once() -> None:
    hand = joined()
    hand.subscribe("work", "more")
    serial, request = hand.request()
    assert (request.member_epoch, request.subscribed_topic_names) == (2, ("more", "work"))
    hand.subscribe("more")  # while that is in flight
    hand.respond(serial, member_epoch=3, heartbeat_interval_ms=5000)
    assert hand.request()[1].subscribed_topic_names == ("more",)


def test_every_state_leads_to_failed() -> None:
    for state, row in TRANSITIONS.items():
        assert state is ShareState.FAILED or row[ShareTrigger.GAVE_UP] is ShareState.FAILED


@pytest.mark.proves("SH-21")
def test_a_leave_without_a_coordinator_is_over_soon() -> None:
    """All brokers may be down."""
    core = ShareConsumerCore(ShareConsumerConfig.of(bootstrap="h:1", group="jobs"), chance=lambda: 0.5, started=0.0)
    core.subscribe(frozenset({"work"}), 0.0)
    member = core.heartbeats.member
    due = member.next_request(0.0)
    assert due is not None
    member.on_response(due[0], ShareGroupHeartbeatResponse(member_epoch=1, heartbeat_interval_ms=5000), 0.0, 0.0)
    core.begin_close(None, 1.0, 31.0)
    core.poll(1.0, 0)
    assert (member.state, core.left(1.0)) == (ShareState.LEAVING, False)
    next_poll_at = core.poll(1.5, 0).next_poll_at
    assert next_poll_at is not None
    assert next_poll_at <= 3.0
    core.poll(3.0, 0)
    assert (member.state, core.left(3.0)) == (ShareState.OUT, True)


@pytest.mark.proves("SH-20")
def test_a_poll_that_waits_longer_than_the_interval_keeps_its_member_in_the_group() -> None:
    config = ShareConsumerConfig.of(bootstrap="h:1", group="jobs", max_poll_interval_ms=10_000)
    core = ShareConsumerCore(config, chance=lambda: 0.5, started=0.0)
    core.subscribe(frozenset({"work"}), 0.0)
    core.begin_poll(None, 0.0, 100.0)
    member = core.heartbeats.member
    for now in (0.0, 50.0, 109.0, 110.0):
        core.poll(now, 0)
        member.next_request(now)
        assert member.state is (ShareState.JOINING if now < 110.0 else ShareState.STALLED)
