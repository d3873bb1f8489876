"""Records that are sent alone, on the caller's thread. The twin is a turn of the driver."""

import gc
import socket
import threading
import time
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from kohort import Consumer, Producer, TopicPartition
from kohort.fastpath import decode
from kohort.network.backoff import Attempts
from kohort.network.metadata import ClusterView
from kohort.network.network_client import Driver
from kohort.network.requests import NOTHING_FOLLOWS, Endpoint, PendingRequest, Stage
from kohort.network.transport import Ended
from kohort.producer import DeliveryTimeout, RecordTooLarge
from kohort.producer._direct_send import DirectResponse
from kohort.producer.partitioner import murmur2
from kohort.producer.producer_batch import NO_PRODUCER_ID, ProducerId
from kohort.producer.producer_core import ProducerCore
from kohort.producer.sender import MOST_ALONE_BYTES
from kohort.protocol.apis.produce import BatchIndexAndErrorMessage, LeaderIdAndEpoch, ProduceResponse
from kohort.testing.fake_broker import Alter, Close, Drop, FakeBroker
from tests.producer.direct_peer import DirectPeer
from tests.producer.producer_world import TOPIC
from tests.producer.test_producer_machine import P0, ready
from tests.producer.test_steady_records import DONE, framed, response
from tests.support.broker_selection import SelectedBroker

VERSIONS = [9, 10, 11, 12, 13]
MOST_SEQUENCE = (1 << 31) - 1
LONE_S = 0.01
"""After a response for so long, the driver's thread sleeps again."""


class Alone:
    """A ready producer without a driver, and the connection on which its records are sent alone.

    `enters`: records enter without the driver's lock, as those of `Producer.send`. Others come by the core only.
    """

    def __init__(self, version: int = 13, *, enters: bool = True, **settings: Any) -> None:
        self.version = version
        self.world = ready(**{"linger_ms": 0, "batch_bytes": 1 << 20} | settings)
        self.core = self.world.core
        leader = self.core.metadata.view.leader(P0)
        assert leader is not None
        self.peer = DirectPeer(leader.endpoint, self.core, version)
        self.requested: list[tuple[Endpoint, int, int]] = []
        self.core.sender.idle_connection = self._idle_connection
        if not enters:
            self.core.sender.direct.lock = None
        self.entered = 0
        self.core.poll(self.world.now, 1)

    def _idle_connection(self, *requested: Any) -> Any:
        self.requested.append(requested)
        return self.peer.idle_connection()

    def append(self, value: bytes = b"v", partition: int | None = 0, *, key: bytes | None = None) -> Any:
        self.world.now += 0.01
        delivery = self.core.accumulator.open.append(TOPIC, key, value, None, partition, 1, None)
        if delivery is not None:
            self.entered += 1
            return delivery
        return self.core.append(self.world.now, TOPIC, key, value, None, partition, 1, None)

    def poll(self) -> list[PendingRequest]:
        turn = self.core.poll_added(self.world.now, 1)
        return [one.request for one in turn.requests if one.request.api == "Produce"]

    def sent(self) -> PendingRequest:
        """The request in flight."""
        ((_id, one),) = self.peer.connection._in_flight.items()
        request: PendingRequest = one.request
        return request

    def settle(self, request: PendingRequest, partition: int = 0, offset: int = 0) -> None:
        """Have the response handled without a turn."""
        done = response(DONE._replace(index=partition, base_offset=offset), version=self.version)
        assert request.follow_up is not None
        assert request.follow_up(framed(done, self.version), self.version, self.world.now) == NOTHING_FOLLOWS
        self.peer.responded()

    def begin(self) -> "Alone":
        """The first records take the usual way, after which others are sent alone."""
        self.append(b"first")
        self.append(b"second")
        assert self.peer.received() == b""
        (request,) = self.poll()
        self.settle(request)
        self.entered = 0
        self.append(b"third")
        assert not self.entered, "the core is the first to send one alone"
        sent = self.peer.request()
        assert sent is not None
        self.settle(sent, offset=2)
        return self


