"""`run_async`: handlers as tasks of one event loop."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager, suppress
from time import monotonic
from typing import Any, Final

from kohort.common import KohortError, TopicPartition
from kohort.common.log_context import logger
from kohort.coordinator_client.async_consumer import AsyncConsumer
from kohort.coordinator_client.hooks import Assigned, Lost, Offsets, Revoked
from kohort.fastpath import Record
from kohort.network.client_config import shared_settings
from kohort.network.process_exit import on_sigterm
from kohort.producer import AsyncProducer
from kohort.share_consumer import AsyncShareConsumer
from kohort.workers.dead_letters import DeadLetters
from kohort.workers.job import Job
from kohort.workers.retry import Retry
from kohort.workers.run_plan import IDLE_S, WAIT_S, check_arguments
from kohort.workers.run_state import RunState, RunTotals
from kohort.workers.turns import KeyedTurn, RunHooks, hooked, turn_of

log = logger("kohort.workers")

AsyncHandler = Callable[[Record], Awaitable[object]]


async def run_async(
    consumer: AsyncShareConsumer | AsyncConsumer,
    handler: AsyncHandler,
    *,
    concurrency: int = 10,
    retry: Retry = Retry(),  # noqa: B008 -- a frozen value
    dead_letter: str | None = None,
    max_held: int = 1000,
    stop: asyncio.Event | None = None,
    stop_timeout_s: float = 30.0,
) -> RunTotals:
    """As `run`, with up to `concurrency` tasks that await `handler(record)`.

    Handlers that run `stop_timeout_s` seconds after the stop are cancelled. A cancelled `run_async` stops in the same
    order. SIGTERM stops all runs of the main thread. Raises the errors of `run`, and TypeError for a handler that
    returns nothing to await.
    """
    check_arguments(
        consumer,
        (AsyncConsumer, AsyncShareConsumer),
        handler,
        retry,
        concurrency,
        max_held,
        stop_timeout_s,
        dead_letter,
    )
    turn = await asyncio.to_thread(turn_of, consumer, dead_letter)
    stop = stop or asyncio.Event()
    async with AsyncExitStack() as stack:
        letters: DeadLetters | None = None
        if dead_letter is not None:
            producer = await stack.enter_async_context(AsyncProducer(**shared_settings(consumer.config)))
            letters = DeadLetters(_TaskSender(producer), dead_letter, consumer.config.group or "")
        work = _Tasks(RunState(turn.jobs, retry, letters, max_held), handler, concurrency)
        stack.enter_context(_sigterm_sets(stop))
        if isinstance(turn, KeyedTurn):
            stack.enter_context(hooked(turn, _TaskHooks(turn.jobs, work, stop_timeout_s)))
        stack.push_async_callback(_finish, consumer, turn)  # also if a second cancellation cuts off `end`
        stack.callback(work.state.give_up)
        stack.push_async_callback(work.end, stop_timeout_s)
        await _take_turns(consumer, turn, work, stop)
    return work.state.outcome()


async def _take_turns(consumer: Any, turn: Any, work: "_Tasks", stop: asyncio.Event) -> None:
    polled_at = -WAIT_S
    while not stop.is_set():
        work.settle()
        if work.start():
            await work.news(work.state.wait_s(monotonic(), WAIT_S))
            if monotonic() - polled_at < WAIT_S:
                continue
            poll_s = 0.0
        else:
            poll_s = work.state.wait_s(monotonic(), WAIT_S if work.state.running else IDLE_S)
        turn.before_poll()
        turn.result = await consumer.poll(poll_s)
        turn.take_result()
        polled_at = monotonic()


async def _finish(consumer: Any, turn: Any) -> None:
    if (given := turn.last_commit()) is not None:
        try:
            await consumer.commit(**given)
        except KohortError as error:
            log.warning("the last commit failed, so its records are handled again: %s", error)


class _TaskSender:
    """A producer whose `send` returns a task that ends with the delivery."""

    def __init__(self, producer: AsyncProducer) -> None:
        self._producer = producer

    def send(self, topic: str, value: bytes | None, key: bytes | None, *, headers: Any) -> "asyncio.Task[object]":
        """Begin to send one record."""

        async def sent() -> object:
            return await (await self._producer.send(topic, value, key, headers=headers))

        return asyncio.create_task(sent())


_STOPS: Final[list[asyncio.Event]] = []
_HANDLING: Final = ExitStack()


@contextmanager
def _sigterm_sets(stop: asyncio.Event) -> Iterator[None]:
    """SIGTERM sets the events of all runs on the main thread. A handler of the event loop's own is called as well."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()

    def set_all() -> None:
        for each in _STOPS:
            each.set()

    if not _STOPS:
        _HANDLING.enter_context(on_sigterm(lambda: loop.call_soon_threadsafe(set_all)))
    _STOPS.append(stop)
    try:
        yield
    finally:
        _STOPS.remove(stop)
        if not _STOPS:
            _HANDLING.close()


