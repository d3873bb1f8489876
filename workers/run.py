"""`run`: handlers on threads or in processes. The caller's thread owns the consumer, and starts and settles jobs."""

import _thread
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import BrokenExecutor, Executor, Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import partial
from queue import Empty, SimpleQueue
from time import monotonic
from typing import Any

from kohort.common import KohortError, TopicPartition
from kohort.common.log_context import logger
from kohort.coordinator_client.consumer import Consumer
from kohort.coordinator_client.hooks import Assigned, HookResult, Lost, Offsets, Revoked
from kohort.fastpath import Record
from kohort.network._guard import keep_result
from kohort.network.arguments import function_given, not_awaited
from kohort.network.client_config import shared_settings
from kohort.network.process_exit import on_sigterm
from kohort.producer import Producer
from kohort.share_consumer import ShareConsumer
from kohort.workers.dead_letters import DeadLetters
from kohort.workers.job import Job
from kohort.workers.retry import Retry
from kohort.workers.run_plan import IDLE_S, WAIT_S, check_arguments
from kohort.workers.run_state import RunState, RunTotals
from kohort.workers.turns import KeyedTurn, RunHooks, hooked, turn_of

log = logger("kohort.workers")

Handler = Callable[[Record], object]


def run(
    consumer: ShareConsumer | Consumer,
    handler: Handler,
    *,
    concurrency: int = 10,
    processes: bool = False,
    retry: Retry = Retry(),  # noqa: B008 -- a frozen value
    dead_letter: str | None = None,
    max_held: int = 1000,
    stop: threading.Event | None = None,
    stop_timeout_s: float = 30.0,
) -> RunTotals:
    """Call `handler(record)` for each record of a subscribed consumer, on up to `concurrency` threads or processes.

    With `processes=True`, `handler` must be a function of a module. An error that cannot be pickled arrives as a
    RuntimeError. The program needs `if __name__ == "__main__":`, because processes are spawned. If one of them dies,
    the run ends with BrokenProcessPool, and its records are given back.

    It returns after SIGTERM, if it runs on the main thread, or when `stop` is set. Running handlers then have
    `stop_timeout_s` seconds to end. Those that take longer go on, but their outcomes have no effect. The program ends
    after them. The consumer stays open, and should be closed then. A Consumer that is not closed reads on from the
    first record that is not done.

    A `ShareConsumer`: each record is accepted when its handler has returned. Its lock is renewed until then. After a
    failure it is held for the delay of `retry`, and then released to any member. More than `max_held` such records are
    released at once. The number of an attempt is the delivery count.

    A `Consumer`: records of one partition with the same key run one after the other. All others run side by side. A
    failed record runs again here, before later records of its key. While `max_held` records wait, no new ones start.
    Offsets are committed only up to the first record that is not done.

    A record whose last attempt fails is sent to the topic `dead_letter`, and is done once it is in that log. Without
    `dead_letter`, a share consumer rejects it, and for a Consumer the run ends with HandlerFailed.

    Raises errors of the consumer, and UnknownTopic if `dead_letter` does not exist. Raises ConfigError for automatic
    commits, for a group with a dead-letter topic of its own (KIP-1191), and for a `dead_letter` that the consumer
    reads. Raises TypeError for a coroutine function as `handler`, or a coroutine that it returns, which only
    `run_async` awaits. With `processes`, also for a handler that no process can import.
    """
    check_arguments(
        consumer, (Consumer, ShareConsumer), handler, retry, concurrency, max_held, stop_timeout_s, dead_letter
    )
    function_given(handler, "handler")
    if processes:
        from kohort.workers.handler_processes import check_handler

        check_handler(handler)
    turn = turn_of(consumer, dead_letter)
    stop = stop or threading.Event()
    letters: DeadLetters | None = None
    with ExitStack() as stack:
        if dead_letter is not None:
            producer = stack.enter_context(Producer(**shared_settings(consumer.config)))
            letters = DeadLetters(producer, dead_letter, consumer.config.group or "")
        state = RunState(turn.jobs, retry, letters, max_held)
        work = stack.enter_context(_Handlers(state, handler, concurrency, processes=processes))
        # On another thread: one that is in `stop.set` when the signal comes has the lock of `stop`.
        stack.enter_context(on_sigterm(partial(_thread.start_new_thread, stop.set, ())))
        if isinstance(turn, KeyedTurn):
            stack.enter_context(hooked(turn, _ThreadHooks(turn.jobs, work, stop_timeout_s)))
        stack.callback(_finish, consumer, turn)  # also if an interrupt cuts off the end of the handlers
        stack.callback(state.give_up)
        stack.callback(work.end, stop_timeout_s)
        _take_turns(consumer, turn, work, stop)
    return work.state.outcome()


def _take_turns(consumer: Any, turn: Any, work: "_Handlers", stop: threading.Event) -> None:
    polled_at = -WAIT_S
    while not stop.is_set():
        work.settle()
        if work.start():
            work.settle(work.state.wait_s(monotonic(), WAIT_S))
            if monotonic() - polled_at < WAIT_S:
                continue
            poll_s = 0.0
        else:
            poll_s = work.state.wait_s(monotonic(), WAIT_S if work.state.running else IDLE_S)
        turn.before_poll()
        keep_result(turn, consumer.poll, poll_s)  # a signal handler that raises now loses no records
        turn.take_result()
        polled_at = monotonic()