def turned(alone: Alone) -> bytes:
    """The bytes of the next record by a turn."""
    with alone.peer.lease.guard:
        alone.append(b"next", key=b"k")
    (request,) = alone.poll()
    alone.peer.connection.send(request, alone.world.now)
    return b"".join(alone.peer.connection.outgoing())


def state(alone: Alone) -> tuple[object, ...]:
    core, lane = alone.core, alone.core.accumulator.lanes[P0]
    batch = lane.queue[0] if lane.queue else None
    return (
        (lane.in_flight, lane.node, lane.next_sequence, lane.failing, len(lane.queue), lane.producer),
        batch and (batch.sequence, batch.in_flight, batch.closed, batch.count, batch.size),
        (core.accumulator.buffered, list(core.accumulator.busy), core.sender.requests_in_flight),
        core.metrics(alone.world.now),
        [(key, one.version, one.deadline) for key, one in alone.peer.connection._in_flight.items()],
        (list(alone.peer.connection.wire.open), alone.peer.connection.wire.next_id),
    )


@pytest.mark.parametrize("enters", [False, True])
@pytest.mark.parametrize("acks", ["all", "1"])
@pytest.mark.parametrize("version", VERSIONS)
def test_a_record_alone_is_sent_as_a_turn_sends_it(version: int, acks: str, *, enters: bool) -> None:
    alone, twin = (Alone(version, enters=enters, acks=acks).begin() for _ in range(2))
    delivery = alone.append(b"next", key=b"k")
    assert alone.entered == enters
    assert alone.peer.received() == turned(twin)
    assert state(alone) == state(twin)
    assert alone.poll() == []
    alone.settle(alone.sent(), offset=7)
    assert delivery.result(0.0).offset == 7
    assert alone.core.accumulator.buffered == 0
    assert not alone.core.accumulator.busy


def _connection(name: str, value: object) -> Callable[[Alone], object]:
    return lambda alone: setattr(alone.peer.connection, name, value)


def _waits(name: str) -> Callable[[Alone], object]:
    return lambda alone: getattr(alone.peer.connection, name).append((None, 1.0))


def _throttled(alone: Alone) -> None:
    alone.peer.connection._throttle.until = alone.world.now + 9


def _without_header(alone: Alone) -> None:
    alone.peer.connection.wire.headers.clear()


def _requests(alone: Alone) -> None:
    alone.peer.connection._in_flight[99] = SimpleNamespace(deadline=1.0)


def _closed(alone: Alone) -> None:
    alone.peer.channel.sock = None


def _new_metadata(alone: Alone) -> None:
    alone.core.metadata.view = alone.core.metadata.view._replace()


def _failing(alone: Alone) -> None:
    alone.core.accumulator.lanes[P0].failing = True


def _another_id(alone: Alone) -> None:
    alone.core.transactions.producer = ProducerId(8, 0)


def _stopping(alone: Alone) -> None:
    alone.peer.driver.stopping = True


def _due_late(alone: Alone) -> None:
    alone.peer.channel.due_at = alone.world.now + 4.02  # 10 ms pass


def _bytes_left(alone: Alone) -> None:
    alone.peer.channel.to_write.append(memoryview(b"x"))


def _another_record(alone: Alone) -> None:
    alone.core.append(alone.world.now, TOPIC, None, b"v", None, 2, 1, None)


# --- responses


def by_twin(request: PendingRequest, alone: Alone) -> PendingRequest:
    """The request with the follow-up of one that a turn has sent."""
    sent = cast(DirectResponse, request.follow_up).sent()
    return request._replace(follow_up=partial(alone.core.sender.follow_up, sent))


