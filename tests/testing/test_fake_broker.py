"""The ways in which a test can change the fake's responses, and other libraries' clients on the fake."""

import asyncio
import struct
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from uuid import UUID

import aiokafka
import confluent_kafka
import kafka
import pytest

from kohort.admin import Admin
from kohort.common.errors import WireError
from kohort.common.topic_partition import TopicPartition
from kohort.fastpath import decode
from kohort.protocol.apis.heartbeat import HeartbeatRequest, HeartbeatResponse
from kohort.protocol.errors import UnsupportedVersion
from kohort.testing.fake_broker import (
    Alter,
    Answer,
    Call,
    Close,
    CoordinatorSettings,
    Delay,
    Drop,
    FakeBroker,
    GroupState,
    Hold,
    Raw,
)
from kohort.testing.ports import free_ports
from tests.testing.group_client import Connection, MemberClient, Stage

NO_OPERATIONS: dict[str, Any] = {"include_topic_authorized_operations": False}


@pytest.fixture
def fake() -> Iterator[FakeBroker]:
    with FakeBroker(topics={"topic": 2}) as broker:
        yield broker


@pytest.fixture
def connection(fake: FakeBroker) -> Iterator[Connection]:
    with Connection(fake.bootstrap) as connection:
        yield connection


@pytest.fixture
def ada(fake: FakeBroker) -> Iterator[MemberClient]:
    """The only member of a stable group."""
    with MemberClient(Stage(fake.bootstrap, "topic", "group")) as member:
        member.join()
        member.sync({member.member_id: b"all"})
        fake.calls.clear()
        yield member


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline, "did not come true"
        time.sleep(0.005)


def test_observer_sees_every_call_and_changes_nothing(fake: FakeBroker, ada: MemberClient) -> None:
    seen: list[Call] = []
    watching = fake.control("Heartbeat", seen.append)
    assert [ada.heartbeat(), ada.heartbeat()] == [0, 0]
    assert [(call.api, call.number, call.node, call.client_id) for call in seen] == [
        ("Heartbeat", 0, 1, "scenario"),
        ("Heartbeat", 1, 1, "scenario"),
    ]
    assert isinstance(seen[0].request, HeartbeatRequest)
    assert seen[0].request.member_id == ada.member_id
    assert seen == fake.calls_of("Heartbeat") == fake.calls_of(12)
    watching.remove()
    ada.heartbeat()
    assert len(seen) == 2
    assert watching.calls == 0


def test_answer_replaces_so_often_and_the_group_never_knew(fake: FakeBroker, ada: MemberClient) -> None:
    control = fake.control("Heartbeat", lambda call: Answer(HeartbeatResponse(error_code=16)), times=2)
    assert [ada.heartbeat() for _ in range(3)] == [16, 16, 0]
    assert control.calls == 2
    assert fake.group("group").state is GroupState.STABLE


def test_what_a_control_raises_is_a_fault_that_can_be_looked_at(fake: FakeBroker, ada: MemberClient) -> None:
    def claims(call: Call) -> None:
        assert call.version == 99, "another version"

    fake.control("Heartbeat", claims)
    with pytest.raises(ConnectionError):
        ada.heartbeat()
    wait_until(lambda: len(fake.faults) == 1)
    assert "AssertionError" in fake.faults[0]
    assert "another version" in fake.faults[0]


def test_a_control_may_use_the_fake_that_asks_it() -> None:
    with FakeBroker(topics={"topic": 2}, nodes=2) as fake:

        def meanwhile(_call: Call) -> None:
            fake.add_partitions("topic", 3)
            fake.produce("topic", 2, [(None, b"meanwhile")])
            fake.move_coordinator("group", 2)

        with MemberClient(Stage(fake.bootstrap.split(",")[0], "topic", "group")) as ada:
            ada.join()
            ada.sync({ada.member_id: b"all"})
            began = time.monotonic()
            fake.control("Heartbeat", meanwhile)
            assert ada.heartbeat() == 16
            assert time.monotonic() - began < 5
            assert fake.end_offset("topic", 2) == 1
            assert fake.faults == []


