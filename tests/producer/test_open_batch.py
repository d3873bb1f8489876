"""Open batches: the bytes of their records, and records that are taken whole or not at all."""

import gc
import random
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pyarrow as pa
import pytest

from kohort import Producer
from kohort.common import KohortError, TopicPartition
from kohort.fastpath import decode
from kohort.fastpath._encode import Body, compressed, encode, seal
from kohort.producer import sender
from kohort.producer._open_batch import BufferedBytes, Delivery, OpenBatches, TopicBatches, encoded_headers, record_size
from kohort.producer.arrow_rows import rows_of
from kohort.producer.producer_batch import ProducerBatch
from kohort.testing.fake_broker import FakeBroker
from tests.coordinator_client.consumer_helpers import PATIENCE_S

P0 = TopicPartition("t", 0)
PLENTY = 1 << 30
Fields = tuple[bytes | None, bytes | None, int, list[tuple[str, bytes | None]]]


def batch_of(
    limit: int = PLENTY,
    room: BufferedBytes | None = None,
    on_delivery: Callable[[Delivery], object] | None = None,
) -> ProducerBatch:
    return ProducerBatch(P0, 0.0, room or BufferedBytes(PLENTY), limit, _no_wait, on_delivery)


def _no_wait(_reached: object, _timeout_s: object) -> None:
    raise AssertionError("a test waits for nothing")


def rows(count: int, seed: int) -> list[Fields]:
    """Records whose fields are null, empty, short or long, and whose timestamps go back."""
    dice = random.Random(seed)

    def some() -> bytes | None:
        return dice.choice((None, b"", dice.randbytes(5), dice.randbytes(200), dice.randbytes(20_000)))

    def headers() -> list[tuple[str, bytes | None]]:
        return [(dice.choice(("", "name", "é" * 70)), some()) for _ in range(dice.choice((0, 0, 1, 3)))]

    return [(some(), some(), dice.randrange(1 << dice.randrange(1, 45)), headers()) for _ in range(count)]


@pytest.mark.parametrize("seed", range(5))
def test_records_have_the_bytes_of_encode(seed: int) -> None:
    new = rows(300, seed)
    room = BufferedBytes(PLENTY)
    batch = batch_of(room=room)
    for key, value, stamp, headers in new:
        before = batch.size
        assert batch.append(key, value, encoded_headers(headers), stamp) is not None
        assert batch.size - before <= record_size(key, value, encoded_headers(headers))
    assert room.used == batch.size
    batch.close()
    assert batch.body is not None
    assert seal(batch.body) == encode(new)
    for codec in ("lz4", "zstd", "snappy", "gzip"):
        assert seal(compressed(batch.body, codec)) == encode(new, codec=codec)


def test_bytes_of_any_kind_are_taken() -> None:
    batch = batch_of()
    batch.append(bytearray(b"key"), memoryview(b"_value_")[1:-1], None, 1)
    batch.close()
    assert batch.body is not None
    assert seal(batch.body) == encode([(b"key", b"value", 1)])


def test_a_record_without_a_timestamp_has_the_time_of_its_append() -> None:
    batch = batch_of()
    stamps = []
    for _ in range(2):
        before = time.time_ns() // 1_000_000
        batch.append(None, b"x", None, None)
        stamps.append((before, time.time_ns() // 1_000_000))
        time.sleep(0.005)
    batch.close()
    assert batch.body is not None
    found = decode(seal(batch.body)).timestamps_ms
    assert all(low <= stamp <= high for (low, high), stamp in zip(stamps, found, strict=True))


@pytest.mark.parametrize(
    ("given", "error", "reason"),
    [
        ({"value": "text"}, TypeError, "bytes-like"),
        ({"key": 5}, TypeError, "bytes-like"),
        ({"timestamp_ms": -1}, ValueError, "not negative"),
        ({"timestamp_ms": 1 << 70}, ValueError, "above 2"),
        ({"timestamp_ms": "now"}, TypeError, "integer"),
    ],
)
def test_a_refused_record_changes_nothing(given: dict[str, Any], error: type[Exception], reason: str) -> None:
    room, queue = BufferedBytes(PLENTY), deque[ProducerBatch]()
    batch = batch_of(room=room)
    with pytest.raises(error, match=reason):
        batch.append(**{"key": b"k", "value": b"v", "headers": None, "timestamp_ms": 1, **given}, put=queue.append)
    assert (batch.count, batch.size, room.used, len(queue)) == (0, 0, 0, 0)


def test_a_batch_is_full_at_its_limit_but_takes_one_record_of_any_size() -> None:
    batch = batch_of(limit=1_000)
    assert batch.append(None, b"x" * 2_000, None, 1) is not None
    assert batch.append(None, b"", None, 1) is None
    small = batch_of(limit=1_000)
    while small.append(None, b"x" * 90, None, 1) is not None:
        pass
    assert small.size <= 1_000 < small.size + 110


def test_a_closed_batch_takes_nothing() -> None:
    batch = batch_of()
    batch.append(None, b"x", None, 1)
    batch.close()
    assert batch.append(None, b"y", None, 1) is None
    assert batch.count == 1


def test_the_buffer_is_not_exceeded_except_by_one_record_alone() -> None:
    room = BufferedBytes(500)
    batch = batch_of(room=room)
    assert batch.append(None, b"x" * 1_000, None, 1) is not None
    assert batch.append(None, b"", None, 1) is None
    batch.release()
    assert room.used == 0


def test_a_queue_that_refuses_a_batch_leaves_nothing_counted() -> None:
    room = BufferedBytes(PLENTY)
    batch = batch_of(room=room)

    def refuse(_batch: object) -> None:
        raise MemoryError

    with pytest.raises(MemoryError):
        batch.append(None, b"x", None, 1, put=refuse)
    assert (batch.count, room.used) == (0, 0)


@pytest.fixture
def collections_that_run_other_threads() -> Iterator[None]:
    """Each allocation of a tracked object may start a collection, whose callback lets other threads run."""

    def switch(_phase: str, _facts: dict[str, int]) -> None:
        time.sleep(0)

    threshold = gc.get_threshold()
    gc.callbacks.append(switch)
    gc.set_threshold(7)
    yield
    gc.set_threshold(*threshold)
    gc.callbacks.remove(switch)


@pytest.mark.parametrize("on_delivery", [None, print])
@pytest.mark.usefixtures("collections_that_run_other_threads")
def test_each_record_of_threads_is_in_a_batch_once_while_batches_are_closed(on_delivery: Any) -> None:
    """No lock is between an append and a close: a record is in the batch that was closed, or not taken."""
    topic = OpenBatches()
    topic.put("t", TopicBatches(1, "murmur2"))
    batches = [batch_of()]
    batches_of_topic = topic.topic("t")
    assert batches_of_topic is not None
    batches_of_topic.open(0, batches[0])
    taken: list[list[bytes]] = [[] for _ in range(4)]

    def work(number: int) -> None:
        for each in count():
            if each >= 4_000 and len(batches) > 3:  # on a busy machine the closing thread may come late
                return
            value = b"%d-%d" % (number, each)
            if topic.append("t", None, value, None, 0, 1, on_delivery) is not None:
                taken[number].append(value)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(taken))]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            batches[-1].close()
            batches.append(batch_of())
            batches_of_topic.open(0, batches[-1])
    finally:
        sys.setswitchinterval(interval)
    batches[-1].close()
    found = [bytes(value or b"") for batch in batches if batch.body for value in decode(seal(batch.body)).values]
    assert len(batches) > 3
    assert sorted(found) == sorted(value for part in taken for value in part)
    for number, part in enumerate(taken):
        assert [value for value in found if value.startswith(b"%d-" % number)] == part


