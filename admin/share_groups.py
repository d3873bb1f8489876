"""Describes share groups (KIP-932), and reads, sets and deletes their offsets."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from kohort.admin.groups import GroupDescription, codes_of_groups, described, epoch_group, epoch_member, group_failure
from kohort.admin.request_driver import RequestDriver, first_of
from kohort.common import KohortError, TopicPartition
from kohort.common.topic_partition import grouped
from kohort.network.error_mapping import topic_error
from kohort.network.errors import UnknownTopic
from kohort.protocol.apis.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from kohort.protocol.apis.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from kohort.protocol.apis.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from kohort.protocol.apis.share_group_describe import ShareGroupDescribeRequest
from kohort.protocol.errors import BrokerError, ErrorCode, is_retriable

SHARE: Final = "share"


@dataclass(frozen=True, slots=True)
class SharePartitionOffset:
    """The state of a share partition.

    `start_offset`: the start offset in the share coordinator's state, which may be behind the leader's. `lag`: the
    number of offsets that are neither accepted nor archived. Each is None if it is not known.
    """

    partition: TopicPartition
    start_offset: int | None
    leader_epoch: int
    lag: int | None


def describe_share_group(driver: RequestDriver, group: str) -> GroupDescription | None:
    """A share group; None if there is none by this id. Raises AuthorizationFailed."""
    request = ShareGroupDescribeRequest(group_ids=(group,), include_authorized_operations=True)
    one = described(driver, group, "ShareGroupDescribe", request)
    return None if one is None else epoch_group(group, SHARE, one, map(epoch_member, one.members))


def share_offsets(driver: RequestDriver, group: str) -> list[SharePartitionOffset]:
    """The state of each share partition of the group, by partition. Retries while a leader has just been elected."""
    request = DescribeShareGroupOffsetsRequest(
        groups=(DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=None),)
    )
    while True:
        response = driver.of_coordinator(group, "DescribeShareGroupOffsets", request, codes=codes_of_groups)
        one = first_of(response.groups, "DescribeShareGroupOffsets", group=group)
        if one.error_code:
            raise group_failure(one.error_code, group, "DescribeShareGroupOffsets")
        codes = {each.error_code for topic in one.topics for each in topic.partitions if each.error_code}
        if not codes or not all(map(_may_pass, codes)) or not driver.retry():
            break
    found, final = [], {code for code in codes if not _may_pass(code)} or codes
    for topic in one.topics:
        for each in topic.partitions:
            partition = TopicPartition(topic.topic_name, each.partition_index)
            if each.error_code in final:
                raise _refusal(each.error_code, each.error_message, "DescribeShareGroupOffsets", group, partition)
            found.append(
                SharePartitionOffset(partition, _known(each.start_offset), each.leader_epoch, _known(each.lag))
            )
    return sorted(found, key=lambda each: each.partition)


def alter_share_offsets(driver: RequestDriver, group: str, to: Mapping[TopicPartition, int]) -> None:
    """Set start offsets of a share group without members, which is created if it does not exist."""
    by_topic = grouped(
        (topic, AlterShareGroupOffsetsRequestPartition(partition_index=number, start_offset=offset))
        for (topic, number), offset in sorted(to.items())
    )
    request = AlterShareGroupOffsetsRequest(
        group_id=group,
        topics=tuple(
            AlterShareGroupOffsetsRequestTopic(topic_name=topic, partitions=tuple(partitions))
            for topic, partitions in by_topic.items()
        ),
    )
    response = driver.once_known(
        lambda: driver.of_coordinator(group, "AlterShareGroupOffsets", request, codes=_code),
        lambda found: [one.error_code for topic in found.responses for one in topic.partitions],
    )
    if response.error_code:
        raise group_failure(response.error_code, group, "AlterShareGroupOffsets")
    for topic in response.responses:
        for one in topic.partitions:
            if one.error_code:
                partition = TopicPartition(topic.topic_name, one.partition_index)
                raise _refusal(one.error_code, one.error_message, "AlterShareGroupOffsets", group, partition)


def delete_share_offsets(driver: RequestDriver, group: str, topics: Iterable[str]) -> None:
    """Delete the state of topics from a share group without members. Topics without state are ignored."""
    request = DeleteShareGroupOffsetsRequest(
        group_id=group, topics=tuple(DeleteShareGroupOffsetsRequestTopic(topic_name=topic) for topic in topics)
    )
    response = driver.of_coordinator(group, "DeleteShareGroupOffsets", request, codes=_code)
    if response.error_code:
        raise group_failure(response.error_code, group, "DeleteShareGroupOffsets")
    for one in response.responses:
        if one.error_code not in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
            partition = TopicPartition(one.topic_name, -1)
            raise _refusal(one.error_code, one.error_message, "DeleteShareGroupOffsets", group, partition)


def _may_pass(code: int) -> bool:
    """True if the coordinator may have the state of the partition later: it reads the log's end from its leader."""
    return code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and is_retriable(code)


def _known(number: int) -> int | None:
    return None if number < 0 else number


def _code(response: Any) -> list[int]:
    return [response.error_code]


def _refusal(code: int, said: str | None, api: str, group: str, partition: TopicPartition) -> KohortError:
    topic, number = partition
    if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        hint = "list the topics with `kohort topic list`"
        return UnknownTopic("no such topic or partition", hint=hint, group=group, topic=topic, partition=number)
    if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        return topic_error(topic, code)
    return BrokerError(code, said, api=api, group=group, topic=topic, partition=number)
