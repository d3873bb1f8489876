"""Builds and parses the requests about offsets: plain functions, both directions.

Requests after the start are imported when they are made.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeVar
from uuid import UUID

from kohort.common import TopicPartition
from kohort.common.named_tuple import NamedTuple
from kohort.network.arguments import epoch_given, mapping_given, name_given, offset_given, partition_given
from kohort.network.group_types import ConsumerGroupMetadata, OffsetAndMetadata
from kohort.network.metadata import NO_TOPIC_ID
from kohort.protocol.apis.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from kohort.protocol.apis.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from kohort.protocol.errors import UnsupportedVersion
from kohort.protocol.schema import first_version

if TYPE_CHECKING:
    from kohort.protocol.apis.offset_commit import OffsetCommitRequest, OffsetCommitResponse
    from kohort.protocol.apis.offset_for_leader_epoch import (
        OffsetForLeaderEpochRequest,
        OffsetForLeaderEpochResponse,
    )

BEFORE_TOPIC_IDS = 9  # the last version of OffsetCommit and OffsetFetch that names topics by name


Offsets = Mapping[TopicPartition, OffsetAndMetadata]


class EpochLookup(NamedTuple):
    """One partition of an OffsetForLeaderEpoch request that is owed."""

    partition: TopicPartition
    epoch: int
    serial: int
    leader_epoch: int


class ListedOffset(NamedTuple):
    """An offset that ListOffsets named: -1 when no record is that late."""

    offset: int
    timestamp_ms: int
    leader_epoch: int

    def is_found(self, timestamp: int) -> bool:
        """True if an offset was found. Raises no error.

        Every log has a start and an end, but not a record as late as any time.
        """
        return self.offset >= 0 or timestamp not in (EARLIEST, LATEST)


EARLIEST, LATEST = -2, -1  # ListOffsets' special timestamps

R = TypeVar("R")

CONSUMER_REPLICA_ID = -1
FIRST_VERSION_OF_MANY_GROUPS = first_version(OffsetFetchRequest, "groups")
FIRST_VERSION_OF_STABLE = first_version(OffsetFetchRequest, "require_stable")
# Before, a response was a list of base offsets of segments.
FIRST_VERSION_OF_ONE_OFFSET = first_version(ListOffsetsPartitionResponse, "offset")
FIRST_VERSIONS_OF_TIMESTAMPS = {-3: 7, -4: 8, -5: 9, -6: 11}
"""The newest record (KIP-734), local (KIP-405) and tiered ends (KIP-1005), the first not uploaded (KIP-1023)."""
FIRST_VERSION_FOR_CONSUMERS = 3  # of OffsetForLeaderEpoch: from it on it needs DESCRIBE on the topic only
MOST_STORED_BYTES = 1_000_000
"""Of one request. A broker stores its offsets as one batch, of 1 MiB by default (message.max.bytes)."""
STORED_OFFSET_BYTES = 64
"""The most bytes of one offset in the broker's log, without the group, the topic and the metadata string."""


class ListFailure(NamedTuple):
    """A partition's error code in a response."""

    code: int


def list_offsets_request(
    wanted: Iterable[tuple[TopicPartition, int, int]], *, read_committed: bool, timeout_ms: int
) -> Callable[[int], ListOffsetsRequest]:
    """Return the request for `wanted`: (partition, timestamp, current leader epoch).

    Raises UnsupportedVersion if the versions are too old: a broker would treat an unknown special timestamp as a time,
    and respond with the log's start.
    """
    topics: dict[str, list[ListOffsetsPartition]] = {}
    least = FIRST_VERSION_OF_ONE_OFFSET
    for partition, timestamp, epoch in wanted:
        least = max(least, FIRST_VERSIONS_OF_TIMESTAMPS.get(timestamp, least))
        topics.setdefault(partition.topic, []).append(
            ListOffsetsPartition(partition_index=partition.partition, current_leader_epoch=epoch, timestamp=timestamp)
        )
    request = ListOffsetsRequest(
        replica_id=CONSUMER_REPLICA_ID,
        isolation_level=int(read_committed),
        topics=tuple(ListOffsetsTopic(name=name, partitions=tuple(ps)) for name, ps in topics.items()),
        timeout_ms=timeout_ms,
    )

    return since(least, request, "the broker does not support this special timestamp", api="ListOffsets")


def listed_offsets(response: ListOffsetsResponse) -> dict[TopicPartition, ListedOffset | ListFailure]:
    """The results of a leader's response, by partition."""
    return {
        TopicPartition(topic.name, one.partition_index): (
            ListFailure(one.error_code) if one.error_code else ListedOffset(one.offset, one.timestamp, one.leader_epoch)
        )
        for topic in response.topics
        for one in topic.partitions
    }


