"""A member that reads on while its join waits checks by a separate request whether that join can still get a
response."""

import socket

import pytest

from kohort.common.topic_partition import TopicPartition
from kohort.coordinator_client import Consumer
from kohort.coordinator_client.group import events as ev
from kohort.network.broker_connection import BrokerConnection
from kohort.network.frame_reader import FrameReader
from kohort.network.requests import ConnectionPurpose, Endpoint
from kohort.network.transport import Channel
from kohort.testing.fake_broker import Drop, FakeBroker
from tests.coordinator_client.consumer_helpers import poll_until
from tests.coordinator_client.group.member_rig import Rig, tps
from tests.coordinator_client.group.test_member_cooperative import Cooperative

T = tps("t-0..1")
PATIENT = {"session_timeout_ms": 10_000, "heartbeat_interval_ms": 3_000, "rebalance_timeout_ms": 600_000}


def joining(**settings: int) -> Rig:
    """A COOPERATIVE member that holds T and whose join has just gone out."""
    rig = Rig(Cooperative(), **{**PATIENT, **settings})
    rig.reach_stable(T, protocol="gentle")
    rig.heartbeat(27)
    assert rig.state == "JOINING"
    rig.sends = rig.sends[-1:]
    assert len(rig.requested("JoinGroup")) == 1
    return rig


def probe(rig: Rig, code: int) -> None:
    rig.after(3)
    assert rig.waiting("Heartbeat").use_other_connection
    rig.beat(code)


@pytest.mark.proves("B-33", "F-14", "G-08")
def test_the_lease_moves_while_a_join_waits_and_the_coordinator_says_so() -> None:
    rig = joining()
    for _ in range(20):
        probe(rig, 27)
        assert rig.ready.view.ownership_deadline > rig.now
    assert rig.state == "JOINING"
    assert len(rig.requested("JoinGroup")) == 1, "the same join waits all along"


@pytest.mark.proves("B-25", "B-26", "B-33")
def test_the_lease_ends_where_no_response_says_so() -> None:
    rig = joining()
    lease = rig.ready.view.ownership_deadline
    for _ in range(3):
        rig.after(3)
    assert rig.ready.view.ownership_deadline == lease
    assert len(rig.requested("Heartbeat")) == 1, "one at a time"


@pytest.mark.proves("F-14")
def test_a_member_that_holds_nothing_sends_no_request() -> None:
    rig = Rig(**PATIENT)
    rig.reach_stable(())
    rig.post(ev.RebalanceEnforced())
    assert rig.state == "JOINING"
    rig.sends.clear()
    for _ in range(5):
        rig.after(3)
    assert rig.sends == []


@pytest.mark.proves("B-25", "F-06")
def test_a_response_that_was_given_and_lost_is_requested_by_another_connection() -> None:
    rig = joining()
    probe(rig, 22)
    probe(rig, 27)  # so that one was of an earlier rebalance
    probe(rig, 22)
    probe(rig, 22)
    assert rig.ready.view.ownership_deadline < rig.now + 10, "what the group has gone on from confirms nothing"
    assert len(rig.requested("JoinGroup")) == 1
    probe(rig, 22)
    rig.found()
    again = rig.waiting("JoinGroup")
    assert again.use_new_connection
    assert again.request.member_id == "m1"
    rig.again(T, generation=3, protocol="gentle")
    rig.run_hook()
    assert rig.state == "STABLE"
    assert not rig.waiting("SyncGroup").use_new_connection, "the new one is trusted"


@pytest.mark.proves("B-25", "F-05")
def test_a_coordinator_that_says_nothing_aside_is_looked_for_again() -> None:
    rig = joining(request_timeout_ms=5_000)
    rig.after(3)
    rig.cut("Heartbeat", "timeout")
    rig.found(node=2, host="two")
    again = rig.waiting("JoinGroup")
    assert again.use_new_connection
    assert again.to.endpoint.host == "two"


@pytest.mark.proves("G-12")
def test_the_other_connection_may_come_and_go() -> None:
    rig = joining()
    rig.after(3)
    rig.cut("Heartbeat")
    assert rig.requested("FindCoordinator") == []
    probe(rig, 27)
    assert rig.ready.view.ownership_deadline > rig.now


@pytest.mark.parametrize("code", [25, 82, 14])
def test_one_such_word_changes_nothing_for_the_join_has_the_last(code: int) -> None:
    rig = joining()
    probe(rig, code)
    assert rig.state == "JOINING"
    assert rig.ready.view.fatal is None
    rig.again(T, generation=2, protocol="gentle")
    rig.run_hook()
    assert rig.owned == T
    assert not rig.waiting("SyncGroup").use_new_connection


@pytest.mark.proves("E-04", "B-21")
@pytest.mark.parametrize("code", [15, 16])
def test_a_coordinator_that_moved_is_found_before_the_join_is_overdue(code: int) -> None:
    rig = joining()
    probe(rig, code)
    rig.after(1)
    rig.found(node=2, host="two")
    assert rig.waiting("JoinGroup").to.endpoint.host == "two"


@pytest.mark.proves("B-25", "G-12", "G-08")
def test_a_lost_response_costs_seconds_and_no_partition() -> None:
    with (
        FakeBroker(topics={"topic": 2}) as fake,
        Consumer(
            fake.bootstrap,
            group="group",
            assignors=["cooperative-sticky"],
            heartbeat_interval_ms=100,
            session_timeout_ms=6_000,
            max_poll_interval_ms=300_000,
        ) as consumer,
    ):
        consumer.subscribe(["topic"])
        poll_until(consumer, lambda: len(consumer.assignment) == 2)
        lost = fake.control("JoinGroup", lambda call: Drop(after_work=True), times=1)
        consumer.enforce_rebalance()
        poll_until(consumer, lambda: consumer.group_metadata().generation > 1)
        poll_until(consumer, lambda: consumer.health().state == "in the group")
        assert lost.calls
        assert consumer.assignment == {TopicPartition("topic", 0), TopicPartition("topic", 1)}
        assert "the response to the JoinGroup was lost" in consumer.timeline()[-1].troubles


@pytest.mark.proves("B-25")
@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="not on this system, and not promised there")
def test_a_socket_whose_path_has_gone_is_found_out_by_the_system() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        host, port = server.getsockname()
        connection = BrokerConnection(Endpoint(host, port), "test", 1 << 20, setup_timeout_s=10.0, opened_at=0.0)
        channel = Channel(ConnectionPurpose.GROUP, connection, FrameReader(1 << 20), None)
        channel.resolved([(socket.AF_INET, (host, port))], 0.0)
        assert channel.sock is not None
        idle, gap, count, unacknowledged_ms = (
            channel.sock.getsockopt(socket.IPPROTO_TCP, getattr(socket, name))
            for name in ("TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT", "TCP_USER_TIMEOUT")
        )
        channel.close()
    assert idle + gap * count == 30
    assert unacknowledged_ms == 30_000
