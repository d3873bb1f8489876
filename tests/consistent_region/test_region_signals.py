"""Signals at a bad moment."""

import subprocess
import sys

import pytest

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
