"""The admin's results for brokers' responses that need no real broker."""

from collections.abc import Callable
from typing import Any

import pytest

from kohort import Consumer, TopicPartition
from kohort.admin import Admin, BrokerDescription, GroupMissing
from kohort.admin.topics import _is_own
from kohort.common import KohortError
from kohort.network import offset_requests
from kohort.network.errors import AuthorizationFailed, UnknownTopic
from kohort.protocol.apis.delete_groups import DeletableGroupResult
from kohort.protocol.apis.describe_configs import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from kohort.protocol.codec import Message
from kohort.protocol.errors import BrokerError, ErrorCode, UnsupportedVersion
from kohort.testing import FakeBroker
from kohort.testing.fake_broker import Alter
from tests.coordinator_client.consumer_helpers import poll_until


@pytest.mark.proves("B-31")
def test_a_topic_that_may_not_be_deleted_is_named() -> None:
    def refused(response: Any) -> Any:
        return response._replace(responses=tuple(one._replace(error_code=29) for one in response.responses))

    with FakeBroker(topics={"topic": 1}) as fake, Admin(fake.bootstrap) as admin:
        fake.control("DeleteTopics", lambda _call: Alter(refused))
        with pytest.raises(AuthorizationFailed, match="delete") as raised:
            admin.delete_topics("topic")
        assert raised.value.place["topic"] == "topic"


@pytest.mark.proves("B-31")
@pytest.mark.parametrize(
    ("api", "call"),
    [
        ("DeleteGroups", lambda admin: admin.delete_groups("group")),
        ("DeleteShareGroupOffsets", lambda admin: admin.delete_share_offsets("group", "topic")),
    ],
)
def test_a_group_that_may_not_be_deleted_names_the_permission(api: str, call: Callable[[Admin], object]) -> None:
    """READ does not include DELETE, and the coordinator is found with READ."""
    code = ErrorCode.GROUP_AUTHORIZATION_FAILED
    group = DeletableGroupResult(group_id="group", error_code=code)
    refused = {"results": (group,)} if api == "DeleteGroups" else {"error_code": code}
    with FakeBroker(topics={"topic": 1}) as fake, Admin(fake.bootstrap) as admin:
        fake.control(api, lambda _call: Alter(lambda response: response._replace(**refused)))
        with pytest.raises(AuthorizationFailed, match="grant DELETE on the group") as raised:
            call(admin)
        assert raised.value.place["group"] == "group"


@pytest.mark.parametrize(
    ("api", "field", "call"),
    [
        ("ConsumerGroupDescribe", "groups", lambda admin: admin.describe_group("group")),
        ("DescribeGroups", "groups", lambda admin: admin.describe_group("group")),
        ("DeleteGroups", "results", lambda admin: admin.delete_groups("group")),
        ("Metadata", "topics", lambda admin: admin.describe_topic("topic")),
        ("CreateTopics", "topics", lambda admin: admin.create_topic("another")),
        ("DescribeConfigs", "results", lambda admin: admin.broker_configs(admin.brokers(), ["name"])),
        ("DeleteTopics", "responses", lambda admin: admin.delete_topics("topic")),
        ("OffsetCommit", "topics", lambda admin: admin.reset_offsets("group", {TopicPartition("topic", 0): 0})),
    ],
)
def test_what_a_response_leaves_out_it_does_not_vouch_for(
    api: str, field: str, call: Callable[[Admin], object]
) -> None:
    with (
        FakeBroker(topics={"topic": 1}, versions={"DescribeConfigs": (1, 4)}) as fake,
        Admin(fake.bootstrap) as admin,
    ):
        fake.commit("group", {TopicPartition("topic", 0): 0})
        fake.control(api, lambda _call: Alter(lambda response: response._replace(**{field: ()})))
        with pytest.raises(KohortError) as raised:
            call(admin)
        assert raised.value.place["api"] == api


@pytest.mark.parametrize(
    ("delete", "left"),
    [
        (lambda admin: admin.delete_topics("topic", "other", "topic"), lambda admin: admin.list_topics()),
        (lambda admin: admin.delete_groups("group", "other", "group"), lambda admin: admin.list_groups()),
    ],
    ids=["topics", "groups"],
)
def test_what_a_call_names_twice_is_deleted_once(
    delete: Callable[[Admin], None], left: Callable[[Admin], list[object]]
) -> None:
    with FakeBroker(topics={"topic": 1, "other": 1}) as fake, Admin(fake.bootstrap) as admin:
        for group in ("group", "other"):
            fake.commit(group, {TopicPartition("topic", 0): 0})
        delete(admin)
        assert left(admin) == []


