"""AddPartitionsToTxn (24), versions 0-3: partitions are part of the transaction, all that are named or none.

Not done: the versions from 4 on, which brokers send to each other; what transactions.py leaves out.
"""

from kohort.common.topic_partition import TopicPartition
from kohort.protocol.apis.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from kohort.protocol.errors import ErrorCode
from kohort.testing.fake_broker.handler_context import Work

KEY = 24
VERSIONS = (0, 3)


async def handle(work: Work, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
    name = request.v3_and_below_transactional_id
    topics = request.v3_and_below_topics
    error = work.transaction_error(name, request.v3_and_below_producer_id, request.v3_and_below_producer_epoch)
    requested = {TopicPartition(topic.name, number) for topic in topics for number in topic.partitions}
    missing = {
        one for one in requested if work.cluster.partition(work.cluster.topics.get(one.topic), one.partition) is None
    }
    if not error and not missing:
        work.cluster.transactions.add(name, work.now, partitions=requested)
        work.tick()

    def reported(one: TopicPartition) -> int:
        if error:
            return error
        if one in missing:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.OPERATION_NOT_ATTEMPTED if missing else ErrorCode.NONE

    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=tuple(
            AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=tuple(
                    AddPartitionsToTxnPartitionResult(
                        partition_index=number, partition_error_code=reported(TopicPartition(topic.name, number))
                    )
                    for number in topic.partitions
                ),
            )
            for topic in topics
        )
    )
