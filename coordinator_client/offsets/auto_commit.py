"""Offsets that automatic commits and the rewind check go by."""

from collections.abc import Mapping
from math import inf

from kohort.common import TopicPartition
from kohort.network.group_types import OffsetAndMetadata


class AutoCommitState:
    """What has been committed, what may be committed by itself, and a guard against going backwards.

    `on_poll()` is called at the start of each poll: only what *earlier* polls returned counts as handled, never the
    batch that the user is still working on (S-04). It is given changes only: a poll of one slice must not cost in
    proportion to all partitions.
    """

    def __init__(self, interval_s: float | None) -> None:
        self.interval_s = interval_s
        self._committed: dict[TopicPartition, int] = {}
        self._handled: dict[TopicPartition, OffsetAndMetadata] = {}
        self._next = 0.0

    def on_poll(self, changes: Mapping[TopicPartition, OffsetAndMetadata | None]) -> None:
        """Earlier polls reached these positions. None: the position is not known any more. It may be repeated."""
        if self.interval_s is not None:
            for partition, found in changes.items():
                if found is None:
                    self._handled.pop(partition, None)
                else:
                    self._handled[partition] = found
            self._next = 0.0 if self._next == inf else self._next

    def pause(self) -> None:
        """Nothing is due before the next poll: a close waits until no commit is under way."""
        self._next = inf

    def due(self, now: float) -> dict[TopicPartition, OffsetAndMetadata]:
        """What to commit automatically now; empty when it is not yet time or nothing has moved."""
        if self.interval_s is None or now < self._next:
            return {}
        self._next = now + self.interval_s
        return self.uncommitted()

    def next_poll_at(self) -> float | None:
        return None if self.interval_s is None or self._next == inf else self._next

    def uncommitted(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Handled and not committed: for a rebalance and for close; empty unless commits are automatic."""
        return {
            partition: found for partition, found in self._handled.items() if self._committed.get(partition) != found[0]
        }

    def backward_commits(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> dict[TopicPartition, int]:
        """Partitions that a commit would move backwards, with what is committed now."""
        return {
            partition: self._committed[partition]
            for partition, found in offsets.items()
            if found.offset < self._committed.get(partition, -1)
        }

    def known(self, partition: TopicPartition, offset: int) -> None:
        """An offset was read from the coordinator or stored by it."""
        self._committed[partition] = offset

    def drop(self, partition: TopicPartition) -> None:
        """The partition is read no more, or its log is another now: an offset of the old one may not be committed
        again, nor forbid a commit of one that the new one has."""
        self._committed.pop(partition, None)
        self._handled.pop(partition, None)
