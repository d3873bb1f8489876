"""Transactions on the machine: brokers and coordinators whose responses and their times are set by the test."""

from collections.abc import Callable
from typing import Any

import pytest

from kohort.common import TopicPartition
from kohort.network import offset_requests
from kohort.network.backoff import FRESH
from kohort.network.errors import AuthenticationFailed, CommitFailed, ConnectionFailed, IllegalState, UnknownTopic
from kohort.network.group_types import ConsumerGroupMetadata, OffsetAndMetadata
from kohort.network.metadata import NO_TOPIC_ID
from kohort.network.requests import (
    FinalizedFeatures,
    NoResponse,
    PendingRequest,
    RequestResult,
    ResponseReceived,
)
from kohort.producer.errors import ProducerFenced, TransactionAborted
from kohort.producer.producer_batch import ProducerId
from kohort.producer.transaction_manager import GROUP_WENT_ON, OffsetsOrder
from kohort.producer.transaction_states import TxnState
from kohort.protocol.apis.add_offsets_to_txn import AddOffsetsToTxnResponse
from kohort.protocol.apis.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from kohort.protocol.apis.end_txn import EndTxnResponse
from kohort.protocol.apis.find_coordinator import FindCoordinatorResponse
from kohort.protocol.apis.init_producer_id import InitProducerIdResponse
from kohort.protocol.apis.metadata import MetadataResponseTopic
from kohort.protocol.apis.txn_offset_commit import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from kohort.protocol.errors import BrokerError, ErrorCode
from tests.producer.producer_world import TOPIC, World


class TxnWorld(World):
    """One broker, which coordinates everything, and a producer that has begun a transaction."""

    def __init__(self, version: int = 1, **settings: Any) -> None:
        super().__init__(1, nodes=1, transactional_id="tx", **settings)
        self.core.endpoints.finalized(FinalizedFeatures(0, {"transaction.version": version}))
        self.version = version
        self.faults = 0.0
        self.epoch = -1
        self.known = (-1, -1)  # the id and epoch in the last InitProducerId
        self.codes: dict[str, int] = {}  # what coordinators say to a request
        self.search_code = 0  # the group's coordinator in every response
        self.transactions = self.core.transactions
        self.until(lambda: self.partitions() is not None and self.state is TxnState.IDLE)
        self.transactions.begin()

    @property
    def state(self) -> TxnState:
        return self.transactions.state

    def order(self) -> OffsetsOrder:
        return self.transactions.order(
            {TopicPartition("source", 0): OffsetAndMetadata(5)}, ConsumerGroupMetadata("g", 3, "m")
        )

    def pending(self, api: str) -> bool:
        """True if a request without a response waits in the broker's socket."""
        return any(pending.api == api for pipe in self._pipes.values() for pending in pipe)

    def hold(self, api: str) -> list[PendingRequest]:
        """Requests that are taken out of the broker's sockets, for the test to complete."""
        held = [pending for pipe in self._pipes.values() for pending in pipe if pending.api == api]
        for pipe in self._pipes.values():
            for pending in [one for one in pipe if one in held]:
                pipe.remove(pending)
        return held

    def until(self, reached: Callable[[], bool]) -> None:
        for _ in range(200):
            self.turn()
            if reached():
                return
            self.respond_to_one()
        raise AssertionError("it never came to that")

    def code(self, pending: PendingRequest) -> int:
        return self.codes.get(pending.api, 0)

    def carry_out(self, pending: PendingRequest, trouble: bool = False) -> RequestResult:
        match pending.api:
            case "FindCoordinator":
                code = self.search_code if pending.request(3).key_type == 0 else 0
                response: Any = FindCoordinatorResponse(error_code=code, node_id=0, host="b", port=1, coordinators=())
            case "InitProducerId":
                code, request = self.code(pending), pending.request(5)
                self.known = request.producer_id, request.producer_epoch
                self.epoch += not code
                response = InitProducerIdResponse(
                    throttle_time_ms=0, error_code=code, producer_id=7, producer_epoch=self.epoch
                )
            case "AddPartitionsToTxn":
                (wanted,) = pending.request.v3_and_below_topics
                reported = tuple(
                    AddPartitionsToTxnPartitionResult(partition_index=number, partition_error_code=self.code(pending))
                    for number in wanted.partitions
                )
                topic = AddPartitionsToTxnTopicResult(name=TOPIC, results_by_partition=reported)
                response = AddPartitionsToTxnResponse(throttle_time_ms=0, results_by_topic_v3_and_below=(topic,))
            case "AddOffsetsToTxn":
                response = AddOffsetsToTxnResponse(throttle_time_ms=0, error_code=self.code(pending))
            case "TxnOffsetCommit":
                code, (sent,) = self.code(pending), pending.request(5).topics
                results = tuple(
                    TxnOffsetCommitResponsePartition(partition_index=one.partition_index, error_code=code)
                    for one in sent.partitions
                )
                source = TxnOffsetCommitResponseTopic(name="source", partitions=results)
                response = TxnOffsetCommitResponse(throttle_time_ms=0, topics=(source,))
            case "EndTxn":
                code = self.code(pending)
                self.epoch += self.version == 2 and not code
                ends = {"producer_id": 7, "producer_epoch": self.epoch} if self.version == 2 and not code else {}
                response = EndTxnResponse(throttle_time_ms=0, error_code=code, **ends)
            case _:
                return super().carry_out(pending, trouble)
        self.requested.append(pending.api)
        return ResponseReceived(response, 3)


