"""States of a producer's id and transactions, and the table of all their transitions.

A failed transaction is aborted by EndTxn. A new epoch follows, so that late batches are rejected. A zombie gets a
fencing error from EndTxn. In version 1 of transactions the epoch comes from another InitProducerId with the current id
(KIP-360). In version 2 it comes from EndTxn (KIP-890).
"""

from collections.abc import Mapping
from enum import Enum
from typing import Final

from kohort.common.state_table import state_table


class TxnState(Enum):
    """The states of a producer."""

    IDENTIFYING = "requesting a producer id; an older instance is fenced, and its open transaction aborted"
    IDLE = "has a producer id, and no transaction is open"
    OPEN = "a transaction is open: records and offsets may be sent"
    COMMITTING = "waiting for acknowledgements, then committing"
    ABORTING = "waiting for requests in flight, then aborting"
    FAILING = "aborting the failed transaction, and waiting for a new epoch"
    FAILED = "the failed transaction is aborted; the caller must call abort()"
    DEAD = "fenced, or failed for good"


class TxnTrigger(Enum):
    """The triggers of state transitions."""

    IDENTIFIED = "InitProducerId succeeded"
    BEGUN = "begin()"
    COMMIT_REQUESTED = "commit()"
    ABORT_REQUESTED = "abort()"
    ENDED = "EndTxn succeeded, or there was nothing to end"
    FAILED = "a batch, a request or the coordinator failed"
    DIED = "fenced, or failed for good"


_S, _T = TxnState, TxnTrigger

TRANSITIONS: Final[Mapping[TxnState, Mapping[TxnTrigger, TxnState]]] = state_table(
    {
        _S.IDENTIFYING: {
            _T.IDENTIFIED: _S.IDLE,
            _T.DIED: _S.DEAD,
        },
        _S.IDLE: {
            _T.BEGUN: _S.OPEN,
            _T.FAILED: _S.IDENTIFYING,  # after 32,767 epochs, an idempotent producer requests another id
            _T.DIED: _S.DEAD,
        },
        _S.OPEN: {
            _T.COMMIT_REQUESTED: _S.COMMITTING,
            _T.ABORT_REQUESTED: _S.ABORTING,
            _T.FAILED: _S.FAILING,
            _T.DIED: _S.DEAD,
        },
        _S.COMMITTING: {
            _T.ENDED: _S.IDLE,
            _T.FAILED: _S.FAILING,
            _T.DIED: _S.DEAD,
        },
        _S.ABORTING: {
            _T.ENDED: _S.IDLE,
            _T.FAILED: _S.FAILING,
            _T.DIED: _S.DEAD,
        },
        _S.FAILING: {
            _T.IDENTIFIED: _S.FAILED,
            _T.ENDED: _S.FAILED,
            _T.DIED: _S.DEAD,
        },
        _S.FAILED: {
            _T.ABORT_REQUESTED: _S.IDLE,
            _T.DIED: _S.DEAD,
        },
        _S.DEAD: {},
    }
)

UNSETTLED: Final = frozenset({_S.IDENTIFYING, _S.COMMITTING, _S.ABORTING})
"""States that end by themselves, and after which a transaction may begin."""
