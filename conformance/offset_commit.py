"""F: OffsetCommit. Version 0 kept offsets in ZooKeeper, so the rules start at 1; Kafka 4 starts at 2."""

import asyncio
from functools import partial
from uuid import uuid4

from kohort.conformance.broker_under_test import Topic
from kohort.conformance.check import CheckKind, Need, Section
from kohort.conformance.check_context import CheckContext
from kohort.conformance.request_builders import commit, commit_entries, expect_commit, fetch, fetch_offset

SECTION = Section("F", "OffsetCommit", "OffsetCommit")
_check = partial(SECTION.check, versions="1+", needs=(Need.TOPIC,), source="protocol guide")
_fetched = partial(_check, apis=("OffsetFetch 1+",))


@_fetched("F1", "A member commits in the current generation", expected="NONE, and OffsetFetch gives it back")
async def by_member(scene: CheckContext) -> None:
    leader, follower = await scene.stable(2)
    for member, offset in ((leader, 11), (follower, 12)):
        where = (scene.topic, offset - 11)
        codes = await commit(scene, {where: offset}, **member.identity)
        scene.error(codes[scene.topic.name, where[1]], "NONE", "OffsetCommit of a member")
    response = await fetch(scene, [(scene.topic, 0), (scene.topic, 1)])
    offsets = {index: entry.offset for (_, index), entry in response.partitions.items()}
    scene.equal("the offsets", offsets, {0: 11, 1: 12})


@_check(
    "F2",
    "A generation in an unknown group",
    kind=CheckKind.VERSIONED,
    source="KIP-848",
    expected="GROUP_ID_NOT_FOUND from version 9 on, ILLEGAL_GENERATION before",
    note="A coordinator without KIP-848 also supports version 9, and returns ILLEGAL_GENERATION in it, as Apache "
    "Kafka 3.9 does with its old coordinator. The check accepts it if the cluster has not finalised group.version.",
)
async def unknown_group(scene: CheckContext) -> None:
    codes = await commit(scene, {(scene.topic, 0): 1}, generation=1, member="unknown-member")
    expected = "ILLEGAL_GENERATION"
    if scene.version >= 9:
        expected = (
            "GROUP_ID_NOT_FOUND" if scene.target.features.get("group.version") else f"GROUP_ID_NOT_FOUND or {expected}"
        )
    scene.error(codes[scene.topic.name, 0], expected, "OffsetCommit with generation 1 in a new group")


@_fetched(
    "F3",
    "No generation and no member, in an unknown group",
    expected="NONE: a group that only keeps offsets comes to be",
)
async def simple_group(scene: CheckContext) -> None:
    codes = await commit(scene, {(scene.topic, 2): 33})
    scene.error(codes[scene.topic.name, 2], "NONE", "OffsetCommit of a simple consumer")
    scene.equal("the offset", await fetch_offset(scene, index=2), 33)


@_check("F3b", "No generation, no member, and the group emptied", apis=("LeaveGroup",), expected="NONE")
async def emptied_group(scene: CheckContext) -> None:
    (leader,) = await scene.stable(1)
    await leader.leave()
    await expect_commit(scene, 5, "NONE", "OffsetCommit of a simple consumer in an emptied group")


@_check("F4", "No generation, no member, and the group is active", expected="UNKNOWN_MEMBER_ID")
async def outsider(scene: CheckContext) -> None:
    await scene.stable(1)
    await expect_commit(scene, 1, "UNKNOWN_MEMBER_ID", "OffsetCommit of an outsider")


@_check("F4b", "A made-up member in an active group", expected="UNKNOWN_MEMBER_ID")
async def made_up_member(scene: CheckContext) -> None:
    (leader,) = await scene.stable(1)
    unknown = leader.identity | {"member": "unknown-member"}
    await expect_commit(scene, 1, "UNKNOWN_MEMBER_ID", "OffsetCommit of a made-up member", **unknown)


