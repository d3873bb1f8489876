"""The coordinator's target: assigned by topic id, owned by topic name, and a topic created again is another topic."""

import pytest

from kohort.common.topic_partition import TopicPartition
from kohort.coordinator_client.group.target_assignment import TargetAssignment
from kohort.network.metadata import TopicInfo
from tests.coordinator_client.group.consumer_member_rig import by_id, topic_id
from tests.coordinator_client.group.member_rig import tps

T = tps("t-0..1")


def any_topic(topic: str) -> bool:
    return True


def metadata(**lives: int) -> dict[str, TopicInfo]:
    """Topics as metadata has them, each in this life of it."""
    return {topic: TopicInfo(8, topic_id(topic, life)) for topic, life in lives.items()}


def owning(partitions: frozenset[TopicPartition], **lives: int) -> TargetAssignment:
    """A target whose member came to own these, of these lives of their topics."""
    target = TargetAssignment()
    target.came(partitions, metadata(**lives))
    return target


@pytest.mark.proves("B-39")
def test_the_new_topic_of_a_name_is_not_taken_while_partitions_of_the_old_one_are_owned() -> None:
    target = owning(T, t=0)
    target.post(by_id(T, {"t": 1}))
    assert target.named(metadata(t=1), T, any_topic) == (frozenset(), frozenset())
    assert target.named(metadata(t=1), frozenset(), any_topic) == (T, frozenset())  # all of the old one is let go
    target.came(T, metadata(t=1))
    assert target.by_id(T) == by_id(T, {"t": 1})


@pytest.mark.proves("B-39")
def test_the_old_topic_of_a_name_is_not_kept_once_metadata_has_the_new_one() -> None:
    target = owning(T | tps("k-0"), t=0, k=0)
    target.post(by_id(T | tps("k-0")))
    assert target.named(metadata(t=0, k=0), T | tps("k-0"), any_topic).partitions == T | tps("k-0")
    wanted, unknown = target.named(metadata(t=1, k=0), T | tps("k-0"), any_topic)
    assert (wanted, unknown) == (tps("k-0"), frozenset({topic_id("t")}))


@pytest.mark.proves("B-39", "G-08")
def test_what_is_owned_keeps_its_name_while_metadata_has_no_topic_of_that_name() -> None:
    target = owning(T, t=0)
    target.post(by_id(T | tps("t-2")))
    assert target.named({}, T, any_topic) == (T | tps("t-2"), frozenset())
    assert target.named({}, frozenset(), any_topic) == (frozenset(), frozenset({topic_id("t")}))


def test_both_lives_of_a_topic_in_one_target_are_never_mixed() -> None:
    target = owning(T, t=0)
    target.post((*by_id(tps("t-0")), *by_id(tps("t-1"), {"t": 1})))
    wanted, unknown = target.named(metadata(t=1), T, any_topic)
    assert wanted == frozenset()
    assert unknown == {topic_id("t")}


def test_what_is_not_subscribed_to_is_left_out_and_is_no_unknown_topic() -> None:
    target = TargetAssignment()
    target.post(by_id(T | tps("u-0")))
    assert target.named(metadata(t=0, u=0), frozenset(), "u".__eq__) == (tps("u-0"), frozenset())
