"""AddOffsetsToTxn (25): adds a group's offset commits to the transaction.

Sent to: the transaction coordinator. TxnOffsetCommit follows, to the group's coordinator.

Errors
    NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS   send FindCoordinator, retry
    CONCURRENT_TRANSACTIONS       the previous transaction is not complete: retry after a backoff
    INVALID_PRODUCER_EPOCH, PRODUCER_FENCED   a newer producer instance runs: fatal
    INVALID_PRODUCER_ID_MAPPING, INVALID_TXN_STATE   send InitProducerId again
    TRANSACTION_ABORTABLE         abort the transaction (version 4 on)
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED, GROUP_AUTHORIZATION_FAILED   fatal
"""

from kohort.protocol.primitives import int16, int32, int64, string
from kohort.protocol.schema import Request, Response, field


class AddOffsetsToTxnRequest(Request, key=25, versions="0-4", flexible="3+"):
    transactional_id: str = field(string, "0+")
    """The producer's transactional id."""
    producer_id: int = field(int64, "0+")
    """The producer's id."""
    producer_epoch: int = field(int16, "0+")
    """The producer's epoch, which fences older instances of the same transactional id."""
    group_id: str = field(string, "0+")
    """The group for which the transaction will commit offsets."""


class AddOffsetsToTxnResponse(Response, key=25, versions="0-4", flexible="3+"):
    throttle_time_ms: int = field(int32, "0+")
    """Milliseconds the request was throttled by a quota. Since KIP-219 the client must wait for them."""
    error_code: int = field(int16, "0+")
    """0, or what went wrong."""
