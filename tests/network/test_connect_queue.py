"""Clients that share a thread connect few at a time, so that no broker's backlog overflows, and none waits long."""

from collections.abc import Callable, Iterator

import pytest

from kohort import Consumer
from kohort.network import event_loop
from kohort.network.broker_connection import BrokerConnection
from kohort.network.event_loop import EACH_S, LONGEST_WAIT_S, MOST_CONNECTING, ConnectQueue
from kohort.network.frame_reader import FrameReader
from kohort.network.requests import ConnectionPurpose, Endpoint
from kohort.network.transport import Channel
from kohort.testing.fake_broker import FakeBroker, Hold
from tests.coordinator_client.consumer_helpers import poll_until

CLIENTS = 12


def channels(count: int, port: int = 9092) -> list[Channel]:
    endpoint = Endpoint("broker", port)
    connections = [
        BrokerConnection(endpoint, "me", 1 << 20, setup_timeout_s=1.0, opened_at=0.0) for _number in range(count)
    ]
    return [Channel(ConnectionPurpose.DATA, one, FrameReader(1 << 20), None) for one in connections]


class Line:
    """A queue, and the channels that it has connected, in order."""

    def __init__(self) -> None:
        self.queue = ConnectQueue()
        self.connected: list[Channel] = []

    def enter(self, channel: Channel) -> float:
        wait_s = self.queue.enter(channel, lambda: self.connected.append(channel))
        if not wait_s:
            self.connected.append(channel)
        return wait_s


def test_few_connect_and_the_others_in_their_order_as_these_have_responses() -> None:
    line, many = Line(), channels(MOST_CONNECTING + 3)
    waits = [line.enter(channel) for channel in many]
    assert waits[:MOST_CONNECTING] == [0.0] * MOST_CONNECTING
    assert waits[MOST_CONNECTING:] == pytest.approx([EACH_S, 2 * EACH_S, 3 * EACH_S])
    assert line.connected == many[:MOST_CONNECTING]
    line.queue.leave(many[1])
    assert line.connected == many[: MOST_CONNECTING + 1]
    line.queue.leave(many[1])  # its socket ends later
    assert line.connected == many[: MOST_CONNECTING + 1]
    line.queue.leave(many[0])
    assert line.connected == many[: MOST_CONNECTING + 2]


def test_another_address_has_places_of_its_own() -> None:
    line = Line()
    for channel in channels(MOST_CONNECTING + 1):
        line.enter(channel)
    elsewhere = channels(1, port=9093)[0]
    assert line.enter(elsewhere) == 0.0
    assert line.connected[-1] is elsewhere


def test_a_channel_that_waited_long_enough_connects_beside_the_others() -> None:
    line, many = Line(), channels(MOST_CONNECTING + 3)
    for channel in many:
        line.enter(channel)
    line.queue.wait_no_longer(many[-1])
    assert line.connected == [*many[:MOST_CONNECTING], many[-1]]
    line.queue.leave(many[0])  # as many as allowed are left
    assert len(line.connected) == MOST_CONNECTING + 1
    line.queue.leave(many[1])
    assert line.connected[-1] is many[MOST_CONNECTING]


def test_no_wait_is_longer_than_that_of_a_dropped_connection() -> None:
    line = Line()
    waits = [line.enter(channel) for channel in channels(1_000)]
    assert max(waits) == waits[-1] == LONGEST_WAIT_S


def test_a_channel_that_ends_while_it_waits_never_connects_and_leaves_nothing() -> None:
    line, many = Line(), channels(MOST_CONNECTING + 2)
    for channel in many:
        line.enter(channel)
    line.queue.leave(many[MOST_CONNECTING])
    for channel in many:
        line.queue.leave(channel)
    assert line.connected == [*many[:MOST_CONNECTING], many[-1]]
    assert not line.queue._connecting
    assert not line.queue._waiting


@pytest.fixture
def fake() -> Iterator[FakeBroker]:
    with FakeBroker(topics={"topic": 1}) as broker:
        yield broker


@pytest.fixture
def made(fake: FakeBroker, one_thread: None) -> Iterator[Callable[[], list[Consumer]]]:
    """Members that share the thread of one more client, which has connected before."""
    consumers = [Consumer(fake.bootstrap)]
    consumers[0].topics()

    def make() -> list[Consumer]:
        members = [Consumer(fake.bootstrap, group=f"g{number}") for number in range(CLIENTS)]
        consumers.extend(members)
        for member in members:
            member.subscribe(["topic"])
        return members

    yield make
    for consumer in consumers:
        consumer.close(5.0)


def join(member: Consumer) -> None:
    poll_until(member, lambda: len(member.assignment) == 1)


def test_members_that_start_at_once_connect_few_at_a_time(
    fake: FakeBroker, made: Callable[[], list[Consumer]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_loop, "EACH_S", 60.0)
    monkeypatch.setattr(event_loop, "LONGEST_WAIT_S", 60.0)
    others, calls = fake.open_connections, len(fake.calls_of("ApiVersions"))
    hold = Hold()
    fake.control("ApiVersions", lambda _call: hold)
    members = made()
    poll_until(members[0], lambda: len(fake.calls_of("ApiVersions")) >= calls + MOST_CONNECTING)
    for _turn in range(3):
        for member in members:
            member._session.driver.execute(lambda _core: None)
    assert fake.open_connections == others + MOST_CONNECTING
    hold.release()
    for member in members:
        join(member)


def test_members_do_not_wait_for_a_broker_without_a_response(
    fake: FakeBroker, made: Callable[[], list[Consumer]]
) -> None:
    calls = len(fake.calls_of("ApiVersions"))
    hold = Hold()
    fake.control("ApiVersions", lambda _call: hold)
    members = made()
    poll_until(members[0], lambda: len(fake.calls_of("ApiVersions")) >= calls + CLIENTS)
    hold.release()
    for member in members:
        join(member)


def test_a_member_that_closes_gives_up_its_place(
    fake: FakeBroker, made: Callable[[], list[Consumer]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_loop, "EACH_S", 60.0)
    monkeypatch.setattr(event_loop, "LONGEST_WAIT_S", 60.0)
    calls = len(fake.calls_of("ApiVersions"))
    hold = Hold()
    control = fake.control("ApiVersions", lambda _call: hold)
    *closing, last = made()
    poll_until(last, lambda: len(fake.calls_of("ApiVersions")) >= calls + MOST_CONNECTING)
    control.remove()
    for member in closing:
        member.close(0)
    join(last)
    hold.release()
