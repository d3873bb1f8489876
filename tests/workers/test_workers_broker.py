"""Workers on a real broker: a share group with dead letters, and a Consumer that is killed."""

import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from kohort import Admin, Consumer, Producer, ShareConsumer, TopicPartition
from kohort.fastpath import Record
from kohort.workers import Retry, RunTotals, run
from tests.support.broker_selection import SelectedBroker

PATIENCE_S = 120.0
Name = Callable[[str], str]
pytestmark = pytest.mark.broker

CHILD = """
import sys, time, random
from kohort import Consumer, workers

def handler(record):
    time.sleep(random.random() * 0.03)
    print(record.partition, record.offset, file=log, flush=True)

bootstrap, group, topic, path = sys.argv[1:]
log = open(path, "a")
with Consumer(bootstrap, group=group, auto_offset_reset="earliest", session_timeout_ms=6000) as consumer:
    consumer.subscribe([topic])
    workers.run(consumer, handler, concurrency=20)
"""


def fill(bootstrap: str, topic: str, count: int, partitions: int) -> None:
    with Admin(bootstrap) as admin:
        admin.create_topic(topic, partitions=partitions)
    with Producer(bootstrap) as producer:
        for number in range(count):
            producer.send(topic, b"%d" % number, b"%d" % (number % 50))


@pytest.mark.proves("W-01", "W-02", "W-03")
def test_every_record_is_handled_or_has_a_dead_letter(broker: SelectedBroker, unique: Name) -> None:
    if broker.version < "4.2":
        pytest.skip("share groups are off in brokers before 4.2")
    group, topic, dead = unique("jobs"), unique("work"), unique("dead")
    fill(broker.bootstrap, topic, 300, 2)
    attempts: Counter[bytes | None] = Counter()
    stop = threading.Event()

    def handler(record: Record) -> None:
        attempts[record.value] += 1
        if record.value in (b"7", b"70"):
            raise ValueError("bad")

    with Admin(broker.bootstrap) as admin:
        admin.create_topic(dead, partitions=1)
        admin.set_group_configs(group, {"share.auto.offset.reset": "earliest"})

        def watch() -> None:
            until = time.monotonic() + PATIENCE_S
            while time.monotonic() < until and not (len(attempts) == 300 and lag() == 0):
                time.sleep(0.2)
            stop.set()

        def lag() -> int:
            return sum(1 if one.lag is None else one.lag for one in admin.share_offsets(group))

        threading.Thread(target=watch, daemon=True).start()
        with ShareConsumer(broker.bootstrap, group=group) as consumer:
            consumer.subscribe([topic])
            retry = Retry(attempts=3, delay_s=0.05)
            totals = run(consumer, handler, concurrency=20, retry=retry, dead_letter=dead, stop=stop)
        assert lag() == 0
    assert totals == RunTotals(done=298, retries=4, dead_letters=2)
    assert {value: count for value, count in attempts.items() if count > 1} == {b"7": 3, b"70": 3}


@pytest.mark.proves("W-05")
def test_after_a_kill_no_commit_has_passed_a_gap(broker: SelectedBroker, unique: Name, tmp_path: Path) -> None:
    group, topic, log = unique("group"), unique("topic"), tmp_path / "handled"
    fill(broker.bootstrap, topic, 6000, 2)
    chance = Random(3)
    partitions = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
    for _ in range(2):
        before = log.stat().st_size if log.exists() else 0
        child = subprocess.Popen([sys.executable, "-c", CHILD, broker.bootstrap, group, topic, str(log)])
        until = time.monotonic() + PATIENCE_S
        while (log.stat().st_size if log.exists() else 0) < before + 4000 and time.monotonic() < until:
            time.sleep(0.05)
        time.sleep(1.5 + chance.random())  # past a commit
        child.kill()
        child.wait()
        handled = {tuple(map(int, line.split())) for line in log.read_text().splitlines() if line.count(" ") == 1}
        with Consumer(broker.bootstrap, group=group) as reader:
            committed = {
                each.partition: 0 if found is None else found.offset
                for each, found in reader.committed(partitions).items()
            }
        assert sum(committed.values()) > 0
        for partition, offset in committed.items():
            assert {(partition, each) for each in range(offset)} <= handled
