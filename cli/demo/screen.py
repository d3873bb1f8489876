"""Terminal output: a live table on a terminal, plain lines otherwise."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from kohort.cli.demo.outcome import DemoOutcome, SparkReading
from kohort.cli.demo.watch import View

PLAIN_EVERY_S = 1.0
_STATE_STYLE = {"reading": "green", "joining": "yellow", "going back": "magenta", "killed": "bold red", "left": "dim"}


class Screen(Protocol):
    """The output of the demo. Calls may be frequent, since the screen decides what to show."""

    def say(self, text: str) -> None: ...
    def progress(self, what: str, done: int, total: int) -> None: ...
    def group(self, view: View) -> None: ...
    def outcome(self, outcome: DemoOutcome, names: dict[str, str], report: str) -> None: ...


@contextmanager
def screen() -> Iterator[Screen]:
    """A live one on a terminal, else a plain one."""
    console = Console()
    if not console.is_terminal:
        yield PlainScreen()
        return
    with Live(console=console, refresh_per_second=8, transient=True) as live:
        yield LiveScreen(console, live)


class PlainScreen:
    """Lines on standard output, at most one a second for things that move."""

    def __init__(self) -> None:
        self._next = 0.0
        self._last = ""

    def say(self, text: str) -> None:
        print(text, flush=True)

    def progress(self, what: str, done: int, total: int) -> None:
        if self._due() or done >= total:
            self.say(f"  {what}: {done:,} of {total:,}")

    def group(self, view: View) -> None:
        if not self._due():
            return
        members = "; ".join(
            f"{m.name} {m.state}" + (f" {list(m.partitions)} {m.per_second:,.0f}/s" if m.partitions else "")
            for m in view.members
        )
        counts = f"{view.read:,} of {view.total:,} read, {view.reread:,} twice, {view.unsaved:,} not in a checkpoint"
        text = f"  {counts}: {members}"
        if text != self._last:
            self._last = text
            self.say(text)

    def outcome(self, outcome: DemoOutcome, names: dict[str, str], report: str) -> None:
        console = Console(file=sys.stdout, width=118)
        console.print(_outcome(outcome, names, report))

    def _due(self) -> bool:
        now = time.monotonic()
        if now < self._next:
            return False
        self._next = now + PLAIN_EVERY_S
        return True


class LiveScreen:
    """A table that is drawn over, with what has been said above it."""

    def __init__(self, console: Console, live: Live) -> None:
        self._console = console
        self._live = live

    def say(self, text: str) -> None:
        self._console.print(text, highlight=False)
        self._live.update("")

    def progress(self, what: str, done: int, total: int) -> None:
        line = Table.grid(padding=(0, 1))
        line.add_row(f"  {what}", ProgressBar(total=total, completed=done, width=40), f"{done:,} of {total:,}")
        self._live.update(line)

    def group(self, view: View) -> None:
        self._live.update(group_table(view))

    def outcome(self, outcome: DemoOutcome, names: dict[str, str], report: str) -> None:
        self._live.stop()
        self._console.print(_outcome(outcome, names, report))


def group_table(view: View) -> RenderableType:
    """Members, partitions, lag and rate."""
    table = Table(header_style="dim", expand=False)
    table.add_column("member")
    table.add_column("state")
    for head in ("generation", "partitions", "records", "rate", "lag"):
        table.add_column(head, justify="right")
    for member in view.members:
        style = _STATE_STYLE[member.state]
        table.add_row(
            member.name,
            Text(member.state, style),
            str(member.generation) if member.generation >= 0 else "-",
            " ".join(str(partition) for partition in member.partitions) or "-",
            f"{member.records:,}",
            f"{member.per_second:,.0f}/s",
            f"{member.lag:,}",
        )
    unowned = ", ".join(str(partition) for partition in sorted(view.unowned))
    bar = Table.grid(padding=(0, 1))
    bar.add_row(
        ProgressBar(total=max(view.total, 1), completed=view.read, width=40),
        f"{view.read:,} of {view.total:,} read",
        Text(f"{view.reread:,} twice", "yellow" if view.reread else "dim"),
        f"{view.per_second:,.0f}/s",
        f"{view.unsaved:,} not in a checkpoint",
        Text(f"resting: {unowned}" if unowned else "", "red"),
    )
    return Group(table, bar)


def _outcome(outcome: DemoOutcome, names: dict[str, str], report: str) -> RenderableType:
    readings = (outcome.group, *outcome.spark)
    table = Table(header_style="dim", title="events by carrier", title_justify="left")
    table.add_column("carrier")
    table.add_column("dataset", justify="right")
    for reading in readings:
        table.add_column(reading.who, justify="right")
    table.add_column("all totals")
    for code, columns in outcome.carriers.items():
        equal = len(set(columns)) == 1
        cells = [f"{column.events:,}" for column in columns]
        table.add_row(names.get(code, code), *cells, Text("equal", "green") if equal else Text("DIFFERENT", "bold red"))
    lines: list[RenderableType] = [Text(), table, Text()]
    lines += [
        Text.assemble(("  yes  ", "green") if claim.holds else ("  NO   ", "bold red"), claim.text)
        for claim in outcome.claims
    ]
    lines.append(Text())
    lines += [Text(f"  {_rate(reading)}") for reading in readings]
    verdict = Text("equal", "bold green") if outcome.equal else Text("NOT EQUAL", "bold red")
    lines += [
        Text(),
        Text.assemble("The totals are ", verdict),
        Text(f"Report: {report}", no_wrap=True, overflow="ignore"),
    ]
    return Group(*lines)


def _rate(reading: SparkReading) -> str:
    return (
        f"{reading.who}: {reading.per_second:,.0f} records/s ({reading.records:,} in {reading.seconds:.1f} s, "
        f"after {reading.prepared_s:.1f} s to get ready)"
    )
