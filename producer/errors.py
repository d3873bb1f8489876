"""Errors raised by the producer or by a delivery; `BrokerError` has a broker's error code."""

from kohort.common.errors import KohortError


class ProducerClosed(KohortError):
    """The producer was closed; a closed producer cannot be opened again."""


class BufferFull(KohortError):
    """The buffer stayed full for `max_block_ms`.

    Records are sent faster than brokers accept them.
    """


class RecordTooLarge(KohortError):
    """One record is larger than `max_request_bytes`, or than the whole buffer."""


class DeliveryTimeout(KohortError):
    """A record was not acknowledged within `delivery_timeout_ms`.

    `sent` is true if it was sent; it may then be in the log.
    """


class TransactionError(KohortError):
    """Base class of transaction errors."""


class TransactionAborted(TransactionError):
    """The transaction failed because of `__cause__`.

    Call `abort()`; then everything may be sent again.
    """


class ProducerFenced(TransactionError):
    """A newer producer uses the same transactional id; this one must stop."""
