"""Admin.describe_streams_group of a group whose member is scripted, on the fake broker and on a real one."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from kohort import Admin
from kohort.admin import GroupMissing
from kohort.admin.streams_groups import Task
from kohort.protocol.apis.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    Subtopology,
    TaskIds,
    TopicInfo,
    Topology,
)
from kohort.testing import FakeBroker
from tests.support.broker_selection import SelectedBroker
from tests.testing.group_client import Connection

PATIENCE_S = 60.0


class Member:
    """A scripted member of a streams group, which reads one topic with a store."""

    def __init__(self, address: str, group: str, topic: str, changelog: str) -> None:
        self.connection = Connection(address, "streamer")
        self.group = group
        store = TopicInfo(name=changelog, partitions=0, replication_factor=1, topic_configs=())
        part = Subtopology(
            subtopology_id="0",
            source_topics=(topic,),
            source_topic_regex=(),
            state_changelog_topics=(store,),
            repartition_sink_topics=(),
            repartition_source_topics=(),
            copartition_groups=(),
        )
        self.topology = Topology(epoch=3, subtopologies=(part,))
        self.epoch = 0
        self.active: tuple[TaskIds, ...] = ()

    def beat(self, **fields: Any) -> StreamsGroupHeartbeatResponse:
        request = StreamsGroupHeartbeatRequest(
            group_id=self.group,
            member_id="member-1",
            member_epoch=self.epoch,
            endpoint_information_epoch=0,
            **({"active_tasks": self.active, "standby_tasks": (), "warmup_tasks": ()} | fields),
        )
        response: StreamsGroupHeartbeatResponse = self.connection.request("StreamsGroupHeartbeat", request)
        assert response.error_code == 0, response
        self.epoch = response.member_epoch
        if response.active_tasks is not None:
            self.active = response.active_tasks
        return response

    def join(self) -> None:
        """Join, and send heartbeats until there are tasks."""
        self.beat(topology=self.topology, rebalance_timeout_ms=60_000, process_id="process-1")
        until = time.monotonic() + PATIENCE_S
        while not self.active:
            assert time.monotonic() < until
            time.sleep(0.1)
            self.beat()
        self.beat()


def described(address: str, group: str, topic: str, changelog: str) -> None:
    """A group of one member is described as it is; then it is Empty; then it is missing."""
    with Admin(address) as admin:
        with pytest.raises(GroupMissing):
            admin.describe_streams_group(group)
        member = Member(address, group, topic, changelog)
        member.join()
        found = admin.describe_streams_group(group)
        assert (found.group, found.state, found.topology_epoch) == (group, "Stable", 3)
        assert found.epoch == found.assignment_epoch == member.epoch
        (part,) = found.subtopologies
        assert (part.subtopology, part.source_topics, part.changelogs) == ("0", (topic,), (changelog,))
        (one,) = found.members
        assert (one.member_id, one.client_id, one.process_id) == ("member-1", "streamer", "process-1")
        assert one.active == one.target == {Task("0", 0), Task("0", 1)}
        assert (one.epoch, one.topology_epoch, one.standby) == (member.epoch, 3, frozenset())
        assert [listed.group for listed in admin.list_groups() if listed.group == group] == [group]
        member.epoch = -1
        member.beat(active_tasks=None, standby_tasks=None, warmup_tasks=None)
        assert admin.describe_streams_group(group).state == "Empty"
        admin.delete_groups(group)
        with pytest.raises(GroupMissing):
            admin.describe_streams_group(group)


def test_a_streams_group_of_the_fake_broker_is_described() -> None:
    with FakeBroker(topics={"source": 2}) as fake:
        described(fake.bootstrap, "streams", "source", "store-changelog")
        assert fake.end_offset("store-changelog", 1) == 0


@pytest.mark.broker
def test_a_streams_group_of_a_real_broker_is_described(
    broker: SelectedBroker, make_topic: Callable[..., str], unique: Callable[[str], str]
) -> None:
    if broker.version < "4.2":
        pytest.skip("streams groups are off in brokers before 4.2")
    described(broker.bootstrap, unique("streams"), make_topic(partitions=2), unique("changelog"))
