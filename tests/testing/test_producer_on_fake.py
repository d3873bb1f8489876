"""Every kind of request of a producer loses its response, in every way there is; each record is in the log once."""

import contextlib
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from kohort import Consumer, KohortError, Producer, TopicPartition
from kohort.admin import Admin
from kohort.coordinator_client import AuthorizationFailed, ForkError, OperationTimeout, UnknownTopic
from kohort.fastpath import decode
from kohort.network.group_types import ConsumerGroupMetadata
from kohort.producer import ProducerClosed, RecordTooLarge, TransactionAborted
from kohort.producer.transaction_states import TxnState
from kohort.protocol.errors import UnsupportedVersion
from kohort.testing.fake_broker import Alter, Delay, Drop, FakeBroker
from tests.coordinator_client.consumer_helpers import PATIENCE_S, in_a_child
from tests.testing.group_client import Connection, Stage
from tests.testing.test_consumer_on_fake import FAULTS
from tests.testing.test_fake_against_real import fetch

RECORDS = 40


def values(bootstrap: str) -> list[bytes | None]:
    """All that is in the log of the topic."""
    with Connection(bootstrap) as connection:
        return [record.value for record in decode(fetch(connection, Stage(bootstrap, "topic", "group"), 0).records)]


@pytest.mark.parametrize("api", ["ApiVersions", "InitProducerId", "Metadata", "Produce"])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_lost_response_loses_and_doubles_no_record(api: str, fault: str) -> None:
    with FakeBroker(topics={"topic": 1}) as fake:
        laid = fake.control(api, FAULTS[fault], times=3)
        with Producer(
            fake.bootstrap,
            linger_ms=0,
            batch_bytes=100,
            request_timeout_ms=500,
            retry_backoff_ms=10,
            reconnect_backoff_ms=10,
            connection_setup_timeout_ms=500,
        ) as producer:
            for number in range(RECORDS):
                producer.send("topic", b"%d" % number)
            producer.flush(PATIENCE_S)
        laid.remove()
        assert values(fake.bootstrap) == [b"%d" % number for number in range(RECORDS)]


@pytest.mark.parametrize(
    ("version", "api"),
    [
        (1, "InitProducerId"),
        (1, "AddPartitionsToTxn"),
        (1, "Produce"),
        (1, "AddOffsetsToTxn"),
        (1, "TxnOffsetCommit"),
        (1, "EndTxn"),
        (2, "Produce"),
        (2, "TxnOffsetCommit"),
        (2, "EndTxn"),
    ],
)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_lost_response_commits_no_aborted_record_and_loses_no_committed_one(
    version: int, api: str, fault: str
) -> None:
    with FakeBroker(topics={"topic": 1, "source": 1}, features={"transaction.version": version}) as fake:
        committed: list[bytes] = []
        with (
            Producer(
                fake.bootstrap,
                transactional_id="one",
                linger_ms=0,
                batch_bytes=100,
                request_timeout_ms=500,
                retry_backoff_ms=10,
                reconnect_backoff_ms=10,
                connection_setup_timeout_ms=500,
            ) as producer,
            Consumer(fake.bootstrap, group="group") as member,
        ):
            laid = fake.control(api, FAULTS[fault], times=1)
            for number in range(4):
                values = [b"%d-%d" % (number, each) for each in range(5)]
                try:
                    producer.begin()
                    for value in values:
                        producer.send("topic", value)
                    producer.send_offsets({TopicPartition("source", 0): number}, member.group_metadata())
                    if number % 2:
                        producer.commit()
                        committed += values
                    else:
                        producer.abort()
                except KohortError:
                    producer.abort()  # reported, and none of it is seen
            assert laid.calls or api == "InitProducerId"  # its response may have come before the fault
            laid.remove()
            assert bool(fake.calls_of("AddPartitionsToTxn")) is (version == 1)
        topic, seen = TopicPartition("topic", 0), []
        with Consumer(fake.bootstrap, auto_offset_reset="earliest", isolation_level="read_committed") as reader:
            reader.assign([topic])
            deadline = time.monotonic() + PATIENCE_S
            while reader.position(topic) < fake.end_offset("topic", 0):
                assert time.monotonic() < deadline
                seen += [record.value for columns in reader.poll(0.1) for record in columns]
        assert seen == committed
        assert len(committed) >= 5
        assert fake.group("group").offsets[TopicPartition("source", 0)].offset == int(committed[-1].partition(b"-")[0])
        assert fake.faults == []


