"""The ledger of the demo's group: a file that members append to, and the history that follows from its entries.

An entry is a line of JSON and one write. It survives SIGKILL, and the file has one order for all processes.
The totals are not in the ledger. They are in the region's checkpoints.
"""

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kohort.cli.demo import DemoFailed
from kohort.common.named_tuple import NamedTuple

_MOVES = ("started", "assigned", "revoked", "lost", "killed", "left")
_STATES = {"started": "joining", "killed": "killed", "left": "left", "undone": "going back"}


class DemoEntry(NamedTuple):
    """One line.

    `kind` is started, assigned, revoked, lost, killed or left. For the region it is undone (a reset began), went_back
    (the reset ended) or checkpoint. For records it is read, with offsets [start, stop) of one partition.
    """

    member: str
    kind: str
    generation: int = -1
    partitions: tuple[int, ...] = ()
    cause: str = ""
    start: int = 0
    stop: int = 0
    at_ms: int = 0


class Ledger:
    """The file. Several processes may write, one thread each."""

    def __init__(self, path: Path) -> None:
        self._writer = path.open("ab", buffering=0)
        self._reader = path.open("rb")  # a write would move the place of reads by the same one
        self._tail = b""

    def append(self, entry: DemoEntry) -> None:
        """Put down an entry of this moment."""
        self._writer.write(json.dumps(entry._replace(at_ms=now_ms())._asdict()).encode() + b"\n")

    def unread(self) -> Iterator[DemoEntry]:
        """Yield the entries after those of the last call."""
        *lines, self._tail = (self._tail + self._reader.read()).split(b"\n")
        for line in map(json.loads, lines):
            yield DemoEntry(**line | {"partitions": tuple(line["partitions"])})

    def close(self) -> None:
        self._writer.close()
        self._reader.close()


class TimelineSpan(NamedTuple):
    """A member owned `partitions` in a generation. Without partitions: its state was void until a reset ended."""

    member: str
    start_ms: int
    stop_ms: int
    generation: int
    partitions: tuple[int, ...] = ()


@dataclass
class WatchedMember:
    """One member as of the last entry. `state`: joining, reading, going back, killed or left."""

    name: str
    state: str = "joining"
    generation: int = -1
    partitions: tuple[int, ...] = ()
    since_ms: int = 0
    undone: DemoEntry | None = None


@dataclass
class GroupHistory:
    """The group as its ledger shows it, entry by entry. `ends`: the offset after the last record, by partition.

    `slices` are entries of kind read or reread, each wholly one of the two. The demo's topic has no gaps.
    """

    ends: Mapping[int, int]
    members: dict[str, WatchedMember] = field(default_factory=dict)
    events: list[DemoEntry] = field(default_factory=list)
    slices: list[DemoEntry] = field(default_factory=list)
    spans: list[TimelineSpan] = field(default_factory=list)
    samples: list[tuple[int, dict[int, int], int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._marks = dict.fromkeys(self.ends, 0)

    def add(self, entry: DemoEntry) -> None:
        """Take the next entry. Raises DemoFailed if records before a read were never read."""
        member = self.members.setdefault(entry.member, WatchedMember(entry.member))
        if entry.kind == "read":
            self._read(entry)
            return
        self.events.append(entry)
        self._own(member, entry)
        if entry.kind == "undone":
            member.undone = member.undone or entry
        elif entry.kind in ("went_back", "killed", "left") and (begun := member.undone):
            self.spans.append(TimelineSpan(member.name, begun.at_ms, entry.at_ms, entry.generation))
            member.undone = None
        member.state = _STATES.get(entry.kind) or ("reading" if member.partitions else "joining")

    def _read(self, entry: DemoEntry) -> None:
        """Cut the read at the mark, which is the highest offset on the ledger."""
        (partition,) = entry.partitions
        start, stop, mark = entry.start, entry.stop, self._marks[partition]
        if start > mark:
            raise DemoFailed("records were skipped", member=entry.member, partition=partition, mark=mark, got=start)
        for kind, low, high in (("reread", start, min(stop, mark)), ("read", max(start, mark), stop)):
            if low < high:
                self.slices.append(entry._replace(kind=kind, start=low, stop=high))
        self._marks[partition] = max(mark, stop)

    def _own(self, member: WatchedMember, entry: DemoEntry) -> None:
        if entry.kind not in _MOVES:
            return
        if owned := member.partitions:
            self.spans.append(TimelineSpan(member.name, member.since_ms, entry.at_ms, member.generation, owned))
        kept = tuple(p for p in owned if entry.kind == "revoked" and p not in entry.partitions)
        member.partitions = entry.partitions if entry.kind == "assigned" else kept
        member.since_ms = entry.at_ms
        if entry.kind in ("started", "assigned"):
            member.generation = entry.generation

    def sample(self, at_ms: int, saved: Mapping[int, int]) -> None:
        """Keep the lag by partition, and the number of records that the newest checkpoint (`saved`) lacks."""
        lag = {partition: end - self._marks[partition] for partition, end in self.ends.items()}
        self.samples.append((at_ms, lag, self.total - sum(saved.values())))

    @property
    def total(self) -> int:
        return sum(self.ends.values())

    @property
    def read(self) -> int:
        """Records read, each counted once."""
        return sum(self._marks.values())

    @property
    def reread(self) -> int:
        return sum(one.stop - one.start for one in self.slices if one.kind == "reread")

    @property
    def seconds(self) -> tuple[float, float]:
        """The time from the first assignment to the last read, and the time before."""
        assigned = next(self.at_s(one.at_ms) for one in self.events if one.kind == "assigned")
        return max(self.at_s(one.at_ms) for one in self.slices) - assigned, assigned

    def at_s(self, at_ms: int) -> float:
        """Seconds after the first event."""
        return (at_ms - self.events[0].at_ms) / 1000

    @property
    def unsaved(self) -> int:
        return self.samples[-1][2]

    @property
    def unowned(self) -> set[int]:
        """Partitions that no living member owns."""
        return set(self.ends).difference(*(member.partitions for member in self.members.values()))


def now_ms() -> int:
    return time.time_ns() // 1_000_000
