"""What both faces do alike: guard a consumer's use, find out what is due in a poll, decode outside the lock."""

import logging
import threading
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from kohort.assignors import get_all as assignors_of
from kohort.coordinator_client.config import Config
from kohort.coordinator_client.core import Core
from kohort.coordinator_client.driver import Driver
from kohort.coordinator_client.errors import (
    CallbackError,
    ConcurrentUseError,
    ConsumerClosed,
    WakeupError,
)
from kohort.coordinator_client.health import Health
from kohort.coordinator_client.hooks import HookCall, RebalanceHooks
from kohort.coordinator_client.resets import Gap
from kohort.coordinator_client.seeing import health_of
from kohort.coordinator_client.slices import Slice
from kohort.fastpath import CorruptRecord, KohortError, RecordColumns, TopicPartition, decode

if TYPE_CHECKING:
    from kohort.coordinator_client.figures import ConsumerMetrics

log = logging.getLogger("kohort.consumer")

T = TypeVar("T")

HOOK_GRACE_S = 2.0
SIDE_BY_SIDE_BYTES = 1 << 18  # less is decoded before another thread has woken up


class RunHook(NamedTuple):
    """A hook is due: call it, then `Session.hook_done`."""

    call: HookCall


class RunCallback(NamedTuple):
    """A `commit_async` is settled, or a reset happened: tell the user."""

    tell: Callable[[], None]


class Deliver(NamedTuple):
    """Slices to decode and return."""

    slices: list[Slice]


Due = RunHook | RunCallback | Deliver


class Observer(Protocol):
    """Who is told of polls while they happen, on the caller's thread and under no lock (`exporting/spans.py`)."""

    def poll_began(self, now: float) -> None: ...
    def poll_brought(self, slices: "list[RecordColumns]") -> None: ...
    def poll_failed(self, error: KohortError) -> None: ...
    def look(self) -> None: ...


class _Leftover(NamedTuple):
    """Columns of which `max_poll_records` let only a part go out."""

    slice_: Slice
    columns: RecordColumns


