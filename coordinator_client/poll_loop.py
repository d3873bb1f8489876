"""The common part of both faces: guard a consumer's use, find out what is due in a poll."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from kohort.assignors import get_all as assignors_of
from kohort.common import KohortError
from kohort.coordinator_client.consumer_config import ConsumerConfig
from kohort.coordinator_client.consumer_core import ConsumerCore
from kohort.coordinator_client.fetch._collect import CollectedFetches, PollFields, action_is_due, readable
from kohort.coordinator_client.fetch.fetch_collector import FetchCollector
from kohort.coordinator_client.hooks import Assigned, HookCall, HookEvent, Lost, RebalanceHooks, Revoked
from kohort.coordinator_client.offset_reset import OffsetReset
from kohort.fastpath import RecordColumns
from kohort.network.client_handle import ClientHandle
from kohort.network.errors import WakeupError
from kohort.network.network_client import Driver
from kohort.network.process_exit import warn_unclosed

if TYPE_CHECKING:
    from kohort.coordinator_client.health import Health
    from kohort.coordinator_client.metrics.metrics_table import ConsumerMetrics

T = TypeVar("T")

HOOK_GRACE_S = 2.0
QUIET_WAIT_S = 0.05  # the longest of `wait_quietly`: not every change rings the bell
HOOKS: Mapping[type[HookEvent], str] = {Revoked: "on_revoked", Assigned: "on_assigned", Lost: "on_lost"}
"""The methods of `RebalanceHooks`, by their events."""


class HookOutcome:
    """A hook call in progress: its result or exception, once it is `over`. `returned`: the result is final."""

    __slots__ = ("call", "error", "over", "result", "returned")

    def __init__(self, call: HookCall) -> None:
        self.call = call
        self.result: object = None
        self.error: BaseException | None = None
        self.over = False
        self.returned = False


class Observer(Protocol):
    """An observer of polls, called on the caller's thread and under no lock (`exporting/spans.py`)."""

    def poll_began(self, now: float) -> None: ...
    def poll_brought(self, slices: "list[RecordColumns]") -> None: ...
    def poll_failed(self, error: KohortError) -> None: ...
    def look(self) -> None: ...


