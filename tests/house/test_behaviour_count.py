"""The count of proven behaviours counts what passed, and a mark that names no behaviour stops the run."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.behaviours import BEHAVIOURS, read

TESTS = Path(__file__).parents[1]


def run(folder: Path, source: str, *options: str) -> "subprocess.CompletedProcess[str]":
    """pytest on one file, with this suite's conftest as a plugin."""
    (folder / "test_sample.py").write_text("import pytest\n" + source)
    settings = f"--override-ini=pythonpath={TESTS}"
    command = [sys.executable, "-m", "pytest", "-p", "conftest", "-p", "no:cacheprovider", settings, *options]
    command += ["-c", str(TESTS.parent / "pyproject.toml"), f"--rootdir={folder}", str(folder / "test_sample.py")]
    environment = {**os.environ, "PYTHONPATH": str(TESTS)}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=120)


def test_only_what_passed_is_counted(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        "@pytest.mark.proves('B-01', 'B-02')\ndef test_a(): pass\n"
        "@pytest.mark.proves('B-02')\ndef test_b(): assert False\n"
        "@pytest.mark.proves('B-03')\ndef test_c(): pytest.skip('no')\n",
        "--behaviours",
    )
    assert "proven 1 of 322" in done.stdout
    assert "B 1/48" in done.stdout
    assert "no passing test: B-02 B-03 B-04" in done.stdout


def test_unknown_behaviour_stops_the_run(tmp_path: Path) -> None:
    done = run(tmp_path, "@pytest.mark.proves('B-99')\ndef test_a(): pass\n")
    assert done.returncode != 0
    assert "'B-99'" in done.stdout + done.stderr
    assert "1 passed" not in done.stdout


@pytest.mark.parametrize("page", ["| B-01 | |\n", "| B-01 |\n", "| B-01 | one two three |\n| B-01 | four five six |\n"])
def test_an_id_without_a_text_or_there_twice_is_refused(page: str) -> None:
    with pytest.raises(ValueError, match="B-01"):
        read(page)


def test_ids_in_the_source_have_a_text() -> None:
    house = TESTS.parent / "src" / "kohort"
    pages = [TESTS.parent / page for page in ("SECURITY.md", "DESIGN.md", "docs/records.md")]
    marked = re.compile(r"\b((?:CR|SH|[BEFGKSX])-\d\d)\b")
    sources = [*house.glob("*/**/*.py"), *house.glob("*/**/*.pyx"), *pages]
    named = {(identity, source.name) for source in sources for identity in marked.findall(source.read_text())}
    assert len(named) > 20
    assert [(identity, name) for identity, name in sorted(named) if identity not in BEHAVIOURS] == []
