"""The same small scenarios, run on the fake and on a real broker: both must give the same responses."""

import asyncio
import struct
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager
from typing import Any
from uuid import UUID

import pytest
from confluent_kafka.admin import AdminClient

from kohort import Producer
from kohort.common.topic_partition import TopicPartition
from kohort.conformance.broker_under_test import BrokerUnderTest
from kohort.conformance.catalogue import CHECKS
from kohort.conformance.check_context import CheckContext
from kohort.conformance.group_steps import ScriptedMember
from kohort.conformance.request_builders import FetchedOffset, commit
from kohort.conformance.request_builders import fetch as fetch_offsets
from kohort.conformance.share.share_member import ScriptedShareMember
from kohort.conformance.streams.streams_member import member_of as streams_member_of
from kohort.conformance.txn_offset_commit import CheckProducer
from kohort.fastpath import decode, encode
from kohort.protocol.catalogue import API
from kohort.protocol.errors import error_name
from kohort.protocol.wire import WireConnection
from kohort.testing import FakeBroker, RealBroker
from kohort.testing.topics import create_topic
from tests.testing.group_client import Connection, MemberClient, Stage, reported

Cast = Callable[..., MemberClient]

ILLEGAL_GENERATION, INCONSISTENT, INVALID_GROUP, UNKNOWN_MEMBER, BAD_SESSION, REBALANCING = 22, 23, 24, 25, 26, 27
NON_EMPTY_GROUP, NO_GROUP, UNKNOWN_TOPIC, INVALID_TOPIC, INVALID_RECORD = 68, 69, 3, 17, 87
INVALID_REQUIRED_ACKS, MESSAGE_TOO_LARGE, UNSTABLE = 21, 10, 88
LOADING, INVALID_REQUEST, OUT_OF_ORDER_SEQUENCE, INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE = 14, 42, 45, 47, 48
CONCURRENT_TRANSACTIONS, PRODUCER_FENCED, NO_COORDINATOR = 51, 90, (14, 15, 16)
NO_ID = UUID(int=0)
_NO_OPERATIONS = {"include_topic_authorized_operations": False}
FENCED_INSTANCE, MEMBER_ID_REQUIRED = 82, 79


@pytest.fixture
def member(stage: Stage) -> Iterator[Cast]:
    """Makes members of the stage's group; all are disconnected at the end."""
    with ExitStack() as stack:
        yield lambda **options: stack.enter_context(MemberClient(stage, **options))


def settled(*members: MemberClient) -> None:
    """All come to one generation, one after the other, and sync it; each is assigned its own id's bytes."""
    assert members[0].join().error_code == 0
    for at, newcomer in enumerate(members[1:], 1):
        newcomer.start_join()
        for earlier in members[:at]:
            sees_rebalance(earlier)
            earlier.send_join()
        for each in members[: at + 1]:
            assert each.joined().error_code == 0
    share(*members)


def sees_rebalance(member: MemberClient) -> None:
    """Heartbeats until they report a rebalance: another member's request may still be on its way."""
    while not (error := member.heartbeat()):
        pass
    assert error == REBALANCING


def share(*members: MemberClient) -> None:
    """The leader assigns `for <member id>` to everyone."""
    (leader,) = [each for each in members if each.leader == each.member_id]
    for each in members:
        each.send_sync({one.member_id: f"for {one.member_id}".encode() for one in members} if each is leader else None)
    for each in members:
        assert each.synced() == (0, f"for {each.member_id}".encode())


def test_one_members_life(stage: Stage, member: Cast) -> None:
    ada = member()
    ada.send_join()
    first = ada.joined()
    assert (first.error_code, first.generation_id, first.members) == (MEMBER_ID_REQUIRED, -1, ())
    assert first.member_id
    ada.member_id = first.member_id
    joined = ada.join()
    assert (joined.error_code, joined.generation_id, joined.protocol_name) == (0, 1, "range")
    assert (joined.leader, joined.member_id) == (ada.member_id, ada.member_id)
    assert [(each.member_id, bytes(each.metadata)) for each in joined.members] == [(ada.member_id, reported())]
    assert ada.sync({ada.member_id: b"all"}) == (0, b"all")
    assert ada.heartbeat() == 0
    assert ada.commit({0: 5, 2: 7}) == [0, 0]
    assert ada.committed(0, 1, 2) == {
        TopicPartition(stage.topic, 0): 5,
        TopicPartition(stage.topic, 1): -1,
        TopicPartition(stage.topic, 2): 7,
    }
    assert ada.committed() == {TopicPartition(stage.topic, 0): 5, TopicPartition(stage.topic, 2): 7}
    assert ada.leave() == [0]
    assert ada.heartbeat() == UNKNOWN_MEMBER
    assert ada.commit({0: 6}) == [UNKNOWN_MEMBER]
    assert ada.commit({0: 6}, generation_id_or_member_epoch=-1, member_id="") == [0]


def test_joins_of_old_versions_need_no_second_round(member: Cast) -> None:
    ada = member()
    ada.send_join(at_most=3)
    assert ada.joined().error_code == 0
    assert ada.generation == 1


