"""Groups, offsets and topics from outside, on a real broker."""

import time
from collections.abc import Callable

import pytest

from kohort.admin import Admin, GroupMissing, GroupNotEmpty
from kohort.common import KohortError, TopicPartition
from kohort.coordinator_client import Consumer
from kohort.coordinator_client.consumer_settings import GroupProtocol
from kohort.network.errors import ConnectionFailed, UnknownTopic
from kohort.network.requests import Endpoint
from tests.coordinator_client.consumer_helpers import numbers, poll_until, produce
from tests.coordinator_client.group.test_consumer_group import PROTOCOLS
from tests.interrupts import until
from tests.support.broker_selection import SelectedBroker

pytestmark = pytest.mark.broker
Name = Callable[[str], str]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_group_is_listed_described_moved_and_deleted(
    protocol: GroupProtocol, broker: SelectedBroker, topic: str, unique: Name
) -> None:
    group, tp = unique("group"), TopicPartition(topic, 1)
    produce(broker.bootstrap, topic, numbers(0, 20), partition=1)
    with Admin(broker.bootstrap) as admin:
        with Consumer(broker.bootstrap, group=group, protocol=protocol, client_id="reader") as consumer:
            consumer.subscribe([topic])
            poll_until(consumer, lambda: len(consumer.assignment) == 3)
            consumer.commit({tp: 15})
            listed = next(one for one in admin.list_groups() if one.group == group)
            assert (listed.protocol_type, listed.state) == ("consumer", "Stable")
            described = admin.describe_group(group)
            assert (described.type, described.state) == (protocol, "Stable")
            (member,) = described.members
            assert (member.client_id, member.host) == ("reader", "127.0.0.1")
            assert member.member_id == consumer.group_metadata().member_id
            assert member.owned == consumer.assignment
            assert [(one.partition, one.committed, one.end, one.lag) for one in admin.lag(group)] == [(tp, 15, 20, 5)]
            with pytest.raises(GroupNotEmpty):
                admin.reset_offsets(group, {tp: 3})
            with pytest.raises(GroupNotEmpty):
                admin.delete_groups(group)
        planned = admin.reset_offsets(group, {tp: 3}, dry_run=True)
        assert [(one.before, one.after) for one in planned] == [(15, 3)]
        assert admin.committed(group)[tp].offset == 15
        admin.reset_offsets(group, {tp: 1000, TopicPartition(topic, 0): -7})  # into the log
        assert {one: at.offset for one, at in admin.committed(group).items()} == {tp: 20, TopicPartition(topic, 0): 0}
        admin.delete_groups(group)
        with pytest.raises(GroupMissing, match=group):
            admin.describe_group(group)
        assert admin.committed(group) == {}


def test_the_group_without_a_name_is_one_of_the_groups(broker: SelectedBroker, topic: str) -> None:
    with Admin(broker.bootstrap) as admin:
        admin.reset_offsets("", {TopicPartition(topic, 0): 0})
        assert "" in {one.group for one in admin.list_groups()}
        described = admin.describe_group("")
        assert (described.type, described.state, described.members) == ("classic", "Empty", ())
        admin.delete_groups("")
        for describe in (admin.describe_group, admin.describe_streams_group):
            with pytest.raises(GroupMissing):
                describe("")


def test_a_static_member_is_removed_by_its_name_and_is_fenced(broker: SelectedBroker, topic: str, unique: Name) -> None:
    group = unique("group")
    with (
        Admin(broker.bootstrap) as admin,
        Consumer(broker.bootstrap, group=group, group_instance_id="i-1", heartbeat_interval_ms=200) as consumer,
    ):
        consumer.subscribe([topic])
        poll_until(consumer, lambda: len(consumer.assignment) == 3)
        with pytest.raises(KohortError, match="i-2"):
            admin.remove_members(group, ["i-2"])
        (gone,) = admin.remove_members(group, ["i-1"])
        assert gone.instance_id == "i-1"
        poll_until(consumer, lambda: len(consumer.timeline()) > 1)  # it gets the error, and joins again


def test_topics_are_made_described_and_deleted(broker: SelectedBroker, unique: Name) -> None:
    topic = unique("topic")
    with Admin(broker.bootstrap) as admin:
        admin.create_topic(topic, partitions=2, configs={"retention.ms": "60000"})
        with pytest.raises(KohortError, match="there already"):
            admin.create_topic(topic)
        found = admin.describe_topic(topic)
        assert [one.partition for one in found.partitions] == [0, 1]
        assert all(one.leader in one.in_sync for one in found.partitions)
        assert found.configs == {"retention.ms": "60000"}
        assert topic in {one.topic for one in admin.list_topics()}
        assert not any(one.internal for one in admin.list_topics())
        admin.delete_topics(topic)
        with pytest.raises(UnknownTopic):
            admin.delete_topics(topic)
        # The broker learns of it after the controller.
        until(lambda: topic not in {one.topic for one in admin.list_topics()}, lambda: time.sleep(0.05))
        with pytest.raises(UnknownTopic):
            admin.describe_topic(topic)


def test_offsets_by_time(broker: SelectedBroker, topic: str) -> None:
    tp = TopicPartition(topic, 0)
    produce(broker.bootstrap, topic, numbers(0, 3))
    with Admin(broker.bootstrap) as admin:
        assert admin.offsets_at({tp: 0, TopicPartition(topic, 1): 0}) == {tp: 0, TopicPartition(topic, 1): -1}
        assert (admin.first_offsets([tp]), admin.end_offsets([tp])) == ({tp: 0}, {tp: 3})
        with pytest.raises(KohortError, match="no such partition"):
            admin.reset_offsets("g", {TopicPartition(topic, 99): 0})


def test_settings_versions_rights_and_the_newest_record(broker: SelectedBroker, topic: str) -> None:
    p0 = TopicPartition(topic, 0)
    produce(broker.bootstrap, topic, numbers(0, 1))
    with Admin(broker.bootstrap) as admin:
        nodes = admin.brokers()
        assert nodes[0].address in admin._driver.config.bootstrap
        reported = admin.broker_configs(nodes, ["group.max.session.timeout.ms", "no.such.setting"])
        assert {found["group.max.session.timeout.ms"] for found in reported.values()} == {"1800000"}
        assert all("no.such.setting" not in found for found in reported.values())
        assert all(ranges[18][1] >= 3 for ranges in admin.versions(nodes).values())
        assert admin.topic_configs([topic])[topic]["min.insync.replicas"] == "1"
        found = admin.describe_topics([topic, f"{topic}-nowhere"])
        assert isinstance(found[f"{topic}-nowhere"], UnknownTopic)
        assert "READ" in (getattr(found[topic], "allowed", None) or ())
        newest = admin.newest_ms([p0, TopicPartition(topic, 1)])
        assert newest.keys() == {p0}
        assert abs(newest[p0] - time.time() * 1000) < 600_000


def test_another_broker_gets_the_request_if_one_cannot_be_reached(
    broker: SelectedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    nowhere = Endpoint("127.0.0.1", 1)
    monkeypatch.setattr("kohort.network.network_client.chance", lambda: 0.5)  # among equals, the first gets the request
    with Admin([str(nowhere), broker.bootstrap]) as admin:
        assert admin.brokers()
        assert not admin._driver.core.endpoints.may_try(nowhere, now=0.0), "it got the request, and failed"


def test_no_broker_there_is_an_error_in_time() -> None:
    with (
        Admin("127.0.0.1:1", bootstrap_timeout_ms=300) as admin,
        pytest.raises(ConnectionFailed, match=r"127\.0\.0\.1"),
    ):
        admin.list_groups()
