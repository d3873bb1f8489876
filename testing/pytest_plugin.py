"""Fixtures for pytest: brokers and faults, for tests of any Kafka client.

pytest loads this module in every run once kohort is installed. So it loads nothing else before a fixture is used.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from kohort.testing.fake_broker import FakeBroker
    from kohort.testing.fault_proxy import FaultProxy
    from kohort.testing.real_broker import RealBroker, RealCluster

VERSION = "kohort_broker_version"
TOPICS = "kohort_topics"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini(VERSION, "version of Apache Kafka for kohort_broker and kohort_cluster; default: the newest known")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", f"{TOPICS}(**partitions): topics of kohort_fake_broker, with their partitions")


@pytest.fixture
def kohort_fake_broker(request: pytest.FixtureRequest) -> "Iterator[FakeBroker]":
    """A broker in memory, new for each test, with the topics of the marker `kohort_topics`."""
    from kohort.testing.fake_broker import FakeBroker

    marker = request.node.get_closest_marker(TOPICS)
    with FakeBroker(topics=marker.kwargs if marker else None) as broker:
        yield broker


@pytest.fixture
def kohort_faults(kohort_fake_broker: "FakeBroker") -> "Iterator[FaultProxy]":
    """A proxy before `kohort_fake_broker`. Clients connect to its `address`, and `add` lays faults on their frames."""
    from kohort.testing.fault_proxy import FaultProxy

    with FaultProxy(kohort_fake_broker.bootstrap) as proxy:
        kohort_fake_broker.advertise(1, "127.0.0.1", proxy.port)
        yield proxy


@pytest.fixture(scope="session")
def kohort_broker(pytestconfig: pytest.Config) -> "Iterator[RealBroker]":
    """One Apache Kafka for the whole run. Needs a JDK 17 or newer."""
    from kohort.testing.jars import DEFAULT_VERSION
    from kohort.testing.real_broker import RealBroker

    with RealBroker(version=pytestconfig.getini(VERSION) or DEFAULT_VERSION) as broker:
        yield broker


@pytest.fixture(scope="session")
def kohort_cluster(pytestconfig: pytest.Config) -> "Iterator[RealCluster]":
    """Three brokers of Apache Kafka for the whole run. A test that stops one of them starts it again."""
    from kohort.testing.jars import DEFAULT_VERSION
    from kohort.testing.real_broker import RealCluster

    with RealCluster(3, version=pytestconfig.getini(VERSION) or DEFAULT_VERSION) as cluster:
        yield cluster
