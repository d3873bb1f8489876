"""Signals at a bad moment."""

import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from kohort.consistent_region import DictState
from kohort.consistent_region.errors import CoordinatorUnavailable
from kohort.consistent_region.store import Key, SqliteStore
from kohort.consistent_region.task_states import TaskStates
from tests.consistent_region.region_hand import Listed
from tests.interrupts import Interrupt, Tracer, every_point_within

# A member that idles; SIGTERM comes in the middle of an Event's wait, if that is what `run` idles in.
PROGRAM = """
import signal, sys, threading
from kohort import ConsistentRegion
from kohort.consistent_region import Periodic
from kohort.testing import FakeBroker

lines = 0

def inside(_frame, event, _arg):
    global lines
    lines += event == "line"
    if lines == 2 and event == "line":
        signal.raise_signal(signal.SIGTERM)
    return inside

def calls(frame, _event, _arg):
    ours = frame.f_back is not None and frame.f_back.f_code is ConsistentRegion.run.__code__
    return inside if ours and frame.f_code is threading.Event.wait.__code__ else None

with FakeBroker(topics={"t": 1}) as broker:
    region = ConsistentRegion(
        "r", group="g", topics=["t"], bootstrap=broker.bootstrap, member="a", handler=print, trigger=Periodic(0.1)
    )
    threading.Timer(2.0, region.stop).start()
    sys.settrace(calls)
    region.run()
"""


@pytest.mark.proves("B-36", "CR-85")
def test_a_signal_finds_nothing_locked_that_stopping_needs() -> None:
    assert subprocess.run([sys.executable, "-c", PROGRAM], check=False, timeout=300).returncode == 0


# A child that the handler forks has the signal handlers of `run`. SIGALRM ends it if SIGTERM does not. A signal is lost
# in a child that Python has not set up yet, so SIGTERM comes later.
FORKING = """
import os, signal, sys
from kohort import ConsistentRegion
from kohort.consistent_region import Periodic
from kohort.testing import FakeBroker

statuses = []

def handler(record, state):
    begun, begins = os.pipe()
    child = os.fork()
    if not child:
        signal.alarm(20)
        os.write(begins, b"!")
        while True:
            signal.pause()
    os.read(begun, 1)
    os.kill(child, signal.SIGTERM)
    statuses.append(os.waitpid(child, 0)[1])
    region.stop()

with FakeBroker(topics={"t": 1}) as broker:
    broker.produce("t", 0, [(None, b"v")])
    region = ConsistentRegion(
        "r", group="g", topics=["t"], bootstrap=broker.bootstrap, member="a", handler=handler, trigger=Periodic(0.1)
    )
    region.run()
sys.exit(statuses != [signal.SIGTERM])
"""


@pytest.mark.skipif(sys.platform == "win32", reason="fork")
@pytest.mark.proves("B-36")
def test_sigterm_ends_a_child_that_a_handler_has_forked() -> None:
    assert subprocess.run([sys.executable, "-c", FORKING], check=False, timeout=300).returncode == 0


def test_an_interrupt_leaves_no_transaction_open(tmp_path: Path) -> None:
    """It kept the file locked for all processes, and its store refused every further transaction."""
    key = Key("state", "g", "a")
    store, other = (SqliteStore(tmp_path / "region.db", timeout_s=0.0) for _ in range(2))

    def put(store: SqliteStore) -> None:
        with store.transaction() as books:
            books.put(key, b"value")

    def script(tracer: Tracer) -> None:
        interrupted = SqliteStore(tmp_path / "region.db", timeout_s=0.0)
        with suppress(Interrupt), tracer.on():
            put(interrupted)
        put(other)
        put(interrupted)
        interrupted.close()

    every_point_within(script)
    with store.transaction() as books:
        books.put(key, b"outer")
        with pytest.raises(CoordinatorUnavailable, match="within a transaction"), store.read():
            pass  # as a signal handler may
    with other.read() as books:
        assert books.get(key) == b"outer"
    store.close()
    other.close()


def test_an_interrupt_leaves_no_sink_reserved() -> None:
    """A later sink at the same address was refused, too."""
    sinks: dict[str, Any] = {"one": Listed(), "two": Listed()}

    def script(tracer: Tracer) -> None:
        with suppress(Interrupt), tracer.on(), TaskStates(lambda _task: DictState(), sinks).reserved():
            pass
        with TaskStates(lambda _task: DictState(), sinks).reserved():
            pass

    every_point_within(script)
