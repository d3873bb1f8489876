"""The life of a producer's identity and of its transactions: states, and all their transitions as one literal table.

A failed transaction is aborted by asking for the producer's id once more with the one it has (KIP-360): that ends the
transaction, takes a new epoch, so that nothing late can still be written, and tells a zombie that it is one.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Final


class TxnState(Enum):
    """Where a producer is."""

    IDENTIFYING = "asking for a producer id; an older instance is fenced, what it left open is aborted"
    IDLE = "has an id; no transaction is open"
    OPEN = "a transaction is open: records and offsets may be sent"
    COMMITTING = "what was sent is being acknowledged, then the commit"
    ABORTING = "nothing more is sent; what is in flight is awaited, then the abort"
    FAILING = "something failed: the transaction is being aborted under a new epoch"
    FAILED = "aborted because something failed; the caller has yet to say abort()"
    DEAD = "fenced, or refused for good"


class TxnTrigger(Enum):
    """What moves it on."""

    IDENTIFIED = "InitProducerId answered"
    BEGUN = "begin()"
    COMMIT_ASKED = "commit()"
    ABORT_ASKED = "abort()"
    ENDED = "EndTxn answered, or there was nothing to end"
    FAILED = "a batch, a request or the coordinator failed"
    DIED = "fenced, or refused for good"


_S, _T = TxnState, TxnTrigger

TRANSITIONS: Final[Mapping[tuple[TxnState, TxnTrigger], TxnState]] = {
    (_S.IDENTIFYING, _T.IDENTIFIED): _S.IDLE,
    (_S.IDLE, _T.BEGUN): _S.OPEN,
    (_S.OPEN, _T.COMMIT_ASKED): _S.COMMITTING,
    (_S.OPEN, _T.ABORT_ASKED): _S.ABORTING,
    (_S.COMMITTING, _T.ENDED): _S.IDLE,
    (_S.ABORTING, _T.ENDED): _S.IDLE,
    (_S.OPEN, _T.FAILED): _S.FAILING,
    (_S.COMMITTING, _T.FAILED): _S.FAILING,
    (_S.ABORTING, _T.FAILED): _S.FAILING,
    (_S.FAILING, _T.IDENTIFIED): _S.FAILED,
    (_S.FAILED, _T.ABORT_ASKED): _S.IDLE,
    # An id of an idempotent producer is used up after 32,767 epochs, and another is asked for.
    (_S.IDLE, _T.FAILED): _S.IDENTIFYING,
    **{(state, _T.DIED): _S.DEAD for state in _S if state is not _S.DEAD},
}


def after(state: TxnState, trigger: TxnTrigger) -> TxnState:
    """The next state; KeyError where the table has none."""
    return TRANSITIONS[state, trigger]