class Session:
    """One consumer's life: its driver, who may use it now, and what its next poll has to do."""

    def __init__(self, config: Config, on_reset: Callable[[Gap], None] | None) -> None:
        assignors = tuple(assignors_of(config.assignors)) if config.group else ()
        self.config = config
        self.driver = Driver(config, partial(Core, config, assignors))
        self.hooks = RebalanceHooks()
        self.on_reset = on_reset
        self.closed = False
        self.in_hook = False
        self.observer: Observer | None = None
        self._user: int | None = None
        self._depth = 0
        self._door = threading.Lock()
        self._wakeup = False
        self._leftovers: deque[_Leftover] = deque()
        self._untold: deque[Gap] = deque()
        self.driver.start()

    @property
    def core(self) -> Core:
        return self.driver.core

    # --- who may come in

    @contextmanager
    def use(self, *, in_hooks: bool = True, when_crashed: bool = False) -> Iterator[None]:
        """Everything public runs in here. One thread at a time; not in a forked child; not after close.

        Raises ForkError, ConcurrentUseError, ConsumerClosed, and CallbackError where hooks may not call.
        """
        self.driver.own()
        me = threading.get_ident()
        with self._door:
            if self._user not in (None, me):
                raise ConcurrentUseError(
                    "another thread is using this consumer", hint="only wakeup() may be called from other threads"
                )
            self._user = me
            self._depth += 1
        try:
            if self.closed:
                raise ConsumerClosed("the consumer is closed")
            if self.in_hook and not in_hooks:
                raise CallbackError("this must not be called inside a hook", hint="return from the hook first")
            if not when_crashed:
                self.driver.check()
            yield
        finally:
            try:
                if self.observer is not None and self._depth == 1:
                    self.observer.look()
            finally:
                with self._door:
                    self._depth -= 1
                    if not self._depth:
                        self._user = None

    def call(self, what: Callable[[Core], T]) -> T:
        """Run `what` on the core under the lock, and have the driver look at it."""
        with self.driver.lock:
            result = what(self.core)
        self.driver.wake()
        return result

    def read(self, what: Callable[[Core], T]) -> T:
        """As `call`, where nothing changes. Raises ForkError in a forked child."""
        self.driver.own()
        with self.driver.lock:
            return what(self.core)

    def health(self) -> Health:
        """How this consumer is; from any thread."""
        driver, closed = self.driver, self.closed
        return self.read(lambda core: health_of(core, driver.now(), crashed=driver.crashed is not None, closed=closed))

    def metrics(self) -> "ConsumerMetrics":
        """All figures of this moment; from any thread."""
        from kohort.coordinator_client.figures import metrics_of  # for those who look

        return self.read(lambda core: metrics_of(core, self.driver.now()))

    def wakeup(self) -> None:
        """From any thread, and from a signal's handler: it may have interrupted the one who holds the lock."""
        self._wakeup = True
        self.core.news = True
        self.driver.wake()  # whose turn tells a poll that waits
        if self.driver.on_news is not None:
            self.driver.on_news()

    # --- a poll

    @contextmanager
    def polling(self, *, handled: bool = True) -> Iterator[None]:
        """The time that the user spends between polls is measured outside of this (KIP-62).

        `handled`: whether coming back means that what was returned before is dealt with; a close does not say so.
        """
        with self.driver.lock:
            self.core.polled(self.driver.now(), handled=handled)
            stalled = self.core.owes_loss
        if stalled:
            self.driver.wake()  # else the machine hears of it at its next turn, which is soon enough
        observer = self.observer if handled else None
        if observer is not None:
            observer.poll_began(self.driver.now())
        try:
            yield
        except KohortError as error:
            if observer is not None and not isinstance(error, WakeupError):
                observer.poll_failed(error)
            raise
        finally:
            with self.driver.lock:
                self.core.poll_ended(self.driver.now())

    def due(self, most_slices: int) -> Due | None:
        """The next thing a poll has to do; None: wait. Raises errors that are due, and WakeupError once."""
        with self.driver.lock:
            core = self.core
            core.news = False
            if self._wakeup:
                self._wakeup = False
                raise WakeupError("wakeup() was called")
            call = core.take_hook(self.driver.now())
            if call is not None:
                return RunHook(call)
            tell = core.commits.take_callback() or self._gap_to_tell()
            if tell is not None:
                return RunCallback(tell)
            error = core.take_error()
            if error is not None:
                raise error
            self._leftovers = deque(one for one in self._leftovers if core.is_current(one.slice_))
            now = self.driver.now()
            if any(core.may_show(one.slice_, now) for one in self._leftovers):
                return Deliver([])
            slices = self._slices(most_slices)
        if slices:
            self.driver.wake()  # there is room for the next fetch, which goes out while these are decoded
            return Deliver(slices)
        self.driver.check()
        return None

    def _gap_to_tell(self) -> Callable[[], None] | None:
        self._untold.extend(self.core.take_gaps())
        if self.on_reset is None:
            self._untold.clear()
            return None
        # One at a time: where the user's function raises, the next poll goes on with the others.
        return partial(self.on_reset, self._untold.popleft()) if self._untold else None

    def _slices(self, most: int) -> list[Slice]:
        now = self.driver.now()
        slices: list[Slice] = []
        seen: set[TopicPartition] = set()
        while len(slices) < most:
            slice_ = self.core.take_slice(now, seen)
            if slice_ is None:
                break
            seen.add(slice_.partition)
            slices.append(slice_)
        return slices

    def decoded(self, deliver: Deliver, most: int) -> list[RecordColumns]:
        """Decode, without lock and GIL; then hand over what the fetch barrier still lets through: so many slices.

        A batch that cannot be decoded leaves the position behind the sound ones before it, which are handed over. Its
        error is raised by this call, or by a later poll if there is something to return.
        """
        with self.driver.lock:
            slices = [*deliver.slices, *(one.slice_ for one in self._leftovers)]
            before = {slice_.partition: self.core.positions.get(slice_.partition) for slice_ in slices}
        try:
            return self._decoded_and_handed_over(deliver, most)
        except KohortError:
            raise
        except BaseException:
            # An interrupt, or no memory: what is in hand has been taken and goes to nobody, and would be skipped.
            with self.driver.lock:
                self.core.take_back(before)
            raise

    def _decoded_and_handed_over(self, deliver: Deliver, most: int) -> list[RecordColumns]:
        ready = [(one.slice_, one.columns) for one in self._leftovers]
        self._leftovers.clear()
        errors: list[KohortError] = []
        short: list[Slice] = []
        for slice_, decoded in zip(deliver.slices, self._decoded(deliver.slices), strict=True):
            if not isinstance(decoded, KohortError):
                columns = decoded
            else:
                error = decoded
                before = error.decoded if isinstance(error, CorruptRecord) else None
                if before is None or before.next_offset <= slice_.start:
                    errors.append(error)
                    with self.driver.lock:
                        self.core.refetch(slice_.partition)
                    continue
                columns = before  # the error is met again, first, by the poll that goes on behind these
            for skipped in columns.corrupt:
                log.warning("skipped: %s", skipped, extra=self.core.telling.of(slice_.partition))
            with self.driver.lock:
                self.core.counters.corrupt_batches += len(columns.corrupt)
            end = self.core.fetcher.until.get(slice_.partition)
            if end is not None and columns.next_offset >= end:
                columns = columns[: bisect_left(columns.offsets, end)]
            elif not columns.complete:
                short.append(slice_._replace(start=columns.next_offset))
            ready.append((slice_, columns))
        out = self._hand_over(ready, most)
        with self.driver.lock:
            for rest in short:
                self.core.put_back(rest)
            outlived = any(self.core.is_outlived(slice_) for slice_, _columns in ready)
        if outlived:
            self.driver.wake()
        if errors:
            if not out:
                raise errors[0]
            with self.driver.lock:
                self.core.put_error(errors[0])
        if self.observer is not None and out:
            self.observer.poll_brought(out)
        return out

    def _decoded(self, slices: list[Slice]) -> list[RecordColumns | KohortError]:
        """Each slice's columns, or what is wrong with it; large ones side by side: decoding lets go of the GIL."""
        jobs = [partial(_decode_or_error, slice_, self.config) for slice_ in slices]
        if len(jobs) > 1 and sum(len(slice_.records) for slice_ in slices) >= SIDE_BY_SIDE_BYTES:
            return self.driver.side_by_side(jobs)
        return [job() for job in jobs]

    def _hand_over(self, ready: list[tuple[Slice, RecordColumns]], most: int) -> list[RecordColumns]:
        room = self.config.max_poll_records or float("inf")
        out: list[RecordColumns] = []
        with self.driver.lock:
            now = self.driver.now()
            for slice_, columns in ready:
                # Paused, or not certain to be ours at this moment: kept, for the fetches go on behind it, and what is
                # dropped here would be skipped for good. So would be what an iteration has and its user never sees.
                if room <= 0 or len(out) >= most or not self.core.may_show(slice_, now):
                    if self.core.is_current(slice_):
                        self._leftovers.append(_Leftover(slice_, columns))
                    continue
                part = columns
                if len(columns) > room:
                    part = columns[: int(room)]
                    self._leftovers.append(_Leftover(slice_, columns[int(room) :]))
                last = part.timestamps_ms[-1] if len(part) else None
                if self.core.delivered(slice_, part.next_offset, len(part), last) and (len(part) or part.corrupt):
                    out.append(part)
                    room -= len(part)
        return out

    def next_hook(self, reached: Callable[[Core], bool]) -> HookCall | None:
        """The hook that is due while something else than a poll waits for the group."""
        with self.driver.lock:
            self.core.news = False
            return None if reached(self.core) else self.core.take_hook(self.driver.now())

    def reached(self, what: Callable[[Core], bool]) -> bool:
        """Whether the core is there, or never will be since its driver has ended."""
        return self.driver.crashed is not None or self.read(what)

    def wait(self, until: float, *, wakeable: bool = True) -> bool:
        """Sleep until something is due or the time has come; False: the time has come. A wakeup() is for polls only."""
        bell = self.driver.bell
        seen = bell.rings
        left = until - self.driver.now()
        if self.core.news or (wakeable and self._wakeup) or self.driver.crashed is not None:
            return True
        if self.core.owes_loss:
            # A poll of no time at all must still be told first that its partitions are gone (B-34).
            left = max(left, HOOK_GRACE_S)
        return left > 0 and (bell.wait(seen, left) or self.driver.now() < until)

    def wait_quietly(self, until: float) -> bool:
        """As `wait`, outside of poll: what is due for a poll stays due."""
        left = until - self.driver.now()
        if left <= 0 or self.driver.crashed is not None:
            return False
        self.driver.bell.wait(self.driver.bell.rings, min(left, 0.05))
        return True

    def hook_done(self, call: HookCall, answer: object, error: BaseException | None) -> None:
        """The user's hook is over; raises what it raised."""
        try:
            with self.driver.lock:
                self.core.hook_done(call, answer, error, self.driver.now())
        finally:
            self.driver.wake()
        if error is not None:
            raise error


def _decode_or_error(slice_: Slice, config: Config) -> RecordColumns | KohortError:
    try:
        return _decode(slice_, config)
    except KohortError as error:
        return error


def _decode(slice_: Slice, config: Config) -> RecordColumns:
    partition = slice_.partition
    columns = decode(
        slice_.records,
        topic=partition.topic,
        partition=partition.partition,
        from_offset=slice_.start,
        aborted=slice_.aborted,
        on_corrupt=config.on_corrupt,
        max_decompressed_bytes=config.max_decompressed_bytes,
    )
    if slice_.end == slice_.start and not len(columns) and columns.next_offset <= slice_.start:
        raise CorruptRecord(
            "the broker answered with bytes that hold no whole batch",
            hint="raise max_partition_fetch_bytes if the batch is larger",
            topic=partition.topic,
            partition=partition.partition,
            offset=slice_.start,
        )
    return columns