@pytest.mark.proves("B-35")
@pytest.mark.parametrize(
    ("version", "api", "field"),
    [
        (1, "AddPartitionsToTxn", "results_by_topic_v3_and_below"),
        (1, "TxnOffsetCommit", "topics"),
        (2, "TxnOffsetCommit", "topics"),
    ],
)
def test_a_partition_that_a_response_leaves_out_is_not_committed(version: int, api: str, field: str) -> None:
    with FakeBroker(topics={"topic": 1}, features={"transaction.version": version}) as fake:
        fake.control(api, lambda _call: Alter(lambda response: response._replace(**{field: ()})), times=1)
        with Producer(fake.bootstrap, transactional_id="name", linger_ms=0) as producer:
            producer.begin()
            producer.send("topic", b"lost", partition=0)
            with contextlib.suppress(KohortError):  # before the failure, or after it
                producer.send_offsets({TopicPartition("topic", 0): 1}, ConsumerGroupMetadata("group"))
            with pytest.raises(TransactionAborted) as raised:
                producer.commit()
            assert isinstance(raised.value.__cause__, KohortError)
            assert raised.value.__cause__.place["api"] == api
            producer.abort()
            with producer.transaction():
                producer.send("topic", b"again", partition=0)
                producer.send_offsets({TopicPartition("topic", 0): 1}, ConsumerGroupMetadata("group"))
        with Admin(fake.bootstrap) as admin:
            assert {one: to.offset for one, to in admin.committed("group").items()} == {TopicPartition("topic", 0): 1}


def test_a_forked_child_gets_an_error_and_waits_for_nothing() -> None:
    """It waits neither for the lock that the driver held at the fork, nor for a delivery whose outcome it cannot
    get."""
    with FakeBroker(topics={"topic": 1}) as fake, Producer(fake.bootstrap, request_timeout_ms=500) as producer:
        assert producer.send("topic", b"1").result().offset == 0
        laid = fake.control("Produce", lambda _call: Drop())
        delivery = producer.send("topic", b"2")
        calls: list[Callable[[], object]] = [
            delivery.result,
            lambda: producer.send("topic", b"3"),
            producer.flush,
            producer.metrics,
            producer.begin,
            producer.close,
        ]
        raised = producer._driver.lock.run(in_a_child, lambda: signal.alarm(20), *calls)
        assert raised == [ForkError.__name__] * len(calls)
        laid.remove()
        assert delivery.result(PATIENCE_S).offset == 1


@pytest.mark.proves("B-18")
@pytest.mark.parametrize(
    ("host", "port"), [("127.0.0.1", -1), ("::1", -1), ("a\0b", 9), ("", 9), ("a..b", 9), ("é", 9)]
)
def test_an_impossible_address_is_one_that_cannot_be_reached(host: str, port: int) -> None:
    def elsewhere(response: Any) -> Any:
        return response._replace(brokers=tuple(one._replace(host=host, port=port) for one in response.brokers))

    with (
        FakeBroker(topics={"topic": 1}) as fake,
        Producer(fake.bootstrap, reconnect_backoff_ms=10, retry_backoff_ms=10) as producer,
    ):
        laid = fake.control("Metadata", lambda _call: Alter(elsewhere))
        delivery = producer.send("topic", b"1")
        with pytest.raises(OperationTimeout):
            delivery.result(0.5)
        laid.remove()
        assert delivery.result(PATIENCE_S).offset == 0


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_string(), pa.binary(2), pa.null()])
@pytest.mark.parametrize("beside", [{}, {"partition": [0, 0]}, {"timestamp": [1, 2]}, {"key": [None, None]}])
def test_rows_of_nothing_but_nulls_are_records_too(kind: pa.DataType, beside: dict[str, list[int]]) -> None:
    with FakeBroker(topics={"topic": 1}) as fake, Producer(fake.bootstrap) as producer:
        rows = pa.table({"value": pa.nulls(2, kind), **{name: pa.array(column) for name, column in beside.items()}})
        assert len(producer.send_arrow("topic", rows)) == 2
        producer.flush(PATIENCE_S)
        assert values(fake.bootstrap) == [None, None]


@pytest.mark.parametrize("headers", [{"name": b"x" * 2_000}, {"n" * 2_000: None}])
def test_a_record_is_too_large_however_it_comes(headers: dict[str, bytes | None]) -> None:
    """Such a request ends connections of brokers, and those of other partitions' batches with it."""
    few: dict[str, Any] = {"max_request_bytes": 1_000, "batch_bytes": 500}
    with FakeBroker(topics={"topic": 1}) as fake, Producer(fake.bootstrap, **few) as producer:
        with pytest.raises(RecordTooLarge):
            producer.send("topic", None, headers=headers)
        with pytest.raises(RecordTooLarge):
            producer.send_arrow("topic", pa.table({"value": [b"fits", b"x" * 2_000, b"not come to"]}))
        producer.send("topic", b"fits", headers=iter([("name", b"x")]))
        producer.flush(PATIENCE_S)
        assert values(fake.bootstrap) == [b"fits", b"fits"]


@pytest.mark.parametrize("headers", [None, [{"key": "name", "value": b"x"}]])
@pytest.mark.parametrize("partition", [-1, 1])
def test_a_row_for_a_partition_that_there_is_none_of_is_refused_as_a_record_is(
    partition: int, headers: list[dict[str, Any]] | None
) -> None:
    rows = pa.table({"value": [b"1", b"2"], "partition": [0, partition], "headers": [headers, headers]})
    with FakeBroker(topics={"topic": 1}) as fake, Producer(fake.bootstrap) as producer:
        with pytest.raises(UnknownTopic) as raised:
            producer.send_arrow("topic", rows)
        assert raised.value.place["partition"] == partition