def test_second_member_starts_a_rebalance_that_the_first_learns_of_by_heartbeat(member: Cast) -> None:
    ada, ben = member(), member()
    settled(ada)
    ben.start_join()
    sees_rebalance(ada)
    assert ben.is_waiting
    assert ada.sync() == (REBALANCING, b"")
    assert ada.commit({0: 1}) == [0]
    first, second = ada.join(), ben.joined()
    assert (first.generation_id, second.generation_id) == (2, 2)
    assert first.leader == second.leader == ada.member_id
    assert {each.member_id for each in first.members} == {ada.member_id, ben.member_id}
    assert second.members == ()
    assert ada.heartbeat() == 0
    assert ada.commit({0: 2}) == [REBALANCING]
    ben.send_sync()
    assert ben.is_waiting
    ada.send_sync({ada.member_id: b"for ada"})
    assert ada.synced() == (0, b"for ada")
    assert ben.synced() == (0, b"")
    assert ben.heartbeat() == 0
    assert ben.sync() == (0, b"")


def test_leaving_member_moves_the_group_on_and_the_leader_changes_with_it(member: Cast) -> None:
    ada, ben = member(), member()
    settled(ada, ben)
    leader, other = (ada, ben) if ada.leader == ada.member_id else (ben, ada)
    assert leader.leave() == [0]
    assert other.heartbeat() == REBALANCING
    alone = other.join()
    assert (alone.error_code, alone.leader) == (0, other.member_id)
    assert [each.member_id for each in alone.members] == [other.member_id]


def test_member_that_joins_between_join_and_sync_sends_everyone_back(member: Cast) -> None:
    ada, ben = member(), member()
    ada.join()
    ben.start_join()
    sees_rebalance(ada)
    ada.join()
    ben.joined()
    follower = ben if ada.leader == ada.member_id else ada
    follower.send_sync()
    assert follower.is_waiting
    cleo = member()
    cleo.start_join()
    assert follower.synced() == (REBALANCING, b"")
    ada.send_join()
    ben.send_join()
    assert {each.joined().generation_id for each in (ada, ben, cleo)} == {3}


def test_rejoin_of_an_unchanged_follower_leaves_the_generation_alone(member: Cast) -> None:
    ada, ben = member(), member()
    settled(ada, ben)
    leader, follower = (ada, ben) if ada.leader == ada.member_id else (ben, ada)
    generation = follower.generation
    again = follower.join()
    assert (again.error_code, again.generation_id, again.members) == (0, generation, ())
    assert leader.heartbeat() == 0
    leader.send_join()
    sees_rebalance(follower)
    assert leader.is_waiting
    follower.send_join()
    assert leader.joined().generation_id == generation + 1
    assert follower.joined().generation_id == generation + 1


def test_rejoin_of_a_follower_with_another_subscription_starts_a_rebalance(member: Cast) -> None:
    ada, ben = member(), member()
    settled(ada, ben)
    leader, follower = (ada, ben) if ada.leader == ada.member_id else (ben, ada)
    follower.protocols = {"range": reported(b"other metadata")}
    follower.send_join()
    sees_rebalance(leader)
    assert follower.is_waiting
    listed = leader.join().members
    assert {bytes(each.metadata) for each in listed} == {reported(), reported(b"other metadata")}
    assert follower.joined().error_code == 0


def test_rejoin_of_a_follower_with_another_favourite_starts_a_rebalance(member: Cast) -> None:
    both = {"range": reported(), "roundrobin": reported()}
    ada, ben = member(protocols=both), member(protocols=both)
    settled(ada, ben)
    leader, follower = (ada, ben) if ada.leader == ada.member_id else (ben, ada)
    follower.protocols = {"roundrobin": reported(), "range": reported()}
    follower.send_join()
    sees_rebalance(leader)
    assert follower.is_waiting
    assert leader.join().error_code == 0


def test_lone_member_cannot_change_to_protocols_that_it_did_not_have(member: Cast) -> None:
    ada = member()
    settled(ada)
    ada.protocols = {"sticky": reported()}
    assert ada.join().error_code == INCONSISTENT
    assert ada.heartbeat() == 0


@pytest.mark.parametrize("api", ["heartbeat", "sync", "commit"])
def test_wrong_generation_and_wrong_member(member: Cast, api: str) -> None:
    ada = member()
    settled(ada)

    def error(generation: int, member_id: str) -> int:
        if api == "heartbeat":
            return ada.heartbeat(generation_id=generation, member_id=member_id)
        if api == "sync":
            return ada.sync(generation_id=generation, member_id=member_id)[0]
        return ada.commit({0: 1}, generation_id_or_member_epoch=generation, member_id=member_id)[0]

    assert error(ada.generation + 1, ada.member_id) == ILLEGAL_GENERATION
    assert error(ada.generation - 1, ada.member_id) == ILLEGAL_GENERATION
    assert error(ada.generation, "stranger") == UNKNOWN_MEMBER
    assert error(ada.generation, ada.member_id) == 0


def test_group_that_does_not_exist(member: Cast) -> None:
    ada = member()
    assert ada.heartbeat(generation_id=1, member_id="x") == UNKNOWN_MEMBER
    assert ada.sync(generation_id=1, member_id="x")[0] == UNKNOWN_MEMBER
    assert ada.leave(member_id="x") == [UNKNOWN_MEMBER]
    assert ada.join(member_id="x").error_code == UNKNOWN_MEMBER
    assert ada.commit({0: 1}, generation_id_or_member_epoch=3, member_id="x", at_most=8) == [ILLEGAL_GENERATION]
    (newer,) = ada.commit({0: 1}, generation_id_or_member_epoch=3, member_id="x")
    assert newer in ((NO_GROUP,) if ada.is_new_coordinator else (ILLEGAL_GENERATION,))
    assert ada.commit({0: 1}, generation_id_or_member_epoch=-1, member_id="") == [0]