def handled(alone: Alone, frame: memoryview, *, twin: bool) -> tuple[object, ...]:
    """The effect of a response, after polls that have nothing to do."""
    for _ in range(2):
        alone.core._polled()
    assert not alone.core.has_updates
    sent = alone.sent()
    request = by_twin(sent, alone) if twin else sent
    assert request.follow_up is not None
    followed = request.follow_up(frame, alone.version, alone.world.now + 0.125)
    lane = alone.core.accumulator.lanes[P0]
    ((_lane, batch, _producer),) = cast(DirectResponse, sent.follow_up).sent().batches
    return (
        followed,
        state(alone),
        (batch.done, batch.base_offset, batch.in_flight, batch.error, batch.body is None, batch.has_callbacks),
        (lane.attempts, lane.waits_since, lane.settled == [], lane.direct is None, lane.rewrite, lane.known),
        (alone.core.sensors.request_ms.count, alone.core.sensors.throttle_ms.count),
        (len(alone.core.accumulator.callbacks), alone.core.has_updates, alone.core.sender.is_at_rest()),
    )


@pytest.mark.parametrize("calls_back", ["never", "always", "for one behind it"])
@pytest.mark.parametrize("version", VERSIONS)
def test_the_response_to_a_record_alone_is_handled_as_after_a_turn(version: int, calls_back: str) -> None:
    settings: dict[str, Any] = {"on_delivery": print} if calls_back == "always" else {}
    found = []
    for twin in (False, True):
        alone = Alone(version, **settings).begin()
        alone.append(b"next")
        alone.core.accumulator.callbacks.clear()
        lane = alone.core.accumulator.lanes[P0]
        lane.attempts, lane.waits_since, lane.known = Attempts(2, 1.0), 5.0, False
        if calls_back == "for one behind it":
            settled = alone.core.accumulator.new_batch(lane, alone.world.now)
            settled.append(None, b"v", None, 1, print)
            lane.settled.append(settled)
        if not twin:
            alone.core.sender.follow_up = None  # type: ignore[assignment, method-assign]
        done = DONE._replace(base_offset=1 << 40, log_append_time_ms=1_700_000_000_000, log_start_offset=9)
        found.append(handled(alone, framed(response(done, version=version), version), twin=twin))
    assert found[0] == found[1]
    assert found[0][0] == NOTHING_FOLLOWS
    assert len(alone.core.accumulator.callbacks) == (calls_back != "never")


UNUSUAL_RESPONSES: dict[str, dict[str, Any]] = {
    "an error": {"error_code": 7},
    "another error": {"error_code": 0x0100},
    "a duplicate": {"error_code": 46, "base_offset": -1},
    "no offset": {"base_offset": -1},
    "another partition": {"index": 1},
    "a newer leader": {"current_leader": LeaderIdAndEpoch(leader_id=2, leader_epoch=3)},
    "a message": {"error_message": "?"},
    "errors of records": {"record_errors": (BatchIndexAndErrorMessage(batch_index=0, batch_index_error_message="?"),)},
}


@pytest.mark.parametrize("unusual", [*UNUSUAL_RESPONSES, "a throttle time", "another topic", "cut short", "too long"])
@pytest.mark.parametrize("version", [10, 12, 13])
def test_an_unusual_response_is_handled_as_after_a_turn(version: int, unusual: str) -> None:
    found = []
    for twin in (False, True):
        alone = Alone(version).begin()
        alone.append(b"next")
        value = response(DONE._replace(**UNUSUAL_RESPONSES.get(unusual, {})), version=version)
        if unusual == "a throttle time":
            value = value._replace(throttle_time_ms=1)
        elif unusual == "another topic":
            (topic,) = value.responses
            value = value._replace(responses=(topic._replace(name="other", topic_id=UUID(int=77)),))
        frame = bytes(framed(value, version))
        if unusual in ("cut short", "too long"):
            frame = frame[:-1] if unusual == "cut short" else frame + b"\0"
        found.append(handled(alone, memoryview(frame), twin=twin))
    assert found[0] == found[1]


def _behind(alone: Alone) -> None:
    alone.append(b"behind it")


def _elsewhere(alone: Alone) -> None:
    alone.append(b"elsewhere", 2)


def _retired(alone: Alone) -> None:
    alone.core.retired = True


