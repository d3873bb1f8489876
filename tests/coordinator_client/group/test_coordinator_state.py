"""The partition, and so the broker, that coordinates a group; and the time-outs of the search for it."""

import itertools
import time
from collections.abc import Callable

import pytest

from kohort.common.state_table import IllegalTransition
from kohort.coordinator_client import Consumer
from kohort.coordinator_client.group.member_context import CoordinatorSearch
from kohort.coordinator_client.group.member_timers import MemberSettings
from kohort.coordinator_client.group.states import CoordinatorState
from kohort.network.find_coordinator import CoordinatorNode, coordinator_partition
from kohort.network.requests import Endpoint
from kohort.protocol.apis.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from kohort.protocol.catalogue import API
from kohort.testing import RealCluster
from kohort.testing.plain_wire import send
from tests.coordinator_client.consumer_helpers import node_at, poll_until

ONE = CoordinatorNode(1, Endpoint("one", 9092))


@pytest.mark.proves("G-01")
@pytest.mark.parametrize(
    ("group", "hash_code"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99_162_322),
        ("Aa", 2_112),
        ("BB", 2_112),
        ("\N{GRINNING FACE}", 31 * 0xD83D + 0xDE00),
        ("polygenelubricants", -2_147_483_648),
        ("zzzzzz", -685_785_664),
    ],
)
def test_the_partition_of_a_group_is_javas_hash_of_its_name(group: str, hash_code: int) -> None:
    expected = 0 if hash_code == -(2**31) else abs(hash_code)
    for partitions in (1, 50, 53, 1 << 32):
        assert coordinator_partition(group, partitions) == expected % partitions


@pytest.mark.broker
@pytest.mark.proves("G-01", "G-02")
def test_the_leader_of_that_partition_is_the_coordinator_the_brokers_name(
    cluster3: RealCluster, unique: Callable[[str], str]
) -> None:
    leaders = _leaders(cluster3, unique("group"))
    for partition, leader in leaders.items():
        names = (f"{unique('group')}-{number}" for number in itertools.count())
        group = next(name for name in names if coordinator_partition(name, len(leaders)) == partition)
        assert _coordinator(cluster3, group) == leader


def _coordinator(cluster: RealCluster, group: str) -> int:
    with Consumer(cluster.bootstrap, group=group) as consumer:
        consumer.subscribe(["no-such-topic-yet"])
        poll_until(consumer, lambda: consumer.health().coordinator is not None)
        return node_at(cluster, consumer.health().coordinator).node_id


def _leaders(cluster: RealCluster, group: str) -> dict[int, int]:
    """The leader of each partition of the offsets topic, which a first search of a coordinator creates."""
    _coordinator(cluster, group)
    deadline = time.monotonic() + 120
    while not (response := _offsets_topic(cluster)).topics[0].partitions:
        assert time.monotonic() < deadline, "the first node does not know the offsets topic"
        time.sleep(0.05)
    return {each.partition_index: each.leader_id for each in response.topics[0].partitions}


def _offsets_topic(cluster: RealCluster) -> MetadataResponse:
    request = MetadataRequest(
        topics=(MetadataRequestTopic(name="__consumer_offsets"),),
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=False,
    )
    body = API["Metadata"].request.build(request, 8)
    response = API["Metadata"].response.parse(send(cluster.nodes[0].bootstrap, 3, 8, body, timeout_s=10), 8)
    assert isinstance(response, MetadataResponse)
    return response


@pytest.mark.proves("F-05", "B-27")
def test_the_first_search_after_good_times_starts_at_once_and_only_a_response_from_it_ends_bad_ones() -> None:
    search = CoordinatorSearch(MemberSettings(group_id="g", retry_backoff_ms=100, retry_backoff_ms_max=1_000))
    search.requested()
    search.found(ONE)
    search.gone(10.0)
    assert search.due(10.0)
    waits = []
    for _ in range(6):
        search.requested()
        search.found(ONE)
        search.gone(10.0)
        waits.append(search.retry_at - 10.0)
    assert waits == sorted(waits)
    assert waits[0] == pytest.approx(0.1)
    assert waits[-1] == pytest.approx(1.0)
    search.requested()
    search.found(ONE)
    search.proved()
    search.gone(20.0)
    assert search.due(20.0)


def test_what_cannot_happen_to_a_search_is_refused() -> None:
    search = CoordinatorSearch(MemberSettings(group_id="g"))
    with pytest.raises(IllegalTransition):
        search.gone(1.0)
    with pytest.raises(IllegalTransition):
        search.found(ONE)
    assert search.state is CoordinatorState.UNKNOWN
