"""A member of 10,000 partitions with one record each reads all of them and stays in its group.

With KOHORT_WIDTH (`make test-width`, on a quiet machine) a heartbeat may be late by a second, and a real broker has
10,000 partitions as well. Without it the session is long, so that a busy machine changes nothing.
"""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from kohort.admin import Admin
from kohort.coordinator_client import Consumer, RebalanceHooks, UnknownTopic
from kohort.coordinator_client.fetch.completed_fetch import MOST_AT_ONCE
from kohort.producer import Producer
from kohort.testing import RealBroker

WIDE = "KOHORT_WIDTH" in os.environ
TOPICS, PER_TOPIC = 2_000, 5
INTERVAL_S, SESSION_S = 1.0, 10.0 if WIDE else 120.0
LATE_S = 1.0 if WIDE else SESSION_S
PATIENCE_S = 150.0
WAYS = ["poll", "iteration"]


class Losses(RebalanceHooks):
    """Counts what was lost."""

    count = 0

    def on_lost(self, event: object) -> None:
        self.count += 1


class Watch:
    """Looks at a consumer's health from another thread. `oldest_s`: the greatest age of a heartbeat that it saw."""

    def __init__(self, consumer: Consumer) -> None:
        self.oldest_s = 0.0
        self._consumer = consumer
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self._thread.start()

    def _look(self) -> None:
        while not self._over.wait(0.02):
            self.oldest_s = max(self.oldest_s, self._consumer.health().last_heartbeat_s or 0.0)

    def end(self) -> None:
        self._over.set()
        self._thread.join()


def read_all(bootstrap: str, group: str, topics: list[str], way: str, partitions: int) -> float:
    """Read until each partition's record is here, then poll for three heartbeats more; the oldest age of one (s)."""
    settings: dict[str, Any] = {
        "heartbeat_interval_ms": int(INTERVAL_S * 1000),
        "session_timeout_ms": int(SESSION_S * 1000),
    }
    with Consumer(bootstrap, group=group, auto_offset_reset="earliest", **settings) as consumer:
        losses, seen = Losses(), 0
        consumer.subscribe(topics, hooks=losses)
        watch = Watch(consumer)
        try:
            until = time.monotonic() + PATIENCE_S
            if way == "poll":
                while seen < partitions and time.monotonic() < until:
                    seen += sum(len(columns) for columns in consumer.poll(0.5))
            else:
                for columns in consumer:
                    seen += len(columns)
                    if seen >= partitions or time.monotonic() > until:
                        break
            until = time.monotonic() + 3 * INTERVAL_S
            while time.monotonic() < until:
                seen += sum(len(columns) for columns in consumer.poll(0.2))
        finally:
            watch.end()
        assert seen == partitions, consumer.health()
        assert losses.count == 0
        assert consumer.health().generation == 1
        assert consumer._session.collector.most_at_once <= MOST_AT_ONCE
        return watch.oldest_s


@pytest.mark.parametrize("way", [*WAYS[:1], *(pytest.param(way, marks=pytest.mark.full) for way in WAYS[1:])])
def test_ten_thousand_partitions_are_read_between_heartbeats(way: str) -> None:
    command = [sys.executable, str(Path(__file__).with_name("wide_broker.py")), str(TOPICS), str(PER_TOPIC)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        bootstrap = process.stdout.readline().strip()
        topics = [f"t{number:05d}" for number in range(TOPICS)]
        oldest_s = read_all(bootstrap, "wide", topics, way, TOPICS * PER_TOPIC)
        reported = json.loads(process.communicate("\n", timeout=PATIENCE_S)[0])
    assert reported["faults"] == []
    beats = reported["beats"]
    assert len(beats) >= 3
    assert max(after - before for before, after in pairwise(beats)) < INTERVAL_S + LATE_S
    assert oldest_s < INTERVAL_S + LATE_S


@pytest.fixture(scope="module")
def wide_real() -> Iterator[tuple[str, list[str]]]:
    """A real broker with 10 topics of 1,000 partitions, one record in each."""
    names = [f"wide-{number}" for number in range(10)]
    with RealBroker(heap_mb=1536, properties={"log.index.size.max.bytes": 12288}, start_timeout_s=120) as broker:
        with Admin(broker.bootstrap) as admin:
            for name in names:
                admin.create_topic(name, partitions=1_000)
        with Consumer(broker.bootstrap) as consumer:
            for name in names:
                until = time.monotonic() + PATIENCE_S
                while not _is_there(consumer, name):
                    assert time.monotonic() < until
        with Producer(broker.bootstrap) as producer:
            for name in names:
                for partition in range(1_000):
                    producer.send(name, b"v", partition=partition)
            producer.flush(PATIENCE_S)
        yield broker.bootstrap, names


def _is_there(consumer: Consumer, name: str) -> bool:
    try:
        return len(consumer.partitions_for(name, timeout_s=30.0)) == 1_000
    except UnknownTopic:
        return False


@pytest.mark.broker
@pytest.mark.skipif(not WIDE, reason="takes minutes: make test-width")
@pytest.mark.parametrize("way", WAYS)
def test_ten_thousand_partitions_of_a_real_broker(way: str, wide_real: tuple[str, list[str]]) -> None:
    bootstrap, topics = wide_real
    assert read_all(bootstrap, f"wide-{way}", topics, way, 10_000) < INTERVAL_S + LATE_S