def test_groups_behind_one_that_cannot_be_deleted_are_deleted_too() -> None:
    with FakeBroker(topics={"topic": 1}) as fake, Admin(fake.bootstrap) as admin:
        for group in ("group", "other"):
            fake.commit(group, {TopicPartition("topic", 0): 0})
        with pytest.raises(GroupMissing) as raised:
            admin.delete_groups("group", "missing", "other", "missing too")
        assert raised.value.place["group"] == "missing"
        assert admin.list_groups() == []


def test_a_partition_that_a_share_group_cannot_have_is_named() -> None:
    with FakeBroker(topics={"topic": 1}) as fake, Admin(fake.bootstrap) as admin:
        with pytest.raises(UnknownTopic, match="no such topic or partition") as raised:
            admin.alter_share_offsets("group", {TopicPartition("topic", 7): 0})
        assert (raised.value.place["topic"], raised.value.place["partition"]) == ("topic", 7)


@pytest.mark.parametrize(("code", "error"), [(29, AuthorizationFailed), (3, UnknownTopic), (-1, BrokerError)])
def test_a_topic_whose_settings_are_not_known_is_not_described_as_one_without_any(
    code: int, error: type[KohortError]
) -> None:
    def described(response: Any) -> Any:
        return response._replace(results=tuple(one._replace(error_code=code) for one in response.results))

    with (
        FakeBroker(topics={"topic": 1}, versions={"DescribeConfigs": (1, 4)}) as fake,
        Admin(fake.bootstrap, default_api_timeout_ms=1000) as admin,
    ):
        fake.control("DescribeConfigs", lambda _call: Alter(described))
        with pytest.raises(error) as raised:
            admin.describe_topic("topic")
        assert raised.value.place["topic"] == "topic"


def test_an_empty_name_of_a_topic_is_refused_before_a_request() -> None:
    with FakeBroker() as fake, Admin(fake.bootstrap) as admin:
        with pytest.raises(ValueError, match="topics is empty"):
            admin.delete_topics("a", "")
        with pytest.raises(ValueError, match="topics is empty"):
            admin.delete_share_offsets("group", "")
        assert not fake.calls_of("DeleteTopics")


def test_no_names_of_settings_have_no_settings() -> None:
    node = BrokerDescription(1, "localhost", 9092, None)
    with Admin("localhost:1") as admin:  # nothing is requested: a broker would return all settings
        assert admin.broker_configs([node], []) == {1: {}}


@pytest.mark.parametrize("configs", [None, [("name", "1")], "name"])
def test_settings_of_a_group_that_are_no_mapping_are_refused(configs: Any) -> None:
    with Admin("localhost:1") as admin, pytest.raises(TypeError, match="configs are values by name"):
        admin.set_group_configs("group", configs)


@pytest.mark.parametrize("nodes", [[1], ["localhost:9092"], None, 1])
def test_brokers_that_are_no_descriptions_are_refused(nodes: Any) -> None:
    with Admin("localhost:1") as admin:
        for call in (admin.versions, lambda given: admin.broker_configs(given, ["num.partitions"])):
            with pytest.raises(TypeError, match=r"nodes are of Admin\.brokers"):
                call(nodes)


def test_a_group_that_cannot_be_described_has_the_brokers_words() -> None:
    """A share group is none that is described like this; without these words it would be gone while it is listed."""

    def of_another_kind(response: Any) -> Any:
        said = "Group group is not a classic group."
        return response._replace(groups=(response.groups[0]._replace(error_code=69, error_message=said),))

    with FakeBroker(topics={"topic": 1}) as fake, Admin(fake.bootstrap) as admin:
        fake.control("DescribeGroups", lambda _call: Alter(of_another_kind))
        with pytest.raises(GroupMissing, match="is not a classic group"):
            admin.describe_group("group")


def test_an_older_broker_has_one_member_leave_at_a_time() -> None:
    with (
        FakeBroker(topics={"topic": 1}, versions={"LeaveGroup": (0, 2)}) as fake,
        Admin(fake.bootstrap) as admin,
        Consumer(fake.bootstrap, group="group") as one,
        Consumer(fake.bootstrap, group="group", group_instance_id="i-1") as static,
    ):
        for consumer in (one, static):
            consumer.subscribe(["topic"])
        poll_until(one, lambda: len(fake.group("group").members) == 2)
        for named in (None, ["i-1"]):
            with pytest.raises(UnsupportedVersion, match="one member"):
                admin.remove_members("group", named)
        (dynamic,) = (each.member_id for each in admin.describe_group("group").members if each.instance_id is None)
        admin.remove_members("group", [dynamic])
        left: Any = fake.calls_of("LeaveGroup")[-1].request
        assert (left.member_id, left.members) == (dynamic, ())


