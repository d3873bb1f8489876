"""Settings of a region member."""

from dataclasses import dataclass
from typing import Literal

from kohort.consistent_region.errors import ConfigurationError
from kohort.consistent_region.setting_checks import check_positive
from kohort.consistent_region.triggers import Periodic, Trigger

CommitPoint = Literal["checkpoint_complete", "drain"]
OnCommitFailure = Literal["warn", "reset"]
MAX_POLL_RECORDS = 5_000
QUEUE_POLLS = 10
CHECKPOINT_TIMEOUT_S = 60.0
EVERY_FIVE_SECONDS = Periodic(5.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionSettings:
    """Checked settings of one member. They must be equal in all members of a region.

    `checkpoint_timeout_s`: a checkpoint that is not complete after this time is abandoned, and the region resets. The
    slowest record and the slowest snapshot must be faster. `commit_point`: offsets are committed to the group when a
    checkpoint is complete, or while draining. `hand_over`: partitions move within an epoch by COOPERATIVE assignment,
    instead of by a reset of the region. `on_commit_failure`: the reaction to a failed commit. Committed offsets are
    only information, so the default is a warning.
    """

    trigger: Trigger = EVERY_FIVE_SECONDS
    commit_point: CommitPoint = "checkpoint_complete"
    on_commit_failure: OnCommitFailure = "warn"
    max_poll_records: int = MAX_POLL_RECORDS
    drain_timeout_s: float = 180.0
    checkpoint_timeout_s: float = CHECKPOINT_TIMEOUT_S
    look_interval_s: float = 0.2
    hand_over: bool = False

    def __post_init__(self) -> None:
        for name in ("max_poll_records", "drain_timeout_s", "checkpoint_timeout_s", "look_interval_s"):
            check_positive(name, getattr(self, name))
        if not isinstance(self.trigger, Trigger):  # a number would be no trigger, and no checkpoint would begin
            raise ConfigurationError(
                f"no trigger: {self.trigger!r}",
                hint="use Periodic(5), OperatorDriven(1000) or Manual()",
                setting="trigger",
            )
        if self.commit_point not in ("checkpoint_complete", "drain"):
            raise ConfigurationError(f"unknown commit_point {self.commit_point!r}", setting="commit_point")
        if self.on_commit_failure not in ("warn", "reset"):
            raise ConfigurationError(
                f"unknown on_commit_failure {self.on_commit_failure!r}", setting="on_commit_failure"
            )

    @property
    def queue_records(self) -> int:
        """The maximum number of records that wait between poll and handler."""
        return QUEUE_POLLS * self.max_poll_records
