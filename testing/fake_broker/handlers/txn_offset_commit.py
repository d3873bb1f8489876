"""TxnOffsetCommit (28), versions 0-6: offsets that count once the transaction is committed (KIP-98, KIP-447).

From version 5 on it adds the group to the transaction, which AddOffsetsToTxn does before (KIP-890). In version 6 topics
have ids in place of names (KIP-1319).
"""

from kohort.protocol.apis.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from kohort.protocol.errors import ErrorCode
from kohort.testing.fake_broker.handler_context import Work
from kohort.testing.fake_broker.handlers.offset_commit import keep, named

KEY = 28
VERSIONS = (0, 6)
FIRST_IMPLICIT = 5
FIRST_WITH_IDS = 6


async def handle(work: Work, request: TxnOffsetCommitRequest) -> TxnOffsetCommitResponse:
    error = _error(work, request)
    work.tick()
    return TxnOffsetCommitResponse(topics=tuple(_topic(work, request, topic, error) for topic in request.topics))


def _topic(
    work: Work, request: TxnOffsetCommitRequest, topic: TxnOffsetCommitRequestTopic, error: int
) -> TxnOffsetCommitResponseTopic:
    name = named(work, topic, FIRST_WITH_IDS)
    return TxnOffsetCommitResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=tuple(
            TxnOffsetCommitResponsePartition(
                partition_index=one.partition_index,
                error_code=error or keep(work, request.group_id, name, one, producer_id=request.producer_id),
            )
            for one in topic.partitions
        ),
    )


def _error(work: Work, request: TxnOffsetCommitRequest) -> int:
    name, group_id = request.transactional_id, request.group_id
    if not group_id:
        return ErrorCode.INVALID_GROUP_ID
    if error := work.group_error(group_id):
        return error
    transactions = work.cluster.transactions
    error = transactions.error(name, request.producer_id, request.producer_epoch)
    if error == ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH  # commits use epochs only
    if not error and work.call.version >= FIRST_IMPLICIT:
        transactions.add(name, work.now, group=group_id)
    if not error and not transactions.has_group(name, group_id):
        return ErrorCode.INVALID_TXN_STATE
    return error or work.groups.transaction_error(
        group_id, request.generation_id_or_member_epoch, request.member_id, request.group_instance_id, now=work.now
    )
