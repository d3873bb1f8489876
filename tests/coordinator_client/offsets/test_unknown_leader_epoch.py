"""A committed offset whose leader epoch is newer than all that the leader knows: its log is another one.

So it is with a log that was restored from a backup, or a topic created again by a broker without topic ids.
"""

from collections.abc import Callable, Iterator

import pytest

from kohort.common import TopicPartition
from kohort.coordinator_client import Consumer, OffsetAndMetadata, OffsetReset, Truncation
from kohort.producer import Producer
from kohort.testing.fake_broker import FakeBroker
from tests.coordinator_client.consumer_helpers import poll_until, read
from tests.support.broker_selection import SelectedBroker

Name = Callable[[str], str]


@pytest.fixture(params=["fake", pytest.param("real", marks=pytest.mark.broker)])
def place(request: pytest.FixtureRequest, unique: Name) -> Iterator[tuple[str, str, TopicPartition]]:
    """(address, group, partition): ten records, and a commit of 5 under the epoch 7, which there never was."""
    group = unique("group")
    if request.param == "fake":
        with FakeBroker(topics={"topic": 1}) as fake:
            yield fake.bootstrap, group, written(fake.bootstrap, group, "topic")
    else:
        broker: SelectedBroker = request.getfixturevalue("broker")
        topic = request.getfixturevalue("make_topic")(1)
        yield broker.bootstrap, group, written(broker.bootstrap, group, topic)


def written(bootstrap: str, group: str, topic: str) -> TopicPartition:
    tp = TopicPartition(topic, 0)
    with Producer(bootstrap) as producer:
        for number in range(10):
            producer.send(topic, b"%d" % number)
    with Consumer(bootstrap, group=group) as consumer:
        consumer.assign([tp])
        consumer.commit({tp: OffsetAndMetadata(5, 7)})
    return tp


@pytest.mark.proves("B-38", "G-11")
@pytest.mark.parametrize("policy", ["earliest", "nearest", "latest"])
def test_with_a_policy_the_position_is_reset_and_told(place: tuple[str, str, TopicPartition], policy: str) -> None:
    bootstrap, group, tp = place
    gaps: list[OffsetReset] = []
    with Consumer(bootstrap, group=group, auto_offset_reset=policy, on_reset=gaps.append) as consumer:
        consumer.subscribe([tp.topic])
        if policy == "latest":
            poll_until(consumer, lambda: bool(gaps))
        else:
            assert [record.offset for record in read(consumer, 10)] == list(range(10))
        consumer.commit({tp: 3})  # behind the offset that was committed in the other log
    (gap,) = gaps
    assert (gap.wanted, gap.start) == (5, 10 if policy == "latest" else 0)
    assert "epoch" in gap.reason


@pytest.mark.proves("B-38", "G-11")
def test_without_a_policy_it_is_a_truncation_until_a_seek(place: tuple[str, str, TopicPartition]) -> None:
    bootstrap, group, tp = place
    with Consumer(bootstrap, group=group, auto_offset_reset="none") as consumer:
        consumer.subscribe([tp.topic])
        with pytest.raises(Truncation) as caught:
            poll_until(consumer, lambda: False)
        assert (caught.value.place["offset"], caught.value.place["leader_epoch"]) == (5, 7)
        consumer.seek(tp, 8)
        assert [record.offset for record in read(consumer, 2)] == [8, 9]
