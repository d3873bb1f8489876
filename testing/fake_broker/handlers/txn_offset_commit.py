"""TxnOffsetCommit (28), versions 0-5: offsets that count once the transaction is committed (KIP-98, KIP-447).

With version 5 it adds the group to the transaction, which AddOffsetsToTxn does before (KIP-890).
"""

from kohort.protocol.apis.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from kohort.protocol.errors import ErrorCode
from kohort.testing.fake_broker.handler_context import Work
from kohort.testing.fake_broker.handlers.offset_commit import keep

KEY = 28
VERSIONS = (0, 5)
FIRST_IMPLICIT = 5


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
                        error_code=error
                        or keep(work, request.group_id, topic.name, one, producer_id=request.producer_id),
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
    if error == ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH  # commits use epochs only
    if not error and work.call.version >= FIRST_IMPLICIT:
        transactions.add(name, work.now, group=group_id)
    if not error and not transactions.has_group(name, group_id):
        return ErrorCode.INVALID_TXN_STATE
    return error or work.groups.transaction_error(
        group_id, request.generation_id, request.member_id, request.group_instance_id, now=work.now
    )
