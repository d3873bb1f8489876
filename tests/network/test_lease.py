"""Sockets that a waiting caller serves itself: none is lost between it and the driver's thread."""

import random
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from selectors import EVENT_READ

import pytest

from kohort import Consumer, TopicPartition
from kohort.coordinator_client import ConsumerClosed
from kohort.network.errors import WakeupError
from kohort.network.requests import NOTHING_FOLLOWS
from kohort.testing import FakeBroker
from tests.network.steady_peer import STEADY, Feed, Peer, descriptors, python_calls

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="sockets are leased on Linux only")
LIMIT_S = 60.0


@pytest.fixture
def peer() -> Iterator[Peer]:
    """A peer whose socket the caller has, after three responses with records."""
    made = Peer(*[b"%d" % number for number in range(STEADY)])
    made.driver.on_update = None
    made.lease.wait(made.driver.bell.rings, 0.001)  # a caller is waiting
    made.lend()
    yield made
    made.close()


def interrupt() -> None:
    raise KeyboardInterrupt


@contextmanager
def alarm(handler: Callable[[], object] = interrupt) -> Iterator[None]:
    """A signal handler of the block raises KeyboardInterrupt, or calls `handler`, after 50 ms."""
    before = signal.signal(signal.SIGALRM, lambda _number, _frame: handler())
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def serve(peer: Peer) -> None:
    assert peer.lease.wait(peer.driver.bell.rings, LIMIT_S)


def test_a_leased_socket_is_served_by_the_caller_alone(peer: Peer) -> None:
    peer.bodies = [b"more"]
    peer.theirs.send(peer.respond())
    assert peer.wait() == []
    assert peer.offered == STEADY
    serve(peer)
    assert peer.theirs.recv(4096).endswith(b"more")
    assert peer.lease.size == 1


def test_an_unusual_response_is_left_to_a_turn(peer: Peer) -> None:
    peer.bodies = [None, None]
    peer.theirs.send(peer.respond())
    serve(peer)
    assert peer.lease.size == 0
    assert list(peer.rung) == [peer.driver]
    assert peer.wait() == [peer.owner]
    assert len(peer.turn()) == 1


def test_a_defect_is_that_of_a_turn(peer: Peer) -> None:
    peer.bodies = []
    peer.theirs.send(peer.respond())
    serve(peer)
    assert peer.wait() == [peer.owner]
    with pytest.raises(IndexError):
        peer.turn()


def test_a_closed_connection_is_left_to_a_turn(peer: Peer) -> None:
    peer.theirs.close()
    serve(peer)
    assert peer.lease.size == 0
    assert peer.owner in peer.wait()


def test_a_connection_that_ends_while_the_caller_is_away_is_left_to_a_turn(peer: Peer) -> None:
    peer.theirs.close()
    assert peer.wait(LIMIT_S) == [peer.owner]
    assert peer.lease.size == 0


def test_the_driver_s_thread_goes_on_if_the_caller_stays_away(peer: Peer) -> None:
    peer.bodies = [b"more"]
    peer.theirs.send(peer.respond())
    deadline = time.monotonic() + LIMIT_S
    while peer.offered == STEADY:
        assert peer.wait(1.0) == []
        assert time.monotonic() < deadline
    assert peer.lease.size == 0
    assert peer.theirs.recv(4096).endswith(b"more")


def low_water(peer: Peer) -> int:
    """The bytes from which on polls report the caller's socket."""
    return peer.ours.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT)


def test_the_rest_of_a_response_wakes_the_caller_once(peer: Peer) -> None:
    peer.bodies = [b"more"]
    response = peer.respond()
    peer.theirs.send(response[:10])
    assert peer.lease.wait(peer.driver.bell.rings, 0.01)
    assert low_water(peer) == len(response) - 10
    peer.theirs.send(response[10:])
    serve(peer)
    assert low_water(peer) == 1
    assert peer.theirs.recv(4096).endswith(b"more")


def test_the_caller_reads_a_long_response_in_parts(peer: Peer) -> None:
    """Segments that it leaves unread would be acknowledged after 40 ms, and the broker would wait for that."""
    peer.bodies = [b"more"]
    response = peer.respond()
    response = (1_000 - 4).to_bytes(4) + response[4:].ljust(1_000 - 4, b"-")
    for begin, end, wanted in ((0, 10, 256), (10, 300, 256), (300, 900, 100)):
        peer.theirs.send(response[begin:end])
        peer.lease.wait(peer.driver.bell.rings, 0.01)
        assert low_water(peer) == wanted
    peer.theirs.send(response[900:])
    serve(peer)
    assert low_water(peer) == 1
    assert peer.theirs.recv(4096).endswith(b"more")


