"""A Produce request that arrives after the abort of its transaction, on a real broker: the fault that KIP-890 cures.

The requests are written by hand, since kohort's producer takes a new epoch before the request could be late.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kohort import Consumer, Producer, TopicPartition
from kohort.fastpath import encode
from kohort.protocol.apis.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from kohort.protocol.apis.end_txn import EndTxnRequest
from kohort.protocol.apis.init_producer_id import InitProducerIdRequest
from kohort.protocol.apis.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kohort.protocol.errors import ErrorCode
from kohort.protocol.tape import read
from kohort.testing import RealBroker
from kohort.testing.topics import create_topic
from tests.support.broker_selection import SelectedBroker
from tests.testing.group_client import Connection

OPEN = {ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR}
V1 = {"Produce": 11, "EndTxn": 4, "AddPartitionsToTxn": 3, "InitProducerId": 5}
V2 = {"Produce": 12, "EndTxn": 5, "InitProducerId": 5}


class Hand:
    """A transactional producer whose every request is the test's."""

    def __init__(self, bootstrap: str, topic: str, name: str, versions: dict[str, int]) -> None:
        self._connection = Connection(bootstrap)
        self._topic, self._name, self._versions = topic, name, versions
        begun = self._send(
            "InitProducerId", InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
        )
        self.id, self.epoch = begun.producer_id, begun.producer_epoch

    def _send(self, api: str, request: Any) -> Any:
        for _ in range(600):
            response = self._connection.request(api, request, version=self._versions[api])
            if getattr(response, "error_code", 0) not in OPEN:
                return response
        raise AssertionError(response)

    def add(self) -> int:
        request = AddPartitionsToTxnRequest(
            transactions=(),
            v3_and_below_transactional_id=self._name,
            v3_and_below_producer_id=self.id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=(AddPartitionsToTxnTopic(name=self._topic, partitions=(0,)),),
        )
        for _ in range(600):
            (topic,) = self._send("AddPartitionsToTxn", request).results_by_topic_v3_and_below
            code = int(topic.results_by_partition[0].partition_error_code)
            if code not in OPEN:
                return code
        raise AssertionError(code)

    def produce(self, value: bytes, epoch: int, sequence: int) -> int:
        records = encode(
            [(None, value)],
            producer_id=self.id,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=True,
        )
        data = TopicProduceData(name=self._topic, partition_data=(PartitionProduceData(index=0, records=records),))
        request = ProduceRequest(transactional_id=self._name, acks=-1, timeout_ms=30_000, topic_data=(data,))
        for _ in range(600):
            (topic,) = self._send("Produce", request).responses
            code = int(topic.partition_responses[0].error_code)
            if code not in OPEN:
                return code
        raise AssertionError(code)

    def end(self, *, committed: bool) -> int:
        request = EndTxnRequest(
            transactional_id=self._name, producer_id=self.id, producer_epoch=self.epoch, committed=committed
        )
        response = self._send("EndTxn", request)
        if response.producer_id >= 0:
            self.id, self.epoch = response.producer_id, response.producer_epoch
        return int(response.error_code)

    def close(self) -> None:
        self._connection.close()


def committed(bootstrap: str, topic: str, count: int) -> list[bytes | None]:
    seen: list[bytes | None] = []
    with Consumer(bootstrap, auto_offset_reset="earliest", isolation_level="read_committed") as reader:
        reader.assign([TopicPartition(topic, 0)])
        for _ in range(600):
            seen += [record.value for columns in reader.poll(0.1) for record in columns]
            if len(seen) >= count:
                break
    return seen


def ended(bootstrap: str, topic: str) -> None:
    """Wait until the log has the first batch and the marker of its transaction."""
    tp = TopicPartition(topic, 0)
    with Consumer(bootstrap, isolation_level="read_committed") as reader:
        for _ in range(6_000):
            if reader.end_offsets([tp])[tp] == 2:
                return
    raise AssertionError("no marker")


@pytest.fixture
def by_hand(
    broker: SelectedBroker, make_topic: Callable[..., str], unique: Callable[[str], str]
) -> Iterator[Callable[[dict[str, int]], tuple[str, Hand]]]:
    made: list[Hand] = []

    def make(versions: dict[str, int]) -> tuple[str, Hand]:
        with Connection(broker.bootstrap) as probe:
            if any(probe.ranges[key][1] < versions[api] for key, api in ((0, "Produce"), (26, "EndTxn"))):
                pytest.skip("the broker does not have these versions")
        topic = make_topic(1)
        # The coordinator may be created by the first look-up.
        with Producer(broker.bootstrap, transactional_id=(name := unique("late"))) as first:
            first.begin()
            first.abort()
        made.append(Hand(broker.bootstrap, topic, name, versions))
        return topic, made[-1]

    yield make
    for one in made:
        one.close()


