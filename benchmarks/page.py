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
OLDER = f"{OURS} at "


def page() -> str:
    """The page's Markdown: a table for each benchmark, with kohort first and its ratio to each other client."""
    compared = {result["benchmark"]: [one for one in of(result) if is_peer(one.peer)] for result in results()}
    worse = {name: [one for one in found if one.times_better < 1] for name, found in compared.items()}
    parts = [
        "# Benchmarks",
        "Made by `python -m benchmarks.page` from the results of `make bench`. kohort and the other clients run in one "
        "run on one machine, each client with its best settings. A ratio is computed from two rows of one unit. Its "
        "row has `slower` or `more` if kohort is worse. Ratios are similar on other machines; absolute values are not.",
        f"kohort is worse than another client in {_total(worse)} of {_total(compared)} results:",
        "\n".join(line for name, found in compared.items() for line in _losses(name, worse[name], len(found))),
        f"![How many times better]({PICTURE})",
    ]
    for result in results():
        machine = result["machine"]
        module = import_module(f"benchmarks.{result['benchmark']}")
        parts += [
            f"## {result['benchmark']}",
            *_described(module.__doc__ or ""),
            *([f"![{result['benchmark']}]({_own_picture(result)})"] if hasattr(module, "draw") else []),
            f"`{result['command']}`, {machine['date']}, {machine['cores']} cores of {machine['cpu']}, "
            f"Python {machine['python']}{_loaded(result)}.",
            "\n".join(_table(result)),
        ]
    return "\n\n".join(parts) + "\n"


def _total(found: dict[str, list[Ratio]]) -> int:
    return sum(map(len, found.values()))


def _losses(name: str, worse: list[Ratio], results: int) -> Iterator[str]:
    """A benchmark's item of the list at the top of the page, and its results in which kohort is worse."""
    yield f"- [{name}](#{name}): {len(worse)} of {results}"
    for one in worse:
        yield f"    - {one.work}: {one} than {one.peer} ({one.unit})"


def _loaded(result: dict[str, Any]) -> str:
    """The machine's load, which results of older runs do not have."""
    load = result.get("load")
    return f", load {load['least']} to {load['most']}" if load else ""


def results() -> list[dict[str, Any]]:
    """All kept results, by name."""
    return [json.loads(path.read_text()) for path in sorted(RESULTS.glob("*.json"))]


def of(result: dict[str, Any]) -> list[Ratio]:
    """The ratios of a result, from its rows."""
    return ratios([Row(**row) for row in result["rows"]])


def is_peer(client: str) -> bool:
    """True for another client, False for an older kohort, and for a bound that no client can pass."""
    return not client.startswith((*BOUNDS, OLDER))


def drawn() -> dict[str, list[float]]:
    """The ratios of the picture, by benchmark and client."""
    lines: dict[str, list[float]] = {}
    for result in results():
        for one in of(result):
            if is_peer(one.peer) and one.times_better:  # 0 has no logarithm
                lines.setdefault(f"{result['benchmark']}  |  {one.peer}", []).append(one.times_better)
    return lines


def draw(path: Path) -> None:
    """Draw a line for each benchmark and client, with a dot for each result, on a logarithmic scale."""
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


def _own_picture(result: dict[str, Any]) -> str:
    return f"benchmarks-{result['benchmark']}.png"


def _described(docstring: str) -> list[str]:
    """The paragraphs of a benchmark's docstring, which say how it measures. Commands are left out."""
    paragraphs = docstring.strip().split("\n\n")
    return [" ".join(one.split()) for one in paragraphs if not one.startswith(" ")]


def _table(result: dict[str, Any]) -> Iterator[str]:
    better = {(one.work, one.peer, one.unit): one for one in of(result)}
    yield "| work | client | result | kohort is |"
    yield "| --- | --- | ---: | ---: |"
    for row in result["rows"]:
        ratio = better.get((row["work"], row["client"], row["unit"]), "")
        client = f"**{row['client']}**" if row["client"] == OURS else row["client"]
        note = f" ({row['note']})" if row["note"] else ""
        yield f"| {row['work']} | {client}{note} | {_shown(row['value'])} {row['unit']} | {ratio} |"


def _shown(value: float) -> str:
    if value >= 1e6:
        return f"{value / 1e6:.2f} M"
    if value >= 1e4:
        return f"{value / 1e3:.0f} k"
    if value >= 1e3:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def main() -> None:
    (DOCS / "benchmarks.md").write_text(page())
    draw(DOCS / PICTURE)
    for result in results():
        module = import_module(f"benchmarks.{result['benchmark']}")
        if hasattr(module, "draw"):
            module.draw(result["rows"], DOCS / _own_picture(result))
    print(f"docs/benchmarks.md and docs/{PICTURE}, from {len(results())} results")


if __name__ == "__main__":
    main()
