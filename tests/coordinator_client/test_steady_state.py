"""The work for a record of a trickle, counted: no turn of the driver, and no look at anything unchanged."""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kohort import Consumer, TopicPartition
from kohort.protocol.apis.fetch import FetchRequest
from kohort.testing import FakeBroker
from kohort.testing.fake_broker import Alter, Call
from tests.coordinator_client.consumer_helpers import poll_until, read

RECORDS = 30
LEASE_S = 0.1
PARTITIONS = [TopicPartition("t", number) for number in range(50)]


@pytest.fixture
def fake() -> Iterator[FakeBroker]:
    with FakeBroker(topics={"t": len(PARTITIONS)}) as broker:
        yield broker


def counted(owner: Any, name: str, counts: Counter[str], monkeypatch: pytest.MonkeyPatch) -> None:
    call: Callable[..., Any] = getattr(owner, name)

    def count(*args: Any, **more: Any) -> Any:
        counts[name] += 1
        return call(*args, **more)

    monkeypatch.setattr(owner, name, count)


def counts_of_records(fake: FakeBroker, consumer: Consumer, counts: Counter[str]) -> Counter[str]:
    """The counts of the records' own turns, each record written and read in less time than a lease.

    A caller that stays away longer, as on a busy machine, gives its sockets back to the driver (`_poller.pyx`). So a
    record that takes longer, and the one behind it, do not count.
    """
    found: Counter[str] = Counter()
    quick, before_s = 0, 0.0
    while quick < RECORDS:
        counts.clear()
        begun_at = time.monotonic()
        fake.produce("t", quick % len(PARTITIONS), [(None, b"v")])
        read(consumer, 1)
        took_s = time.monotonic() - begun_at
        if max(took_s, before_s) < LEASE_S:
            found += counts
            quick += 1
        before_s = took_s
    return found


def without_session(_call: Call) -> Alter:
    """The broker's cache of sessions is full."""
    return Alter(lambda response: response._replace(session_id=0))


@pytest.mark.parametrize("has_sessions", [True, False], ids=["sessions", "no sessions"])
@pytest.mark.parametrize("brokers", [1, 20])
def test_a_record_costs_no_turn_of_the_driver(
    brokers: int, has_sessions: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts: Counter[str] = Counter()
    with (
        FakeBroker(topics={"t": len(PARTITIONS)}, nodes=brokers) as fake,
        Consumer(fake.bootstrap, auto_offset_reset="earliest", fetch_max_wait_ms=30_000) as consumer,
    ):
        if not has_sessions:
            fake.control("Fetch", without_session)
        consumer.assign(PARTITIONS)
        for number in range(3 * brokers):  # the response that opens a session takes a turn
            fake.produce("t", number % brokers, [(None, b"v")])
            read(consumer, 1)
        driver = consumer._session.driver
        counted(driver, "turn", counts, monkeypatch)
        counted(driver.core, "poll", counts, monkeypatch)
        assert driver._loop is not None
        counted(driver._loop, "_wait", counts, monkeypatch)
        found = counts_of_records(fake, consumer, counts)
    # Some turns are for timers.
    assert found["poll"] <= RECORDS / 10, found
    assert found["turn"] <= RECORDS / 10, found
    assert found["_wait"] <= RECORDS / 10, found


def test_a_response_without_records_wakes_no_caller(fake: FakeBroker) -> None:
    with Consumer(fake.bootstrap, auto_offset_reset="earliest", fetch_max_wait_ms=20) as consumer:
        consumer.assign(PARTITIONS)
        fake.produce("t", 0, [(None, b"v")])
        read(consumer, 1)
        fetches = len(fake.calls_of("Fetch"))
        consumer.poll(0.0)
        poll_until(consumer, lambda: len(fake.calls_of("Fetch")) >= fetches + 3)
        consumer.poll(0.0)
        rings, fetches = consumer._session.driver.bell.rings, len(fake.calls_of("Fetch"))
        while len(fake.calls_of("Fetch")) < fetches + 5:
            time.sleep(0.01)
        assert consumer._session.driver.bell.rings == rings


def forgets(call: Call) -> bool:
    return isinstance(call.request, FetchRequest) and bool(call.request.forgotten_topics_data)


def test_what_the_user_changes_is_in_the_next_request(fake: FakeBroker) -> None:
    """A pause ends the steady state: the paused partition leaves the session."""
    with Consumer(fake.bootstrap, auto_offset_reset="earliest", fetch_max_wait_ms=20) as consumer:
        consumer.assign(PARTITIONS)
        fake.produce("t", 0, [(None, b"v")])
        read(consumer, 1)
        consumer.pause(PARTITIONS[:1])
        poll_until(consumer, lambda: any(map(forgets, fake.calls_of("Fetch"))))
        fake.produce("t", 0, [(None, b"paused")])
        fake.produce("t", 1, [(None, b"read")])
        assert [bytes(columns.values[0] or b"") for columns in consumer.poll(5.0)] == [b"read"]
        consumer.resume(PARTITIONS[:1])
        assert read(consumer, 1)


def test_records_and_their_requests_are_counted(fake: FakeBroker) -> None:
    with Consumer(fake.bootstrap, auto_offset_reset="earliest", fetch_max_wait_ms=30_000) as consumer:
        consumer.assign(PARTITIONS)
        for _ in range(RECORDS):
            fake.produce("t", 0, [(None, b"v" * 100)])
            read(consumer, 1)
        metrics = consumer.metrics()
        assert metrics.records_consumed_total == RECORDS
        assert metrics.fetch_total >= RECORDS
        assert metrics.bytes_consumed_total > 100 * RECORDS


def test_the_lag_of_many_partitions_is_put_together_once(fake: FakeBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    counts: Counter[str] = Counter()

    class Ends(dict[TopicPartition, int]):
        def __or__(self, other: Any) -> Any:
            counts["merged"] += 1
            return dict(self) | other

    with Consumer(fake.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign(PARTITIONS)
        fake.produce("t", 0, [(None, b"v")])
        read(consumer, 1)
        fetcher = consumer._session.core.fetcher
        fresh_ends = fetcher.fresh_ends
        monkeypatch.setattr(fetcher, "fresh_ends", lambda partitions: Ends(fresh_ends(partitions)))
        assert consumer.lag() == dict.fromkeys(PARTITIONS, 0)
    assert counts["merged"] == 1


def test_a_commit_costs_no_look_at_the_group(fake: FakeBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """The member is only looked at after an event, and at its own times. Both are those of heartbeats here."""
    counts: Counter[str] = Counter()
    with Consumer(fake.bootstrap, group="g", enable_auto_commit=False) as consumer:
        consumer.subscribe(["t"])
        poll_until(consumer, lambda: len(consumer.assignment) == len(PARTITIONS))
        member = consumer._session.driver.core.member
        for name in ("step", "ready"):
            counted(member, name, counts, monkeypatch)
        for offset in range(RECORDS):
            consumer.commit({PARTITIONS[0]: offset})
        assert max(counts["ready"], counts["step"]) < RECORDS
