"""Four delivery guarantees, each as a loop. They differ in the place of the commit.

The table shows the effect of a crash at any line:

    at_least_once           nothing is lost; at most the current slice is seen twice
    at_most_once            nothing is seen twice; at most the current slice is lost
    almost_once             nothing is lost; at most one record is seen twice; one commit for each record
    processed_exactly_once  nothing is lost, and every effect happens once: the effect and its name are stored together

`tests/coordinator_client/test_delivery_examples.py` crashes each of them at every line.
"""

from collections.abc import Callable, Iterable
from typing import Protocol

from kohort import Consumer, Record, RecordColumns, TopicPartition

Handle = Callable[[Record], None]


class Store(Protocol):
    """The store of effects: `apply` stores the effect of a record and the record's name in one transaction."""

    def has(self, name: tuple[str, int, int]) -> bool: ...
    def apply(self, name: tuple[str, int, int], record: Record) -> None: ...


def at_least_once(consumer: Consumer, slices: Iterable[RecordColumns], handle: Handle) -> None:
    """Handle, then commit."""
    for columns in slices:
        for record in columns:
            handle(record)
        consumer.commit(columns.next_offsets)


def at_most_once(consumer: Consumer, slices: Iterable[RecordColumns], handle: Handle) -> None:
    """Commit, then handle."""
    for columns in slices:
        consumer.commit(columns.next_offsets)
        for record in columns:
            handle(record)


def almost_once(consumer: Consumer, slices: Iterable[RecordColumns], handle: Handle) -> None:
    """Handle and commit record by record."""
    for columns in slices:
        for record in columns:
            handle(record)
            consumer.commit({TopicPartition(record.topic, record.partition): record.offset + 1})


def processed_exactly_once(consumer: Consumer, slices: Iterable[RecordColumns], store: Store) -> None:
    """The store keeps the names of records. A repeated record is skipped, and committed too."""
    for columns in slices:
        for record in columns:
            name = (record.topic, record.partition, record.offset)
            if not store.has(name):
                store.apply(name, record)
        consumer.commit(columns.next_offsets)
