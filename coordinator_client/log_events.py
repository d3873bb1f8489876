"""The log lines of a consumer: notices of its group's machine, and positions that had to be chosen."""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final

from kohort.common import TopicPartition
from kohort.common.log_context import logger
from kohort.coordinator_client.consumer_config import ConsumerConfig
from kohort.coordinator_client.group.ready import MemberView
from kohort.coordinator_client.offset_reset import OffsetReset
from kohort.network.group_types import ConsumerGroupMetadata
from kohort.network.notices import Notice

log = logger("kohort.consumer")

LEVELS: Final[Mapping[str, str]] = {
    "fatal": "error",
    **dict.fromkeys(
        (
            "poll_stalling",
            "poll_stalled",
            "commit_dropped",
            "commit_late",
            "commit_refused",
            "auto_commit_late",
            "auto_commit_refused",
            "lost",
            "bad_subscription",
            "instance_held",
            "group_not_converted",
        ),
        "warning",
    ),
}
"""Log level by kind of notice. Other kinds are informational."""


class LogEvents:
    """The log lines of one consumer, written under the driver's lock. `view` returns the current view of the member."""

    def __init__(self, config: ConsumerConfig, view: Callable[[], MemberView | None]) -> None:
        self._config = config
        self._view = view
        self._held: ConsumerGroupMetadata | None = None

    def log_fields(self) -> dict[str, Any]:
        """The log fields of this consumer; from any thread, with or without the lock."""
        view, config = self._view(), self._config
        return {
            "client_id": config.client_id,
            "group": config.group or "",
            "member": view.identity.member_id if view is not None else "",
            "generation": view.identity.generation if view is not None else -1,
        }

    def of(self, partition: TopicPartition) -> dict[str, Any]:
        """The fields of the consumer, and of a partition."""
        return self.log_fields() | partition._asdict()

    def notices(self, notices: Iterable[Notice], identity: ConsumerGroupMetadata) -> None:
        """Log the machine's notices. If membership was lost by one, its line names the membership that was lost."""
        whose = identity if identity.generation >= 0 or self._held is None else self._held
        self._held = identity if identity.generation >= 0 else None
        for notice in notices:
            self.noticed(notice, {"member": whose.member_id, "generation": whose.generation})

    def noticed(self, notice: Notice, whose: Mapping[str, Any] = MappingProxyType({})) -> None:
        """Log a notice. `whose`: fields that differ from the member's current ones."""
        fields = {**self.log_fields(), **whose, "event": notice.kind}
        getattr(log, LEVELS.get(notice.kind, "info"))("%s: %s", notice.kind, notice.text, extra=fields)

    def batch_skipped(self, partition: TopicPartition, text: str) -> None:
        """Log a corrupt batch that was skipped."""
        log.warning("%s", text, extra=self.of(partition))

    def gaps(self, gaps: Iterable[OffsetReset]) -> None:
        """Positions that were chosen: a warning where there was one that could not be kept."""
        for gap in gaps:
            write = log.info if gap.wanted is None else log.warning
            fields = self.of(gap.partition) | {"event": "reset"}
            text = "%s: reading at %d instead of %s: %s"
            write(text, gap.partition, gap.start, gap.wanted, gap.reason, extra=fields)
