"""`Producer`: the blocking client for sending records.

A signal handler may raise in the main thread after each call. So the core is read by `driver.lock.run`. Records enter
batches in one compiled step (`_open_batch`). The driver's thread makes all other changes (`driver.execute`). State for
the next call is assigned last.
"""

import contextlib
import warnings
import weakref
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, Final, Generic, Self, TypeVar

from kohort.common import KohortError, TopicPartition
from kohort.fastpath._encode import Body
from kohort.network.arguments import seconds_given
from kohort.network.client_handle import ClientHandle
from kohort.network.errors import OperationTimeout, UnknownTopic
from kohort.network.group_types import ConsumerGroupMetadata, OffsetAndMetadata
from kohort.network.network_client import Driver
from kohort.network.offset_requests import plain
from kohort.network.process_exit import OPEN, warn_unclosed
from kohort.network.requests import ConnectionPurpose
from kohort.producer._open_batch import Delivery, encoded_headers
from kohort.producer.callback_queue import CallbackQueue
from kohort.producer.delivery_waiter import wait
from kohort.producer.errors import ProducerClosed, TransactionAborted
from kohort.producer.partitioner import called
from kohort.producer.producer_base import ProducerBase
from kohort.producer.producer_batch import Deliveries, Headers, ProducerBatch
from kohort.producer.producer_config import ProducerConfig
from kohort.producer.producer_core import ProducerCore
from kohort.producer.transaction_manager import TransactionEnd
from kohort.producer.transaction_states import UNSETTLED, TxnState

if TYPE_CHECKING:
    import pyarrow as pa

    from kohort.producer._open_batch import OnDelivery

LEAST_END_S: Final = 1.0  # for the end of the driver, which waits for no broker

T = TypeVar("T")
P = TypeVar("P", bound="Producer")


