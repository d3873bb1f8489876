"""AsyncProducer: the asyncio interface of the same driver. Calls that wait are awaited, others are as in Producer.

A record enters its batch on the loop's thread. The driver's thread sends batches, and wakes the loop once for all that
has happened in its turn. So no record costs a change of threads.
"""

import asyncio
import contextlib
import threading
from asyncio import get_running_loop
from collections import deque
from collections.abc import Callable, Generator, Mapping
from contextvars import copy_context
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from kohort.common import KohortError, TopicPartition
from kohort.network.arguments import seconds_given
from kohort.network.errors import OperationTimeout
from kohort.network.group_types import ConsumerGroupMetadata, OffsetAndMetadata
from kohort.network.offset_requests import plain
from kohort.network.promise import Promise
from kohort.network.timed_event import TimedEvent, call_in, check_loop, other_loop
from kohort.producer._open_batch import Delivery, encoded_headers
from kohort.producer.callback_queue import CallbackQueue
from kohort.producer.delivery_waiter import overdue
from kohort.producer.errors import TransactionAborted
from kohort.producer.partitioner import called
from kohort.producer.producer import Producer
from kohort.producer.producer_base import ProducerBase, SendObserver
from kohort.producer.producer_batch import Delivered, Deliveries, Headers, ProducerBatch
from kohort.producer.producer_config import ProducerConfig
from kohort.producer.producer_core import ProducerCore
from kohort.producer.transaction_manager import TransactionEnd
from kohort.producer.transaction_states import UNSETTLED, TxnState

if TYPE_CHECKING:
    import pyarrow as pa

    from kohort.network.network_client import Driver
    from kohort.producer._open_batch import OnDelivery

T = TypeVar("T")
RECORDS_AT_ONCE: Final = 256  # records that the tasks of a loop send before other tasks run
LONGEST_WAIT_S: Final = 60.0


class _Updates:
    """The settled records and other updates of a producer, on the loop's thread. It keeps no producer alive.

    Between `news.clear()` and `news.wait()` no other task may run, since all share the event.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, driver: "Driver[ProducerCore]", callbacks: CallbackQueue
    ) -> None:
        self.news = TimedEvent()
        self._loop, self._driver, self._callbacks = loop, driver, callbacks
        self._awaited: dict[ProducerBatch, list[tuple[Delivery, asyncio.Future[None]]]] = {}
        self._is_due = False
        self.observer: SendObserver | None = None

    def notify(self) -> None:
        """Have the updates handled on the loop's thread, once for many calls. From any thread."""
        if not self._is_due:
            self._is_due = True
            call_in(self._loop, self.handle)

    def handle(self) -> None:
        """Call callbacks, and wake the tasks whose records are settled."""
        self._is_due = False
        self._call_back()
        over = self._driver.crashed is not None
        for batch, waiting in list(self._awaited.items()):
            left = []
            for delivery, future in waiting:
                if not (over or delivery.done()):
                    left.append((delivery, future))
                elif not future.done():
                    future.set_result(None)
            if left:  # last: an interrupt before this wakes tasks that are awake
                self._awaited[batch] = left
            else:
                del self._awaited[batch]
        if self.observer is not None:
            self.observer.look()
        self.news.set()

    def _call_back(self) -> None:
        over = False
        while not over:
            try:
                self._callbacks.call()
                over = True
            except (Exception, asyncio.CancelledError) as error:  # a cancelled future raises the second
                self._loop.call_exception_handler({"message": "on_delivery raised", "exception": error})

    async def settled(self, delivery: Delivery) -> None:
        """Wait until a record is settled. Raises the defect that ended the driver."""
        if not delivery.done():
            if get_running_loop() is not self._loop:
                raise other_loop("AsyncProducer")
            future: asyncio.Future[None] = self._loop.create_future()
            self._awaited.setdefault(delivery.batch, []).append((delivery, future))
            if delivery.done() or self._driver.crashed is not None:  # settled before it was added
                self.notify()
            await future
        if not delivery.done():
            self._driver.check()


