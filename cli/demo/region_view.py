"""The checkpoints of the demo's region, read from outside the group."""

from contextlib import AbstractContextManager
from pathlib import Path

from kohort.cli.demo.flight_state import totals_of
from kohort.cli.demo.tally import Tally
from kohort.consistent_region.coordinator import RegionCoordinator
from kohort.consistent_region.errors import NotRegisteredError
from kohort.consistent_region.store import SqliteStore


class DemoRegionView(AbstractContextManager["DemoRegionView"]):
    """The region of one run, by its store's file."""

    def __init__(self, path: Path, group: str) -> None:
        self._coordinator = RegionCoordinator(SqliteStore(path), "demo", group)

    @property
    def newest(self) -> int:
        """The newest complete checkpoint, 0 before the first."""
        try:
            return self._coordinator.look().newest or 0
        except NotRegisteredError:
            return 0

    def offsets(self) -> dict[int, int]:
        """The offset of each partition in the newest checkpoint."""
        newest = self.newest
        if not newest:
            return {}
        return {place.partition: at.offset for place, at in self._coordinator.manifest(newest).offsets.items()}

    def totals(self) -> Tally:
        """The sum of all members' states in the newest checkpoint."""
        newest = self.newest
        if not newest:
            return {}
        parts = self._coordinator.manifest(newest).contributions
        return totals_of(self._coordinator.state(part.state) for part in parts)

    def __exit__(self, *_: object) -> None:
        self._coordinator.store.close()
