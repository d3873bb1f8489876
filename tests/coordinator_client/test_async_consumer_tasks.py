"""Several tasks and one AsyncConsumer: one gives up waiting, another closes it."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

import pytest

from kohort import AsyncConsumer
from kohort.common import KohortError, TopicPartition
from kohort.coordinator_client import Assigned, CallbackError, ConsumerClosed, RebalanceHooks, async_consumer
from kohort.network.errors import ConcurrentUseError, IllegalState
from kohort.testing.fake_broker import FakeBroker, Hold
from tests.coordinator_client.consumer_helpers import PATIENCE_S

FIRST = TopicPartition("topic", 0)


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(main(), PATIENCE_S))


def test_without_a_loop_there_is_no_consumer_and_nothing_is_left_of_it() -> None:
    before = set(threading.enumerate())
    with pytest.raises(RuntimeError, match="no running event loop"):
        AsyncConsumer("127.0.0.1:1")
    assert set(threading.enumerate()) <= before


def test_a_caller_that_gives_up_waiting_for_the_groups_members_does_no_harm() -> None:
    async def main() -> None:
        with FakeBroker(topics={"topic": 1}) as fake:
            held = Hold()
            fake.control("DescribeGroups", lambda call: held, times=1)
            async with AsyncConsumer(fake.bootstrap, group="group") as consumer:
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(consumer.group_members(), 0.5)
                assert held.reached.is_set()
                held.release()
                assert await consumer.group_members() == ()  # by the driver that the first response has met

    run(main)


@pytest.mark.parametrize("turns", range(5))
def test_a_poll_that_is_cancelled_as_records_arrive_is_cancelled(turns: int) -> None:
    async def main() -> None:
        with FakeBroker(topics={"topic": 1}) as fake:
            async with AsyncConsumer(fake.bootstrap) as consumer:
                consumer.assign([TopicPartition("topic", 0)])
                polling = asyncio.create_task(consumer.poll(PATIENCE_S))
                await asyncio.sleep(0.2)
                consumer._news.set()
                for _ in range(1 + turns):
                    await asyncio.sleep(0)
                polling.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await asyncio.wait_for(polling, 5)

    run(main)


@pytest.mark.proves("B-36")
def test_iteration_ends_when_another_task_closes_the_consumer() -> None:
    async def main() -> None:
        with FakeBroker(topics={"topic": 1}) as fake:
            consumer = AsyncConsumer(fake.bootstrap, group="group")
            consumer.subscribe(["topic"])

            async def iterate() -> None:
                async for _ in consumer:
                    pass

            iterating = asyncio.create_task(iterate())
            while not consumer.assignment:
                await asyncio.sleep(0.01)
            await consumer.close()
            await asyncio.wait_for(iterating, 5)

    run(main)


def test_lag_leaves_out_what_another_task_lets_go_meanwhile() -> None:
    kept, gone = TopicPartition("topic", 0), TopicPartition("topic", 1)

    async def main() -> None:
        with FakeBroker(topics={"topic": 2}) as fake:
            held = Hold()
            fake.control("ListOffsets", lambda call: held, times=1)
            async with AsyncConsumer(fake.bootstrap) as consumer:
                consumer.assign({kept: 0, gone: 0})
                consumer.pause()
                in_flight = asyncio.create_task(consumer.lag())
                while not held.reached.is_set():
                    await asyncio.sleep(0.01)
                consumer.assign([kept])
                held.release()
                assert await in_flight == {kept: 0}

    run(main)


Call = Callable[[AsyncConsumer], Coroutine[Any, Any, object]]
CALLS: dict[str, Call] = {
    "ListOffsets": lambda consumer: consumer.end_offsets([FIRST]),
    "OffsetFetch": lambda consumer: consumer.committed([FIRST]),
    "OffsetCommit": lambda consumer: consumer.commit({FIRST: 1}),
    "DescribeGroups": lambda consumer: consumer.group_members(),
    "Metadata": lambda consumer: consumer.topics(),
}


async def reached(held: Hold) -> None:
    """Let the new task begin its call, and wait until a request is held."""
    await asyncio.sleep(0)
    while not held.reached.is_set():
        await asyncio.sleep(0.01)


def ends_by_close(api: str, call: Call, assigned: Mapping[TopicPartition, int] | Sequence[TopicPartition]) -> None:
    """A call that waits for the response of `api` raises ConsumerClosed once another task has closed the consumer."""

    async def main() -> None:
        with FakeBroker(topics={"topic": 1}) as fake:
            held = Hold()
            fake.control(api, lambda call: held)
            consumer = AsyncConsumer(fake.bootstrap, group="group")
            consumer.assign(assigned)
            waiting = asyncio.create_task(call(consumer))
            await reached(held)
            await consumer.close(0.5)
            with pytest.raises(ConsumerClosed):
                await asyncio.wait_for(waiting, PATIENCE_S / 2)
            held.release()

    run(main)


@pytest.mark.proves("B-36")
@pytest.mark.parametrize("api", CALLS)
def test_a_call_that_waits_ends_when_another_task_closes_the_consumer(api: str) -> None:
    ends_by_close(api, CALLS[api], {FIRST: 0})


def test_a_position_that_another_task_waits_for_is_not_known_after_a_close() -> None:
    ends_by_close("OffsetFetch", lambda consumer: consumer.position(FIRST), [FIRST])


def test_a_position_is_returned_by_the_update_that_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(async_consumer, "QUIET_WAIT_S", 2 * PATIENCE_S)

    async def main() -> None:
        with FakeBroker(topics={"topic": 1}) as fake:
            held = Hold()
            fake.control("ListOffsets", lambda call: held, times=1)
            async with AsyncConsumer(fake.bootstrap) as consumer:
                consumer.assign([FIRST])
                waiting = asyncio.create_task(consumer.position(FIRST, 2 * PATIENCE_S))
                await reached(held)
                held.release()
                assert await waiting == 0

    run(main)


def test_a_call_that_waits_ends_with_the_driver() -> None:
    async def main() -> None:
        with FakeBroker(topics={"topic": 1}) as fake:
            held = Hold()
            fake.control("ListOffsets", lambda call: held)
            consumer = AsyncConsumer(fake.bootstrap)
            waiting = asyncio.create_task(consumer.end_offsets([FIRST]))
            await reached(held)
            consumer._session.core.poll = None  # type: ignore[assignment]
            consumer._session.driver.wakeup()
            with pytest.raises(KohortError, match="ended by a defect"):
                await asyncio.wait_for(waiting, PATIENCE_S / 2)
            held.release()
            await consumer.close()

    run(main)


def test_records_are_read_while_another_task_waits_for_something_else() -> None:
    async def main() -> None:
        with FakeBroker(topics={"topic": 1}) as fake:
            held = Hold()
            fake.control("ListOffsets", lambda call: held, times=1)
            async with AsyncConsumer(fake.bootstrap) as consumer:
                consumer.assign({FIRST: 0})
                waiting = asyncio.create_task(consumer.end_offsets([FIRST]))
                await reached(held)
                fake.produce("topic", 0, [(None, b"one")])
                (columns,) = await consumer.poll(PATIENCE_S)
                assert len(columns) == 1
                polling = asyncio.create_task(consumer.poll(PATIENCE_S))
                await asyncio.sleep(0)
                with pytest.raises(ConcurrentUseError, match="another task"):
                    await consumer.poll()
                polling.cancel()
                held.release()
                assert await waiting == {FIRST: 1}

    run(main)


class Slow(RebalanceHooks):
    """Takes the partitions that arrive once it is let."""

    def __init__(self) -> None:
        self.runs, self.may_end = asyncio.Event(), asyncio.Event()

    async def on_assigned(self, event: Assigned) -> None:
        self.runs.set()
        await self.may_end.wait()


@pytest.mark.proves("B-36")
@pytest.mark.parametrize("part", [AsyncConsumer.close, AsyncConsumer.unsubscribe])
def test_a_leave_while_a_hook_of_another_task_runs_waits_for_its_end(
    part: Callable[[AsyncConsumer], Coroutine[Any, Any, None]],
) -> None:
    async def main() -> None:
        with FakeBroker(topics={"topic": 1}) as fake:
            async with AsyncConsumer(fake.bootstrap, group="group") as consumer:
                consumer.subscribe(["topic"], hooks=(hooks := Slow()))
                polling = asyncio.create_task(consumer.poll(PATIENCE_S))
                await hooks.runs.wait()
                asyncio.get_running_loop().call_later(0.2, hooks.may_end.set)
                await part(consumer)
                assert hooks.may_end.is_set()
                assert not fake.group("group").members
                polling.cancel()  # unless it has ended with the consumer
                await asyncio.wait([polling])

    run(main)


@pytest.mark.proves("B-36")
def test_a_close_does_not_wait_for_ever_for_a_hook_nor_for_its_own() -> None:
    class Closes(RebalanceHooks):
        def __init__(self, consumer: AsyncConsumer) -> None:
            self.consumer = consumer

        async def on_assigned(self, event: Assigned) -> None:
            await self.consumer.close()

    async def main() -> None:
        with FakeBroker(topics={"topic": 1}) as fake:
            async with AsyncConsumer(fake.bootstrap, group="group") as consumer:
                consumer.subscribe(["topic"], hooks=Closes(consumer))
                with pytest.raises(CallbackError):
                    await consumer.poll(PATIENCE_S)
                consumer.subscribe(["topic"], hooks=(hooks := Slow()))
                consumer.enforce_rebalance()
                polling = asyncio.create_task(consumer.poll(PATIENCE_S))
                await hooks.runs.wait()
                with pytest.raises(CallbackError):
                    await consumer.close(0.1)
                polling.cancel()
                await asyncio.wait([polling])

    run(main)


def test_a_call_while_a_hook_of_another_task_runs_is_a_concurrent_use() -> None:
    async def main() -> None:
        with FakeBroker(topics={"topic": 1}) as fake:
            async with AsyncConsumer(fake.bootstrap, group="group") as consumer:
                consumer.subscribe(["topic"], hooks=(hooks := Slow()))
                polling = asyncio.create_task(consumer.poll(0.1))
                await hooks.runs.wait()
                for call in (consumer.poll(), anext(aiter(consumer))):
                    with pytest.raises(ConcurrentUseError, match="another task is polling"):
                        await call
                for change in (
                    lambda: consumer.subscribe(["other"]),
                    lambda: consumer.assign([FIRST]),
                    lambda: consumer.replace_hooks(RebalanceHooks()),
                ):
                    with pytest.raises(ConcurrentUseError, match="another task is polling"):
                        change()
                hooks.may_end.set()
                assert await polling == []

    run(main)


async def made(fake: FakeBroker) -> AsyncConsumer:
    """A member of the group that has read a record."""
    fake.produce("topic", 0, [(None, b"one")])
    consumer = AsyncConsumer(fake.bootstrap, group="group", auto_offset_reset="earliest")
    consumer.subscribe(["topic"])
    assert await consumer.poll(PATIENCE_S)
    return consumer


ELSEWHERE: dict[str, Call] = CALLS | {
    "poll": lambda consumer: consumer.poll(),
    "iteration": lambda consumer: anext(aiter(consumer)),
    "position": lambda consumer: consumer.position(FIRST),
    "partitions_for": lambda consumer: consumer.partitions_for("topic"),
    "unsubscribe": lambda consumer: consumer.unsubscribe(),
}


@pytest.mark.proves("B-36")
def test_calls_in_another_loop_raise_illegal_state_and_a_close_there_leaves_the_group() -> None:
    async def used(consumer: AsyncConsumer, call: Call) -> None:
        with pytest.raises(IllegalState, match="an AsyncConsumer belongs to the event loop that it was made in"):
            await asyncio.wait_for(call(consumer), PATIENCE_S)

    with FakeBroker(topics={"topic": 1}) as fake:
        consumer = asyncio.run(made(fake))
        for call in ELSEWHERE.values():
            asyncio.run(used(consumer, call))
        asyncio.run(asyncio.wait_for(consumer.close(3600.0), PATIENCE_S / 2))
        assert fake.calls_of("OffsetCommit") == []
        assert fake.group("group").members == {}


def test_a_close_in_another_loop_is_refused_while_the_first_one_runs() -> None:
    async def main() -> None:
        with FakeBroker(topics={"topic": 1}) as fake:
            consumer = await made(fake)
            with pytest.raises(IllegalState, match="event loop"):
                await asyncio.to_thread(asyncio.run, consumer.close())
            await consumer.close()
            assert fake.group("group").members == {}

    run(main)
