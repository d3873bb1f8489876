"""Fetches beside a session's request that waits at the broker for records."""

from collections.abc import Callable
from typing import Any, cast

import pytest

from kohort.common import TopicPartition
from kohort.coordinator_client import Consumer
from kohort.coordinator_client.fetch.fetcher import FetchOutcome
from kohort.protocol.apis.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from kohort.testing import FakeBroker
from kohort.testing.fake_broker import Call, Close
from tests.coordinator_client.consumer_helpers import numbers, produce, read, wait_until
from tests.coordinator_client.fetch.test_fetcher import ID, P0, P1, P2, WALL, Rig, batch, data, requested
from tests.support.broker_selection import SelectedBroker

FOREVER_MS = 2**31 - 1
NOT_LEADER, OFFSET_NOT_AVAILABLE, UNKNOWN_SERVER_ERROR = 6, 78, -1


class Waiting(Rig):
    """P0 and P1 are of broker 1, P2 of broker 2. Both hold a request of their session; P0 was paused before."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.pause(P0)
        assert self.owed().keys() == {1, 2}

    def pause(self, *partitions: TopicPartition) -> None:
        began = self.paused - set(partitions)
        self.paused = set(partitions)
        self.fetcher.change_allowed(began)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self.positions.seek(partition, offset)
        self.fetcher.drop(partition)

    def beside(self) -> dict[TopicPartition, int]:
        """The offsets of the only request that is due, which has no session."""
        (order,) = self.owed().values()
        assert order.is_sessionless
        return requested(order)

    def respond_beside(self, node: int, *found: PartitionData, code: int = 0) -> FetchOutcome:
        topics = (FetchableTopicResponse(topic_id=ID, partitions=found),) if found else ()
        response = FetchResponse(error_code=code, session_id=0, responses=topics)
        return self.fetcher.on_response(
            node,
            response,
            self.view,
            now=self.now,
            wall_ms=WALL,
            chance=0.5,
            is_sessionless=True,
        )


def resumed() -> Waiting:
    """P0 is requested beside the session's request of its broker."""
    rig = Waiting()
    rig.pause()
    assert rig.beside() == {P0: 100}
    return rig


def test_a_resumed_partition_is_requested_without_a_session_and_without_a_wait() -> None:
    rig = Waiting()
    assert rig.owed() == {}
    rig.pause()
    (order,) = rig.owed().values()
    assert (order.node, order.is_sessionless, requested(order)) == (1, True, {P0: 100})
    assert (order.request.session_id, order.request.session_epoch, order.request.max_wait_ms) == (0, -1, 0)
    assert rig.owed() == {}
    assert rig.respond_beside(1, data(0, batch(100))).parked_bytes == len(batch(100))
    assert rig.take().start == 100


def test_a_moved_partition_is_requested_from_where_it_was_moved_to() -> None:
    rig = Waiting()
    rig.seek(P1, 7)
    assert rig.beside() == {P1: 7}
    rig.respond(1, data(1, batch(100)))
    assert rig.take() is None  # it was requested before the seek
    rig.respond_beside(1, data(1, batch(7)))
    assert rig.take().start == 7


def test_a_partition_is_requested_once() -> None:
    rig = Waiting()
    rig.pause(P0, P1)
    assert rig.owed() == {}
    rig.pause(P0)
    assert rig.owed() == {}  # P1 is still in the session's request
    rig.pause()
    assert rig.beside() == {P0: 100}
    rig.seek(P1, 7)
    assert rig.owed() == {}  # one request beside the session's at a time
    rig.respond_beside(1)
    assert rig.beside() == {P1: 7}


def test_a_partition_goes_on_beside_the_session_until_it_has_no_more_records() -> None:
    rig = resumed()
    rig.respond_beside(1, data(0, batch(100)))
    assert rig.beside() == {P0: 103}
    rig.respond_beside(1, data(0, batch(103)))
    assert rig.beside() == {P0: 106}
    rig.respond_beside(1, data(0))
    assert rig.owed() == {}
    rig.respond(1)
    (order,) = rig.owed().values()
    assert (order.is_sessionless, requested(order)) == (False, {P0: 106})
    rig.pause(P0)
    rig.respond(1)
    assert not rig.owed()[1].is_sessionless
    rig.pause()
    assert rig.beside() == {P0: 106}  # the session's request is another one


def test_a_session_goes_on_without_a_partition_that_is_requested_beside_it() -> None:
    rig = Waiting()
    rig.seek(P1, 7)
    rig.pause()
    assert rig.beside() == {P0: 100, P1: 7}
    rig.respond(1)
    assert rig.owed() == {}
    rig.respond_beside(1, data(0), data(1, batch(7)))
    order = rig.owed()[1]
    assert (order.is_sessionless, requested(order)) == (False, {P0: 100, P1: 10})


