"""A bar where someone watches a terminal and rich is installed; else one plain line a phase, on standard error."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Progress(Protocol):
    """Receives the progress of a download."""

    def update(self, phase: str, done: int, total: int | None) -> None: ...


class PlainProgress:
    """Prints when the phase changes, and at the end of a counted one."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._phase = ""

    def update(self, phase: str, done: int, total: int | None) -> None:
        if phase != self._phase:
            self._phase = phase
            print(f"{self._title}: {phase}", file=sys.stderr, flush=True)
        elif total is not None and done == total:
            print(f"{self._title}: {phase}, {done} of {total}", file=sys.stderr, flush=True)


@contextmanager
def progress(title: str) -> Iterator[Progress]:
    """A Progress for one fetch."""
    try:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as RichBars
    except ImportError:
        yield PlainProgress(title)
        return
    console = Console(stderr=True)
    if not console.is_terminal:
        yield PlainProgress(title)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with RichBars(*columns, console=console, transient=True) as bars:
        task = bars.add_task(title, total=None)

        class RichProgress:
            def update(self, phase: str, done: int, total: int | None) -> None:
                bars.update(task, description=f"{title}: {phase}", completed=done, total=total)

        yield RichProgress()
