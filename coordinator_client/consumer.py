"""Consumer: the blocking face of the driver."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import TracebackType
from typing import Never, Self, TypeVar

from kohort.common import KohortError, TopicPartition
from kohort.coordinator_client.consumer_base import ALL, ConsumerBase, Offsets
from kohort.coordinator_client.consumer_config import ConsumerConfig
from kohort.coordinator_client.consumer_core import ConsumerCore
from kohort.coordinator_client.fetch._collect import CollectedFetches, ReturnedFetches, usual_poll
from kohort.coordinator_client.hooks import HookCall
from kohort.coordinator_client.offset_reset import OffsetReset
from kohort.coordinator_client.offsets.describe_group import GroupMemberDescription
from kohort.coordinator_client.offsets.positions import Position, unknown_position
from kohort.coordinator_client.poll_loop import HookOutcome
from kohort.fastpath import RecordColumns
from kohort.network._guard import keep_result
from kohort.network.arguments import each_partition, partition_given, seconds_given, times_given
from kohort.network.errors import ConcurrentUseError, OperationTimeout
from kohort.network.group_types import OffsetAndMetadata
from kohort.network.offset_requests import EARLIEST, LATEST, ListedOffset
from kohort.network.process_exit import OPEN
from kohort.network.promise import Promise

T = TypeVar("T")


class Consumer(ConsumerBase):
    """A member of a consumer group or, with `assign`, a reader of given partitions.

        with Consumer("localhost:9092", group="billing", assignors=["range"]) as consumer:
            consumer.subscribe(["payments"])
            for columns in consumer:
                ...
                consumer.commit(columns.next_offsets)

    `bootstrap`: addresses of the first brokers, "host:port", comma-separated or as a list. `group`: without a group,
    only `assign` is possible. `on_reset`: called inside poll with an `OffsetReset` when `auto_offset_reset` has set a
    position. `settings`: by kohort's names, see `kohort.coordinator_client.SETTINGS`.

    `timeout_s` of any call is in seconds. Infinity is allowed. Times longer than 2,000,000 s (23 days) are cut to that,
    and negative times count as 0. Raises ValueError for NaN.

    One thread at a time may use it (ConcurrentUseError), except for `wakeup`. Heartbeats and fetches run on a thread of
    their own. Every error derives from KohortError. Raises ConfigError at once for invalid settings. If no broker can
    be reached, the first call that needs a broker raises ConnectionFailed.

    A signal handler may call `wakeup`, and may raise. If it raises inside a call, no record, callback or hook is lost:
    the records of an interrupted poll come with the next poll. The outcome of another interrupted call is unknown, so
    call it again. Other methods raise ConcurrentUseError in a handler that has interrupted a call which uses the
    consumer's state. A consumer that is dropped without `close` leaves the group and stops, with a ResourceWarning. No
    hook is called then, and nothing more is committed.
    """

    def _begin(self, config: ConsumerConfig, on_reset: Callable[[OffsetReset], None] | None) -> None:
        super()._begin(config, on_reset)
        OPEN[self] = Consumer._close_at_exit

    def unsubscribe(self) -> None:
        """Cancel the subscription (hooks run, and the member leaves the group) or the manual assignment.

        `poll` and iteration raise IllegalState until the next `subscribe` or `assign`.
        """
        with self._enter():
            self._save_by_hand()
            self._session.call(lambda core: core.unsubscribe())
            self._run_until(lambda core: core.out, self._config.request_timeout_ms / 1000)

    # --- records

    def poll(self, timeout_s: float = 1.0, **strange: Never) -> list[RecordColumns]:
        """Return available records, one RecordColumns for each partition. Waits up to `timeout_s` seconds for the
        first.

        Runs hooks and commit callbacks. Raises pending errors: of the group, of partitions, WakeupError. Raises
        IllegalState before `subscribe` or `assign`, which may be given an empty list, and after `unsubscribe`.
        """
        timeout_s = seconds_given(timeout_s, **strange)
        session = self._session
        visit = session.acquire(in_hooks=False)
        try:
            collected = self._poll(session.driver.now() + timeout_s, ALL)
            columns, handed = collected.columns, ReturnedFetches(collected)
        except BaseException as problem:
            visit.leave()
            if problem is session.error:
                session.error = None
            raise
        # The last step: a signal handler that raises before it leaves all records where they were.
        visit.handed = handed
        return columns

    def __iter__(self) -> Iterator[RecordColumns]:
        """Yield slices, for ever. Iteration ends when the consumer is closed."""
        session = self._session
        while not session.closed:
            visit = session.acquire(in_hooks=False)
            try:
                collected = self._poll(session.driver.now() + 3600.0, 1)
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

    def _poll(self, until: float, most_slices: int) -> CollectedFetches:
        session = self._session
        try:
            session.poll_begins()
            usual = usual_poll(session, until, most_slices)
            if usual is not None:
                return usual
            while not session.closed:  # which a callback may have done
                seen = session.driver.bell.rings
                due = session.next_action()
                if isinstance(due, HookCall):
                    self._run_hook(due)
                elif due is not None:
                    due()
                elif (collected := session.gather(most_slices)).columns:
                    return collected
                elif collected.items:
                    session.collector.skip_batch(collected)
                else:
                    session.driver.check()
                    if not session.wait(until, seen):
                        break
            return CollectedFetches()
        except KohortError as error:
            session.poll_failed(error)
            raise
        finally:
            session.poll_ends()
            if session._observer is not None:
                session.look()

    def _run_hook(self, call: HookCall) -> None:
        session = self._session
        hook, event, outcome = session.hook_of(call), call.event, HookOutcome(call)
        session.in_hook = True
        session.outcome = outcome
        try:
            try:
                keep_result(outcome, hook, event)
            except BaseException as problem:
                if outcome.returned:  # it was interrupted after the hook, whose result counts
                    outcome.over = True
                    raise
                outcome.error = problem
            outcome.over = True
        finally:
            session.in_hook = False
        session.hook_over()

    def _run_until(self, reached: Callable[[ConsumerCore], bool], timeout_s: float) -> None:
        """Run hooks until the core has reached the condition, or the time is over."""
        session = self._session
        until = session.driver.now() + timeout_s
        try:
            session.poll_begins(handled=False)
            while True:
                seen = session.driver.bell.rings
                session.core.has_updates = False
                if session.reached(reached):
                    return
                call = session.next_hook()
                if call is not None:
                    self._run_hook(call)
                    continue
                if not session.wait(until, seen, wakeable=False):
                    return
        except BaseException as problem:
            if problem is session.error:
                session.error = None
            raise
        finally:
            session.poll_ends()

    # --- offsets

    def position(self, partition: TopicPartition, timeout_s: float | None = None) -> int:
        """Return the offset of the next record that poll returns. Waits until it is known.

        Raises the partition's error if that keeps it unknown, e.g. NoOffset without a reset policy.
        """
        return self._once_known(lambda core: core.position(partition_given(partition)), partition, timeout_s)

    def position_of(self, partition: TopicPartition, timeout_s: float | None = None) -> Position:
        """As `position`, with the leader epoch and the topic's id.

        They show later, or elsewhere, if the log was truncated or the topic created again since.
        """
        return self._once_known(lambda core: core.position_of(partition_given(partition)), partition, timeout_s)

    def _once_known(
        self, look: Callable[[ConsumerCore], T | None], partition: TopicPartition, timeout_s: float | None
    ) -> T:
        with self._session.acquire():
            until = self._deadline(timeout_s)
            while (found := self._session.read(look)) is None:
                if not self._session.wait_quietly(until):
                    raise unknown_position(partition)
            return found

    def committed(
        self, partitions: Iterable[TopicPartition], timeout_s: float | None = None, *, stable: bool = True
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return the committed offsets of the group, fetched from its coordinator; None if there is none.

        They are in the order of `partitions`. `stable`: wait for open transactions that may change them (KIP-447).
        """
        with self._session.acquire():
            return self._result(self._request_committed(partitions, timeout_s, stable=stable), timeout_s)

    def beginning_offsets(
        self, partitions: Iterable[TopicPartition], timeout_s: float | None = None
    ) -> dict[TopicPartition, int]:
        """The first offset of each log. No assignment is needed."""
        return self._offsets(dict.fromkeys(each_partition(partitions), EARLIEST), timeout_s)

    def end_offsets(
        self, partitions: Iterable[TopicPartition], timeout_s: float | None = None, *, stable: bool = True
    ) -> dict[TopicPartition, int]:
        """The offset behind the last record of each log (of the last stable one under read_committed, if `stable`)."""
        return self._offsets(dict.fromkeys(each_partition(partitions), LATEST), timeout_s, stable=stable)

    def offsets_for_times(
        self, times_ms: Mapping[TopicPartition, int], timeout_s: float | None = None
    ) -> dict[TopicPartition, ListedOffset | None]:
        """The first record not older than a time (ms since the epoch), None where there is none that late."""
        found = self._look_up(times_given(times_ms), timeout_s)
        return {one: (listed if listed.offset >= 0 else None) for one, listed in found.items()}

    def _offsets(
        self, wanted: dict[TopicPartition, int], timeout_s: float | None, *, stable: bool = True
    ) -> dict[TopicPartition, int]:
        return {one: listed.offset for one, listed in self._look_up(wanted, timeout_s, stable=stable).items()}

    def _look_up(
        self, wanted: dict[TopicPartition, int], timeout_s: float | None, *, stable: bool = True
    ) -> Mapping[TopicPartition, ListedOffset]:
        with self._session.acquire():
            return self._result(self._request_offsets(wanted, timeout_s, stable=stable), timeout_s)

    def partitions_for(
        self, topic: str, timeout_s: float | None = None, *, fresh: bool = False
    ) -> tuple[TopicPartition, ...]:
        """Return the partitions of a topic. Raises UnknownTopic after brokers have not found it for 5 s, or at the
        time-out.

        Metadata not older than `metadata_max_age_ms` is used, unless `fresh`. Raises OperationTimeout without a
        response.
        """
        with self._session.acquire():
            return self._result(self._request_topic(topic, timeout_s, fresh), timeout_s)

    def topics(self, timeout_s: float | None = None) -> dict[str, tuple[TopicPartition, ...]]:
        """Return all topics that this client may see, with their partitions, from a new Metadata request.

        Kafka's internal topics are omitted, unless `exclude_internal_topics` is False.
        """
        with self._session.acquire():
            return self._result(self._request_topics(timeout_s), timeout_s)

    def group_members(self, timeout_s: float | None = None) -> tuple[GroupMemberDescription, ...]:
        """Return the group's current members, of any client, by DescribeGroups from its coordinator.

        Empty for a KIP-848 group, which needs another request. Raises AuthorizationFailed.
        """
        with self._session.acquire():
            return self._result(self._request_members(timeout_s), timeout_s)

    def lag(self, timeout_s: float | None = None) -> dict[TopicPartition, int]:
        """Records between position and end of the log (the last stable offset under read_committed), by partition."""
        with self._session.acquire():
            partitions = self.assignment
            known = self._session.read(lambda core: core.fetcher.fresh_ends(partitions & core.allowed))
            ends = known | self.end_offsets([one for one in partitions if one not in known], timeout_s)
            return {one: max(ends[one] - self.position(one, timeout_s), 0) for one in sorted(partitions)}

    def lag_s(self, timeout_s: float | None = None) -> dict[TopicPartition, float | None]:
        """Return the lag in seconds by partition: the current time less the timestamp of the next record.

        0.0 if no record waits (below the last stable offset under read_committed). It fetches nothing: if the next
        record is not buffered, the timestamp of the last returned record is used instead. None if there is none.
        """
        with self._session.acquire():
            return self._seconds_behind(self.lag(timeout_s))

    # --- commits

    def commit(
        self,
        offsets: Offsets | None = None,
        *,
        timeout_s: float | None = None,
        allow_rewind: bool = False,
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
        with self._session.acquire():
            future = self._put_commit(offsets, timeout_s, allow_rewind)
            try:
                self._result(future, timeout_s)
            finally:
                self._session.run_callbacks()

    # --- the end

    def close(self, timeout_s: float = 30.0) -> None:
        """Revoke partitions (hooks run), commit if commits are automatic, leave the group, close every connection.

        It ends after `timeout_s` seconds at the latest, and then raises exceptions of hooks. Steps that are not
        finished by then are skipped. Safe to call again. If a signal handler has raised in it, all other calls raise
        ConsumerClosed, and another `close` completes it.
        """
        timeout_s = seconds_given(timeout_s)
        session = self._session
        if session.over:
            return
        with session.acquire(in_hooks=False, when_crashed=True, when_closed=True):
            until = session.driver.now() + timeout_s
            try:
                if not session.driver.stopping:
                    session.parting_begins(until)
                    self._run_until(lambda core: not core.commits.owed, timeout_s / 2)
                    session.call(lambda core: core.request_close(session.driver.now(), until))
                    self._run_until(lambda core: core.left, until - session.driver.now())
                session.hook_over()
                session.run_callbacks()
            finally:
                session.closed = True
                session.driver.bell.ring()  # a poll sleeps on, if a signal handler closes
                if session.parted(until):
                    session.driver.stop(max(until - session.driver.now(), 1.0))
                    session.driver.lease.close()
        session.raise_late()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- inner

    def _close_at_exit(self, timeout_s: float) -> None:
        try:
            self.close(timeout_s)
        except ConcurrentUseError:  # a daemon thread uses it
            self._session.leave_at_exit(timeout_s)

    def _result(self, future: "Promise[T]", timeout_s: float | None) -> T:
        try:
            return self._session.handle.result(future, self._seconds(timeout_s) + 5.0)  # the core ends it before
        except TimeoutError:
            raise OperationTimeout("no response in time") from None
