"""Records in Kafka, exactly once: output and offsets in one transaction."""

import struct
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import Any, Final
from urllib.parse import quote

from kohort.common.errors import KohortError
from kohort.common.log_context import logger
from kohort.common.topic_partition import TopicPartition
from kohort.consistent_region.effects import DueEffects, SinkPlace, TaskTerm
from kohort.consistent_region.errors import ConfigurationError, FencedError, RegionError, ResetFailedError
from kohort.consistent_region.setting_checks import given_as
from kohort.consistent_region.tasks import TaskId
from kohort.consistent_region.witness import NO_COMMIT, Witness
from kohort.coordinator_client import SETTINGS, Consumer, OffsetAndMetadata
from kohort.network.arguments import name_given
from kohort.network.backoff import Backoff
from kohort.network.errors import CommitFailed, OperationTimeout
from kohort.network.group_types import ConsumerGroupMetadata
from kohort.network.network_client import chance
from kohort.producer import Delivery, Producer, ProducerFenced, RecordTooLarge, TransactionAborted
from kohort.producer.producer_config import ProducerConfig
from kohort.producer.transaction_manager import FENCED
from kohort.protocol.errors import BrokerError, ErrorCode

log = logger("kohort.region")

_LENGTH: Final = struct.Struct(">i")
_PLACE: Final = struct.Struct(">iq")
ABSENT: Final = -1
FENCED_ATTEMPTS: Final = 5
FENCED_BACKOFF: Final = Backoff(100, 1000, jitter=1.0)  # two owners that fence each other must not go on in step
OFFSETS_S: Final = 10.0
"""The longest wait for the commit of a group's offsets. They are only advice, and the region commits them too."""
_ENDED: Final = FENCED | {ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_PRODUCER_ID_MAPPING}
"""A later owner or the broker's time-out ended the transaction. A commit after that may have INVALID_TXN_STATE. Brokers
forget the producer id of a task that rested for `transactional.id.expiration.ms` (a week)."""

_ALONE: Final = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})
_OF_RECORDS: Final = _ALONE | {ErrorCode.INVALID_RECORD, ErrorCode.INVALID_TIMESTAMP}
Headers = Sequence[tuple[str, bytes | None]]


