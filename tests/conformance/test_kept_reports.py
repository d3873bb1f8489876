"""The reports and numbers in docs/conformance agree with the suite as it is."""

import gzip
import json
import re
import runpy
from pathlib import Path
from typing import Any

import pytest

from kohort.conformance.catalogue import CHECKS
from kohort.conformance.check import Selection

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "conformance" / "README.md"
JUDGE: dict[str, Any] = runpy.run_path(str(PAGE.with_name("judge.py")))


def kept(file: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(gzip.decompress(PAGE.with_name(f"{file}.json.gz").read_bytes()))
    return found


def option(options: tuple[str, ...], name: str) -> str:
    return options[options.index(name) + 1] if name in options else ""


def test_the_page_has_the_numbers_of_the_suite_and_of_the_reports() -> None:
    page = PAGE.read_text()
    assert JUDGE["renewed"](page) == page
    assert f"runs {len(CHECKS)} checks of a broker's group APIs" in page


def test_the_number_of_checks_is_the_same_wherever_it_is_printed() -> None:
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        printed = {int(number) for number in re.findall(r"(\d+) checks of a broker's group APIs", path.read_text())}
        assert printed <= {len(CHECKS)}, path
    assert f"{len(CHECKS)} checks of a broker's group APIs" in (ROOT / "README.md").read_text()


@pytest.mark.parametrize("subject", JUDGE["SUBJECTS"], ids=lambda subject: subject.file)
def test_a_kept_report_has_every_check_that_its_command_requests(subject: Any) -> None:
    options = subject.options
    selection = Selection.of(option(options, "--only"), CHECKS, option(options, "--skip"))
    wanted = {check.id for check in CHECKS if selection.takes(check, -1)}
    report = kept(subject.file)
    found = {result["check"] for result in report["results"]}
    # The mock cluster's process ends in the middle of the run, as its page says.
    assert found == wanted or (found < wanted and not subject.start and report["ended_early"])


@pytest.mark.parametrize(
    "subject", [each for each in JUDGE["SUBJECTS"] if each.start], ids=lambda subject: subject.file
)
def test_apache_kafka_fails_and_blocks_no_check(subject: Any) -> None:
    """N1b and R9q are deviations, as the profile says. Nothing else differs, is left behind or ended early."""
    report = kept(subject.file)
    assert (report["counts"]["fail"], report["counts"]["blocked"], report["ended_early"]) == (0, 0, "")
    assert {result["check"] for result in report["results"] if result["verdict"] == "deviation"} <= {"N1b", "R9q"}