def test_a_socket_is_given_back_as_it_was_lent(peer: Peer) -> None:
    peer.bodies = [b"more"]
    response = peer.respond()
    peer.theirs.send(response[:10])
    assert peer.lease.wait(peer.driver.bell.rings, 0.01)
    peer.lease.give_back()
    assert low_water(peer) == 1
    peer.theirs.send(response[10:12])
    assert peer.wait(0.01) == []
    peer.theirs.send(response[12:])
    assert peer.wait(0.01) == []
    assert peer.theirs.recv(4096).endswith(b"more")


def test_a_response_that_comes_slowly_does_not_prolong_a_wait(peer: Peer) -> None:
    pieces, waited = [(5_000).to_bytes(4), *[b"x"] * 5_000], threading.Event()

    def send() -> None:
        while pieces and not waited.wait(0.01):
            peer.theirs.send(pieces.pop(0))

    sender = threading.Thread(target=send)
    sender.start()
    assert peer.lease.wait(peer.driver.bell.rings, 0.05)
    waited.set()
    sender.join()
    assert pieces, "the wait has gone on until the response was whole"


def test_a_turn_reclaims_a_socket(peer: Peer) -> None:
    peer.bodies = [b"more"]
    with peer.lease.guard:
        peer.poller.reclaim(peer.ours)
    assert peer.lease.size == 0
    peer.theirs.send(peer.respond())
    assert peer.wait() == []
    assert peer.offered == STEADY + 1


def test_what_is_given_back_is_not_lent_before_the_caller_waits_again(peer: Peer) -> None:
    peer.lease.give_back()
    for number in range(STEADY + 1):
        peer.bodies = [b"%d" % number]
        peer.theirs.send(peer.respond())
        assert peer.wait() == []
        assert peer.lease.size == 0


def test_nothing_is_lent_to_a_caller_that_is_not_woken(peer: Peer) -> None:
    """It goes on waiting for the bell, and would not see the next response."""
    with peer.lease.guard:
        peer.poller.reclaim(peer.ours)
    peer.core.has_updates = False
    for number in range(STEADY + 1):
        peer.bodies = [b"%d" % number]
        peer.theirs.send(peer.respond())
        assert peer.wait() == []
        assert peer.lease.size == 0
    peer.core.has_updates = True
    peer.bodies = [b"more"]
    peer.theirs.send(peer.respond())
    assert peer.wait() == []
    assert peer.lease.size == 1


@pytest.fixture
def awaited() -> Iterator[Peer]:
    """A peer whose caller waits for updates, and does not have the socket yet."""
    made = Peer()
    made.driver.on_update = None
    made.lease.wait(made.driver.bell.rings, 0.001)
    made.core.has_updates = True
    yield made
    made.close()


def receive(peer: Peer, *pieces: bytes) -> None:
    for piece in pieces:
        peer.theirs.send(piece)
        assert peer.wait() == []
        assert peer.lease.size == 0


def test_a_connection_from_whose_responses_nothing_follows_is_not_lent(awaited: Peer) -> None:
    """Such are commits. Their responses are handled by code in Python, which a signal handler may interrupt."""
    for _ in range(STEADY + 1):
        awaited.bodies = [NOTHING_FOLLOWS]
        response = awaited.respond()
        receive(awaited, response[:10], response[10:])
        awaited.request()


def test_a_commit_between_steady_responses_starts_their_count_again(awaited: Peer) -> None:
    for body in (*[b"more"] * (STEADY - 1), NOTHING_FOLLOWS):
        awaited.bodies = [body]
        receive(awaited, awaited.respond())
    awaited.request()
    awaited.bodies = [b"more"] * STEADY
    awaited.lend()


def test_a_response_in_parts_counts_once(awaited: Peer) -> None:
    awaited.bodies = [b"more"]
    response = awaited.respond()
    receive(awaited, *(response[number : number + 1] for number in range(STEADY + 1)), response[STEADY + 1 :])


class Beside(Peer):
    """A peer of the same thread, whose response is handled while the request of another peer is not sent yet."""

    def __init__(self, meanwhile: Callable[[], object]) -> None:
        self.meanwhile = meanwhile
        super().__init__(b"beside")

    def follow_up(self, frame: memoryview, version: int, now: float) -> bytes | None:
        self.meanwhile()
        return super().follow_up(frame, version, now)


