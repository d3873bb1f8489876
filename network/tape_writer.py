"""Keeps every frame of a consumer on a wire tape: a file of JSON lines, without secrets."""

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, TextIO

from kohort.common.log_context import logger
from kohort.common.private_files import opener
from kohort.network.errors import ConfigError
from kohort.protocol.tape import Direction, Taped, line

if sys.platform == "win32":  # a lock there would keep readers out

    def _lock(_file: TextIO) -> bool:
        return True

    def _unlock(_file: TextIO) -> None: ...

else:
    from kohort.common.file_lock import try_lock, unlock

    def _lock(file: TextIO) -> bool:
        """False if another client has the file locked. A file system without locks is not checked."""
        try:
            return try_lock(file)
        except OSError:
            return True

    def _unlock(file: TextIO) -> None:
        with suppress(OSError):
            unlock(file)


log = logger("kohort.connections")

_BEGIN: Final = b"{"  # of each line of a tape

Keep = Callable[[Direction, str, int, int, bytes, float], None]
"""keep(direction, api, version, correlation_id, frame with its length, now): what a connection calls for each frame."""


class Tape:
    """Appends to `path`. Used by the driver's thread only.

    Lines are written whole. The tape of a killed process therefore ends with a line or one incomplete line, and on a
    full disk it ends there. Frames of the next process begin on a line of their own. `started`: monotonic seconds that
    count as 0. Raises ConfigError for a path that cannot be written, for a file that is not a tape, and for a tape that
    another client writes. A replay cannot separate the frames of two. Windows has no such check.
    """

    def __init__(self, path: str, started: float) -> None:
        self._started = started
        self._connections = 0
        self._full = False
        try:
            self._before = _line_break(Path(path))
            self._file: TextIO = open(path, "a", buffering=1, opener=opener)  # noqa: SIM115 -- open as long as the driver
        except OSError as error:
            raise ConfigError(f"the tape cannot be written: {error.strerror}", setting="tape", path=path) from None
        if Path(path).is_file() and not _lock(self._file):  # a device may be the tape of several clients
            self._file.close()
            hint = "use a file of its own for each client"
            raise ConfigError("another client writes this tape", hint=hint, setting="tape", path=path)

    def connection(self, node: str) -> Keep:
        """The function that one connection to `node` calls for each of its frames."""
        self._connections += 1
        number = self._connections

        def keep(direction: Direction, api: str, version: int, correlation_id: int, frame: bytes, now: float) -> None:
            taped = Taped(now - self._started, node, number, direction, api, version, correlation_id, frame)
            self._write(line(taped))

        return keep

    def close(self) -> None:
        if not self._file.closed:
            _unlock(self._file)
        with suppress(OSError):  # the rest after a full disk is tried again, without another message
            self._file.close()

    def _write(self, text: str) -> None:
        if self._full:
            return
        try:
            self._file.write(self._before + text)
            self._before = ""
        except OSError as error:  # a consumer is worth more than its tape
            self._full = True
            log.warning("the tape ends here, it cannot be written: %s", error.strerror)


def _line_break(path: Path) -> str:
    """A line break if the file ends with an incomplete line, else "". Raises ConfigError if it is not a tape."""
    if not path.is_file():  # a pipe cannot be looked at
        return ""
    with path.open("rb") as file:
        if file.read(1) not in (b"", _BEGIN):
            raise ConfigError("the file is not a tape: nothing is appended", setting="tape", path=str(path))
        if not file.seek(0, os.SEEK_END):
            return ""
        file.seek(-1, os.SEEK_END)
        return "" if file.read(1) == b"\n" else "\n"
