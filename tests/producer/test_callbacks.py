"""Delivery callbacks: each is called once, in order by partition, on the caller's thread, under no lock."""

import threading
from functools import partial
from itertools import count
from typing import Any

import pytest

from kohort import KohortError, Producer
from kohort.network.errors import OperationTimeout
from kohort.producer import Delivery, DeliveryTimeout, ProducerClosed
from kohort.producer import producer as producer_module
from kohort.producer.callback_queue import CallbackQueue
from kohort.protocol.errors import BrokerError
from kohort.testing.fake_broker import Alter, Delay, FakeBroker, Hold
from tests.coordinator_client.consumer_helpers import PATIENCE_S
from tests.interrupts import Interrupt, attempt, every_point
from tests.producer.test_async_producer import refused
from tests.producer.test_open_batch import batch_of
from tests.producer.test_producer_interrupts import HASTY, producer_of, topic_of
from tests.producer.test_producer_machine import acquainted


class Calls:
    """A callback that keeps the results of its calls, and their threads."""

    def __init__(self) -> None:
        self.results: list[Any] = []
        self.threads: set[threading.Thread] = set()

    def __call__(self, delivery: Delivery) -> None:
        assert delivery.done()
        self.threads.add(threading.current_thread())
        self.results.append(delivery.exception() or delivery.result(0).offset)


def _note(calls: list[Any], what: object, _delivery: Delivery) -> None:
    calls.append(what)


# --- a batch


def _called(batch: Any) -> list[str]:
    """The calls until no callback is left. Those that raise go on."""
    for _ in range(20):
        try:
            batch.call_back()
        except ZeroDivisionError:
            continue
        return []
    raise AssertionError("it does not end")


def test_a_record_without_a_callback_has_that_of_the_producer() -> None:
    calls: list[tuple[str, int]] = []
    batch = batch_of(on_delivery=lambda delivery: calls.append(("all", delivery.index)))
    for number in range(6):
        own = (lambda delivery: calls.append(("own", delivery.index))) if number in (1, 4) else None
        batch.append(None, b"x", None, 1, own)
    batch.done = True
    assert batch.call_back() == 6
    assert calls == [("own" if number in (1, 4) else "all", number) for number in range(6)]
    assert not batch.has_callbacks
    assert batch.call_back() == 0


@pytest.mark.parametrize("for_all", [False, True])
def test_a_callback_that_raises_is_called_once_and_the_others_are_called(for_all: bool) -> None:
    calls: list[int] = []

    def callback(delivery: Delivery) -> None:
        calls.append(delivery.index)
        if delivery.index % 2:
            raise ZeroDivisionError

    batch = batch_of(on_delivery=callback if for_all else None)
    for _ in range(5):
        batch.append(None, b"x", None, 1, None if for_all else callback)
    _called(batch)
    assert calls == [0, 1, 2, 3, 4]


def test_a_batch_without_callbacks_has_none() -> None:
    batch = batch_of()
    batch.append(None, b"x", None, 1)
    assert not batch.has_callbacks
    assert batch.call_back() == 0


# --- the order


def test_a_batch_that_fails_before_an_earlier_one_is_settled_is_reported_behind_it() -> None:
    world = acquainted()
    calls: list[bytes] = []
    codes = iter([7, 29])  # the first is sent again, the second is refused
    world.code_of = lambda place: next(codes, 0)
    for value in (b"first" * 30, b"second" * 30, b"third" * 30):
        world.send(value, 0, partial(_note, calls, value[:5]))
        world.turn()
    due = world.core.accumulator.callbacks
    queue = CallbackQueue(due, lambda: None)
    lane = world.core.accumulator.lanes[next(iter(world.core.accumulator.lanes))]
    while len(lane.queue) > 2:
        world.respond_to_one()
    assert not due, "the first is not settled"
    world.calm()
    queue.call()
    assert calls == [b"first", b"secon", b"third"]
    assert isinstance(world.sent[2][0].exception(), KohortError)


# --- a producer


@pytest.fixture
def fake() -> Any:
    with FakeBroker(topics={"t": 3}) as broker:
        yield broker


