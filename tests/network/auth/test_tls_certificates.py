"""Certificates that are wrong, and certificates that are replaced while a client runs."""

import errno
import os
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from trustme import CA

from kohort.admin.admin_config import AdminConfig
from kohort.common import KohortError, TopicPartition
from kohort.coordinator_client import AuthorizationFailed, ConfigError, ConnectionFailed, Consumer, TlsError
from kohort.network.auth.tls import Certificates
from kohort.testing import RealBroker
from kohort.testing.topics import create_topic
from tests.coordinator_client.consumer_helpers import numbers, poll_until, produce, read
from tests.network.auth.acls import allow
from tests.network.auth.certificates import Pair, self_signed, signed

OURS, STRANGE = CA(), CA()
HASTY: dict[str, Any] = {"bootstrap_timeout_ms": 2000}


@contextmanager
def speaking_tls(pair: Pair, folder: Path) -> Iterator[int]:
    """A port that presents `pair` to each client, and does nothing else."""
    pair.write(folder / "server.pem", folder / "server.key")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.pem", folder / "server.key")
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with suppress(OSError):
            while True:
                caller, _address = listener.accept()
                caller.settimeout(10)
                with suppress(OSError), context.wrap_socket(caller, server_side=True) as secure:
                    secure.recv(1000)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


def error_of(consumer: Consumer) -> KohortError:
    with pytest.raises(KohortError) as caught:
        poll_until(consumer, lambda: False)
    return caught.value


WRONG: dict[str, tuple[Pair, str, str]] = {
    "expired": (signed(OURS, "broker", since_days=10, days=5), "expired", "new one"),
    "not yet valid": (signed(OURS, "broker", since_days=-5), "not yet valid", "clock"),
    "another host's": (signed(OURS, "broker", hosts=("elsewhere.example",)), "mismatch", "bootstrap"),
    "self-signed": (self_signed(), "self-signed", "ssl_ca_path"),
    "a stranger's": (signed(STRANGE, "broker"), "unable to get local issuer", "ssl_ca_path"),
}


@pytest.mark.proves("B-29")
@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_a_wrong_certificate_is_one_error_with_its_cure(wrong: str, host: str, tmp_path: Path) -> None:
    pair, said, cure = WRONG[wrong]
    ca = tmp_path / "ca.pem"
    ca.write_bytes(OURS.cert_pem.bytes())
    with (
        speaking_tls(pair, tmp_path) as port,
        Consumer(f"{host}:{port}", security_protocol="SSL", ssl_ca_path=str(ca)) as consumer,
    ):
        consumer.assign([TopicPartition("t", 0)])
        error = error_of(consumer)
        assert isinstance(error, TlsError)
        assert said in error.message
        assert error.place == {"host": host, "port": port}
        assert error.hint is not None
        assert cure in error.hint


def test_a_wrong_name_may_be_overlooked_if_one_says_so(tmp_path: Path) -> None:
    ca = tmp_path / "ca.pem"
    ca.write_bytes(OURS.cert_pem.bytes())
    with (
        speaking_tls(WRONG["another host's"][0], tmp_path) as port,
        Consumer(
            f"localhost:{port}", security_protocol="SSL", ssl_ca_path=str(ca), ssl_check_hostname=False, **HASTY
        ) as consumer,
    ):
        consumer.assign([TopicPartition("t", 0)])
        error = error_of(consumer)
    assert isinstance(error, ConnectionFailed)
    assert not isinstance(error, TlsError)  # it reached a server that does not speak Kafka


