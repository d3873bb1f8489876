"""One broker for all workers of a run.

The controller of pytest-xdist listens on a socket. The first request of a worker starts the broker, in the controller:
workers end as soon as their queue is empty, the controller ends last. Where the controller is killed, the broker's
supervisor ends the broker.
"""

import contextlib
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Client, Listener

from kohort.testing.errors import BrokerStartError
from kohort.testing.selection import Broker, NamedBroker, any_broker


class BrokerServer:
    """Starts `any_broker()` at the first request; each response is its address and version, or the error as text."""

    def __init__(self) -> None:
        self._listener = Listener(family="AF_UNIX")
        self._broker = ExitStack()
        self._started: Broker | None = None
        self._thread = threading.Thread(target=self._serve, name="shared-broker", daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        """The path of the socket, for `shared_broker`."""
        return str(self._listener.address)

    def close(self) -> None:
        """Stop the broker. Safe to call again."""
        if self._thread.is_alive():
            with contextlib.suppress(OSError), Client(self.address, "AF_UNIX") as last:
                last.send("stop")
            self._thread.join()
        self._listener.close()
        self._broker.close()

    def _serve(self) -> None:
        while True:
            # A worker that died between its request and the response is no reason to stop.
            with contextlib.suppress(OSError, EOFError), self._listener.accept() as worker:
                if worker.recv() == "stop":
                    return
                worker.send(self._response())

    def _response(self) -> tuple[str, str, str]:
        try:
            if self._started is None:
                self._started = self._broker.enter_context(any_broker())
        except Exception as error:  # every kind: a worker without a response would wait for ever
            return "", "", f"{type(error).__name__}: {error}"
        return self._started.bootstrap, self._started.version, ""


@contextmanager
def shared_broker(address: str) -> Iterator[Broker]:
    """The broker of the BrokerServer at `address`. It runs on after the block. Raises BrokerStartError."""
    with Client(address, "AF_UNIX") as controller:
        controller.send("broker")
        bootstrap, version, error = controller.recv()
    if error:
        raise BrokerStartError(f"the controller of this run could not start a broker: {error}")
    yield NamedBroker(bootstrap, version)
