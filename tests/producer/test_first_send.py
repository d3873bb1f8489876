"""The first send of a producer waits for the topic's metadata, and is woken by it."""

import pytest

from kohort import Producer
from kohort.network import client_handle
from kohort.testing.fake_broker import FakeBroker


class Watched:
    """A bell that keeps whether each wait ended by a ring."""

    def __init__(self, bell: object) -> None:
        self._bell = bell
        self.ended_by_ring: list[bool] = []

    def __getattr__(self, name: str) -> object:
        return getattr(self._bell, name)

    def wait(self, seen: int, timeout_s: float) -> bool:
        rang: bool = self._bell.wait(seen, timeout_s)  # type: ignore[attr-defined]
        self.ended_by_ring.append(rang)
        return rang


def test_metadata_wakes_the_first_send(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_handle, "LONGEST_WAIT_S", 30.0)
    with FakeBroker(topics={"t": 1}) as fake:
        for _ in range(10):
            with Producer(fake.bootstrap) as producer:
                watched = Watched(producer._driver.bell)
                producer._driver.bell = watched  # type: ignore[assignment]
                producer.send("t", b"v").result(30)
                assert all(watched.ended_by_ring)
