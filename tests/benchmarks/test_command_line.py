"""`python -m benchmarks NAME OPTIONS`: options go to the benchmark, and a short run replaces no kept result."""

import argparse
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

from benchmarks import __main__ as command
from benchmarks.light import parser
from benchmarks.report import Report


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    """A benchmark `fast` with one option and one row, and empty folders for results."""
    module = ModuleType("benchmarks.fast", "Fast.")
    options = argparse.ArgumentParser()
    options.add_argument("--runs", type=int, default=3)

    def run(report: Report) -> None:
        report.add("work", "kohort", report.options.runs, "s")

    vars(module).update(run=run, parser=lambda: options)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(command, "names", lambda: ["fast"])
    monkeypatch.setattr(command, "RESULTS", tmp_path / "results")
    monkeypatch.chdir(tmp_path)
    return module


def kept(folder: Path) -> tuple[str, float]:
    result = json.loads((folder / "fast.json").read_text())
    return result["command"], result["rows"][0]["value"]


def test_a_run_without_options_is_kept(benchmark: ModuleType, tmp_path: Path) -> None:
    assert command.main(["fast"]) == 0
    assert kept(tmp_path / "results") == ("python -m benchmarks fast", 3)


def test_a_run_with_options_is_kept_elsewhere_with_its_command(benchmark: ModuleType, tmp_path: Path) -> None:
    assert command.main(["fast", "--runs", "1"]) == 0
    assert kept(tmp_path / "out/benchmarks") == ("python -m benchmarks fast --runs 1", 1)
    assert not (tmp_path / "results").exists()


def test_a_run_with_options_replaces_the_kept_result_if_it_should(benchmark: ModuleType, tmp_path: Path) -> None:
    assert command.main(["fast", "--runs", "2", "--keep"]) == 0
    assert kept(tmp_path / "results") == ("python -m benchmarks fast --runs 2", 2)


def test_options_of_a_benchmark_without_options_and_unknown_names_are_refused(
    benchmark: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    del benchmark.parser
    assert command.main(["fast", "--runs", "1"]) == 2
    assert command.main(["slow"]) == 2
    assert capsys.readouterr().err == "fast has no options: --runs 1\nno benchmark called slow; there are: fast\n"


def test_a_short_run_of_trickles_has_its_options() -> None:
    options = parser().parse_args(["--rates", "200", "--partitions", "1", "--seconds", "5", "--runs", "1"])
    assert (options.rates, options.partitions, options.seconds, options.runs) == ([200], [1], 5.0, 1)
