"""Keys go where Java's and librdkafka's producers send them: held against the one's jar and the other's library."""

import os
import random
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kohort import Producer
from kohort.fastpath._rows import BytesRows, grouped, spread
from kohort.producer.partitioner import crc32, murmur2
from kohort.producer.producer_settings import Partitioner
from kohort.testing import jars
from kohort.testing.jdk import java
from tests.producer.test_producer_machine import ready
from tests.support.broker_selection import SelectedBroker

MakeTopic = Callable[..., str]
KEYS = 5_000


def random_keys(count: int, seed: int = 1) -> list[bytes]:
    chance = random.Random(seed)
    return [chance.randbytes(chance.choice((1, 2, 3, 4, 5, 8, 17, 64))) for _ in range(count)]


def test_murmur2_is_javas() -> None:
    chance = random.Random(2)
    cases = [(chance.randrange(1, 500), key) for key in [b"", *random_keys(KEYS)]]
    classpath = os.pathsep.join(map(str, jars.clients(jars.DEFAULT_VERSION)))
    done = subprocess.run(
        [str(java()), "-XX:TieredStopAtLevel=1", "-cp", classpath, str(Path(__file__).with_name("Partitions.java"))],
        input="".join(f"{partitions} {key.hex()}\n" for partitions, key in cases),
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert [murmur2(key, partitions) for partitions, key in cases] == [int(line) for line in done.stdout.split()]


@pytest.mark.broker
@pytest.mark.parametrize(("ours", "theirs"), [("crc32", "consistent_random"), ("murmur2", "murmur2_random")])
def test_both_are_librdkafkas(broker: SelectedBroker, make_topic: MakeTopic, ours: Partitioner, theirs: str) -> None:
    from confluent_kafka import Producer as Librdkafka

    topic = make_topic(7)
    keys = random_keys(KEYS, seed=3)
    chosen: dict[bytes, int] = {}
    peer = Librdkafka({"bootstrap.servers": broker.bootstrap, "partitioner": theirs})

    def told(_error: object, message: Any) -> None:
        chosen[message.key()] = message.partition()

    for key in keys:
        peer.produce(topic, b"", key=key, on_delivery=told)
        peer.poll(0)
    assert peer.flush(30) == 0
    of = {"crc32": crc32, "murmur2": murmur2}[ours]
    assert {key: of(key, 7) for key in keys} == chosen
    with Producer(broker.bootstrap, partitioner=ours) as producer:
        sent = [producer.send(topic, b"", key=key) for key in keys[:500]]
        assert [delivery.result(120).partition for delivery in sent] == [chosen[key] for key in keys[:500]]


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary()])
@pytest.mark.parametrize("hashing", ["murmur2", "crc32"])
def test_columns_are_spread_as_keys_are(kind: pa.DataType, hashing: str) -> None:
    keys = [None, b"", *random_keys(500), None]
    array = pa.array(keys, kind).slice(0)
    validity, offsets, data = array.buffers()
    rows = BytesRows(offsets, data, validity, wide=kind == pa.large_binary(), first=0, count=len(keys))
    of = {"crc32": crc32, "murmur2": murmur2}[hashing]
    sticky = {None, b""} if hashing == "crc32" else {None}
    expected = [5 if key in sticky else of(key or b"", 11) for key in keys]
    assert list(spread(rows, 11, hashing, 5, 0, len(keys))) == expected
    assert list(spread(rows, 11, hashing, 5, 100, 200)) == expected[100:200]


def test_rows_are_grouped_by_partition_in_their_order() -> None:
    over = memoryview(pa.array([2, 0, 2, 1, 0, 2], pa.int32()).buffers()[1]).cast("B")[:24].cast("i")
    rows, bounds = grouped(over, 4, 100)
    assert (list(rows), bounds) == ([101, 104, 103, 100, 102, 105], (0, 2, 3, 6, 6))
    with pytest.raises(ValueError, match="row 0 is for partition 2, of 2"):
        grouped(over, 2)


def test_without_a_key_one_partition_is_kept_until_its_batch_is_closed() -> None:
    world = ready(partitions=10, batch_bytes=100_000)
    accumulator = world.core.accumulator
    accumulator._led = lambda topic: [3, 5]  # type: ignore[method-assign]

    def sent() -> int:
        batch = world.send(b"x")
        assert batch is not None
        return batch.partition.partition

    first = sent()
    assert {sent() for _ in range(20)} == {first}
    seen = set()
    for _ in range(50):
        accumulator.close_batches()
        seen.add(sent())
    assert seen == {3, 5}


def test_a_record_without_a_key_that_finds_its_batch_full_goes_elsewhere() -> None:
    """Else it would be alone in a batch while others fill the next one."""
    world = ready(partitions=3, batch_bytes=1_000)
    for _ in range(200):
        world.send(b"x" * 100)
    lanes = world.core.accumulator.lanes.values()
    assert len(lanes) == 3
    assert [batch.count for lane in lanes for batch in lane.queue if batch.closed].count(1) == 0


def test_lying_columns_are_refused() -> None:
    offsets = memoryview(b"".join(n.to_bytes(4, "little") for n in (0, 3, 2, 9)))
    with pytest.raises(ValueError, match="shrink or leave"):
        BytesRows(offsets, b"x" * 9, count=3)
    with pytest.raises(ValueError, match="shrink or leave"):
        BytesRows(offsets[:8], b"xx", count=1)
    with pytest.raises(ValueError, match="fewer offsets"):
        BytesRows(offsets, b"x" * 9, count=4)
    with pytest.raises(ValueError, match="bitmap"):
        BytesRows(offsets[:8], b"xxx", b"", count=1)
