"""The results of a poll: decoding, corrupt batches, leftovers and the barrier. Slices are parked by the test, and
there is no broker at all."""

import threading
import time
import uuid
from collections.abc import Iterator
from types import MappingProxyType
from typing import Any
from unittest.mock import Mock

import pytest

from kohort.common import KohortError, TopicPartition
from kohort.coordinator_client import Consumer, IllegalState, WakeupError
from kohort.coordinator_client.fetch import fetch_collector
from kohort.coordinator_client.fetch._collect import usual_poll
from kohort.coordinator_client.fetch.completed_fetch import CompletedFetch
from kohort.fastpath import CorruptRecord, DecompressionLimit, RecordColumns, decode, encode
from kohort.fastpath._fetch import slice_end
from kohort.network.metadata import BrokerNode, ClusterView, PartitionView, TopicView
from tests.coordinator_client.consumer_helpers import PATIENCE_S

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


def batch(first: int, count: int = 3, codec: str = "none", value: bytes = b"v") -> bytes:
    return encode(((None, value) for _ in range(count)), base_offset=first, timestamp_ms=1, codec=codec)


def broken(data: bytes) -> bytes:
    """The same batch with a bit of its last record flipped, so that its checksum does not fit."""
    return data[:-1] + bytes([data[-1] ^ 1])


@pytest.fixture
def consumer() -> Iterator[Consumer]:
    with Consumer("127.0.0.1:1", bootstrap_timeout_ms=600_000, max_decompressed_bytes=10_000) as one:
        one.assign({P0: 100, P1: 100})
        yield one


def park(
    consumer: Consumer, partition: TopicPartition, data: bytes, start: int = 100, *, high_watermark: int = -1
) -> None:
    used = consumer._session
    with used.driver.lock:
        end = slice_end(memoryview(data)).next_offset
        serial = used.core.positions.state(partition).serial
        end = start if end is None else end
        slice_ = CompletedFetch(partition, memoryview(data), start, end, serial, 0, (), high_watermark=high_watermark)
        used.core.fetcher.parked.put(slice_)


def test_a_poll_returns_one_slice_of_each_partition_and_moves_the_positions(consumer: Consumer) -> None:
    park(consumer, P0, batch(100))
    park(consumer, P1, batch(100, 2))
    park(consumer, P0, batch(103), 103)
    assert [(columns.partition, len(columns)) for columns in consumer.poll(0)] == [(0, 3), (1, 2)]
    assert (consumer.position(P0), consumer.position(P1)) == (103, 102)
    assert [(columns.partition, columns[0].offset) for columns in consumer.poll(0)] == [(0, 103)]
    assert consumer.poll(0) == []


