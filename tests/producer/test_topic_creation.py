"""Topics that a producer's first record creates, where the broker allows it."""

import asyncio
from collections.abc import Iterator

import pytest

from kohort import AsyncProducer, Producer
from kohort.network import metadata_updater
from kohort.network.errors import AuthorizationFailed, UnknownTopic
from kohort.testing import FakeBroker, RealBroker
from kohort.testing.fake_broker import CoordinatorSettings
from tests.producer.test_producer_machine import ready
from tests.support.broker_selection import wanted_version

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


@pytest.mark.broker
def test_a_real_broker_creates_a_topic_at_the_first_record() -> None:
    properties = {"auto.create.topics.enable": True, "num.partitions": 3}
    with RealBroker(version=wanted_version(), properties=properties) as broker, Producer(broker.bootstrap) as producer:
        assert producer.send("fresh", b"x", partition=2).result(LIMIT_S).offset == 0
