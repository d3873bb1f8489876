"""One member of a soak's group in a process of its own: reads, commits what it has read, and writes down both.

    python -m tests.soak.seats KIND HISTORY NAME BOOTSTRAP GROUP TOPIC STRATEGY [PROTOCOL]

SIGTERM makes it leave. Each client is used as its documentation recommends to a careful user: committing by hand,
and only records that were handed out. Further duties of ours (three ways to commit) are drawn from the member's
name.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from tests.soak.history import Writer
from tests.soak.plan import CLASSIC, CONSUMER, COOPERATIVE

SESSION_MS = 4_000
HEARTBEAT_MS = 300
REBALANCE_MS = 12_000
POLL_S = 0.1
COMMIT_EVERY_S = 0.3
COMMIT_S = 8.0


class Seat(NamedTuple):
    """The settings of a member. `strategy`: under the classic protocol an assignor of members, else one of the
    coordinator."""

    name: str
    bootstrap: str
    group: str
    topic: str
    strategy: str
    protocol: str = CLASSIC


class Leaving:
    """True if SIGTERM has come, or the parent process is gone."""

    def __init__(self) -> None:
        self._received = False
        self._parent = os.getppid()
        signal.signal(signal.SIGTERM, self._receive)

    def _receive(self, _number: int, _frame: object) -> None:
        self._received = True

    @property
    def requested(self) -> bool:
        return self._received or os.getppid() != self._parent


def slices_of(records: Iterable[tuple[int, int]]) -> list[list[int]]:
    """(partition, offset) of records in the order in which they came, as [partition, first, next] without gaps."""
    slices: list[list[int]] = []
    open_at: dict[int, list[int]] = {}
    for partition, offset in records:
        run = open_at.get(partition)
        if run is None or run[2] != offset:
            run = open_at[partition] = [partition, offset, offset]
            slices.append(run)
        run[2] = offset + 1
    return slices


class Pending:
    """Next offsets by partition that were handed out and not yet committed, and when to commit again.

    `changes` counts how often partitions were let go: what was taken before belongs to an ownership that is over.
    """

    def __init__(self) -> None:
        self.offsets: dict[int, int] = {}
        self.changes = 0
        self.due_at = 0.0

    def read(self, slices: list[list[int]]) -> None:
        for partition, _first, following in slices:
            self.offsets[partition] = following

    def take(self) -> dict[int, int]:
        """The offsets to commit now; empty until it is time."""
        if not self.offsets or time.monotonic() < self.due_at:
            return {}
        self.due_at = time.monotonic() + COMMIT_EVERY_S
        taken, self.offsets = self.offsets, {}
        return taken

    def give_back(self, offsets: dict[int, int], changes: int) -> None:
        """They could not be committed: again next time, unless more has been read, or anything let go, since."""
        if changes == self.changes:
            self.offsets = offsets | self.offsets

    def drop(self, partitions: Iterable[int]) -> None:
        """These are let go."""
        self.changes += 1
        for partition in partitions:
            self.offsets.pop(partition, None)


def name_of(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def sit_kohort(seat: Seat, book: Writer, leaving: Leaving) -> None:
    from kohort import Consumer
    from tests.soak.our_hooks import Hooks, Notes

    with Consumer(seat.bootstrap, **our_settings(seat)) as consumer:
        pending = Pending()
        notes = Notes(book, seat.topic, random.Random(seat.name), pending)
        consumer.subscribe([seat.topic], hooks=Hooks(notes, consumer))
        while not leaving.requested:
            began = time.monotonic_ns()
            slices = slices_of((one.partition, record.offset) for one in consumer.poll(POLL_S) for record in one)
            notes.delivered(began, slices)
            offsets = pending.take()
            if not offsets:
                continue
            if notes.chance.random() < 0.3:
                consumer.commit_async(notes.keys(offsets), reported_by(book.committing(offsets), pending, offsets))
                continue
            settle, changes = book.committing(offsets, COMMIT_S), pending.changes
            try:
                consumer.commit(notes.keys(offsets), timeout_s=COMMIT_S)
            except Exception as error:  # which ones are due is for the checker to say
                settle(error)
                pending.give_back(offsets, changes)
            else:
                settle(None)
        health = consumer.health()
        book.write("closing")
    book.write("left", healthy=health.healthy, reason=health.reason)


def reported_by(
    settle: Callable[[BaseException | None], None], pending: Pending, offsets: dict[int, int]
) -> Callable[[object, Exception | None], None]:
    """A callback of commit_async."""
    changes = pending.changes

    def post(_offsets: object, error: Exception | None) -> None:
        settle(error)
        if error is not None:
            pending.give_back(offsets, changes)

    return post


async def sit_kohort_async(seat: Seat, book: Writer, leaving: Leaving) -> None:
    from kohort import AsyncConsumer
    from tests.soak.our_hooks import Hooks, Notes

    async with AsyncConsumer(seat.bootstrap, **our_settings(seat)) as consumer:
        pending = Pending()
        notes = Notes(book, seat.topic, random.Random(seat.name), pending)
        consumer.subscribe([seat.topic], hooks=Hooks(notes, None))
        while not leaving.requested:
            began = time.monotonic_ns()
            slices = slices_of((one.partition, record.offset) for one in await consumer.poll(POLL_S) for record in one)
            notes.delivered(began, slices)
            if offsets := pending.take():
                settle, changes = book.committing(offsets, COMMIT_S), pending.changes
                try:
                    await consumer.commit(notes.keys(offsets), timeout_s=COMMIT_S)
                except Exception as error:  # which ones are due is for the checker to say
                    settle(error)
                    pending.give_back(offsets, changes)
                else:
                    settle(None)
        health = consumer.health()
        book.write("closing")
    book.write("left", healthy=health.healthy, reason=health.reason)


def our_settings(seat: Seat) -> dict[str, Any]:
    by = {"remote_assignor": seat.strategy} if seat.protocol == CONSUMER else {"assignors": [seat.strategy]}
    return by | {
        "group": seat.group,
        "client_id": seat.name,
        "protocol": seat.protocol,
        "auto_offset_reset": "earliest",
        "session_timeout_ms": SESSION_MS,
        "heartbeat_interval_ms": HEARTBEAT_MS,
        "max_poll_interval_ms": REBALANCE_MS,
        "bootstrap_timeout_ms": 120_000,  # a member that starts while brokers are down or stuck is to wait for them
    }


def sit_confluent(seat: Seat, book: Writer, leaving: Leaving) -> None:
    from confluent_kafka import Consumer, KafkaException
    from confluent_kafka import TopicPartition as Place

    pending = Pending()
    cooperative = seat.strategy == COOPERATIVE or seat.protocol == CONSUMER

    def numbers(partitions: list[Any]) -> list[int]:
        return [one.partition for one in partitions]

    def came(consumer: Any, partitions: list[Any]) -> None:
        held = numbers(consumer.assignment()) if cooperative else []
        new = numbers(partitions)
        book.write("assigned", partitions=new, assignment=sorted({*held, *new}), generation=-1)

    def went(consumer: Any, partitions: list[Any]) -> None:
        book.write("revoked", partitions=numbers(partitions))
        pending.drop(numbers(partitions))

    def lost(consumer: Any, partitions: list[Any]) -> None:
        book.write("lost", partitions=numbers(partitions))
        pending.drop(numbers(partitions))

    by_protocol: dict[str, dict[str, object]] = {
        CONSUMER: {"group.remote.assignor": seat.strategy},
        CLASSIC: {
            "partition.assignment.strategy": seat.strategy,
            "session.timeout.ms": SESSION_MS,
            "heartbeat.interval.ms": HEARTBEAT_MS,
        },
    }
    consumer = Consumer(
        {
            "bootstrap.servers": seat.bootstrap,
            "group.id": seat.group,
            "client.id": seat.name,
            "group.protocol": seat.protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "max.poll.interval.ms": REBALANCE_MS,
            **by_protocol[seat.protocol],
        }
    )
    consumer.subscribe([seat.topic], on_assign=came, on_revoke=went, on_lost=lost)
    while not leaving.requested:
        began = time.monotonic_ns()
        found = [(one.partition(), one.offset()) for one in consumer.consume(500, POLL_S) if one.error() is None]
        if slices := slices_of(found):
            book.write("delivered", began=began, slices=slices)
            pending.read(slices)
        if offsets := pending.take():
            settle, changes = book.committing(offsets), pending.changes
            try:
                places = [Place(seat.topic, one, offset) for one, offset in offsets.items()]
                done = consumer.commit(offsets=places, asynchronous=False)
                wrong = [KafkaException(one.error) for one in done if one.error is not None]
                settle(wrong[0] if wrong else None)
                pending.give_back(offsets if wrong else {}, changes)
            except KafkaException as error:
                settle(error)
                pending.give_back(offsets, changes)
    book.write("closing")
    consumer.close()
    book.write("left", healthy=True, reason="")


def sit_kafka_python(seat: Seat, book: Writer, leaving: Leaving) -> None:
    from kafka import ConsumerRebalanceListener, KafkaConsumer, OffsetAndMetadata, TopicPartition
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor

    pending = Pending()
    consumer = KafkaConsumer(
        bootstrap_servers=seat.bootstrap.split(","),
        group_id=seat.group,
        client_id=seat.name,
        partition_assignment_strategy=[
            {"range": RangePartitionAssignor, "roundrobin": RoundRobinPartitionAssignor}[seat.strategy]
        ],
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=HEARTBEAT_MS,
        max_poll_interval_ms=REBALANCE_MS,
    )

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_assigned(self, assigned: Any) -> None:
            note_assigned(book, assigned, generation_of(consumer))

        def on_partitions_revoked(self, revoked: Any) -> None:
            book.write("revoked", partitions=[one.partition for one in revoked])
            pending.drop([*pending.offsets])

    consumer.subscribe([seat.topic], listener=Listener())
    while not leaving.requested:
        began = time.monotonic_ns()
        found = consumer.poll(timeout_ms=int(POLL_S * 1000))
        if slices := slices_of((one.partition, record.offset) for one, records in found.items() for record in records):
            book.write("delivered", began=began, slices=slices)
            pending.read(slices)
        if offsets := pending.take():
            settle, changes = book.committing(offsets), pending.changes
            try:
                consumer.commit(
                    {TopicPartition(seat.topic, one): OffsetAndMetadata(to, "", -1) for one, to in offsets.items()}
                )
            except Exception as error:
                settle(error)
                pending.give_back(offsets, changes)
            else:
                settle(None)
    book.write("closing")
    consumer.close()
    book.write("left", healthy=True, reason="")


async def sit_aiokafka(seat: Seat, book: Writer, leaving: Leaving) -> None:
    from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
    from aiokafka.coordinator.assignors.range import RangePartitionAssignor
    from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor

    pending = Pending()
    consumer = AIOKafkaConsumer(
        bootstrap_servers=seat.bootstrap,
        group_id=seat.group,
        client_id=seat.name,
        partition_assignment_strategy=(
            {"range": RangePartitionAssignor, "roundrobin": RoundRobinPartitionAssignor}[seat.strategy],
        ),
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=HEARTBEAT_MS,
        max_poll_interval_ms=REBALANCE_MS,
    )

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
        async def on_partitions_assigned(self, assigned: Any) -> None:
            note_assigned(book, assigned, generation_of(consumer))

        async def on_partitions_revoked(self, revoked: Any) -> None:
            book.write("revoked", partitions=[one.partition for one in revoked])
            pending.drop([*pending.offsets])

    consumer.subscribe([seat.topic], listener=Listener())
    await consumer.start()
    while not leaving.requested:
        began = time.monotonic_ns()
        found = await consumer.getmany(timeout_ms=int(POLL_S * 1000))
        if slices := slices_of((one.partition, record.offset) for one, records in found.items() for record in records):
            book.write("delivered", began=began, slices=slices)
            pending.read(slices)
        if offsets := pending.take():
            settle, changes = book.committing(offsets), pending.changes
            try:
                await consumer.commit({TopicPartition(seat.topic, one): to for one, to in offsets.items()})
            except Exception as error:
                settle(error)
                pending.give_back(offsets, changes)
            else:
                settle(None)
    book.write("closing")
    await consumer.stop()
    book.write("left", healthy=True, reason="")


def note_assigned(book: Writer, assigned: Any, generation: int) -> None:
    """An eager client's assignment: all of it is new."""
    numbers = sorted(one.partition for one in assigned)
    book.write("assigned", partitions=numbers, assignment=numbers, generation=generation)


def generation_of(consumer: Any) -> int:
    """The generation that a Python peer is in, which it does not say in public; -1 where it hides it elsewhere."""
    found = getattr(getattr(consumer, "_coordinator", None), "generation", -1)
    found = found() if callable(found) else found
    found = getattr(found, "generation_id", found)
    return found if isinstance(found, int) else -1


SITS = {
    "kohort": sit_kohort,
    "kohort-async": sit_kohort_async,
    "confluent-kafka": sit_confluent,
    "kafka-python": sit_kafka_python,
    "aiokafka": sit_aiokafka,
}


def main(kind: str, history: str, *place: str) -> int:
    seat = Seat(*place)
    book = Writer(Path(history), seat.name)
    leaving = Leaving()
    try:
        sitting: Any = SITS[kind](seat, book, leaving)
        if asyncio.iscoroutine(sitting):
            asyncio.run(sitting)
    except BaseException as error:
        import traceback

        book.write("failed", error=name_of(error), trace=traceback.format_exc())
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
