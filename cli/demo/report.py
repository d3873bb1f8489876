"""The page that a run leaves behind: one HTML file that loads nothing, readable on a phone and in the dark."""

from collections import Counter
from collections.abc import Iterable, Mapping
from html import escape
from pathlib import Path

from kohort.cli.demo import charts
from kohort.cli.demo.flights import by_carrier
from kohort.cli.demo.ledger import GroupHistory
from kohort.cli.demo.outcome import DemoOutcome, TopicReading
from kohort.cli.demo.producers import FilledChunk

TITLE = "One topic, read by a group and by Spark"
MARKS = {True: '<span class="yes">\u2713</span>', False: '<span class="no">\u2717</span>'}
_STYLE = Path(__file__).with_name("report.css")
_GROUP = (
    "Each bar is a partition a member owned. A killed member's partitions rest until its session times out. Then the "
    "group is assigned again, and the region is reset: all members return to its last checkpoint, so that the counts "
    "of the killed one since then are undone everywhere. Below: records that the group has not read yet. The line: "
    "records that are not in the newest checkpoint. A reset undoes the records between the two."
)
_REREAD = (
    "State and offsets are one checkpoint, about once a second. What was read after it is undone. The ledger marks "
    "the second readings. The totals come from the checkpoint, where each record counts once."
)
_WRITTEN = "Kafka's own Java producer, and librdkafka where it is installed; every codec by each."
_EQUAL = "Equal: the same in the dataset, the group and each reading by Spark."
_THROUGHPUT = (
    "Each record is parsed as JSON and added up: by the group and kafka_rdd in Python, by the DataFrame in Spark's SQL."
    " The group's time includes the outage."
)


def write(outcome: DemoOutcome, carriers: Mapping[str, str], path: Path) -> Path:
    """Write the page. `carriers`: names by code. Returns the path."""
    path.write_text(page(outcome, carriers), encoding="utf-8")
    return path


def page(outcome: DemoOutcome, carriers: Mapping[str, str]) -> str:
    """The page as text."""
    history = outcome.history
    about = f"topic {outcome.topic}, {len(history.ends)} partitions, on {outcome.broker}"
    claims = "".join(f"<li>{MARKS[holds]} {escape(text)}</li>" for text, holds in outcome.claims)
    verdict = f"<h2>{'All totals are equal' if outcome.equal else 'The totals are NOT equal'}</h2><ul>{claims}</ul>"
    facts = {
        f"records written in {outcome.written_s:.1f} s by producers that are not kohort's": f"{history.total:,}",
        **{f"{one.reader}, while reading": f"{one.per_second:,.0f}/s" for one in outcome.readings},
        f"records read again after members went back {outcome.went_back} times": f"{history.reread:,}",
    }
    cells = "".join(f"<div><b>{big}</b> {escape(small)}</div>" for small, big in facts.items())
    colours = {f"partition {p}": charts.COLOURS[p % len(charts.COLOURS)] for p in history.ends}
    legend = colours | {"going back": "var(--undone)", "checkpoint": "var(--good)", "killed": "var(--bad)"}
    shown = "".join(f'<i style="background:{colour}"></i>{name}' for name, colour in legend.items())
    group = f'<div class="legend">{shown}</div>{charts.group_charts(history)}{_events(history)}'
    pairs = f"By carrier, of {len(outcome.dataset):,} pairs of carrier and aircraft. {_EQUAL}"
    sections = (
        f'<section class="verdict{"" if outcome.equal else " bad"}">{verdict}</section>',
        f'<section class="facts">{cells}</section>',
        _section("The group", _GROUP, group),
        _section("Throughput", _THROUGHPUT, _throughput(outcome.readings)),
        _section(f"Read twice: {history.reread:,} records", _REREAD, _reread(outcome)),
        _section("Totals", pairs, _totals(outcome, carriers)),
        _section("Producers", _WRITTEN, _table(FilledChunk._fields, outcome.written)),
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{TITLE}</title><style>{_STYLE.read_text(encoding='utf-8')}</style></head>"
        f"<body><main><h1>{TITLE}</h1><p>{escape(about)}</p>{''.join(sections)}</main></body></html>\n"
    )


def _section(title: str, text: str, body: str) -> str:
    return f"<section><h2>{title}</h2><p>{escape(text)}</p>{body}</section>"


def _events(history: GroupHistory) -> str:
    rows = [(f"{history.at_s(one.at_ms):.1f} s", one.member, one.kind, *one[2:5]) for one in history.events]
    heads = ("after", "member", "event", "generation", "partitions", "cause")
    return f"<details><summary>Every event</summary>{_table(heads, rows)}</details>"


def _throughput(readings: Iterable[TopicReading]) -> str:
    rows = [
        (one.reader, one.records, round(one.per_second), f"{one.seconds:.1f} s", f"{one.prepared_s:.1f} s")
        for one in readings
    ]
    return _table(("reader", "records", "records/s", "time", "before its first record"), rows)


def _reread(outcome: DemoOutcome) -> str:
    again: dict[tuple[int, str], list[tuple[int, int]]] = {}
    for one in outcome.history.slices:
        if one.kind == "reread":
            again.setdefault((one.partitions[0], one.member), []).append((one.start, one.stop))
    rows = [
        (partition, f"{min(parts)[0]:,} to {max(parts)[1] - 1:,}", f"{sum(b - a for a, b in parts):,}", member)
        for (partition, member), parts in sorted(again.items())
    ]
    return _table(("partition", "offsets", "records", "read again by"), rows)


def _totals(outcome: DemoOutcome, carriers: Mapping[str, str]) -> str:
    tallies = (outcome.dataset, *(reading.totals for reading in outcome.readings))
    columns = [by_carrier(tally) for tally in tallies]
    aircraft = Counter(one.carrier for one in outcome.dataset if one.tail)
    rows = [
        (carriers.get(code, code), aircraft[code], *totals, all(column.get(code) == totals for column in columns))
        for code, totals in columns[0].items()
    ]
    whole = [sum(numbers) for numbers in zip(*columns[0].values(), strict=True)]
    rows.append(("all carriers", aircraft.total(), *whole, all(tally == outcome.dataset for tally in tallies)))
    heads = ("flights", "departed", "arrived", "cancelled", "miles flown", "minutes late", "equal")
    return _table(("carrier", "aircraft", *heads), rows)


def _table(heads: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    head = "".join(f"<th>{escape(cell)}</th>" for cell in heads)
    return f"<table><tr>{head}</tr>{''.join(f'<tr>{_cells(row)}</tr>' for row in rows)}</table>"


def _cells(row: Iterable[object]) -> str:
    return "".join(f"<td>{_cell(cell)}</td>" for cell in row)


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return MARKS[value]
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    return f"{value:,}" if isinstance(value, int) else escape(str(value))
