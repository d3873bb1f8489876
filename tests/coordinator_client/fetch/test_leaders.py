"""Leaders that move, followers that are nearer, logs that are cut: what a consumer makes of it, end to end."""

import time
from typing import Any

import pytest

from kohort.common.topic_partition import TopicPartition
from kohort.coordinator_client import AuthorizationFailed, Consumer, OffsetReset, Truncation
from kohort.protocol.apis.fetch import LeaderIdAndEpoch, NodeEndpoint
from kohort.protocol.errors import BrokerError
from kohort.testing.fake_broker import Alter, Call, FakeBroker, Hold
from tests.coordinator_client.consumer_helpers import PATIENCE_S, poll_until, read

P0 = TopicPartition("topic", 0)
NOT_LEADER = 6


def fill(fake: FakeBroker, first: int, count: int) -> None:
    """One batch a record."""
    for number in range(first, first + count):
        fake.produce("topic", 0, [(None, b"%d" % number)])


def reader(fake: FakeBroker, *, on_reset: object = None, **settings: object) -> Consumer:
    kept: dict[str, object] = {"auto_offset_reset": "earliest", "fetch_max_wait_ms": 50, "retry_backoff_ms": 10}
    return Consumer(fake.bootstrap, on_reset=on_reset, **{**kept, **settings})  # type: ignore[arg-type]


# ---------------------------------------------------------------------------------------------------- KIP-951: hints


@pytest.mark.proves("E-07")
def test_a_leader_named_in_the_response_is_fetched_from_before_any_metadata_says_so() -> None:
    reported: list[int] = []

    def lagging(response: Any) -> Any:
        (topic,) = response.topics
        (partition,) = topic.partitions
        reported.append(partition.leader_id)
        old = partition._replace(leader_id=1, leader_epoch=0)
        return response._replace(topics=(topic._replace(partitions=(old,)),))

    with FakeBroker(topics={"topic": 1}, nodes=2) as fake:
        fill(fake, 0, 5)
        with reader(fake) as consumer:
            new = fake._cluster.addresses[2]
            hint = LeaderIdAndEpoch(leader_id=2, leader_epoch=1)
            endpoint = NodeEndpoint(node_id=2, host=new.host, port=new.port, rack=None)

            def hinted(call: Call) -> Alter | None:
                if call.node == 2:
                    return None

                def change(response: Any) -> Any:
                    (topic,) = response.responses
                    (data,) = topic.partitions
                    if data.error_code != NOT_LEADER:
                        return response
                    named = topic._replace(partitions=(data._replace(current_leader=hint),))
                    return response._replace(responses=(named,), node_endpoints=(endpoint,))

                return Alter(change)

            fake.control("Fetch", hinted)  # from the start: one is under way when the leader changes
            consumer.assign([P0])
            read(consumer, 5)
            fake.control("Metadata", lambda call: Alter(lagging))
            fake.set_leader("topic", 0, 2)
            fill(fake, 5, 5)
            assert [record.value for record in read(consumer, 5)] == [b"%d" % number for number in range(5, 10)]
            assert 2 in {call.node for call in fake.calls_of("Fetch")}
            poll_until(consumer, lambda: 2 in reported)  # metadata is requested too; that it lags takes nothing back
            fill(fake, 10, 5)
            assert [record.value for record in read(consumer, 5)] == [b"%d" % number for number in range(10, 15)]


# ------------------------------------------------------------------------------------------------ KIP-320: truncation


def cut(fake: FakeBroker, consumer: Consumer) -> None:
    """Ten records are read, an election takes a leader that has six of them, and four others are written."""
    fill(fake, 0, 10)
    consumer.assign([P0])
    read(consumer, 10)
    assert consumer.position_of(P0).leader_epoch == 0
    fake.truncate("topic", 0, 6)
    fill(fake, 100, 8)


@pytest.mark.proves("B-38", "E-08")
def test_a_log_that_was_cut_is_read_on_where_both_agree_and_said_so() -> None:
    gaps: list[OffsetReset] = []
    with FakeBroker(topics={"topic": 1}) as fake, reader(fake, on_reset=gaps.append) as consumer:
        cut(fake, consumer)
        again = read(consumer, 8)
        assert [(record.offset, record.value) for record in again] == [(6 + n, b"%d" % (100 + n)) for n in range(8)]
        (gap,) = [gap for gap in gaps if gap.wanted is not None]
        assert (gap.wanted, gap.start, gap.skipped) == (10, 6, -4)
        assert "truncated" in gap.reason
        assert consumer.position_of(P0).leader_epoch == 1


