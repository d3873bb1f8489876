"""Offsets in a transaction that is still open (KIP-447): only a reader that needs them waits for the outcome."""

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest

from kohort import Consumer, Producer, TopicPartition
from kohort.admin import Admin
from kohort.coordinator_client import OperationTimeout
from kohort.protocol.errors import UnsupportedVersion
from kohort.testing.fake_broker import FakeBroker
from tests.coordinator_client.consumer_helpers import numbers, poll_until, produce, read
from tests.coordinator_client.group.test_consumer_group import PROTOCOLS
from tests.support.broker_selection import SelectedBroker

Name = Callable[[str], str]
MakeTopic = Callable[..., str]


@pytest.mark.broker
@pytest.mark.proves("E-06", "G-11")
@pytest.mark.parametrize(("ends", "first", "protocol"), [("commit", 4, PROTOCOLS[-1]), ("abort", 2, "classic")])
def test_the_next_owner_of_a_partition_begins_where_the_open_transaction_ends(
    ends: str, first: int, protocol: str, broker: SelectedBroker, make_topic: MakeTopic, unique: Name
) -> None:
    source, group = make_topic(2), unique("group")
    held, free = TopicPartition(source, 0), TopicPartition(source, 1)
    for one in (held, free):
        produce(broker.bootstrap, source, numbers(0, 5), partition=one.partition)
    settings: dict[str, Any] = {"group": group, "protocol": protocol, "auto_offset_reset": "earliest"}
    with ExitStack() as stack:
        producer = stack.enter_context(Producer(broker.bootstrap, transactional_id=unique("txn")))
        admin = stack.enter_context(Admin(broker.bootstrap))
        with Consumer(broker.bootstrap, **settings) as before:
            before.subscribe([source])
            poll_until(before, lambda: len(before.assignment) == 2)
            before.commit({held: 2, free: 3}, allow_rewind=True)
            producer.begin()
            producer.send_offsets({held: 4}, before.group_metadata())
        heir = stack.enter_context(Consumer(broker.bootstrap, **settings))
        heir.subscribe([source])
        assert {(one.partition, one.offset) for one in read(heir, 2)} == {(1, 3), (1, 4)}  # the other is not held up
        with pytest.raises(OperationTimeout):
            heir.committed([held, free], timeout_s=0.5)
        with pytest.raises(OperationTimeout):
            heir.position(held, timeout_s=0.2)
        stored = heir.committed([free])[free]
        assert stored is not None
        assert stored.offset == 3
        assert {lag.partition: lag.committed for lag in admin.lag(group)} == {held: 2, free: 3}  # as it stands
        getattr(producer, ends)()
        got = read(heir, 5 - first)
        assert [(one.partition, one.offset) for one in got] == [(0, offset) for offset in range(first, 5)]
        stored = heir.committed([held])[held]
        assert stored is not None
        assert stored.offset == first


@pytest.mark.proves("E-06")
def test_a_broker_too_old_to_know_whose_offsets_they_are_is_named() -> None:
    """Stored without an owner, they would be taken also from a member that has lost the partitions."""
    with FakeBroker(topics={"t": 1}, versions={"TxnOffsetCommit": (0, 2)}) as fake:
        produce(fake.bootstrap, "t", numbers(0, 1))
        with (
            Consumer(fake.bootstrap, group="g", auto_offset_reset="earliest") as consumer,
            Producer(fake.bootstrap, transactional_id="x") as producer,
        ):
            consumer.subscribe(["t"])
            assert read(consumer, 1)
            producer.begin()
            with pytest.raises(UnsupportedVersion, match=r"2\.5") as caught:
                producer.send_offsets({TopicPartition("t", 0): 1}, consumer.group_metadata())
            assert caught.value.place["least"] == 3
            with pytest.raises(UnsupportedVersion):
                producer.commit()
            assert consumer.committed([TopicPartition("t", 0)]) == {TopicPartition("t", 0): None}