def test_commit_from_outside_is_refused_while_the_group_has_members(member: Cast) -> None:
    ada = member()
    settled(ada)
    assert ada.commit({0: 1}, generation_id_or_member_epoch=-1, member_id="") == [UNKNOWN_MEMBER]


def test_joins_that_can_never_succeed(member: Cast) -> None:
    ada = member()
    assert ada.join(group_id="").error_code == INVALID_GROUP
    assert ada.join(session_timeout_ms=1).error_code == BAD_SESSION
    assert ada.join(session_timeout_ms=2**31 - 1).error_code == BAD_SESSION
    assert ada.join(protocols=()).error_code == INCONSISTENT
    ada.member_id = ""
    settled(ada)
    ben = member(protocols={"sticky": reported()})
    assert ben.join().error_code == INCONSISTENT
    assert member().join(protocol_type="connect").error_code == INCONSISTENT
    assert ada.heartbeat() == 0


def test_the_group_without_a_name_has_offsets_and_no_members(stage: Stage, member: Cast) -> None:
    def described(api: str, **field: list[str]) -> Any:
        return ada.request(api, {**field, "include_authorized_operations": False}).groups[0]

    def deleted() -> int:
        return int(ada.request("DeleteGroups", {"groups_names": [""]}).results[0].error_code)

    ada = member()
    ada.stage = stage._replace(group="")
    assert not any(one.error_code for one in ada.request("FindCoordinator", {"coordinator_keys": ("",)}).coordinators)
    assert ada.join().error_code == INVALID_GROUP
    assert ada.commit({0: 5}, generation_id_or_member_epoch=-1, member_id="", at_most=8) == [0]
    assert ada.committed() == {TopicPartition(stage.topic, 0): 5}
    assert described("DescribeGroups", groups=[""]).group_state == "Empty"
    if ada.is_new_coordinator:
        assert described("ConsumerGroupDescribe", group_ids=[""]).error_code == INVALID_GROUP
    assert (deleted(), deleted(), ada.committed()) == (0, NO_GROUP, {})


def test_protocol_is_the_one_that_all_have_and_most_prefer(member: Cast) -> None:
    ada = member(protocols={"range": reported(b"r"), "sticky": reported(b"s"), "roundrobin": reported(b"o")})
    ben = member(protocols={"roundrobin": reported(b"o"), "range": reported(b"r")})
    cleo = member(protocols={"roundrobin": reported(b"o"), "sticky": reported(b"s"), "range": reported(b"r")})
    assert ada.join().protocol_name == "range"
    ben.start_join()
    sees_rebalance(ada)
    cleo.start_join()
    assert cleo.is_waiting
    ada.send_join()
    assert {each.joined().protocol_name for each in (ada, ben, cleo)} == {"roundrobin"}


def test_sync_for_another_protocol_is_inconsistent(member: Cast) -> None:
    ada = member()
    ada.join()
    assert ada.sync({}, protocol_type="consumer", protocol_name="sticky")[0] == INCONSISTENT
    assert ada.sync({}, protocol_type="connect", protocol_name="range")[0] == INCONSISTENT
    assert ada.sync({}, protocol_type=None, protocol_name=None)[0] == INCONSISTENT
    assert ada.sync({}, protocol_type="consumer", protocol_name="range")[0] == 0


def test_silent_member_is_given_up_after_its_session(member: Cast) -> None:
    ada, ben = member(session_timeout_ms=600), member()
    settled(ada, ben)
    while ben.heartbeat() != REBALANCING:
        pass
    assert ada.heartbeat() == UNKNOWN_MEMBER
    assert [each.member_id for each in ben.join().members] == [ben.member_id]


def test_member_that_does_not_rejoin_in_time_is_left_behind(member: Cast) -> None:
    ada, ben = member(rebalance_timeout_ms=500), member(rebalance_timeout_ms=500)
    settled(ada)
    ben.start_join()
    assert ben.joined().error_code == 0
    assert ben.leader == ben.member_id
    assert ada.heartbeat() == UNKNOWN_MEMBER


def test_leader_that_does_not_sync_in_time_is_left_behind(member: Cast) -> None:
    ada, ben = member(rebalance_timeout_ms=500), member(rebalance_timeout_ms=500)
    ada.join()
    ben.start_join()
    sees_rebalance(ada)
    ada.join()
    ben.joined()
    leader, follower = (ada, ben) if ada.leader == ada.member_id else (ben, ada)
    follower.send_sync()
    assert follower.synced()[0] == REBALANCING
    assert leader.heartbeat() == UNKNOWN_MEMBER


def test_id_that_was_given_out_holds_the_next_generation_back_until_it_is_forgotten(member: Cast) -> None:
    ada, ben, cleo = member(), member(session_timeout_ms=1500), member()
    settled(ada)
    ben.send_join()
    assert ben.joined().error_code == MEMBER_ID_REQUIRED
    cleo.start_join()
    sees_rebalance(ada)
    ada.send_join()
    assert ada.is_waiting
    assert ada.joined().error_code == 0
    assert cleo.joined().error_code == 0


def test_id_that_was_given_out_does_not_hold_the_first_generation_back(member: Cast) -> None:
    ada, ben = member(), member()
    ada.send_join()
    assert ada.joined().error_code == MEMBER_ID_REQUIRED
    assert ben.join().error_code == 0
    assert ben.leader == ben.member_id


