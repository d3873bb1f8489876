"""tests/slow.toml names tests that exist, each with its reason; workers of a run begin with them, in groups."""

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

TESTS = Path(__file__).parents[1]


def test_each_line_is_about_a_test_that_exists() -> None:
    there = {
        f"{path.name}::{node.name}"
        for path in TESTS.rglob("test_*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    table = tomllib.loads((TESTS / "slow.toml").read_text())
    named = {test: about for group in table.values() for test, about in group.items()}
    assert set(named) - there == set()
    assert all(about["s"] > 0 and about["waits"] for about in named.values())


SAMPLE = """
import os, pytest
@pytest.fixture(scope="session")
def java(): return os.getpid()
@pytest.fixture(scope="module")
def server(): return os.getpid()
@pytest.mark.parametrize("n", range(12))
def test_alone(n): print("RAN alone", os.getpid(), n)
@pytest.mark.parametrize("n", range(4))
def test_of_java(java, n): print("RAN java", os.getpid(), n)
@pytest.mark.parametrize("n", range(4))
def test_of_file(server, n): print("RAN file", os.getpid(), n)
@pytest.mark.full
def test_too_long(): print("RAN full", os.getpid(), 0)
"""


def two_workers(folder: Path, *options: str) -> "subprocess.CompletedProcess[str]":
    """The tests of `folder`, run as `make test` runs the suite, on two workers unless `options` say otherwise."""
    as_make_does = ["-n", "2", "--dist", "loadgroup", "--no-loadscope-reorder", f"--rootdir={folder}"]
    command = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-p", "no:cacheprovider", *as_make_does]
    command += ["-c", str(TESTS.parent / "pyproject.toml"), *options]
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=TESTS.parent, timeout=300)


def ran(folder: Path, *options: str) -> dict[str, list[tuple[int, int]]]:
    """(process, number) of each test that ran, by its kind, as two workers print them."""
    (folder / "test_sample.py").write_text(SAMPLE)
    done = two_workers(folder, "-rP", *options, str(folder / "test_sample.py"))
    found: dict[str, list[tuple[int, int]]] = {}
    for line in done.stdout.splitlines():
        if line.startswith("RAN "):
            _, kind, process, number = line.split()
            found.setdefault(kind, []).append((int(process), int(number)))
    return found


def test_tests_that_share_a_server_share_a_worker(tmp_path: Path) -> None:
    found = ran(tmp_path)
    assert {kind: len(tests) for kind, tests in found.items()} == {"alone": 12, "java": 4, "file": 4}
    assert len({process for process, _ in found["java"]}) == 1
    assert len({process for process, _ in found["file"]}) == 1
    assert len({process for tests in found.values() for process, _ in tests}) == 2


def test_what_is_marked_full_runs_with_full_only(tmp_path: Path) -> None:
    assert len(ran(tmp_path, "--full", "-m", "full")["full"]) == 1


def test_the_slowest_group_comes_first_and_keeps_its_order(tmp_path: Path) -> None:
    (tmp_path / "test_soak_runs.py").write_text(
        "def test_quick(): print('RAN', 1)\n"
        "def test_a_mixed_group_goes_over_to_kip_848_through_faults(): print('RAN', 2)\n"
    )
    (tmp_path / "test_a.py").write_text("def test_first(): print('RAN', 0)\n")
    done = two_workers(tmp_path, "-n", "1", "-v", str(tmp_path))
    order = [line.rpartition("::")[2].strip() for line in done.stdout.splitlines() if " PASSED " in line]
    assert order == ["test_a_mixed_group_goes_over_to_kip_848_through_faults", "test_first", "test_quick"]