class AsyncDelivery:
    """The result of a sent record. `await` returns its position, or raises its error.

    A task that is cancelled while it waits leaves the record as it is.
    """

    __slots__ = ("_delivery", "_updates")

    def __init__(self, delivery: Delivery, updates: _Updates) -> None:
        self._delivery = delivery
        self._updates = updates

    def done(self) -> bool:
        """True if the record is acknowledged or has failed."""
        return self._delivery.done()

    async def result(self) -> Delivered:
        """Wait until the record is acknowledged, and return its position.

        Raises its error (BrokerError, DeliveryTimeout, TransactionAborted, ...).
        """
        await self._updates.settled(self._delivery)
        return self._delivery.result()

    def __await__(self) -> Generator[Any, None, Delivered]:
        return self.result().__await__()


class AsyncDeliveries:
    """The results of rows that were sent together. `await` returns their number by partition, or raises an error."""

    __slots__ = ("_deliveries", "_producer")

    def __init__(self, deliveries: Deliveries, producer: "AsyncProducer") -> None:
        self._deliveries = deliveries
        self._producer = producer

    def __len__(self) -> int:
        """The number of rows."""
        return len(self._deliveries)

    def done(self) -> bool:
        """True if all rows are acknowledged or have failed."""
        return self._deliveries.done()

    async def result(self) -> dict[TopicPartition, int]:
        """Wait until all are acknowledged, and return the number of rows by partition."""
        await self._producer._wait(self._deliveries.done, inf)
        return self._deliveries.result()

    def __await__(self) -> Generator[Any, None, dict[TopicPartition, int]]:
        return self.result().__await__()


