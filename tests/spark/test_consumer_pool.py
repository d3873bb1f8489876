"""The consumers that a Python worker keeps: their users, and what must not come back."""

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kohort import Consumer
from kohort.spark import consumer_pool
from kohort.spark.consumer_pool import MOST_IDLE, lent
from kohort.spark.ranges import OffsetRange
from kohort.spark.reader import read_range
from kohort.testing.topics import create_topic
from tests.spark.sent import varied
from tests.support.broker_selection import SelectedBroker

NOWHERE = {"bootstrap": "127.0.0.1:1"}


@pytest.fixture(autouse=True)
def nothing_idle() -> Iterator[None]:
    """Each test begins and ends with no consumer kept."""
    close_all()
    yield
    close_all()


def close_all() -> None:
    while consumer_pool._idle:
        consumer_pool._idle.pop()[1].close()


def idle() -> list[Consumer]:
    return [consumer for _, consumer in consumer_pool._idle]


def test_who_asks_for_the_same_gets_the_same() -> None:
    with lent(NOWHERE) as first:
        pass
    with lent(dict(NOWHERE)) as second:
        assert idle() == []
    with lent({**NOWHERE, "client_id": "another"}) as third:
        pass
    assert second is first
    assert third is not first
    assert idle() == [first, third]


def test_two_at_once_have_one_each_and_the_oldest_idle_goes() -> None:
    with lent(NOWHERE) as first, lent(NOWHERE) as second:
        assert second is not first
    kept = idle()
    assert kept == [second, first]
    for number in range(MOST_IDLE):
        with lent({**NOWHERE, "client_id": f"client {number}"}):
            pass
    assert len(idle()) == MOST_IDLE
    assert not {first, second} & set(idle())
    for gone in (first, second):
        with pytest.raises(Exception, match="the consumer is closed"):
            gone.poll(0)


def test_what_ended_by_an_error_is_closed() -> None:
    with pytest.raises(ValueError, match="mine"), lent(NOWHERE) as consumer:
        raise ValueError("mine")
    assert idle() == []
    with pytest.raises(Exception, match="the consumer is closed"):
        consumer.poll(0)


def test_a_fork_has_none_of_its_parents() -> None:
    with lent(NOWHERE):
        pass
    child = os.fork()
    if not child:
        with lent(NOWHERE) as consumer:
            consumer.assign(())  # its parent's would say that it does not survive a fork
        os._exit(len(consumer_pool._idle) - 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.broker
def test_ranges_are_read_by_one_consumer_and_that_of_a_reader_that_stops_early_is_gone(
    broker: SelectedBroker, topic: str, send: Callable[..., None]
) -> None:
    send(topic, varied(300))
    settings: dict[str, Any] = {"bootstrap": broker.bootstrap}

    def offsets(partition: int, start: int, stop: int) -> list[int]:
        read = read_range(OffsetRange(topic, partition, start, stop), settings)
        return [offset for columns in read for offset in columns.offsets]

    assert offsets(1, 10, 20) == list(range(10, 20))
    (first,) = idle()
    assert offsets(1, 5, 30) == list(range(5, 30))
    assert offsets(2, 95, 100) == list(range(95, 100))
    assert idle() == [first]
    assert first.assignment == frozenset()
    unfinished = read_range(OffsetRange(topic, 0, 0, 100), {**settings, "max_poll_records": 10})
    assert list(next(unfinished).offsets) == list(range(10))
    del unfinished
    assert idle() == [first]


@pytest.mark.broker
def test_a_topic_that_is_made_anew_between_two_tasks_is_read(
    broker: SelectedBroker, topic: str, send: Callable[..., None], delete_topic: Callable[[str], None]
) -> None:
    settings: dict[str, Any] = {"bootstrap": broker.bootstrap}
    send(topic, varied(30))
    whole = OffsetRange(topic, 0, 0, 10)
    assert sum(map(len, read_range(whole, settings))) == 10
    (kept,) = idle()
    delete_topic(topic)
    create_topic(broker.bootstrap, topic, partitions=3)
    send(topic, varied(12))
    assert sum(map(len, read_range(OffsetRange(topic, 0, 0, 4), settings))) == 4
    assert idle() == [kept]
