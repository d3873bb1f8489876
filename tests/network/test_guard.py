"""Guard, ReentrantLock, Bell and Door: balanced after any error of a signal handler, and no wake is lost."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from kohort.network._guard import Bell, Door, Guard, ReentrantLock


class Alarm(Exception):
    """Raised by the handler."""


class Refused(Exception):
    """Raised by what refuses an entry."""


@pytest.fixture
def alarm() -> Iterator[None]:
    def handler(*_given: object) -> None:
        raise Alarm

    before = signal.signal(signal.SIGUSR1, handler)
    yield
    signal.signal(signal.SIGUSR1, before)


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGUSR1)


def in_a_thread(function: Callable[[], object], patience_s: float = 120.0) -> object:
    """The value that `function` returns, or the error that it raises. After `patience_s` seconds, a string."""
    came: list[object] = []

    def run() -> None:
        try:
            came.append(function())
        except Exception as error:
            came.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(patience_s)
    return came[0] if came else "it is locked"


def test_a_guard_returns_what_its_function_does_and_raises_what_it_raises() -> None:
    guard = Guard(Refused)
    assert guard.run(lambda a, b: (a, b, guard.owned), 1, 2) == (1, 2, True)
    with pytest.raises(ZeroDivisionError):
        guard.run(lambda: 1 // 0)
    assert not guard.owned
    assert in_a_thread(lambda: guard.run(int)) == 0


def test_a_guard_is_free_after_a_handler_raised_in_its_function(alarm: None) -> None:
    guard = Guard(Refused)
    with pytest.raises(Alarm):
        guard.run(interrupt)
    assert in_a_thread(lambda: guard.run(int)) == 0


def test_a_guard_refuses_its_owner_and_stays_held() -> None:
    guard = Guard(Refused)

    def reenter() -> object:
        with pytest.raises(Refused):
            guard.run(int)
        with pytest.raises(Refused), guard:
            pass
        return guard.owned

    assert guard.run(reenter) is True
    assert not guard.owned


def test_a_thread_that_is_interrupted_while_waiting_for_a_guard_does_not_release_it(alarm: None) -> None:
    guard, held, go = Guard(Refused), threading.Event(), threading.Event()

    def hold() -> None:
        with guard:
            held.set()
            go.wait(120)

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait(120)
    threading.Timer(0.05, interrupt).start()
    with pytest.raises(Alarm):
        guard.run(int)
    inside: list[bool] = []
    other = threading.Thread(target=guard.run, args=(inside.append, True))
    other.start()
    assert not inside
    go.set()
    other.join(120)
    holder.join(120)
    assert inside == [True]


def is_free(lock: ReentrantLock) -> bool:
    """Another thread gets the lock at once."""
    return in_a_thread(lambda: lock.hold().release(), patience_s=1.0) is None


def test_a_reentrant_lock_is_held_until_its_last_hold_is_released() -> None:
    lock = ReentrantLock()
    with suppress(Alarm), lock.hold():
        with lock.hold() as inner:
            inner.release()
            inner.release()
        assert not is_free(lock)
        raise Alarm
    assert is_free(lock)


def test_a_dropped_hold_is_released() -> None:
    lock = ReentrantLock()
    lock.hold()
    hold = lock.hold()
    assert not is_free(lock)
    del hold
    assert is_free(lock)


def test_no_handler_that_raises_leaves_a_reentrant_lock_held() -> None:
    """From Python 3.14 on, one that runs behind `RLock.__enter__` does."""
    lock, raised = ReentrantLock(), 0

    def handler(*_given: object) -> None:
        raise Alarm

    before = signal.signal(signal.SIGALRM, handler)
    try:
        while raised < 200:
            with suppress(Alarm):
                signal.setitimer(signal.ITIMER_REAL, 0.0005)
                while True:
                    with lock.hold():
                        pass
            raised += 1
    finally:
        signal.signal(signal.SIGALRM, before)
    assert is_free(lock)


def test_a_bell_that_rang_after_the_look_ends_the_wait() -> None:
    bell = Bell()
    seen = bell.rings
    bell.ring()
    assert bell.wait(seen, 60)
    assert not bell.wait(bell.rings, 0)
    assert not bell.wait(bell.rings, 0.01)


def test_a_bell_wakes_all_that_wait() -> None:
    bell, came = Bell(), threading.Semaphore(0)

    def wait() -> None:
        seen = bell.rings
        ready.release()
        bell.wait(seen, 60)
        came.release()

    ready = threading.Semaphore(0)
    threads = [threading.Thread(target=wait) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in threads:
        assert ready.acquire(timeout=120)
    bell.ring()
    for _ in threads:
        assert came.acquire(timeout=120)
    for thread in threads:
        thread.join(120)


def test_a_wait_is_interrupted_and_the_next_ring_is_noticed(alarm: None) -> None:
    bell = Bell()
    threading.Timer(0.05, interrupt).start()
    with pytest.raises(Alarm):
        bell.wait(bell.rings, 60)
    seen = bell.rings
    threading.Timer(0.05, bell.ring).start()
    assert bell.wait(seen, 60)


def test_a_signal_that_another_thread_gets_ends_the_wait(alarm: None) -> None:
    """As one that comes just before the wait: the system call is not interrupted."""
    bell = Bell()
    threading.Timer(0.05, lambda: signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)).start()
    rescue = threading.Timer(20, bell.ring)
    rescue.start()
    with pytest.raises(Alarm):
        bell.wait(bell.rings, 60)
    assert rescue.is_alive(), "the handler ran only after the wait"
    rescue.cancel()


def test_a_door_counts_one_thread_and_refuses_others() -> None:
    door = Door(Refused)
    with door.visit(), door.visit():
        assert door.depth == 2
        assert isinstance(in_a_thread(door.visit), Refused)
        assert isinstance(in_a_thread(door.check), Refused)
        door.check()
        assert door.depth == 2
    assert door.depth == 0
    assert in_a_thread(lambda: door.visit().leave()) is None


def test_a_visit_is_left_once_and_when_it_is_dropped() -> None:
    door = Door(Refused)
    outer = door.visit()
    inner = door.visit()
    inner.leave()
    inner.leave()
    assert door.depth == 1
    door.visit()  # its value is lost
    assert door.depth == 1
    del outer
    assert door.depth == 0


def test_handing_over_leaves() -> None:
    door, parcel = Door(Refused), object()
    visit = door.visit()
    visit.handed = parcel
    assert (door.depth, door.handed) == (0, parcel)
    visit.leave()
    assert door.depth == 0


def test_the_look_comes_before_the_outermost_visit_ends_whatever_it_raises() -> None:
    door, depths = Door(Refused), []

    def look() -> None:
        depths.append(door.depth)
        raise ZeroDivisionError

    door.look = look
    with pytest.raises(ZeroDivisionError), door.visit(), door.visit():
        pass
    assert (depths, door.depth) == ([1], 0)
