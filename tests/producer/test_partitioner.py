"""Keys go where Java's and librdkafka's producers send them: held against the one's jar and the other's library."""

import asyncio
import os
import random
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kohort import AsyncProducer, Producer, TopicPartition
from kohort.fastpath._rows import BytesRows, grouped, spread
from kohort.network.errors import ConfigError
from kohort.network.metadata import ClusterView
from kohort.producer import PartitionerError, ProducerConfig
from kohort.producer.partitioner import crc32, drawn, murmur2
from kohort.producer.producer_settings import Partitioner
from kohort.testing import FakeBroker, jars
from kohort.testing.jdk import java
from tests.producer.producer_world import TOPIC
from tests.producer.test_producer_machine import ready
from tests.support.broker_selection import SelectedBroker

MakeTopic = Callable[..., str]
LIMIT_S = 60.0
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

    def reported(_error: object, message: Any) -> None:
        chosen[message.key()] = message.partition()

    for key in keys:
        peer.produce(topic, b"", key=key, on_delivery=reported)
        peer.poll(0)
    assert peer.flush(120) == 0
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
    accumulator._available = lambda topic, now: [3, 5]  # type: ignore[method-assign]

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


# --- by name


@pytest.mark.parametrize(
    ("properties", "named"),
    [
        ({}, "murmur2"),
        ({"partitioner": "consistent_random"}, "crc32"),
        ({"partitioner": "murmur2_random"}, "murmur2"),
        ({"partitioner.class": "org.apache.kafka.clients.producer.UniformStickyPartitioner"}, "uniform_sticky"),
        ({"partitioner.ignore.keys": "true"}, "uniform_sticky"),
        ({"partitioner.ignore.keys": "false"}, "murmur2"),
        ({"partitioner.ignore.keys": True, "partitioner": max}, max),
    ],
)
def test_other_clients_names_are_known(properties: dict[str, Any], named: object) -> None:
    assert ProducerConfig.from_kafka({"bootstrap.servers": "b:1", **properties}).partitioner == named


