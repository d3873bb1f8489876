"""skip_batch over a broker: no batch can make the reader jump over records that are there."""

import time
from collections.abc import Iterator
from random import randbytes
from typing import Any

import pytest

from kohort import Consumer, TopicPartition
from kohort.fastpath import RecordColumns, encode
from kohort.protocol import record_batch as wire
from kohort.protocol.apis.fetch import AbortedTransaction
from kohort.testing.fake_broker import Alter, Call, FakeBroker

P = TopicPartition("t", 0)
RECORDS = 20


def responding(records: bytes, **fields: Any) -> Any:
    """The response to the first Fetch from offset 0 has `records` and `fields`. The broker is honest otherwise."""
    done: list[bool] = []

    def first(call: Call) -> Alter | None:
        topics = call.request.topics  # type: ignore[attr-defined]
        if done or not topics or topics[0].partitions[0].fetch_offset != 0:
            return None
        done.append(True)
        return Alter(lying)

    def lying(response: Any) -> Any:
        (topic,) = response.responses
        (found,) = topic.partitions
        return response._replace(responses=(topic._replace(partitions=(found._replace(records=records, **fields),)),))

    return first


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker(topics={"t": 1}) as broker:
        for number in range(RECORDS):
            broker.produce("t", 0, [(b"k", b"%d" % number)])
        yield broker


def corrupt(base_offset: int, count: int = 10) -> bytes:
    batch = wire.encode([(b"k", b"v", 1)] * count, base_offset=0)
    return base_offset.to_bytes(8, "big", signed=True) + batch[8:-1] + b"?"


@pytest.mark.parametrize("base_offset", [1 << 62, (1 << 63) - 1, -5, 1, 9, 21, 1_000])
@pytest.mark.parametrize("policy", ["latest", "earliest", "none"])
def test_a_corrupt_batch_with_a_lying_base_offset_costs_one_offset(
    broker: FakeBroker, base_offset: int, policy: str
) -> None:
    broker.control("Fetch", responding(corrupt(base_offset)))
    with Consumer(broker.bootstrap, on_corrupt="skip_batch", auto_offset_reset=policy) as consumer:
        consumer.assign({P: 0})
        offsets, until = list[int](), time.monotonic() + 120
        while consumer.position(P) < RECORDS and time.monotonic() < until:
            offsets += [record.offset for columns in consumer.poll(0.2) for record in columns]
        assert offsets == list(range(1, RECORDS))
        (reported,) = [notice for notice in consumer.notices() if notice.kind == "batch_skipped"]
        assert "continues at offset 1" in reported.text
        assert "partition=0" in reported.text


def test_a_corrupt_batch_within_the_log_is_passed_as_a_whole(broker: FakeBroker) -> None:
    broker.control("Fetch", responding(corrupt(0)))
    with Consumer(broker.bootstrap, on_corrupt="skip_batch", auto_offset_reset="none") as consumer:
        consumer.assign({P: 0})
        offsets, until = list[int](), time.monotonic() + 120
        while consumer.position(P) < RECORDS and time.monotonic() < until:
            offsets += [record.offset for columns in consumer.poll(0.2) for record in columns]
        assert offsets == list(range(10, RECORDS))


@pytest.mark.proves("B-17")
def test_behind_a_corrupt_marker_of_an_aborted_transaction_records_are_fetched_again(broker: FakeBroker) -> None:
    transaction: dict[str, Any] = {"producer_id": 7, "transactional": True}
    records = [wire.encode([(b"k", b"v")] * 3, base_offset=at, **transaction) for at in (0, 4)]
    marker = wire.encode([(bytes(4), bytes(6))], base_offset=3, control=True, **transaction)
    log = records[0] + marker[:-1] + b"?" + records[1]
    aborted = (AbortedTransaction(producer_id=7, first_offset=0),)
    broker.control("Fetch", responding(log, aborted_transactions=aborted))
    options: dict[str, Any] = {"isolation_level": "read_committed", "auto_offset_reset": "none"}
    with Consumer(broker.bootstrap, on_corrupt="skip_batch", **options) as consumer:
        consumer.assign({P: 0})
        offsets, until = list[int](), time.monotonic() + 120
        while consumer.position(P) < RECORDS and time.monotonic() < until:
            offsets += [record.offset for columns in consumer.poll(0.2) for record in columns]
        assert offsets == list(range(4, RECORDS))
        assert consumer.metrics().corrupt_batches_total == 1


@pytest.mark.parametrize("option", [{"max_decompressed_bytes": 1_500}, {"max_poll_records": 5}], ids=str)
def test_a_skipped_batch_is_reported_once_for_a_slice_in_parts(broker: FakeBroker, option: dict[str, Any]) -> None:
    sound = [encode([(None, randbytes(1_000))], codec="gzip", base_offset=at) for at in range(1, RECORDS)]
    broker.control("Fetch", responding(corrupt(0, 1) + b"".join(sound)))
    with Consumer(broker.bootstrap, on_corrupt="skip_batch", auto_offset_reset="none", **option) as consumer:
        consumer.assign({P: 0})
        read, until = list[RecordColumns](), time.monotonic() + 120
        while consumer.position(P) < RECORDS and time.monotonic() < until:
            read += consumer.poll(0.2)
        assert [record.offset for columns in read for record in columns] == list(range(1, RECORDS))
        assert [len(columns.corrupt) for columns in read] == [1] + [0] * (len(read) - 1)
        assert len(read) > 1
        assert consumer.metrics().corrupt_batches_total == 1
        assert [notice.kind for notice in consumer.notices()] == ["batch_skipped"]
