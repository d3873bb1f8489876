"""Throttling (KIP-219): requests are delayed, but neither for ever nor at the cost of membership."""

import logging
import time

import pytest

from kohort.common.topic_partition import TopicPartition
from kohort.coordinator_client import Consumer
from kohort.network.auth.sasl import Credentials
from kohort.network.errors import ConnectionFailed
from kohort.network.request_versions import fit
from kohort.network.requests import PendingRequest
from kohort.network.throttle import LONGEST_S, Throttle
from kohort.protocol.apis.fetch import FetchResponse
from kohort.protocol.apis.find_coordinator import FindCoordinatorRequest
from kohort.protocol.apis.heartbeat import HeartbeatResponse
from kohort.protocol.apis.sasl_authenticate import SaslAuthenticateResponse
from kohort.protocol.apis.sasl_handshake import SaslHandshakeResponse
from kohort.testing.fake_broker import Alter, FakeBroker
from tests.coordinator_client.consumer_helpers import read
from tests.network.test_broker_connection import ALL, Rig

FOREVER_MS = 2**31 - 1


def silenced(throttle_ms: int = 500) -> Rig:
    """A connection whose broker has just throttled it, at time 0."""
    rig = Rig(ALL)
    rig.connection.opened(0.0)
    rig.send()
    ((_, version, correlation_id),) = rig.sent()
    rig.respond("Heartbeat", version, correlation_id, HeartbeatResponse(throttle_time_ms=throttle_ms))
    return rig


def apis(rig: Rig) -> list[int]:
    return [key for key, _version, _correlation_id in rig.sent()]


@pytest.mark.proves("B-46")
def test_requests_wait_until_the_time_is_up_and_then_have_their_own() -> None:
    rig = silenced()
    looking = FindCoordinatorRequest(key="g", key_type=0, coordinator_keys=("g",))
    for _ in range(2):
        pending = PendingRequest(
            "FindCoordinator", lambda version: fit(looking, version), lambda outcome, now: None, 0.3
        )
        rig.connection.send(pending, 0.1)
    assert apis(rig) == []
    assert rig.connection.busy
    assert len(rig.connection._held) == 2
    assert rig.connection.deadline() == 0.5
    assert rig.connection.overdue(0.4) is None, "the time of a request that is not sent does not run"
    assert rig.connection.overdue(0.5) is None
    assert apis(rig) == [10, 10]
    assert rig.connection.deadline() == 0.8


@pytest.mark.proves("B-46")
def test_a_session_is_renewed_after_the_throttle_time_and_before_what_was_held() -> None:
    rig = Rig(ALL, Credentials("PLAIN", "alice", "s3cret"))

    def log_in(lifetime_ms: int) -> None:
        for api, response in (
            ("SaslHandshake", SaslHandshakeResponse(error_code=0, mechanisms=("PLAIN",))),
            ("SaslAuthenticate", SaslAuthenticateResponse(error_code=0, session_lifetime_ms=lifetime_ms)),
        ):
            ((_key, version, correlation_id),) = rig.sent()
            assert not rig.respond(api, version, correlation_id, response)

    rig.connection.opened(0.0)
    log_in(20_000)
    rig.send()
    ((_key, version, correlation_id),) = rig.sent()
    rig.respond("Heartbeat", version, correlation_id, HeartbeatResponse(throttle_time_ms=30_000))
    looking = FindCoordinatorRequest(key="g", key_type=0, coordinator_keys=("g",))
    rig.connection.send(
        PendingRequest("FindCoordinator", lambda version: fit(looking, version), lambda outcome, now: None, 60.0), 1.0
    )
    assert rig.connection.deadline() == 17.0
    assert rig.connection.overdue(17.0) is None, "the login of the next session begins"
    assert rig.connection.deadline() == 30.0
    assert rig.connection.overdue(30.0) is None
    assert rig.connection.deadline() == 40.0, "the broker reads the login from now on"
    log_in(0)
    assert apis(rig) == [10]


@pytest.mark.proves("B-46")
def test_heartbeats_do_not_wait() -> None:
    rig = silenced(FOREVER_MS)
    rig.send("Heartbeat")
    assert apis(rig) == [12]


@pytest.mark.proves("B-46")
def test_silence_for_ever_is_believed_for_a_while_and_said_once(caplog: pytest.LogCaptureFixture) -> None:
    throttle = Throttle()
    with caplog.at_level(logging.WARNING, "kohort.connections"):
        throttle.on_response(FetchResponse(throttle_time_ms=FOREVER_MS), 100.0, "broker:9092")
        throttle.on_response(FetchResponse(throttle_time_ms=FOREVER_MS), 101.0, "broker:9092")
    assert throttle.until == 101.0 + LONGEST_S
    assert not throttle.holds("Fetch", 101.0 + LONGEST_S)
    (said,) = caplog.messages
    assert "broker:9092 requested a throttle time of 2147484 s" in said


def test_what_requests_nothing_changes_nothing() -> None:
    throttle = Throttle()
    for response in (FetchResponse(), FetchResponse(throttle_time_ms=-5), None):
        throttle.on_response(response, 1.0, "b")
    assert not throttle.holds("Fetch", 1.0)


def test_what_is_held_has_its_outcome_when_the_connection_ends() -> None:
    rig = silenced()
    held = rig.send("FindCoordinator")
    ((pending, _outcome),) = rig.connection.closed(ConnectionFailed("gone"))
    assert pending is held
    assert not rig.connection.busy


@pytest.mark.proves("B-46")
def test_a_member_lives_through_quotas_and_reads_on() -> None:
    with FakeBroker(topics={"topic": 1}) as fake:
        fake.produce("topic", 0, [(None, b"%d" % number) for number in range(10)])
        fake.control("Fetch", lambda call: Alter(lambda response: response._replace(throttle_time_ms=200)))
        fake.control("Heartbeat", lambda call: Alter(lambda response: response._replace(throttle_time_ms=FOREVER_MS)))
        with Consumer(
            fake.bootstrap,
            group="group",
            auto_offset_reset="earliest",
            heartbeat_interval_ms=100,
            session_timeout_ms=2_000,
            fetch_max_wait_ms=50,
        ) as consumer:
            consumer.subscribe(["topic"])
            read(consumer, 10)
            began = len(fake.calls_of("Heartbeat"))
            limit = time.monotonic() + 120
            while len(fake.calls_of("Heartbeat")) < began + 25:  # longer than a session
                assert time.monotonic() < limit
                consumer.poll(0.05)
            assert consumer.group_metadata().generation == 1
            fake.produce("topic", 0, [(None, b"more")])
            assert [record.value for record in read(consumer, 1)] == [b"more"]
            assert consumer.metrics()["throttled_ms_total"] > FOREVER_MS
            assert consumer.assignment == {TopicPartition("topic", 0)}