@pytest.mark.proves("B-38", "E-08")
def test_leaders_that_change_while_records_wait_to_be_polled_are_no_truncation() -> None:
    """Records of epoch 1 wait, and are read while the leader of epoch 2 is queried for the end of epoch 0: before
    them."""
    with FakeBroker(topics={"topic": 1}, nodes=2) as fake, reader(fake, auto_offset_reset="none") as consumer:
        fill(fake, 0, 5)
        consumer.assign({P0: 0})
        read(consumer, 5)
        fake.set_leader("topic", 0, 2)
        fill(fake, 5, 5)
        fetched_from(fake, 2, offset=10)
        held = Hold()
        fake.control("OffsetForLeaderEpoch", lambda call: held)
        fake.set_leader("topic", 0, 1)
        assert held.reached.wait(PATIENCE_S)
        read(consumer, 5)
        held.released.set()
        fill(fake, 10, 5)
        again = read(consumer, 5)
        assert [(record.offset, record.value) for record in again] == [(n, b"%d" % n) for n in range(10, 15)]
        assert consumer.position_of(P0).leader_epoch == 2


@pytest.mark.proves("B-38", "E-08")
def test_a_log_that_is_cut_while_records_wait_to_be_polled_is_no_silent_gap() -> None:
    """The position stands before the cut, so it is valid; what waits goes beyond, and is read after that was said."""
    gaps: list[OffsetReset] = []
    with FakeBroker(topics={"topic": 1}) as fake, reader(fake, on_reset=gaps.append) as consumer:
        fill(fake, 0, 5)
        consumer.assign({P0: 0})
        read(consumer, 5)
        held = Hold()
        fake.control("Fetch", lambda call: held)
        assert held.reached.wait(PATIENCE_S)
        fill(fake, 5, 5)  # one response has them all: parts of them would be read, and validated, one by one
        held.release()
        fetched_from(fake, 1, offset=10)
        fake.truncate("topic", 0, 6)
        fill(fake, 100, 8)
        limit = time.monotonic() + PATIENCE_S
        while not fake.calls_of("OffsetForLeaderEpoch"):
            assert time.monotonic() < limit
            time.sleep(0.01)
        time.sleep(0.3)  # the response has come, and all that would be fetched after it
        assert [record.offset for record in read(consumer, 5)] == [5, 6, 7, 8, 9]
        again = read(consumer, 8)
        assert [(record.offset, record.value) for record in again] == [(6 + n, b"%d" % (100 + n)) for n in range(8)]
        assert [(gap.wanted, gap.start) for gap in gaps] == [(10, 6)]


def fetched_from(fake: FakeBroker, node: int, *, offset: int) -> None:
    """Wait until a request for this offset arrives at `node`: all records before it have arrived."""
    limit = time.monotonic() + PATIENCE_S
    requests: list[Any] = []
    while not any(part.fetch_offset == offset for one in requests for topic in one.topics for part in topic.partitions):
        assert time.monotonic() < limit
        time.sleep(0.01)
        requests = [call.request for call in fake.calls_of("Fetch") if call.node == node]


@pytest.mark.proves("B-38", "E-08")
def test_without_a_policy_a_cut_log_is_an_error_with_the_place_where_it_parts() -> None:
    with FakeBroker(topics={"topic": 1}) as fake, reader(fake, auto_offset_reset="none") as consumer:
        fill(fake, 0, 1)
        consumer.assign({P0: 0})
        fill(fake, 1, 9)
        read(consumer, 10)
        fake.truncate("topic", 0, 6)
        fill(fake, 100, 8)
        with pytest.raises(Truncation) as caught:
            poll_until(consumer, lambda: False)
        assert caught.value.place["offset"] == 10
        assert caught.value.place["diverges_at"] == 6
        consumer.seek(P0, 6)
        assert [record.value for record in read(consumer, 8)] == [b"%d" % (100 + n) for n in range(8)]


