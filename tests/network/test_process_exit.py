"""The interpreter's end with open clients."""

import subprocess
import sys
import weakref
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from kohort.network import process_exit
from kohort.network.process_exit import EXIT_S, LEAST_EXIT_S


class Client:
    """A client whose close takes all of its time."""


@pytest.mark.proves("B-36")
@pytest.mark.parametrize("error", [RuntimeError("not closed in time"), SystemExit("of a callback")])
def test_open_clients_share_the_time_of_the_end_and_each_has_some(
    error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, times = [100.0], list[float]()
    clients = [Client() for _ in range(5)]
    still_open: weakref.WeakKeyDictionary[Any, Callable[[Any, float], object]] = weakref.WeakKeyDictionary()

    def close(_client: Client, timeout_s: float) -> None:
        times.append(timeout_s)
        now[0] += timeout_s
        raise error

    for client in clients:
        still_open[client] = close
    monkeypatch.setattr(process_exit, "OPEN", still_open)
    monkeypatch.setattr(process_exit, "time", SimpleNamespace(monotonic=lambda: now[0]))
    process_exit._close_all()
    assert times == [EXIT_S, *[LEAST_EXIT_S] * 4]


@pytest.mark.proves("B-36")
def test_ctrl_c_at_the_end_leaves_the_other_clients_unclosed(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = list[Client]()

    def close(client: Client, _timeout_s: float) -> None:
        closed.append(client)
        raise KeyboardInterrupt

    clients = [Client(), Client()]
    monkeypatch.setattr(process_exit, "OPEN", weakref.WeakKeyDictionary(dict.fromkeys(clients, close)))
    with pytest.raises(KeyboardInterrupt):
        process_exit._close_all()
    assert closed == clients[:1]


LATE = """
from kohort import Producer

class Late:
    def __del__(self):
        try:
            Producer("127.0.0.1:1")
        except Exception as error:
            print(type(error).__name__, error)

late = Late()
late.itself = late
"""


@pytest.mark.proves("B-36")
def test_a_client_that_a_finalizer_makes_at_the_end_is_an_error() -> None:
    ended = subprocess.run([sys.executable, "-c", LATE], capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout.startswith("ConnectionFailed the client's thread cannot be started")


@pytest.mark.proves("B-36")
def test_dropped_clients_share_one_time_and_those_of_a_parent_have_none(monkeypatch: pytest.MonkeyPatch) -> None:
    now, times = [100.0], list[float]()

    def wait(timeout_s: float) -> None:
        times.append(timeout_s)
        now[0] += max(timeout_s, 0.0)

    dropped = [SimpleNamespace(is_forked=False, ended=SimpleNamespace(wait=wait)) for _ in range(3)]
    forked = SimpleNamespace(is_forked=True)
    monkeypatch.setattr(process_exit, "OPEN", weakref.WeakKeyDictionary())
    monkeypatch.setattr(process_exit, "_DROPPED", [*dropped, forked])
    monkeypatch.setattr(process_exit, "time", SimpleNamespace(monotonic=lambda: now[0]))
    process_exit._close_all()
    assert times == [EXIT_S, 0.0, 0.0]
