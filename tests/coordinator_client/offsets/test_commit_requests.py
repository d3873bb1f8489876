"""The contents of the core's commits: the leader epoch of its own offset, and no record that the user still works
on."""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from kohort.common import TopicPartition
from kohort.coordinator_client import AsyncConsumer, AuthorizationFailed, Consumer, UnknownTopic
from kohort.coordinator_client.subscription_state import Subscription
from kohort.network.errors import ConnectionFailed
from kohort.network.group_types import OffsetAndMetadata
from kohort.network.requests import NoResponse, ResponseReceived
from kohort.protocol.apis.find_coordinator import FindCoordinatorResponse
from kohort.protocol.apis.heartbeat import HeartbeatResponse
from kohort.protocol.apis.join_group import JoinGroupResponse
from kohort.protocol.apis.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kohort.protocol.apis.sync_group import SyncGroupResponse
from kohort.protocol.membership import Assignment, TopicPartitions, build_assignment
from kohort.testing.fake_broker import FakeBroker
from tests.coordinator_client.consumer_helpers import PATIENCE_S, poll_until, read, refuse_commits
from tests.coordinator_client.core_rig import Rig, metadata

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
VERSION = 9


def ready(**settings: object) -> Rig:
    """A core whose group's coordinator is known; P0 was read up to 10, where the last record is of leader epoch 3."""
    rig = Rig(group="g", **settings)
    rig.turn(0.0)
    rig.settle("Metadata", ResponseReceived(metadata({0: 1, 1: 1}), 12), 0.0)
    rig.core.positions.consumed(P0, rig.core.positions.state(P0).serial, 10, 3)
    return rig


def committed(rig: Rig, now: float = 0.0) -> dict[TopicPartition, tuple[int, int]]:
    """The OffsetCommit that is sent: (offset, leader epoch) by partition."""
    rig.turn(now)  # an automatic commit is put
    rig.turn(now)
    found = FindCoordinatorResponse(error_code=0, node_id=2, host="b2", port=9092)
    rig.settle("FindCoordinator", ResponseReceived(found, 3), now)
    rig.turn(now)
    (lookup,) = [one for _endpoint, one in rig.open if one.api == "OffsetCommit"]
    assert callable(lookup.request)
    return {
        TopicPartition(topic.name, one.partition_index): (one.committed_offset, one.committed_leader_epoch)
        for topic in lookup.request(VERSION).topics
        for one in topic.partitions
    }


@pytest.mark.proves("B-38")
@pytest.mark.parametrize(
    ("given", "sent"),
    [
        (10, (10, 3)),  # the position itself
        (5, (5, -1)),  # of an earlier leader, perhaps: the next owner would find a truncation that is none
        (11, (11, -1)),
        (OffsetAndMetadata(5, 2), (5, 2)),
        (OffsetAndMetadata(10, 2), (10, 2)),
    ],
)
def test_a_commit_has_the_leader_epoch_of_its_own_offset(given: int | OffsetAndMetadata, sent: tuple[int, int]) -> None:
    rig = ready()
    rig.core.commits.put({P0: given}, deadline=60.0)
    assert committed(rig) == {P0: sent}


@pytest.mark.proves("G-12")
@pytest.mark.parametrize("node", [2, 1])
def test_a_commit_is_repeated_at_once_if_there_is_another_coordinator(node: int) -> None:
    rig = ready(retry_backoff_ms=10_000, retry_backoff_max_ms=10_000)
    rig.core.commits.put({P0: 10}, deadline=600.0)
    committed(rig)
    rig.settle("OffsetCommit", NoResponse(ConnectionFailed("refused")), 1.0)
    rig.turn(1.0)
    found = FindCoordinatorResponse(error_code=0, node_id=node, host=f"b{node}", port=9092)
    rig.settle("FindCoordinator", ResponseReceived(found, 3), 1.0)
    rig.turn(1.0)
    is_other = node != 2
    assert [one.api for _endpoint, one in rig.open].count("OffsetCommit") == is_other
    rig.turn(13.0)
    assert [one.api for _endpoint, one in rig.open].count("OffsetCommit") == 1


def test_a_commit_of_the_positions_has_the_epochs_of_the_positions() -> None:
    rig = ready()
    rig.core.commits.put(None, deadline=60.0)
    assert committed(rig) == {P0: (10, 3), P1: (0, -1)}


