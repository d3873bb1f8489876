"""`Transform`: the loop that reads slices, calls a handler, and commits its results with the group's offsets."""

import contextlib
import random
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from kohort.common import KohortError, TopicPartition
from kohort.common.log_context import logger
from kohort.coordinator_client import CommitFailed, Consumer, WakeupError
from kohort.fastpath import RecordColumns
from kohort.network.arguments import callback_given, check_returned, function_given, name_given, names_given
from kohort.network.backoff import Backoff
from kohort.network.errors import ConfigError, OperationTimeout
from kohort.producer import Producer, TransactionAborted

if TYPE_CHECKING:
    from typing import Unpack

    from kohort.coordinator_client.consumer_settings import ConsumerSettings
    from kohort.network.client_settings import ClientSettings
    from kohort.producer.producer_settings import ProducerSettings

Handler = Callable[[RecordColumns, Producer], object]
"""Sends the results of a slice with the producer."""

OnRetry = Callable[[KohortError, int], object]
"""Called with the error and the number of failures in a row, before slices are handled again."""

log = logger("kohort.transform")

POLL_S: Final = 3_600.0
STOP_S: Final = 0.1
"""The longest time until a stop takes effect in the wait before a retry."""
LOOK_UP_S: Final = 5.0
"""The longest time until a stop takes effect while offsets are looked up, which may wait for another's transaction."""
BACKOFF: Final = Backoff(100, 10_000)
FIXED: Final = frozenset({"group", "group_instance_id", "isolation_level", "transactional_id", "enable_auto_commit"})


