"""Commits without anything else: only they are polled, and their response takes no turn. The twin is a full turn."""

import threading
import time
from collections import Counter
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from kohort.common import TopicPartition
from kohort.coordinator_client import Consumer, WakeupError
from kohort.coordinator_client.group.events import CommitSettled
from kohort.coordinator_client.offsets.fenced_commit_queue import Commit
from kohort.network.errors import ConnectionFailed
from kohort.network.group_types import OffsetAndMetadata
from kohort.network.promise import Promise
from kohort.network.requests import NOTHING_FOLLOWS, NoResponse, PendingRequest, ResponseReceived
from kohort.protocol.apis.find_coordinator import Coordinator, FindCoordinatorResponse
from kohort.protocol.apis.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kohort.protocol.catalogue import API
from kohort.protocol.framing import frame
from kohort.testing import FakeBroker
from kohort.testing.fake_broker import Close
from tests.coordinator_client.consumer_helpers import PATIENCE_S, poll_until, refuse_commits
from tests.coordinator_client.core_rig import Rig, metadata
from tests.support.broker_selection import SelectedBroker

VERSION = 9
P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
MOST_CALLS_OF_A_COMMIT = 210


class Commits(Rig):
    """A consumer with a coordinator, whose fetches are in flight."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(group="g", **{"enable_auto_commit": False} | settings)
        self.now = 1.0
        self.turn(self.now)
        self.settle("Metadata", ResponseReceived(metadata({0: 1, 1: 2}), 12), self.now)
        self.turn(self.now)
        self.commit({P0: 1})
        self.turn(self.now)
        found = Coordinator(key="g", node_id=1, host="b1", port=9092, error_code=0)
        self.settle("FindCoordinator", ResponseReceived(FindCoordinatorResponse(coordinators=(found,)), 6), self.now)
        self.turn(self.now)
        self.settle("OffsetCommit", ResponseReceived(response({P0: 0}), VERSION), self.now)
        for _ in range(3):
            self.turn(self.now)
        self.core.has_updates = False

    def commit(self, offsets: dict[TopicPartition, int]) -> "Promise[None]":
        return self.core.commits.put(offsets, deadline=self.now + 60.0, blocking=True)

    def add(self, offsets: dict[TopicPartition, int]) -> "Promise[None]":
        """Commit, and poll as the driver does."""
        promise = self.commit(offsets)
        self.now += 0.01
        turn = self.core.poll_added(self.now, 0)
        self.open += [(one.endpoint, one.request) for one in turn.requests]
        return promise

    @property
    def request(self) -> PendingRequest:
        (found,) = [one for _endpoint, one in self.open if one.api == "OffsetCommit"]
        return found

    def respond(self, value: OffsetCommitResponse, *, twin: bool) -> object:
        """The effect of a response. By the twin, the turn has it, and a poll follows."""
        request, self.now = self.request, self.now + 0.25
        assert request.follow_up is not None
        followed = None if twin else request.follow_up(framed(value), VERSION, self.now)
        if followed is None:
            self.core.counters.requests += 1
            self.settle("OffsetCommit", ResponseReceived(value, VERSION), self.now)
            self.turn(self.now)
        return followed

    def state(self) -> tuple[object, ...]:
        queue, sensors = self.core.commits.queue, self.core.sensors
        return (
            (len(queue), queue.in_flight, queue.has_response, queue.partitions, list(queue.ledger)),
            (self.core.book.uncommitted(), self.core.book.backward_commits({})),
            (self.core.counters.requests, self.core.counters.commits, self.core.counters.commits_refused),
            (sensors.commit_ms.count, sensors.commit_ms.mean(self.now), self.core.has_updates),
            [one.api for _endpoint, one in self.open],
            (len(self.core.commits.callbacks), self.core._socket_events),
        )


def response(codes: dict[TopicPartition, int], throttle_time_ms: int = 0) -> OffsetCommitResponse:
    partitions = (
        OffsetCommitResponsePartition(partition_index=one.partition, error_code=code) for one, code in codes.items()
    )
    return OffsetCommitResponse(
        throttle_time_ms=throttle_time_ms, topics=(OffsetCommitResponseTopic(name="t", partitions=tuple(partitions)),)
    )


def framed(value: OffsetCommitResponse) -> memoryview:
    return memoryview(frame((5).to_bytes(4, "big"), b"\0", API["OffsetCommit"].response.build(value, VERSION)))


def test_only_commits_are_polled_where_only_they_are_new(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Commits()
    monkeypatch.setattr(rig.core, "poll", None)
    rig.add({P0: 5, P1: 6})
    assert rig.request.request(VERSION).topics[0].partitions[1].committed_offset == 6
    assert rig.core._polls_at > rig.now


@pytest.mark.parametrize("offsets", [{P0: 5}, {P0: 5, P1: 6}])
def test_a_stored_commit_ends_as_by_a_turn(offsets: dict[TopicPartition, int]) -> None:
    found = []
    for twin in (False, True):
        rig = Commits()
        promise = rig.add(offsets)
        followed = rig.respond(response(dict.fromkeys(offsets, 0)), twin=twin)
        if not twin:
            assert followed == NOTHING_FOLLOWS
            rig.open.pop()  # the driver drops the request
        assert promise.result(0.0) is None
        found.append(rig.state())
    assert found[0] == found[1]


def _other_commit(rig: Commits) -> None:
    rig.commit({P1: 9})


def _same_partition(rig: Commits) -> None:
    rig.commit({P0: 9})


def _closing(rig: Commits) -> None:
    rig.core.closing = True


def _retired(rig: Commits) -> None:
    rig.core.retired = lambda: None


def _event(rig: Commits) -> None:
    rig.core._socket_events.append(CommitSettled(1, {}))


def _callers_event(rig: Commits) -> None:
    rig.core._caller_events.append(CommitSettled(1, {}))


def _fatal(rig: Commits) -> None:
    rig.core._fatal = ConnectionFailed("over")


def _lookup(rig: Commits) -> None:
    rig.core.lookups.look_up_committed((P1,), rig.now + 9.0)


def _hook(rig: Commits) -> None:
    rig.core._hook = object()  # type: ignore[assignment]


UNUSUAL: dict[str, Callable[[Commits], None]] = {
    "another commit": _other_commit,
    "a commit behind it": _same_partition,
    "the consumer is closing": _closing,
    "the consumer was dropped": _retired,
    "an event of a socket": _event,
    "an event of the caller": _callers_event,
    "a fatal error": _fatal,
    "a look-up": _lookup,
    "a hook": _hook,
}


@pytest.mark.parametrize("unusual", UNUSUAL)
def test_a_response_takes_a_turn_if_anything_else_is_under_way(unusual: str) -> None:
    rig = Commits()
    promise = rig.add({P0: 5})
    UNUSUAL[unusual](rig)
    follow_up = rig.request.follow_up
    assert follow_up is not None
    before = rig.state()
    assert follow_up(framed(response({P0: 0})), VERSION, rig.now) is None
    assert rig.state() == before
    assert not promise.done()


@pytest.mark.parametrize(
    ("value", "ends"),
    [
        (response({P0: 14}), False),
        (response({P1: 0}), True),
        (response({}), True),
        (response({P0: 0}, throttle_time_ms=1), True),
    ],
    ids=["an error", "another partition", "nothing", "a throttle time"],
)
def test_an_unusual_response_takes_a_turn(value: OffsetCommitResponse, *, ends: bool) -> None:
    rig = Commits()
    promise = rig.add({P0: 5})
    assert rig.respond(value, twin=False) is None
    assert promise.done() == ends


def test_a_response_that_cannot_be_read_takes_a_turn_and_so_does_a_large_one() -> None:
    rig = Commits()
    rig.add({P0: 5})
    follow_up = rig.request.follow_up
    assert follow_up is not None
    assert follow_up(framed(response({P0: 0}))[:-2], VERSION, rig.now) is None
    large = response({TopicPartition("t", number): 0 for number in range(1_000)})
    assert follow_up(framed(large), VERSION, rig.now) is None
    assert follow_up(framed(response({P0: 0})), VERSION, rig.now) == NOTHING_FOLLOWS
    assert follow_up(framed(response({P0: 0})), VERSION, rig.now) is None, "it was settled"


def test_a_commit_that_the_machine_waits_for_takes_a_turn() -> None:
    rig = Commits()
    ordered = Commit({P0: OffsetAndMetadata(5)}, {}, rig.now + 9.0, order=1)
    rig.core.commits.queue.put(ordered)
    rig.add({P0: 6})
    assert rig.request.request(VERSION).topics[0].partitions[0].committed_offset == 5
    assert rig.respond(response({P0: 0}), twin=False) is None
    assert rig.request.request(VERSION).topics[0].partitions[0].committed_offset == 6


def test_a_commit_behind_one_that_was_given_up_is_sent() -> None:
    rig = Commits()
    given_up = rig.core.commits.put({P0: 5}, deadline=rig.now + 0.05)
    stored = rig.add({P1: 6})
    rig.now += 0.1
    rig.turn(rig.now)
    assert given_up.done()
    behind = rig.commit({P0: 7})
    assert rig.respond(response({P0: 0, P1: 0}), twin=False) is None
    assert stored.done()
    assert rig.request.request(VERSION).topics[0].partitions[0].committed_offset == 7
    rig.respond(response({P0: 0}), twin=False)
    assert behind.done()


def test_a_response_that_comes_after_another_request_is_left_to_the_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Commits()
    promise = rig.add({P0: 5})
    late, coordinator = rig.request, rig.core.cluster.coordinator()
    rig.settle("OffsetCommit", NoResponse(ConnectionFailed("lost")), rig.now)
    monkeypatch.setattr(rig.core.cluster, "coordinator", lambda: coordinator)
    rig.now += 9.0
    rig.turn(rig.now)
    assert late.follow_up is not None
    assert late.follow_up(framed(response({P0: 0})), VERSION, rig.now) is None
    assert rig.respond(response({P0: 0}), twin=False) == NOTHING_FOLLOWS
    assert promise.done()


@pytest.mark.parametrize(
    "unusual", [*(one for one in UNUSUAL if "commit" not in one), "a poll is due", "no coordinator"]
)
def test_everything_is_polled_if_anything_else_is_under_way(unusual: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Commits()
    polls: list[str] = []
    poll, poll_commits = rig.core.poll, rig.core.commits.poll

    def counted(now: float, wall_ms: int) -> Any:
        polls.append("everything")
        return poll(now, wall_ms)

    def counted_commits(now: float) -> Any:
        polls.append("commits")
        return poll_commits(now)

    if unusual == "a poll is due":
        rig.core._polls_at = rig.now
    elif unusual == "no coordinator":
        monkeypatch.setattr(rig.core.commits._cluster, "coordinator", lambda: None)
    elif unusual == "a hook":
        monkeypatch.setattr(rig.core, "_hook", object())
    else:
        UNUSUAL[unusual](rig)
    monkeypatch.setattr(rig.core, "poll", counted)
    monkeypatch.setattr(rig.core.commits, "poll", counted_commits)
    rig.commit({P0: 5})
    rig.core.poll_added(rig.now, 0)
    assert polls == ["commits"] * (unusual == "no coordinator") + ["everything", "commits"]


def test_the_times_of_other_parts_are_kept() -> None:
    rig = Commits(metadata_max_age_ms=5_000)
    due = rig.core._polls_at
    rig.add({P0: 5})
    assert rig.core._polls_at == due
    rig.respond(response({P0: 0}), twin=False)
    rig.open.pop()
    rig.now = due
    rig.commit({P0: 6})
    assert {one.request.api for one in rig.core.poll_added(rig.now, 0).requests} == {"OffsetCommit", "Metadata"}


def test_the_deadline_of_a_commit_is_a_time_of_the_next_poll() -> None:
    rig = Commits()
    rig.core.commits.put({P0: 5}, deadline=rig.now + 0.5)
    turn = rig.core.poll_added(rig.now, 0)
    assert turn.next_poll_at == rig.core._polls_at == rig.now + 0.5


# --- with a driver


def test_the_calls_of_a_commit_are_few() -> None:
    """Those of Python, in the driver's thread. Two full turns had 356."""
    calls: Counter[str] = Counter()

    def profile(at: FrameType, event: str, _argument: object) -> None:
        if event == "call" and threading.current_thread().name.startswith("kohort-driver"):
            calls[at.f_code.co_qualname] += 1

    threading.setprofile(profile)
    try:
        counts = []
        with FakeBroker(topics={"t": 1}) as fake, consumer_of(fake.bootstrap) as consumer:
            for number in range(30):
                before = calls.total()
                consumer.commit({P0: number})
                time.sleep(0.01)  # the thread sleeps again
                counts.append(calls.total() - before)
    finally:
        threading.setprofile(None)
    assert 0 < min(counts) <= MOST_CALLS_OF_A_COMMIT, calls.most_common(40)


