"""Threads of drivers: one each while there are few, shared by many, gone with the last, and neighbours in peace."""

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping

import pytest

from kohort import Consumer
from kohort.common import KohortError, log_context
from kohort.network import event_loop
from kohort.network.errors import ConnectionFailed
from kohort.network.event_loop import EventLoop, Ready
from kohort.network.promise import Flag
from kohort.testing.fake_broker import FakeBroker
from tests.coordinator_client.consumer_helpers import PATIENCE_S, crash, poll_until


@pytest.fixture
def fake() -> Iterator[FakeBroker]:
    with FakeBroker(topics={"topic": 2}) as broker:
        yield broker


@pytest.fixture
def made(fake: FakeBroker) -> Iterator[Callable[[int], list[Consumer]]]:
    """`made(3)`: as many members of groups of their own."""
    consumers: list[Consumer] = []

    def make(count: int) -> list[Consumer]:
        begun = len(consumers)
        for number in range(begun, begun + count):
            consumers.append(Consumer(fake.bootstrap, group=f"group-{number}", client_id=f"member-{number}"))
            consumers[-1].subscribe(["topic"])
        return consumers[begun:]

    yield make
    for consumer in consumers:
        consumer.close(5.0)


TURNS = 1_000


class Turned:
    """A driver whose turns return the times that `times` has for them."""

    def __init__(self, times: Callable[[int], float]) -> None:
        self.stopping, self.ended = False, Flag()
        self.turns: list[bool] = []
        self._times = times

    def log_fields(self) -> Mapping[str, object]:
        return {}

    def turn(self, ready: Ready, *, due: bool) -> float | None:
        self.turns.append(due)
        return self._times(len(self.turns))

    def over(self, defect: BaseException | None) -> None:
        raise AssertionError(f"it ended: {defect}")


@pytest.fixture
def loop() -> Iterator[EventLoop]:
    """A loop without a thread."""
    made = EventLoop()
    yield made
    made._run()  # closes it, since it has no driver


def one_step(loop: EventLoop) -> None:
    for driver, ready in loop._wait().items():
        loop._give_turn(driver, ready)


@pytest.mark.parametrize("step_s", [0.0, 0.001, -0.001])
def test_times_of_many_turns_take_no_room(loop: EventLoop, step_s: float) -> None:
    until = time.monotonic() + 50.0
    driver = Turned(lambda number: until + number * step_s)
    for _turn in range(TURNS):
        loop.wakeup(driver)
        one_step(loop)
    assert driver.turns == [True] * TURNS
    assert len(loop._times) <= 2 + event_loop.MOST_VOID_TIMES
    assert [entry[0] for entry in loop._times if not loop._is_void(entry)] == [until + TURNS * step_s]


def test_an_unchanged_time_is_entered_once(loop: EventLoop) -> None:
    until = time.monotonic() + 50.0
    drivers = [Turned(lambda _number: until) for _place in range(2)]
    for _turn in range(10):
        for driver in drivers:
            loop.wakeup(driver)
        one_step(loop)
    assert len(loop._times) == len(drivers)


def test_each_turn_names_its_own_client_in_the_log(loop: EventLoop) -> None:
    class Named(Turned):
        def turn(self, ready: Ready, *, due: bool) -> float | None:
            named.append((self, log_context._here.fields()["client"]))
            return super().turn(ready, due=due)

        def log_fields(self) -> Mapping[str, object]:
            return {"client": self}

    named: list[tuple[object, object]] = []
    first, second = (Named(lambda _number: time.monotonic() + 50.0) for _ in range(2))
    for driver in (first, second, second, first):
        loop.wakeup(driver)
        one_step(loop)
    assert named == [(driver, driver) for driver in (first, second, second, first)]


def test_a_time_that_moved_brings_one_turn(loop: EventLoop) -> None:
    until = time.monotonic() + 0.1
    driver = Turned(lambda number: until if number == 2 else until + 50.0)
    for _turn in range(2):
        loop.wakeup(driver)
        one_step(loop)
    one_step(loop)
    assert time.monotonic() >= until
    assert driver.turns == [True] * 3
    loop.wakeup(driver)
    one_step(loop)
    assert driver.turns == [True] * 4