@pytest.mark.parametrize("node", [0, 2, -2])
def test_a_node_that_the_cluster_lacks_leads_and_coordinates_nothing(fake: FakeBroker, node: int) -> None:
    for move in (partial(fake.set_leader, "topic", 0, node), partial(fake.move_coordinator, "group", node)):
        with pytest.raises(ValueError, match=f"no node {node}; its nodes are"):
            move()
    fake.set_leader("topic", 0, -1)  # no leader


@pytest.mark.parametrize("what", [lambda fake: fake.start_node(1), FakeBroker.close])
def test_a_control_that_cannot_work_is_an_error_at_once(
    fake: FakeBroker, connection: Connection, what: Callable[[FakeBroker], None]
) -> None:
    fake.control("Metadata", lambda _call: what(fake))
    with pytest.raises(ConnectionError):
        connection.request("Metadata", {"topics": None, **NO_OPERATIONS})
    wait_until(lambda: len(fake.faults) == 1)
    assert "the fake's own thread" in fake.faults[0]


def test_alter_changes_the_real_response(fake: FakeBroker, ada: MemberClient) -> None:
    fake.control("OffsetFetch", lambda call: Alter(lambda response: response._replace(throttle_time_ms=2**31 - 1)))
    ada.commit({0: 3})
    response = ada.request("OffsetFetch", {"group_id": "group", "topics": None}, at_most=7)
    assert response.throttle_time_ms == 2**31 - 1
    assert response.topics[0].partitions[0].committed_offset == 3


def test_wrong_correlation_id_and_raw_bytes(fake: FakeBroker) -> None:
    fake.control("Heartbeat", lambda call: Answer(HeartbeatResponse(), correlation_id=call.correlation_id + 1), times=1)
    fake.control("Metadata", lambda call: Raw(struct.pack(">i", 2**31 - 1)), times=1)
    with Connection(fake.bootstrap) as connection, pytest.raises(WireError, match="correlation id"):
        connection.request("Heartbeat", HeartbeatRequest(group_id="g", generation_id=1, member_id="m"))
    with Connection(fake.bootstrap) as connection, pytest.raises(WireError, match="limit"):
        connection.request("Metadata", {"topics": None, **NO_OPERATIONS})


@pytest.mark.parametrize(("after_work", "committed"), [(False, -1), (True, 7)])
@pytest.mark.parametrize("kind", [Drop, Close])
def test_lost_request_and_lost_response_differ_in_what_was_done(
    fake: FakeBroker, ada: MemberClient, kind: type[Drop] | type[Close], after_work: bool, committed: int
) -> None:
    fake.control("OffsetCommit", lambda call: kind(after_work=after_work), times=1)
    if kind is Close:
        with pytest.raises(ConnectionError):
            ada.commit({0: 7})
    else:
        ada.socket.settimeout(0.3)
        with pytest.raises(TimeoutError):
            ada.commit({0: 7})
    assert len(fake.calls_of("OffsetCommit")) == 1
    known = fake.group("group").offsets.get(TopicPartition("topic", 0))
    assert (known.offset if known else -1) == committed


def test_close_can_be_a_reset(fake: FakeBroker, connection: Connection) -> None:
    fake.control("Metadata", lambda call: Close(reset=True))
    with pytest.raises(ConnectionResetError):
        connection.request("Metadata", {"topics": None, **NO_OPERATIONS})
    wait_until(lambda: fake.open_connections == 0)


def test_hold_waits_for_its_release_before_or_after_the_work(fake: FakeBroker, ada: MemberClient) -> None:
    before, after = Hold(), Hold(after_work=True)
    fake.control("OffsetCommit", lambda call: before if call.number == 0 else after)
    for partition, hold in ((0, before), (1, after)):
        worker = threading.Thread(target=ada.commit, args=({partition: 40},))
        worker.start()
        assert hold.reached.wait(120)
        assert (TopicPartition("topic", partition) in fake.group("group").offsets) is hold.after_work
        hold.release()
        worker.join(120)
        assert not worker.is_alive()
        assert fake.group("group").offsets[TopicPartition("topic", partition)].offset == 40


