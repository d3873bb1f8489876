"""Errors of a share consumer. Each has a message, a place (`error.place`) and a hint (`error.hint`)."""

from kohort.common.errors import KohortError


class ShareConsumerClosed(KohortError):
    """The share consumer was closed; a closed one cannot be opened again.

    Cure:
        Make a new share consumer.
    """


class ShareGroupsUnsupported(KohortError):
    """The cluster has no share groups: the feature share.version is 0, or the brokers are too old.

    Cure:
        Use brokers of Kafka 4.2 or newer with the feature share.version=1, or a `Consumer`.
    """


class LockLost(KohortError):
    """The records are not acquired any more, so their acknowledgement was not sent: `topic`, `partition`.

    The session with the broker has ended, or another acquisition has shown that the lock has expired. The broker
    delivers the records again.

    Cure:
        Nothing, if the handler may run twice. Otherwise handle records faster, renew them, or raise
        `share.record.lock.duration.ms` of the group.
    """
