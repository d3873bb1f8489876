"""A signal handler that raises in a producer loses nothing: at each point of each call where CPython could run one.

Each test runs a script once for every point (see `tests/interrupts.py`) and prints how many there were. By default each
`STRIDE`th point is taken; KOHORT_INTERRUPTS=1 (`make test-interrupts`) takes all.
"""

import contextlib
import gc
import os
import random
import signal
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from typing import Any

import pyarrow as pa
import pytest

from kohort.common import KohortError, TopicPartition
from kohort.coordinator_client import ConcurrentUseError, Consumer
from kohort.network import network_client
from kohort.network.group_types import ConsumerGroupMetadata
from kohort.network.network_client import Driver
from kohort.producer import Delivery, Producer, ProducerClosed
from kohort.producer.transaction_states import TxnState
from kohort.testing import RealBroker
from kohort.testing.fake_broker import Delay, FakeBroker, Hold
from tests.coordinator_client.consumer_helpers import PATIENCE_S
from tests.interrupts import Interrupt, Tracer, attempt, elsewhere, every_point, every_point_within, reported

STRIDE = 67
SOURCE = TopicPartition("source", 0)
HASTY: dict[str, Any] = {"retry_backoff_ms": 10, "reconnect_backoff_ms": 10}


@pytest.fixture(scope="module")
def fake() -> Iterator[FakeBroker]:
    with FakeBroker(topics={"source": 1}) as broker:
        yield broker


_numbers = count()


def topic_of(fake: FakeBroker, partitions: int = 1) -> str:
    """A topic of its own for each run."""
    name = f"topic-{next(_numbers)}"
    fake.create_topic(name, partitions)
    return name


def producer_of(fake: FakeBroker, **settings: Any) -> Producer:
    return attempt(lambda: Producer(fake.bootstrap, **({"linger_ms": 0, "batch_bytes": 200} | HASTY | settings)))


def read(fake: FakeBroker, topic: str, *, partitions: int = 1) -> list[tuple[TopicPartition, int, bytes | None]]:
    """The records that a read_committed consumer sees of a topic, read on another thread, where no interrupt is
    made."""

    def run() -> list[tuple[TopicPartition, int, bytes | None]]:
        places = [TopicPartition(topic, number) for number in range(partitions)]
        seen: list[tuple[TopicPartition, int, bytes | None]] = []
        with Consumer(fake.bootstrap, auto_offset_reset="earliest", isolation_level="read_committed") as reader:
            reader.assign(places)
            limit = time.monotonic() + PATIENCE_S
            while any(reader.position(one) < fake.end_offset(*one) for one in places):
                assert time.monotonic() < limit
                for columns in reader.poll(0.1):
                    place = TopicPartition(columns.topic, columns.partition)
                    seen += [(place, record.offset, record.value) for record in columns]
        return [(place, offset, None if value is None else bytes(value)) for place, offset, value in seen]

    return elsewhere(run, PATIENCE_S)


class Sent:
    """Sent records: those of which `send` returned, and those of which an interrupt kept it from that."""

    def __init__(self, producer: Producer, topic: str) -> None:
        self._producer, self._topic = producer, topic
        self.returned: list[tuple[Delivery, bytes]] = []
        self.interrupted: list[bytes] = []

    def send(self, value: bytes, **given: Any) -> None:
        try:
            self.returned.append((self._producer.send(self._topic, value, **given), value))
        except Interrupt:
            self.interrupted.append(value)

    def check(self, log: list[tuple[TopicPartition, int, bytes | None]]) -> None:
        """Each record is in the log once, where its delivery says; of an interrupted `send`, once or not at all."""
        found = Counter(value for _place, _offset, value in log)
        for delivery, value in self.returned:
            assert attempt(delivery.done)
            reported = attempt(partial(delivery.result, 0))
            assert (TopicPartition(reported.topic, reported.partition), reported.offset, value) in log
            assert found.pop(value) == 1, value
        for value in self.interrupted:
            assert found.pop(value, 0) <= 1, value
        assert not found, found


