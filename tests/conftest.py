"""Brokers that tests share, names that never meet, and the count of behaviours that tests prove."""

import re
import uuid
from collections.abc import Callable, Iterator

import pytest
from hypothesis import settings

from kohort.testing import RealCluster, RealPostgres
from kohort.testing.selection import Broker, any_broker, wanted_version
from kohort.testing.topics import create_topic
from tests.behaviours import BEHAVIOURS

_outcomes: dict[str, bool] = {}

# A test says nothing about how fast the machine is that it runs on.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    """One broker for the whole run, of KOHORT_BROKER_VERSION; see kohort.testing.selection for where it comes from."""
    with any_broker() as chosen:
        yield chosen


@pytest.fixture(scope="session")
def cluster3() -> Iterator[RealCluster]:
    """Three brokers for the whole run. A test that stops one of them starts it again."""
    with RealCluster(3, version=wanted_version()) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def postgres() -> Iterator[RealPostgres]:
    """One PostgreSQL server for the whole run; `postgres.fresh()` is a database of one's own."""
    with RealPostgres() as server:
        yield server


@pytest.fixture
def unique(request: pytest.FixtureRequest) -> Callable[[str], str]:
    """`unique("group")` is a name that no other test and no other run uses."""
    test = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower()).strip("-")[:40]

    def name(prefix: str) -> str:
        return f"{prefix}-{test}-{uuid.uuid4().hex[:8]}"

    return name


@pytest.fixture
def make_topic(broker: Broker, unique: Callable[[str], str]) -> Callable[..., str]:
    """`make_topic(partitions=3)` makes a topic on `broker` and returns its name; takes what create_topic takes."""

    def make(partitions: int = 1, *, config: dict[str, str] | None = None) -> str:
        name = unique("topic")
        create_topic(broker.bootstrap, name, partitions=partitions, config=config)
        return name

    return make


@pytest.fixture
def topic(make_topic: Callable[..., str]) -> str:
    """A fresh topic of three partitions on `broker`."""
    return make_topic(3)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--behaviours", action="store_true", help="list every behaviour that no test proves")
    parser.addoption("--bootstrap", default="", help="the broker that tests/conformance judges, HOST:PORT")
    parser.addoption("--rewrite", action="store_true", help="write what happens now over the transcripts of tests")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    known = frozenset(BEHAVIOURS)
    for item in items:
        item.add_marker(pytest.mark.xdist_group(item.path.parent.name))
        strangers = proves(item) - known
        if strangers:
            raise pytest.UsageError(f"{item.nodeid} proves {sorted(strangers)}, which docs/behaviours.md lacks")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    ids = dict(report.user_properties).get("proves", "")
    if not ids or (report.when != "call" and report.passed):
        return
    for behaviour in str(ids).split():
        _outcomes[behaviour] = _outcomes.get(behaviour, True) and report.passed


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    if ids := proves(item):
        item.user_properties.append(("proves", " ".join(sorted(ids))))


def proves(item: pytest.Item) -> set[str]:
    """The behaviours that a test is marked with."""
    return {str(identity) for mark in item.iter_markers("proves") for identity in mark.args}


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """How many behaviours have a passing test, family by family; the gaps by name with --behaviours."""
    if not _outcomes:
        return
    proven = {behaviour for behaviour, passed in _outcomes.items() if passed}
    terminalreporter.section("behaviours")
    families: dict[str, list[str]] = {}
    for behaviour in BEHAVIOURS:
        families.setdefault(re.sub(r"[-\d]", "", behaviour), []).append(behaviour)
    counts = (f"{name} {len(proven.intersection(ids))}/{len(ids)}" for name, ids in families.items())
    terminalreporter.line(f"proven {len(proven)} of {len(BEHAVIOURS)}: {', '.join(counts)}")
    if config.getoption("--behaviours"):
        for ids in families.values():
            missing = [behaviour for behaviour in ids if behaviour not in proven]
            if missing:
                terminalreporter.line(f"no passing test: {' '.join(missing)}")
