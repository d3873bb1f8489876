"""TxnOffsetCommit (28), versions 0-4: offsets that count once the transaction is committed (KIP-98, KIP-447).

Not done: version 5, with which the group need not be added before (KIP-890).
"""

from kohort.fastpath.topic_partition import TopicPartition
from kohort.protocol.apis.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from kohort.testing.fake_broker import codes
from kohort.testing.fake_broker.group import Committed
from kohort.testing.fake_broker.work import Work

KEY = 28
VERSIONS = (0, 4)


async def handle(work: Work, request: TxnOffsetCommitRequest) -> TxnOffsetCommitResponse:
    error = _error(work, request)
    work.tick()
    return TxnOffsetCommitResponse(
        topics=tuple(
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=tuple(
                    TxnOffsetCommitResponsePartition(
                        partition_index=one.partition_index,
                        error_code=error or _commit(work, request, topic.name, one),
                    )
                    for one in topic.partitions
                ),
            )
            for topic in request.topics
        )
    )


def _error(work: Work, request: TxnOffsetCommitRequest) -> int:
    name, group_id = request.transactional_id, request.group_id
    if error := work.group_error(group_id):
        return error
    transactions = work.cluster.transactions
    error = transactions.error(name, request.producer_id, request.producer_epoch)
    if error == codes.PRODUCER_FENCED:
        return codes.INVALID_PRODUCER_EPOCH  # those who keep offsets know of epochs only
    if not error and not transactions.has_group(name, group_id):
        return codes.INVALID_TXN_STATE
    return error or work.groups.transaction_error(
        group_id, request.generation_id, request.member_id, request.group_instance_id, now=work.now
    )


def _commit(work: Work, request: TxnOffsetCommitRequest, topic: str, asked: TxnOffsetCommitRequestPartition) -> int:
    number = asked.partition_index
    if work.cluster.partition(work.cluster.topics.get(topic), number) is None:
        return codes.UNKNOWN_TOPIC_OR_PARTITION
    committed = Committed(asked.committed_offset, asked.committed_metadata, asked.committed_leader_epoch)
    return work.groups.commit(
        request.group_id, TopicPartition(topic, number), committed, producer_id=request.producer_id
    )