def test_files_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    pair, other = signed(OURS, "me"), signed(OURS, "me")
    files = {name: tmp_path / name for name in ("ca.pem", "me.pem", "me.key", "other.key", "sealed.key", "empty.pem")}
    files["ca.pem"].write_bytes(OURS.cert_pem.bytes())
    pair.write(files["me.pem"], files["me.key"])
    files["other.key"].write_bytes(other.key)
    files["empty.pem"].write_bytes(b"")
    sealed = serialization.load_pem_private_key(pair.key, None).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"s3same"),
    )
    files["sealed.key"].write_bytes(sealed)

    def made(**names: str) -> None:
        paths: dict[str, Any] = {
            f"ssl_{kind}_path": str(files.get(name, tmp_path / name)) for kind, name in names.items()
        }
        password = "s3same" if names.get("key") == "sealed.key" and names.get("ca") else None
        Consumer("localhost:1", security_protocol="SSL", ssl_key_password=password, **paths).close(0)

    made(ca="ca.pem", cert="me.pem", key="me.key")
    made(ca="ca.pem", cert="me.pem", key="sealed.key")
    for names, setting, said in (
        ({"ca": "none.pem"}, "ssl_ca_path", "No such file"),
        ({"ca": "empty.pem"}, "ssl_ca_path", "ssl_ca_path cannot be used"),
        ({"cert": "me.pem", "key": "other.key"}, "ssl_cert_path", "MISMATCH"),
        ({"cert": "none.pem", "key": "me.key"}, "ssl_cert_path", "No such file"),
        ({"cert": "me.pem", "key": "sealed.key"}, "ssl_key_password", "encrypted"),  # and there is no prompt for it
    ):
        with pytest.raises(ConfigError, match=said) as caught:
            made(**names)
        assert caught.value.place["setting"] == setting


@pytest.mark.proves("B-29")
def test_files_that_could_not_be_read_are_read_again_without_a_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ca = tmp_path / "ca.pem"
    ca.write_bytes(OURS.cert_pem.bytes())
    certificates = Certificates(AdminConfig.of(bootstrap="localhost:1", security_protocol="SSL", ssl_ca_path=str(ca)))

    def kinds() -> list[str | None]:
        notices = certificates.reload(), certificates.reload()
        return [None if notice is None else notice.kind for notice in notices]

    assert kinds() == [None, None]
    for _ in range(2):
        kept = ca.rename(tmp_path / "kept.pem")
        assert kinds() == ["tls_files_unusable", None]
        kept.rename(ca)
        assert kinds() == ["tls_files_renewed", None]
    first = certificates.context
    with monkeypatch.context() as forbidden:
        forbidden.setattr(ssl, "create_default_context", refuse)
        ca.write_bytes(OURS.cert_pem.bytes() + b"\n")
        assert kinds() == ["tls_files_unusable", None]
        assert certificates.context is first
    assert kinds() == ["tls_files_renewed", None]
    assert certificates.context is not first


def refuse(**_given: Any) -> ssl.SSLContext:
    raise PermissionError(errno.EACCES, "Permission denied")


# --- a broker that requires client certificates


@pytest.fixture(scope="module")
def choosy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealBroker]:
    """A broker that takes certificates of OURS; the one of CN=one may read the topic "one", and so on."""
    trusted = tmp_path_factory.mktemp("trusted") / "ours.pem"
    trusted.write_bytes(OURS.cert_pem.bytes())
    properties = {
        "listener.name.tls.ssl.client.auth": "required",
        "listener.name.tls.ssl.truststore.type": "PEM",
        "listener.name.tls.ssl.truststore.location": str(trusted),
        "ssl.principal.mapping.rules": "RULE:^CN=([^,]+).*/$1/",  # trustme adds a random OU
    }
    with RealBroker(tls=True, acls=True, properties=properties) as broker:
        for name in ("one", "two"):
            create_topic(broker.bootstrap, name)
            produce(broker.bootstrap, name, numbers(0, 3))
            allow(broker, "TOPIC", name, f"User:{name}")
        yield broker


class Files:
    """The paths of a client's certificate, its key and the authorities."""

    def __init__(self, folder: Path, broker: RealBroker) -> None:
        assert broker.ca_file is not None
        self.certificate, self.key, self.authorities = (folder / name for name in ("me.pem", "me.key", "ca.pem"))
        self.good_authorities = broker.ca_file.read_bytes()
        self.trust(self.good_authorities)

    def trust(self, authorities: bytes) -> None:
        new = self.authorities.with_suffix(".new")
        new.write_bytes(authorities)
        new.replace(self.authorities)

    @property
    def settings(self) -> dict[str, Any]:
        return {
            "security_protocol": "SSL",
            "ssl_ca_path": str(self.authorities),
            "ssl_cert_path": str(self.certificate),
            "ssl_key_path": str(self.key),
            "auto_offset_reset": "earliest",
            "reconnect_backoff_max_ms": 100,
        }


