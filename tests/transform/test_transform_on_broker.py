"""`Transform` through kill -9 in the middle of a transaction, and through a group that goes on without it."""

import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from examples.transform import shouting
from kohort import Consumer, KohortError, Producer, TopicPartition
from kohort.coordinator_client import CommitFailed
from kohort.coordinator_client.consumer_settings import IsolationLevel
from tests.coordinator_client.consumer_helpers import PATIENCE_S, poll_until, produce
from tests.support.broker_selection import SelectedBroker

ROOT = Path(__file__).parents[2]
Name = Callable[[str], str]
MakeTopic = Callable[..., str]
RECORDS = 60
WORDS = [b"word-%d" % number for number in range(RECORDS)]

DYING = """
import sys, time
from examples import transform as example
from kohort import Producer

bootstrap, source, target, name, where = sys.argv[1:]
calls = []

def dies(producer):
    producer.flush(120)
    print("in the middle", flush=True)
    time.sleep(600)

def send(self, *given, send=Producer.send, **more):
    calls.append(1)
    if where == "between sends" and len(calls) == 30:
        dies(self)
    return send(self, *given, **more)

def commit(self, timeout_s=None, commit=Producer.commit):
    if where == "before the commit":
        dies(self)
    commit(self, timeout_s)

Producer.send, Producer.commit = send, commit
example.shouting(bootstrap, source, target, name).run()
"""


def everything(bootstrap: str, topic: str, isolation: IsolationLevel = "read_committed") -> list[bytes | None]:
    """Every record of a topic's one partition, up to its end."""
    tp = TopicPartition(topic, 0)
    with Consumer(bootstrap, auto_offset_reset="earliest", isolation_level=isolation) as consumer:
        consumer.assign([tp])
        end = consumer.end_offsets([tp])[tp]
        return [record.value for record in poll_until(consumer, lambda: consumer.position(tp) >= end)]


def at_work(bootstrap: str, source: str, target: str, name: str) -> list[KohortError]:
    """Transform until the group has committed all of `source`, and return the errors after which it went on."""
    retries: list[KohortError] = []
    transform = shouting(bootstrap, source, target, name, on_retry=lambda error, _failures: retries.append(error))
    over = threading.Event()

    def watch() -> None:
        tps = [TopicPartition(source, number) for number in range(2)]
        with Consumer(bootstrap, group=f"transform-{source}") as witness:
            while not over.wait(0.05):
                stored = witness.committed(tps, timeout_s=PATIENCE_S).values()
                if sum(one.offset for one in stored if one is not None) >= RECORDS:
                    transform.stop()
                    return

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        transform.run()
    finally:
        over.set()
        thread.join(PATIENCE_S)
    return retries


@pytest.fixture
def source(broker: SelectedBroker, make_topic: MakeTopic) -> str:
    """Two partitions of words."""
    topic = make_topic(2)
    for partition in range(2):
        produce(broker.bootstrap, topic, WORDS[partition::2], partition=partition)
    return topic


@pytest.mark.broker
@pytest.mark.proves("S-09", "E-06")
def test_each_word_is_shouted_once_though_its_process_is_killed_in_transactions(
    broker: SelectedBroker, source: str, make_topic: MakeTopic, unique: Name
) -> None:
    target, name = make_topic(1), unique("one")
    for where in ("between sends", "before the commit"):  # in the first slice, then in the last
        command = [sys.executable, "-c", DYING, broker.bootstrap, source, target, name, where]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as dying:
            try:
                assert dying.stdout is not None
                assert dying.stdout.readline() == "in the middle\n"
            finally:
                dying.send_signal(signal.SIGKILL)
    at_work(broker.bootstrap, source, target, name)
    got = everything(broker.bootstrap, target)
    assert sorted(got, key=str) == sorted((word.upper() for word in WORDS), key=str)
    aborted = len(everything(broker.bootstrap, target, "read_uncommitted")) - len(got)
    assert aborted >= RECORDS // 2  # each life ended with words in the log that no reader may see


@pytest.mark.broker
@pytest.mark.proves("S-09", "S-12")
def test_a_slice_that_the_group_refuses_is_read_again(
    broker: SelectedBroker, source: str, make_topic: MakeTopic, unique: Name
) -> None:
    target, name = make_topic(1), unique("one")
    real = Producer.send_offsets
    refused: list[int] = []

    def refusing(producer: Producer, offsets: Any, group: Any, timeout_s: float | None = None) -> None:
        if not refused:
            refused.append(1)
            group = group._replace(generation=group.generation + 7)  # as if the group had gone on
        real(producer, offsets, group, timeout_s)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Producer, "send_offsets", refusing)
        retries = at_work(broker.bootstrap, source, target, name)
    assert [type(error) for error in retries] == [CommitFailed]
    assert sorted(everything(broker.bootstrap, target), key=str) == sorted((word.upper() for word in WORDS), key=str)
