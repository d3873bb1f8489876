"""The records that a consumer reads, its start positions, and its reports of a changed log: on a real broker."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from kohort.common import KohortError, TopicPartition
from kohort.coordinator_client import (
    Consumer,
    ForkError,
    FrameTooLarge,
    IllegalState,
    OffsetOutOfRange,
    OffsetReset,
    TopicRecreated,
)
from kohort.testing.topics import create_topic
from tests.coordinator_client.consumer_helpers import in_a_child, numbers, poll_until, produce, read
from tests.support.broker_selection import SelectedBroker

Name = Callable[[str], str]
MakeTopic = Callable[..., str]


def reader(broker: SelectedBroker, topic: str, **settings: Any) -> Consumer:
    consumer = Consumer(broker.bootstrap, **{"auto_offset_reset": "earliest", **settings})
    consumer.assign([TopicPartition(topic, 0)])
    return consumer


def admin(broker: SelectedBroker) -> Any:
    from confluent_kafka.admin import AdminClient

    return AdminClient({"bootstrap.servers": broker.bootstrap})


@pytest.mark.broker
@pytest.mark.proves("S-03")
def test_seeking_and_looking_up(broker: SelectedBroker, make_topic: MakeTopic) -> None:
    topic = make_topic(1)
    tp = TopicPartition(topic, 0)
    produce(broker.bootstrap, topic, numbers(0, 50))
    before_ms = time.time_ns() // 1_000_000
    time.sleep(0.02)
    produce(broker.bootstrap, topic, numbers(50, 50))
    with reader(broker, topic) as consumer:
        assert consumer.position(tp) == 0
        assert [record.value for record in read(consumer, 100)] == numbers(0, 100)
        assert consumer.position(tp) == 100
        consumer.seek(tp, 97)
        assert consumer.position(tp) == 97
        assert [record.value for record in read(consumer, 3)] == numbers(97, 3)
        consumer.seek_to_beginning()
        assert [record.offset for record in read(consumer, 100)] == list(range(100))
        consumer.seek_to_end([tp])
        assert consumer.position(tp) == 100
        assert consumer.poll(0.1) == []
        assert consumer.beginning_offsets([tp]) == {tp: 0}
        assert consumer.end_offsets([tp]) == {tp: 100}
        found = consumer.offsets_for_times({tp: before_ms + 1})[tp]
        assert found is not None
        assert found.offset == 50
        assert consumer.offsets_for_times({tp: before_ms + 10_000_000}) == {tp: None}
        assert consumer.partitions_for(topic) == (tp,)
        with pytest.raises(IllegalState):
            consumer.seek(TopicPartition(topic, 7), 0)
        with pytest.raises(ValueError, match="negative"):
            consumer.seek(tp, -1)


@pytest.mark.broker
def test_max_poll_records_hands_out_a_slice_in_parts_and_seeks_void_the_rest(
    broker: SelectedBroker, make_topic: MakeTopic
) -> None:
    topic = make_topic(1)
    tp = TopicPartition(topic, 0)
    produce(broker.bootstrap, topic, numbers(0, 25))
    with reader(broker, topic, max_poll_records=10) as consumer:
        poll_until(consumer, lambda: consumer.position(tp) == 10)
        consumer.seek(tp, 0)
        sizes: list[int] = []
        while sum(sizes) < 25:
            sizes += [len(columns) for columns in consumer.poll(5)]
            assert consumer.position(tp) == sum(sizes)
        assert max(sizes) == 10


@pytest.mark.broker
@pytest.mark.proves("B-15")
def test_a_record_larger_than_every_limit_still_comes(broker: SelectedBroker, make_topic: MakeTopic) -> None:
    topic = make_topic(1)
    big = os.urandom(300_000)
    produce(broker.bootstrap, topic, [b"before"])
    produce(broker.bootstrap, topic, [big])
    produce(broker.bootstrap, topic, [b"after"])
    with reader(
        broker, topic, max_partition_fetch_bytes=1000, fetch_max_bytes=1000, max_buffered_bytes=1000
    ) as consumer:
        assert [record.value for record in read(consumer, 3)] == [b"before", big, b"after"]


@pytest.mark.broker
@pytest.mark.proves("B-01")
def test_a_response_longer_than_the_limit_is_an_error_in_poll_and_a_higher_limit_reads_it(
    broker: SelectedBroker, make_topic: MakeTopic
) -> None:
    topic = make_topic(1)
    big = os.urandom(300_000)
    produce(broker.bootstrap, topic, [big])
    with reader(broker, topic, max_frame_bytes=100_000, fetch_max_bytes=50_000) as consumer:
        with pytest.raises(FrameTooLarge) as caught:
            poll_until(consumer, lambda: False)
        assert caught.value.place["max_frame_bytes"] == 100_000
        assert consumer.position(TopicPartition(topic, 0)) == 0
    with reader(broker, topic) as consumer:
        assert read(consumer, 1)[0].value == big


@pytest.mark.broker
@pytest.mark.proves("S-02", "B-16")
def test_read_committed_shows_no_aborted_record_and_passes_it(
    broker: SelectedBroker, make_topic: MakeTopic, unique: Name
) -> None:
    from confluent_kafka import Producer

    topic = make_topic(1)
    tp = TopicPartition(topic, 0)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": unique("tx")})
    producer.init_transactions(30)
    for number, commit in enumerate((True, False, True, False)):
        producer.begin_transaction()
        for _ in range(5):
            producer.produce(topic, b"%d" % number, partition=0)
        producer.flush(120)
        (producer.commit_transaction if commit else producer.abort_transaction)(30)
    with reader(broker, topic, isolation_level="read_committed") as consumer:
        assert [record.value for record in read(consumer, 10)] == [b"0"] * 5 + [b"2"] * 5
        end = consumer.end_offsets([tp])[tp]
        assert end == 24  # twenty records, four control records
        poll_until(consumer, lambda: consumer.position(tp) == end)  # past the aborted tail, without a spin
        assert consumer.lag() == {tp: 0}
    with reader(broker, topic) as everything:
        assert len(read(everything, 20)) == 20
    # An open transaction is not shown, and the position stays before it.
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=0)
    producer.flush(120)
    with reader(broker, topic, isolation_level="read_committed") as consumer:
        consumer.seek(tp, end)
        assert consumer.poll(1.0) == []
        assert consumer.position(tp) == end
        producer.commit_transaction(30)
        assert [record.value for record in read(consumer, 1)] == [b"open"]


@pytest.mark.broker
@pytest.mark.proves("B-40")
def test_retention_that_passes_the_position_is_a_reset_with_its_gap_or_an_error(
    broker: SelectedBroker, make_topic: MakeTopic
) -> None:
    from confluent_kafka import TopicPartition as PeerPartition

    topic = make_topic(1)
    tp = TopicPartition(topic, 0)
    produce(broker.bootstrap, topic, numbers(0, 20))
    peer = admin(broker)
    peer.delete_records([PeerPartition(topic, 0, 15)])[PeerPartition(topic, 0)].result(120)
    gaps: list[OffsetReset] = []
    with Consumer(broker.bootstrap, auto_offset_reset="nearest", on_reset=gaps.append) as consumer:
        consumer.assign([tp])
        consumer.seek(tp, 5)
        assert [record.offset for record in read(consumer, 5)] == [15, 16, 17, 18, 19]
        assert [(gap.partition, gap.wanted, gap.start, gap.skipped) for gap in gaps[-1:]] == [(tp, 5, 15, 10)]
    with reader(broker, topic, auto_offset_reset="none") as strict:
        strict.seek(tp, 5)
        with pytest.raises(OffsetOutOfRange) as caught:
            poll_until(strict, lambda: False)
        assert {"topic": topic, "partition": 0, "offset": 5}.items() <= caught.value.place.items()
        assert strict.poll(0.3) == []  # it rests
        strict.seek(tp, 18)
        assert [record.offset for record in read(strict, 2)] == [18, 19]


def _until_recreated(consumer: Consumer) -> tuple[list[Any], TopicRecreated]:
    """Poll through the errors of a missing topic; the records, and the error of the new topic."""
    seen: list[Any] = []
    limit = time.monotonic() + 120
    while time.monotonic() < limit:
        try:
            seen += [record for columns in consumer.poll(0.2) for record in columns]
        except TopicRecreated as error:
            return seen, error
        except KohortError:
            continue
    raise AssertionError(f"no TopicRecreated, but {seen}")


@pytest.mark.broker
@pytest.mark.proves("B-39")
def test_a_topic_deleted_and_created_again_is_an_error_and_not_a_continuation(
    broker: SelectedBroker, unique: Name
) -> None:
    topic = unique("again")
    tp = TopicPartition(topic, 0)
    create_topic(broker.bootstrap, topic)
    produce(broker.bootstrap, topic, numbers(0, 5))
    with reader(broker, topic, metadata_max_age_ms=200) as consumer:
        read(consumer, 5)
        peer = admin(broker)
        peer.delete_topics([topic])[topic].result(120)
        limit = time.monotonic() + 120
        while True:
            try:
                create_topic(broker.bootstrap, topic)
                break
            except Exception:
                assert time.monotonic() < limit
                time.sleep(0.1)
        produce(broker.bootstrap, topic, numbers(100, 10))
        seen, error = _until_recreated(consumer)
        assert error.place["topic"] == topic
        assert error.place["old_id"] != error.place["new_id"]
        assert seen == []  # never offsets of the old topic on the new
        consumer.seek(tp, 0)
        assert [record.value for record in read(consumer, 10)] == numbers(100, 10)


@pytest.mark.broker
@pytest.mark.proves("B-32")
def test_a_clock_that_jumps_does_not_touch_timers(
    broker: SelectedBroker, topic: str, unique: Name, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_s, real_ns = time.time, time.time_ns
    with Consumer(broker.bootstrap, group=unique("group"), max_poll_interval_ms=3000) as consumer:
        consumer.subscribe([topic])
        poll_until(consumer, lambda: len(consumer.assignment) == 3)
        for jump_s in (3600, -3600):
            monkeypatch.setattr(time, "time", lambda jump_s=jump_s: real_s() + jump_s)
            monkeypatch.setattr(time, "time_ns", lambda jump_s=jump_s: real_ns() + jump_s * 10**9)
            for _ in range(5):
                consumer.poll(0.1)
        assert consumer.health().healthy
        assert consumer.group_metadata().generation == 1


@pytest.mark.broker
@pytest.mark.proves("B-35")
def test_a_forked_child_gets_an_error_and_does_no_harm(
    broker: SelectedBroker, make_topic: MakeTopic, unique: Name
) -> None:
    topic = make_topic(1)
    tp = TopicPartition(topic, 0)
    with Consumer(broker.bootstrap, group=unique("group"), auto_offset_reset="earliest") as consumer:
        consumer.subscribe([topic])
        poll_until(consumer, lambda: tp in consumer.assignment)
        reported = in_a_child(
            lambda: consumer.poll(0),
            lambda: consumer.commit({tp: 1}),
            consumer.health,
            consumer.metrics,
            consumer.close,
        )
        assert reported == [ForkError.__name__] * 5
        produce(broker.bootstrap, topic, numbers(0, 3))
        assert len(read(consumer, 3)) == 3
        consumer.commit({tp: 3})
        assert consumer.group_metadata().generation == 1


_UNTIDY = """
import signal, sys
from kohort import Consumer
signal.signal(signal.SIGINT, signal.default_int_handler)  # a process in a shell's background has inherited to ignore it
consumer = Consumer(sys.argv[1], group=sys.argv[3])
consumer.subscribe([sys.argv[2]])
while not consumer.assignment:
    consumer.poll(0.1)