def _failing_now(alone: Alone) -> None:
    lane = alone.core.accumulator.lanes[P0]
    lane.failing = True


def _renumbered(alone: Alone) -> None:
    alone.core.accumulator.lanes[P0].rewrite = True


@pytest.mark.parametrize("change", [_behind, _elsewhere, _retired, _failing_now, _renumbered, _new_metadata, _closed])
def test_a_response_in_an_unusual_state_is_handled_as_after_a_turn(change: Callable[[Alone], None]) -> None:
    found = []
    for twin in (False, True):
        alone = Alone().begin()
        alone.append(b"next")
        change(alone)
        found.append(handled(alone, framed(response(version=13), 13), twin=twin))
        found[-1] += (alone.core.accumulator.lanes[P0].direct is None, len(alone.requested))
    assert found[0] == found[1]


# --- requests


def test_records_of_all_sizes_are_read_by_the_broker() -> None:
    """The compact length has one to three bytes."""
    alone = Alone().begin()
    for size in [*range(40, 70), 127, 128, 200, 255, 256, *range(8_000, 16_300, 1_009)]:
        value = bytes(size)
        alone.append(value)
        sent = alone.peer.request()
        assert sent is not None
        (data,) = sent.request(13).topic_data[0].partition_data
        assert [bytes(one or b"") for one in decode(bytes(data.records)).values] == [value]
        alone.settle(sent)


def test_records_without_a_key_go_to_other_partitions() -> None:
    alone = Alone().begin()
    for number in range(3):
        alone.append(b"first", number)
        for request in alone.poll():
            alone.settle(request, number)
        for sent in list(alone.peer.connection._in_flight.values()):
            alone.settle(sent.request, number)
    partitions = set()
    for _ in range(40):
        delivery = alone.append(partition=None)
        partition = delivery.batch.partition.partition
        for sent in [*alone.poll(), *(one.request for one in alone.peer.connection._in_flight.values())]:
            alone.settle(sent, partition)
        partitions.add(partition)
    assert len(partitions) == 3


def test_records_without_a_key_enter_the_only_partition_as_if_it_were_named() -> None:
    alone = Alone()
    view = alone.core.metadata.view
    topic = view.topics[TOPIC]
    alone.core.metadata.view = view._replace(topics={TOPIC: topic._replace(partitions={0: topic.partitions[0]})})
    alone.begin()
    for offset in range(3, 6):
        alone.append(partition=None)
        alone.settle(alone.sent(), offset=offset)
    assert alone.entered >= 2  # the first may be the one by which the partition is chosen


def test_the_sequence_begins_again_after_the_largest() -> None:
    alone = Alone().begin()
    lane = alone.core.accumulator.lanes[P0]
    lane.next_sequence = MOST_SEQUENCE
    delivery = alone.append()
    assert alone.peer.request() is not None
    assert (delivery.batch.sequence, lane.next_sequence) == (MOST_SEQUENCE, 0)


UNUSUAL: dict[str, Callable[[Alone], object]] = {
    "failing": _failing,
    "another id of the producer": _another_id,
    "new metadata": _new_metadata,
    "a record of another partition": _another_record,
    "a closed connection": _closed,
    "a connection that authenticates": _connection("stage", Stage.AUTHENTICATING),
    "a connection without a response": _connection("served", False),
    "a tape": _connection("tape", lambda *_: None),
    "a broker that left": _connection("is_removed", True),
    "a request in flight": _requests,
    "a request that waits": _waits("_waiting"),
    "a request that is held": _waits("_held"),
    "a frame to write": _waits("_out"),
    "bytes to write": _bytes_left,
    "a throttle time": _throttled,
    "a stopping driver": _stopping,
    "a late look": _due_late,
    "no header": _without_header,
}


@pytest.mark.parametrize("enters", [False, True])
@pytest.mark.parametrize("unusual", UNUSUAL)
def test_a_record_takes_a_turn_if_anything_is_unusual(unusual: str, *, enters: bool) -> None:
    alone = Alone(enters=enters).begin()
    UNUSUAL[unusual](alone)
    alone.append(b"by a turn")
    assert alone.peer.received() == b""
    assert alone.poll()[0].api == "Produce"
    alone.peer.lease.guard.run(lambda: None)  # it is free again


