"""Topics that a producer's first record creates, where the broker allows it, and partitions that are added."""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient, NewPartitions

from kohort import AsyncProducer, Producer
from kohort.network import metadata_updater
from kohort.network.errors import AuthorizationFailed, UnknownTopic
from kohort.producer import producer_base, producer_core
from kohort.producer.producer_core import ProducerCore
from kohort.testing import FakeBroker, RealBroker
from kohort.testing.fake_broker import CoordinatorSettings
from tests.coordinator_client.consumer_helpers import wait_until
from tests.producer.producer_world import TOPIC, World
from tests.producer.test_producer_machine import ready
from tests.support.broker_selection import SelectedBroker, wanted_version

LIMIT_S = 60.0


@pytest.fixture
def creating() -> Iterator[FakeBroker]:
    with FakeBroker(settings=CoordinatorSettings(auto_create_topics_enable=True)) as broker:
        yield broker


def test_the_first_record_creates_its_topic(creating: FakeBroker) -> None:
    with Producer(creating.bootstrap) as producer:
        assert producer.send("rows", b"x").result(LIMIT_S).offset == 0

    async def send() -> int:
        async with AsyncProducer(creating.bootstrap) as producer:
            return (await (await producer.send("tasks", b"x"))).offset

    assert asyncio.run(send()) == 0


@pytest.mark.parametrize(
    ("allowed", "creates", "words"),
    [
        (False, True, r"no such topic \(topic=nowhere\); check its name, or create it$"),
        (True, False, r"no such topic, and the broker creates none at first use \(topic=nowhere\); check its name"),
    ],
)
def test_a_topic_that_is_not_created_is_an_error_in_a_producers_words(
    allowed: bool, creates: bool, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata_updater, "UNKNOWN_TOPIC_GRACE_S", 0.2)
    settings = CoordinatorSettings(auto_create_topics_enable=creates)
    with (
        FakeBroker(settings=settings) as broker,
        Producer(broker.bootstrap, allow_auto_create_topics=allowed) as producer,
        pytest.raises(UnknownTopic, match=words),
    ):
        producer.send("nowhere", b"x")


def test_all_tasks_that_wait_for_a_topic_get_its_error_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata_updater, "UNKNOWN_TOPIC_GRACE_S", 0.2)

    async def send() -> list[object]:
        async with AsyncProducer(broker.bootstrap) as producer:
            together = await asyncio.gather(*(producer.send("nowhere", b"x") for _ in range(3)), return_exceptions=True)
            later = await asyncio.gather(producer.send("nowhere", b"x"), return_exceptions=True)
            return [*together, *later]

    with FakeBroker() as broker:
        first, *others, later = asyncio.run(send())
    assert isinstance(first, UnknownTopic)
    assert others == [first, first]
    assert isinstance(later, UnknownTopic)
    assert later is not first, "a later call requests the topic again"


def test_a_call_gets_the_error_of_its_topic_that_another_call_has_raised() -> None:
    error = UnknownTopic("gone", topic="nowhere")

    def refuse_another(core: ProducerCore) -> None:
        core.put_error(error)
        with pytest.raises(UnknownTopic) as raised:
            core.press("nowhere", core.refusals)
        assert raised.value is error

    with FakeBroker() as broker, Producer(broker.bootstrap) as producer, ThreadPoolExecutor() as thread:
        sent = thread.submit(producer.send, "nowhere", b"x")
        wait_until(lambda: any("nowhere" in str(one.request) for one in broker.calls_of("Metadata")))
        producer._driver.execute(refuse_another)
        assert sent.exception(LIMIT_S) is error


def test_errors_of_100_topics_are_kept() -> None:
    core = ready().core
    for number in range(200):
        core.add_topic(f"t{number}")
        core.put_error(UnknownTopic("gone", topic=f"t{number}"))
        with pytest.raises(UnknownTopic):
            core.press(f"t{number}", core.refusals)
    assert len(core._refused) == 100


