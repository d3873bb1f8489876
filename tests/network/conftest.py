"""Fixtures of several tests of the network."""

import pytest

from kohort.network import event_loop


@pytest.fixture
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """All clients of a test share one thread. Clients that earlier tests left keep theirs and count for nothing."""
    monkeypatch.setattr(event_loop, "MOST_LOOPS", 1)
    monkeypatch.setattr(event_loop, "_loops", [])
