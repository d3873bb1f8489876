"""The calls that a callback may make of its own consumer: those that wait for the group are not allowed."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from kohort import AsyncConsumer, Consumer, RebalanceHooks, TopicPartition
from kohort.coordinator_client import Assigned, CallbackError
from kohort.coordinator_client.consumer_settings import GroupProtocol
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


class Begins(RebalanceHooks):
    """Makes calls as partitions come."""

    def __init__(self, *calls: Callable[[Consumer], object]) -> None:
        self.consumer: Consumer | None = None
        self.calls = calls

    def on_assigned(self, event: Assigned) -> None:
        assert self.consumer is not None
        for call in self.calls:
            call(self.consumer)


def first_offset(hooks: Begins, protocol: GroupProtocol, committed: int | None, reset: str = "earliest") -> int:
    with FakeBroker(topics={"t": 1}) as fake:
        fake.produce("t", 0, [(None, b"v")] * 5)
        if committed is not None:
            fake.commit("g", {P0: committed})
        with Consumer(fake.bootstrap, group="g", protocol=protocol, auto_offset_reset=reset) as consumer:
            hooks.consumer = consumer
            consumer.subscribe(["t"], hooks=hooks)
            return next(iter(consumer)).offsets[0]


@pytest.mark.proves("G-11")
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("committed", [None, 1, 3])
@pytest.mark.parametrize("looks", [False, True])
def test_a_commit_inside_on_assigned_moves_the_start(
    protocol: GroupProtocol, committed: int | None, looks: bool
) -> None:
    calls: list[Callable[[Consumer], object]] = [lambda c: c.commit({P0: 2}, allow_rewind=True)]
    if looks:
        calls.insert(0, lambda c: c.position(P0))  # the committed offset has been requested before the hook
    assert first_offset(Begins(*calls), protocol, committed) == 2


def test_a_commit_inside_on_assigned_begins_a_group_without_a_reset_policy() -> None:
    assert first_offset(Begins(lambda c: c.commit({P0: 2})), "classic", None, reset="none") == 2


@pytest.mark.parametrize("order", [1, -1])
def test_a_seek_beside_a_commit_inside_on_assigned_is_the_start(order: int) -> None:
    calls: list[Callable[[Consumer], object]] = [lambda c: c.commit({P0: 2}), lambda c: c.seek(P0, 4)]
    assert first_offset(Begins(*calls[::order]), "classic", None) == 4