def test_a_record_waits_for_a_thread_that_has_the_lock() -> None:
    alone = Alone().begin()
    lock = alone.core.sender.direct.lock
    assert lock is not None
    with lock:
        assert alone.core.accumulator.open.append(TOPIC, None, b"v", None, 0, 1, None) is None
    assert not lock.owned
    alone.append(b"next")
    assert alone.entered == 1
    assert not lock.owned


def test_a_partition_with_a_new_leader_takes_a_turn_though_another_partition_has_seen_the_metadata() -> None:
    alone = Alone().begin()
    for _ in range(2):
        alone.append(partition=2)
        for request in [*alone.poll(), *(one.request for one in alone.peer.connection._in_flight.values())]:
            alone.settle(request, 2)
    view = alone.core.metadata.view
    topic = view.topics[TOPIC]
    moved = topic.partitions[0]._replace(leader=topic.partitions[1].leader)
    partitions = {**topic.partitions, 0: moved}
    assert moved != topic.partitions[0]
    alone.core.metadata.view = view._replace(topics={TOPIC: topic._replace(partitions=partitions)})
    alone.append(partition=2)
    (request,) = alone.poll()
    alone.settle(request, 2)
    alone.peer.received()
    alone.append()
    assert alone.peer.received() == b""
    turn = alone.core.poll_added(alone.world.now, 1)
    assert [one.endpoint for one in turn.requests] == [view.brokers[moved.leader].endpoint]


def test_records_with_keys_go_to_new_partitions_too() -> None:
    """The response to a record of the old partitions comes after the metadata with the new ones."""
    alone = Alone().begin()
    alone.append(b"of the old")
    alone.peer.received()
    view = alone.core.metadata.view
    topic = view.topics[TOPIC]
    more = {number: topic.partitions[number % len(topic.partitions)] for number in range(40)}
    alone.core.metadata.view = view._replace(topics={TOPIC: topic._replace(partitions=more)})
    alone.settle(alone.sent())
    found = set()
    for number in range(200):
        delivery = alone.append(partition=None, key=b"%d" % number)
        partition = delivery.batch.partition.partition
        assert partition == murmur2(b"%d" % number, 40)
        for request in [*alone.poll(), *(one.request for one in alone.peer.connection._in_flight.values())]:
            alone.settle(request, partition)
        found.add(partition)
    assert len(found) > 30
    assert alone.entered > 100


def test_a_record_that_is_too_large_is_refused_where_smaller_ones_are_sent_alone() -> None:
    alone = Alone(max_request_bytes=2_000, batch_bytes=1_000).begin()
    for _ in range(2):
        alone.append(bytes(1_500))
        alone.settle(alone.sent())
    with pytest.raises(RecordTooLarge):
        alone.append(bytes(2_000))
    assert not alone.core.accumulator.buffered
    assert alone.entered == 2


def test_a_record_takes_a_turn_while_one_is_in_progress() -> None:
    alone = Alone().begin()
    with alone.peer.lease.guard:
        alone.append(b"by a turn")
    assert alone.peer.received() == b""
    assert len(alone.poll()) == 1
    alone = Alone().begin()
    alone.peer.channel.due_at = alone.world.now + 4.005  # the last moment
    alone.append(b"alone")
    assert alone.peer.received()


@pytest.mark.parametrize("what", ["renumbered", "without an id", "retired"])
def test_no_record_is_sent_alone_past_what_has_to_come_first(what: str) -> None:
    alone = Alone().begin()
    lane = alone.core.accumulator.lanes[P0]
    if what == "renumbered":
        lane.rewrite = True
    elif what == "retired":
        alone.core.retired = True
    else:
        alone.core.transactions.producer = lane.producer = NO_PRODUCER_ID
    alone.append(b"by a turn")
    assert alone.peer.received() == b""


