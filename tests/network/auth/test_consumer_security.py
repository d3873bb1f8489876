"""SASL, TLS and permissions on a real broker: fail closed, say why, and go on with what is allowed."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kohort import Producer
from kohort.admin import Admin
from kohort.common import KohortError, TopicPartition
from kohort.coordinator_client import (
    AuthenticationFailed,
    AuthorizationFailed,
    ConnectionFailed,
    Consumer,
    OperationTimeout,
)
from kohort.network.auth.sasl import Credentials
from kohort.network.broker_connection import BrokerConnection
from kohort.network.client_settings import SaslMechanism
from kohort.network.requests import Endpoint
from kohort.protocol.catalogue import API
from kohort.testing import RealBroker
from kohort.testing.topics import create_topic
from tests.coordinator_client.consumer_helpers import numbers, poll_until, produce, read
from tests.network.auth.acls import allow, forbid

Name = Callable[[str], str]
HASTY: dict[str, Any] = {"bootstrap_timeout_ms": 2000}


@pytest.fixture(scope="module")
def guarded() -> Iterator[RealBroker]:
    with RealBroker(tls=True, users={"alice": "s3cret"}, acls=True) as broker:
        create_topic(broker.bootstrap, "open", partitions=1)
        create_topic(broker.bootstrap, "closed", partitions=1)
        allow(broker, "TOPIC", "open")
        allow(broker, "GROUP", "readers")
        produce(broker.bootstrap, "open", numbers(0, 5))
        yield broker


def alice(broker: RealBroker, mechanism: SaslMechanism, password: str = "s3cret", **settings: Any) -> Consumer:
    return Consumer(
        broker.bootstrap_sasl,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism=mechanism,
        sasl_username="alice",
        sasl_password=password,
        auto_offset_reset="earliest",
        **settings,
    )


@pytest.mark.broker
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_every_mechanism_lets_the_right_password_in(mechanism: SaslMechanism, guarded: RealBroker) -> None:
    with alice(guarded, mechanism, group="readers") as consumer:
        consumer.subscribe(["open"])
        assert [record.value for record in read(consumer, 5)] == numbers(0, 5)


@pytest.mark.broker
def test_names_and_passwords_are_sent_as_they_were_typed(guarded: RealBroker) -> None:
    """No Kafka client applies SASLprep, which would make another password of this one."""
    from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

    user, password = "anna=maria,2", "p\u00bdss=w\u00f6rd\U0001f511"
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    admin = AdminClient({"bootstrap.servers": guarded.bootstrap})
    changed = admin.alter_user_scram_credentials([UserScramCredentialUpsertion(user, info, password.encode())])
    changed[user].result(120)
    with Consumer(
        guarded.bootstrap_sasl,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="SCRAM-SHA-256",
        sasl_username=user,
        sasl_password=password,
    ) as consumer:
        consumer.assign([TopicPartition("open", 0)])
        with pytest.raises(AuthorizationFailed):  # logged in, and no rule allows it anything
            poll_until(consumer, lambda: False)


@pytest.mark.broker
def test_sasl_over_tls(guarded: RealBroker) -> None:
    with Consumer(
        guarded.bootstrap_sasl_tls,
        security_protocol="SASL_SSL",
        ssl_ca_path=str(guarded.ca_file),
        sasl_mechanism="SCRAM-SHA-512",
        sasl_username="alice",
        sasl_password="s3cret",
        auto_offset_reset="earliest",
    ) as consumer:
        consumer.assign([TopicPartition("open", 0)])
        assert len(read(consumer, 5)) == 5


@pytest.mark.broker
@pytest.mark.proves("B-30")
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_a_wrong_password_is_a_fatal_typed_error_that_does_not_show_it(
    mechanism: SaslMechanism, guarded: RealBroker
) -> None:
    with alice(guarded, mechanism, "wr0ng-password", **HASTY) as consumer:
        consumer.assign([TopicPartition("open", 0)])
        with pytest.raises(AuthenticationFailed) as caught:
            poll_until(consumer, lambda: False)
        assert "wr0ng-password" not in str(caught.value)
        counters = consumer._session.driver.core.counters
        before, limit = counters.connections_opened, time.monotonic() + 1.5
        while time.monotonic() < limit:
            with pytest.raises(AuthenticationFailed):
                consumer.poll(0.1)
        assert counters.connections_opened == before  # a name that is tried too often is locked


@pytest.mark.broker
@pytest.mark.proves("B-31", "E-07")
def test_a_topic_without_permission_is_an_error_that_names_it_and_others_go_on(guarded: RealBroker) -> None:
    with alice(guarded, "PLAIN") as consumer:
        consumer.assign([TopicPartition("open", 0), TopicPartition("closed", 0)])
        records: list[Any] = []
        refusals: list[AuthorizationFailed] = []
        limit = time.monotonic() + 120
        while len(records) < 5 or not refusals:
            assert time.monotonic() < limit
            try:
                records += [record for columns in consumer.poll(0.2) for record in columns]
            except AuthorizationFailed as error:
                refusals.append(error)
        assert [error.place["topic"] for error in refusals] == ["closed"]
        assert {record.topic for record in records} == {"open"}


@pytest.mark.broker
@pytest.mark.proves("B-31")
def test_a_permission_that_is_taken_away_while_reading_is_reported(guarded: RealBroker, unique: Name) -> None:
    topic = unique("taken")
    create_topic(guarded.bootstrap, topic)
    allow(guarded, "TOPIC", topic)
    produce(guarded.bootstrap, topic, numbers(0, 3))
    with alice(guarded, "PLAIN") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        assert len(read(consumer, 3)) == 3
        forbid(guarded, "TOPIC", topic)
        with pytest.raises(AuthorizationFailed) as caught:
            poll_until(consumer, lambda: False)
        assert caught.value.place["topic"] == topic


@pytest.mark.broker
@pytest.mark.proves("E-01", "E-02")
def test_a_group_without_permission_is_an_error_that_names_it(guarded: RealBroker) -> None:
    with alice(guarded, "PLAIN", group="strangers") as consumer:
        with pytest.raises(KohortError) as refused:
            consumer.commit({TopicPartition("open", 0): 1})
        assert "strangers" in str(refused.value)
        assert not isinstance(refused.value, OperationTimeout)
    with alice(guarded, "PLAIN", group="strangers") as consumer:
        consumer.subscribe(["open"])
        with pytest.raises(AuthorizationFailed) as caught:
            poll_until(consumer, lambda: False)
        assert caught.value.place["group"] == "strangers"
        assert caught.value.hint is not None
        assert "group" in caught.value.hint


@pytest.mark.broker
def test_what_an_admin_may_not_do_names_the_resource_and_the_cure(guarded: RealBroker) -> None:
    login: dict[str, Any] = {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_username": "alice",
        "sasl_password": "s3cret",
    }
    with Admin(guarded.bootstrap_sasl, **login) as admin:
        brokers = admin.brokers()
        cases: list[tuple[Callable[[], object], str, str]] = [
            (lambda: admin.create_topic("brand-new", partitions=1), "topic=brand-new", "topic"),
            (lambda: admin.delete_topics("closed"), "topic=closed", "topic"),
            (lambda: admin.describe_topic("closed"), "topic=closed", "DESCRIBE"),
            (lambda: admin.topic_configs(["closed"]), "topic=closed", "DESCRIBE_CONFIGS on the topic"),
            (lambda: admin.describe_group("strangers"), "group=strangers", "READ on the group"),
            (lambda: admin.committed("strangers"), "group=strangers", "READ on the group"),
            (lambda: admin.delete_groups("strangers"), "group=strangers", "READ on the group"),
            (lambda: admin.broker_configs(brokers, ["num.io.threads"]), "broker=0", "DESCRIBE_CONFIGS on the cluster"),
        ]
        for act, place, cure in cases:
            with pytest.raises(KohortError) as caught:
                act()
            assert isinstance(caught.value, AuthorizationFailed) or "AUTHORIZATION_FAILED" in caught.value.message
            assert place in str(caught.value)
            assert caught.value.hint is not None
            assert cure in caught.value.hint


@pytest.mark.broker
def test_a_mechanism_that_the_broker_does_not_offer_is_not_changed(guarded: RealBroker) -> None:
    with Consumer(
        guarded.bootstrap_sasl,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="OAUTHBEARER",
        sasl_oauth_token=lambda: "token",
    ) as consumer:
        consumer.assign([TopicPartition("open", 0)])
        with pytest.raises(AuthenticationFailed, match="does not offer OAUTHBEARER") as caught:
            poll_until(consumer, lambda: False)
        assert caught.value.hint is not None
        assert "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512" in caught.value.hint


def test_nothing_is_proved_to_a_server_that_wants_it_weaker() -> None:
    connection = BrokerConnection(
        endpoint=Endpoint("host", 1),
        client_id="c",
        max_frame_bytes=1 << 20,
        setup_timeout_s=10.0,
        opened_at=0.0,
        ranges={17: (0, 1), 36: (0, 2)},
        credentials=Credentials("SCRAM-SHA-512", "alice", "s3cret"),
        nonce="n",
    )
    connection.opened(0.0)
    (requested,) = connection.outgoing()
    assert b"SCRAM-SHA-512" in requested
    response = API["SaslHandshake"].response.build({"error_code": 33, "mechanisms": ("PLAIN",)}, 1)
    frame = bytes([0, 0, 0, 4 + len(response)]) + requested[8:12] + response
    with pytest.raises(AuthenticationFailed, match="does not offer SCRAM-SHA-512") as caught:
        connection.received(memoryview(frame), 0.0)
    assert caught.value.hint is not None
    assert "PLAIN" in caught.value.hint
    assert connection.outgoing() == []


@pytest.mark.broker
def test_a_port_with_a_login_and_one_without_are_distinguished(guarded: RealBroker) -> None:
    with Consumer(guarded.bootstrap_sasl, **HASTY) as consumer:
        consumer.assign([TopicPartition("open", 0)])
        with pytest.raises(ConnectionFailed) as caught:
            poll_until(consumer, lambda: False)
        assert caught.value.hint is not None
        assert "SASL_SSL" in caught.value.hint
    with Consumer(
        guarded.bootstrap,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="PLAIN",
        sasl_username="alice",
        sasl_password="s3cret",
    ) as consumer:
        consumer.assign([TopicPartition("open", 0)])
        with pytest.raises(AuthenticationFailed, match="the listener does not use SASL") as reported:
            poll_until(consumer, lambda: False)
        assert reported.value.hint is not None
        assert "without SASL" in reported.value.hint


@pytest.mark.broker
def test_a_producer_proves_itself_as_a_consumer_does(guarded: RealBroker, unique: Name) -> None:
    topic, name = unique("written"), unique("txn")
    create_topic(guarded.bootstrap, topic)
    allow(guarded, "TOPIC", topic)
    proof: dict[str, Any] = {"sasl_mechanism": "SCRAM-SHA-256", "sasl_username": "alice", "sasl_password": "s3cret"}
    tls: dict[str, Any] = {"security_protocol": "SASL_SSL", "ssl_ca_path": str(guarded.ca_file)}
    with Producer(guarded.bootstrap_sasl_tls, **tls, **proof) as producer:
        assert producer.send(topic, b"1").result(120).offset == 0
        with pytest.raises(AuthorizationFailed, match="write") as caught:
            producer.send("closed", b"1")
        assert caught.value.place["topic"] == "closed"
        assert producer.send(topic, b"2").result(120).offset == 1
    plain: dict[str, Any] = {"security_protocol": "SASL_PLAINTEXT"}
    with Producer(guarded.bootstrap_sasl, transactional_id=name, **plain, **proof) as producer:
        with pytest.raises(AuthorizationFailed, match="transactional id") as refused:
            producer.begin()
        assert refused.value.place["transactional_id"] == name
    wrong = {**proof, "sasl_password": "wr0ng-password"}
    with Producer(guarded.bootstrap_sasl, **plain, **wrong, max_block_ms=2000) as producer:
        with pytest.raises(AuthenticationFailed) as reported:
            producer.send(topic, b"3")
        assert "wr0ng-password" not in str(reported.value)


def test_scram_refuses_a_server_that_proves_nothing() -> None:
    talk = Credentials("SCRAM-SHA-256", "user", "pencil").conversation("rOprNGfwEbeRWgbNEkqO")
    assert next(talk) == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    # RFC 7677's own example, message by message.
    server = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    final = talk.send(server)
    assert final == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    with pytest.raises(AuthenticationFailed, match="did not prove"):
        talk.send(b"v=" + b"A" * 43 + b"=")
    honest = Credentials("SCRAM-SHA-256", "user", "pencil").conversation("rOprNGfwEbeRWgbNEkqO")
    next(honest)
    honest.send(server)
    with pytest.raises(StopIteration):
        honest.send(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


SALT = b"s=QSXCR+Q6sek8bf92"


@pytest.mark.parametrize(
    "server",
    [
        b"r=somebody-else," + SALT + b",i=4096",
        b"r=mine," + SALT + b",i=4096",  # nothing of its own behind our nonce
        b"r=mine123," + SALT + b",i=4095",
        b"r=mine123," + SALT + b",i=1000001",
        b"r=mine123," + SALT + b",i=many",
        b"r=mine123," + SALT,
        b"r=mine123,s=AA==,i=4096",
        b"r=mine123," + SALT + b",i=4096,i=8192",
        b"m=ext,r=mine123," + SALT + b",i=4096",
        b"e=unknown-user",
        b"",
        b"\xff\xfe",
    ],
)
def test_scram_refuses_a_foreign_nonce_a_cheap_key_and_what_it_cannot_read(server: bytes) -> None:
    talk = Credentials("SCRAM-SHA-256", "user", "pencil").conversation("mine")
    next(talk)
    with pytest.raises(AuthenticationFailed, match="invalid SCRAM message"):
        talk.send(server)


def test_scram_spells_names_as_the_rfc_does() -> None:
    assert next(Credentials("SCRAM-SHA-512", "a=b,c", "x").conversation("mine")) == b"n,,n=a=3Db=2Cc,r=mine"
