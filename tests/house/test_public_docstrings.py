"""Public calls with arguments: each has a docstring, its times and sizes have units, and errors are named."""

import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from kohort.consistent_region import StateHandle, TransactionalSink
from kohort.consistent_region.store import Store, StoreTransaction

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
QUANTITY = re.compile(r"timeout|interval|delay|backoff|duration|bytes|linger|lease|age\b")
UNIT = re.compile(r"_(s|ms|bytes)(_|$)")
ERRORS = re.compile(r"\b[Rr]aises?\b|\b[Rr]aised\b|Error\b|\braise\b")
NO_ERRORS = 30
"""The most calls whose docstrings, and that of their class, name no error. The number may only become smaller."""

INTERFACES = (StateHandle, Store, StoreTransaction, TransactionalSink)
"""Interfaces for user code, whose own docstrings describe their methods."""


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
    without = {name.rpartition(".")[2]: name for name, function, _ in found if not inspect.getdoc(function)}
    assert {
        method: name for method, name in without.items() if not any(hasattr(one, method) for one in INTERFACES)
    } == {}


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
    assert len(without) <= NO_ERRORS, without
