"""Offsets used by automatic commits and by the check for backward commits."""

from collections.abc import Mapping
from math import inf

from kohort.common import TopicPartition
from kohort.network.group_types import OffsetAndMetadata


class AutoCommitState:
    """Tracks offsets to commit automatically, and detects backward commits.

    `on_poll()` is called at the start of each poll. Only records returned by *earlier* polls count as handled, never
    the batch that the user is still working on (S-04). It receives only changes, so its cost does not grow with the
    number of partitions.
    """

    def __init__(self, interval_s: float | None) -> None:
        self.interval_s = interval_s
        self._committed: dict[TopicPartition, int] = {}
        self._handled: dict[TopicPartition, OffsetAndMetadata] = {}
        self._next = 0.0

    def on_poll(self, changes: Mapping[TopicPartition, OffsetAndMetadata | None]) -> None:
        """Record the positions reached by earlier polls. None: the position is unknown. Repeating a call is safe."""
        if self.interval_s is not None:
            for partition, found in changes.items():
                if found is None:
                    self._handled.pop(partition, None)
                else:
                    self._handled[partition] = found
            self._next = 0.0 if self._next == inf else self._next

    def pause(self) -> None:
        """Suspend automatic commits until the next poll: close waits until no commit is in flight."""
        self._next = inf

    def due(self, now: float) -> dict[TopicPartition, OffsetAndMetadata]:
        """Offsets to commit automatically now; empty before the interval has passed."""
        if self.interval_s is None or now < self._next:
            return {}
        self._next = now + self.interval_s
        return self.uncommitted()

    def next_poll_at(self) -> float | None:
        return None if self.interval_s is None or self._next == inf else self._next

    def uncommitted(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Offsets handled and not committed, for a rebalance and for close.

        Empty unless commits are automatic.
        """
        return {
            partition: found for partition, found in self._handled.items() if self._committed.get(partition) != found[0]
        }

    def backward_commits(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> dict[TopicPartition, int]:
        """Partitions that a commit would move backwards, with the committed offset."""
        return {
            partition: self._committed[partition]
            for partition, found in offsets.items()
            if found.offset < self._committed.get(partition, -1)
        }

    def known(self, stored: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Record committed offsets that were read from the coordinator or stored by it."""
        for partition, found in stored.items():
            self._committed[partition] = found.offset

    def drop(self, partition: TopicPartition) -> None:
        """Remove a partition that is no longer read, or whose log was replaced.

        An offset of the old log must not be committed again, and must not block a commit in the new log.
        """
        self._committed.pop(partition, None)
        self._handled.pop(partition, None)
