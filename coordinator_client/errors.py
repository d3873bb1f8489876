"""Errors of a consumer. Each has a message, a place (`error.place`) and a hint (`error.hint`).

`BrokerError` (in protocol) has a broker's error code. The errors here give its meaning for the caller.
"""

from kohort.common.errors import KohortError
from kohort.network.errors import CommitFailed


class ConsumerClosed(KohortError):
    """The consumer was closed; a closed consumer cannot be opened again."""


class CallbackError(KohortError):
    """A hook called what must not be called inside a hook (poll, close, subscribe...)."""


class WakeupError(KohortError):
    """`wakeup()` was called: raised exactly once, by the running poll or the next one."""


class NoOffset(KohortError):
    """No committed offset, and `auto_offset_reset="none"` forbids choosing one: `topic`, `partition`."""


class OffsetOutOfRange(KohortError):
    """The position is outside the log and `auto_offset_reset="none"`: `topic`, `partition`, `offset`."""


class Truncation(KohortError):
    """The log was truncated below the position (unclean election): `topic`, `partition`, `offset`, `leader_epoch`.

    `diverges_at` is the end of the common log. It is omitted if the leader does not have the position's leader epoch
    (KIP-320).
    """


class TopicRecreated(KohortError):
    """The topic was deleted and created again, so positions in the old one are not valid: `topic`, both ids."""


class RebalanceInProgress(CommitFailed):
    """The group is rebalancing: not committed. Poll, so that the rebalance can finish, then commit again."""


class CommitRewind(CommitFailed):
    """The commit would move a committed offset backwards. Pass `commit(..., allow_rewind=True)` to permit it."""


class FetchFailed(KohortError):
    """A Fetch error code that no retry cures: `topic`, `partition`, `offset`, and the broker's error."""
