"""The result of one run: the values that the verdict, the terminal and the report are made from."""

from collections.abc import Mapping
from dataclasses import dataclass

from kohort.cli.demo.filling import Filled
from kohort.cli.demo.ledger import Happening, LedgerSlice
from kohort.cli.demo.tally import Tally, Totals, by_carrier


@dataclass(frozen=True, slots=True)
class DemoSample:
    """The lag of the ledger by partition at one moment, and the number of records that the newest checkpoint
    lacked."""

    at_ms: int
    lag: Mapping[int, int]
    unsaved: int = 0


@dataclass(frozen=True, slots=True)
class SparkReading:
    """The topic as one reader saw it. `seconds` is from the first record to the last, `prepared_s` what came before."""

    who: str
    records: int
    seconds: float
    prepared_s: float
    totals: Tally

    @property
    def per_second(self) -> float:
        return self.records / self.seconds if self.seconds > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Claim:
    """One sentence of the verdict, and whether it holds."""

    text: str
    holds: bool


@dataclass(frozen=True, slots=True)
class DemoOutcome:
    """Everything a run left behind. `ends` is the log's end by partition, `committed` the group's offsets, `saved`
    those of the region's newest checkpoint, `checkpoint`."""

    title: str
    broker: str
    topic: str
    filled: Filled
    ends: Mapping[int, int]
    committed: Mapping[int, int]
    saved: Mapping[int, int]
    checkpoint: int
    happenings: tuple[Happening, ...]
    slices: tuple[LedgerSlice, ...]
    samples: tuple[DemoSample, ...]
    reread: int
    dataset: Tally
    group: SparkReading
    spark: tuple[SparkReading, ...]

    @property
    def claims(self) -> tuple[Claim, ...]:
        """The verdict, sentence by sentence."""
        records = sum(self.ends.values())
        made = sum(totals.events for totals in self.dataset.values())
        return (
            Claim(f"{made:,} events made of the dataset are {records:,} records in the topic", made == records),
            Claim(
                f"the region's checkpoint {self.checkpoint} covers all of them, and its totals are the dataset's",
                self.saved == self.ends and self.group.totals == self.dataset,
            ),
            Claim(
                f"the killed member's work was undone and {self.reread:,} records were read again, none counted twice",
                self.went_back > 0 and self.group.records == made,
            ),
            *(
                Claim(
                    f"{reading.who} read {reading.records:,} and came to the same totals",
                    reading.records == made and reading.totals == self.group.totals,
                )
                for reading in self.spark
            ),
            Claim("the group's committed offsets are the ends of all partitions", self.committed == self.ends),
        )

    @property
    def went_back(self) -> int:
        """The number of times that a member went back to a checkpoint."""
        return sum(one.kind == "went_back" for one in self.happenings)

    @property
    def equal(self) -> bool:
        return all(claim.holds for claim in self.claims)

    @property
    def carriers(self) -> Mapping[str, tuple[Totals, ...]]:
        """Totals by carrier: the dataset's, the group's, then each Spark reading's."""
        columns = [by_carrier(self.dataset), by_carrier(self.group.totals)]
        columns += [by_carrier(reading.totals) for reading in self.spark]
        codes = dict.fromkeys(code for column in columns for code in column)
        return {code: tuple(column.get(code, Totals()) for column in columns) for code in codes}