def test_a_member_may_be_named_by_both_its_names() -> None:
    with (
        FakeBroker(topics={"topic": 1}) as fake,
        Admin(fake.bootstrap) as admin,
        Consumer(fake.bootstrap, group="group", group_instance_id="i-1") as consumer,
    ):
        consumer.subscribe(["topic"])
        poll_until(consumer, lambda: bool(consumer.assignment))
        (member,) = admin.describe_group("group").members
        with pytest.raises(KohortError, match="no such member") as raised:
            admin.remove_members("group", [member.member_id, "i-1", "i-2"])
        assert raised.value.place["member"] == "i-2"
        assert admin.remove_members("group", [member.member_id, "i-1"]) == [member]


def test_no_offset_is_moved_to_where_a_log_was_not_seen_to_begin() -> None:
    def hidden(response: Any) -> Any:
        (topic,) = response.topics
        refused = tuple(one._replace(error_code=29, offset=-1) for one in topic.partitions)
        return response._replace(topics=(topic._replace(partitions=refused),))

    place = TopicPartition("topic", 0)
    with FakeBroker(topics={"topic": 1}) as fake, Admin(fake.bootstrap) as admin:
        fake.produce("topic", 0, [(None, b"v")] * 10)
        fake.produce("topic", 0, [(None, b"v")])
        fake.trim("topic", 0, 10)
        fake.control("ListOffsets", lambda _call: Alter(hidden), times=1)
        with pytest.raises(KohortError, match="no leader"):
            admin.reset_offsets("group", {place: 3})
        assert fake.group("group").offsets == {}
        (change,) = admin.reset_offsets("group", {place: 3})
        assert change.after == 10


@pytest.mark.parametrize("version", [0, 1, 4])
def test_a_topics_own_settings_are_distinguished_from_the_brokers(version: int) -> None:
    def setting(name: str, source: int) -> DescribeConfigsResourceResult:
        by_version = {"is_default": source != 1} if version == 0 else {"config_source": source}
        return DescribeConfigsResourceResult(name=name, value="1", read_only=False, is_sensitive=False, **by_version)

    configs = (setting("its.own", 1), setting("the.brokers", 5))
    result = DescribeConfigsResult(resource_type=2, resource_name="topic", configs=configs)
    codec = Message.of(DescribeConfigsResponse)
    response = codec.parse(codec.build(DescribeConfigsResponse(results=(result,)), version), version)
    assert [one.name for one in response.results[0].configs if _is_own(one)] == ["its.own"]


def test_a_group_that_cannot_be_deleted_says_the_reason_of_the_broker() -> None:
    failed = DeletableGroupResult(
        group_id="g", error_code=ErrorCode.GROUP_DELETION_FAILED, error_message="a plugin refused"
    )
    with FakeBroker() as fake, Admin(fake.bootstrap) as admin:
        fake.control("DeleteGroups", lambda _call: Alter(lambda response: response._replace(results=(failed,))))
        with pytest.raises(BrokerError, match=r"GROUP_DELETION_FAILED.*a plugin refused"):
            admin.delete_groups("g")


def test_a_broker_before_0_11_gets_no_request_that_may_create_topics() -> None:
    with FakeBroker(topics={"topic": 1}, versions={"Metadata": (0, 3)}) as fake, Admin(fake.bootstrap) as admin:
        for call in (admin.list_topics, admin.brokers):
            with pytest.raises(UnsupportedVersion, match=r"0\.11"):
                call()
        assert fake.calls_of("Metadata") == []


def test_offsets_are_reset_in_parts_that_a_broker_stores_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offset_requests, "MOST_STORED_BYTES", 300)
    places = [TopicPartition("topic", number) for number in range(9)]
    with FakeBroker(topics={"topic": 9}) as fake, Admin(fake.bootstrap) as admin:
        assert len(admin.reset_offsets("group", dict.fromkeys(places, 0))) == 9
        assert set(fake.group("group").offsets) == set(places)
        parts = [call.request.topics[0].partitions for call in fake.calls_of("OffsetCommit")]  # type: ignore[attr-defined]
        assert [[one.partition_index for one in part] for part in parts] == [[0, 1, 2, 3], [4, 5, 6, 7], [8]]
