"""One client of `outage`: reads a topic as the only member of its group, and commits every 100 ms without waiting.

    python -m benchmarks.outage_clients CLIENT BOOTSTRAP TOPIC GROUP

Each line of the output is a kind, a monotonic time in seconds and details. Kinds are `read` (a record's partition and
offset), `commit` (an accepted one), `refused` (its error), `lost` (a membership) and `error` (a failed poll). It ends
after SIGTERM.
"""

import asyncio
import signal
import sys
import time
from collections.abc import Callable, Iterable

from kohort import Consumer, RebalanceHooks
from kohort.coordinator_client import Lost

POLL_S, COMMIT_EVERY_S = 0.05, 0.1


class Log:
    """Prints what happens, and paces the commits."""

    def __init__(self) -> None:
        self.ends = False
        self._commit_at = 0.0
        signal.signal(signal.SIGTERM, self._end)

    def _end(self, number: int, frame: object) -> None:
        self.ends = True

    def line(self, kind: str, *details: object) -> None:
        print(kind, time.monotonic(), *details, flush=True)

    def records(self, places: Iterable[tuple[int, int]]) -> None:
        for place in places:
            self.line("read", *place)

    def settled(self, error: object) -> None:
        self.line("commit") if error is None else self.line("refused", repr(error))

    def commit_is_due(self) -> bool:
        due = time.monotonic() >= self._commit_at
        if due:
            self._commit_at = time.monotonic() + COMMIT_EVERY_S
        return due


def kohort(bootstrap: str, topic: str, group: str, log: Log) -> None:
    class Hooks(RebalanceHooks):
        def on_lost(self, event: Lost) -> None:
            log.line("lost")

    with Consumer(bootstrap, group=group, auto_offset_reset="earliest", enable_auto_commit=False) as consumer:
        consumer.subscribe([topic], hooks=Hooks())
        while not log.ends:
            for columns in consumer.poll(POLL_S):
                log.records((columns.partition, offset) for offset in columns.offsets)
            if log.commit_is_due():
                consumer.commit_async(on_done=lambda offsets, error: log.settled(error))


def confluent_kafka(bootstrap: str, topic: str, group: str, log: Log) -> None:
    from confluent_kafka import Consumer as Librdkafka
    from confluent_kafka import KafkaException

    consumer = Librdkafka(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "on_commit": lambda error, partitions: log.settled(error),
        }
    )
    consumer.subscribe([topic], on_lost=lambda consumer, partitions: log.line("lost"))
    while not log.ends:
        for message in consumer.consume(500, POLL_S):
            if (error := message.error()) is not None:
                log.line("error", repr(error))
            else:
                log.records([(message.partition(), message.offset())])
        if log.commit_is_due():
            try:
                consumer.commit(asynchronous=True)
            except KafkaException as error:
                log.settled(error)
    consumer.close()


def kafka_python(bootstrap: str, topic: str, group: str, log: Log) -> None:
    from kafka import KafkaConsumer
    from kafka.errors import KafkaError

    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    while not log.ends:
        try:
            for records in consumer.poll(int(POLL_S * 1000)).values():
                log.records((one.partition, one.offset) for one in records)
        except KafkaError as error:
            log.line("error", repr(error))
        if log.commit_is_due() and consumer.assignment():
            consumer.commit_async(
                callback=lambda offsets, outcome: log.settled(outcome if isinstance(outcome, Exception) else None)
            )
    consumer.close()


def aiokafka(bootstrap: str, topic: str, group: str, log: Log) -> None:
    from aiokafka import AIOKafkaConsumer
    from aiokafka.errors import KafkaError

    async def commit(consumer: AIOKafkaConsumer) -> None:
        try:
            await consumer.commit()
        except KafkaError as error:
            log.settled(error)
        else:
            log.settled(None)

    async def main() -> None:
        consumer = AIOKafkaConsumer(
            topic, bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False
        )
        await consumer.start()
        running: asyncio.Task[None] | None = None  # it has no commit that returns at once
        while not log.ends:
            try:
                for records in (await consumer.getmany(timeout_ms=int(POLL_S * 1000))).values():
                    log.records((one.partition, one.offset) for one in records)
            except KafkaError as error:
                log.line("error", repr(error))
            if log.commit_is_due() and (running is None or running.done()):
                running = asyncio.create_task(commit(consumer))
        await consumer.stop()

    asyncio.run(main())


CLIENTS: dict[str, Callable[[str, str, str, Log], None]] = {
    "kohort": kohort,
    "confluent-kafka": confluent_kafka,
    "aiokafka": aiokafka,
    "kafka-python": kafka_python,
}

if __name__ == "__main__":
    chosen, address, topic, group = sys.argv[1:]
    CLIENTS[chosen](address, topic, group, Log())