class KafkaSink:
    """Records for `topic` that a handler collects with `send`, written in one Kafka transaction for each task and
    checkpoint.

        sink = KafkaSink("localhost:9092", "totals")
        def handle(record, state):
            sink.send(b"value", key=record.key)

    read_committed readers of `topic` see each record once. The same transaction commits the region's offsets to its
    group, fenced by the member's generation. They are left out if this cluster lacks their topics, or refuses them. It
    also commits the checkpoint's number as an offset of `topic` in a group of its own,
    `kohort-sink/REGION/GROUP/TASK/NAME`, each part quoted as in a URL. A completed commit is recognised by that offset,
    so a sink with another topic needs another name. A task without collected records has no transaction. The
    transactional id is the name of that group, so an older owner of the task is fenced. An owner that is fenced reads
    that offset again, and writes only what is missing.

    Brokers delete that offset if nothing was written for `offsets.retention.minutes` (a week). The owner of a task that
    rested for longer writes the records of its last checkpoint again.

    `dead_letter_topic`: for records that the broker refuses because they are too large or invalid. They go there in the
    same transaction, with the cause and their place in headers, and the others are written. Without it, such a record
    ends the member, and each next owner of the task. Give that topic a higher `max.message.bytes`. `refused_total`
    counts such records.

    `settings`: those of the `Producer`. Its connection settings are also used to read the offset.

    Raises RegionError with the cause, and the errors of `kohort.Producer`. Raises FencedError if another owner fences
    each attempt, or if another region has written the task. The member ends, and the next owner commits the pending
    records. Raises ConfigError for wrong settings.
    """

    def __init__(self, bootstrap: str, topic: str, *, dead_letter_topic: str | None = None, **settings: Any) -> None:
        if "transactional_id" in settings:
            raise ConfigurationError("a sink's transactional id is its own", setting="transactional_id")
        given_as(name_given, topic, "topic")
        if dead_letter_topic is not None:
            given_as(name_given, dead_letter_topic, "dead_letter_topic")
        if dead_letter_topic == topic:
            raise ConfigurationError(
                "the dead_letter_topic is another topic than that of the refused records",
                hint="give it a higher max.message.bytes",
                setting="dead_letter_topic",
            )
        # Here, and not at the first commit, whose effects would be owed.
        ProducerConfig.of(bootstrap=bootstrap, transactional_id="kohort-sink", **settings)
        self._bootstrap = bootstrap
        self._topic = topic
        self._note = TopicPartition(topic, 0)
        self._dead_letter_topic = dead_letter_topic
        self.refused_total = 0
        self._settings = settings
        self._collected: dict[TaskId, list[bytes]] = {}
        self._selected: list[bytes] = []
        self._partitions = 0  # of the topic, as far as they are known
        self._commits_offsets = True
        self._refused_member: ConsumerGroupMetadata | None = None
        self._producers: dict[TaskId, Producer] = {}
        self._place: SinkPlace | None = None
        self._noted: dict[TaskId, Witness] = {}  # the last commit, which no other process changes without a fence

    def send(
        self,
        value: bytes | None,
        key: bytes | None = None,
        *,
        headers: Headers = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> None:
        """Have a record written when the checkpoint that this one comes into is complete.

        Raises ValueError for a negative partition or time, which -1 leaves out, and TypeError for a text. Raises
        ConfigurationError for a partition that the topic does not have. Requests the number of partitions if the
        partition is above those known, and raises UnknownTopic and OperationTimeout then.
        """
        for name, number in (("partition", partition), ("timestamp_ms", timestamp_ms)):
            if number is not None and number < ABSENT:
                raise ValueError(f"{name} is not negative: {number} (topic={self._topic})")
        if partition is not None and partition >= self._partitions:
            self._check_partition(partition)
        self._selected.append(packed(value, key, headers, partition, timestamp_ms))

    def open(self, place: SinkPlace) -> None:
        """Keep the names under which the sink writes. Raises no error."""
        self._place = place

    def take(self, tasks: Collection[TaskId], term: TaskTerm) -> Mapping[TaskId, Witness]:
        """The first transaction of a task fences its older owners. Without one, they have nothing to write either."""
        for task in tasks:
            self._drop(task)
            self._noted.pop(task, None)
        return {}

    def select(self, task: TaskId) -> None:
        """Collect the next records for this task. Raises no error."""
        self._selected = self._collected.setdefault(task, [])

    def pre_commit(self, task: TaskId) -> bytes:
        """The collected records of a task in binary form. Raises no error."""
        return b"".join(self._collected.get(task, ()))

    def commit(self, due: Sequence[DueEffects], at: Witness) -> None:
        """Write the records of each task in one transaction, unless it is done. Raises what the class does."""
        for one in due:
            for attempt in range(1, FENCED_ATTEMPTS + 1):
                try:
                    self._carry_out(one, at)
                    break
                except ProducerFenced as error:
                    # By a later owner, which may have written these records, or by a broker whose time for the
                    # transaction or its id passed. The commit's note is looked up again, behind a new fence.
                    self._drop(one.task)
                    if attempt == FENCED_ATTEMPTS:
                        raise FencedError(
                            f"the sink's records were not written: another owner of the task fenced {attempt} attempts",
                            hint="end one of two processes with this member's name; start the member again",
                            **self._where(one.task, at),
                        ) from error
                    log.info("task %s: %s", one.task, error)
                    time.sleep(FENCED_BACKOFF.delay_s(attempt, chance()))

    def abort(self, task: TaskId) -> None:
        """Forget the collected records of a task. Raises no error."""
        if (collected := self._collected.get(task)) is not None:
            collected.clear()

    def release_tasks(self, tasks: Collection[TaskId]) -> None:
        """Close the producers of tasks that have left. Raises no error."""
        for task in tasks:
            with suppress(KohortError):  # the next owner of the task fences it
                self._drop(task)

    def close(self) -> None:
        """Close the producers of all tasks. Raises the errors of `Producer.close`."""
        with ExitStack() as stack:
            for task in self._producers:
                stack.callback(self._drop, task)

    # --- inner

    def _carry_out(self, due: DueEffects, at: Witness) -> None:
        if due.task not in self._producers:
            self._producers[due.task] = self._fencing(due.task)
            try:
                self._noted[due.task] = self._checked_note(due.task, at)
            except BaseException:
                self._drop(due.task)
                raise
        if not self._noted[due.task].covers(at):
            self._write(due, at)
            self._noted[due.task] = at

    def _checked_note(self, task: TaskId, at: Witness) -> Witness:
        """The last commit of a task, which is one of this region."""
        found, known = self._looked_up(task), self._noted.get(task, NO_COMMIT)
        # An operator accepted the store in the place of any other, until this owner has written.
        takes_over = at.is_accepted and known == NO_COMMIT
        if found not in (known, NO_COMMIT) and not found.is_related(at) and not takes_over:
            raise FencedError(
                "another region has written the task, or this region with another store",
                hint="give regions that share a cluster different names. If the store was lost, accept this one with "
                "`kohort region begin --anew`",
                **self._where(task, at),
            )
        return found

    def _drop(self, task: TaskId) -> None:
        if (producer := self._producers.pop(task, None)) is not None:
            with suppress(ProducerFenced):  # an open transaction is over
                producer.close()

    def _marker(self, task: TaskId) -> str:
        assert self._place is not None, "open() comes first"
        return "/".join(("kohort-sink", *(quote(name, safe="") for name in self._place.names(task))))

    def _fencing(self, task: TaskId) -> Producer:
        producer = Producer(self._bootstrap, transactional_id=self._marker(task), **self._settings)
        try:
            with producer.transaction():
                pass  # from here on an older owner is fenced, and its open transaction is over
        except BaseException:
            with suppress(KohortError):
                producer.close()
            raise
        return producer

    def _reader(self, group: str | None = None) -> Consumer:
        # A cluster that authenticates the producer authenticates the reader too.
        # It fetches nothing, so its limit of a frame need not hold a Fetch response.
        shared = (SETTINGS.keys() & ProducerConfig.table.keys()) - {"max_frame_bytes"}
        connecting = {name: value for name, value in self._settings.items() if name in shared}
        return Consumer(self._bootstrap, group=group, **connecting)

    def _check_partition(self, partition: int) -> None:
        """Refuse what no commit could write: its checkpoint would end each next owner of the task."""
        with self._reader() as reader:
            self._partitions = len(reader.partitions_for(self._topic, fresh=True))
        if partition >= self._partitions:
            raise ConfigurationError(
                f"the sink's topic has no such partition, but {self._partitions} from 0 on",
                hint="leave partition out, or add partitions to the topic",
                topic=self._topic,
                partition=partition,
            )

    def _looked_up(self, task: TaskId) -> Witness:
        """The last commit of a task."""
        with self._reader(self._marker(task)) as reader:
            found = reader.committed([self._note])[self._note]
        return NO_COMMIT if found is None else Witness(found.metadata, found.offset)

    def _write(self, due: DueEffects, at: Witness) -> None:
        """Write a task's records. Those that are refused are found out one transaction after the other."""
        refused: dict[int, KohortError] = {}
        suspects: set[int] = set()
        while found := self._written(due, at, refused, suspects):
            alone = {place: error for place, error in found.items() if len(found) == 1 or _refused_alone(error)}
            if self._dead_letter_topic is None or alone.keys() & refused.keys():
                raise self._failed(next(iter(found.values())), due.task, at)
            refused |= alone
            suspects |= found.keys() - alone.keys()
        self.refused_total += len(refused)
        if refused:
            first = next(iter(refused.values()))
            log.warning("%d records are now in %s: %s", len(refused), self._dead_letter_topic, first)

    def _written(
        self, due: DueEffects, at: Witness, refused: Mapping[int, KohortError], suspects: Collection[int]
    ) -> dict[int, KohortError]:
        """Commit a task's records. Returns the records that made the transaction fail, none if it is committed."""
        assert self._place is not None
        deliveries: dict[int, Delivery] = {}
        member = self._place.group_metadata()
        try:
            try:
                used = None if member == self._refused_member else member
                self._transact(due, at, used, refused, suspects, deliveries)
            except CommitFailed as error:
                # The group has a new generation, but the checkpoint is complete, so its records must be written.
                # Offsets are only advice. Those of the next task would be refused as well.
                log.warning("the group's offsets are left out of checkpoint %d: %s", at.sequence, error)
                self._refused_member = member
                deliveries.clear()
                self._transact(due, at, None, refused, suspects, deliveries)
        except RecordTooLarge as error:
            return {len(deliveries): error}
        except TransactionAborted as error:
            if isinstance(error.__cause__, BrokerError) and error.__cause__.code in _ENDED:
                raise ProducerFenced(error.__cause__.message, task=str(due.task)) from error
            errors = {place: one.exception(0.0) for place, one in deliveries.items() if one.done()}
            found = {place: one for place, one in errors.items() if one is not None and _refused_record(one)}
            if not found:
                raise self._failed(error.__cause__ or error, due.task, at) from error
            return found
        return {}

    def _transact(
        self,
        due: DueEffects,
        at: Witness,
        member: ConsumerGroupMetadata | None,
        refused: Mapping[int, KohortError],
        suspects: Collection[int],
        deliveries: dict[int, Delivery],
    ) -> None:
        """Write records and offsets in one transaction. `suspects` are sent in batches of their own."""
        with self._producers[due.task].transaction() as producer:
            for place, record in enumerate(one for part in due.prepared for one in unpacked(part)):
                value, key, headers, partition, timestamp_ms = record
                if (error := refused.get(place)) is None:
                    delivery = producer.send(
                        self._topic, value, key, headers=headers, partition=partition, timestamp_ms=timestamp_ms
                    )
                else:
                    assert self._dead_letter_topic is not None
                    reported = [*headers, *self._reported(error, due.task, at)]
                    delivery = producer.send(self._dead_letter_topic, value, key, headers=reported)
                deliveries[place] = delivery  # before the wait, so that its error is found
                if place in suspects:
                    delivery.exception()
            producer.send_offsets(
                {self._note: OffsetAndMetadata(at.sequence, metadata=at.lineage)},
                ConsumerGroupMetadata(self._marker(due.task)),
            )
            offsets = {
                one: OffsetAndMetadata(position.offset, metadata=at.metadata) for one, position in due.offsets.items()
            }
            if self._commits_offsets and offsets and member is not None and member.generation >= 0:
                try:
                    producer.send_offsets(offsets, member, OFFSETS_S)
                except OperationTimeout as error:
                    # Brokers have retriable errors for topics that they do not have: those of another cluster.
                    self._commits_offsets = False
                    raise CommitFailed(error.message, group=member.group_id) from error

    def _reported(self, error: KohortError, task: TaskId, at: Witness) -> Headers:
        """The headers of a dead letter."""
        assert self._place is not None
        found = {
            "error": str(error),
            "topic": self._topic,
            "region": self._place.region,
            "sink": self._place.sink,
            "task": str(task),
            "checkpoint": str(at.sequence),
        }
        return [(f"kohort.{name}", text.encode()) for name, text in found.items()]

    def _failed(self, cause: BaseException, task: TaskId, at: Witness) -> RegionError:
        """The error of a transaction, with its cause in the text."""
        return RegionError(
            f"the sink's records were not written: {cause}",
            hint="dead_letter_topic= puts such records aside and goes on" if _refused_record(cause) else None,
            **self._where(task, at),
        )

    def _where(self, task: TaskId, at: Witness) -> dict[str, Any]:
        """The place of an error."""
        return {"topic": self._topic, "task": str(task), "sequence": at.sequence}


Packed = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]], int | None, int | None]


