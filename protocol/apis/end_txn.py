"""EndTxn (26): commit my transaction, or abort it.

Sent to: the transaction coordinator. From version 5 on the answer carries the next transaction's id and epoch
(KIP-890).

Errors
    NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS   find the coordinator, retry
    CONCURRENT_TRANSACTIONS       already being settled: retry after a while
    INVALID_TXN_STATE             nothing is open, or it was settled the other way
    INVALID_PRODUCER_EPOCH, PRODUCER_FENCED   a newer instance runs: stop
    INVALID_PRODUCER_ID_MAPPING   initialise the producer again
    TRANSACTION_ABORTABLE         abort and begin anew (version 4 on)
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
    """How long the broker held this answer back, or wants the client to wait, because of a quota."""
    error_code: int = field(int16, "0+")
    """0, or what went wrong."""
    producer_id: int = field(int64, "5+", default=-1, ignorable=True)
    """The id for the next transaction (KIP-890); -1 where it stays."""
    producer_epoch: int = field(int16, "5+", default=-1, ignorable=True)
    """The epoch for the next transaction (KIP-890); -1 where it stays."""
