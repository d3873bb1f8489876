"""Sockets that an asyncio loop serves for an AsyncConsumer, and the driver's thread while the loop is blocked."""

import asyncio
import gc
import os
import random
import select
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest

from kohort import AsyncConsumer, TopicPartition
from kohort.network.errors import WakeupError
from kohort.testing import FakeBroker
from tests.network.steady_peer import STEADY, Feed, Peer, descriptors, python_calls

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="sockets are leased on Linux only")
LIMIT_S = 60.0
P0, P1 = (TopicPartition("t", number) for number in range(2))


class Looped:
    """A peer whose socket an event loop has, after three responses with records."""

    def __init__(self) -> None:
        self.peer = peer = Peer(*[b"%d" % number for number in range(STEADY)])
        self.fd = peer.lease.open()
        peer.lend()
        self.announced = 0

    def is_readable(self) -> bool:
        return bool(select.select([self.fd], [], [], 0.0)[0])

    def announce(self) -> None:
        self.announced += 1

    def serve(self) -> None:
        self.peer.lease.serve_ready(self.announce)


@pytest.fixture
def looped() -> Iterator[Looped]:
    made = Looped()
    yield made
    made.peer.close()


def test_a_leased_socket_is_served_by_the_loop_alone(looped: Looped) -> None:
    peer = looped.peer
    assert not looped.is_readable()
    peer.bodies = [b"more"]
    peer.theirs.send(peer.respond())
    assert looped.is_readable()
    assert peer.wait() == []
    assert peer.offered == STEADY
    looped.serve()
    assert peer.theirs.recv(4096).endswith(b"more")
    assert looped.announced == 1
    assert peer.lease.size == 1
    assert not looped.is_readable()


def test_a_response_without_news_is_not_announced(looped: Looped) -> None:
    peer = looped.peer
    peer.core.has_updates = False
    peer.bodies = [b"more"]
    peer.theirs.send(peer.respond())
    looped.serve()
    assert peer.offered == STEADY + 1
    assert looped.announced == 0


@pytest.mark.parametrize("why", ["unusual", "closed"])
def test_what_is_unusual_is_left_to_a_turn(looped: Looped, why: str) -> None:
    peer = looped.peer
    if why == "unusual":
        peer.bodies = [None, None]
        peer.theirs.send(peer.respond())
    else:
        peer.theirs.close()
    looped.serve()
    assert peer.lease.size == 0
    assert peer.owner in peer.wait()
    assert not looped.is_readable()


def test_a_connection_that_ends_while_the_loop_is_blocked_is_left_to_a_turn(looped: Looped) -> None:
    peer = looped.peer
    peer.theirs.close()
    assert peer.wait(LIMIT_S) == [peer.owner]
    assert peer.lease.size == 0


def test_a_turn_reclaims_a_socket_from_the_loop(looped: Looped) -> None:
    peer = looped.peer
    with peer.lease.guard:
        peer.poller.reclaim(peer.ours)
    peer.bodies = [b"more"]
    peer.theirs.send(peer.respond())
    assert not looped.is_readable()
    looped.serve()
    assert peer.offered == STEADY
    assert peer.wait() == []
    assert peer.offered == STEADY + 1


def test_what_is_given_back_is_lent_again(looped: Looped) -> None:
    peer = looped.peer
    peer.lease.give_back()
    peer.bodies = [b"more"] * STEADY
    peer.lend()


def test_a_loop_that_serves_keeps_the_socket(looped: Looped) -> None:
    peer = looped.peer
    began = time.monotonic()
    while time.monotonic() < began + 1.5:
        peer.bodies = [b"more"]
        peer.theirs.send(peer.respond())
        served_at = time.monotonic()
        looped.serve()
        assert peer.wait(0.1) == []
        assert peer.lease.size == 1 or time.monotonic() > served_at + 1.0


def test_the_driver_s_thread_goes_on_while_the_loop_is_blocked(looped: Looped) -> None:
    peer = looped.peer
    peer.bodies = [b"more"]
    peer.theirs.send(peer.respond())
    deadline = time.monotonic() + LIMIT_S
    while peer.offered == STEADY:
        assert peer.wait(1.0) == []
        assert time.monotonic() < deadline
    assert peer.lease.size == 0
    assert not looped.is_readable()


