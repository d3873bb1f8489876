"""The time limits of admin calls, and their errors when the admin is closed, dies, or belongs to another process."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from kohort import Consumer
from kohort.admin import Admin, AdminClosed
from kohort.common import KohortError, TopicPartition
from kohort.network.errors import ConnectionFailed, ForkError, OperationTimeout, UnknownTopic
from kohort.protocol.apis.create_topics import CreatableTopicResult, CreateTopicsResponse
from kohort.protocol.apis.delete_topics import DeletableTopicResult, DeleteTopicsResponse
from kohort.protocol.apis.find_coordinator import FindCoordinatorResponse
from kohort.protocol.apis.list_groups import ListedGroup, ListGroupsResponse
from kohort.protocol.apis.metadata import MetadataResponse
from kohort.protocol.apis.offset_fetch import OffsetFetchResponse
from kohort.protocol.errors import BrokerError, UnsupportedVersion
from kohort.testing import FakeBroker
from kohort.testing.fake_broker import Alter, Answer, Call, Close, Delay, Drop
from kohort.testing.ports import free_ports
from tests.coordinator_client.consumer_helpers import PATIENCE_S, crash, in_a_child, poll_until, wait_until
from tests.network.test_silent_broker import CLIENTS, silent

PLACE = TopicPartition("topic", 0)
UNKNOWN_TOPIC, NOT_CONTROLLER, OVER_QUOTA = 3, 41, 89


def test_all_requests_of_a_call_share_one_timeout() -> None:
    slow = ("FindCoordinator", "ListOffsets", "Metadata", "OffsetFetch")
    with (
        FakeBroker(topics={"topic": 1}) as fake,
        Admin(fake.bootstrap, default_api_timeout_ms=1_500, request_timeout_ms=1_400) as admin,
    ):
        assert admin.reset_offsets("group", {PLACE: 0}, dry_run=True)
        for api in slow:
            fake.control(api, lambda _call: Delay(0.6))  # each in time by itself
        with pytest.raises(OperationTimeout, match="in time"):
            admin.reset_offsets("group", {PLACE: 0}, dry_run=True)


@pytest.mark.proves("B-27")
def test_another_is_asked_where_an_address_takes_connections_and_says_nothing() -> None:
    with FakeBroker(topics={"topic": 1}) as fake, silent() as addresses:
        for _ in range(CLIENTS):
            with Admin([*addresses, fake.bootstrap], default_api_timeout_ms=6_000) as admin:
                assert [one.topic for one in admin.list_topics()] == ["topic"]


@pytest.mark.proves("B-27")
def test_another_is_asked_where_a_broker_falls_silent_that_had_answered() -> None:
    with (
        FakeBroker(topics={"topic": 1}, nodes=2) as fake,
        Admin(fake.bootstrap, default_api_timeout_ms=6_000) as admin,
    ):
        assert admin.list_topics()
        frozen = fake.calls_of("Metadata")[-1].node
        fake.control("Metadata", lambda call: Drop() if call.node == frozen else None)
        assert [one.topic for one in admin.list_topics()] == ["topic"]
        fake.control("Metadata", lambda _call: Drop())
        with pytest.raises(OperationTimeout, match="Metadata"):
            admin.list_topics()


def test_a_broker_before_3_0_gets_no_request_for_the_newest_record() -> None:
    """It would look for the first one that is not older than 3 ms before 1970, and name the oldest."""
    with (
        FakeBroker(topics={"topic": 1}, versions={"ListOffsets": (1, 6)}) as fake,
        Admin(fake.bootstrap) as admin,
    ):
        fake.produce("topic", 0, [(None, b"0")])
        assert admin.end_offsets([PLACE]) == {PLACE: 1}
        with pytest.raises(UnsupportedVersion, match="does not support"):
            admin.newest_ms([PLACE])


@pytest.mark.parametrize(("timestamp", "least"), [(-3, 7), (-4, 8), (-5, 9), (-6, 11)])
def test_a_special_timestamp_is_sent_from_its_version_on(timestamp: int, least: int) -> None:
    for version in (least - 1, least):
        with (
            FakeBroker(topics={"topic": 1}, versions={"ListOffsets": (1, version)}) as fake,
            Admin(fake.bootstrap) as admin,
        ):
            if version == least:
                assert admin.offsets_at({PLACE: timestamp}).keys() == {PLACE}
            else:
                with pytest.raises(UnsupportedVersion, match="special timestamp"):
                    admin.offsets_at({PLACE: timestamp})


def under_way(call: Callable[[], object], end: Callable[[], object]) -> list[BaseException]:
    """The error of a call in another thread when something ends its admin, while no broker responds."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(0.3)
    assert thread.is_alive()
    end()
    thread.join(PATIENCE_S)
    assert not thread.is_alive()
    return raised


