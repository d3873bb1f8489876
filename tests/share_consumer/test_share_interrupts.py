"""A signal handler that raises in a call of a share consumer loses nothing: no record, failure or callback.

Each test runs a script once for every point (see `tests/interrupts.py`). By default each `STRIDE`th point is taken;
KOHORT_INTERRUPTS=1 (`make test-interrupts`) takes all.
"""

import asyncio
import contextlib
import gc
import time
import warnings
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from itertools import count
from typing import Any

import pytest

from kohort import AsyncShareConsumer, KohortError, ShareConsumer
from kohort.fastpath import Record
from kohort.network.errors import IllegalState, WakeupError
from kohort.protocol.errors import ErrorCode
from kohort.share_consumer import AcknowledgeOutcome, ShareConsumerClosed, ShareRecords
from kohort.testing import FakeBroker
from kohort.testing.fake_broker import OffsetState
from tests.interrupts import Interrupt, Tracer, attempt, elsewhere, every_point, every_point_within, reported, until
from tests.producer.test_async_producer_interrupts import Calls

pytestmark = pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")  # by an interrupted caller
PATIENCE_S = 60.0
TOPIC, RECORDS = "work", 12
STRIDE = 67
HASTY: dict[str, Any] = {"retry_backoff_ms": 10, "reconnect_backoff_ms": 10, "fetch_max_wait_ms": 50}
_names = count()


@pytest.fixture(scope="module")
def fake() -> Iterator[FakeBroker]:
    with FakeBroker(topics={TOPIC: 1}) as broker:
        for _ in range(RECORDS // 3):
            broker.produce(TOPIC, 0, [(b"k", b"v")] * 3)
        yield broker


def group_of(fake: FakeBroker) -> str:
    """A new group that reads from the start."""
    group = f"share-{next(_names)}"
    fake.configure_group(group, {"share.auto.offset.reset": "earliest"})
    return group


def member(fake: FakeBroker, group: str, **settings: Any) -> ShareConsumer:
    given: dict[str, Any] = {"max_poll_records": 4, "acquire_mode": "record_limit"} | HASTY | settings
    return attempt(lambda: ShareConsumer(fake.bootstrap, group=group, **given))


def settled(fake: FakeBroker, group: str) -> bool:
    return fake.share_states(group, TOPIC, 0) == (RECORDS, {})


def ended(consumer: ShareConsumer) -> None:
    """No lock is held, and close works."""
    elsewhere(consumer.metrics)
    driver = consumer._driver
    attempt(consumer.close)
    assert attempt(lambda: driver.ended.wait(PATIENCE_S))
    with pytest.raises(ShareConsumerClosed):
        elsewhere(lambda: consumer.assignment)


def records_of(batch: ShareRecords) -> list[Record]:
    """The records, whose iteration may be interrupted too."""
    return attempt(lambda: list(batch))


class Seen:
    """Records that polls have returned, with their delivery counts."""

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}
        self.batches: list[ShareRecords] = []

    def add(self, batches: list[ShareRecords]) -> None:
        self.batches += batches
        for batch in batches:
            for record in records_of(batch):
                offset = record.offset
                assert batch.delivery_count == self.counts.get(offset, 0) + 1, "a delivery was lost"
                self.counts[offset] = batch.delivery_count


