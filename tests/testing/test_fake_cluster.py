"""Topics of the fake's cluster by id."""

from collections.abc import Iterator
from uuid import UUID

import pytest

from kohort.testing.fake_broker.cluster import Address, FakeCluster, FakeTopic


class Unwalked(dict[str, FakeTopic]):
    """Topics that are looked up by name only: a request of all topics would else cost in proportion to their square."""

    def __iter__(self) -> Iterator[str]:
        raise AssertionError("all topics were walked")

    items = values = keys = __iter__  # type: ignore[assignment]


@pytest.fixture
def cluster() -> FakeCluster:
    made = FakeCluster(None)
    made.addresses[1] = Address("127.0.0.1", 9092)
    return made


def test_a_topic_is_found_by_its_id_without_a_walk_over_all(cluster: FakeCluster) -> None:
    cluster.topics = Unwalked()
    made = [cluster.create_topic(f"t{number}", 1) for number in range(20)]
    assert [cluster.topic_by_id(one.topic_id) for one in made] == made


def test_no_topic_has_the_id_of_one_that_is_gone(cluster: FakeCluster) -> None:
    first = cluster.create_topic("t", 1)
    del cluster.topics["t"]
    assert cluster.topic_by_id(first.topic_id) is None
    second = cluster.create_topic("t", 1)
    assert cluster.topic_by_id(first.topic_id) is None
    assert cluster.topic_by_id(second.topic_id) is second
    assert cluster.topic_by_id(UUID(int=0)) is None


def test_ids_repeat_from_run_to_run(cluster: FakeCluster) -> None:
    other = FakeCluster(None)
    other.addresses[1] = Address("127.0.0.1", 9092)
    assert [cluster.create_topic("t", 1).topic_id for _ in range(2)] == [
        other.create_topic("t", 1).topic_id for _ in range(2)
    ]
