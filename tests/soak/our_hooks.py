"""The records that our own members write, and the hooks that write them; both faces use them."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import TYPE_CHECKING

from kohort import Assigned, Consumer, Lost, RebalanceHooks, Revoked, TopicPartition
from tests.soak.history import Writer

if TYPE_CHECKING:
    from tests.soak.seats import Pending

COMMIT_S = 5.0


class Notes:
    """`chance` decides in which of the possible ways things are done. `read`: the next offsets of what is owned."""

    def __init__(self, book: Writer, topic: str, chance: random.Random, pending: Pending) -> None:
        self.book, self.topic, self.chance, self.pending = book, topic, chance, pending
        self.read: dict[int, int] = {}

    def delivered(self, began: int, slices: list[list[int]]) -> None:
        if not slices:
            return
        self.book.write("delivered", began=began, slices=slices)
        self.pending.read(slices)
        for partition, _first, following in slices:
            self.read[partition] = following

    def keys(self, offsets: Mapping[int, int]) -> dict[TopicPartition, int]:
        return {TopicPartition(self.topic, one): to for one, to in offsets.items()}


class Hooks(RebalanceHooks):
    """Commits revoked partitions by the return value of the hook, or, if there is a `consumer`, at random by a
    commit of its own."""

    def __init__(self, notes: Notes, consumer: Consumer | None) -> None:
        self._notes, self._consumer = notes, consumer

    def on_assigned(self, event: Assigned) -> None:
        new = sorted(one.partition for one in event.partitions)
        held = sorted(one.partition for one in event.assignment)
        self._notes.book.write("assigned", partitions=new, assignment=held, generation=event.generation)

    def on_revoked(self, event: Revoked) -> dict[TopicPartition, int] | None:
        notes = self._notes
        going = [one.partition for one in event.partitions]
        notes.pending.drop(going)
        offsets = {one: notes.read.pop(one) for one in going if one in notes.read}
        by_result = self._consumer is None or notes.chance.random() < 0.5
        if offsets:
            # Its outcome is not reported to the hook that returned it.
            settle = notes.book.committing(offsets, None if by_result else COMMIT_S)
        if offsets and not by_result and self._consumer is not None:
            try:
                self._consumer.commit(notes.keys(offsets), timeout_s=COMMIT_S)
            except Exception as error:  # which ones are due is for the checker to say
                settle(error)
            else:
                settle(None)
        notes.book.write("revoked", partitions=going)
        return notes.keys(offsets) if by_result else None

    def on_lost(self, event: Lost) -> None:
        self._notes.pending.drop(one.partition for one in event.partitions)
        for one in event.partitions:
            self._notes.read.pop(one.partition, None)
        self._notes.book.write("lost", partitions=[one.partition for one in event.partitions])
