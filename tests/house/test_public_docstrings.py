"""Public calls with arguments: each has a docstring, its times and sizes have units, and errors are named."""

import inspect
import re
import sys
import tomllib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs" / "reference"
QUANTITY = re.compile(r"timeout|interval|delay|backoff|duration|bytes|linger|lease|age\b")
UNIT = re.compile(r"_(s|ms|bytes)(_|$)")
ERRORS = re.compile(r"\b[Rr]aises?\b|\b[Rr]aised\b|Error\b|\braise\b")


def listed() -> Iterator[tuple[str, Any]]:
    """(name, object) of each entry of the reference."""
    for page in sorted(REFERENCE.glob("*.md")):
        for name in re.findall(r"^::: (\S+)", page.read_text(), re.MULTILINE):
            module, _, attribute = name.rpartition(".")
            yield name, getattr(import_module(module), attribute)


def calls() -> Iterator[tuple[str, Any, str]]:
    """(name, function, docstring of its class) of each public call with arguments."""
    for name, one in listed():
        if inspect.isfunction(one):
            yield name, one, ""
        elif inspect.isclass(one):
            for method, function in inspect.getmembers(one, inspect.isfunction):
                ours = function.__module__.startswith("kohort.")
                if ours and not method.startswith("_") and len(inspect.signature(function).parameters) > 1:
                    yield f"{name}.{method}", function, inspect.getdoc(one) or ""


def test_each_call_has_a_docstring() -> None:
    found = list(calls())
    assert len(found) > 100
    assert [name for name, function, _ in found if not inspect.getdoc(function)] == []


def test_times_and_sizes_have_units() -> None:
    without = [
        f"{name}({argument})"
        for name, function, _ in calls()
        for argument, parameter in inspect.signature(function).parameters.items()
        if QUANTITY.search(argument) and not UNIT.search(argument) and "bytes" not in str(parameter.annotation)
    ]
    assert without == []


def test_errors_are_named() -> None:
    without = [name for name, function, whole in calls() if not ERRORS.search(f"{inspect.getdoc(function)} {whole}")]
    assert without == []


def checked_by_ruff() -> Iterator[str]:
    """The modules of a pattern such as `!{folder/{one,two}.py,other.py}`, outside which ruff wants no docstrings."""
    exempt = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["ruff"]["lint"]["per-file-ignores"]
    (pattern,) = [pattern for pattern, rules in exempt.items() if rules == ["D1"]]
    for entry in re.findall(r"[^,{]+(?:\{[^}]*\})?[^,{}]*", pattern.removeprefix("!{").removesuffix("}")):
        before, names, behind = re.split(r"[{}]", entry) if "{" in entry else (entry, "", "")
        yield from (f"{before}{name}{behind}" for name in names.split(","))


def test_ruff_checks_the_docstrings_of_each_module_of_the_reference() -> None:
    """Compiled modules aside, which ruff does not read."""
    modules = {one.__module__ for _, one in listed() if inspect.isclass(one) or inspect.isfunction(one)}
    sources = {Path(str(sys.modules[module].__file__)) for module in modules}
    public = {str(source.relative_to(ROOT / "src/kohort")) for source in sources if source.suffix == ".py"}
    assert len(public) > 30
    assert public - set(checked_by_ruff()) == set()
