"""Several tasks and one AsyncConsumer: one gives up waiting, another closes it."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from kohort import AsyncConsumer
from kohort.testing.fake_broker import FakeBroker, Hold
from tests.coordinator_client.kit import PATIENCE_S


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(main(), PATIENCE_S))


def test_without_a_loop_there_is_no_consumer_and_nothing_is_left_of_it() -> None:
    before = set(threading.enumerate())
    with pytest.raises(RuntimeError, match="no running event loop"):
        AsyncConsumer("127.0.0.1:1")
    assert set(threading.enumerate()) <= before


def test_who_gives_up_waiting_for_the_groups_members_does_no_harm() -> None:
    async def main() -> None:
        with FakeBroker(topics={"topic": 1}) as fake:
            held = Hold()
            fake.control("DescribeGroups", lambda call: held, times=1)
            async with AsyncConsumer(fake.bootstrap, group="group") as consumer:
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(consumer.group_members(), 0.5)
                assert held.reached.is_set()
                held.release()
                assert await consumer.group_members() == ()  # by the driver that the first answer has met

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