def test_a_record_for_an_open_batch_waits_for_no_lock() -> None:
    with FakeBroker(topics={"t": 2}) as fake, Producer(fake.bootstrap, linger_ms=60_000) as producer:
        producer.send("t", b"has the topic's metadata requested")
        producer.flush(PATIENCE_S)
        producer.send("t", b"opens the batch", partition=0)
        sent: list[object] = []
        with producer._driver.lock:
            thread = threading.Thread(target=lambda: sent.append(producer.send("t", b"x", partition=0)))
            thread.start()
            thread.join(PATIENCE_S)
            assert len(sent) == 1


def test_one_wake_up_is_enough_for_the_timers_of_many_batches() -> None:
    with FakeBroker(topics={"t": 50}) as fake, Producer(fake.bootstrap, linger_ms=60_000) as producer:
        producer.send("t", b"has the topic's metadata requested")
        producer.flush(PATIENCE_S)
        producer.send("t", b"x", partition=0)
        producer._driver.execute(lambda _core: None)
        woken: list[None] = []
        producer._driver.core.wake = lambda: woken.append(None)
        for partition in range(1, 50):
            producer.send("t", b"x", partition=partition)
        producer._driver.core.wake = producer._driver.wakeup
        assert not woken


def test_a_topic_with_more_partitions_has_its_keys_spread_again() -> None:
    with FakeBroker(topics={"t": 1}) as fake, Producer(fake.bootstrap, metadata_max_age_ms=50) as producer:
        assert producer.send("t", b"x", key=b"k").result(PATIENCE_S).partition == 0
        fake.add_partitions("t", 40)
        until = time.monotonic() + PATIENCE_S
        while producer.send("t", b"x", key=b"k").result(PATIENCE_S).partition == 0:
            assert time.monotonic() < until


def test_a_negative_time_of_a_row_is_refused() -> None:
    table = pa.table({"value": [b"x", b"y"], "timestamp": [5, -5]})
    with pytest.raises(KohortError, match="negative time"):
        rows_of(table, 1, "t")


@pytest.mark.parametrize(("bytes_each", "by"), [(100_000, "kohort-helper"), (10, "kohort-driver")])
def test_helpers_compress_what_is_worth_a_change_of_threads(
    monkeypatch: pytest.MonkeyPatch, bytes_each: int, by: str
) -> None:
    threads: set[str] = set()

    def watched(body: Body, codec: str, level: int | None) -> Body:
        threads.add(threading.current_thread().name)
        return compressed(body, codec, level)

    monkeypatch.setattr(sender, "compressed", watched)
    with FakeBroker(topics={"t": 1}) as fake:
        with Producer(fake.bootstrap, compression="lz4", compression_level=1) as producer:
            for number in range(5):
                producer.send("t", b"%d" % number * bytes_each)
        assert fake.end_offset("t", 0) == 5
    assert {name.rpartition("_" if "helper" in name else "-")[0] for name in threads} == {by}


def test_a_batch_that_cannot_be_compressed_ends_the_producer(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_body: Body, _codec: str, _level: int | None) -> Body:
        raise MemoryError("no room")

    monkeypatch.setattr(sender, "compressed", refuse)
    with FakeBroker(topics={"t": 1}) as fake:
        producer = Producer(fake.bootstrap, compression="lz4")
        delivery = producer.send("t", b"x" * 100_000)
        with pytest.raises(KohortError, match="no room"):
            delivery.result(PATIENCE_S)
        producer.close()


def test_a_delivery_without_a_batch_cannot_be_made() -> None:
    """It would read memory that is not its own."""
    with pytest.raises(TypeError, match="send only"):
        Delivery()