def test_static_member_comes_back_to_its_place_and_its_old_self_is_fenced(member: Cast) -> None:
    ada, ben = member(instance_id="a"), member(instance_id="b")
    settled(ada, ben)
    generation, assigned = ben.generation, f"for {ben.member_id}".encode()
    again = member(instance_id="b")
    joined = again.join()
    assert (joined.error_code, joined.generation_id, joined.leader) == (0, generation, ada.member_id)
    assert again.member_id not in ("", ben.member_id)
    assert again.sync() == (0, assigned)
    assert ada.heartbeat() == 0
    assert ben.heartbeat() == FENCED_INSTANCE
    assert ben.commit({0: 1}) == [FENCED_INSTANCE]
    assert ben.sync()[0] == FENCED_INSTANCE
    assert ben.join().error_code == FENCED_INSTANCE
    assert ben.leave() == [FENCED_INSTANCE]
    assert again.leave(member_id="") == [0]
    assert ada.heartbeat() == REBALANCING


@pytest.mark.proves("G-17")
def test_static_member_that_comes_back_with_other_metadata_moves_no_member(member: Cast) -> None:
    ada, ben = member(instance_id="a"), member(instance_id="b")
    settled(ada, ben)
    # As a sticky one's: it sent what it owned, and after its restart it owns nothing.
    again = member(instance_id="b", protocols={"range": reported(b"owns nothing")})
    joined = again.join()
    assert (joined.error_code, joined.generation_id, joined.leader) == (0, ben.generation, ada.member_id)
    assert again.sync() == (0, f"for {ben.member_id}".encode())
    assert ada.heartbeat() == 0


def test_static_member_that_comes_back_with_another_favourite_starts_a_rebalance(member: Cast) -> None:
    both = {"range": reported(), "roundrobin": reported()}
    ada = member(instance_id="a", protocols=both)
    settled(ada)
    again = member(instance_id="a", protocols={"roundrobin": reported(), "range": reported()})
    joined = again.join()
    assert (joined.error_code, joined.generation_id, joined.protocol_name) == (0, 2, "roundrobin")


def test_static_leader_comes_back_and_need_not_assign_again(member: Cast) -> None:
    ada = member(instance_id="a")
    settled(ada)
    again = member(instance_id="a")
    joined = again.join()
    assert (joined.error_code, joined.generation_id, joined.skip_assignment) == (0, 1, True)
    assert [each.group_instance_id for each in joined.members] == ["a"]
    assert again.sync()[0] == 0
    assert again.generation == 1


def test_static_member_that_is_unknown(member: Cast) -> None:
    ada = member()
    settled(ada)
    assert ada.heartbeat(group_instance_id="nobody") == UNKNOWN_MEMBER
    assert ada.leave(member_id="", group_instance_id="nobody") == [UNKNOWN_MEMBER]


def test_commits_that_are_refused_by_partition(member: Cast) -> None:
    ada = member()
    settled(ada)
    assert ada.commit({0: 1}, metadata="x" * 5000) == [12]
    assert ada.commit({0: 1, 99: 1}) == [0, 3]
    assert ada.commit({0: 1}, topic="no-such-topic") == [3]
    assert ada.commit({0: 1}, metadata="fine") == [0]


def fetch(connection: Connection, stage: Stage, offset: int, **limits: int) -> Any:
    given = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20, **limits}
    partition = {
        "partition": 0,
        "fetch_offset": offset,
        "partition_max_bytes": given.pop("partition_max_bytes", 1 << 20),
    }
    request = {**given, "forgotten_topics_data": [], "topics": [{"topic": stage.topic, "partitions": [partition]}]}
    return connection.request("Fetch", request, at_most=12).responses[0].partitions[0]


def produce(connection: Connection, stage: Stage, data: bytes, *, topic: str = "", acks: int = -1) -> Any:
    partition = {"index": 0, "records": data}
    request = {
        "acks": acks,
        "timeout_ms": 5000,
        "topic_data": [{"name": topic or stage.topic, "partition_data": [partition]}],
    }
    return connection.request("Produce", request, at_most=11).responses[0].partition_responses[0]


def test_records_that_a_broker_refuses_by_default(stage: Stage) -> None:
    with Connection(stage.bootstrap) as connection:
        assert produce(connection, stage, encode([(b"k", b"v")]), acks=2).error_code == INVALID_REQUIRED_ACKS
        assert produce(connection, stage, encode([(b"k", bytes(1_100_000))])).error_code == MESSAGE_TOO_LARGE
        assert produce(connection, stage, encode([(b"k", bytes(1_000_000))])).error_code == 0


def offset_at(connection: Connection, stage: Stage, timestamp: int, isolation_level: int = 0) -> tuple[int, int, int]:
    partition = {"partition_index": 0, "timestamp": timestamp}
    topics = [{"name": stage.topic, "partitions": [partition]}]
    request = {"replica_id": -1, "isolation_level": isolation_level, "topics": topics}
    response = connection.request("ListOffsets", request, at_most=7).topics[0].partitions[0]
    assert (response.leader_epoch < 0) == (response.offset < 0)
    return response.error_code, response.offset, response.timestamp


