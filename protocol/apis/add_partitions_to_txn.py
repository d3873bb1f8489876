"""AddPartitionsToTxn (24): adds partitions to the transaction.

Sent to: the transaction coordinator. Clients send up to version 3, brokers version 4 and later.

Errors (by partition; version 4 also at the top)
    NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS   send FindCoordinator, retry
    CONCURRENT_TRANSACTIONS       the previous transaction is not complete: retry after a backoff
    OPERATION_NOT_ATTEMPTED       another partition of the request failed
    UNKNOWN_TOPIC_OR_PARTITION    not known to the broker yet: retry
    INVALID_PRODUCER_EPOCH, PRODUCER_FENCED   a newer producer instance runs: fatal
    INVALID_PRODUCER_ID_MAPPING, INVALID_TXN_STATE   send InitProducerId again
    TRANSACTION_ABORTABLE         abort the transaction (version 5 on)
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED, TOPIC_AUTHORIZATION_FAILED   fatal
"""

from kohort.protocol.primitives import boolean, int16, int32, int64, string
from kohort.protocol.schema import Request, RequestPart, Response, ResponsePart, field


class AddPartitionsToTxnTopic(RequestPart):
    name: str = field(string, "0+")
    """The topic's name."""
    partitions: tuple[int, ...] = field([int32], "0+")
    """The partitions' numbers."""


class AddPartitionsToTxnTransaction(RequestPart):
    transactional_id: str = field(string, "4+")
    """The producer's transactional id."""
    producer_id: int = field(int64, "4+")
    """The producer's id."""
    producer_epoch: int = field(int16, "4+")
    """The producer's epoch, which fences older instances of the same transactional id."""
    verify_only: bool = field(boolean, "4+", default=False)
    """True verifies that the partitions are in the transaction, and adds none."""
    topics: tuple[AddPartitionsToTxnTopic, ...] = field([AddPartitionsToTxnTopic], "4+")
    """The partitions to add, by topic."""


class AddPartitionsToTxnRequest(Request, key=24, versions="0-5", flexible="3+"):
    transactions: tuple[AddPartitionsToTxnTransaction, ...] = field([AddPartitionsToTxnTransaction], "4+")
    """The transactions of a batched request, which only brokers send."""
    v3_and_below_transactional_id: str = field(string, "0-3")
    """The producer's transactional id."""
    v3_and_below_producer_id: int = field(int64, "0-3")
    """The producer's id."""
    v3_and_below_producer_epoch: int = field(int16, "0-3")
    """The producer's epoch."""
    v3_and_below_topics: tuple[AddPartitionsToTxnTopic, ...] = field([AddPartitionsToTxnTopic], "0-3")
    """The partitions to add, by topic."""


class AddPartitionsToTxnPartitionResult(ResponsePart):
    partition_index: int = field(int32, "0+")
    """The partition's number within its topic."""
    partition_error_code: int = field(int16, "0+")
    """0, or why the partition was not added."""


class AddPartitionsToTxnTopicResult(ResponsePart):
    name: str = field(string, "0+")
    """The topic's name."""
    results_by_partition: tuple[AddPartitionsToTxnPartitionResult, ...] = field(
        [AddPartitionsToTxnPartitionResult], "0+"
    )
    """The partitions, one entry each."""


class AddPartitionsToTxnResult(ResponsePart):
    transactional_id: str = field(string, "4+")
    """The producer's transactional id."""
    topic_results: tuple[AddPartitionsToTxnTopicResult, ...] = field([AddPartitionsToTxnTopicResult], "4+")
    """The topics, one entry each."""


class AddPartitionsToTxnResponse(Response, key=24, versions="0-5", flexible="3+"):
    throttle_time_ms: int = field(int32, "0+")
    """Milliseconds the request was throttled by a quota. Since KIP-219 the client must wait for them."""
    error_code: int = field(int16, "4+", ignorable=True)
    """0, or what is wrong with the request as a whole."""
    results_by_transaction: tuple[AddPartitionsToTxnResult, ...] = field([AddPartitionsToTxnResult], "4+")
    """The transactions, one entry each."""
    results_by_topic_v3_and_below: tuple[AddPartitionsToTxnTopicResult, ...] = field(
        [AddPartitionsToTxnTopicResult], "0-3"
    )
    """The topics, one entry each."""
