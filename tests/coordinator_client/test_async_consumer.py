"""The asyncio face: everything that waits is awaited, hooks may be coroutines, and the loop is never blocked."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from kohort.common import KohortError, TopicPartition
from kohort.coordinator_client import (
    Assigned,
    AsyncConsumer,
    ConcurrentUseError,
    ConnectionFailed,
    Consumer,
    ConsumerClosed,
    RebalanceHooks,
    Revoked,
    WakeupError,
)
from tests.coordinator_client.consumer_helpers import numbers, produce
from tests.support.broker_selection import SelectedBroker

Name = Callable[[str], str]


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(main(), 90))


def test_both_faces_have_the_same_calls() -> None:
    ours = {name for name in dir(AsyncConsumer) if not name.startswith("_")}
    theirs = {name for name in dir(Consumer) if not name.startswith("_")}
    assert ours == theirs


@pytest.mark.broker
def test_a_group_under_asyncio_with_hooks_that_are_coroutines(broker: SelectedBroker, topic: str, unique: Name) -> None:
    group, tp = unique("group"), TopicPartition(topic, 0)
    produce(broker.bootstrap, topic, numbers(0, 10))
    reported: list[str] = []

    class Hooks(RebalanceHooks):
        async def on_assigned(self, event: Assigned) -> dict[TopicPartition, int]:
            await asyncio.sleep(0.01)
            reported.append("assigned")
            return {tp: 2}

        async def on_revoked(self, event: Revoked) -> dict[TopicPartition, int]:
            await asyncio.sleep(0.01)
            reported.append("revoked")
            return {tp: 7}

    async def main() -> None:
        async with AsyncConsumer(broker.bootstrap, group=group, auto_offset_reset="earliest") as consumer:
            consumer.subscribe([topic], hooks=Hooks())
            values: list[bytes | None] = []
            async for columns in consumer:
                values += [record.value for record in columns]
                if len(values) == 8:
                    break
            assert values == numbers(2, 8)
            assert await consumer.position(tp) == 10
            await consumer.commit({tp: 5})
            assert await consumer.end_offsets([tp]) == {tp: 10}
            assert await consumer.beginning_offsets([tp]) == {tp: 0}
            assert (await consumer.lag())[tp] == 0
            assert await consumer.partitions_for(topic) == tuple(TopicPartition(topic, n) for n in range(3))
            assert (await consumer.offsets_for_times({tp: 2**42}))[tp] is None
        assert reported == ["assigned", "revoked"]
        async with AsyncConsumer(broker.bootstrap, group=group) as consumer:
            stored = (await consumer.committed([tp]))[tp]
            assert stored is not None
            assert stored.offset == 7
        with pytest.raises(ConsumerClosed):
            await consumer.poll(0)

    run(main)


@pytest.mark.broker
def test_a_poll_that_waits_lets_the_loop_go_on_and_wakes_up(broker: SelectedBroker, topic: str) -> None:
    async def main() -> None:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                await asyncio.sleep(0.01)
                ticks += 1

        async with AsyncConsumer(broker.bootstrap) as consumer:
            consumer.assign([TopicPartition(topic, 0)])
            ticker = asyncio.create_task(tick())
            assert await consumer.poll(0.5) == []
            assert ticks > 5
            waiting = asyncio.create_task(consumer.poll(30))
            await asyncio.sleep(0.1)
            with pytest.raises(ConcurrentUseError):
                await consumer.poll(0)
            consumer.wakeup()
            with pytest.raises(WakeupError):
                await waiting
            waiting = asyncio.create_task(consumer.poll(30))
            await asyncio.sleep(0.1)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            assert await consumer.poll(0) == []
            ticker.cancel()

    run(main)


@pytest.mark.broker
@pytest.mark.proves("S-13")
def test_heartbeats_do_not_depend_on_the_loop(broker: SelectedBroker, topic: str, unique: Name) -> None:
    async def main() -> None:
        settings = {"session_timeout_ms": 6000, "heartbeat_interval_ms": 500}
        async with AsyncConsumer(broker.bootstrap, group=unique("group"), **settings) as consumer:  # type: ignore[arg-type]
            consumer.subscribe([topic])
            while len(consumer.assignment) < 3:
                await consumer.poll(0.1)
            time.sleep(8)
            await consumer.poll(0.1)
            health = consumer.health()
            assert health.healthy
            assert health.generation == 1
            assert health.last_heartbeat_s is not None
            assert health.last_heartbeat_s < 5

    run(main)


def test_a_broker_that_is_not_there_is_an_error_here_too() -> None:
    async def main() -> None:
        async with AsyncConsumer("127.0.0.1:1", bootstrap_timeout_ms=300) as consumer:
            consumer.assign([TopicPartition("t", 0)])
            with pytest.raises(ConnectionFailed):
                await consumer.poll(10)
            with pytest.raises(KohortError):
                await consumer.end_offsets([TopicPartition("t", 0)])

    run(main)


@pytest.mark.broker
def test_many_consumers_in_one_loop_share_a_topic(broker: SelectedBroker, topic: str, unique: Name) -> None:
    group = unique("group")
    produce(broker.bootstrap, topic, numbers(0, 300), partition=0)
    produce(broker.bootstrap, topic, numbers(300, 300), partition=1)
    produce(broker.bootstrap, topic, numbers(600, 300), partition=2)

    async def main() -> None:
        seen: set[bytes] = set()
        owners: dict[TopicPartition, int] = {}

        async def work(number: int) -> None:
            async with AsyncConsumer(
                broker.bootstrap, group=group, auto_offset_reset="earliest", assignors=["cooperative-sticky"]
            ) as consumer:
                consumer.subscribe([topic])
                while len(seen) < 900 or len(owners) < 3:
                    for columns in await consumer.poll(0.1):
                        seen.update(record.value for record in columns if record.value is not None)
                        await consumer.commit(columns.next_offsets)
                    for one in consumer.assignment:
                        owners[one] = number

        await asyncio.gather(*(work(number) for number in range(3)))
        assert seen == set(numbers(0, 900))

    run(main)
