"""A producer that is made before its brokers, or while none can be reached."""

import socket
import threading
from contextlib import suppress
from typing import Any

import pytest

from kohort import Producer
from kohort.network.errors import ConfigError, ConnectionFailed, OperationTimeout, TlsError
from kohort.network.requests import Endpoint
from kohort.producer.producer_config import ProducerConfig
from kohort.testing import FakeBroker
from tests.producer.producer_world import World

PATIENCE_S = 60.0


def test_the_start_of_a_producer_has_no_end_without_brokers() -> None:
    world = World(1)
    for _ in range(600):
        world.now += 1.0
        world.core.endpoints.failed(Endpoint("b", 1), ConnectionFailed("refused", host="b", port=1), world.now)
        world.turn()
    assert world.core.fatal is None
    while world.partitions() is None:
        world.turn()
        world.respond_to_one()
    assert world.send(b"late", 0) is not None
    world.calm()
    assert world.logs[world.sent[0][0].batch.partition].values == [b"late"]


def test_a_certificate_that_does_not_fit_ends_it_at_once() -> None:
    world = World(1)
    world.core.endpoints.failed(Endpoint("b", 1), TlsError("wrong certificate"), world.now)
    world.turn()
    assert isinstance(world.core.fatal, TlsError)


def test_a_handshake_that_is_cut_ends_it_only_if_it_is_cut_again() -> None:
    """A broker that stops cuts one, and another broker may respond. A plaintext port cuts all of them."""
    world = World(1)
    address = world.core.endpoints.bootstrap[0]
    for is_over in (False, True):
        error = TlsError("no TLS handshake: reset")
        error.is_cut = True
        world.core.endpoints.failed(address, error, world.now)
        world.turn()
        assert (world.core.fatal is error) == is_over
        world.now += 1.0


def test_records_and_transactions_wait_for_the_first_broker() -> None:
    with FakeBroker(topics={"topic": 1}) as fake:
        fake.stop_node(1)
        settings: dict[str, Any] = {"reconnect_backoff_max_ms": 50, "delivery_timeout_ms": 60_000}
        with (
            Producer(fake.bootstrap, max_block_ms=100, **settings) as hasty,
            Producer(fake.bootstrap, transactional_id="tx", **settings) as patient,
        ):
            for _ in range(2):
                with pytest.raises(OperationTimeout, match=r"no metadata of the topic.*: .+"):
                    hasty.send("topic", b"too early")
            threading.Timer(0.2, fake.start_node, (1,)).start()
            with patient.transaction():
                patient.send("topic", b"patient")
            limit = threading.Event()
            for _ in range(600):
                try:
                    hasty.send("topic", b"hasty").result(PATIENCE_S)
                    break
                except OperationTimeout:
                    limit.wait(0.1)
        assert fake.end_offset("topic", 0) == 3  # a marker besides


def test_the_time_out_names_the_addresses_and_the_last_error() -> None:
    addresses = ["127.0.0.1:1", "127.0.0.1:2"]
    tried = f"no broker was reached at {', '.join(addresses)}: cannot reach the broker: .+; check bootstrap"
    with (
        Producer(addresses, max_block_ms=300) as plain,
        Producer(addresses, transactional_id="tx", max_block_ms=300) as transactional,
    ):
        with pytest.raises(OperationTimeout, match=tried):
            plain.send("topic", b"lost")
        with pytest.raises(OperationTimeout, match=f"no broker was reached at {', '.join(addresses)}: cannot reach"):
            transactional.transaction().__enter__()


def test_a_producer_has_its_checked_settings() -> None:
    with Producer("127.0.0.1:1", client_id="mine") as producer:
        assert (producer.config.client_id, producer.config.bootstrap) == ("mine", ("127.0.0.1:1",))


def test_the_time_out_has_the_cure_of_the_last_error() -> None:
    def alert() -> None:
        with suppress(OSError):
            while True:
                with listener.accept()[0] as caller:
                    caller.recv(1000)
                    caller.sendall(b"\x15\x03\x03\x00\x02\x02\x46")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        serving = threading.Thread(target=alert, daemon=True)
        serving.start()
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        with (
            Producer(address, max_block_ms=1000) as plain,
            Producer(address, transactional_id="tx", max_block_ms=1000) as transactional,
        ):
            for call in (lambda: plain.send("topic", b"lost"), transactional.begin):
                with pytest.raises(OperationTimeout, match="the broker's listener uses TLS") as found:
                    call()
                assert found.value.hint == 'set security_protocol="SSL" (or "SASL_SSL")'
        listener.shutdown(socket.SHUT_RDWR)
        serving.join()


def test_bootstrap_timeout_is_no_setting_of_a_producer() -> None:
    with pytest.raises(ConfigError, match="bootstrap_timeout_ms"):
        ProducerConfig.of(bootstrap="b:1", bootstrap_timeout_ms=1)
