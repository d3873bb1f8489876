"""The progress bar of commands that read or write records, and the options of both."""

import sys
import time
from collections.abc import Callable
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

UPDATE_S: Final = 0.1

Limit = Annotated[int | None, typer.Option("--limit", "-n", min=1, help="The maximum number of records.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress bar.")]


class RecordProgress:
    """A progress bar on stderr, advanced by the function that `with` gives. No bar where stderr is no terminal."""

    def __init__(self, total: int | None, *, shown: bool) -> None:
        self._bar: Progress | None = None
        self._count, self._due = 0, 0.0
        if shown and sys.stderr.isatty():
            words = (TextColumn("{task.completed} records"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
            self._bar = Progress(*words, console=Console(stderr=True), transient=True)
            self._task = self._bar.add_task("", total=total)

    def __enter__(self) -> Callable[[int], None]:
        if self._bar is not None:
            self._bar.start()
        return self._tick

    def _tick(self, count: int) -> None:
        self._count += count
        if self._bar is not None and time.monotonic() >= self._due:
            self._bar.update(self._task, completed=self._count)
            self._due = time.monotonic() + UPDATE_S

    def __exit__(self, *error: object) -> None:
        if self._bar is not None:
            self._bar.stop()
