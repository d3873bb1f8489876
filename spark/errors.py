"""The errors of the Spark reader."""

from kohort.common import KohortError


class PlanError(KohortError):
    """A plan that cannot be made as asked: an unknown topic, a start behind its stop, options that disagree."""


class OptionError(KohortError):
    """An option that is unknown, has a value that cannot be, or contradicts another: `option`."""


class DataLossError(KohortError):
    """Records that were planned are not in the log any more (or never were): `topic`, `partition`, and which offsets.

    Retention took them, the topic was deleted or made anew, or the log was truncated (B-40). The message begins with
    the error condition by which Spark's own Kafka source names the same loss.
    """

    @property
    def condition(self) -> str:
        """Spark's name for it, as KAFKA_DATA_LOSS.PARTITIONS_DELETED."""
        return self.message[1:].partition("]")[0] if self.message.startswith("[") else ""


class DecoderFailed(KohortError):
    """A decoder given by the user raised: `topic`, `partition`, `offset` of the record, and what it raised."""


def data_loss(condition: str, message: str, *, hint: str | None = None, **place: object) -> DataLossError:
    """A DataLossError under one of the names below KAFKA_DATA_LOSS."""
    return DataLossError(f"[KAFKA_DATA_LOSS.{condition}] {message}", hint=hint, **place)
