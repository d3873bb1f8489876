"""Input and situations that a producer cannot handle: one clear error each, and no record lost silently."""

import asyncio
import subprocess
import sys
import warnings
from collections.abc import Iterator
from datetime import UTC, date, datetime
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

from kohort import AsyncProducer, Consumer, Producer
from kohort.common import KohortError, TopicPartition
from kohort.network.errors import IllegalState, UnknownTopic
from kohort.producer import RecordTooLarge
from kohort.testing import FakeBroker
from kohort.testing.fake_broker import Drop

LIMIT_S = 60.0


@pytest.fixture(scope="module")
def fake() -> Iterator[FakeBroker]:
    with FakeBroker({"t": 2}) as fake:
        yield fake


@pytest.fixture(scope="module")
def producer(fake: FakeBroker) -> Iterator[Producer]:
    with Producer(fake.bootstrap) as producer:
        producer.send("t", b"first").result(LIMIT_S)
        yield producer


class Text(str):
    """A subclass of str."""


class Number:
    """An integer of another library, as numpy has them."""

    def __init__(self, number: int) -> None:
        self._number = number

    def __index__(self) -> int:
        return self._number


async def awaited(_delivery: object) -> None: ...


class Listener:
    async def settled(self, _delivery: object) -> None: ...

    async def __call__(self, _delivery: object) -> None: ...


SURROGATE = "\ud800"
WRONG: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "no topic": ({"topic": None}, IllegalState, "a topic name is"),
    "a list as topic": ({"topic": ["t"]}, IllegalState, "a topic name is"),
    "bytes as topic": ({"topic": b"t"}, IllegalState, "a topic name is"),
    "an empty topic": ({"topic": ""}, IllegalState, "a topic name is"),
    "a topic not of ASCII": ({"topic": "ä"}, IllegalState, "a topic name is"),
    "text as value": ({"value": "text"}, TypeError, r"value must be bytes-like .* value.encode\(\)"),
    "text as key": ({"key": Text("k")}, TypeError, r"key must be bytes-like .* key.encode\(\)"),
    "a list as value": ({"value": [1]}, TypeError, "value must be bytes-like or None, not list"),
    "an int as key": ({"key": 5}, TypeError, "key must be bytes-like or None, not int 5"),
    "every second byte": ({"value": memoryview(b"abcd")[::2]}, TypeError, "in one piece.*copy it"),
    "text in a header": (
        {"headers": {"a": "text"}},
        TypeError,
        r"header's value must be bytes-like .* as in value\.encode",
    ),
    "a header without a name": ({"headers": [(None, b"x")]}, ValueError, "without a name"),
    "a number as a header's name": ({"headers": {5: b"x"}}, TypeError, "header's name must be a string, not int 5"),
    "a header's name without UTF-8": ({"headers": {SURROGATE: b"x"}}, ValueError, "header's name has no UTF-8"),
    "text as headers": ({"headers": "ab"}, TypeError, "headers must be a mapping or pairs"),
    "a number as headers": ({"headers": 5}, TypeError, "headers must be a mapping or pairs"),
    "names as headers": ({"headers": ["ab"]}, TypeError, "a header is a pair"),
    "triples as headers": ({"headers": [("a", b"x", 1)]}, TypeError, "a header is a pair"),
    "text as partition": ({"partition": "1"}, TypeError, "partition must be an integer or None, not str '1'"),
    "a float as partition": ({"partition": 1.0}, TypeError, "partition must be an integer or None, not float"),
    "a bool as partition": ({"partition": True}, TypeError, "partition must be an integer or None, not bool"),
    "no such partition": ({"partition": 2}, UnknownTopic, "2 partitions"),
    "a negative partition": ({"partition": -1}, UnknownTopic, "2 partitions"),
    "a partition of 64 bits": ({"partition": 2**40}, UnknownTopic, "2 partitions"),
    "a partition of 71 bits": ({"partition": 2**70}, UnknownTopic, "2 partitions"),
    "a negative partition of 71 bits": ({"partition": -(2**70)}, UnknownTopic, "2 partitions"),
    "a negative time": ({"timestamp_ms": -1}, ValueError, "not negative"),
    "a time of 71 bits": ({"timestamp_ms": 2**70}, ValueError, "timestamp_ms is in ms"),
    "another library's time of 64 bits": ({"timestamp_ms": Number(2**63)}, ValueError, "timestamp_ms is in ms"),
    "text as time": ({"timestamp_ms": "1"}, TypeError, "timestamp_ms must be an integer"),
    "a float as time": ({"timestamp_ms": 1.5}, TypeError, "not float 1.5: round it"),
    "no number as time": ({"timestamp_ms": float("nan")}, TypeError, "not float nan: round it"),
    "a bool as time": ({"timestamp_ms": True}, TypeError, "timestamp_ms must be an integer"),
    "a datetime": (
        {"timestamp_ms": datetime.now(UTC)},
        TypeError,
        r"write int\(when.timestamp\(\) \* 1000",
    ),
    "a callback that is none": ({"on_delivery": 5}, TypeError, "on_delivery must be a function"),
    "a coroutine function": ({"on_delivery": awaited}, TypeError, "on_delivery is a plain function: a coroutine"),
    "a coroutine method": ({"on_delivery": Listener().settled}, TypeError, "on_delivery is a plain function"),
    "a partial coroutine function": (
        {"on_delivery": partial(partial(awaited, 1), 2)},
        TypeError,
        "on_delivery is a plain function",
    ),
    "an object whose call is a coroutine": ({"on_delivery": Listener()}, TypeError, "on_delivery is a plain function"),
    "a large value": ({"value": b"x" * (5 << 20)}, RecordTooLarge, "5242"),
}


