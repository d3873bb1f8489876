"""The result of one run: the values that the verdict, the terminal and the report are made from."""

from collections.abc import Mapping, Sequence

from kohort.cli.demo.flights import Tally
from kohort.cli.demo.ledger import GroupHistory
from kohort.cli.demo.producers import FilledChunk
from kohort.common.named_tuple import NamedTuple


class TopicReading(NamedTuple):
    """The topic as one reader saw it. `seconds`: from the first record to the last; `prepared_s`: before that."""

    reader: str
    totals: Tally
    seconds: float
    prepared_s: float

    @property
    def records(self) -> int:
        return sum(one.events for one in self.totals.values())

    @property
    def per_second(self) -> float:
        return self.records / self.seconds if self.seconds > 0 else 0.0


class DemoOutcome(NamedTuple):
    """Everything a run left behind. `committed`: the group's offsets; `saved`: those of the newest `checkpoint`."""

    broker: str
    topic: str
    written: Sequence[FilledChunk]
    written_s: float
    committed: Mapping[int, int]
    saved: Mapping[int, int]
    checkpoint: int
    history: GroupHistory
    dataset: Tally
    group: TopicReading
    spark: tuple[TopicReading, ...]

    @property
    def readings(self) -> tuple[TopicReading, ...]:
        return (self.group, *self.spark)

    @property
    def went_back(self) -> int:
        """The number of times that a member went back to a checkpoint."""
        return sum(one.kind == "went_back" for one in self.history.events)

    @property
    def claims(self) -> tuple[tuple[str, bool], ...]:
        """The verdict, sentence by sentence, and whether each holds."""
        ends, records, reread = self.history.ends, self.history.total, self.history.reread
        made = sum(totals.events for totals in self.dataset.values())
        equal = self.saved == ends and self.group.totals == self.dataset
        undone = self.went_back > 0 and self.group.records == made
        return (
            (f"{made:,} events made of the dataset are {records:,} records in the topic", made == records),
            (f"the region's checkpoint {self.checkpoint} covers all, and its totals are the dataset's", equal),
            (f"the killed member's work was undone, {reread:,} records read again, none counted twice", undone),
            *(
                (f"{one.reader} read {one.records:,} and came to the same totals", one.totals == self.group.totals)
                for one in self.spark
            ),
            ("the group's committed offsets are the ends of all partitions", self.committed == ends),
        )

    @property
    def equal(self) -> bool:
        return all(holds for _, holds in self.claims)