def ended(producer: Producer) -> None:
    """No lock is held, close works and takes everything along, and nothing is counted as buffered then."""
    core = producer._driver.core
    elsewhere(producer.metrics)
    try:
        producer.close()
    except Interrupt:
        producer.close()
    assert attempt(lambda: producer._driver.ended.wait(PATIENCE_S))
    assert attempt(lambda: core.accumulator.buffered) == 0
    assert attempt(lambda: core.accumulator.idle)
    with pytest.raises(ProducerClosed):
        elsewhere(producer.flush)
    attempt(producer.close)


def test_send_and_flush(fake: FakeBroker, capsys: pytest.CaptureFixture[str]) -> None:
    def script() -> None:
        topic = topic_of(fake, 2)
        producer = producer_of(fake)
        sent = Sent(producer, topic)
        for number in range(3):
            sent.send(b"%d" % number * 60, headers={"name": b"x"})
        sent.send(b"key", key=b"key", timestamp_ms=1)
        sent.send(b"there", partition=1)
        elsewhere(lambda: producer.send(topic, b"from another thread"))
        attempt(producer.flush)
        assert attempt(lambda: producer.buffered_bytes) == 0
        assert attempt(lambda: producer.metrics()["record_error_total"]) == 0
        sent.send(b"after")
        delivery = sent.returned[-1][0]
        assert attempt(lambda: delivery.result(PATIENCE_S)).topic == topic
        ended(producer)
        log = read(fake, topic, partitions=2)
        sent.check([one for one in log if one[2] != b"from another thread"])
        assert sum(one[2] == b"from another thread" for one in log) == 1

    reported(every_point(script, stride=STRIDE), capsys)


def test_records_that_are_sent_alone(fake: FakeBroker, capsys: pytest.CaptureFixture[str]) -> None:
    """They are in the socket whole, or nowhere: the driver's thread does not send them."""

    def script(tracer: Tracer) -> None:
        topic = topic_of(fake)
        producer = producer_of(fake)
        sent = Sent(producer, topic)

        def settle() -> None:
            attempt(producer.flush)
            time.sleep(0.005)  # the turn of the flush ends

        for number in range(3):
            sent.send(b"before %d" % number)
            settle()
        lane = producer._driver.core.accumulator.lanes[TopicPartition(topic, 0)]
        assert lane.direct is not None
        for number in range(4):
            with tracer.on():
                sent.send(b"alone %d" % number, partition=None if number % 2 else 0)
            settle()
        ended(producer)
        sent.check(read(fake, topic))

    reported(every_point_within(script, stride=8), capsys)