def test_log_of_a_partition(stage: Stage) -> None:
    with Connection(stage.bootstrap) as connection:
        batches = [encode([(b"k", bytes([number]) * 100, number) for number in (at, at + 1)]) for at in (10, 20, 30)]
        results = [produce(connection, stage, batch) for batch in batches]
        assert [(result.error_code, result.base_offset) for result in results] == [(0, 0), (0, 2), (0, 4)]
        assert offset_at(connection, stage, -1)[:2] == (0, 6)
        assert offset_at(connection, stage, -2)[:2] == (0, 0)
        assert offset_at(connection, stage, 15) == (0, 2, 20)
        assert offset_at(connection, stage, 31) == (0, 5, 31)
        assert offset_at(connection, stage, 32) == (0, -1, -1)
        assert offset_at(connection, stage, -3) == (0, 5, 31)
        everything = fetch(connection, stage, 0)
        assert (everything.error_code, everything.high_watermark, everything.log_start_offset) == (0, 6, 0)
        assert [record.offset for record in decode(everything.records)] == [0, 1, 2, 3, 4, 5]
        inside = fetch(connection, stage, 3)
        assert [record.offset for record in decode(inside.records)] == [2, 3, 4, 5]
        one = fetch(connection, stage, 2, partition_max_bytes=1)
        assert [record.offset for record in decode(one.records)] == [2, 3]
        assert bytes(fetch(connection, stage, 6).records) == b""
        beyond = fetch(connection, stage, 7)
        assert (beyond.error_code, beyond.high_watermark, beyond.log_start_offset) == (1, -1, -1)
        assert fetch(connection, stage, -1).error_code == 1


def test_a_search_by_time_ends_before_an_open_transaction(stage: Stage, unique: Callable[[str], str]) -> None:
    with (
        Connection(stage.bootstrap) as connection,
        Producer(stage.bootstrap, transactional_id=unique("producer")) as producer,
    ):
        for timestamp in (-1, -2):
            assert offset_at(connection, stage, timestamp, isolation_level=1) == (0, 0, -1)
        assert produce(connection, stage, encode([(b"k", b"v", 10)])).base_offset == 0
        producer.begin()
        producer.send(stage.topic, b"v", partition=0, timestamp_ms=20)
        producer.flush()
        assert offset_at(connection, stage, 10, isolation_level=1) == (0, 0, 10)
        for timestamp in (20, -3):
            assert offset_at(connection, stage, timestamp) == (0, 1, 20)
            assert offset_at(connection, stage, timestamp, isolation_level=1) == (0, -1, -1)
        producer.abort()


def test_a_search_by_time_finds_the_ends_of_transactions(stage: Stage, unique: Callable[[str], str]) -> None:
    with (
        Connection(stage.bootstrap) as connection,
        Producer(stage.bootstrap, transactional_id=unique("producer")) as producer,
    ):
        for end in (producer.commit, producer.abort):
            producer.begin()
            producer.send(stage.topic, b"v", partition=0, timestamp_ms=20)
            producer.flush()
            end()
        while offset_at(connection, stage, -1, isolation_level=1)[1] < 4:
            pass
        for isolation_level in (0, 1):
            assert offset_at(connection, stage, 20, isolation_level) == (0, 0, 20)
            assert offset_at(connection, stage, 21, isolation_level)[:2] == (0, 1)
            assert offset_at(connection, stage, -3, isolation_level)[:2] == (0, 3)


def test_batches_that_are_refused(stage: Stage) -> None:
    with Connection(stage.bootstrap) as connection:
        assert produce(connection, stage, b"").error_code == INVALID_RECORD
        assert produce(connection, stage, encode([(b"k", b"v")]) * 2).error_code == INVALID_RECORD
        batch = bytearray(encode([(b"k", b"value")]))
        batch[-1] ^= 1
        assert produce(connection, stage, bytes(batch)).error_code == 2
        assert produce(connection, stage, encode([(b"k", b"v")]), topic="no-such-topic").error_code == 3
        assert offset_at(connection, stage, -1)[:2] == (0, 0)


def new_producer_id(connection: Connection) -> int:
    requested = {"transactional_id": None, "transaction_timeout_ms": 1000}
    while True:
        reported = connection.request("InitProducerId", requested, at_most=5)
        if reported.error_code != LOADING:  # a broker gets its first ids from the controller
            assert (reported.error_code, reported.producer_epoch) == (0, 0)
            return int(reported.producer_id)


def test_an_idempotent_producers_batches_are_taken_once_and_in_order(stage: Stage) -> None:
    with Connection(stage.bootstrap) as connection:
        first, second = new_producer_id(connection), new_producer_id(connection)
        nameless = {"transactional_id": "", "transaction_timeout_ms": 1000}
        assert connection.request("InitProducerId", nameless, at_most=5).error_code == INVALID_REQUEST
        assert 0 <= first != second >= 0

        def send(sequence: int, *, epoch: int = 0, producer: int = first, records: int = 2) -> tuple[int, int]:
            batch = encode(
                [(b"k", b"v", number) for number in range(records)],
                producer_id=producer,
                producer_epoch=epoch,
                base_sequence=sequence,
            )
            response = produce(connection, stage, batch)
            return response.error_code, response.base_offset

        assert [send(0), send(0), send(2), send(0)] == [(0, 0), (0, 0), (0, 2), (0, 0)]
        assert send(5) == (OUT_OF_ORDER_SEQUENCE, -1)
        assert send(2, records=3) == (OUT_OF_ORDER_SEQUENCE, -1)
        assert [send(sequence) for sequence in (4, 6, 8, 10)] == [(0, 4), (0, 6), (0, 8), (0, 10)]
        assert send(0) == (OUT_OF_ORDER_SEQUENCE, -1)  # six batches ago: known no more
        assert send(2) == (0, 2)
        assert send(12, epoch=1) == (OUT_OF_ORDER_SEQUENCE, -1)
        assert send(0, epoch=1) == (0, 12)
        assert send(12) == (INVALID_PRODUCER_EPOCH, -1)
        assert send(7, producer=second) == (0, 14)  # what it sent before is not known
        assert offset_at(connection, stage, -1)[:2] == (0, 16)