class PollLoop(PollFields):
    """The lifetime of one consumer: its driver, its current user, and the work of its next poll.

    A signal handler may raise in any method here, after any call. Nothing is therefore taken from the core that could
    then be lost. Records stay buffered until the user has them (`Visit.handed`). A hook, a callback and an error are
    kept in an attribute from the moment they are taken until they are run or raised.
    """

    begun = False  # the driver was started

    def __init__(self, config: ConsumerConfig, on_reset: Callable[[OffsetReset], None] | None) -> None:
        assignors = tuple(assignors_of(config.assignors)) if config.group else ()
        self.config = config
        self.driver = Driver(config, partial(ConsumerCore, config, assignors))
        self.driver.poll_added = self.driver.core.poll_added
        self.handle = ClientHandle(self.driver)
        self.core = self.driver.core
        self.door = self.core.door
        self.collector = FetchCollector(
            self.driver,
            self.core.context,
            self.core.fetcher,
            self.core.door,
            readable=partial(readable, self.core),
            on_skipped=self.core.batch_skipped,
        )
        self.use(self.driver, self.core, self.collector)
        self.driver.chore = self.collector.settle_step
        self.driver.on_notice = self.core.notices.append
        self.core.reports_gaps = on_reset is not None
        self.hooks = RebalanceHooks()
        self._on_reset = on_reset or (lambda _gap: None)
        self.in_hook = False
        self.in_callback = False
        self.outcome = None
        self._callback = None
        self.error = None  # until it has left the public call
        self.late: BaseException | None = None  # of a hook in `close`, until that has left the group
        self.parting = False  # a close has begun
        self._observer = None
        self.has_wakeup = False
        self.closed = False  # only `close` may be called any more
        self.begun = True
        self.driver.start()

    def __del__(self) -> None:
        if self.begun and not self.driver.stopping:
            stop = partial(_retire, self.driver)
            warn_unclosed("consumer", self.config.client_id, self.config.group, self.driver, stop)

    # --- access

    @property
    def observer(self) -> Observer | None:
        return self._observer

    @observer.setter
    def observer(self, observer: Observer | None) -> None:
        self._observer = observer
        self.core.door.look = observer.look if observer is not None else None

    def call(self, what: Callable[[ConsumerCore], T]) -> T:
        """Have the driver run `what` on the core. It runs completely, also if a signal handler raises here."""
        return self.handle.call(what)

    def read(self, what: Callable[[ConsumerCore], T]) -> T:
        """Run `what`, which changes nothing. Raises ForkError in a forked child."""
        self.driver.check_same_process()
        self.collector.settle()
        return self.handle.read(what)

    def health(self) -> "Health":
        """The health of this consumer; from any thread."""
        from kohort.coordinator_client.health import health_of

        driver, closed = self.driver, self.closed
        return self.read(lambda core: health_of(core, driver.now(), crashed=driver.crashed is not None, closed=closed))

    def metrics(self) -> "ConsumerMetrics":
        """All figures of this moment; from any thread."""
        return self.read(lambda core: core.metrics(self.driver.now()))

    def wakeup(self) -> None:
        """Wake a waiting poll, from any thread, or from a signal handler that may have interrupted a holder of the
        lock."""
        self.has_wakeup = True
        self.core.has_updates = True
        self.driver.wake_callers()

    # --- a poll

    def poll_failed(self, error: KohortError) -> None:
        """Report the error to the observer."""
        if self._observer is not None and not isinstance(error, WakeupError):
            self._observer.poll_failed(error)

    def look(self) -> None:
        """Call the observer before the outermost visit hands over and ends."""
        if self._observer is not None and self.core.door.depth == 1:
            self._observer.look()

    def next_action(self) -> HookCall | Callable[[], object] | None:
        """Return the next action of a poll before it looks for records: a hook for `run_hook`, or a function to call.

        Raises due errors, and WakeupError once.
        """
        self.collector.settle()
        self.core.has_updates = False
        if self.error is None and self.has_wakeup:
            self.error = WakeupError("wakeup() was called")
            self.has_wakeup = False
        if self.error is not None:
            raise self.error
        if self.outcome is None and self._callback is None and not action_is_due(self.core):
            return None
        if (call := self.next_hook()) is not None:
            return call
        if (tell := self.next_callback()) is not None:
            return tell
        if not action_is_due(self.core):  # there was a hook only, which is not overridden
            return None
        self.call(self._take_error)
        if self.error is not None:
            raise self.error
        return None

    def _take_error(self, core: ConsumerCore) -> None:
        if self.error is None:
            self.error = core.take_error()

    # --- hooks and callbacks

    def next_hook(self) -> HookCall | None:
        """Return the due hook. Hands in the result of the previous one if an interrupt came before, and raises its
        error."""
        if self.in_hook:
            return None  # of another task: two never run beside each other
        self.hook_over()
        return self.call(partial(_take_hook, self._empty_hooks(), self.driver.now())) if self.core.hook_is_due else None

    def _empty_hooks(self) -> tuple[type[HookEvent], ...]:
        """The events whose hooks the user has not overridden."""
        return tuple(
            event
            for event, name in HOOKS.items()
            if getattr(getattr(self.hooks, name), "__func__", None) is getattr(RebalanceHooks, name)
        )

    def hook_over(self) -> None:
        """Hand in the result of the hook, and raise its exception. Does nothing if there is none.

        In `close` an Exception is raised late, by `raise_late`. Otherwise the group would keep the partitions until the
        session ends.
        """
        outcome = self.outcome
        if outcome is None or not outcome.over:
            return
        self.call(partial(_hand_in, outcome, self.driver.now()))
        error = outcome.error
        if self.parting and isinstance(error, Exception):
            self.late = error
            self.outcome = None  # and nothing comes between these two
            return
        self.error = error
        self.outcome = None
        if error is not None:
            raise error

    def hook_of(self, call: HookCall) -> Callable[[Any], Any]:
        """The user's function for this call."""
        hook: Callable[[Any], Any] = getattr(self.hooks, HOOKS[type(call.event)])
        return hook

    def next_callback(self) -> Callable[[], object] | None:
        """`run_callback`, where a `commit_async` is settled or a reset happened."""
        if self._callback is None:
            for waiting in (self.core.commits.callbacks, self.core.unreported):
                if waiting:
                    first = waiting[0]
                    self._callback = first if callable(first) else partial(self._on_reset, first)
                    waiting.popleft()
                    break
        return self.run_callback if self._callback is not None else None

    def run_callback(self) -> None:
        """Call the user's functions, one at a time. If one raises, the next poll continues with the others."""
        before = self.in_callback
        call = self._callback
        if call is None:
            return
        self.in_callback = True
        try:
            self._callback = None  # and nothing comes between this and the call
            call()
        finally:
            self.in_callback = before

    def run_callbacks(self) -> None:
        """Callbacks of earlier commits come before a later commit, or close, returns (S-08)."""
        while self._callback is not None or self.core.commits.callbacks:
            self.next_callback()
            self.run_callback()

    # --- the end

    def parting_begins(self, until: float) -> None:
        """Begin a close, or continue an interrupted one. Hooks and callbacks may call."""
        self.parting = True
        self.closed = False
        self.call(lambda core: core.before_leave(until))

    def parted(self, until: float) -> bool:
        """True if the driver has nothing left to do, or no time for it."""
        if self.driver.now() < until:
            return self.reached(lambda core: core.closing and core.left)
        if not self.driver.stopping:
            self.call(lambda _core: None)  # a turn, in which the member leaves without what has had no time
        return True

    @property
    def over(self) -> bool:
        """No close has anything left to do."""
        if not self.closed or not self.driver.ended.is_set():
            return False  # another thread may be inside
        unreported = self.late is not None or self._callback is not None or bool(self.core.commits.callbacks)
        handed_in = self.outcome is None or not self.outcome.over
        return handed_in and not unreported

    def raise_late(self) -> None:
        """Raise what a hook has raised in `close`, once."""
        late = self.late
        if late is not None:
            self.late = None  # and nothing comes between this and the `raise`
            raise late

    def leave_at_exit(self, timeout_s: float) -> None:
        """Leave the group without hooks and commits at the interpreter's end, where no call can close."""
        self.driver.check_same_process()
        if not self.driver.stopping:
            _retire(self.driver)
        self.driver.ended.wait(timeout_s)

    # --- records

    def gather(self, most: int) -> CollectedFetches:
        """The slices that a poll returns now, at most `most`; see `FetchCollector.collect`."""
        collected = self.collector.collect(most)
        if self._observer is not None and collected.columns:
            self._observer.poll_brought(collected.columns)
        return collected

    # --- waiting

    def reached(self, what: Callable[[ConsumerCore], bool]) -> bool:
        """True if the core is there, or never will be since its driver has ended."""
        return self.driver.crashed is not None or self.read(what)

    def wait(self, until: float, seen: int, *, wakeable: bool = True) -> bool:
        """Sleep until work is due or the time has come. Returns False if the time has come. A wakeup() is for polls
        only.

        `seen`: `driver.bell.rings` before the last look at due work.
        """
        left = until - self.driver.now()
        if self.core.has_updates or (wakeable and self.has_wakeup) or self.driver.crashed is not None or self.closed:
            return True
        if self.core.owes_loss:
            # Even a poll without waiting must learn of lost partitions first (B-34).
            left = max(left, HOOK_GRACE_S)
        return left > 0 and (self.driver.bell.wait(seen, left) or self.driver.now() < until)

    def wait_quietly(self, until: float) -> bool:
        """As `wait`, outside of poll: the work of a poll stays due."""
        left = until - self.driver.now()
        if left <= 0 or self.driver.crashed is not None:
            return False
        self.driver.bell.wait(self.driver.bell.rings, min(left, QUIET_WAIT_S))
        return True


def _take_hook(empty: tuple[type[HookEvent], ...], now: float, core: ConsumerCore) -> HookCall | None:
    """Take the due hook. One of the `empty` ones is over at once, since each call of the core takes a turn."""
    call = core.take_hook(now)
    if call is not None and isinstance(call.event, empty):
        core.hook_done(call, None, None, now)
        return None
    return call


def _hand_in(outcome: HookOutcome, now: float, core: ConsumerCore) -> None:
    try:
        core.hook_done(outcome.call, outcome.result, outcome.error, now)
    except (TypeError, ValueError, KohortError) as wrong:  # kept here, an interrupt of the caller does not lose it
        outcome.error = wrong


def _retire(driver: Driver[ConsumerCore]) -> None:
    """Have the driver leave the group and end. By a finalizer, on any thread, under any lock."""
    driver.core.retired = driver.stop_soon
    driver.wakeup()
