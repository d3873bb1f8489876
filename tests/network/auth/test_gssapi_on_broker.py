"""GSSAPI on a real broker, with tickets of a real KDC: accepted and refused clients, their errors, and renewed
sessions.

Needs the library `gssapi`, which is built from source: `make test-kerberos` brings it, and a KDC of Debian's packages.
"""

import asyncio
import json
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kohort import Producer
from kohort.admin import Admin
from kohort.cli.main import main
from kohort.common import KohortError, TopicPartition
from kohort.coordinator_client import AuthenticationFailed, Consumer
from kohort.network.errors import TicketUnavailable
from kohort.testing import PackagesUnavailable, RealBroker, RealKdc
from kohort.testing.topics import create_topic
from tests.coordinator_client.consumer_helpers import PATIENCE_S, first_value, numbers, poll_until, produce, read
from tests.support.broker_selection import wanted_version

pytest.importorskip("gssapi", reason="the library gssapi is not installed; make test-kerberos brings it, and a KDC")
pytestmark = pytest.mark.broker

Name = Callable[[str], str]
HASTY: dict[str, Any] = {"bootstrap_timeout_ms": 1500}
SERVICE = "kafka/127.0.0.1"
SESSION_MS = 1_500


class House(NamedTuple):
    broker: RealBroker
    kdc: RealKdc
    alice: Path
    service: Path


@pytest.fixture(scope="module")
def house() -> Iterator[House]:
    """A realm, and a broker in it: one listener's sessions last an hour, those of the other, over TLS, SESSION_MS."""
    with pytest.MonkeyPatch.context() as patch:
        try:
            kdc = RealKdc().__enter__()
        except PackagesUnavailable as missing:
            pytest.skip(f"no KDC here: {missing}")
        try:
            for name, value in kdc.environment.items():
                patch.setenv(name, value)
            for principal in ("alice", SERVICE):
                kdc.add(principal)
            kdc.add("bob", "secret-of-bob")
            service = kdc.keytab(SERVICE)
            login = (
                "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true "
                f'keyTab="{service}" principal="{SERVICE}@{kdc.realm}";'
            )
            properties = {
                "sasl.enabled.mechanisms": "GSSAPI",
                "sasl.kerberos.service.name": "kafka",
                "listener.name.sasl.gssapi.sasl.jaas.config": login,
                "listener.name.sasl_tls.gssapi.sasl.jaas.config": login,
                "listener.name.sasl.connections.max.reauth.ms": "3600000",
                "listener.name.sasl_tls.connections.max.reauth.ms": str(SESSION_MS),
            }
            with RealBroker(
                version=wanted_version(),
                tls=True,
                users={"x": "y"},
                properties=properties,
                start_timeout_s=150,
                jvm_options=[f"-Djava.security.krb5.conf={kdc.config}"],
            ) as broker:
                create_topic(broker.bootstrap, "topic")
                produce(broker.bootstrap, "topic", numbers(0, 5))
                yield House(broker, kdc, kdc.keytab("alice"), service)
        finally:
            kdc.__exit__(None, None, None)


def by_keytab(house: House, **settings: Any) -> dict[str, Any]:
    return {
        "bootstrap": house.broker.bootstrap_sasl,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "GSSAPI",
        "sasl_kerberos_keytab": str(house.alice),
        "auto_offset_reset": "earliest",
        "reconnect_backoff_max_ms": 100,
        **settings,
    }


def over_tls(house: House, **settings: Any) -> dict[str, Any]:
    tls = {"bootstrap": house.broker.bootstrap_sasl_tls, "ssl_ca_path": str(house.broker.ca_file)}
    return by_keytab(house, **tls, security_protocol="SASL_SSL", **settings)


def without_keytab(house: House, **settings: Any) -> dict[str, Any]:
    return by_keytab(house, sasl_kerberos_keytab=None, **settings)


def of_client(settings: dict[str, Any]) -> dict[str, Any]:
    """Without what only consumers know."""
    return {name: value for name, value in settings.items() if name != "auto_offset_reset"}


def error_of(settings: dict[str, Any]) -> KohortError:
    """The error of a consumer with these settings. After a refusal it repeats the error and opens no connection."""
    with Consumer(**settings) as consumer:
        consumer.assign([TopicPartition("topic", 0)])
        with pytest.raises(KohortError) as caught:
            poll_until(consumer, lambda: False)
        if isinstance(caught.value, AuthenticationFailed):
            opened = consumer._session.driver.core.counters.connections_opened
            limit = time.monotonic() + 0.5
            while time.monotonic() < limit:
                with pytest.raises(AuthenticationFailed):
                    consumer.poll(0.1)
            assert consumer._session.driver.core.counters.connections_opened == opened
    return caught.value