def init_of_an_open_transaction(bootstrap: str, topic: str, name: str) -> tuple[int, int]:
    """The error code and epoch for a producer that has a transaction open and sends InitProducerId with its epoch."""

    def begun(known: tuple[int, int]) -> Any:
        named = {"transactional_id": name, "transaction_timeout_ms": 60_000}
        request = {**named, "producer_id": known[0], "producer_epoch": known[1]}
        while (response := connection.request("InitProducerId", request, at_most=5)).error_code in NO_COORDINATOR:
            connection.request("FindCoordinator", {"key": name, "key_type": 1}, version=3)  # creates its topic
        return response

    with Connection(bootstrap) as connection:
        first = begun((-1, -1))
        known = first.producer_id, first.producer_epoch
        added = {
            "v3_and_below_transactional_id": name,
            "v3_and_below_producer_id": known[0],
            "v3_and_below_producer_epoch": known[1],
            "v3_and_below_topics": [{"name": topic, "partitions": [0]}],
        }
        (result,) = connection.request("AddPartitionsToTxn", added, at_most=3).results_by_topic_v3_and_below
        assert (known[1], result.results_by_partition[0].partition_error_code) == (0, 0)
        assert begun(known).error_code == CONCURRENT_TRANSACTIONS
        while (response := begun(known)).error_code == CONCURRENT_TRANSACTIONS:
            pass
        return response.error_code, response.producer_epoch


@pytest.mark.broker
@pytest.mark.parametrize(("level", "version"), [(1, "3.9.1"), (2, "4.3.1")])
def test_the_producer_of_an_open_transaction_is_fenced_by_its_own_epoch_in_version_1(level: int, version: str) -> None:
    with FakeBroker(topics={"topic": 1}, features={"transaction.version": level}) as fake:
        of_fake = init_of_an_open_transaction(fake.bootstrap, "topic", "name")
    with RealBroker(version=version) as broker:
        create_topic(broker.bootstrap, "topic")
        assert of_fake == init_of_an_open_transaction(broker.bootstrap, "topic", "name")
    assert of_fake == ((PRODUCER_FENCED, -1) if level == 1 else (0, 1))


def test_metadata_names_what_there_is_and_what_there_is_not(stage: Stage) -> None:
    with Connection(stage.bootstrap) as connection:
        request = {
            "topics": [{"name": name, "topic_id": UUID(int=0)} for name in (stage.topic, "no-such-topic")],
            "allow_auto_topic_creation": False,
            **_NO_OPERATIONS,
        }
        known, unknown = connection.request("Metadata", request).topics
        assert (known.error_code, known.name, len(known.partitions)) == (0, stage.topic, 3)
        assert unknown.error_code == 3
        by_id = connection.request(
            "Metadata", {"topics": [{"name": None, "topic_id": known.topic_id}], **_NO_OPERATIONS}
        )
        assert [topic.name for topic in by_id.topics] == [stage.topic]
        partitions = [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}]
        topics = [{"topic_id": known.topic_id, "partitions": partitions}]
        response = connection.request(
            "Fetch", {"max_wait_ms": 0, "min_bytes": 1, "topics": topics, "forgotten_topics_data": []}, at_most=16
        )
        assert (response.error_code, response.responses[0].partitions[0].error_code) == (0, 0)


def test_bytes_behind_a_request_are_left_unread(stage: Stage) -> None:
    """librdkafka 2.16 ends Metadata of all topics with three too many: what counts the topics, it writes twice."""
    with Connection(stage.bootstrap) as connection:
        wire = WireConnection("scenario")
        _, data = wire.send(API["Metadata"].key, 12, {"topics": None, **_NO_OPERATIONS})
        connection.socket.sendall(struct.pack(">i", len(data) - 4 + 3) + data[4:] + b"\1\0\0")
        responses: list[Any] = []
        while not responses:
            received = connection.socket.recv(1 << 20)
            assert received, "closed"
            responses += wire.receive(received)
        assert stage.topic in {topic.name for topic in responses[0].value.topics}
    admin = AdminClient({"bootstrap.servers": stage.bootstrap})
    assert stage.topic in admin.list_topics(timeout=10).topics


def test_metadata_of_a_name_that_no_topic_may_have(stage: Stage) -> None:
    with Connection(stage.bootstrap) as connection:
        names = ("no/name", "..", "x" * 250)
        requested = [{"name": name, "topic_id": UUID(int=0)} for name in names]
        request = {"topics": requested, "allow_auto_topic_creation": False, **_NO_OPERATIONS}
        errors = {topic.name: topic.error_code for topic in connection.request("Metadata", request).topics}
        assert errors == dict.fromkeys(names, INVALID_TOPIC)


def test_topics_are_created_checked_and_refused(stage: Stage, unique: Callable[[str], str]) -> None:
    with Connection(stage.bootstrap) as connection:

        def create(name: str, partitions: int = 1, factor: int = 1, validate_only: bool = False) -> int:
            topic = {"name": name, "num_partitions": partitions, "replication_factor": factor}
            request = {"topics": [{**topic, "assignments": [], "configs": []}], "validate_only": validate_only}
            return int(connection.request("CreateTopics", request).topics[0].error_code)

        name = unique("topic")
        assert create(name, validate_only=True) == 0
        assert create(name, 2) == 0
        assert create(name) == 36
        assert create("no/name") == 17
        assert create(f"{name}.b") == 0
        assert create(f"{name}_b") == 17  # both have one name in metrics
        assert create(unique("none"), 0) == 37
        assert create(unique("many"), 1, 9) == 38
        deleted = [connection.request("DeleteTopics", {"topic_names": [name], "timeout_ms": 5000}, at_most=5)]
        deleted.append(
            connection.request("DeleteTopics", {"topic_names": [unique("none")], "timeout_ms": 5000}, at_most=5)
        )
        assert [response.responses[0].error_code for response in deleted] == [0, 3]


