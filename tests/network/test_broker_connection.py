"""A connection without a socket: the test is the broker, in bytes."""

from math import inf

import pytest

from kohort.common import WireError
from kohort.network.auth.sasl import Credentials
from kohort.network.auth.token_refresh import Token
from kohort.network.broker_connection import LAST_WITHOUT_IDENTITY, LATE_S, BrokerConnection, explained
from kohort.network.errors import ConnectionFailed, FrameTooLarge
from kohort.network.requests import (
    NOTHING_FOLLOWS,
    Endpoint,
    NoResponse,
    PendingRequest,
    RequestResult,
    ResponseReceived,
    SendFailed,
    Stage,
)
from kohort.protocol.apis.api_versions import ApiVersion, ApiVersionsResponse
from kohort.protocol.apis.heartbeat import HeartbeatRequest, HeartbeatResponse
from kohort.protocol.apis.sasl_authenticate import SaslAuthenticateResponse
from kohort.protocol.apis.sasl_handshake import SaslHandshakeResponse
from kohort.protocol.catalogue import API
from kohort.protocol.errors import BrokerError, UnsupportedVersion
from kohort.protocol.framing import response_header_version

HERE = Endpoint("broker", 9092)
ALL = {key: API[key].versions for key in API if isinstance(key, int)}


class Rig:
    """A connection at time 0, and the results of its requests."""

    def __init__(
        self, ranges: dict[int, tuple[int, int]] | None = None, credentials: Credentials | None = None
    ) -> None:
        self.connection = BrokerConnection(
            HERE,
            "test",
            1 << 20,
            setup_timeout_s=10.0,
            opened_at=0.0,
            request_timeout_s=30.0,
            ranges=ranges,
            credentials=credentials,
            tokens=Tokens(),
        )
        self.outcomes: list[RequestResult] = []

    def send(
        self, api: str = "Heartbeat", *, timeout_s: float = 5.0, at_most: int | None = None, now: float = 0.0
    ) -> PendingRequest:
        request = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
        pending = PendingRequest(api, request, lambda outcome, now: self.outcomes.append(outcome), timeout_s, at_most)
        self.connection.send(pending, now)
        return pending

    def sent(self) -> list[tuple[int, int, int]]:
        """Write all frames. Returns (API key, version, correlation id) of each."""
        frames = self.connection.outgoing()
        for _ in frames:
            self.connection.written()
        return [
            tuple(int.from_bytes(frame[at : at + size], "big") for at, size in ((4, 2), (6, 2), (8, 4)))  # type: ignore[misc]
            for frame in frames
        ]

    def respond(
        self, api: str, version: int, correlation_id: int, value: object
    ) -> list[tuple[PendingRequest, RequestResult]]:
        response = API[api].response
        header = correlation_id.to_bytes(4, "big", signed=True) + b"\0" * response_header_version(response, version)
        body = header + response.build(value, version)
        return self.connection.received(memoryview(len(body).to_bytes(4, "big") + body), 0.0)

    def open(self) -> None:
        """Open the connection, and receive the response to its first request."""
        self.connection.opened(0.0)
        self.send()
        ((_key, version, correlation_id),) = self.sent()
        assert self.respond("Heartbeat", version, correlation_id, HeartbeatResponse(error_code=0))

    def versions(self, version: int, correlation_id: int, ranges: dict[int, tuple[int, int]], code: int = 0) -> None:
        keys = tuple(ApiVersion(api_key=key, min_version=low, max_version=high) for key, (low, high) in ranges.items())
        self.respond("ApiVersions", version, correlation_id, ApiVersionsResponse(error_code=code, api_keys=keys))


def test_versions_are_requested_first_and_everything_else_waits() -> None:
    rig = Rig()
    rig.send()
    assert rig.sent() == []
    rig.connection.opened(0.0)
    ((key, version, correlation_id),) = rig.sent()
    assert (key, version) == (18, LAST_WITHOUT_IDENTITY)
    rig.versions(version, correlation_id, ALL)
    ((key, version, correlation_id),) = rig.sent()
    assert (key, version) == (12, API["Heartbeat"].versions[1])
    ((_, outcome),) = rig.respond("Heartbeat", version, correlation_id, HeartbeatResponse(error_code=27))
    assert isinstance(outcome, ResponseReceived)
    assert (outcome.value.error_code, outcome.version) == (27, version)


def test_known_ranges_spare_the_request() -> None:
    rig = Rig(ALL)
    rig.send(at_most=2)
    rig.connection.opened(0.0)
    assert [(key, version) for key, version, _ in rig.sent()] == [(12, 2)]