def test_a_look_in_time_is_before_a_short_time_out() -> None:
    alone = Alone(request_timeout_ms=1_000).begin()
    alone.peer.channel.due_at = alone.world.now + 1.5
    alone.append(b"by a turn")
    assert alone.peer.received() == b""
    assert len(alone.poll()) == 1


def test_records_are_sent_alone_again_on_a_new_connection() -> None:
    alone = Alone().begin()
    alone.append(b"alone")
    sent = alone.sent()
    alone.peer.channel.sock = None
    alone.peer = DirectPeer(alone.peer.connection.endpoint, alone.core, alone.version)
    alone.settle(sent)
    alone.append(b"on the new one")
    assert alone.peer.request() is not None
    assert len(alone.requested) == 2
    other = alone.core.accumulator.lane(TopicPartition(TOPIC, 2))
    alone.core.sender.allow_alone(other, 0, alone.version)
    direct = alone.core.accumulator.lanes[P0].direct
    assert direct is not None
    assert other.direct is not None
    assert other.direct.route is direct.route, "one for the partitions of a leader"


def test_a_second_record_waits_for_a_turn() -> None:
    alone = Alone().begin()
    alone.append(b"alone")
    assert alone.peer.received()
    alone.append(b"behind it")
    assert alone.peer.received() == b""
    (request,) = alone.poll()
    (data,) = request.request(13).topic_data[0].partition_data
    assert b"behind it" in bytes(data.records)
    assert alone.core.accumulator.lanes[P0].in_flight == 2


def test_a_large_record_waits_for_a_turn() -> None:
    alone = Alone().begin()
    alone.append(bytes(MOST_ALONE_BYTES))
    assert alone.peer.received() == b""
    (request,) = alone.poll()
    alone.settle(request)
    alone.append(bytes(MOST_ALONE_BYTES - 100))
    assert len(alone.peer.received()) > MOST_ALONE_BYTES - 100


@pytest.mark.parametrize(
    "settings",
    [{"linger_ms": 5}, {"compression": "gzip"}, {"acks": "0"}, {"transactional_id": "tx"}],
    ids=lambda settings: next(iter(settings)),
)
def test_settings_by_which_no_record_is_sent_alone(settings: dict[str, Any]) -> None:
    with FakeBroker(topics={"t": 1}) as fake, Producer(fake.bootstrap, **{"linger_ms": 0} | settings) as producer:
        if "transactional_id" in settings:
            producer.begin()
        for _ in range(5):
            producer.send("t", b"v", partition=0).result(10)
            time.sleep(LONE_S)
        assert producer._driver.core.accumulator.lanes[TopicPartition("t", 0)].direct is None
        if "transactional_id" in settings:
            producer.commit()


def test_versions_and_topics_that_have_no_such_request() -> None:
    alone = Alone()
    sender, view = alone.core.sender, alone.core.metadata.view
    leader = view.leader(P0)
    assert leader is not None
    assert sender._route(TOPIC, leader, 13) is not None
    assert sender._route(TOPIC, leader, 8) is None, "its lengths are not compact"
    topics = {TOPIC: view.topics[TOPIC]._replace(id=UUID(int=0))}
    alone.core.metadata.view = view._replace(topics=topics)
    assert sender._route(TOPIC, leader, 13) is None, "the topic has no id"
    assert sender._route(TOPIC, leader, 12) is not None
    sender.idle_connection = lambda *_: None
    assert sender._route(TOPIC, leader, 12) is None, "its connection has TLS"