def test_what_a_request_names_twice_is_neither_created_nor_deleted(stage: Stage, unique: Callable[[str], str]) -> None:
    with Connection(stage.bootstrap) as connection:

        def create(*names: str) -> dict[str, int]:
            topics = [{"name": one, "num_partitions": 1, "replication_factor": 1} for one in names]
            request = {"topics": [{**one, "assignments": [], "configs": []} for one in topics]}
            created = connection.request("CreateTopics", request).topics
            assert len(created) == len(set(names))
            return {one.name: one.error_code for one in created}

        def delete(*topics: tuple[str | None, UUID]) -> set[tuple[str | None, UUID, int]]:
            states = [{"name": name, "topic_id": topic_id} for name, topic_id in topics]
            deleted = connection.request("DeleteTopics", {"topics": states, "timeout_ms": 5000}, version=6).responses
            found = {(one.name, one.topic_id, one.error_code) for one in deleted}
            assert len(found) == len(deleted)
            return found

        def topic_id(name: str) -> UUID:
            request = {"topics": [{"name": name, "topic_id": NO_ID}], "allow_auto_topic_creation": False}
            while (found := connection.request("Metadata", {**request, **_NO_OPERATIONS}).topics[0]).error_code:
                assert found.error_code == UNKNOWN_TOPIC
            return UUID(int=found.topic_id.int)

        first, second, dotted = unique("topic"), unique("other"), unique("a")
        assert create(first, first, second) == {first: INVALID_REQUEST, second: 0}
        assert create("no/name", "no/name") == {"no/name": INVALID_REQUEST}
        assert create(first, f"{dotted}.b", f"{dotted}_b") == {first: 0, f"{dotted}.b": 0, f"{dotted}_b": 0}
        ids = {name: topic_id(name) for name in (first, second)}
        by_name, by_id = [(name, NO_ID) for name in (first, first, second)], (None, ids[first])
        assert delete(*by_name) == {(first, NO_ID, INVALID_REQUEST), (second, ids[second], 0)}
        assert delete(by_id, by_id) == {(*by_id, INVALID_REQUEST)}
        assert delete(by_id) == {(first, ids[first], 0)}


def test_the_committed_offsets_of_a_topic_are_deleted_with_it(
    stage: Stage, member: Cast, unique: Callable[[str], str]
) -> None:
    ada, name = member(), unique("topic")
    settled(ada)
    create_topic(stage.bootstrap, name)
    kept, gone = TopicPartition(stage.topic, 0), TopicPartition(name, 0)
    assert ada.commit({0: 1}) == [0]
    while (error := ada.commit({0: 2}, topic=name)) != [0]:  # a real coordinator follows the controller's log
        assert error == [UNKNOWN_TOPIC]
    assert ada.committed() == {kept: 1, gone: 2}
    ada.request("DeleteTopics", {"topic_names": [name], "timeout_ms": 5000}, at_most=5)
    while gone in (found := ada.committed()):
        pass
    assert found == {kept: 1}


def test_assignments_are_shown_until_others_take_their_place(member: Cast) -> None:
    ada, ben = member(), member()
    settled(ada)
    ben.start_join()
    sees_rebalance(ada)

    def shown() -> tuple[str, dict[str, bytes]]:
        requested = {"groups": [ada.stage.group], "include_authorized_operations": False}
        group = ada.request("DescribeGroups", requested).groups[0]
        return group.group_state, {each.member_id: bytes(each.member_assignment) for each in group.members}

    before = {ada.member_id: f"for {ada.member_id}".encode(), ben.member_id: b""}
    assert shown() == ("PreparingRebalance", before)
    ada.join()
    assert shown() == ("CompletingRebalance", before)


def test_group_is_described_listed_and_deleted(stage: Stage, member: Cast) -> None:
    def described() -> Any:
        requested = {"groups": [stage.group], "include_authorized_operations": False}
        return ada.request("DescribeGroups", requested).groups[0]

    def listed(state: str) -> list[Any]:
        response = ada.request("ListGroups", {"states_filter": [state]}, at_most=4)
        return [entry.group_state for entry in response.groups if entry.group_id == stage.group]

    def deleted() -> int:
        return int(ada.request("DeleteGroups", {"groups_names": [stage.group]}).results[0].error_code)

    ada = member()
    assert (described().group_state, deleted()) == ("Dead", NO_GROUP)
    settled(ada)
    (one,) = described().members
    assert (one.member_id, one.client_id, bytes(one.member_metadata)) == (ada.member_id, "scenario", reported())
    assert bytes(one.member_assignment) == f"for {ada.member_id}".encode()
    assert (listed("Stable"), listed("Empty")) == (["Stable"], [])
    assert deleted() == NON_EMPTY_GROUP
    assert ada.commit({0: 5, 1: 6}) == [0, 0]
    assert ada.leave() == [0]
    assert (described().group_state, listed("Empty")) == ("Empty", ["Empty"])
    topics = [{"name": stage.topic, "partitions": [{"partition_index": 0}]}]
    forgotten = ada.request("OffsetDelete", {"group_id": stage.group, "topics": topics})
    assert (forgotten.error_code, forgotten.topics[0].partitions[0].error_code) == (0, 0)
    assert ada.committed() == {TopicPartition(stage.topic, 1): 6}
    assert (deleted(), described().group_state, ada.committed()) == (0, "Dead", {})


