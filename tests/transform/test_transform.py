"""`Transform`: one result for each record, whatever fails, on a fake broker."""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from kohort import Consumer, KohortError, Producer, TopicPartition, Transform
from kohort.coordinator_client import CommitFailed, WakeupError
from kohort.fastpath import RecordColumns
from kohort.network.errors import ConfigError, OperationTimeout
from kohort.network.group_types import ConsumerGroupMetadata
from kohort.producer import ProducerFenced, TransactionAborted
from kohort.protocol.apis.end_txn import EndTxnRequest
from kohort.protocol.apis.produce import ProduceResponse
from kohort.protocol.apis.txn_offset_commit import TxnOffsetCommitResponse
from kohort.protocol.errors import ErrorCode
from kohort.testing import FakeBroker
from kohort.testing.fake_broker import Alter, Drop
from kohort.transform import transform as module
from tests.coordinator_client.consumer_helpers import wait_until

LIMIT_S = 60.0
RECORDS = 40
ILLEGAL_GENERATION = 22


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeBroker]:
    monkeypatch.setattr(module, "BACKOFF", module.BACKOFF._replace(initial_ms=1))
    with FakeBroker(topics={"words": 2, "shouted": 1}) as broker:
        for number in range(RECORDS):
            broker.produce("words", number % 2, [(b"k", b"w%d" % number)])
        yield broker


def shout(columns: RecordColumns, producer: Producer) -> None:
    for record in columns:
        producer.send("shouted", bytes(record.value or b"").upper(), key=record.key)


def results(fake: FakeBroker, count: int = RECORDS) -> list[bytes]:
    """The committed results, at least so many."""
    place, found = TopicPartition("shouted", 0), list[bytes]()
    with Consumer(fake.bootstrap, isolation_level="read_committed") as consumer:
        consumer.assign({place: 0})
        end = consumer.end_offsets([place])[place]
        until = time.monotonic() + LIMIT_S
        while len(found) < count or (consumer.position(place) or 0) < end:
            assert time.monotonic() < until, f"{len(found)} results of {count}"
            found += [bytes(record.value or b"") for columns in consumer.poll(1.0) for record in columns]
    return found


def wanted(count: int = RECORDS) -> list[bytes]:
    return sorted(b"W%d" % number for number in range(count))


class Life:
    """A transform on a thread of its own, and what `run` raised."""

    def __init__(self, fake: FakeBroker, name: str = "one", **given: Any) -> None:
        self.retries: list[KohortError] = []
        self.counts: list[int] = []
        given = {"group": "g", "handler": shout, "on_retry": self._note, **given}
        self.transform = Transform(fake.bootstrap, name=name, topics=["words"], **given)
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run)

    def _note(self, error: KohortError, failures: int) -> None:
        self.retries.append(error)
        self.counts.append(failures)

    def _run(self) -> None:
        try:
            self.transform.run()
        except BaseException as error:
            self.error = error

    def __enter__(self) -> "Life":
        self._thread.start()
        return self

    def ended(self) -> None:
        """Wait until `run` has returned."""
        self._thread.join(LIMIT_S)
        assert not self._thread.is_alive()

    def __exit__(self, *_error: object) -> None:
        self.transform.stop()
        self.ended()


def stored(fake: FakeBroker) -> int:
    """The sum of the group's offsets."""
    with Consumer(fake.bootstrap, group="g") as consumer:
        found = consumer.committed([TopicPartition("words", number) for number in range(2)])
    return sum(one.offset for one in found.values() if one is not None)


def transactional_ids(fake: FakeBroker) -> set[str]:
    """Those of all producers until now."""
    requests: list[Any] = [call.request for call in fake.calls_of("InitProducerId")]
    return {one.transactional_id for one in requests}


def test_each_record_has_one_result_and_offsets_are_committed_with_it(fake: FakeBroker) -> None:
    with Life(fake) as life:
        assert sorted(results(fake)) == wanted()
    assert (life.error, life.retries) == (None, [])
    assert stored(fake) == RECORDS
    fake.produce("words", 0, [(b"k", b"w40")])
    with Life(fake):
        assert sorted(results(fake, RECORDS + 1)) == wanted(RECORDS + 1)


def refused(response: TxnOffsetCommitResponse) -> TxnOffsetCommitResponse:
    topics = tuple(
        topic._replace(partitions=tuple(one._replace(error_code=ILLEGAL_GENERATION) for one in topic.partitions))
        for topic in response.topics
    )
    return TxnOffsetCommitResponse(topics=topics)


def test_what_the_group_refuses_is_handled_again(fake: FakeBroker) -> None:
    fake.control("TxnOffsetCommit", lambda _call: Alter(refused), times=2)
    with Life(fake) as life:
        assert sorted(results(fake)) == wanted()
        fake.control("TxnOffsetCommit", lambda _call: Alter(refused), times=1)
        fake.produce("words", 0, [(b"k", b"w40")])
        assert sorted(results(fake, RECORDS + 1)) == wanted(RECORDS + 1)
    assert [type(error) for error in life.retries] == [CommitFailed] * 3
    assert life.counts == [1, 2, 1]
    aborted = [call.request.committed for call in fake.calls_of("EndTxn") if isinstance(call.request, EndTxnRequest)]
    assert aborted.count(False) == 3


