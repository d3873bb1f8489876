"""What goes wrong between a log and Spark."""

from kohort.fastpath import KohortError


class PlanError(KohortError):
    """A plan that cannot be made as asked: an unknown topic, a start behind its stop, options that disagree."""


class DataLossError(KohortError):
    """Records that were planned are not in the log any more (or never were): `topic`, `partition`, and which offsets.

    Retention took them, the topic was deleted or made anew, or the log was truncated (B-40).
    """


class DecoderFailed(KohortError):
    """A decoder given by the user raised: `topic`, `partition`, `offset` of the record, and what it raised."""
