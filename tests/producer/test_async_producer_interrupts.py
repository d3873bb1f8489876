"""A signal handler that raises in a call of a task loses nothing that an AsyncProducer was given.

A handler that raises in a callback of the loop ends that callback, as asyncio has it. Each test runs a script once for
every point (see `tests/interrupts.py`). By default each `STRIDE`th point is taken; KOHORT_INTERRUPTS=1
(`make test-interrupts`) takes all.
"""

import asyncio
import contextlib
import time
import types
from collections import Counter
from collections.abc import Callable, Coroutine, Generator, Iterator
from functools import partial
from itertools import count
from typing import Any, TypeVar

import pytest

from kohort.common import TopicPartition
from kohort.network.group_types import ConsumerGroupMetadata
from kohort.network.network_client import Driver
from kohort.producer import AsyncDelivery, AsyncProducer, Producer, ProducerClosed
from kohort.testing.fake_broker import FakeBroker
from tests.coordinator_client.consumer_helpers import PATIENCE_S
from tests.interrupts import Interrupt, Tracer, elsewhere, every_point_within, reported
from tests.producer.test_producer_interrupts import HASTY, SOURCE, read, topic_of

pytestmark = pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")  # by an interrupted caller
T = TypeVar("T")
STRIDE = 67
_names = count()


@pytest.fixture(scope="module")
def fake() -> Iterator[FakeBroker]:
    with FakeBroker(topics={"source": 1}) as broker:
        yield broker


@types.coroutine
def steps(call: Coroutine[Any, Any, T], tracer: Tracer) -> Generator[Any, Any, T]:
    """Await a call whose own steps may be interrupted, and not the callbacks of the loop between them."""
    step = partial(call.send, None)
    while True:
        with tracer.on():
            try:
                waits_for = step()
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
        try:
            yield waits_for
            step = partial(call.send, None)
        except BaseException as error:
            step = partial(call.throw, error)


