"""A user's program over all public classes. Type checkers must find no mistake in it."""

import asyncio
from collections.abc import Sequence

import kohort
from kohort import (
    Admin,
    Assigned,
    Assignor,
    AsyncConsumer,
    AsyncProducer,
    AsyncShareConsumer,
    ConsistentRegion,
    Consumer,
    GroupView,
    KohortError,
    Lost,
    Plan,
    Producer,
    RebalanceHooks,
    Record,
    RecordColumns,
    Revoked,
    ShareConsumer,
    TopicPartition,
    Transform,
)
from kohort.assignors import MemberSubscription, Rebalance
from kohort.consistent_region import DictState, Periodic


class Hooks(RebalanceHooks):
    def on_revoked(self, event: Revoked) -> dict[TopicPartition, int]:
        return dict.fromkeys(event.partitions, 1)

    def on_assigned(self, event: Assigned) -> None:
        print(event.generation)

    def on_lost(self, event: Lost) -> None:
        print(event.cause)


class Mine:
    name, rebalance = "mine", Rebalance.EAGER

    def subscription(
        self, topics: Sequence[str], owned: Sequence[TopicPartition], generation: int
    ) -> MemberSubscription:
        return MemberSubscription(tuple(topics))

    def assign(self, group: GroupView) -> Plan:
        return Plan.of(group, {group.members[0].id: [group.partition(0)]})


MINE: Assignor = Mine()


def show(columns: RecordColumns) -> None:
    for record in columns:
        value: Record = record
        print(value.offset, value.key, value.headers)


def count(record: Record, totals: DictState) -> None:
    totals[str(record.offset)] = 1


def main() -> None:
    with Admin("a:1", security_protocol="SSL", ssl_ca_path="ca.pem") as admin:
        admin.create_topic("topic", partitions=1)
    with Producer("a:1", compression="zstd", linger_ms=5, transactional_id="id") as producer, producer.transaction():
        print(producer.send("topic", b"value", key=b"key").result(10.0).offset)
    with Consumer(["a:1"], group="g", assignors=[MINE, "range"], isolation_level="read_committed") as consumer:
        consumer.subscribe(["topic"], hooks=Hooks())
        for columns in consumer.poll(1.0):
            show(columns)
        consumer.commit({TopicPartition("topic", 0): 1})
    with ShareConsumer("a:1", group="s") as share:
        share.subscribe(["topic"])
        for records in share.poll(1.0):
            print(len(records))
    try:
        ConsistentRegion("r", group="g", topics=["topic"], bootstrap="a:1", handler=count, trigger=Periodic(5)).run()
    except KohortError as error:
        print(error.place, kohort.__version__)


def forward(columns: RecordColumns, producer: Producer) -> None:
    for record in columns:
        producer.send("copies", record.value, record.key)


def transform() -> None:
    Transform("a:1", group="g", name="n", topics=["t"], handler=forward, producer={"linger_ms": 5}).run()


async def more() -> None:
    async with AsyncConsumer("a:1", group="g", protocol="consumer", max_poll_records=5) as consumer:
        consumer.subscribe(pattern="top.*")
        async for columns in consumer:
            show(columns)
    async with AsyncProducer("a:1", acks=1) as producer:
        await producer.send("topic", b"value")
    async with AsyncShareConsumer("a:1", group="s") as share:
        share.subscribe(["topic"])
        print(await share.poll(1.0))


if __name__ == "__main__":
    main()
    asyncio.run(more())
