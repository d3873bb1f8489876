"""The group as its ledger shows it, from moment to moment: what the live table and the lag picture are drawn from."""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kohort.cli.demo.ledger import Ledger
from kohort.cli.demo.outcome import DemoSample
from kohort.cli.demo.timeline import owners

RATE_WINDOW_MS = 1_500
_STATES = {"killed": "killed", "left": "left", "undone": "going back"}


@dataclass(frozen=True, slots=True)
class WatchedMember:
    """One row of the table. `state`: joining, reading, going back, killed or left. `lag` is of what it owns."""

    name: str
    state: str
    generation: int
    partitions: tuple[int, ...]
    records: int
    per_second: float
    lag: int


@dataclass(frozen=True, slots=True)
class View:
    """The group at one moment. `read` counts each record once, `reread` the second readings, `uncommitted` the records
    that the newest checkpoint lacks."""

    at_ms: int
    members: tuple[WatchedMember, ...]
    read: int
    reread: int
    total: int
    lag: Mapping[int, int]
    unsaved: int

    @property
    def behind(self) -> int:
        return sum(self.lag.values())

    @property
    def per_second(self) -> float:
        return sum(member.per_second for member in self.members)

    @property
    def unowned(self) -> frozenset[int]:
        """Partitions that no living member owns."""
        return frozenset(self.lag) - {p for member in self.members for p in member.partitions}


class MemberWatch:
    """Looks at the ledger; `samples` collects what it saw. `ends`: offset after the last record, by partition. `saved`
    says where the region's newest checkpoint is."""

    def __init__(self, ledger: Ledger, ends: Mapping[int, int], saved: Callable[[], Mapping[int, int]]) -> None:
        self.samples: list[DemoSample] = []
        self._ledger = ledger
        self._ends = dict(ends)
        self._saved = saved
        self._counts: deque[tuple[int, dict[str, int]]] = deque()

    def look(self, at_ms: int) -> View:
        """The group now. `at_ms` must not go backwards."""
        marks = {place.partition: mark for place, mark in self._ledger.marks().items()}
        lag = {partition: end - marks.get(partition, 0) for partition, end in self._ends.items()}
        total = sum(self._ends.values())
        unsaved = total - sum(self._saved().values())
        self.samples.append(DemoSample(at_ms, lag, unsaved))
        counts = self._ledger.read_by_member()
        rates = self._rates(at_ms, counts)
        read, reread = self._ledger.records()
        return View(at_ms, self._members(counts, rates, lag), read, reread, total, lag, unsaved)

    def _members(
        self, counts: Mapping[str, int], rates: Mapping[str, float], lag: Mapping[int, int]
    ) -> tuple[WatchedMember, ...]:
        happenings = self._ledger.happenings()
        owned = owners(happenings)
        last = {one.member: one.kind for one in happenings}
        generation = {one.member: one.generation for one in happenings if one.kind == "assigned"}
        rows = []
        for name in dict.fromkeys(one.member for one in happenings):
            mine = owned.get(name, ())
            state = _STATES.get(last[name]) or ("reading" if mine else "joining")
            behind = sum(lag.get(partition, 0) for partition in mine)
            rate = rates.get(name, 0.0) if state == "reading" else 0.0
            rows.append(WatchedMember(name, state, generation.get(name, -1), mine, counts.get(name, 0), rate, behind))
        return tuple(rows)

    def _rates(self, at_ms: int, counts: dict[str, int]) -> dict[str, float]:
        self._counts.append((at_ms, counts))
        while len(self._counts) > 2 and at_ms - self._counts[1][0] >= RATE_WINDOW_MS:
            self._counts.popleft()
        since_ms, before = self._counts[0]
        if at_ms <= since_ms:
            return {}
        return {name: (count - before.get(name, 0)) * 1000 / (at_ms - since_ms) for name, count in counts.items()}
