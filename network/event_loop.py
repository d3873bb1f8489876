"""Threads that run drivers: each waits for the sockets of its drivers, and gives them turns.

The first `MOST_LOOPS` drivers of a process have a thread each. More drivers share these threads. If one rebalance woke
a thousand threads at once, all would wait for the GIL, and the wait would cost more than their work.

Drivers of a thread connect few at a time. A broker accepts connections one by one. Once its backlog (50 by default) is
full, its system drops new ones. They are repeated after 1, 3 and 7 s, so hundreds of clients would wait that long.
"""

import contextlib
import itertools
import os
import selectors
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from heapq import heapify, heappop, heappush
from math import inf
from typing import TYPE_CHECKING, Any, Final, Protocol

from kohort.common.log_context import keep_lines, logger, set_log_context
from kohort.network._guard import ReentrantLock
from kohort.network._poller import Poller, ring, take_rings
from kohort.network.errors import ConnectionFailed
from kohort.network.promise import Flag
from kohort.network.requests import ConnectionPurpose, Endpoint

if TYPE_CHECKING:
    import logging

    from kohort.network.log_writer import LogWriter
    from kohort.network.transport import Channel

log = logger("kohort.driver")

MOST_LOOPS: Final = 8
LONGEST_SLEEP_S: Final = 60.0
MOST_VOID_TIMES: Final = 100
MOST_LINES: Final = 1_000
"""Log lines that a thread keeps. The oldest are dropped if handlers are slower for long."""

MOST_CONNECTING: Final = len(ConnectionPurpose)
"""Connections of a thread to one address without a response. A driver that is alone has no more, and never waits."""

EACH_S: Final = 0.02
"""A distant broker may respond late. The next channel waits no longer for it."""

LONGEST_WAIT_S: Final = 3.0
"""A channel waits no longer than if the broker's system had dropped it."""

Ready = list[tuple[Any, int]]
"""Of one driver: what it registered sockets with, and what each is ready for."""

Scheduled = tuple[float, int, "Turned"]
"""A time (monotonic s), a serial number, and the driver that has a turn then."""


class Turned(Protocol):
    """A driver to which a loop gives turns. Its sockets are registered with `poller`, with `(self, anything)`."""

    stopping: bool
    ended: Flag

    def log_fields(self) -> Mapping[str, object]: ...
    def turn(self, ready: Ready, *, due: bool) -> float | None:
        """Do the work of `ready` sockets, and all due work if `due`.

        Returns the time (monotonic seconds) of the next due work; None if it has not changed.
        """
        ...

    def over(self, defect: BaseException | None) -> None:
        """Called after the last turn: close every socket."""
        ...


class ConnectQueue:
    """The channels that connect, and those that wait until one of these has a response. Used by one thread."""

    def __init__(self) -> None:
        self._connecting: dict[Endpoint, set[Channel]] = {}
        self._waiting: dict[Endpoint, dict[Channel, Callable[[], None]]] = {}

    def enter(self, channel: "Channel", connect: Callable[[], None]) -> float:
        """Returns 0.0 if the channel may connect now. Otherwise `connect` is called later, and the longest wait in
        seconds is returned, after which `wait_no_longer` is due."""
        connecting = self._connecting.setdefault(channel.endpoint, set())
        if len(connecting) < MOST_CONNECTING:
            connecting.add(channel)
            return 0.0
        waiting = self._waiting.setdefault(channel.endpoint, {})
        waiting[channel] = connect
        return min(len(waiting) * EACH_S, LONGEST_WAIT_S)

    def leave(self, channel: "Channel") -> None:
        """The channel has a response, or has ended."""
        self._connecting.get(channel.endpoint, set()).discard(channel)
        self._waiting.get(channel.endpoint, {}).pop(channel, None)
        self._go_on(channel.endpoint)

    def wait_no_longer(self, channel: "Channel") -> None:
        """Connect a channel that waits."""
        connect = self._waiting[channel.endpoint].pop(channel)
        self._connecting.setdefault(channel.endpoint, set()).add(channel)
        connect()

    def _go_on(self, endpoint: Endpoint) -> None:
        waiting = self._waiting.get(endpoint)
        while waiting and len(self._connecting.get(endpoint, ())) < MOST_CONNECTING:
            self.wait_no_longer(next(iter(waiting)))
        for channels in (self._connecting, self._waiting):
            if not channels.get(endpoint):
                channels.pop(endpoint, None)