def offset_fetch_request(
    group_id: str,
    partitions: Iterable[TopicPartition] | None,
    *,
    stable: bool = True,
    topic_ids: Mapping[str, UUID] = MappingProxyType({}),
) -> Callable[[int], OffsetFetchRequest]:
    """A request for committed offsets, of all partitions if None, by version: KIP-709 moved everything into a list of
    groups.

    `stable`: offsets that an open transaction may still change are to be refused, never shown (KIP-447).
    `topic_ids`: the id of each topic, which versions after `BEFORE_TOPIC_IDS` need.
    """
    topics: dict[str, list[int]] = {}
    for partition in partitions or ():
        topics.setdefault(partition.topic, []).append(partition.partition)
    everything = partitions is None

    def build(version: int) -> OffsetFetchRequest:
        only_stable = stable and version >= FIRST_VERSION_OF_STABLE
        if version < FIRST_VERSION_OF_MANY_GROUPS:
            single = tuple(
                OffsetFetchRequestTopic(name=name, partition_indexes=tuple(ps)) for name, ps in topics.items()
            )
            wanted = None if everything else single
            return OffsetFetchRequest(group_id=group_id, topics=wanted, groups=(), require_stable=only_stable)
        many = tuple(
            OffsetFetchRequestTopics(name=name, topic_id=topic_ids.get(name, NO_TOPIC_ID), partition_indexes=tuple(ps))
            for name, ps in topics.items()
        )
        group = OffsetFetchRequestGroup(group_id=group_id, topics=None if everything else many)
        return OffsetFetchRequest(group_id="", topics=(), groups=(group,), require_stable=only_stable)

    return build


class CommittedResponse(NamedTuple):
    """`error`: of the whole response. `found`: None where nothing is committed. `failed`: code by partition."""

    error: int
    found: Mapping[TopicPartition, OffsetAndMetadata | None]
    failed: Mapping[TopicPartition, int]

    @property
    def codes(self) -> set[int]:
        """All error codes."""
        return {self.error, *self.failed.values()} - {0}

    def code(self, partition: TopicPartition) -> int:
        """The error code that keeps this partition's offset unknown; 0: none."""
        return self.error or self.failed.get(partition, 0)


def committed_offsets(
    response: OffsetFetchResponse, names: Mapping[UUID, str] = MappingProxyType({})
) -> CommittedResponse:
    """The results of an OffsetFetch response of either form. `names`: those of topics, by the ids of the request."""
    found: dict[TopicPartition, OffsetAndMetadata | None] = {}
    failed: dict[TopicPartition, int] = {}
    error = response.error_code
    rows = [(topic.name, one) for topic in response.topics for one in topic.partitions]
    for group in response.groups:
        error = error or group.error_code
        for topic in group.topics:
            name = topic.name or names.get(topic.topic_id, "")
            rows.extend((name, one) for one in topic.partitions)  # type: ignore[misc]
    for name, one in rows:
        partition = TopicPartition(name, one.partition_index)
        if one.error_code:
            failed[partition] = one.error_code
        elif one.committed_offset < 0:
            found[partition] = None
        else:
            found[partition] = OffsetAndMetadata(one.committed_offset, one.committed_leader_epoch, one.metadata or "")
    return CommittedResponse(error, found, failed)


def offset_for_leader_epoch_request(lookups: Iterable[EpochLookup]) -> "Callable[[int], OffsetForLeaderEpochRequest]":
    """Requests the end of each position's epoch from leaders. Raises UnsupportedVersion for old brokers.

    Brokers before 2.3 allow the request only to cluster administrators. The oldest do not name the epoch of the end.
    """
    from kohort.protocol.apis.offset_for_leader_epoch import (
        OffsetForLeaderEpochRequest,
        OffsetForLeaderPartition,
        OffsetForLeaderTopic,
    )

    topics: dict[str, list[OffsetForLeaderPartition]] = {}
    for lookup in lookups:
        topics.setdefault(lookup.partition.topic, []).append(
            OffsetForLeaderPartition(
                partition=lookup.partition.partition,
                current_leader_epoch=lookup.leader_epoch,
                leader_epoch=lookup.epoch,
            )
        )
    request = OffsetForLeaderEpochRequest(
        replica_id=CONSUMER_REPLICA_ID,
        topics=tuple(OffsetForLeaderTopic(topic=name, partitions=tuple(ps)) for name, ps in topics.items()),
    )

    why = "the broker supports OffsetForLeaderEpoch for other brokers only"
    return since(FIRST_VERSION_FOR_CONSUMERS, request, why, api="OffsetForLeaderEpoch")


