"""`assign(..., until=...)`: all that is before the end, nothing from there on, and no fetch behind it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kohort.common import TopicPartition
from kohort.coordinator_client import Consumer
from kohort.coordinator_client.fetch import fetch_collector
from kohort.coordinator_client.fetch.fetcher import SOON_OVER_PARTITIONS
from kohort.fastpath import RecordColumns, decode
from kohort.protocol import tape
from kohort.testing.fake_broker import Call, FakeBroker
from tests.coordinator_client.consumer_helpers import read
from tests.coordinator_client.fetch.test_fetcher import P0, P1, Rig, batch, data, requested
from tests.coordinator_client.fetch.test_partial_decode import produce_in_batches
from tests.support.broker_selection import SelectedBroker

MakeTopic = Callable[..., str]


def offsets(consumer: Consumer, count: int) -> list[int]:
    return [record.offset for record in read(consumer, count)]


def test_no_fetch_is_requested_behind_the_end() -> None:
    rig = Rig()
    rig.fetcher.until = {P0: 105, P1: 100}
    assert requested(rig.owed()[1]) == {P0: 100}
    rig.respond(1, data(0, batch(100)))
    assert requested(rig.owed()[1]) == {P0: 103}
    rig.respond(1, data(0, batch(103)))
    assert 1 not in rig.owed()
    rig.fetcher.forget(P1)
    assert requested(rig.owed()[1]) == {P1: 100}


@pytest.mark.proves("I12")
def test_a_session_in_its_steady_state_ends_at_the_ends_too() -> None:
    """A position behind the end would be committed, and the records between them would be skipped later."""
    parts, end = SOON_OVER_PARTITIONS + 2, 20  # so many have a session
    partitions = [TopicPartition("topic", number) for number in range(parts)]
    behind: list[int] = []

    def watch(call: Call) -> None:
        request: Any = call.request
        requested = (one.fetch_offset for topic in request.topics for one in topic.partitions)
        behind.extend(offset for offset in requested if offset >= end)

    with FakeBroker(topics={"topic": parts}) as fake:
        for number in range(parts):
            for _ in range(2 * end):
                fake.produce("topic", number, [(b"", bytes(50))])
        fake.control("Fetch", watch)
        with Consumer(fake.bootstrap, max_partition_fetch_bytes=800, fetch_max_bytes=800) as consumer:
            consumer.assign(dict.fromkeys(partitions, 0), until=dict.fromkeys(partitions, end))
            assert len(read(consumer, parts * end)) == parts * end
            assert consumer.poll(0.1) == []
            assert {consumer.position(one) for one in partitions} == {end}
    assert behind == []


@pytest.mark.parametrize(
    "settings",
    [{}, {"max_poll_records": 7}, {"max_decompressed_bytes": 2_500}, {"max_partition_fetch_bytes": 1}],
    ids=["whole", "in parts", "by and by", "a batch a fetch"],
)
@pytest.mark.broker
def test_an_end_inside_a_batch_is_kept_and_can_be_moved(
    settings: dict[str, Any], broker: SelectedBroker, make_topic: MakeTopic
) -> None:
    tp = TopicPartition(make_topic(1), 0)
    produce_in_batches(broker.bootstrap, tp.topic, 10, each=10, value=bytes(200))
    with Consumer(broker.bootstrap, auto_offset_reset="earliest", fetch_max_wait_ms=20, **settings) as consumer:
        consumer.assign({tp: 3}, until={tp: 25})
        assert offsets(consumer, 22) == list(range(3, 25))
        assert consumer.position(tp) == 25
        fetches = consumer.metrics().fetch_total
        assert consumer.poll(0.3) == []
        assert consumer.metrics().fetch_total == fetches
        consumer.assign([tp], until={tp: 28})
        assert offsets(consumer, 3) == [25, 26, 27]
        consumer.seek(tp, 26)
        assert offsets(consumer, 2) == [26, 27]
        assert consumer.poll(0.1) == []
        consumer.assign([tp])
        assert offsets(consumer, 72) == list(range(28, 100))


@pytest.mark.broker
def test_a_batch_behind_the_end_may_be_corrupt(
    broker: SelectedBroker, make_topic: MakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    tp = TopicPartition(make_topic(1), 0)
    produce_in_batches(broker.bootstrap, tp.topic, 3, each=10, value=bytes(20))

    def on_a_bad_disk(buffer: Any, **options: Any) -> RecordColumns:
        spoilt = bytearray(buffer)
        spoilt[-1] ^= 1
        return decode(bytes(spoilt), **options)

    monkeypatch.setattr(fetch_collector, "decode", on_a_bad_disk)
    with Consumer(broker.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign({tp: 0}, until={tp: 20})
        assert offsets(consumer, 20) == list(range(20))
        assert consumer.poll(0.2) == []
        assert consumer.position(tp) == 20


def test_an_end_of_what_is_not_read_is_refused() -> None:
    with Consumer("127.0.0.1:1") as consumer, pytest.raises(ValueError, match="not to be read: t-1"):
        consumer.assign([TopicPartition("t", 0)], until={TopicPartition("t", 1): 5})


@pytest.mark.broker
def test_a_bounded_read_takes_no_session_of_a_broker(
    broker: SelectedBroker, make_topic: MakeTopic, tmp_path: Path
) -> None:
    """It has a thousand, which it keeps for minutes; tasks of a Spark job would take them all."""
    tp, path = TopicPartition(make_topic(1), 0), tmp_path / "life.tape"
    produce_in_batches(broker.bootstrap, tp.topic, 10, each=10, value=bytes(200))
    with Consumer(broker.bootstrap, tape=str(path), fetch_max_wait_ms=20, max_partition_fetch_bytes=1) as consumer:
        consumer.assign({tp: 0}, until={tp: 100})
        assert offsets(consumer, 100) == list(range(100))
    with path.open() as lines:
        fetches = [each for each in tape.read(lines) if each.api == "Fetch"]
    requested_with = {tape.value(each).session_epoch for each in fetches if each.direction == "request"}
    assert requested_with == {-1}
    assert {tape.value(each).session_id for each in fetches if each.direction == "response"} == {0}