def test_an_abort_that_times_out_is_made_good_by_the_next(fake: FakeBroker) -> None:
    fake.control("TxnOffsetCommit", lambda _call: Alter(refused), times=1)
    lost = fake.control("EndTxn", lambda _call: Drop())
    with Life(fake, producer={"max_block_ms": 300, "request_timeout_ms": 1_000}) as life:
        until = time.monotonic() + LIMIT_S
        while not life.retries:
            assert time.monotonic() < until
            time.sleep(0.01)
        lost.remove()
        assert sorted(results(fake)) == wanted()
    assert life.error is None


def test_a_handler_that_fails_leaves_nothing_and_the_next_run_goes_on(fake: FakeBroker) -> None:
    seen: list[bytes] = []

    def failing(columns: RecordColumns, producer: Producer) -> None:
        for record in columns:
            producer.send("shouted", bytes(record.value or b"").upper())
            seen.append(bytes(record.value or b""))
            if len(seen) == 7:
                raise ZeroDivisionError("in the handler")

    with Life(fake, handler=failing) as life:
        life.ended()
    assert isinstance(life.error, ZeroDivisionError)
    with Life(fake, handler=failing) as again:
        assert sorted(results(fake)) == wanted()
    assert again.error is None


def test_a_wakeup_of_the_handlers_own_consumer_is_an_error_of_the_handler(fake: FakeBroker) -> None:
    def woken(_columns: RecordColumns, _producer: Producer) -> None:
        raise WakeupError("a consumer of the handler's own was woken")

    with Life(fake, handler=woken) as life:
        life.ended()
    assert isinstance(life.error, WakeupError)
    with Life(fake):
        assert sorted(results(fake)) == wanted()


def test_a_signal_handler_may_stop_it_at_any_place_of_the_wait_before_a_retry(fake: FakeBroker) -> None:
    fake.control("TxnOffsetCommit", lambda _call: Alter(refused), times=1)

    def stop_here(frame: Any, _event: str, _arg: object) -> None:
        if frame.f_code.co_name == "_go_back":
            sys.setprofile(None)
        else:
            life.transform.stop()

    with Life(fake, on_retry=lambda _error, _failures: sys.setprofile(stop_here)) as life:
        life.ended()
    assert life.error is None