def consumer_of(bootstrap: str, topic: str = "t", **settings: Any) -> Consumer:
    consumer = Consumer(bootstrap, group=f"group-{topic}", enable_auto_commit=False, **settings)
    consumer.subscribe([topic])
    poll_until(consumer, lambda: bool(consumer.assignment))
    return consumer


def test_the_callback_of_a_commit_is_called_though_no_turn_follows() -> None:
    """Polls look at callbacks only after a turn, or after such a response."""
    with (
        FakeBroker(topics={"t": 1}) as fake,
        consumer_of(fake.bootstrap, heartbeat_interval_ms=20_000, session_timeout_ms=60_000) as consumer,
    ):
        for number in range(1, 20):
            for _ in range(3):
                consumer.poll(0.002)  # nothing else is due
            consumer.commit_async({P0: number}, lambda *_: consumer.wakeup())
            with pytest.raises(WakeupError):
                consumer.poll(PATIENCE_S)


def test_a_change_of_another_kind_beside_a_commit_has_everything_polled(monkeypatch: pytest.MonkeyPatch) -> None:
    with FakeBroker(topics={"t": 1}) as fake, consumer_of(fake.bootstrap) as consumer:
        driver = consumer._session.driver
        polled: list[str] = []

        def noted(name: str, poll: Callable[..., Any]) -> Callable[..., Any]:
            def call(*at: Any) -> Any:
                polled.append(name)
                return poll(*at)

            return call

        monkeypatch.setattr(driver.core, "poll", noted("everything", driver.core.poll))
        monkeypatch.setattr(driver, "poll_added", noted("added", driver.poll_added))

        def changes(*adds: bool) -> list[str]:
            time.sleep(0.05)
            polled.clear()
            with driver.lease.guard:  # no turn
                orders = []
                for one in adds:
                    orders.append(driver.enqueue(lambda _core: None, adds=one))
                    if not one:
                        driver._must_poll = False  # as if the caller was interrupted before it woke the driver
            for order in orders:
                order.result(PATIENCE_S)
            return polled[:1]

        assert changes(True) == ["added"]
        assert changes(False, True) == ["everything"]
        assert changes(True, False, True) == ["everything"]