class AsyncProducer(ProducerBase):
    """As `Producer`, for asyncio. `send` waits only for room, and returns the delivery, which can be awaited.

        async with AsyncProducer("localhost:9092") as producer:
            delivery = await producer.send("payments", b"42", key=b"anna")
            await delivery                        # Delivered(topic, partition, offset)

    With `transactional_id=`, a transaction is a block:

        async with producer.transaction():
            await producer.send("totals", value)
            await producer.send_offsets(columns.next_offsets, consumer.group_metadata())

    Create it inside a running loop, and use it there. Any number of tasks may send. Callbacks (`on_delivery=`) are
    called on the loop, so that there is no `poll`. What a callback raises is passed to the loop's exception handler.

    A task that is cancelled in `send` has sent nothing. One that is cancelled in `commit` leaves a commit whose outcome
    is unknown: the next `commit` or `begin` waits for it.
    """

    def _begin(self, config: ProducerConfig) -> None:
        super()._begin(config)
        self._loop = get_running_loop()  # first: where there is none, no driver may have been started
        self._producer = producer = Producer.__new__(Producer)
        producer._begin(config)
        self._handle, self._driver = producer._handle, producer._driver
        driver = self._driver
        self._updates = _Updates(self._loop, driver, producer._callbacks)
        producer._callbacks = CallbackQueue(deque(), _nothing)  # the loop calls them
        driver.on_update = self._updates.notify
        self._open_batches = producer._open_batches
        self._room, self._is_refilled = RECORDS_AT_ONCE, False  # refilled by the next turn of the loop
        # No tasks, since a program may cancel all tasks at its end.
        self._rows: set[asyncio.Future[Deliveries]] = set()  # of `send_arrow`, also those of cancelled callers
        self._closing: Promise[None] | None = None
        self._has_closed = False  # a call had the outcome of `_closing`

    def _abandon(self) -> None:
        producer: Producer | None = self.__dict__.get("_producer")
        if producer is not None:
            producer._abandon()

    def _watch(self, observer: SendObserver) -> None:
        super()._watch(observer)
        self._producer._watch(observer)  # sends rows with headers
        self._updates.observer = observer

    # --- records

    async def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        *,
        headers: Headers | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        on_delivery: "OnDelivery | None" = None,
    ) -> AsyncDelivery:
        """Send one record; the delivery that is returned has its result.

        `partition`: by default that of the `partitioner`. `timestamp_ms`: by default now.
        `on_delivery(delivery)` is called on the loop once the record is acknowledged or has failed.

        Waits at most `max_block_ms` for room or for the topic; then raises BufferFull or OperationTimeout. Raises
        UnknownTopic, RecordTooLarge, PartitionerError, IllegalState outside a transaction, TransactionAborted after its
        failure. UnknownTopic of a partition comes after five seconds, since it may have been added a moment ago.
        """
        if get_running_loop() is not self._loop:
            raise other_loop("AsyncProducer")
        while self._room <= 0:
            await self._let_others_run()
        self._room -= 1
        if self._special:
            return await self._send_specially(topic, value, key, headers, partition, timestamp_ms, on_delivery)
        encoded = encoded_headers(headers, topic) if headers is not None else None
        delivery = self._open_batches.append(topic, key, value, encoded, partition, timestamp_ms, on_delivery)
        if delivery is None:
            delivery = await self._send_slowly(topic, key, value, encoded, partition, timestamp_ms, on_delivery)
        return AsyncDelivery(delivery, self._updates)

    async def _send_slowly(self, topic: str, *record: Any) -> Delivery:
        """Send a record that found no open batch."""
        core, now = self._driver.core, self._driver.now
        return await self._when_there_is_room(lambda: core.append(now(), topic, *record), topic)

    async def _send_specially(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        headers: Headers | None,
        partition: int | None,
        *rest: Any,
    ) -> AsyncDelivery:
        """Send a record of a producer with a partitioner of its own, or with spans."""
        with self._observed(topic, value, headers) as (headers, note):
            if partition is None and self._partitioner is not None:
                batches = self._open_batches.topic(topic)
                count = await self._partitions(topic) if batches is None else batches.partitions
                partition = called(self._partitioner, topic, key, value, count)
            record = (key, value, encoded_headers(headers, topic) if headers is not None else None, partition, *rest)
            delivery = self._open_batches.append(topic, *record) or await self._send_slowly(topic, *record)
            return AsyncDelivery(note(delivery), self._updates)

    async def send_arrow(
        self, topic: str, data: "pa.Table | pa.RecordBatch", *, partition: int | None = None
    ) -> AsyncDeliveries:
        """Send the rows of Arrow data.

        Columns: value, and optionally key, timestamp, partition, headers (see `producer.arrow_rows`). The rows are
        encoded on a thread of the loop's executor. If the task is cancelled, they are sent all the same: `commit` and
        `close` wait for the thread. If it fails then, so does the transaction; without one, the loop's exception
        handler gets the error. `abort` drops the rows, and `begin` waits until the thread has ended.
        """
        check_loop(self._loop, "AsyncProducer")
        send = partial(copy_context().run, self._producer.send_arrow, topic, data, partition=partition)
        rows = self._loop.run_in_executor(None, send)
        self._rows.add(rows)
        try:
            await asyncio.wait([rows])
        except BaseException:  # cancelled, or the coroutine is closed
            if rows.done():
                self._report_rows(rows)
            else:
                rows.add_done_callback(self._report_rows)
            raise
        self._rows_over(rows)
        return AsyncDeliveries(rows.result(), self)

    def _rows_over(self, rows: "asyncio.Future[Deliveries]") -> None:
        """The caller has the outcome of the rows, or their error is reported: `commit` need not wait for them."""
        self._rows.discard(rows)
        self._driver.bell.ring()
        self._updates.news.set()

    def _report_rows(self, rows: "asyncio.Future[Deliveries]") -> None:
        """Report the error of rows whose caller was cancelled."""
        error = None if rows.cancelled() else rows.exception()
        if error is not None:
            self._rows_failed(error)
        self._rows_over(rows)

    def _rows_failed(self, error: BaseException) -> None:
        message = "rows of a cancelled send_arrow were not sent"
        if self._config.transactional_id is None:
            self._loop.call_exception_handler({"message": message, "exception": error})
            return
        failure = KohortError(message)
        failure.__cause__ = error

        def fail(core: ProducerCore) -> None:
            if core.transactions.state is TxnState.OPEN:  # otherwise they are not a part of it
                core.transactions.failed(failure)

        self._driver.enqueue(fail)

    async def _partitions(self, topic: str) -> int:
        core = self._driver.core
        return await self._when_there_is_room(lambda: core.partitions(topic), topic)

    async def _let_others_run(self) -> None:
        """Let the other tasks of the loop run, since this turn's records are sent."""
        if not self._is_refilled:
            self._is_refilled = True
            self._loop.call_soon(self._refill)
        await asyncio.sleep(0)

    def _refill(self) -> None:
        self._room, self._is_refilled = RECORDS_AT_ONCE, False

    async def _when_there_is_room(self, attempt: Callable[[], T | None], topic: str) -> T:
        """The first value of `attempt` that is not None. While it waits, linger_ms is ignored."""
        self._producer._check()
        driver, news = self._driver, self._updates.news
        until, since = driver.now() + self._config.max_block_ms / 1000, driver.core.refusals
        known_by = self._known_by()

        def look() -> T | None:
            return self._tried(attempt, known_by)

        while True:
            news.clear()
            found = driver.lock.run(look)
            if found is not None:
                return found
            left = until - driver.now()
            if left <= 0:
                return driver.lock.run(lambda: self._at_last(attempt, driver.core, topic))
            await self._change(lambda core: core.press(topic, since))
            news.clear()
            found = driver.lock.run(look)
            if found is not None:
                return found
            await news.wait(min(left, LONGEST_WAIT_S))
            self._producer._check()

    # --- flush and close

    async def flush(self, timeout_s: float | None = None) -> None:
        """Send all buffered records at once, and wait until they are settled.

        Raises the first failure that no delivery has raised, and OperationTimeout after `timeout_s` seconds.
        """
        timeout_s = inf if timeout_s is None else seconds_given(timeout_s)
        self._producer._check()
        waiting = await self._change(lambda core: core.accumulator.unsettled())
        await self._wait(lambda: all(batch.done for batch in waiting), timeout_s)
        self._updates.handle()
        accumulator = self._driver.core.accumulator
        accumulator.failures_raised, error = self._driver.lock.run(accumulator.unraised)
        if error is not None:
            raise error

    async def close(self, timeout_s: float = 30.0) -> None:
        """Flush (an open transaction is aborted instead), and close every connection.

        Safe to call again. A commit or an abort in progress is awaited. Raises the errors of `flush` or `commit`, after
        everything is closed. If the task is cancelled meanwhile, closing continues in the background; another call
        waits for it, and raises its error.
        """
        timeout_s = seconds_given(timeout_s)
        check_loop(self._loop, "AsyncProducer")
        if self._has_closed:
            return
        if self._closing is None:
            closing: Promise[None] = Promise()
            # The threads of the loop's executor may be busy for longer than `timeout_s`.
            work = partial(closing.give, self._close, tuple(self._rows), timeout_s)
            try:
                threading.Thread(target=work, name="kohort-close").start()  # the interpreter's end waits for it
            except RuntimeError:  # no thread can be started
                work()
            self._closing = closing
        await self._over(self._closing)
        self._has_closed = True
        self._closing.result()

    def _close(self, rows: "tuple[asyncio.Future[Deliveries], ...]", timeout_s: float) -> None:
        """Close on a thread. Later rows are not awaited, since they may wait for a thread for long."""
        until = self._driver.now() + timeout_s
        if self._config.transactional_id is None:  # otherwise the transaction is aborted
            with contextlib.suppress(KohortError):
                self._producer._wait(lambda: self._rows.isdisjoint(rows) or self._loop.is_closed(), timeout_s)
        self._producer.close(max(0.0, until - self._driver.now()))

    # --- transactions

    async def begin(self, timeout_s: float | None = None) -> None:
        """Open a transaction.

        The first call waits for the producer id, which is requested at creation. From then on, at the latest, older
        instances are fenced. A commit whose outcome is unknown is settled first: if it was aborted, TransactionAborted
        is raised. Raises ProducerFenced, IllegalState, OperationTimeout.
        """
        patience_s = self._seconds(timeout_s)
        self._producer._check()
        await self._settled(lambda: self._state not in UNSETTLED and not self._rows, patience_s)
        await self._change(lambda core: core.transactions.begin())
        self._driver.core.transactions.unreported = None  # a task that is cancelled before this has begun nothing

    async def commit(self, timeout_s: float | None = None) -> None:
        """Wait until all sent records are acknowledged, and commit them.

        Raises TransactionAborted if a part of it failed: call `abort()` and send again. Raises ProducerFenced if a
        newer instance runs. After OperationTimeout, or if the task is cancelled, the outcome is unknown: call it again,
        or `begin()`, which both wait for the outcome. Records that are sent again before that may be in the log twice.
        """
        until = self._driver.now() + self._seconds(timeout_s)
        await self._settled(lambda: not self._rows, self._seconds(timeout_s))
        end = await self._end(self._driver.core.transactions.commit, max(0.0, until - self._driver.now()))
        if end.error is not None:
            raise end.error
        self._driver.core.transactions.unreported = None

    async def abort(self, timeout_s: float | None = None) -> None:
        """Abort the transaction. Raises ProducerFenced, IllegalState, OperationTimeout.

        After OperationTimeout it may be called again.
        """
        await self._end(self._driver.core.transactions.abort, timeout_s)
        if self._state is TxnState.FAILED:
            await self._change(lambda core: core.transactions.abort())
        self._driver.lock.run(self._driver.core.transactions.raise_cause)
        self._driver.core.transactions.unreported = None

    async def send_offsets(
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
        self._producer._check()
        order = await self._change(lambda core: core.transactions.order(checked, group))
        await self._wait(lambda: order.done, patience_s)
        if order.error is not None:
            raise order.error

    def transaction(self) -> contextlib.AbstractAsyncContextManager[Self]:
        """A context manager that calls `begin()` and then `commit()`.

        It calls `abort()` if the block or the commit raises, or if the task is cancelled. The block gets the producer.
        If OperationTimeout or a cancellation ends the commit, its outcome is unknown: call `commit()`, or begin the
        next transaction. Both wait for the outcome, and raise TransactionAborted if there was no commit.
        """
        return self._transaction()

    @contextlib.asynccontextmanager
    async def _transaction(self) -> "Any":
        try:
            await self.begin()
        except TransactionAborted:
            await self._try_abort()  # the outcome of an earlier commit, which is over now
            raise
        try:
            yield self
            await self.commit()
        except BaseException:
            await self._try_abort()
            raise

    async def _try_abort(self) -> None:
        with contextlib.suppress(KohortError):  # the error of the block is raised
            await self.abort()

    # --- inner

    async def _end(self, what: Callable[[], None], timeout_s: float | None) -> TransactionEnd:
        patience_s = self._seconds(timeout_s)
        self._producer._check()
        end = await self._change(lambda core: core.transactions.request(what))
        await self._settled(lambda: end.over, patience_s)
        return end

    async def _settled(self, reached: Callable[[], bool], timeout_s: float) -> None:
        await self._wait(reached, timeout_s, lambda core: core.transactions.overdue(*core.unreached))

    async def _wait(
        self,
        reached: Callable[[], bool],
        timeout_s: float,
        late: Callable[[ProducerCore], OperationTimeout] = overdue,
    ) -> None:
        """Wait until `reached` returns true; it is called under the lock after every update."""
        driver, news = self._driver, self._updates.news
        until = driver.now() + timeout_s
        while True:
            news.clear()
            if driver.lock.run(reached):
                return
            driver.check()
            if driver.core.fatal is not None:
                raise driver.core.fatal
            left = until - driver.now()
            if left <= 0:
                raise driver.lock.run(late, driver.core)
            await news.wait(min(left, LONGEST_WAIT_S))

    async def _change(self, change: Callable[[ProducerCore], T]) -> T:
        """Have the driver's thread change the core; returns the value of `change`, or raises its error."""
        check_loop(self._loop, "AsyncProducer")
        promise = self._driver.enqueue(change)
        await self._over(promise)
        return promise.result()

    async def _over(self, promise: Promise[T]) -> None:
        """Wait until a promise has its value or its error."""
        done: asyncio.Future[None] = self._loop.create_future()
        promise.add_done_callback(lambda _promise: call_in(self._loop, partial(_finish, done)))
        await done

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_error: object) -> None:
        if kind is None:
            await self.close()
            return
        with contextlib.suppress(KohortError):  # the error of the block is raised
            await self.close()


def _finish(done: "asyncio.Future[None]") -> None:
    if not done.done():
        done.set_result(None)


def _nothing() -> None:
    """No callbacks are called by the blocking producer inside."""
