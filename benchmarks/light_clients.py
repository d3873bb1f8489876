"""One client in a process of its own, for `light`: a consumer of a trickle, or a producer and a consumer together.

    python -m benchmarks.light_clients TASK

TASK is a `Task` as JSON. Each client has its default settings, except for linger 0 of the producer. All of them
return records at once by default (`fetch.min.bytes` 1), which is the best setting for a trickle.
"""

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from benchmarks.light_meter import PROBE, Meter, Value, stamped

POLL_S = 1.0
PROBE_S = 0.2
LAST_S = 5.0  # for the last records of a phase


class Task(NamedTuple):
    """The work of a client's process. With `rate` it also sends `records` of its own, at `rate` a second."""

    client: str
    bootstrap: str
    topic: str
    partitions: int
    group: str
    ca_file: str = ""
    rate: float = 0.0
    records: int = 0


class Client(Protocol):
    """A consumer, with a producer from the first `send` on."""

    def poll(self, timeout_s: float) -> Sequence[Value]: ...

    def send(self, value: bytes, partition: int) -> None: ...


class AsyncClient(Protocol):
    """The same in asyncio."""

    async def start(self) -> None: ...

    async def poll(self, timeout_s: float) -> Sequence[Value]: ...

    async def send(self, value: bytes, partition: int) -> None: ...


class Kohort:
    def __init__(self, task: Task) -> None:
        from kohort import Consumer, Producer

        tls: dict[str, Any] = {"security_protocol": "SSL", "ssl_ca_path": task.ca_file} if task.ca_file else {}
        self._topic = task.topic
        self._consumer = Consumer(task.bootstrap, group=task.group, auto_offset_reset="latest", **tls)
        self._consumer.subscribe([task.topic])
        self._producer = Producer(task.bootstrap, linger_ms=0, **tls) if task.rate else None

    def poll(self, timeout_s: float) -> list[Value]:
        return [record.value or b"" for columns in self._consumer.poll(timeout_s) for record in columns]

    def send(self, value: bytes, partition: int) -> None:
        assert self._producer is not None
        self._producer.send(self._topic, value, partition=partition)


class KohortAsync:
    def __init__(self, task: Task) -> None:
        self._task = task
        self._tls: dict[str, Any] = {"security_protocol": "SSL", "ssl_ca_path": task.ca_file} if task.ca_file else {}

    async def start(self) -> None:
        from kohort import AsyncConsumer, Producer

        task = self._task
        self._consumer = AsyncConsumer(task.bootstrap, group=task.group, auto_offset_reset="latest", **self._tls)
        self._consumer.subscribe([task.topic])
        self._producer = Producer(task.bootstrap, linger_ms=0, **self._tls) if task.rate else None

    async def poll(self, timeout_s: float) -> list[Value]:
        return [record.value or b"" for columns in await self._consumer.poll(timeout_s) for record in columns]

    async def send(self, value: bytes, partition: int) -> None:
        assert self._producer is not None
        self._producer.send(self._task.topic, value, partition=partition)


class Confluent:
    def __init__(self, task: Task) -> None:
        from confluent_kafka import Consumer, Producer

        common: dict[str, Any] = {"bootstrap.servers": task.bootstrap}
        if task.ca_file:
            common |= {"security.protocol": "SSL", "ssl.ca.location": task.ca_file}
        self._topic = task.topic
        self._consumer = Consumer({**common, "group.id": task.group, "auto.offset.reset": "latest"})
        self._consumer.subscribe([task.topic])
        self._producer = Producer({**common, "linger.ms": 0}) if task.rate else None

    def poll(self, timeout_s: float) -> list[Value]:
        message = self._consumer.poll(timeout_s)
        if message is None or message.error():
            return []
        return [message.value()]

    def send(self, value: bytes, partition: int) -> None:
        assert self._producer is not None
        self._producer.produce(self._topic, value, partition=partition)
        self._producer.poll(0)


