"""Requests for tokens, and the errors without one: a keeper without a clock, sources without a broker."""

import base64
import inspect
import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs

import pytest

from kohort.common import KohortError
from kohort.coordinator_client import AuthenticationFailed, ConfigError, TokenUnavailable
from kohort.coordinator_client.consumer_config import ConsumerConfig
from kohort.network.auth.oauth_tokens import fetch
from kohort.network.auth.sasl import Credentials, LoginRefused
from kohort.network.auth.token_refresh import Token, TokenRefresher
from tests.network.auth.token_issuer import served, unsecured

NOW_S = 1_700_000_000
URL = "https://issuer.example/token"
BEARER: dict[str, Any] = {"bootstrap": ("host:1",), "security_protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER"}
ISSUER: dict[str, Any] = BEARER | {
    "sasl_oauth_token_endpoint_url": URL,
    "sasl_oauth_allowed_urls": (URL,),
    "sasl_oauth_client_id": "me",
    "sasl_oauth_client_secret": "hush",
}


def given(made: object) -> Any:
    return fetch(ConsumerConfig.of(**BEARER, sasl_oauth_token=lambda: made), lambda: NOW_S * 1000)


def keeper(timeout_s: float = 5.0) -> TokenRefresher:
    return TokenRefresher(timeout_s, lambda: 0.5, lambda: Token("asked"))


# --- the keeper


def test_a_token_is_requested_when_a_client_wants_one_and_once() -> None:
    tokens = keeper()
    assert not tokens.next_request(10)
    assert tokens.next_poll_at(10) is None
    assert tokens.take(10, since=10) is None
    assert tokens.next_request(10)
    tokens.requested(10)
    assert not tokens.next_request(10)
    assert tokens.take(11, since=11) is None
    tokens.came(made := Token("t", 100.0), 12)
    assert tokens.take(12, since=10) is made
    assert tokens.take(91.9, since=91.9) is made


def test_a_session_is_renewed_with_a_token_that_lasts_as_long_again() -> None:
    tokens = keeper()
    tokens.take(0, since=0)
    tokens.requested(0)
    tokens.came(long := Token("t", 100.0), 0)
    assert tokens.take(30, since=30, session_s=60) is long  # the broker's own limit ended it
    assert tokens.take(50, since=50, session_s=60) is None
    assert tokens.next_request(50)
    assert tokens.take(50, since=50) is long


def test_it_is_renewed_before_it_expires_and_serves_new_connections_until_then() -> None:
    tokens = keeper()
    tokens.take(0, since=0)
    tokens.requested(0)
    tokens.came(old := Token("old", 100.0), 0)
    assert tokens.next_poll_at(1) == 80
    assert not tokens.next_request(79.9)
    assert tokens.next_request(80)
    assert tokens.take(81, since=81) is old
    assert tokens.take(81, since=81, session_s=100) is None  # or it would renew itself with it again and again
    tokens.requested(81)
    tokens.came(TokenUnavailable("down"), 82)
    assert tokens.take(82, since=82) is old
    assert not tokens.next_request(82.5)
    assert tokens.next_poll_at(82.5) == pytest.approx(83)
    assert tokens.take(100, since=100) is None
    assert tokens.next_request(100)
    tokens.requested(100)
    tokens.came(TokenUnavailable("still down"), 101)
    assert isinstance(tokens.take(101, since=101), TokenUnavailable)
    assert tokens.take(101, since=101, session_s=100) is None
    tokens.requested(110)
    tokens.came(new := Token("new", 100.0), 111)
    assert tokens.take(111, since=81, session_s=100) is new


def test_a_token_without_a_known_end_serves_the_waiting_callers() -> None:
    tokens = keeper()
    tokens.take(5, since=5)
    tokens.requested(5)
    tokens.came(first := Token("first"), 6)
    assert tokens.take(6, since=5) is first
    assert tokens.next_poll_at(6) is None
    assert tokens.take(7, since=7) is None
    assert tokens.next_request(7)


