"""Records one at a time: what a turn polls, and responses that need none. The twin is the full turn."""

import sys
import threading
import time
from collections import Counter
from types import FrameType
from typing import Any
from uuid import UUID

import pytest

from kohort import Producer, TopicPartition
from kohort.common import KohortError
from kohort.network.requests import NOTHING_FOLLOWS, ResponseReceived, UnsentRequest
from kohort.producer.producer_batch import NO_PRODUCER_ID
from kohort.protocol.apis.produce import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from kohort.protocol.catalogue import API
from kohort.protocol.framing import frame
from kohort.testing.fake_broker import FakeBroker
from tests.producer.producer_world import TOPIC, World
from tests.producer.test_producer_machine import P0, ready

VERSION = 13
IDS = {13: UUID(int=1)}
DONE = PartitionProduceResponse(index=0, error_code=0, base_offset=7)
MOST_CALLS_OF_A_RECORD = 9


def response(*partitions: PartitionProduceResponse, version: int = VERSION, **fields: Any) -> ProduceResponse:
    topic = TopicProduceResponse(
        name=TOPIC, topic_id=IDS.get(version, UUID(int=0)), partition_responses=partitions or (DONE,)
    )
    return ProduceResponse(responses=(topic,), **fields)


def framed(value: ProduceResponse, version: int = VERSION) -> memoryview:
    header = b"\0" if version >= 9 else b""
    return memoryview(frame((5).to_bytes(4, "big"), header, API["Produce"].response.build(value, version)))


def steady(**settings: Any) -> World:
    """A ready world that was polled since."""
    world = ready(**settings)
    world.core.poll(world.now, 1)
    return world


def polled(monkeypatch: pytest.MonkeyPatch, *parts: Any) -> list[Any]:
    """The parts in the order of their polls from now on."""
    seen: list[Any] = []

    def watch(part: Any) -> None:
        poll = part.poll

        def seen_poll(now: float) -> Any:
            seen.append(part)
            return poll(now)

        monkeypatch.setattr(part, "poll", seen_poll)

    for part in parts:
        watch(part)
    return seen


def sent(world: World, *partitions: int) -> UnsentRequest:
    """A request with a record for each partition."""
    for number in partitions:
        world.send(b"v", number)
    world.now += 0.01
    (request,) = world.core.poll_added(world.now, 1).requests
    return request


def offered(world: World, request: UnsentRequest, data: memoryview, version: int = VERSION) -> bytes | None:
    assert request.request.follow_up is not None
    return request.request.follow_up(data, version, world.now)


def state(world: World) -> tuple[object, ...]:
    core = world.core
    lane = core.accumulator.lanes[P0]
    return (
        core.accumulator.buffered,
        dict(core.accumulator.busy),
        (lane.in_flight, lane.next_sequence, lane.failing, lane.attempts, list(lane.queue)),
        [(delivery.done(), delivery.batch.base_offset) for delivery, _value in world.sent],
        core.sender.requests_in_flight,
        core.metrics(world.now),
        core.has_updates,
    )


@pytest.mark.parametrize("version", [8, 12, 13])
def test_a_response_after_which_nothing_is_left_needs_no_turn(version: int) -> None:
    lean, full = steady(), steady()
    for world in (lean, full):
        before = world.core.counters.requests
        request = sent(world, 0)
        assert world.core.sender.requests_in_flight == 1
        if world is lean:
            assert offered(world, request, framed(response(version=version), version), version) == NOTHING_FOLLOWS
            assert world.core.counters.requests == before + 1
            assert world.core.has_updates, "a caller may wait for the delivery"
        else:
            world.core.counters.requests += 1  # by the driver
            request.request.done(ResponseReceived(response(version=version), version), world.now)
            assert world.core.is_at_rest()
        (delivery, _value) = world.sent[-1]
        assert delivery.result(0.0).offset == 7
    assert state(lean) == state(full)
    assert not lean.core.accumulator.busy
    assert lean.core.accumulator.buffered == 0


def test_a_request_of_several_partitions_is_settled_at_once() -> None:
    world = steady()
    request = sent(world, 0, 2)
    both = response(DONE, DONE._replace(index=2, base_offset=9))
    assert offered(world, request, framed(both)) == NOTHING_FOLLOWS
    assert [delivery.result(0.0).offset for delivery, _value in world.sent] == [7, 9]