@pytest.mark.proves("S-04")
def test_what_a_poll_returned_is_handled_only_when_the_next_poll_begins() -> None:
    rig = ready(enable_auto_commit=True)
    core = rig.core
    core.polled(0.0, handled=False)  # a close, which may come while a batch is worked on
    assert core.book.uncommitted() == {}
    core.polled(1.0, handled=True)
    assert core.book.uncommitted()[P0] == (10, 3, "")


def closes(bootstrap: str) -> None:
    with Consumer(bootstrap, group="g", enable_auto_commit=True, auto_commit_interval_ms=3_600_000) as consumer:
        consumer.assign({P0: 0})
        read(consumer, 5)


def leaves(bootstrap: str) -> None:
    settings = {"enable_auto_commit": True, "auto_commit_interval_ms": 3_600_000, "auto_offset_reset": "earliest"}
    with Consumer(bootstrap, group="g", **settings) as consumer:  # type: ignore[arg-type]
        consumer.subscribe(["t"])
        read(consumer, 5)


def closes_in_a_task(bootstrap: str) -> None:
    async def run() -> None:
        settings = {"enable_auto_commit": True, "auto_commit_interval_ms": 3_600_000, "auto_offset_reset": "earliest"}
        async with AsyncConsumer(bootstrap, group="g", **settings) as consumer:  # type: ignore[arg-type]
            consumer.subscribe(["t"])
            got = 0
            while got < 5:
                got += sum(map(len, await consumer.poll(0.2)))

    asyncio.run(asyncio.wait_for(run(), PATIENCE_S))


@pytest.mark.proves("S-04")
@pytest.mark.parametrize("ends", [closes, leaves, closes_in_a_task])
def test_the_batch_in_hand_is_not_committed_by_the_end(ends: Callable[[str], None]) -> None:
    with FakeBroker(topics={"t": 1}) as fake:
        fake.produce("t", 0, [(None, b"value")] * 5)
        ends(fake.bootstrap)
        stored = fake.group("g").offsets
    assert stored.get(P0) is None or stored[P0].offset == 0


@pytest.mark.proves("S-04")
@pytest.mark.parametrize("ends", [Consumer.close, Consumer.unsubscribe])
def test_a_manual_assignment_ends_with_a_commit_of_offsets_that_it_has_not_stored(
    ends: Callable[[Consumer], None],
) -> None:
    """They may be about to expire."""
    with FakeBroker(topics={"t": 1}) as fake:
        fake.produce("t", 0, [(None, b"value")] * 5)

        def commits(*, by_hand: bool) -> int:
            before = sum(call.api == "OffsetCommit" for call in fake.calls)
            with Consumer(fake.bootstrap, group="g", enable_auto_commit=True) as consumer:
                consumer.assign([P0])
                assert consumer.position(P0) == 5
                consumer.poll(0.0)
                if by_hand:
                    consumer.commit({P0: 5})
                ends(consumer)
            return sum(call.api == "OffsetCommit" for call in fake.calls) - before

        with Consumer(fake.bootstrap, group="g") as consumer:
            consumer.commit({P0: 5})
        assert commits(by_hand=False) == 1
        assert commits(by_hand=True) == 1


def test_the_next_turn_is_that_of_the_next_automatic_commit() -> None:
    rig = reading()
    responded(rig, 0.0)
    core = rig.core
    core.positions.consumed(P0, core.positions.state(P0).serial, 11, 3)
    core.polled(1.0, handled=True)
    assert rig.turn(1.1).next_poll_at == 2.0
    assert not any(one.api == "OffsetCommit" for _endpoint, one in rig.open)
    assert responded(rig, 1.0)


# --- what is reported of auto-commit


def responded(rig: Rig, since: float, *, p0: int = 0, p1: int = 0) -> bool:
    """Respond to the OffsetCommit that is sent, if one is, so many seconds after the first commit."""
    now = 1.0 + since
    rig.turn(now)
    if not any(one.api == "OffsetCommit" for _endpoint, one in rig.open):
        return False
    codes = [OffsetCommitResponsePartition(partition_index=n, error_code=code) for n, code in enumerate((p0, p1))]
    response = OffsetCommitResponse(topics=(OffsetCommitResponseTopic(name="t", partitions=tuple(codes)),))
    rig.settle("OffsetCommit", ResponseReceived(response, VERSION), now)
    rig.turn(now)
    return True


