"""AsyncProducer on the fake broker: deliveries, room, callbacks, transactions, cancellation, signatures."""

import asyncio
import contextlib
import gc
import inspect
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from math import inf
from typing import Any

import pyarrow as pa
import pytest

from examples import async_service
from kohort import AsyncProducer, Producer, TopicPartition
from kohort.network.errors import IllegalState, OperationTimeout, UnknownTopic
from kohort.network.group_types import ConsumerGroupMetadata
from kohort.producer import BufferFull, Delivery, ProducerClosed, RecordTooLarge, TransactionAborted
from kohort.producer.async_producer import RECORDS_AT_ONCE
from kohort.protocol.apis.end_txn import EndTxnResponse
from kohort.protocol.errors import BrokerError, ErrorCode
from kohort.testing import FakeBroker
from kohort.testing.fake_broker import Alter, Answer, Drop, Hold
from tests.producer.test_producer_interrupts import read as read_places

PATIENCE_S = 60.0
HASTY: dict[str, Any] = {"reconnect_backoff_max_ms": 50, "retry_backoff_max_ms": 50}


@pytest.fixture
def fake() -> Iterator[FakeBroker]:
    with FakeBroker(topics={"topic": 2}) as broker:
        yield broker


def run(program: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(2 * PATIENCE_S):
            await program()

    asyncio.run(main())


def values(fake: FakeBroker, *, partitions: int = 2) -> list[bytes | None]:
    return [value for _place, _offset, value in read_places(fake, "topic", partitions=partitions)]


def refused(response: Any) -> Any:
    (topic,) = response.responses
    (one,) = topic.partition_responses
    return response._replace(responses=(topic._replace(partition_responses=(one._replace(error_code=87),)),))


def public(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


def test_both_have_the_same_public_names_but_poll() -> None:
    """The loop calls the callbacks, so that there is no call for that."""
    assert public(Producer) - public(AsyncProducer) == {"poll"}
    assert public(AsyncProducer) <= public(Producer)


@pytest.mark.parametrize("name", sorted(public(AsyncProducer)))
def test_a_name_has_the_same_parameters_in_both(name: str) -> None:
    one, other = getattr(Producer, name), getattr(AsyncProducer, name)
    assert inspect.getdoc(other)
    if callable(one):
        assert inspect.signature(one).parameters == inspect.signature(other).parameters
        waits = name not in {"metrics", "transaction", "from_config"}
        assert inspect.iscoroutinefunction(other) is waits


def test_a_producer_is_made_the_same_way() -> None:
    assert inspect.signature(AsyncProducer) == inspect.signature(Producer)


def test_a_delivery_is_awaited_and_records_of_a_partition_keep_their_order(fake: FakeBroker) -> None:
    async def program() -> None:
        async with AsyncProducer(fake.bootstrap, **HASTY) as producer:
            sent = [await producer.send("topic", b"%d" % n, partition=n % 2) for n in range(20)]
            await producer.flush(PATIENCE_S)
            assert all(delivery.done() for delivery in sent)
            assert [(await delivery).offset for delivery in sent] == [n // 2 for n in range(20)]
            assert (await sent[3].result()).partition == 1
            assert producer.buffered_bytes == 0

    run(program)
    assert values(fake) == [b"%d" % n for n in [*range(0, 20, 2), *range(1, 20, 2)]]


def test_many_tasks_wait_for_deliveries_and_for_room(fake: FakeBroker) -> None:
    async def program() -> None:
        small: dict[str, Any] = {"buffer_bytes": 4_000, "max_request_bytes": 2_000, "batch_bytes": 500}
        async with AsyncProducer(fake.bootstrap, **small, **HASTY) as producer:

            async def one(number: int) -> None:
                for each in range(10):
                    delivery = await producer.send("topic", b"%d-%d" % (number, each) + b"x" * 100)
                    assert (await delivery).offset >= 0

            await asyncio.gather(*(one(number) for number in range(50)))
            assert not producer._updates._awaited

    run(program)
    assert len(set(values(fake))) == 500


def test_a_record_costs_no_change_of_threads(fake: FakeBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    async def program() -> None:
        async with AsyncProducer(fake.bootstrap, linger_ms=50, **HASTY) as producer:
            await (await producer.send("topic", b"first"))
            loop, called = asyncio.get_running_loop(), 0
            soon = loop.call_soon_threadsafe

            def counted(*given: Any, **named: Any) -> Any:
                nonlocal called
                called += 1
                return soon(*given, **named)

            monkeypatch.setattr(loop, "call_soon_threadsafe", counted)
            before = threading.active_count()
            sent = [await producer.send("topic", b"%d" % n) for n in range(5_000)]
            await asyncio.gather(*sent)
            assert threading.active_count() == before
            assert called < 500
            await asyncio.sleep(0.1)
            called = 0
            for _ in range(100):
                producer._updates.notify()
            assert called == 1
            monkeypatch.undo()

    run(program)


def test_a_task_that_only_sends_lets_others_run(fake: FakeBroker) -> None:
    async def program() -> None:
        async with AsyncProducer(fake.bootstrap, **HASTY) as producer:
            await producer.send("topic", b"first")
            turns = 0
            over = False

            async def tick() -> None:
                nonlocal turns
                while not over:
                    turns += 1
                    await asyncio.sleep(0)

            ticking = asyncio.create_task(tick())
            for n in range(10 * RECORDS_AT_ONCE):
                await producer.send("topic", b"%d" % n)
            over = True
            await ticking
            assert turns >= 9

    run(program)


@pytest.mark.parametrize("error", [ZeroDivisionError, asyncio.CancelledError])
def test_callbacks_run_on_the_loop_and_one_that_raises_stops_no_other(
    fake: FakeBroker, error: type[BaseException]
) -> None:
    async def program() -> None:
        loop, problems = asyncio.get_running_loop(), list[BaseException]()
        loop.set_exception_handler(lambda _loop, context: problems.append(context["exception"]))
        called: list[tuple[int, bool]] = []

        def raises(delivery: Delivery) -> None:
            raise error

        def called_back(delivery: Delivery) -> None:
            called.append((delivery.result().offset, asyncio.get_running_loop() is loop))

        async with AsyncProducer(fake.bootstrap, **HASTY) as producer:
            await producer.send("topic", b"0", partition=0, on_delivery=called_back)
            await producer.send("topic", b"1", partition=0, on_delivery=raises)
            await (await producer.send("topic", b"2", partition=0, on_delivery=called_back))
            await producer.flush(PATIENCE_S)
            assert called == [(0, True), (2, True)]
            assert [type(one) for one in problems] == [error]

    run(program)


def test_errors_of_records_are_raised_by_deliveries_or_by_flush(fake: FakeBroker) -> None:
    async def program() -> None:
        async with AsyncProducer(fake.bootstrap, **HASTY) as producer:
            fake.control("Produce", lambda _call: Alter(refused), times=1)
            delivery = await producer.send("topic", b"refused")
            with pytest.raises(BrokerError):
                await delivery
            fake.control("Produce", lambda _call: Alter(refused), times=1)
            await producer.send("topic", b"refused")
            with pytest.raises(BrokerError):
                await producer.flush(PATIENCE_S)
            with pytest.raises(UnknownTopic):
                await producer.send("topic", b"x", partition=7)
            with pytest.raises(TypeError):
                await producer.send("topic", 5)  # type: ignore[arg-type]
            assert (await (await producer.send("topic", b"fine"))).offset >= 0

    run(program)


def test_a_send_without_room_ends_in_time_and_one_that_is_cancelled_has_sent_nothing(fake: FakeBroker) -> None:
    async def program() -> None:
        small: dict[str, Any] = {"buffer_bytes": 1_000, "max_request_bytes": 1_000, "batch_bytes": 900}
        async with AsyncProducer(fake.bootstrap, max_block_ms=200, **small, **HASTY) as producer:
            await (await producer.send("topic", b"first", partition=0))
            held = Hold()
            fake.control("Produce", lambda _call: held)
            await producer.send("topic", b"x" * 800, partition=0)
            with pytest.raises(BufferFull):
                await producer.send("topic", b"y" * 800, partition=0)
            waiting = asyncio.create_task(producer.send("topic", b"z" * 800, partition=0))
            await asyncio.sleep(0.05)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            held.release()
            await producer.flush(PATIENCE_S)

    run(program)
    assert values(fake) == [b"first", b"x" * 800]


def test_a_cancelled_wait_for_a_delivery_leaves_the_record(fake: FakeBroker) -> None:
    async def program() -> None:
        async with AsyncProducer(fake.bootstrap, **HASTY) as producer:
            held = Hold()
            fake.control("Produce", lambda _call: held, times=1)
            delivery = await producer.send("topic", b"x")
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(delivery.result(), 0.05)
            with pytest.raises(OperationTimeout):
                await producer.flush(0.05)
            held.release()
            assert (await delivery).offset == 0

    run(program)


@pytest.mark.parametrize("version", [1, 2])
def test_transactions_commit_and_abort(version: int) -> None:
    with FakeBroker(topics={"topic": 2, "source": 1}, features={"transaction.version": version}) as fake:

        async def program() -> None:
            async with AsyncProducer(fake.bootstrap, transactional_id="tx", **HASTY) as producer:
                with pytest.raises(IllegalState, match="begin"):
                    await producer.send("topic", b"outside")
                async with producer.transaction():
                    await producer.send("topic", b"committed", partition=0)
                    offsets = {TopicPartition("source", 0): 5}
                    await producer.send_offsets(offsets, ConsumerGroupMetadata("g", -1, ""))

                async def failing() -> None:
                    async with producer.transaction():
                        await (await producer.send("topic", b"aborted", partition=0))
                        raise ZeroDivisionError

                with pytest.raises(ZeroDivisionError):
                    await failing()

                async def cancelled() -> None:
                    async with producer.transaction():
                        await (await producer.send("topic", b"cancelled", partition=0))
                        await asyncio.sleep(PATIENCE_S)

                task = asyncio.create_task(cancelled())
                while fake.end_offset("topic", 0) < 5:
                    await asyncio.sleep(0.01)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                await producer.begin()
                fake.control("Produce", lambda _call: Alter(refused), times=1)
                await producer.send("topic", b"refused", partition=1)
                with pytest.raises(TransactionAborted):
                    await producer.commit()
                await producer.abort()
                async with producer.transaction():
                    await producer.send("topic", b"last", partition=0)

        run(program)
        assert [value for value in values(fake) if value != b"refused"] == [b"committed", b"last"]
        assert fake.group("g").offsets[TopicPartition("source", 0)].offset == 5


def test_a_commit_that_was_cancelled_is_settled_by_the_next_block(fake: FakeBroker) -> None:
    async def program() -> None:
        async with AsyncProducer(
            fake.bootstrap, transactional_id="tx", request_timeout_ms=1_000, linger_ms=0, **HASTY
        ) as producer:
            reached = Hold(after_work=True)
            fake.control("EndTxn", lambda _call: reached, times=1)

            async def block(value: bytes) -> None:
                async with producer.transaction():
                    await producer.send("topic", value, partition=0)

            task = asyncio.create_task(block(b"first"))
            while not reached.reached.is_set():
                await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            reached.release()
            await block(b"second")
            fake.control("EndTxn", lambda _call: Drop(after_work=True), times=1)
            await producer.begin()
            await producer.send("topic", b"third", partition=0)
            with pytest.raises(OperationTimeout, match="the outcome of the commit is unknown"):
                await producer.commit(0.2)
            await producer.commit(PATIENCE_S)

    run(program)
    assert values(fake) == [b"first", b"second", b"third"]


def test_a_commit_that_turns_out_to_be_aborted_is_said_by_the_next_block_once(fake: FakeBroker) -> None:
    async def program() -> None:
        async with AsyncProducer(
            fake.bootstrap, transactional_id="tx", request_timeout_ms=500, linger_ms=0, **HASTY
        ) as producer:

            async def block(value: bytes) -> None:
                async with producer.transaction():
                    await producer.send("topic", value, partition=0)

            await block(b"first")
            fake.control("EndTxn", lambda _call: Drop(), times=1)
            await producer.begin()
            await producer.send("topic", b"lost", partition=0)
            with pytest.raises(OperationTimeout):
                await producer.commit(0.1)
            timed_out = EndTxnResponse(error_code=ErrorCode.INVALID_TXN_STATE)
            fake.control("EndTxn", lambda _call: Answer(timed_out), times=1)
            with pytest.raises(TransactionAborted):
                await block(b"not begun")
            await block(b"second")

    run(program)
    assert values(fake) == [b"first", b"second"]


def test_rows_are_sent_from_a_thread_and_counted(fake: FakeBroker) -> None:
    async def program() -> None:
        async with AsyncProducer(fake.bootstrap, **HASTY) as producer:
            rows = await producer.send_arrow("topic", pa.table({"value": [b"1", b"2", b"3"]}), partition=1)
            assert len(rows) == 3
            assert await rows == {TopicPartition("topic", 1): 3}
            assert rows.done()

    run(program)


class Gate:
    """A partitioner that waits, so that `send_arrow` is cancelled before its rows enter a batch."""

    def __init__(self) -> None:
        self._reached, self._go_on = threading.Event(), threading.Event()

    def __call__(self, *_record: object) -> int:
        self._reached.set()
        assert self._go_on.wait(3 * PATIENCE_S)  # longer than the test: a call that waits for it fails
        return 0

    async def cancelled(self, producer: AsyncProducer, values: tuple[bytes, ...] = (b"1", b"2")) -> None:
        """Send rows, and cancel the task of the call."""
        sending = asyncio.create_task(producer.send_arrow("topic", pa.table({"value": values})))
        await self.reached()
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending

    async def reached(self) -> None:
        await asyncio.to_thread(self._reached.wait, PATIENCE_S)

    def open(self) -> None:
        self._go_on.set()

    def close(self) -> None:
        self._reached.clear()
        self._go_on.clear()


def test_rows_of_a_cancelled_call_in_an_aborted_transaction_are_in_no_other(fake: FakeBroker) -> None:
    async def program() -> None:
        gate, problems = Gate(), list[Any]()
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: problems.append(context))
        async with AsyncProducer(fake.bootstrap, transactional_id="tx", partitioner=gate, **HASTY) as producer:
            await producer.begin()
            await producer.send("topic", b"aborted", partition=0)
            await gate.cancelled(producer)
            await producer.abort()
            with pytest.raises(OperationTimeout):
                await producer.begin(0.0)
            gate.open()
            async with producer.transaction():
                await producer.send("topic", b"committed", partition=0)
        gc.collect()
        assert not problems, "the error of dropped rows is no news"

    run(program)
    assert values(fake) == [b"committed"]


def test_a_commit_waits_for_the_rows_of_a_cancelled_call(fake: FakeBroker) -> None:
    async def program() -> None:
        gate = Gate()
        async with AsyncProducer(fake.bootstrap, transactional_id="tx", partitioner=gate, **HASTY) as producer:
            await producer.begin()
            await gate.cancelled(producer)
            with pytest.raises(OperationTimeout):
                await producer.commit(0.0)
            gate.open()
            await producer.commit()

    run(program)
    assert values(fake) == [b"1", b"2"]


PARTLY_TOO_LARGE = (b"1", b"x" * 5_000)
SMALL: dict[str, Any] = {"max_request_bytes": 1_000, "batch_bytes": 900}


def test_a_commit_without_some_rows_of_a_cancelled_call_fails(fake: FakeBroker) -> None:
    async def program() -> None:
        gate = Gate()
        async with AsyncProducer(fake.bootstrap, transactional_id="tx", partitioner=gate, **SMALL, **HASTY) as producer:
            await producer.begin()
            await gate.cancelled(producer, PARTLY_TOO_LARGE)
            gate.open()
            with pytest.raises(TransactionAborted):
                await producer.commit()
            await producer.abort()
            async with producer.transaction():
                await producer.send("topic", b"next", partition=0)

    run(program)
    assert values(fake) == [b"next"]


def test_rows_that_are_refused_during_a_commit_do_not_fail_it(fake: FakeBroker) -> None:
    async def program() -> None:
        gate, held = Gate(), Hold()
        fake.control("EndTxn", lambda _call: held, times=1)
        async with AsyncProducer(fake.bootstrap, transactional_id="tx", partitioner=gate, **HASTY) as producer:
            await producer.begin()
            await producer.send("topic", b"committed", partition=0)
            committing = asyncio.create_task(producer.commit())
            await asyncio.to_thread(held.reached.wait, PATIENCE_S)
            await gate.cancelled(producer)
            gate.open()
            await asyncio.wait(producer._rows)
            held.release()
            await committing

    run(program)
    assert values(fake) == [b"committed"]


def test_the_error_of_rows_of_a_cancelled_call_without_a_transaction_is_passed_to_the_loop(fake: FakeBroker) -> None:
    async def program() -> None:
        gate, problems = Gate(), list[Any]()
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: problems.append(context))
        async with AsyncProducer(fake.bootstrap, partitioner=gate, **SMALL, **HASTY) as producer:
            gate.open()
            with pytest.raises(RecordTooLarge):
                await producer.send_arrow("topic", pa.table({"value": PARTLY_TOO_LARGE}))
            assert not problems
            gate.close()
            await gate.cancelled(producer, PARTLY_TOO_LARGE)
            gate.open()
        (problem,) = problems
        assert isinstance(problem["exception"], RecordTooLarge)

    run(program)


@pytest.mark.parametrize("transactional_id", [None, "tx"])
def test_close_waits_for_the_rows_of_a_cancelled_call_that_no_abort_drops(
    fake: FakeBroker, transactional_id: str | None
) -> None:
    async def program() -> None:
        gate = Gate()
        producer = AsyncProducer(fake.bootstrap, transactional_id=transactional_id, partitioner=gate, **HASTY)
        if transactional_id is not None:
            await producer.begin()
        await gate.cancelled(producer)
        closing = asyncio.create_task(producer.close(inf))
        if transactional_id is None:
            await asyncio.wait([closing], timeout=0.1)
            assert not closing.done()
            gate.open()
        await closing
        gate.open()

    run(program)
    assert values(fake) == ([b"1", b"2"] if transactional_id is None else [])


def test_a_closed_producer_refuses_and_closing_again_does_nothing(fake: FakeBroker) -> None:
    async def program() -> None:
        producer = AsyncProducer(fake.bootstrap, **HASTY)
        called: list[Delivery] = []
        delivery = await producer.send("topic", b"x", on_delivery=called.append)
        await asyncio.gather(producer.close(), producer.close())
        await producer.close()
        assert (await delivery).offset == 0
        assert len(called) == 1
        with pytest.raises(ProducerClosed):
            await producer.send("topic", b"y")
        for call in (producer.flush, producer.begin, producer.commit):
            with pytest.raises((ProducerClosed, IllegalState)):
                await call()

    run(program)
    assert values(fake) == [b"x"]


async def cancel_all_others() -> None:
    """As a program does at its end."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


def test_a_call_that_is_cancelled_as_its_rows_fail_fails_a_commit_that_waits_for_it(fake: FakeBroker) -> None:
    async def program() -> None:
        gate = Gate()
        async with AsyncProducer(fake.bootstrap, transactional_id="tx", partitioner=gate, **SMALL, **HASTY) as producer:
            await producer.begin()
            await producer.send("topic", b"first", partition=0)
            sending = asyncio.create_task(producer.send_arrow("topic", pa.table({"value": PARTLY_TOO_LARGE})))
            await gate.reached()
            committing = asyncio.create_task(producer.commit())
            await asyncio.sleep(0)
            (rows,) = producer._rows
            rows.add_done_callback(lambda _rows: sending.cancel())  # the task is due in the same turn of the loop
            gate.open()
            with pytest.raises(asyncio.CancelledError):
                await sending
            with pytest.raises(TransactionAborted):
                await committing
            await producer.abort()

    run(program)


def test_rows_of_a_call_are_sent_although_all_tasks_are_cancelled(fake: FakeBroker) -> None:
    async def program() -> None:
        gate = Gate()
        producer = AsyncProducer(fake.bootstrap, partitioner=gate, **HASTY)
        sending = asyncio.create_task(producer.send_arrow("topic", pa.table({"value": [b"1", b"2"]})))
        await gate.reached()
        await cancel_all_others()
        assert sending.cancelled()
        closing = asyncio.create_task(producer.close())
        await asyncio.wait([closing], timeout=0.1)
        assert not closing.done()
        gate.open()
        await closing

    run(program)
    assert values(fake) == [b"1", b"2"]


def test_close_does_not_wait_for_rows_that_wait_for_a_thread(fake: FakeBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    async def program() -> None:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        producer = AsyncProducer(fake.bootstrap, **HASTY)
        close, time_left = producer._producer.close, list[float]()

        def closed(timeout_s: float) -> None:
            time_left.append(timeout_s)
            close(timeout_s)

        monkeypatch.setattr(producer._producer, "close", closed)
        gate, last = Gate(), Gate()
        blocked = asyncio.get_running_loop().run_in_executor(None, gate)
        rows = [asyncio.create_task(producer.send_arrow("topic", pa.table({"value": [b"1"]}), partition=0))]
        await asyncio.sleep(0)
        closing = asyncio.create_task(producer.close(PATIENCE_S))
        await asyncio.sleep(0)
        blocked_longer = asyncio.get_running_loop().run_in_executor(None, last)
        rows.append(asyncio.create_task(producer.send_arrow("topic", pa.table({"value": [b"2"]}), partition=0)))
        await asyncio.sleep(0)
        gate.open()
        await blocked
        await closing
        assert time_left[0] > 0
        last.open()
        await blocked_longer
        with pytest.raises(ProducerClosed):
            await rows[1]

    run(program)
    assert values(fake) == [b"1"]


@pytest.mark.parametrize("has_thread", [True, False])
def test_close_waits_for_no_thread_of_the_executor(
    fake: FakeBroker, has_thread: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if not has_thread and thread.name == "kohort-close":
            raise RuntimeError("can't start new thread")
        start(thread)

    async def program() -> None:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        producer, gate = AsyncProducer(fake.bootstrap, **HASTY), Gate()
        delivery = await producer.send("topic", b"x")
        blocked = asyncio.get_running_loop().run_in_executor(None, gate)
        try:
            await asyncio.wait_for(producer.close(), PATIENCE_S)
            assert (await delivery).offset == 0
        finally:
            gate.open()
            await blocked

    monkeypatch.setattr(threading.Thread, "start", refuse)
    run(program)
    assert values(fake) == [b"x"]


def test_close_ends_after_its_loop(fake: FakeBroker) -> None:
    async def program() -> AsyncProducer:
        producer = AsyncProducer(fake.bootstrap, partitioner=gate, **HASTY)
        await gate.cancelled(producer)
        closing = asyncio.create_task(producer.close(inf))
        await asyncio.sleep(0)
        closing.cancel()
        return producer

    gate, loop = Gate(), asyncio.new_event_loop()
    producer = loop.run_until_complete(program())
    loop.close()
    gate.open()
    assert producer._driver.ended.wait(PATIENCE_S)


@pytest.mark.parametrize("all_tasks", [False, True])
def test_a_cancelled_close_goes_on_and_another_waits_for_it(fake: FakeBroker, all_tasks: bool) -> None:
    async def program() -> None:
        producer = AsyncProducer(fake.bootstrap, linger_ms=0, **HASTY)
        await (await producer.send("topic", b"first"))
        held = Hold()
        fake.control("Produce", lambda _call: held, times=1)
        delivery = await producer.send("topic", b"second")
        closing = asyncio.create_task(producer.close())
        await asyncio.sleep(0.05)
        if all_tasks:
            await cancel_all_others()
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        threading.Timer(0.3, held.release).start()
        await producer.close()
        assert producer._driver.ended.is_set()
        assert (await delivery).offset >= 0

    run(program)


def test_a_cancelled_close_that_fails_wakes_tasks_and_raises_its_error_once(fake: FakeBroker) -> None:
    async def program() -> None:
        producer = AsyncProducer(fake.bootstrap, linger_ms=0, **HASTY)
        await (await producer.send("topic", b"first"))
        held = Hold()
        fake.control("Produce", lambda _call: held, times=1)
        called: list[Delivery] = []
        delivery = await producer.send("topic", b"second", on_delivery=called.append)
        await asyncio.to_thread(held.reached.wait, PATIENCE_S)
        waiting = asyncio.create_task(delivery.result())
        closing = asyncio.create_task(producer.close(0.1))
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        with pytest.raises(ProducerClosed):
            await waiting
        assert len(called) == 1
        with pytest.raises(OperationTimeout):
            await producer.close()
        await producer.close()
        held.release()

    run(program)


@pytest.mark.parametrize("call", ["flush", "send", "send_arrow", "commit"])
def test_a_task_that_waits_in_a_call_ends_when_another_closes_the_producer(fake: FakeBroker, call: str) -> None:
    async def program() -> None:
        small: dict[str, Any] = {"buffer_bytes": 1_000, "max_request_bytes": 1_000, "batch_bytes": 900, "linger_ms": 0}
        transactional_id = "tx" if call == "commit" else None
        producer = AsyncProducer(fake.bootstrap, transactional_id=transactional_id, **small, **HASTY)
        if transactional_id is not None:
            await producer.begin()
        held = Hold()
        fake.control("Produce", lambda _call: held)
        await producer.send("topic", b"x" * 800, partition=0)
        await asyncio.to_thread(held.reached.wait, PATIENCE_S)
        given: dict[str, tuple[Any, ...]] = {
            "send": ("topic", b"y" * 800),
            "send_arrow": ("topic", pa.table({"value": [b"y" * 800]})),
        }
        waiting = asyncio.create_task(getattr(producer, call)(*given.get(call, ())))
        await asyncio.sleep(0)
        with pytest.raises(OperationTimeout):
            await producer.close(0.1)
        with pytest.raises(ProducerClosed):
            await waiting
        held.release()

    run(program)


def test_it_is_made_inside_a_running_loop() -> None:
    with pytest.raises(RuntimeError, match="no running event loop"):
        AsyncProducer("127.0.0.1:1")


def test_it_runs_under_uvloop(fake: FakeBroker) -> None:
    uvloop = pytest.importorskip("uvloop")

    async def program() -> None:
        async with AsyncProducer(fake.bootstrap, **HASTY) as producer:
            sent = [await producer.send("topic", b"%d" % n, partition=0) for n in range(1_000)]
            assert [one.offset for one in await asyncio.gather(*sent)] == list(range(1_000))

    uvloop.run(program())


def test_the_example_of_a_service(fake: FakeBroker, capsys: pytest.CaptureFixture[str]) -> None:
    asyncio.run(async_service.main(fake.bootstrap, "topic"))
    assert capsys.readouterr().out == "100 orders placed\n"
    assert sorted(set(values(fake))) == [b"order %d" % each for each in range(5)]  # type: ignore[type-var]
    asyncio.run(async_service.main(fake.bootstrap, "an invalid name", 1))
    lines = capsys.readouterr().out.splitlines()
    assert ["is not stored" in line for line in lines[:-1]] == [True] * 5
    assert lines[-1] == "0 orders placed"


def test_a_service_of_fastapi_stores_every_order_under_load(fake: FakeBroker) -> None:
    """The example's `service` is the lifespan of an application, which 40 connections call at once."""
    fastapi, uvicorn = pytest.importorskip("fastapi"), pytest.importorskip("uvicorn")
    connections, requests = 40, 25

    @contextlib.asynccontextmanager
    async def lifespan(app: Any) -> AsyncIterator[None]:
        async with async_service.service(fake.bootstrap, "topic") as app.state.orders:
            yield

    app = fastapi.FastAPI(lifespan=lifespan)

    async def place(customer: str, order: int) -> int:
        offset: int = await app.state.orders.place(customer, b"%d" % order)
        return offset

    app.put("/orders/{customer}/{order}")(place)

    async def customer(port: int, number: int) -> list[bytes]:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        statuses = []
        for order in range(requests):
            writer.write(b"PUT /orders/c%d/%d HTTP/1.1\r\nHost: x\r\n\r\n" % (number, order))
            head = await reader.readuntil(b"\r\n\r\n")
            size = int(next(one for one in head.split(b"\r\n") if one.lower().startswith(b"content-length")).split()[1])
            await reader.readexactly(size)
            statuses.append(head.split()[1])
        writer.close()
        return statuses

    async def program() -> None:
        started = asyncio.Event()

        class Server(uvicorn.Server):  # type: ignore[misc, name-defined]
            async def startup(self, sockets: Any = None) -> None:
                await super().startup(sockets)
                started.set()

        server = Server(uvicorn.Config(app, port=0, log_level="error"))
        serving = asyncio.create_task(server.serve())
        await started.wait()
        port = server.servers[0].sockets[0].getsockname()[1]
        found = await asyncio.gather(*(customer(port, number) for number in range(connections)))
        server.should_exit = True
        await serving
        assert found == [[b"200"] * requests] * connections

    asyncio.run(program())
    assert len(values(fake)) == connections * requests
