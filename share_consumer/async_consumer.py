"""`AsyncShareConsumer`: the asyncio member of a share group. Calls that wait are awaited.

Heartbeats do not depend on the event loop, because they run on the driver's thread.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Never, Self, TypeVar

from kohort.network._guard import Visit
from kohort.network.arguments import seconds_given
from kohort.network.client_handle import LONGEST_WAIT_S
from kohort.network.errors import ConcurrentUseError
from kohort.network.process_exit import OPEN
from kohort.network.timed_event import TimedEvent, call_in, check_loop, stopped
from kohort.share_consumer.consumer_base import LONGEST_POLL_S, Failures, OnAcknowledged, ShareConsumerBase
from kohort.share_consumer.share_config import ShareConsumerConfig
from kohort.share_consumer.share_core import Handed
from kohort.share_consumer.share_records import ShareRecords

T = TypeVar("T")


class AsyncShareConsumer(ShareConsumerBase):
    """As `ShareConsumer`, for asyncio.

        async with AsyncShareConsumer("localhost:9092", group="jobs") as consumer:
            consumer.subscribe(["work"])
            async for batch in consumer:
                for record in batch:
                    consumer.acknowledge(record, "accept")
                failures = await consumer.commit()

    Create it inside a running loop, and use it there. `poll`, `commit` and `close` are awaited. They raise IllegalState
    in another loop. Only `close` works there, once the first loop has stopped. One task at a time may poll
    (ConcurrentUseError). The records of a poll that was cancelled come with the next one. At the interpreter's end an
    open consumer leaves the group.
    """

    def _begin(self, config: ShareConsumerConfig, on_acknowledged: OnAcknowledged | None) -> None:
        loop = asyncio.get_running_loop()  # first: where there is none, no driver may have been started
        self._polling = False
        super()._begin(config, on_acknowledged)
        OPEN[self] = AsyncShareConsumer._leave_at_exit
        self._wake_in(loop)

    def _wake_in(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop, self._news = loop, TimedEvent()
        self._driver.on_update = partial(call_in, loop, self._news.set)  # keeps no consumer alive

    def _check_loop(self) -> None:
        check_loop(self._loop, "AsyncShareConsumer")

    async def poll(self, timeout_s: float = 1.0, **strange: Never) -> list[ShareRecords]:
        """Return acquired records, a ShareRecords for each range with one delivery count; see `ShareConsumer.poll`."""
        timeout_s = seconds_given(timeout_s, **strange)
        visit = self._enter()
        found, handed = await self._poll(visit, timeout_s, every=True)
        visit.handed = handed  # the last step, as in ShareConsumer
        return found

    async def __aiter__(self) -> AsyncIterator[ShareRecords]:
        """Yield batches, for ever. Each step is a poll. Iteration ends when the consumer is closed."""
        while not self._closed:
            visit = self._enter()
            found, handed = await self._poll(visit, LONGEST_POLL_S, every=False)
            visit.handed = handed
            for batch in found:
                yield batch

    async def _poll(self, visit: Visit, timeout_s: float, *, every: bool) -> tuple[list[ShareRecords], Handed]:
        """The result of a poll, and its form for the next call. An error ends the visit."""
        try:
            return self._returned(await self._collect(timeout_s, every=every))
        except BaseException as problem:
            visit.leave()
            self._report("poll", problem)
            if problem is self._error:
                self._error = None  # the last step: no signal handler takes its place after this
            raise

    async def _collect(self, timeout_s: float, *, every: bool) -> list[ShareRecords]:
        self._check_loop()
        if self._polling:
            raise ConcurrentUseError("another task is polling this share consumer", hint="poll from one task")
        driver = self._driver
        until = self._begin_poll(timeout_s)
        self._polling = True
        try:
            while not self._closed:
                self._raise_due()
                self._call_back()
                parked = await self._wait_for(self._look, until)
                if parked is None:
                    break
                batches = self._batches(parked, every=every)
                if any(len(batch) for batch in batches):
                    return batches
                self._poll_on(batches, driver.now(), until)
        finally:
            self._polling = False
        return []

    async def commit(self, timeout_s: float | None = None) -> Failures:
        """Send the noted acknowledgements, and wait for their outcomes; see `ShareConsumer.commit`."""
        self._check_loop()
        seconds = self._commit_s(timeout_s)
        visit = self._enter()
        try:
            self._begin_commit()
            committed = await self._wait_for(self._committed, self._driver.now() + seconds)
            failures, handed = self._failed(committed)
        except BaseException as problem:
            visit.leave()
            self._report("commit", problem)
            raise
        visit.handed = handed  # the last step, as in poll
        return failures

    async def close(self, timeout_s: float = 30.0) -> None:
        """Send noted acknowledgements, release all other records, leave the group, close every connection.

        It ends after `timeout_s` seconds at the latest. It skips steps that are not finished by then. Safe to call
        again. If a signal handler has raised in it, or its task was cancelled, all other calls raise
        ShareConsumerClosed, and another `close` completes it.
        """
        timeout_s = seconds_given(timeout_s)
        driver = self._driver
        driver.check_same_process()
        if self._over:
            return
        if not self._loop.is_running():  # no update would end a wait
            self._wake_in(asyncio.get_running_loop())
        self._check_loop()
        self._closed = True
        self._news.set()  # another task may be waiting in poll
        with self._door.visit():
            until = driver.now() + timeout_s
            try:
                if not driver.stopping:
                    self._begin_close(until)
                    await self._wait_for(self._left, until)
                self._call_back()
            finally:
                if self._parted(until):
                    self._end()
                    # Another task may be waiting in commit, which raises an error then.
                    driver.ended.then(partial(call_in, self._loop, self._news.set))
                    await stopped(driver, self._loop, max(until - driver.now(), 1.0))

    async def _wait_for(self, look: Callable[[], T | None], until: float) -> T | None:
        """The first value of `look` that is not None; None at `until` (monotonic s), and for a poll when closed."""
        driver = self._driver
        while True:
            self._news.clear()
            found = driver.lock.run(look)
            if found is not None:
                return found
            driver.check()
            left_s = until - driver.now()
            if left_s <= 0 or (self._closed and look == self._look):
                return None
            await self._news.wait(min(left_s, LONGEST_WAIT_S))  # Ctrl-C in the event loop may lose an update

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.close()
