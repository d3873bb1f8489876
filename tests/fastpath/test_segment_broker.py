"""The segments that a real broker wrote of librdkafka's batches: every codec, and transactions that were aborted."""

from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from kohort.fastpath import Codec, open_segment
from kohort.testing import RealBroker
from kohort.testing.topics import create_topic
from tests.support.broker_selection import wanted_version

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
HEADERS = [("a", b"1"), ("b", None), ("a", b"")]
NEW = [
    (None if i % 3 == 0 else b"k%d" % i, None if i % 5 == 0 else b"value %d " % i * 9, 1_700_000_000_000 + i)
    for i in range(3_000)
]


def produce(bootstrap: str, topic: str, **settings: Any) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "linger.ms": 50, **settings})
    for i, (key, value, timestamp) in enumerate(NEW):
        producer.produce(topic, value, key, timestamp=timestamp, headers=HEADERS[: i % 4] or None)
    assert producer.flush(120) == 0


def produce_transactions(bootstrap: str, topic: str) -> list[bytes]:
    """Every third transaction is aborted; what was committed."""
    settings = {"bootstrap.servers": bootstrap, "transactional.id": "segments", "linger.ms": 1}
    producer = confluent_kafka.Producer(settings)
    producer.init_transactions(30)
    committed = []
    for number in range(9):
        values = [b"%d-%d " % (number, i) * 40 for i in range(1_000)]
        producer.begin_transaction()
        for value in values:
            producer.produce(topic, value)
        if number % 3 == 1:
            assert producer.flush(120) == 0
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)
            committed += values
    return committed


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[bytes]]:
    """The data folder of a broker that was filled and stopped, and the values that its transactions committed."""
    folder = tmp_path_factory.mktemp("broker")
    with RealBroker(version=wanted_version(), folder=folder) as broker:
        for codec in CODECS:
            create_topic(broker.bootstrap, f"codec-{codec}")
            produce(broker.bootstrap, f"codec-{codec}", **{"compression.type": codec})
        create_topic(broker.bootstrap, "transactions", config={"segment.bytes": str(1 << 20)})
        committed = produce_transactions(broker.bootstrap, "transactions")
    return next(folder.rglob("transactions-0")).parent, committed


@pytest.mark.broker
@pytest.mark.parametrize("codec", CODECS)
def test_batches_of_librdkafka_as_the_broker_stored_them(data: tuple[Path, list[bytes]], codec: str) -> None:
    (path,) = (data[0] / f"codec-{codec}-0").glob("*.log")
    with open_segment(path) as segment:
        # librdkafka leaves a batch as it is that would not get smaller, such as one of few records on a busy machine.
        codecs = {each.codec for each in segment.batches()}
        assert Codec[codec.upper()] in codecs <= {Codec[codec.upper()], Codec.NONE}
        records = [record for columns in segment.read() for record in columns]
        assert [(r.key, r.value, r.timestamp_ms) for r in records] == NEW
        assert [list(r.headers) for r in records] == [HEADERS[: i % 4] for i in range(len(NEW))]
        assert segment.offset_for_time(1_700_000_002_000) == 2_000


@pytest.mark.broker
@pytest.mark.proves("B-16", "B-17")
def test_aborted_transactions_across_segments(data: tuple[Path, list[bytes]]) -> None:
    folder, committed = data
    paths = sorted((folder / "transactions-0").glob("*.log"))
    assert len(paths) > 2
    values: list[bytes | None] = []
    for path in paths:
        with open_segment(path) as segment:
            first = next(iter(segment.batches()))
            assert first.base_offset == segment.base_offset
            for columns in segment.read(isolation="read_committed", max_bytes=100_000):
                values += columns.values
    assert values == committed