def test_a_session_has_the_partitions_that_are_not_requested_beside_it() -> None:
    rig = resumed()
    rig.respond(1, data(1, batch(100)))
    order = rig.owed()[1]
    assert (order.is_sessionless, requested(order)) == (False, {P1: 103})
    assert rig.fetcher.sessions[1].steady_under is None
    rig.respond_beside(1, data(0))
    assert rig.owed() == {}
    rig.respond(1)
    assert requested(rig.owed()[1]) == {P0: 100}


def test_a_seek_voids_what_was_requested_beside_the_session() -> None:
    rig = resumed()
    rig.seek(P0, 5)
    assert rig.owed() == {}
    rig.respond_beside(1, data(0, batch(100)))
    assert rig.take() is None
    assert rig.beside() == {P0: 5}


@pytest.mark.parametrize("lost", [True, False], ids=["lost", "refused"])
def test_a_failure_leaves_the_partition_to_the_session(lost: bool) -> None:
    rig = resumed()
    rig.seek(P1, 7)
    assert rig.owed() == {}
    if lost:
        rig.fetcher.sessionless_ended(1)
    else:
        assert rig.respond_beside(1, code=UNKNOWN_SERVER_ERROR).parked_bytes == 0
    assert rig.beside() == {P1: 7}
    rig.respond_beside(1)
    rig.respond(1)
    assert requested(rig.owed()[1]) == {P0: 100, P1: 7}


def test_the_loss_of_the_sessions_request_leaves_the_other_one() -> None:
    rig = resumed()
    rig.fetcher.failed(1, now=rig.now, chance=0.5)
    assert rig.owed() == {}
    rig.respond_beside(1, data(0, batch(100)))
    assert rig.take().start == 100
    rig.now += 10
    order = rig.owed()[1]
    assert (order.is_sessionless, requested(order)) == (False, {P0: 103, P1: 100})


def test_a_new_request_after_a_loss_has_another_one_beside_it() -> None:
    rig = resumed()
    rig.respond_beside(1)
    rig.pause(P0)
    rig.fetcher.failed(1, now=rig.now, chance=0.5)
    rig.now += 10
    assert requested(rig.owed()[1]) == {P1: 100}
    rig.pause()
    assert rig.beside() == {P0: 100}


def test_a_partition_that_was_refused_waits_for_its_backoff_and_the_session() -> None:
    rig = resumed()
    rig.respond_beside(1, data(0, code=OFFSET_NOT_AVAILABLE))
    rig.seek(P0, 5)
    assert rig.owed() == {}
    rig.now += 10
    assert rig.owed() == {}
    rig.respond(1)
    assert requested(rig.owed()[1]) == {P0: 5}


def test_an_error_of_a_partition_is_that_of_a_sessions_response() -> None:
    rig = resumed()
    assert rig.respond_beside(1, data(0, code=NOT_LEADER)).stale


def test_a_partition_at_its_buffer_limit_is_requested_once_its_records_are_taken() -> None:
    rig = Waiting(max_partition_fetch_bytes=100)
    rig.pause()
    assert rig.beside() == {P0: 100}
    rig.respond_beside(1, data(0, batch(100, size=100)))
    assert rig.owed() == {}
    assert rig.fetcher.held_back
    assert rig.take().start == 100
    assert rig.beside() == {P0: 103}


def test_the_budget_has_room_for_the_request() -> None:
    """Three requests of 1 MB are 3 MB. The third waits until 500 kB of records are taken."""
    rig = Waiting(max_buffered_bytes=3_500_000, fetch_max_bytes=1 << 20)
    rig.respond(1, data(1, batch(100, count=1, size=500_000)))
    assert not rig.owed()[1].is_sessionless
    rig.pause()
    assert rig.owed() == {}
    assert rig.fetcher.held_back
    assert rig.take().start == 100
    assert rig.beside() == {P0: 100}


def test_the_budget_has_room_for_requests_to_one_broker() -> None:
    rig = Rig(max_buffered_bytes=3_500_000, fetch_max_bytes=1 << 20)
    assert rig.owed().keys() == {1, 2}
    for partition in (P0, P2):
        rig.positions.seek(partition, 5)
    (first,) = rig.owed().values()
    assert first.is_sessionless
    assert rig.owed() == {}
    rig.fetcher.sessionless_ended(first.node)
    (second,) = rig.owed().values()
    assert (second.is_sessionless, second.node) == (True, 3 - first.node)


def test_the_records_of_paused_partitions_take_no_room_from_the_request() -> None:
    rig = Rig(max_buffered_bytes=3_500_000, fetch_max_bytes=1 << 20)
    assert rig.owed().keys() == {1, 2}
    rig.respond(1, data(0, batch(100, count=1, size=2_500_000)))
    assert rig.owed() == {}
    rig.paused = {P0}
    rig.fetcher.change_allowed(frozenset())
    assert rig.owed().keys() == {1}
    rig.positions.seek(P1, 7)
    (order,) = rig.owed().values()
    assert (order.is_sessionless, requested(order)) == (True, {P1: 7})


