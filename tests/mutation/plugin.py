"""A pytest plugin (`-p tests.mutation.plugin`): writes how long each test took, runs chosen tests in their order, or
waits for mutants (see warm.py).

A chosen test that fails is run once more, since a busy machine must not count as a test that notices a mutant.
"""

import json
from collections import defaultdict
from pathlib import Path

import pytest
from _pytest.runner import runtestprotocol

_took: defaultdict[str, float] = defaultdict(float)
_failed: set[str] = set()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--durations-to", default="", help="a file for the seconds of each test that passes")
    parser.addoption("--chosen", default="", help="a file with ids of tests, as JSON: these run, in this order")
    parser.addoption("--warm", default="", help="two descriptors, of requests and of responses")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _took[report.nodeid] += report.duration
    if report.failed:
        _failed.add(report.nodeid)


def pytest_sessionfinish(session: pytest.Session) -> None:
    path = session.config.getoption("--durations-to")
    if path and not hasattr(session.config, "workerinput"):
        Path(path).write_text(json.dumps({test: took for test, took in _took.items() if test not in _failed}))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if path := config.getoption("--chosen"):
        by_id = {item.nodeid: item for item in items}
        items[:] = [by_id[name] for name in json.loads(Path(path).read_text())]


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    if not (descriptors := session.config.getoption("--warm")):
        return None
    if session.testsfailed:
        raise session.Interrupted(f"{session.testsfailed} errors while tests were collected")
    from tests.mutation.warm import serve

    serve(session, *map(int, descriptors.split(",")))
    return True


def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    if not (item.config.getoption("--chosen") or item.config.getoption("--warm")):
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    reports = runtestprotocol(item, nextitem=nextitem, log=False)
    if any(report.failed for report in reports):
        item._initrequest()  # type: ignore[attr-defined]  # a function's fixtures are made again
        reports = runtestprotocol(item, nextitem=nextitem, log=False)
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True