def test_the_errors_of_a_topic_name_what_a_producer_needs() -> None:
    core = ready().core
    core.add_topic("x")
    core.put_error(AuthorizationFailed("not allowed to read the topic", topic="x"))
    with pytest.raises(AuthorizationFailed, match="grant WRITE on it, and CREATE if it does not exist"):
        core.add_topic("x")
    core.add_topic("x")
    core.put_error(UnknownTopic("invalid topic name", topic="x"))
    with pytest.raises(UnknownTopic, match="invalid topic name"):
        core.add_topic("x")


def test_a_deleted_topic_that_the_producer_does_not_use_any_more_is_not_created_again(
    creating: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producer_core, "MAX_IDLE_S", 0.5)

    def requested() -> set[str | None]:
        request: Any = creating.calls_of("Metadata")[-1].request
        return {one.name for one in request.topics}

    with Producer(creating.bootstrap, metadata_max_age_ms=50, linger_ms=0) as producer:

        def send_until(reached: Callable[[], bool]) -> None:
            wait_until(lambda: producer.send("kept", b"x").result(LIMIT_S).offset >= 0 and reached())

        for topic in ("gone", "kept"):
            producer.send(topic, b"x").result(LIMIT_S)
        send_until(lambda: requested() == {"kept"})
        creating.delete_topic("gone")
        calls = len(creating.calls_of("Metadata"))
        send_until(lambda: len(creating.calls_of("Metadata")) > calls + 2)
        assert set(creating._cluster.topics) == {"kept"}
        assert producer.send("gone", b"y").result(LIMIT_S).offset == 0
        assert requested() == {"gone", "kept"}


def test_records_of_a_topic_that_leaves_metadata_again_and_again_are_all_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(producer_core, "MAX_IDLE_S", 0.0)
    left, forget = list[str](), ProducerCore._forget

    def counted(core: ProducerCore, topics: list[str]) -> None:
        left.extend(topics)
        forget(core, topics)

    monkeypatch.setattr(ProducerCore, "_forget", counted)
    for seed in range(8):
        world = World(seed, linger_ms=5 * (seed % 2), metadata_max_age_ms=5)
        world.sends = 0.1
        world.run(600)
        world.calm()
        expected: dict[int, list[bytes]] = {0: [], 1: [], 2: []}
        for delivery, value in world.sent:
            expected[delivery.result().partition].append(value)
        assert {place.partition: log.values for place, log in world.logs.items()} == expected, f"seed {seed}"
    assert len(left) > 20


def test_a_record_that_is_sent_alone_brings_its_topic_back_to_metadata() -> None:
    world = ready(linger_ms=0)
    while not world.sent_alone:
        world.send(b"x", 0)
        world.calm()
    world.core.metadata.responded_at = world.now + 2 * producer_core.MAX_IDLE_S
    world.core._on_metadata()
    assert not world.core.metadata.names
    alone = world.sent_alone
    world.send(b"y", 0)
    assert world.sent_alone == alone + 1
    assert world.core.metadata.names == {TOPIC}


@pytest.mark.broker
def test_a_real_broker_creates_a_topic_at_the_first_record() -> None:
    properties = {"auto.create.topics.enable": True, "num.partitions": 3}
    with RealBroker(version=wanted_version(), properties=properties) as broker, Producer(broker.bootstrap) as producer:
        assert producer.send("fresh", b"x", partition=2).result(LIMIT_S).offset == 0


def named(partition: int, *, rows: bool = False, headers: bool = False) -> pa.Table:
    """A row for a partition, which `rows` names in a column."""
    columns: dict[str, Any] = {"value": [b"x"]}
    if rows:
        columns["partition"] = [partition]
    if headers:
        columns["headers"] = [[{"key": "n", "value": b"x"}]]
    return pa.table(columns)


