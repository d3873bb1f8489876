"""Signals at random moments on a real broker: a handler that raises costs no record, and nothing stands still.

KOHORT_ALARM_S: seconds that it lasts (`make test-interrupts`: 60).
"""

import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from kohort.common import TopicPartition
from kohort.coordinator_client import Consumer
from tests.coordinator_client.consumer_helpers import PATIENCE_S
from tests.support.broker_selection import SelectedBroker

PARTITIONS = 30
LASTS_S = float(os.environ.get("KOHORT_ALARM_S", "8"))


class Alarm(Exception):
    """Raised by the handler."""


@pytest.fixture
def alarms() -> Iterator[Callable[[float], object]]:
    def handler(*_given: object) -> None:
        raise Alarm

    before = signal.signal(signal.SIGALRM, handler)
    yield lambda seconds: signal.setitimer(signal.ITIMER_REAL, seconds)
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def write(bootstrap: str, topic: str, stop: threading.Event) -> None:
    """Some thousand records a second, by librdkafka, until `stop`; all are stored at the end."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 1})
    number = 0
    while not stop.wait(0.005):
        for _ in range(20):
            producer.produce(topic, b"v", partition=number % PARTITIONS)
            number += 1
        producer.poll(0)
    assert producer.flush(PATIENCE_S) == 0


@pytest.mark.broker
@pytest.mark.proves("B-36", "I12")
@pytest.mark.parametrize("way", ["poll", "iteration"])
def test_random_alarms_cost_no_record(
    broker: SelectedBroker,
    make_topic: Callable[..., str],
    unique: Callable[[str], str],
    alarms: Callable[[float], None],
    way: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    topic, stop = make_topic(PARTITIONS), threading.Event()
    writer = threading.Thread(target=write, args=(broker.bootstrap, topic, stop), daemon=True)
    writer.start()
    seen: dict[int, int] = {}
    interrupts = records = 0
    longest_s = 0.0
    rng = random.Random(26)
    consumer = Consumer(broker.bootstrap, group=unique("alarms"), auto_offset_reset="earliest")
    consumer.subscribe([topic])
    began = came = time.monotonic()
    while time.monotonic() < began + LASTS_S / 2:
        got = []
        try:
            alarms(rng.uniform(0.0001, 0.006))
            if way == "poll":
                got = consumer.poll(1.0)
            else:
                for columns in consumer:
                    got = [columns]
                    break
            alarms(0)
        except Alarm:
            interrupts += 1
        for columns in got:
            expected = seen.get(columns.partition, 0)
            assert list(columns.offsets) == list(range(expected, columns.next_offset)), "a gap"
            seen[columns.partition] = columns.next_offset
            records += len(columns)
        if got:
            longest_s, came = max(longest_s, time.monotonic() - came), time.monotonic()
        assert time.monotonic() - came < PATIENCE_S, "it stands still"
    alarms(0)
    stop.set()
    writer.join(3 * PATIENCE_S)
    assert not writer.is_alive()
    ends = {one.partition: end for one, end in consumer.end_offsets(all_of(topic)).items()}
    limit = time.monotonic() + PATIENCE_S
    while any(seen.get(number, 0) < end for number, end in ends.items()):
        assert time.monotonic() < limit, "records are missing"
        for columns in consumer.poll(1.0):
            assert columns.offsets[0] == seen.get(columns.partition, 0), "a gap"
            seen[columns.partition] = columns.next_offset
            records += len(columns)
    consumer.commit()
    assert {one.partition: found.offset for one, found in consumer.committed(all_of(topic)).items() if found} == ends
    consumer.close()
    assert records == sum(ends.values())
    with capsys.disabled():
        print(f"\n    {way}: {interrupts} interrupts, {records} records, longest pause {longest_s:.2f} s", end="")


def all_of(topic: str) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in range(PARTITIONS)]
