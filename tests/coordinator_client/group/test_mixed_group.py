"""One group, four kinds of client: three kohort.Consumers beside confluent-kafka, kafka-python and aiokafka."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import pytest

from kohort.common import TopicPartition
from kohort.coordinator_client import Consumer, RebalanceHooks
from tests.support.broker_selection import SelectedBroker

PARTITIONS = 14  # not a multiple of six members, so that range and roundrobin differ and no share is trivial
SETTLE_S = 60.0

Owned = frozenset[tuple[str, int]]


class Seat:
    """One member in a thread of its own: `owned` is what its client says it owns now, None before it knows."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.owned: Owned | None = None
        self.stop = threading.Event()
        self.error: BaseException | None = None


def sit_kohort(seat: Seat, bootstrap: str, group: str, topic: str, strategy: str) -> None:
    with Consumer(bootstrap, group=group, assignors=[strategy], client_id=seat.name) as consumer:
        consumer.subscribe([topic], hooks=RebalanceHooks())
        while not seat.stop.is_set():
            consumer.poll(0.1)
            seat.owned = frozenset((one.topic, one.partition) for one in consumer.assignment)


def sit_confluent(seat: Seat, bootstrap: str, group: str, topic: str, strategy: str) -> None:
    from confluent_kafka import Consumer as Peer

    consumer = Peer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "client.id": seat.name,
            "partition.assignment.strategy": strategy,
        }
    )
    consumer.subscribe([topic])
    try:
        while not seat.stop.is_set():
            consumer.poll(0.1)
            seat.owned = frozenset((one.topic, one.partition) for one in consumer.assignment())
    finally:
        consumer.close()


def sit_kafka_python(seat: Seat, bootstrap: str, group: str, topic: str, strategy: str) -> None:
    from kafka import KafkaConsumer
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor

    chosen = {"range": RangePartitionAssignor, "roundrobin": RoundRobinPartitionAssignor}[strategy]
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=group,
        client_id=seat.name,
        partition_assignment_strategy=[chosen],
    )
    try:
        while not seat.stop.is_set():
            consumer.poll(timeout_ms=100)
            seat.owned = frozenset((one.topic, one.partition) for one in consumer.assignment())
    finally:
        consumer.close()


def sit_aiokafka(seat: Seat, bootstrap: str, group: str, topic: str, strategy: str) -> None:
    from aiokafka import AIOKafkaConsumer
    from aiokafka.coordinator.assignors.range import RangePartitionAssignor
    from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor

    chosen = {"range": RangePartitionAssignor, "roundrobin": RoundRobinPartitionAssignor}[strategy]

    async def sit() -> None:
        consumer = AIOKafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            client_id=seat.name,
            partition_assignment_strategy=(chosen,),
        )
        await consumer.start()
        try:
            while not seat.stop.is_set():
                await consumer.getmany(timeout_ms=100)
                seat.owned = frozenset((one.topic, one.partition) for one in consumer.assignment())
        finally:
            await consumer.stop()

    asyncio.run(sit())


@contextmanager
def seated(sit: Callable[..., None], name: str, *args: Any) -> Iterator[Seat]:
    seat = Seat(name)

    def run() -> None:
        try:
            sit(seat, *args)
        except BaseException as error:
            seat.error = error

    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    try:
        yield seat
    finally:
        seat.stop.set()
        thread.join(120)


def by_broker(bootstrap: str, group: str) -> dict[str, Owned]:
    """Client id -> what the coordinator says that it owns, once the group is stable; {} before."""
    from confluent_kafka import ConsumerGroupState
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": bootstrap})
    described = admin.describe_consumer_groups([group], request_timeout=10)[group].result()
    if described.state != ConsumerGroupState.STABLE:
        return {}
    return {
        member.client_id: frozenset((one.topic, one.partition) for one in member.assignment.topic_partitions)
        for member in described.members
    }


def settled(seats: list[Seat], bootstrap: str, group: str) -> dict[str, Owned]:
    """Wait until each member's own view is the coordinator's, twice in a row."""
    limit = time.monotonic() + SETTLE_S
    agreed = 0
    view: dict[str, Owned] = {}
    while time.monotonic() < limit:
        for seat in seats:
            if seat.error is not None:
                raise AssertionError(f"{seat.name} failed") from seat.error
        with suppress(Exception):  # the group may not exist yet
            view = by_broker(bootstrap, group)
        own = {seat.name: seat.owned for seat in seats}
        agreed = agreed + 1 if view and view == own else 0
        if agreed == 2:
            return view
        time.sleep(0.2)
    raise AssertionError(f"no agreement: coordinator {view}, members {own}")


@pytest.mark.broker
@pytest.mark.parametrize("strategy", ["range", "roundrobin"])
@pytest.mark.proves("G-03", "G-04", "G-05", "G-06")
def test_six_members_of_four_clients_own_every_partition_once(
    strategy: str, broker: SelectedBroker, make_topic: Callable[..., str], unique: Callable[[str], str]
) -> None:
    topic = make_topic(PARTITIONS)
    group = unique("mixed")
    everything = {(topic, number) for number in range(PARTITIONS)}
    sits = [
        (sit_kohort, "kohort-1"),
        (sit_confluent, "confluent"),
        (sit_kohort, "kohort-2"),
        (sit_kafka_python, "kafka-python"),
        (sit_kohort, "kohort-3"),
        (sit_aiokafka, "aiokafka"),
    ]
    with ExitStack() as stack:
        seats = [stack.enter_context(seated(sit, name, broker.bootstrap, group, topic, strategy)) for sit, name in sits]
        view = settled(seats, broker.bootstrap, group)
        owned = [partition for share in view.values() for partition in share]
        assert sorted(owned) == sorted(everything)  # every partition has exactly one owner
        sizes = sorted(len(share) for share in view.values())
        assert sizes == [2, 2, 2, 2, 3, 3]
        # One of ours leaves, and the others share what it had.
        leaver = seats[2]
        leaver.stop.set()
        view = settled([seat for seat in seats if seat is not leaver], broker.bootstrap, group)
        owned = [partition for share in view.values() for partition in share]
        assert sorted(owned) == sorted(everything)


@pytest.mark.broker
@pytest.mark.proves("G-10")
def test_more_members_than_partitions_leaves_some_idle_and_healthy(
    broker: SelectedBroker, make_topic: Callable[..., str], unique: Callable[[str], str]
) -> None:
    topic = make_topic(2)
    group = unique("idle")
    with ExitStack() as stack:
        seats = [
            stack.enter_context(seated(sit_kohort, f"member-{n}", broker.bootstrap, group, topic, "range"))
            for n in range(3)
        ]
        view = settled(seats, broker.bootstrap, group)
        assert sorted(len(share) for share in view.values()) == [0, 1, 1]
        assert {TopicPartition(*one) for share in view.values() for one in share} == {
            TopicPartition(topic, 0),
            TopicPartition(topic, 1),
        }
