"""Errors of files that a command reads or writes."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kohort.common.errors import KohortError


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Raise KohortError in place of an OSError of the block, which reads `path`."""
    with _named("the file cannot be read", path):
        yield


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Raise KohortError in place of an OSError of the block, which writes `path`."""
    with _named("the file cannot be written", path):
        yield


@contextmanager
def _named(problem: str, path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise KohortError(f"{problem}: {error.strerror or error}", path=path) from None
