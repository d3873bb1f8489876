"""`kohort group lag --watch` during writes: lines in a pipe, tables in a pipe, one table in a terminal."""

import fcntl
import json
import os
import pty
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from kohort.common import TopicPartition
from kohort.coordinator_client import Consumer
from tests.coordinator_client.consumer_helpers import numbers, produce
from tests.support.broker_selection import SelectedBroker

LINES, COLUMNS = 24, 100


@pytest.fixture
def group(broker: SelectedBroker, make_topic: Callable[..., str], unique: Callable[[str], str]) -> str:
    """It has committed 0 in each of 50 partitions, of which three hold records."""
    name, topic = unique("group"), make_topic(50)
    for partition, count in ((7, 3), (31, 9), (49, 1)):
        produce(broker.bootstrap, topic, numbers(0, count), partition=partition)
    places = [TopicPartition(topic, number) for number in range(50)]
    with Consumer(broker.bootstrap, group=name) as consumer:
        consumer.assign(places)
        consumer.commit(dict.fromkeys(places, 0))
    return name


def command(broker: SelectedBroker, group: str, *options: str) -> list[str]:
    typed = ["group", "lag", group, "--watch", "--every", "0.1", "-b", broker.bootstrap, *options]
    return [sys.executable, "-m", "kohort.cli.main", *typed]


@contextmanager
def running(arguments: list[str]) -> Iterator["subprocess.Popen[str]"]:
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.broker
def test_a_pipe_gets_a_line_a_look(broker: SelectedBroker, group: str) -> None:
    with running(command(broker, group, "--json")) as process:
        assert process.stdout is not None
        first = json.loads(process.stdout.readline())
        assert (first["lag"], len(first["partitions"])) == (13, 50)
        topic = first["partitions"][0]["topic"]
        produce(broker.bootstrap, topic, numbers(0, 5), partition=2)
        while (reported := json.loads(process.stdout.readline()))["lag"] == 13:
            pass
        assert reported["lag"] == 18


@pytest.mark.broker
def test_a_pipe_without_json_gets_table_after_table(broker: SelectedBroker, group: str) -> None:
    with running(command(broker, group)) as process:
        assert process.stdout is not None
        captions = 0
        while captions < 3:
            line = process.stdout.readline()
            assert line
            captions += "13 records wait in 50 partitions, the first 40 shown" in line


@pytest.mark.broker
def test_a_terminal_is_filled_and_not_overrun(broker: SelectedBroker, group: str) -> None:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color", "LINES": str(LINES), "COLUMNS": str(COLUMNS)}
    with subprocess.Popen(command(broker, group), stdout=theirs, env=environment) as process:
        os.close(theirs)
        drawn = b""
        while drawn.count(b"records wait") < 3:
            drawn += os.read(ours, 1 << 16)
        process.kill()
    os.close(ours)
    one = drawn.split(b"records wait")[1]
    assert b"13" in drawn.split(b"records wait")[0].rsplit(b"\n", 1)[-1]
    assert one.count(b"\n") < LINES
    assert b"the first 17 shown" in one
    assert b"+0" in one  # what changed since the look before