def test_a_keytab_lets_every_kind_of_client_in(house: House, unique: Name) -> None:
    group, topic = unique("group"), unique("topic")
    with Consumer(**by_keytab(house, group=group)) as consumer:
        consumer.subscribe(["topic"])
        assert [record.value for record in read(consumer, 5)] == numbers(0, 5)
        consumer.commit()
    create_topic(house.broker.bootstrap, topic)
    with Admin(**of_client(by_keytab(house))) as admin:
        assert group in {one.group for one in admin.list_groups()}
    with Producer(**of_client(by_keytab(house))) as producer:
        assert producer.send(topic, b"1").result(120).offset == 0

    assert asyncio.run(asyncio.wait_for(first_value(topic, **by_keytab(house)), PATIENCE_S)) == b"1"


def test_so_do_the_tickets_that_kinit_got(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    tickets = house.kdc.tickets("bob", "secret-of-bob")
    with Consumer(**without_keytab(house, sasl_kerberos_ccache=tickets)) as consumer:
        consumer.assign([TopicPartition("topic", 0)])
        assert len(read(consumer, 5)) == 5
    monkeypatch.setenv("KRB5CCNAME", tickets)
    principal = f"bob@{house.kdc.realm}"
    with Consumer(**without_keytab(house, sasl_kerberos_principal=principal)) as consumer:
        consumer.assign([TopicPartition("topic", 0)])
        assert len(read(consumer, 5)) == 5
    error = error_of(without_keytab(house, sasl_kerberos_principal=f"alice@{house.kdc.realm}", **HASTY))
    assert isinstance(error, TicketUnavailable)
    assert error.place["principal"] == f"alice@{house.kdc.realm}"


@pytest.mark.proves("B-30")
def test_sessions_are_renewed_on_their_connections_while_records_flow(house: House, unique: Name) -> None:
    topic = unique("topic")
    create_topic(house.broker.bootstrap, topic)
    with Consumer(**over_tls(house, group=unique("group"))) as consumer:
        consumer.subscribe([topic])
        poll_until(consumer, lambda: len(consumer.assignment) == 1)
        produce(house.broker.bootstrap, topic, numbers(0, 1))
        read(consumer, 1)
        consumer.commit()
        channels = consumer._session.driver._channels
        before = {line: channel.connection for line, channel in channels.items()}
        written = 1
        limit = time.monotonic() + PATIENCE_S
        while sorted(one._authentications for one in before.values())[-2:] < [3, 3]:
            assert time.monotonic() < limit
            produce(house.broker.bootstrap, topic, numbers(written, 1))
            assert [record.value for record in read(consumer, 1)] == numbers(written, 1)
            consumer.commit()
            written += 1
        kept = [line for line, one in before.items() if channels[line].connection is one and one._authentications >= 3]
        assert len(kept) >= 2  # the one that fetches and the coordinator's
        assert len(consumer.timeline()) == 1


@pytest.mark.proves("B-30")
def test_a_ticket_that_has_expired_is_said_so_and_a_new_one_is_found(house: House) -> None:
    tickets = house.kdc.tickets("bob", "secret-of-bob", lifetime_s=1)
    time.sleep(2)  # the clock by which it expires is the KDC's
    error = error_of(without_keytab(house, sasl_kerberos_ccache=tickets, **HASTY))
    assert isinstance(error, TicketUnavailable)
    assert "has expired" in error.message
    assert error.hint is not None
    assert "kinit" in error.hint
    with Consumer(**without_keytab(house, sasl_kerberos_ccache=tickets, bootstrap_timeout_ms=60_000)) as consumer:
        consumer.assign([TopicPartition("topic", 0)])
        assert consumer.poll(0.5) == []
        shutil.copy(house.kdc.tickets("bob", "secret-of-bob").removeprefix("FILE:"), tickets.removeprefix("FILE:"))
        assert len(read(consumer, 5)) == 5


@pytest.mark.proves("B-30")
def test_where_there_is_no_ticket_each_reason_is_one_error_with_its_cure(house: House, tmp_path: Path) -> None:
    house.kdc.add("carol")
    stale = house.kdc.keytab("carol")
    house.kdc.keytab("carol")
    cases: list[tuple[dict[str, Any], type[KohortError], str, str]] = [
        (without_keytab(house), TicketUnavailable, "there is no Kerberos ticket", "kinit"),
        (
            by_keytab(house, sasl_kerberos_keytab=str(stale)),
            AuthenticationFailed,
            "key is not",
            "export the keytab again",
        ),
        (by_keytab(house, sasl_kerberos_keytab=str(tmp_path / "none")), AuthenticationFailed, "no key", "klist -k"),
        (
            by_keytab(house, sasl_kerberos_principal=f"dave@{house.kdc.realm}"),
            AuthenticationFailed,
            "no key of the principal",
            "sasl_kerberos_principal",
        ),
        (
            by_keytab(house, sasl_kerberos_service_name="kafkaesque"),
            AuthenticationFailed,
            "broker's service principal is unknown",
            "sasl_kerberos_service_name",
        ),
    ]
    for settings, kind, said, cure in cases:
        error = error_of({**settings, **HASTY})
        assert type(error) is kind, error
        assert said in error.message
        assert error.hint is not None
        assert cure in error.hint
        assert error.place["service"] == settings.get("sasl_kerberos_service_name", "kafka") + "@127.0.0.1"


@pytest.mark.proves("B-30")
def test_a_broker_that_cannot_read_the_ticket_is_the_end_and_one_that_has_a_new_key_is_not(house: House) -> None:
    house.kdc.add("frank")
    keytab = str(house.kdc.keytab("frank"))
    with Consumer(**by_keytab(house)) as consumer:  # whose ticket is of the old key, and kept
        consumer.assign([TopicPartition("topic", 0)])
        assert len(read(consumer, 5)) == 5
    changed = house.kdc.keytab(SERVICE)
    try:
        error = error_of(by_keytab(house, sasl_kerberos_keytab=keytab))
        assert isinstance(error, AuthenticationFailed)
        assert "refused the Kerberos ticket" in error.message
        assert error.hint is not None
        assert "the broker's keytab" in error.hint
    finally:
        house.service.write_bytes(changed.read_bytes())
    for one in (keytab, str(house.alice)):
        with Consumer(**by_keytab(house, sasl_kerberos_keytab=one)) as consumer:
            consumer.assign([TopicPartition("topic", 0)])
            assert len(read(consumer, 5)) == 5


@pytest.mark.proves("B-30")
def test_clocks_that_are_too_far_apart_are_named_as_a_reason(house: House) -> None:
    house.kdc.add("grace")
    keytab = str(house.kdc.keytab("grace"))
    house.kdc.stop()
    house.kdc.start(clock_ahead_s=1_200)  # krb5 believes the KDC's clock, and the broker its own
    try:
        error = error_of(by_keytab(house, sasl_kerberos_keytab=keytab))
        assert isinstance(error, AuthenticationFailed)
        assert error.hint is not None
        assert "five minutes" in error.hint
    finally:
        house.kdc.stop()
        house.kdc.start()


def test_a_kdc_that_is_down_is_waited_for(house: House) -> None:
    house.kdc.add("erin")
    keytab = str(house.kdc.keytab("erin"))
    house.kdc.stop()
    try:
        error = error_of(by_keytab(house, sasl_kerberos_keytab=keytab, **HASTY))
        assert isinstance(error, TicketUnavailable)
        assert "no KDC can be reached" in error.message
        with Consumer(**by_keytab(house, sasl_kerberos_keytab=keytab, bootstrap_timeout_ms=60_000)) as patient:
            patient.assign([TopicPartition("topic", 0)])
            assert patient.poll(1.0) == []
            house.kdc.start()
            assert len(read(patient, 5)) == 5
    finally:
        house.kdc.stop()
        house.kdc.start()


def test_commands_log_in_by_a_file_of_properties(
    house: House, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "client.properties"
    file.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=GSSAPI\nsasl.kerberos.service.name=kafka\n"
        f"sasl.kerberos.keytab={house.alice}\nsasl.kerberos.principal=alice@{house.kdc.realm}\n"
    )
    command = ["topic", "list", "--bootstrap", house.broker.bootstrap_sasl, "--config", str(file), "--json"]
    assert main(command) == 0
    assert "topic" in json.dumps(json.loads(capsys.readouterr().out))
    login = f'com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true keyTab="{house.alice}";'
    file.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=GSSAPI\nsasl.kerberos.service.name=kafka\n"
        f"sasl.jaas.config={login}\nsasl.kerberos.kinit.cmd=/usr/bin/kinit\n"
    )
    assert main(command) == 0
    assert "topic" in json.dumps(json.loads(capsys.readouterr().out))
    file.write_text(file.read_text().replace("name=kafka", "name=kafkaesque"))
    assert main(command) != 0
    assert "broker's service principal is unknown" in capsys.readouterr().err