@pytest.mark.proves("B-38", "E-08")
def test_a_committed_offset_remembers_the_epoch_it_was_read_under() -> None:
    """The log is cut while no consumer reads: the next member finds out by the commit alone."""
    gaps: list[OffsetReset] = []
    with FakeBroker(topics={"topic": 1}) as fake:
        fill(fake, 0, 10)
        with reader(fake, group="group") as first:
            first.subscribe(["topic"])
            read(first, 10)
            first.commit()
        fake.truncate("topic", 0, 6)
        fill(fake, 100, 8)
        with reader(fake, group="group", on_reset=gaps.append) as second:
            second.subscribe(["topic"])
            assert [record.offset for record in read(second, 8)] == list(range(6, 14))
        assert [(gap.wanted, gap.start) for gap in gaps] == [(10, 6)]


@pytest.mark.proves("E-08")
def test_an_election_that_loses_nothing_costs_nothing() -> None:
    gaps: list[OffsetReset] = []
    with FakeBroker(topics={"topic": 1}, nodes=2) as fake, reader(fake, on_reset=gaps.append) as consumer:
        fill(fake, 0, 10)
        consumer.assign([P0])
        read(consumer, 10)
        fake.set_leader("topic", 0, 2)
        fill(fake, 10, 5)
        assert [record.offset for record in read(consumer, 5)] == [10, 11, 12, 13, 14]
        assert fake.calls_of("OffsetForLeaderEpoch")
        assert [gap for gap in gaps if gap.wanted is not None] == []


@pytest.mark.proves("E-08")
@pytest.mark.parametrize("newest", [0, 2])
def test_brokers_before_2_3_are_not_asked_where_an_epoch_ends(newest: int) -> None:
    """They respond only to users with rights on the cluster, and the oldest do not name the epoch of the end offset."""
    with (
        FakeBroker(topics={"topic": 1}, nodes=2, versions={"OffsetForLeaderEpoch": (0, newest)}) as fake,
        reader(fake, auto_offset_reset="none") as consumer,
    ):
        fill(fake, 0, 5)
        consumer.assign({P0: 0})
        read(consumer, 5)
        fake.set_leader("topic", 0, 2)
        fill(fake, 5, 5)
        assert [record.offset for record in read(consumer, 5)] == [5, 6, 7, 8, 9]
        assert not fake.calls_of("OffsetForLeaderEpoch")


@pytest.mark.proves("E-07")
def test_epochs_of_brokers_before_2_4_are_not_believed() -> None:
    """While such a cluster moves replicas its Metadata may name an old epoch; a fetch under it is fenced."""

    def lagging(response: Any) -> Any:
        topics = [one._replace(partitions=(one.partitions[0]._replace(leader_epoch=0),)) for one in response.topics]
        return response._replace(topics=tuple(topics))

    with FakeBroker(topics={"topic": 1}, versions={"Metadata": (0, 8)}) as fake:
        fake.set_leader("topic", 0, 1)  # epoch 1 begins
        fake.control("Metadata", lambda call: Alter(lagging))
        with reader(fake) as consumer:
            fill(fake, 0, 5)
            consumer.assign([P0])
            assert [record.offset for record in read(consumer, 5)] == [0, 1, 2, 3, 4]


@pytest.mark.proves("E-08")
@pytest.mark.parametrize("api", ["ListOffsets", "OffsetForLeaderEpoch"])
@pytest.mark.parametrize(("code", "raised"), [(42, True), (29, True), (6, False), (-1, False), (78, False)])
def test_a_leader_that_does_not_say_is_asked_again_where_that_may_help(api: str, code: int, raised: bool) -> None:
    def refused(response: Any) -> Any:
        (topic,) = response.topics
        return response._replace(topics=(topic._replace(partitions=(topic.partitions[0]._replace(error_code=code),)),))

    with FakeBroker(topics={"topic": 1}, nodes=2) as fake, reader(fake) as consumer:
        fill(fake, 0, 5)
        laid = fake.control(api, lambda _call: Alter(refused), times=None if raised else 3)
        consumer.assign([P0])
        if api == "OffsetForLeaderEpoch":
            read(consumer, 5)
            fake.set_leader("topic", 0, 2)
            fill(fake, 5, 5)
        if raised:
            with pytest.raises(AuthorizationFailed if code == 29 else BrokerError):
                poll_until(consumer, lambda: False)
            assert laid.calls == 1
        else:
            assert len(read(consumer, 5)) == 5
            assert laid.calls == 3
