"""One broker for all workers of a run: started once, at the first request, by the process that ends last."""

import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Client

import pytest

from kohort.testing.errors import BrokerStartError
from tests import side_by_side
from tests.side_by_side import BROKER, GroupScheduling, RunServer, send_groups
from tests.support.broker_selection import NamedBroker, SelectedBroker


class Brokers:
    """Stands for any_broker: counts starts and stops, and can refuse."""

    def __init__(self) -> None:
        self.started = self.stopped = 0
        self.refusal: Exception | None = None

    @contextmanager
    def __call__(self) -> Iterator[SelectedBroker]:
        if self.refusal:
            raise self.refusal
        self.started += 1
        yield NamedBroker(f"h:{self.started}", "9.9.9")
        self.stopped += 1


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> Brokers:
    brokers = Brokers()
    monkeypatch.setattr(side_by_side, "any_broker", brokers)
    return brokers


@pytest.fixture
def server(brokers: Brokers) -> Iterator[RunServer]:
    server = RunServer()
    yield server
    server.close()


def requested(server: RunServer) -> tuple[str, str]:
    with side_by_side.shared_broker(server.address) as broker:
        return broker.bootstrap, broker.version


def test_many_workers_get_one_broker_which_ends_with_the_server(server: RunServer, brokers: Brokers) -> None:
    assert brokers.started == 0
    found: list[tuple[str, str]] = []
    threads = [threading.Thread(target=lambda: found.append(requested(server))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [("h:1", "9.9.9")] * 8
    assert (brokers.started, brokers.stopped) == (1, 0)
    server.close()
    server.close()
    assert brokers.stopped == 1


def test_a_run_without_requests_starts_and_stops_nothing(server: RunServer, brokers: Brokers) -> None:
    server.close()
    assert (brokers.started, brokers.stopped) == (0, 0)


@pytest.mark.parametrize(
    "refusal", [BrokerStartError("no Java here"), OSError("no Java here"), KeyError("no Java here")]
)
def test_why_no_broker_started_reaches_the_worker_and_the_next_request_tries_again(
    server: RunServer, brokers: Brokers, refusal: Exception
) -> None:
    brokers.refusal = refusal
    with pytest.raises(BrokerStartError, match=f"{type(refusal).__name__}: .*no Java here"):
        requested(server)
    brokers.refusal = None
    assert requested(server) == ("h:1", "9.9.9")


def test_a_worker_that_dies_before_its_response_stops_nothing(server: RunServer) -> None:
    for _ in range(3):
        Client(server.address, "AF_UNIX").close()
        with Client(server.address, "AF_UNIX") as worker:
            worker.send((BROKER, None))
    assert requested(server) == ("h:1", "9.9.9")


def test_groups_of_all_workers_reach_the_scheduler(server: RunServer) -> None:
    send_groups(server.address, {"a.py::x": "java", "b.py::y": "java"})
    send_groups(server.address, {"a.py::x": "java", "c.py::z": "c.py"})
    scheduler = GroupScheduling.__new__(GroupScheduling)
    scheduler._server = server
    assert [scheduler._split_scope(one) for one in ("a.py::x", "b.py::y", "c.py::z", "d.py::alone")] == [
        "java",
        "java",
        "c.py",
        "d.py::alone",
    ]


class Worker:
    """Stands for a worker of pytest-xdist: takes the numbers of tests to run."""

    shutting_down = False

    def __init__(self) -> None:
        self.sent: list[int] = []

    def send_runtest_some(self, numbers: list[int]) -> None:
        self.sent += numbers


def test_a_unit_leaves_the_scheduler_with_its_last_test(server: RunServer, pytestconfig: pytest.Config) -> None:
    tests = ["a.py::x", "a.py::y", *(f"b.py::{number}" for number in range(9))]
    send_groups(server.address, {"a.py::x": "a.py", "a.py::y": "a.py"})
    scheduler = GroupScheduling.__new__(GroupScheduling)
    scheduler._server, scheduler.log = server, lambda *_: None
    worker = Worker()
    scheduler.registered_collections, scheduler.assigned_work = {worker: tests}, {worker: {}}
    scheduler.workqueue = OrderedDict({test: {test: False} for test in tests[2:]})
    scheduler.workqueue["a.py"] = {"a.py::x": False, "a.py::y": False}
    scheduler.workqueue.move_to_end("a.py", last=False)
    scheduler._assign_work_unit(worker)
    scheduler.mark_test_complete(worker, 0)
    assert scheduler.assigned_work[worker]["a.py"] == {"a.py::x": True, "a.py::y": False}
    scheduler.mark_test_complete(worker, 1)
    assert "a.py" not in scheduler.assigned_work[worker]
    for number in range(2, len(tests) - 2):
        scheduler.mark_test_complete(worker, number)
    assert worker.sent == list(range(len(tests)))
    assert len(scheduler.assigned_work[worker]) == 2
