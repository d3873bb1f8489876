"""The topics that both connectors read: every codec, transactions, compaction, retention, emptiness, odd times."""

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType

from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import AdminClient

from kohort.testing.topics import create_topic
from tests.spark.sent import CODECS, Sent, varied

KEEP = MappingProxyType({"retention.ms": "-1"})  # the records are of 2023
TIME_MS = 1_700_000_000_000
PARTITIONS = 3
TRANSACTION_MS = 3 * 3600 * 1000  # one is open while the sessions run, which a slow machine may take long for
PLAIN: Mapping[str, object] = MappingProxyType({})
BROKER = MappingProxyType(
    {
        "log.cleaner.backoff.ms": "100",  # compaction is waited for
        "transaction.max.timeout.ms": str(TRANSACTION_MS),
    }
)
# What $name stands for in the table of cases, and the partitions and settings of the topic.
TOPICS = MappingProxyType(
    {f"codec_{codec}": (PARTITIONS, KEEP) for codec in CODECS}
    | {
        "plain": (PARTITIONS, KEEP),
        "many": (2, KEEP),
        "times": (2, KEEP),
        "appended": (1, {**KEEP, "message.timestamp.type": "LogAppendTime"}),
        "txn": (2, KEEP),
        "open": (1, KEEP),
        "compacted": (
            1,
            {
                **KEEP,
                "cleanup.policy": "compact",
                "segment.ms": "100",
                "min.cleanable.dirty.ratio": "0.01",
                "max.compaction.lag.ms": "500",
            },
        ),
        "deleted": (2, KEEP),
        "gone": (1, KEEP),
        "empty": (3, KEEP),
        "half": (3, KEEP),
        "large": (1, {**KEEP, "max.message.bytes": "4000000"}),
        "headers": (1, KEEP),
        "pat_one": (1, KEEP),
        "pat_two": (2, KEEP),
    }
)


def real_name(prefix: str, name: str) -> str:
    """Dots, dashes and underscores are what a name may hold besides letters."""
    return f"{prefix}.{name}-t"


@contextmanager
def world(bootstrap: str, prefix: str) -> Iterator[dict[str, str]]:
    """Make and fill the topics; gives what `$name` and `${prefix}` stand for. One transaction stays open meanwhile."""
    names = {name: real_name(prefix, name) for name in TOPICS}
    for name, (partitions, config) in TOPICS.items():
        create_topic(bootstrap, names[name], partitions=partitions, config=config)
    for codec in CODECS:
        _send(bootstrap, names[f"codec_{codec}"], varied(60), {"compression.type": codec})
    _send(bootstrap, names["plain"], varied(30))
    # Small batches, so that a range begins and ends inside one as often as between two.
    _send(bootstrap, names["many"], varied(3000, 2), {"compression.type": "lz4", "batch.num.messages": 70})
    _send(bootstrap, names["times"], _out_of_order())
    _send(bootstrap, names["appended"], varied(5, 1))
    _transactions(bootstrap, names["txn"])
    _compacted(bootstrap, names["compacted"])
    _send(bootstrap, names["deleted"], varied(40, 2))
    _send(bootstrap, names["gone"], varied(10, 1))
    admin = AdminClient({"bootstrap.servers": bootstrap})
    before = [Place(names["deleted"], 0, 7), Place(names["gone"], 0, 10)]
    for future in admin.delete_records(before).values():
        future.result(20)
    _send(bootstrap, names["half"], [one._replace(partition=1) for one in varied(12)])
    _send(bootstrap, names["large"], _large(), {"message.max.bytes": 4_000_000})
    _send(bootstrap, names["headers"], _odd_headers())
    _send(bootstrap, names["pat_one"], varied(4, 1))
    _send(bootstrap, names["pat_two"], varied(8, 2))
    writer = _writer(bootstrap, "open", {"transaction.timeout.ms": TRANSACTION_MS})
    _send(bootstrap, names["open"], varied(6, 1))
    writer.begin_transaction()
    _produce(writer, names["open"], varied(5, 1))
    writer.flush(20)
    _send(bootstrap, names["open"], varied(3, 1))
    try:
        yield {**names, "prefix": prefix, "bootstrap": bootstrap}
    finally:
        writer.abort_transaction(20)


