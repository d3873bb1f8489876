"""The first send of a producer waits for the topic's metadata, and is woken by it."""

import asyncio

import pytest

from kohort import AsyncProducer, Producer
from kohort.network import client_handle
from kohort.network._guard import Bell
from kohort.testing.fake_broker import FakeBroker


class WatchedBell:
    """A bell that keeps whether each wait ended by a ring."""

    def __init__(self, bell: Bell) -> None:
        self._bell = bell
        self.ended_by_ring: list[bool] = []

    @property
    def rings(self) -> int:
        return self._bell.rings

    def wait(self, seen: int, timeout_s: float) -> bool:
        rang = self._bell.wait(seen, timeout_s)
        self.ended_by_ring.append(rang)
        return rang


class WatchedDriver:
    """A driver as the caller sees it, with a watched bell. The network's thread keeps its own bell."""

    def __init__(self, driver: object, bell: WatchedBell) -> None:
        self._driver = driver
        self.bell = bell

    def __getattr__(self, name: str) -> object:
        return getattr(self._driver, name)


def test_metadata_wakes_the_first_send(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_handle, "LONGEST_WAIT_S", 30.0)
    with FakeBroker(topics={"t": 1}) as fake:
        for _ in range(10):
            with Producer(fake.bootstrap) as producer:
                watched = WatchedBell(producer._driver.bell)
                producer._handle._driver = WatchedDriver(producer._driver, watched)  # type: ignore[assignment]
                producer.send("t", b"v").result(30)
                assert watched.ended_by_ring
                assert all(watched.ended_by_ring)


def test_metadata_that_comes_as_the_time_ends_is_used() -> None:
    """The last look at it and the choice of an error are one step: the error would name a full buffer."""
    with FakeBroker(topics={"t": 1}) as fake, Producer(fake.bootstrap, max_block_ms=0) as producer:
        looks = iter([None, "found"])
        assert producer._when_there_is_room(lambda: next(looks), "t") == "found"

    async def program() -> None:
        async with AsyncProducer(fake.bootstrap, max_block_ms=0) as producer:
            looks = iter([None, "found"])
            assert await producer._when_there_is_room(lambda: next(looks), "t") == "found"

    with FakeBroker(topics={"t": 1}) as fake:
        asyncio.run(program())
