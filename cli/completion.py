"""`kohort completion SHELL`: the completion script of a shell, and the completions at each TAB.

`kohort` is a table of apps that are imported on use, but typer completes a single app. So one app is made of the table
at each TAB. Only the typed command has its options in it.
"""

import os
from collections.abc import Mapping
from importlib import import_module
from typing import Annotated, Final

import typer

from kohort.cli.commands import available

app = typer.Typer(add_completion=False)

VARIABLE: Final = "_KOHORT_COMPLETE"
SHELLS: Final = ("bash", "zsh", "fish", "powershell")
Shell = Annotated[str, typer.Argument(help=f"{', '.join(SHELLS)}.", show_default=False)]


@app.command()
def completion(shell: Shell) -> None:
    """Print the completion script of a shell.

    Example: kohort completion bash >> ~/.bashrc
    """
    from typer.completion import get_completion_script  # type: ignore[attr-defined]  # at the path that all versions of typer have

    if shell not in SHELLS:
        raise typer.BadParameter(f"{shell!r} is not one of {', '.join(SHELLS)}", param_hint="SHELL")
    print(get_completion_script(prog_name="kohort", complete_var=VARIABLE, shell=shell))


def complete(environment: Mapping[str, str] = os.environ) -> int:
    """Print the completions at a TAB. The shell's script passes the words in the environment."""
    words = (environment.get("COMP_WORDS") or environment.get("_TYPER_COMPLETE_ARGS") or "").split()
    try:
        _root(words[1] if len(words) > 1 else "")(args=[], prog_name="kohort", complete_var=VARIABLE)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0
    return 0


def _root(typed: str) -> typer.Typer:
    """Return all commands as one app, the typed one with its options and subcommands."""
    root = typer.Typer()
    for name, entry in available().items():
        if name != typed:
            root.command(name, help=entry.about)(_nothing)
            continue
        one: typer.Typer = import_module(entry.module).app
        single = not one.registered_groups and one.registered_callback is None and len(one.registered_commands) == 1
        if single:
            root.command(name, help=entry.about)(one.registered_commands[0].callback or _nothing)
        else:
            root.add_typer(one, name=name, help=entry.about)
    return root


def _nothing() -> None: ...