@pytest.mark.broker
def test_in_version_1_a_late_request_of_an_aborted_transaction_lands_in_the_next(
    broker: SelectedBroker, by_hand: Callable[[dict[str, int]], tuple[str, Hand]]
) -> None:
    topic, hand = by_hand(V1)
    assert hand.add() == ErrorCode.NONE
    assert hand.produce(b"aborted", hand.epoch, 0) == ErrorCode.NONE
    assert hand.end(committed=False) == ErrorCode.NONE
    assert hand.add() == ErrorCode.NONE  # the next transaction, under the same epoch
    assert hand.produce(b"late", hand.epoch, 1) == ErrorCode.NONE  # sent in the aborted one, with the next sequence
    assert hand.end(committed=True) == ErrorCode.NONE
    assert committed(broker.bootstrap, topic, 1) == [b"late"]


@pytest.mark.broker
def test_in_version_2_a_late_request_of_an_aborted_transaction_is_refused(
    broker: SelectedBroker, by_hand: Callable[[dict[str, int]], tuple[str, Hand]]
) -> None:
    topic, hand = by_hand(V2)
    first = hand.epoch
    assert hand.produce(b"aborted", first, 0) == ErrorCode.NONE
    assert hand.end(committed=False) == ErrorCode.NONE
    assert hand.epoch == first + 1
    ended(broker.bootstrap, topic)
    assert hand.produce(b"late", first, 1) == ErrorCode.INVALID_PRODUCER_EPOCH  # between two transactions
    assert hand.produce(b"next", hand.epoch, 0) == ErrorCode.NONE
    assert hand.produce(b"late", first, 1) == ErrorCode.INVALID_PRODUCER_EPOCH  # in the next one
    assert hand.end(committed=True) == ErrorCode.NONE
    assert committed(broker.bootstrap, topic, 1) == [b"next"]


@pytest.mark.full
@pytest.mark.broker
def test_without_verification_a_late_request_of_version_1_hangs_the_readers() -> None:
    """A transaction begins with the late batch, and nothing ends it: the last stable offset stays before it."""
    with RealBroker(properties={"transaction.partition.verification.enable": "false"}) as alone:
        create_topic(alone.bootstrap, "t")
        with Producer(alone.bootstrap, transactional_id="late") as first:
            first.begin()
            first.abort()
        hand = Hand(alone.bootstrap, "t", "late", V1)
        assert hand.add() == ErrorCode.NONE
        assert hand.produce(b"aborted", hand.epoch, 0) == ErrorCode.NONE
        assert hand.end(committed=False) == ErrorCode.NONE
        ended(alone.bootstrap, "t")
        tp = TopicPartition("t", 0)
        with Consumer(alone.bootstrap, isolation_level="read_committed") as reader:
            assert hand.produce(b"late", hand.epoch, 1) == ErrorCode.NONE
            assert reader.end_offsets([tp], stable=False)[tp] == 3
            assert reader.end_offsets([tp])[tp] == 2
        hand.close()
        with Producer(alone.bootstrap) as plain:
            assert plain.send("t", b"behind").result(60).offset == 3
        with Consumer(alone.bootstrap, auto_offset_reset="earliest", isolation_level="read_committed") as reader:
            reader.assign([tp])
            assert not [record.value for _ in range(10) for columns in reader.poll(0.2) for record in columns]


@pytest.mark.broker
def test_a_transaction_of_version_2_takes_no_request_that_adds_to_it(
    broker: SelectedBroker, make_topic: Callable[..., str], unique: Callable[[str], str], tmp_path: Path
) -> None:
    topic, source, group, tape = make_topic(1), make_topic(1), unique("group"), tmp_path / "tape.jsonl"
    with (
        Consumer(broker.bootstrap, group=group) as consumer,
        Producer(broker.bootstrap, transactional_id=unique("tape"), tape=str(tape)) as producer,
    ):
        for number in range(3):
            producer.begin()
            if not producer._driver.core.transactions.version.implicit:
                producer.abort()
                pytest.skip("the broker has no transactions of version 2")
            producer.send(topic, b"%d" % number)
            producer.send_offsets({TopicPartition(source, 0): number + 1}, consumer.group_metadata())
            producer.commit() if number != 1 else producer.abort()
        assert consumer.committed([TopicPartition(source, 0)])[TopicPartition(source, 0)] == (3, -1, "")
    taped = list(read(tape.read_text().splitlines()))
    requested = [one.api for one in taped if one.direction == "request"]
    assert not {"AddPartitionsToTxn", "AddOffsetsToTxn"} & set(requested)
    assert (requested.count("EndTxn"), requested.count("InitProducerId") >= 1) == (3, True)
    assert committed(broker.bootstrap, topic, 2) == [b"0", b"2"]
