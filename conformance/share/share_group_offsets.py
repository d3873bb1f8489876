"""R12: the offsets and the settings of share groups, as administrators see and set them."""

from __future__ import annotations

from functools import partial
from typing import Any

from kohort.conformance.check import Need, Section
from kohort.conformance.check_context import CheckContext
from kohort.conformance.errors import Blocked
from kohort.conformance.share.share_member import ACCEPT, ScriptedShareMember, configure, holder

SECTION = Section("R", "Share groups (KIP-932)", "DescribeShareGroupOffsets")
_offsets = partial(SECTION.check, needs=(Need.SHARE, Need.TOPIC), source="KIP-932")
_reading = partial(_offsets, apis=("ShareFetch 1+", "ShareAcknowledge 1+", "IncrementalAlterConfigs", "Produce"))


@_reading(
    "R12a", "The lag of a share group", versions="1+", source="KIP-1226", expected="the records that are not done"
)
async def lag(scene: CheckContext) -> None:
    member = await holder(scene)
    await member.acknowledge([(0, 3, (ACCEPT,)), (6, 6, (ACCEPT,))])
    (found,) = await _described(scene, member.topic.name)
    scene.error(found.error_code, "NONE", "the partition of DescribeShareGroupOffsets")
    scene.equal("the lag", found.lag, 5)


@_offsets("R12b", "Offsets of an unknown share group", expected="NONE and start offset -1")
async def unknown(scene: CheckContext) -> None:
    (found,) = await _described(scene, scene.topic.name)
    scene.error(found.error_code, "NONE", "the partition of DescribeShareGroupOffsets")
    scene.equal("the start offset", found.start_offset, -1)


@_offsets(
    "R12c",
    "Offsets of a share group with members",
    subject="AlterShareGroupOffsets",
    apis=("DeleteShareGroupOffsets",),
    expected="NON_EMPTY_GROUP for AlterShareGroupOffsets and DeleteShareGroupOffsets",
)
async def with_members(scene: CheckContext) -> None:
    await ScriptedShareMember(scene).joined()
    await scene.expect(_alter(scene, 0), "NON_EMPTY_GROUP", "AlterShareGroupOffsets")
    response = await scene.send("DeleteShareGroupOffsets", _topics(scene, scene.topic.name))
    scene.error(response.error_code, "NON_EMPTY_GROUP", "DeleteShareGroupOffsets")


@_offsets(
    "R12d",
    "A start offset for one partition of two",
    subject="AlterShareGroupOffsets",
    apis=("DescribeShareGroupOffsets",),
    expected="UNKNOWN_TOPIC_OR_PARTITION for the one that does not exist, and the other is set",
)
async def altered(scene: CheckContext) -> None:
    response = await scene.expect(_alter(scene, 0, 77), "NONE", "AlterShareGroupOffsets")
    codes = {one.partition_index: one.error_code for topic in response.responses for one in topic.partitions}
    scene.error(codes.get(0, -1), "NONE", "partition 0")
    scene.error(codes.get(77, -1), "UNKNOWN_TOPIC_OR_PARTITION", "partition 77")

    async def is_set() -> bool:
        (found,) = await _described(scene, scene.topic.name)
        return bool(found.start_offset == 0)

    scene.true("the start offset", await scene.until(is_set), 0, "another")


@_offsets(
    "R12e",
    "DeleteShareGroupOffsets",
    subject="DeleteShareGroupOffsets",
    apis=("AlterShareGroupOffsets",),
    expected="GROUP_ID_NOT_FOUND without the group, UNKNOWN_TOPIC_OR_PARTITION without the topic",
)
async def deleted(scene: CheckContext) -> None:
    response = await scene.send("DeleteShareGroupOffsets", _topics(scene, scene.topic.name))
    scene.error(response.error_code, "GROUP_ID_NOT_FOUND", "DeleteShareGroupOffsets of an unknown group")
    await _alter(scene, 0)
    response = await scene.send("DeleteShareGroupOffsets", _topics(scene, scene.topic.name, f"{scene.topic.name}-none"))
    codes = {one.topic_name: one.error_code for one in response.responses}
    scene.error(codes.get(scene.topic.name, -1), "NONE", "the topic with offsets")
    scene.error(codes.get(f"{scene.topic.name}-none", -1), "UNKNOWN_TOPIC_OR_PARTITION", "the unknown topic")


@_offsets("R12f", "An unknown setting of a share group", subject="IncrementalAlterConfigs", expected="INVALID_CONFIG")
async def setting(scene: CheckContext) -> None:
    try:
        await configure(scene, share_no_such_setting="1")
    except Blocked as refused:
        scene.true("IncrementalAlterConfigs", "INVALID_CONFIG" in str(refused), "INVALID_CONFIG", str(refused))
        return
    scene.true("IncrementalAlterConfigs", False, "INVALID_CONFIG", "NONE")


async def _described(scene: CheckContext, topic: str) -> Any:
    """The offset of partition 0."""
    group = {"group_id": scene.group, "topics": ({"topic_name": topic, "partitions": (0,)},)}
    node = await scene.coordinator(scene.group)
    (response,) = (await scene.send("DescribeShareGroupOffsets", {"groups": (group,)}, node=node)).groups
    return [one for each in response.topics for one in each.partitions]


async def _alter(scene: CheckContext, *partitions: int) -> Any:
    """Set start offset 0 for partitions of the run's topic."""
    wanted = tuple({"partition_index": index, "start_offset": 0} for index in partitions)
    topics = ({"topic_name": scene.topic.name, "partitions": wanted},)
    return await scene.send("AlterShareGroupOffsets", {"group_id": scene.group, "topics": topics})


def _topics(scene: CheckContext, *names: str) -> dict[str, object]:
    return {"group_id": scene.group, "topics": tuple({"topic_name": name} for name in names)}
