"""Rules about a share group (KIP-932): its settings, its start, locks that expire, deliveries that repeat."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from kohort.admin import SharePartitionOffset
from kohort.cli.doctor.finding import Finding, note, warning
from kohort.common import TopicPartition
from kohort.common.counted import counted
from kohort.common.named_tuple import NamedTuple
from kohort.coordinator_client.consumer_config import ConsumerConfig

MAX_POLL_RECORDS: Final = 500
"""The default of a share consumer. That of a consumer has no limit."""
REPEATED: Final = 0.1
"""The fraction of deliveries that repeat from which on they are reported."""


class ShareTape(NamedTuple):
    """The deliveries and acknowledgements on the tape of a share consumer, by number of offsets.

    `highest`: the highest delivery count. `refused`: acknowledged partitions with INVALID_RECORD_STATE.
    """

    delivered: int
    repeated: int
    highest: int
    refused: int


def start(
    settings: ConsumerConfig,
    share_configs: Mapping[str, str | None],
    share_offsets: Sequence[SharePartitionOffset],
    share_ends: Mapping[TopicPartition, int],
) -> Iterator[Finding]:
    if share_configs.get("share.auto.offset.reset") != "latest":
        return
    begun = {one.partition for one in share_offsets if one.start_offset is not None}
    waiting = sum(end > 0 and one not in begun for one, end in share_ends.items())
    if waiting:
        yield warning(
            "share.auto.offset.reset is latest: the group skips the present records of "
            f"{counted(waiting, 'partition')} that it has not fetched yet",
            f"group {settings.group}",
            f"kohort group configs {settings.group} --set share.auto.offset.reset=earliest",
        )
    else:
        yield note(
            "share.auto.offset.reset is latest: records of a new partition before its first fetch are not delivered",
            f"group {settings.group}",
            "set it to earliest if each record counts",
        )


def lock(settings: ConsumerConfig, share_configs: Mapping[str, str | None], ms_per_record: float) -> Iterator[Finding]:
    limit = int(share_configs.get("share.record.lock.duration.ms") or 0)
    most = settings.max_poll_records or MAX_POLL_RECORDS
    if limit and most * ms_per_record >= limit:
        yield warning(
            f"{most} records of {ms_per_record:g} ms need {most * ms_per_record:.0f} ms, and their locks last {limit} "
            "ms: later records of a poll are delivered again while they are handled",
            f"group {settings.group}",
            f"set max.poll.records to {max(1, int(limit / ms_per_record) // 2)} or less, hold or renew the records, "
            "or raise share.record.lock.duration.ms",
        )


def renewal(settings: ConsumerConfig, share_configs: Mapping[str, str | None]) -> Iterator[Finding]:
    if share_configs.get("share.renew.acknowledge.enable") == "false":
        yield note(
            'the group allows no renewal of locks, so `hold`, "renew" and `kohort.workers` lose long records',
            f"group {settings.group}",
            "set share.renew.acknowledge.enable=true, or handle records within their locks",
        )


def expired(shared: ShareTape) -> Iterator[Finding]:
    if shared.refused:
        yield warning(
            f"{shared.refused} times on the tape the broker refused acknowledgements with INVALID_RECORD_STATE: locks "
            "had expired, and the records are delivered again",
            "tape",
            "handle fewer records at a time (max.poll.records), hold or renew them, or raise "
            "share.record.lock.duration.ms",
        )


def repeated(shared: ShareTape, share_configs: Mapping[str, str | None]) -> Iterator[Finding]:
    limit = int(share_configs.get("share.delivery.count.limit") or 0)
    if limit and shared.highest >= limit:
        yield warning(
            f"records on the tape were delivered for the last time (share.delivery.count.limit is {limit}): without an "
            "acceptance the broker archives them",
            "tape",
            "reject such records after a dead letter (`kohort.workers`), or raise the limit",
        )
    if shared.repeated >= REPEATED * shared.delivered > 0:
        yield warning(
            f"{shared.repeated} of {shared.delivered} deliveries on the tape were repetitions: handlers release or "
            "fail, locks expire, or sessions are lost",
            "tape",
            "compare the errors of commit() with the times of the tape (`kohort wire explain`)",
        )