def test_a_call_that_is_under_way_when_its_admin_is_closed_ends_and_so_does_every_later_one() -> None:
    with FakeBroker(topics={"topic": 1}) as fake:
        admin = Admin(fake.bootstrap)
        assert admin.list_topics()
        fake.control("Metadata", lambda _call: Drop())
        (error,) = under_way(admin.list_topics, admin.close)
        assert isinstance(error, AdminClosed)
        for call in (admin.list_topics, admin.list_groups):
            with pytest.raises(AdminClosed):
                call()
        admin.close()


def test_a_call_that_is_under_way_when_its_driver_dies_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    with FakeBroker(topics={"topic": 1}) as fake:
        admin = Admin(fake.bootstrap)
        assert admin.list_topics()
        fake.control("Metadata", lambda _call: Drop())
        (error,) = under_way(admin.list_topics, lambda: crash(admin._driver, monkeypatch))
        assert isinstance(error, KohortError)
        assert "ended by a defect" in str(error)


@pytest.mark.proves("B-35")
def test_a_forked_child_gets_an_error() -> None:
    with FakeBroker(topics={"topic": 1}) as fake, Admin(fake.bootstrap) as admin:
        assert in_a_child(admin.list_topics, admin.close) == [ForkError.__name__] * 2
        assert admin.list_topics()


def test_topics_are_made_and_deleted_by_the_controller_where_no_other_broker_may() -> None:
    """As in a cluster with ZooKeeper, whose brokers do not pass such requests on."""

    made = CreateTopicsResponse(topics=(CreatableTopicResult(name="topic", error_code=NOT_CONTROLLER),))
    gone = DeleteTopicsResponse(responses=(DeletableTopicResult(name="topic", error_code=NOT_CONTROLLER),))
    with FakeBroker(nodes=2) as fake:
        fake.control("Metadata", lambda _call: Alter(lambda response: response._replace(controller_id=2)))
        for api, refusal in (("CreateTopics", made), ("DeleteTopics", gone)):
            fake.control(api, lambda call, refusal=refusal: None if call.node == 2 else Answer(refusal))  # type: ignore[misc]
        for requested_first in fake.bootstrap.split(","):
            with Admin(requested_first) as admin:
                admin.create_topic("topic")
                assert [one.topic for one in admin.list_topics()] == ["topic"]
                admin.delete_topics("topic")
                assert admin.list_topics() == []
        assert {call.node for call in fake.calls_of("CreateTopics")} == {1, 2}


@pytest.mark.parametrize("code", [14, 15])
def test_groups_of_a_broker_that_still_loads_them_are_waited_for(code: int) -> None:
    loads = ListGroupsResponse(error_code=code)
    listed = ListGroupsResponse(groups=(ListedGroup(group_id="group", protocol_type="consumer"),))
    with (
        FakeBroker(nodes=2, versions={"ListGroups": (0, 5)}) as fake,
        Admin(fake.bootstrap, default_api_timeout_ms=1_500) as admin,
    ):
        fake.control("ListGroups", lambda _call: Answer(loads), times=2)
        all_of_them = fake.control("ListGroups", lambda _call: Answer(listed))
        assert [one.group for one in admin.list_groups()] == ["group"]
        all_of_them.remove()
        fake.control("ListGroups", lambda call: Answer(loads if call.node == 2 else listed))
        for _ in range(20):  # a call ends with a time-out instead where a request is in flight at its end
            with pytest.raises((BrokerError, OperationTimeout)) as raised:
                admin.list_groups()
            if isinstance(raised.value, BrokerError):
                break
        assert isinstance(raised.value, BrokerError)
        assert raised.value.code == code


