"""Errors of a share consumer. Each has a message, a place (`error.place`) and a hint (`error.hint`)."""

from kohort.common.errors import KohortError


class ShareConsumerClosed(KohortError):
    """The share consumer was closed; a closed one cannot be opened again."""


class ShareGroupsUnsupported(KohortError):
    """The cluster has no share groups: the feature share.version is 0, or the brokers are too old."""


class LockLost(KohortError):
    """The records are not acquired any more, so their acknowledgement was not sent: `topic`, `partition`.

    The session with the broker has ended, or another acquisition has shown that the lock has expired. The broker
    delivers the records again.
    """