def _finish(consumer: Any, turn: Any) -> None:
    if (given := turn.last_commit()) is not None:
        try:
            consumer.commit(**given)
        except KohortError as error:
            log.warning("the last commit failed, so its records are handled again: %s", error)


def call(handler: Handler, record: Record) -> TypeError | None:
    """Call a handler, in its process. What it returns stays there, since it may be nothing that pickle can send.

    Returns the error of a handler that is not awaited. It ends the run, while errors of handlers are failures.
    """
    return not_awaited(handler(record), "handler")


def _outcome(
    future: Future[TypeError | None], ends: tuple[type[Exception], ...]
) -> tuple[Exception | None, BaseException | None]:
    """The failure of a handler, and the error that ends the run, as those of `ends` do."""
    error = future.exception()
    if error is None:
        return None, future.result()
    if isinstance(error, ends) or not isinstance(error, Exception):
        return None, error
    return error, None


class _Handlers:
    """The handlers of a state on threads or in processes. Twice the concurrency is started, so that none of them waits
    for the caller."""

    def __init__(self, state: RunState, handler: Handler, concurrency: int, *, processes: bool) -> None:
        self.state = state
        self._handler = handler
        self._most = 2 * concurrency
        # On threads, such an error is of a pool of the handler's own.
        self._ends: tuple[type[Exception], ...] = (BrokenExecutor,) if processes else ()
        self._pool: Executor
        self._call = call
        self._processes_stopped: Any = None
        if processes:
            from kohort.workers.handler_processes import call_in_process, handler_processes

            self._pool, self._processes_stopped = handler_processes(concurrency)
            self._call = call_in_process
        else:
            self._pool = ThreadPoolExecutor(concurrency, thread_name_prefix="kohort-worker")
        self._finished: SimpleQueue[tuple[Job, Future[TypeError | None]]] = SimpleQueue()
        self._take = partial(self._finished.get, True)
        self.result: tuple[Job, Future[TypeError | None]] | None = None  # taken, until it is settled
        self._futures: set[Future[TypeError | None]] = set()

    def __enter__(self) -> "_Handlers":
        return self

    def __exit__(self, *_error: object) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def start(self) -> bool:
        """Start jobs. Returns True if more jobs wait, also for others of their key."""
        while self.state.running < self._most and (job := self.state.next()) is not None:
            future = self._pool.submit(self._call, self._handler, job.record)
            self._futures.add(future)
            future.add_done_callback(partial(self._put, job))
            self.state.started(job)  # last: a process may have died, no thread be left, or an interrupt have come
        return self.state.jobs.blocked

    def _put(self, job: Job, future: Future[TypeError | None]) -> None:
        self._finished.put((job, future))

    def settle(self, timeout_s: float = 0.0) -> None:
        """Take the outcomes of handlers, waiting for the first."""
        with suppress(Empty):
            while True:
                keep_result(self, self._take, timeout_s)  # a signal handler that raises now loses no outcome
                self._settle()
                timeout_s = 0.0
        self.state.tick(monotonic())

    def _settle(self) -> None:
        assert self.result is not None
        job, future = self.result
        self._futures.discard(future)
        if future.cancelled():
            self.state.cancelled(job)
        else:
            failure, end = _outcome(future, self._ends)
            if end is not None:
                self.state.broken(job, end)
            else:
                self.state.finished(job, failure, monotonic())
        self.result = None

    def end(self, timeout_s: float) -> None:
        """Start nothing more, and wait until the running handlers have ended."""
        until = monotonic() + timeout_s
        self.state.stop()
        if self._processes_stopped is not None:
            self._processes_stopped.value = 1
        for future in tuple(self._futures):
            future.cancel()
        if self.result is not None:
            self.state.cancelled(self.result[0])
        self.settle()  # even if `timeout_s` is 0
        while not self.state.idle and monotonic() < until:
            self.settle(WAIT_S)
        if not self.state.idle:
            log.warning("%d handlers did not end within %g s", self.state.running, timeout_s)

    def wait_for(self, partitions: Iterable[TopicPartition], timeout_s: float) -> None:
        """Wait until no handler has records of these partitions."""
        until = monotonic() + timeout_s
        with self.state.failures_deferred():  # else the rest of the revocation would be left out
            while self.state.running_of(partitions) and monotonic() < until:
                self.settle(WAIT_S)


class _ThreadHooks(RunHooks):
    """Revoked partitions are finished and committed before they go."""

    def on_revoked(self, event: Revoked) -> Offsets:
        """Wait for running handlers, and return the offsets of the records that are done."""
        self.jobs.close(event.partitions)
        self.work.wait_for(event.partitions, self.timeout_s)
        former: Any = self.former.on_revoked(event)  # the hooks of a Consumer are never awaited
        return {**(former or {}), **self.done_of(event.partitions)}

    def on_assigned(self, event: Assigned) -> HookResult:
        """Call the former hook."""
        return self.former.on_assigned(event)

    def on_lost(self, event: Lost) -> None:
        """Forget the partitions."""
        self.jobs.drop(event.partitions)
        self.former.on_lost(event)
