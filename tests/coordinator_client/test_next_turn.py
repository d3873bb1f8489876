"""The time of a consumer's next turn: each retry has its own time, and none hides behind one that has passed."""

import pytest

from kohort.common import TopicPartition, WireError
from kohort.coordinator_client.offsets.positions import FetchState
from kohort.network.errors import ConnectionFailed, OperationTimeout
from kohort.network.requests import Endpoint, NoResponse, ResponseReceived
from kohort.protocol.apis.fetch import PartitionData
from kohort.protocol.apis.find_coordinator import FindCoordinatorResponse
from kohort.protocol.apis.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from kohort.protocol.apis.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from tests.coordinator_client.core_rig import Rig, fetched, metadata

UNKNOWN_SERVER_ERROR, OFFSET_OUT_OF_RANGE = -1, 1
P0 = TopicPartition("t", 0)
GONE = NoResponse(ConnectionFailed("the broker closed the connection"))


@pytest.mark.proves("I14")
def test_a_broker_that_is_asked_no_more_hides_no_other_retry() -> None:
    rig = Rig()
    rig.turn(0.0)
    rig.settle("Metadata", ResponseReceived(metadata({0: 1, 1: 2}), 12), 0.0)
    rig.turn(0.0)
    rig.settle("Fetch", GONE, 0.0, "b2")
    rig.turn(1.0)
    rig.settle("Metadata", ResponseReceived(metadata({0: 1, 1: 1}), 12), 1.0)
    rig.turn(1.0)
    rig.settle("Fetch", ResponseReceived(fetched(), 13), 10.0, "b1")
    rig.turn(10.0)
    refusal = PartitionData(partition_index=0, error_code=UNKNOWN_SERVER_ERROR, high_watermark=-1, records=None)
    rig.settle("Fetch", ResponseReceived(fetched(refusal), 13), 10.0, "b1")
    assert rig.turn(10.0).next_poll_at == pytest.approx(10.1)


@pytest.mark.proves("I14", "B-27")
def test_an_address_that_is_no_brokers_any_more_hides_no_other_retry() -> None:
    rig = Rig()
    rig.turn(0.0)
    rig.settle("Metadata", ResponseReceived(metadata({0: 1, 1: 1}), 12), 0.0)
    endpoints = rig.core.endpoints
    endpoints.responded(Endpoint("b1", 9092))
    error = ConnectionFailed("cannot reach the broker")
    endpoints.failed(Endpoint("b9", 9092), error, 0.0)
    for host, port in (("b1", 9092), ("b2", 9092), ("b", 1)):
        endpoints.failed(Endpoint(host, port), error, 10.0)
    assert rig.core.cluster.no_broker_available(10.0)
    assert rig.turn(10.0).next_poll_at == pytest.approx(10.05)


@pytest.mark.proves("B-27")
def test_a_commit_that_waits_for_a_coordinator_is_ended_at_its_deadline() -> None:
    rig = Rig(group="g")
    rig.turn(0.0)
    rig.settle("Metadata", ResponseReceived(metadata({0: 1, 1: 1}), 12), 0.0)
    requested = rig.core.commits.put({TopicPartition("t", 0): 1}, deadline=4.5)
    rig.turn(0.0)
    found = FindCoordinatorResponse(error_code=0, node_id=2, host="b2", port=9092)
    rig.settle("FindCoordinator", ResponseReceived(found, 3), 0.0)
    rig.turn(0.0)
    rig.settle("OffsetCommit", GONE, 1.0)
    due_at = rig.turn(1.0).next_poll_at
    while due_at is not None and due_at < 4.5:
        due_at = rig.turn(due_at).next_poll_at
    assert due_at == 4.5
    assert not requested.done()
    rig.turn(due_at)
    assert isinstance(requested.exception(0), OperationTimeout)


