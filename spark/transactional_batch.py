"""`stream.writeStream.foreachBatch(TransactionalWriter(...))`: each partition of a batch is written exactly once.

A partition of a batch is one transaction. It has the partition's records, and the number of the batch as the committed
offset of a group. The group and the transactional id have one name: `PREFIX-QUERY-PARTITION`. A repeated task reads
that offset after it has fenced earlier attempts, and skips a batch that is committed.
"""

import threading
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from kohort.common import TopicPartition
from kohort.coordinator_client import Consumer, OffsetAndMetadata
from kohort.network.client_config import ClientConfig
from kohort.network.group_types import ConsumerGroupMetadata
from kohort.producer import Producer, ProducerConfig, ProducerFenced, TransactionAborted, TransactionError
from kohort.producer.transaction_manager import FENCED
from kohort.protocol.errors import BrokerError, ErrorCode
from kohort.spark.active_session import active
from kohort.spark.errors import OptionError, PlanError
from kohort.spark.sink import BATCH, TRANSACTIONS, BatchWriter, SinkOptions, Written, check_columns, send
from kohort.spark.worker_tuning import settle

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

QUERY_ID = "sql.streaming.queryId"  # Spark's local property in the thread of a query
LOOK_S = 0.5
ENDED = FENCED | {ErrorCode.INVALID_TXN_STATE}  # of a transaction that the coordinator has aborted after its time-out

# By transactions and topic: the run and batch of the last frame, and its hash.
_last_frames: dict[tuple[str, str], tuple[str, int, int]] = {}
_lock = threading.Lock()


class TransactionalWriter:
    """A function for `foreachBatch` that writes each partition of each batch exactly once.

    `options`: those of the sink, with `topic`. `prefix`: the prefix of transactional ids and groups. The rest of an id
    is the query's id, which Spark keeps in the checkpoint, and the number of the partition. `register` must have been
    called for the session.

    A batch that Spark repeats must have the same partitions with the same rows. Records of Kafka have this property,
    as long as options that cut ranges stay the same. Brokers forget a group's offsets after
    `offsets.retention.minutes` (7 days), so a query must not be stopped for longer in the middle of a batch.
    """

    def __init__(self, options: Mapping[str, str], *, prefix: str = "kohort-spark") -> None:
        self._options = dict(options)
        self._checked = SinkOptions.of(options)
        self._prefix = prefix
        if self._checked.topic is None:
            raise OptionError("no topic is named", hint="set option 'topic'", option="topic")
        ProducerConfig.from_kafka({**self._checked.properties, "transactional.id": f"{prefix}-"})

    def __reduce__(self) -> NoReturn:
        raise _of_connect()

    def __call__(self, frame: "DataFrame", batch_id: int) -> None:
        """Write a batch. The same frame may be written again.

        Raises OptionError for a frame whose rows are no records, and PlanError outside a query. Raises PlanError for
        another frame of the batch with the same prefix and topic.
        """
        check_columns(frame.schema, self._checked)
        context = getattr(frame.sparkSession, "sparkContext", None)
        if context is None:
            raise _of_connect()
        query = context.getLocalProperty(QUERY_ID)
        if query is None:
            raise PlanError("there is no streaming query", hint="pass the writer to writeStream.foreachBatch")
        name = f"{self._prefix}-{query}"
        of_frame = hash((frame.semanticHash(), *frame.columns))  # Spark's hash leaves out the names of columns
        self._refuse_second(name, _run_id(frame, query), batch_id, of_frame)
        ours = {TRANSACTIONS: name, BATCH: str(batch_id)}
        with active(frame.sparkSession):  # a function for foreachBatch may call this in a thread of its own
            frame.write.format("kohort").mode("append").options(**self._options, **ours).save()

    def _refuse_second(self, name: str, run: str, batch_id: int, frame: int) -> None:
        """Raise PlanError for a second frame of a batch, which tasks would skip as a repeated one."""
        topic = str(self._checked.topic)
        with _lock:
            last = _last_frames.get((name, topic))
            if last is not None and last[:2] == (run, batch_id) and last[2] != frame:
                raise PlanError(
                    "two frames of a batch have one prefix and topic",
                    hint="unite the frames, or use a TransactionalWriter with another prefix for each",
                    topic=topic,
                    batch=batch_id,
                )
            _last_frames[name, topic] = run, batch_id, frame


def _of_connect() -> PlanError:
    return PlanError(
        "foreachBatch of Spark Connect runs on the server, which does not have the id of the query",
        hint="run the query in the driver's own process",
    )


def _run_id(frame: "DataFrame", query: str) -> str:
    """The id of the query's run. Its job group has it too, but a function for foreachBatch may set another group."""
    active = frame.sparkSession._jsparkSession.sharedState().activeStreamingQueries()
    uuid = frame.sparkSession.sparkContext._jvm.java.util.UUID
    return str(active.get(uuid.fromString(query)).runId())


