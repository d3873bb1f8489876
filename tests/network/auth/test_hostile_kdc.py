"""A hostile KDC behind the system's Kerberos: each response ends in one typed error of one line, no response in a
time-out.

Needs the library `gssapi`, as `test_gssapi_on_broker.py` does.
"""

import socket
import socketserver
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kohort.common import KohortError
from kohort.coordinator_client import AuthenticationFailed, Consumer
from kohort.coordinator_client.consumer_config import ConsumerConfig
from kohort.network.errors import TicketUnavailable
from tests.protocol.hostile_responses import server

REALM = b"KOHORT.TEST"


def der(tag: int, *parts: bytes) -> bytes:
    body = b"".join(parts)
    size = len(body)
    if size < 0x80:
        return bytes([tag, size]) + body
    length = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes([tag, 0x80 | len(length)]) + length + body


def krb_error(code: int, text: bytes = b"", data: bytes = b"") -> bytes:
    """RFC 4120 5.9.1: an error of the KDC, with a text and data of its choice."""
    number = code.to_bytes(2, "big", signed=True)
    name = der(0x30, der(0xA0, der(2, b"\2")), der(0xA1, der(0x30, der(0x1B, b"krbtgt"), der(0x1B, REALM))))
    return der(
        0x7E,
        der(
            0x30,
            der(0xA0, der(2, b"\5")),
            der(0xA1, der(2, b"\x1e")),
            der(0xA4, der(0x18, b"20260101000000Z")),
            der(0xA5, der(2, b"\0")),
            der(0xA6, der(2, number)),
            der(0xA9, der(0x1B, REALM)),
            der(0xAA, name),
            *([der(0xAB, der(0x1B, text))] if text else ()),
            *([der(0xAC, der(4, data))] if data else ()),
        ),
    )


def framed(message: bytes) -> bytes:
    return len(message).to_bytes(4, "big") + message