@pytest.mark.parametrize(
    "properties", [{"partitioner": "murmur3"}, {"partitioner": 3}, {"partitioner.ignore.keys": "perhaps"}]
)
def test_no_other_partitioner_is_accepted(properties: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        ProducerConfig.from_kafka({"bootstrap.servers": "b:1", **properties})


def test_uniform_sticky_ignores_keys_in_rows_and_columns() -> None:
    keys = random_keys(50)
    table = pa.table({"key": keys, "value": keys})
    with FakeBroker(topics={"t": 8}) as fake, Producer(fake.bootstrap, partitioner="uniform_sticky") as producer:
        rows = [producer.send("t", b"", key=key) for key in keys]
        producer.flush(LIMIT_S)
        assert len({delivery.result(LIMIT_S).partition for delivery in rows}) == 1
        assert list(producer.send_arrow("t", table).result(LIMIT_S).values()) == [50]


# --- by a function


def by_length(_topic: str, _key: bytes | None, value: bytes | None, partitions: int) -> int | None:
    return len(value) % partitions if value else None


def test_a_function_chooses_for_rows_columns_and_tasks() -> None:
    values = [b"x" * size for size in (1, 2, 3, 9, 11)]
    expected = [len(value) % 4 for value in values]
    table = pa.table({"value": pa.array(values, pa.large_binary())})
    text = pa.table({"key": ["k"] * 5, "value": [value.decode() for value in values]})
    with FakeBroker(topics={"t": 4}) as fake:
        with Producer(fake.bootstrap, partitioner=by_length) as producer:
            sent = [producer.send("t", value) for value in values]
            assert [delivery.result(LIMIT_S).partition for delivery in sent] == expected
            assert producer.send("t", b"x", partition=3).result(LIMIT_S).partition == 3
            for data in (table, text):
                counts = producer.send_arrow("t", data).result(LIMIT_S)
                assert {place.partition: count for place, count in counts.items()} == Counter(expected)

        async def send() -> list[int]:
            async with AsyncProducer(fake.bootstrap, partitioner=by_length) as producer:
                return [(await (await producer.send("t", value))).partition for value in values]

        assert asyncio.run(send()) == expected


def test_none_of_a_function_is_sticky() -> None:
    with FakeBroker(topics={"t": 40}) as fake, Producer(fake.bootstrap, partitioner=lambda *_: None) as producer:
        sent = [producer.send("t", b"x", key=b"%d" % number) for number in range(30)]
        counts = producer.send_arrow("t", pa.table({"key": [b"a", b"b"], "value": [b"x"] * 2})).result(LIMIT_S)
        assert len({delivery.batch.partition for delivery in sent}) == 1
        assert list(counts.values()) == [2]


@pytest.mark.parametrize("returned", [-1, 4, 1 << 40, "1", 1.0, True, object()])
def test_a_function_that_gives_no_partition_is_one_clear_error(returned: Any) -> None:
    with FakeBroker(topics={"t": 4}) as fake, Producer(fake.bootstrap, partitioner=lambda *_: returned) as producer:
        for send in (producer.send, lambda topic, value: producer.send_arrow(topic, pa.table({"value": [value]}))):
            with pytest.raises(PartitionerError, match=r"returned .* and the topic has 4 partitions"):
                send("t", b"x")
        assert producer.send("t", b"x", partition=0).result(LIMIT_S).offset == 0


def test_a_function_that_raises_is_one_clear_error_with_its_cause() -> None:
    empty: dict[str, int] = {}
    with FakeBroker(topics={"t": 4}) as fake, Producer(fake.bootstrap, partitioner=lambda *_: empty["k"]) as producer:
        with pytest.raises(PartitionerError, match="the partitioner raised KeyError: 'k'") as raised:
            producer.send("t", b"x")
        assert isinstance(raised.value.__cause__, KeyError)
        assert raised.value.place == {"topic": "t"}


@pytest.mark.parametrize("known", [{0, 2}, {1, 20}, {29}])
def test_records_go_to_no_partition_above_their_number(known: set[int]) -> None:
    """Metadata may lack a partition, or be newer than the number with which rows were spread."""
    world = ready(partitions=3)
    accumulator, view = world.core.accumulator, world.core.metadata.view
    topic = view.topics[TOPIC]
    partitions = dict.fromkeys(sorted(known), topic.partitions[0])
    world.core.metadata.view = view._replace(topics={TOPIC: topic._replace(partitions=partitions)})
    count = world.core.partitions(TOPIC)
    assert count == len(known)
    for _ in range(50):
        assert 0 <= accumulator.sticky(TOPIC, count, world.now) < count
        batches = accumulator.open.topic(TOPIC)
        assert batches is not None
        batches.stick_to(-1)


# --- adaptive


def chosen(world: Any, times: int = 300) -> Counter[int]:
    accumulator = world.core.accumulator
    found: Counter[int] = Counter()
    accumulator.sticky("t", 3, world.now)
    for _ in range(times):
        accumulator.open.topic("t").stick_to(-1)
        found[accumulator.sticky("t", 3, world.now)] += 1
    return found


@pytest.mark.parametrize("adaptive", [True, False])
def test_partitions_with_long_queues_are_chosen_less_often(adaptive: bool) -> None:
    world = ready(adaptive_partitioning=adaptive)
    for _ in range(9):
        world.send(b"x" * 120, 0)
    found = chosen(world)
    assert (found[0] < 40) == adaptive  # 1 of 21, or a third
    assert min(found[1], found[2]) > 60


def test_a_broker_that_takes_no_batch_for_too_long_is_avoided() -> None:
    world = ready(nodes=3, availability_timeout_ms=500, adaptive_partitioning=False, max_in_flight=1, linger_ms=0)
    world.send(b"x" * 120, 0)
    world.turn()
    world.send(b"y" * 120, 0)
    world.turn()  # the broker of partition 0 does not respond to the first
    assert set(chosen(world)) == {0, 1, 2}
    world.now += 0.6
    assert set(chosen(world)) == {1, 2}
    world.calm()
    assert set(chosen(world)) == {0, 1, 2}
    world.send(b"x" * 120, 0)
    world.now += 0.6
    assert set(chosen(world)) == {0, 1, 2}  # it has not been tried


@pytest.mark.parametrize(
    ("queued", "weights"),
    [
        ({}, {2: 1, 5: 1, 6: 1, 9: 1}),
        ({5: 3}, {2: 4, 5: 1, 6: 4, 9: 4}),
        ({9: 2, 2: 1}, {2: 2, 5: 3, 6: 3, 9: 1}),
        ({2: 1, 5: 1, 6: 1, 9: 1}, {2: 1, 5: 1, 6: 1, 9: 1}),
        ({1: 7, 7: 7, 10: 7, 6: 1}, {2: 2, 5: 2, 6: 1, 9: 2}),  # the others take no batches
    ],
    ids=str,
)
def test_a_partition_is_drawn_the_more_often_the_fewer_batches_it_has(
    queued: dict[int, int], weights: dict[int, int]
) -> None:
    total = sum(weights.values())
    chances = iter([at / total + 1e-9 for at in range(total)])
    assert Counter(drawn((2, 5, 6, 9), queued, chances.__next__) for _ in range(total)) == weights


def test_a_choice_walks_the_topic_once_for_each_metadata(monkeypatch: pytest.MonkeyPatch) -> None:
    world = ready(nodes=3)
    world.send(b"has a batch", 2)
    walked: list[str] = []
    all_of = ClusterView.partitions_of

    def counted(view: ClusterView, topic: str) -> tuple[TopicPartition, ...]:
        walked.append(topic)
        return all_of(view, topic)

    monkeypatch.setattr(ClusterView, "partitions_of", counted)
    assert set(chosen(world)) == {0, 1, 2}
    assert walked == ["t"]
    topic = world.core.metadata.view.topics["t"]
    without_leader = topic.partitions[1]._replace(leader=-1)
    world.core.metadata.view = world.core.metadata.view._replace(
        topics={"t": topic._replace(partitions={**topic.partitions, 1: without_leader})}
    )
    assert set(chosen(world)) == {0, 2}
    assert walked == ["t", "t"]


# --- racks (KIP-1123)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"rack": "b"}, {1}),
        ({"rack": "a"}, {0, 2}),
        ({"rack": "elsewhere"}, {0, 1, 2}),
        ({"rack": None}, {0, 1, 2}),
        ({"rack": "b", "rack_aware_partitioning": False}, {0, 1, 2}),
    ],
    ids=str,
)
def test_records_without_a_key_stay_in_the_rack(settings: dict[str, Any], expected: set[int]) -> None:
    world = ready(nodes=3, racks=["a", "b", "a"], **{"rack_aware_partitioning": True} | settings)
    assert set(chosen(world)) == expected


