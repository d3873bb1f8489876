"""One connection that logs in with a token: what it says of the token to the keeper, without a broker."""

from typing import Any

import pytest

from kohort.coordinator_client.connections import Connection, Endpoint, Stage
from kohort.coordinator_client.errors import AuthenticationFailed, ConnectionFailed
from kohort.coordinator_client.sasl import Credentials
from kohort.coordinator_client.tokens import Token, TokenKeeper
from kohort.protocol.catalogue import API

REFUSED = 58


def keeper() -> TokenKeeper:
    """One that has a token."""
    tokens = TokenKeeper(5.0, lambda: 0.5, lambda: Token("asked"))
    assert tokens.take(0.0, 0.0) is None
    tokens.asked(0.0)
    tokens.came(Token("abc", None), 0.0)
    return tokens


def opened(tokens: TokenKeeper) -> Connection:
    made = Connection(
        endpoint=Endpoint("host", 1), client_id="c", max_frame_bytes=1 << 20, setup_timeout_s=10.0, opened_at=0.0,
        ranges={17: (0, 1), 36: (0, 2)}, credentials=Credentials("OAUTHBEARER", "", ""), tokens=tokens,
    )  # fmt: skip
    made.opened(0.0)
    return made


def answered(made: Connection, api: str, version: int, **values: Any) -> None:
    (asked,) = made.outgoing()
    body = API[api].response.build(values, version)
    frame = asked[8:12] + (b"\0" if api == "SaslAuthenticate" else b"") + body
    made.received(memoryview(len(frame).to_bytes(4, "big") + frame), 0.0)


def log_in(tokens: TokenKeeper, code: int = 0) -> Connection:
    made = opened(tokens)
    answered(made, "SaslHandshake", 1, error_code=0, mechanisms=("OAUTHBEARER",))
    answered(made, "SaslAuthenticate", 2, error_code=code, error_message="no" if code else None, auth_bytes=b"")
    return made


def test_a_token_that_a_broker_took_is_worth_another_once_it_is_refused() -> None:
    tokens = keeper()
    assert log_in(tokens).stage is Stage.READY
    with pytest.raises(ConnectionFailed, match="takes this token no longer") as caught:
        log_in(tokens, REFUSED)
    assert not isinstance(caught.value, AuthenticationFailed)


def test_a_token_that_no_broker_took_is_refused_for_good() -> None:
    with pytest.raises(AuthenticationFailed, match="refused the token"):
        log_in(keeper(), REFUSED)
