"""Producer: the blocking face of the driver for those who write."""

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from kohort.coordinator_client.at_exit import OPEN
from kohort.coordinator_client.commits import plain
from kohort.coordinator_client.driver import Driver
from kohort.coordinator_client.errors import OperationTimeout, UnknownTopic
from kohort.coordinator_client.events import Identity, OffsetToCommit
from kohort.coordinator_client.given import seconds_given
from kohort.fastpath import KohortError, TopicPartition
from kohort.fastpath._encode import Body
from kohort.fastpath._rows import grouped, lay_out, spread
from kohort.producer.batch import Batch, Deliveries, Delivery, Headers
from kohort.producer.core import ProducerCore
from kohort.producer.errors import BufferFull, ProducerClosed
from kohort.producer.rows import Rows, rows_of
from kohort.producer.settings import ProducerConfig
from kohort.producer.states import TxnState

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")
ROWS_AT_ONCE = 1 << 16  # rows that are spread over partitions together


class Producer:
    """Writes records; what is acknowledged is in the log once, in order, on all replicas in sync (acks=all, KIP-98).

        with Producer("localhost:9092", compression="zstd") as producer:
            delivery = producer.send("payments", b"42", key=b"anna")
            delivery.result()                     # Delivered(topic, partition, offset)

    With `transactional_id=` what is sent between `begin()` and `commit()`, offsets of a group included, is seen by
    read_committed consumers together or never:

        with producer.transaction():
            producer.send("totals", value)
            producer.send_offsets(columns.next_offsets, consumer.group_metadata())

    `timeout_s` of any call is in seconds, as `Consumer` has it: infinity is allowed, NaN a ValueError.

    `settings`: by our names, see `kohort.producer.SETTINGS`. Any thread may use it. Every error derives from
    KohortError; a failed record's is raised by its delivery, by `flush`, or by `commit`.
    """

    def __init__(self, bootstrap: str | Sequence[str] = (), **settings: Any) -> None:
        self._begin(ProducerConfig.of(bootstrap=bootstrap, **settings))

    @classmethod
    def from_config(cls, properties: Mapping[str, Any]) -> Self:
        """From Kafka's own dotted names; values may be strings. Unknown names raise ConfigError with the nearest."""
        producer = cls.__new__(cls)
        producer._begin(ProducerConfig.from_kafka(properties))
        return producer

    def _begin(self, config: ProducerConfig) -> None:
        self._settings = config.producing
        self._driver = Driver(config.connecting, partial(ProducerCore, config))
        self._closed = False
        self._driver.start()
        OPEN.add(self)

    # --- records

    def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        *,
        headers: Headers | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Delivery:
        """Hand over one record; what becomes of it is told by the Delivery.

        `partition`: else its key decides (see `kohort.producer.partitioning`). `timestamp_ms`: else now. Waits at most
        `max_block_ms` for room or for the topic; then raises BufferFull or OperationTimeout. Raises UnknownTopic,
        RecordTooLarge, IllegalState outside a transaction, TransactionAborted after its failure.
        """
        driver = self._own()
        stamp = driver.wall_ms() if timestamp_ms is None else timestamp_ms
        pairs = tuple(headers.items() if isinstance(headers, Mapping) else headers) if headers else None
        with driver.lock:
            self._check()
            core = driver.core
            core.transactions.may_take_records()
            batch = core.offer(topic, key, value, pairs, partition, stamp, driver.now())
            if batch is None:
                batch = self._when_there_is_room(
                    lambda: core.offer(topic, key, value, pairs, partition, stamp, driver.now()), topic
                )
            index = batch.count - 1
            news = index == 0 or batch.size >= self._settings.batch_bytes
        if news:
            driver.wake()
        return Delivery(batch, index, self._wait)

    def send_arrow(self, topic: str, data: "pa.Table | pa.RecordBatch", *, partition: int | None = None) -> Deliveries:
        """Hand over rows: column value, and optionally key, timestamp, partition, headers (see `producer.rows`).

        Without headers no Python object is made for any row. Each partition gets its rows in their order. Waits and
        raises as `send`.
        """
        batches: list[Batch] = []
        for rows in rows_of(data, self._own().wall_ms()):
            if rows.headers is not None:
                batches += self._send_each(topic, rows, partition)
            else:
                for place, body in self._bodies(topic, rows, partition):
                    batches.append(self._lay(place, body))
        return Deliveries(batches, self._wait)

    def _send_each(self, topic: str, rows: Rows, partition: int | None) -> list[Batch]:
        names = rows.source.schema.names
        columns = {name: rows.source.column(name).to_pylist() for name in ("value", "key", "headers") if name in names}
        batches: dict[Batch, None] = {}
        for i, value in enumerate(columns["value"]):
            pairs = columns["headers"][i]
            if any(pair is None or pair["key"] is None for pair in pairs or ()):
                raise KohortError(
                    "a header has no name", hint="filter them out of column 'headers'", topic=topic, row=i
                )
            delivery = self.send(
                topic,
                _bytes(value),
                _bytes(columns["key"][i]) if "key" in columns else None,
                headers=[(pair["key"], _bytes(pair["value"])) for pair in pairs] if pairs else None,
                partition=partition if partition is not None or rows.partitions is None else rows.partitions[i],
                timestamp_ms=None if rows.timestamps_ms is None else rows.timestamps_ms.cast("B").cast("q")[i],
            )
            batches[delivery.batch] = None
        return list(batches)

    def _bodies(self, topic: str, rows: Rows, partition: int | None) -> Iterator[tuple[TopicPartition, Body]]:
        """Batches of rows, laid out and compressed on the caller's thread, one after another."""
        settings = self._settings
        now_ms = self._driver.wall_ms()

        def lay(places: memoryview | None, start: int, stop: int) -> tuple[Body, int]:
            return lay_out(
                rows.keys, rows.values, rows.timestamps_ms, now_ms, places, start, stop,
                settings.batch_bytes, settings.compression, settings.compression_level,
            )  # fmt: skip

        at = 0
        while at < rows.size:
            count = self._partitions(topic)
            if partition is not None or (rows.keys is None and rows.partitions is None):
                with self._driver.lock:
                    core = self._driver.core
                    chosen = core.chosen(topic, count, None, partition)
                body, at = lay(None, at, rows.size)
                yield TopicPartition(topic, chosen), body
                continue
            with self._driver.lock:
                otherwise = self._driver.core.sticky(topic, count)
            stop = min(at + ROWS_AT_ONCE, rows.size)
            if rows.partitions is not None:
                over = rows.partitions[at:stop]
            else:
                assert rows.keys is not None
                over = spread(rows.keys, count, settings.partitioner, otherwise, at, stop)
            try:
                places, bounds = grouped(over, count, at)
            except ValueError as error:
                strange = next(one for one in over if not 0 <= one < count)
                raise UnknownTopic(str(error), topic=topic, partition=strange) from None
            for number in range(count):
                row = bounds[number]
                while row < bounds[number + 1]:
                    body, row = lay(places, row, bounds[number + 1])
                    yield TopicPartition(topic, number), body
            at = stop

    def _lay(self, place: TopicPartition, body: Body) -> Batch:
        driver = self._driver
        with driver.lock:
            self._check()
            core = driver.core
            core.transactions.may_take_records()
            batch = core.lay(place, body, len(body), driver.now()) or self._when_there_is_room(
                lambda: core.lay(place, body, len(body), driver.now()), place.topic
            )
        driver.wake()
        return batch

    def _partitions(self, topic: str) -> int:
        with self._driver.lock:
            self._check()
            core = self._driver.core
            return core.partitions(topic) or self._when_there_is_room(lambda: core.partitions(topic), topic)

    # --- the end of sending

    def flush(self, timeout_s: float | None = None) -> None:
        """Send at once whatever waits, and wait until all of it is settled.

        Raises the first failure that no delivery has told of, and OperationTimeout after `timeout_s` seconds.
        """
        timeout_s = None if timeout_s is None else seconds_given(timeout_s)
        driver = self._own()
        with driver.lock:
            self._check()
            waiting = driver.core.unsettled()
        driver.wake()
        self._wait(lambda: all(batch.done for batch in waiting), timeout_s)
        with driver.lock:
            failures = [batch for batch in driver.core.failures if not batch.told]
            driver.core.failures.clear()
        if failures:
            assert failures[0].error is not None
            raise failures[0].error

    def close(self, timeout_s: float = 30.0) -> None:
        """Flush (an open transaction is aborted instead), and close every connection. Safe to call again.

        A commit or an abort that is under way is waited for. Raises what `flush` or `commit` raises, after everything
        is closed.
        """
        timeout_s = seconds_given(timeout_s)
        if self._closed:
            return
        self._own()
        try:
            if self._settings.transactional_id is None:
                if self._driver.core.fatal is None:
                    self.flush(timeout_s)
            else:
                self._end_transaction(timeout_s)
        finally:
            self._closed = True
            self._driver.stop(timeout_s)
            with self._driver.lock:
                closed = ProducerClosed("the producer was closed")
                self._driver.core.fail(closed)
                if self._driver.ended.is_set():
                    self._driver.core.sender.hang_up(closed)
                self._driver.lock.notify_all()

    @property
    def buffered_bytes(self) -> int:
        """Bytes of records that are neither acknowledged nor given up."""
        driver = self._own()
        with driver.lock:
            return driver.core.buffered

    def metrics(self) -> dict[str, int]:
        """Counters of requests and connections, and what is buffered."""
        driver = self._own()
        with driver.lock:
            core = driver.core
            counted = ("requests", "requests_unanswered", "connections_opened", "connections_ended")
            return {f"{name}_total": getattr(core.counters, name) for name in counted} | {
                "buffered_bytes": core.buffered
            }

    # --- transactions

    def begin(self, timeout_s: float | None = None) -> None:
        """Open a transaction. The first call waits for the id that the producer has asked for since it was made: from
        then on, at the latest, older instances are fenced.

        Raises ProducerFenced, IllegalState, OperationTimeout.
        """
        driver = self._driver
        self._wait(lambda: self._state is not TxnState.IDENTIFYING, self._seconds(timeout_s))
        with driver.lock:
            self._check()
            driver.core.transactions.begin()

    def commit(self, timeout_s: float | None = None) -> None:
        """Wait until everything sent is acknowledged, and commit it.

        Raises TransactionAborted when something of it failed: `abort()`, and send once more. Raises ProducerFenced when
        a newer instance runs. After OperationTimeout the outcome is open: call it again.
        """
        self._end(lambda core: core.transactions.commit(), timeout_s)
        with self._driver.lock:
            self._driver.core.transactions.outcome()

    def abort(self, timeout_s: float | None = None) -> None:
        """Give up what was sent since `begin()`. Raises ProducerFenced, IllegalState, OperationTimeout.

        After OperationTimeout it may be called again.
        """
        self._end(lambda core: core.transactions.abort(), timeout_s)
        if self._state is TxnState.FAILED:
            with self._driver.lock:
                self._driver.core.transactions.abort()
        with self._driver.lock:
            self._driver.core.transactions.outcome()

    def send_offsets(
        self,
        offsets: Mapping[TopicPartition, int | OffsetToCommit],
        group: Identity,
        timeout_s: float | None = None,
    ) -> None:
        """Commit a group's offsets (of the next records to read) with the transaction, fenced by the member's
        generation (KIP-447). `group`: the consumer's `group_metadata()`.

        Raises CommitFailed when the group has gone on without the member: then `abort()`.
        """
        checked = plain(offsets)
        if not isinstance(group, Identity):
            raise TypeError(f"group is consumer.group_metadata(), not {group!r}")
        patience_s = self._seconds(timeout_s)
        driver = self._own()
        with driver.lock:
            self._check()
            order = driver.core.transactions.order(checked, group)
        driver.wake()
        self._wait(lambda: order.done, patience_s)
        if order.error is not None:
            raise order.error

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Self]:
        """`begin()`; then `commit()`, or `abort()` when the block or the commit raises."""
        self.begin()
        try:
            yield self
            self.commit()
        except BaseException:
            with contextlib.suppress(KohortError):
                self.abort()
            raise

    # --- inner

    @property
    def _state(self) -> TxnState:
        return self._driver.core.transactions.state

    def _end(self, what: Callable[[ProducerCore], None], timeout_s: float | None) -> None:
        patience_s = self._seconds(timeout_s)
        driver = self._own()
        with driver.lock:
            self._check()
            what(driver.core)
        driver.wake()
        self._wait(lambda: driver.core.transactions.settled, patience_s)

    def _end_transaction(self, timeout_s: float) -> None:
        """Whatever is under way comes to its end: else readers of what is committed would wait until it times out."""
        driver, transactions = self._driver, self._driver.core.transactions
        with driver.lock:
            before = transactions.state
            if before is TxnState.OPEN:
                transactions.abort()
        if before is TxnState.IDENTIFYING:
            return
        driver.wake()
        self._wait(lambda: transactions.settled, timeout_s)
        if before is TxnState.COMMITTING:
            with driver.lock:
                transactions.outcome()

    def _seconds(self, timeout_s: float | None) -> float:
        return self._settings.max_block_ms / 1000 if timeout_s is None else seconds_given(timeout_s)

    def _own(self) -> Driver[ProducerCore]:
        """The driver, before anybody waits for its lock: in a forked child that may be held for ever."""
        self._driver.own()
        return self._driver

    def _check(self) -> None:
        if self._closed:
            raise ProducerClosed("the producer is closed")
        self._driver.check()

    def _when_there_is_room(self, attempt: Callable[[], T | None], topic: str) -> T:
        """Under the lock: wait until `attempt` gives something. Nothing lingers meanwhile."""
        driver = self._driver
        core = driver.core
        until = driver.now() + self._settings.max_block_ms / 1000
        core.waiting += 1
        try:
            while True:
                driver.wake()
                left = until - driver.now()
                if left <= 0:
                    raise self._too_late(topic)
                driver.lock.wait(min(left, 1.0))
                self._check()
                core.transactions.may_take_records()
                found = attempt()
                if found is not None:
                    return found
        finally:
            core.waiting -= 1

    def _too_late(self, topic: str) -> KohortError:
        core = self._driver.core
        if topic not in core.keeper.view.topics:
            return OperationTimeout(
                f"nothing is known of the topic after {self._settings.max_block_ms} ms",
                hint="does a broker answer, and is there such a topic?", topic=topic,
            )  # fmt: skip
        return BufferFull(
            f"no room within {self._settings.max_block_ms} ms", hint="send less, or raise buffer_bytes or max_block_ms",
            buffered_bytes=core.buffered, buffer_bytes=self._settings.buffer_bytes,
        )  # fmt: skip

    def _wait(self, reached: Callable[[], bool], timeout_s: float | None) -> None:
        driver = self._own()
        with driver.lock:
            until = threading.TIMEOUT_MAX if timeout_s is None else driver.now() + seconds_given(timeout_s)
            while not reached():
                driver.check()
                fatal = driver.core.fatal
                if fatal is not None:
                    raise fatal
                left = until - driver.now()
                if left <= 0:
                    raise OperationTimeout("not settled in time", hint="it may still succeed")
                driver.lock.wait(min(left, 1.0))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
            return
        with contextlib.suppress(KohortError):  # what the block raised is what is told
            self.close()


def _bytes(value: Any) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
