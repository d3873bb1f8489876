"""The errors of the Spark reader."""

from kohort.common import KohortError

TAPE_REFUSED = "a tape has one client, and a job of Spark has several"


class PlanError(KohortError):
    """A plan is not possible: an unknown topic, a start behind its stop, contradicting arguments.

    Cure:
        Correct the arguments of the plan. `kohort plan` shows it without Spark.
    """


class OptionError(KohortError):
    """An option is unknown, has an invalid value, or contradicts another: `option`.

    Cure:
        Correct the option. [Spark](../spark.md) lists the options.
    """


class DataLossError(KohortError):
    """Planned records are not in the log, or never were: `topic`, `partition`, and the offsets.

    Causes are retention, a deleted or recreated topic, and a truncated log (B-40). The message begins with the error
    condition of Spark's own Kafka source for the same loss.

    Cure:
        Read from the first offset that is left, or set `failOnDataLoss` to false if the loss is accepted.
    """

    @property
    def condition(self) -> str:
        """Spark's error condition, for example KAFKA_DATA_LOSS.PARTITIONS_DELETED."""
        return self.message[1:].partition("]")[0] if self.message.startswith("[") else ""


class DecoderFailed(KohortError):
    """A user's decoder raised: `topic`, `partition`, `offset` of the record. The exception is the `__cause__`.

    Cure:
        Correct the decoder for the record at this place. Its exception is the `__cause__`.
    """


def data_loss(condition: str, message: str, *, hint: str | None = None, **place: object) -> DataLossError:
    """A DataLossError with a condition of KAFKA_DATA_LOSS."""
    return DataLossError(f"[KAFKA_DATA_LOSS.{condition}] {message}", hint=hint, **place)