def reading(**settings: object) -> Rig:
    """As `ready`; everything that was read is handled, and the first automatic commit is sent."""
    rig = ready(enable_auto_commit=True, auto_commit_interval_ms=1000, **settings)
    rig.core.polled(0.0, handled=True)
    committed(rig, 1.0)
    return rig


def kinds(rig: Rig) -> list[str]:
    return [notice.kind for notice in rig.core.notices]


def test_an_auto_commit_that_is_retried_is_reported_when_a_requests_time_has_passed() -> None:
    rig = reading(request_timeout_ms=30_000, default_api_timeout_ms=60_000)
    for tenth in range(299):
        responded(rig, tenth / 10, p0=14)
    assert kinds(rig) == []
    wake_at = rig.turn(30.95).next_poll_at
    assert wake_at is not None
    assert wake_at <= 31.0
    responded(rig, 30.0, p0=14)
    assert kinds(rig) == ["auto_commit_late"]
    assert "COORDINATOR_LOAD_IN_PROGRESS" in rig.core.notices[0].text
    assert "t-0=10" in rig.core.notices[0].text
    for tenth in range(301, 590):
        responded(rig, tenth / 10, p0=14)
    assert kinds(rig) == ["auto_commit_late"]


def test_it_is_reported_again_after_it_was_stored() -> None:
    rig = reading(request_timeout_ms=2_000, default_api_timeout_ms=60_000)
    for begins in (0, 100):
        for tenth in range(30):
            responded(rig, begins + tenth / 10, p0=14)
        assert responded(rig, begins + 10.0)
        while responded(rig, begins + 20.0):
            pass
        assert not len(rig.core.commits.queue)
        state = rig.core.positions.state(P0)
        rig.core.positions.consumed(P0, state.serial, state.offset + 1, 3)
        rig.core.polled(begins + 51.0, handled=True)
    assert kinds(rig) == ["auto_commit_late"] * 2


def test_each_partition_and_code_is_reported_once_until_it_is_stored() -> None:
    rig = reading()
    now = 0.0

    def next_commit(**codes: int) -> None:
        nonlocal now
        assert responded(rig, now, **codes)
        now += 1.0

    next_commit(p0=12)
    next_commit(p0=12)
    next_commit(p0=12)
    assert kinds(rig) == ["auto_commit_refused"]
    next_commit(p0=28)
    assert kinds(rig) == ["auto_commit_refused"] * 2
    next_commit()
    for partition in (P0, P1):
        state = rig.core.positions.state(partition)
        rig.core.positions.consumed(partition, state.serial, state.offset + 1, 3)
    rig.core.polled(now, handled=True)
    next_commit(p0=28, p1=28)
    assert kinds(rig) == ["auto_commit_refused"] * 3
    assert "t-0=11, t-1=1" in rig.core.notices[-1].text


@pytest.mark.parametrize("code", [29, 30])
def test_the_next_poll_raises_that_a_commit_is_not_allowed(code: int) -> None:
    rig = reading()
    assert rig.core.take_error() is None
    responded(rig, 0.0, p0=code)
    assert rig.core.has_updates
    error = rig.core.take_error()
    assert isinstance(error, AuthorizationFailed)
    assert error.place["group"] == "g"
    assert error.place.get("topic") == ("t" if code == 29 else None)
    responded(rig, 1.0, p0=code)
    assert rig.core.take_error() is None


def test_it_is_raised_of_a_topic_that_a_pattern_matched() -> None:
    settings = {"enable_auto_commit": True, "auto_commit_interval_ms": 50, "auto_offset_reset": "earliest"}
    with FakeBroker(topics={"t": 1}) as fake:
        fake.produce("t", 0, [(None, b"value")] * 5)
        control = fake.control("OffsetCommit", lambda _call: refuse_commits(29))
        with Consumer(fake.bootstrap, group="g", **settings) as consumer:  # type: ignore[arg-type]
            consumer.subscribe(pattern="t")
            with pytest.raises(AuthorizationFailed, match="not allowed to commit"):
                poll_until(consumer, lambda: False)
            control.remove()


