"""Libraries that kohort uses and does not install by itself."""

from collections.abc import Iterator
from contextlib import contextmanager

from kohort.common.errors import KohortError


@contextmanager
def needed(what: str, install: str) -> Iterator[None]:
    """Import libraries that `what` needs in the block. A missing one is a KohortError. pip takes `install`."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise KohortError(
            f"{what} needs {error.name}, which is not installed", hint=f"pip install {install}"
        ) from error
