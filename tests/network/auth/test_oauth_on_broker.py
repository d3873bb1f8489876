"""OAUTHBEARER on a real broker: unsigned tokens of a function on one listener, tokens of an issuer on the other.

The other listener checks signature, audience and expiry.
"""

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kohort import Producer
from kohort.admin import Admin
from kohort.cli.main import main
from kohort.common import KohortError, TopicPartition
from kohort.coordinator_client import AuthenticationFailed, Consumer, TokenUnavailable
from kohort.network.auth.token_refresh import TokenRefresher
from kohort.testing import RealBroker
from kohort.testing.topics import create_topic
from tests.coordinator_client.consumer_helpers import PATIENCE_S, first_value, numbers, poll_until, produce, read
from tests.network.auth.token_issuer import Issuer, issuing, unsecured
from tests.support.broker_selection import wanted_version

Name = Callable[[str], str]
SECRET = "hush-hush"
OAUTH = "org.apache.kafka.common.security.oauthbearer."
HASTY: dict[str, Any] = {"bootstrap_timeout_ms": 1000}
SHORT_S = 3.0


class House(NamedTuple):
    broker: RealBroker
    issuer: Issuer


@pytest.fixture(scope="module")
def house() -> Iterator[House]:
    """A broker with an unsecured listener, and one over TLS that gets the issuer's keys from the issuer."""
    with issuing(Issuer({"me": SECRET})) as issuer:
        handler = "OAuthBearerValidatorCallbackHandler"
        login = f"{OAUTH}OAuthBearerLoginModule required;"
        properties = {
            "sasl.enabled.mechanisms": "OAUTHBEARER,PLAIN",
            "listener.name.sasl.oauthbearer.sasl.jaas.config": login,
            "listener.name.sasl_tls.oauthbearer.sasl.jaas.config": login,
            "listener.name.sasl_tls.oauthbearer.sasl.server.callback.handler.class": OAUTH + handler,
            "listener.name.sasl_tls.sasl.oauthbearer.jwks.endpoint.url": issuer.jwks_url,
            "listener.name.sasl_tls.sasl.oauthbearer.expected.audience": "kafka",
            "listener.name.sasl_tls.sasl.oauthbearer.expected.issuer": "kohort tests",
            "connections.max.reauth.ms": "3600000",  # or a token's end is none of the connection's
        }
        allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={issuer.jwks_url}"
        with RealBroker(
            version=wanted_version(), tls=True, users={"x": "y"}, properties=properties, jvm_options=[allowed]
        ) as broker:
            create_topic(broker.bootstrap, "topic")
            produce(broker.bootstrap, "topic", numbers(0, 5))
            yield House(broker, issuer)


class Tokens:
    """A function that makes unsecured tokens; what it does is changed while it is in use."""

    def __init__(self, lifetime_s: float = 600.0) -> None:
        self.lifetime_s = lifetime_s
        self.calls = 0
        self.problem: Exception | None = None
        self.claimed_s: float | None = None  # the lifetime that the caller gets

    def __call__(self) -> tuple[str, float]:
        self.calls += 1
        if self.problem is not None:
            raise self.problem
        now = time.time()
        expires_at = now + self.lifetime_s
        token = unsecured(sub="me", iat=now - 3600, exp=expires_at)
        return token, expires_at if self.claimed_s is None else now + self.claimed_s


def by_function(house: House, tokens: Callable[[], object], **settings: Any) -> dict[str, Any]:
    return {
        "bootstrap": house.broker.bootstrap_sasl,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauth_token": tokens,
        "reconnect_backoff_max_ms": 100,
        **settings,
    }


def by_issuer(house: House, **settings: Any) -> dict[str, Any]:
    return {
        "bootstrap": house.broker.bootstrap_sasl_tls,
        "security_protocol": "SASL_SSL",
        "ssl_ca_path": str(house.broker.ca_file),
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauth_token_endpoint_url": house.issuer.token_url,
        "sasl_oauth_allowed_urls": (house.issuer.token_url,),
        "sasl_oauth_client_id": "me",
        "sasl_oauth_client_secret": SECRET,
        "reconnect_backoff_max_ms": 100,
        **settings,
    }


def error_of(consumer: Consumer) -> KohortError:
    with pytest.raises(KohortError) as caught:
        poll_until(consumer, lambda: False)
    return caught.value


def knocks_no_more(consumer: Consumer) -> bool:
    """True if a client that was refused leaves the broker alone, though it is polled."""
    counters = consumer._session.driver.core.counters
    before, limit = counters.connections_opened, time.monotonic() + 1.0
    while time.monotonic() < limit:
        with pytest.raises(AuthenticationFailed):
            consumer.poll(0.1)
    return counters.connections_opened == before


def connections(consumer: Consumer) -> dict[Any, Any]:
    return {line: channel.connection for line, channel in consumer._session.driver._channels.items()}


