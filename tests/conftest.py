"""Brokers that tests share, names that never meet, groups of tests for a worker each, and the count of behaviours."""

import gc
import re
import signal
import tomllib
import uuid
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from kohort.testing import RealCluster, RealPostgres
from kohort.testing.topics import create_topic
from tests.behaviours import BEHAVIOURS
from tests.support.broker_selection import SelectedBroker, any_broker, wanted_version

SERVERS = ("cluster3", "spark", "postgres", "java")
"""Session fixtures that start a server. Tests of one of them share a worker, so that one such server is started."""
SLOW: dict[str, dict[str, Any]] = {
    test: about
    for group in tomllib.loads(Path(__file__).with_name("slow.toml").read_text()).values()
    for test, about in group.items()
}
SLOWEST_SHOWN, LEAST_SHOWN_S = 20, 10.0
_outcomes: dict[str, bool] = {}
_seconds: dict[str, float] = {}
_server = pytest.StashKey[Any]()

# A test says nothing about how fast the machine is that it runs on.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")


@pytest.fixture(scope="session")
def broker(pytestconfig: pytest.Config) -> Iterator[SelectedBroker]:
    """One broker of KOHORT_BROKER_VERSION for all workers of the run; tests.support.broker_selection chooses its
    source."""
    if server := getattr(pytestconfig, "workerinput", {}).get("server"):
        from tests.side_by_side import shared_broker

        with shared_broker(server) as shared:
            yield shared
        return
    with any_broker() as chosen:
        yield chosen


@pytest.fixture(scope="session")
def cluster3() -> Iterator[RealCluster]:
    """Three brokers for the whole run, for one test at a time. A test that stops one of them starts it again."""
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
def make_topic(broker: SelectedBroker, unique: Callable[[str], str]) -> Callable[..., str]:
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
    parser.addoption("--full", action="store_true", help="also the tests that are marked full, as make test-all does")
    parser.addoption("--rewrite", action="store_true", help="write what happens now over the transcripts of tests")


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Each worker gets the address of the controller's server."""
    from tests.side_by_side import RunServer

    if _server not in node.config.stash:
        node.config.stash[_server] = RunServer()
    node.workerinput["server"] = node.config.stash[_server].address


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """`--dist loadgroup` keeps the groups of this suite together."""
    from tests.side_by_side import GroupScheduling

    return GroupScheduling(config, log, config.stash[_server]) if config.getoption("dist") == "loadgroup" else None


def pytest_configure() -> None:
    """Programs that tests start take Ctrl-C, though a shell that starts a run in the background has it ignored."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_unconfigure(config: pytest.Config) -> None:
    if _server in config.stash:
        config.stash[_server].close()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """The half a million objects of a collection live to the end of the run: garbage is searched without them."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--full"):
        left_out = [item for item in items if item.get_closest_marker("full")]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("full")]
    known = frozenset(BEHAVIOURS)
    for item in items:
        if strangers := proves(item) - known:
            raise pytest.UsageError(f"{item.nodeid} proves {sorted(strangers)}, which docs/behaviours.md lacks")
    if server := getattr(config, "workerinput", {}).get("server"):
        from tests.side_by_side import send_groups

        send_groups(server, arranged(items))


def arranged(items: list[pytest.Item]) -> dict[str, str]:
    """The group of each test that has one, by id. Sorts `items`, the slowest group by slow.toml first: a slow test that
    starts last runs alone."""
    groups = {item.nodeid: name for item in items if (name := _group(item))}
    seconds: dict[str, float] = {}
    for item in items:
        name = groups.get(item.nodeid, item.nodeid)
        seconds[name] = seconds.get(name, 0.0) + _slow(item.nodeid).get("s", 0.0)
    items.sort(key=lambda item: -seconds[groups.get(item.nodeid, item.nodeid)])
    return groups


def _group(item: pytest.Item) -> str | None:
    """The server that the test shares with others, or its file where the fixtures of the file are shared."""
    fixtures: dict[str, Any] = getattr(getattr(item, "_fixtureinfo", None), "name2fixturedefs", {})
    server = next((name for name in SERVERS if name in fixtures), None)
    if server or not any(found[-1].scope == "module" for found in fixtures.values()):
        return server
    return item.path.name


def _slow(test: str) -> dict[str, Any]:
    """The line of slow.toml about a test: `s`, seconds on two quiet cores, and `waits`, their reason."""
    return SLOW.get(test.partition("[")[0].rpartition("/")[2], {})


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _seconds[report.nodeid] = _seconds.get(report.nodeid, 0.0) + report.duration
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
    """The slowest tests with their reasons, the blocks of pages that ran, and the number of proven behaviours."""
    slowest = sorted(_seconds, key=lambda test: -_seconds[test])[:SLOWEST_SHOWN]
    if shown := [test for test in slowest if _seconds[test] >= LEAST_SHOWN_S]:
        terminalreporter.section("slowest tests and what they wait for")
        for test in shown:
            terminalreporter.line(
                f"{_seconds[test]:6.1f} s  {test}: {_slow(test).get('waits', 'not in tests/slow.toml')}"
            )
    pages = [
        blocks
        for report in terminalreporter.getreports("passed")
        if (blocks := dict(report.user_properties).get("blocks"))
    ]
    if pages:
        ran, needing = map(sum, zip(*pages, strict=True))
        terminalreporter.section("blocks of the documentation")
        terminalreporter.line(f"{len(pages)} pages: {ran} blocks ran, {needing} need what no test has")
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
