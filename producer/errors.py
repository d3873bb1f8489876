"""Errors raised by the producer or by a delivery; `BrokerError` has a broker's error code."""

from kohort.common.errors import KohortError


class ProducerClosed(KohortError):
    """The producer was closed; a closed producer cannot be opened again.

    Cure:
        Make a new producer.
    """


class BufferFull(KohortError):
    """The buffer stayed full for `max_block_ms`.

    Records are sent faster than brokers accept them.

    Cure:
        Send more slowly, or raise `buffer_bytes` or `max_block_ms`. Check that brokers accept records.
    """


class RecordTooLarge(KohortError):
    """One record is larger than `max_request_bytes`, or than the whole buffer.

    Cure:
        Send a smaller record, or raise `max_request_bytes`, and `max.message.bytes` of the topic.
    """


class PartitionerError(KohortError):
    """The function `partitioner` raised (`__cause__`), or returned no partition of the topic. The record is not sent.

    Cure:
        Correct the function. It gets topic, key, value and the number of partitions, and returns a partition or None.
    """


class DeliveryTimeout(KohortError):
    """A record was not acknowledged within `delivery_timeout_ms`.

    `sent` is true if it was sent; it may then be in the log.

    Cure:
        Send the record again. If `sent` is true, it may then be in the log twice.
    """


class TransactionError(KohortError):
    """Base class of transaction errors."""


class TransactionAborted(TransactionError):
    """The transaction failed because of `__cause__`.

    Call `abort()`; then everything may be sent again.

    Cure:
        Call `abort()`, go back to the committed offsets, and send everything again.
    """


class ProducerFenced(TransactionError):
    """A newer producer uses the same transactional id; this one must stop. In version 1 of transactions, a transaction
    that takes longer than `transaction_timeout_ms` has the same effect.

    Cure:
        End this process. If both shall run, give each its own `transactional_id`. If there is no newer one, create a
        producer with a longer `transaction_timeout_ms`.
    """
