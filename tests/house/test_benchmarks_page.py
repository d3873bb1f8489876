"""docs/benchmarks.md, its picture and the results that are kept say the same, and each ratio is of one unit."""

import re
from typing import Any

import pytest

from benchmarks.page import DOCS, drawn, is_peer, page, results
from benchmarks.report import OURS, Ratio, Row, ratios

RESULTS = pytest.mark.parametrize("result", results(), ids=lambda result: result["benchmark"])


def test_the_page_is_made_from_the_results_that_are_kept() -> None:
    assert (DOCS / "benchmarks.md").read_text() == page()


@RESULTS
def test_the_ratios_of_a_result_are_those_of_its_rows(result: dict[str, Any]) -> None:
    assert [Ratio(**one) for one in result["ratios"]] == ratios([Row(**row) for row in result["rows"]])


@RESULTS
def test_a_ratio_in_the_table_divides_the_two_figures_of_its_own_unit(result: dict[str, Any]) -> None:
    section = page().partition(f"\n## {result['benchmark']}\n")[2].partition("\n## ")[0]
    cells = [line.strip("| ").rsplit(" | ", 3) for line in section.splitlines() if line.startswith("| ")][2:]
    assert len(cells) == len(result["rows"])
    for row, (_work, _who, _measured, reported) in zip(result["rows"], (_padded(one) for one in cells), strict=True):
        mine = [
            one["value"]
            for one in result["rows"]
            if (one["work"], one["unit"], one["client"]) == (row["work"], row["unit"], OURS)
        ]
        if row["client"] == OURS or not mine:
            assert reported == "", row
            continue
        (ours,) = mine
        more_is_better = row["unit"] in ("records/s", "times")
        is_worse = ours < row["value"] if more_is_better else ours > row["value"]
        assert reported.endswith(("slower", "more", "lower")) == is_worse, (row, reported)
        if number := re.match(r"([\d.]+)x ", reported):
            higher, lower = max(ours, row["value"]), min(ours, row["value"])
            assert float(number[1]) == pytest.approx(higher / lower, rel=0.02, abs=0.01), (row, reported)


def _padded(cells: list[str]) -> list[str]:
    """A row's cells; the last one is empty where the row has no ratio."""
    return cells if len(cells) == 4 else [*" | ".join(cells).removesuffix(" |").rsplit(" | ", 2), ""]


def test_the_picture_shows_the_ratios_of_the_table() -> None:
    reported = {
        f"{result['benchmark']}  |  {one['peer']}"
        for result in results()
        for one in result["ratios"]
        if is_peer(one["peer"]) and one["times_better"]
    }
    shown = drawn()
    assert shown.keys() == reported
    for result in results():
        for name in {one["peer"] for one in result["ratios"] if is_peer(one["peer"])}:
            kept = [one["times_better"] for one in result["ratios"] if one["peer"] == name and one["times_better"]]
            assert shown[f"{result['benchmark']}  |  {name}"] == kept


def test_figures_of_one_work_in_two_units_are_not_mixed() -> None:
    rows = [
        Row("until stable", OURS, 3.0, "s"),
        Row("until stable", OURS, 9.0, "threads"),
        Row("until stable", "peer", 1.5, "s"),
        Row("until stable", "peer", 900.0, "threads"),
        Row("rate", OURS, 10.0, "records/s"),
        Row("rate", "peer", 20.0, "records/s"),
        Row("growth", OURS, 4.0, "kB"),
        Row("growth", "peer", 0.0, "kB"),
    ]
    assert [(one.unit, str(one)) for one in ratios(rows)] == [
        ("s", "2.00x slower"),
        ("threads", "100.00x less"),
        ("records/s", "2.00x slower"),
        ("kB", "more"),
    ]


def test_a_unit_without_a_direction_and_two_rows_of_ours_are_refused() -> None:
    with pytest.raises(KeyError):
        ratios([Row("work", OURS, 1.0, "parsecs"), Row("work", "peer", 1.0, "parsecs")])
    with pytest.raises(ValueError, match="2 rows of ours"):
        ratios([Row("work", OURS, 1.0, "s"), Row("work", OURS, 2.0, "s", "noted"), Row("work", "peer", 1.0, "s")])