def test_who_has_no_answer_is_asked_ever_more_rarely_and_who_refuses_never_again() -> None:
    tokens = keeper()
    now, waits = 0.0, []
    for _ in range(9):
        tokens.take(now, since=now)
        tokens.requested(now)
        tokens.came(TokenUnavailable("down"), now)
        assert isinstance(tokens.take(now, since=now), TokenUnavailable)
        wakes = tokens.next_poll_at(now)
        assert wakes is not None
        waits.append(wakes - now)
        now = wakes
        assert tokens.next_request(now)
    assert waits == pytest.approx([1, 2, 4, 8, 16, 32, 60, 60, 60])
    tokens.requested(now)
    tokens.came(AuthenticationFailed("invalid_client"), now)
    for later in (now, now + 1e6):
        assert isinstance(tokens.take(later, since=later), AuthenticationFailed)
        assert not tokens.next_request(later)
        assert tokens.next_poll_at(later) is None


def test_who_hangs_is_waited_for_so_long_and_not_asked_twice() -> None:
    tokens = keeper(timeout_s=5)
    tokens.take(0, since=0)
    tokens.requested(0)
    assert tokens.next_poll_at(1) == 5
    late = tokens.take(5, since=0)
    assert isinstance(late, TokenUnavailable)
    assert "within 5 s" in late.message
    assert not tokens.next_request(1000)
    assert tokens.next_poll_at(1000) is None
    tokens.came(made := Token("t", 10.0), 2000)
    assert tokens.take(2000, since=2000) is made


def test_a_token_that_comes_too_late_for_itself_is_none() -> None:
    tokens = keeper()
    tokens.take(0, since=0)
    tokens.requested(0)
    tokens.came(Token("t", 0.0), 0)
    error = tokens.take(0, since=0)
    assert isinstance(error, TokenUnavailable)
    assert "expired already" in error.message


def test_a_token_that_brokers_took_and_take_no_longer_is_replaced_once() -> None:
    tokens = keeper()
    tokens.take(0, since=0)
    tokens.requested(0)
    tokens.came(first := Token("first", 100.0), 0)
    assert not tokens.refused(first, 1)  # it is not used yet: the next one would be refused as well
    tokens.accepted(first)
    assert tokens.refused(first, 2)
    assert tokens.take(2, since=2) is None
    assert not tokens.next_request(2)
    assert tokens.next_poll_at(2) == pytest.approx(3)
    tokens.requested(3)
    tokens.came(second := Token("second", 100.0), 4)
    assert tokens.refused(first, 5)  # by a connection that began with the old one
    tokens.accepted(second)
    assert not tokens.refused(second, 6)


# --- the user's function


def test_what_a_function_may_return() -> None:
    assert given("abc") == Token("abc", None, {})
    assert given(("abc", NOW_S + 60)) == Token("abc", 60, {})
    assert given(("abc", NOW_S + 60.5, {"traceId": "1 2"})) == Token("abc", 60.5, {"traceId": "1 2"})
    assert given(("abc", None)) == Token("abc", None, {})
    assert given(unsecured(sub="me", exp=NOW_S + 30)).lifetime_s == 30  # a JWT says it itself
    assert given(unsecured(sub="me")).lifetime_s is None
    config = ConsumerConfig.of(**BEARER, sasl_oauth_token=lambda: "abc", sasl_oauth_extensions=("a=1", "b=x=y"))
    assert fetch(config, lambda: 0) == Token("abc", None, {"a": "1", "b": "x=y"})


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (None, "NoneType"),
        (b"abc", "bytes"),
        ("", "no bearer token"),
        ("a b", "no bearer token"),
        ("abc\x01auth=Bearer other", "no bearer token"),
        ("abc\n", "no bearer token"),
        (("abc", "tomorrow"), "expiry"),
        (("abc", True), "expiry"),
        (("abc", NOW_S, {"auth": "x"}), "extensions"),
        (("abc", NOW_S, {"a": "x\x01y"}), "extensions"),
        (("abc", NOW_S, "a=b"), "extensions"),
    ],
)
def test_what_it_may_not(made: object, said: str) -> None:
    error = given(made)
    assert isinstance(error, AuthenticationFailed)
    assert said in error.message
    assert error.hint