def test_delay_answers_no_sooner(fake: FakeBroker, ada: MemberClient) -> None:
    fake.control("Heartbeat", lambda call: Delay(0.15), times=1)
    began = time.monotonic()
    assert ada.heartbeat() == 0
    assert time.monotonic() - began >= 0.15


def test_coordinator_moves_with_all_it_knows() -> None:
    with FakeBroker(topics={"topic": 1}, nodes=2) as fake:
        addresses = fake.bootstrap.split(",")
        with MemberClient(Stage(addresses[0], "topic", "group")) as ada, Connection(addresses[1]) as other:
            ada.join()
            ada.sync({ada.member_id: b"all"})
            fake.move_coordinator("group", 2)
            assert ada.heartbeat() == 16
            assert ada.join().error_code == 16
            assert ada.sync()[0] == 16
            assert ada.commit({0: 1}) == [16]
            assert ada.leave() == [16]
            found = other.request("FindCoordinator", {"coordinator_keys": ("group",)}).coordinators[0]
            assert (found.node_id, f"{found.host}:{found.port}") == (2, addresses[1])
            beat = HeartbeatRequest(group_id="group", generation_id=ada.generation, member_id=ada.member_id)
            assert other.request("Heartbeat", beat).error_code == 0


def test_leaders_move_stop_and_are_reported_wrongly() -> None:
    with FakeBroker(topics={"topic": 2}, nodes=2) as fake, Connection(fake.bootstrap) as connection:
        fake.produce("topic", 1, [(b"k", b"v")])
        described = connection.request("Metadata", {"topics": None, **NO_OPERATIONS})
        assert [each.leader_id for each in described.topics[0].partitions] == [1, 2]
        fake.set_leader("topic", 1, 1)
        fake.advertise(2, "nowhere.invalid", 1)
        fake.stop_node(2)
        with pytest.raises(ConnectionRefusedError):
            Connection(fake.bootstrap.split(",")[1])
        described = connection.request("Metadata", {"topics": None, **NO_OPERATIONS})
        assert [(each.leader_id, each.leader_epoch) for each in described.topics[0].partitions] == [(1, 0), (1, 1)]
        assert [broker.host for broker in described.brokers] == ["127.0.0.1", "nowhere.invalid"]
        partition = {"partition": 1, "fetch_offset": 0, "partition_max_bytes": 1000}
        errors = []
        for epoch in (0, 1, 2):
            topics = [{"topic": "topic", "partitions": [{**partition, "current_leader_epoch": epoch}]}]
            request = {"max_wait_ms": 0, "min_bytes": 1, "topics": topics, "forgotten_topics_data": []}
            errors.append(connection.request("Fetch", request, at_most=12).responses[0].partitions[0].error_code)
        assert errors == [74, 0, 75]
        fake.start_node(2)
        Connection(fake.bootstrap.split(",")[1]).close()


def fetch(connection: Connection, offset: int, *, max_wait_ms: int = 0) -> Any:
    partition = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
    topics = [{"topic": "topic", "partitions": [partition]}]
    request = {"max_wait_ms": max_wait_ms, "min_bytes": 1, "topics": topics, "forgotten_topics_data": []}
    return connection.request("Fetch", request, at_most=12).responses[0].partitions[0]


def test_fetch_waits_until_records_arrive(fake: FakeBroker, connection: Connection) -> None:
    got: list[Any] = []
    waiting = threading.Thread(target=lambda: got.append(fetch(connection, 0, max_wait_ms=60_000)))
    waiting.start()
    wait_until(lambda: len(fake.calls_of("Fetch")) == 1)
    fake.produce("topic", 0, [(b"k", b"v")], codec="lz4")
    waiting.join(120)
    assert not waiting.is_alive()
    assert [record.value for record in decode(got[0].records)] == [b"v"]


