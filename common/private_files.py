"""Files and folders that only their owner reads, created so that no link of another user is followed."""

import os
import stat
from contextlib import suppress
from typing import TYPE_CHECKING

from kohort.common.errors import KohortError

if TYPE_CHECKING:
    from pathlib import Path  # a consumer that starts has no use for it

_NO_LINK = getattr(os, "O_NOFOLLOW", 0)


class UnsafeFolder(KohortError):
    """A folder in a shared place belongs to another user, is a link, or is open to others."""


def private_folder(path: "Path", *, hint: str) -> "Path":
    """`path` as a folder of mode 0700 that belongs to this user; it is made if it is missing.

    Raises UnsafeFolder with `hint`, and OSError as `mkdir` does.
    """
    with suppress(FileExistsError):
        path.mkdir(mode=0o700)
    found = path.lstat()
    ours = not hasattr(os, "geteuid") or found.st_uid == os.geteuid()
    if not stat.S_ISDIR(found.st_mode) or not ours:
        raise UnsafeFolder("a folder for private files belongs to another user or is a link", hint=hint, path=path)
    if hasattr(os, "geteuid") and found.st_mode & 0o077:
        raise UnsafeFolder(
            f"a folder for private files is open to other users (mode {stat.S_IMODE(found.st_mode):04o})",
            hint=hint,
            path=path,
        )
    return path


def create(path: "Path", data: bytes) -> None:
    """A new file of mode 0600 that holds `data`. Raises FileExistsError, also for a link, and OSError."""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_LINK, 0o600), "wb") as file:
        file.write(data)


def opener(path: str, flags: int) -> int:
    """For `open(..., opener=opener)`: a file that has to be made gets mode 0600."""
    return os.open(path, flags, 0o600)


def is_open_to_others(path: "str | Path") -> bool:
    """True if the file's mode lets users besides the owner read it."""
    try:
        return hasattr(os, "geteuid") and bool(os.stat(path).st_mode & 0o044)
    except OSError:
        return False
