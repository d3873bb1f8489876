"""`kohort completion SHELL`: the script that completes commands and options, and what it asks at each TAB.

`kohort` is a table of apps that are imported when they are asked for; typer completes one app. So at a TAB one is made
of the table, in which only the command that is typed is more than its name.
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
    """Print what makes a shell complete `kohort` at TAB.

    Example: kohort completion bash >> ~/.bashrc
    """
    from typer.completion import get_completion_script  # type: ignore[attr-defined]  # where all its versions have it

    if shell not in SHELLS:
        raise typer.BadParameter(f"{shell!r} is none of {', '.join(SHELLS)}", param_hint="SHELL")
    print(get_completion_script(prog_name="kohort", complete_var=VARIABLE, shell=shell))


def complete(environment: Mapping[str, str] = os.environ) -> int:
    """Answer a TAB: the words are in the environment, as the shell's script has put them there."""
    words = (environment.get("COMP_WORDS") or environment.get("_TYPER_COMPLETE_ARGS") or "").split()
    try:
        _root(words[1] if len(words) > 1 else "")(args=[], prog_name="kohort", complete_var=VARIABLE)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0
    return 0


def _root(typed: str) -> typer.Typer:
    """All commands as one app; the one that is typed with all it has."""
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