@_fetched("F5a", "An older generation", expected="ILLEGAL_GENERATION, and nothing is stored")
async def stale(scene: CheckContext) -> None:
    leader, _ = await scene.stable(2)
    leader.generation -= 1
    await expect_commit(scene, 99, "ILLEGAL_GENERATION", "OffsetCommit of the generation before", **leader.identity)
    scene.equal("the offset", await fetch_offset(scene), -1)


@_check(
    "F5b",
    "An instance id that belongs to another member id",
    versions="7+",
    source="KIP-345",
    apis=("JoinGroup 5+",),
    expected="FENCED_INSTANCE_ID",
)
async def fenced(scene: CheckContext) -> None:
    (leader,) = await scene.stable(1, instance="i-1")
    other = leader.identity | {"member": "other-member", "instance": "i-1"}
    await expect_commit(scene, 1, "FENCED_INSTANCE_ID", "OffsetCommit with another member's instance id", **other)


@_check("F6a", "While the assignment is awaited", expected="REBALANCE_IN_PROGRESS")
async def completing(scene: CheckContext) -> None:
    (leader,) = await scene.stable(1, sync=False)
    await expect_commit(scene, 1, "REBALANCE_IN_PROGRESS", "OffsetCommit before SyncGroup", **leader.identity)


@_check("F6b", "While others join", expected="NONE: a member may commit before it rejoins")
async def preparing(scene: CheckContext) -> None:
    leader, _ = await scene.stable(2)
    scene.start(scene.member().enter())
    await scene.rebalancing(leader)
    await expect_commit(scene, 1, "NONE", "OffsetCommit while others join", **leader.identity)


@_check(
    "F7",
    "Metadata longer than allowed",
    source="offset.metadata.max.bytes",
    kind=CheckKind.CONFIG,
    expected="OFFSET_METADATA_TOO_LARGE of that partition, NONE of the other",
)
async def long_metadata(scene: CheckContext) -> None:
    limit = scene.target.setting("offset.metadata.max.bytes") or 4096
    if limit > 30_000:
        scene.not_applicable(f"offset.metadata.max.bytes is {limit}, more than a string can hold in every version")
    partitions = tuple(
        {"partition_index": index, "committed_offset": 1, "committed_metadata": text}
        for index, text in ((0, "x" * (limit + 1)), (1, "x" * limit))
    )
    topic = {"name": scene.topic.name, "topic_id": scene.topic.id, "partitions": partitions}
    response = await scene.send("OffsetCommit", group_id=scene.group, member_id="", topics=(topic,))
    codes = {entry.partition_index: entry.error_code for entry in response.topics[0].partitions}
    scene.error(codes[0], "OFFSET_METADATA_TOO_LARGE", f"metadata of {limit + 1} bytes")
    scene.error(codes[1], "NONE", f"metadata of {limit} bytes")


@_check(
    "F8a",
    "A topic that is not there, beside one that is",
    kind=CheckKind.VERSIONED,
    source="protocol guide, KIP-848",
    expected="UNKNOWN_TOPIC_OR_PARTITION (UNKNOWN_TOPIC_ID from version 10 on) there, NONE elsewhere",
)
async def unknown_topic(scene: CheckContext) -> None:
    gone = Topic(f"{scene.group}-gone", uuid4(), 1)
    codes = await commit(scene, {(gone, 0): 1, (scene.topic, 0): 2})
    expected = "UNKNOWN_TOPIC_ID" if scene.version >= 10 else "UNKNOWN_TOPIC_OR_PARTITION"
    scene.error(codes[gone.name, 0], expected, "the topic that is not there")
    scene.error(codes[scene.topic.name, 0], "NONE", "the topic that is there")


@_check(
    "F8b",
    "A partition that is not there, beside one that is",
    expected="UNKNOWN_TOPIC_OR_PARTITION there, NONE elsewhere",
)
async def unknown_partition(scene: CheckContext) -> None:
    codes = await commit(scene, {(scene.topic, 999): 1, (scene.topic, 0): 2})
    scene.error(codes[scene.topic.name, 999], "UNKNOWN_TOPIC_OR_PARTITION", "partition 999")
    scene.error(codes[scene.topic.name, 0], "NONE", "partition 0")