class KafkaPython:
    def __init__(self, task: Task) -> None:
        from kafka import KafkaConsumer, KafkaProducer

        common: dict[str, Any] = {"bootstrap_servers": task.bootstrap}
        if task.ca_file:
            common |= {"security_protocol": "SSL", "ssl_cafile": task.ca_file}
        self._topic = task.topic
        self._consumer = KafkaConsumer(task.topic, **common, group_id=task.group, auto_offset_reset="latest")
        self._producer = KafkaProducer(**common, linger_ms=0) if task.rate else None

    def poll(self, timeout_s: float) -> list[Value]:
        return [one.value for some in self._consumer.poll(int(timeout_s * 1000)).values() for one in some]

    def send(self, value: bytes, partition: int) -> None:
        assert self._producer is not None
        self._producer.send(self._topic, value, partition=partition)


class Aiokafka:
    def __init__(self, task: Task) -> None:
        self._task = task

    async def start(self) -> None:
        from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

        task = self._task
        common: dict[str, Any] = {"bootstrap_servers": task.bootstrap}
        if task.ca_file:
            from aiokafka.helpers import create_ssl_context

            common |= {"security_protocol": "SSL", "ssl_context": create_ssl_context(cafile=task.ca_file)}
        self._consumer = AIOKafkaConsumer(task.topic, **common, group_id=task.group, auto_offset_reset="latest")
        await self._consumer.start()
        self._producer = AIOKafkaProducer(**common, linger_ms=0) if task.rate else None
        if self._producer is not None:
            await self._producer.start()

    async def poll(self, timeout_s: float) -> list[Value]:
        found = await self._consumer.getmany(timeout_ms=int(timeout_s * 1000))
        return [one.value for some in found.values() for one in some]

    async def send(self, value: bytes, partition: int) -> None:
        assert self._producer is not None
        await self._producer.send(self._task.topic, value, partition=partition)


BLOCKING: Mapping[str, Callable[[Task], Client]] = {
    "kohort": Kohort,
    "confluent-kafka": Confluent,
    "kafka-python": KafkaPython,
}
ASYNCIO: Mapping[str, Callable[[Task], AsyncClient]] = {"kohort in asyncio": KohortAsync, "aiokafka": Aiokafka}


def main(task: Task) -> None:
    meter = Meter(task.partitions)
    if make := BLOCKING.get(task.client):
        client = make(task)
        if task.rate:
            _both(client, task, meter)
        while True:
            meter.delivered(client.poll(POLL_S))
    asyncio.run(_in_asyncio(ASYNCIO[task.client](task), task, meter))


def _both(client: Client, task: Task, meter: Meter) -> None:
    """Send a phase at the task's rate, and poll while nothing is due."""

    def poll_until(end: float, enough: Callable[[], bool]) -> None:
        while (left := end - time.monotonic()) > 0 and not enough():
            meter.delivered(client.poll(left))

    while not meter.ready:
        for partition in range(task.partitions):
            client.send(stamped(PROBE, 0, partition), partition)
        poll_until(time.monotonic() + PROBE_S, lambda: False)
    began = time.monotonic()
    for number in range(task.records):
        poll_until(began + number / task.rate, lambda: False)
        partition = number % task.partitions
        client.send(stamped(PROBE + 1, task.records, partition), partition)
    poll_until(time.monotonic() + LAST_S, lambda: meter.finished > PROBE)


async def _in_asyncio(client: AsyncClient, task: Task, meter: Meter) -> None:
    await client.start()
    sending = asyncio.create_task(_send(client.send, task, meter)) if task.rate else None
    while True:
        meter.delivered(await client.poll(POLL_S))
        if sending is not None and sending.done():
            sending.result()


async def _send(send: Callable[[bytes, int], Awaitable[None]], task: Task, meter: Meter) -> None:
    """Send a phase at the task's rate."""
    while not meter.ready:
        for partition in range(task.partitions):
            await send(stamped(PROBE, 0, partition), partition)
        await asyncio.sleep(PROBE_S)
    began = time.monotonic()
    for number in range(task.records):
        await asyncio.sleep(max(0.0, began + number / task.rate - time.monotonic()))
        partition = number % task.partitions
        await send(stamped(PROBE + 1, task.records, partition), partition)


if __name__ == "__main__":
    main(Task(**json.loads(sys.argv[1])))
