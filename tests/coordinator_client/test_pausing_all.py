"""Arguments of pause and resume that mean all partitions, and those that mean some."""

from typing import Any

import pytest

from kohort import Consumer, TopicPartition

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
ALL = {T0, T1, U0}


@pytest.mark.parametrize(
    ("given", "meant"),
    [({}, ALL), ({"partitions": [T0]}, {T0}), ({"partitions": []}, set())],
)
def test_nothing_given_means_all(given: dict[str, Any], meant: set[TopicPartition]) -> None:
    with Consumer("127.0.0.1:1") as consumer:
        consumer.assign(ALL)
        consumer.pause(**given)
        assert consumer.paused().keys() == meant
        consumer.resume(**given)
        assert not consumer.paused()
