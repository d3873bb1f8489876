"""The errors that a consumer raises, each with a message, a place (`error.place`) and a hint (`error.hint`).

`BrokerError` (in protocol) carries a broker's own error code; those here say what it means for the caller.
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
    """The log was cut behind the position (unclean election): `topic`, `partition`, `offset`, `leader_epoch`.

    `diverges_at` is the end of the common log. It is left out if the leader does not know the position's leader epoch
    (KIP-320).
    """


class TopicRecreated(KohortError):
    """The topic was deleted and made anew, so that positions in the old one mean nothing: `topic`, both ids."""


class RebalanceInProgress(CommitFailed):
    """The group is rebalancing: not committed. Poll, so that the rebalance can finish, then commit again."""


class CommitRewind(CommitFailed):
    """The commit would move a committed offset backwards; `commit(..., allow_rewind=True)` says that it is meant."""


class FetchFailed(KohortError):
    """A Fetch error code that no retry cures: `topic`, `partition`, `offset`, and the broker's error."""