def epoch_ends(response: "OffsetForLeaderEpochResponse") -> dict[TopicPartition, tuple[int, int, int]]:
    """(error code, the largest epoch not above the requested one, its end offset), by partition."""
    return {
        TopicPartition(topic.topic, one.partition): (one.error_code, one.leader_epoch, one.end_offset)
        for topic in response.topics
        for one in topic.partitions
    }


def since(
    least: int, request: R, why: str, *, api: str, hint: str | None = None, **place: object
) -> Callable[[int], R]:
    """The request by version: UnsupportedVersion below `least`."""

    def build(version: int) -> R:
        if version < least:
            raise UnsupportedVersion(why, hint=hint, api=api, version=version, least=least, **place)
        return request

    return build


def stored_at_once(group_id: str, offsets: Offsets) -> Iterator[Offsets]:
    """`offsets` in their order, in parts that a broker stores as one batch each. Without offsets, one empty part."""
    least = STORED_OFFSET_BYTES + len(group_id.encode())
    part, size = dict[TopicPartition, OffsetAndMetadata](), 0
    for partition, to in offsets.items():
        bytes_more = least + len(partition.topic) + len(to.metadata.encode())
        size += bytes_more
        if part and size > MOST_STORED_BYTES:
            yield part
            part, size = {}, bytes_more
        part[partition] = to
    yield part


def commit_codes(response: "OffsetCommitResponse", names: Mapping[UUID, str]) -> dict[TopicPartition, int]:
    """The error code of each partition of an OffsetCommit response. `names`: as in `committed_offsets`."""
    return {
        TopicPartition(topic.name or names.get(topic.topic_id, ""), one.partition_index): one.error_code
        for topic in response.topics
        for one in topic.partitions
    }


def commit_request(
    identity: ConsumerGroupMetadata,
    offsets: Offsets,
    topic_ids: Mapping[TopicPartition, UUID] = MappingProxyType({}),
) -> "OffsetCommitRequest":
    """Return the request that commits `offsets` as `identity`. A group without members accepts a commit without a
    generation.

    `topic_ids`: the id of each partition's topic, which versions after `BEFORE_TOPIC_IDS` need. A topic that was
    deleted and created again has two ids, and so two entries.
    """
    from kohort.protocol.apis.offset_commit import (
        OffsetCommitRequest,
        OffsetCommitRequestPartition,
        OffsetCommitRequestTopic,
    )

    topics: dict[tuple[str, UUID], list[OffsetCommitRequestPartition]] = {}
    for partition, found in sorted(offsets.items()):
        topics.setdefault((partition.topic, topic_ids.get(partition, NO_TOPIC_ID)), []).append(
            OffsetCommitRequestPartition(
                partition_index=partition.partition,
                committed_offset=found.offset,
                committed_leader_epoch=found.leader_epoch,
                committed_metadata=found.metadata,
            )
        )
    return OffsetCommitRequest(
        group_id=identity.group_id,
        generation_id_or_member_epoch=identity.generation,
        member_id=identity.member_id,
        group_instance_id=identity.instance_id,
        topics=tuple(
            OffsetCommitRequestTopic(name=name, topic_id=topic_id, partitions=tuple(ps))
            for (name, topic_id), ps in topics.items()
        ),
    )


def plain(offsets: Mapping[TopicPartition, object]) -> dict[TopicPartition, OffsetAndMetadata]:
    """Checks offsets that users give: an int, a tuple or an OffsetAndMetadata by partition.

    Raises ValueError for a negative offset or partition and for metadata that no request can carry. These would fail
    the request, which has other commits as well. Raises TypeError for an invalid offset or partition.
    """
    return {partition_given(one): _offset(one, value) for one, value in mapping_given(offsets, "offsets").items()}


def _offset(partition: TopicPartition, value: object) -> OffsetAndMetadata:
    if isinstance(value, bool) or not isinstance(value, int | tuple) or (isinstance(value, tuple) and len(value) > 3):
        raise TypeError(f"an offset is an int or (offset, leader epoch, metadata), not {value!r}")
    found = OffsetAndMetadata(value) if isinstance(value, int) else OffsetAndMetadata(*value)
    if not isinstance(found.offset, int) or not isinstance(found.leader_epoch, int):
        raise TypeError(f"an offset is an int or (offset, leader epoch, metadata), not {value!r}")
    if found.offset < 0:
        raise ValueError(f"a committed offset is not negative: {partition} -> {found.offset}")
    offset_given(found.offset)
    epoch_given(found.leader_epoch)
    if found.metadata != "":
        name_given(found.metadata, "the metadata of an offset", empty=True)
    return found