def test_a_coordinator_is_looked_up_again_until_there_is_one() -> None:
    absent = FindCoordinatorResponse(error_code=15)
    with (
        FakeBroker(topics={"topic": 1}, versions={"FindCoordinator": (0, 3)}) as fake,
        Admin(fake.bootstrap, default_api_timeout_ms=1_500) as admin,
    ):
        fake.control("FindCoordinator", lambda _call: Answer(absent), times=2)
        assert admin.committed("group") == {}
        fake.control("FindCoordinator", lambda _call: Answer(absent))
        with pytest.raises(BrokerError) as raised:
            admin.committed("group")
        assert raised.value.code == 15


def test_a_broker_that_is_not_the_coordinator_any_more_is_looked_up_again() -> None:
    moved = OffsetFetchResponse(error_code=16)
    with FakeBroker(topics={"topic": 1}, versions={"OffsetFetch": (1, 7)}) as fake, Admin(fake.bootstrap) as admin:
        fake.commit("group", {PLACE: 3})
        fake.control("OffsetFetch", lambda _call: Answer(moved), times=1)
        assert admin.committed("group")[PLACE].offset == 3
        assert len(fake.calls_of("FindCoordinator")) == 2


def test_nothing_is_kept_of_the_coordinators_of_many_groups() -> None:
    absent = FindCoordinatorResponse(error_code=15)
    with (
        FakeBroker(topics={"topic": 1}, versions={"FindCoordinator": (0, 3)}) as fake,
        Admin(fake.bootstrap, default_api_timeout_ms=500) as admin,
        ThreadPoolExecutor(4) as threads,
    ):
        groups = [f"group-{number}" for number in range(8)] * 2
        assert list(threads.map(admin.committed, groups)) == [{}] * 16
        fake.control("FindCoordinator", lambda _call: Answer(absent))
        with pytest.raises((BrokerError, OperationTimeout)):
            admin.committed("group")
        wait_until(lambda: not admin._driver.core._of_groups)
        assert admin._driver.core._finder.next_poll_at() == []
        assert not admin._driver.core._finder._lookups


READS = [
    pytest.param(lambda admin: admin.end_offsets([PLACE]), {PLACE: 1}, id="ListOffsets"),
    pytest.param(lambda admin: [one.lag for one in admin.lag("group")], [1], id="OffsetFetch"),
    pytest.param(lambda admin: admin.describe_group("group").state, "Empty", id="describe"),
]


@contextmanager
def half_dead() -> Iterator[FakeBroker]:
    """Two brokers. The second is dead; for the first, it still leads the topic and coordinates the group."""
    with FakeBroker(topics={"topic": 1}, nodes=2) as fake:
        fake.produce("topic", 0, [(None, b"v")])
        fake.commit("group", {PLACE: 0})
        fake.set_leader("topic", 0, 2)
        fake.move_coordinator("group", 2)
        fake.stop_node(2)
        yield fake


@pytest.mark.parametrize(("call", "found"), READS)
def test_a_read_waits_for_the_successor_of_a_dead_broker(call: Callable[[Admin], object], found: object) -> None:
    with half_dead() as fake, Admin(fake.bootstrap) as admin:

        def elect(call: Call) -> None:
            if len(fake.calls_of(call.api)) > 3:
                fake.set_leader("topic", 0, 1)
                fake.move_coordinator("group", 1)

        for api in ("FindCoordinator", "Metadata"):
            fake.control(api, elect)
        assert call(admin) == found


def test_groups_are_listed_once_metadata_has_no_dead_broker() -> None:
    def alive(response: MetadataResponse) -> MetadataResponse:
        return response._replace(brokers=tuple(one for one in response.brokers if one.node_id == 1))

    with half_dead() as fake, Admin(fake.bootstrap) as admin:
        fake.move_coordinator("group", 1)
        fake.control("Metadata", lambda call: Alter(alive) if len(fake.calls_of("Metadata")) > 3 else None)
        assert [one.group for one in admin.list_groups()] == ["group"]


