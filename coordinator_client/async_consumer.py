"""AsyncConsumer: the asyncio interface of the same driver. Calls that wait are awaited, others are as in Consumer.

Heartbeats do not depend on the event loop, because they run on the driver's thread. A blocked loop therefore loses only
time, until max_poll_interval_ms.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from functools import partial
from types import TracebackType
from typing import Any, Never, Self, TypeVar

from kohort.common import KohortError, TopicPartition
from kohort.coordinator_client.consumer_base import ALL, ConsumerBase, Offsets
from kohort.coordinator_client.consumer_config import ConsumerConfig
from kohort.coordinator_client.consumer_core import ConsumerCore
from kohort.coordinator_client.errors import CallbackError, ConsumerClosed
from kohort.coordinator_client.fetch._collect import CollectedFetches, ReturnedFetches, usual_look
from kohort.coordinator_client.hooks import HookCall
from kohort.coordinator_client.offset_reset import OffsetReset
from kohort.coordinator_client.offsets.describe_group import GroupMemberDescription
from kohort.coordinator_client.offsets.positions import Position, unknown_position
from kohort.coordinator_client.poll_loop import HOOK_GRACE_S, QUIET_WAIT_S, HookOutcome
from kohort.fastpath import RecordColumns
from kohort.network._guard import Visit, keep_result
from kohort.network._poller import Lease
from kohort.network.arguments import each_partition, partition_given, seconds_given, times_given
from kohort.network.client_handle import LONGEST_WAIT_S
from kohort.network.errors import ConcurrentUseError, IllegalState
from kohort.network.group_types import OffsetAndMetadata
from kohort.network.offset_requests import EARLIEST, LATEST, ListedOffset
from kohort.network.process_exit import OPEN
from kohort.network.promise import Promise
from kohort.network.timed_event import TimedEvent, call_in, check_loop, stopped

T = TypeVar("T")


class AsyncConsumer(ConsumerBase):
    """As `Consumer`, for asyncio; hooks may be coroutine functions.

        async with AsyncConsumer("localhost:9092", group="billing") as consumer:
            consumer.subscribe(["payments"])
            async for columns in consumer:
                ...
                await consumer.commit(columns.next_offsets)

    Calls that wait are awaited. `subscribe`, `assign`, `seek` and `pause` do not wait, and are not awaited.

    Create it inside a running loop, and use it there. Awaited calls raise IllegalState in another loop. Only `close`
    works there, once the first loop has stopped. One task at a time may poll (ConcurrentUseError). Other tasks may wait
    in other calls meanwhile. Signal handlers are treated as in `Consumer`. At the interpreter's end an open consumer
    leaves the group. No hook is called then, and nothing more is committed.
    """

    _awaits = True

    def _begin(self, config: ConsumerConfig, on_reset: Callable[[OffsetReset], None] | None) -> None:
        loop = asyncio.get_running_loop()  # first: where there is none, no driver may have been started
        super()._begin(config, on_reset)
        OPEN[self] = AsyncConsumer._leave_at_exit
        self._wake_in(loop)
        self._busy: object | None = None
        self._hook_runs_in: asyncio.Task[Any] | None = None
        self._waiting: set[asyncio.Event] = set()  # one for each call that waits for a promise
        driver = self._session.driver
        driver.ended.then(partial(call_in, self._loop, partial(_set_all, self._waiting)))  # no promise is kept any more
        sockets = driver.lease.open()
        if sockets >= 0:
            # The reader keeps the driver, and so the descriptor, until it is removed: no other file may get its number.
            driver.ended.then(partial(call_in, self._loop, partial(_end_lease, self._loop, driver.lease, sockets)))
            self._loop.add_reader(sockets, driver.lease.serve_ready, self._news.set)

    def _wake_in(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop, self._news, self._hook_over = loop, TimedEvent(), TimedEvent()
        self._session.driver.on_update = partial(call_in, loop, self._news.set)  # keeps no consumer alive

    def _check_loop(self) -> None:
        check_loop(self._loop, "AsyncConsumer")

    # --- records

    async def poll(self, timeout_s: float = 1.0, **strange: Never) -> list[RecordColumns]:
        """Return available records, one RecordColumns for each partition. Waits up to `timeout_s` seconds for the
        first.

        Runs hooks and commit callbacks. Raises pending errors: of the group, of partitions, WakeupError. Raises
        IllegalState before `subscribe` or `assign`, which may be given an empty list, and after `unsubscribe`.
        """
        timeout_s = seconds_given(timeout_s, **strange)
        session = self._session
        visit = self._enter()
        try:
            collected = await self._poll(session.driver.now() + timeout_s, ALL)
            columns, handed = collected.columns, ReturnedFetches(collected)
        except BaseException as problem:
            visit.leave()
            if problem is session.error:
                session.error = None
            raise
        visit.handed = handed  # the last step, as in Consumer
        return columns

    async def __aiter__(self) -> AsyncIterator[RecordColumns]:
        """Yield slices, for ever. Iteration ends when the consumer is closed."""
        session = self._session
        while not session.closed:
            visit = self._enter()
            try:
                collected = await self._poll(session.driver.now() + 3600.0, 1)
                columns, handed = collected.columns, ReturnedFetches(collected)
            except BaseException as problem:
                visit.leave()
                if problem is session.error:
                    session.error = None
                raise
            if columns:
                one = columns[0]
                visit.handed = handed
                yield one
            else:
                visit.leave()

    def _enter(self) -> Visit:
        """Enter a call. Raises CallbackError in a hook, and ConcurrentUseError while a hook of another task runs."""
        try:
            return super()._enter()
        except CallbackError:
            if self._hook_runs_in is asyncio.current_task():
                raise
            raise _polled_by_another() from None

    async def _poll(self, until: float, most_slices: int) -> CollectedFetches:
        self._check_loop()
        session, me = self._session, asyncio.current_task()
        if self._busy is not None:
            raise _polled_by_another()
        try:
            self._busy = me
            session.poll_begins(alone=False)
            return await self._collect(until, most_slices)
        except KohortError as error:
            session.poll_failed(error)
            raise
        finally:
            self._busy = None
            session.poll_ends()
            session.look()

    async def _collect(self, until: float, most_slices: int) -> CollectedFetches:
        # Apart from the `try` of `_poll`: CPython 3.14 leaves a conditional jump backward out of its exception table:
        # a handler that raises there would skip the `finally` around the loop.
        session = self._session
        while not session.closed:
            self._news.clear()
            collected = usual_look(session, most_slices)
            due = session.next_action() if collected is None else None
            if isinstance(due, HookCall):
                await self._run_hook(due)
            elif due is not None:
                due()
            elif (collected := collected or session.gather(most_slices)).columns:
                return collected
            elif collected.items:
                session.collector.skip_batch(collected)
            else:
                session.driver.check()
                if not await self._wait(until):
                    break
        return CollectedFetches()

    async def _wait(self, until: float) -> bool:
        left = until - self._session.driver.now()
        if self._session.core.owes_loss:
            left = max(left, HOOK_GRACE_S)
        if left <= 0:
            return False
        await self._news.wait(min(left, LONGEST_WAIT_S))  # Ctrl-C in the event loop may lose an update
        return True

    async def _run_hook(self, call: HookCall) -> None:
        session = self._session
        hook, event, outcome, me = session.hook_of(call), call.event, HookOutcome(call), asyncio.current_task()
        self._hook_over.clear()
        session.in_hook = True
        session.outcome = outcome
        self._hook_runs_in = me
        try:
            try:
                keep_result(outcome, hook, event)
                if not outcome.returned:
                    outcome.result = await outcome.result  # type: ignore[misc]  # it is awaitable
            except BaseException as problem:
                if outcome.returned:  # it was interrupted after the hook, whose result counts
                    outcome.over = True
                    raise
                outcome.error = problem
            outcome.over = True
        finally:
            session.in_hook = False
            self._hook_runs_in = None
            self._hook_over.set()
        session.hook_over()

    async def _hook_of_another(self, until: float) -> None:
        """Wait for a hook of another task: the consumer leaves the group only after it."""
        while self._hook_runs_in not in (None, asyncio.current_task()):
            if not await self._hook_over.wait(until - self._session.driver.now()):
                return

    async def _run_until(self, reached: Callable[[ConsumerCore], bool], timeout_s: float) -> None:
        session = self._session
        until = session.driver.now() + timeout_s
        try:
            session.poll_begins(handled=False)
            while True:
                self._news.clear()
                session.core.has_updates = False
                if session.reached(reached):
                    return
                call = session.next_hook()
                if call is not None:
                    await self._run_hook(call)
                    continue
                if not await self._wait(until):
                    return
        except BaseException as problem:
            if problem is session.error:
                session.error = None
            raise
        finally:
            session.poll_ends()

    async def unsubscribe(self) -> None:
        """Cancel the subscription (hooks run, and the member leaves the group) or the manual assignment.

        `poll` and iteration raise IllegalState until the next `subscribe` or `assign`.
        """
        self._check_loop()
        patience_s = self._config.request_timeout_ms / 1000
        await self._hook_of_another(self._session.driver.now() + patience_s)
        with self._enter():
            self._save_by_hand()
            self._session.call(lambda core: core.unsubscribe())
            await self._run_until(lambda core: core.out, patience_s)

    # --- offsets

    async def position(self, partition: TopicPartition, timeout_s: float | None = None) -> int:
        """Return the offset of the next record that poll returns. Waits until it is known.

        Raises the partition's error if that keeps it unknown, e.g. NoOffset without a reset policy.
        """
        return await self._once_known(lambda core: core.position(partition_given(partition)), partition, timeout_s)

    async def position_of(self, partition: TopicPartition, timeout_s: float | None = None) -> Position:
        """As `position`, with the leader epoch and the topic's id.

        They show later, or elsewhere, if the log was truncated or the topic created again since.
        """
        return await self._once_known(lambda core: core.position_of(partition_given(partition)), partition, timeout_s)

    async def _once_known(
        self, look: Callable[[ConsumerCore], T | None], partition: TopicPartition, timeout_s: float | None
    ) -> T:
        self._check_loop()
        until = self._deadline(timeout_s)
        while True:
            self._news.clear()
            with self._session.acquire():  # in each round: another task may have closed the consumer
                found = self._session.read(look)
            if found is not None:
                return found
            left = until - self._session.driver.now()
            if left <= 0:
                raise unknown_position(partition)
            await self._news.wait(min(left, QUIET_WAIT_S))

    async def committed(
        self, partitions: Iterable[TopicPartition], timeout_s: float | None = None, *, stable: bool = True
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return the committed offsets of the group, fetched from its coordinator; None if there is none.

        They are in the order of `partitions`. `stable`: wait for open transactions that may change them (KIP-447).
        """
        with self._session.acquire():
            return await self._future(self._request_committed(partitions, timeout_s, stable=stable))

    async def beginning_offsets(
        self, partitions: Iterable[TopicPartition], timeout_s: float | None = None
    ) -> dict[TopicPartition, int]:
        """The first offset of each log. No assignment is needed."""
        return await self._offsets(dict.fromkeys(each_partition(partitions), EARLIEST), timeout_s)

    async def end_offsets(
        self, partitions: Iterable[TopicPartition], timeout_s: float | None = None, *, stable: bool = True
    ) -> dict[TopicPartition, int]:
        """The offset behind the last record of each log (of the last stable one under read_committed, if `stable`)."""
        wanted = dict.fromkeys(each_partition(partitions), LATEST)
        return await self._offsets(wanted, timeout_s, stable=stable)

    async def offsets_for_times(
        self, times_ms: Mapping[TopicPartition, int], timeout_s: float | None = None
    ) -> dict[TopicPartition, ListedOffset | None]:
        """The first record not older than a time (ms since the epoch), None where there is none that late."""
        wanted = times_given(times_ms)
        with self._session.acquire():
            found = await self._future(self._request_offsets(wanted, timeout_s))
        return {one: (listed if listed.offset >= 0 else None) for one, listed in found.items()}

    async def _offsets(
        self, wanted: dict[TopicPartition, int], timeout_s: float | None, *, stable: bool = True
    ) -> dict[TopicPartition, int]:
        with self._session.acquire():
            found = await self._future(self._request_offsets(wanted, timeout_s, stable=stable))
        return {one: listed.offset for one, listed in found.items()}

    async def partitions_for(
        self, topic: str, timeout_s: float | None = None, *, fresh: bool = False
    ) -> tuple[TopicPartition, ...]:
        """Return the partitions of a topic. Raises UnknownTopic after brokers have not found it for 5 s, or at the
        time-out.

        Metadata not older than `metadata_max_age_ms` is used, unless `fresh`. Raises OperationTimeout without a
        response.
        """
        with self._session.acquire():
            return await self._future(self._request_topic(topic, timeout_s, fresh))

    async def topics(self, timeout_s: float | None = None) -> dict[str, tuple[TopicPartition, ...]]:
        """Return all topics that this client may see, with their partitions, from a new Metadata request.

        Kafka's internal topics are omitted, unless `exclude_internal_topics` is False.
        """
        with self._session.acquire():
            return await self._future(self._request_topics(timeout_s))

    async def group_members(self, timeout_s: float | None = None) -> tuple[GroupMemberDescription, ...]:
        """Return the group's current members, of any client, by DescribeGroups from its coordinator.

        Empty for a KIP-848 group, which needs another request. Raises AuthorizationFailed.
        """
        with self._session.acquire():
            return await self._future(self._request_members(timeout_s))

    async def lag(self, timeout_s: float | None = None) -> dict[TopicPartition, int]:
        """Records between position and end of the log (the last stable offset under read_committed), by partition."""
        partitions = self.assignment
        known = self._session.read(lambda core: core.fetcher.fresh_ends(partitions & core.allowed))
        ends = known | await self.end_offsets([one for one in partitions if one not in known], timeout_s)
        lag = {}
        for one in sorted(partitions):
            with contextlib.suppress(IllegalState):  # a poll in another task has let it go meanwhile
                lag[one] = max(ends[one] - await self.position(one, timeout_s), 0)
        return lag

    async def lag_s(self, timeout_s: float | None = None) -> dict[TopicPartition, float | None]:
        """Return the lag in seconds by partition: the current time less the timestamp of the next record.

        0.0 if no record waits (below the last stable offset under read_committed). It fetches nothing: if the next
        record is not buffered, the timestamp of the last returned record is used instead. None if there is none.
        """
        return self._seconds_behind(await self.lag(timeout_s))

    async def commit(
        self, offsets: Offsets | None = None, *, timeout_s: float | None = None, allow_rewind: bool = False
    ) -> None:
        """Commit offsets (of the *next* record to read) for the group, and wait until they are stored.

        None: the positions, which are behind everything that poll has returned. Raises:

        - CommitFailed after the group has expelled this member,
        - RebalanceInProgress during a rebalance (poll, then commit again),
        - CommitRewind for an offset below the committed one,
        - UnknownTopic or TopicRecreated once metadata shows that the topic was deleted,
        - OperationTimeout if the outcome is unknown,
        - BrokerError for other errors.
        """
        self._check_loop()  # before the request is on its way
        with self._session.acquire():
            future = self._put_commit(offsets, timeout_s, allow_rewind)
            try:
                await self._future(future)
            finally:
                self._session.run_callbacks()

    async def _future(self, promise: "Promise[T]") -> T:
        self._check_loop()
        done = asyncio.Event()
        promise.add_done_callback(lambda _promise: call_in(self._loop, done.set))
        self._waiting.add(done)
        try:
            await done.wait()
        finally:
            self._waiting.discard(done)
        if not promise.done():
            self._session.driver.check()
            raise ConsumerClosed("another task has closed the consumer")
        return promise.result()

    # --- the end

    async def close(self, timeout_s: float = 30.0) -> None:
        """Revoke partitions (hooks run), commit if commits are automatic, leave the group, close every connection.

        It ends after `timeout_s` seconds at the latest, and then raises exceptions of hooks. Steps that are not
        finished by then are skipped. Safe to call again. If a signal handler has raised in it, all other calls raise
        ConsumerClosed, and another `close` completes it.

        A task that is cancelled in it counts as interrupted.
        """
        timeout_s = seconds_given(timeout_s)
        session = self._session
        until = session.driver.now() + timeout_s
        if not self._loop.is_running():  # no update would end a wait
            self._wake_in(asyncio.get_running_loop())
        self._check_loop()
        await self._hook_of_another(until)
        if session.over:
            return
        with session.acquire(in_hooks=False, when_crashed=True, when_closed=True):
            try:
                if not session.driver.stopping:
                    session.parting_begins(until)
                    await self._run_until(lambda core: not core.commits.owed, timeout_s / 2)
                    session.call(lambda core: core.request_close(session.driver.now(), until))
                    await self._run_until(lambda core: core.left, until - session.driver.now())
                session.hook_over()
                session.run_callbacks()
            finally:
                session.closed = True
                self._news.set()  # another task may be waiting in poll
                if session.parted(until):
                    await stopped(session.driver, self._loop, max(until - session.driver.now(), 1.0))
        session.raise_late()

    def _leave_at_exit(self, timeout_s: float) -> None:
        self._session.leave_at_exit(timeout_s)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def _polled_by_another() -> ConcurrentUseError:
    return ConcurrentUseError("another task is polling this consumer", hint="poll from one task")


def _end_lease(loop: asyncio.AbstractEventLoop, lease: Lease, sockets: int) -> None:
    loop.remove_reader(sockets)
    lease.close()


def _set_all(events: set[asyncio.Event]) -> None:
    for event in events:
        event.set()