@pytest.mark.parametrize("early", ["the end of the connection", "a part of the next response"])
def test_a_caller_that_serves_a_socket_early_leaves_the_thread_its_request(early: str, awaited: Peer) -> None:
    """The thread may lose the GIL between a response and the request that follows. The socket is lent meanwhile."""

    def serve_early() -> None:
        assert awaited.lease.size == 1
        if early == "the end of the connection":
            awaited.theirs.shutdown(socket.SHUT_WR)
        else:
            awaited.theirs.send(b"\0")
        assert awaited.lease.wait(awaited.driver.bell.rings, 0.01)

    beside = Beside(serve_early)
    beside.driver.on_update = None
    beside.poller.unregister(beside.ours)
    awaited.poller.register(beside.ours, EVENT_READ, beside.owner)
    awaited.bodies = [b"%d" % number for number in range(STEADY)]
    for _ in range(STEADY - 1):
        receive(awaited, awaited.respond())
    awaited.theirs.recv(4096)
    awaited.theirs.send(awaited.respond())
    beside.theirs.send(beside.respond())
    awaited.wait()
    assert awaited.theirs.recv(4096).endswith(b"%d" % (STEADY - 1))
    assert beside.theirs.recv(4096).endswith(b"beside")
    beside.close()


def test_a_ring_ends_the_wait_and_a_second_ring_is_harmless(peer: Peer) -> None:
    seen = peer.driver.bell.rings
    threading.Timer(0.05, peer.driver.bell.ring).start()
    assert peer.lease.wait(seen, LIMIT_S)
    assert peer.driver.bell.rings == seen + 1
    assert peer.lease.wait(seen, LIMIT_S)  # at once
    peer.driver.bell.ring()
    peer.bodies = [b"more"]
    peer.theirs.send(peer.respond())
    serve(peer)
    assert peer.offered == STEADY + 1


def test_each_ring_ends_a_wait_at_once(peer: Peer) -> None:
    """A hundred waits that end by their longest time would take longer than the limit."""
    deadline = time.monotonic() + LIMIT_S
    for _ in range(100):
        seen = peer.driver.bell.rings
        threading.Timer(0.005, peer.driver.bell.ring).start()
        while peer.driver.bell.rings == seen:
            peer.lease.wait(seen, LIMIT_S)
        assert time.monotonic() < deadline


def test_a_signal_handler_that_raises_ends_the_wait_and_nothing_else(peer: Peer) -> None:
    with alarm(), pytest.raises(KeyboardInterrupt):
        peer.lease.wait(peer.driver.bell.rings, LIMIT_S)
    peer.bodies = [b"more"]
    peer.theirs.send(peer.respond())
    serve(peer)
    assert peer.lease.size == 1
    assert peer.offered == STEADY + 1


def test_a_turn_waits_for_the_caller_s_service(peer: Peer) -> None:
    """The guard is the caller's while it serves."""
    owned: list[bool] = []

    def follow_up(_frame: memoryview, _version: int, _now: float) -> bytes:
        owned.append(peer.lease.guard.owned)
        return b"more"

    connection = peer.channel.connection
    ((number, sent),) = connection._in_flight.items()
    connection._in_flight[number] = sent._replace(request=sent.request._replace(follow_up=follow_up))
    peer.theirs.send(peer.respond())
    serve(peer)
    assert owned == [True]
    assert not peer.lease.guard.owned


# --- a consumer


def leased(broker: FakeBroker, consumer: Consumer) -> int:
    """Let the consumer read until it serves its connection itself. Returns the number of records."""
    consumer.assign([TopicPartition("t", 0)])
    lease = consumer._session.driver.lease
    deadline, number = time.monotonic() + LIMIT_S, 0
    while not lease.size:
        later = threading.Timer(0.01, broker.produce, ("t", 0, [(None, b"%d" % number)]))
        later.start()
        while not sum(map(len, consumer.poll(1.0))):
            assert time.monotonic() < deadline
        later.join()
        number += 1
    return number


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker(topics={"t": 2}) as made:
        yield made


def test_no_python_function_runs_in_the_caller_s_service(broker: FakeBroker) -> None:
    """A signal handler would run there, and could raise between two changes."""
    with Consumer(broker.bootstrap, auto_offset_reset="earliest") as consumer:
        read = leased(broker, consumer)
        session = consumer._session
        bell, lease = session.driver.bell, session.driver.lease
        session.core.has_updates = False
        broker.produce("t", 0, [(None, b"%d" % read)])

        def until_served() -> None:
            while not session.core.has_updates:
                lease.wait(bell.rings, LIMIT_S)

        assert python_calls(until_served) == []
        assert lease.size == 1


def test_a_closed_consumer_keeps_no_descriptor(broker: FakeBroker) -> None:
    before = descriptors("eventfd")
    with Consumer(broker.bootstrap, auto_offset_reset="earliest") as consumer:
        leased(broker, consumer)
        assert descriptors("eventfd") == before + 1
    assert descriptors("eventfd") == before
    consumer.close()  # it has no effect, and keeps the consumer until here


