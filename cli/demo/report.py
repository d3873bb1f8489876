"""The page that a run leaves behind: one HTML file, nothing fetched, readable on a phone and in the dark."""

from collections import Counter
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

from kohort.cli.demo import charts
from kohort.cli.demo.outcome import DemoOutcome
from kohort.cli.demo.tally import Totals
from kohort.cli.demo.timeline import spans

_MARKS = (
    '<span><i style="background:var(--undone)"></i>going back</span>'
    '<span><i style="background:var(--good)"></i>checkpoint</span>'
)
_STYLE = Path(__file__).with_name("report.css")


def write(outcome: DemoOutcome, carriers: dict[str, str], path: Path) -> Path:
    """Write the page; returns where it is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page(outcome, carriers), encoding="utf-8")
    return path


def page(outcome: DemoOutcome, carriers: dict[str, str]) -> str:
    """The page as text. `carriers`: names by code."""
    body = (_head(outcome), _facts(outcome), _group(outcome), _throughput(outcome), _reread(outcome))
    tables = (_totals(outcome, carriers), _written(outcome))
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(outcome.title)}</title><style>{_STYLE.read_text(encoding='utf-8')}</style></head><body><main>"
        + "".join((*body, *tables))
        + "</main></body></html>\n"
    )


def _head(outcome: DemoOutcome) -> str:
    lines = "".join(f'<li class="{"yes" if c.holds else "no"}">{escape(c.text)}</li>' for c in outcome.claims)
    verdict = "All totals are equal" if outcome.equal else "The totals are NOT equal"
    return (
        f'<h1>{escape(outcome.title)}</h1><p class="soft-text">topic <code>{escape(outcome.topic)}</code>, '
        f"{len(outcome.ends)} partitions, on {escape(outcome.broker)}</p>"
        f'<section class="card verdict{"" if outcome.equal else " bad"}"><h2>{verdict}</h2><ul>{lines}</ul></section>'
    )


def _facts(outcome: DemoOutcome) -> str:
    facts = [
        (
            f"{outcome.filled.records:,}",
            f"records written in {outcome.filled.seconds:.1f} s by other people's producers",
        ),
        (f"{outcome.group.per_second:,.0f}/s", "the group, from its first record to its last, the outage included"),
        *((f"{reading.per_second:,.0f}/s", f"{reading.who}, while reading") for reading in outcome.spark),
        (f"{outcome.reread:,}", f"records read again after {_times(outcome.went_back)}, and none counted twice"),
    ]
    cells = "".join(f'<div class="fact"><b>{escape(big)}</b><span>{escape(small)}</span></div>' for big, small in facts)
    return f'<div class="facts">{cells}</div>'


def _times(went_back: int) -> str:
    return "a member went back" if went_back == 1 else f"members went back {went_back} times"


def _group(outcome: DemoOutcome) -> str:
    axis = _axis(outcome)
    lanes = list(dict.fromkeys(one.member for one in outcome.happenings))
    owned = spans(outcome.happenings, axis.stop_ms)
    legend = "".join(
        f'<span><i style="background:{charts.colour(partition)}"></i>partition {partition}</span>'
        for partition in sorted(outcome.ends)
    )
    return (
        '<section class="card"><h2>The group</h2><p class="soft-text">Each bar is a partition a member owned. A killed '
        "member's partitions rest until its session times out; then the group shares them out anew, and the region "
        "goes back: all members return to its last checkpoint, so that what the dead one had counted since is undone "
        "everywhere.</p>"
        f'<div class="legend">{legend}{_MARKS}</div><div class="scroll">'
        f"{charts.timeline(lanes, owned, outcome.happenings, axis)}</div></section>"
        '<section class="card"><h2>Lag</h2><p class="soft-text">Records in the topic that the group has not read yet; '
        "the line: those that the region's newest checkpoint lacks. What lies between them is undone by a reset.</p>"
        f'<div class="scroll">{charts.lag(outcome.samples, outcome.happenings, axis)}</div></section>'
    )


def _axis(outcome: DemoOutcome) -> charts.Axis:
    times = [one.at_ms for one in outcome.happenings] + [sample.at_ms for sample in outcome.samples]
    return charts.Axis(min(times, default=0), max(times, default=0))


def _throughput(outcome: DemoOutcome) -> str:
    values = {reading.who: reading.per_second for reading in (outcome.group, *outcome.spark)}
    prepared = "; ".join(
        f"{r.who}: {r.prepared_s:.1f} s before its first record" for r in (outcome.group, *outcome.spark)
    )
    return (
        '<section class="card"><h2>Throughput</h2><p class="soft-text">Records a second, each parsed as JSON and added '
        "up: by the group and kafka_rdd in Python, by the DataFrame in Spark's SQL. "
        f'{escape(prepared)}.</p><div class="scroll">{charts.bars(values, "records/s")}</div></section>'
    )


def _reread(outcome: DemoOutcome) -> str:
    again = [one for one in outcome.slices if one.reread]
    told = (
        "State and offsets are one checkpoint, about once a second. What was read after the last one is undone when "
        "partitions move, and read again: the ledger, which only ever grows, marks those second readings. The totals "
        "come from the checkpoint, where each record counts once."
    )
    if not again:
        return f'<section class="card"><h2>Read twice: nothing</h2><p class="soft-text">{told}</p></section>'
    by_place = Counter[tuple[int, str]]()
    for one in again:
        by_place[one.partition, one.member] += one.records
    first = {key: min(s.start for s in again if (s.partition, s.member) == key) for key in by_place}
    last = {key: max(s.stop for s in again if (s.partition, s.member) == key) for key in by_place}
    rows = [
        (str(key[0]), f"{first[key]:,} to {last[key] - 1:,}", f"{count:,}", key[1])
        for key, count in sorted(by_place.items())
    ]
    table = _table(("partition", "offsets", "records", "read again by"), rows)
    return (
        f'<section class="card"><h2>Read twice: {outcome.reread:,} records</h2><p class="soft-text">{told}</p>{table}'
        "</section>"
    )


def _totals(outcome: DemoOutcome, carriers: dict[str, str]) -> str:
    who = ("dataset", "group", *(reading.who for reading in outcome.spark))
    rows, whole = [], [Totals()] * len(who)
    aircraft = Counter(one.carrier for one in outcome.dataset if one.tail)
    for code, columns in outcome.carriers.items():
        whole = [before.plus(column) for before, column in zip(whole, columns, strict=True)]
        rows.append(_total_row(carriers.get(code, code), f"{aircraft[code]:,}", columns))
    foot = _total_row("all carriers", f"{sum(aircraft.values()):,}", whole)
    heads = (
        "carrier",
        "aircraft",
        "flights",
        "departed",
        "arrived",
        "cancelled",
        "miles flown",
        "minutes late",
        "equal",
    )
    equal = ", ".join(who)
    return (
        '<section class="card"><h2>Totals</h2><p class="soft-text">Kept for each carrier and aircraft, '
        f"{len(outcome.dataset):,} pairs, shown by carrier. Equal: the same in {escape(equal)}.</p>"
        f'<div class="scroll">{_table(heads, rows, foot)}</div></section>'
    )


def _total_row(name: str, aircraft: str, columns: Sequence[Totals]) -> tuple[str, ...]:
    cells = (f"{number:,}" for number in columns[0])
    return (name, aircraft, *cells, "\u2713" if len(set(columns)) == 1 else "\u2717")


def _written(outcome: DemoOutcome) -> str:
    rows = [(chunk.codec, chunk.producer, f"{chunk.records:,}") for chunk in outcome.filled.chunks]
    return (
        '<section class="card"><h2>Who wrote it</h2><p class="soft-text">Kafka\'s own Java producer, and librdkafka '
        f"where it is installed; every codec by each.</p>{_table(('codec', 'producer', 'records'), rows)}</section>"
    )


def _table(heads: Iterable[str], rows: Iterable[Sequence[str]], foot: Sequence[str] | None = None) -> str:
    head = "".join(f"<th>{escape(cell)}</th>" for cell in heads)
    body = "".join(f"<tr>{_cells(row)}</tr>" for row in rows)
    end = f"<tfoot><tr>{_cells(foot)}</tr></tfoot>" if foot else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody>{end}</table>"


def _cells(row: Sequence[str]) -> str:
    marks = {"\u2713": ' class="yes"', "\u2717": ' class="no"'}
    return "".join(f"<td{marks.get(cell, '')}>{escape(cell)}</td>" for cell in row)
