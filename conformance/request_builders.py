"""Requests whose form changed over the versions, and the place of the error code in each response.

These functions only convert the same values into the form of a version.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from kohort.common.named_tuple import NamedTuple
from kohort.common.topic_partition import grouped
from kohort.conformance.broker_under_test import Topic
from kohort.conformance.check import Need

if TYPE_CHECKING:
    from kohort.conformance.check_context import CheckContext


class FetchedOffset(NamedTuple):
    """A partition's committed position in an OffsetFetch response."""

    offset: int
    leader_epoch: int
    metadata: str | None
    error_code: int


class Fetched(NamedTuple):
    """An OffsetFetch response. `partitions` by topic name (or topic id where a version has only that) and number."""

    error_code: int
    partitions: dict[tuple[object, int], FetchedOffset]


async def commit(
    scene: CheckContext,
    offsets: Mapping[tuple[Topic, int], int],
    **how: Any,
) -> dict[tuple[str, int], int]:
    """As `commit_entries`. Returns the error code by topic name and partition."""
    return {(topic, index): code for topic, index, code in await commit_entries(scene, offsets, **how)}


async def expect_commit(scene: CheckContext, offset: int, expected: str, what: str, **how: Any) -> None:
    """Commit an offset of partition 0 of the run's topic. Its error code must have the expected name."""
    scene.error((await commit(scene, {(scene.topic, 0): offset}, **how))[scene.topic.name, 0], expected, what)


async def commit_entries(
    scene: CheckContext,
    offsets: Mapping[tuple[Topic, int], int],
    *,
    group: str | None = None,
    generation: int = -1,
    member: str = "",
    instance: str | None = None,
    metadata: str | None = "",
    leader_epoch: int = -1,
    **more: object,
) -> list[tuple[str, int, int]]:
    """Send one OffsetCommit. Returns (topic name, partition, error code) for each response entry, in order."""
    version = scene.version_of("OffsetCommit")
    topics = {topic.name: topic for topic, _ in offsets}
    entries = []
    for topic in topics.values():
        partitions = []
        for (of, index), offset in offsets.items():
            if of == topic:
                entry: dict[str, object] = {
                    "partition_index": index,
                    "committed_offset": offset,
                    "committed_metadata": metadata,
                }
                if version >= 6:
                    entry["committed_leader_epoch"] = leader_epoch
                partitions.append(entry)
        entries.append({"name": topic.name, "topic_id": topic.id, "partitions": tuple(partitions)})
    values: dict[str, object] = {
        "group_id": group or scene.group,
        "generation_id_or_member_epoch": generation,
        "member_id": member,
        "topics": tuple(entries),
        **more,
    }
    if instance is not None:
        values["group_instance_id"] = instance
    response = await scene.send("OffsetCommit", values)
    names = {topic.id: topic.name for topic in topics.values()} if version >= 10 else {}
    return [
        (names.get(topic.topic_id, topic.name), entry.partition_index, entry.error_code)
        for topic in response.topics
        for entry in topic.partitions
    ]


async def fetch(
    scene: CheckContext,
    wanted: Iterable[tuple[Topic, int]] | None,
    *,
    group: str | None = None,
    member: str | None = None,
    epoch: int = -1,
    require_stable: bool = False,
) -> Fetched:
    """Send one OffsetFetch for one group. None requests all committed offsets."""
    version = scene.version_of("OffsetFetch")
    group = group or scene.group
    topics: tuple[dict[str, object], ...] | None = None
    by_id: dict[object, str] = {topic.id: topic.name for topic in scene.target.topics}
    if wanted is not None:
        requested = grouped(wanted)
        by_id |= {topic.id: topic.name for topic in requested}
        topics = tuple(
            {"name": topic.name, "partition_indexes": tuple(indexes)} | ({"topic_id": topic.id} if version >= 8 else {})
            for topic, indexes in requested.items()
        )
    stable = {"require_stable": require_stable} if version >= 7 else {}
    if version < 8:
        response = await scene.send("OffsetFetch", {"group_id": group, "topics": topics, **stable})
        return Fetched(response.error_code, _partitions(response.topics, {}))
    entry: dict[str, object] = {"group_id": group, "topics": topics}
    if version >= 9:
        entry |= {"member_id": member, "member_epoch": epoch}
    response = await scene.send("OffsetFetch", {"groups": (entry,), **stable})
    scene.equal("groups in the response", [entry.group_id for entry in response.groups], [group])
    return Fetched(
        response.groups[0].error_code, _partitions(response.groups[0].topics, by_id if version >= 10 else {})
    )


async def fetch_offset(scene: CheckContext, topic: Topic | None = None, index: int = 0, **how: Any) -> int:
    """Return the committed offset of one partition, -1 if there is none. Default: partition 0 of the run's topic."""
    topic = topic or scene.topic
    return (await fetch(scene, [(topic, index)], **how)).partitions[topic.name, index].offset