@pytest.mark.parametrize(
    ("call", "_found"), [*READS, pytest.param(lambda admin: admin.list_groups(), None, id="ListGroups")]
)
def test_a_read_without_a_successor_ends_with_the_time_of_the_call(
    call: Callable[[Admin], object], _found: object
) -> None:
    with half_dead() as fake, Admin(fake.bootstrap, default_api_timeout_ms=600) as admin:
        for _ in range(20):  # a call ends with a time-out instead where a request is in flight at its end
            with pytest.raises((ConnectionFailed, OperationTimeout)) as raised:
                call(admin)
            if isinstance(raised.value, ConnectionFailed):
                break
        assert isinstance(raised.value, ConnectionFailed)
        assert max(len(fake.calls_of(api)) for api in ("FindCoordinator", "Metadata")) > 2


def test_a_change_is_not_repeated_if_its_coordinator_may_have_made_it() -> None:
    with half_dead() as fake, Admin(fake.bootstrap) as admin:
        with pytest.raises(ConnectionFailed, match="DeleteGroups"):
            admin.delete_groups("group")
        assert len(fake.calls_of("FindCoordinator")) == 1


def test_groups_of_a_broker_that_has_joined_are_listed() -> None:
    known = {1}

    def seen(response: MetadataResponse) -> MetadataResponse:
        return response._replace(brokers=tuple(one for one in response.brokers if one.node_id in known))

    def listed(call: Call) -> Answer:
        return Answer(ListGroupsResponse(groups=(ListedGroup(group_id=f"of {call.node}", protocol_type="consumer"),)))

    with FakeBroker(nodes=2) as fake, Admin(fake.bootstrap.split(",")[0]) as admin:
        fake.control("Metadata", lambda _call: Alter(seen))
        fake.control("ListGroups", listed)
        for known in ({1}, {1, 2}, {2}):  # the first broker has left in the end
            assert {one.group for one in admin.list_groups()} == {f"of {node}" for node in known}


def test_metadata_without_brokers_is_requested_again_to_list_groups() -> None:
    """A broker that starts may report none at first."""

    def empty(response: MetadataResponse) -> MetadataResponse:
        return response._replace(brokers=())

    # With any jitter, the third retry has a second to respond, and the fourth would come after the time-out.
    with (
        FakeBroker(topics={"topic": 1}) as fake,
        Admin(fake.bootstrap, default_api_timeout_ms=4_500, retry_backoff_ms=400, retry_backoff_max_ms=10_000) as admin,
    ):
        fake.commit("group", {PLACE: 3})
        assert [one.group for one in admin.list_groups()] == ["group"]
        fake.control("Metadata", lambda _call: Alter(empty), times=2)
        assert [one.group for one in admin.list_groups()] == ["group"]
        fake.control("Metadata", lambda _call: Alter(empty))
        with pytest.raises(OperationTimeout, match="brokers"):
            admin.list_groups()


def test_a_broker_in_its_backoff_is_called_when_that_ends() -> None:
    with (
        FakeBroker() as fake,
        Admin(fake.bootstrap, reconnect_backoff_ms=500, reconnect_backoff_max_ms=500) as admin,
    ):
        nodes = admin.brokers()
        for call in (lambda: admin.create_topic("topic"), admin.list_topics, lambda: admin.versions(nodes)):
            fake.control("CreateTopics", lambda _call: Close(), times=1)
            with pytest.raises(ConnectionFailed, match="no response to CreateTopics"):
                admin.create_topic("lost")
            call()


def test_a_broker_whose_backoff_is_longer_than_the_calls_time_is_not_awaited() -> None:
    settings: dict[str, Any] = {"reconnect_backoff_ms": 60_000, "reconnect_backoff_max_ms": 60_000}
    with FakeBroker() as fake, Admin(fake.bootstrap, default_api_timeout_ms=1_000, **settings) as admin:
        nodes = admin.brokers()
        fake.control("CreateTopics", lambda _call: Close(), times=1)
        for call in (lambda: admin.create_topic("lost"), lambda: admin.versions(nodes), admin.list_topics):
            with pytest.raises(ConnectionFailed, match="closed"):
                call()


