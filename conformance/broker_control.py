"""Stops and starts the brokers under test, for the checks of a restart, which run last.

`kohort conformance --start` has its own. Other brokers need two commands, in which {node} is the broker's id:

    --stop-command 'docker kill kafka-{node}' --start-command 'docker start kafka-{node}'
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from typing import Protocol

from kohort.conformance.errors import Blocked

COMMAND_END_S = 60.0


class Operator(Protocol):
    """Stops and starts brokers.

    `stop` returns once the broker has ended, cleanly or not. `start` returns once the start was requested, or later.
    """

    async def stop(self, node: int) -> None:
        """Stop the broker with this id. Raises Blocked if that fails."""

    async def start(self, node: int) -> None:
        """Start the broker again with its data. Raises Blocked if that fails."""


@dataclass(frozen=True, slots=True)
class Commands:
    """Shell commands, in which {node} is the broker's id."""

    stop_command: str
    start_command: str

    async def stop(self, node: int) -> None:
        await _run(self.stop_command.replace("{node}", str(node)))

    async def start(self, node: int) -> None:
        await _run(self.start_command.replace("{node}", str(node)))


async def _run(command: str) -> None:
    running = asyncio.ensure_future(_ended(command))
    try:
        await asyncio.shield(running)
    except asyncio.CancelledError:  # otherwise a broker could stop after the next command has started it
        with contextlib.suppress(Blocked, TimeoutError):
            await asyncio.wait_for(running, COMMAND_END_S)
        raise


async def _ended(command: str) -> None:
    running = await asyncio.create_subprocess_shell(
        command, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
    )
    _, said = await running.communicate()
    if running.returncode:
        raise Blocked(f"{command!r} ended with {running.returncode}: {said.decode(errors='replace').strip()[-300:]}")
