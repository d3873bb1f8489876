"""Jobs that a client hands to its driver: they run one at a time on another thread, and end under the lock."""

import threading
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from kohort.admin.admin_config import AdminConfig
from kohort.admin.admin_core import AdminCore
from kohort.network.network_client import Driver
from kohort.network.requests import BackgroundJob, PollResult
from tests.coordinator_client.consumer_helpers import PATIENCE_S


class Core(AdminCore):
    """Returns a job from each poll, while there are any."""

    def __init__(self, *, chance: Callable[[], float], started: float) -> None:
        super().__init__(AdminConfig.of(bootstrap="127.0.0.1:1"), chance=chance, started=started)
        self.jobs: deque[BackgroundJob] = deque()

    def poll(self, now: float, wall_ms: int) -> PollResult:
        return PollResult((), None, self.jobs.popleft() if self.jobs else None)


class Work:
    """Jobs that wait until they may end. `done`: their results, with whether the lock was held."""

    def __init__(self, driver: Driver[Core]) -> None:
        self.driver = driver
        self.began: deque[str] = deque()
        self.begins = threading.Semaphore(0)
        self.may_end = threading.Semaphore(0)
        self.ended = threading.Semaphore(0)
        self.done: list[tuple[str, bool]] = []
        self.threads: set[str] = set()

    def hand_in(self, name: str) -> None:
        job = BackgroundJob("job", partial(self._run, name), self._end)
        self.driver.execute(lambda core: core.jobs.append(job))

    def _run(self, name: str) -> str:
        self.threads.add(threading.current_thread().name)
        self.began.append(name)
        self.begins.release()
        assert self.may_end.acquire(timeout=PATIENCE_S)
        return name

    def _end(self, result: str) -> None:
        self.done.append((result, self.driver.lock.owned))
        self.ended.release()


@pytest.fixture
def work() -> Iterator[Work]:
    config = AdminConfig.of(bootstrap="127.0.0.1:1")
    driver = Driver(config, Core)
    driver.start()
    yield Work(driver)
    driver.stop(PATIENCE_S)


def test_a_job_runs_on_its_own_thread_and_its_result_comes_under_the_lock(work: Work) -> None:
    work.hand_in("one")
    assert work.begins.acquire(timeout=PATIENCE_S)
    assert work.driver.execute(lambda _core: True), "the driver goes on meanwhile"
    work.may_end.release()
    assert work.ended.acquire(timeout=PATIENCE_S)
    assert (work.done, work.threads) == ([("one", True)], {"job"})


def test_a_job_that_a_newer_one_replaced_before_it_began_does_not_run(work: Work) -> None:
    work.hand_in("one")
    assert work.begins.acquire(timeout=PATIENCE_S)
    work.hand_in("two")
    work.hand_in("three")
    work.driver.execute(lambda _core: None)
    work.may_end.release()
    assert work.begins.acquire(timeout=PATIENCE_S)
    work.may_end.release()
    assert work.ended.acquire(timeout=PATIENCE_S)
    assert work.ended.acquire(timeout=PATIENCE_S)
    assert list(work.began) == ["one", "three"]
    assert [name for name, _held in work.done] == ["one", "three"]