def test_a_signal_handler_closes_a_consumer_that_serves_a_socket(broker: FakeBroker) -> None:
    before = descriptors("eventfd")
    consumer = Consumer(broker.bootstrap, auto_offset_reset="earliest")
    leased(broker, consumer)
    with alarm(consumer.close):
        assert consumer.poll(LIMIT_S) == []
    assert descriptors("eventfd") == before
    with pytest.raises(ConsumerClosed):
        consumer.poll(0)


def test_a_poll_without_a_time_reads_a_leased_socket(broker: FakeBroker) -> None:
    with Consumer(broker.bootstrap, auto_offset_reset="earliest") as consumer:
        number = leased(broker, consumer)
        broker.produce("t", 0, [(None, b"%d" % number)])
        deadline = time.monotonic() + LIMIT_S
        while not (found := [record.value for columns in consumer.poll(0) for record in columns]):
            assert time.monotonic() < deadline
        assert found == [b"%d" % number]


def test_a_signal_handler_that_raises_ends_a_poll(broker: FakeBroker) -> None:
    with Consumer(broker.bootstrap, auto_offset_reset="earliest") as consumer:
        leased(broker, consumer)
        began = time.monotonic()
        with alarm(), pytest.raises(KeyboardInterrupt):
            consumer.poll(LIMIT_S)
        assert time.monotonic() < began + LIMIT_S
        assert consumer._session.driver.lease.size == 1


def test_a_turn_begins_after_the_caller_s_service(broker: FakeBroker) -> None:
    with Consumer(broker.bootstrap, auto_offset_reset="earliest") as consumer:
        leased(broker, consumer)
        driver = consumer._session.driver
        with driver.lease.guard:
            change = driver.enqueue(lambda _core: "made")
            time.sleep(0.1)
            assert not change.done()
        assert change.result(LIMIT_S) == "made"


def test_an_unusual_poll_gives_the_sockets_back_before_it_waits(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Consumer(broker.bootstrap, auto_offset_reset="earliest") as consumer:
        number = leased(broker, consumer)
        session = consumer._session
        monkeypatch.setattr(session.collector, "collect_usual", lambda _most: None)
        broker.produce("t", 0, [(None, b"%d" % number)])
        deadline = time.monotonic() + LIMIT_S
        while not (found := [record.value for columns in consumer.poll(1.0) for record in columns]):
            assert time.monotonic() < deadline
        assert found == [b"%d" % number]
        assert session.driver.lease.size == 0


def test_a_wakeup_ends_a_poll_that_serves_a_socket(broker: FakeBroker) -> None:
    with Consumer(broker.bootstrap, auto_offset_reset="earliest") as consumer:
        leased(broker, consumer)
        threading.Timer(0.05, consumer.wakeup).start()
        with pytest.raises(WakeupError):
            consumer.poll(LIMIT_S)


def test_a_broker_that_goes_away_ends_the_lease_and_records_go_on(broker: FakeBroker) -> None:
    with Consumer(broker.bootstrap, auto_offset_reset="earliest", reconnect_backoff_ms=10) as consumer:
        number = leased(broker, consumer)
        broker.disconnect()
        broker.produce("t", 0, [(None, b"%d" % number)])
        deadline = time.monotonic() + LIMIT_S
        while not (found := [record.value for columns in consumer.poll(1.0) for record in columns]):
            assert time.monotonic() < deadline
        assert found == [b"%d" % number]


@pytest.mark.parametrize("seed", range(3))
def test_every_record_comes_once_and_in_order_whatever_is_done_between(seed: int, broker: FakeBroker) -> None:
    """Large and small records in two partitions, pauses, polls of any length, idle callers and wake-ups."""
    chance = random.Random(seed)
    partitions = [TopicPartition("t", number) for number in range(2)]
    feed, leases = Feed(broker, -seed, 400), 0
    with Consumer(broker.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign(partitions)
        feed.start()
        deadline = time.monotonic() + LIMIT_S
        while feed.unread:
            assert time.monotonic() < deadline, (feed.read, feed.produced)
            kind = chance.random()
            if kind < 0.02:
                consumer.pause([partitions[0]])
            elif kind < 0.06:
                consumer.resume(partitions)
            elif kind < 0.07:
                consumer.seek(partitions[1], feed.read[1])
            elif kind < 0.08:
                time.sleep(0.15)
            elif kind < 0.09:
                consumer.end_offsets(partitions)
            feed.take(consumer.poll(chance.choice([0.0, 0.002, 0.05, 0.2])))
            leases += consumer._session.driver.lease.size
    feed.join()
    assert leases
    assert feed.read == feed.produced