@pytest.mark.broker
def test_a_function_makes_the_tokens_of_every_kind_of_client(house: House, unique: Name) -> None:
    tokens, group = Tokens(), unique("group")
    with Consumer(**by_function(house, tokens, group=group, auto_offset_reset="earliest")) as consumer:
        consumer.subscribe(["topic"])
        assert [record.value for record in read(consumer, 5)] == numbers(0, 5)
        consumer.commit()
        assert len(connections(consumer)) >= 2
    assert tokens.calls == 1  # one for all connections
    topic = unique("topic")
    with Admin(**by_function(house, tokens)) as admin:
        assert group in {one.group for one in admin.list_groups()}
        create_topic(house.broker.bootstrap, topic)
    with Producer(**by_function(house, tokens)) as producer:
        assert producer.send(topic, b"1").result(120).offset == 0

    assert (
        asyncio.run(
            asyncio.wait_for(first_value(topic, **by_function(house, tokens, auto_offset_reset="earliest")), PATIENCE_S)
        )
        == b"1"
    )


@pytest.mark.broker
@pytest.mark.proves("B-30")
@pytest.mark.parametrize("kind", ["function", "issuer"])
def test_sessions_are_renewed_with_new_tokens_on_the_connections_they_belong_to(
    kind: str, house: House, unique: Name
) -> None:
    topic, tokens = unique("topic"), Tokens()
    create_topic(house.broker.bootstrap, topic)
    more: dict[str, Any] = {"group": unique("group"), "auto_offset_reset": "earliest"}
    requested = house.issuer.requested
    with Consumer(**by_function(house, tokens, **more) if kind == "function" else by_issuer(house, **more)) as consumer:
        consumer.subscribe([topic])
        produce(house.broker.bootstrap, topic, numbers(0, 1))
        read(consumer, 1)
        consumer.commit()
        before = connections(consumer)
        assert len(before) >= 2
        # A token's end is written in whole seconds. From now on this one lasts shorter than its session.
        time.sleep(1.5)
        for connection in before.values():
            connection._reauthenticate_at = 0.0
        consumer._session.driver.wakeup()
        poll_until(consumer, lambda: all(connection._authentications >= 2 for connection in before.values()))
        produce(house.broker.bootstrap, topic, numbers(1, 1))
        assert [record.value for record in read(consumer, 1)] == numbers(1, 1)
        consumer.commit()
        assert before.items() <= connections(consumer).items()
        assert len(consumer.timeline()) == 1
    assert (tokens.calls if kind == "function" else house.issuer.requested - requested) == 2


@pytest.mark.broker
@pytest.mark.proves("B-30")
def test_when_tokens_run_out_it_is_said_once_and_reading_goes_on_when_there_are_new_ones(
    house: House, unique: Name
) -> None:
    topic, tokens = unique("topic"), Tokens(SHORT_S)
    create_topic(house.broker.bootstrap, topic)
    produce(house.broker.bootstrap, topic, numbers(0, 1))
    with Consumer(**by_function(house, tokens, auto_offset_reset="earliest")) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        read(consumer, 1)
        tokens.problem = LookupError("the vault is locked")
        error = error_of(consumer)
        assert isinstance(error, TokenUnavailable)
        assert "sasl_oauth_token raised LookupError" in str(error)
        assert error.__cause__ is tokens.problem
        requested = tokens.calls
        for _ in range(15):
            assert consumer.poll(0.1) == []  # said once, not at every poll
        assert tokens.calls <= requested + 2
        tokens.problem = None
        produce(house.broker.bootstrap, topic, numbers(1, 1))
        assert [record.value for record in read(consumer, 1)] == numbers(1, 1)


@pytest.mark.broker
@pytest.mark.proves("B-30")
def test_a_token_that_the_broker_finds_expired_is_one_error_with_its_status(house: House) -> None:
    tokens = Tokens(lifetime_s=-600)
    tokens.claimed_s = 600
    with Consumer(**by_function(house, tokens)) as consumer:
        consumer.assign([TopicPartition("topic", 0)])
        error = error_of(consumer)
        assert isinstance(error, AuthenticationFailed)
        assert "refused the token: status invalid_token" in error.message
        assert error.place["port"]
        assert knocks_no_more(consumer)
        assert tokens.calls == 1


@pytest.mark.broker
def test_a_function_that_fails_hangs_or_makes_no_tokens_is_one_error_each(house: House) -> None:
    tokens, released = Tokens(), threading.Event()
    tokens.problem = LookupError("no vault")

    def hanging() -> str:
        released.wait(120)
        return ""

    expired = Tokens(lifetime_s=-1)
    cases: list[tuple[Callable[[], object], type[KohortError], str]] = [
        (tokens, TokenUnavailable, "raised LookupError"),
        (hanging, TokenUnavailable, "no token came within 0.5 s"),
        (expired, TokenUnavailable, "expired already"),
        (lambda: None, AuthenticationFailed, "returned NoneType"),
    ]
    for function, kind, said in cases:
        with Consumer(**by_function(house, function, sasl_oauth_timeout_ms=500, **HASTY)) as consumer:
            consumer.assign([TopicPartition("topic", 0)])
            error = error_of(consumer)
            assert type(error) is kind
            assert said in error.message
    released.set()


