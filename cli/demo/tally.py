"""Totals per carrier and aircraft: whole numbers only, so that two ways of adding them up can be held equal.

The rows of the dataset, a member of the group and Spark all fill the same shape; each from its own source.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol

from kohort.cli.demo.dataset import ABSENT


class Aircraft(NamedTuple):
    """The key of totals. `tail` is empty if the record had no key."""

    carrier: str
    tail: str


class Totals(NamedTuple):
    """Counts of events, miles of the flights that arrived, and minutes of delay on departure and arrival."""

    scheduled: int = 0
    departed: int = 0
    arrived: int = 0
    cancelled: int = 0
    miles: int = 0
    delay_minutes: int = 0

    def plus(self, other: "Totals") -> "Totals":
        return Totals(*map(int.__add__, self, other))

    @property
    def events(self) -> int:
        return self.scheduled + self.departed + self.arrived + self.cancelled


Tally = dict[Aircraft, Totals]


class Countable(Protocol):
    """The part of a record that totals need."""

    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> Iterable[tuple[str, bytes | None]]: ...


_COLUMN = {"scheduled": 0, "departed": 1, "arrived": 2}
CANCELLED, MILES, DELAY = 3, 4, 5


def carrier_of(record: Countable) -> str:
    """The carrier, from its header. Raises StopIteration for a record without one."""
    return (next(text for name, text in record.headers if name == "carrier") or b"").decode()


def add(record: Countable, counts: list[int]) -> None:
    """Add one record to counts in the order of `Totals`. Raises KeyError or ValueError for no flight's event."""
    value = record.value
    if value is None:
        counts[CANCELLED] += 1
        return
    event = json.loads(value.decode())
    counts[_COLUMN[event["event"]]] += 1
    counts[MILES] += event.get("miles", 0)
    counts[DELAY] += event.get("delay") or 0


def tally(records: Iterable[Countable]) -> Tally:
    """Totals of some records. Raises KeyError or ValueError for one that is not a flight's event."""
    sums: defaultdict[tuple[str, bytes | None], list[int]] = defaultdict(lambda: [0, 0, 0, 0, 0, 0])
    for record in records:
        add(record, sums[carrier_of(record), record.key])
    return {Aircraft(carrier, (key or b"").decode()): Totals(*counts) for (carrier, key), counts in sums.items()}


def merged(tallies: Iterable[Mapping[Aircraft, Totals]]) -> Tally:
    """The sum of several."""
    whole: Tally = {}
    for one in tallies:
        for aircraft, totals in one.items():
            before = whole.get(aircraft)
            whole[aircraft] = totals if before is None else before.plus(totals)
    return whole


def by_carrier(whole: Mapping[Aircraft, Totals]) -> dict[str, Totals]:
    """The same totals with the aircraft of each carrier added up, the busiest carrier first."""
    sums: dict[str, Totals] = {}
    for aircraft, totals in whole.items():
        sums[aircraft.carrier] = sums.get(aircraft.carrier, Totals()).plus(totals)
    return dict(sorted(sums.items(), key=lambda item: (-item[1].events, item[0])))


def of_rows(rows: Iterable[Mapping[str, str]], *, at_least: int | None = None) -> tuple[int, Tally]:
    """Return the number of rows that make `at_least` events (None: all rows), and their totals.

    Straight from the dataset's cells: no event, no record, no Kafka in between.
    """
    sums: defaultdict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0, 0, 0, 0, 0])
    flights = made = 0
    for row in rows:
        if at_least is not None and made >= at_least:
            break
        flights += 1
        counts = sums[row["carrier"], row["tailnum"]]
        counts[_COLUMN["scheduled"]] += 1
        cancelled = row["dep_time"] == ABSENT
        landed = row["arr_time"] != ABSENT
        made += 2 if cancelled or not landed else 3
        if cancelled:
            counts[CANCELLED] += 1
            continue
        counts[_COLUMN["departed"]] += 1
        counts[DELAY] += int(row["dep_delay"])
        if landed:
            counts[_COLUMN["arrived"]] += 1
            counts[MILES] += int(row["distance"])
            counts[DELAY] += 0 if row["arr_delay"] == ABSENT else int(row["arr_delay"])
    totals = {
        Aircraft(carrier, "" if tail == ABSENT else tail): Totals(*counts) for (carrier, tail), counts in sums.items()
    }
    return flights, totals
