"""`workers.run` with handlers in processes."""

import multiprocessing
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import pytest

from kohort.testing import FakeBroker
from kohort.testing.fake_broker import OffsetState
from kohort.workers import Retry, RunTotals, run
from tests.coordinator_client.consumer_helpers import wait_until
from tests.workers import process_handlers
from tests.workers.test_workers_on_fake import DEAD, GROUP, PATIENCE_S, TOPIC, consumer_of, share, stop_when

QUICK = Retry(attempts=3, delay_s=0.01)


@pytest.fixture
def fake() -> Iterator[FakeBroker]:
    with FakeBroker(topics={TOPIC: 1, DEAD: 1}, versions={"DescribeConfigs": (1, 4)}) as broker:
        broker.configure_group(GROUP, {"share.auto.offset.reset": "earliest"})
        yield broker


def notes(folder: Path) -> list[tuple[int, int]]:
    """(offset, process) of the handlers that have run."""
    return [
        (int(offset), int(process))
        for offset, _, process in (path.name.partition("-") for path in folder.iterdir())
        if offset.isdecimal()
    ]


def fill(fake: FakeBroker, folder: Path, count: int) -> None:
    fake.produce(TOPIC, 0, [(None, os.fsencode(folder))] * count)


def stopped_when(condition: Callable[[], bool]) -> threading.Event:
    stop = threading.Event()
    stop_when(condition, stop)
    return stop


def test_records_are_handled_in_other_processes_and_errors_are_retried(fake: FakeBroker, tmp_path: Path) -> None:
    fill(fake, tmp_path, 6)
    with share(fake) as consumer:
        stop = stopped_when(lambda: fake.share_states(GROUP, TOPIC, 0)[0] == 6)
        totals = run(consumer, process_handlers.fail_first, concurrency=2, processes=True, retry=QUICK, stop=stop)
    assert totals == RunTotals(done=6, retries=6)
    assert sorted(offset for offset, _process in notes(tmp_path)) == list(range(6))
    assert os.getpid() not in {process for _offset, process in notes(tmp_path)}


def test_a_consumer_commits_what_processes_have_done(fake: FakeBroker, tmp_path: Path) -> None:
    fill(fake, tmp_path, 4)
    with consumer_of(fake) as consumer:
        stop = stopped_when(lambda: len(notes(tmp_path)) == 4)
        assert run(consumer, process_handlers.note, concurrency=2, processes=True, stop=stop).done == 4
        assert [one.offset for one in consumer.committed(consumer.assignment).values() if one is not None] == [4]


@pytest.mark.parametrize("stop_timeout_s", [0.0, PATIENCE_S])
def test_no_handler_begins_in_a_process_once_the_run_stops(
    fake: FakeBroker, tmp_path: Path, stop_timeout_s: float
) -> None:
    """The pool takes one call more than it has processes, which its owner cannot cancel any more."""
    fill(fake, tmp_path, 8)
    stop = threading.Event()

    def end() -> None:
        wait_until(lambda: bool(notes(tmp_path)))
        stop.set()
        time.sleep(1)  # the run looks at `stop` meanwhile
        Path(tmp_path, "go").touch()

    handler = process_handlers.wait_for_the_end
    ending = threading.Thread(target=end)
    ending.start()
    with consumer_of(fake) as consumer:
        run(consumer, handler, concurrency=1, processes=True, stop=stop, stop_timeout_s=stop_timeout_s)
    ending.join()
    wait_until(lambda: not multiprocessing.active_children())
    assert [offset for offset, _process in notes(tmp_path)] == [0]


def test_what_a_handler_returns_stays_in_its_process(fake: FakeBroker, tmp_path: Path) -> None:
    fill(fake, tmp_path, 2)
    with share(fake) as consumer:
        stop = stopped_when(lambda: fake.share_states(GROUP, TOPIC, 0)[0] == 2)
        totals = run(consumer, process_handlers.note_and_return_a_lock, concurrency=1, processes=True, stop=stop)
    assert totals == RunTotals(done=2)