@pytest.mark.broker
@pytest.mark.proves("B-30")
def test_a_function_that_hangs_holds_up_neither_heartbeats_nor_records(house: House, unique: Name) -> None:
    topic, released, first = unique("topic"), threading.Event(), Tokens()
    first.claimed_s = 2.0  # the broker would take it for longer
    create_topic(house.broker.bootstrap, topic)

    def slow() -> object:
        if first.calls:
            released.wait(120)
        return first()

    settings = by_function(house, slow, group=unique("group"), auto_offset_reset="earliest", heartbeat_interval_ms=300)
    with Consumer(**settings) as consumer:
        consumer.subscribe([topic])
        produce(house.broker.bootstrap, topic, numbers(0, 1))
        read(consumer, 1)
        driver = consumer._session.driver
        keeper = driver._tokens
        assert isinstance(keeper, TokenRefresher)
        poll_until(consumer, lambda: keeper._requested_at is not None)  # the renewal has begun, and hangs
        began = driver.now()
        produce(house.broker.bootstrap, topic, numbers(1, 1))
        assert [record.value for record in read(consumer, 1)] == numbers(1, 1)
        poll_until(consumer, lambda: driver.now() - (consumer.health().last_heartbeat_s or 1e9) > began)
        assert keeper._requested_at is not None
        released.set()
        poll_until(consumer, lambda: first.calls >= 2)
        assert len(consumer.timeline()) == 1


@pytest.mark.broker
def test_an_issuer_makes_them_too(house: House, unique: Name) -> None:
    with Consumer(**by_issuer(house, group=unique("group"), auto_offset_reset="earliest")) as consumer:
        consumer.subscribe(["topic"])
        assert [record.value for record in read(consumer, 5)] == numbers(0, 5)


@pytest.mark.broker
@pytest.mark.proves("B-30")
def test_what_issuer_and_broker_refuse_is_refused_once(house: House) -> None:
    requested = house.issuer.requested
    with Consumer(**by_issuer(house, sasl_oauth_client_secret="wrong-hush")) as consumer:
        consumer.assign([TopicPartition("topic", 0)])
        error = error_of(consumer)
        assert isinstance(error, AuthenticationFailed)
        assert "401 (invalid_client)" in error.message
        assert "hush" not in str(error)
        assert knocks_no_more(consumer)
    assert house.issuer.requested == requested + 1
    house.issuer.audience = "another broker"
    try:
        with Consumer(**by_issuer(house)) as consumer:
            consumer.assign([TopicPartition("topic", 0)])
            error = error_of(consumer)
            assert isinstance(error, AuthenticationFailed)
            assert "refused the token: status invalid_token" in error.message
            assert knocks_no_more(consumer)
    finally:
        house.issuer.audience = "kafka"
    assert house.issuer.requested == requested + 2


@pytest.mark.broker
def test_an_issuer_that_is_down_is_waited_for(house: House) -> None:
    house.issuer.up = False
    try:
        with Consumer(**by_issuer(house, **HASTY)) as consumer:
            consumer.assign([TopicPartition("topic", 0)])
            error = error_of(consumer)
            assert isinstance(error, TokenUnavailable)
            assert "responded with 503" in error.message
        with Consumer(**by_issuer(house, auto_offset_reset="earliest", bootstrap_timeout_ms=60_000)) as patient:
            patient.assign([TopicPartition("topic", 0)])
            requested = house.issuer.requested
            poll_until(patient, lambda: house.issuer.requested > requested + 1)
            house.issuer.up = True
            assert len(read(patient, 5)) == 5
    finally:
        house.issuer.up = True


@pytest.mark.broker
def test_commands_log_in_by_a_file_of_properties(
    house: House, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "client.properties"
    file.write_text(
        f"security.protocol=SASL_SSL\nssl.ca.location={house.broker.ca_file}\nsasl.mechanism=OAUTHBEARER\n"
        f"sasl.oauthbearer.token.endpoint.url={house.issuer.token_url}\n"
        f"org.apache.kafka.sasl.oauthbearer.allowed.urls={house.issuer.token_url}\n"
        f"sasl.oauthbearer.client.id=me\nsasl.oauthbearer.client.secret={SECRET}\n"
    )
    command = ["topic", "list", "--bootstrap", house.broker.bootstrap_sasl_tls, "--config", str(file), "--json"]
    assert main(command) == 0
    assert "topic" in json.dumps(json.loads(capsys.readouterr().out))
    file.write_text(file.read_text().replace(SECRET, "wrong-hush"))
    assert main(command) != 0
    said = capsys.readouterr()
    assert "invalid_client" in said.err
    assert "hush" not in said.out + said.err
