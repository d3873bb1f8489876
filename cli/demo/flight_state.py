"""The state of one member: totals by carrier and aircraft, and which records it handled, for the ledger."""

from collections.abc import Iterable
from typing import Protocol

from kohort.cli.demo.ledger import Ledger
from kohort.cli.demo.tally import Aircraft, Countable, Tally, Totals, add, carrier_of
from kohort.common import TopicPartition
from kohort.consistent_region import DictState
from kohort.consistent_region.events import RecordLike
from kohort.consistent_region.offsets import Positions

BETWEEN = "|"  # of carrier and tail number, which are letters and digits
NOTED_EVERY = 2_000


class FlightRecord(Countable, RecordLike, Protocol):
    """The part of a record that the state needs."""


class FlightState(DictState):
    """Counts by `carrier|tail`, in the order of `Totals`. What it has handled is on the ledger before it is in a
    checkpoint, so that the ledger's slices tile whatever is killed."""

    def __init__(self, name: str, ledger: Ledger) -> None:
        super().__init__()
        self.generation = -1
        self._name = name
        self._ledger = ledger
        self._handled: dict[TopicPartition, tuple[int, int]] = {}
        self._unnoted = 0

    def count(self, record: FlightRecord) -> None:
        """One record takes effect."""
        key = f"{carrier_of(record)}{BETWEEN}{(record.key or b'').decode()}"
        counts = self.get(key)
        if counts is None:
            counts = self[key] = [0] * len(Totals._fields)
        add(record, counts)
        place = TopicPartition(record.topic, record.partition)
        start, stop = self._handled.get(place, (record.offset, record.offset))
        if stop != record.offset:
            self.note()
            start = record.offset
        self._handled[place] = (start, record.offset + 1)
        self._unnoted += 1
        if self._unnoted >= NOTED_EVERY:
            self.note()

    def note(self) -> None:
        """Put on the ledger what was handled since the last time."""
        for place, (start, stop) in self._handled.items():
            self._ledger.append(self._name, self.generation, place, start, stop)
        self._handled.clear()
        self._unnoted = 0

    def snapshot(self, offsets: Positions) -> bytes:
        self.note()
        return super().snapshot(offsets)

    def restore(self, snapshot: bytes, offsets: Positions) -> None:
        self.note()
        super().restore(snapshot, offsets)

    def reset_initial(self) -> None:
        self.note()
        super().reset_initial()


def totals_of(snapshots: Iterable[bytes]) -> Tally:
    """Return the sum of the members' states of one checkpoint."""
    whole: dict[str, list[int]] = {}
    for snapshot in snapshots:
        state = DictState()
        state.restore(snapshot, {})
        for key, counts in state.items():
            sums = whole.setdefault(key, [0] * len(Totals._fields))
            for place, count in enumerate(counts):
                sums[place] += count
    return {Aircraft(*key.split(BETWEEN)): Totals(*counts) for key, counts in whole.items()}