def test_a_refusal_beside_what_the_same_request_brought_in_fails_the_transaction_and_nothing_else() -> None:
    world = TxnWorld()
    world.code_of = lambda place: 10 if place.partition == 0 else 0
    refused, taken = world.send(b"too large, says the topic", 0), world.send(b"fits", 1)
    world.transactions.commit()
    world.until(lambda: world.state is TxnState.FAILED)
    assert refused is not None
    assert taken is not None
    assert refused.error is not None
    assert (taken.error, taken.base_offset) == (None, 0)
    assert world.core.accumulator.buffered == 0
    world.transactions.abort()
    world.code_of = lambda _place: 0
    world.transactions.begin()
    world.send(b"once more", 0)
    world.transactions.commit()
    world.until(lambda: world.state is TxnState.IDLE)
    assert [len(log.values) for log in world.logs.values()] == [1, 1, 0]


@pytest.mark.parametrize("code", sorted(GROUP_WENT_ON))
def test_offsets_that_the_group_refuses_after_the_abort_are_nobodys_any_more(code: int) -> None:
    world = TxnWorld()
    order = world.order()
    world.codes["TxnOffsetCommit"] = code
    world.until(lambda: world.pending("TxnOffsetCommit"))
    world.transactions.abort()
    assert order.done
    world.until(lambda: world.transactions.settled)
    assert world.state is TxnState.IDLE
    assert world.epoch == 0  # an outcome without a waiter is no reason for a new epoch


@pytest.mark.parametrize("version", [1, 2])
def test_offsets_of_a_topic_that_was_deleted_fail_the_transaction(version: int) -> None:
    """Otherwise it would last until its time-out, and in version 1 the coordinator would fence the producer."""
    world = TxnWorld(version)
    order, began = world.order(), world.now
    world.codes["TxnOffsetCommit"] = 3
    while not order.done and world.now < began + 60:
        world.turn()
        world.respond_to_one()
    assert isinstance(order.error, CommitFailed)
    assert "UNKNOWN_TOPIC_OR_PARTITION" in order.error.message
    assert 5 <= world.now - began < 8
    world.until(lambda: world.state is TxnState.FAILED)
    world.transactions.abort()
    world.transactions.begin()
    order = world.order()
    world.until(lambda: world.requested[-1] == "TxnOffsetCommit")
    world.codes.clear()  # the coordinator learns of a new topic late
    world.transactions.commit()
    world.until(lambda: world.state is TxnState.IDLE)
    assert (order.done, order.error) == (True, None)


