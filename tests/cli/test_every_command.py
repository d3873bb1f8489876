"""Rules for every command: help with an example, and JSON for programs."""

import inspect
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any, get_args, get_type_hints

import pytest
import typer

from kohort.cli.commands import available
from kohort.cli.main import main

# The script that it prints is for a shell; its story has a page of its own.
WITHOUT_JSON = {"completion", "demo"}


def walk(app: typer.Typer, path: list[str]) -> Iterator[tuple[str, Callable[..., Any]]]:
    """(what is typed, its function) of all that an app can do."""
    callback = app.registered_callback.callback if app.registered_callback is not None else None
    if callback is not None:
        yield " ".join(path), callback
    single = callback is None and not app.registered_groups and len(app.registered_commands) == 1
    for command in app.registered_commands:
        assert command.callback is not None
        name = command.name or command.callback.__name__.replace("_", "-")
        yield " ".join(path if single else [*path, name]), command.callback
    for group in app.registered_groups:
        assert group.typer_instance is not None
        yield from walk(group.typer_instance, [*path, str(group.name)])


def commands() -> Iterator[tuple[str, Callable[..., Any]]]:
    for name, entry in available().items():
        yield from walk(import_module(entry.module).app, [name])


ALL = dict(commands())


def test_there_are_as_many_as_were_once_counted() -> None:
    assert len(ALL) >= 37
    assert {"group lag", "group offsets reset", "doctor", "consume", "topic create"} <= set(ALL)


@pytest.mark.parametrize("name", ALL)
def test_help_is_whole_at_80_columns_with_an_example_of_just_that_command(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main([*name.split(), "--help"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "…" not in shown
    assert "Usage: kohort" in shown
    assert f"kohort {name}" in shown.partition("Example:")[2]
    assert main([*name.split(), "-h"]) == 0
    assert " ".join(capsys.readouterr().out.split()) == shown


@pytest.mark.parametrize("name", [name for name in ALL if name not in WITHOUT_JSON])
def test_there_is_json(name: str) -> None:
    assert "as_json" in inspect.signature(ALL[name]).parameters


def fractions() -> Iterator[tuple[str, str]]:
    """(command, option) of each option that is a number with a fraction."""
    for name, function in ALL.items():
        for parameter, hint in get_type_hints(function, include_extras=True).items():
            kind, *more = get_args(hint) or (hint,)
            if kind in (float, float | None):
                named = more[0].default  # Typer takes the option's first name for its default
                yield name, named if isinstance(named, str) else f"--{parameter.replace('_', '-')}"


@pytest.mark.parametrize("number", ["nan", "inf", "1e400"])
@pytest.mark.parametrize(("name", "option"), sorted(fractions()))
def test_a_number_that_is_not_finite_is_a_usage_error(
    name: str, option: str, number: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*name.split(), option, number]) == 2
    assert f"'{option}'" in capsys.readouterr().err


def test_there_are_options_with_fractions() -> None:
    assert ("produce", "--rate") in set(fractions())
    assert len(set(fractions())) >= 7