SENDS: dict[str, Callable[[Producer, int], object]] = {
    "a record": lambda producer, partition: producer.send("t", b"x", partition=partition).result(LIMIT_S),
    "rows": lambda producer, partition: producer.send_arrow("t", named(partition), partition=partition).result(LIMIT_S),
    "rows that name it": lambda producer, partition: producer.send_arrow("t", named(partition, rows=True)).result(
        LIMIT_S
    ),
    "rows with headers": lambda producer, partition: producer.send_arrow(
        "t", named(partition, rows=True, headers=True)
    ).result(LIMIT_S),
}


@pytest.mark.parametrize("send", SENDS.values(), ids=SENDS)
def test_a_partition_that_metadata_lacks_is_awaited(send: Callable[[Producer, int], object]) -> None:
    """It may have been added a moment ago, and each broker learns of it at another time."""
    with FakeBroker(topics={"t": 1}) as broker, Producer(broker.bootstrap) as producer:
        send(producer, 0)
        broker.add_partitions("t", 2)
        send(producer, 1)
        with ThreadPoolExecutor() as pool:
            calls = len(broker.calls_of("Metadata"))
            sending = pool.submit(send, producer, 2)
            wait_until(lambda: len(broker.calls_of("Metadata")) > calls + 1)
            broker.add_partitions("t", 3)
            sending.result(LIMIT_S)
        assert [broker.end_offset("t", number) for number in range(3)] == [1, 1, 1]


def test_a_task_awaits_a_partition_that_metadata_lacks() -> None:
    async def send(broker: FakeBroker) -> None:
        async with AsyncProducer(broker.bootstrap) as producer:
            await producer.send("t", b"x")
            calls = len(broker.calls_of("Metadata"))
            sending = asyncio.create_task(producer.send("t", b"x", partition=1))
            while len(broker.calls_of("Metadata")) < calls + 2:
                await asyncio.sleep(0.01)
            broker.add_partitions("t", 2)
            assert (await (await sending)).partition == 1

    with FakeBroker(topics={"t": 1}) as broker:
        asyncio.run(send(broker))


@pytest.mark.parametrize("send", SENDS.values(), ids=SENDS)
def test_a_partition_that_a_topic_does_not_have_is_an_error_in_the_end(
    send: Callable[[Producer, int], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producer_base, "UNKNOWN_TOPIC_GRACE_S", 0.2)
    with FakeBroker(topics={"t": 1}) as broker, Producer(broker.bootstrap) as producer:
        for _ in range(2):
            calls = len(broker.calls_of("Metadata"))
            with pytest.raises(UnknownTopic, match="the topic has 1 partition "):
                send(producer, 1)
            assert len(broker.calls_of("Metadata")) > calls + 1
        send(producer, 0)


def test_a_partition_is_awaited_for_max_block_ms_at_most() -> None:
    async def send(broker: FakeBroker) -> None:
        async with AsyncProducer(broker.bootstrap, max_block_ms=300) as producer:
            with pytest.raises(UnknownTopic, match="the topic has 1 partition "):
                await producer.send("t", b"x", partition=1)

    with FakeBroker(topics={"t": 1}) as broker:
        asyncio.run(send(broker))
        with (
            Producer(broker.bootstrap, max_block_ms=300) as producer,
            pytest.raises(UnknownTopic, match="the topic has 1 partition "),
        ):
            producer.send("t", b"x", partition=1)


@pytest.mark.broker
def test_a_partition_that_was_added_a_moment_ago_takes_records(
    broker: SelectedBroker, make_topic: Callable[..., str]
) -> None:
    topic = make_topic(1)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    with Producer(broker.bootstrap) as producer:
        producer.send(topic, b"x").result(LIMIT_S)
        admin.create_partitions([NewPartitions(topic, 3)])[topic].result(LIMIT_S)
        assert producer.send(topic, b"x", partition=2).result(LIMIT_S).offset == 0