@_fetched("F10", "Backwards", expected="accepted: the last commit is valid, also with a smaller offset")
async def backwards(scene: CheckContext) -> None:
    for offset in (100, 7):
        await expect_commit(scene, offset, "NONE", f"OffsetCommit of {offset}")
    scene.equal("the offset", await fetch_offset(scene), 7)


@_check(
    "F11",
    "The leader epoch",
    versions="6+",
    apis=("OffsetFetch 5+",),
    source="KIP-320",
    expected="OffsetFetch gives back what was committed",
)
async def epoch(scene: CheckContext) -> None:
    await expect_commit(scene, 1, "NONE", "OffsetCommit with leader epoch 5", leader_epoch=5)
    response = await fetch(scene, [(scene.topic, 0)])
    scene.equal("the leader epoch", response.partitions[scene.topic.name, 0].leader_epoch, 5)


@_fetched("F12", "Metadata", expected="comes back letter by letter, also beyond ASCII")
async def metadata(scene: CheckContext) -> None:
    text = "läuft ✓ 数据 \U0001f600"
    await commit(scene, {(scene.topic, 0): 1}, metadata=text)
    response = await fetch(scene, [(scene.topic, 0)])
    scene.equal("the metadata", response.partitions[scene.topic.name, 0].metadata, text)


@_fetched(
    "F13",
    "Null metadata",
    source="Apache Kafka",
    kind=CheckKind.SHOULD,
    expected="accepted, and empty in OffsetFetch",
)
async def null_metadata(scene: CheckContext) -> None:
    await expect_commit(scene, 1, "NONE", "OffsetCommit with null metadata", metadata=None)
    response = await fetch(scene, [(scene.topic, 0)])
    scene.equal("the metadata", response.partitions[scene.topic.name, 0].metadata or "", "")


@_check("F14", "The response has every requested partition", expected="one entry for each partition of each topic")
async def all_responded(scene: CheckContext) -> None:
    wanted = {(topic, index): 1 for topic in (scene.topic, scene.other_topic) for index in range(topic.partitions)}
    entries = await commit_entries(scene, wanted)
    expected = sorted((topic.name, index, 0) for topic, index in wanted)
    scene.equal("the entries, each a topic, a partition and a code", sorted(entries), expected)


@_fetched("F15", "Groups do not see each other's offsets", expected="what one group committed is unknown in another")
async def apart(scene: CheckContext) -> None:
    other = scene.new_group()
    await commit(scene, {(scene.topic, 0): 5})
    await commit(scene, {(scene.topic, 0): 6}, group=other)
    offsets = []
    for group in (scene.group, other, scene.new_group()):
        offsets.append(await fetch_offset(scene, group=group))
    scene.equal("the offsets of both, and of a third", offsets, [5, 6, -1])


@_check("F16", "A retention time", versions="2-4", source="KIP-211", expected="accepted")
async def retention(scene: CheckContext) -> None:
    await expect_commit(scene, 1, "NONE", "OffsetCommit with a retention time of an hour", retention_time_ms=3_600_000)


@_fetched("F17", "The largest offset", expected="2**63 - 1 comes back")
async def largest(scene: CheckContext) -> None:
    await expect_commit(scene, 2**63 - 1, "NONE", "OffsetCommit of 2**63 - 1")
    scene.equal("the offset", await fetch_offset(scene), 2**63 - 1)


@_check(
    "F18",
    "Offsets outlive the members",
    apis=("LeaveGroup", "OffsetFetch 1+"),
    source="KIP-211",
    expected="after all left, and after a new member joined, what was committed is there",
)
async def outlive(scene: CheckContext) -> None:
    (leader,) = await scene.stable(1)
    await commit(scene, {(scene.topic, 1): 21}, **leader.identity)
    await leader.leave()
    before = await fetch(scene, [(scene.topic, 1)])
    await asyncio.gather(scene.member().enter())
    after = await fetch(scene, [(scene.topic, 1)])
    offsets = [response.partitions[scene.topic.name, 1].offset for response in (before, after)]
    scene.equal("the offsets", offsets, [21, 21])
