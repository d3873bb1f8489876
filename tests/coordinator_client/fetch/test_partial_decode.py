"""Slices of which decode gives only a part: nothing that follows may be skipped, although it was fetched ahead."""

from collections.abc import Callable
from typing import Any

import confluent_kafka
import pytest

from kohort.common import TopicPartition
from kohort.coordinator_client import Consumer
from kohort.coordinator_client.fetch import fetch_collector
from kohort.fastpath import CorruptRecord, RecordColumns, decode
from tests.coordinator_client.consumer_helpers import read
from tests.support.broker_selection import SelectedBroker

MakeTopic = Callable[..., str]


def produce_in_batches(bootstrap: str, topic: str, batches: int, *, each: int, value: bytes) -> None:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": bootstrap, "compression.type": "zstd", "batch.num.messages": each, "linger.ms": 5_000}
    )
    for _ in range(batches):
        for _ in range(each):
            producer.produce(topic, value)
        assert producer.flush(120) == 0  # a flush cuts the batch that is being filled


@pytest.mark.broker
@pytest.mark.proves("B-13")
def test_what_passes_the_cap_in_one_slice_comes_by_and_by(broker: SelectedBroker, make_topic: MakeTopic) -> None:
    tp = TopicPartition(make_topic(1), 0)
    produce_in_batches(broker.bootstrap, tp.topic, 40, each=10, value=bytes(50_000))
    with Consumer(broker.bootstrap, auto_offset_reset="earliest", max_decompressed_bytes=1_200_000) as consumer:
        consumer.assign([tp])
        assert [record.offset for record in read(consumer, 400)] == list(range(400))
        assert consumer.position(tp) == 400


@pytest.mark.broker
@pytest.mark.proves("B-09")
def test_sound_batches_before_a_corrupt_one_are_returned_and_then_its_error(
    broker: SelectedBroker, make_topic: MakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    tp = TopicPartition(make_topic(1), 0)
    produce_in_batches(broker.bootstrap, tp.topic, 10, each=10, value=b"v" * 100)

    def on_a_bad_disk(buffer: Any, **options: Any) -> RecordColumns:
        data, at = bytearray(buffer), 0
        while at + 12 < len(data):
            if int.from_bytes(data[at : at + 8], "big") <= 50 < int.from_bytes(data[at : at + 8], "big") + 10:
                data[at + 30] ^= 1
            at += 12 + int.from_bytes(data[at + 8 : at + 12], "big")
        return decode(bytes(data), **options)

    with Consumer(broker.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([tp])
        monkeypatch.setattr(fetch_collector, "decode", on_a_bad_disk)
        sound = read(consumer, 50)
        assert [record.offset for record in sound] == list(range(50))
        for _ in range(2):
            with pytest.raises(CorruptRecord) as raised:
                read(consumer, 1)
            assert raised.value.place["offset"] == 50
            assert consumer.position(tp) == 50
        consumer.seek(tp, 60)
        assert [record.offset for record in read(consumer, 40)] == list(range(60, 100))