def test_a_coroutine_that_a_handler_returns_in_its_process_ends_the_run(fake: FakeBroker, tmp_path: Path) -> None:
    fill(fake, tmp_path, 2)
    stop = stopped_when(lambda: fake.share_states(GROUP, TOPIC, 0)[0] == 2)
    with share(fake) as consumer, pytest.raises(TypeError, match="a coroutine function is not awaited here"):
        run(consumer, process_handlers.return_a_coroutine, concurrency=1, processes=True, retry=QUICK, stop=stop)
    assert fake.share_states(GROUP, TOPIC, 0)[0] == 0


def test_a_handler_that_no_process_can_import_is_refused(fake: FakeBroker) -> None:
    with share(fake) as consumer, pytest.raises(TypeError, match="function of a module"):
        run(consumer, lambda _record: None, processes=True, retry=Retry(attempts=1), stop=stopped_when(lambda: True))


def test_a_process_that_dies_ends_the_run_and_gives_its_records_back(fake: FakeBroker, tmp_path: Path) -> None:
    fill(fake, tmp_path, 4)
    with share(fake) as consumer, pytest.raises(BrokenProcessPool):
        run(consumer, process_handlers.die, concurrency=2, processes=True, stop_timeout_s=PATIENCE_S)
    _start, states = fake.share_states(GROUP, TOPIC, 0)
    assert {state for state, _count in states.values()} == {OffsetState.AVAILABLE}


def test_a_process_that_dies_idle_ends_the_run_and_gives_the_next_record_back(fake: FakeBroker, tmp_path: Path) -> None:
    fill(fake, tmp_path, 1)
    with share(fake) as consumer:
        threading.Thread(target=_fill_once_idle_is_dead, args=(fake, tmp_path), daemon=True).start()
        with pytest.raises(BrokenProcessPool):
            run(consumer, process_handlers.die_idle, concurrency=1, processes=True, stop_timeout_s=3600.0)
    _start, states = fake.share_states(GROUP, TOPIC, 0)
    assert {state for state, _count in states.values()} == {OffsetState.AVAILABLE}


def _fill_once_idle_is_dead(fake: FakeBroker, folder: Path) -> None:
    assert stopped_when(lambda: len(notes(folder)) == 1).wait(PATIENCE_S)
    process = notes(folder)[0][1]
    assert stopped_when(lambda: not _runs(process)).wait(PATIENCE_S)
    fill(fake, folder, 1)


def test_an_error_that_cannot_be_pickled_is_a_failure_of_its_record_only(fake: FakeBroker, tmp_path: Path) -> None:
    fill(fake, tmp_path, 2)
    stop = stopped_when(lambda: fake.end_offset(DEAD, 0) == 2)
    retry = Retry(attempts=1)
    with share(fake) as consumer:
        totals = run(
            consumer, process_handlers.fail_unpicklably, processes=True, retry=retry, dead_letter=DEAD, stop=stop
        )
    assert totals.dead_letters == 2


@pytest.mark.skipif(sys.platform == "win32", reason="kill -9")
def test_processes_end_with_the_one_that_runs_them(fake: FakeBroker, tmp_path: Path) -> None:
    fill(fake, tmp_path, 2)
    program = (
        "from kohort import ShareConsumer, workers\n"
        "from tests.workers.process_handlers import linger\n"
        "if __name__ == '__main__':\n"
        f"    with ShareConsumer({fake.bootstrap!r}, group={GROUP!r}) as consumer:\n"
        f"        consumer.subscribe([{TOPIC!r}])\n"
        "        workers.run(consumer, linger, concurrency=2, processes=True)\n"
    )
    path = tmp_path / "program.py"
    path.write_text(program)
    child = subprocess.Popen([sys.executable, str(path)], env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    assert stopped_when(lambda: len(notes(tmp_path)) == 2).wait(PATIENCE_S)
    child.kill()
    child.wait()
    handlers = {process for _offset, process in notes(tmp_path)}
    assert stopped_when(lambda: not any(_runs(process) for process in handlers)).wait(PATIENCE_S)
    assert not any(_runs(process) for process in handlers)


def _runs(process: int) -> bool:
    """True if it exists, and is no zombie that an init process has not collected yet."""
    status = Path(f"/proc/{process}/stat")
    if not Path("/proc").exists():
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return False
        return True
    return status.exists() and status.read_text().rpartition(")")[2].split()[0] != "Z"
