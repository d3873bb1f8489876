"""A region member with its coordinator and its group played by hand."""

from typing import Any, NamedTuple

from kohort import TopicPartition
from kohort.consistent_region import events as ev
from kohort.consistent_region.checkpoint_barrier import Barrier, MembershipView
from kohort.consistent_region.offsets import RegionPosition
from kohort.consistent_region.ready import RegionReady
from kohort.consistent_region.region_member import RegionMember
from kohort.consistent_region.settings import RegionSettings
from kohort.testing.simulation.kafka import SimColumns

P0, P1, P2 = (TopicPartition("t", n) for n in range(3))


class Rec(NamedTuple):
    topic: str
    partition: int
    offset: int


def recs(partition: TopicPartition, *offsets: int) -> list[Rec]:
    return [Rec(*partition, offset) for offset in offsets]


def polled(*records: ev.RecordLike) -> ev.RecordsPolled:
    """A poll with these records, in slices of one partition with ascending offsets."""
    slices: list[list[ev.RecordLike]] = []
    for one in records:
        last = slices[-1][-1] if slices else None
        if last is None or last.partition != one.partition or last.offset >= one.offset:
            slices.append([])
        slices[-1].append(one)
    return ev.RecordsPolled([columns(part) for part in slices])


def columns(records: list[Any]) -> ev.RecordSlice:
    return SimColumns(TopicPartition(records[0].topic, records[0].partition), records, records[-1].offset + 1)


class Rig:
    """`member` at time `now`; `view` is what its coordinator says."""

    def __init__(self, settings: RegionSettings | None = None, name: str = "a") -> None:
        self.member = RegionMember(name, settings or RegionSettings())
        self.now = 100.0
        self.view = MembershipView(epoch=0, newest=None, barrier=None, age_s=0.0)

    def step(self, event: ev.Event) -> RegionReady:
        self.member.step(event, self.now)
        return self.ready()

    def ready(self) -> RegionReady:
        return self.member.ready(self.now)

    def sees(self, **changes: object) -> RegionReady:
        """The coordinator's view changes, and the member looks."""
        values = {name: getattr(self.view, name) for name in ("epoch", "newest", "barrier", "age_s", "stopped")}
        self.view = MembershipView(**(values | changes))
        return self.step(ev.Looked(self.view))

    def subscribed(self, *, relaunched: bool = False) -> "Rig":
        self.step(ev.Registered(self.view, relaunched))
        self.step(ev.RegionSubscribed())
        return self

    def assigned(self, starts: dict[TopicPartition, int], generation: int = 5) -> RegionReady:
        positions = {one: RegionPosition(to) for one, to in starts.items()}
        return self.step(ev.PartitionsAssigned(frozenset(starts), generation, positions, self.view))

    def reading(self, *records: Rec, starts: dict[TopicPartition, int] | None = None) -> "Rig":
        """In RECORDS_FETCHED with these records queued."""
        self.subscribed()
        self.assigned(starts or {P0: 0, P1: 0})
        self.step(polled(*(records or recs(P0, 0, 1, 2))))
        return self

    def handle(self, count: int = 1) -> list[ev.RecordLike]:
        done: list[ev.RecordLike] = []
        for _ in range(count):
            records = self.member.take(self.now, 1)
            if records is None:
                break
            self.member.submitted(records, 1, self.now)
            done += records
        return done

    def barrier(self, sequence: int = 1, *, generation: int = 5, members: tuple[str, ...] = ("a", "b")) -> RegionReady:
        return self.sees(barrier=Barrier(sequence, self.view.epoch, generation, members))

    def cut(self) -> RegionReady:
        """The states are cut and their snapshots written."""
        self.step(ev.CutTaken())
        return self.step(ev.SnapshotsWritten())

    def contributed(self) -> RegionReady:
        self.cut()
        return self.step(ev.Contributed(self.view))

    def went_back(self, starts: dict[TopicPartition, int], **changes: object) -> RegionReady:
        values = {name: getattr(self.view, name) for name in ("epoch", "newest", "barrier", "age_s", "stopped")}
        self.view = MembershipView(**(values | changes))
        return self.step(ev.WentBack(self.view, {one: RegionPosition(to) for one, to in starts.items()}))

    def offsets(self) -> dict[TopicPartition, int]:
        return {one: position.offset for one, position in self.member.offsets.positions().items()}

    def consistent(self) -> bool:
        return self.member.consistent