@pytest.mark.proves("E-08")
def test_a_broker_that_does_not_know_our_version_of_api_versions_gets_version_0() -> None:
    rig = Rig()
    rig.connection.opened(0.0)
    ((_, _, correlation_id),) = rig.sent()
    rig.versions(0, correlation_id, {18: (0, 2)}, code=35)
    ((key, version, correlation_id),) = rig.sent()
    assert (key, version) == (18, 0)
    rig.versions(0, correlation_id, {12: (0, 1)})
    rig.send()
    assert [(key, version) for key, version, _ in rig.sent()] == [(12, 1)]


def test_a_broker_that_is_too_old_refuses_one_request_and_serves_others() -> None:
    rig = Rig({12: (90, 99), 3: ALL[3]})
    pending = rig.send()
    rig.connection.opened(0.0)
    assert rig.sent() == []
    ((refused, outcome),) = rig.connection.settled()
    assert refused is pending
    assert isinstance(outcome, SendFailed)
    assert isinstance(outcome.error, UnsupportedVersion)
    assert "Heartbeat" in str(outcome.error)
    assert "90-99" in str(outcome.error)
    assert rig.connection.stage is Stage.READY


def test_an_error_in_the_version_response_ends_the_connection() -> None:
    rig = Rig()
    rig.connection.opened(0.0)
    ((_, version, correlation_id),) = rig.sent()
    with pytest.raises(BrokerError):
        rig.versions(version, correlation_id, {}, code=58)


@pytest.mark.proves("B-03")
@pytest.mark.parametrize("shift", [1, -1, 1000])
def test_a_response_to_another_request_reaches_no_caller(shift: int) -> None:
    rig = Rig(ALL)
    rig.send()
    rig.connection.opened(0.0)
    ((_, version, correlation_id),) = rig.sent()
    with pytest.raises(WireError):
        rig.respond("Heartbeat", version, correlation_id + shift, HeartbeatResponse())
    assert rig.outcomes == []


@pytest.mark.proves("B-24")
def test_a_request_without_a_response_is_overdue_at_its_time_and_every_waiter_gets_the_error() -> None:
    rig = Rig(ALL)
    slow, quick = rig.send(timeout_s=9.0), rig.send(timeout_s=5.0)
    rig.connection.opened(0.0)
    assert rig.connection.deadline() == 5.0
    assert rig.connection.overdue(4.9) is None
    error = rig.connection.overdue(5.0)
    assert isinstance(error, ConnectionFailed)
    assert "Heartbeat" in str(error)
    assert error.place == {"host": "broker", "port": 9092}
    ended = rig.connection.closed(error, timed_out=True)
    assert [pending for pending, _ in ended] == [slow, quick]
    assert all(outcome == NoResponse(error, True) for _, outcome in ended)
    assert not rig.connection.busy


@pytest.mark.proves("B-47")
@pytest.mark.parametrize("held_s", [0.0, 0.5, 300.0])
def test_a_response_is_late_after_the_time_that_a_broker_may_hold_it_and_again_after_a_quarter_more(
    held_s: float,
) -> None:
    rig = Rig(ALL)
    assert rig.connection.late_at() == inf
    rig.connection.opened(0.0)
    rig.send(timeout_s=30.0 + held_s)
    assert not rig.connection.is_late(held_s + LATE_S - 0.1)
    assert rig.connection.late_at() == held_s + LATE_S
    found = []
    while (at := rig.connection.late_at()) < rig.connection.deadline():
        assert not rig.connection.is_late(at - 0.1)
        assert rig.connection.is_late(at)
        assert rig.connection.overdue(at) is None
        found.append(at - held_s)
    assert found == pytest.approx([LATE_S * 1.25**number for number in range(10)])
    ((_, version, correlation_id),) = rig.sent()
    rig.respond("Heartbeat", version, correlation_id, HeartbeatResponse())
    assert rig.connection.late_at() == inf
    assert not rig.connection.is_late(1e9)
    rig.send(timeout_s=30.0, now=1000.0)
    assert rig.connection.late_at() == 1000.0 + LATE_S, "each request has its own time"


@pytest.mark.proves("B-47")
def test_the_oldest_request_decides_whether_a_response_is_late() -> None:
    rig = Rig(ALL)
    rig.connection.opened(0.0)
    rig.send(timeout_s=330.0)
    rig.send(timeout_s=30.0)
    assert rig.connection.late_at() == 300.0 + LATE_S, "requests behind one that is held wait for it"


