"""Guard, ReentrantLock, Bell and Door with threads that run at the same time."""

import threading

from kohort.network._guard import Bell, Door, Guard, ReentrantLock

THREADS, ROUNDS = 4, 2000


def at_once(*work: object) -> None:
    threads = [threading.Thread(target=one) for one in work]  # type: ignore[arg-type]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not any(thread.is_alive() for thread in threads)


def test_a_guard_lets_one_thread_count_at_a_time() -> None:
    guard = Guard(RuntimeError)
    count = [0]

    def add() -> None:
        count[0] += 1

    def work() -> None:
        for _ in range(ROUNDS):
            guard.run(add)
            assert not guard.owned

    at_once(*[work] * THREADS)
    assert count == [THREADS * ROUNDS]


def test_a_reentrant_lock_lets_one_thread_count_at_a_time() -> None:
    lock = ReentrantLock()
    count = [0]

    def work() -> None:
        for _ in range(ROUNDS):
            with lock.hold(), lock.hold():
                seen = count[0]
                count[0] = seen + 1

    at_once(*[work] * THREADS)
    assert count == [THREADS * ROUNDS]


def test_no_ring_is_lost_and_none_wakes_twice() -> None:
    bell = Bell()
    left = [ROUNDS] * THREADS

    def ring(number: int) -> None:
        while left[number]:
            left[number] -= 1
            bell.ring()

    def listen() -> None:
        while any(left):
            seen = bell.rings
            if any(left):
                bell.wait(seen, 60)

    at_once(*(lambda number=number: ring(number) for number in range(THREADS)), *[listen] * THREADS)
    assert bell.rings == THREADS * ROUNDS


def test_a_door_lets_one_thread_in_at_a_time() -> None:
    door = Door(BlockingIOError)
    inside = [0]
    most = [0]

    def work() -> None:
        for _ in range(ROUNDS):
            try:
                visit = door.visit()
            except BlockingIOError:
                continue
            with visit:
                inside[0] += 1
                most[0] = max(most[0], inside[0])
                inside[0] -= 1

    at_once(*[work] * THREADS)
    assert most == [1]
    assert door.depth == 0
