"""The callbacks of settled records: called in order by partition, on the caller's thread, under no lock."""

from collections import deque
from collections.abc import Callable

from kohort.network._guard import Door
from kohort.producer.producer_batch import ProducerBatch


class CallbackQueue:
    """The batches whose callbacks are due.

    The producer's driver appends them, and one thread at a time calls their callbacks. `on_end` is called after the
    last callback of a thread.
    """

    def __init__(self, due: deque[ProducerBatch], on_end: Callable[[], object]) -> None:
        self._due = due
        self._on_end = on_end
        self._door = Door(_Elsewhere)

    @property
    def ready(self) -> bool:
        """True if callbacks are due, and no thread calls them."""
        return bool(self._due) and not self._door.depth

    @property
    def called_elsewhere(self) -> bool:
        """True while another thread calls callbacks."""
        try:
            self._door.check()
        except _Elsewhere:
            return True
        return False

    def call(self) -> int:
        """Call what is due, and return the number of calls.

        It does nothing in a callback, or while another thread calls. An exception of a callback is raised. The other
        callbacks are called by the next call.
        """
        called = 0
        try:
            with self._door.visit():
                while self._due and self._door.depth == 1:
                    called += self._due[0].call_back()
                    self._due.popleft()
        except _Elsewhere:
            return 0
        finally:
            self._on_end()
        return called


class _Elsewhere(Exception):
    """Another thread calls callbacks."""
