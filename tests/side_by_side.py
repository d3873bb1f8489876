"""The workers of one run of pytest-xdist: they share a broker, and tests that share a server share a worker.

The controller listens on a socket. The first request of a worker starts the broker, in the controller: workers end as
soon as their queue is empty, the controller ends last. Where the controller is killed, the broker's supervisor ends the
broker. Workers also send the groups of their tests there, since the controller collects no tests.
pytest-xdist 3.8 appends groups to the ids of tests. Under pytest 9.2, whose ids are no attributes, they do not arrive.
"""

import contextlib
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Client, Listener
from typing import Any

from xdist.scheduler import LoadScopeScheduling

from kohort.testing.errors import BrokerStartError
from tests.support.broker_selection import NamedBroker, SelectedBroker, any_broker

BROKER, GROUPS, STOP = "broker", "groups", "stop"
FAMILY = "AF_UNIX"


class RunServer:
    """Starts `any_broker()` at the first request; each response is its address and version, or the error as text.

    `groups`: the group of each test that has one, by id, once a worker has collected.
    """

    def __init__(self) -> None:
        self.groups: dict[str, str] = {}
        self._listener = Listener(family=FAMILY)
        self._broker = ExitStack()
        self._started: SelectedBroker | None = None
        self._thread = threading.Thread(target=self._serve, name="run-server", daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        """The path of the socket, for `shared_broker` and `send_groups`."""
        return str(self._listener.address)

    def close(self) -> None:
        """Stop the broker. Safe to call again."""
        if self._thread.is_alive():
            with contextlib.suppress(OSError), Client(self.address, FAMILY) as last:
                last.send((STOP, None))
            self._thread.join()
        self._listener.close()
        self._broker.close()

    def _serve(self) -> None:
        while True:
            # A worker that died between its request and the response is no reason to stop.
            with contextlib.suppress(OSError, EOFError), self._listener.accept() as worker:
                request, content = worker.recv()
                if request == STOP:
                    return
                if request == GROUPS:
                    self.groups |= content
                worker.send(self._running() if request == BROKER else None)

    def _running(self) -> tuple[str, str, str]:
        try:
            if self._started is None:
                self._started = self._broker.enter_context(any_broker())
        except Exception as error:  # every kind: a worker without a response would wait for ever
            return "", "", f"{type(error).__name__}: {error}"
        return self._started.bootstrap, self._started.version, ""


@contextmanager
def shared_broker(address: str) -> Iterator[SelectedBroker]:
    """The broker of the RunServer at `address`. It runs on after the block. Raises BrokerStartError."""
    with Client(address, FAMILY) as controller:
        controller.send((BROKER, None))
        bootstrap, version, error = controller.recv()
    if error:
        raise BrokerStartError(f"the controller of this run could not start a broker: {error}")
    yield NamedBroker(bootstrap, version)


def send_groups(address: str, groups: Mapping[str, str]) -> None:
    """Send the groups of tests, by their ids, to the RunServer at `address`; returns once it has them."""
    with Client(address, FAMILY) as controller:
        controller.send((GROUPS, dict(groups)))
        controller.recv()


class GroupScheduling(LoadScopeScheduling):  # type: ignore[misc]
    """A group goes to one worker as a whole, every other test by itself, in the order of the collection."""

    def __init__(self, config: Any, log: Any, server: RunServer) -> None:
        super().__init__(config, log)
        self._server = server

    def mark_test_complete(self, node: Any, item_index: int, duration: float = 0) -> None:
        """Forget a finished unit. xdist counts all units that a worker ever had, after each test."""
        super().mark_test_complete(node, item_index, duration)
        scope = self._split_scope(self.registered_collections[node][item_index])
        units = self.assigned_work[node]
        if all(units[scope].values()):
            del units[scope]

    def _split_scope(self, nodeid: str) -> str:
        return self._server.groups.get(nodeid, nodeid)