def test_a_coroutine_is_no_token() -> None:
    async def later() -> str:
        return "abc"

    with pytest.raises(ConfigError, match="sasl_oauth_token must be a plain function"):
        ConsumerConfig.of(**BEARER, sasl_oauth_token=later)
    error = fetch(ConsumerConfig.of(**BEARER, sasl_oauth_token=lambda: later()), lambda: 0)
    assert isinstance(error, AuthenticationFailed)
    assert "coroutine" in error.message


def test_a_coroutine_that_is_no_token_is_closed() -> None:
    """Python warns of one that is dropped without having run."""

    async def token() -> str:
        return "t"

    made = token()
    given(made)
    assert inspect.getcoroutinestate(made) == inspect.CORO_CLOSED


def test_what_it_raises_is_the_cause() -> None:
    def broken() -> str:
        raise LookupError("no such vault")

    error = fetch(ConsumerConfig.of(**BEARER, sasl_oauth_token=broken), lambda: 0)
    assert isinstance(error, TokenUnavailable)
    assert "LookupError" in error.message
    assert isinstance(error.__cause__, LookupError)


# --- an issuer


Answer = tuple[int, object] | Callable[[BaseHTTPRequestHandler], None]


@contextmanager
def endpoint(response: Answer) -> Iterator[tuple[str, list[tuple[str, dict[str, list[str]]]]]]:
    """A token endpoint, and the requests that it received."""
    requested: list[tuple[str, dict[str, list[str]]]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
            requested.append((self.headers["Authorization"], form))
            if callable(response):
                response(self)
                return
            status, body = response
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_details: object) -> None:
            pass

    with served(Handler) as address:
        yield f"{address}/token", requested


def send(url: str, **more: object) -> Token | KohortError:
    at = {"sasl_oauth_token_endpoint_url": url, "sasl_oauth_allowed_urls": (url,)}
    return fetch(ConsumerConfig.of(**ISSUER | at | more), lambda: NOW_S * 1000)


def test_an_issuer_gets_the_clients_credentials() -> None:
    with endpoint((200, {"access_token": "abc", "expires_in": 300, "token_type": "bearer"})) as (url, requested):
        assert send(url, sasl_oauth_scope="kafka read", sasl_oauth_extensions=("pool=1",)) == Token(
            "abc", 300, {"pool": "1"}
        )
        assert send(url, sasl_oauth_client_secret="a+b", sasl_oauth_header_urlencode=True) == Token("abc", 300)
    basic = [base64.b64decode(header.removeprefix("Basic ")).decode() for header, _form in requested]
    assert basic == ["me:hush", "me:a%2Bb"]
    assert [form for _header, form in requested] == [
        {"grant_type": ["client_credentials"], "scope": ["kafka read"]},
        {"grant_type": ["client_credentials"]},
    ]


def test_an_issuer_that_does_not_say_how_long_is_read_from_the_token() -> None:
    with endpoint((200, {"access_token": unsecured(exp=NOW_S + 70)})) as (url, _requested):
        token = send(url)
    assert isinstance(token, Token)
    assert token.lifetime_s == 70


@pytest.mark.parametrize("number", ["NaN", "1e999", "-1e999", "1" + 400 * "0", f'"{5000 * "9"}"'])
def test_an_issuer_may_name_a_lifetime_that_no_clock_has(number: str) -> None:
    claimed = unsecured(exp=NOW_S).split(".")
    claimed[1] = base64.urlsafe_b64encode(f'{{"exp":{number}}}'.encode()).decode().rstrip("=")
    for said in (f'{{"access_token":"abc","expires_in":{number}}}', f'{{"access_token":"{".".join(claimed)}"}}'):
        with endpoint((200, said.encode())) as (url, _requested):
            token = send(url)
        assert isinstance(token, Token)
        it = keeper()
        it.take(0.0, 0.0)
        it.requested(0.0)
        it.came(token, 0.0)
        wakes = it.next_poll_at(1.0)
        assert wakes is None or wakes >= 1.0, "the driver would spin"