def test_a_change_that_exceeds_a_quota_is_made_later() -> None:
    """A broker refuses it for some topics of a request (KIP-599)."""
    made = CreateTopicsResponse(topics=(CreatableTopicResult(name="a", error_code=OVER_QUOTA),), throttle_time_ms=10)
    gone = DeleteTopicsResponse(
        responses=(
            DeletableTopicResult(name="b", error_code=OVER_QUOTA),
            DeletableTopicResult(name="a", error_code=0),
            DeletableTopicResult(name="c", error_code=OVER_QUOTA),
        )
    )
    with FakeBroker(topics={"b": 1, "c": 1}) as fake, Admin(fake.bootstrap) as admin:
        fake.control("CreateTopics", lambda _call: Answer(made), times=2)
        fake.control("DeleteTopics", lambda _call: Answer(gone), times=1)
        admin.create_topic("a")
        admin.delete_topics("a", "b", "c")
        assert [one.topic for one in admin.list_topics()] == ["a"]
        assert len(fake.calls_of("CreateTopics")) == 3


def test_topics_that_exceed_a_quota_beside_a_missing_one_are_deleted() -> None:
    gone = DeleteTopicsResponse(
        responses=(
            DeletableTopicResult(name="missing", error_code=UNKNOWN_TOPIC),
            DeletableTopicResult(name="a", error_code=OVER_QUOTA),
        )
    )
    with FakeBroker(topics={"a": 1}) as fake, Admin(fake.bootstrap) as admin:
        fake.control("DeleteTopics", lambda _call: Answer(gone), times=1)
        with pytest.raises(UnknownTopic) as raised:
            admin.delete_topics("missing", "a")
        assert raised.value.place["topic"] == "missing"
        assert admin.list_topics() == []


def test_a_quota_that_is_exceeded_for_the_calls_time_is_an_error() -> None:
    made = CreateTopicsResponse(topics=(CreatableTopicResult(name="a", error_code=OVER_QUOTA),))
    gone = DeleteTopicsResponse(responses=(DeletableTopicResult(name="a", error_code=OVER_QUOTA),))
    with FakeBroker(topics={"a": 1}) as fake, Admin(fake.bootstrap, default_api_timeout_ms=500) as admin:
        for api, refusal in (("CreateTopics", made), ("DeleteTopics", gone)):
            fake.control(api, lambda _call, refusal=refusal: Answer(refusal))  # type: ignore[misc]
        for call in (admin.create_topic, admin.delete_topics):
            with pytest.raises(BrokerError, match="THROTTLING_QUOTA_EXCEEDED"):
                call("a")


def test_members_are_found_and_removed_in_one_timeout() -> None:
    slow = ("ConsumerGroupDescribe", "DescribeGroups", "FindCoordinator", "LeaveGroup")
    with (
        FakeBroker(topics={"topic": 1}) as fake,
        Consumer(fake.bootstrap, group="group") as consumer,
        Admin(fake.bootstrap, default_api_timeout_ms=1_500) as admin,
    ):
        consumer.subscribe(["topic"])
        poll_until(consumer, lambda: bool(consumer.assignment))
        for api in slow:
            fake.control(api, lambda _call: Delay(0.3))  # description and removal are each in time by themselves
        with pytest.raises(OperationTimeout, match="in time"):
            admin.remove_members("group")


@pytest.mark.parametrize("call", [Admin.list_topics, Admin.list_groups, Admin.brokers])
def test_a_first_call_waits_for_a_broker_that_starts_later(call: Callable[[Admin], Any]) -> None:
    (port,) = free_ports(1)
    with Admin(f"127.0.0.1:{port}", bootstrap_timeout_ms=60_000) as admin, ThreadPoolExecutor() as pool:
        waiting = pool.submit(call, admin)
        wait_until(lambda: admin._driver.core.counters.connections_ended > 4)
        with FakeBroker(ports=[port]):
            assert len(waiting.result(PATIENCE_S)) == (call is Admin.brokers)
