"""Libraries that kohort uses and does not install by itself."""

from collections.abc import Iterator
from contextlib import contextmanager

from kohort.common.errors import KohortError


@contextmanager
def needed(what: str, install: str, kind: type[KohortError] = KohortError) -> Iterator[None]:
    """Import libraries that `what` needs in the block. Raises `kind` for a missing one. pip takes `install`."""
    try:
        yield
    except ImportError as error:
        missing = (error.name or str(error)).partition(".")[0]  # not a module within the library
        raise kind(f"{what} needs {missing}, which is not installed", hint=f"pip install {install}") from error