@pytest.mark.parametrize("fault", ["an error", "the connection ends"])
def test_a_commit_that_fails_at_first_is_sent_again(fault: str) -> None:
    with FakeBroker(topics={"t": 1}) as fake, consumer_of(fake.bootstrap, retry_backoff_ms=10) as consumer:
        for number in range(5):
            consumer.commit({P0: number})

        def refuse(call: Any) -> Any:
            if call.number % 2:
                return None
            return Close() if fault == "the connection ends" else refuse_commits(14)

        fake.control("OffsetCommit", refuse)
        for number in range(5, 25):
            consumer.commit({P0: number}, timeout_s=PATIENCE_S)
            assert consumer.committed([P0])[P0].offset == number  # type: ignore[union-attr]


@pytest.mark.broker
def test_commits_of_all_kinds_are_stored_in_order(broker: SelectedBroker, make_topic: Callable[..., str]) -> None:
    topic = make_topic(2)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    with consumer_of(broker.bootstrap, topic) as consumer:
        called: list[int] = []
        for number in range(1, 200):
            if number % 3:
                consumer.commit_async({first: number}, lambda offsets, _error: called.append(offsets[first].offset))
            if number % 5 == 0:
                consumer.commit({first: number, second: number})
            if number % 50 == 0:
                found = consumer.committed([first, second])
                assert [one and one.offset for one in found.values()] == [number, number]
                consumer.poll(0.0)
        consumer.commit({second: 1_000})
        poll_until(consumer, lambda: len(called) == len([one for one in range(1, 200) if one % 3]))
        assert called == [one for one in range(1, 200) if one % 3]
        assert [one and one.offset for one in consumer.committed([first, second]).values()] == [199, 1_000]
        ledger = consumer._session.read(lambda core: tuple(core.commits.queue.ledger))
        assert [one for one in ledger if one.error] == []