print("in", flush=True)
if sys.argv[4] == "interrupted":
    with consumer:
        for _ in consumer:
            pass
"""


@pytest.mark.broker
@pytest.mark.proves("B-36")
@pytest.mark.parametrize("ending", ["exit", "interrupted"])
def test_a_process_that_ends_leaves_the_group_in_time(
    ending: str, broker: SelectedBroker, topic: str, unique: Name
) -> None:
    group = unique("group")
    command = [sys.executable, "-c", _UNTIDY, broker.bootstrap, topic, group, ending]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "in\n"
        if ending == "interrupted":
            process.send_signal(2)
        process.wait(120)
    # There is no wait for a session timeout: the next member has everything at once.
    began = time.monotonic()
    with Consumer(broker.bootstrap, group=group) as consumer:
        consumer.subscribe([topic])
        poll_until(consumer, lambda: len(consumer.assignment) == 3, patience_s=120)
    assert time.monotonic() - began < 45 - 10  # far below session_timeout_ms, which a dead member would hold out


@pytest.mark.broker
@pytest.mark.proves("S-02")
def test_what_is_written_while_reading_comes_in_order_and_once(broker: SelectedBroker, make_topic: MakeTopic) -> None:
    topic = make_topic(1)
    total = 20_000
    with reader(broker, topic) as consumer:

        def write() -> None:
            for at in range(0, total, 1000):
                produce(broker.bootstrap, topic, numbers(at, 1000))

        writer = threading.Thread(target=write)
        writer.start()
        values = [record.value for record in read(consumer, total, patience_s=120)]
        writer.join()
    assert values == numbers(0, total)
