"""The wait of calls and deliveries for batches to be settled."""

from collections.abc import Callable
from math import inf

from kohort.network.arguments import seconds_given
from kohort.network.client_handle import ClientHandle
from kohort.network.errors import OperationTimeout
from kohort.producer.producer_core import ProducerCore


def overdue(_core: ProducerCore) -> OperationTimeout:
    """The error of a call whose time is over."""
    return OperationTimeout("not settled in time", hint="wait again, since it may still succeed")


def wait(
    handle: ClientHandle[ProducerCore],
    reached: Callable[[], bool],
    timeout_s: float | None,
    late: Callable[[ProducerCore], OperationTimeout] = overdue,
) -> None:
    """Wait outside of any lock until `reached` returns true.

    Raises the error that ended the producer, and the error that `late` makes after `timeout_s` seconds.
    """

    def look() -> bool | None:
        if reached():
            return True
        if (fatal := handle.core.fatal) is not None:
            raise fatal
        return None

    if handle.wait_for(look, inf if timeout_s is None else seconds_given(timeout_s)) is None:
        raise handle.read(late)
