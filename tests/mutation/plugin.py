"""A pytest plugin (`-p tests.mutation.plugin`): writes how long each test took, or runs chosen tests in their order."""

import json
from collections import defaultdict
from pathlib import Path

import pytest

_took: defaultdict[str, float] = defaultdict(float)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--durations-to", default="", help="a file for the seconds of each test, as JSON")
    parser.addoption("--chosen", default="", help="a file with ids of tests, as JSON: these run, in this order")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _took[report.nodeid] += report.duration


def pytest_sessionfinish(session: pytest.Session) -> None:
    path = session.config.getoption("--durations-to")
    if path and not hasattr(session.config, "workerinput"):
        Path(path).write_text(json.dumps(_took))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if path := config.getoption("--chosen"):
        by_id = {item.nodeid: item for item in items}
        items[:] = [by_id[name] for name in json.loads(Path(path).read_text())]