def packed(
    value: bytes | None, key: bytes | None, headers: Headers, partition: int | None, timestamp_ms: int | None
) -> bytes:
    """One record in binary form, big-endian.

    In order: partition (i32, -1: none), timestamp (i64, -1: none), value, key, number of headers, and each header's
    name and value. Bytes have their length before them (i32, -1: none).
    """
    place = _PLACE.pack(ABSENT if partition is None else partition, ABSENT if timestamp_ms is None else timestamp_ms)
    fields: Iterable[bytes | None] = (one for name, text in headers for one in (name.encode(), text))
    return b"".join((place, _bytes(value), _bytes(key), _LENGTH.pack(len(headers)), *map(_bytes, fields)))


def unpacked(data: bytes) -> Iterator[Packed]:
    """Records again. Raises ResetFailedError for torn bytes."""
    at = 0

    def number() -> int:
        nonlocal at
        (found,) = _LENGTH.unpack_from(data, at)
        at += _LENGTH.size
        return int(found)

    def field() -> bytes | None:
        nonlocal at
        if (length := number()) == ABSENT:
            return None
        if not 0 <= length <= len(data) - at:
            raise ResetFailedError("a sink's records are torn", at=at, length_bytes=length)
        at += length
        return data[at - length : at]

    try:
        while at < len(data):
            partition, timestamp_ms = _PLACE.unpack_from(data, at)
            at += _PLACE.size
            value, key = field(), field()
            headers = [((field() or b"").decode(), field()) for _ in range(number())]
            yield value, key, headers, _known(partition), _known(timestamp_ms)
    except struct.error as problem:
        raise ResetFailedError(f"a sink's records are torn: {problem}") from problem


def _bytes(text: bytes | None) -> bytes:
    if text is None:
        return _LENGTH.pack(ABSENT)
    data = bytes(memoryview(text))  # the length of a memoryview is that of its items
    return _LENGTH.pack(len(data)) + data


def _known(number: int) -> int | None:
    return None if number == ABSENT else number


def _refused_record(error: BaseException | None) -> bool:
    """True if a record, or one of its batch, is what the broker refuses."""
    return isinstance(error, RecordTooLarge) or (isinstance(error, BrokerError) and error.code in _OF_RECORDS)


def _refused_alone(error: KohortError) -> bool:
    """True if the error is of this record, and not of any other in its batch."""
    return not isinstance(error, BrokerError) or error.code in _ALONE