@pytest.mark.parametrize("by", ["poll", "flush", "close"])
def test_callbacks_run_on_the_thread_of_the_call(fake: FakeBroker, by: str) -> None:
    calls = Calls()
    producer = Producer(fake.bootstrap, linger_ms=0)
    deliveries = [producer.send("t", b"x", partition=0, on_delivery=calls) for _ in range(3)]
    if by == "poll":
        while len(calls.results) < 3:
            assert producer.poll(PATIENCE_S) > 0
    else:
        getattr(producer, by)(timeout_s=PATIENCE_S)
    assert calls.results == [0, 1, 2]
    assert calls.threads == {threading.current_thread()}
    assert all(delivery.done() for delivery in deliveries)
    producer.close()
    assert len(calls.results) == 3


def test_poll_waits_for_its_time_only(fake: FakeBroker) -> None:
    with Producer(fake.bootstrap) as producer:
        assert producer.poll() == 0
        assert producer.poll(0.01) == 0


def test_a_send_that_waits_for_room_calls_them(fake: FakeBroker) -> None:
    calls = Calls()
    with Producer(
        fake.bootstrap, buffer_bytes=1_000, max_request_bytes=500, batch_bytes=200, on_delivery=calls
    ) as producer:
        for _ in range(50):
            producer.send("t", b"x" * 100, partition=0)
        assert len(calls.results) > 30
        assert calls.threads == {threading.current_thread()}


def test_a_callback_may_use_the_producer(fake: FakeBroker) -> None:
    """It would wait for itself if it were called under a lock."""
    left, seen = count(), []

    def callback(delivery: Delivery) -> None:
        seen.append(delivery.result().offset)
        producer.metrics()
        producer.poll()
        if next(left) < 5:
            producer.send("t", b"again", partition=0, on_delivery=callback)
            producer.flush(PATIENCE_S)

    with Producer(fake.bootstrap) as producer:
        producer.send("t", b"x", partition=0, on_delivery=callback)
    assert seen == [0, 1, 2, 3, 4, 5]


def test_what_a_callback_raises_is_raised_by_the_call_and_the_next_goes_on(fake: FakeBroker) -> None:
    calls = Calls()

    def refuse(_delivery: Delivery) -> None:
        raise ZeroDivisionError

    with Producer(fake.bootstrap) as producer:
        producer.send("t", b"x", partition=0, on_delivery=refuse)
        producer.send("t", b"y", partition=0, on_delivery=calls)
        with pytest.raises(ZeroDivisionError):
            producer.flush(PATIENCE_S)
        producer.flush(PATIENCE_S)
        assert calls.results == [1]


def test_a_failure_is_handed_to_the_callback_and_raised_by_no_flush(fake: FakeBroker) -> None:
    with Producer(fake.bootstrap, delivery_timeout_ms=200, request_timeout_ms=100, linger_ms=0, **HASTY) as producer:
        producer.send("t", b"has the metadata requested").result(PATIENCE_S)
        laid = fake.control("Produce", lambda _call: Delay(1.0))
        called: list[Delivery] = []
        producer.send("t", b"x", on_delivery=called.append)
        producer.flush(PATIENCE_S)
        laid.remove()
        assert isinstance(called[0].exception(), DeliveryTimeout)


@pytest.mark.parametrize("timeout_s", [0.2, 0.0])
def test_close_calls_those_of_records_that_it_gives_up(fake: FakeBroker, timeout_s: float) -> None:
    calls = Calls()
    producer = Producer(fake.bootstrap, linger_ms=0, **HASTY)
    producer.send("t", b"has the metadata requested").result(PATIENCE_S)
    held = Hold()
    fake.control("Produce", lambda _call: held)
    producer.send("t", b"x", on_delivery=calls)
    assert held.reached.wait(PATIENCE_S)
    with pytest.raises(OperationTimeout):
        producer.close(timeout_s)
    held.release()
    (error,) = calls.results
    assert isinstance(error, ProducerClosed)
    assert producer.buffered_bytes == 0