def test_log_trimmed_compacted_and_damaged(fake: FakeBroker, connection: Connection) -> None:
    for number in range(4):
        fake.produce("topic", 0, [(b"k", bytes([number]))])
    fake.trim("topic", 0, 2)
    assert fetch(connection, 1).error_code == 1
    assert [record.offset for record in decode(fetch(connection, 2).records)] == [2, 3]
    fake.append_raw("topic", 0, b"these are no batches", records=3)
    assert fake.end_offset("topic", 0) == 7
    assert bytes(fetch(connection, 4).records) == b"these are no batches"


@pytest.mark.parametrize("records", [0, 3])
def test_epoch_that_left_nothing_in_the_log_was_not_truncated(
    fake: FakeBroker, connection: Connection, records: int
) -> None:
    if records:
        fake.produce("topic", 0, [(b"k", b"v")] * records)
        fake.trim("topic", 0, records)
    fake.set_leader("topic", 0, 1)

    def end_of(epoch: int) -> tuple[int, int, int]:
        partition = {"partition": 0, "current_leader_epoch": 1, "leader_epoch": epoch}
        request = {"replica_id": -1, "topics": [{"topic": "topic", "partitions": [partition]}]}
        response = connection.request("OffsetForLeaderEpoch", request).topics[0].partitions[0]
        return response.error_code, response.leader_epoch, response.end_offset

    assert end_of(0) == (0, 0, records)
    fake.produce("topic", 0, [(b"k", b"v")])
    assert [end_of(epoch) for epoch in (0, 1, 2)] == [(0, 0, records), (0, 1, records + 1), (0, -1, -1)]


def test_topics_grow_go_and_come_back_as_others(fake: FakeBroker, connection: Connection) -> None:
    def described() -> tuple[int, int, Any]:
        requested = [{"name": "topic", "topic_id": UUID(int=0)}]
        topic = connection.request("Metadata", {"topics": requested, **NO_OPERATIONS}).topics[0]
        return topic.error_code, len(topic.partitions), topic.topic_id

    first = described()
    fake.add_partitions("topic", 5)
    grown = described()
    assert (grown[1], grown[2]) == (5, first[2])
    fake.delete_topic("topic")
    assert described()[:2] == (3, 0)
    fake.create_topic("topic", 1)
    again = described()
    assert again[:2] == (0, 1)
    assert again[2] != first[2]
    assert fake.end_offset("topic", 0) == 0


def test_versions_can_be_narrowed_and_apis_hidden() -> None:
    with FakeBroker(versions={"Fetch": (4, 11), "ApiVersions": (0, 2), "Produce": None}) as fake:
        with Connection(fake.bootstrap) as connection:
            assert connection.ranges[1] == (4, 11)
            assert 0 not in connection.ranges
            with pytest.raises(UnsupportedVersion):
                connection.send("Produce", {})
            refused = connection.request(
                "ApiVersions", {"client_software_name": "x", "client_software_version": "1"}, version=3
            )
            assert (refused.error_code, bool(refused.api_keys)) == (35, True)
        with pytest.raises(ValueError, match="not within"):
            FakeBroker(versions={"Fetch": (0, 11)})


def test_request_that_is_no_request_ends_its_connection_only(fake: FakeBroker, connection: Connection) -> None:
    for garbage in (
        struct.pack(">ihhi", 8, 999, 0, 1),
        struct.pack(">i", 2**31 - 1),
        struct.pack(">ihhi", 8, 3, 99, 1),
    ):
        with Connection(fake.bootstrap) as stranger:
            stranger.socket.sendall(garbage)
            assert stranger.socket.recv(1) == b""
    assert len(fake.faults) == 3
    assert connection.request("Metadata", {"topics": None, **NO_OPERATIONS}).topics[0].name == "topic"


def test_client_that_leaves_while_parked_leaves_no_connection_behind(fake: FakeBroker, ada: MemberClient) -> None:
    with MemberClient(ada.stage) as ben:
        ben.start_join()
        wait_until(lambda: fake.group("group").state is GroupState.PREPARING)
    wait_until(lambda: fake.open_connections == 1)
    assert ada.heartbeat() == 27


