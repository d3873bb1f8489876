"""An interrupted close leaves the group all the same, once it is called again, and exactly once.

Each test interrupts one close at every point of it (see `tests/interrupts.py`) and counts LeaveGroup requests at the
fake broker. By default a point in `STRIDE` or fewer is taken; KOHORT_INTERRUPTS=1 (`make test-interrupts`) takes all.
"""

import asyncio
import gc
import threading
import time
from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any

import pytest

from kohort.common import TopicPartition
from kohort.coordinator_client import AsyncConsumer, Consumer, ConsumerClosed, RebalanceHooks
from kohort.coordinator_client.poll_loop import PollLoop, _hand_in
from kohort.testing.fake_broker import Delay, FakeBroker, Hold
from tests.coordinator_client.consumer_helpers import PATIENCE_S, wait_until
from tests.interrupts import Interrupt, Tracer, elsewhere, every_point_within, reported

P0 = TopicPartition("t", 0)
RECORDS = 5
STRIDE = 12
HASTY: dict[str, Any] = {"auto_offset_reset": "earliest", "retry_backoff_ms": 10, "reconnect_backoff_ms": 10}


@pytest.fixture(scope="module")
def fake() -> Iterator[FakeBroker]:
    with FakeBroker(topics={"t": 1}) as broker:
        broker.produce("t", 0, [(b"k", b"v")] * RECORDS)
        yield broker


_numbers = count()


class Hooks(RebalanceHooks):
    """Counts its calls; `on_revoked` may raise."""

    def __init__(self, consumer: Consumer | AsyncConsumer, error: BaseException | None = None) -> None:
        self.calls: list[str] = []
        self._consumer = consumer
        self._error = error

    def on_assigned(self, event: Any) -> None:
        self.calls.append("assigned")

    def on_revoked(self, event: Any) -> None:
        self.calls.append("revoked")
        if self._error is not None:
            raise self._error
        assert self._consumer.assignment, "a hook may call the consumer while it closes"


def member(fake: FakeBroker, group: str, error: BaseException | None = None, **settings: Any) -> tuple[Consumer, Hooks]:
    """A member that has read everything and come back for more, so that its position counts as handled."""
    consumer = Consumer(fake.bootstrap, group=group, enable_auto_commit=True, **HASTY | settings)
    hooks = Hooks(consumer, error)
    consumer.subscribe(["t"], hooks=hooks)
    read = 0
    limit = time.monotonic() + PATIENCE_S
    while read < RECORDS:
        assert time.monotonic() < limit
        read += sum(map(len, consumer.poll(0.5)))
    consumer.poll(0)
    return consumer, hooks


def leaves(fake: FakeBroker, group: str) -> int:
    return sum(call.request.group_id == group for call in fake.calls_of("LeaveGroup"))  # type: ignore[attr-defined]


def left_once(fake: FakeBroker, group: str, consumer: Consumer | AsyncConsumer) -> None:
    """Checks the state after the last close."""
    driver = consumer._session.driver
    assert driver.ended.wait(PATIENCE_S)
    assert leaves(fake, group) == 1
    assert not fake.group(group).members
    assert fake.group(group).offsets[P0].offset == RECORDS
    with pytest.raises(ConsumerClosed):
        elsewhere(lambda: consumer.assignment)


def test_close_of_a_member(fake: FakeBroker, capsys: pytest.CaptureFixture[str]) -> None:
    def script(tracer: Tracer) -> None:
        group = f"g{next(_numbers)}"
        consumer, hooks = member(fake, group)
        try:
            with tracer.on():
                consumer.close()
        except Interrupt:
            assert tracer.raised
            consumer.close()
        assert hooks.calls == ["assigned", "revoked"]
        left_once(fake, group, consumer)
        consumer.close()
        assert leaves(fake, group) == 1

    reported(every_point_within(script, stride=STRIDE), capsys)


def test_the_end_of_a_with_block(fake: FakeBroker, capsys: pytest.CaptureFixture[str]) -> None:
    def script(tracer: Tracer) -> None:
        group = f"g{next(_numbers)}"
        consumer, hooks = member(fake, group)
        block = consumer.__enter__()
        try:
            with tracer.on():
                block.__exit__(None, None, None)
        except Interrupt:
            with consumer:
                pass
        assert hooks.calls == ["assigned", "revoked"]
        left_once(fake, group, consumer)

    reported(every_point_within(script, stride=2 * STRIDE), capsys)


