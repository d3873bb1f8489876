"""Waits with a limit that share a timer: each ends in its time, and a short one does not wait for a longer one."""

import asyncio

import pytest

from kohort import AsyncConsumer, AsyncShareConsumer
from kohort.network.timed_event import TimedEvent
from kohort.testing import FakeBroker

LONG_S = 3_600.0


def test_each_wait_ends_in_its_own_time() -> None:
    async def ends() -> list[str]:
        event, order = TimedEvent(), []

        async def wait(name: str, timeout_s: float) -> None:
            assert not await event.wait(timeout_s)
            order.append(name)

        await asyncio.gather(wait("second", 0.1), wait("first", 0.02), wait("third", 0.2))
        await wait("fourth", 0.01)
        return order

    assert asyncio.run(ends()) == ["first", "second", "third", "fourth"]


def test_a_set_ends_all_waits_and_the_next_ones() -> None:
    async def ends() -> list[bool]:
        event = TimedEvent()
        asyncio.get_running_loop().call_later(0.01, event.set)
        waits = await asyncio.gather(event.wait(LONG_S), event.wait(LONG_S))
        return [*waits, await event.wait(LONG_S)]

    assert asyncio.run(ends()) == [True, True, True]


def test_waits_that_are_woken_leave_one_timer() -> None:
    async def timers() -> int:
        loop, event = asyncio.get_running_loop(), TimedEvent()
        made = 0
        call_at = loop.call_at

        def counted(*given: object) -> asyncio.TimerHandle:
            nonlocal made
            made += 1
            return call_at(*given)  # type: ignore[arg-type]

        loop.call_at = counted  # type: ignore[method-assign, assignment]
        for _ in range(20):
            event.clear()
            loop.call_soon(event.set)
            assert await event.wait(LONG_S)
        event.clear()
        assert not await event.wait(0.01)
        return made

    assert asyncio.run(timers()) == 2


@pytest.mark.parametrize("kind", [AsyncConsumer, AsyncShareConsumer])
def test_a_close_whose_update_is_lost_looks_again(kind: type[AsyncConsumer] | type[AsyncShareConsumer]) -> None:
    """Ctrl-C may interrupt the event loop itself, which then has lost the function that it has just called."""

    async def main(address: str) -> None:
        client = kind(address, group="g")
        client.subscribe(["topic"])
        while not client.assignment:
            await client.poll(0.1)
        driver = client._session.driver if isinstance(client, AsyncConsumer) else client._driver
        driver.on_update = None
        await asyncio.wait_for(client.close(LONG_S), 60.0)

    with FakeBroker(topics={"topic": 1}) as fake:
        asyncio.run(main(fake.bootstrap))
