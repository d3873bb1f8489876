"""A PostgreSQL server on another host is reached by TLS unless the URL or the environment says otherwise."""

import socket
import threading

import pytest

from kohort.consistent_region.errors import CoordinatorUnavailable
from kohort.consistent_region.postgres_store import PostgresStore
from kohort.consistent_region.urls import conninfo

SSL_REQUEST = bytes.fromhex("0000000804d2162f")


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PGSSLMODE", "PGHOST", "PGHOSTADDR", "PGSERVICE"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("url", "sslmode"),
    [
        ("postgresql://u@db.example/x", "require"),
        ("postgresql://u@10.0.0.7:5433/x", "require"),
        ("postgresql://u@localhost.example/x", "require"),
        ("postgresql://u@127.0.0.1.example/x", "require"),
        ("postgresql://u@localhost,db.example/x", "require"),
        ("postgresql://u@localhost/x?hostaddr=10.0.0.7", "require"),
        ("postgresql://u@db.example/x?sslmode=disable", "disable"),
        ("postgresql://u@db.example/x?sslmode=verify-full", "verify-full"),
        ("postgresql://u@localhost/x", None),
        ("postgresql://u@127.0.0.1:5432/x", None),
        ("postgresql://u@[::1]/x", None),
        ("postgresql:///x", None),
        ("postgresql:///x?host=/var/run/postgresql", None),
    ],
)
def test_only_a_local_address_goes_without(url: str, sslmode: str | None) -> None:
    assert conninfo(url).get("sslmode") == sslmode


def test_the_environment_may_say_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGSSLMODE", "prefer")
    assert "sslmode" not in conninfo("postgresql://u@db.example/x")
    monkeypatch.delenv("PGSSLMODE")
    monkeypatch.setenv("PGHOST", "db.example")
    assert conninfo("postgresql:///x")["sslmode"] == "require"


def test_a_server_without_tls_gets_no_password() -> None:
    """With `sslmode=require`, the default for other hosts."""
    received = bytearray()

    def serve(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection:
            while data := connection.recv(4096):
                received.extend(data)
                if data == SSL_REQUEST:
                    connection.sendall(b"N")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,), daemon=True)
        thread.start()
        port = listener.getsockname()[1]
        store = PostgresStore(f"postgresql://me:CANARY@127.0.0.1:{port}/db?sslmode=require", timeout_s=2.0)
        with pytest.raises(CoordinatorUnavailable):
            store.clock()
        thread.join(120)
    assert bytes(received) == SSL_REQUEST