# --- a consumer


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker(topics={"t": 2}) as made:
        yield made


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(main(), LIMIT_S))


@asynccontextmanager
async def leased(broker: FakeBroker) -> AsyncIterator[tuple[AsyncConsumer, int]]:
    """A consumer that has read so many records of a partition that its loop serves its connection."""
    async with AsyncConsumer(broker.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([P0])
        lease, number = consumer._session.driver.lease, 0
        while not lease.size:
            asyncio.get_running_loop().call_later(0.01, broker.produce, "t", 0, [(None, b"%d" % number)])
            assert await values(consumer) == [b"%d" % number]
            number += 1
        yield consumer, number


async def values(consumer: AsyncConsumer) -> list[bytes | None]:
    """The values of the next records."""
    while not (found := [record.value for columns in await consumer.poll() for record in columns]):
        pass
    return found


def counted(owner: object, name: str, monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """A list that grows by each call of a method."""
    calls: list[None] = []
    method = getattr(owner, name)

    def call() -> Any:
        calls.append(None)
        return method()

    monkeypatch.setattr(owner, name, call)
    return calls


def test_no_python_function_runs_in_the_loop_s_service(broker: FakeBroker) -> None:
    """A signal handler would run there, and could raise between two changes."""

    async def main() -> None:
        async with leased(broker) as (consumer, read):
            driver = consumer._session.driver
            driver.core.has_updates = False
            broker.produce("t", 0, [(None, b"%d" % read)])
            news: list[None] = []
            announce = partial(news.append, None)

            def until_served() -> None:
                while not news:
                    driver.lease.serve_ready(announce)

            assert python_calls(until_served) == []
            assert driver.lease.size == 1
            assert await values(consumer) == [b"%d" % read]

    run(main)


def test_a_record_of_a_leased_socket_takes_no_wait_of_the_driver(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with leased(broker) as (consumer, read):
            driver, loop = consumer._session.driver, asyncio.get_running_loop()
            assert driver._loop is not None
            waits = counted(driver._loop, "_wait", monkeypatch)
            quick = 0
            while quick < 30:
                began, before = time.monotonic(), len(waits)
                loop.call_later(0.001, broker.produce, "t", 0, [(None, b"%d" % read)])
                assert await values(consumer) == [b"%d" % read]
                read += 1
                if time.monotonic() - began < 0.5:  # the lease of a loop that was away longer ends
                    quick += 1
                else:
                    del waits[before:]
            assert len(waits) <= 3, "some waits end by timers"

    run(main)


def test_a_response_without_records_wakes_no_task(broker: FakeBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with AsyncConsumer(broker.bootstrap, auto_offset_reset="earliest", fetch_max_wait_ms=20) as consumer:
            consumer.assign([P0])
            lease = consumer._session.driver.lease
            while not lease.size:
                broker.produce("t", 0, [(None, b"v")])
                assert await values(consumer)
            polling = asyncio.create_task(consumer.poll(LIMIT_S))
            await asyncio.sleep(0.1)
            looks = counted(consumer._news, "clear", monkeypatch)
            fetches = len(broker.calls_of("Fetch"))
            while len(broker.calls_of("Fetch")) < fetches + 5:
                await asyncio.sleep(0.01)
            assert looks == []
            broker.produce("t", 0, [(None, b"last")])
            assert [record.value for columns in await polling for record in columns] == [b"last"]

    run(main)


def test_a_blocked_loop_costs_only_time(broker: FakeBroker) -> None:
    async def main() -> None:
        async with leased(broker) as (consumer, read):
            lease, core = consumer._session.driver.lease, consumer._session.core
            core.has_updates = False
            broker.produce("t", 0, [(None, b"%d" % read)])
            deadline = time.monotonic() + LIMIT_S
            while lease.size:  # blocks the loop until the driver's thread has its socket again
                assert time.monotonic() < deadline
                time.sleep(0.01)
            while not core.has_updates:
                assert time.monotonic() < deadline
                time.sleep(0.01)
            assert await values(consumer) == [b"%d" % read]

    run(main)


def test_a_wakeup_ends_a_poll_whose_sockets_the_loop_serves(broker: FakeBroker) -> None:
    async def main() -> None:
        async with leased(broker) as (consumer, _read):
            asyncio.get_running_loop().call_later(0.05, consumer.wakeup)
            with pytest.raises(WakeupError):
                await consumer.poll(LIMIT_S / 2)

    run(main)


def test_a_broker_that_goes_away_ends_the_lease_and_records_go_on(broker: FakeBroker) -> None:
    async def main() -> None:
        async with leased(broker) as (consumer, read):
            broker.disconnect()
            broker.produce("t", 0, [(None, b"%d" % read)])
            assert await values(consumer) == [b"%d" % read]

    run(main)


def all_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.filterwarnings("ignore:unclosed consumer:ResourceWarning")
@pytest.mark.parametrize("closes", [True, False])
def test_a_consumer_that_ends_leaves_no_reader_in_the_loop(broker: FakeBroker, closes: bool) -> None:
    async def read_some() -> None:
        consumer = AsyncConsumer(broker.bootstrap, auto_offset_reset="earliest")
        consumer.assign([P0])
        assert await values(consumer)
        if closes:
            await consumer.close()

    async def main() -> None:
        broker.produce("t", 0, [(None, b"v")])
        await read_some()  # what stays for all consumers
        gc.collect()
        await asyncio.sleep(0.5)
        before = all_descriptors()
        for _ in range(3):
            await read_some()
        gc.collect()
        while all_descriptors() > before:
            await asyncio.sleep(0.01)

    run(main)


def test_a_closed_consumer_keeps_no_descriptor(broker: FakeBroker) -> None:
    async def main() -> None:
        before = descriptors("eventpoll")
        async with AsyncConsumer(broker.bootstrap) as consumer:
            assert descriptors("eventpoll") == before + 2  # that of its driver's thread, and that of the loop
        assert descriptors("eventpoll") == before
        await consumer.close()  # it has no effect, and keeps the consumer until here

    run(main)


@pytest.mark.filterwarnings("ignore:unclosed consumer:ResourceWarning")
def test_a_consumer_that_outlives_its_loop_ends(broker: FakeBroker) -> None:
    left: list[AsyncConsumer] = []

    async def main() -> None:
        consumer = AsyncConsumer(broker.bootstrap, auto_offset_reset="earliest")
        consumer.assign([P0])
        broker.produce("t", 0, [(None, b"v")])
        assert await values(consumer)
        left.append(consumer)

    run(main)
    ended = left[0]._session.driver.ended
    left.clear()
    gc.collect()
    assert ended.wait(LIMIT_S)


@pytest.mark.parametrize("seed", range(3))
def test_every_record_comes_once_and_in_order_whatever_is_done_between(seed: int, broker: FakeBroker) -> None:
    """Large and small records in two partitions, pauses, cancelled polls, blocked loops and wake-ups."""
    chance = random.Random(seed)
    feed = Feed(broker, -seed, 400)

    async def poll(consumer: AsyncConsumer) -> None:
        feed.take(await consumer.poll(chance.choice([0.0, 0.002, 0.05, 0.2])))

    async def main() -> None:
        leases = 0
        async with AsyncConsumer(broker.bootstrap, auto_offset_reset="earliest") as consumer:
            consumer.assign([P0, P1])
            while feed.unread:
                kind = chance.random()
                if kind < 0.02:
                    consumer.pause([P0])
                elif kind < 0.06:
                    consumer.resume([P0, P1])
                elif kind < 0.07:
                    consumer.seek(P1, feed.read[1])
                elif kind < 0.08:
                    time.sleep(0.15)  # as a handler that blocks the loop
                elif kind < 0.09:
                    await consumer.end_offsets([P0, P1])
                elif kind < 0.1:
                    task = asyncio.create_task(poll(consumer))
                    await asyncio.sleep(0)
                    task.cancel()
                    await asyncio.wait([task])
                await poll(consumer)
                leases += consumer._session.driver.lease.size
        assert leases

    feed.start()
    run(main)
    feed.join()
    assert feed.read == feed.produced
