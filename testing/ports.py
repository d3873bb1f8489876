"""Free TCP ports on the loopback interface."""

import errno
import os
import random
import socket
from collections.abc import Iterable
from itertools import count

from kohort.testing.errors import BrokerStartError

# Below the ports that kernels hand to outgoing connections, so that a broker which is down for a moment finds its
# port free when it comes back.
_LOWEST, _HIGHEST = 20_000, 31_999


def free_ports(count_wanted: int) -> list[int]:
    """`count_wanted` different ports without a listener a moment ago (another process may still be quicker)."""
    found: list[int] = []
    for attempt in count():
        if len(found) == count_wanted:
            break
        if attempt > 10_000:
            raise BrokerStartError(
                f"no free port from {_LOWEST} to {_HIGHEST} on 127.0.0.1", hint="stop processes that listen there"
            )
        port = random.randint(_LOWEST, _HIGHEST)
        if port not in found and is_free(port):
            found.append(port)
    return found


def is_free(port: int) -> bool:
    """True if a listener can be opened on 127.0.0.1:`port` now."""
    return _refusal(port) is None


def _refusal(port: int) -> OSError | None:
    with socket.socket() as probe:
        if os.name == "posix":  # on Windows it would let two listeners have one port
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            return error
    return None


def check_free(ports: Iterable[int]) -> None:
    """Raise BrokerStartError for the first port on which no listener can be opened."""
    for port in ports:
        if (refusal := _refusal(port)) is None:
            continue
        if refusal.errno == errno.EADDRINUSE:
            problem = "address already in use"
            hint = "stop the process that listens there (`kohort broker status` lists kohort's), or use another port"
        else:
            problem = f"the port cannot be opened: {refusal.strerror}"
            hint = "use another port; those below 1024 may need a privilege"
        raise BrokerStartError(problem, hint=hint, host="127.0.0.1", port=port)
