"""Random histories of a stream on the fake broker: a driver that restarts, and a log that changes under it.

The history calls the stream as Spark calls it, and keeps the two logs of Spark's checkpoint. A model has every record.
Each batch must have the records of its range, with their values. A loss may be reported only if records were lost.
"""

import json
import random
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from kohort.common import TopicPartition
from kohort.fastpath import encode
from kohort.fastpath.batches import batches
from kohort.spark.errors import DataLossError
from kohort.spark.offset_json import Logged, unlogged
from kohort.spark.options import SourceOptions
from kohort.spark.source import SCHEMA_WITH_HEADERS
from kohort.spark.stream import StreamReader
from kohort.testing.fake_broker import Close, FakeBroker
from kohort.testing.fake_broker.cluster import FakePartition

TOPICS = ("a", "b")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
START_MS = 1_700_000_000_000
CODECS = ("none", "gzip", "lz4", "snappy", "zstd")
APIS = ("Metadata", "ListOffsets", "Fetch", "OffsetCommit", "FindCoordinator")
QUIET_TRIGGERS = 3  # after the last change: every record is read by then
Row = tuple[bytes | None, bytes | None, datetime, int, list[dict[str, Any]]]


class StreamHistory:
    """One history. `got` counts the records of finished batches."""

    def __init__(self, seed: int) -> None:
        self.random = chance = random.Random(seed)
        self.broker = FakeBroker(dict.fromkeys(TOPICS, 2), nodes=2, keep_calls=False)
        self.written: dict[TopicPartition, dict[int, Row]] = {}
        self.open: dict[tuple[TopicPartition, int], list[int]] = {}
        self.aborted: set[tuple[TopicPartition, int]] = set()
        self.number = 0
        self.lost = False
        self.strict = chance.random() < 0.5
        self.committed_only = chance.random() < 0.5
        self.limit = chance.choice([None, 1, 7])
        self.options = {
            "kafka.bootstrap.servers": self.broker.bootstrap,
            "kafka.retry.backoff.ms": "10",
            "kafka.reconnect.backoff.ms": "5",
            "kafka.isolation.level": "read_committed" if self.committed_only else "read_uncommitted",
            "includeHeaders": "true",
            **chance.choice([{"subscribe": ",".join(TOPICS)}, {"subscribePattern": "^[ab]$"}]),
            **chance.choice([{"startingOffsets": "earliest"}, {"startingTimestamp": str(START_MS)}]),
            **chance.choice([{}, {"minPartitions": "5"}, {"maxRecordsPerPartition": "2"}]),
            **chance.choice([{}, {"kafka.group.id": "g"}]),
            **({} if self.limit is None else {"maxOffsetsPerTrigger": str(self.limit)}),
        }
        for partition in self.partitions():
            self.produce(partition)
        self.planned: list[Logged] = []  # Spark's log of offsets
        self.finished = 0  # its log of commits
        self.got: Counter[tuple[TopicPartition, int]] = Counter()
        self.stream = self.reader()
        self.at = self.stream.initialOffset()

    # --- the log

    def partitions(self) -> list[TopicPartition]:
        topics = self.broker._cluster.topics.values()
        return [TopicPartition(topic.name, number) for topic in topics for number in range(len(topic.partitions))]

    def log_of(self, partition: TopicPartition) -> FakePartition:
        return self.broker._cluster.topics[partition.topic].partitions[partition.partition]

    def end(self, partition: TopicPartition) -> int:
        found = self.log_of(partition)
        return found.stable_offset if self.committed_only else found.log.end

    def produce(self, partition: TopicPartition, producer: int | None = None) -> None:
        chance, records, rows = self.random, [], list[Row]()
        append_ms = chance.choice([None, START_MS + self.number])
        for _ in range(chance.choice([1, 2, 5])):
            self.number += 1
            key, value = (chance.choice([None, b"", b"%d" % self.number]) for _ in range(2))
            headers = [(name, chance.choice([None, b"", b"value"])) for name in chance.choice([(), ("x",), ("x", "x")])]
            time_ms = START_MS + self.number + chance.randrange(50)
            records.append((key, value, time_ms, headers))
            seen_ms, kind = (time_ms, 0) if append_ms is None else (append_ms, 1)
            columns = [{"key": name, "value": content} for name, content in headers]
            rows.append((key, value, EPOCH + timedelta(milliseconds=seen_ms), kind, columns))
        numbered: dict[str, Any] = {"producer_id": producer, "producer_epoch": 0, "base_sequence": 0}
        of_transaction = {} if producer is None else {**numbered, "transactional": True}
        data = encode(records, codec=chance.choice(CODECS), log_append_time_ms=append_ms, **of_transaction)

        def append() -> int:
            found = self.log_of(partition)
            base = found.log.append(data, found.epoch)
            found.transactions.took(next(batches(data)), base)
            self.broker._wake_fetches()
            return base

        base = self.broker._do(append)
        self.written.setdefault(partition, {}).update(enumerate(rows, base))
        if producer is not None:
            self.open.setdefault((partition, producer), []).extend(range(base, base + len(rows)))

    def end_transaction(self, partition: TopicPartition, producer: int, *, committed: bool) -> None:
        offsets = self.open.pop((partition, producer))
        if not committed:
            self.aborted.update((partition, offset) for offset in offsets)
        self.broker._do(lambda: self.log_of(partition).settle(producer, 0, committed=committed))

    def change(self) -> None:
        """Do one random step of the brokers and of other programs."""
        chance, partition = self.random, self.random.choice(self.partitions())
        topic, number = partition
        log = self.log_of(partition).log

        def skip() -> None:
            self.broker.skip(topic, number, log.end + chance.randrange(1, 4))
            self.produce(partition)  # compaction keeps the last batch

        def trim() -> None:
            if not any(place == partition for place, _ in self.open):
                self.broker.trim(topic, number, chance.randrange(log.start, log.end + 1))
                self.lost = True

        def end() -> None:
            if self.open:
                self.end_transaction(*chance.choice([*self.open]), committed=chance.random() < 0.5)

        def fail() -> None:
            closed = Close(after_work=chance.random() < 0.5, reset=chance.random() < 0.5)
            self.broker.control(chance.choice(APIS), lambda _call: closed, times=1)

        def grow() -> None:
            count = len(self.broker._cluster.topics[topic].partitions)
            if count < 4:
                self.broker.add_partitions(topic, count + 1)
                self.produce(TopicPartition(topic, count))

        steps: Mapping[Callable[[], object], int] = {
            lambda: self.produce(partition): 8,
            lambda: self.produce(partition, chance.randrange(1, 4)): 4,
            lambda: self.broker.set_leader(topic, number, 3 - self.log_of(partition).leader): 2,
            end: 5,
            skip: 2,
            trim: 1,
            fail: 3,
            grow: 1,
        }
        chance.choices([*steps], [*steps.values()])[0]()

    # --- Spark

    def reader(self) -> StreamReader:
        given = self.options | {"failOnDataLoss": str(self.strict).lower()}
        return StreamReader(SourceOptions.of(given, streaming=True), SCHEMA_WITH_HEADERS)

    def restart(self) -> None:
        """Start the query from its checkpoint. A batch that is not finished is repeated."""
        self.stream.stop()
        self.stream = self.reader()
        if len(self.planned) > self.finished:
            self.run(self.planned[-2] if len(self.planned) > 1 else self.stream.initialOffset(), self.planned[-1])
        elif self.planned:
            self.stream.partitions(self.at, self.at)  # as every PySpark does

    def trigger(self) -> bool:
        """True if there was a batch, which the driver may not survive."""
        end = json.loads(json.dumps(self.stream.latestOffset(self.at, self.stream.getDefaultReadLimit())))
        if end == self.at:
            return False
        before, after = unlogged(self.at), unlogged(end)
        assert all(after[partition] >= offset for partition, offset in before.items())
        if self.limit is not None and not self.lost:
            assert sum(after.values()) - sum(before.values()) <= self.limit
        self.planned.append(end)
        if len(self.planned) > 1:
            self.stream.commit(self.planned[-2])
        start = self.at
        match self.random.randrange(6):
            case 0:
                self.restart()
            case 1:
                self.rows_of(start, end)
                self.restart()
            case _:
                self.run(start, end)
        return True

    def run(self, start: Logged, end: Logged) -> None:
        rows, of_first, before = self.rows_of(start, end), len(self.planned) == 1, unlogged(start)
        for partition, stop in unlogged(end).items():
            first = before.get(partition, 0)
            if of_first or not self.strict:  # the remaining records are read
                first = max(first, self.log_of(partition).log.start)
            wanted = self.visible(partition, first, stop)
            assert rows.get(partition, {}) == wanted
            self.got.update((partition, offset) for offset in wanted)
        self.finished, self.at = len(self.planned), end

    def rows_of(self, start: Logged, end: Logged) -> dict[TopicPartition, dict[int, Row]]:
        found: dict[TopicPartition, dict[int, Row]] = {}
        executor = self.reader()
        for task in self.stream.partitions(start, end):
            for batch in executor.read(task):
                for row in batch.to_pylist():
                    rows = found.setdefault(TopicPartition(row["topic"], row["partition"]), {})
                    assert row["offset"] not in rows
                    columns = row["headers"] or []
                    rows[row["offset"]] = row["key"], row["value"], row["timestamp"], row["timestampType"], columns
        return found

    def visible(self, partition: TopicPartition, first: int, stop: int) -> dict[int, Row]:
        hidden = self.aborted if self.committed_only else ()
        rows = self.written.get(partition, {})
        return {at: row for at, row in rows.items() if first <= at < stop and (partition, at) not in hidden}

    # --- the history

    def attempt(self, step: Callable[[], bool | None]) -> bool | None:
        """Run a step of Spark. After a loss the query is started again with failOnDataLoss=false."""
        try:
            return step()
        except DataLossError:
            assert self.strict
            assert self.lost
            self.strict = False
            self.attempt(self.restart)
            return True

    def play(self, steps: int) -> None:
        chance = self.random
        for _ in range(steps):
            for _ in range(chance.randrange(4)):
                self.change()
            if chance.random() < 0.15:
                self.attempt(self.restart)
            self.attempt(self.trigger)
        self.broker._do(self.broker._controls.clear)
        for partition, producer in [*self.open]:
            self.end_transaction(partition, producer, committed=True)
        quiet = 0
        while quiet < QUIET_TRIGGERS:
            quiet = 0 if self.attempt(self.trigger) else quiet + 1
        ends = {partition: self.end(partition) for partition in self.partitions()}
        assert unlogged(self.at) == ends
        assert self.stream.reportLatestOffset() == self.at
        assert set(self.got.values()) == {1}  # each record of a finished batch once
        read = {(partition, at) for partition, end in ends.items() for at in self.visible(partition, 0, end)}
        trimmed = {(partition, at) for partition, at in read if at < self.log_of(partition).log.start}
        assert read - trimmed <= self.got.keys() <= read

    def close(self) -> None:
        self.stream.stop()
        self.broker.close()