@pytest.mark.parametrize(
    ("status", "body", "kind", "said"),
    [
        (401, {"error": "invalid_client", "error_description": "wrong: hush"}, AuthenticationFailed, "invalid_client"),
        (400, {"error": "invalid_scope"}, AuthenticationFailed, "400 (invalid_scope)"),
        (404, b"<html>", AuthenticationFailed, "responded with 404"),
        (429, {}, TokenUnavailable, "responded with 429"),
        (503, b"", TokenUnavailable, "responded with 503"),
        (200, b"<html>", AuthenticationFailed, "no bearer token"),
        (200, {"access_token": "a\x01b"}, AuthenticationFailed, "no bearer token"),
        (200, {"token": "abc"}, AuthenticationFailed, "no bearer token"),
        (200, {"access_token": "abc", "pad": "x" * (1 << 20)}, AuthenticationFailed, "no bearer token"),
    ],
)
def test_what_an_issuer_may_say_instead(status: int, body: object, kind: type[KohortError], said: str) -> None:
    with endpoint((status, body)) as (url, requested):
        error = send(url)
    assert type(error) is kind
    assert said in error.message
    assert "hush" not in str(error)
    assert error.place["url"] == url
    assert len(requested) == 1


def test_a_redirection_is_not_followed() -> None:
    with endpoint((200, {"access_token": "abc"})) as (elsewhere, reached):

        def away(handler: BaseHTTPRequestHandler) -> None:
            handler.send_response(302)
            handler.send_header("Location", elsewhere)
            handler.end_headers()

        with endpoint(away) as (url, _requested):
            error = send(url)
    assert isinstance(error, AuthenticationFailed)
    assert "302" in error.message
    assert reached == []


def test_an_issuer_that_is_down_or_slow_is_only_unavailable() -> None:
    with endpoint((200, {})) as (url, _requested):
        pass
    error = send(url)
    assert isinstance(error, TokenUnavailable)
    assert "cannot be reached" in error.message
    released = threading.Event()

    def hang(_handler: BaseHTTPRequestHandler) -> None:
        released.wait(120)

    with endpoint(hang) as (slow, _requested):
        error = send(slow, sasl_oauth_timeout_ms=50)
        released.set()
    assert isinstance(error, TokenUnavailable)