@pytest.mark.parametrize("header", [None, {"key": None, "value": b"x"}])
def test_a_header_that_is_none_is_refused_by_its_row(header: dict[str, bytes | None] | None) -> None:
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    rows = pa.table({"value": [b"1", b"2"], "headers": pa.array([[], [header]], kind)})
    with FakeBroker(topics={"topic": 1}) as fake, Producer(fake.bootstrap) as producer:
        with pytest.raises(KohortError, match="a header has no name") as raised:
            producer.send_arrow("topic", rows)
        assert raised.value.place == {"topic": "topic", "row": 1}


def test_what_was_on_its_way_at_a_close_is_given_up() -> None:
    with FakeBroker(topics={"topic": 1}) as fake:
        fake.control("Produce", lambda _call: Drop())
        producer = Producer(fake.bootstrap, linger_ms=0)
        delivery = producer.send("topic", b"1")
        with pytest.raises(OperationTimeout):
            producer.close(0.5)
        assert delivery.done()
        assert producer.buffered_bytes == 0
        with pytest.raises(ProducerClosed):
            delivery.result()


def refused(response: Any) -> Any:
    (topic,) = response.responses
    (one,) = topic.partition_responses
    return response._replace(responses=(topic._replace(partition_responses=(one._replace(error_code=87),)),))


def failing(producer: Producer, fake: FakeBroker) -> None:
    fake.control("Produce", lambda _call: Alter(refused), times=1)
    producer.send("topic", b"2").result(PATIENCE_S)


@pytest.mark.parametrize(
    ("ending", "state"),
    [
        (lambda producer, fake: None, TxnState.OPEN),
        (failing, TxnState.FAILING),
        (lambda producer, fake: producer.abort(0.05), TxnState.ABORTING),
        (lambda producer, fake: producer.commit(0.05), TxnState.COMMITTING),
    ],
)
def test_no_transaction_is_left_behind_at_a_close(
    ending: Callable[[Producer, FakeBroker], None], state: TxnState
) -> None:
    """Readers of what is committed would stand still before it until it times out."""
    topic = TopicPartition("topic", 0)
    with FakeBroker(topics={"topic": 1}) as fake:
        producer = Producer(fake.bootstrap, transactional_id="one", linger_ms=0)
        producer.begin()
        producer.send("topic", b"1").result(PATIENCE_S)
        for api in ("InitProducerId", "EndTxn"):
            fake.control(api, lambda _call: Delay(0.3))
        with contextlib.suppress(KohortError):
            ending(producer, fake)
        assert producer._state is state
        producer.close()
        with Consumer(fake.bootstrap, isolation_level="read_committed") as reader:
            assert reader.end_offsets([topic]) == {topic: fake.end_offset(*topic)}


def test_where_there_are_no_more_threads_records_are_sent_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """From Python 3.12 on none can be started at the interpreter's end, when what is left is being sent."""
    start = threading.Thread.start

    def no_more(self: threading.Thread) -> None:
        if self.name == "kohort-resolver":
            raise RuntimeError("can't create new thread at interpreter shutdown")
        start(self)

    with FakeBroker(topics={"topic": 1}) as fake:
        monkeypatch.setattr(threading.Thread, "start", no_more)
        with Producer(f"localhost:{fake.bootstrap.rpartition(':')[2]}") as producer:
            assert producer.send("topic", b"1").result(PATIENCE_S).offset == 0


@pytest.mark.parametrize("highest", [3, 6])
def test_a_broker_that_does_not_know_zstd_is_sent_none(highest: int) -> None:  # KIP-110
    with (
        FakeBroker(topics={"topic": 1}, versions={"Produce": (3, highest)}) as fake,
        Producer(fake.bootstrap, compression="zstd") as producer,
    ):
        with pytest.raises(UnsupportedVersion, match="zstd"):
            producer.send("topic", b"1").result(PATIENCE_S)
        assert not fake.calls_of("Produce")


def test_a_transaction_that_fails_on_a_broker_before_2_5_is_reported_with_what_failed_it() -> None:
    def refused(response: Any) -> Any:
        (topic,) = response.responses
        (one,) = topic.partition_responses
        return response._replace(
            responses=(topic._replace(partition_responses=(one._replace(error_code=29, base_offset=-1),)),)
        )

    with FakeBroker(topics={"topic": 1}, versions={"InitProducerId": (0, 1)}) as fake:
        fake.control("Produce", lambda _call: Alter(refused), times=1)
        failed = Producer(fake.bootstrap, transactional_id="one")
        failed.begin()
        failed.send("topic", b"v")
        with pytest.raises(UnsupportedVersion, match=r"not allowed to write.*requires broker 2\.5 or newer") as raised:
            failed.commit()
        assert isinstance(raised.value.__cause__, AuthorizationFailed)
        failed.close()
        with Producer(fake.bootstrap, transactional_id="one") as another, another.transaction():
            another.send("topic", b"v")
