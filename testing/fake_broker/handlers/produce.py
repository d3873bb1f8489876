"""Produce (0), versions 3-13: appends each partition's one batch once it is checked; topics by name, from 13 by id.

With acks 0 there is no response. Sequence numbers of idempotent producers are checked (`producers.py`). A transaction's
batch is accepted if its partition was added to the transaction. From version 12 on it adds the partition (KIP-890).
Not done: timestamps of the log.
"""

from kohort.common.topic_partition import TopicPartition
from kohort.fastpath import decode
from kohort.fastpath.batches import BatchInfo, batches
from kohort.fastpath.errors import CorruptRecord
from kohort.protocol.apis.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from kohort.protocol.errors import ErrorCode
from kohort.testing.fake_broker.cluster import FakeTopic
from kohort.testing.fake_broker.handler_context import Work
from kohort.testing.fake_broker.handlers.list_offsets import leader_error

KEY = 0
VERSIONS = (3, 13)
FIRST_IMPLICIT = 12


async def handle(work: Work, request: ProduceRequest) -> ProduceResponse | None:
    topics = []
    for sent in request.topic_data:
        by_id = work.call.version >= 13
        topic = work.cluster.topic_by_id(sent.topic_id) if by_id else work.cluster.topics.get(sent.name)
        refused = ErrorCode.UNKNOWN_TOPIC_ID if topic is None and by_id else ErrorCode.NONE
        responses = tuple(_append(work, request, topic, each, refused) for each in sent.partition_data)
        topics.append(TopicProduceResponse(name=sent.name, topic_id=sent.topic_id, partition_responses=responses))
    work.tick()
    work.wake_fetches()
    return None if request.acks == 0 else ProduceResponse(responses=tuple(topics))


def _append(
    work: Work, request: ProduceRequest, topic: FakeTopic | None, sent: PartitionProduceData, refused: int
) -> PartitionProduceResponse:
    partition = work.cluster.partition(topic, sent.index)
    error = refused or leader_error(work, partition, -1)
    if request.acks not in (-1, 0, 1):
        error = ErrorCode.INVALID_REQUIRED_ACKS
    base_offset = -1
    data = bytes(sent.records or b"")
    if not error and topic is not None and len(data) > topic.most_bytes:
        error = ErrorCode.MESSAGE_TOO_LARGE  # before anything else of the batch is looked at
    if not error and topic is not None and partition is not None:
        try:
            (batch,) = batches(data)
            decode(data)
            error, base_offset = partition.producers.judge(batch)
            if not error and batch.transactional:
                error = _in_transaction(work, request, batch, TopicPartition(topic.name, sent.index))
            if not error and base_offset < 0:
                base_offset = partition.log.append(data, partition.epoch)
                partition.producers.took(batch, base_offset)
                partition.transactions.took(batch, base_offset)
        except CorruptRecord:
            error = ErrorCode.CORRUPT_MESSAGE
        except ValueError:
            error = ErrorCode.INVALID_RECORD  # none, or several
    return PartitionProduceResponse(
        index=sent.index,
        error_code=error,
        base_offset=base_offset,
        log_start_offset=partition.log.start if partition and not error else -1,
    )


def _in_transaction(work: Work, request: ProduceRequest, batch: BatchInfo, partition: TopicPartition) -> int:
    """The error code with which a batch of a transaction is refused, else 0; the partition is in the transaction."""
    transactions, name = work.cluster.transactions, request.transactional_id or ""
    if work.call.version >= FIRST_IMPLICIT:
        error = transactions.error(name, batch.producer_id, batch.producer_epoch)
        if error:
            return ErrorCode.INVALID_PRODUCER_EPOCH if error == ErrorCode.PRODUCER_FENCED else error
        transactions.add(name, work.now, partitions={partition})
    return ErrorCode.NONE if transactions.has_partition(batch.producer_id, partition) else ErrorCode.INVALID_TXN_STATE