class Producer(ProducerBase):
    """Sends records. Each acknowledged record is in the log once and in order.

    Records are acknowledged by all in-sync replicas (acks=all, KIP-98), unless `acks` is 1 or 0.

        with Producer("localhost:9092", compression="zstd") as producer:
            delivery = producer.send("payments", b"42", key=b"anna")
            delivery.result()                     # Delivered(topic, partition, offset)

    With `transactional_id=`, records and offsets sent between `begin()` and `commit()` are visible to read_committed
    consumers either together or never:

        with producer.transaction():
            producer.send("totals", value)
            producer.send_offsets(columns.next_offsets, consumer.group_metadata())

    `timeout_s` of any call is in seconds, as in `Consumer`: infinity is allowed, NaN a ValueError.

    `settings`: by kohort's names, see `kohort.producer.SETTINGS`. Thread-safe. Every error derives from KohortError.
    The error of a failed record is raised by its delivery, by `flush`, or by `commit`.

    A signal handler may raise (KeyboardInterrupt, a time-out) anywhere in a call. If it raises in `send`, the record is
    sent whole or not at all. `flush`, `close`, `begin`, `commit`, `abort` and `send_offsets` can be called again. A
    handler itself may call `Delivery.done()` only. Other calls raise ConcurrentUseError if the handler has interrupted
    a call that holds the producer's lock.
    """

    def _begin(self, config: ProducerConfig) -> None:
        super()._begin(config)
        self._closed = self._shut = False
        self._block_ends = False
        self._block: weakref.ref[_Block[Self]] | None = None  # block of the open transaction
        self._driver = driver = Driver(config, partial(ProducerCore, config))
        self._handle = ClientHandle(driver)
        self._wait = partial(wait, self._handle)  # deliveries have it: it does not keep the producer alive
        self._callbacks = CallbackQueue(driver.core.accumulator.callbacks, driver.bell.ring)
        self._open_batches = driver.core.accumulator.open
        driver.poll_added = driver.core.poll_added
        driver.core.wake, driver.core.stop = driver.wakeup_for_added, driver.stop_soon
        driver.core.sender.idle_connection = partial(driver.idle_connection, ConnectionPurpose.DATA)
        driver.core.sender.direct.lock, driver.core.sender.direct.now = driver.lock, driver.now
        driver.core.sender.run_aside, driver.core.accumulator.wait = driver.run_aside, self._wait
        OPEN[self] = _close_at_exit

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
        on_delivery: "OnDelivery | None" = None,
    ) -> Delivery:
        """Send one record; the Delivery has its result.

        `partition`: by default that of the `partitioner`. `timestamp_ms`: by default now.
        `on_delivery(delivery)` is called once the record is acknowledged or has failed, see `poll`.

        Waits at most `max_block_ms` for room or for the topic; then raises BufferFull or OperationTimeout. Raises
        UnknownTopic, RecordTooLarge, PartitionerError, IllegalState outside a transaction, TransactionAborted after its
        failure. UnknownTopic of a partition comes after five seconds, since it may have been added a moment ago.
        """
        if self._special:
            return self._send_specially(topic, value, key, headers, partition, timestamp_ms, on_delivery)
        encoded = encoded_headers(headers, topic) if headers is not None else None
        delivery = self._open_batches.append(topic, key, value, encoded, partition, timestamp_ms, on_delivery)
        if delivery is not None:
            return delivery
        return self._send_slowly(topic, key, value, encoded, partition, timestamp_ms, on_delivery)

    def _send_slowly(self, topic: str, *record: Any) -> Delivery:
        """Send a record that found no open batch."""
        core, now = self._driver.core, self._driver.now
        return self._when_there_is_room(lambda: core.append(now(), topic, *record), topic)

    def _send_specially(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        headers: Headers | None,
        partition: int | None,
        *rest: Any,
    ) -> Delivery:
        """Send a record of a producer with a partitioner of its own, or with spans."""
        with self._observed(topic, value, headers) as (headers, note):
            if partition is None and self._partitioner is not None:
                partition = called(self._partitioner, topic, key, value, self._count(topic))
            record = (key, value, encoded_headers(headers, topic) if headers is not None else None, partition, *rest)
            return note(self._open_batches.append(topic, *record) or self._send_slowly(topic, *record))

    def send_arrow(self, topic: str, data: "pa.Table | pa.RecordBatch", *, partition: int | None = None) -> Deliveries:
        """Send the rows of Arrow data.

        Columns: value, and optionally key, timestamp, partition, headers (see `producer.arrow_rows`). Without headers
        no Python object is created per row. Rows of a partition keep their order. Waits and raises as `send`.
        Columns are checked before the first row is sent. A later error (BufferFull, OperationTimeout, RecordTooLarge)
        leaves the rows before it on their way: `flush` waits for them.
        """
        from kohort.producer.arrow_rows import rows_of  # first, since it checks that pyarrow is installed
        from kohort.producer.row_batches import bodies, named_partitions, records_of

        checked = rows_of(data, self._driver.wall_ms(), topic)
        for number in named_partitions(checked, topic, partition):
            self._partitions(topic, number, f"a row names partition {number}, and " if partition is None else "")
        sent = Counter[ProducerBatch]()
        for rows in checked:
            if rows.headers is not None:
                for value, key, headers, chosen, time_ms in records_of(rows, partition):
                    delivery = self.send(topic, value, key, headers=headers, partition=chosen, timestamp_ms=time_ms)
                    sent[delivery.batch] += 1  # it may have other records, too
            else:
                for place, body in bodies(self._driver, self._partitions, topic, rows, partition):
                    sent[self._lay(place, body)] = body.count
        return Deliveries(sent, self._wait)

    def _lay(self, place: TopicPartition, body: Body) -> ProducerBatch:
        driver = self._driver
        return self._when_there_is_room(lambda: driver.core.append_batch(place, body, driver.now()), place.topic)

    def _count(self, topic: str) -> int:
        """The number of partitions of a topic, as of the last record that found no open batch."""
        batches = self._open_batches.topic(topic)
        return self._partitions(topic) if batches is None else batches.partitions

    def _partitions(self, topic: str, number: int = 0, named: str = "") -> int:
        """The number of partitions of a topic. Raises UnknownTopic if it has no partition `number`."""
        core = self._driver.core
        return self._when_there_is_room(lambda: core.partitions(topic, number, named), topic)

    # --- callbacks

    def poll(self, timeout_s: float = 0.0) -> int:
        """Call the callbacks of settled records, and return their number. Wait for the first at most `timeout_s`.

        `flush`, `close`, and a `send` that waits for room call them, too. They are called on the caller's thread, one
        at a time, in the order of their records by partition. A callback may use the producer. What a callback raises
        is raised by the call, and the next call goes on with the callbacks behind it.
        """
        timeout_s = seconds_given(timeout_s)
        self._check()
        with contextlib.suppress(OperationTimeout):
            self._wait(lambda: self._callbacks.ready, timeout_s)
        return self._call_back()

    def _call_back(self) -> int:
        """Call due callbacks, and let the observer see outcomes."""
        if self._observer is not None:
            self._observer.look()
        return self._callbacks.call()

    def _wait_calling(self, reached: Callable[[], bool], timeout_s: float | None) -> None:
        """Wait until `reached` returns true and no callback is due. Call the callbacks meanwhile."""
        until = inf if timeout_s is None else self._driver.now() + timeout_s
        over = False

        def look() -> bool:
            nonlocal over  # known under the lock only, where a batch and its callbacks are settled together
            over = reached() and not self._callbacks.called_elsewhere
            return over or self._callbacks.ready

        while not over:
            self._wait(look, max(0.0, until - self._driver.now()))
            self._call_back()

    # --- flush and close

    def flush(self, timeout_s: float | None = None) -> None:
        """Send all buffered records at once, and wait until they are settled.

        Raises the first failure that no delivery has raised, and OperationTimeout after `timeout_s` seconds.
        """
        timeout_s = None if timeout_s is None else seconds_given(timeout_s)
        self._check()
        self._flush(timeout_s)

    def _flush(self, timeout_s: float | None) -> None:
        driver = self._driver
        driver.check()
        waiting = driver.execute(lambda core: core.accumulator.unsettled())
        self._wait_calling(lambda: all(batch.done for batch in waiting), timeout_s)
        counted, error = driver.lock.run(driver.core.accumulator.unraised)
        driver.core.accumulator.failures_raised = counted
        if error is not None:
            raise error

    def close(self, timeout_s: float = 30.0) -> None:
        """Flush (an open transaction is aborted instead), and close every connection.

        Safe to call again. A commit or an abort in progress is awaited. Raises the errors of `flush` or `commit`, after
        everything is closed. If a signal handler raises meanwhile, closing continues in the background; another call
        waits for it.
        """
        timeout_s = seconds_given(timeout_s)
        if self._shut:
            self._call_back()
            return
        driver = self._driver
        fatal = self._handle.read(lambda core: core.fatal)  # raises at once in a handler that interrupted a lock holder
        failure: KohortError | None = None
        until = driver.now() + timeout_s
        try:
            try:
                if self._config.transactional_id is not None:
                    if fatal is None or not self._closed:
                        self._end_transaction(timeout_s)
                elif fatal is None:
                    self._flush(timeout_s)
            except KohortError as error:
                failure = error
                with contextlib.suppress(KohortError):  # a callback may have raised it before all records were sent
                    self._wait(lambda: driver.core.accumulator.idle, max(0.0, until - driver.now()))
            self._push_last_metrics(max(0.0, until - driver.now()))
        except BaseException:
            self._refuse()
            _retire(driver)
            raise
        self._shut_down(timeout_s)
        self._call_back()
        if failure is not None:
            raise failure

    def _push_last_metrics(self, timeout_s: float) -> None:
        """Push metrics a last time, if a broker requests them (KIP-714)."""
        driver = self._driver
        if driver.lock.run(lambda: driver.core.telemetry.ended):
            return
        with contextlib.suppress(KohortError):  # metrics are no reason for an error
            now = driver.now()
            driver.execute(lambda core: core.telemetry.close(now, now + timeout_s))
            self._wait(lambda: driver.core.telemetry.ended, timeout_s)

    def _shut_down(self, timeout_s: float) -> None:
        driver = self._driver
        self._refuse()
        closed = ProducerClosed("the producer was closed")
        driver.enqueue(lambda core: core.fail(closed))
        driver.stop(max(timeout_s, LEAST_END_S))
        fail_rest = partial(_fail_in_flight, driver, closed)
        if driver.ended.is_set():  # before that, batches in flight may still be encoded or acknowledged
            fail_rest()
        else:
            driver.ended.then(fail_rest)
        self._shut = True

    def _refuse(self) -> None:
        """Let all calls but `close` raise ProducerClosed."""
        self._closed = True
        self._open_batches.clear()

    # --- transactions

    def begin(self, timeout_s: float | None = None) -> None:
        """Open a transaction.

        The first call waits for the producer id, which is requested at creation. From then on, at the latest, older
        instances are fenced. A commit whose outcome is unknown is settled first: if it was aborted, TransactionAborted
        is raised. Raises ProducerFenced, IllegalState, OperationTimeout.
        """
        self._open(timeout_s)
        # Last: before that, the next call takes over the transaction.
        self._block, self._driver.core.transactions.unreported = None, None

    def commit(self, timeout_s: float | None = None) -> None:
        """Wait until all sent records are acknowledged, and commit them.

        Raises TransactionAborted if a part of it failed: call `abort()` and send again. Raises ProducerFenced if a
        newer instance runs. After OperationTimeout the outcome is unknown: call it again, or `begin()`, which both wait
        for the outcome. Records that are sent again before that may be in the log twice.
        """
        transactions = self._driver.core.transactions
        end = self._end(transactions.commit, timeout_s)
        if end.error is not None:
            raise end.error
        # Last: before that, another call returns the outcome; in a block, until the block ends.
        transactions.unreported = transactions.unreported if self._block_ends else None

    def abort(self, timeout_s: float | None = None) -> None:
        """Abort the transaction. Raises ProducerFenced, IllegalState, OperationTimeout.

        After OperationTimeout it may be called again.
        """
        self._end(self._driver.core.transactions.abort, timeout_s)
        if self._state is TxnState.FAILED:
            self._driver.execute(lambda core: core.transactions.abort())
        self._driver.lock.run(self._driver.core.transactions.raise_cause)
        self._driver.core.transactions.unreported = None

    def send_offsets(
        self,
        offsets: Mapping[TopicPartition, int | OffsetAndMetadata],
        group: ConsumerGroupMetadata,
        timeout_s: float | None = None,
    ) -> None:
        """Commit a group's offsets (of the next records to read) with the transaction.

        They are fenced by the member's generation (KIP-447). `group`: the consumer's `group_metadata()`. Raises
        CommitFailed if the group has rebalanced without the member, or a topic does not exist; call `abort()` then.
        """
        checked = plain(offsets)
        if not isinstance(group, ConsumerGroupMetadata):
            raise TypeError(f"group is consumer.group_metadata(), not {group!r}")
        patience_s = self._seconds(timeout_s)
        self._check()
        driver = self._driver
        order = driver.execute(lambda core: core.transactions.order(checked, group))
        self._wait(lambda: order.done, patience_s)
        if order.error is not None:
            raise order.error

    def transaction(self) -> contextlib.AbstractContextManager[Self]:
        """A context manager that calls `begin()` and then `commit()`.

        It calls `abort()` if the block or the commit raises. The block gets the producer. If an interrupt or
        OperationTimeout ends the commit, its outcome is unknown: call `commit()`, or begin the next transaction. Both
        wait for the outcome, and raise TransactionAborted if there was no commit.
        """
        return _Block(self)

    # --- inner

    def _open(self, timeout_s: float | None = None) -> None:
        """Begin a transaction."""
        self._check()
        driver = self._driver
        if self._block is not None and self._block() is None and self._state is TxnState.OPEN:
            self.abort(timeout_s)  # its block was interrupted, and has not ended it
        self._settled(lambda: self._state not in UNSETTLED, self._seconds(timeout_s))
        driver.execute(lambda core: core.transactions.begin())

    def _end(self, what: Callable[[], None], timeout_s: float | None) -> TransactionEnd:
        patience_s = self._seconds(timeout_s)
        self._check()
        end = self._driver.execute(lambda core: core.transactions.request(what))
        self._settled(lambda: end.over, patience_s)
        return end

    def _settled(self, reached: Callable[[], bool], timeout_s: float) -> None:
        """Wait for the transaction."""
        self._wait(reached, timeout_s, lambda core: core.transactions.overdue(*core.unreached))

    def _end_transaction(self, timeout_s: float) -> None:
        """End the transaction in progress.

        Otherwise read_committed consumers would wait until it times out.
        """
        transactions = self._driver.core.transactions
        end = self._driver.execute(lambda _core: transactions.close())
        if self._state is TxnState.IDENTIFYING:
            return
        self._settled(lambda: transactions.settled, timeout_s)
        if end is not None and end.error is not None:
            raise end.error

    def _check(self) -> None:
        """Raises ForkError, ProducerClosed, or the defect that ended the driver."""
        self._driver.check_same_process()
        if self._closed:
            raise ProducerClosed("the producer is closed")
        self._driver.check()

    def _when_there_is_room(self, attempt: Callable[[], T | None], topic: str) -> T:
        """The first value of `attempt` that is not None; `attempt` is called under the lock.

        While it waits, linger_ms is ignored.
        """
        self._check()
        try:
            first = self._driver.lock.run(attempt)  # usually there is room, and nothing below is made in vain
        except UnknownTopic:
            first = None  # of a partition, which may come: see `_tried`
        if first is not None:
            return first
        calling, until = self._callbacks, self._driver.now() + self._config.max_block_ms / 1000
        known_by, since = self._known_by(), self._driver.core.refusals
        found: list[T] = []

        def look() -> bool | None:
            one = self._tried(attempt, known_by)
            if one is not None:
                found.append(one)
            return one is not None or calling.ready or None

        while self._handle.wait_for(look, until - self._driver.now(), lambda core: core.press(topic, since)):
            if found:
                return found[0]
            calling.call()
        return self._handle.read(lambda core: self._at_last(attempt, core, topic))

    def __del__(self) -> None:
        driver: Driver[ProducerCore] | None = self.__dict__.get("_driver")
        if driver is not None and not driver.stopping and not driver.core.retired:
            warn_unclosed("producer", driver.config.client_id, None, driver, partial(_retire, driver))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_error: object) -> None:
        if kind is None:
            self.close()
            return
        with contextlib.suppress(KohortError):  # the error of the block is raised
            self.close()


