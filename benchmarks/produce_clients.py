"""Writing of a topic by each client, with its best settings, for `produce`.

Each function sends the records, waits until all are acknowledged by all replicas, and raises if one is not. All are
idempotent, except kafka-python before 2.1 and the raw socket. `paced` functions return the latency of each record.
"""

import socket
import time
from collections import deque
from collections.abc import Callable, Iterator
from itertools import cycle, islice
from typing import Any, NamedTuple

from kohort import AsyncProducer, Producer
from kohort.producer.producer_settings import CompressionType

BATCH_BYTES = 256 << 10
IN_FLIGHT = 5
PRODUCE_VERSION = 11  # the last with the batches of transactions' first version


class Load(NamedTuple):
    """The records of a run: `values`, again and again. `ca_file`: the authority of a broker with TLS."""

    bootstrap: str
    topic: str
    values: list[bytes]
    records: int
    codec: CompressionType = "none"
    partitions: int = 1
    ca_file: str | None = None

    def each(self) -> Iterator[bytes]:
        """The value of each record."""
        return islice(cycle(self.values), self.records)

    @property
    def ours(self) -> dict[str, Any]:
        """Settings of kohort."""
        tls = {} if self.ca_file is None else {"security_protocol": "SSL", "ssl_ca_path": self.ca_file}
        return {"bootstrap": self.bootstrap, "compression": self.codec, **tls}

    @property
    def librdkafkas(self) -> dict[str, Any]:
        """Settings of confluent-kafka."""
        tls = {} if self.ca_file is None else {"security.protocol": "SSL", "ssl.ca.location": self.ca_file}
        sizes = {"batch.size": 1_000_000, "queue.buffering.max.messages": 1_000_000, "linger.ms": 20}
        known = {"bootstrap.servers": self.bootstrap, "compression.type": self.codec, "enable.idempotence": True}
        return known | sizes | tls

    @property
    def pythons(self) -> dict[str, Any]:
        """Settings that aiokafka and kafka-python share."""
        codec = None if self.codec == "none" else self.codec
        sizes = {"linger_ms": 20, "enable_idempotence": True, "acks": "all"}
        return {"bootstrap_servers": self.bootstrap, "compression_type": codec, **sizes}


# -------------------------------------------------------------------------------------------------------------- rows


def ours(load: Load) -> None:
    topic = load.topic
    with Producer(**load.ours) as producer:
        send = producer.send
        for value in load.each():
            send(topic, value)
        producer.flush()


def confluent(load: Load) -> None:
    from confluent_kafka import Producer as Peer

    delivered = [0]

    def note(error: object, _message: object) -> None:
        if error is not None:
            raise AssertionError(error)
        delivered[0] += 1

    producer, topic = Peer(load.librdkafkas), load.topic
    for number, value in enumerate(load.each()):
        while True:
            try:
                producer.produce(topic, value, on_delivery=note)
                break
            except BufferError:
                producer.poll(0.05)
        if number % 1_000 == 0:
            producer.poll(0)
    producer.flush()
    assert delivered[0] == load.records, delivered


def kafka_python(load: Load) -> None:
    from kafka import KafkaProducer

    tls = {} if load.ca_file is None else {"security_protocol": "SSL", "ssl_cafile": load.ca_file}
    producer = KafkaProducer(batch_size=BATCH_BYTES, **load.pythons, **tls)
    sent = [producer.send(load.topic, value) for value in load.each()]
    producer.flush()
    assert all(one.succeeded() for one in sent)
    producer.close()


def raw_socket(load: Load) -> None:
    """Produce requests on one socket, encoded before the clock starts: the limit of the broker and the machine."""
    for _ in encoded_and_sent(load):
        pass


def encoded_and_sent(load: Load) -> Iterator[None]:
    """Encode all requests, yield, and send them."""
    from kohort.protocol.wire import WireConnection

    host, _, port = load.bootstrap.split(",")[0].rpartition(":")
    wire = WireConnection("bench", max_frame_bytes=1 << 30)
    frames = [wire.send("Produce", PRODUCE_VERSION, request)[1] for request in _requests(load)]
    yield
    with socket.create_connection((host, int(port))) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for number, frame in enumerate(frames):
            if number >= IN_FLIGHT:
                _check(wire, sock)
            sock.sendall(frame)
        for _ in frames[-IN_FLIGHT:]:
            _check(wire, sock)