class EventLoop:
    """One thread and one poller. From other threads: `wakeup` and `join`."""

    def __init__(self) -> None:
        self.load = 0  # number of drivers; changes under _placing
        self._due: set[Turned] = set()
        self._next: dict[Turned, Scheduled] = {}
        self._times: list[Scheduled] = []  # a heap; entries that are not in `_next` are void
        self._serials = itertools.count()
        self._rung: deque[Turned] = deque()
        self._asleep = False
        self._logged: Turned | None = None  # the driver that the log lines of this thread name
        self._lines: deque[logging.LogRecord] = deque(maxlen=MOST_LINES)  # of this thread
        self._writer: LogWriter | None = None
        self._bell_in, self._bell_out = socket.socketpair()
        self._rings = bytearray(4096)
        self._bell_in.setblocking(False)
        self._bell_out.setblocking(False)
        self.poller = Poller(self._rung, self._bell_in)
        self.poller.register(self._bell_out, selectors.EVENT_READ, None)
        self.queue = ConnectQueue()
        self._thread = threading.Thread(target=self._run, name=f"kohort-driver-{next(_numbers)}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wakeup(self, driver: Turned) -> None:
        """Give `driver` a turn soon."""
        self._rung.append(driver)
        if self._asleep:  # the loop looks at `_rung` again after it has set `_asleep`
            ring(self._bell_in)

    @property
    def is_current(self) -> bool:
        """The caller runs on this loop's thread."""
        return self._thread is threading.current_thread()

    def join(self, driver: Turned, timeout_s: float) -> None:
        """Wait until a driver has ended, and for the thread if that was its last."""
        until = time.monotonic() + timeout_s
        if self.is_current or not self._thread.is_alive():
            return  # it would wait for itself or, in a forked child, for a thread that does not exist
        if driver.ended.wait(timeout_s) and not self.load:
            self._thread.join(max(0.0, until - time.monotonic()))

    def write_lines(self) -> None:
        """Have the log lines of this thread written. While a handler is busy with earlier ones, they are kept."""
        if self._lines and (writer := self._log_writer()) is not None:
            writer.write()

    def _log_writer(self) -> "LogWriter | None":
        """None if its module cannot be read now: without a free file descriptor, the first line is often about that."""
        if self._writer is None:
            try:
                from kohort.network.log_writer import LogWriter  # without logging, there is nothing to write
            except (ImportError, OSError):
                return None
            self._writer = LogWriter(self._lines)
        return self._writer

    # --- the thread

    def _run(self) -> None:
        keep_lines(self._lines)
        try:
            while self.load:
                for driver, ready in self._wait().items():
                    self._give_turn(driver, ready)
                    self.write_lines()
        except BaseException as defect:
            log.exception("a thread of drivers ended by a defect")
            with _placing.hold():
                _close(self)
            for driver in {*self._due, *self._next, *self._rung}:
                if not driver.ended.is_set():
                    self._end(driver, defect)
        keep_lines(None)
        if (self._lines or self._writer is not None) and (writer := self._log_writer()) is not None:
            writer.end()
        self.poller.close()
        self._bell_in.close()
        self._bell_out.close()

    def _wait(self) -> dict[Turned, Ready]:
        """Sleep until a driver is due. Returns the drivers to give a turn, and what their sockets are ready for."""
        while self._times and self._is_void(self._times[0]):
            heappop(self._times)
        self._asleep = True
        ready = self.poller.wait(self._times[0][0] if self._times else inf)
        self._asleep = False
        turns: dict[Turned, Ready] = {}
        for owner, mask in ready:
            if owner is None:
                take_rings(self._bell_out, self._rings)
            else:
                driver, what = owner
                turns.setdefault(driver, []).append((what, mask))
        while self._rung:
            driver = self._rung.popleft()
            self._due.add(driver)
            turns.setdefault(driver, [])
        now = time.monotonic()
        while self._times and self._times[0][0] <= now:
            entry = heappop(self._times)
            if not self._is_void(entry):
                driver = entry[2]
                del self._next[driver]
                self._due.add(driver)
                turns.setdefault(driver, [])
        return turns

    def _is_void(self, entry: Scheduled) -> bool:
        return self._next.get(entry[2]) is not entry

    def _schedule(self, driver: Turned, at: float) -> None:
        before = self._next.get(driver)
        if before is not None and before[0] == at:
            return
        self._next[driver] = entry = (at, next(self._serials), driver)
        heappush(self._times, entry)
        if len(self._times) > 2 * len(self._next) + MOST_VOID_TIMES:
            self._times = [entry for entry in self._times if not self._is_void(entry)]
            heapify(self._times)

    def _give_turn(self, driver: Turned, ready: Ready) -> None:
        due = driver in self._due
        self._due.discard(driver)
        if driver.ended.is_set():  # woken again after its end
            return
        if driver is not self._logged:
            set_log_context(driver.log_fields)
            self._logged = driver
        defect: BaseException | None = None
        try:
            if not driver.stopping:
                at = driver.turn(ready, due=due)
                if at is not None:
                    self._schedule(driver, min(at, time.monotonic() + LONGEST_SLEEP_S))
        except BaseException as problem:
            log.exception("the driver's thread ended by a defect")
            defect = problem
        if defect is not None or driver.stopping:
            self._end(driver, defect)

    def _end(self, driver: Turned, defect: BaseException | None) -> None:
        self._due.discard(driver)
        self._next.pop(driver, None)
        self.write_lines()  # first: then its callers are woken
        try:
            driver.over(defect)
        except BaseException:  # other drivers of this thread must go on
            log.exception("a driver ended in disorder")
        _leave(self)
        driver.ended.set()


_numbers = itertools.count(1)
_loops: list[EventLoop] = []
_placing = ReentrantLock()


def place(driver: Turned) -> EventLoop:
    """The loop that gives `driver` its turns from the next `wakeup` on: one of its own, while there are few.

    Raises ConnectionFailed if the process can open no more files, or start no more threads.
    """
    if sys.is_finalizing():  # Python 3.11 starts a thread without an error, and waits without end until it runs
        raise ConnectionFailed("the client's thread cannot be started: the interpreter is ending")
    with _placing.hold():
        if len(_loops) >= MOST_LOOPS:
            loop = min(_loops, key=lambda one: one.load)
            loop.load += 1
        else:
            try:
                loop = EventLoop()
                loop.load = 1
                loop.start()
            except (OSError, RuntimeError) as problem:
                raise ConnectionFailed(
                    f"the client's thread cannot be started: {problem}",
                    hint="raise the limits of open files, threads and memory (ulimit -n, -u, -v), or close clients",
                ) from problem
            _loops.append(loop)
    return loop


def _leave(loop: EventLoop) -> None:
    with _placing.hold():
        loop.load -= 1
        if not loop.load:  # under the same lock: no driver may be placed in between
            _close(loop)


def _close(loop: EventLoop) -> None:
    """No driver is placed on the loop any more. Called under `_placing`."""
    with contextlib.suppress(ValueError):
        _loops.remove(loop)


def _forget() -> None:
    """In a forked child no thread of its parent lives."""
    global _placing
    _loops.clear()
    _placing = ReentrantLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