class Transform:
    """A member of a group that writes one result for each record, through crashes and rebalances (KIP-447).

        def shout(columns, producer):
            for record in columns:
                producer.send("shouted", record.value.upper(), key=record.key)

        Transform("localhost:9092", group="shouters", name="one", topics=["words"], handler=shout).run()

    The results of a poll and its offsets are one transaction. Consumers of the results need
    `isolation_level="read_committed"`. A handler may be called again for the same records. So its only effects should
    be records that it sends with the given producer.

    `name` is the member's own in the group, and stays the same over restarts. With it, brokers abort the transaction
    that a killed process left open, and the static member gets its partitions back at once. With `protocol="consumer"`
    it gets them when the session of the killed process has ended, after 45 s by default. Two processes with one name
    end each other. The transactional id is `GROUP-NAME`. In NAME, each `%` is written as `%25`, and each `-` as `%2D`.

    | error | reaction |
    |---|---|
    | CommitFailed, TransactionAborted, OperationTimeout | `on_retry`, then all again from the group's offsets |
    | OperationTimeout of the commit | the commit again, until its outcome is known |
    | ProducerFenced, and errors of the handler or of poll | the transaction is aborted, and `run` raises the error |

    `settings`: those of connections and security. `consumer` and `producer`: other settings of these clients.

    Raises TypeError for a handler that cannot be called, and for a coroutine function, which it would not await. Raises
    TypeError and ValueError for names that are none, and ConfigError for a setting that it sets itself.
    """

    def __init__(
        self,
        bootstrap: str | Sequence[str] = (),
        *,
        group: str,
        name: str,
        topics: Iterable[str],
        handler: Handler,
        on_retry: OnRetry | None = None,
        consumer: "ConsumerSettings | None" = None,
        producer: "ProducerSettings | None" = None,
        **settings: "Unpack[ClientSettings]",
    ) -> None:
        reads, writes = dict(consumer or {}), dict(producer or {})
        if fixed := FIXED & (reads.keys() | writes.keys()):
            raise ConfigError(f"a transform sets {min(fixed)} itself", hint="leave it out", setting=min(fixed))
        function_given(handler, "handler")
        callback_given(on_retry, "on_retry")
        name_given(group, "group")
        name_given(name, "name")
        self._topics = names_given([topics] if isinstance(topics, str) else topics, "topics")
        if not self._topics:
            raise ValueError("topics has no name: a transform reads at least one topic")
        self._handler = handler
        self._on_retry = on_retry or (lambda _error, _failures: None)
        self._reads: dict[str, Any] = {
            "auto_offset_reset": "earliest",
            **settings,
            **reads,
            "bootstrap": bootstrap,
            "group": group,
            "group_instance_id": name,
            "isolation_level": "read_committed",
            "enable_auto_commit": False,
        }
        self._writes: dict[str, Any] = {
            **settings,
            **writes,
            "bootstrap": bootstrap,
            # The last hyphen divides them. Else "a" with "b-c" and "a-b" with "c" would fence each other.
            "transactional_id": f"{group}-{name.replace('%', '%25').replace('-', '%2D')}",
        }
        self._stopped = False  # no Event: a signal handler would wait for the lock of the interrupted code
        self._consumer: Consumer | None = None
        self._failures = 0

    def run(self) -> None:
        """Read, handle and commit until `stop` is called.

        Raises the errors of the handler, of `on_retry` and of `Consumer.poll`, ProducerFenced if a newer process has
        the same name, and ConfigError. After `stop` it may raise the error of the last transaction. If that is the
        OperationTimeout of a commit, the next process with the name gets the outcome.
        """
        # The producer is first: it ends the transaction of an earlier process, for whose offsets the consumer waits.
        with Producer(**self._writes) as producer, Consumer(**self._reads) as consumer:
            self._consumer = consumer
            consumer.subscribe(self._topics)
            while not self._stopped:
                try:
                    slices = consumer.poll(POLL_S)
                except WakeupError:
                    continue
                if slices:
                    self._handle(slices, consumer, producer)

    def stop(self) -> None:
        """Let `run` return after the current transaction. From any thread, and from a signal handler; final."""
        self._stopped = True
        if self._consumer is not None:
            self._consumer.wakeup()

    # --- one transaction

    def _handle(self, slices: Sequence[RecordColumns], consumer: Consumer, producer: Producer) -> None:
        try:
            self._transact(slices, consumer, producer)
            self._failures = 0
        except (CommitFailed, TransactionAborted, OperationTimeout) as error:
            if self._stopped:
                raise
            self._failures += 1
            log.warning("the records are handled again: %s", error.__cause__ or error)
            self._on_retry(error, self._failures)
            self._wait(BACKOFF.delay_s(self._failures, random.random()))
            self._go_back(slices, consumer)

    def _transact(self, slices: Sequence[RecordColumns], consumer: Consumer, producer: Producer) -> None:
        try:
            producer.begin()  # raises TransactionAborted after an abort that timed out, until the next abort
            offsets: dict[TopicPartition, Any] = {}
            for columns in slices:
                check_returned(self._handler(columns, producer), "handler")
                offsets |= columns.next_offsets
            producer.send_offsets(offsets, consumer.group_metadata())
            self._commit(producer)
        except BaseException:
            with contextlib.suppress(KohortError):  # the first error is raised
                producer.abort()
            raise

    def _commit(self, producer: Producer) -> None:
        """Commit, again and again while the outcome is unknown."""
        while True:
            try:
                return producer.commit()
            except OperationTimeout as error:
                if self._stopped:
                    raise
                log.warning("the outcome of the commit is not known yet: %s", error)

    def _wait(self, delay_s: float) -> None:
        """Wait so long, or until `stop`."""
        until = time.monotonic() + delay_s
        while not self._stopped and (left_s := until - time.monotonic()) > 0:
            time.sleep(min(left_s, STOP_S))

    def _go_back(self, slices: Sequence[RecordColumns], consumer: Consumer) -> None:
        """Read on from the group's offsets, or from the first record of a partition that has none."""
        firsts: dict[TopicPartition, int] = {}
        for columns in slices:
            if len(columns):
                firsts.setdefault(TopicPartition(columns.topic, columns.partition), columns[0].offset)
        owned = [place for place in firsts if place in consumer.assignment]
        while not self._stopped:
            try:
                stored = consumer.committed(owned, LOOK_UP_S)
            except OperationTimeout as error:  # another member's open transaction has offsets of these partitions
                log.warning("no committed offsets yet: %s", error)
                continue
            for place, found in stored.items():
                consumer.seek(place, firsts[place] if found is None else found.offset)
            return