# --- settings


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"sasl_oauth_token_endpoint_url": None}, "needs sasl_oauth_token or"),
        ({"sasl_oauth_token": str}, "not both"),
        ({"sasl_oauth_client_secret": None}, "sasl_oauth_client_secret"),
        ({"sasl_oauth_allowed_urls": ()}, "not in sasl_oauth_allowed_urls"),
        ({"sasl_oauth_allowed_urls": (URL + "/",)}, "not in sasl_oauth_allowed_urls"),
        ({"sasl_oauth_token_endpoint_url": "http://issuer.example/token"}, "in the clear"),
        ({"sasl_oauth_token_endpoint_url": "file:///etc/token"}, "not a valid URL"),
        ({"sasl_oauth_token_endpoint_url": "https://me:hush@issuer.example"}, "not a valid URL"),
        ({"sasl_oauth_extensions": ("auth=x",)}, "no name of an extension"),
        ({"sasl_oauth_extensions": ("name",)}, "no value"),
        ({"sasl_oauth_client_secret": b"hush"}, "must be str, not bytes"),
    ],
)
def test_settings_from_which_no_token_can_come(change: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        ConsumerConfig.of(**ISSUER | change)
    assert said in caught.value.message
    assert "hush" not in str(caught.value)


def test_the_environment_takes_the_place_of_the_allowed_urls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KOHORT_SASL_OAUTH_ALLOWED_URLS", "https://other.example/token")
    with pytest.raises(ConfigError, match="environment variable KOHORT_SASL_OAUTH_ALLOWED_URLS"):
        ConsumerConfig.of(**ISSUER)
    monkeypatch.setenv("KOHORT_SASL_OAUTH_ALLOWED_URLS", "")
    with pytest.raises(ConfigError, match="environment variable"):
        ConsumerConfig.of(**ISSUER)
    monkeypatch.setenv("KOHORT_SASL_OAUTH_ALLOWED_URLS", f"https://other.example/token, {URL}")
    assert ConsumerConfig.of(**ISSUER | {"sasl_oauth_allowed_urls": ()}).sasl_oauth_token_endpoint_url == URL


def test_an_issuers_echo_of_the_credentials_shows_no_secret() -> None:
    secret = "s3cr et/x"
    basic = base64.b64encode(f"me:{secret}".encode()).decode()
    for said in (f"bad header: Basic {basic}", f"bad secret {secret}", "bad s3cr%20et%2Fx and s3cr+et%2Fx"):
        body = json.dumps({"error": "invalid_client", "error_description": said}).encode()
        with endpoint((401, body)) as (url, _requested):
            error = send(url, sasl_oauth_client_secret=secret)
        assert isinstance(error, AuthenticationFailed)
        assert "invalid_client" in str(error)
        assert "***" in str(error)
        assert not any(part in str(error) for part in ("s3cr", basic[4:-4]))


def test_a_status_line_that_echoes_the_credentials_shows_no_secret() -> None:
    """A response that is no HTTP is quoted in the reason of the standard library's error."""

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            request = connection.recv(65_536).split(b"\r\n")
            connection.sendall(next(line for line in request if line.startswith(b"Authorization"))[15:] + b"\r\n\r\n")

    basic = base64.b64encode(b"me:s3cr et/x").decode()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        error = send(f"http://127.0.0.1:{listener.getsockname()[1]}/", sasl_oauth_client_secret="s3cr et/x")
        thread.join()
    assert isinstance(error, TokenUnavailable)
    assert "***" in str(error)
    assert basic[4:-4] not in str(error)


def test_the_settings_are_known_by_kafkas_names_and_by_librdkafkas() -> None:
    kafka = {
        "bootstrap.servers": "host:1",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": URL,
        "org.apache.kafka.sasl.oauthbearer.allowed.urls": f"other,{URL}",
        "sasl.oauthbearer.scope": "s",
        "sasl.oauthbearer.extensions": "a=1,b=2",
    }
    java = {
        "sasl.oauthbearer.client.credentials.client.id": "me",
        "sasl.oauthbearer.client.credentials.client.secret": "hush",
    }
    librdkafka = {"sasl.oauthbearer.client.id": "me", "sasl.oauthbearer.client.secret": "hush"}
    one, other = ConsumerConfig.from_kafka(kafka | java), ConsumerConfig.from_kafka(kafka | librdkafka)
    assert one == other
    assert (one.sasl_oauth_client_id, one.sasl_oauth_extensions) == ("me", ("a=1", "b=2"))
    assert "hush" not in repr(one)


# --- the conversation


def test_a_token_is_shown_as_the_rfc_has_it() -> None:
    talk = Credentials("OAUTHBEARER", "", "").conversation("nonce", Token("abc", None, {"pool": "1"}))
    assert next(talk) == b"n,,\x01auth=Bearer abc\x01pool=1\x01\x01"
    with pytest.raises(StopIteration):
        talk.send(b"")


def test_a_refusal_is_acknowledged_and_its_reasons_reported() -> None:
    challenge = json.dumps({"status": "invalid_token", "scope": "kafka"}).encode()
    for said, reasons in ((challenge, "status invalid_token, scope kafka"), (b"\xff", "no reason given")):
        talk = Credentials("OAUTHBEARER", "", "").conversation("nonce", Token("abc"))
        next(talk)
        assert talk.send(said) == b"\x01"
        with pytest.raises(LoginRefused, match=reasons):
            talk.throw(LoginRefused("Authentication failed"))
    talk = Credentials("OAUTHBEARER", "", "").conversation("nonce", Token("abc"))
    next(talk)
    talk.send(challenge)
    with pytest.raises(AuthenticationFailed, match="went on"):
        talk.send(b"")


@pytest.mark.parametrize("challenge", [b"[" * 100_000, b'{"status":' * 100_000, b"\xff", b"9" * 100_000])
def test_unreadable_reasons_are_none(challenge: bytes) -> None:
    talk = Credentials("OAUTHBEARER", "", "").conversation("nonce", Token("abc"))
    next(talk)
    assert talk.send(challenge) == b"\x01"
    with pytest.raises(LoginRefused, match="no reason given"):
        talk.throw(LoginRefused("no"))