def test_a_turn_for_a_socket_is_not_due_and_keeps_the_time(loop: EventLoop) -> None:
    until = time.monotonic() + 50.0
    driver = Turned(lambda _number: until)
    loop.wakeup(driver)
    one_step(loop)
    loop._give_turn(driver, [("socket", 1)])
    assert driver.turns == [True, False]
    assert [entry[0] for entry in loop._times if not loop._is_void(entry)] == [until]


def threads() -> set[threading.Thread]:
    return {one for one in threading.enumerate() if one.name.startswith("kohort-driver")}


def joined(consumer: Consumer) -> None:
    poll_until(consumer, lambda: len(consumer.assignment) == 2)


def test_the_first_have_a_thread_each_and_more_share_them(made: Callable[[int], list[Consumer]]) -> None:
    before = threads()
    consumers = made(event_loop.MOST_LOOPS - len(before))
    assert len(threads()) == event_loop.MOST_LOOPS
    consumers += made(30)
    assert len(threads()) == event_loop.MOST_LOOPS
    for consumer in consumers:
        joined(consumer)
    for consumer in consumers:
        consumer.close()
    assert threads() == before


@pytest.mark.usefixtures("one_thread")
def test_a_client_that_shares_a_thread_notices_neither_a_defect_nor_an_end_of_a_neighbour(
    made: Callable[[int], list[Consumer]], monkeypatch: pytest.MonkeyPatch
) -> None:
    crashing, closing, staying = made(3)
    assert len({consumer._session.driver._loop for consumer in (crashing, closing, staying)}) == 1
    joined(staying)
    crash(crashing._session.driver, monkeypatch)
    closing.close()
    closing._session.driver.wakeup()  # as a thread that noticed the end too late would
    heartbeats = staying.metrics().heartbeat_total
    limit = time.monotonic() + PATIENCE_S
    while staying.metrics().heartbeat_total == heartbeats:
        staying.poll(0.05)
        assert time.monotonic() < limit
    with pytest.raises(KohortError, match="ended by a defect"):
        crashing.poll(0)
    assert len(staying.assignment) == 2


@pytest.mark.usefixtures("one_thread")
def test_a_thread_that_ends_by_a_defect_takes_its_drivers_along_and_no_later_ones(
    made: Callable[[int], list[Consumer]], monkeypatch: pytest.MonkeyPatch
) -> None:
    both = made(2)
    for consumer in both:
        joined(consumer)
    shared = both[0]._session.driver._loop
    assert shared is not None

    def wait() -> object:
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr(shared, "_wait", wait)
    shared.wakeup(both[0]._session.driver)
    for consumer in both:
        assert consumer._session.driver.ended.wait(PATIENCE_S)
        with pytest.raises(KohortError, match="ended by a defect"):
            consumer.poll(PATIENCE_S)
    joined(made(1)[0])


def test_no_thread_is_an_error_and_no_place_for_the_next(fake: FakeBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", start)
        with pytest.raises(ConnectionFailed, match=r"can't start new thread; raise .* memory"):
            Consumer(fake.bootstrap)
    with Consumer(fake.bootstrap, group="group") as consumer:
        consumer.subscribe(["topic"])
        joined(consumer)


def test_a_forked_child_has_threads_of_its_own(fake: FakeBroker, made: Callable[[int], list[Consumer]]) -> None:
    made(event_loop.MOST_LOOPS)  # all places are taken, by threads that a child has not
    child = os.fork()
    if child == 0:
        code = 1
        try:
            with Consumer(fake.bootstrap, group="of-a-child") as consumer:
                consumer.subscribe(["topic"])
                joined(consumer)
            code = 0
        finally:
            os._exit(code)
    _, ended = os.waitpid(child, 0)  # it waits for nothing longer than PATIENCE_S
    assert os.waitstatus_to_exitcode(ended) == 0