def test_a_usual_poll_is_one_step_and_any_other_goes_on_in_the_loop(
    consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = consumer._session
    next_action = Mock(side_effect=session.next_action)
    monkeypatch.setattr(session, "next_action", next_action)
    park(consumer, P0, batch(100))
    assert len(consumer.poll(0)) == 1
    assert next_action.call_count == 0
    park(consumer, P0, broken(batch(103)), 103)
    with pytest.raises(CorruptRecord):
        consumer.poll(0)
    assert next_action.call_count == 1


@pytest.mark.parametrize("news", ["an error", "a wake-up", "a close", "a defect"])
def test_what_happens_while_a_usual_poll_waits_ends_the_wait(
    consumer: Consumer, monkeypatch: pytest.MonkeyPatch, news: str
) -> None:
    session = consumer._session

    def happen() -> None:
        if news == "an error":
            session.driver.execute(lambda core: core.put_error(IllegalState("news")))
        elif news == "a wake-up":
            consumer.wakeup()
        elif news == "a defect":
            monkeypatch.setattr(session.driver, "turn", Mock(side_effect=ZeroDivisionError("a defect")))
            session.driver.wakeup()
        else:
            session.closed = True
            session.driver.bell.ring()

    limit = session.driver.now() + 60.0
    threading.Timer(0.1, happen).start()
    assert usual_poll(session, limit, 1) is None
    assert session.driver.now() < limit  # the news ended the wait
    if news == "a close":
        session.closed = False
        return
    errors = {"an error": IllegalState, "a wake-up": WakeupError, "a defect": KohortError}
    with pytest.raises(errors[news]):
        consumer.poll(0)


def test_a_call_sees_the_change_of_a_call_that_was_interrupted(
    consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(consumer._session.driver, "wakeup_for_added", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            consumer.pause([P0])
    assert consumer.paused().keys() == {P0}


def test_the_end_of_a_driver_counts_as_a_turn(consumer: Consumer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a usual poll, which looks at the rest after turns only, would wait on."""
    driver = consumer._session.driver
    monkeypatch.setattr(driver, "turn", Mock(side_effect=ZeroDivisionError("a defect")))
    turns = driver.turns
    driver.wakeup()
    assert driver.ended.wait(PATIENCE_S)
    assert driver.turns > turns


@pytest.mark.proves("CR-18")
@pytest.mark.parametrize("offset", [-1, -2, 2**63])
def test_what_no_log_has_is_no_place_to_begin(consumer: Consumer, offset: int) -> None:
    with pytest.raises(ValueError, match=str(offset)):
        consumer.assign({P0: offset})
    with pytest.raises(ValueError, match=str(offset)):
        consumer.seek(P0, offset)
    assert consumer.position(P0) == 100


@pytest.mark.proves("B-11")
@pytest.mark.parametrize("strange", [(None, 0), (7, 0), ("t", "0"), ("t", None), ("t", 1.5), ("t", -1), ("t", 2**31)])
@pytest.mark.parametrize(
    "call",
    [
        lambda consumer, one: consumer.commit({one: 1, P0: 1}),
        lambda consumer, one: consumer.assign([one, P0]),
        lambda consumer, one: consumer.assign([P0], until={one: 1}),
        lambda consumer, one: consumer.seek(one, 1),
        lambda consumer, one: consumer.hold([one]),
        lambda consumer, one: consumer.end_offsets([one, P0]),
        lambda consumer, one: consumer.offsets_for_times({one: 1}),
        lambda consumer, one: consumer.committed([one, P0]),
    ],
)
def test_what_is_no_partition_is_refused_before_the_driver_meets_it(call: Any, strange: Any) -> None:
    with Consumer("127.0.0.1:1", group="group", bootstrap_timeout_ms=600_000, default_api_timeout_ms=1) as consumer:
        consumer.assign([P0])
        with pytest.raises((TypeError, ValueError), match=r"partition|topic"):
            call(consumer, strange)
        with pytest.raises(TypeError, match="str"):
            consumer.partitions_for(strange[0] if strange[0] != "t" else 5)  # type: ignore[arg-type]
        assert consumer.poll(0) == []


@pytest.mark.proves("B-38")
def test_a_leader_that_changes_while_a_slice_is_decoded_is_looked_at_once_the_slice_is_settled(
    consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise nothing fetches the partition before the next turn, which may be minutes away."""
    used = consumer._session
    used.driver.chore = None  # no turn settles the slice
    elected = PartitionView(1, 5, (1,), ())
    view = ClusterView(
        brokers={1: BrokerNode(1, "127.0.0.1", 1, None)},
        topics=MappingProxyType({"t": TopicView("t", uuid.UUID(int=1), False, {0: elected, 1: elected})}),
    )

    def decode_meanwhile(*args: Any, **options: Any) -> RecordColumns:
        used.core.metadata.view = view
        return decode(*args, **options)

    monkeypatch.setattr(fetch_collector, "decode", decode_meanwhile)
    park(consumer, P0, batch(100))
    assert [len(columns) for columns in consumer.poll(0)] == [3]
    woken: list[None] = []
    monkeypatch.setattr(used.driver, "wakeup", lambda: woken.append(None))
    used.collector.settle()
    assert len(woken) == 1


def test_records_before_the_position_are_not_shown(consumer: Consumer) -> None:
    consumer.seek(P0, 101)
    park(consumer, P0, batch(100), 101)
    ((columns,),) = [consumer.poll(0)]
    assert [record.offset for record in columns] == [101, 102]


@pytest.mark.proves("B-09", "B-14", "B-44", "E-07")
def test_a_corrupt_batch_is_an_error_with_its_place_and_the_position_stays(consumer: Consumer) -> None:
    for _ in range(2):  # fetched again, it is as bad as before: each poll says so, nothing is skipped
        park(consumer, P0, broken(batch(100)) + batch(103))
        with pytest.raises(CorruptRecord) as caught:
            consumer.poll(0)
        assert {"topic": "t", "partition": 0, "offset": 100}.items() <= caught.value.place.items()
        assert consumer.position(P0) == 100
    consumer.seek(P0, 103)
    park(consumer, P0, batch(103), 103)
    assert [len(columns) for columns in consumer.poll(0)] == [3]


@pytest.mark.proves("B-09")
def test_a_corrupt_batch_is_skipped_with_a_report_where_that_is_wanted(caplog: pytest.LogCaptureFixture) -> None:
    with Consumer("127.0.0.1:1", bootstrap_timeout_ms=600_000, on_corrupt="skip_batch") as consumer:
        consumer.assign({P0: 100})
        park(consumer, P0, batch(100) + broken(batch(103)) + batch(106))
        (columns,) = consumer.poll(0)
        assert [record.offset for record in columns] == [100, 101, 102, 106, 107, 108]
        assert [error.place["offset"] for error in columns.corrupt] == [103]
        assert consumer.position(P0) == 109
        park(consumer, P0, broken(batch(109)), 109, high_watermark=112)
        (alone,) = consumer.poll(0)
        assert (len(alone), len(alone.corrupt)) == (0, 1)
        assert consumer.position(P0) == 112
        assert consumer.metrics()["corrupt_batches_total"] == 2
        reported = [notice.text for notice in consumer.notices() if notice.kind == "batch_skipped"]
        assert ["continues at offset 106" in reported[0], "continues at offset 112" in reported[1]] == [True, True]
    warnings = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert sum(text.startswith("batch skipped") for text in warnings) == 2


@pytest.mark.proves("B-09")
def test_what_comes_before_a_corrupt_batch_is_returned_first(consumer: Consumer) -> None:
    park(consumer, P0, batch(100) + batch(103) + broken(batch(106)))
    ((columns,),) = [consumer.poll(0)]
    assert [record.offset for record in columns] == [100, 101, 102, 103, 104, 105]
    assert consumer.position(P0) == 106
    park(consumer, P0, broken(batch(106)), 106)
    with pytest.raises(CorruptRecord):
        consumer.poll(0)


@pytest.mark.proves("B-09")
def test_other_partitions_go_on_and_the_error_comes_with_the_next_poll(consumer: Consumer) -> None:
    park(consumer, P0, broken(batch(100)))
    park(consumer, P1, batch(100))
    assert [columns.partition for columns in consumer.poll(0)] == [1]
    with pytest.raises(CorruptRecord):
        consumer.poll(0)


def test_large_slices_are_decoded_side_by_side_and_reported_in_order(
    consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: set[str] = set()
    both = threading.Barrier(2)

    def meeting(buffer: Any, **options: Any) -> RecordColumns:
        threads.add(threading.current_thread().name)
        both.wait(120)  # one after another they would never meet
        return decode(buffer, **options)

    monkeypatch.setattr(fetch_collector, "decode", meeting)
    monkeypatch.setattr(fetch_collector, "SIDE_BY_SIDE_BYTES", 100)
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    park(consumer, P0, batch(100))
    park(consumer, P1, batch(100, 2))
    assert [(columns.partition, len(columns)) for columns in consumer.poll(0)] == [(0, 3), (1, 2)]
    assert len(threads) == 2
    park(consumer, P0, broken(batch(103)), 103)
    park(consumer, P1, batch(102), 102)
    assert [columns.partition for columns in consumer.poll(0)] == [1]
    with pytest.raises(CorruptRecord):
        consumer.poll(0)


@pytest.mark.proves("I12", "B-36")
@pytest.mark.parametrize("problem", [KeyboardInterrupt, MemoryError])
@pytest.mark.parametrize("where", [(fetch_collector, "decode"), (fetch_collector, "bisect_left")])
def test_what_is_in_hand_when_poll_is_interrupted_comes_with_the_next(
    consumer: Consumer, monkeypatch: pytest.MonkeyPatch, problem: type[BaseException], where: Any
) -> None:
    consumer.assign({P0: 100, P1: 100}, until={P1: 102})
    park(consumer, P0, batch(100))
    park(consumer, P0, batch(103), 103)
    park(consumer, P1, batch(100))

    def interrupted(*_args: object, **_options: object) -> None:
        raise problem

    with monkeypatch.context() as patch:
        patch.setattr(where[0], where[1], interrupted)
        with pytest.raises(problem):
            consumer.poll(0)
    assert (consumer.position(P0), consumer.position(P1)) == (100, 100)
    assert [[*columns.offsets] for columns in consumer.poll(0)] == [[100, 101, 102], [100, 101]]
    assert [[*columns.offsets] for columns in consumer.poll(0)] == [[103, 104, 105]]


@pytest.mark.proves("I12", "B-36")
def test_what_reached_no_caller_comes_with_the_next_poll(consumer: Consumer) -> None:
    class Watcher:
        def poll_began(self, now: float) -> None: ...
        def poll_failed(self, error: Exception) -> None: ...
        def look(self) -> None: ...
        def poll_brought(self, slices: list[RecordColumns]) -> None:
            raise KeyboardInterrupt

    consumer._session.observer = Watcher()
    park(consumer, P0, batch(100))
    with pytest.raises(KeyboardInterrupt):
        consumer.poll(0)
    consumer._session.observer = None
    assert consumer.position(P0) == 100
    assert [[*columns.offsets] for columns in consumer.poll(0)] == [[100, 101, 102]]


@pytest.mark.proves("B-13", "I11")
def test_the_rest_of_a_slice_that_passes_the_cap_comes_next_without_another_fetch(consumer: Consumer) -> None:
    value = bytes(1_000)
    park(consumer, P0, b"".join(batch(100 + 8 * n, 8, codec="gzip", value=value) for n in range(3)))
    park(consumer, P0, batch(124), 124)
    seen = [[record.offset for columns in consumer.poll(0) for record in columns] for _ in range(4)]
    assert seen == [[*range(100, 108)], [*range(108, 116)], [*range(116, 124)], [124, 125, 126]]
    assert consumer.position(P0) == 127
    park(consumer, P1, b"".join(batch(100 + 8 * n, 8, codec="gzip", value=value) for n in range(3)))
    assert [len(columns) for columns in consumer.poll(0)] == [8]
    consumer.seek(P1, 100)
    assert consumer.poll(0) == []


@pytest.mark.proves("B-13")
def test_a_batch_that_grows_past_the_limit_is_refused(consumer: Consumer) -> None:
    park(consumer, P0, batch(100, 100, codec="gzip", value=bytes(1000)))
    with pytest.raises(DecompressionLimit):
        consumer.poll(0)


@pytest.mark.proves("B-08", "B-15")
def test_bytes_without_a_whole_batch_are_an_error_and_not_a_spin(consumer: Consumer) -> None:
    park(consumer, P0, batch(100)[:-1])
    with pytest.raises(CorruptRecord, match="no complete record batch"):
        consumer.poll(0)


@pytest.mark.proves("B-16")
def test_control_batches_move_the_position_and_show_nothing(consumer: Consumer) -> None:
    marker = encode(
        [(b"\0\0\0\1", b"\0\0\0\0\0\0")],
        base_offset=100,
        timestamp_ms=1,
        control=True,
        transactional=True,
        producer_id=9,
        producer_epoch=0,
    )
    park(consumer, P0, marker)
    assert consumer.poll(0) == []
    assert consumer.position(P0) == 101


@pytest.mark.proves("K-09")
def test_paused_slices_come_after_resume_none_skipped_none_doubled(consumer: Consumer) -> None:
    park(consumer, P0, batch(100))
    park(consumer, P0, batch(103), 103)
    consumer.pause([P0])
    assert consumer.poll(0) == []
    assert consumer.position(P0) == 100
    consumer.resume([P0])
    offsets = [record.offset for _ in range(2) for columns in consumer.poll(0) for record in columns]
    assert offsets == list(range(100, 106))


@pytest.mark.proves("I12")
def test_a_reader_that_stops_iterating_has_seen_all_that_the_positions_say() -> None:
    with Consumer("127.0.0.1:1", bootstrap_timeout_ms=600_000, max_poll_records=2) as consumer:
        consumer.assign({P0: 100, P1: 100})
        park(consumer, P0, batch(100))
        park(consumer, P1, batch(100))
        assert [len(columns) for columns in consumer.poll(0)] == [2]
        for columns in consumer:
            assert [record.offset for record in columns] == [102]
            break
        assert (consumer.position(P0), consumer.position(P1)) == (103, 100)
        assert [record.offset for columns in consumer.poll(0) for record in columns] == [100, 101]


def test_a_slice_with_more_records_than_a_poll_returns_is_decoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[int] = []

    def counted(*args: Any, **options: Any) -> RecordColumns:
        decoded.append(options["from_offset"])
        return decode(*args, **options)

    monkeypatch.setattr(fetch_collector, "decode", counted)
    with Consumer("127.0.0.1:1", bootstrap_timeout_ms=600_000, max_poll_records=2) as consumer:
        consumer.assign({P0: 100})
        park(consumer, P0, batch(100))
        polls = [[record.offset for columns in consumer.poll(0) for record in columns] for _ in range(2)]
    assert polls == [[100, 101], [102]]
    assert decoded == [100]


@pytest.mark.proves("I11")
def test_a_seek_voids_what_is_parked_and_what_is_left_over() -> None:
    with Consumer("127.0.0.1:1", bootstrap_timeout_ms=600_000, max_poll_records=2) as consumer:
        consumer.assign({P0: 100})
        park(consumer, P0, batch(100))
        assert [len(columns) for columns in consumer.poll(0)] == [2]
        assert consumer.position(P0) == 102
        consumer.seek(P0, 50)
        assert consumer.poll(0) == []
        assert consumer.position(P0) == 50


@pytest.mark.proves("B-33")
def test_what_a_process_has_decoded_while_it_slept_is_not_handed_over(
    consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[frozenset[TopicPartition] | None] = [None, frozenset({P0})]

    def slow(buffer: Any, **options: Any) -> RecordColumns:
        time.sleep(0.002)  # longer than LONGEST_DECODE_S, after which the partition is looked at again
        return decode(buffer, **options)

    park(consumer, P0, batch(100))
    with monkeypatch.context() as patch:
        patch.setattr(fetch_collector, "decode", slow)
        patch.setattr(consumer._session.collector, "readable", lambda _now: looks.pop() if looks else None)
        assert consumer.poll(0) == []
        assert looks == []
    assert [[*columns.offsets] for columns in consumer.poll(0)] == [[100, 101, 102]]


@pytest.mark.proves("K-09")
def test_what_was_given_up_while_it_was_decoded_is_not_handed_over(
    consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory was short, and the partition paused for a moment: the slice is fetched again, and comes then."""
    driver, parked = consumer._session.driver, consumer._session.core.fetcher.parked

    def given_up(buffer: Any, **options: Any) -> RecordColumns:
        assert parked.drop_newest(P0) is not None
        driver.turns += 1  # in which it happens
        return decode(buffer, **options)

    with monkeypatch.context() as patch:
        patch.setattr(fetch_collector, "decode", given_up)
        park(consumer, P0, batch(100))
        assert consumer.poll(0) == []
    assert consumer.position(P0) == 100
    park(consumer, P0, batch(100))
    assert [[*columns.offsets] for columns in consumer.poll(0)] == [[100, 101, 102]]
