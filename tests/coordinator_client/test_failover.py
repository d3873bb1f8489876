"""The broker that coordinates a group, and leads part of what it reads, is killed: the group must not notice."""

import pytest

from benchmarks.failover import PARTITIONS, fail_over
from kohort.coordinator_client.consumer_settings import GroupProtocol
from kohort.testing import RealCluster
from tests.coordinator_client.group.test_consumer_group import PROTOCOLS


@pytest.mark.broker
@pytest.mark.proves("F-05", "F-06", "F-07", "G-12", "B-27")
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_killed_coordinator_costs_no_rebalance_no_commit_and_no_record(
    cluster3: RealCluster, protocol: GroupProtocol
) -> None:
    try:
        seen = fail_over(cluster3, protocol)  # which waits until every partition is read, and the group commits, again
    finally:
        cluster3.start()
    assert seen.errors == ()
    assert seen.rebalances == 0
    assert seen.lost_commits == 0
    assert seen.partitions_read == PARTITIONS
    assert seen.repeated == 0