@pytest.mark.parametrize("version", [1, 2])
def test_records_of_a_topic_that_was_deleted_fail_the_transaction(
    version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until they expired, the commit could neither end nor be aborted."""
    world = TxnWorld(version)
    world.until(lambda: (world.core.metadata.next_poll_at() or 0.0) > world.now + 60)
    batch, began = world.send(b"x", 0), world.now
    gone = MetadataResponseTopic(error_code=3, name=TOPIC, topic_id=NO_TOPIC_ID, is_internal=False, partitions=())
    known = world._metadata()
    monkeypatch.setattr(world, "_metadata", lambda: known._replace(topics=(gone,)))
    world.code_of, world.codes["AddPartitionsToTxn"] = (lambda _place: 3), 3
    world.transactions.commit()
    world.until(lambda: world.transactions.settled)
    assert 5 <= world.now - began < 10
    with pytest.raises(TransactionAborted) as raised:
        world.transactions.raise_cause()
    assert isinstance(raised.value.__cause__, UnknownTopic)
    assert batch is not None
    assert isinstance(batch.error, TransactionAborted)
    world.transactions.abort()
    world.transactions.begin()


def test_a_coordinator_that_is_busy_is_no_reason_for_metadata() -> None:
    world = TxnWorld()
    world.until(lambda: (world.core.metadata.next_poll_at() or 0.0) > world.now + 60)
    known = world.requested.count("Metadata")
    world.send(b"x", 0)
    world.codes["AddPartitionsToTxn"] = ErrorCode.CONCURRENT_TRANSACTIONS
    world.until(lambda: world.requested.count("AddPartitionsToTxn") == 3)
    world.codes.clear()
    world.transactions.commit()
    world.until(lambda: world.transactions.settled)
    assert world.requested.count("Metadata") == known


def test_a_call_that_waits_for_a_topic_fails_no_transaction_without_its_records() -> None:
    world = TxnWorld(2)
    world.send(b"x", 0)
    world.core.put_error(UnknownTopic("no such topic", hint="create it", topic="other"))
    world.transactions.commit()
    world.until(lambda: world.transactions.settled)
    assert world.state is TxnState.IDLE


def test_a_groups_name_is_not_what_its_offsets_are_fenced_by() -> None:
    world = TxnWorld()
    with pytest.raises(IllegalState, match="metadata"):
        world.transactions.order({TopicPartition("source", 0): OffsetAndMetadata(5)}, "g")  # type: ignore[arg-type]
    world.transactions.commit()
    world.until(lambda: world.state is TxnState.IDLE)


@pytest.mark.parametrize("version", [1, 2])
def test_no_offsets_are_no_part_of_a_transaction(version: int) -> None:
    """Brokers add no group for them in version 2. So they refuse to end a transaction without other contents."""
    world = TxnWorld(version)
    order = world.transactions.order({}, ConsumerGroupMetadata("g", 3, "m"))
    assert order.done
    world.transactions.commit()
    world.until(lambda: world.state is TxnState.IDLE)
    assert not {"AddOffsetsToTxn", "TxnOffsetCommit", "EndTxn"} & set(world.requested)


def test_offsets_that_the_group_refuses_fail_the_transaction() -> None:
    world = TxnWorld()
    order = world.order()
    world.codes["TxnOffsetCommit"] = 22
    world.until(lambda: order.done)
    assert isinstance(order.error, CommitFailed)
    world.until(lambda: world.state is TxnState.FAILED)


def split_order(world: TxnWorld, monkeypatch: pytest.MonkeyPatch) -> OffsetsOrder:
    """The offsets of five partitions, of which one request has at most two."""
    monkeypatch.setattr(offset_requests, "MOST_STORED_BYTES", 150)
    offsets = {TopicPartition("source", number): OffsetAndMetadata(number) for number in range(5)}
    return world.transactions.order(offsets, ConsumerGroupMetadata("g", 3, "m"))


@pytest.mark.parametrize("version", [1, 2])
def test_offsets_that_a_broker_cannot_store_at_once_are_sent_in_turn(
    version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = TxnWorld(version)
    order = split_order(world, monkeypatch)
    sent: list[list[int]] = []
    for code in (0, 14, 0, 0):
        assert not order.done
        world.until(lambda: world.pending("TxnOffsetCommit"))
        (pending,) = world.hold("TxnOffsetCommit")
        sent.append([one.partition_index for one in pending.request(5).topics[0].partitions])
        world.codes["TxnOffsetCommit"] = code
        pending.done(world.carry_out(pending), world.now)
    assert sent == [[0, 1], [2, 3], [2, 3], [4]]
    assert order.done
    world.transactions.commit()
    world.until(lambda: world.state is TxnState.IDLE)
    assert world.requested.count("AddOffsetsToTxn") == (version == 1)


def test_all_offsets_of_a_call_fail_with_their_first_part(monkeypatch: pytest.MonkeyPatch) -> None:
    world = TxnWorld()
    order = split_order(world, monkeypatch)
    world.codes["TxnOffsetCommit"] = 22
    world.until(lambda: order.done)
    assert isinstance(order.error, CommitFailed)
    assert world.requested.count("TxnOffsetCommit") == 1


def test_a_group_that_may_not_be_asked_about_is_no_matter_of_the_next_transaction() -> None:
    """A lookup of an aborted transaction may end, in success or refusal, during the next."""
    world = TxnWorld()
    world.order()
    world.until(lambda: world.pending("FindCoordinator"))
    world.transactions.abort()
    searches = world.hold("FindCoordinator")
    world.until(lambda: world.state is TxnState.IDLE)
    world.transactions.begin()
    world.send(b"x", 0)
    world.transactions.commit()
    world.until(lambda: world.pending("EndTxn"))
    world.search_code = 30
    for search in searches:
        search.done(world.carry_out(search), world.now)
    world.until(lambda: world.transactions.settled)
    assert world.state is TxnState.IDLE  # it is committed: it must not be reported as aborted


def test_a_group_that_may_not_be_asked_about_fails_the_transaction_that_has_its_offsets() -> None:
    world = TxnWorld()
    order = world.order()
    world.search_code = 30
    world.until(lambda: world.state is TxnState.FAILED)
    assert order.error is not None


@pytest.mark.parametrize("api", ["AddPartitionsToTxn", "AddOffsetsToTxn", "TxnOffsetCommit"])
@pytest.mark.parametrize("code", [29, 30, 12, -1])
def test_what_may_not_be_in_a_transaction_costs_no_more_when_it_is_said_after_the_abort(api: str, code: int) -> None:
    world = TxnWorld()
    if api == "AddPartitionsToTxn":
        world.send(b"x", 0)
    else:
        world.order()
    world.codes[api] = code
    world.until(lambda: world.pending(api))
    world.transactions.abort()
    world.until(lambda: world.transactions.settled)
    assert world.state is TxnState.FAILED
    world.transactions.abort()
    world.codes.clear()
    world.transactions.begin()
    world.send(b"y", 0)
    world.transactions.commit()
    world.until(lambda: world.transactions.settled)
    assert world.transactions.state is TxnState.IDLE


@pytest.mark.parametrize("code", [-1, 42])
def test_of_a_commit_with_an_outcome_that_nobody_knows_it_is_not_said_that_it_was_aborted(code: int) -> None:
    """After such a report, the user would send everything once more, and it may be in the log."""
    world = TxnWorld()
    world.send(b"x", 0)
    world.transactions.commit()
    world.codes["EndTxn"] = code
    world.until(lambda: world.transactions.settled)
    with pytest.raises(BrokerError) as raised:
        world.transactions.raise_cause()
    assert raised.value.code == code
    assert world.state is TxnState.DEAD


def test_a_transaction_that_a_coordinator_may_know_of_is_ended_there() -> None:
    """Else it would go on in the next one, with the time that the first had taken."""
    world = TxnWorld()
    world.send(b"x", 0)
    world.until(lambda: world.pending("AddPartitionsToTxn"))
    for pending in world.hold("AddPartitionsToTxn"):
        pending.done(NoResponse(ConnectionFailed("it broke")), world.now)
    world.transactions.abort()
    world.until(lambda: world.transactions.settled)
    assert (world.state, world.epoch) == (TxnState.FAILED, 1)


def test_a_commit_that_was_given_up_waiting_for_can_be_asked_about_again() -> None:
    world = TxnWorld()
    world.send(b"x", 0)
    world.transactions.commit()
    world.until(lambda: world.state is TxnState.IDLE)  # while the caller was away, after its OperationTimeout
    world.transactions.commit()
    world.transactions.raise_cause()
    world.transactions.unreported = None
    with pytest.raises(IllegalState, match="no transaction to commit"):
        world.transactions.commit()


def test_a_topic_that_is_away_does_not_hide_one_that_may_not_be_written_to() -> None:
    world = TxnWorld()
    world.send(b"x", 0)
    world.until(lambda: world.pending("AddPartitionsToTxn"))
    reported = (
        AddPartitionsToTxnPartitionResult(partition_index=0, partition_error_code=3),
        AddPartitionsToTxnPartitionResult(partition_index=1, partition_error_code=29),
    )
    topic = AddPartitionsToTxnTopicResult(name=TOPIC, results_by_partition=reported)
    for pending in world.hold("AddPartitionsToTxn"):
        pending.done(ResponseReceived(AddPartitionsToTxnResponse(results_by_topic_v3_and_below=(topic,)), 3), world.now)
    assert world.state is TxnState.FAILING
    assert isinstance(world.transactions.cause, BrokerError)
    assert (world.transactions.cause.code, world.transactions.cause.place["partition"]) == (29, 1)


def test_an_offset_that_may_not_be_committed_is_not_hidden_by_one_whose_topic_is_away() -> None:
    world = TxnWorld()
    order = world.order()
    world.until(lambda: world.pending("TxnOffsetCommit"))
    reported = tuple(
        TxnOffsetCommitResponsePartition(partition_index=n, error_code=code) for n, code in ((0, 3), (1, 29))
    )
    source = TxnOffsetCommitResponseTopic(name="source", partitions=reported)
    for pending in world.hold("TxnOffsetCommit"):
        pending.done(ResponseReceived(TxnOffsetCommitResponse(throttle_time_ms=0, topics=(source,)), 3), world.now)
    assert world.state is TxnState.FAILING
    assert order.done


def test_an_abort_that_was_given_up_waiting_for_can_be_asked_about_again() -> None:
    world = TxnWorld()
    world.send(b"x", 0)
    world.until(lambda: world.logs[TopicPartition(TOPIC, 0)].values != [])
    world.transactions.abort()
    world.until(lambda: world.state is TxnState.IDLE)  # while the caller was away, after its OperationTimeout
    with pytest.raises(IllegalState, match="no transaction to commit"):
        world.transactions.commit()
    world.transactions.abort()
    world.transactions.raise_cause()
    world.transactions.unreported = None
    with pytest.raises(IllegalState, match="no transaction to abort"):
        world.transactions.abort()


def test_a_commit_that_failed_meanwhile_is_not_reported_as_one_that_came_about() -> None:
    world = TxnWorld()
    world.send(b"x", 0)
    world.transactions.commit()
    world.code_of = lambda _place: 10
    world.until(lambda: world.state is TxnState.FAILED)
    with pytest.raises(TransactionAborted):
        world.transactions.commit()
    world.transactions.abort()
    with pytest.raises(IllegalState, match="no transaction to commit"):
        world.transactions.commit()


def test_a_fatal_error_in_a_transaction_ends_every_batch_once() -> None:
    world = TxnWorld()
    batches = [world.send(b"x" * 120, partition) for partition in (0, 0, 0, 1, 1)]
    world.core.fail(AuthenticationFailed("the broker refused the credentials"))
    assert all(batch is not None and batch.error is not None for batch in batches)
    assert world.core.accumulator.buffered == 0


def test_an_abort_waits_for_the_responses_of_batches_in_flight() -> None:
    """Else a batch that arrives late would be a part of the next transaction."""
    world = TxnWorld()
    batch = world.send(b"x", 0)
    world.until(lambda: world.pending("Produce"))
    late = world.hold("Produce")
    world.transactions.abort()
    for _ in range(20):
        world.turn()
        assert not world.pending("EndTxn")
        assert not world.pending("InitProducerId")
        assert world.state is TxnState.ABORTING
    for pending in late:
        pending.done(world.carry_out(pending), world.now)
    world.until(lambda: world.transactions.settled)
    assert (world.state, world.requested.count("EndTxn")) == (TxnState.IDLE, 1)
    assert batch is not None
    assert batch.done


def test_a_response_to_a_request_of_the_open_transaction_is_ignored_once_it_has_failed() -> None:
    world = TxnWorld()
    world.send(b"x", 0)
    world.until(lambda: world.pending("AddPartitionsToTxn"))
    late = world.hold("AddPartitionsToTxn")
    world.transactions.failed(BrokerError(10, api="Produce"))
    world.codes["AddPartitionsToTxn"] = 90  # its epoch is over, by the failure itself
    for pending in late:
        pending.done(world.carry_out(pending), world.now)
    world.until(lambda: world.transactions.settled)
    assert world.state is TxnState.FAILED


def versions_of(world: TxnWorld, api: str) -> tuple[int | None, int | None]:
    """The lowest and the highest version that a waiting request may have."""
    (pending,) = world.hold(api)
    for pipe in world._pipes.values():
        pipe.append(pending)
        break
    return pending.min_version, pending.max_version


def test_a_transaction_of_version_2_adds_nothing_by_itself_and_ends_under_the_next_epoch() -> None:
    world = TxnWorld(2)
    world.send(b"x", 0)
    world.until(lambda: world.pending("Produce"))
    assert versions_of(world, "Produce") == (12, None)
    world.order()
    world.until(lambda: world.pending("TxnOffsetCommit"))
    assert versions_of(world, "TxnOffsetCommit") == (5, 5)
    world.transactions.commit()
    world.until(lambda: world.pending("EndTxn"))
    assert versions_of(world, "EndTxn") == (5, None)
    world.until(lambda: world.state is TxnState.IDLE)
    assert world.transactions.producer == ProducerId(7, 1)
    assert not {"AddPartitionsToTxn", "AddOffsetsToTxn"} & set(world.requested)
    world.transactions.begin()
    world.send(b"y", 0)
    world.until(lambda: len(world.logs[TopicPartition(TOPIC, 0)].values) == 2)
    assert world.logs[TopicPartition(TOPIC, 0)].epoch == 1


def test_a_failed_transaction_of_version_2_is_aborted_by_its_end() -> None:
    world = TxnWorld(2)
    world.code_of = lambda _place: 10
    world.send(b"x", 0)
    world.until(lambda: world.state is TxnState.FAILED)
    assert (world.requested.count("InitProducerId"), world.requested.count("EndTxn")) == (1, 1)
    assert world.transactions.producer == ProducerId(7, 1)


def test_a_commit_of_version_2_after_the_abort_by_the_coordinator_is_an_aborted_transaction() -> None:
    world = TxnWorld(2)
    world.send(b"x", 0)
    world.codes["EndTxn"] = 48  # INVALID_TXN_STATE
    world.transactions.commit()
    world.until(lambda: world.state is TxnState.FAILING)
    world.codes.clear()
    world.until(lambda: world.state is TxnState.FAILED)
    with pytest.raises(TransactionAborted) as raised:
        world.transactions.raise_cause()
    assert isinstance(raised.value.__cause__, BrokerError)
    assert raised.value.__cause__.code == 48
    world.transactions.abort()
    world.transactions.begin()
    world.send(b"again", 0)
    world.transactions.commit()
    world.until(lambda: world.transactions.settled)
    assert world.state is TxnState.IDLE


@pytest.mark.parametrize("version", [1, 2])
def test_the_abort_shows_a_newer_producer_and_leaves_it_alone(version: int) -> None:
    """InitProducerId would fence the newer one too, while it has a transaction open."""
    world = TxnWorld(version)
    world.send(b"x", 0)
    world.codes["EndTxn"] = 90
    world.transactions.commit()
    world.until(lambda: world.state is TxnState.DEAD)
    assert isinstance(world.core.fatal, ProducerFenced)
    assert ("transaction_timeout_ms" in world.core.fatal.message) is (version == 1)
    assert world.requested.count("InitProducerId") == 1


@pytest.mark.parametrize("code", [0, 48])
def test_a_failed_transaction_of_version_1_is_ended_before_the_next_epoch_is_requested(code: int) -> None:
    """A coordinator that has none of it responds INVALID_TXN_STATE."""
    world = TxnWorld()
    world.send(b"x", 0)
    world.until(lambda: world.logs[TopicPartition(TOPIC, 0)].values != [])
    world.transactions.failed(BrokerError(10, api="Produce"))
    world.codes["EndTxn"] = 51  # a marker of the last transaction is not written yet
    world.until(lambda: world.requested[-1] == "EndTxn")
    world.codes["EndTxn"] = code
    world.until(lambda: world.pending("InitProducerId"))
    assert world.transactions._attempts is FRESH
    world.until(lambda: world.state is TxnState.FAILED)
    assert world.requested[-2:] == ["EndTxn", "InitProducerId"]
    assert (world.known, world.epoch) == ((7, 0), 1)
    world.transactions.abort()
    world.transactions.begin()
    world.transactions.failed(BrokerError(10, api="Produce"))
    world.until(lambda: world.state is TxnState.FAILED)
    assert world.requested[-2:] == ["EndTxn", "InitProducerId"], "in each transaction"


@pytest.mark.parametrize("version", [1, 2])
def test_an_id_that_the_coordinator_does_not_know_any_more_is_replaced(version: int) -> None:
    world = TxnWorld(version)
    world.send(b"x", 0)
    world.codes["EndTxn"] = 49
    world.transactions.commit()
    world.until(lambda: world.state is TxnState.FAILED)
    assert world.requested.count("InitProducerId") == 2
    world.codes.clear()
    world.transactions.abort()
    world.transactions.begin()
    world.send(b"y", 0)
    world.transactions.commit()
    world.until(lambda: world.transactions.settled)
    assert world.state is TxnState.IDLE


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("code", [49, 90])
def test_a_producer_whose_id_has_expired_does_not_fence_a_newer_one(version: int, code: int) -> None:
    """A coordinator compares the id in the request with the newer one."""
    world = TxnWorld(version)
    world.send(b"x", 0)
    world.codes |= {"EndTxn": 49, "InitProducerId": code}
    world.transactions.commit()
    world.until(lambda: world.state is TxnState.DEAD)
    assert (world.known, world.requested.count("InitProducerId")) == ((7, 0), 2)


@pytest.mark.parametrize("version", [1, 2])
def test_a_transaction_without_a_sent_record_is_ended_without_a_request(version: int) -> None:
    world = TxnWorld(version)
    world.transactions.commit()
    world.until(lambda: world.state is TxnState.IDLE)
    world.transactions.begin()
    world.transactions.abort()
    world.until(lambda: world.state is TxnState.IDLE)
    assert "EndTxn" not in world.requested


def test_the_version_is_chosen_with_the_producer_id() -> None:
    """A producer that runs while its cluster is upgraded keeps the version under which its epochs are known."""
    world = TxnWorld(1)
    world.core.endpoints.finalized(FinalizedFeatures(1, {"transaction.version": 2}))
    world.send(b"x", 0)
    world.transactions.commit()
    world.until(lambda: world.state is TxnState.IDLE)
    assert "AddPartitionsToTxn" in world.requested
    world.core.endpoints.finalized(FinalizedFeatures(0, {"transaction.version": 1}))  # an older response
    world.transactions.begin()
    world.transactions.failed(BrokerError(10, api="Produce"))
    world.until(lambda: world.state is TxnState.FAILED)
    assert world.transactions.version.implicit


def test_version_6_of_init_producer_id_is_not_used() -> None:
    assert TxnWorld(2).transactions.limits("InitProducerId").max_version == 5
    assert World(1).core.transactions.limits("InitProducerId").max_version == 5


@pytest.mark.parametrize(("version", "expected"), [(1, (None, 11)), (2, (12, 12))])
def test_a_topic_without_an_id_is_named_in_a_version_of_the_transactions(
    version: int, expected: tuple[int | None, int | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(World, "topic_id", NO_TOPIC_ID)
    world = TxnWorld(version)
    world.send(b"x", 0)
    world.until(lambda: world.pending("Produce"))
    assert versions_of(world, "Produce") == expected
