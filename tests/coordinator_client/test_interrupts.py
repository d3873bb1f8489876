"""A signal handler that raises loses nothing: at each point of each public call where CPython could run one.

Each test runs a script once for every point (see `tests/interrupts.py`) and prints how many there were. By default each
`STRIDE`th point is taken; KOHORT_INTERRUPTS=1 (`make test-interrupts`) takes all.
"""

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from kohort.common import KohortError, TopicPartition
from kohort.coordinator_client import (
    AsyncConsumer,
    ConcurrentUseError,
    Consumer,
    ConsumerClosed,
    OffsetReset,
    RebalanceHooks,
    WakeupError,
)
from kohort.fastpath import RecordColumns
from kohort.testing.fake_broker import FakeBroker
from tests.coordinator_client.consumer_helpers import PATIENCE_S
from tests.interrupts import Interrupt, Tracer, attempt, elsewhere, every_point, every_point_within, reported, until

P0, P1, P2 = (TopicPartition("t", number) for number in range(3))
STRIDE = 67
BATCHES, RECORDS = 4, 5


@pytest.fixture(scope="module")
def fake() -> Iterator[FakeBroker]:
    with FakeBroker(topics={"t": 3}) as broker:
        for partition in range(3):
            for _ in range(BATCHES):
                broker.produce("t", partition, [(b"k", b"v")] * RECORDS)
        yield broker


def reader(fake: FakeBroker, **settings: Any) -> Consumer:
    usual: dict[str, Any] = {"auto_offset_reset": "earliest", "max_partition_fetch_bytes": 150, "retry_backoff_ms": 10}
    return attempt(lambda: Consumer(fake.bootstrap, **usual | settings))


class Seen:
    """Offsets that came, by partition."""

    def __init__(self) -> None:
        self.offsets: dict[int, list[int]] = {0: [], 1: [], 2: []}

    def add(self, slices: list[RecordColumns]) -> None:
        for columns in slices:
            self.offsets[columns.partition] += columns.offsets

    @property
    def complete(self) -> bool:
        return all(len(found) >= BATCHES * RECORDS for found in self.offsets.values())

    def check(self) -> None:
        for found in self.offsets.values():
            assert found == list(range(BATCHES * RECORDS)), self.offsets


def ended(consumer: Consumer) -> None:
    """No lock is held, and close works."""
    elsewhere(consumer.health)
    driver = consumer._session.driver
    attempt(consumer.close)
    assert attempt(lambda: driver.ended.wait(PATIENCE_S))
    with pytest.raises(ConsumerClosed):
        elsewhere(lambda: consumer.assignment)


def test_poll_and_the_calls_of_a_reader(fake: FakeBroker, capsys: pytest.CaptureFixture[str]) -> None:
    def script() -> None:
        consumer, seen = reader(fake, max_poll_records=7), Seen()
        attempt(lambda: consumer.assign({P0: 3, P1: 0}, until={P1: 20}))
        attempt(lambda: consumer.assign({P0: 3, P1: 0, P2: 0}))
        attempt(lambda: consumer.seek(P0, 0))
        attempt(lambda: consumer.pause([P1]))
        attempt(lambda: consumer.hold([P2]))
        assert attempt(consumer.paused).keys() == {P1, P2}
        until(lambda: len(seen.offsets[0]) >= 10, lambda: seen.add(consumer.poll(0.5)))
        attempt(lambda: consumer.resume([P1]))
        attempt(lambda: consumer.release([P2]))
        until(lambda: seen.complete, lambda: seen.add(consumer.poll(0.5)))
        seen.check()
        assert attempt(lambda: consumer.position(P1)) == 20
        assert attempt(lambda: consumer.position_of(P1)).offset == 20
        assert attempt(lambda: consumer.end_offsets([P0])) == {P0: 20}
        assert attempt(lambda: consumer.beginning_offsets([P0])) == {P0: 0}
        attempt(lambda: consumer.offsets_for_times({P0: 0}))
        assert len(attempt(lambda: consumer.partitions_for("t"))) == 3
        assert "t" in attempt(consumer.topics)
        assert attempt(consumer.lag) == {P0: 0, P1: 0, P2: 0}
        assert attempt(lambda: consumer.metrics()["records_consumed_total"]) == 3 * BATCHES * RECORDS
        attempt(lambda: consumer.seek_to_beginning([P0]))
        assert attempt(lambda: consumer.position(P0)) == 0
        ended(consumer)

    reported(every_point(script, stride=STRIDE), capsys)