def test_a_connection_is_only_prepared_once_for_the_partitions_of_a_leader() -> None:
    alone = Alone().begin()
    for partition in (2, 0, 2):
        alone.append(partition=partition)
        for request in [*alone.poll(), *(one.request for one in alone.peer.connection._in_flight.values())]:
            alone.settle(request, partition)
    assert len(alone.requested) == 1
    assert {lane.direct is not None for lane in alone.core.accumulator.lanes.values()} == {True}
    alone.core.metadata.view = alone.core.metadata.view._replace()
    alone.append()
    (request,) = alone.poll()
    alone.settle(request)
    assert len(alone.requested) == 2, "the metadata is new"
    assert len(alone.core.sender._routes) == 1
    lanes = alone.core.accumulator.lanes.values()
    kept = [one for lane in lanes if lane.direct is not None for one in gc.get_referents(lane.direct.route)]
    assert kept
    assert not any(isinstance(one, ClusterView) for one in kept), "old metadata takes no memory"
    lane = alone.core.accumulator.lanes[P0]
    alone.core.sender.allow_alone(lane, 1, 13)
    assert lane.direct is not None, "nothing has changed since"
    alone.core.metadata.view = alone.core.metadata.view._replace()
    alone.core.sender.allow_alone(lane, 1, 13)
    assert lane.direct is None, "another broker leads the partition"


def test_what_the_socket_does_not_take_is_written_by_a_turn() -> None:
    alone = Alone().begin()
    alone.peer.ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
    count = 0
    while not alone.peer.rung:
        assert count < 100
        alone.peer.responded()
        alone.core.accumulator.lanes[P0].queue.clear()
        alone.core.accumulator.lanes[P0].in_flight = 0
        delivery = alone.append(bytes(range(256)) * 60)
        count += 1
    assert delivery is not None
    data = b""
    while more := alone.peer.received():
        data += more
    assert alone.peer.channel.to_write
    while alone.peer.channel.to_write or alone.peer.connection._out:
        alone.peer.channel.write()
        while more := alone.peer.received():
            data += more
    assert not alone.peer.connection._unwritten
    frames = 0
    while data:
        size = 4 + int.from_bytes(data[:4], "big")
        assert bytes(range(256)) * 60 in data[:size]
        data, frames = data[size:], frames + 1
    assert frames == count
    assert alone.peer.poller.wait(0.0) == [((alone.peer.driver, alone.peer.channel), 1)], "for a turn"


def test_the_error_of_a_socket_is_that_of_a_turn() -> None:
    alone = Alone().begin()
    alone.peer.theirs.close()
    delivery = alone.append()
    assert not delivery.done()
    assert list(alone.peer.rung) == [alone.peer.driver]
    with pytest.raises(Ended):
        alone.peer.channel.write()


def test_a_record_that_cannot_be_encoded_leaves_nothing() -> None:
    alone = Alone().begin()
    lane = alone.core.accumulator.lanes[P0]
    before = state(alone)[:2], alone.core.accumulator.buffered
    lane.producer = alone.core.transactions.producer = ProducerId(7, "no number")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        alone.append()
    lane.producer = alone.core.transactions.producer = ProducerId(7, 0)
    assert (state(alone)[:2], alone.core.accumulator.buffered) == before
    alone.append(b"next")
    assert alone.peer.request() is not None


# --- with a driver


def lone(producer: Producer, count: int = 12) -> None:
    """Send records one by one, until they are sent alone."""
    for _ in range(count):
        producer.send("t", b"warm", partition=0).result(10)
        time.sleep(LONE_S)


