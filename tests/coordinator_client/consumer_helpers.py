"""Helpers for the tests of a consumer on a real broker: another library's producer, and waiting with a limit."""

import gc
import os
import time
from collections.abc import Callable, Collection, Iterable
from typing import Any
from uuid import UUID

import pytest

from kohort import AsyncConsumer
from kohort.common import TopicPartition
from kohort.coordinator_client import Assigned, Consumer, Lost, RebalanceHooks, Revoked
from kohort.fastpath import Record
from kohort.network.network_client import Driver
from kohort.protocol.apis.offset_commit import OffsetCommitResponse
from kohort.testing import RealCluster
from kohort.testing.fake_broker import Alter
from kohort.testing.kafka_node import KafkaNode

PATIENCE_S = 120.0


def produce(bootstrap: str, topic: str, values: Iterable[bytes], *, partition: int = 0, **settings: Any) -> None:
    """Write with librdkafka, and wait until everything is stored."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 1, **settings})
    for value in values:
        while True:
            try:
                producer.produce(topic, value, partition=partition)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(120) == 0


def numbers(first: int, count: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]


def read(consumer: Consumer, count: int, *, patience_s: float = PATIENCE_S) -> list[Record]:
    """Poll until `count` records have come; more than that is an error, and so is waiting for ever."""
    records: list[Record] = []
    limit = time.monotonic() + patience_s
    while len(records) < count:
        assert time.monotonic() < limit, f"{len(records)} of {count} records came; {consumer.health()}"
        for columns in consumer.poll(0.2):
            records.extend(columns)
    assert len(records) == count
    return records


def wait_until(reached: Callable[[], bool], *, patience_s: float = PATIENCE_S) -> None:
    """Wait without polling until it is so."""
    limit = time.monotonic() + patience_s
    while not reached():
        assert time.monotonic() < limit, "it did not come to that"
        time.sleep(0.02)


def poll_until(consumer: Consumer, reached: Callable[[], bool], *, patience_s: float = PATIENCE_S) -> list[Record]:
    """Poll until it is so; what came meanwhile."""
    records: list[Record] = []
    limit = time.monotonic() + patience_s
    while not reached():
        assert time.monotonic() < limit, f"it did not come to that; {consumer.health()}"
        for columns in consumer.poll(0.1):
            records.extend(columns)
    return records


def poll_all_until(
    consumers: Iterable[Consumer], reached: Callable[[], bool], *, patience_s: float = PATIENCE_S
) -> None:
    """As `poll_until`, several members in one thread."""
    limit = time.monotonic() + patience_s
    while not reached():
        assert time.monotonic() < limit, "it did not come to that"
        for consumer in consumers:
            consumer.poll(0.05)


def refuse_commits(code: int, topic_ids: Collection[UUID] | None = None) -> Alter:
    """An OffsetCommit response with this error code for all partitions, or for those of some topics."""

    def refused(response: OffsetCommitResponse) -> OffsetCommitResponse:
        return response._replace(
            topics=tuple(
                topic._replace(partitions=tuple(one._replace(error_code=code) for one in topic.partitions))
                if topic_ids is None or topic.topic_id in topic_ids
                else topic
                for topic in response.topics
            )
        )

    return Alter(refused)


def addresses(node: KafkaNode) -> set[str]:
    """The addresses of all its listeners: the listener of the connection decides which of them a client receives."""
    return {node.layout.address(listener) for listener in node.layout.ports}


def node_at(cluster: RealCluster, address: str | None) -> KafkaNode:
    """The node that listens there."""
    (found,) = [node for node in cluster.nodes if address in addresses(node)]
    return found


async def first_value(topic: str, **settings: Any) -> bytes | bytearray | memoryview | None:
    """The first value that an AsyncConsumer finds in the topic's first partition."""
    async with AsyncConsumer(**settings) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        while True:
            for columns in await consumer.poll(1.0):
                for record in columns:
                    return record.value


class Witness(RebalanceHooks):
    """Hooks that record their arguments."""

    def __init__(self) -> None:
        self.reported: list[Assigned | Revoked | Lost] = []
        self.on_assigned_result: dict[TopicPartition, int] | None = None
        self.on_revoked_result: dict[TopicPartition, int] | None = None

    def on_assigned(self, event: Assigned) -> dict[TopicPartition, int] | None:
        self.reported.append(event)
        return self.on_assigned_result

    def on_revoked(self, event: Revoked) -> dict[TopicPartition, int] | None:
        self.reported.append(event)
        return self.on_revoked_result

    def on_lost(self, event: Lost) -> None:
        self.reported.append(event)

    def kinds(self) -> list[str]:
        return [type(event).__name__ for event in self.reported]


def in_a_child(*calls: Callable[[], object]) -> list[str]:
    """The error type that each of them raises in a forked child of this process."""
    read_end, write_end = os.pipe()
    gc.collect()  # the child must not collect clients of other tests and libraries, whose threads it lacks
    gc.freeze()
    child = os.fork()
    if child == 0:
        said = []
        for call in calls:
            try:
                call()
            except BaseException as error:
                said.append(type(error).__name__)
        os.write(write_end, " ".join(said).encode())
        os._exit(0)
    _pid, status = os.waitpid(child, 0)
    gc.unfreeze()
    os.close(write_end)
    assert status == 0, f"the child ended with status {status}"
    with open(read_end) as response:
        return response.read().split()


def crash(driver: Driver[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """End a driver by a defect, as if we had one."""

    def poll(*_given: object) -> object:
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr(driver.core, "poll", poll)
    driver.wakeup()
    assert driver.ended.wait(PATIENCE_S)