def test_polls_acknowledgements_and_commits(fake: FakeBroker, capsys: pytest.CaptureFixture[str]) -> None:
    def script() -> None:
        group, seen = group_of(fake), Seen()
        outcomes: Counter[int] = Counter()

        def note(outcome: AcknowledgeOutcome) -> None:
            assert outcome.error is None
            outcomes.update(range(outcome.first_offset, outcome.last_offset + 1))

        given: dict[str, Any] = {"on_acknowledged": note, "acknowledgement_mode": "explicit"}
        consumer = member(fake, group, **given)
        attempt(lambda: consumer.subscribe([TOPIC]))
        assert attempt(lambda: consumer.subscription) == {TOPIC}
        released = 0

        def step() -> None:
            nonlocal released
            for batch in consumer.poll(0.5):
                seen.add([batch])
                first, *others = records_of(batch)
                attempt(partial(consumer.acknowledge, first, "release" if batch.delivery_count == 1 else "reject"))
                released += batch.delivery_count == 1
                for record in others:
                    attempt(partial(consumer.acknowledge, record, "accept" if record.offset % 2 else "reject"))
            assert attempt(consumer.commit) == {}

        until(lambda: settled(fake, group), step, patience_s=PATIENCE_S)
        assert sorted(seen.counts) == list(range(RECORDS))
        assert sum(outcomes.values()) == RECORDS + released, "each outcome is reported once"
        assert attempt(lambda: consumer.lock_timeout_ms) == 30_000
        assert attempt(lambda: len(consumer.assignment)) == 1
        assert attempt(lambda: consumer.metrics().records_consumed_total) == RECORDS + released
        attempt(consumer.unsubscribe)
        ended(consumer)

    reported(every_point(script, stride=STRIDE), capsys)


def test_iteration_in_implicit_mode(fake: FakeBroker, capsys: pytest.CaptureFixture[str]) -> None:
    """The next step of the iteration accepts records. All of these were returned before."""

    def script() -> None:
        group, seen = group_of(fake), Seen()
        consumer = member(fake, group)
        attempt(lambda: consumer.subscribe([TOPIC]))

        def step() -> None:
            for batch in consumer:
                seen.add([batch])
                if len(seen.counts) == RECORDS:
                    break

        until(lambda: len(seen.counts) == RECORDS, step, patience_s=PATIENCE_S)
        assert attempt(consumer.commit) == {}
        assert set(seen.counts.values()) == {1}
        assert settled(fake, group)
        ended(consumer)

    reported(every_point(script, stride=STRIDE), capsys)