@pytest.mark.proves("B-47")
@pytest.mark.parametrize("timeout_s", [30.0, 330.0])
def test_a_broker_that_left_the_metadata_is_given_up_when_its_response_is_late(timeout_s: float) -> None:
    rig = Rig(ALL)
    rig.connection.opened(0.0)
    rig.connection.is_removed = True
    rig.send(timeout_s=timeout_s)
    assert rig.connection.late_at() == LATE_S
    assert rig.connection.overdue(LATE_S - 0.1) is None
    rig.connection.is_removed = False
    assert rig.connection.overdue(LATE_S) is None, "it came back"
    rig.connection.is_removed = True
    error = rig.connection.overdue(LATE_S)
    assert isinstance(error, ConnectionFailed)
    assert error.message == "no response to Heartbeat, and the broker left the metadata"
    assert error.place == {"host": "broker", "port": 9092}


@pytest.mark.proves("B-47")
def test_an_idle_connection_to_a_broker_that_left_the_metadata_is_closed() -> None:
    rig = Rig(ALL)
    rig.connection.is_removed = True
    rig.send()
    assert rig.connection.overdue(0.0) is None, "it has yet to open"
    rig.connection.opened(0.0)
    ((_, version, correlation_id),) = rig.sent()
    assert rig.connection.overdue(0.0) is None, "a response is due"
    rig.respond("Heartbeat", version, correlation_id, HeartbeatResponse())
    error = rig.connection.overdue(0.0)
    assert isinstance(error, ConnectionFailed)
    assert error.message == "the broker left the metadata"
    rig.connection.is_removed = False
    assert rig.connection.overdue(0.0) is None


@pytest.mark.proves("B-47", "B-28")
def test_the_setup_of_a_connection_has_its_own_time() -> None:
    rig = Rig()
    rig.connection.is_removed = True
    rig.connection.opened(0.0)
    assert rig.connection.late_at() > rig.connection.deadline() == 10.0


@pytest.mark.proves("B-24", "B-28")
def test_a_connection_that_does_not_open_is_overdue_too() -> None:
    rig = Rig()
    rig.send(timeout_s=60.0)
    assert rig.connection.overdue(9.9) is None
    error = rig.connection.overdue(10.0)
    assert error is not None
    assert "connecting" in str(error)
    rig.connection.opened(9.0)
    assert rig.connection.overdue(10.0) is not None  # nor may it take longer to shake hands


def test_what_a_broken_beginning_means() -> None:
    frame = FrameTooLarge("a frame of 352518912 bytes was announced")
    tls = explained(frame, b"\x15\x03\x03\x00\x02\x02\x46", HERE, responded=False)
    assert "listener uses TLS" in str(tls)
    other = explained(frame, b"HTTP/1.1", HERE, responded=False)
    assert "does not use Kafka's protocol" in str(other)
    assert explained(frame, b"", HERE, responded=True) is frame


def test_the_frames_of_a_login_are_written_as_others_are() -> None:
    connection = BrokerConnection(
        HERE,
        "test",
        1 << 20,
        setup_timeout_s=10.0,
        opened_at=0.0,
        ranges=ALL,
        credentials=Credentials("PLAIN", "alice", "s3cret"),
    )
    connection.opened(0.0)
    (_handshake,) = connection.outgoing()
    connection.written()
    assert not connection.settled()


class Tokens:
    """A source that always has a token."""

    def take(self, now: float, since: float, *, session_s: float | None = None) -> Token:
        return Token("token")

    def accepted(self, proof: Token) -> None: ...

    def refused(self, proof: Token, now: float) -> bool:
        return False


@pytest.mark.proves("B-30")
@pytest.mark.parametrize("mechanism", ["PLAIN", "OAUTHBEARER"])
def test_a_session_is_renewed_behind_a_request_that_the_broker_holds(mechanism: str) -> None:
    rig = Rig(ALL, Credentials(mechanism, "alice", "s3cret"))

    def log_in() -> None:
        for api, response in (
            ("SaslHandshake", SaslHandshakeResponse(error_code=0, mechanisms=(mechanism,))),
            ("SaslAuthenticate", SaslAuthenticateResponse(error_code=0, session_lifetime_ms=100_000)),
        ):
            ((_key, version, correlation_id),) = rig.sent()
            assert not rig.respond(api, version, correlation_id, response)

    rig.connection.opened(0.0)
    log_in()
    pending = rig.send(timeout_s=305.0, now=80.0)
    ((_key, version, correlation_id),) = rig.sent()
    assert rig.connection.deadline() == 85.0, "the login of the next session begins"
    assert rig.connection.overdue(85.0) is None
    assert rig.connection.deadline() == 385.0
    assert rig.connection.overdue(384.9) is None
    ((held, _outcome),) = rig.respond("Heartbeat", version, correlation_id, HeartbeatResponse(error_code=0))
    assert held is pending
    assert rig.connection.deadline() == 395.0
    error = rig.connection.overdue(395.0)
    assert isinstance(error, ConnectionFailed)
    assert error.message == "no response to SaslHandshake in time"
    log_in()
    assert rig.connection.stage is Stage.READY


