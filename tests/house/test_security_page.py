"""SECURITY.md names the tests that prove its rows; each of them exists."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NAMED = re.compile(r"`(tests/[\w/]+\.py)((?:::\w+)+)`")


def rows(page: str) -> list[str]:
    """The lines of the table of threats, without its head."""
    lines = [line for line in page.splitlines() if line.startswith("|")]
    assert lines[0].endswith("| tests |")
    return lines[2:]


def missing(page: str) -> list[str]:
    """The tests that a page names and no file of tests defines, and the rows that name no test."""
    found = []
    for row in rows(page):
        named = NAMED.findall(row.rpartition(" | ")[2])
        found += [] if named else [row]
        for path, names in named:
            if not (ROOT / path).is_file() or not defines((ROOT / path).read_text(), names.split("::")[1:]):
                found.append(f"{path}{names}")
    return found


def defines(source: str, names: list[str]) -> bool:
    """True if a module has a function of the last name, inside classes of the others."""
    at: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef | None = ast.parse(source)
    for name in names:
        inner = at.body if isinstance(at, ast.Module | ast.ClassDef) else []
        kinds = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        at = next((one for one in inner if isinstance(one, kinds) and one.name == name), None)
    return isinstance(at, ast.FunctionDef | ast.AsyncFunctionDef) and at.name.startswith("test_")


def test_every_row_names_tests_that_exist() -> None:
    page = (ROOT / "SECURITY.md").read_text()
    assert len(rows(page)) >= 17
    assert missing(page) == []


@pytest.mark.parametrize(
    "shown",
    [
        "`tests/house/test_security_page.py::test_that_is_not_there`",
        "`tests/house/test_no_such_file.py::test_a`",
        "`tests/house/test_security_page.py::defines`",
        "`tests/house/test_security_page.py::defines::test_every_row_names_tests_that_exist`",
        "`tests/house`",
    ],
)
def test_a_row_that_names_none_is_found(shown: str) -> None:
    assert len(missing(f"| who | may try | what stops it | tests |\n|---|---|---|---|\n| a | b | c | {shown} |")) == 1
