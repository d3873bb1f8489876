"""The flights as events, held against the rows they come from and against facts known of the data set."""

import json
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from itertools import islice

import pytest

from kohort.cli.demo import flights
from kohort.cli.demo.flights import Aircraft, FlightEvent, Totals, by_carrier, tally, totals_of_rows
from kohort.fastpath import RecordColumns, decode
from kohort.fastpath._encode import encode

ROW = {
    "year": "2013",
    "month": "1",
    "day": "1",
    "dep_time": "517",
    "sched_dep_time": "515",
    "dep_delay": "2",
    "arr_time": "830",
    "sched_arr_time": "819",
    "arr_delay": "11",
    "carrier": "UA",
    "flight": "1545",
    "tailnum": "N14228",
    "origin": "EWR",
    "dest": "IAH",
    "air_time": "227",
    "distance": "1400",
    "hour": "5",
    "minute": "15",
    "time_hour": "2013-01-01T10:00:00Z",
}
CANCELLED = {**ROW, "dep_time": "NA", "dep_delay": "NA", "arr_time": "NA", "arr_delay": "NA", "air_time": "NA"}
DIVERTED_AWAY = {**ROW, "arr_time": "NA", "arr_delay": "NA", "air_time": "NA"}
DIVERTED_LATE = {**ROW, "arr_delay": "NA", "air_time": "NA"}
NAMELESS = {**CANCELLED, "tailnum": "NA"}


def as_read(events: Iterable[FlightEvent]) -> RecordColumns:
    """The records of events, as a consumer has them."""
    return decode(
        encode(
            [
                (
                    event.key and event.key.encode(),
                    event.value and event.value.encode(),
                    event.timestamp_ms,
                    {name: text.encode() for name, text in event.headers},
                )
                for event in events
            ]
        )
    )


def reported(row: dict[str, str]) -> list[str | None]:
    return [None if one.value is None else json.loads(one.value)["event"] for one in flights.events([row])]


def test_a_flight_is_scheduled_departs_and_arrives() -> None:
    scheduled, departed, arrived = flights.events([ROW])
    assert {one.key for one in (scheduled, departed, arrived)} == {"N14228"}
    assert scheduled.headers == (("carrier", "UA"), ("origin", "EWR"))
    at = datetime(2013, 1, 1, 10, 15, tzinfo=UTC).timestamp() * 1000
    assert (scheduled.timestamp_ms, departed.timestamp_ms - at, arrived.timestamp_ms - at) == (
        at,
        120_000,
        229 * 60_000,
    )
    assert json.loads(arrived.value or "") == {
        "event": "arrived",
        "flight": 1545,
        "dest": "IAH",
        "delay": 11,
        "miles": 1400,
    }


@pytest.mark.parametrize(
    ("row", "events"),
    [
        (CANCELLED, ["scheduled", None]),
        (NAMELESS, ["scheduled", None]),
        (DIVERTED_AWAY, ["scheduled", "departed"]),
        (DIVERTED_LATE, ["scheduled", "departed", "arrived"]),
    ],
)
def test_what_did_not_happen_is_not_reported(row: dict[str, str], events: list[str | None]) -> None:
    assert reported(row) == events


def test_a_missing_tail_number_is_a_null_key() -> None:
    assert [one.key for one in flights.events([NAMELESS])] == [None, None]


def test_the_whole_data_set_is_what_is_known_of_it() -> None:
    rows, totals = totals_of_rows(flights.flights())
    whole = by_carrier(totals)
    everything = Totals()
    for one in whole.values():
        everything = everything.plus(one)
    assert rows == everything.scheduled == 336_776
    assert everything.cancelled == 8_255
    assert everything.events == 1_001_615
    assert len(whole) == 16
    assert next(iter(whole)) == "UA"
    assert whole["UA"].scheduled == 58_665
    assert set(whole) == set(flights.carriers())


def test_totals_of_the_records_are_the_totals_of_the_rows() -> None:
    rows, wanted = totals_of_rows(flights.flights(), at_least=30_000)
    events = list(flights.events(islice(flights.flights(), rows)))
    assert sum(totals.events for totals in wanted.values()) == len(events)
    assert 30_000 <= len(events) < 30_003
    assert tally(as_read(events)) == wanted
    kinds = Counter(event.value is None for event in events)
    assert kinds[True] == sum(totals.cancelled for totals in wanted.values()) > 0


def test_totals_add_up_however_they_are_cut() -> None:
    records = as_read(flights.events(islice(flights.flights(), 3000)))
    cut = [tally(records[:1000]), tally(records[1000:1001]), tally(records[1001:])]
    whole: dict[Aircraft, Totals] = {}
    for part in cut:
        for aircraft, totals in part.items():
            whole[aircraft] = whole.get(aircraft, Totals()).plus(totals)
    assert whole == tally(records)


def test_a_record_that_is_no_flight_is_refused() -> None:
    strange = as_read([FlightEvent(0, "N1", '{"event":"landed on the moon"}', (("carrier", "UA"),))])
    with pytest.raises(KeyError):
        tally(strange)


def test_a_null_key_is_an_aircraft_without_a_name() -> None:
    records = as_read([FlightEvent(0, None, None, (("carrier", "B6"),))])
    assert tally(records) == {Aircraft("B6", ""): Totals(cancelled=1)}