class Follower:
    """Follows up with the next of `bodies`; None leaves the response to the connection."""

    def __init__(self, rig: Rig, *bodies: bytes | None) -> None:
        self.bodies = list(bodies)
        self.offered: list[bytes] = []
        request = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
        self.send = PendingRequest(
            "Heartbeat",
            request,
            lambda outcome, now: rig.outcomes.append(outcome),
            5.0,
            follow_up=lambda frame, _version, _now: self.follow_up(bytes(frame)),
        )

    def follow_up(self, frame: bytes) -> bytes | None:
        self.offered.append(frame)
        return self.bodies.pop(0)


def test_requests_of_one_api_have_versions_within_their_own_limits() -> None:
    rig = Rig({12: (0, 3)})
    rig.connection.opened(0.0)
    for at_most in (1, None, 2, 1):
        rig.send(at_most=at_most)
    assert [version for _key, version, _correlation_id in rig.sent()] == [1, 3, 2, 1]


def test_the_first_response_of_a_connection_is_not_offered() -> None:
    """The driver takes note of the broker that responds."""
    rig = Rig(ALL)
    rig.connection.opened(0.0)
    follower = Follower(rig, b"never")
    rig.connection.send(follower.send, 0.0)
    ((_key, version, correlation_id),) = rig.sent()
    assert rig.respond("Heartbeat", version, correlation_id, HeartbeatResponse(error_code=0))
    assert follower.offered == []


def test_a_response_from_which_nothing_follows_leaves_the_connection_idle() -> None:
    rig = Rig(ALL)
    rig.open()
    follower = Follower(rig, NOTHING_FOLLOWS)
    rig.connection.send(follower.send, 0.0)
    ((_key, version, correlation_id),) = rig.sent()
    assert rig.respond("Heartbeat", version, correlation_id, HeartbeatResponse(error_code=0)) == []
    assert len(follower.offered) == 1
    assert (rig.connection.outgoing(), rig.connection.busy, rig.connection.deadline()) == ([], False, inf)
    assert len(rig.connection.wire.open) == 0
    rig.send()
    ((_key, version, later),) = rig.sent()
    assert later == correlation_id + 1
    assert rig.respond("Heartbeat", version, later, HeartbeatResponse(error_code=0))


def test_a_response_leads_to_the_next_request_until_it_is_left_to_the_connection() -> None:
    rig = Rig(ALL)
    rig.open()
    follower = Follower(rig, b"first", b"second", None)
    rig.connection.send(follower.send, 0.0)
    ((_key, version, correlation_id),) = rig.sent()
    for body in (b"first", b"second"):
        assert rig.respond("Heartbeat", version, correlation_id, HeartbeatResponse(error_code=0)) == []
        (frame,) = rig.connection.outgoing()
        rig.connection.written()
        correlation_id += 1
        assert frame[:4] == (len(frame) - 4).to_bytes(4, "big")
        assert frame[4:8] == (12).to_bytes(2, "big") + version.to_bytes(2, "big")
        assert frame[8:12] == correlation_id.to_bytes(4, "big")
        assert bytes(frame).endswith(b"\x00\x04test\x00" + body)
    ((pending, outcome),) = rig.respond("Heartbeat", version, correlation_id, HeartbeatResponse(error_code=27))
    assert pending is follower.send
    assert isinstance(outcome, ResponseReceived)
    assert outcome.value.error_code == 27
    assert len(follower.offered) == 3
    assert not rig.connection.busy


def test_no_request_follows_while_another_waits_for_its_response() -> None:
    rig = Rig(ALL)
    rig.open()
    follower = Follower(rig, b"never")
    rig.connection.send(follower.send, 0.0)
    rig.send()
    (_key, version, first), _second = rig.sent()
    assert rig.respond("Heartbeat", version, first, HeartbeatResponse(error_code=0))
    assert follower.offered == []


def test_a_response_out_of_step_is_not_offered() -> None:
    rig = Rig(ALL)
    rig.open()
    follower = Follower(rig, b"never")
    rig.connection.send(follower.send, 0.0)
    ((_key, version, correlation_id),) = rig.sent()
    with pytest.raises(WireError):
        rig.respond("Heartbeat", version, correlation_id + 1, HeartbeatResponse(error_code=0))
    assert follower.offered == []
