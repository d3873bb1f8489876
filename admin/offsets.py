"""Committed offsets and lag of a group, and resets of offsets while it has no members."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from kohort.admin.admin_core import AdminRequest
from kohort.admin.groups import GroupNotEmpty
from kohort.admin.request_driver import RequestDriver
from kohort.admin.topics import Leaders
from kohort.common import KohortError, TopicPartition
from kohort.network.error_mapping import UNKNOWN_TOPIC_GRACE_S, offset_error
from kohort.network.errors import ConnectionFailed
from kohort.network.group_types import ConsumerGroupMetadata, OffsetAndMetadata
from kohort.network.offset_requests import (
    BEFORE_TOPIC_IDS,
    EARLIEST,
    LATEST,
    ListedOffset,
    ListFailure,
    commit_request,
    committed_offsets,
    list_offsets_request,
    listed_offsets,
    offset_fetch_request,
    stored_at_once,
)
from kohort.network.requests import Endpoint
from kohort.protocol.apis.offset_commit import OffsetCommitResponse
from kohort.protocol.errors import BrokerError, ErrorCode, is_retriable

NEWEST: Final = -3
"""ListOffsets timestamp for the record with the latest timestamp (KIP-734)."""

MEMBERS_THERE: Final = frozenset({ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.NON_EMPTY_GROUP})


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """Committed offset, end offset and lag of a partition.

    `committed`: None if no offset is committed. `end`: the log end offset, -1 if unknown. `lag`: None if unknown.
    """

    partition: TopicPartition
    committed: int | None
    end: int

    @property
    def lag(self) -> int | None:
        """The records between the committed offset and the end. None without a committed offset or a known end."""
        return None if self.committed is None or self.end < 0 else max(0, self.end - self.committed)


@dataclass(frozen=True, slots=True)
class OffsetChange:
    """A committed offset before and after a change."""

    partition: TopicPartition
    before: int | None
    after: int


def committed(driver: RequestDriver, group: str) -> dict[TopicPartition, OffsetAndMetadata]:
    """All committed offsets of the group."""
    response = driver.of_coordinator(
        group,
        "OffsetFetch",
        offset_fetch_request(group, None, stable=False),
        codes=lambda found: [found.error_code, *(one.error_code for one in found.groups)],
        at_most=BEFORE_TOPIC_IDS,
    )
    found = committed_offsets(response)
    if found.error:
        raise offset_error(None, found.error, group)
    return {partition: to for partition, to in sorted(found.found.items()) if to is not None}


def listed(
    driver: RequestDriver, wanted: Mapping[TopicPartition, int], *, grace_s: float = 0.0
) -> dict[TopicPartition, ListedOffset]:
    """Offsets by timestamp (ms, EARLIEST, LATEST or NEWEST), of the first record not older.

    The offset is -1 if there is no such record. Retries within the call's time while a leader is elected, cannot be
    reached, or does not know yet that it leads. Partitions are missing if they do not exist, have no in-sync replica to
    lead them, or have a permanent error. For `grace_s` after the call's start, those that do not exist are retried too.
    """
    found: dict[TopicPartition, ListedOffset] = {}
    left = dict(wanted)
    while left:
        leaders = Leaders.requested(driver, left)
        by_leader: dict[Endpoint, list[tuple[TopicPartition, int, int]]] = defaultdict(list)
        for partition, timestamp in sorted(left.items()):
            if partition in leaders.of:
                by_leader[leaders.of[partition]].append((partition, timestamp, -1))
        timeout_ms = driver.config.request_timeout_ms
        requests = [
            AdminRequest(
                "ListOffsets", list_offsets_request(all_pending, read_committed=False, timeout_ms=timeout_ms), leader
            )
            for leader, all_pending in by_leader.items()
        ]
        try:
            responses = driver.all(requests)
        except ConnectionFailed:  # a leader may have died: metadata has it until another is elected
            if not driver.retry():
                raise
            continue
        coming = set(leaders.coming)
        for response in responses:
            for partition, outcome in listed_offsets(response).items():
                if not isinstance(outcome, ListFailure):
                    found[partition] = outcome
                elif is_retriable(outcome.code):
                    coming.add(partition)
        if not (driver.retry() if coming else leaders.unknown and driver.retry(grace_s)):
            break
        left = {one: left[one] for one in left if one in coming or one in leaders.unknown}
    return found


def lag(driver: RequestDriver, group: str) -> list[PartitionLag]:
    """The lag of every partition with a committed offset, by topic and number."""
    at = committed(driver, group)
    ends = listed(driver, dict.fromkeys(at, LATEST))
    return [
        PartitionLag(partition, to.offset, ends[partition].offset if partition in ends else -1)
        for partition, to in at.items()
    ]


def reset(driver: RequestDriver, group: str, to: Mapping[TopicPartition, int], *, dry_run: bool) -> list[OffsetChange]:
    """Commit offsets, limited to the range of the log, for a group without members.

    Raises GroupNotEmpty, and KohortError for a partition that does not exist.
    """
    # Brokers learn of a new topic at different times.
    first, last = (listed(driver, dict.fromkeys(to, end), grace_s=UNKNOWN_TOPIC_GRACE_S) for end in (EARLIEST, LATEST))
    if missing := to.keys() - (first.keys() & last.keys()):
        one = min(missing)
        raise KohortError("no such partition, or no leader", **one._asdict())
    after = {one: min(max(offset, first[one].offset), last[one].offset) for one, offset in to.items()}
    found = changes(committed(driver, group), after)
    if not dry_run:
        store(driver, group, after)
    return found


def store(driver: RequestDriver, group: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Commit offsets for a group without members, in parts that a broker stores at once. Raises GroupNotEmpty."""
    for part in stored_at_once(group, {one: OffsetAndMetadata(to) for one, to in offsets.items()}):
        _store(driver, group, part)


def _store(driver: RequestDriver, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
    request = commit_request(ConsumerGroupMetadata(group), offsets)

    def codes(found: OffsetCommitResponse) -> dict[TopicPartition, int]:
        return {
            TopicPartition(topic.name, one.partition_index): one.error_code
            for topic in found.topics
            for one in topic.partitions
        }

    def values(found: OffsetCommitResponse) -> list[int]:
        return list(codes(found).values())

    response = driver.once_known(
        lambda: driver.of_coordinator(group, "OffsetCommit", request, codes=values, at_most=BEFORE_TOPIC_IDS), values
    )
    stored = codes(response)
    if left_out := offsets.keys() - stored.keys():
        place = min(left_out)._asdict()
        raise KohortError("the OffsetCommit response lacks a partition", api="OffsetCommit", group=group, **place)
    for partition, code in stored.items():
        if code in MEMBERS_THERE:
            raise GroupNotEmpty(
                "the group has members, which alone may commit its offsets", hint="stop the members", group=group
            )
        if code:
            raise BrokerError(code, api="OffsetCommit", group=group, **partition._asdict())


def changes(
    before: Mapping[TopicPartition, OffsetAndMetadata], after: Mapping[TopicPartition, int]
) -> list[OffsetChange]:
    """The changes that a commit of `after` makes."""
    known = {partition: to.offset for partition, to in before.items()}
    return [OffsetChange(partition, known.get(partition), offset) for partition, offset in sorted(after.items())]
