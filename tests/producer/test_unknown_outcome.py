"""A commit whose response was lost: the error says so, and the next transaction begins with its outcome."""

from collections.abc import Iterator
from typing import Any

import pytest

from kohort import Producer
from kohort.network.errors import OperationTimeout
from kohort.producer import TransactionAborted
from kohort.protocol.apis.end_txn import EndTxnResponse
from kohort.protocol.errors import ErrorCode
from kohort.testing import FakeBroker
from kohort.testing.fake_broker import Answer, Drop
from tests.producer.test_producer_interrupts import read as read_places

UNKNOWN = "the outcome of the commit is unknown"
HASTY: dict[str, Any] = {
    "transactional_id": "tx",
    "max_block_ms": 1_000,
    "request_timeout_ms": 3_000,
    "retry_backoff_max_ms": 100,
    "linger_ms": 0,
}


def read(fake: FakeBroker) -> list[bytes | None]:
    return [value for _partition, _offset, value in read_places(fake, "topic")]


@pytest.fixture
def fake() -> Iterator[FakeBroker]:
    with FakeBroker(topics={"topic": 1}) as broker:
        yield broker


def test_after_a_commit_whose_response_is_lost_the_next_block_waits_for_it(fake: FakeBroker) -> None:
    with Producer(fake.bootstrap, **HASTY) as producer:
        lost = fake.control("EndTxn", lambda _call: Drop(after_work=True), times=1)
        with pytest.raises(OperationTimeout, match=UNKNOWN), producer.transaction():
            producer.send("topic", b"first")
        with pytest.raises(OperationTimeout, match=UNKNOWN):
            producer.commit()
        producer.begin(60)
        producer.send("topic", b"second")
        producer.commit()
        assert lost.calls == 1
    assert read(fake) == [b"first", b"second"]


def test_a_block_whose_commit_came_about_unseen_is_followed_by_another(fake: FakeBroker) -> None:
    with Producer(fake.bootstrap, **HASTY) as producer:
        fake.control("EndTxn", lambda _call: Drop(after_work=True), times=1)
        with pytest.raises(OperationTimeout, match=UNKNOWN), producer.transaction():
            producer.send("topic", b"first")
        for attempt in range(200):
            try:
                with producer.transaction():
                    producer.send("topic", b"second")
                break
            except OperationTimeout:
                assert attempt < 199
    assert read(fake) == [b"first", b"second"]


def test_a_commit_that_turns_out_to_be_aborted_is_said_by_the_next_block_once(fake: FakeBroker) -> None:
    with Producer(fake.bootstrap, **HASTY) as producer:
        lost = fake.control("EndTxn", lambda _call: Drop(), times=1)
        with pytest.raises(OperationTimeout, match=UNKNOWN), producer.transaction():
            producer.send("topic", b"first")
        lost.remove()
        fenced = EndTxnResponse(error_code=ErrorCode.PRODUCER_FENCED)
        fake.control("EndTxn", lambda _call: Answer(fenced), times=1)
        with pytest.raises(TransactionAborted):
            producer.begin(60)
        with pytest.raises(TransactionAborted), producer.transaction():
            raise AssertionError("the block does not begin")
        with producer.transaction():
            producer.send("topic", b"second")
    assert read(fake) == [b"second"]
