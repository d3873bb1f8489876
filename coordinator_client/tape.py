"""Keeps every frame of a consumer on a wire tape: a file of JSON lines, without secrets."""

from collections.abc import Callable
from pathlib import Path
from typing import TextIO

from kohort.coordinator_client.errors import ConfigError
from kohort.protocol.tape import Direction, Taped, line

Keep = Callable[[Direction, str, int, int, bytes, float], None]
"""keep(direction, api, version, correlation_id, frame with its length, now): what a connection calls for each frame."""


class Tape:
    """Appends to `path`; lines are written whole, so a tape of a process that was killed ends at a line's end or in one
    torn line. Used by the driver's thread alone. `started`: monotonic seconds that count as 0."""

    def __init__(self, path: str, started: float) -> None:
        self._started = started
        self._connections = 0
        try:
            self._file: TextIO = Path(path).open("a", buffering=1)  # noqa: SIM115 -- open as long as the driver
        except OSError as error:
            raise ConfigError(f"the tape cannot be written: {error.strerror}", setting="tape", path=path) from None

    def connection(self, node: str) -> Keep:
        """What one connection to `node` calls for each of its frames."""
        self._connections += 1
        number = self._connections

        def keep(direction: Direction, api: str, version: int, correlation_id: int, frame: bytes, now: float) -> None:
            taped = Taped(now - self._started, node, number, direction, api, version, correlation_id, frame)
            self._file.write(line(taped))

        return keep

    def close(self) -> None:
        self._file.close()