def test_a_stop_does_not_wait_for_the_open_transaction_of_another_member(
    fake: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOOK_UP_S", 0.05)
    fake.control("TxnOffsetCommit", lambda _call: Alter(refused), times=1)
    settings: dict[str, Any] = {"default_api_timeout_ms": 600_000}  # a look-up would take so long
    with Producer(fake.bootstrap, transactional_id="other", transaction_timeout_ms=600_000) as other:

        def leave_open(_error: KohortError, _failures: int) -> None:
            other.begin()
            other.send_offsets({TopicPartition("words", number): 1 for number in range(2)}, ConsumerGroupMetadata("g"))

        with Life(fake, on_retry=leave_open, consumer=settings) as life:
            wait_until(lambda: len(fake.calls_of("OffsetFetch")) > 3)
            life.transform.stop()
            life.ended()
    assert life.error is None


def test_the_log_has_the_cause_of_a_retry(fake: FakeBroker, caplog: pytest.LogCaptureFixture) -> None:
    def denied(response: ProduceResponse) -> ProduceResponse:
        (topic,) = response.responses
        (one,) = topic.partition_responses
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return response._replace(
            responses=(topic._replace(partition_responses=(one._replace(error_code=code, base_offset=-1),)),)
        )

    fake.control("Produce", lambda _call: Alter(denied), times=1)
    with Life(fake) as life:
        assert sorted(results(fake)) == wanted()
    assert [type(error) for error in life.retries] == [TransactionAborted]
    (line,) = [one.getMessage() for one in caplog.records if one.name == "kohort.transform"]
    assert "not allowed to write to the topic" in line
    assert "topic=shouted" in line


def test_on_retry_may_end_it(fake: FakeBroker) -> None:
    counts: list[int] = []

    def give_up(error: KohortError, failures: int) -> None:
        counts.append(failures)
        if failures == 3:
            raise error

    def too_large(columns: RecordColumns, producer: Producer) -> None:
        raise TransactionAborted("it never fits")

    with Life(fake, handler=too_large, on_retry=give_up) as life:
        life.ended()
    assert isinstance(life.error, TransactionAborted)
    assert counts == [1, 2, 3]
    assert stored(fake) == 0


def test_a_commit_without_a_response_is_settled_before_anything_else(fake: FakeBroker) -> None:
    fake.control("EndTxn", lambda _call: Drop(after_work=True), times=1)
    with Life(fake, producer={"max_block_ms": 300, "request_timeout_ms": 1_000}) as life:
        results(fake)
        fake.produce("words", 0, [(b"k", b"w40")])
        assert sorted(results(fake, RECORDS + 1)) == wanted(RECORDS + 1)
    assert (life.error, life.retries) == (None, [])


def test_a_newer_process_with_the_name_ends_the_older(fake: FakeBroker) -> None:
    held, reached = threading.Event(), threading.Event()

    def slow(columns: RecordColumns, producer: Producer) -> None:
        shout(columns, producer)
        producer.flush()
        reached.set()
        held.wait(LIMIT_S)

    with Life(fake, handler=slow) as older:
        assert reached.wait(LIMIT_S)
        with Life(fake) as newer:
            assert sorted(results(fake)) == wanted()
            held.set()
            older.ended()
        assert newer.error is None
    assert isinstance(older.error, ProducerFenced | KohortError)
    assert sorted(results(fake)) == wanted()


def test_members_come_and_go(fake: FakeBroker) -> None:
    def slowly(columns: RecordColumns, producer: Producer) -> None:
        shout(columns, producer)
        threading.Event().wait(0.01)

    reads: Callable[..., Any] = lambda name: Life(fake, name, handler=slowly, consumer={"max_poll_records": 3})  # noqa: E731
    with reads("one"):
        results(fake, 5)
        with reads("two"):
            results(fake, 15)
        with reads("three"):
            assert sorted(results(fake)) == wanted()
    assert stored(fake) == RECORDS


def test_offsets_that_are_not_stored_yet_lead_back_to_the_first_record(fake: FakeBroker) -> None:
    class Reader:
        assignment = frozenset({TopicPartition("words", 0)})
        seeks: list[tuple[TopicPartition, int]] = []
        tries = 0

        def committed(self, places: Any, _timeout_s: float) -> dict[TopicPartition, None]:
            self.tries += 1
            if self.tries == 1:
                raise OperationTimeout("pending")
            return dict.fromkeys(places)

        def seek(self, place: TopicPartition, offset: int) -> None:
            self.seeks.append((place, offset))

    with Consumer(fake.bootstrap) as consumer:
        consumer.assign({TopicPartition("words", 0): 3, TopicPartition("words", 1): 0})
        slices = list[RecordColumns]()
        while len({one.partition for one in slices}) < 2:
            slices += consumer.poll(1.0)
    reader = Reader()
    Transform("b:1", group="g", name="n", topics=["words"], handler=shout)._go_back(slices, reader)  # type: ignore[arg-type]
    assert reader.seeks == [(TopicPartition("words", 0), 3)]


def test_transforms_whose_names_look_alike_do_not_fence_each_other(fake: FakeBroker) -> None:
    names = {
        ("bill", "eu-1"): "bill-eu%2D1",
        ("bill-eu", "1"): "bill-eu-1",
        ("bill", "eu%2D1"): "bill-eu%252D1",
        ("bill", "eu/ü"): "bill-eu/ü",
    }

    def seen(wanted_id: str) -> bool:
        return wanted_id in transactional_ids(fake)

    for (group, name), wanted_id in names.items():
        with Life(fake, name, group=group):
            wait_until(partial(seen, wanted_id))
    assert transactional_ids(fake) == set(names.values())


@pytest.mark.parametrize("given", [{"consumer": {"group": "x"}}, {"producer": {"transactional_id": "x"}}])
def test_what_a_transform_sets_is_no_setting(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"sets .* itself"):
        Transform("b:1", group="g", name="n", topics=["words"], handler=shout, **given)


class Awaited:
    async def __call__(self, columns: RecordColumns, producer: Producer) -> None: ...


async def awaited(*_given: object) -> None:
    """Nothing awaits it, so its records would be committed without results."""


@pytest.mark.parametrize(
    "given", [{"handler": awaited}, {"handler": None}, {"on_retry": awaited}, {"handler": Awaited()}]
)
def test_what_cannot_be_called_or_is_not_awaited_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match=f"{next(iter(given))} is a .*function"):
        Transform("b:1", group="g", name="n", topics=["words"], **{"handler": shout, **given})


@pytest.mark.parametrize(
    "given", [{"group": None}, {"group": ""}, {"name": 5}, {"name": ""}, {"topics": 5}, {"topics": []}, {"topics": [5]}]
)
def test_names_that_are_none_are_refused_at_once(given: dict[str, Any]) -> None:
    with pytest.raises((TypeError, ValueError), match=next(iter(given))):
        Transform("b:1", **{"group": "g", "name": "n", "topics": ["words"], "handler": shout, **given})


def test_a_coroutine_that_a_handler_returns_is_an_error_and_its_records_are_not_committed(fake: FakeBroker) -> None:
    with Life(fake, handler=lambda *given: awaited(*given)) as life:
        life.ended()
    assert isinstance(life.error, TypeError)
    assert "handler is a plain function: a coroutine function is not awaited here" in str(life.error)
    assert stored(fake) == 0


def test_stop_before_run_and_wrong_settings(fake: FakeBroker) -> None:
    transform = Transform(fake.bootstrap, group="g", name="n", topics="words", handler=shout)
    transform.stop()
    transform.run()
    with pytest.raises(ConfigError, match="linger_mss"):
        Transform(fake.bootstrap, group="g", name="n", topics="words", handler=shout, producer={"linger_mss": 1}).run()  # type: ignore[arg-type]
