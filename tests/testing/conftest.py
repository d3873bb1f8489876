"""The brokers of scenarios in which the fake and a real broker must respond alike."""

from collections.abc import Callable, Iterator

import pytest

from kohort.testing.fake_broker import FakeBroker
from tests.testing.group_client import Stage


@pytest.fixture(params=["fake", pytest.param("real", marks=pytest.mark.broker)])
def stage(request: pytest.FixtureRequest, unique: Callable[[str], str]) -> Iterator[Stage]:
    """A topic of three partitions and a group that no other test uses."""
    if request.param == "fake":
        with FakeBroker(topics={"topic": 3}) as fake:
            yield Stage(fake.bootstrap, "topic", "group")
            assert fake.faults == []
    else:
        make_topic = request.getfixturevalue("make_topic")
        yield Stage(request.getfixturevalue("broker").bootstrap, make_topic(3), unique("group"))
