"""Errors of a user, or of a broker: one clear typed error with its place, and nothing hangs past its timeout."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from kohort.assignors.errors import DuplicateAssignor
from kohort.assignors.lag import LagAssignor
from kohort.common import KohortError, TopicPartition
from kohort.coordinator_client import (
    ConcurrentUseError,
    ConfigError,
    ConnectionFailed,
    Consumer,
    ConsumerClosed,
    IllegalState,
    TlsError,
    UnknownTopic,
    WakeupError,
)
from kohort.protocol.errors import UnsupportedVersion
from kohort.testing import RealBroker
from kohort.testing.fake_broker import FakeBroker
from tests.coordinator_client.consumer_helpers import PATIENCE_S
from tests.support.broker_selection import SelectedBroker

HASTY: dict[str, Any] = {"bootstrap_timeout_ms": 600, "connection_setup_timeout_ms": 500, "request_timeout_ms": 1000}


@contextmanager
def server(response: Callable[[socket.socket], None]) -> Iterator[str]:
    """A listener that does `respond` to each connection, and is no Kafka broker."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        stopped = threading.Event()

        def serve() -> None:
            while not stopped.is_set():
                try:
                    caller, _ = listener.accept()
                except OSError:
                    return
                with caller:
                    caller.settimeout(5)
                    try:
                        response(caller)
                    except OSError:
                        continue

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        stopped.set()
        listener.close()


def poll_until_error(consumer: Consumer, seconds: float = 20.0) -> KohortError:
    """Poll as an application does; the error that it gets."""
    limit = time.monotonic() + seconds
    while time.monotonic() < limit:
        try:
            consumer.poll(0.2)
        except KohortError as error:
            return error
    raise AssertionError("no error came")


@pytest.mark.proves("B-28")
def test_a_host_that_does_not_exist_is_named_in_the_error() -> None:
    with Consumer("no-such-host.invalid:9092", **HASTY) as consumer:
        consumer.assign([TopicPartition("t", 0)])
        error = poll_until_error(consumer)
    assert isinstance(error, ConnectionFailed)
    assert error.place["host"] == "no-such-host.invalid"
    assert error.hint


def test_a_closed_port_is_an_error_that_says_where() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with Consumer(f"127.0.0.1:{port}", group="g", **HASTY) as consumer:
        consumer.subscribe(["t"])
        error = poll_until_error(consumer)
        # Every call that needs a broker says the same, at once.
        with pytest.raises(ConnectionFailed):
            consumer.end_offsets([TopicPartition("t", 0)])
    assert isinstance(error, ConnectionFailed)
    assert error.place["port"] == port


@pytest.mark.proves("B-24")
def test_a_listener_that_never_responds_is_left_after_its_timeout() -> None:
    with server(lambda caller: time.sleep(3)) as address, Consumer(address, **HASTY) as consumer:
        consumer.assign([TopicPartition("t", 0)])
        error = poll_until_error(consumer)
    assert isinstance(error, ConnectionFailed)
    assert "no response" in str(error)


@pytest.mark.parametrize(
    ("api", "first", "last"),
    [("JoinGroup", 0, 4), ("SyncGroup", 0, 2), ("Heartbeat", 0, 2), ("OffsetCommit", 2, 6), ("LeaveGroup", 0, 2)],
)
def test_a_broker_too_old_for_static_members_is_named_to_one(api: str, first: int, last: int) -> None:
    """Without its name it would be another member. Only LeaveGroup does not need the name: by default a static
    member sends none."""
    settings: dict[str, Any] = {"group": "g", "group_instance_id": "i", "heartbeat_interval_ms": 100}
    with FakeBroker(topics={"t": 1}, versions={api: (first, last)}) as fake:
        fake.produce("t", 0, [(b"k", b"v", 0)])
        with Consumer(fake.bootstrap, auto_offset_reset="earliest", **settings) as consumer:
            consumer.subscribe(["t"])
            if api in ("OffsetCommit", "LeaveGroup"):
                while not consumer.poll(0.2):
                    pass
                if api == "LeaveGroup":
                    consumer.commit()
                    return
                with pytest.raises(UnsupportedVersion) as caught:
                    consumer.commit()
                error: KohortError = caught.value
            else:
                error = poll_until_error(consumer)
    assert isinstance(error, UnsupportedVersion)
    assert error.place == {"api": api, "version": last, "least": last + 1, "group": "g"}
    assert "2.3" in str(error)


