"""docs/benchmarks.md and its picture, made from the JSON that `make bench` leaves in benchmarks/results.

python -m benchmarks.page
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.report import OURS, RESULTS, Ratio, Row, ratios

DOCS = Path(__file__).parent.parent / "docs"
PICTURE = "benchmarks.png"
BOUNDS = ("floor", "raw socket", "bare socket", "straight C")


def page() -> str:
    """The page's Markdown: a table a benchmark, ours first, each peer with how many times better ours is."""
    all_of = [one for result in results() for one in of(result) if is_peer(one.peer)]
    worse = [one for one in all_of if one.times_better < 1]
    parts = [
        "# Benchmarks",
        "Made by `python -m benchmarks.page` from what `make bench` measured: ours and the peers in one run, on one "
        "machine, each peer at its best settings. A ratio says how many times better ours is, and is computed from two "
        "rows of one unit. Where kohort is slower, or takes more, the row says so. Ratios carry from machine to "
        "machine; absolutes drift.",
        f"Worse than a peer in {len(worse)} of {len(all_of)} figures:",
        "\n".join(f"- {one.work}: {one} than {one.peer} ({one.unit})" for one in worse),
        f"![How many times better]({PICTURE})",
    ]
    for result in results():
        machine = result["machine"]
        title = (import_module(f"benchmarks.{result['benchmark']}").__doc__ or "").strip().splitlines()[0]
        parts += [
            f"## {result['benchmark']}",
            title,
            f"`{result['command']}`, {machine['date']}, {machine['cores']} cores of {machine['cpu']}, "
            f"Python {machine['python']}.",
            "\n".join(_table(result)),
        ]
    return "\n\n".join(parts) + "\n"


def results() -> list[dict[str, Any]]:
    """Every result that is kept, by name."""
    return [json.loads(path.read_text()) for path in sorted(RESULTS.glob("*.json"))]


def of(result: dict[str, Any]) -> list[Ratio]:
    """The ratios of a result, from its rows."""
    return ratios([Row(**row) for row in result["rows"]])


def is_peer(who: str) -> bool:
    """Whether this is a client beside ours, and no bound that none can pass."""
    return not who.startswith(BOUNDS)


def drawn() -> dict[str, list[float]]:
    """What the picture shows: by benchmark and peer, how many times better in each figure."""
    lines: dict[str, list[float]] = {}
    for result in results():
        for one in of(result):
            if is_peer(one.peer) and one.times_better:  # of 0 there is no logarithm
                lines.setdefault(f"{result['benchmark']}  |  {one.peer}", []).append(one.times_better)
    return lines


def draw(path: Path) -> None:
    """A line a benchmark and peer, a dot on it for each figure, on a logarithmic scale; at 1 is parity."""
    import matplotlib.pyplot as plt

    lines = drawn()
    figure, axes = plt.subplots(figsize=(11, 0.25 * len(lines) + 1))
    for name, values in reversed(lines.items()):
        colors = ["#2a7f62" if value >= 1 else "#b5483a" for value in values]
        axes.scatter(values, [name] * len(values), c=colors, s=26, alpha=0.6, linewidths=0)
    axes.set_xscale("log")
    axes.axvline(1.0, color="black", linewidth=0.8)
    axes.grid(axis="y", linewidth=0.3)
    axes.set_xlabel("times better than the peer (1 = the same), a dot a figure")
    axes.tick_params(axis="y", labelsize=8)
    axes.margins(y=0.02)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def _table(result: dict[str, Any]) -> Iterator[str]:
    better = {(one.work, one.peer, one.unit): one for one in of(result)}
    yield "| work | who | measured | kohort is |"
    yield "| --- | --- | ---: | ---: |"
    for row in result["rows"]:
        ratio = better.get((row["work"], row["who"], row["unit"]), "")
        who = f"**{row['who']}**" if row["who"] == OURS else row["who"]
        note = f" ({row['note']})" if row["note"] else ""
        yield f"| {row['work']} | {who}{note} | {_shown(row['value'])} {row['unit']} | {ratio} |"


def _shown(value: float) -> str:
    if value >= 1e6:
        return f"{value / 1e6:.2f} M"
    if value >= 1e4:
        return f"{value / 1e3:.0f} k"
    return f"{value:.3g}"


def main() -> None:
    (DOCS / "benchmarks.md").write_text(page())
    draw(DOCS / PICTURE)
    print(f"docs/benchmarks.md and docs/{PICTURE}, from {len(results())} results")


if __name__ == "__main__":
    main()