def test_send_where_there_is_no_room(fake: FakeBroker, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing lingers while a caller waits, and that ends with an interrupt of the caller."""

    def script() -> None:
        topic = topic_of(fake)
        producer = producer_of(fake, buffer_bytes=400, max_request_bytes=400, batch_bytes=400, linger_ms=60_000)
        sent = Sent(producer, topic)
        for number in range(5):
            sent.send(b"%d" % number * 150)
        attempt(producer.flush)
        sent.send(b"this one lingers")
        assert producer._driver.core.accumulator.pressed is False
        ended(producer)
        sent.check(read(fake, topic))

    reported(every_point(script, stride=STRIDE), capsys)


def test_send_arrow(fake: FakeBroker, capsys: pytest.CaptureFixture[str]) -> None:
    def script() -> None:
        topic = topic_of(fake, 2)
        producer = producer_of(fake)
        tables = [
            {"value": [b"a" * 90, b"b" * 90, b"c" * 90]},
            {"value": [b"d", b"e", b"f"], "key": [b"1", b"2", b"3"]},
            {"value": [b"g"], "headers": [[{"key": "n", "value": b"x"}]]},
        ]
        certain: list[bytes] = []
        for columns in tables:
            table = pa.table(columns)
            try:
                deliveries = producer.send_arrow(topic, table)
            except Interrupt:
                continue
            certain += table["value"].to_pylist()
            counts = attempt(partial(deliveries.result, PATIENCE_S))
            assert sum(counts.values()) == len(table)
        ended(producer)
        found = Counter(value for _place, _offset, value in read(fake, topic, partitions=2))
        assert all(found[value] == 1 for value in certain)
        assert max(found.values()) == 1

    reported(every_point(script, stride=STRIDE), capsys)


def test_a_failure_is_raised_by_flush_once_at_least(fake: FakeBroker, capsys: pytest.CaptureFixture[str]) -> None:
    """`flush` forgets what it raises, and raises it though an interrupt ended the first call."""

    def script() -> None:
        topic = topic_of(fake)
        producer = producer_of(fake, delivery_timeout_ms=200, request_timeout_ms=100)
        sent = Sent(producer, topic)
        laid = attempt(lambda: fake.control("Produce", lambda _call: Delay(1.0)))
        sent.send(b"too late")
        sent.send(b"as late")
        raised = 0
        for _ in range(2):  # the first may be interrupted
            try:
                producer.flush(PATIENCE_S)
            except Interrupt:
                continue
            except KohortError:
                raised += 1
        laid.remove()
        assert raised == 1
        ended(producer)

    reported(every_point(script, stride=STRIDE * 3), capsys)


def test_transactions(fake: FakeBroker, capsys: pytest.CaptureFixture[str]) -> None:
    def script() -> None:
        topic = topic_of(fake)
        producer = producer_of(fake, transactional_id=topic)
        committed = Sent(producer, topic)
        attempt(producer.begin)
        committed.send(b"first")
        attempt(lambda: producer.send_offsets({SOURCE: 7}, ConsumerGroupMetadata(topic)))
        committed.send(b"second")
        attempt(producer.commit)
        attempt(producer.begin)
        with contextlib.suppress(Interrupt):
            producer.send(topic, b"aborted")
        attempt(producer.abort)
        assert producer._driver.core.transactions.state is TxnState.IDLE
        attempt(producer.begin)
        committed.send(b"third")
        attempt(producer.commit)
        attempt(producer.begin)
        with contextlib.suppress(Interrupt):
            producer.send(topic, b"open when it is closed")
        ended(producer)
        committed.check(read(fake, topic))
        assert fake.group(topic).offsets[SOURCE].offset == 7

    reported(every_point(script, stride=STRIDE), capsys)


@pytest.mark.parametrize(
    "make",
    [
        Producer,
        lambda bootstrap, **settings: Producer.from_config(
            {"bootstrap.servers": bootstrap, "transactional.id": settings["transactional_id"]}
        ),
    ],
    ids=["by name", "from_config"],
)
def test_an_interrupted_creation_does_not_fence_the_next_producer(
    make: Callable[..., Producer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its InitProducerId could be processed behind that of the next one, whose transaction then fails."""
    drivers: list[Any] = []

    def interrupted(driver: Any) -> None:
        drivers.append(driver)
        start(driver)
        raise Interrupt

    with FakeBroker(topics={"topic": 1}) as fake:
        start = Driver.start
        with monkeypatch.context() as patched:
            patched.setattr(Driver, "start", interrupted)
            with pytest.raises(Interrupt) as kept:  # as in an `except` block that makes the next producer
                make(fake.bootstrap, transactional_id="same")
        assert drivers[0].ended.wait(PATIENCE_S), kept
        with Producer(fake.bootstrap, transactional_id="same", **HASTY) as producer, producer.transaction():
            producer.send("topic", b"x")
        assert len(fake.calls_of("InitProducerId")) == 1


def test_a_driver_whose_start_is_interrupted_takes_no_turn(fake: FakeBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread that gives it a loop may be later than the interrupt, and later than the stop."""
    made: list[Any] = []
    monkeypatch.setattr(Driver, "turn", lambda *_given, **_more: pytest.fail("a turn"))
    monkeypatch.setattr(network_client, "run_uninterrupted", made.append)

    def interrupted(driver: Any) -> None:
        made.append(driver)
        raise Interrupt

    monkeypatch.setattr(Driver, "wakeup", interrupted)
    with monkeypatch.context(), pytest.raises(Interrupt):
        Producer(fake.bootstrap)
    place, driver = made[0], made[1]
    monkeypatch.undo()
    place()
    assert driver.ended.wait(PATIENCE_S)
    assert driver.crashed is None


def test_a_block_of_a_transaction(fake: FakeBroker, capsys: pytest.CaptureFixture[str]) -> None:
    """An interrupted transaction is begun again by the next, and its records are seen by no reader."""

    def script() -> None:
        topic = topic_of(fake)
        producer = producer_of(fake, transactional_id=topic)
        expected: list[bytes] = []
        for number in range(3):
            values = [b"%d-%d" % (number, each) for each in range(2)]
            for _ in range(2):  # the first may be interrupted
                whole = False
                try:
                    with producer.transaction() as same:
                        assert same is producer
                        for value in values:
                            producer.send(topic, value)
                        whole = True
                    break
                except Interrupt:
                    pass
                if whole:
                    try:
                        producer.commit()  # it was interrupted, and its outcome is open
                        break
                    except KohortError:
                        pass
            expected += values
        with contextlib.suppress(ZeroDivisionError, Interrupt), producer.transaction():
            producer.send(topic, b"not this")
            raise ZeroDivisionError
        ended(producer)
        assert [value for _place, _offset, value in read(fake, topic)] == expected

    reported(every_point(script, stride=STRIDE), capsys)


def test_a_block_that_was_left_before_its_end_is_aborted_by_the_next(fake: FakeBroker) -> None:
    """As where an interrupt comes between `__enter__` and the block."""
    topic = topic_of(fake)
    with Producer(fake.bootstrap, transactional_id=topic, **HASTY) as producer:
        block = producer.transaction()
        block.__enter__()
        producer.send(topic, b"of the block that was left")
        with pytest.raises(KohortError, match="cannot begin now"), producer.transaction():
            pass  # while that block lives
        del block
        with producer.transaction():
            producer.send(topic, b"of the next")
    assert [value for _place, _offset, value in read(fake, topic)] == [b"of the next"]


def test_a_handler_that_interrupts_the_lock_gets_an_error(fake: FakeBroker) -> None:
    """Else it would wait for the thread that it has interrupted."""
    topic = topic_of(fake)
    producer = Producer(fake.bootstrap, transactional_id=topic, **HASTY)
    calls: list[Callable[[], object]] = [
        lambda: producer.send(topic, b"x"),
        lambda: producer.send_arrow(topic, pa.table({"value": [b"x"]})),
        producer.flush,
        producer.metrics,
        lambda: producer.buffered_bytes,
        producer.begin,
        producer.commit,
        producer.abort,
        lambda: producer.send_offsets({SOURCE: 1}, ConsumerGroupMetadata("g")),
        lambda: producer.transaction().__enter__(),
        producer.close,
    ]
    raised: list[str] = []

    def handler(*_: object) -> None:
        for call in calls:
            try:
                call()
            except KohortError as error:
                raised.append(type(error).__name__)

    before = signal.signal(signal.SIGALRM, handler)
    try:
        producer._driver.lock.run(signal.raise_signal, signal.SIGALRM)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert raised == [ConcurrentUseError.__name__] * len(calls)
    with producer.transaction():
        delivery = producer.send(topic, b"all goes on")
    assert delivery.done()
    producer.close()


def test_a_close_that_is_interrupted_goes_on_without_its_caller(
    fake: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = topic_of(fake)
    producer = Producer(fake.bootstrap, linger_ms=60_000, **HASTY)
    delivery = producer.send(topic, b"x")

    def interrupted(*_: object) -> None:
        raise Interrupt

    with monkeypatch.context() as patched:
        patched.setattr(producer, "_wait", interrupted)
        with pytest.raises(Interrupt):
            producer.close()
    assert producer._driver.ended.wait(PATIENCE_S)
    assert delivery.result(PATIENCE_S).offset == 0
    producer.close()


@pytest.mark.parametrize(("version", "opens"), [(1, "AddPartitionsToTxn"), (2, "Produce")])
def test_an_interrupted_close_aborts_what_a_request_under_way_opens(
    version: int, opens: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The coordinator has the partition, and the producer has no response yet."""
    with FakeBroker(topics={"topic": 1}, features={"transaction.version": version}) as fake:
        producer = Producer(fake.bootstrap, transactional_id="late", linger_ms=0, **HASTY)
        producer.begin()
        held = Hold(after_work=True)
        fake.control(opens, lambda _call: held, times=1)
        producer.send("topic", b"x")
        assert held.reached.wait(PATIENCE_S)

        def interrupted(*_: object) -> None:
            raise Interrupt

        with monkeypatch.context() as patched:
            patched.setattr(producer, "_wait", interrupted)
            with pytest.raises(Interrupt):
                producer.close()
        producer._driver.execute(lambda _core: None)  # a turn of the driver, which must not be its last
        held.release()
        producer.close()
        assert producer._driver.ended.wait(PATIENCE_S)
        (ends,) = fake.calls_of("EndTxn")
        assert ends.request.committed is False  # type: ignore[attr-defined]


def test_close_of_a_producer(fake: FakeBroker, capsys: pytest.CaptureFixture[str]) -> None:
    """At every point of `close` only. The second does what is left: each record is in the log once."""

    def script(tracer: Tracer) -> None:
        topic = topic_of(fake)
        producer = producer_of(fake, linger_ms=60_000)
        delivery = producer.send(topic, b"x")
        try:
            with tracer.on():
                producer.close()
        except Interrupt:
            producer.close()
        assert producer._driver.ended.wait(PATIENCE_S)
        assert delivery.result(0).offset == 0
        assert fake.end_offset(topic, 0) == 1
        producer.close()

    reported(every_point_within(script, stride=8), capsys)


def test_close_within_a_transaction(fake: FakeBroker, capsys: pytest.CaptureFixture[str]) -> None:
    """It is aborted by one marker, whichever close does it."""

    def script(tracer: Tracer) -> None:
        topic = topic_of(fake)
        producer = producer_of(fake, transactional_id=topic)
        producer.begin()
        producer.send(topic, b"x").result(PATIENCE_S)
        try:
            with tracer.on():
                producer.close()
        except Interrupt:
            producer.close()
        assert producer._driver.ended.wait(PATIENCE_S)
        assert fake.end_offset(topic, 0) == 2, "a record and a marker"
        assert read(fake, topic) == []

    reported(every_point_within(script, stride=8), capsys)


def test_a_producer_that_is_dropped_after_an_interrupted_close_ends(
    fake: FakeBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    """Close is not called again: the records are in the log, and the driver ends."""

    def script(tracer: Tracer) -> None:
        topic = topic_of(fake)
        producer = producer_of(fake, linger_ms=60_000)
        driver = producer._driver
        producer.send(topic, b"x")
        with warnings.catch_warnings(), contextlib.suppress(Interrupt):
            warnings.simplefilter("ignore", ResourceWarning)
            with tracer.on():
                producer.close()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            del producer
            gc.collect()
        assert driver.ended.wait(PATIENCE_S)
        assert fake.end_offset(topic, 0) == 1

    reported(every_point_within(script, stride=8), capsys)


def test_one_that_is_dropped_unclosed_warns_sends_what_it_has_and_ends() -> None:
    with FakeBroker(topics={"topic": 1}) as fake:
        producer = Producer(fake.bootstrap, linger_ms=60_000, client_id="forgotten", **HASTY)
        for number in range(3):
            producer.send("topic", b"%d" % number)
        driver = producer._driver
        with pytest.warns(ResourceWarning, match="unclosed producer 'forgotten'"):
            del producer
        assert driver.ended.wait(PATIENCE_S)
        assert fake.end_offset("topic", 0) == 3
        assert driver.core.accumulator.buffered == 0
        assert not driver._channels


def test_one_that_is_dropped_in_a_transaction_aborts_it() -> None:
    with FakeBroker(topics={"topic": 1}) as fake:
        producer = Producer(fake.bootstrap, transactional_id="forgotten", linger_ms=0, **HASTY)
        producer.begin()
        assert producer.send("topic", b"x").result(PATIENCE_S).offset == 0
        driver = producer._driver
        with pytest.warns(ResourceWarning, match="unclosed producer"):
            del producer
        assert driver.ended.wait(PATIENCE_S)
        assert fake.end_offset("topic", 0) == 2, "a marker"
        assert read(fake, "topic") == []


def test_one_that_is_closed_or_has_nothing_to_send_ends_without_more(recwarn: pytest.WarningsRecorder) -> None:
    with FakeBroker(topics={"topic": 1}) as fake:
        producer = Producer(fake.bootstrap, **HASTY)
        producer.close()
        del producer
        assert not [one for one in recwarn if one.category is ResourceWarning]
        idle = Producer("127.0.0.1:1", **HASTY)
        driver = idle._driver
        with pytest.warns(ResourceWarning):
            del idle
        assert driver.ended.wait(PATIENCE_S)


class Alarm(Exception):
    """A time-out of the user's."""


@pytest.mark.broker
def test_random_alarms_lose_and_double_nothing(
    broker: RealBroker, make_topic: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Each record whose `send` returned is in the log once, where its delivery says. KOHORT_ALARM_S: for how long."""
    topic, chance = make_topic(partitions=6), random.Random(26)
    returned: list[tuple[Delivery, bytes]] = []
    open_: set[bytes] = set()
    alarms = number = 0

    def ring(*_: object) -> None:
        raise Alarm

    before = signal.signal(signal.SIGALRM, ring)
    producer = Producer(broker.bootstrap, linger_ms=1, batch_bytes=500, max_request_bytes=10_000, buffer_bytes=20_000)
    producer.send(topic, b"first").result(PATIENCE_S)
    end = time.monotonic() + float(os.environ.get("KOHORT_ALARM_S", "6"))
    while time.monotonic() < end:
        values = [b"%d" % one for one in range(number, number + 50)]
        number += 50
        done: list[tuple[Delivery, bytes]] = []
        try:
            signal.setitimer(signal.ITIMER_REAL, chance.uniform(0.0001, 0.004))
            for value in values:
                done.append((producer.send(topic, value), value))
            if chance.random() < 0.3:
                producer.flush()
            signal.setitimer(signal.ITIMER_REAL, 0)
        except Alarm:
            alarms += 1
        signal.setitimer(signal.ITIMER_REAL, 0)
        returned += done
        if len(done) < len(values):
            open_.add(values[len(done)])
    signal.signal(signal.SIGALRM, before)
    producer.flush(PATIENCE_S)
    assert producer.buffered_bytes == 0
    places = [delivery.result(0) for delivery, _value in returned]
    producer.close()
    found: dict[bytes, list[tuple[int, int]]] = {}
    with Consumer(broker.bootstrap, auto_offset_reset="earliest") as reader:
        parts = [TopicPartition(topic, one) for one in range(6)]
        reader.assign(parts)
        ends = reader.end_offsets(parts)
        while any(reader.position(one) < ends[one] for one in parts):
            for columns in reader.poll(1):
                for record in columns:
                    found.setdefault(bytes(record.value or b""), []).append((columns.partition, record.offset))
    assert found.pop(b"first")
    for place, (_delivery, value) in zip(places, returned, strict=True):
        assert found.pop(value) == [(place.partition, place.offset)], value
    assert set(found) <= open_
    assert all(len(one) == 1 for one in found.values())
    with capsys.disabled():
        print(f"\n    {alarms} alarms, {len(returned)} records returned, {len(found)} of {len(open_)} open ones sent")
