"""What a producer raises, by itself or from a delivery. `BrokerError` is a broker's own refusal with its number."""

from kohort.common.errors import KohortError


class ProducerClosed(KohortError):
    """The producer was closed; a closed producer cannot be opened again."""


class BufferFull(KohortError):
    """No room came free within `max_block_ms`: records are handed over faster than brokers take them."""


class RecordTooLarge(KohortError):
    """One record is larger than `max_request_bytes`, or than the whole buffer."""


class DeliveryTimeout(KohortError):
    """Not acknowledged within `delivery_timeout_ms`. `sent`: whether it left at all; then it may be in the log."""


class TransactionError(KohortError):
    """A transaction did not come about."""


class TransactionAborted(TransactionError):
    """The transaction failed, its cause being `__cause__`: call `abort()`, then everything may be sent once more."""


class ProducerFenced(TransactionError):
    """A newer producer with the same transactional id runs: this one must stop."""