async def _failed(error: Exception) -> object:
    raise error


class _Tasks:
    """The handlers of a state as tasks."""

    def __init__(self, state: RunState, handler: AsyncHandler, concurrency: int) -> None:
        self.state = state
        self._handler = handler
        self._concurrency = concurrency
        self._tasks: dict[asyncio.Future[object], Job] = {}
        self._finished: list[asyncio.Future[object]] = []
        self._news = asyncio.Event()

    def start(self) -> bool:
        """Start jobs. Returns True if more jobs wait, also for others of their key."""
        while self.state.running < self._concurrency and (job := self.state.next()) is not None:
            try:
                begun = self._handler(job.record)
            except Exception as error:
                begun = _failed(error)
            task = asyncio.ensure_future(begun)  # raises TypeError if the handler is no coroutine function
            if task in self._tasks:  # handlers may return one future for the records of a batch
                task = asyncio.ensure_future(_awaited(task))
            self._tasks[task] = job
            task.add_done_callback(self._put)
            self.state.started(job)
        return self.state.jobs.blocked

    def _put(self, task: "asyncio.Future[object]") -> None:
        self._finished.append(task)
        self._news.set()

    def settle(self) -> None:
        """Take the outcomes of handlers."""
        self._news.clear()
        while self._finished:  # HandlerFailed may leave the others to `end`
            task = self._finished.pop(0)
            job = self._tasks.pop(task)
            if task.cancelled() and self.state.stopping:
                self.state.cancelled(job)
                continue
            error = RuntimeError("the handler was cancelled") if task.cancelled() else task.exception()
            if error is None or isinstance(error, Exception):
                self.state.finished(job, error, monotonic())
            else:
                self.state.broken(job, error)
        self.state.tick(monotonic())

    async def news(self, timeout_s: float) -> None:
        """Wait until a handler has ended, and take the outcomes."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._news.wait()
        self.settle()

    async def end(self, timeout_s: float) -> None:
        """Start nothing more, and wait until the running handlers have ended. The others are cancelled."""
        self.state.stop()
        try:
            await self._until(lambda: self.state.idle, timeout_s)
        finally:  # also if a cancellation cuts the wait off
            for task in self._tasks:
                task.cancel()
        await self._until(lambda: not self._tasks, max(timeout_s, WAIT_S))  # a cancellation takes turns of the loop

    async def wait_for(self, partitions: Iterable[TopicPartition], timeout_s: float) -> None:
        """Wait until no handler has records of these partitions."""
        with self.state.failures_deferred():  # else the rest of the revocation would be left out
            await self._until(lambda: not self.state.running_of(partitions), timeout_s)

    async def _until(self, reached: Callable[[], bool], timeout_s: float) -> None:
        until = monotonic() + timeout_s
        while not reached() and monotonic() < until:
            await self.news(WAIT_S)


class _TaskHooks(RunHooks):
    """Revoked partitions are finished and committed before they go."""

    async def on_revoked(self, event: Revoked) -> Offsets:
        """Wait for running handlers, and return the offsets of the records that are done."""
        self.jobs.close(event.partitions)
        await self.work.wait_for(event.partitions, self.timeout_s)
        return {**(await _awaited(self.former.on_revoked(event)) or {}), **self.done_of(event.partitions)}

    async def on_assigned(self, event: Assigned) -> Offsets:
        """Call the former hook."""
        return await _awaited(self.former.on_assigned(event)) or {}

    async def on_lost(self, event: Lost) -> None:
        """Forget the partitions."""
        self.jobs.drop(event.partitions)
        await _awaited(self.former.on_lost(event))


async def _awaited(result: Any) -> Any:
    return await result if isinstance(result, Awaitable) else result
