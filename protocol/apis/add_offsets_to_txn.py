"""AddOffsetsToTxn (25): my transaction will also commit this group's offsets.

Sent to: the transaction coordinator. TxnOffsetCommit follows, to the group's coordinator.

Errors
    NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS   find the coordinator, retry
    CONCURRENT_TRANSACTIONS       the last transaction is being settled: retry after a while
    INVALID_PRODUCER_EPOCH, PRODUCER_FENCED   a newer instance runs: stop
    INVALID_PRODUCER_ID_MAPPING, INVALID_TXN_STATE   initialise the producer again
    TRANSACTION_ABORTABLE         abort and begin anew (version 4 on)
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
    """The group whose offsets the transaction will carry."""


class AddOffsetsToTxnResponse(Response, key=25, versions="0-4", flexible="3+"):
    throttle_time_ms: int = field(int32, "0+")
    """How long the broker held this answer back, or wants the client to wait, because of a quota."""
    error_code: int = field(int16, "0+")
    """0, or what went wrong."""