def test_iteration(fake: FakeBroker, capsys: pytest.CaptureFixture[str]) -> None:
    def script() -> None:
        consumer, seen = reader(fake, max_poll_records=3), Seen()
        attempt(lambda: consumer.assign({P0: 0, P1: 0, P2: 0}))

        def step() -> None:
            for columns in consumer:
                seen.add([columns])
                if seen.complete:
                    break

        until(lambda: seen.complete, step)
        seen.check()
        ended(consumer)

    reported(every_point(script, stride=STRIDE), capsys)


class Hooks(RebalanceHooks):
    """Counts its calls."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def on_assigned(self, event: Any) -> Mapping[TopicPartition, int]:
        self.calls.append("assigned")
        return {P0: 1}

    def on_revoked(self, event: Any) -> Mapping[TopicPartition, int]:
        self.calls.append("revoked")
        return {P0: 7}


def test_a_member_its_hooks_and_commits(capsys: pytest.CaptureFixture[str]) -> None:
    with FakeBroker(topics={"t": 3}) as fake:
        for _ in range(BATCHES):
            fake.produce("t", 0, [(b"k", b"v")] * RECORDS)
        names = iter(range(1_000_000))

        def script() -> None:
            group = f"g{next(names)}"
            consumer, hooks, offsets, done = reader(fake, group=group), Hooks(), list[int](), list[Any]()
            attempt(lambda: consumer.subscribe(["t"], hooks=hooks))
            until(
                lambda: len(offsets) >= 19,
                lambda: offsets.extend(offset for one in consumer.poll(0.5) for offset in one.offsets),
            )
            assert offsets == list(range(1, 20))
            assert hooks.calls == ["assigned"]
            for number in range(3):  # an interrupt in one leaves open whether it was made: the next one goes on
                wanted = {P1: number + 1}
                attempt(lambda: consumer.commit_async(wanted, lambda made, _error: done.append(dict(made))))  # noqa: B023
            until(lambda: len(done) >= 3, lambda: consumer.poll(0.1))
            numbers = [next(iter(made.values())).offset for made in done]
            assert numbers == sorted(numbers)
            assert set(numbers) == {1, 2, 3}, "a callback is lost"
            attempt(lambda: consumer.commit({P0: 5}))
            stored = attempt(lambda: consumer.committed([P0]))[P0]
            assert stored is not None
            assert stored.offset == 5
            attempt(lambda: consumer.commit(allow_rewind=True))
            assert attempt(lambda: consumer.group_metadata().group_id) == group
            attempt(lambda: consumer.enforce_rebalance())
            attempt(lambda: consumer.group_members())
            attempt(lambda: consumer.timeline())
            attempt(consumer.notices)
            attempt(consumer.commit_log)
            until(lambda: hooks.calls.count("assigned") == 2, lambda: consumer.poll(0.1))
            attempt(consumer.unsubscribe)
            until(lambda: not attempt(lambda: consumer.assignment), consumer.unsubscribe)
            assert hooks.calls == ["assigned", "revoked", "assigned", "revoked"]
            ended(consumer)

        reported(every_point(script, stride=STRIDE), capsys)


def test_a_reset_is_reported_and_an_error_is_raised(capsys: pytest.CaptureFixture[str]) -> None:
    with FakeBroker(topics={"t": 3}) as fake:
        fake.produce("t", 0, [(b"k", b"v")] * RECORDS)

        def script() -> None:
            gaps: list[OffsetReset] = []
            consumer = reader(fake, on_reset=gaps.append)
            attempt(lambda: consumer.assign({P0: 1000}))
            until(lambda: bool(gaps), lambda: consumer.poll(0.2))
            assert {gap.wanted for gap in gaps} == {1000}  # an interrupted assign is repeated, and resets again
            attempt(consumer.wakeup)
            woken: list[bool] = []

            def step() -> None:
                try:
                    consumer.poll(0)
                except WakeupError:
                    woken.append(True)

            attempt(step)
            assert woken == [True]
            assert attempt(lambda: consumer.poll(0)) is not None
            ended(consumer)

            strict, errors = reader(fake, auto_offset_reset="none"), list[KohortError]()
            attempt(lambda: strict.assign({P0: 1000}))

            def fails() -> None:
                try:
                    strict.poll(0.2)
                except KohortError as error:
                    errors.append(error)

            until(lambda: bool(errors), fails)
            ended(strict)

        reported(every_point(script, stride=STRIDE), capsys)


def test_an_asynchronous_consumer(fake: FakeBroker, capsys: pytest.CaptureFixture[str]) -> None:
    names = iter(range(1_000_000))

    async def main() -> None:
        async def again(call: Callable[[], Any]) -> Any:
            try:
                return await call()
            except Interrupt:
                return await call()

        group = f"a{next(names)}"
        settings: dict[str, Any] = {"auto_offset_reset": "earliest", "max_partition_fetch_bytes": 150}
        consumer = attempt(lambda: AsyncConsumer(fake.bootstrap, group=group, max_poll_records=7, **settings))
        hooks, seen, limit = Hooks(), Seen(), time.monotonic() + PATIENCE_S
        attempt(lambda: consumer.subscribe(["t"], hooks=hooks))
        seen.offsets[0].append(0)  # on_assigned starts behind it
        while not seen.complete:
            assert time.monotonic() < limit, "it stands still"
            try:
                if sum(map(len, seen.offsets.values())) % 2:
                    seen.add(await consumer.poll(0.5))
                else:
                    async for columns in consumer:
                        seen.add([columns])
                        break
            except Interrupt:
                pass
        seen.check()
        await again(lambda: consumer.commit({P0: 5}))
        assert (await again(lambda: consumer.committed([P0])))[P0].offset == 5
        assert await again(lambda: consumer.end_offsets([P1])) == {P1: 20}
        assert await again(lambda: consumer.position(P1)) == 20
        await again(consumer.unsubscribe)
        elsewhere(consumer.health)
        driver = consumer._session.driver
        await again(consumer.close)
        assert attempt(lambda: driver.ended.wait(PATIENCE_S))

    def script() -> None:
        loop = asyncio.new_event_loop()
        try:
            loop.run_until_complete(main())
        finally:
            loop.close()

    reported(every_point(script, stride=STRIDE), capsys)


def test_an_interrupted_wait_does_not_cancel_the_task_later(
    fake: FakeBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    """An `asyncio.timeout` whose end an interrupt has skipped cancels its task when the time is over."""
    limit_s = 0.02

    def script(tracer: Tracer) -> None:
        async def main() -> None:
            consumer = AsyncConsumer(fake.bootstrap)
            consumer.assign({P0: BATCHES * RECORDS})
            with contextlib.suppress(Interrupt), tracer.on():
                assert await consumer._wait(consumer._session.driver.now() + limit_s)
            await asyncio.sleep(2 * limit_s)
            await consumer.close()

        asyncio.run(main())

    reported(every_point_within(script), capsys)


def test_what_a_handler_may_not_call_raises_instead_of_waiting_for_itself(fake: FakeBroker) -> None:
    """The handler comes while this very thread holds the lock."""
    with reader(fake, group="handlers") as consumer:
        consumer.assign([P0])
        calls: list[Callable[[], object]] = [
            consumer.health,
            consumer.metrics,
            consumer.notices,
            consumer.timeline,
            consumer.commit_log,
            lambda: consumer.assignment,
            lambda: consumer.position(P0),
            lambda: consumer.poll(1),
            lambda: consumer.seek(P0, 1),
            lambda: consumer.pause([P0]),
            lambda: consumer.commit({P0: 1}),
            lambda: consumer.commit_async({P0: 1}),
            lambda: consumer.end_offsets([P0]),
            consumer.close,
        ]

        def handler() -> None:
            for call in calls:
                with pytest.raises(ConcurrentUseError, match=r"signal handler|inside poll"):
                    call()
            consumer.wakeup()

        consumer._session.driver.lock.run(handler)
        assert elsewhere(consumer.health)
        with pytest.raises(WakeupError):
            consumer.poll(1)
        assert consumer.position(P0) == 0


def test_a_poll_in_a_handler_does_not_give_records_twice(fake: FakeBroker) -> None:
    with reader(fake) as consumer:
        consumer.assign({P0: 0})
        inner: list[object] = []
        collector = consumer._session.collector

        def interrupted(collect: Callable[[int], Any]) -> Callable[[int], Any]:
            def collects(most: int) -> Any:
                collected = collect(most)
                if collected is not None and collected.columns and not inner:
                    with pytest.raises(ConcurrentUseError, match="inside poll"):
                        consumer.poll(1)
                    inner.append(True)
                return collected

            return collects

        for way in ("collect", "collect_usual"):  # the second serves most polls, but not all
            setattr(collector, way, interrupted(getattr(collector, way)))
        seen: list[int] = []
        until(lambda: len(seen) >= 20, lambda: seen.extend(n for one in consumer.poll(1) for n in one.offsets))
        assert inner
        assert seen == list(range(20))


def test_close_in_a_handler_works_while_poll_sleeps(fake: FakeBroker) -> None:
    consumer = reader(fake)
    consumer.assign({P0: 20})
    signal = pytest.importorskip("signal")
    before = signal.signal(signal.SIGUSR1, lambda *_given: consumer.close())
    try:
        threading.Timer(0.3, lambda: signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)).start()
        assert consumer.poll(PATIENCE_S) == []
    finally:
        signal.signal(signal.SIGUSR1, before)
    with pytest.raises(ConsumerClosed):
        consumer.poll(0)
