"""Output of a simulation: tables for the terminal, JSON, and a page with a before/after chart."""

from __future__ import annotations

import base64
from collections.abc import Container, Iterator, Sequence
from html import escape
from io import BytesIO
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from kohort.assignors import Rebalance
from kohort.cli.assigning.simulation import SimulationResult, State
from kohort.cli.terminal import cell
from kohort.common.foreign_text import escaped
from kohort.common.named_tuple import NamedTuple
from kohort.common.optional_libraries import needed

#: Okabe and Ito's palette, for colour-blind readers.
KEPT, CAME, WENT, FAR = "#0072b2", "#009e73", "#d55e00", "#e69f00"
MOST_MEMBERS_NAMED = 40
PICTURE_SUFFIX = ".png"

_MEMBER_COLUMNS = ("before", "after", "kept", "gave up", "received", "far reads", "records waiting")
_COLUMNS = {  # name -> its meaning, for the legend
    "moves": "partitions with a new owner",
    "forced": "moves whose old owner left or no longer subscribes",
    "stop": "partitions whose owner stays but stops reading",
    "rounds": "rebalances until the plan is stable",
    "skew": "most minus fewest partitions",
    "far": "read from another rack",
    "lag spread": "most minus fewest records waiting",
    "differ": "partitions with another owner in Java's plan",
}


class Row(NamedTuple):
    """The number of partitions of a member before and after. `far` and `lag`: after, None if unknown or gone."""

    member: str
    before: int
    after: int
    kept: int
    far: int | None
    lag: int | None

    @property
    def values(self) -> tuple[int | None, ...]:
        """The values of `_MEMBER_COLUMNS`."""
        return self.before, self.after, self.kept, self.before - self.kept, self.after - self.kept, self.far, self.lag


def rows(outcome: SimulationResult) -> list[Row]:
    """Return a row per member of the group before or after, in the group's order, leavers last."""
    before, after = outcome.before, outcome.after
    found = []
    for name in dict.fromkeys([*after.plan, *before.plan]):
        had = set(before.plan[name]) if name in before.loads else set()
        has = set(after.plan[name]) if name in after.loads else set()
        here = name in after.loads
        far = after.far_by_member.get(name) if here else None
        lag = after.lag.get(name) if here and after.lag is not None else None
        found.append(Row(name, len(had), len(has), len(had & has), far, lag))
    return found


def summary(outcomes: Sequence[SimulationResult]) -> Table:
    """Return a table with one line per assignor, and one for Java's plan beside it."""
    return _table(
        "Effect of the event",
        ("assignor", *_COLUMNS),
        [
            (name, style, figures)
            for outcome in outcomes
            for name, style, figures in zip(
                (outcome.assignor, "  Java's"), (None, "dim"), _figures(outcome), strict=False
            )
        ],
    )


def _table(title: str, heads: Sequence[str], lines: Sequence[tuple[str, str | None, Sequence[object]]]) -> Table:
    """Return a table without the columns that have no value, so that names fit into 80 columns."""
    first, *others = heads
    table = Table(title=title, box=box.SIMPLE, padding=(0, 1, 0, 0))
    table.add_column(first, overflow="fold", min_width=6)
    used = [number for number in range(len(others)) if any(_cell(figures[number]) for _, _, figures in lines)]
    for number in used:
        table.add_column(others[number], justify="right", overflow="fold")
    for name, style, figures in lines:
        table.add_row(cell(name), *(_cell(figures[number]) for number in used), style=style)
    return table


def _legend(heads: Container[object]) -> str:
    return "; ".join(f"{head}: {meaning}" for head, meaning in _COLUMNS.items() if head in heads) + "."