def _requests(load: Load) -> Iterator[Any]:
    from kohort.fastpath._encode import BatchBuilder, seal
    from kohort.protocol.apis.produce import PartitionProduceData, ProduceRequest, TopicProduceData

    values, partition, now_ms = load.each(), 0, time.time_ns() // 1_000_000
    while some := list(islice(values, max(1, BATCH_BYTES // (len(load.values[0]) + 10)))):
        builder = BatchBuilder()
        for value in some:
            builder.append(None, value, now_ms)
        data = PartitionProduceData(index=partition, records=seal(builder.finish(load.codec)))
        topic = TopicProduceData(name=load.topic, partition_data=(data,))
        yield ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=(topic,))
        partition = (partition + 1) % load.partitions


def _check(wire: Any, sock: socket.socket) -> None:
    size = int.from_bytes(_received(sock, 4), "big")
    for topic in wire.receive_frame(_received(sock, size)).value.responses:
        assert all(not one.error_code for one in topic.partition_responses), topic


def _received(sock: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        found += sock.recv(size - len(found))
    return found


# ----------------------------------------------------------------------------------------------------------- columns


def columns(load: Load) -> None:
    import pyarrow as pa

    table, left = pa.table({"value": pa.array(load.values, pa.binary())}), load.records
    with Producer(**load.ours) as producer:
        while left > 0:
            producer.send_arrow(load.topic, table.slice(0, left))
            left -= len(table)
        producer.flush()


# ----------------------------------------------------------------------------------------------------------- asyncio


def ours_in_asyncio(load: Load) -> None:
    import asyncio

    async def produce() -> None:
        async with AsyncProducer(**load.ours) as producer:
            for value in load.each():
                await producer.send(load.topic, value)
            await producer.flush()

    asyncio.run(produce())


def aiokafka(load: Load) -> None:
    import asyncio

    from aiokafka import AIOKafkaProducer

    tls: dict[str, Any] = {}
    if load.ca_file is not None:
        import ssl

        context = ssl.create_default_context(cafile=load.ca_file)
        tls = {"security_protocol": "SSL", "ssl_context": context}

    async def produce() -> None:
        async with AIOKafkaProducer(max_batch_size=BATCH_BYTES, **load.pythons, **tls) as producer:
            sent = [await producer.send(load.topic, value) for value in load.each()]
            await asyncio.gather(*sent)

    asyncio.run(produce())


def confluent_in_asyncio(load: Load) -> None:
    import asyncio

    from confluent_kafka.aio import AIOProducer

    async def produce() -> None:
        producer = AIOProducer(load.librdkafkas)
        sent = [await producer.produce(load.topic, value) for value in load.each()]
        await producer.flush()
        await asyncio.gather(*sent)
        await producer.close()

    asyncio.run(produce())


# ----------------------------------------------------------------------------------------------------------- latency


def ours_paced(load: Load, rate: float) -> list[float]:
    took: list[float] = []
    with Producer(**load.ours, linger_ms=0) as producer:
        producer.send(load.topic, b"warm").result()

        def send(value: bytes, done: Callable[[float], None]) -> None:
            sent_at = time.perf_counter()
            producer.send(load.topic, value, on_delivery=lambda _delivery: done(time.perf_counter() - sent_at))

        _paced(load, rate, send, producer.poll, took)
    return took


def confluent_paced(load: Load, rate: float) -> list[float]:
    from confluent_kafka import Producer as Peer

    took: list[float] = []
    producer = Peer(load.librdkafkas | {"linger.ms": 0})
    producer.produce(load.topic, b"warm")
    producer.flush()

    def send(value: bytes, done: Callable[[float], None]) -> None:
        sent_at = time.perf_counter()
        producer.produce(load.topic, value, on_delivery=lambda _error, _message: done(time.perf_counter() - sent_at))

    _paced(load, rate, send, producer.poll, took)
    return took


def _paced(
    load: Load,
    rate: float,
    send: Callable[[bytes, Callable[[float], None]], None],
    poll: Callable[[float], object],
    took: list[float],
) -> None:
    """Send records at a rate, and call callbacks between them."""
    begun = time.perf_counter()
    for number, value in enumerate(load.each()):
        while (left := begun + number / rate - time.perf_counter()) > 0:
            poll(left)
        send(value, took.append)
    while len(took) < load.records:
        poll(0.1)


def aiokafka_paced(load: Load, rate: float) -> list[float]:
    import asyncio

    from aiokafka import AIOKafkaProducer

    took: list[float] = []

    async def produce() -> None:
        async with AIOKafkaProducer(**load.pythons | {"linger_ms": 0}) as producer:
            await producer.send_and_wait(load.topic, b"warm")
            begun, sent = time.perf_counter(), deque[Any]()
            for number, value in enumerate(load.each()):
                while (left := begun + number / rate - time.perf_counter()) > 0:
                    await asyncio.sleep(left)
                sent_at = time.perf_counter()
                future = await producer.send(load.topic, value)
                future.add_done_callback(lambda _future, since=sent_at: took.append(time.perf_counter() - since))
                sent.append(future)
            await asyncio.gather(*sent)

    asyncio.run(produce())
    return took


# ------------------------------------------------------------------------------------------------------------ ticker

TASKS, TICK_S = 300, 0.005


def ticks_beside_tasks(load: Load, seconds: float, *, sending: bool) -> list[float]:
    """The lateness (s) of each tick, beside tasks that send and await each record, or that sleep."""
    import asyncio
    import gc

    async def ticks() -> list[float]:
        late: list[float] = []
        end = due = time.perf_counter()
        end += seconds
        while due < end:
            due = max(due + TICK_S, time.perf_counter())
            await asyncio.sleep(due - time.perf_counter())
            late.append(time.perf_counter() - due)
        return late

    async def measure() -> list[float]:
        async with AsyncProducer(**load.ours, linger_ms=5) as producer:
            await (await producer.send(load.topic, b"warm"))

            async def task() -> None:
                while True:
                    if sending:
                        await (await producer.send(load.topic, load.values[0]))
                    else:
                        await asyncio.sleep(TICK_S)

            gc.collect()
            tasks = [asyncio.create_task(task()) for _ in range(TASKS)]
            late = await ticks()
            for one in tasks:
                one.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            return late

    return asyncio.run(measure())