def test_an_offset_that_is_dropped_with_its_topic_is_reported_once() -> None:
    settings = {"enable_auto_commit": True, "auto_commit_interval_ms": 20, "auto_offset_reset": "earliest"}
    with FakeBroker(topics={"t": 1}) as fake:
        fake.produce("t", 0, [(None, b"value")] * 5)
        with Consumer(fake.bootstrap, group="g", fetch_max_wait_ms=50, **settings) as consumer:  # type: ignore[arg-type]
            consumer.assign([P0])
            read(consumer, 5)
            fake.delete_topic("t")
            limit = time.monotonic() + PATIENCE_S
            while len(consumer.commit_log()) < 3:
                assert time.monotonic() < limit
                with suppress(UnknownTopic):
                    consumer.poll(0.05)
            dropped = [one.text for one in consumer.notices() if one.kind == "commit_dropped"]
            assert "auto_commit_refused" not in {one.kind for one in consumer.notices()}
    assert len(dropped) == 1
    assert dropped[0].endswith("t: 0=5")


@pytest.mark.proves("S-08")
def test_a_commit_whose_connection_ends_is_sent_again_once_the_coordinator_is_found() -> None:
    rig = ready()
    requested = rig.core.commits.put({P0: 7}, deadline=60.0)
    assert committed(rig) == {P0: (7, -1)}
    rig.settle("OffsetCommit", NoResponse(ConnectionFailed("the broker closed the connection")), 1.0)
    rig.turn(1.0)
    assert not requested.done()
    assert committed(rig, 2.0) == {P0: (7, -1)}
    assert responded(rig, 1.1)
    assert requested.result(0) is None


def test_a_commit_is_measured_from_its_request_to_its_response() -> None:
    rig = ready()
    rig.core.commits.put({P0: 7}, deadline=60.0)
    committed(rig, 1.0)
    assert rig.core.sensors.commit_ms.mean(1.0) is None
    assert responded(rig, 0.25)
    assert rig.core.sensors.commit_ms.mean(1.25) == 250.0


# --- callbacks


@pytest.mark.proves("S-08")
def test_callbacks_of_commits_that_share_a_partition_are_called_in_the_order_of_the_calls() -> None:
    rig, called = ready(), []

    def commit(name: str, *partitions: TopicPartition) -> None:
        rig.core.commits.put(
            dict.fromkeys(partitions, 1), deadline=60.0, on_done=lambda _offsets, _error: called.append(name)
        )

    def call_back() -> list[str]:
        while rig.core.commits.callbacks:
            rig.core.commits.callbacks.popleft()()
        return called

    commit("both", P0, P1)
    committed(rig)
    responded(rig, -1.0, p0=14)
    commit("other", P1)
    rig.turn(0.01)
    assert responded(rig, -0.99)  # it is stored, and overtakes the one that is retried
    commit("none")
    assert call_back() == ["none"]
    assert responded(rig, 1.0)
    assert call_back() == ["none", "both", "other"]
    commit("again", P1)
    assert responded(rig, 1.0)
    assert call_back()[3:] == ["again"]


@pytest.mark.proves("S-08")
def test_callbacks_that_waited_for_one_commit_are_called_in_the_order_of_the_calls() -> None:
    rig, called = ready(), []
    p2 = TopicPartition("t", 2)

    def commit(name: str, *partitions: TopicPartition) -> None:
        rig.core.commits.put(
            dict.fromkeys(partitions, 1), deadline=60.0, on_done=lambda _offsets, _error: called.append(name)
        )

    commit("all", P0, P1, p2)
    committed(rig)
    responded(rig, -1.0, p0=14)
    for name, partition in (("first", p2), ("second", P1)):
        commit(name, partition)
        rig.turn(0.01)
        assert responded(rig, -0.99)
    assert not rig.core.commits.callbacks  # all are stored, and wait for the one that is retried
    assert responded(rig, 1.0)
    while rig.core.commits.callbacks:
        rig.core.commits.callbacks.popleft()()
    assert called == ["all", "first", "second"]


