"""A commit whose response was lost: the error says so, and the next transaction begins with its outcome."""

import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from kohort import Producer
from kohort.network.errors import OperationTimeout
from kohort.producer import TransactionAborted
from kohort.producer.transaction_states import TxnState
from kohort.protocol.apis.end_txn import EndTxnResponse
from kohort.protocol.errors import BrokerError, ErrorCode
from kohort.testing import FakeBroker
from kohort.testing.fake_broker import Alter, Answer, Delay, Drop, Hold
from tests.coordinator_client.consumer_helpers import wait_until
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


def test_a_commit_that_another_caller_follows_with_a_transaction_has_its_outcome(fake: FakeBroker) -> None:
    """It waited for the end of the next transaction, and its outcome was unknown."""
    with Producer(fake.bootstrap, **{**HASTY, "max_block_ms": 20_000}) as producer:
        fake.control("EndTxn", lambda _call: Delay(0.3), times=1)

        def interrupt() -> None:
            wait_until(lambda: bool(fake.calls_of("EndTxn")))
            os.kill(os.getpid(), signal.SIGUSR1)

        before = signal.signal(signal.SIGUSR1, lambda *_: producer.begin())
        try:
            producer.begin()
            producer.send("topic", b"first")
            with ThreadPoolExecutor() as pool:
                interrupting = pool.submit(interrupt)
                producer.commit()
                interrupting.result()
        finally:
            signal.signal(signal.SIGUSR1, before)
        producer.send("topic", b"second")
        producer.commit()
    assert read(fake) == [b"first", b"second"]


@pytest.mark.parametrize("is_closed", [False, True])
def test_a_failed_commit_is_no_success_once_another_caller_has_aborted_it(
    is_closed: bool, fake: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Hold()

    def refuse() -> None:
        """Have the record sent again. A failure before the call waits would be no outcome of the call."""
        assert held.reached.wait(60)
        fake.disconnect()

    fake.control("Produce", lambda call: Alter(refused) if call.number else held, times=2)
    producer = Producer(fake.bootstrap, **{**HASTY, "max_block_ms": 20_000})
    producer.begin()
    producer.send("topic", b"lost")
    core = producer._driver.core
    if is_closed:
        producer._driver.execute(lambda _core: core.transactions.commit())
    then(producer, monkeypatch, producer.abort, at_wait=refuse)
    with pytest.raises(TransactionAborted, match="the transaction has failed") as raised:
        (producer.close if is_closed else producer.commit)()
    assert isinstance(raised.value.__cause__, BrokerError)
    producer.close()
    assert read(fake) == []


def test_a_commit_is_no_failure_once_another_caller_has_failed_with_the_next_transaction(
    fake: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise its caller would send the records once more."""

    def fail() -> None:
        producer.begin()
        fake.control("Produce", lambda _call: Alter(refused), times=1)
        with pytest.raises(BrokerError):
            producer.send("topic", b"lost").result(60)
        wait_until(lambda: producer._state is TxnState.FAILED)

    with Producer(fake.bootstrap, **{**HASTY, "max_block_ms": 20_000}) as producer:
        producer.begin()
        producer.send("topic", b"first")
        then(producer, monkeypatch, fail)
        producer.commit()
        producer.abort()
    assert read(fake) == [b"first"]


def refused(response: Any) -> Any:
    """A response to a Produce request whose records are invalid."""
    return response._replace(
        responses=tuple(
            topic._replace(
                partition_responses=tuple(
                    one._replace(error_code=ErrorCode.INVALID_RECORD, base_offset=-1)
                    for one in topic.partition_responses
                )
            )
            for topic in response.responses
        )
    )


def then(
    producer: Producer,
    monkeypatch: pytest.MonkeyPatch,
    call: Callable[[], None],
    *,
    at_wait: Callable[[], object] = lambda: None,
) -> None:
    """Make `call` as another thread would, after the next wait is over and before its caller goes on. `at_wait` is
    called as the wait begins."""
    settled = producer._settled

    def wait(reached: Callable[[], bool], timeout_s: float) -> None:
        at_wait()
        settled(reached, timeout_s)
        monkeypatch.undo()
        call()

    monkeypatch.setattr(producer, "_settled", wait)