@pytest.mark.proves("SH-82")
def test_failures_of_a_commit(fake: FakeBroker, capsys: pytest.CaptureFixture[str]) -> None:
    """A failure is returned by the commit, or by the next one if an interrupt kept it from the caller."""

    def script() -> None:
        group = group_of(fake)
        consumer = member(fake, group, max_poll_records=RECORDS)
        attempt(lambda: consumer.subscribe([TOPIC]))
        batches: list[ShareRecords] = []
        until(lambda: bool(batches), lambda: batches.extend(consumer.poll(0.5)), patience_s=PATIENCE_S)
        fake.fail_share_write(group, TOPIC, 0, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        failures: dict[int, KohortError] = {}
        for found in attempt(consumer.commit).values():
            failures |= found
        assert list(failures) == list(range(RECORDS))
        assert attempt(consumer.commit) == {}, "it is returned once"
        ended(consumer)

    reported(every_point(script, stride=STRIDE), capsys)


def test_hold_and_wakeup(fake: FakeBroker, capsys: pytest.CaptureFixture[str]) -> None:
    def script() -> None:
        group, seen = group_of(fake), Seen()
        consumer = member(fake, group)
        attempt(lambda: consumer.subscribe([TOPIC]))
        until(lambda: bool(seen.batches), lambda: seen.add(consumer.poll(0.5)), patience_s=PATIENCE_S)
        (batch,) = seen.batches
        try:
            consumer.hold(batch)
        except Interrupt:
            with contextlib.suppress(IllegalState):  # it is held already
                consumer.hold(batch)
        attempt(consumer.wakeup)
        woken = 0

        def step() -> None:
            nonlocal woken
            try:
                seen.add(consumer.poll(0.5))
            except WakeupError:
                woken += 1

        until(lambda: len(seen.counts) == RECORDS, step, patience_s=PATIENCE_S)
        assert 1 <= woken <= 2  # an interrupted wakeup may have had its effect, and was repeated
        assert attempt(consumer.commit) == {}
        _start, states = fake.share_states(group, TOPIC, 0)
        assert {offset for offset, (state, _) in states.items() if state is OffsetState.ACQUIRED} == {0, 1, 2, 3}
        attempt(lambda: consumer.acknowledge(batch))
        assert attempt(consumer.commit) == {}
        assert settled(fake, group)
        ended(consumer)

    reported(every_point(script, stride=STRIDE), capsys)


def test_close_of_a_share_consumer(fake: FakeBroker, capsys: pytest.CaptureFixture[str]) -> None:
    """At every point of `close` only. The second does what is left."""

    def script(tracer: Tracer) -> None:
        group = group_of(fake)
        outcomes: list[AcknowledgeOutcome] = []
        with contextlib.suppress(Interrupt):
            consumer = member(fake, group, on_acknowledged=outcomes.append)
        consumer.subscribe([TOPIC])
        batch: ShareRecords | None = None
        while batch is None:
            batch = next(iter(consumer.poll(PATIENCE_S)), None)
        consumer.acknowledge(batch.columns[0])
        try:
            with tracer.on():
                consumer.close()
        except Interrupt:
            consumer.close()
        assert consumer._driver.ended.wait(PATIENCE_S)
        start, states = fake.share_states(group, TOPIC, 0)
        assert (start, {state for state, _count in states.values()}) == (1, {OffsetState.AVAILABLE})
        assert not fake.share_group(group).members
        assert [(one.first_offset, one.last_offset, one.error) for one in outcomes] == [(0, 0, None)]
        consumer.close()

    reported(every_point_within(script, stride=8), capsys)


def test_one_that_is_dropped_after_an_interrupted_close_leaves(
    fake: FakeBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    def script(tracer: Tracer) -> None:
        group = group_of(fake)
        consumer = member(fake, group)
        driver = consumer._driver
        consumer.subscribe([TOPIC])
        while not consumer.poll(PATIENCE_S):
            pass
        with warnings.catch_warnings(), contextlib.suppress(Interrupt):
            warnings.simplefilter("ignore", ResourceWarning)
            with tracer.on():
                consumer.close()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            del consumer
            gc.collect()
        assert driver.ended.wait(PATIENCE_S)
        assert not fake.share_group(group).members

    reported(every_point_within(script, stride=8), capsys)


# ---------------------------------------------------------------------------------------------- asyncio


def run(main: Callable[[Calls], Coroutine[Any, Any, None]], capsys: pytest.CaptureFixture[str]) -> None:
    reported(every_point_within(lambda tracer: asyncio.run(main(Calls(tracer))), stride=STRIDE), capsys)


def test_the_calls_of_a_task(fake: FakeBroker, capsys: pytest.CaptureFixture[str]) -> None:
    async def main(calls: Calls) -> None:
        group, seen = group_of(fake), Seen()
        outcomes: Counter[int] = Counter()

        def note(outcome: AcknowledgeOutcome) -> None:
            outcomes.update(range(outcome.first_offset, outcome.last_offset + 1))

        consumer = AsyncShareConsumer(
            fake.bootstrap, group=group, max_poll_records=4, acquire_mode="record_limit", on_acknowledged=note, **HASTY
        )
        driver = consumer._driver
        consumer.subscribe([TOPIC])
        limit = time.monotonic() + PATIENCE_S
        while not settled(fake, group):
            assert time.monotonic() < limit, "it stands still"
            with contextlib.suppress(Interrupt):
                seen.add(await calls.once(consumer.poll(0.5)))
            assert await calls.again(consumer.commit) == {}
        assert set(seen.counts.values()) == {1}
        assert len(seen.counts) == RECORDS
        await calls.again(consumer.close)
        assert driver.ended.wait(PATIENCE_S)
        assert outcomes == Counter(range(RECORDS))
        with pytest.raises(ShareConsumerClosed):
            await consumer.poll(0)

    run(main, capsys)
