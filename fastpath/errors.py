"""Errors of record batches."""

from typing import TYPE_CHECKING

from kohort.common.errors import KohortError

if TYPE_CHECKING:
    from kohort.fastpath._columns import RecordColumns


class CorruptRecord(KohortError):
    """A record batch that contradicts itself or its checksum, with `topic`, `partition`, `offset` and the reason.

    `decoded`: the RecordColumns of the valid batches before it, if `kohort.fastpath.decode` raised it.
    `resumed_at`: the offset at which reading went on, if the batch was skipped (`on_corrupt="skip_batch"`).

    Cure:
        Read from another replica, or restore the log. `on_corrupt="skip_batch"` reads on behind the batch.
    """

    decoded: "RecordColumns | None" = None
    resumed_at: int | None = None

    def __reduce__(self) -> tuple[object, ...]:
        return (*super().__reduce__(), {"resumed_at": self.resumed_at})


class UnsupportedCodec(CorruptRecord):
    """A compression codec id that no version of Kafka has defined.

    Cure:
        Find the producer that wrote the batch. No client of Kafka can read it.
    """


class UnsupportedMagic(CorruptRecord):
    """A record format newer than magic 2.

    Cure:
        Install a newer version of kohort.
    """


class DecompressionLimit(CorruptRecord):
    """A batch that would exceed `max_decompressed_bytes`. Decompression stops before the memory is allocated.

    Cure:
        Raise `max_decompressed_bytes` if the producer is trusted to send such batches.
    """
