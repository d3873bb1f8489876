"""The promises of examples/delivery.py, with a crash at every line and a restart after it, on a real broker."""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from examples.delivery import almost_once, at_least_once, at_most_once, processed_exactly_once
from kohort.common import TopicPartition
from kohort.coordinator_client import Consumer
from kohort.fastpath import Record, RecordColumns
from tests.coordinator_client.consumer_helpers import numbers, produce
from tests.support.broker_selection import SelectedBroker

RECORDS, SLICE = 12, 4
Name = Callable[[str], str]


class Crash(BaseException):
    """The process ends here."""


class Life:
    """One run of the application, which crashes at the `crash_at`-th line that it reaches."""

    def __init__(self, crash_at: int | None) -> None:
        self.left = crash_at

    def line(self) -> None:
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                raise Crash


class Effects:
    """The effects visible outside; a store that knows names."""

    def __init__(self) -> None:
        self.seen: Counter[bytes] = Counter()
        self.names: set[tuple[str, int, int]] = set()
        self.life = Life(None)

    def handle(self, record: Record) -> None:
        self.life.line()
        self.seen[record.value or b""] += 1
        self.life.line()

    def has(self, name: tuple[str, int, int]) -> bool:
        self.life.line()
        return name in self.names

    def apply(self, name: tuple[str, int, int], record: Record) -> None:
        self.life.line()
        self.names.add(name)
        self.seen[record.value or b""] += 1
        self.life.line()


class CrashingConsumer:
    """A consumer whose commits are lines to crash at, too."""

    def __init__(self, consumer: Consumer, life: Life) -> None:
        self.consumer, self.life = consumer, life

    def commit(self, offsets: dict[TopicPartition, int]) -> None:
        self.life.line()
        self.consumer.commit(offsets)
        self.life.line()


def run_once(bootstrap: str, group: str, tp: TopicPartition, recipe: Any, effects: Effects, life: Life) -> bool:
    """One life; True if it came to the end of the topic without a crash."""
    effects.life = life
    with Consumer(bootstrap, group=group, auto_offset_reset="earliest", max_poll_records=SLICE) as consumer:
        consumer.assign([tp])

        def slices() -> Iterator[RecordColumns]:
            while consumer.position(tp) < RECORDS:
                yield from consumer.poll(1.0)

        try:
            recipe(CrashingConsumer(consumer, life), slices(), effects if wants_store(recipe) else effects.handle)
        except Crash:
            return False
    return True


def wants_store(recipe: Any) -> bool:
    return recipe is processed_exactly_once


@pytest.mark.broker
@pytest.mark.proves("S-05", "S-06", "S-07", "S-09", "S-10")
@pytest.mark.parametrize(
    ("recipe", "most_lost", "most_again"),
    [(at_least_once, 0, SLICE), (at_most_once, SLICE, 0), (almost_once, 0, 1), (processed_exactly_once, 0, 0)],
)
def test_a_crash_at_any_line_loses_and_repeats_no_more_than_promised(
    recipe: Any, most_lost: int, most_again: int, broker: SelectedBroker, make_topic: Callable[..., str], unique: Name
) -> None:
    topic = make_topic(1)
    tp = TopicPartition(topic, 0)
    produce(broker.bootstrap, topic, numbers(0, RECORDS))
    worst_lost = worst_again = 0
    crash_at = 0
    while True:
        group, effects = unique("group"), Effects()
        finished = run_once(broker.bootstrap, group, tp, recipe, effects, Life(crash_at))
        if not finished:
            assert run_once(broker.bootstrap, group, tp, recipe, effects, Life(None))
        lost = sum(1 for value in numbers(0, RECORDS) if not effects.seen[value])
        again = sum(count - 1 for count in effects.seen.values() if count > 1)
        assert lost <= most_lost, f"crash at line {crash_at}"
        assert again <= most_again, f"crash at line {crash_at}"
        worst_lost, worst_again = max(worst_lost, lost), max(worst_again, again)
        with Consumer(broker.bootstrap, group=group) as consumer:
            stored = consumer.committed([tp])[tp]
        assert stored is not None
        assert stored.offset == RECORDS  # offset + 1 of the last record (S-10), skipped or not
        if finished:
            break
        crash_at += 1
    assert crash_at > RECORDS  # it did crash at every line
    assert (worst_lost, worst_again) == (most_lost, most_again)  # and the promise is not better than written