@pytest.mark.proves("S-04")
def test_no_auto_commit_is_put_between_a_close_and_the_next_poll() -> None:
    """A close waits until no commit is under way; of a topic that is refused there would always be one."""
    rig = reading()
    assert responded(rig, 0.0, p0=12)
    rig.core.before_leave(60.0)
    assert responded(rig, 1.0, p0=12)  # what is handled of a manual assignment
    assert not any(responded(rig, float(second)) for second in range(2, 10))
    assert not rig.core.commits.owed
    rig.core.polled(11.0, handled=True)
    assert responded(rig, 11.0)


@pytest.mark.proves("E-05")
def test_a_refused_commit_shows_the_member_that_it_is_unknown_long_before_its_heartbeat() -> None:
    with (
        FakeBroker(topics={"t": 1}) as fake,
        Consumer(fake.bootstrap, group="g", heartbeat_interval_ms=60_000, session_timeout_ms=180_000) as consumer,
    ):
        consumer.subscribe(["t"])
        poll_until(consumer, lambda: consumer.assignment == {P0})
        fake.control("OffsetCommit", lambda _call: refuse_commits(25), times=1)
        joins = len(fake.calls_of("JoinGroup"))
        consumer.commit_async({P0: 1})
        poll_until(consumer, lambda: len(fake.calls_of("JoinGroup")) > joins)


@pytest.mark.proves("S-04")
@pytest.mark.parametrize("kind", [Consumer, AsyncConsumer])
def test_a_close_commits_what_was_read_of_a_manual_assignment(kind: type) -> None:
    async def run(fake: FakeBroker) -> None:
        consumer = kind(
            fake.bootstrap,
            group="g",
            enable_auto_commit=True,
            auto_commit_interval_ms=3_600_000,
            auto_offset_reset="earliest",
        )

        async def awaited(value: Any) -> Any:
            return await value if kind is AsyncConsumer else value

        consumer.assign([P0])
        records = 0
        async with asyncio.timeout(PATIENCE_S):
            while not records:
                records = sum(len(columns) for columns in await awaited(consumer.poll(0.5)))
        await awaited(consumer.poll(0.0))  # which says that they are handled
        await awaited(consumer.close())

    with FakeBroker(topics={"t": 1}) as fake:
        fake.produce("t", 0, [(None, b"v")])
        asyncio.run(run(fake))
        assert fake.group("g").offsets[P0].offset == 1


def in_a_group() -> Rig:
    """A core whose member has P0, assigned by another leader; its `on_assigned` has run."""
    rig = Rig(group="g")
    rig.core.unsubscribe()
    rig.core.subscribe(Subscription.of(["t"]))
    rig.turn(0.0)
    rig.settle("Metadata", ResponseReceived(metadata({0: 1, 1: 1}), 12), 0.0)
    found = FindCoordinatorResponse(error_code=0, node_id=2, host="b2", port=9092)
    rig.settle("FindCoordinator", ResponseReceived(found, 3), 0.0)
    rig.turn(0.0)
    joined = JoinGroupResponse(error_code=0, generation_id=1, protocol_name="range", leader="l", member_id="m")
    rig.settle("JoinGroup", ResponseReceived(joined, 9), 0.0)
    rig.turn(0.0)
    given = Assignment(assigned_partitions=(TopicPartitions(topic="t", partitions=(0,)),))
    rig.settle(
        "SyncGroup", ResponseReceived(SyncGroupResponse(error_code=0, assignment=build_assignment(given)), 5), 0.0
    )
    run_hook(rig, None, 0.0)
    return rig


def run_hook(rig: Rig, result: object, now: float) -> None:
    rig.turn(now)
    call = rig.core.take_hook(now)
    assert call is not None
    rig.core.hook_done(call, result, None, now)
    rig.turn(now)


@pytest.mark.parametrize("code", [0, 25])
def test_the_join_that_waits_for_a_commit_is_sent_in_the_turn_of_its_response(code: int) -> None:
    rig = in_a_group()
    rig.turn(4.0)
    rig.settle("Heartbeat", ResponseReceived(HeartbeatResponse(error_code=27), 4), 4.0)
    run_hook(rig, {P0: 7}, 4.0)
    one = OffsetCommitResponsePartition(partition_index=0, error_code=code)
    topic = OffsetCommitResponseTopic(name="t", partitions=(one,))
    rig.settle("OffsetCommit", ResponseReceived(OffsetCommitResponse(topics=(topic,)), VERSION), 4.0)
    assert "JoinGroup" in [one.request.api for one in rig.turn(4.0).requests]