class _Block(Generic[P]):
    """The `with` block of a transaction. One left open by an interrupt is aborted by the next."""

    def __init__(self, producer: P) -> None:
        self._producer = producer

    def __enter__(self) -> P:
        producer, block = self._producer, weakref.ref(self)
        try:
            producer._open()
        except TransactionAborted:
            self._abort()  # the outcome of an earlier commit, which is over now
            raise
        producer._block, producer._driver.core.transactions.unreported = block, None  # last, as in `begin`
        return producer

    def __exit__(self, kind: type[BaseException] | None, *_error: object) -> None:
        producer = self._producer
        producer._block = None
        if kind is not None:
            self._abort()
            return
        try:
            producer._block_ends = True
            producer.commit()
            producer._block_ends, producer._driver.core.transactions.unreported = False, None  # last, as in `commit`
        except BaseException:
            producer._block_ends = False
            self._abort()
            raise

    def _abort(self) -> None:
        with contextlib.suppress(KohortError):  # the error of the block is raised
            self._producer.abort()


def _close_at_exit(producer: Producer, timeout_s: float) -> None:
    """Close a producer at the interpreter's end. Warn with the number of records that were not acknowledged in time."""
    waiting = producer._handle.read(lambda core: core.accumulator.queued())
    try:
        producer.close(timeout_s)
    finally:
        lost = sum(batch.count for batch in waiting if batch.error is not None)
        if lost:
            warnings.warn(
                f"the producer {producer._config.client_id!r} was not closed before the interpreter's end, and {lost} "
                "of its records were not acknowledged: call flush() or close()",
                RuntimeWarning,
                stacklevel=2,
            )


def _fail_in_flight(driver: Driver[ProducerCore], error: KohortError) -> None:
    driver.enqueue(lambda core: core.accumulator.fail_in_flight(error))
    driver.wake_callers()


def _retire(driver: Driver[ProducerCore]) -> None:
    """Make the driver end after buffered records are sent.

    Called by a finalizer, on any thread, with any lock held.
    """
    driver.core.retired = True
    driver.wakeup()