@pytest.mark.parametrize("late", [False, True])
def test_an_interrupted_creation_does_not_fence_the_next_producer(late: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """`late`: its driver has a loop. Else the interrupt comes before."""
    drivers: list[Any] = []
    begin, start = Producer._begin, Driver.start

    def interrupted_begin(producer: Producer, config: Any) -> None:
        begin(producer, config)
        drivers.append(producer._driver)
        raise Interrupt

    def interrupted_start(driver: Any) -> None:
        drivers.append(driver)
        start(driver)
        raise Interrupt

    async def run(fake: FakeBroker) -> None:
        with monkeypatch.context() as patched:
            if late:
                patched.setattr(Driver, "start", interrupted_start)
            else:
                patched.setattr(Producer, "_begin", interrupted_begin)
            with pytest.raises(Interrupt):
                AsyncProducer(fake.bootstrap, transactional_id="same")
        assert drivers[0].stopping
        async with AsyncProducer(fake.bootstrap, transactional_id="same", **HASTY) as producer, producer.transaction():
            await producer.send("topic", b"x")
        assert len(fake.calls_of("InitProducerId")) == 1

    with FakeBroker(topics={"topic": 1}) as fake:
        asyncio.run(run(fake))


class Calls:
    """Calls of a task, which may be interrupted."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    async def once(self, call: Coroutine[Any, Any, T]) -> T:
        """Await a call."""

        async def whole() -> T:
            return await steps(call, self._tracer)

        return await asyncio.wait_for(whole(), PATIENCE_S)

    async def again(self, call: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Await a call, and once more if it was interrupted."""
        try:
            return await self.once(call())
        except Interrupt:
            return await self.once(call())


class Sent:
    """Sent records: those of which `send` returned, and those of which an interrupt kept it from that."""

    def __init__(self, calls: Calls, producer: AsyncProducer, topic: str) -> None:
        self._calls, self._producer, self._topic = calls, producer, topic
        self.returned: list[tuple[AsyncDelivery, bytes]] = []
        self.interrupted: list[bytes] = []

    async def send(self, value: bytes, **given: Any) -> None:
        try:
            sending = self._producer.send(self._topic, value, **given)
            self.returned.append((await self._calls.once(sending), value))
        except Interrupt:
            self.interrupted.append(value)

    async def check(self, log: list[tuple[TopicPartition, int, bytes | None]]) -> None:
        """Each record is in the log once, where its delivery says; of an interrupted `send`, once or not at all."""
        found = Counter(value for _place, _offset, value in log)
        for delivery, value in self.returned:
            at = await self._calls.again(delivery.result)
            assert (TopicPartition(at.topic, at.partition), at.offset, value) in log
            assert found.pop(value) == 1, value
        for value in self.interrupted:
            assert found.pop(value, 0) <= 1, value
        assert not found, found


def producer_of(fake: FakeBroker, **settings: Any) -> AsyncProducer:
    return AsyncProducer(fake.bootstrap, **({"linger_ms": 0, "batch_bytes": 200} | HASTY | settings))


async def ended(calls: Calls, producer: AsyncProducer) -> None:
    """Close works, and takes everything along."""
    core = producer._driver.core
    elsewhere(producer.metrics)
    await calls.again(producer.close)
    assert producer._driver.ended.wait(PATIENCE_S)
    assert core.accumulator.buffered == 0
    with pytest.raises(ProducerClosed):
        await producer.flush()


def run(main: Callable[[Calls], Coroutine[Any, Any, None]], capsys: pytest.CaptureFixture[str]) -> None:
    reported(every_point_within(lambda tracer: asyncio.run(main(Calls(tracer))), stride=STRIDE), capsys)


def test_send_await_and_flush(fake: FakeBroker, capsys: pytest.CaptureFixture[str]) -> None:
    async def main(calls: Calls) -> None:
        topic = topic_of(fake, 2)
        called: Counter[bytes] = Counter()
        producer = producer_of(fake)
        sent = Sent(calls, producer, topic)
        for number in range(3):
            value = b"%d" % number * 60
            await sent.send(value, on_delivery=lambda _delivery, value=value: called.update([value]))
        waiting = [asyncio.ensure_future(delivery.result()) for delivery, _value in sent.returned]
        await sent.send(b"key", key=b"key", headers={"a": b"b"})
        await calls.again(producer.flush)
        assert producer.buffered_bytes == 0
        assert len(await asyncio.wait_for(asyncio.gather(*waiting), PATIENCE_S)) == len(waiting)
        await sent.send(b"after")
        await ended(calls, producer)
        await sent.check(read(fake, topic, partitions=2))
        assert max(called.values(), default=1) == 1

    run(main, capsys)


def test_send_where_there_is_no_room(fake: FakeBroker, capsys: pytest.CaptureFixture[str]) -> None:
    async def main(calls: Calls) -> None:
        topic = topic_of(fake)
        producer = producer_of(fake, buffer_bytes=400, max_request_bytes=400, batch_bytes=400, linger_ms=60_000)
        sent = Sent(calls, producer, topic)
        for number in range(5):
            await sent.send(b"%d" % number * 150)
        await ended(calls, producer)
        await sent.check(read(fake, topic))

    run(main, capsys)


def test_transactions(fake: FakeBroker, capsys: pytest.CaptureFixture[str]) -> None:
    async def main(calls: Calls) -> None:
        topic, group = topic_of(fake), ConsumerGroupMetadata(f"group-{next(_names)}")
        producer = producer_of(fake, transactional_id=topic)
        sent, dropped = Sent(calls, producer, topic), Sent(calls, producer, topic)
        await calls.again(producer.begin)
        await sent.send(b"first")
        await calls.again(partial(producer.send_offsets, {SOURCE: 7}, group))
        await calls.again(producer.commit)
        await calls.again(producer.begin)
        await dropped.send(b"dropped")
        await calls.again(producer.abort)
        await calls.again(producer.begin)
        await sent.send(b"second")
        await calls.again(producer.commit)
        await ended(calls, producer)
        await sent.check(read(fake, topic))

    run(main, capsys)


def test_an_interrupted_look_at_outcomes_leaves_no_task_asleep(
    fake: FakeBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    def script(tracer: Tracer) -> None:
        async def main() -> None:
            topic = topic_of(fake)
            async with producer_of(fake) as producer:
                sent = [await producer.send(topic, b"x" * 150) for _ in range(3)]
                waiting = [asyncio.ensure_future(delivery.result()) for delivery in sent]
                await asyncio.sleep(0)
                while not all(delivery.done() for delivery in sent):
                    time.sleep(0.001)  # the loop stands still
                with contextlib.suppress(Interrupt), tracer.on():
                    producer._updates.handle()
                assert len(await asyncio.wait_for(asyncio.gather(*waiting), PATIENCE_S)) == 3

        asyncio.run(main())

    reported(every_point_within(script), capsys)
