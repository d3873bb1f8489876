"""InitProducerId (22): give this producer an id and an epoch, and settle what an earlier instance left open.

Sent to: the transaction coordinator; without a transactional id any broker.

Errors
    NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS   find the coordinator, retry
    CONCURRENT_TRANSACTIONS       the earlier transaction is being settled: retry after a while
    INVALID_PRODUCER_EPOCH, PRODUCER_FENCED   a newer instance runs: stop
    INVALID_TRANSACTION_TIMEOUT   longer than the broker allows
    INVALID_REQUEST               an empty transactional id
    TRANSACTION_ABORTABLE         abort and begin anew (version 5 on)
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED, CLUSTER_AUTHORIZATION_FAILED   fatal
"""

from kohort.protocol.primitives import boolean, int16, int32, int64, string
from kohort.protocol.schema import Request, Response, field


class InitProducerIdRequest(Request, key=22, versions="0-6", flexible="2+"):
    transactional_id: str | None = field(string, "0+", null="0+")
    """The producer's transactional id, or null for an idempotent producer."""
    transaction_timeout_ms: int = field(int32, "0+")
    """How long a transaction may be open before the coordinator aborts it."""
    producer_id: int = field(int64, "3+", default=-1)
    """The id that the producer has, to bump its epoch (KIP-360); -1 where it has none."""
    producer_epoch: int = field(int16, "3+", default=-1)
    """The epoch that the producer has; -1 where it has none."""
    enable2_pc: bool = field(boolean, "6+", default=False)
    """Whether the producer takes part in a two-phase commit (KIP-939)."""
    keep_prepared_txn: bool = field(boolean, "6+", default=False)
    """Whether an open, prepared transaction shall stay open (KIP-939)."""


class InitProducerIdResponse(Response, key=22, versions="0-6", flexible="2+"):
    throttle_time_ms: int = field(int32, "0+", ignorable=True)
    """How long the broker held this answer back, or wants the client to wait, because of a quota."""
    error_code: int = field(int16, "0+")
    """0, or what went wrong."""
    producer_id: int = field(int64, "0+", default=-1)
    """The id to use; -1 with an error."""
    producer_epoch: int = field(int16, "0+")
    """The epoch to use."""
    ongoing_txn_producer_id: int = field(int64, "6+", default=-1)
    """The id under which the prepared transaction runs; -1 where there is none."""
    ongoing_txn_producer_epoch: int = field(int16, "6+", default=-1)
    """The epoch under which it runs; -1 where there is none."""
