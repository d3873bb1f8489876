"""Consume, transform, produce: one result for every record, through kill -9 and rebalances (KIP-447).

    python examples/transform.py localhost:9092 payments totals one &
    python examples/transform.py localhost:9092 payments totals two &

The results of a slice and the offset behind it are one transaction: both are there, or neither. Who reads the results
does so with isolation_level="read_committed". Each process has a name of its own, and gets it again when it is started
again: by the name brokers know the transaction that its last life left open, and abort it; and as a static member it
gets back the partitions that it had. What else may go wrong:

    CommitFailed, TransactionAborted  the group has gone on, or something was not written: nothing of it counts, read
                                      again from where the group stands
    ProducerFenced                    another process has this name: end
    OperationTimeout                  of a commit, that is: whether it counts is not known here, but is to the group:
                                      end, and be started again
"""

import contextlib
import sys
from collections.abc import Callable

from kohort import Consumer, Producer, Record
from kohort.coordinator_client import CommitFailed
from kohort.producer import TransactionAborted


def transform(consumer: Consumer, producer: Producer, target: str, change: Callable[[Record], bytes | None]) -> None:
    """Write what `change` makes of each record to `target`, under the same key; for ever."""
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
    """Read on from what the group has committed; while a transaction may change that, this waits for its outcome."""
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
    """The producer of that member; a transaction may take as long as the slice that it is about."""
    return Producer(bootstrap, transactional_id=name, transaction_timeout_ms=30_000)


def shout(record: Record) -> bytes | None:
    """Yours goes here."""
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