@pytest.mark.parametrize(("wrong", "error", "text"), WRONG.values(), ids=WRONG)
def test_a_wrong_record_is_refused_and_the_next_is_sent(
    producer: Producer, fake: FakeBroker, wrong: dict[str, Any], error: type[Exception], text: str
) -> None:
    sent = producer.metrics().record_send_total
    with pytest.raises(error, match=text) as raised:
        producer.send(**{"topic": "t", "value": b"x", **wrong})
    assert "topic=" in str(raised.value)
    producer.send("t", b"next").result(LIMIT_S)
    assert producer.metrics().record_send_total == sent + 1


def test_a_wrong_record_is_refused_as_the_first_of_its_topic(fake: FakeBroker) -> None:
    """No batch of the topic is open, and its number of partitions is unknown."""

    async def send(wrong: dict[str, Any]) -> None:
        async with AsyncProducer(fake.bootstrap) as producer:
            await producer.send(**{"topic": "t", "value": b"x", **wrong})

    for wrong, error, text in WRONG.values():
        with pytest.raises(error, match=text) as raised:
            asyncio.run(send(wrong))
        assert "topic=" in str(raised.value)
        with Producer(fake.bootstrap) as producer, pytest.raises(error, match=text) as raised:
            producer.send(**{"topic": "t", "value": b"x", **wrong})
        assert "topic=" in str(raised.value)


def test_integers_and_bytes_of_other_libraries_are_sent_as_they_are(producer: Producer, fake: FakeBroker) -> None:
    at = fake.end_offset("t", 1)
    content = bytearray(b"content")
    send: Any = producer.send  # its types name bytes and int
    delivery = send(
        Text("t"),
        memoryview(b"-value-")[1:-1],
        content,
        headers={b"name": memoryview(content)},
        partition=Number(1),
        timestamp_ms=Number(7),
    )
    content[:] = b"changed"
    delivered = delivery.result(LIMIT_S)
    assert (type(delivered.partition), delivered.partition, delivered.offset) == (int, 1, at)
    with Consumer(fake.bootstrap) as reader:
        reader.assign({TopicPartition("t", 1): at})
        ((record,),) = reader.poll(LIMIT_S)
    assert (record.value, record.key, record.timestamp_ms) == (b"value", b"content", 7)
    assert dict(record.headers) == {"name": b"content"}


NAMED = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


