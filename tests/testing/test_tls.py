"""The certificates of TLS listeners: whom they name, how long they hold, and the library that makes them."""

import ssl
import sys
from pathlib import Path

import pytest

from kohort.testing import BrokerStartError
from kohort.testing.tls import TlsFiles, make_tls_files


def shake_hands(files: TlsFiles, host: str) -> None:
    """A handshake of TLS in memory. Raises what the client finds wrong."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(files.keystore)
    client = ssl.create_default_context(cafile=str(files.ca_file))
    client.verify_flags |= ssl.VERIFY_X509_STRICT  # the default from Python 3.13 on
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    waiting = [
        client.wrap_bio(to_client, to_server, server_hostname=host),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    while waiting:
        end = waiting.pop(0)
        try:
            end.do_handshake()
        except ssl.SSLWantReadError:
            waiting.append(end)


@pytest.mark.parametrize("host", ["127.0.0.1", "broker.example", "localhost"])
def test_a_certificate_holds_for_its_names_and_the_loopback_address(host: str, tmp_path: Path) -> None:
    shake_hands(make_tls_files(tmp_path / "new", names=("localhost", "broker.example")), host)


def test_a_certificate_holds_for_no_other_name(tmp_path: Path) -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match="mismatch"):
        shake_hands(make_tls_files(tmp_path), "broker.example")


def test_a_certificate_of_negative_days_has_expired(tmp_path: Path) -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match="expired"):
        shake_hands(make_tls_files(tmp_path, valid_days=-1), "localhost")


def test_the_key_is_in_the_form_that_kafka_reads(tmp_path: Path) -> None:
    assert make_tls_files(tmp_path).keystore.read_text().startswith("-----BEGIN PRIVATE KEY-----")


def test_without_trustme_the_error_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "trustme", None)
    with pytest.raises(BrokerStartError, match=r"needs trustme.*pip install 'kohort\[testing\]'"):
        make_tls_files(tmp_path)