def values(bootstrap: str, topic: str, count: int) -> list[bytes]:
    with Consumer(bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        found: list[bytes] = []
        limit = time.monotonic() + 60
        while len(found) < count and time.monotonic() < limit:
            for columns in consumer.poll(0.1):
                found += [bytes(record.value or b"") for record in columns]
        return found


def test_a_response_with_an_error_has_the_record_sent_again() -> None:
    with FakeBroker(topics={"t": 1}) as fake, Producer(fake.bootstrap, linger_ms=0, retry_backoff_ms=10) as producer:
        lone(producer)
        codes = iter([7])
        sequences: list[int] = []

        def refuse(call: Any) -> Any:
            (data,) = call.request.topic_data[0].partition_data
            sequences.append(int.from_bytes(bytes(data.records)[53:57], "big"))
            code = next(codes, 0)
            return Alter(lambda value: _with_code(value, code)) if code else None

        fake.control("Produce", refuse)
        delivery = producer.send("t", b"again", partition=0)
        assert delivery.result(10).offset == 12
        assert sequences == [12, 12]
        lone(producer)
        assert values(fake.bootstrap, "t", 25) == [b"warm"] * 12 + [b"again"] + [b"warm"] * 12


def _with_code(value: ProduceResponse, code: int) -> ProduceResponse:
    (topic,) = value.responses
    (data,) = topic.partition_responses
    return value._replace(
        responses=(topic._replace(partition_responses=(data._replace(error_code=code, base_offset=-1),)),)
    )


@pytest.mark.parametrize("after_work", [False, True])
def test_a_connection_that_ends_under_a_lone_record_loses_and_doubles_nothing(after_work: bool) -> None:
    hasty: dict[str, Any] = {"linger_ms": 0, "retry_backoff_ms": 10, "reconnect_backoff_ms": 10}
    with FakeBroker(topics={"t": 1}) as fake, Producer(fake.bootstrap, **hasty) as producer:
        lone(producer)
        fake.control("Produce", lambda call: Close(after_work=after_work) if call.number % 3 == 0 else None)
        for number in range(30):
            assert producer.send("t", b"%d" % number, partition=0).result(20).offset == 12 + number
            time.sleep(LONE_S)
        assert values(fake.bootstrap, "t", 42)[12:] == [b"%d" % number for number in range(30)]


def test_a_lone_record_without_a_response_has_its_time_out() -> None:
    hasty: dict[str, Any] = {"linger_ms": 0, "request_timeout_ms": 300, "delivery_timeout_ms": 900}
    with FakeBroker(topics={"t": 1}) as fake, Producer(fake.bootstrap, **hasty) as producer:
        lone(producer)
        fake.control("Produce", lambda _call: Drop())
        with pytest.raises(DeliveryTimeout):
            producer.send("t", b"lost", partition=0).result(20)


def test_threads_that_send_alone_keep_their_order() -> None:
    with FakeBroker(topics={"t": 1}) as fake, Producer(fake.bootstrap, linger_ms=0) as producer:
        lone(producer)
        errors: list[BaseException] = []

        def run(name: int) -> None:
            try:
                for number in range(150):
                    delivery = producer.send("t", b"%d %d" % (name, number), partition=0)
                    if number % 3:
                        delivery.result(20)
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=run, args=(name,)) for name in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        producer.flush(20)
        assert not errors
        found = [value.split() for value in values(fake.bootstrap, "t", 612)[12:]]
        for name in range(4):
            assert [int(number) for one, number in found if int(one) == name] == list(range(150))


def test_no_record_is_sent_alone_by_tls() -> None:
    """`ssl` runs code of Python, and so signal handlers, inside a send."""
    alone = Alone()
    alone.peer.channel.tls = SimpleNamespace()  # type: ignore[assignment]
    alone.peer.poller.unregister(alone.peer.ours)
    alone.peer.poller.register(alone.peer.ours, 1, (alone.peer.driver, alone.peer.channel))
    assert alone.peer.idle_connection() is None


@pytest.mark.broker
def test_lone_records_are_in_a_real_log_once_and_in_order(
    broker: SelectedBroker, make_topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, turns = make_topic(1), []
    turn: Callable[..., Any] = Driver._turn

    def counted(driver: Any, ready: Any, *, due: bool) -> Any:
        if isinstance(driver.core, ProducerCore):
            turns.append(due)
        return turn(driver, ready, due=due)

    monkeypatch.setattr(Driver, "_turn", counted)
    with Producer(broker.bootstrap, linger_ms=0) as producer:
        for number in range(300):
            assert producer.send(topic, b"%d" % number, partition=0).result(60).offset == number
            if number == 100:
                turns.clear()
        if not producer._driver.config.security_protocol.endswith("SSL"):
            assert len(turns) < 150, "most records needed no turn"
    assert values(broker.bootstrap, topic, 300) == [b"%d" % number for number in range(300)]