def test_records_in_flight_fail_with_a_driver_that_ends_after_close(
    fake: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = threading.Event()
    monkeypatch.setattr(producer_module, "LEAST_END_S", 0.0)
    calls = Calls()
    producer = Producer(fake.bootstrap, linger_ms=0, **HASTY)
    producer.send("t", b"has the metadata requested").result(PATIENCE_S)
    driver = producer._driver
    over = driver.over
    monkeypatch.setattr(driver, "over", lambda defect: (go_on.wait(PATIENCE_S), over(defect)))
    held = Hold()
    fake.control("Produce", lambda _call: held)
    delivery = producer.send("t", b"x", on_delivery=calls)
    assert held.reached.wait(PATIENCE_S)
    with pytest.raises(OperationTimeout):
        producer.close(0.0)
    assert not delivery.done()
    go_on.set()
    assert isinstance(delivery.exception(PATIENCE_S), ProducerClosed)
    held.release()
    producer.close()
    assert len(calls.results) == 1


def test_close_sends_the_other_records_after_a_callback_that_raises_an_error_of_kohort(fake: FakeBroker) -> None:
    held = Hold()

    def refuse(call: Any) -> Alter | Hold:
        return held if call.request.topic_data[0].partition_data[0].index else Alter(refused)

    def callback(delivery: Delivery) -> None:
        held.release()
        delivery.result()

    producer = Producer(fake.bootstrap, linger_ms=0, max_in_flight=1, **HASTY)
    producer.send("t", b"has the metadata requested", partition=1).result(PATIENCE_S)
    fake.control("Produce", refuse)
    bad = producer.send("t", b"bad", partition=0, on_delivery=callback)
    assert isinstance(bad.exception(PATIENCE_S), BrokerError)
    good = [producer.send("t", b"held", partition=1)]
    assert held.reached.wait(PATIENCE_S)
    good += [producer.send("t", b"unsent", partition=1) for _ in range(3)]
    with pytest.raises(BrokerError):
        producer.close(PATIENCE_S)
    assert [delivery.result(0.0).offset for delivery in good] == [1, 2, 3, 4]


def test_a_flush_waits_for_the_callbacks_of_another_thread(fake: FakeBroker) -> None:
    entered, go_on, ended = threading.Event(), threading.Event(), threading.Event()

    def callback(_delivery: Delivery) -> None:
        entered.set()
        assert go_on.wait(PATIENCE_S)
        ended.set()

    with Producer(fake.bootstrap) as producer:
        producer.send("t", b"x", on_delivery=callback)
        first = threading.Thread(target=producer.flush)
        first.start()
        assert entered.wait(PATIENCE_S)
        flushed: list[bool] = []

        def flush() -> None:
            producer.flush(PATIENCE_S)
            flushed.append(ended.is_set())

        second = threading.Thread(target=flush)
        second.start()
        second.join(0.1)
        assert not flushed
        go_on.set()
        first.join(PATIENCE_S)
        second.join(PATIENCE_S)
        assert flushed == [True]


def test_on_delivery_is_a_function(fake: FakeBroker) -> None:
    with pytest.raises(KohortError, match="on_delivery must be a function"):
        Producer(fake.bootstrap, on_delivery="print")  # type: ignore[arg-type]
    with Producer(fake.bootstrap) as producer, pytest.raises(TypeError, match="on_delivery"):
        producer.send("t", b"x", on_delivery="print")  # type: ignore[arg-type]


def test_an_interrupt_anywhere_calls_none_twice_and_leaves_none_out(
    fake: FakeBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    def script() -> None:
        topic = topic_of(fake)
        producer = producer_of(fake)
        calls: list[int] = []
        sent: list[int] = []
        for number in range(4):
            try:
                producer.send(topic, b"x" * 90, on_delivery=partial(_note, calls, number))
                sent.append(number)
            except Interrupt:
                pass
        for call in (lambda: producer.poll(0.01), producer.flush, producer.close):
            attempt(call)
        assert [number for number in calls if number in sent] == sent
        assert len(calls) == len(set(calls))

    with capsys.disabled():
        print(f"\n    {every_point(script, stride=67)}", end="")
