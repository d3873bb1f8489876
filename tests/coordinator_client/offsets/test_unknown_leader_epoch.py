"""A committed offset whose leader epoch is newer than all that the leader knows.

Either the leader was deposed and does not know it yet, or its log is another one. So it is with a log that was restored
from a backup, or a topic created again by a broker without topic ids.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kohort.common import TopicPartition
from kohort.coordinator_client import Consumer, OffsetAndMetadata, OffsetReset, Truncation
from kohort.coordinator_client.offsets.offset_lookups import STALE_LEADER_ATTEMPTS
from kohort.coordinator_client.offsets.positions import FetchState
from kohort.network.requests import ResponseReceived
from kohort.producer import Producer
from kohort.protocol.apis.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from kohort.testing.fake_broker import FakeBroker, Hold
from tests.coordinator_client.consumer_helpers import poll_until, read
from tests.coordinator_client.core_rig import Rig, metadata
from tests.support.broker_selection import SelectedBroker

P0 = TopicPartition("t", 0)
Name = Callable[[str], str]
SOON: dict[str, Any] = {"retry_backoff_ms": 10, "retry_backoff_max_ms": 10}


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
def test_with_a_policy_the_position_is_reset_and_reported(place: tuple[str, str, TopicPartition], policy: str) -> None:
    bootstrap, group, tp = place
    gaps: list[OffsetReset] = []
    with Consumer(bootstrap, group=group, auto_offset_reset=policy, on_reset=gaps.append, **SOON) as consumer:
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
    with Consumer(bootstrap, group=group, auto_offset_reset="none", **SOON) as consumer:
        consumer.subscribe([tp.topic])
        with pytest.raises(Truncation) as caught:
            poll_until(consumer, lambda: False)
        assert (caught.value.place["offset"], caught.value.place["leader_epoch"]) == (5, 7)
        consumer.seek(tp, 8)
        assert [record.offset for record in read(consumer, 2)] == [8, 9]


@pytest.mark.proves("B-38", "G-11")
@pytest.mark.parametrize("policy", ["earliest", "none"])
def test_a_leader_that_was_deposed_and_does_not_know_it_causes_no_reset(policy: str) -> None:
    """Metadata has its epoch, too. Both learn of the election before the second request."""
    tp, gaps, held = TopicPartition("topic", 0), list[OffsetReset](), Hold()
    with FakeBroker(topics={"topic": 1}, nodes=2) as fake:
        fake.set_leader("topic", 0, 1)
        fake.produce("topic", 0, [(None, b"%d" % number) for number in range(10)])
        with Consumer(fake.bootstrap, group="group") as earlier:
            earlier.assign({tp: 0})
            earlier.commit({tp: OffsetAndMetadata(10, 2)})
        fake.control("OffsetForLeaderEpoch", lambda call: held if call.number else None, times=1)
        with Consumer(
            fake.bootstrap, group="group", auto_offset_reset=policy, on_reset=gaps.append, **SOON
        ) as consumer:
            consumer.subscribe(["topic"])
            poll_until(consumer, lambda: held.reached.is_set() or bool(gaps))
            fake.set_leader("topic", 0, 2)
            fake.produce("topic", 0, [(None, b"later")])
            held.release()
            assert [record.offset for record in read(consumer, 1)] == [10]
    assert gaps == []


@pytest.mark.proves("B-38", "G-11")
@pytest.mark.parametrize(("epoch", "requests"), [(7, STALE_LEADER_ATTEMPTS + 1), (1, 1)])
def test_only_a_leader_of_an_older_epoch_gets_the_request_again(epoch: int, requests: int) -> None:
    rig, end = Rig(), EpochEndOffset(error_code=0, partition=0, leader_epoch=-1, end_offset=-1)
    response = OffsetForLeaderEpochResponse(topics=(OffsetForLeaderTopicResult(topic="t", partitions=(end,)),))
    rig.core.positions.seek(P0, 5, epoch)
    rig.turn(0.0)
    rig.settle("Metadata", ResponseReceived(metadata({0: 2, 1: 2}), 12), 0.0)
    for second in range(requests):
        rig.turn(10.0 * second)
        assert rig.core.positions.state(P0).phase is FetchState.NEEDS_VALIDATION
        rig.settle("OffsetForLeaderEpoch", ResponseReceived(response, 4), 10.0 * second)
    assert rig.core.positions.state(P0).phase is FetchState.NEEDS_RESET
    assert any(one.api == "Metadata" for _endpoint, one in rig.open) == (requests > 1)