def _send(bootstrap: str, topic: str, records: Iterable[Sent], settings: Mapping[str, object] = PLAIN) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, **settings})
    _produce(producer, topic, records)
    if left := producer.flush(120):
        raise RuntimeError(f"{left} records for {topic} were not acknowledged")


def _produce(producer: Producer, topic: str, records: Iterable[Sent]) -> None:
    for record in records:
        producer.produce(
            topic,
            partition=record.partition,
            key=record.key,
            value=record.value,
            timestamp=record.timestamp_ms,
            headers=list(record.headers),
            on_delivery=_refuse,
        )
        producer.poll(0)


def _refuse(error: object, _message: object) -> None:
    if error is not None:
        raise RuntimeError(f"a record was refused: {error}")


def _out_of_order() -> list[Sent]:
    seconds = (5, 3, 9, 1, 9, 20, 2, 40, 30, 31)
    return [
        Sent(n % 2, None, b"%d" % s, TIME_MS + s * 1000, ()) for n, s in enumerate(s for s in seconds for _ in "ab")
    ]


def _large() -> list[Sent]:
    return [
        Sent(0, b"%d" % n, bytes([65 + n]) * size, TIME_MS + n, ())
        for n, size in enumerate((10, 3_000_000, 5, 1_500_000))
    ]


def _odd_headers() -> list[Sent]:
    odd: tuple[tuple[tuple[str, bytes | None], ...], ...] = (
        (),
        (("", b""),),
        (("ключ", "значение".encode()), ("ключ", None)),
        tuple((f"h{n}", bytes(range(n))) for n in range(40)),
    )
    return [Sent(0, b"k", b"v", TIME_MS + n, headers) for n, headers in enumerate(odd)]


def _writer(bootstrap: str, name: str, settings: Mapping[str, object] = PLAIN) -> Producer:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"{name}-{time.time_ns()}", **settings})
    producer.init_transactions(30)
    return producer


def _transactions(bootstrap: str, topic: str) -> None:
    """Committed, aborted and plain records in turn; partition 1 ends in an aborted run."""
    first, second = _writer(bootstrap, "first"), _writer(bootstrap, "second")
    for turn in range(4):
        for writer in (first, second):
            writer.begin_transaction()
            _produce(writer, topic, varied(6, 2))
            writer.flush(20)
        # The two overlap: both were open while the other wrote.
        for writer, keep in ((first, turn % 2 == 0), (second, turn % 2 == 1)):
            (writer.commit_transaction if keep else writer.abort_transaction)(20)
        _send(bootstrap, topic, varied(2, 2))
    first.begin_transaction()
    _produce(first, topic, [one._replace(partition=1) for one in varied(5, 1)])
    first.flush(20)
    first.abort_transaction(20)


def _compacted(bootstrap: str, topic: str) -> None:
    """Four times ten writes of five keys and one of a key that never comes again; the cleaner leaves ten in all."""
    for turn in range(4):
        # A segment is closed when a record comes that is segment.ms later than its first, by the records' own times.
        at_ms = TIME_MS + turn * 60_000
        again = [Sent(0, b"k%d" % (n % 5), b"%d-%d" % (turn, n), at_ms, ()) for n in range(10)]
        _send(bootstrap, topic, [*again, Sent(0, b"once-%d" % turn, b"stays", at_ms, ())])
    deadline = time.monotonic() + 60
    while (left := _count(bootstrap, topic)) > 12:
        if time.monotonic() > deadline:
            raise RuntimeError(f"{topic} was not compacted: {left} records")
        at_ms += 60_000
        _send(bootstrap, topic, [Sent(0, b"last", b"%d" % left, at_ms, ())])
        time.sleep(0.5)
    # No more is written; wait until nothing changes under the readers.
    while _count(bootstrap, topic) != (left := _settled(bootstrap, topic)):
        if time.monotonic() > deadline:
            raise RuntimeError(f"{topic} is compacted again and again: {left} records")


def _settled(bootstrap: str, topic: str) -> int:
    time.sleep(3)
    return _count(bootstrap, topic)


def _count(bootstrap: str, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "count", "enable.partition.eof": True})
    consumer.assign([Place(topic, 0, 0)])
    count = 0
    while (message := consumer.poll(20)) is not None and message.error() is None:
        count += 1
    consumer.close()
    return count
