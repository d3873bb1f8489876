"""EndTxn (26): commits or aborts the transaction.

Sent to: the transaction coordinator. From version 5 on the response has the next transaction's id and epoch
(KIP-890).

Errors
    NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS   send FindCoordinator, retry
    CONCURRENT_TRANSACTIONS       the transaction is completing: retry after a backoff
    INVALID_TXN_STATE             no transaction is open, or it was ended the other way
    INVALID_PRODUCER_EPOCH, PRODUCER_FENCED   a newer producer instance runs: fatal
    INVALID_PRODUCER_ID_MAPPING   send InitProducerId again
    TRANSACTION_ABORTABLE         abort the transaction (version 4 on)
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED   fatal
"""

from kohort.protocol.primitives import boolean, int16, int32, int64, string
from kohort.protocol.schema import Request, Response, field


class EndTxnRequest(Request, key=26, versions="0-5", flexible="3+"):
    transactional_id: str = field(string, "0+")
    """The producer's transactional id."""
    producer_id: int = field(int64, "0+")
    """The producer's id."""
    producer_epoch: int = field(int16, "0+")
    """The producer's epoch, which fences older instances of the same transactional id."""
    committed: bool = field(boolean, "0+")
    """True to commit, false to abort."""


class EndTxnResponse(Response, key=26, versions="0-5", flexible="3+"):
    throttle_time_ms: int = field(int32, "0+")
    """Milliseconds the request was throttled by a quota. Since KIP-219 the client must wait for them."""
    error_code: int = field(int16, "0+")
    """0, or what went wrong."""
    producer_id: int = field(int64, "5+", default=-1, ignorable=True)
    """The producer id of the next transaction (KIP-890); -1 if unchanged."""
    producer_epoch: int = field(int16, "5+", default=-1, ignorable=True)
    """The producer epoch of the next transaction (KIP-890); -1 if unchanged."""