def _figures(outcome: SimulationResult) -> Iterator[tuple[object, ...]]:
    """Yield the values of `_COLUMNS` for an assignor, and for Java's plan beside it. None if there is no such value."""
    before, after, java = outcome.before, outcome.after, outcome.java
    changes = (
        _change(before.skew, after.skew),
        _change(before.far, after.far),
        _change(before.lag_spread, after.lag_spread),
    )
    yield outcome.moves, outcome.forced, outcome.stopped, outcome.rounds, *changes, None
    if java is not None:
        yield java.moves, None, None, None, java.state.skew, java.state.far, java.state.lag_spread, java.differs


def member_table(outcome: SimulationResult) -> Table:
    lines = [(row.member, None, row.values) for row in rows(outcome)]
    return _table(outcome.assignor, ("member", *_MEMBER_COLUMNS), lines)


def show(outcomes: Sequence[SimulationResult], notes: Sequence[str], console: Console) -> None:
    """Print everything."""
    table = summary(outcomes)
    console.print(table)
    console.print(_legend([column.header for column in table.columns]), style="dim", highlight=False)
    for outcome in outcomes:
        if len(outcome.after.loads) <= MOST_MEMBERS_NAMED:
            console.print(member_table(outcome))
        else:
            console.print(f"{outcome.assignor}: {len(outcome.after.loads)} members; --json lists them")
    for note in notes:
        console.print(cell(note), style="yellow", soft_wrap=True)


def to_json(outcomes: Sequence[SimulationResult], notes: Sequence[str]) -> dict[str, Any]:
    return {
        "outcomes": [
            {
                "assignor": outcome.assignor,
                "rebalance": outcome.rebalance.value,
                "moves": outcome.moves,
                "forced": outcome.forced,
                "stopped": outcome.stopped,
                "rounds": outcome.rounds,
                "before": _state(outcome.before),
                "after": _state(outcome.after),
                "members": [row._asdict() for row in rows(outcome)],
                "plan": outcome.after.plan.to_names(),
                "java": None
                if outcome.java is None
                else {
                    "differs": outcome.java.differs,
                    "moves": outcome.java.moves,
                    **_state(outcome.java.state),
                },
            }
            for outcome in outcomes
        ],
        "notes": list(notes),
    }


def write_page(outcomes: Sequence[SimulationResult], notes: Sequence[str], title: str, path: Path) -> list[Path]:
    """Write `path` (self-contained HTML) and a PNG of the chart beside it. Returns both.

    Raises KohortError without matplotlib.
    """
    picture = draw(outcomes, title)
    image = path.with_suffix(PICTURE_SUFFIX)
    path.parent.mkdir(parents=True, exist_ok=True)
    reported = "".join(f"<p class=note>{_shown(note)}</p>" for note in notes)
    tables = "".join(_html(outcome) for outcome in outcomes)
    encoded = base64.b64encode(picture).decode()
    path.write_text(
        "<!doctype html><html lang=en><meta charset=utf-8>"
        f"<title>{_shown(title)}</title><style>{_STYLE}</style><h1>{_shown(title)}</h1>{_html_summary(outcomes)}"
        f"<p class=java>{_shown(_legend(_COLUMNS))}</p>"
        f'<img alt="partitions of each member before and after" src="data:image/png;base64,{encoded}">'
        f"{tables}{reported}</html>\n",
        encoding="utf-8",
    )
    image.write_bytes(picture)
    return [path, image]