def test_a_hook_that_raises_is_raised_once_the_group_is_left(
    fake: FakeBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    def script(tracer: Tracer) -> None:
        group, errors = f"g{next(_numbers)}", list[str]()
        consumer, hooks = member(fake, group, ZeroDivisionError("of the hook"))

        def close() -> None:
            try:
                consumer.close()
            except ZeroDivisionError as error:
                errors.append(str(error))
                assert leaves(fake, group) == 1

        try:
            with tracer.on():
                close()
        except Interrupt:
            close()
        assert errors == ["of the hook"]
        assert hooks.calls == ["assigned", "revoked"]
        assert consumer._session.driver.ended.wait(PATIENCE_S)
        assert leaves(fake, group) == 1

    reported(every_point_within(script, stride=2 * STRIDE), capsys)


def interrupt_once_left(consumer: Consumer | AsyncConsumer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Interrupt the close right after it handed in the result of a hook, once the driver has left the group."""
    session, call = consumer._session, PollLoop.call

    def interrupted(loop: PollLoop, what: Any) -> Any:
        result = call(loop, what)
        if getattr(what, "func", None) is _hand_in:
            monkeypatch.undo()
            while not session.reached(lambda core: core.left):
                session.wait_quietly(session.driver.now() + PATIENCE_S)
            raise Interrupt
        return result

    monkeypatch.setattr(PollLoop, "call", interrupted)


def test_the_error_of_a_hook_is_raised_by_the_second_close_though_the_group_was_left_meanwhile(
    fake: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer, _ = member(fake, "left meanwhile", ZeroDivisionError("of the hook"))
    interrupt_once_left(consumer, monkeypatch)
    with pytest.raises(Interrupt):
        consumer.close()
    with pytest.raises(ZeroDivisionError, match="of the hook"):
        consumer.close()
    consumer.close()
    assert leaves(fake, "left meanwhile") == 1


def test_so_is_that_of_an_asynchronous_consumer(fake: FakeBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        consumer = AsyncConsumer(fake.bootstrap, group="left in asyncio", **HASTY)
        consumer.subscribe(["t"], hooks=Hooks(consumer, ZeroDivisionError("of the hook")))
        while not await consumer.poll(0.5):
            pass
        interrupt_once_left(consumer, monkeypatch)
        with pytest.raises(Interrupt):
            await consumer.close()
        with pytest.raises(ZeroDivisionError, match="of the hook"):
            await consumer.close()
        await consumer.close()

    asyncio.run(main())
    assert leaves(fake, "left in asyncio") == 1


def test_an_exit_in_a_hook_ends_the_close_at_once(fake: FakeBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    consumer, hooks = member(fake, "exit", SystemExit("of the hook"))
    wait, waits = consumer._session.wait, list[str]()

    def waited(until: float, seen: int, *, wakeable: bool = True) -> bool:
        waits.extend(hooks.calls)
        return wait(until, seen, wakeable=wakeable)

    monkeypatch.setattr(consumer._session, "wait", waited)
    with pytest.raises(SystemExit):
        consumer.close()
    assert "revoked" not in waits
    consumer.close()
    assert leaves(fake, "exit") == 1


def test_close_of_a_manual_assignment_saves_what_is_handled(
    fake: FakeBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    def script(tracer: Tracer) -> None:
        group = f"g{next(_numbers)}"
        consumer = Consumer(fake.bootstrap, group=group, enable_auto_commit=True, **HASTY)
        consumer.assign({P0: 0})
        while consumer.position(P0) < RECORDS:
            consumer.poll(0.5)
        consumer.poll(0)
        try:
            with tracer.on():
                consumer.close()
        except Interrupt:
            consumer.close()
        assert consumer._session.driver.ended.wait(PATIENCE_S)
        assert fake.group(group).offsets[P0].offset == RECORDS

    reported(every_point_within(script, stride=2 * STRIDE), capsys)


def test_close_of_an_asynchronous_member(fake: FakeBroker, capsys: pytest.CaptureFixture[str]) -> None:
    def script(tracer: Tracer) -> None:
        async def main() -> None:
            group = f"g{next(_numbers)}"
            consumer, hooks = await asynchronous(fake, group)
            try:
                with tracer.on():
                    await consumer.close()
            except Interrupt:
                await consumer.close()
            assert hooks.calls == ["assigned", "revoked"]
            left_once(fake, group, consumer)

        asyncio.run(main())

    reported(every_point_within(script, stride=2 * STRIDE), capsys)


async def asynchronous(fake: FakeBroker, group: str) -> tuple[AsyncConsumer, Hooks]:
    consumer = AsyncConsumer(fake.bootstrap, group=group, enable_auto_commit=True, **HASTY)
    hooks = Hooks(consumer)
    consumer.subscribe(["t"], hooks=hooks)
    read = 0
    while read < RECORDS:
        read += sum(map(len, await consumer.poll(0.5)))
    await consumer.poll(0)
    return consumer, hooks


def test_a_cancelled_close(fake: FakeBroker) -> None:
    """Cancelled while the coordinator has yet to respond to the leave, and before its first step."""

    async def main() -> None:
        group = f"g{next(_numbers)}"
        consumer, hooks = await asynchronous(fake, group)
        task = asyncio.create_task(consumer.close())
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not leaves(fake, group)
        held = threading.Event()

        def hold(_call: object) -> Delay:
            held.set()
            return Delay(0.3)

        laid = fake.control("LeaveGroup", hold, times=1)
        task = asyncio.create_task(consumer.close())
        assert await asyncio.to_thread(held.wait, PATIENCE_S)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        laid.remove()
        assert not consumer._session.driver.stopping
        with pytest.raises(ConsumerClosed):
            await consumer.poll(0)
        await consumer.close()
        assert hooks.calls == ["assigned", "revoked"]
        left_once(fake, group, consumer)

    asyncio.run(main())


def let_go(hooks: Hooks) -> None:
    """Drop the last reference to the consumer."""
    del hooks._consumer
    gc.collect()


def interrupted_before(consumer: Consumer, step: str) -> None:
    """An interrupt ends a close where it would call this method of its session."""
    session = consumer._session

    def interrupted(*_given: object, **_named: object) -> None:
        delattr(session, step)
        raise Interrupt

    setattr(session, step, interrupted)
    with pytest.raises(Interrupt):
        consumer.close()


@pytest.mark.parametrize("step", ["parting_begins", "poll_begins", "wait", "parted"])
def test_one_that_is_dropped_after_an_interrupted_close_leaves_and_ends(fake: FakeBroker, step: str) -> None:
    group = f"g{next(_numbers)}"
    consumer, hooks = member(fake, group)
    driver = consumer._session.driver
    response = Hold()
    if step != "parted":  # else the close might be over before it waits
        fake.control("LeaveGroup", lambda _call: response, times=1)
    interrupted_before(consumer, step)
    response.release()
    assert not driver.stopping
    with pytest.raises(ConsumerClosed):
        consumer.poll(0)
    del consumer
    with pytest.warns(ResourceWarning, match="unclosed consumer"):
        let_go(hooks)
    assert driver.ended.wait(PATIENCE_S)
    assert leaves(fake, group) == 1
    assert not fake.group(group).members


def test_one_that_is_dropped_unclosed_leaves_and_commits_nothing(fake: FakeBroker) -> None:
    """A hook that was not called may have yet to save what the offsets stand for."""
    group = f"g{next(_numbers)}"
    consumer, hooks = member(fake, group, auto_commit_interval_ms=60_000)
    driver = consumer._session.driver
    before = fake.group(group).offsets.get(P0)
    del consumer
    with pytest.warns(ResourceWarning, match="unclosed consumer"):
        let_go(hooks)
    assert driver.ended.wait(PATIENCE_S)
    assert leaves(fake, group) == 1
    assert hooks.calls == ["assigned"]
    assert fake.group(group).offsets.get(P0) == before


def test_a_close_has_no_more_time_than_it_was_given(fake: FakeBroker) -> None:
    """Interrupted, it is resumed with a time of its own. Then the driver stops, though no response has come."""
    group = f"g{next(_numbers)}"
    consumer, _hooks = member(fake, group)
    laid = fake.control("LeaveGroup", lambda _call: Delay(60.0))
    try:
        interrupted_before(consumer, "wait")
        consumer.close(0.2)
        assert consumer._session.driver.ended.wait(PATIENCE_S)
    finally:
        laid.remove()
    consumer.close()


def test_a_wrong_result_of_a_hook_is_raised_once_the_group_is_left(fake: FakeBroker) -> None:
    group = f"g{next(_numbers)}"
    consumer, hooks = member(fake, group)
    hooks.on_revoked = lambda event: "no offsets"  # type: ignore[method-assign, assignment]
    with pytest.raises(TypeError, match="no offsets"):
        consumer.close()
    assert leaves(fake, group) == 1
    assert consumer._session.driver.ended.wait(PATIENCE_S)
    consumer.close()


def test_a_callback_that_raises_in_close_does_not_cost_the_next(fake: FakeBroker) -> None:
    group = f"g{next(_numbers)}"
    consumer, _hooks = member(fake, group)
    done: list[int] = []

    def first(_offsets: Mapping[Any, Any], _error: Exception | None) -> None:
        done.append(1)
        raise ZeroDivisionError

    consumer.commit_async({P0: 4}, first, allow_rewind=True)
    consumer.commit_async({P0: 5}, lambda _offsets, _error: done.append(2))
    with pytest.raises(ZeroDivisionError):
        consumer.close()
    assert leaves(fake, group) == 1
    consumer.close()
    assert done == [1, 2]


def test_a_poll_that_is_interrupted_as_it_ends_has_ended(fake: FakeBroker) -> None:
    """The time of the user's code goes on to be measured: one that does not poll again leaves the group (KIP-62)."""
    group = f"g{next(_numbers)}"
    consumer, _hooks = member(fake, group, max_poll_interval_ms=500, heartbeat_interval_ms=50)
    session = consumer._session

    def interrupted() -> None:
        raise Interrupt

    session.poll_ends = interrupted  # type: ignore[method-assign]
    with pytest.raises(Interrupt):
        consumer.poll(0)
    del session.poll_ends
    wait_until(lambda: leaves(fake, group) == 1)
    consumer.close()
