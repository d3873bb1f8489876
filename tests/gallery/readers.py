"""One interface for four clients, so that one story can run on each: ours, kafka-python, aiokafka, librdkafka.

The peers are set as their users set them: defaults, but for the timeouts that a story needs to be short.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

OURS, KAFKA_PYTHON, AIOKAFKA, CONFLUENT = "kohort", "kafka-python", "aiokafka", "confluent-kafka"
TOPIC = "topic"


class Read(NamedTuple):
    partition: int
    offset: int
    value: bytes | None


@dataclass(frozen=True)
class Wish:
    """A story's requirements of a client. `assigned` is called by the client's own rebalance hook."""

    bootstrap: str
    group: str = "group"
    instance: str | None = None
    session_ms: int = 6000
    heartbeat_ms: int = 300
    request_timeout_ms: int = 4000
    reset: str = "earliest"
    cooperative: bool = False
    assigned: Callable[[], None] = field(default=lambda: None)


class Reader(Protocol):
    """The operations of a story on a client."""

    def poll(self, timeout_s: float) -> list[Read]: ...
    def commit_later(self) -> None:
        """Commit what was polled, without waiting."""

    def pause(self, partition: int) -> None: ...
    def paused(self) -> set[int]: ...
    def work(self, seconds: float) -> None:
        """The work of a slow handler that does not know of clients."""

    def close(self) -> None: ...


class Ours:
    def __init__(self, wish: Wish) -> None:
        from kohort import Assigned, Consumer, RebalanceHooks

        class Hooks(RebalanceHooks):
            def on_assigned(self, event: Assigned) -> None:
                wish.assigned()

        self.gaps: list[object] = []
        self.consumer = Consumer(
            wish.bootstrap,
            group=wish.group,
            group_instance_id=wish.instance,
            auto_offset_reset=wish.reset,
            session_timeout_ms=wish.session_ms,
            heartbeat_interval_ms=wish.heartbeat_ms,
            request_timeout_ms=wish.request_timeout_ms,
            fetch_max_wait_ms=100,
            assignors=("cooperative-sticky",) if wish.cooperative else ("range",),
            on_reset=self.gaps.append,
        )
        self.consumer.subscribe([TOPIC], hooks=Hooks())

    def poll(self, timeout_s: float) -> list[Read]:
        return [
            Read(record.partition, record.offset, None if record.value is None else bytes(record.value))
            for columns in self.consumer.poll(timeout_s)
            for record in columns
        ]

    def commit_later(self) -> None:
        self.consumer.commit_async()

    def pause(self, partition: int) -> None:
        from kohort import TopicPartition

        self.consumer.pause([TopicPartition(TOPIC, partition)])

    def paused(self) -> set[int]:
        return {each.partition for each in self.consumer.paused()}

    def work(self, seconds: float) -> None:
        time.sleep(seconds)

    def close(self) -> None:
        self.consumer.close(5.0)


class KafkaPython:
    def __init__(self, wish: Wish) -> None:
        import kafka
        from kafka.coordinator.assignors.range import RangePartitionAssignor

        class Listener(kafka.ConsumerRebalanceListener):  # type: ignore[misc]
            def on_partitions_revoked(self, revoked: object) -> None:
                pass

            def on_partitions_assigned(self, assigned: object) -> None:
                wish.assigned()

        self._kafka = kafka
        self.consumer = kafka.KafkaConsumer(
            bootstrap_servers=wish.bootstrap,
            group_id=wish.group,
            group_instance_id=wish.instance,
            auto_offset_reset=wish.reset,
            session_timeout_ms=wish.session_ms,
            heartbeat_interval_ms=wish.heartbeat_ms,
            request_timeout_ms=max(wish.request_timeout_ms, wish.session_ms + 1000),
            enable_auto_commit=False,
            max_poll_interval_ms=max(wish.session_ms, 10_000),
            fetch_max_wait_ms=100,
            partition_assignment_strategy=[RangePartitionAssignor],
        )
        self.consumer.subscribe([TOPIC], listener=Listener())

    def poll(self, timeout_s: float) -> list[Read]:
        found = self.consumer.poll(timeout_ms=int(timeout_s * 1000))
        return [Read(each.partition, each.offset, each.value) for part in found.values() for each in part]

    def commit_later(self) -> None:
        self.consumer.commit_async()

    def pause(self, partition: int) -> None:
        self.consumer.pause(self._kafka.TopicPartition(TOPIC, partition))

    def paused(self) -> set[int]:
        return {each.partition for each in self.consumer.paused()}

    def work(self, seconds: float) -> None:
        time.sleep(seconds)

    def close(self) -> None:
        self.consumer.close()


class AioKafka:
    """Its loop has a thread of its own; a handler runs on the loop, where its users' handlers run."""

    def __init__(self, wish: Wish) -> None:
        import aiokafka

        class Listener(aiokafka.ConsumerRebalanceListener):  # type: ignore[misc]
            async def on_partitions_revoked(self, revoked: object) -> None:
                pass

            async def on_partitions_assigned(self, assigned: object) -> None:
                wish.assigned()

        self._aiokafka = aiokafka
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

        async def begin() -> Any:
            consumer = aiokafka.AIOKafkaConsumer(
                bootstrap_servers=wish.bootstrap,
                group_id=wish.group,
                group_instance_id=wish.instance,
                auto_offset_reset=wish.reset,
                session_timeout_ms=wish.session_ms,
                heartbeat_interval_ms=wish.heartbeat_ms,
                request_timeout_ms=wish.request_timeout_ms,
                enable_auto_commit=False,
                fetch_max_wait_ms=100,
            )
            consumer.subscribe([TOPIC], listener=Listener())
            await consumer.start()
            return consumer

        self.consumer = self._run(begin())

    def _run(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    def poll(self, timeout_s: float) -> list[Read]:
        found = self._run(self.consumer.getmany(timeout_ms=int(timeout_s * 1000)))
        return [Read(each.partition, each.offset, each.value) for part in found.values() for each in part]

    def commit_later(self) -> None:
        asyncio.run_coroutine_threadsafe(self.consumer.commit(), self._loop)

    def pause(self, partition: int) -> None:
        self._loop.call_soon_threadsafe(self.consumer.pause, self._aiokafka.TopicPartition(TOPIC, partition))

    def paused(self) -> set[int]:
        return {each.partition for each in self.consumer.paused()}

    def work(self, seconds: float) -> None:
        async def handler() -> None:
            time.sleep(seconds)  # that is the story

        self._run(handler())

    def close(self) -> None:
        self._run(self.consumer.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)


class Confluent:
    def __init__(self, wish: Wish) -> None:
        import confluent_kafka

        self._kafka = confluent_kafka
        settings: dict[str, Any] = {
            "bootstrap.servers": wish.bootstrap,
            "group.id": wish.group,
            "auto.offset.reset": wish.reset,
            "session.timeout.ms": wish.session_ms,
            "heartbeat.interval.ms": wish.heartbeat_ms,
            "enable.auto.commit": False,
            "socket.timeout.ms": max(wish.request_timeout_ms, 1000),
            "max.poll.interval.ms": max(wish.session_ms, 10_000),
            "log_level": 0,
            "fetch.wait.max.ms": 100,
        }
        if wish.cooperative:
            settings["partition.assignment.strategy"] = "cooperative-sticky"
        if wish.instance is not None:
            settings["group.instance.id"] = wish.instance
        self.consumer = confluent_kafka.Consumer(settings)
        self.consumer.subscribe([TOPIC], on_assign=lambda consumer, partitions: wish.assigned())

    def poll(self, timeout_s: float) -> list[Read]:
        found = self.consumer.consume(100, timeout_s)
        for each in found:
            if each.error() is not None and each.error().code() != self._kafka.KafkaError._PARTITION_EOF:
                raise self._kafka.KafkaException(each.error())
        return [Read(each.partition(), each.offset(), each.value()) for each in found if each.error() is None]

    def commit_later(self) -> None:
        self.consumer.commit(asynchronous=True)

    def pause(self, partition: int) -> None:
        self.consumer.pause([self._kafka.TopicPartition(TOPIC, partition)])

    def paused(self) -> set[int]:
        raise NotImplementedError("confluent-kafka does not show what is paused")

    def work(self, seconds: float) -> None:
        time.sleep(seconds)

    def close(self) -> None:
        self.consumer.close()


READERS: dict[str, Callable[[Wish], Reader]] = {
    OURS: Ours,
    KAFKA_PYTHON: KafkaPython,
    AIOKAFKA: AioKafka,
    CONFLUENT: Confluent,
}


def poll_until(reader: Reader, holds: Callable[[list[Read]], bool], timeout_s: float = 15.0) -> list[Read]:
    """Poll and gather until it holds, or time is up."""
    got: list[Read] = []
    end = time.monotonic() + timeout_s
    while not holds(got) and time.monotonic() < end:
        got += reader.poll(0.2)
    return got


@contextlib.contextmanager
def closing(reader: Reader) -> Any:
    """A close that fails is not what a story is about."""
    try:
        yield reader
    finally:
        with contextlib.suppress(Exception):
            reader.close()