def test_records_with_a_key_go_to_the_partition_of_the_key() -> None:
    world = ready(nodes=3, racks=["a", "b", "a"], rack="b", rack_aware_partitioning=True)
    keys = [b"%d" % number for number in range(30)]
    assert [world.core.accumulator.chosen("t", 3, key, None, world.now) for key in keys] == [
        murmur2(key, 3) for key in keys
    ]


def test_brokers_without_a_rack_are_not_in_the_rack_of_a_client_without_one() -> None:
    world = ready(nodes=3, racks=["a", None, None], rack_aware_partitioning=True)
    assert set(chosen(world)) == {0, 1, 2}


def test_another_rack_is_used_while_the_brokers_of_the_own_one_take_no_batch() -> None:
    world = ready(
        nodes=3,
        racks=["a", "b", "b"],
        rack="a",
        rack_aware_partitioning=True,
        availability_timeout_ms=500,
        max_in_flight=1,
        linger_ms=0,
    )
    for value in (b"x", b"y"):
        world.send(value * 120, 0)
        world.turn()
    assert set(chosen(world)) == {0}
    world.now += 0.6
    assert set(chosen(world)) == {1, 2}


# --- topics that grow


def test_records_for_a_named_partition_take_the_fast_way() -> None:
    world = ready()
    assert world.core.accumulator.open.append("t", None, b"x", None, 1, None) is None
    world.send(b"x", 1)
    assert world.core.accumulator.open.append("t", None, b"x", None, 1, None) is not None


def test_a_record_for_a_partition_that_is_new_enters_the_open_batches_of_all() -> None:
    world = ready()
    world.send(b"x")
    accumulator = world.core.accumulator
    accumulator.chosen("t", 900, None, 899, world.now)
    batches = accumulator.open.topic("t")
    assert batches is not None
    assert batches.partitions == 900