def test_group_size_and_initial_delay_are_settings() -> None:
    settings = CoordinatorSettings(group_max_size=1, group_initial_rebalance_delay_ms=150)
    with FakeBroker(topics={"topic": 1}, settings=settings) as fake:
        stage = Stage(fake.bootstrap, "topic", "group")
        with MemberClient(stage) as ada, MemberClient(stage) as ben:
            began = time.monotonic()
            assert ada.join().error_code == 0
            assert time.monotonic() - began >= 0.15
            assert ben.join().error_code == 81


def test_confluent_kafka_reads_a_group_on_the_fake(fake: FakeBroker) -> None:
    fake.produce("topic", 0, [(b"a", b"1")])
    fake.produce("topic", 1, [(b"b", b"2")], codec="zstd")
    settings = {"bootstrap.servers": fake.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"}
    consumer = confluent_kafka.Consumer({**settings, "enable.auto.commit": False})
    consumer.subscribe(["topic"])
    try:
        got: set[bytes | None] = set()
        deadline = time.monotonic() + 120
        while len(got) < 2 and time.monotonic() < deadline:
            message = consumer.poll(0.5)
            if message is not None and message.error() is None:
                got.add(message.value())
        assert got == {b"1", b"2"}
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()
    group = fake.group("g")
    assert {partition: committed.offset for partition, committed in group.offsets.items()} == {
        TopicPartition("topic", 0): 1,
        TopicPartition("topic", 1): 1,
    }
    assert group.members == {}
    assert fake.faults == []


def test_kafka_python_reads_a_group_on_the_fake(fake: FakeBroker) -> None:
    fake.produce("topic", 0, [(b"a", b"1"), (b"b", b"2")], codec="gzip")
    consumer = kafka.KafkaConsumer(
        "topic",
        bootstrap_servers=fake.bootstrap,
        group_id="g",
        auto_offset_reset="earliest",
        consumer_timeout_ms=20_000,
    )
    try:
        got = [next(consumer).value, next(consumer).value]
    finally:
        consumer.close()
    assert got == [b"1", b"2"]
    assert fake.group("g").members == {}
    assert fake.faults == []


def test_two_aiokafka_members_share_a_topic_on_the_fake(fake: FakeBroker) -> None:
    async def play() -> list[set[Any]]:
        members = [
            aiokafka.AIOKafkaConsumer(
                "topic",
                bootstrap_servers=fake.bootstrap,
                group_id="g",
                heartbeat_interval_ms=100,
                metadata_max_age_ms=500,
            )
            for _ in range(2)
        ]
        for each in members:
            await each.start()
        try:
            for _ in range(400):
                await asyncio.gather(*(each.getmany(timeout_ms=20) for each in members))
                owned = [each.assignment() for each in members]
                if all(len(each) == 1 for each in owned):
                    return owned
            return owned
        finally:
            for each in members:
                await each.stop()

    first, second = asyncio.run(play())
    assert {(each.topic, each.partition) for each in first | second} == {("topic", 0), ("topic", 1)}
    assert not first & second


def test_a_broker_that_keeps_no_calls_serves_them() -> None:
    with FakeBroker({"topic": 1}, keep_calls=False) as fake, Admin(fake.bootstrap) as admin:
        assert [topic.topic for topic in admin.list_topics()] == ["topic"]
        assert fake.calls == []


def test_nodes_take_the_given_ports() -> None:
    ports = free_ports(2)
    with FakeBroker(nodes=2, ports=ports) as fake:
        assert fake.bootstrap == ",".join(f"127.0.0.1:{port}" for port in ports)
        with pytest.raises(OSError, match="address already in use"):
            FakeBroker(ports=ports[1:])
        fake.stop_node(2)
        fake.start_node(2)
        assert fake.bootstrap.endswith(f":{ports[1]}")


def test_a_broker_that_cannot_have_its_topics_leaves_no_thread() -> None:
    before = threading.active_count()
    wrong: Any = {"payments": "2"}
    with pytest.raises(TypeError):
        FakeBroker(topics=wrong)
    assert threading.active_count() == before