@pytest.mark.parametrize(
    ("column", "text"),
    [
        ({"timestamp": pa.array([1.0])}, "column 'timestamp' is double, not milliseconds"),
        ({"timestamp": pa.array(["1"])}, "column 'timestamp' is string, not milliseconds"),
        ({"timestamp": pa.array([True])}, "column 'timestamp' is bool, not milliseconds"),
        ({"timestamp": pa.array([2**63], pa.uint64())}, "column 'timestamp' is not milliseconds"),
        ({"timestamp": pa.array([-1])}, "negative time"),
        ({"partition": pa.array([1.0])}, "column 'partition' is double"),
        ({"partition": pa.array(["1"])}, "column 'partition' is string"),
        ({"partition": pa.array([True])}, "column 'partition' is bool"),
        ({"partition": pa.array([2**40])}, "column 'partition' has no such number"),
        ({"partition": pa.array([2])}, "partition=2"),
        ({"key": pa.array([5])}, "column 'key' is int64"),
        ({"key": pa.array([b"k"]), "strange": pa.array([1])}, "no record has a column 'strange'"),
        ({"headers": pa.array([[{"key": None, "value": b"x"}]])}, "a header has no name"),
        ({"headers": pa.array([[None]], NAMED)}, "a header has no name"),
        ({"headers": pa.array([{"a": 1}])}, "column 'headers' is struct"),
        ({"headers": pa.array([["a"]])}, "column 'headers' is list"),
        ({"headers": pa.array([[{"key": "a"}]])}, "column 'headers' is list"),
        ({"headers": pa.array([[{"key": "a", "value": 5}]])}, "column 'headers' is list"),
        ({"headers": pa.array([[{"key": 5, "value": b"x"}]])}, "column 'headers' is list"),
        ({"headers": pa.array([5])}, "column 'headers' is int64"),
    ],
)
def test_wrong_columns_are_refused(producer: Producer, fake: FakeBroker, column: dict[str, Any], text: str) -> None:
    end = fake.end_offset("t", 0) + fake.end_offset("t", 1)
    with pytest.raises(KohortError, match=text) as raised:
        producer.send_arrow("t", pa.table({"value": pa.array([b"x"]), **column}))
    assert "topic=t" in str(raised.value)
    producer.flush(LIMIT_S)
    assert fake.end_offset("t", 0) + fake.end_offset("t", 1) == end


@pytest.mark.parametrize(
    ("late", "text"),
    [
        ({"partition": pa.array([2])}, "a row names partition 2, and the topic has 2"),
        ({"partition": pa.array([-1])}, "a row names partition -1, and the topic has 2"),
        ({"partition": pa.array([0]), "timestamp": pa.array([-1])}, "negative time"),
    ],
)
def test_a_wrong_row_of_a_later_batch_is_found_before_the_first_is_sent(
    producer: Producer, fake: FakeBroker, late: dict[str, Any], text: str
) -> None:
    end = fake.end_offset("t", 0) + fake.end_offset("t", 1)
    columns = {"value": pa.array([b"x"]), "timestamp": pa.array([1]), "partition": pa.array([1])}
    table = pa.concat_tables([pa.table(columns), pa.table(columns | late)])
    with pytest.raises(KohortError, match=text):
        producer.send_arrow("t", table)
    producer.flush(LIMIT_S)
    assert fake.end_offset("t", 0) + fake.end_offset("t", 1) == end


def test_the_row_of_a_header_without_a_name_is_said_and_no_row_is_sent(producer: Producer, fake: FakeBroker) -> None:
    end = fake.end_offset("t", 0) + fake.end_offset("t", 1)
    headers = pa.array([[], [("a", b"x")], None, [("b", b"y"), (None, b"z")]], NAMED)
    with pytest.raises(KohortError, match="row=2") as raised:
        producer.send_arrow("t", pa.table({"value": [b"x"] * 4, "headers": headers})[1:])
    assert "a header has no name" in str(raised.value)
    producer.flush(LIMIT_S)
    assert fake.end_offset("t", 0) + fake.end_offset("t", 1) == end


def test_two_columns_of_a_name_are_refused(producer: Producer) -> None:
    with pytest.raises(KohortError, match="two columns have the name 'value'"):
        producer.send_arrow("t", pa.table([pa.array([b"x"]), pa.array([b"y"])], names=["value", "value"]))


@pytest.mark.parametrize("kind", [NAMED, pa.map_(pa.string(), pa.binary()), pa.large_list(NAMED.value_type)])
def test_headers_are_a_map_or_a_list(producer: Producer, fake: FakeBroker, kind: pa.DataType) -> None:
    at = fake.end_offset("t", 0)
    rows = pa.table({"value": [b"a", b"b", b"c"], "headers": pa.array([[("n", b"x"), ("n", None)], [], None], kind)})
    assert producer.send_arrow("t", rows, partition=0).result(LIMIT_S) == {TopicPartition("t", 0): 3}
    with Consumer(fake.bootstrap) as reader:
        reader.assign({TopicPartition("t", 0): at})
        found = [list(record.headers) for columns in reader.poll(LIMIT_S) for record in columns]
    assert found == [[("n", b"x"), ("n", None)], [], []]


