"""The calls that a callback may make of its own consumer: those that wait for the group are not allowed."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from kohort import AsyncConsumer, Consumer, RebalanceHooks, TopicPartition
from kohort.coordinator_client import Assigned, CallbackError
from kohort.testing import FakeBroker
from tests.coordinator_client.consumer_helpers import PATIENCE_S, poll_until

P0 = TopicPartition("t", 0)

REFUSED: dict[str, Callable[[Any], object]] = {
    "poll": lambda c: c.poll(0.0),
    "iteration": lambda c: next(iter(c)),
    "subscribe": lambda c: c.subscribe(["t"]),
    "assign": lambda c: c.assign([P0]),
    "unsubscribe": lambda c: c.unsubscribe(),
    "close": lambda c: c.close(),
}
REFUSED_ASYNC: dict[str, Callable[[Any], Any]] = {
    "poll": lambda c: c.poll(0.0),
    "iteration": lambda c: anext(aiter(c)),
    "unsubscribe": lambda c: c.unsubscribe(),
    "close": lambda c: c.close(),
}
ALLOWED: dict[str, Callable[[Any], object]] = {
    "assignment": lambda c: c.assignment,
    "pause": lambda c: c.pause([P0]),
    "seek": lambda c: c.seek(P0, 0),
    "commit_async": lambda c: c.commit_async({P0: 0}),
    "metrics": lambda c: c.metrics(),
}


class Calls(RebalanceHooks):
    """Makes a call as partitions come, and keeps what it raised."""

    def __init__(self) -> None:
        self.call: Callable[[], object] = lambda: None
        self.raised: list[Exception | None] = []

    def on_assigned(self, event: Assigned) -> None:
        try:
            self.call()
        except Exception as error:
            self.raised.append(error)
        else:
            self.raised.append(None)


class Awaits(Calls):
    async def on_assigned(self, event: Assigned) -> None:  # type: ignore[override]
        try:
            await self.call()  # type: ignore[misc]
        except Exception as error:
            self.raised.append(error)
        else:
            self.raised.append(None)


@pytest.mark.parametrize("name", [*REFUSED, *ALLOWED])
def test_a_callback_may_not_wait_for_what_waits_for_it(name: str) -> None:
    hooks = Calls()
    with FakeBroker(topics={"t": 1}) as fake:
        fake.produce("t", 0, [(None, b"v")])
        with Consumer(fake.bootstrap, group="g", auto_offset_reset="earliest") as consumer:
            hooks.call = lambda: (REFUSED | ALLOWED)[name](consumer)
            consumer.subscribe(["t"], hooks=hooks)
            poll_until(consumer, lambda: bool(hooks.raised))
            (raised,) = hooks.raised
            assert isinstance(raised, CallbackError) if name in REFUSED else raised is None
            assert consumer.assignment == {P0}


@pytest.mark.parametrize("name", REFUSED_ASYNC)
def test_a_coroutine_callback_may_not_either(name: str) -> None:
    hooks = Awaits()

    async def run() -> None:
        with FakeBroker(topics={"t": 1}) as fake:
            fake.produce("t", 0, [(None, b"v")])
            async with AsyncConsumer(fake.bootstrap, group="g", auto_offset_reset="earliest") as consumer:
                hooks.call = lambda: REFUSED_ASYNC[name](consumer)
                consumer.subscribe(["t"], hooks=hooks)
                async with asyncio.timeout(PATIENCE_S):
                    while not hooks.raised:
                        await consumer.poll(0.1)
                assert consumer.assignment == {P0}

    asyncio.run(run())
    (raised,) = hooks.raised
    assert isinstance(raised, CallbackError)
