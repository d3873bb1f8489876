"""Snapshots that are written beside the handler, in blocks, without what did not change since the last checkpoint."""

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol, runtime_checkable

from kohort.consistent_region.manifest import Block


class StateCut(Protocol):
    """A state at one moment, whose blocks are written while the state goes on. `blocks`: those of its chain so far."""

    blocks: list[Block]

    def write(self, enough: Callable[[], bool]) -> bool:
        """Write until `enough()` or a block is added to `blocks`. Return True once all are written.

        Raise ConfigurationError for a state that cannot be written.
        """

    def completed(self) -> None:
        """The checkpoint with this cut is complete, so the next cut may build upon its blocks."""


@runtime_checkable
class IncrementalState(Protocol):
    """A `StateHandle` whose snapshots may be chains of blocks: the state is that of all blocks in order."""

    def cut(self) -> StateCut | None:
        """Return the state as it is now, within milliseconds. None if `snapshot` is to be called instead."""

    def restore_blocks(self, blocks: Iterable[Block]) -> Iterator[object]:
        """Restore the state of a chain, and yield wherever the rest may come later: the handler of other tasks runs
        meanwhile.

        Raise ResetFailedError for blocks that are not of this state.
        """