def cache_with_a_ticket() -> bytes:
    """A file of version 4 for alice, with a ticket-granting ticket that lasts until 2037."""

    def counted(data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + data

    def principal(*parts: bytes) -> bytes:
        return struct.pack(">II", 1, len(parts)) + counted(REALM) + b"".join(map(counted, parts))

    def number(value: int) -> bytes:
        return der(2, bytes([value]))

    name = der(0x30, der(0xA0, number(2)), der(0xA1, der(0x30, der(0x1B, b"krbtgt"), der(0x1B, REALM))))
    sealed = der(0x30, der(0xA0, number(18)), der(0xA2, der(4, bytes(100))))
    ticket = der(
        0x61, der(0x30, *(der(0xA0 + n, part) for n, part in enumerate((number(5), der(0x1B, REALM), name, sealed))))
    )
    key = struct.pack(">H", 18) + counted(bytes(32))
    times = struct.pack(">IIII", 1, 1, 2**31 - 1, 2**31 - 1)
    rest = b"\0" + bytes(12) + counted(ticket) + counted(b"")
    return b"\5\4\0\0" + principal(b"alice") + principal(b"alice") + principal(b"krbtgt", REALM) + key + times + rest


FORGED = b"\x1b]0;PWN\x07\n2026-01-01 INFO root: login succeeded\xe2\x80\xae"
RESPONSES = {
    "a text with control characters": framed(krb_error(60, FORGED)),
    "a text that is no UTF-8": framed(krb_error(60, b"\xff\xfe" + FORGED)),
    "a text of 300,000 letters": framed(krb_error(60, b"x" * 300_000)),
    "an error of no number": framed(krb_error(0x7FFF, FORGED)),
    "preauthentication without end": framed(krb_error(25, FORGED, der(0x30))),
    "preauthentication data of no form": framed(krb_error(25, FORGED, b"\xff" * 10_000)),
    "another realm without end": framed(krb_error(68, FORGED)),
    "a length of 2 GiB": b"\x7f\xff\xff\xff",
    "a length of 4 GiB": b"\xff\xff\xff\xff" + bytes(100),
    "a megabyte of nothing": framed(bytes(1_000_000)),
    "deep DER": framed(b"\x30\x80" * 100_000),
    "half an error": framed(krb_error(60, FORGED))[:-20],
    "a ticket cut short": framed(der(0x6B, der(0x30, der(0xA0, der(2, b"\5")), der(0xA1, der(2, b"\x0b"))))),
    "nothing": b"",
}


class Kdc(socketserver.ThreadingTCPServer):
    """Each request gets `response`, and then the connection ends; with None it is held open until the server ends."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, response: bytes | None) -> None:
        self.response, self.requested, self.over = response, threading.Event(), threading.Event()
        super().__init__(("127.0.0.1", 0), Answer)


class Answer(socketserver.BaseRequestHandler):
    server: Kdc

    def handle(self) -> None:
        head = self.request.recv(4, socket.MSG_WAITALL)
        self.request.recv(int.from_bytes(head, "big"), socket.MSG_WAITALL)
        self.server.requested.set()
        if self.server.response is None:
            self.server.over.wait()
        else:
            self.request.sendall(self.server.response)


@contextmanager
def serving(response: bytes | None, folder: Path, patch: pytest.MonkeyPatch) -> Iterator[tuple[Kdc, Path]]:
    """The KDC that krb5 finds, and a keytab of a client."""
    with Kdc(response) as kdc:
        threading.Thread(target=kdc.serve_forever, args=(0.05,), daemon=True).start()
        config = folder / "krb5.conf"
        config.write_text(
            f"[libdefaults]\n default_realm = {REALM.decode()}\n dns_lookup_kdc = false\n rdns = false\n"
            f" dns_canonicalize_hostname = false\n udp_preference_limit = 1\n"
            f"[realms]\n {REALM.decode()} = {{\n  kdc = 127.0.0.1:{kdc.server_address[1]}\n }}\n"
        )
        patch.setenv("KRB5_CONFIG", str(config))
        patch.setenv("KRB5CCNAME", f"FILE:{folder / 'none'}")
        counted = [struct.pack(">H", len(part)) + part for part in (REALM, b"alice")]
        entry = b"\0\1" + b"".join(counted) + struct.pack(">IIBHH", 1, 0, 1, 18, 32) + bytes(range(32))
        (folder / "cache").write_bytes(cache_with_a_ticket())
        keytab = folder / "keytab"
        keytab.write_bytes(b"\5\2" + struct.pack(">i", len(entry)) + entry)
        try:
            yield kdc, keytab
        finally:
            kdc.over.set()
            kdc.shutdown()


@pytest.fixture
def kdc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[bytes | None], Any]:
    pytest.importorskip("gssapi", reason="the library gssapi is not installed; make test-kerberos brings it")
    return lambda response: serving(response, tmp_path, monkeypatch)


BY_GSSAPI = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "GSSAPI"}


def settings(keytab: Path, **more: Any) -> dict[str, Any]:
    return {**BY_GSSAPI, "sasl_kerberos_keytab": str(keytab), **more}


@pytest.mark.parametrize("way", ["by a keytab", "with a ticket"])
@pytest.mark.parametrize("response", RESPONSES)
def test_no_response_of_a_kdc_is_more_than_one_error_of_one_line(response: str, way: str, kdc: Any) -> None:
    from kohort.network.auth import kerberos_tickets

    with kdc(RESPONSES[response]) as (served, keytab):
        more = settings(keytab)
        if way == "with a ticket":
            more = {**BY_GSSAPI, "sasl_kerberos_ccache": f"FILE:{keytab.parent / 'cache'}"}
        error = kerberos_tickets.fetch(ConsumerConfig.of(bootstrap="host:1", **more), "broker.example", False)
        assert served.requested.is_set()
    assert isinstance(error, AuthenticationFailed | TicketUnavailable)
    assert error.__cause__ is None, "the library's exceptions are explained"
    assert str(error).isprintable()
    assert len(str(error)) < 2_000
    assert "the keytab has no key" not in str(error), "it has one, and the KDC did not read it"


def test_a_kdc_that_says_nothing_is_a_time_out_and_holds_up_no_close(kdc: Any) -> None:
    with kdc(None) as (served, keytab), server("Metadata", 100, honest_versions=True) as port:
        more = {"connection_setup_timeout_ms": 400, "bootstrap_timeout_ms": 1_500}
        with (
            Consumer(f"127.0.0.1:{port}", **settings(keytab, **more)) as consumer,
            pytest.raises(KohortError) as reported,
        ):
            consumer.topics(timeout_s=5)
        assert served.requested.is_set()
        assert not served.over.is_set(), "the consumer was closed while the KDC was still silent"
    assert "no Kerberos ticket came within 0.4 s" in str(reported.value)
