"""The slopes of `python -m benchmarks wide`, and its picture from the rows that are kept."""

from pathlib import Path
from typing import Any

import pytest

from benchmarks.wide import SLOPE, draw, parser, slope


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0, 2.0])
def test_the_slope_of_a_power_is_its_exponent(power: float) -> None:
    assert slope([(size, 7 * size**power) for size in (10, 100, 1_000, 10_000)]) == pytest.approx(power)


def test_a_cost_of_nothing_has_a_slope() -> None:
    assert slope([(10, 0.0), (100, 0.0)]) == 0.0


def test_the_picture_has_a_panel_for_each_axis_and_our_lines_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from matplotlib.axes import Axes

    drawn: list[tuple[list[int], list[float], str]] = []
    monkeypatch.setattr(Axes, "plot", lambda _axes, xs, ys, label, **_: drawn.append((xs, ys, label)))
    monkeypatch.setattr(Axes, "legend", lambda _axes, **_: None)

    def row(work: str, value: float, unit: str, client: str = "kohort") -> dict[str, Any]:
        return {"work": work, "client": client, "value": value, "unit": unit}

    rows = [
        row("a poll, 10 partitions", 1.0, "us"),
        row("a poll, 1,000 partitions", 3.0, "us"),
        row("a poll, 1,000 partitions", 9.0, "us", "another"),
        row(f"a poll, partitions{SLOPE}", 0.25, "slope"),
        row("a poll, 1 connections", 2.0, "us"),
        row("a poll, 3 connections", 2.0, "us"),
        row(f"a poll, connections{SLOPE}", 0.0, "slope"),
    ]
    draw(rows, tmp_path / "wide.png")
    assert (tmp_path / "wide.png").stat().st_size > 0
    assert drawn == [([10, 1000], [1.0, 3.0], "a poll (us): 0.25"), ([1, 3], [2.0, 2.0], "a poll (us): 0.00")]


def test_a_short_run_has_its_sizes() -> None:
    options = parser().parse_args(["--partitions", "10", "1000", "--only", "partitions", "--seconds", "2"])
    assert (options.partitions, options.only, options.seconds) == ([10, 1000], ["partitions"], 2.0)
