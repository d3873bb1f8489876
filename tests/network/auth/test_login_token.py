"""One connection that logs in with a token: what it says of the token to the keeper, without a broker."""

from typing import Any

import pytest

from kohort import Consumer, TopicPartition
from kohort.network.auth.sasl import Credentials
from kohort.network.auth.token_refresh import Token, TokenRefresher
from kohort.network.broker_connection import BrokerConnection
from kohort.network.client_settings import SaslMechanism
from kohort.network.errors import AuthenticationFailed, ConnectionFailed
from kohort.network.requests import Endpoint, PendingRequest, Stage
from kohort.protocol.apis.api_versions import ApiVersion
from kohort.protocol.catalogue import API
from kohort.protocol.errors import UnsupportedVersion
from kohort.testing import FakeBroker
from tests.coordinator_client.consumer_helpers import poll_until

REFUSED = 58


def keeper() -> TokenRefresher:
    """One that has a token."""
    tokens = TokenRefresher(5.0, lambda: 0.5, lambda: Token("asked"))
    assert tokens.take(0.0, 0.0) is None
    tokens.requested(0.0)
    tokens.came(Token("abc", None), 0.0)
    return tokens


def opened(tokens: TokenRefresher) -> BrokerConnection:
    made = BrokerConnection(
        endpoint=Endpoint("host", 1),
        client_id="c",
        max_frame_bytes=1 << 20,
        setup_timeout_s=10.0,
        opened_at=0.0,
        ranges={17: (0, 1), 36: (0, 2)},
        credentials=Credentials("OAUTHBEARER", "", ""),
        tokens=tokens,
    )
    made.opened(0.0)
    return made


def responded(made: BrokerConnection, api: str, version: int, **values: Any) -> None:
    (requested,) = made.outgoing()
    body = API[api].response.build(values, version)
    frame = bytes(requested[8:12]) + (b"\0" if api == "SaslAuthenticate" else b"") + body
    made.received(memoryview(len(frame).to_bytes(4, "big") + frame), 0.0)


def log_in(tokens: TokenRefresher, code: int = 0) -> BrokerConnection:
    made = opened(tokens)
    responded(made, "SaslHandshake", 1, error_code=0, mechanisms=("OAUTHBEARER",))
    responded(made, "SaslAuthenticate", 2, error_code=code, error_message="no" if code else None, auth_bytes=b"")
    return made


def test_a_token_that_a_broker_took_is_worth_another_once_it_is_refused() -> None:
    tokens = keeper()
    assert log_in(tokens).stage is Stage.READY
    with pytest.raises(ConnectionFailed, match="does not accept this token any more") as caught:
        log_in(tokens, REFUSED)
    assert not isinstance(caught.value, AuthenticationFailed)


def test_no_token_is_requested_before_a_broker_is_reached() -> None:
    calls: list[str] = []

    def token() -> str:
        calls.append("called")
        return "abc"

    with Consumer(
        "127.0.0.1:1",
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="OAUTHBEARER",
        bootstrap_timeout_ms=100,
        sasl_oauth_token=token,
    ) as consumer:
        consumer.assign([TopicPartition("t", 0)])
        with pytest.raises(ConnectionFailed):
            poll_until(consumer, lambda: False)
    assert calls == []


@pytest.mark.parametrize("mechanism", ["PLAIN", "OAUTHBEARER"])
def test_a_broker_without_logins_is_an_error_of_the_call(mechanism: SaslMechanism) -> None:
    calls: list[str] = []

    def token() -> str:
        calls.append("called")
        return "abc"

    proof: dict[str, Any] = {"sasl_username": "me", "sasl_password": "hush"}
    if mechanism == "OAUTHBEARER":
        proof = {"sasl_oauth_token": token}
    with (
        FakeBroker(topics={"t": 1}) as fake,
        Consumer(
            fake.bootstrap,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism=mechanism,
            bootstrap_timeout_ms=300,
            **proof,
        ) as consumer,
    ):
        consumer.assign([TopicPartition("t", 0)])
        with pytest.raises(UnsupportedVersion, match="does not support SaslHandshake"):
            poll_until(consumer, lambda: False)
    assert bool(calls) == (mechanism == "OAUTHBEARER")


def test_a_token_that_no_broker_took_is_refused_for_good() -> None:
    with pytest.raises(AuthenticationFailed, match="refused the token"):
        log_in(keeper(), REFUSED)


def test_a_response_before_the_login_is_ended_has_a_small_limit() -> None:
    made = BrokerConnection(
        endpoint=Endpoint("host", 1),
        client_id="c",
        max_frame_bytes=1 << 27,
        setup_timeout_s=10.0,
        opened_at=0.0,
        credentials=Credentials("PLAIN", "me", "hush"),
    )
    made.opened(0.0)
    assert made.frame_limit == 65_536
    ranges = tuple(
        ApiVersion(api_key=key, min_version=0, max_version=most) for key, most in ((16, 2), (17, 1), (18, 3), (36, 2))
    )
    responded(made, "ApiVersions", 3, error_code=0, api_keys=ranges)
    assert made.frame_limit == 1_048_576
    responded(made, "SaslHandshake", 1, error_code=0, mechanisms=("PLAIN",))
    assert made.frame_limit == 1_048_576
    responded(made, "SaslAuthenticate", 2, error_code=0, auth_bytes=b"")
    made.send(PendingRequest("ListGroups", {}, lambda _outcome, _now: None, 30), 0.0)
    assert made.frame_limit == 1 << 27