def cut(consumer: Consumer) -> None:
    """End every connection, as a broker that restarts would."""
    for channel in list(consumer._session.driver._channels.values()):
        if channel.sock is not None:
            with suppress(OSError), socket.socket(fileno=os.dup(channel.sock.fileno())) as double:
                double.shutdown(socket.SHUT_RDWR)


def received(consumer: Consumer, kind: str) -> Callable[[], bool]:
    before = len(consumer.notices())

    def is_there() -> bool:
        return any(notice.kind == kind for notice in consumer.notices()[before:])

    return is_there


@pytest.mark.broker
@pytest.mark.proves("B-29")
def test_new_files_are_taken_up_by_the_next_connection_and_broken_ones_are_not(
    choosy: RealBroker, tmp_path: Path
) -> None:
    files = Files(tmp_path, choosy)
    signed(OURS, "one").write(files.certificate, files.key)
    with Consumer(choosy.bootstrap_tls, **files.settings) as consumer:
        consumer.assign([TopicPartition("one", 0)])
        assert len(read(consumer, 3)) == 3

        # Broken: the certificate of before goes on.
        unusable = received(consumer, "tls_files_unusable")
        files.certificate.write_bytes(b"-----BEGIN CERTIFICATE-----\nhalf")
        cut(consumer)
        poll_until(consumer, unusable)
        consumer.seek_to_beginning([TopicPartition("one", 0)])
        assert len(read(consumer, 3)) == 3
        assert "ssl_cert_path cannot be used" in consumer.notices()[-1].text

        # Another one: the broker sees another principal.
        consumer.assign([])  # what is not allowed from then on must not be requested before we look
        renewed = received(consumer, "tls_files_renewed")
        signed(OURS, "two").write(files.certificate, files.key)
        cut(consumer)
        consumer.assign([TopicPartition("two", 0)])
        poll_until(consumer, renewed)
        consumer.seek_to_beginning([TopicPartition("two", 0)])  # the poll that saw the notice may have had the records
        assert len(read(consumer, 3)) == 3
        consumer.assign([TopicPartition("one", 0)])
        error = error_of(consumer)
        assert isinstance(error, AuthorizationFailed)
        assert error.place["topic"] == "one"

        # Authorities: with foreign ones no connection comes about, and then again.
        consumer.assign([])
        failed = received(consumer, "tls_files_renewed")
        files.trust(STRANGE.cert_pem.bytes())
        cut(consumer)
        consumer.assign([TopicPartition("two", 0)])
        poll_until(consumer, failed)
        driver = consumer._session.driver
        poll_until(consumer, lambda: isinstance(driver.core.endpoints.last_error, TlsError))
        files.trust(files.good_authorities)
        consumer.seek_to_beginning([TopicPartition("two", 0)])
        assert len(read(consumer, 3)) == 3


@pytest.mark.broker
@pytest.mark.proves("B-29")
@pytest.mark.parametrize("authority", [None, STRANGE])
def test_a_broker_that_wants_another_certificate_says_so(
    authority: CA | None, choosy: RealBroker, tmp_path: Path
) -> None:
    files = Files(tmp_path, choosy)
    settings = files.settings
    if authority is None:
        del settings["ssl_cert_path"], settings["ssl_key_path"]
    else:
        signed(authority, "one").write(files.certificate, files.key)
    with Consumer(choosy.bootstrap_tls, **settings, **HASTY) as consumer:
        consumer.assign([TopicPartition("one", 0)])
        error = error_of(consumer)
        assert isinstance(error, ConnectionFailed)
        assert error.hint is not None
        assert "ssl_cert_path" in error.hint