@asynccontextmanager
async def checked(stage: Stage) -> AsyncIterator[CheckContext]:
    """The context of a check."""
    target = await BrokerUnderTest.reach(stage.bootstrap)
    await target.prepare()
    scene = CheckContext(target, CHECKS[0], 0, 1)
    yield scene
    await scene.close()
    assert await target.clean_up() == []
    await target.close()


def test_a_commit_in_an_open_transaction_outlives_it(stage: Stage) -> None:
    async def run() -> None:
        async with checked(stage) as scene:

            async def stable() -> FetchedOffset:
                response = await fetch_offsets(scene, [(scene.topic, 0)], require_stable=True)
                return response.partitions[scene.topic.name, 0]

            async def decided() -> bool:
                return (await stable()).error_code == 0

            producer = await CheckProducer.make(scene)
            await producer.commit({(scene.topic, 0): 2})
            await commit(scene, {(scene.topic, 0): 9})
            assert await stable() == (-1, -1, "", UNSTABLE)
            assert (await producer.end(True)).error_code == 0
            assert await scene.until(decided)
            assert (await stable()).offset == 9

    asyncio.run(run())


@pytest.mark.parametrize(("writers", "enders"), [("ab", "ba"), ("aba", "ab")])
def test_of_two_transactions_the_later_commit_of_offsets_stays(stage: Stage, writers: str, enders: str) -> None:
    async def run() -> None:
        async with checked(stage) as scene:
            place = (scene.topic, 0)
            producers = {name: await CheckProducer.make(scene) for name in "ab"}
            for offset, name in enumerate(writers):
                assert await producers[name].commit({place: offset}) == {0: 0}
            for name in enders:
                assert (await producers[name].end(True)).error_code == 0
            found = FetchedOffset(-1, -1, "", UNSTABLE)

            async def decided() -> bool:
                nonlocal found
                response = await fetch_offsets(scene, [place], require_stable=True)
                found = response.partitions[scene.topic.name, 0]
                return found.error_code == 0

            assert await scene.until(decided)
            assert found.offset == len(writers) - 1

    asyncio.run(run())


@pytest.mark.parametrize("version", [4, 5])
def test_a_transaction_has_no_offsets_of_the_group_without_a_name(stage: Stage, version: int) -> None:
    async def run() -> None:
        async with checked(stage) as scene:
            producer = await CheckProducer.make(scene)
            partitions = ({"partition_index": 0, "committed_offset": 1, "committed_metadata": ""},)
            response = await scene.send(
                "TxnOffsetCommit",
                version=version,
                transactional_id=producer.name,
                group_id="",
                producer_id=producer.id,
                producer_epoch=producer.epoch,
                topics=({"name": scene.topic.name, "partitions": partitions},),
            )
            assert [one.error_code for one in response.topics[0].partitions] == [INVALID_GROUP]
            if version == 5:  # nothing has begun
                assert (await producer.end(True)).error_code == INVALID_TXN_STATE

    asyncio.run(run())


async def codes_of_offsets(scene: CheckContext) -> list[str]:
    """Of OffsetCommit and TxnOffsetCommit, each without a member and of an unknown one, and of OffsetDelete."""
    place = {(scene.topic, 0): 5}
    producer = await CheckProducer.make(scene)
    of_unknown: dict[str, Any] = {"generation_id_or_member_epoch": 3, "member_id": "unknown-member"}
    found = [*(await commit(scene, place)).values()]
    found += (await commit(scene, place, generation=3, member="unknown-member")).values()
    found += (await producer.commit(place)).values()
    found += (await producer.commit(place, **of_unknown)).values()
    await producer.end(False)
    topics = ({"name": scene.topic.name, "partitions": ({"partition_index": 0},)},)
    deleted = await scene.send("OffsetDelete", group_id=scene.group, topics=topics)
    found.append(deleted.error_code or deleted.topics[0].partitions[0].error_code)
    return [error_name(code) for code in found]


@pytest.mark.parametrize(
    ("member_of", "expected"),
    [
        (ScriptedShareMember, [["GROUP_ID_NOT_FOUND"] * 5] * 2),
        (
            streams_member_of,
            [
                ["UNKNOWN_MEMBER_ID", "UNKNOWN_MEMBER_ID", "NONE", "UNKNOWN_MEMBER_ID", "GROUP_SUBSCRIBED_TO_TOPIC"],
                ["NONE", "UNKNOWN_MEMBER_ID", "NONE", "UNKNOWN_MEMBER_ID", "NONE"],
            ],
        ),
    ],
    ids=["share", "streams"],
)
def test_offsets_of_groups_of_other_kinds(
    stage: Stage, member_of: Callable[[CheckContext], ScriptedMember], expected: list[list[str]]
) -> None:
    """While the group has a member, and when it is empty."""

    async def run() -> list[list[str]]:
        async with checked(stage) as scene:
            member = member_of(scene)
            await member.join()
            found = [await codes_of_offsets(scene)]
            await member.leave()
            return [*found, await codes_of_offsets(scene)]

    assert asyncio.run(run()) == expected
