"""Errors of a consumer. Each has a message, a place (`error.place`) and a hint (`error.hint`).

`BrokerError` (in protocol) has a broker's error code. The errors here give its meaning for the caller.
"""

from kohort.common.errors import KohortError
from kohort.network.errors import CommitFailed


class ConsumerClosed(KohortError):
    """The consumer was closed; a closed consumer cannot be opened again.

    Cure:
        Make a new consumer.
    """


class CallbackError(KohortError):
    """A hook called what must not be called inside a hook (poll, close, subscribe...).

    Cure:
        Return from the hook first. Do the call after the poll that ran the hook.
    """


class NoOffset(KohortError):
    """No committed offset, and `auto_offset_reset="none"` forbids choosing one: `topic`, `partition`.

    Cure:
        `seek` to a start position, commit one, or set `auto_offset_reset`.
    """


class OffsetOutOfRange(KohortError):
    """The position is outside the log and `auto_offset_reset="none"`: `topic`, `partition`, `offset`.

    Cure:
        `seek` into the log, or set `auto_offset_reset`. Retention has removed the records if the position is before the
        log.
    """


class Truncation(KohortError):
    """The log was truncated below the position (unclean election): `topic`, `partition`, `offset`, `leader_epoch`.

    `diverges_at` is the end of the common log. It is omitted if the leader does not have the position's leader epoch
    (KIP-320).

    Cure:
        `seek` to `diverges_at` to read on in the new log. What was read behind it is not in the log any more.
    """


class TopicRecreated(KohortError):
    """The topic was deleted and created again, so positions in the old one are not valid: `topic`, both ids.

    Cure:
        Decide on a position in the new topic, and `seek` to it.
    """


class RebalanceInProgress(CommitFailed):
    """The group is rebalancing: not committed.

    Cure:
        Poll, so that the rebalance can finish, then commit again.
    """


class CommitRewind(CommitFailed):
    """The commit would move a committed offset backwards.

    Cure:
        Check the offsets. Pass `commit(..., allow_rewind=True)` if the position shall move back.
    """


class FetchFailed(KohortError):
    """A Fetch error code that no retry cures: `topic`, `partition`, `offset`, and the broker's error.

    Cure:
        Look up the broker's error and its log. `seek` behind the offset if its record cannot be read.
    """
