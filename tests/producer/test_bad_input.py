"""Input and situations that a producer cannot handle: one clear error each, and no record lost silently."""

import asyncio
import subprocess
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from kohort import AsyncProducer, Producer
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


@pytest.mark.parametrize(
    ("wrong", "error", "text"),
    [
        ({"topic": None}, IllegalState, "a topic name is"),
        ({"topic": ["t"]}, IllegalState, "a topic name is"),
        ({"topic": b"t"}, IllegalState, "a topic name is"),
        ({"topic": ""}, IllegalState, "a topic name is"),
        ({"topic": "ä"}, IllegalState, "a topic name is"),
        ({"value": "text"}, TypeError, "bytes-like"),
        ({"key": 5}, TypeError, "bytes-like"),
        ({"headers": {"a": "text"}}, TypeError, "bytes-like"),
        ({"headers": [(None, b"x")]}, ValueError, "without a name"),
        ({"partition": "1"}, TypeError, "integer"),
        ({"partition": 2}, UnknownTopic, "2 partitions"),
        ({"partition": -1}, UnknownTopic, "2 partitions"),
        ({"timestamp_ms": -1}, ValueError, "not negative"),
        ({"timestamp_ms": "1"}, TypeError, "integer"),
        ({"on_delivery": 5}, TypeError, "must be a function"),
        ({"value": b"x" * (5 << 20)}, RecordTooLarge, "5242"),
    ],
    ids=[
        *("no topic", "a list as topic", "bytes as topic", "an empty topic", "a topic not of ASCII", "text as value"),
        *("an int as key", "text in a header", "a header without a name", "text as partition", "no such partition"),
        *("a negative partition", "a negative time", "text as time", "a callback that is none", "a large value"),
    ],
)
def test_a_wrong_record_is_refused_and_the_next_is_sent(
    producer: Producer, fake: FakeBroker, wrong: dict[str, Any], error: type[Exception], text: str
) -> None:
    sent = producer.metrics().record_send_total
    with pytest.raises(error, match=text):
        producer.send(**{"topic": "t", "value": b"x", **wrong})
    producer.send("t", b"next").result(LIMIT_S)
    assert producer.metrics().record_send_total == sent + 1


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
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert (done.stdout, done.stderr) == ("1\n", "")