def test_brokers_that_are_read_share_the_budget() -> None:
    """Half of the budget is shared by two brokers, by one after a pause, and again by two."""
    rig = Waiting(max_buffered_bytes=8 << 20)
    rig.pause(P0, P2)
    rig.respond(1)
    assert rig.owed()[1].request.max_bytes == 4 << 20
    rig.seek(P2, 7)
    rig.pause(P0)
    (order,) = rig.owed().values()
    assert (order.is_sessionless, order.request.max_bytes) == (True, 2 << 20)


def test_a_response_of_another_broker_leads_to_no_request_beside_a_session(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Waiting()
    looked_at: list[TopicPartition] = []
    is_requested = rig.fetcher._is_requested

    def looks(node: int, partition: TopicPartition) -> bool:
        looked_at.append(partition)
        return is_requested(node, partition)

    monkeypatch.setattr(rig.fetcher, "_is_requested", looks)
    rig.respond(2)
    assert rig.owed().keys() == {2}
    assert looked_at == []
    rig.pause()
    assert rig.beside() == {P0: 100}
    assert looked_at == [P0]


# --- by brokers


def requests(fake: FakeBroker) -> list[FetchRequest]:
    return [cast(FetchRequest, call.request) for call in fake.calls_of("Fetch")]


def held(fake: FakeBroker) -> list[FetchRequest]:
    """The requests that may wait at the broker."""
    return [request for request in requests(fake) if request.max_wait_ms]


def test_a_consumer_that_waits_reads_at_once_where_it_is_sent() -> None:
    first, second = TopicPartition("t", 0), TopicPartition("t", 1)
    with (
        FakeBroker(topics={"t": 3}) as fake,
        Consumer(fake.bootstrap, auto_offset_reset="latest", fetch_max_wait_ms=FOREVER_MS) as consumer,
    ):
        for number in range(3):
            fake.produce("t", number, [(None, b"%d" % one, None, []) for one in range(4)])
        consumer.assign({first: 4, second: 4})
        assert consumer.poll(0) == []
        wait_until(lambda: held(fake) != [])
        consumer.seek(first, 2)
        assert [record.offset for record in read(consumer, 2)] == [2, 3]
        consumer.pause([first])
        consumer.seek(first, 1)
        consumer.resume([first])
        assert [record.offset for record in read(consumer, 3)] == [1, 2, 3]
        consumer.assign({first: 4, second: 4, TopicPartition("t", 2): 3})
        assert [(record.partition, record.offset) for record in read(consumer, 1)] == [(2, 3)]
        assert len(held(fake)) == 1, "it has stayed at the broker"


def test_a_lost_request_leaves_the_partition_to_the_session() -> None:
    def loses(call: Call) -> Close | None:
        return Close() if cast(FetchRequest, call.request).session_epoch < 0 else None

    with (
        FakeBroker(topics={"t": 1}) as fake,
        Consumer(fake.bootstrap, fetch_max_wait_ms=500) as consumer,
    ):
        fake.produce("t", 0, [(None, b"v", None, [])])
        consumer.assign({TopicPartition("t", 0): 1})
        wait_until(lambda: held(fake) != [])
        lost = fake.control("Fetch", loses, times=1)
        for _ in range(3):
            consumer.seek(TopicPartition("t", 0), 0)
            assert [record.value for record in read(consumer, 1)] == [b"v"]
            assert consumer.poll(0.1) == []
        assert lost.calls == 1
        assert sum(request.session_epoch < 0 for request in requests(fake)) > 1


@pytest.mark.broker
@pytest.mark.proves("S-16")
def test_a_partition_is_fetched_at_once_while_the_broker_holds_a_request(
    broker: SelectedBroker, make_topic: Callable[..., str], unique: Callable[[str], str]
) -> None:
    topic = make_topic(2)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    for number in range(2):
        produce(broker.bootstrap, topic, numbers(0, 10), partition=number)
    with Consumer(
        broker.bootstrap, group=unique("group"), auto_offset_reset="earliest", fetch_max_wait_ms=FOREVER_MS
    ) as consumer:
        consumer.subscribe([topic])
        read(consumer, 20)
        for offset in (9, 3, 0):
            assert consumer.poll(0.2) == []  # a request of both partitions is at the broker
            consumer.seek(first, offset)
            assert [record.offset for record in read(consumer, 10 - offset)] == list(range(offset, 10))
        consumer.pause([second])
        consumer.seek(second, 5)
        assert consumer.poll(0.2) == []
        consumer.resume([second])
        assert [record.offset for record in read(consumer, 5)] == list(range(5, 10))
        produce(broker.bootstrap, topic, [b"later"], partition=1)
        (later,) = read(consumer, 1)
        assert (later.partition, later.value) == (1, b"later")
