"""The wait of calls and deliveries for batches to be settled."""

from collections.abc import Callable
from math import inf

from kohort.network.arguments import seconds_given
from kohort.network.client_handle import ClientHandle
from kohort.network.errors import OperationTimeout
from kohort.producer.producer_core import ProducerCore


def overdue(_core: ProducerCore) -> OperationTimeout:
    """The error of a call whose time is over."""
    return OperationTimeout("not settled in time", hint="it may still succeed")


class Waiter:
    """Waits outside of any lock. It does not keep the producer alive."""

    def __init__(self, handle: ClientHandle[ProducerCore]) -> None:
        self._handle = handle

    def __call__(
        self,
        reached: Callable[[], bool],
        timeout_s: float | None,
        late: Callable[[ProducerCore], OperationTimeout] = overdue,
    ) -> None:
        """Wait until `reached` returns true.

        Raises the error that ended the producer, and the error that `late` makes after `timeout_s` seconds.
        """
        timeout_s = inf if timeout_s is None else seconds_given(timeout_s)
        if self._handle.wait_for(lambda: self._reached(reached) or None, timeout_s) is None:
            raise self._handle.read(late)

    def _reached(self, reached: Callable[[], bool]) -> bool:
        if reached():
            return True
        fatal = self._handle.core.fatal
        if fatal is not None:
            raise fatal
        return False