UNUSUAL: dict[str, ProduceResponse] = {
    "an error": response(DONE._replace(error_code=6)),
    "a new leader": response(DONE._replace(current_leader=LeaderIdAndEpoch(leader_id=1, leader_epoch=9))),
    "a throttle time": response(throttle_time_ms=1),
    "addresses of brokers": response(node_endpoints=(NodeEndpoint(node_id=1, host="b", port=2),)),
    "another partition": response(DONE._replace(index=1)),
    "one partition too many": response(DONE, DONE._replace(index=1)),
    "no partition": ProduceResponse(responses=()),
    "another topic": ProduceResponse(
        responses=(TopicProduceResponse(topic_id=UUID(int=9), partition_responses=(DONE,)),)
    ),
    "a large frame": response(DONE._replace(error_message="x" * 5000)),
}


@pytest.mark.parametrize("unusual", UNUSUAL)
def test_an_unusual_response_is_left_to_a_turn(unusual: str) -> None:
    world = steady()
    request = sent(world, 0)
    before = state(world)
    assert offered(world, request, framed(UNUSUAL[unusual])) is None
    assert state(world) == before


@pytest.mark.parametrize("cut", [1, 8, 9])
def test_a_broken_response_is_left_to_a_turn_which_raises(cut: int) -> None:
    world = steady()
    request = sent(world, 0)
    before = state(world)
    assert offered(world, request, framed(response())[:-cut]) is None
    assert state(world) == before


def test_a_response_is_left_to_a_turn_while_other_records_wait() -> None:
    world = steady()
    request = sent(world, 0)
    world.send(b"next", 0)
    assert offered(world, request, framed(response())) is None
    world = steady()
    request = sent(world, 0)
    world.send(b"elsewhere", 1)
    assert offered(world, request, framed(response())) is None


@pytest.mark.parametrize("state_of", ["retired", "failed", "renumbered", "identifying"])
def test_a_response_is_left_to_a_turn_while_something_else_is_due(state_of: str) -> None:
    world = steady()
    request = sent(world, 0)
    if state_of == "retired":
        world.core.retired = True
    elif state_of == "failed":
        world.core._fatal = KohortError("ended")
    elif state_of == "renumbered":
        world.core.accumulator.lanes[P0].rewrite = True
    else:
        world.core.transactions.recount(world.core.accumulator.lanes[P0])
        world.core.transactions.producer = NO_PRODUCER_ID
        world.core.transactions.state = type(world.core.transactions.state).IDENTIFYING
    assert offered(world, request, framed(response())) is None


