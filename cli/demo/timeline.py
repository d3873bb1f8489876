"""The ownership of partitions and the resets of members, as spans of time."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from kohort.cli.demo.ledger import Happening

ENDINGS = ("revoked", "lost", "killed", "left")


@dataclass(frozen=True, slots=True)
class TimelineSpan:
    """A member owned these partitions from `start_ms` to `stop_ms`, in one generation; `ended` says how it ended."""

    member: str
    generation: int
    partitions: tuple[int, ...]
    start_ms: int
    stop_ms: int
    ended: str


@dataclass(frozen=True, slots=True)
class DemoReset:
    """A member's state was void from `start_ms` on, until it was that of a checkpoint again; `where` says of which."""

    member: str
    start_ms: int
    stop_ms: int
    why: str
    where: str


@dataclass
class _Lane:
    owned: tuple[int, ...] = ()
    since_ms: int = 0
    generation: int = -1
    spans: list[TimelineSpan] = field(default_factory=list)


def spans(happenings: Iterable[Happening], end_ms: int) -> list[TimelineSpan]:
    """Spans of each member in order of time. What is still owned at `end_ms` ends there as `open`."""
    lanes: dict[str, _Lane] = {}
    for one in happenings:
        lane = lanes.setdefault(one.member, _Lane())
        if one.kind == "assigned":
            _close(lane, one.member, one.at_ms, "assigned")
            lane.owned, lane.since_ms, lane.generation = one.partitions, one.at_ms, one.generation
        elif one.kind in ENDINGS:
            _close(lane, one.member, one.at_ms, one.kind)
            gone = one.partitions if one.kind == "revoked" else lane.owned
            lane.owned, lane.since_ms = tuple(p for p in lane.owned if p not in gone), one.at_ms
    for member, lane in lanes.items():
        _close(lane, member, end_ms, "open")
    return sorted((span for lane in lanes.values() for span in lane.spans), key=lambda span: span.start_ms)


def _close(lane: _Lane, member: str, at_ms: int, how: str) -> None:
    if lane.owned:
        lane.spans.append(TimelineSpan(member, lane.generation, lane.owned, lane.since_ms, at_ms, how))


def owners(happenings: Iterable[Happening]) -> dict[str, tuple[int, ...]]:
    """Return the partitions of each member that is still there after these happenings."""
    owned: dict[str, tuple[int, ...]] = {}
    for one in happenings:
        if one.kind == "started":
            owned[one.member] = ()
        elif one.kind == "assigned":
            owned[one.member] = one.partitions
        elif one.kind in ("killed", "left"):
            owned.pop(one.member, None)
        elif one.kind in ("revoked", "lost"):
            kept = set(owned.get(one.member, ())) - set(one.partitions)
            owned[one.member] = tuple(sorted(kept))
    return owned


def resets(happenings: Iterable[Happening]) -> list[DemoReset]:
    """Every reset of each member that ended, and those that a kill ended, in order of time."""
    open_: dict[str, Happening] = {}
    found = []
    for one in happenings:
        if one.kind == "undone":
            open_.setdefault(one.member, one)
        elif one.kind in ("went_back", "killed", "left") and (begun := open_.pop(one.member, None)) is not None:
            where = one.cause if one.kind == "went_back" else ""
            found.append(DemoReset(one.member, begun.at_ms, one.at_ms, begun.cause, where))
    return found
