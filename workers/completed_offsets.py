"""The offset of a partition that workers may commit: the first of a record that is not done."""

from collections import deque
from typing import Final

MAX_OPEN: Final = 10_000
"""The most offsets of a partition from the first that is not done to the last that has started."""


class CompletedOffsets:
    """Offsets of one partition that have started, and those of them that are done.

    `to_commit`: the offset that may be committed. It is None before the first records.
    """

    def __init__(self) -> None:
        self.to_commit: int | None = None
        self._started: deque[int] = deque()
        self._done: set[int] = set()

    @property
    def full(self) -> bool:
        """True if no other record may start before the first one is done."""
        return len(self._started) >= MAX_OPEN

    @property
    def open(self) -> bool:
        """True if a record that has started is not done."""
        return bool(self._started)

    def start(self, offset: int) -> None:
        """The record at `offset` has started. Offsets ascend."""
        self._started.append(offset)

    def complete(self, offset: int) -> None:
        self._done.add(offset)
        while self._started and self._started[0] in self._done:
            first = self._started.popleft()
            self._done.remove(first)
            self.to_commit = first + 1

    def end(self, next_offset: int) -> None:
        """All records before `next_offset` have started, so it may be committed once they are done."""
        if not self._started:
            self.to_commit = next_offset