class OnceWriter(BatchWriter):
    """`df.write` by TransactionalWriter."""

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> Written:
        """Write the records of a partition, unless its transaction for this batch is committed."""
        from pyspark import TaskContext

        settle()
        context = TaskContext.get()
        assert context is not None
        assert self._options.transactions is not None
        task = WriteOnce(self._options, *self._options.transactions)
        return Written(task.write(iterator, context.partitionId()))


@dataclass(frozen=True, slots=True)
class WriteOnce:
    """The task: write the records of a partition, unless its transaction for this batch is committed."""

    options: SinkOptions
    name: str
    batch_id: int

    def write(self, batches: "Iterator[pa.RecordBatch]", partition: int) -> int:
        """The number of records.

        An attempt that another one has fenced waits for that one's commit, and has succeeded then. If it failed at
        once, Spark would count a failed task, and start a copy of the copy.

        Raises PlanError if a repeated batch has another number than the committed one, or if a later one is committed.
        Raises TransactionError if the other attempt has not committed after the time-out of a transaction.
        """
        limit_s = ProducerConfig.from_kafka(self.options.properties).transaction_timeout_ms / 1000
        overdue_at = time.monotonic() + limit_s
        counts: list[int] = []
        rows = _counted(batches, counts)
        try:
            return self._write(rows, partition)
        except TransactionError as error:
            if time.monotonic() >= overdue_at and _has_code(error, ENDED):
                raise TransactionAborted(
                    "the transaction was open for longer than its time-out",
                    hint="set a longer kafka.transaction.timeout.ms, or make the partitions of the frame smaller",
                    partition=partition,
                    batch=self.batch_id,
                ) from error
            if not _has_code(error, FENCED):
                raise
            committed = self._committed_by_other(partition, time.monotonic() + limit_s)
            if committed is None:
                raise
            for _ in rows:
                pass
            return self._same(sum(counts), committed, partition)

    def _write(self, batches: "Iterator[pa.RecordBatch]", partition: int) -> int:
        name, place = self._names(partition)
        with Producer.from_config({**self.options.properties, "transactional.id": name}) as producer:
            producer.begin()  # from here on, no earlier attempt can commit
            with _of_group(self.options.properties, name) as consumer:
                before = consumer.committed([place])[place]
            if before is not None and before.offset > self.batch_id:
                producer.abort()
                return self._same(sum(batch.num_rows for batch in batches), before, partition)
            records = send(producer, batches, self.options.topic)
            mark = OffsetAndMetadata(self.batch_id + 1, metadata=str(records))
            producer.send_offsets({place: mark}, ConsumerGroupMetadata(name))
            producer.commit()
        return records

    def _committed_by_other(self, partition: int, until: float) -> OffsetAndMetadata | None:
        """The commit of the batch that another attempt makes until then. None if it does not."""
        name, place = self._names(partition)
        with _of_group(self.options.properties, name) as consumer:
            while (found := consumer.committed([place])[place]) is None or found.offset <= self.batch_id:
                if time.monotonic() >= until:
                    return None
                time.sleep(LOOK_S)
        return found

    def _names(self, partition: int) -> tuple[str, TopicPartition]:
        """The transactional id, which is also the group, and the partition whose offset is the batch."""
        assert self.options.topic is not None
        return f"{self.name}-{partition}", TopicPartition(self.options.topic, 0)

    def _same(self, records: int, committed: OffsetAndMetadata, partition: int) -> int:
        if committed.offset > self.batch_id + 1:
            raise PlanError(
                f"batch {committed.offset - 1} is already committed",
                hint="a restored copy of a checkpoint is too old for its output; use a writer with another prefix",
                batch=self.batch_id,
                partition=partition,
            )
        if committed.metadata != str(records):
            raise PlanError(
                f"a repeated batch has {records} records, and {committed.metadata} are committed",
                hint="Spark cut the batch in another way; restore the options that cut ranges, and the cores",
                batch=self.batch_id,
                partition=partition,
            )
        return records


def _of_group(properties: Mapping[str, str], group: str) -> Consumer:
    return Consumer.from_config({**ClientConfig.part_of(properties), "group.id": group})


def _counted(batches: "Iterator[pa.RecordBatch]", counts: list[int]) -> "Iterator[pa.RecordBatch]":
    """The batches, with the number of rows of each added to `counts`."""
    for batch in batches:
        counts.append(batch.num_rows)
        yield batch


def _has_code(error: TransactionError, codes: Collection[int]) -> bool:
    cause = error.__cause__
    return isinstance(error, ProducerFenced) or (isinstance(cause, BrokerError) and cause.code in codes)