def draw(outcomes: Sequence[SimulationResult], title: str) -> bytes:
    """Return a PNG with the members' partitions by assignor, before (kept, given up) and after (kept, received)."""
    with needed("the picture of --report", "matplotlib"):
        import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.patches import Patch

    every = [rows(outcome) for outcome in outcomes]
    tall = [1.1 + 0.26 * min(len(found), MOST_MEMBERS_NAMED) for found in every]
    figure, grid = pyplot.subplots(
        len(outcomes),
        2,
        figsize=(11, sum(tall) + 1.3),
        squeeze=False,
        sharex=True,
        gridspec_kw={"height_ratios": tall},
        layout="constrained",
    )
    for (left, right), outcome, found in zip(grid, outcomes, every, strict=True):
        places = range(len(found))
        kept = [row.kept for row in found]
        left.barh(places, kept, color=KEPT)
        left.barh(places, [row.before - row.kept for row in found], left=kept, color=WENT)
        right.barh(places, kept, color=KEPT)
        right.barh(places, [row.after - row.kept for row in found], left=kept, color=CAME)
        if outcome.after.far is not None:
            right.barh(places, [row.far or 0 for row in found], height=0.28, color=FAR)
        left.set_title(f"{outcome.assignor}: before, skew {outcome.before.skew}", loc="left", fontsize=10)
        stops = "all stop" if outcome.rebalance is Rebalance.EAGER else f"{outcome.stopped} stop"
        right.set_title(f"after, skew {outcome.after.skew}; {outcome.moves} moved, {stops}", loc="left", fontsize=10)
        for axes in (left, right):
            axes.invert_yaxis()
            axes.spines[["top", "right"]].set_visible(False)
            named = len(found) <= MOST_MEMBERS_NAMED
            axes.set_yticks(list(places) if named else [], [row.member for row in found] if named else [])
            axes.xaxis.get_major_locator().set_params(integer=True)
        right.tick_params(labelleft=False)
    for axes in grid[-1]:
        axes.set_xlabel("partitions")
    legend = [Patch(color=KEPT, label="kept"), Patch(color=WENT, label="given up"), Patch(color=CAME, label="received")]
    if any(outcome.after.far is not None for outcome in outcomes):
        legend.append(Patch(color=FAR, label="of them read from another rack"))
    figure.legend(handles=legend, loc="outside lower center", ncols=len(legend), frameon=False)
    figure.suptitle(title)
    buffer = BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    pyplot.close(figure)
    return buffer.getvalue()


_STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:1100px;margin:2rem auto;padding:0 1rem;"
    "color:#222;background:#fff}"
    "table{border-collapse:collapse;margin:1rem 0}td,th{padding:.15rem .8rem;text-align:right;"
    "border-bottom:1px solid #ddd}"
    "td:first-child,th:first-child{text-align:left}img{max-width:100%}.note{color:#8a4b00}.java{color:#777}"
)


def _html(outcome: SimulationResult) -> str:
    lines = [(row.member, *row.values) for row in rows(outcome)]
    return f"<h2>{_shown(outcome.assignor)}</h2>{_html_table(('member', *_MEMBER_COLUMNS), lines)}"


def _shown(text: str) -> str:
    """Return HTML in which names of members and topics are escaped, without tags or control characters."""
    return escape(escaped(text))


def _html_summary(outcomes: Sequence[SimulationResult]) -> str:
    lines: list[tuple[object, ...]] = []
    for outcome in outcomes:
        names = (f"{outcome.assignor} ({outcome.rebalance.value})", "Java's plan")
        lines += [(name, *figures) for name, figures in zip(names, _figures(outcome), strict=False)]
    return _html_table(("assignor", *_COLUMNS), lines)


def _html_table(heads: Sequence[str], lines: Sequence[Sequence[object]]) -> str:
    head = "".join(f"<th>{_shown(each)}</th>" for each in heads)
    body = "".join(f"<tr>{''.join(f'<td>{_shown(_cell(value))}</td>' for value in line)}</tr>" for line in lines)
    return f"<table><tr>{head}</tr>{body}</table>"


def _state(state: State) -> dict[str, Any]:
    return {"loads": dict(state.loads), "skew": state.skew, "far": state.far, "lag_spread": state.lag_spread}


def _change(before: int | None, after: int | None) -> str:
    if after is None:
        return ""
    return str(after) if before in (None, after) else f"{before} > {after}"


def _cell(value: object) -> str:
    return "" if value is None else f"{value:,}" if isinstance(value, int) else str(value)