def test_rows_with_headers_are_counted_without_the_other_records_of_their_batch(fake: FakeBroker) -> None:
    rows = pa.record_batch({"value": [b"x"], "headers": pa.array([[("n", b"x")]], NAMED)})
    with Producer(fake.bootstrap, linger_ms=5_000) as producer:
        producer.send("t", b"another", partition=0)
        sent = producer.send_arrow("t", pa.Table.from_batches([rows, rows]), partition=0)
        assert len(sent) == 2
        producer.flush(LIMIT_S)
        assert sent.result(LIMIT_S) == {TopicPartition("t", 0): 2}


@pytest.mark.parametrize("partition", ["1", 1.0, True, 2**70, 2, -1])
def test_a_wrong_partition_of_columns_is_refused(producer: Producer, partition: Any) -> None:
    for columns in ({"value": [b"x"]}, {"value": [b"x"], "headers": [[{"key": "n", "value": b"x"}]]}):
        with pytest.raises((TypeError, UnknownTopic), match="partition") as raised:
            producer.send_arrow("t", pa.table(columns), partition=partition)
        assert "topic=t" in str(raised.value)


def test_dates_are_times(producer: Producer, fake: FakeBroker) -> None:
    at = fake.end_offset("t", 0)
    for kind in (pa.date32(), pa.date64()):
        rows = pa.table({"value": [b"x"], "timestamp": pa.array([date(1970, 1, 2)], kind)})
        producer.send_arrow("t", rows, partition=0).result(LIMIT_S)
    with Consumer(fake.bootstrap) as reader:
        reader.assign({TopicPartition("t", 0): at})
        times = [record.timestamp_ms for columns in reader.poll(LIMIT_S) for record in columns]
        while len(times) < 2:
            times += [record.timestamp_ms for columns in reader.poll(LIMIT_S) for record in columns]
    assert times == [86_400_000] * 2


def test_rows_that_are_no_arrow_data_are_refused(producer: Producer) -> None:
    with pytest.raises(TypeError, match="pyarrow Table or RecordBatch, not list"):
        producer.send_arrow("t", [b"x"])


def test_a_producer_of_a_closed_loop_says_so_in_every_call(fake: FakeBroker) -> None:
    kept: list[Any] = []

    async def begin() -> None:
        kept.append(producer := AsyncProducer(fake.bootstrap, linger_ms=60_000, delivery_timeout_ms=120_000))
        kept.append(await producer.send("t", b"sent all the same"))

    asyncio.run(begin())
    producer, delivery = kept
    calls = (
        lambda: producer.send("t", b"x"),
        lambda: producer.send_arrow("t", None),
        producer.flush,
        producer.close,
        delivery.result,
    )
    for call in calls:

        async def use(call: Any = call) -> None:
            await call()

        with pytest.raises(IllegalState, match="belongs to the event loop"):
            asyncio.run(use())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        producer._producer.close(LIMIT_S)  # as the interpreter's end does
    assert delivery._delivery.result(0).offset >= 0


@pytest.mark.parametrize("responds", [True, False])
def test_an_interpreter_that_ends_sends_what_it_can_and_warns_of_the_rest(responds: bool) -> None:
    with FakeBroker({"t": 1}) as fake:
        if not responds:
            fake.control("Produce", lambda _call: Drop())
        code = f"""
from kohort import Producer
from kohort.network import process_exit
process_exit.EXIT_S = {LIMIT_S if responds else 0.3}
producer = Producer({fake.bootstrap!r}, client_id="app", linger_ms=60_000, delivery_timeout_ms=120_000)
for _ in range(5):
    producer.send("t", b"x")
"""
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
        assert fake.end_offset("t", 0) == (5 if responds else 0)
    assert ("the producer 'app' was not closed" in done.stderr) is not responds
    assert ("5 of its records were not acknowledged" in done.stderr) is not responds
    assert "Traceback" not in done.stderr


def test_a_fork_of_a_producer_with_records_ends_without_a_word() -> None:
    code = """
import os, sys
from kohort import Producer
from kohort.testing import FakeBroker
fake = FakeBroker({"t": 1})
producer = Producer(fake.bootstrap, linger_ms=60_000, delivery_timeout_ms=120_000)
producer.send("t", b"x")
if not os.fork():
    sys.exit()  # the child does not send the records of its parent
os.wait()
producer.close()
print(fake.end_offset("t", 0))
fake.close()
"""
    if sys.platform == "win32":
        pytest.skip("no fork")
    # Python 3.12 and later warn of each fork beside threads, which is what this test is about.
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    assert (done.stdout, done.stderr) == ("1\n", "")