def test_a_reset_that_is_to_be_reported_wakes_the_caller() -> None:
    """Its callback runs in the caller's thread, which may wait for records that do not come."""
    place = TopicPartition("t", 0)
    rig = Rig()
    rig.core.reports_gaps = True
    rig.turn(0.0)
    rig.settle("Metadata", ResponseReceived(metadata({0: 1, 1: 1}), 12), 0.0)
    rig.turn(0.0)
    refusal = PartitionData(partition_index=0, error_code=OFFSET_OUT_OF_RANGE, high_watermark=9, log_start_offset=9)
    rig.settle("Fetch", ResponseReceived(fetched(refusal), 13), 1.0)
    rig.turn(1.0)
    one = ListOffsetsPartitionResponse(partition_index=0, error_code=0, timestamp=-1, offset=9, leader_epoch=0)
    response = ListOffsetsResponse(topics=(ListOffsetsTopicResponse(name="t", partitions=(one,)),))
    rig.settle("ListOffsets", ResponseReceived(response, 6), 2.0)
    rig.core.has_updates = False
    rig.turn(2.0)
    assert [(gap.partition, gap.wanted, gap.start) for gap in rig.core.unreported] == [(place, 0, 9)]
    assert rig.core.has_updates


def test_an_error_is_raised_once_however_often_it_happened_and_others_beside_it() -> None:
    rig = Rig()
    many = [ConnectionFailed("a"), ConnectionFailed("a"), ConnectionFailed("b"), OperationTimeout("a")]
    for error in many:
        rig.core.has_updates = False
        rig.core.put_error(error)
        assert rig.core.has_updates
    assert [rig.core.take_error() for _ in range(4)] == [many[0], many[2], many[3], None]


@pytest.mark.proves("B-27")
def test_a_commit_fails_at_once_when_no_broker_was_reached_in_time() -> None:
    rig = Rig(group="g", bootstrap_timeout_ms=1_000)
    rig.turn(0.0)
    requested = rig.core.commits.put({TopicPartition("t", 0): 1}, deadline=60.0)
    rig.core.endpoints.failed(Endpoint("b", 1), ConnectionFailed("cannot reach the broker"), 0.0)
    assert rig.turn(1.0).next_poll_at == 1.0
    rig.turn(1.0)
    assert isinstance(requested.exception(0), ConnectionFailed)


def test_a_call_that_waits_for_the_first_broker_gets_the_reason_and_not_its_own_time_out() -> None:
    """Both times are over in one turn, as after a parse that took long."""
    rig = Rig(bootstrap_timeout_ms=3_000)
    topics = rig.core.lookups.look_up_topics(deadline=3.01)
    rig.turn(0.0)
    rig.core.endpoints.last_error = WireError("the response is damaged")
    rig.turn(3.1)
    with pytest.raises(WireError, match="damaged"):
        topics.result(0)


@pytest.mark.proves("E-08")
def test_a_position_behind_records_of_an_older_leader_is_validated_in_the_next_turn() -> None:
    """They were parked when the earlier position was validated by the new leader (KIP-320)."""
    rig = Rig()
    positions = rig.core.positions
    rig.turn(0.0)
    rig.settle("Metadata", ResponseReceived(metadata({0: 1, 1: 2}), 12), 0.0)
    rig.turn(0.0)
    positions.consumed(P0, positions.state(P0).serial, 10, 1, 1)
    rig.core.metadata.request_update(at_once=True)
    rig.turn(1.0)
    rig.settle("Metadata", ResponseReceived(metadata({0: 2, 1: 2}), 12), 1.0)
    rig.turn(1.0)
    end = EpochEndOffset(error_code=0, partition=0, leader_epoch=1, end_offset=100)
    response = OffsetForLeaderEpochResponse(topics=(OffsetForLeaderTopicResult(topic="t", partitions=(end,)),))
    rig.settle("OffsetForLeaderEpoch", ResponseReceived(response, 4), 1.0)
    rig.turn(1.0)
    assert positions.state(P0).phase is FetchState.FETCHING
    positions.consumed(P0, positions.state(P0).serial, 11, 1, 1)
    rig.turn(1.1)
    assert positions.state(P0).phase is FetchState.NEEDS_VALIDATION
    assert any(one.api == "OffsetForLeaderEpoch" for _endpoint, one in rig.open)