def test_something_else_than_kafka_is_distinguished() -> None:
    def http(caller: socket.socket) -> None:
        caller.recv(1000)
        caller.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")

    with server(http) as address, Consumer(address, **HASTY) as consumer:
        consumer.assign([TopicPartition("t", 0)])
        error = poll_until_error(consumer)
    assert isinstance(error, ConnectionFailed)
    assert "does not use Kafka's protocol" in str(error)


@pytest.mark.proves("B-01")
@pytest.mark.parametrize("length", [b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff"])
def test_a_frame_of_impossible_length_ends_the_connection(length: bytes) -> None:
    def lie(caller: socket.socket) -> None:
        caller.recv(1000)
        caller.sendall(length + b"\0" * 16)

    with server(lie) as address, Consumer(address, **HASTY) as consumer:
        consumer.assign([TopicPartition("t", 0)])
        error = poll_until_error(consumer)
    assert isinstance(error, ConnectionFailed)
    assert "a frame of" in str(error)


@pytest.mark.proves("B-29")
def test_a_plaintext_client_on_a_tls_port_gets_that_error() -> None:
    def alert(caller: socket.socket) -> None:
        caller.recv(1000)
        caller.sendall(b"\x15\x03\x03\x00\x02\x02\x46")

    with server(alert) as address, Consumer(address, **HASTY) as consumer:
        consumer.assign([TopicPartition("t", 0)])
        error = poll_until_error(consumer)
    assert isinstance(error, ConnectionFailed)
    assert "listener uses TLS" in str(error)
    assert error.hint is not None
    assert "SSL" in error.hint


@pytest.mark.proves("B-29")
@pytest.mark.parametrize("read_bytes", [1, 65536], ids=["reset", "closed"])
def test_a_handshake_that_a_stopping_broker_cuts_is_repeated(read_bytes: int) -> None:
    def cut_one() -> None:
        with listener, listener.accept()[0] as connection:
            connection.recv(read_bytes)

    listener = socket.create_server(("127.0.0.1", 0))
    address = f"127.0.0.1:{listener.getsockname()[1]}"
    stopping = threading.Thread(target=cut_one)
    stopping.start()
    with Consumer(address, security_protocol="SSL", **HASTY) as consumer:
        consumer.assign([TopicPartition("t", 0)])
        error = poll_until_error(consumer)
    stopping.join()
    assert isinstance(error, ConnectionFailed)
    assert not isinstance(error, TlsError)
    assert "refused" in str(error)


@pytest.mark.broker
@pytest.mark.proves("B-29")
def test_a_tls_client_on_a_plaintext_port_fails_closed(broker: SelectedBroker) -> None:
    with Consumer(broker.bootstrap, security_protocol="SSL", **HASTY) as consumer:
        consumer.assign([TopicPartition("t", 0)])
        error = poll_until_error(consumer)
    assert isinstance(error, TlsError)
    assert error.hint is not None
    assert "plaintext" in error.hint


@pytest.mark.broker
@pytest.mark.proves("B-29")
def test_tls_works_with_the_authority_given_and_fails_without() -> None:
    with RealBroker(tls=True) as broker:
        trusting = Consumer(broker.bootstrap_tls, security_protocol="SSL", ssl_ca_path=str(broker.ca_file))
        with trusting:
            trusting.topics(PATIENCE_S)  # the first handshakes of a broker take their time
            with pytest.raises(UnknownTopic):
                trusting.partitions_for("no-such-topic", timeout_s=1.0)
        with Consumer(broker.bootstrap_tls, security_protocol="SSL", **HASTY) as stranger:
            stranger.assign([TopicPartition("t", 0)])
            error = poll_until_error(stranger)
        assert isinstance(error, TlsError)
        assert "certificate" in str(error)
        with Consumer(broker.bootstrap_tls, **HASTY) as plain:
            plain.assign([TopicPartition("t", 0)])
            assert isinstance(poll_until_error(plain), ConnectionFailed)


@pytest.mark.broker
def test_an_unknown_topic_is_an_error_that_names_it(broker: SelectedBroker, unique: Callable[[str], str]) -> None:
    name = unique("missing")
    with Consumer(broker.bootstrap, group=unique("group")) as consumer:
        consumer.subscribe([name])
        error = poll_until_error(consumer)
        assert isinstance(error, UnknownTopic)
        assert error.place["topic"] == name
        assert consumer.poll(0.1) == []  # said once, not at every poll
        with pytest.raises(UnknownTopic):
            consumer.end_offsets([TopicPartition(name, 0)], timeout_s=0.5)


@pytest.mark.broker
@pytest.mark.proves("B-37")
def test_a_second_thread_gets_a_typed_error(broker: SelectedBroker, topic: str) -> None:
    with Consumer(broker.bootstrap) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        polling = threading.Event()

        def poll() -> None:
            polling.set()
            consumer.poll(2.0)

        thread = threading.Thread(target=poll)
        thread.start()
        polling.wait()
        time.sleep(0.2)
        with pytest.raises(ConcurrentUseError):
            consumer.position(TopicPartition(topic, 0))
        thread.join()
        consumer.poll(0)  # and afterwards it is free again


@pytest.mark.broker
@pytest.mark.proves("S-11")
def test_wakeup_ends_one_poll_and_is_kept_for_the_next(broker: SelectedBroker, topic: str) -> None:
    with Consumer(broker.bootstrap) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        threading.Timer(0.2, consumer.wakeup).start()
        with pytest.raises(WakeupError):
            consumer.poll(30)
        assert consumer.poll(0.1) == []
        consumer.wakeup()
        with pytest.raises(WakeupError):
            consumer.poll(30)
        assert consumer.poll(0.1) == []


@pytest.mark.broker
def test_calls_that_make_no_sense_say_why(broker: SelectedBroker, topic: str, unique: Callable[[str], str]) -> None:
    with Consumer(broker.bootstrap) as loner:
        with pytest.raises(IllegalState, match="group"):
            loner.subscribe([topic])
        with pytest.raises(IllegalState, match="group"):
            loner.commit({TopicPartition(topic, 0): 1})
        with pytest.raises(IllegalState, match="not assigned"):
            loner.seek(TopicPartition(topic, 0), 0)
    with pytest.raises(ConsumerClosed):
        loner.poll(0)
    with Consumer(broker.bootstrap, group=unique("group")) as member:
        member.subscribe([topic])
        with pytest.raises(IllegalState, match="subscribed"):
            member.assign([TopicPartition(topic, 0)])
        with pytest.raises(IllegalState):
            member.subscribe([topic], pattern=".*")


def test_settings_that_cannot_work_are_refused_at_once() -> None:
    with pytest.raises(ConfigError, match="did you mean 'session_timeout_ms'"):
        Consumer("localhost:9092", session_timeot_ms=1000)  # type: ignore[call-arg]


def test_two_assignors_of_one_name_are_refused_at_once() -> None:
    with pytest.raises(DuplicateAssignor, match="twice"):
        Consumer("localhost:9092", group="group", assignors=[LagAssignor(), "range", LagAssignor()])


@pytest.mark.parametrize("name", ["half \ud800", "n" * 2**15])
def test_a_name_that_no_request_can_carry_is_refused_and_the_consumer_goes_on(name: str) -> None:
    with FakeBroker(topics={"topic": 1}) as fake, Consumer(fake.bootstrap, group="g") as consumer:
        fake.produce("topic", 0, [(None, b"v")])
        strange = TopicPartition(name, 0)
        calls: list[Callable[[], object]] = [
            lambda: consumer.assign([strange]),
            lambda: consumer.end_offsets([strange]),
            lambda: consumer.committed([strange]),
            lambda: consumer.commit({strange: 1}),
            lambda: consumer.partitions_for(name),
        ]
        for call in calls:
            with pytest.raises(ValueError, match="invalid topic name"):
                call()
        with pytest.raises(IllegalState, match="invalid topic name"):
            consumer.subscribe([name])
        assert consumer.end_offsets([TopicPartition("topic", 0)]) == {TopicPartition("topic", 0): 1}


@pytest.mark.proves("G-11")
@pytest.mark.parametrize("epoch", [-5, 2**31])
def test_an_epoch_that_no_leader_has_is_refused(epoch: int) -> None:
    with FakeBroker(topics={"topic": 1}) as fake, Consumer(fake.bootstrap) as consumer:
        consumer.assign({TopicPartition("topic", 0): 0})
        with pytest.raises(ValueError, match="a leader epoch is from 0"):
            consumer.seek(TopicPartition("topic", 0), 0, leader_epoch=epoch)
