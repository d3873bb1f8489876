"""Processes that end with the process that started them, and on request."""

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from kohort.testing import child_process
from kohort.testing.child_process import Supervised
from kohort.testing.kafka_node import _is_frozen
from tests.coordinator_client.consumer_helpers import PATIENCE_S

SLEEPS = "import sys, time; print('ready', file=sys.stderr, flush=True); time.sleep(600)"
STUBBORN = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {SLEEPS}"


def started(folder: Path, program: str = SLEEPS) -> Supervised:
    log = folder / "log"
    process = Supervised([sys.executable, "-c", program], folder=folder, log=log, remove_if_orphaned=None)
    deadline_s = time.monotonic() + PATIENCE_S
    while "ready" not in log.read_text():
        assert process.running
        assert time.monotonic() < deadline_s
    return process


def test_it_is_there_until_it_is_stopped(tmp_path: Path) -> None:
    process = started(tmp_path)
    os.kill(process.pid, 0)
    process.end(signal.SIGTERM, PATIENCE_S)
    assert not process.running
    with pytest.raises(ProcessLookupError):
        os.kill(process.pid, 0)
    process.send(signal.SIGTERM)  # which no process receives


def test_what_it_prints_is_in_its_log_and_holds_it_up_never(tmp_path: Path) -> None:
    talks = f"print('much' * 250_000, flush=True); {SLEEPS}"  # more than any pipe holds
    process = started(tmp_path, talks)
    assert (tmp_path / "log").read_text().count("much") == 250_000
    process.end(signal.SIGTERM, PATIENCE_S)


def test_a_frozen_one_ends_at_the_signal(tmp_path: Path) -> None:
    process = started(tmp_path)
    process.send(signal.SIGSTOP)
    process.end(signal.SIGTERM, PATIENCE_S)
    assert not process.running


def test_a_forked_child_leaves_a_frozen_one_frozen(tmp_path: Path) -> None:
    process = started(tmp_path)
    process.send(signal.SIGSTOP)
    while not _is_frozen(process.pid):
        time.sleep(0.001)
    child = os.fork()
    if child == 0:
        process.end(signal.SIGKILL, PATIENCE_S)
        os._exit(0)
    os.waitpid(child, 0)
    assert _is_frozen(process.pid)
    process.end(signal.SIGKILL, PATIENCE_S)


def test_one_that_does_not_want_to_is_killed(tmp_path: Path) -> None:
    process = started(tmp_path, STUBBORN)
    process.end(signal.SIGTERM, 0.2)
    assert not process.running


def test_one_that_not_even_a_kill_ends_is_reported_without_its_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = started(tmp_path, STUBBORN)
    monkeypatch.setattr(child_process, "KILLED_TIMEOUT_S", 0.2)
    with monkeypatch.context() as deaf:
        deaf.setattr(Supervised, "send", lambda self, number: None)
        with pytest.raises(TimeoutError, match=rf"process {process.pid} is still there 0.2 s after SIGKILL"):
            process.end(signal.SIGTERM, 0.2)
    process.end(signal.SIGKILL, PATIENCE_S)
    assert not process.running
