"""A topic that was made a moment ago: Admin waits for its leaders, within its time, and for none that cannot come."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from typer.testing import CliRunner

from kohort import TopicPartition
from kohort.admin import Admin
from kohort.admin import topics as admin_topics
from kohort.admin.describe_configs import TOPIC
from kohort.cli.topic import app
from kohort.common import KohortError
from kohort.network.errors import AuthorizationFailed, UnknownTopic
from kohort.network.metadata import NO_TOPIC_ID
from kohort.protocol.apis.describe_configs import DescribeConfigsResponse, DescribeConfigsResult
from kohort.protocol.apis.describe_share_group_offsets import (
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)
from kohort.testing import FakeBroker, RealCluster
from kohort.testing.fake_broker import Alter, Answer
from tests.coordinator_client.consumer_helpers import wait_until
from tests.support.broker_selection import SelectedBroker

P0 = TopicPartition("topic", 0)
LEADER_NOT_AVAILABLE, NOT_LEADER, UNKNOWN, OFFSET_NOT_AVAILABLE = 5, 6, 3, 78
Change = Callable[[Any], Any]


def without_leader(response: Any, **how: Any) -> Any:
    """Metadata in which every partition waits for its leader."""
    return response._replace(
        topics=tuple(
            topic._replace(
                partitions=tuple(one._replace(leader_id=-1, error_code=5, **how) for one in topic.partitions)
            )
            for topic in response.topics
        )
    )


def as_topic_error(code: int) -> Change:
    return lambda response: response._replace(
        topics=tuple(topic._replace(error_code=code, partitions=()) for topic in response.topics)
    )


def refused(code: int) -> Change:
    def change(response: Any) -> Any:
        return response._replace(
            topics=tuple(
                topic._replace(partitions=tuple(one._replace(error_code=code, offset=-1) for one in topic.partitions))
                for topic in response.topics
            )
        )

    return change


def of_the_topic(change: Change) -> Callable[[Any], Alter | None]:
    """The first call, in which a client requests no topic, is left alone."""
    return lambda call: Alter(change) if call.request.topics else None


LATE = [
    pytest.param("Metadata", without_leader, id="no leader"),
    pytest.param(
        "Metadata", lambda response: without_leader(response, isr_nodes=(1,), replica_nodes=(1,)), id="in sync"
    ),
    pytest.param("Metadata", as_topic_error(LEADER_NOT_AVAILABLE), id="no leader of the topic"),
    pytest.param("ListOffsets", refused(NOT_LEADER), id="not leader yet"),
    pytest.param("ListOffsets", refused(LEADER_NOT_AVAILABLE), id="leader not available"),
    pytest.param("ListOffsets", refused(UNKNOWN), id="unknown to its leader yet"),
]


@pytest.mark.parametrize(("api", "change"), LATE)
def test_offsets_are_requested_until_there_is_a_leader(api: str, change: Change) -> None:
    with FakeBroker(topics={"topic": 1}) as fake, Admin(fake.bootstrap) as admin:
        fake.produce("topic", 0, [(None, b"v")])
        fake.commit("group", {P0: 0})
        for call, expected in (
            (lambda: admin.end_offsets([P0]), {P0: 1}),
            (lambda: admin.first_offsets([P0]), {P0: 0}),
            (lambda: [one.lag for one in admin.lag("group")], [1]),
            (lambda: [one.after for one in admin.reset_offsets("group", {P0: 9}, dry_run=True)], [1]),
        ):
            fake.control(api, of_the_topic(change), times=2)
            assert call() == expected


@pytest.mark.parametrize("change", [param.values[1] for param in LATE[:3]] + [as_topic_error(UNKNOWN)])
def test_a_topic_is_described_once_its_leaders_are_there(change: Change) -> None:
    with FakeBroker(topics={"topic": 2}) as fake, Admin(fake.bootstrap) as admin:
        admin.brokers()
        fake.control("Metadata", of_the_topic(change), times=2)
        assert [one.leader_id for one in admin_topics.once_led(admin._request_driver(), "topic").partitions] == [1, 1]


def unknown_to_coordinator(_call: Any) -> Alter:
    def change(topics: Any) -> Any:
        return tuple(
            topic._replace(partitions=tuple(one._replace(error_code=UNKNOWN) for one in topic.partitions))
            for topic in topics
        )

    return Alter(
        lambda response: response._replace(
            **{name: change(getattr(response, name)) for name in ("topics", "responses") if hasattr(response, name)}
        )
    )


def settings_of_topic(code: int = 0) -> Answer:
    result = DescribeConfigsResult(error_code=code, resource_type=TOPIC, resource_name="topic", configs=())
    return Answer(DescribeConfigsResponse(results=(result,)))


@pytest.mark.parametrize(
    ("api", "control", "call"),
    [
        ("Metadata", of_the_topic(as_topic_error(UNKNOWN)), lambda admin: admin.reset_offsets("group", {P0: 0})),
        ("OffsetCommit", unknown_to_coordinator, lambda admin: admin.reset_offsets("group", {P0: 0})),
        ("AlterShareGroupOffsets", unknown_to_coordinator, lambda admin: admin.alter_share_offsets("jobs", {P0: 0})),
        ("DescribeConfigs", lambda _call: settings_of_topic(UNKNOWN), lambda admin: admin.topic_configs(["topic"])),
        ("DescribeConfigs", lambda _call: settings_of_topic(UNKNOWN), lambda admin: admin.describe_topic("topic")),
    ],
)
def test_a_topic_that_a_broker_does_not_know_yet_is_requested_again(
    api: str, control: Callable[[Any], Alter | Answer | None], call: Callable[[Admin], object]
) -> None:
    """Of three brokers, the others learn of a new topic some milliseconds after the first."""
    with (
        FakeBroker(topics={"topic": 1}, versions={"DescribeConfigs": (1, 4)}) as fake,
        Admin(fake.bootstrap) as admin,
    ):
        admin.brokers()
        refused = fake.control(api, control, times=2)
        fake.control("DescribeConfigs", lambda _call: settings_of_topic())
        call(admin)
        assert refused.calls == 2


def test_the_wait_ends_with_the_time_of_the_call() -> None:
    with FakeBroker(topics={"topic": 1}) as fake, Admin(fake.bootstrap, default_api_timeout_ms=2000) as admin:
        admin.brokers()
        fake.control("Metadata", of_the_topic(without_leader))
        assert admin.end_offsets([P0]) == {}
        assert [one.leader_id for one in admin_topics.once_led(admin._request_driver(), "topic").partitions] == [-1]
        assert len(fake.calls_of("Metadata")) > 4  # it sent another request, in both


def test_a_topic_is_described_without_a_leader_that_does_not_come_in_time() -> None:
    with (
        FakeBroker(topics={"topic": 1}, versions={"DescribeConfigs": (1, 4)}) as fake,
        Admin(fake.bootstrap, default_api_timeout_ms=1000) as admin,
    ):
        admin.brokers()
        fake.control("Metadata", of_the_topic(without_leader))
        fake.control("DescribeConfigs", lambda _call: settings_of_topic())
        assert [one.leader for one in admin.describe_topic("topic").partitions] == [-1]
        assert len(fake.calls_of("Metadata")) > 3


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda response: without_leader(response, isr_nodes=(7,), offline_replicas=(7,)), id="all down"),
        pytest.param(
            lambda response: without_leader(response, isr_nodes=(), replica_nodes=(6, 7), offline_replicas=(6, 7)),
            id="all down, with eligible leader replicas",
        ),
        pytest.param(as_topic_error(UNKNOWN), id="no such topic"),
    ],
)
def test_offsets_wait_for_nothing_that_cannot_come(change: Change) -> None:
    with FakeBroker(topics={"topic": 1}) as fake, Admin(fake.bootstrap) as admin:
        admin.brokers()
        fake.control("Metadata", of_the_topic(change))
        assert admin.end_offsets([P0]) == {}
        assert sum(bool(call.request.topics) for call in fake.calls_of("Metadata")) == 1  # type: ignore[attr-defined]


def test_a_refusal_that_no_retry_cures_is_not_retried() -> None:
    with FakeBroker(topics={"topic": 1}) as fake, Admin(fake.bootstrap) as admin:
        fake.control("ListOffsets", of_the_topic(refused(29)))
        assert admin.end_offsets([P0]) == {}
        assert len(fake.calls_of("ListOffsets")) == 1


def share_state(*codes: int) -> Change:
    """A share group with the state of these partitions of a topic: the error code of each."""
    one = DescribeShareGroupOffsetsResponsePartition(start_offset=7, lag=2)
    partitions = tuple(one._replace(partition_index=number, error_code=code) for number, code in enumerate(codes))
    topic = DescribeShareGroupOffsetsResponseTopic(topic_name="topic", topic_id=NO_TOPIC_ID, partitions=partitions)
    group = DescribeShareGroupOffsetsResponseGroup(group_id="jobs", topics=(topic,))
    return lambda response: response._replace(groups=(group,))


@pytest.mark.parametrize("code", [OFFSET_NOT_AVAILABLE, NOT_LEADER, LEADER_NOT_AVAILABLE])
def test_the_state_of_a_share_group_is_requested_until_its_leaders_know_the_log(code: int) -> None:
    with FakeBroker(topics={"topic": 2}) as fake, Admin(fake.bootstrap) as admin:
        fake.control("DescribeShareGroupOffsets", lambda _call: Alter(share_state(0, code)), times=2)
        fake.control("DescribeShareGroupOffsets", lambda _call: Alter(share_state(0, 0)))
        assert [(one.partition.partition, one.lag) for one in admin.share_offsets("jobs")] == [(0, 2), (1, 2)]
        assert len(fake.calls_of("DescribeShareGroupOffsets")) == 3


@pytest.mark.parametrize(("codes", "error"), [((NOT_LEADER, 29), AuthorizationFailed), ((UNKNOWN, 0), UnknownTopic)])
def test_a_refused_state_of_a_share_group_is_not_requested_again(
    codes: tuple[int, int], error: type[KohortError]
) -> None:
    with FakeBroker(topics={"topic": 2}) as fake, Admin(fake.bootstrap) as admin:
        fake.control("DescribeShareGroupOffsets", lambda _call: Alter(share_state(*codes)))
        with pytest.raises(error):
            admin.share_offsets("jobs")
        assert len(fake.calls_of("DescribeShareGroupOffsets")) == 1


def test_a_topic_that_is_not_there_is_missed_after_its_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin_topics, "UNKNOWN_TOPIC_GRACE_S", 0.3)
    with FakeBroker() as fake, Admin(fake.bootstrap) as admin:
        admin.brokers()
        before = len(fake.calls_of("Metadata"))
        with pytest.raises(UnknownTopic):
            admin_topics.once_led(admin._request_driver(), "missing")
        assert len(fake.calls_of("Metadata")) > before + 1


@pytest.mark.broker
def test_a_topic_is_described_with_its_offsets_right_after_it_was_made(
    broker: SelectedBroker, unique: Callable[[str], str]
) -> None:
    with Admin(broker.bootstrap) as admin:
        for _ in range(5):
            topic = unique("topic")
            admin.create_topic(topic, partitions=20)
            shown = CliRunner().invoke(app, ["describe", topic, "--bootstrap", broker.bootstrap, "--json"])
            assert shown.exit_code == 0, shown.output
            rows = json.loads(shown.stdout)["partitions"]
            assert [(one["first_offset"], one["end_offset"]) for one in rows] == [(0, 0)] * 20
            assert all(one["leader"] >= 0 for one in rows)


@pytest.mark.broker
def test_a_topic_that_was_just_made_has_offsets_and_settings_on_each_broker(
    cluster3: RealCluster, unique: Callable[[str], str]
) -> None:
    with Admin(cluster3.bootstrap) as admin:
        for _ in range(10):
            topic, other = unique("topic"), unique("topic")
            admin.create_topic(topic, partitions=3, replication_factor=3)
            (change,) = admin.reset_offsets(topic, {TopicPartition(topic, 0): 0})
            assert change.after == 0
            admin.create_topic(other, configs={"retention.ms": "7000"})
            assert admin.topic_configs([other])[other]["retention.ms"] == "7000"
            admin.delete_topics(topic, other)


@pytest.mark.broker
def test_a_topic_whose_only_broker_is_down_is_described(cluster3: RealCluster, unique: Callable[[str], str]) -> None:
    """With eligible leader replicas, a default of new clusters from 4.1 on, none of its replicas is in sync then."""
    topic = unique("topic")
    with Admin(cluster3.bootstrap, default_api_timeout_ms=20_000) as admin:
        admin.create_topic(topic, partitions=1, replication_factor=1)
        (partition,) = admin.describe_topic(topic).partitions
        cluster3.nodes[partition.leader].kill()
        try:
            wait_until(lambda: admin.describe_topics([topic])[topic].partitions[0].leader == -1)  # type: ignore[union-attr]
            assert [one.leader for one in admin.describe_topic(topic).partitions] == [-1]
            assert admin.end_offsets([TopicPartition(topic, 0)]) == {}
        finally:
            cluster3.start()