def _partitions(topics: Iterable[Any], names: Mapping[object, str]) -> dict[tuple[object, int], FetchedOffset]:
    return {
        (names.get(topic.topic_id, topic.topic_id) if names else topic.name, entry.partition_index): FetchedOffset(
            entry.committed_offset, entry.committed_leader_epoch, entry.metadata, entry.error_code
        )
        for topic in topics
        for entry in topic.partitions
    }


async def leave(scene: CheckContext, pairs: list[tuple[str, str | None]]) -> tuple[int, list[int]]:
    """Send one LeaveGroup of (member id, instance id) pairs, one pair in version 0-2.

    Returns (top-level code, codes by member).
    """
    values: dict[str, object] = {"group_id": scene.group}
    if scene.version_of("LeaveGroup") < 3:
        ((values["member_id"], _),) = pairs
        return (await scene.send("LeaveGroup", values)).error_code, []
    values["members"] = tuple({"member_id": identity, "group_instance_id": instance} for identity, instance in pairs)
    response = await scene.send("LeaveGroup", values)
    scene.equal(
        "the members in the response, in order",
        [(entry.member_id, entry.group_instance_id) for entry in response.members],
        pairs,
    )
    return response.error_code, [entry.error_code for entry in response.members]


async def describe(scene: CheckContext, *groups: str, authorized: bool = False) -> list[Any]:
    """Send one DescribeGroups. Returns the entries in their order."""
    values: dict[str, object] = {"groups": groups or (scene.group,)}
    if scene.version_of("DescribeGroups") >= 3:
        values["include_authorized_operations"] = authorized
    return list((await scene.send("DescribeGroups", values)).groups)


async def describe_one(scene: CheckContext, group: str | None = None) -> Any:
    """Return the one entry that describes a group."""
    entries = await describe(scene, group or scene.group)
    scene.equal("groups described", [entry.group_id for entry in entries], [group or scene.group])
    return entries[0]


class GroupRequest(NamedTuple):
    """A request about a group that does not exist. `code` reads the error code of its response."""

    api: str
    values: Callable[[CheckContext], dict[str, object]]
    code: Callable[[Any], int]
    versions: str = "0+"
    needs: tuple[Need, ...] = ()


def _join(scene: CheckContext) -> dict[str, object]:
    protocols = ({"name": "range", "metadata": b""},)
    return {
        "group_id": scene.group,
        "session_timeout_ms": scene.target.session_ms,
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": protocols,
    }


def _member(scene: CheckContext) -> dict[str, object]:
    return {"group_id": scene.group, "generation_id": 1, "member_id": "unknown-member"}


def leave_unknown(scene: CheckContext) -> dict[str, object]:
    """The LeaveGroup of a member that the group does not have."""
    unknown: dict[str, object] = {"member_id": "unknown-member"}
    return {"group_id": scene.group, **({"members": (unknown,)} if scene.version_of("LeaveGroup") >= 3 else unknown)}


def _sync(scene: CheckContext) -> dict[str, object]:
    named = {"protocol_type": "consumer", "protocol_name": "range"} if scene.version >= 5 else {}
    return _member(scene) | {"assignments": ()} | named


def _commit(scene: CheckContext) -> dict[str, object]:
    partition = {"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}
    topic = {"name": scene.topic.name, "topic_id": scene.topic.id, "partitions": (partition,)}
    return {"group_id": scene.group, "member_id": "", "topics": (topic,)}


def _fetch(scene: CheckContext) -> dict[str, object]:
    topic = {"name": scene.topic.name, "partition_indexes": (0,)}
    if scene.version >= 8:
        return {"groups": ({"group_id": scene.group, "topics": (topic | {"topic_id": scene.topic.id},)},)}
    return {"group_id": scene.group, "topics": (topic,)}


def _describe(scene: CheckContext) -> dict[str, object]:
    return {"groups": (scene.group,)} | ({"include_authorized_operations": False} if scene.version >= 3 else {})


def _fetch_code(response: Any) -> int:
    if response.groups:
        return int(response.groups[0].error_code)
    # Versions 0 and 1 have no error field of the group, only of partitions.
    return int(response.error_code or next((p.error_code for t in response.topics for p in t.partitions), 0))


GROUP_REQUESTS: tuple[GroupRequest, ...] = (
    GroupRequest("JoinGroup", _join, lambda response: int(response.error_code)),
    GroupRequest("SyncGroup", _sync, lambda response: int(response.error_code)),
    GroupRequest("Heartbeat", _member, lambda response: int(response.error_code)),
    GroupRequest("LeaveGroup", leave_unknown, lambda response: int(response.error_code)),
    GroupRequest(
        "OffsetCommit", _commit, lambda response: int(response.topics[0].partitions[0].error_code), "2+", (Need.TOPIC,)
    ),
    GroupRequest("OffsetFetch", _fetch, _fetch_code, "1+", (Need.TOPIC,)),
    GroupRequest("DescribeGroups", _describe, lambda response: int(response.groups[0].error_code)),
    GroupRequest(
        "DeleteGroups",
        lambda scene: {"groups_names": (scene.group,)},
        lambda response: int(response.results[0].error_code),
    ),
)
