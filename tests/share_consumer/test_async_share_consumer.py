"""AsyncShareConsumer on the fake broker: the same calls, awaited; cancelled tasks lose nothing."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from kohort import AsyncShareConsumer, TopicPartition
from kohort.network.errors import ConcurrentUseError, IllegalState, OperationTimeout
from kohort.protocol.errors import ErrorCode
from kohort.share_consumer import AcknowledgeOutcome, ShareConsumerClosed
from kohort.testing import FakeBroker
from kohort.testing.fake_broker import Hold, OffsetState

PATIENCE_S = 60.0
GROUP, TOPIC = "jobs", "work"
P0 = TopicPartition(TOPIC, 0)
Use = Callable[[AsyncShareConsumer], Awaitable[None]]


@pytest.fixture
def fake() -> Iterator[FakeBroker]:
    with FakeBroker(topics={TOPIC: 1}) as broker:
        broker.configure_group(GROUP, {"share.auto.offset.reset": "earliest"})
        broker.produce(TOPIC, 0, [(b"", b"%d" % number) for number in range(10)])
        yield broker
        assert broker.faults == []


def run(fake: FakeBroker, use: Use, **settings: Any) -> None:
    """Run `use` with a member of the group."""

    async def main() -> None:
        async with AsyncShareConsumer(fake.bootstrap, group=GROUP, **settings) as consumer:
            consumer.subscribe([TOPIC])
            await use(consumer)

    asyncio.run(main())


def settled(fake: FakeBroker) -> bool:
    return fake.share_states(GROUP, TOPIC, 0) == (10, {})


def test_records_are_polled_acknowledged_and_committed(fake: FakeBroker) -> None:
    seen: list[AcknowledgeOutcome] = []

    async def use(consumer: AsyncShareConsumer) -> None:
        (batch,) = await consumer.poll(PATIENCE_S)
        for record in batch:
            consumer.acknowledge(record, "release" if record.offset == 3 else "accept")
        assert await consumer.commit() == {}
        (again,) = await consumer.poll(PATIENCE_S)
        assert (list(again.columns.offsets), again.delivery_count) == ([3], 2)
        assert await consumer.commit() == {}

    run(fake, use, on_acknowledged=seen.append)
    types = b"\1" * 3 + b"\2" + b"\1" * 6
    assert seen == [AcknowledgeOutcome(P0, 0, 9, None, types), AcknowledgeOutcome(P0, 3, 3, None, b"\1")]
    assert settled(fake)
    assert fake.share_group(GROUP).members == {}


@pytest.mark.proves("SH-68")
def test_iteration_accepts_the_batch_before(fake: FakeBroker) -> None:
    async def use(consumer: AsyncShareConsumer) -> None:
        count = 0
        async for batch in consumer:
            count += len(batch)
            if count == 6:
                break

    run(fake, use, max_poll_records=3, acquire_mode="record_limit")
    start, states = fake.share_states(GROUP, TOPIC, 0)
    assert (start, states[3]) == (3, (OffsetState.AVAILABLE, 1))


def test_a_poll_that_is_cancelled_loses_no_record(fake: FakeBroker) -> None:
    async def use(consumer: AsyncShareConsumer) -> None:
        (batch,) = await consumer.poll(PATIENCE_S)
        consumer.acknowledge(batch)
        waiting = asyncio.create_task(consumer.poll(PATIENCE_S))
        await asyncio.sleep(0.05)
        with pytest.raises(ConcurrentUseError):
            await consumer.poll(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        fake.produce(TOPIC, 0, [(b"", b"late")])
        (late,) = await consumer.poll(PATIENCE_S)
        assert [record.value for record in late] == [b"late"]

    run(fake, use)


def test_commit_times_out_and_the_loop_runs_meanwhile(fake: FakeBroker) -> None:
    hold = Hold(after_work=False)

    async def use(consumer: AsyncShareConsumer) -> None:
        await consumer.poll(PATIENCE_S)
        fake.control("ShareAcknowledge", lambda _call: hold, times=1)
        commit = asyncio.create_task(consumer.commit(0.1))
        await asyncio.sleep(0.01)
        assert not commit.done()
        with pytest.raises(OperationTimeout):
            await commit
        hold.release()
        assert await consumer.commit(PATIENCE_S) == {}

    run(fake, use)
    assert settled(fake)


def test_close_ends_a_poll_of_another_task(fake: FakeBroker) -> None:
    async def use(consumer: AsyncShareConsumer) -> None:
        await consumer.poll(PATIENCE_S)
        waiting = asyncio.create_task(consumer.poll(PATIENCE_S))
        await asyncio.sleep(0.05)
        await consumer.close()
        assert await waiting == []
        await consumer.close()
        with pytest.raises(ShareConsumerClosed):
            await consumer.poll(0)

    run(fake, use)


def test_close_ends_a_commit_of_another_task(fake: FakeBroker) -> None:
    async def use(consumer: AsyncShareConsumer) -> None:
        (batch,) = await consumer.poll(PATIENCE_S)
        consumer.acknowledge(batch)
        fake.control("ShareAcknowledge", lambda _call: Hold(after_work=False))
        commit = asyncio.create_task(consumer.commit(3600.0))
        await asyncio.sleep(0.05)
        await consumer.close(0.1)
        with pytest.raises(ShareConsumerClosed):
            await asyncio.wait_for(commit, PATIENCE_S)

    run(fake, use, acknowledgement_mode="explicit")


def test_it_needs_a_running_loop(fake: FakeBroker) -> None:
    with pytest.raises(RuntimeError, match="no running event loop"):
        AsyncShareConsumer(fake.bootstrap, group=GROUP)


def test_explicit_mode_refuses_as_the_blocking_one(fake: FakeBroker) -> None:
    async def use(consumer: AsyncShareConsumer) -> None:
        (batch,) = await consumer.poll(PATIENCE_S)
        with pytest.raises(IllegalState, match="10 records"):
            await consumer.poll(0)
        consumer.acknowledge(batch, "reject")
        assert await consumer.commit() == {}

    run(fake, use, acknowledgement_mode="explicit")
    assert settled(fake)


def test_a_commit_that_ends_after_a_poll_of_another_task_keeps_its_records() -> None:
    hold = Hold()
    broker = FakeBroker(topics={TOPIC: 2}, nodes=2)

    async def use(consumer: AsyncShareConsumer) -> None:
        (batch,) = await consumer.poll(PATIENCE_S)
        consumer.acknowledge(batch)
        broker.control("ShareAcknowledge", lambda _call: hold, times=1)
        commit = asyncio.create_task(consumer.commit())
        assert await asyncio.to_thread(hold.reached.wait, PATIENCE_S)
        broker.produce(TOPIC, 1, [(b"", b"other")])
        (other,) = await consumer.poll(PATIENCE_S)
        hold.release()
        assert await commit == {}
        consumer.acknowledge(other)
        assert await consumer.poll(0) == []

    with broker:
        broker.configure_group(GROUP, {"share.auto.offset.reset": "earliest"})
        for partition in range(2):
            broker.set_leader(TOPIC, partition, partition + 1)
        broker.produce(TOPIC, 0, [(b"", b"one")])
        run(broker, use, acknowledgement_mode="explicit")


@pytest.mark.proves("SH-63")
def test_a_failure_is_returned_once_though_a_poll_of_another_task_ends_after_the_commit(fake: FakeBroker) -> None:
    async def use(consumer: AsyncShareConsumer) -> None:
        await consumer.poll(PATIENCE_S)
        fake.fail_share_write(GROUP, TOPIC, 0, ErrorCode.INVALID_REQUEST)
        waiting = asyncio.create_task(consumer.poll(PATIENCE_S))
        await asyncio.sleep(0)
        assert len((await consumer.commit())[P0]) == 10
        fake.produce(TOPIC, 0, [(b"", b"late")])
        assert await waiting
        assert await consumer.commit() == {}

    run(fake, use, fetch_max_wait_ms=50)


def test_a_second_poll_that_is_refused_does_not_end_the_first_one_s_requests(fake: FakeBroker) -> None:
    async def use(consumer: AsyncShareConsumer) -> None:
        await consumer.poll(PATIENCE_S)
        waiting = asyncio.create_task(consumer.poll(PATIENCE_S))
        await asyncio.sleep(0)
        with pytest.raises(ConcurrentUseError):
            await consumer.poll(0)
        fetches = len(fake.calls_of("ShareFetch"))
        async with asyncio.timeout(PATIENCE_S):
            while len(fake.calls_of("ShareFetch")) < fetches + 3:
                await asyncio.sleep(0.01)
        waiting.cancel()

    run(fake, use, fetch_max_wait_ms=20)


def test_a_paused_member_requests_no_records_until_it_is_resumed(fake: FakeBroker) -> None:
    async def use(consumer: AsyncShareConsumer) -> None:
        consumer.pause()
        while not consumer.assignment:
            assert await consumer.poll(0.02) == []
        assert await consumer.poll(0.1) == []
        assert fake.calls_of("ShareFetch") == []
        consumer.resume()
        (batch,) = await consumer.poll(PATIENCE_S)
        assert len(batch) == 10

    run(fake, use)


async def made(fake: FakeBroker) -> AsyncShareConsumer:
    """A member of the group that has ten records."""
    consumer = AsyncShareConsumer(fake.bootstrap, group=GROUP)
    consumer.subscribe([TOPIC])
    assert await consumer.poll(PATIENCE_S)
    return consumer


@pytest.mark.proves("SH-68")
def test_calls_in_another_loop_raise_illegal_state_and_a_close_there_leaves_the_group(fake: FakeBroker) -> None:
    calls: list[Callable[[AsyncShareConsumer], Awaitable[object]]] = [
        lambda consumer: consumer.poll(),
        lambda consumer: anext(aiter(consumer)),
        lambda consumer: consumer.commit(),
    ]

    async def used(consumer: AsyncShareConsumer, call: Callable[[AsyncShareConsumer], Awaitable[object]]) -> None:
        with pytest.raises(IllegalState, match="an AsyncShareConsumer belongs to the event loop that it was made in"):
            await asyncio.wait_for(call(consumer), PATIENCE_S)

    consumer = asyncio.run(made(fake))
    for call in calls:
        asyncio.run(used(consumer, call))
    asyncio.run(asyncio.wait_for(consumer.close(3600.0), PATIENCE_S / 2))
    assert fake.share_group(GROUP).members == {}
    assert fake.share_states(GROUP, TOPIC, 0)[0] == 0  # released


def test_a_close_in_another_loop_is_refused_while_the_first_one_runs(fake: FakeBroker) -> None:
    async def use(consumer: AsyncShareConsumer) -> None:
        with pytest.raises(IllegalState, match="event loop"):
            await asyncio.to_thread(asyncio.run, consumer.close())
        assert await consumer.poll(PATIENCE_S)

    run(fake, use)
