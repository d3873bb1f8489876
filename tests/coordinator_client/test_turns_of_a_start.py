"""The work of a start, counted: the setup of a connection polls no core, and an empty hook takes one change."""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kohort import Consumer
from kohort.coordinator_client.consumer_core import ConsumerCore
from kohort.coordinator_client.hooks import Assigned, HookResult, RebalanceHooks
from kohort.network.event_loop import LONGEST_SLEEP_S
from kohort.network.network_client import Driver
from kohort.testing.fake_broker import Call, FakeBroker, Hold
from tests.coordinator_client.consumer_helpers import PATIENCE_S, poll_until, wait_until
from tests.coordinator_client.test_steady_state import counted


@pytest.fixture
def fake() -> Iterator[FakeBroker]:
    with FakeBroker(topics={"t": 2}) as broker:
        yield broker


def held(fake: FakeBroker, *apis: str) -> Hold:
    """Hold the next call of each API."""
    hold = Hold()

    def next_call(_call: Call) -> Hold:
        return hold

    for api in apis:
        fake.control(api, next_call, times=1)
    return hold


def wait_for_rest(driver: Driver[ConsumerCore]) -> None:
    """Wait until the driver's thread waits for its sockets, and for nothing else."""
    loop = driver._loop
    assert loop is not None
    wait_until(lambda: loop._asleep and not loop._rung)


def test_the_setup_of_a_connection_polls_no_core(fake: FakeBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    counts: Counter[str] = Counter()
    setup, first = held(fake, "ApiVersions"), held(fake, "Metadata", "FindCoordinator")
    with Consumer(fake.bootstrap, group="g") as consumer:
        driver = consumer._session.driver
        consumer.subscribe(["t"])
        assert setup.reached.wait(PATIENCE_S)
        wait_for_rest(driver)
        counted(driver.core, "poll", counts, monkeypatch)
        counted(driver, "turn", counts, monkeypatch)
        setup.release()
        assert first.reached.wait(PATIENCE_S)
        assert counts == {"turn": 1}
        first.release()
        poll_until(consumer, lambda: len(consumer.assignment) == 2)


def test_the_first_metadata_request_names_the_topics(fake: FakeBroker) -> None:
    """They are named after the constructor, while its connection opens."""
    setup = held(fake, "ApiVersions")
    with Consumer(fake.bootstrap, group="g") as consumer:
        assert setup.reached.wait(PATIENCE_S)
        consumer.subscribe(["t"])
        setup.release()
        poll_until(consumer, lambda: len(consumer.assignment) == 2)
    requests: Any = [call.request for call in fake.calls_of("Metadata")]
    assert [[topic.name for topic in request.topics] for request in requests] == [["t"]]


def test_the_end_of_an_idle_connection_polls_the_core(fake: FakeBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    counts: Counter[str] = Counter()
    with Consumer(fake.bootstrap) as consumer:
        consumer.topics()
        driver = consumer._session.driver
        wait_for_rest(driver)
        counted(driver.core, "poll", counts, monkeypatch)
        requests = len(fake.calls_of("Metadata"))
        fake.disconnect()
        # A sleep that is over polls the core, too.
        wait_until(lambda: len(fake.calls_of("Metadata")) > requests, patience_s=LONGEST_SLEEP_S / 3)
        assert counts["poll"]


class Overridden(RebalanceHooks):
    def on_assigned(self, event: Assigned) -> HookResult:
        return None


@pytest.mark.parametrize(
    ("made", "changes"),
    [(lambda: None, 1), (RebalanceHooks, 1), (Overridden, 2)],
    ids=["no hooks", "empty", "overridden"],
)
def test_an_empty_hook_takes_one_change_of_the_core(
    fake: FakeBroker, monkeypatch: pytest.MonkeyPatch, made: Callable[[], RebalanceHooks | None], changes: int
) -> None:
    counts: Counter[str] = Counter()
    with Consumer(fake.bootstrap, group="g") as consumer:
        consumer.subscribe(["t"], hooks=made())
        counted(consumer._session.driver, "enqueue", counts, monkeypatch)
        poll_until(consumer, lambda: len(consumer.assignment) == 2)
        assert consumer.metrics().hooks_total == 1
        assert counts["enqueue"] == changes