def test_a_transaction_takes_full_turns_only(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(1, transactional_id="tx")
    polls = polled(monkeypatch, world.core.cluster)
    world.core.poll_added(world.now, 1)
    assert polls == [world.core.cluster]


def test_a_turn_for_records_polls_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    world = ready()
    turn = world.core.poll(world.now, 1)
    polls = polled(monkeypatch, world.core.cluster, world.core.transactions, world.core.telemetry)
    request = sent(world, 0)
    assert polls == []
    assert request.request.api == "Produce"
    world.send(b"lingers", 1)
    after = world.core.poll_added(world.now, 1)
    assert after.requests == ()
    assert after.next_poll_at is not None
    assert after.next_poll_at == pytest.approx(world.now + 0.005)  # linger_ms
    assert turn.next_poll_at is not None
    assert world.core._others_at == turn.next_poll_at, "the metadata's age keeps its turn"
    world.core._others_at = world.now + 0.002
    assert world.core.poll_added(world.now, 1).next_poll_at == world.now + 0.002


def test_a_record_that_waits_for_metadata_has_it_requested_in_the_same_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    world = steady()
    world.core.metadata.view = world.core.metadata.view.without_brokers()
    world.now += 10.0
    world.send(b"v", 0)
    world.now += 0.01
    (request,) = world.core.poll_added(world.now, 1).requests
    assert request.request.api == "Metadata"
    request.request.done(world.carry_out(request.request), world.now)
    assert [one.request.api for one in world.core.poll(world.now, 1).requests] == ["Produce"]
    polls = polled(monkeypatch, world.core.cluster)
    assert sent(world, 1).request.api == "Produce"
    assert polls == [], "it waits no more"


def test_records_of_other_partitions_are_sent_beside_one_that_waits_for_metadata() -> None:
    world = steady()
    view = world.core.metadata.view
    partitions = dict(view.topics[TOPIC].partitions)
    partitions[0] = partitions[0]._replace(leader=-1)
    world.core.metadata.view = view._replace(topics={TOPIC: view.topics[TOPIC]._replace(partitions=partitions)})
    world.now += 10.0
    world.send(b"waits", 0)
    world.send(b"goes", 1)
    world.now += 0.01
    turn = world.core.poll_added(world.now, 1)
    assert sorted(one.request.api for one in turn.requests) == ["Metadata", "Produce"]
    assert world.core.accumulator.lanes[TopicPartition(TOPIC, 1)].in_flight == 1
    assert world.core.accumulator.lanes[P0].in_flight == 0


def test_everything_is_polled_at_the_time_of_another_part() -> None:
    world = steady(metadata_max_age_ms=5_000)
    due = world.core._others_at
    assert due is not None
    world.now = due
    world.send(b"v", 0)
    turn = world.core.poll_added(world.now, 1)
    assert [one.request.api for one in turn.requests] == ["Metadata"]


def test_no_record_is_sent_before_the_producer_has_its_id() -> None:
    world = World(1)
    assert world.partitions() is None
    for request in world.core.poll(world.now, 1).requests:
        if request.request.api == "Metadata":
            request.request.done(world.carry_out(request.request), world.now)
    world.send(b"v", 0)
    world.now += 0.01
    assert "Produce" not in [one.request.api for one in world.core.poll(world.now, 1).requests]
    assert world.core.poll_added(world.now, 1).requests == ()


def test_a_record_is_sent_again_after_the_backoff() -> None:
    world = steady(retry_backoff_ms=100)
    request = sent(world, 0)
    request.request.done(ResponseReceived(response(DONE._replace(error_code=7)), VERSION), world.now)
    for poll in (world.core.poll, world.core.poll_added):
        assert "Produce" not in [one.request.api for one in poll(world.now + 0.05, 1).requests]
    again = world.core.poll(world.now + 0.15, 1).requests
    assert "Produce" in [one.request.api for one in again]


@pytest.mark.parametrize("acks", ["all", "1"])
def test_the_calls_of_a_record_are_few(acks: Any) -> None:
    """Those of Python, on either thread. A turn for the record had 100, and a full turn for each event 238."""
    calls: dict[bool, Counter[str]] = {True: Counter(), False: Counter()}
    caller = threading.current_thread()

    def profile(at: FrameType, event: str, _argument: object) -> None:
        thread = threading.current_thread()
        driver = thread.name.startswith("kohort-driver")
        if event == "call" and (driver or thread is caller):
            calls[driver][at.f_code.co_qualname] += 1

    threading.setprofile(profile)
    try:
        counts: dict[bool, list[int]] = {True: [], False: []}
        turns: list[int] = []
        with FakeBroker(topics={"t": 1}) as fake, Producer(fake.bootstrap, linger_ms=0, acks=acks) as producer:
            for number in range(40):
                before = {driver: found.total() for driver, found in calls.items()}
                turned = calls[True]["Driver._turn"]
                sys.setprofile(profile)
                delivery = producer.send("t", b"v", partition=0)
                sys.setprofile(None)
                delivery.result(10)
                time.sleep(0.01)  # the thread sleeps again
                if number > 10:
                    for driver, found in calls.items():
                        counts[driver].append(found.total() - before[driver])
                    turns.append(calls[True]["Driver._turn"] - turned)
            assert not producer._driver._has_added
    finally:
        threading.setprofile(None)
        sys.setprofile(None)
    for driver, found in calls.items():
        assert min(counts[driver]) <= MOST_CALLS_OF_A_RECORD, found.most_common(40)
        assert min(counts[driver]) > 0, "they are counted"
    assert min(turns) == 0, "no turn sends the record, and none handles the response"


def test_every_record_has_its_outcome_while_responses_and_records_race() -> None:
    with FakeBroker(topics={"t": 3}) as fake, Producer(fake.bootstrap, linger_ms=0) as producer:
        deliveries = []
        for number in range(600):
            deliveries.append(producer.send("t", b"%d" % number, partition=number % 3))
            if number % 7 == 0:
                deliveries[-1].result(10)
            elif number % 5 == 0:
                time.sleep(0.001)  # about as long as a response takes
        offsets = [delivery.result(10) for delivery in deliveries]
    by_partition: dict[int, list[int]] = {}
    for one in offsets:
        by_partition.setdefault(one.partition, []).append(one.offset)
    assert by_partition == {number: list(range(200)) for number in range(3)}
