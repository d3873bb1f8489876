"""Consume, transform, produce: one result for every record, through kill -9 and rebalances (KIP-447).

    python examples/transform.py localhost:9092 payments totals one &
    python examples/transform.py localhost:9092 payments totals two &

The results of a slice and the offset behind it are one transaction. Consumers of the results need
isolation_level="read_committed". Each process has its own name, and keeps it after a restart. By this name brokers
find and abort the open transaction of the last process. As a static member the process also gets its partitions back.
Errors are handled as follows:

    CommitFailed, TransactionAborted  the group has a newer generation, or a write failed: nothing of the transaction
                                      counts; read again from the group's committed offsets
    ProducerFenced                    another process has this name: end
    OperationTimeout of a commit      the outcome is not known: end, and start again; the group has the outcome
"""

import contextlib
import sys
from collections.abc import Callable

from kohort import Consumer, Producer, Record
from kohort.coordinator_client import CommitFailed
from kohort.producer import TransactionAborted


def transform(consumer: Consumer, producer: Producer, target: str, change: Callable[[Record], bytes | None]) -> None:
    """Write the result of `change` for each record to `target`, under the same key, for ever."""
    for columns in consumer:
        try:
            with producer.transaction():
                for record in columns:
                    producer.send(target, change(record), key=record.key)
                producer.send_offsets(columns.next_offsets, consumer.group_metadata())
        except (CommitFailed, TransactionAborted) as problem:
            print(f"again: {problem}", file=sys.stderr)
            go_back(consumer)


def go_back(consumer: Consumer) -> None:
    """Read on from the group's committed offsets. This waits for the outcome of an open transaction."""
    for partition, stored in consumer.committed(consumer.assignment).items():
        if stored is None:
            consumer.seek_to_beginning([partition])
        else:
            consumer.seek(partition, stored.offset)


def reader(bootstrap: str, source: str, name: str) -> Consumer:
    """A member of the group that reads `source`."""
    consumer = Consumer(
        bootstrap,
        group=f"transform-{source}",
        group_instance_id=name,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    )
    consumer.subscribe([source])
    return consumer


def writer(bootstrap: str, name: str) -> Producer:
    """The producer of the member. A transaction may take as long as the handling of a slice."""
    return Producer(bootstrap, transactional_id=name, transaction_timeout_ms=30_000)


def shout(record: Record) -> bytes | None:
    """Replace this by your own function."""
    return None if record.value is None else record.value.upper()


if __name__ == "__main__":
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    bootstrap, source, target, name = sys.argv[1:]
    with (
        contextlib.suppress(KeyboardInterrupt),
        writer(bootstrap, f"{source}-{name}") as producer,
        reader(bootstrap, source, name) as consumer,
    ):
        transform(consumer, producer, target, shout)
