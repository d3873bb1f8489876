"""InitProducerId (22): assigns a producer id and epoch, and ends an earlier instance's transaction.

Sent to: the transaction coordinator, or any broker if there is no transactional id.

Errors
    NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS   send FindCoordinator, retry
    CONCURRENT_TRANSACTIONS       the previous transaction is not complete: retry after a backoff
    INVALID_PRODUCER_EPOCH, PRODUCER_FENCED   a newer producer instance runs: fatal
    INVALID_TRANSACTION_TIMEOUT   longer than the broker allows
    INVALID_REQUEST               the transactional id is empty
    TRANSACTION_ABORTABLE         abort the transaction (version 5 on)
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED, CLUSTER_AUTHORIZATION_FAILED   fatal
"""

from kohort.protocol.primitives import boolean, int16, int32, int64, string
from kohort.protocol.schema import Request, Response, field


class InitProducerIdRequest(Request, key=22, versions="0-6", flexible="2+"):
    transactional_id: str | None = field(string, "0+", null="0+")
    """The producer's transactional id, or null for an idempotent producer."""
    transaction_timeout_ms: int = field(int32, "0+")
    """Milliseconds a transaction may be open before the coordinator aborts it."""
    producer_id: int = field(int64, "3+", default=-1)
    """The current producer id, to bump its epoch (KIP-360); -1 if there is none."""
    producer_epoch: int = field(int16, "3+", default=-1)
    """The current producer epoch; -1 if there is none."""
    enable2_pc: bool = field(boolean, "6+", default=False)
    """True if the producer participates in a two-phase commit (KIP-939)."""
    keep_prepared_txn: bool = field(boolean, "6+", default=False)
    """True keeps a prepared transaction open (KIP-939)."""


class InitProducerIdResponse(Response, key=22, versions="0-6", flexible="2+"):
    throttle_time_ms: int = field(int32, "0+", ignorable=True)
    """Milliseconds the request was throttled by a quota. Since KIP-219 the client must wait for them."""
    error_code: int = field(int16, "0+")
    """0, or what went wrong."""
    producer_id: int = field(int64, "0+", default=-1)
    """The assigned producer id; -1 with an error."""
    producer_epoch: int = field(int16, "0+")
    """The epoch to use."""
    ongoing_txn_producer_id: int = field(int64, "6+", default=-1)
    """The producer id of the prepared transaction; -1 if there is none."""
    ongoing_txn_producer_epoch: int = field(int16, "6+", default=-1)
    """The producer epoch of the prepared transaction; -1 if there is none."""
