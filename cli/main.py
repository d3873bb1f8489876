"""The `kohort` command. Each subcommand is imported only when it is run."""

import os
import sys
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from importlib import import_module
from io import TextIOWrapper
from typing import TextIO

from kohort.cli.commands import CommandEntry, available
from kohort.cli.terminal import say
from kohort.common.errors import KohortError
from kohort.common.optional_libraries import needed


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line. Returns 0, 1 after an error of kohort or of a file, 2 after an error of usage."""
    if arguments is None and "_KOHORT_COMPLETE" in os.environ:
        from kohort.cli.completion import complete

        return complete()
    given = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in given
    given = [argument for argument in given if argument != "--debug"]
    _take_whatever_is_printed()
    try:
        code = _run(given)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader closed the pipe
        sys.stdout = _nowhere()
        return 1
    except (KohortError, OSError, ValueError) as error:  # ValueError: the library refuses an argument
        if debug:
            raise
        say(f"kohort: error: {_described(error)}", sys.stderr)
        _explain_undecoded(given)
        if isinstance(error, OSError):
            sys.stdout = _nowhere()  # a full disk would be reported again at the interpreter's end
        return 1
    except KeyboardInterrupt:
        return 130
    return code


def _described(error: Exception) -> str:
    """The text of an error. That of the system has no number, and its file as the place."""
    if isinstance(error, OSError) and error.strerror:
        return str(KohortError(error.strerror, path=error.filename))
    return str(error)


def _explain_undecoded(given: list[str]) -> None:
    """Print the cause of an error that comes from an argument with undecoded bytes, as in the locale C."""
    encoding = sys.getfilesystemencoding()
    for argument in given:
        if any(0xDC80 <= ord(character) <= 0xDCFF for character in argument):
            hint = "" if encoding == "utf-8" else "; set PYTHONUTF8=1"
            say(f"kohort: the argument {argument!r} is not {encoding}{hint}", sys.stderr)


def _take_whatever_is_printed() -> None:
    """Make output work with closed streams (`>&-`) and characters that the terminal's encoding lacks."""
    sys.stdout, sys.stderr = sys.stdout or _nowhere(), sys.stderr or _nowhere()
    sys.stdin = sys.stdin or open(os.devnull, encoding="utf-8")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper) and stream.errors in ("strict", "surrogateescape"):  # the latter: locale C
            stream.reconfigure(errors="backslashreplace")


def _nowhere() -> TextIO:
    return open(os.devnull, "w", encoding="utf-8")


def _run(given: list[str]) -> int:
    if not given or given[0] in ("-h", "--help"):
        print(_help())
        return 0
    if given[0] == "--version":
        from kohort import __version__

        print(f"kohort {__version__}")
        return 0
    name, *rest = given
    commands = available()
    if name not in commands:
        near = get_close_matches(name, commands, n=1)
        guess = f"did you mean {near[0]!r}?" if near else "run `kohort --help` for a list"
        print(f"kohort: error: no command {name!r}; {guess}", file=sys.stderr)
        return 2
    app = _load(commands[name], name)
    try:
        app(args=rest, prog_name=f"kohort {name}", help_option_names=["--help", "-h"])
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0


def _help() -> str:
    commands = available()
    width = max(map(len, commands)) + 2
    lines = "\n".join(f"  {name:{width}}{entry.about}" for name, entry in commands.items())
    return f"""usage: kohort COMMAND ...

Kafka's consumer-group protocol from the wire up.

{lines}

`kohort COMMAND --help` shows the options. --version prints the version.
--debug keeps tracebacks in any command."""


def _load(entry: CommandEntry, name: str) -> Callable[..., object]:
    """Return the typer app of a command. The error for a missing package names the extra."""
    with needed(f"`kohort {name}`", f"'kohort[{entry.extra}]'"):
        app: Callable[..., object] = import_module(entry.module).app
    return app


if __name__ == "__main__":
    sys.exit(main())
