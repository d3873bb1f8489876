"""Reading of a topic from its beginning by each client, with its best settings, for `consume` and other benchmarks.

Each function returns the number of read records, at least `count`. kohort's columns are counted, and the bytes of their
values are summed. For messages and records, key, value and timestamp are read, as in every application.
"""

import socket
import uuid

from kohort import Consumer, TopicPartition
from kohort.fastpath._fetch import slice_end
from kohort.protocol.apis.fetch import FetchPartition, FetchRequest, FetchTopic
from kohort.protocol.wire import WireConnection

PARTITIONS = 4
FETCH_BYTES = 8 << 20
FETCH_VERSION = 11  # the last that names topics, so that no look-up is needed


def columns(bootstrap: str, topic: str, count: int) -> int:
    read = value_bytes = 0
    with Consumer(bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign(TopicPartition(topic, number) for number in range(PARTITIONS))
        for slice_ in consumer:
            read += len(slice_)
            value_bytes += slice_.values.nbytes
            if read >= count:
                break
    assert value_bytes >= read
    return read


def records(bootstrap: str, topic: str, count: int) -> int:
    read = 0
    with Consumer(bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign(TopicPartition(topic, number) for number in range(PARTITIONS))
        for slice_ in consumer:
            for record in slice_:
                record.key, record.value, record.timestamp_ms  # noqa: B018 -- reading is the work
            read += len(slice_)
            if read >= count:
                break
    return read


def raw_socket(bootstrap: str, topic: str, count: int) -> int:
    """Fetch requests on one socket into one buffer, without decoding: the limit of the broker and the machine."""
    host, _, port = bootstrap.split(",")[0].rpartition(":")
    wire = WireConnection("bench", max_frame_bytes=1 << 30)
    at = dict.fromkeys(range(PARTITIONS), 0)
    buffer = bytearray(2 * FETCH_BYTES + (1 << 20))
    view = memoryview(buffer)
    with socket.create_connection((host, int(port))) as sock:
        while sum(at.values()) < count:
            parts = tuple(
                FetchPartition(
                    partition=number, current_leader_epoch=-1, fetch_offset=offset, partition_max_bytes=FETCH_BYTES
                )
                for number, offset in at.items()
            )
            request = FetchRequest(
                replica_id=-1,
                max_wait_ms=500,
                min_bytes=1,
                max_bytes=FETCH_BYTES,
                isolation_level=0,
                session_id=0,
                session_epoch=-1,
                forgotten_topics_data=(),
                rack_id="",
                topics=(FetchTopic(topic=topic, partitions=parts),),
            )
            _correlation_id, frame = wire.send("Fetch", FETCH_VERSION, request)
            sock.sendall(frame)
            _receive(sock, view[:4])
            size = int.from_bytes(view[:4], "big")
            _receive(sock, view[:size])
            for responded in wire.receive_frame(view[:size]).value.responses:
                for data in responded.partitions:
                    if data.records:
                        at[data.partition_index] = slice_end(memoryview(data.records)).next_offset or 0
    return sum(at.values())


def _receive(sock: socket.socket, into: memoryview) -> None:
    while into:
        into = into[sock.recv_into(into) :]


def confluent(bootstrap: str, topic: str, count: int) -> int:
    from confluent_kafka import Consumer as Peer
    from confluent_kafka import TopicPartition as PeerPartition

    consumer = Peer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"bench-{uuid.uuid4().hex}",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "fetch.queue.backoff.ms": 1,
            "queued.min.messages": 1_000_000,
        }
    )
    consumer.assign([PeerPartition(topic, number, 0) for number in range(PARTITIONS)])
    read = 0
    while read < count:
        for message in consumer.consume(10_000, 1.0):
            message.key(), message.value(), message.timestamp()
            read += 1
    consumer.close()
    return read


def aiokafka(bootstrap: str, topic: str, count: int) -> int:
    import asyncio

    from aiokafka import AIOKafkaConsumer
    from aiokafka import TopicPartition as PeerPartition

    async def consume() -> int:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=bootstrap,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            max_partition_fetch_bytes=8 << 20,
            fetch_max_bytes=16 << 20,
        )
        await consumer.start()
        try:
            consumer.assign([PeerPartition(topic, number) for number in range(PARTITIONS)])
            await consumer.seek_to_beginning()
            read = 0
            while read < count:
                for records in (await consumer.getmany(timeout_ms=1000, max_records=10_000)).values():
                    for record in records:
                        record.key, record.value, record.timestamp  # noqa: B018 -- reading is the work
                    read += len(records)
            return read
        finally:
            await consumer.stop()

    return asyncio.run(consume())


def kafka_python(bootstrap: str, topic: str, count: int) -> int:
    from kafka import KafkaConsumer
    from kafka import TopicPartition as PeerPartition

    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        max_partition_fetch_bytes=8 << 20,
        fetch_max_bytes=16 << 20,
    )
    consumer.assign([PeerPartition(topic, number) for number in range(PARTITIONS)])
    consumer.seek_to_beginning()
    read = 0
    while read < count:
        for records in consumer.poll(timeout_ms=1000, max_records=10_000).values():
            for record in records:
                record.key, record.value, record.timestamp  # noqa: B018 -- reading is the work
            read += len(records)
    consumer.close()
    return read
