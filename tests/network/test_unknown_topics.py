"""The time for which an unknown topic is requested; a response that leaves a topic out is no statement about it."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from kohort import Consumer, TopicPartition
from kohort.coordinator_client.offsets import offset_lookups
from kohort.network.errors import OperationTimeout, UnknownTopic
from kohort.protocol.apis.metadata import MetadataRequest
from kohort.testing import FakeBroker
from kohort.testing.fake_broker import Call, Drop, Hold

PLACE = TopicPartition("topic", 0)
GRACE_S = 0.4
WITHOUT_END_MS = 600_000


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offset_lookups, "UNKNOWN_TOPIC_GRACE_S", GRACE_S)


@pytest.mark.parametrize("fresh", [False, True])
def test_a_topic_that_brokers_keep_calling_unknown_is_given_up_long_before_the_timeout(fresh: bool) -> None:
    with FakeBroker() as fake, Consumer(fake.bootstrap, default_api_timeout_ms=WITHOUT_END_MS) as consumer:
        with pytest.raises(UnknownTopic, match="misspelt"):
            consumer.partitions_for("misspelt", fresh=fresh)
        assert len(fake.calls_of("Metadata")) > 2, "a topic made a moment ago may not be known everywhere"


@pytest.mark.proves("B-27")
def test_it_takes_one_more_response_to_give_a_topic_up() -> None:
    """The one that knew of none may be a broker that has just started, and the others silent meanwhile."""
    silence = Hold()
    responded: list[Call] = []

    def responds_once(call: Call) -> Hold | None:
        assert isinstance(call.request, MetadataRequest)
        if "topic" not in {one.name for one in call.request.topics or ()}:
            return None
        responded.append(call)
        return silence if len(responded) > 1 else None

    with (
        FakeBroker() as fake,
        Consumer(fake.bootstrap, default_api_timeout_ms=WITHOUT_END_MS) as consumer,
        ThreadPoolExecutor(1) as threads,
    ):
        fake.control("Metadata", responds_once)
        found = threads.submit(consumer.partitions_for, "topic", fresh=True)
        assert silence.reached.wait(120)
        with pytest.raises(TimeoutError):
            found.result(2 * GRACE_S)
        fake.create_topic("topic")
        silence.release()
        assert found.result(120) == (PLACE,)


@pytest.mark.proves("B-27")
def test_what_was_known_before_is_no_answer_to_who_asks_afresh() -> None:
    with FakeBroker(topics={"topic": 1}) as fake, Consumer(fake.bootstrap) as consumer:
        consumer.assign({PLACE: 0})
        assert consumer.partitions_for("topic", fresh=True) == (PLACE,)
        fake.control("Metadata", lambda _call: Drop())
        with pytest.raises(OperationTimeout, match="no response to Metadata of the topic in time"):
            consumer.partitions_for("topic", timeout_s=0.5, fresh=True)
        assert consumer.partitions_for("topic") == (PLACE,)
