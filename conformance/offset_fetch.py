"""G: OffsetFetch and OffsetDelete."""

from functools import partial
from typing import Any

from kohort.conformance.broker_under_test import Topic
from kohort.conformance.check import Need, Section
from kohort.conformance.check_context import CheckContext
from kohort.conformance.member import subscribe
from kohort.conformance.request_builders import FetchedOffset, commit, fetch

SECTION = Section("G", "OffsetFetch and OffsetDelete", "OffsetFetch")
_check = partial(SECTION.check, needs=(Need.TOPIC,))
_delete_check = partial(_check, subject="OffsetDelete", source="KIP-496")
NOTHING = FetchedOffset(-1, -1, "", 0)


@_check(
    "G1a",
    "An unknown group",
    versions="1+",
    source="protocol guide",
    expected='NONE; each requested partition with offset -1, leader epoch -1, metadata "" and NONE',
)
async def unknown_group(scene: CheckContext) -> None:
    response = await fetch(scene, [(scene.topic, 0), (scene.topic, 1)])
    scene.error(response.error_code, "NONE", "OffsetFetch of a new group")
    scene.equal("the partitions", response.partitions, {(scene.topic.name, index): NOTHING for index in (0, 1)})


@_check(
    "G1b",
    "A partition without a commit, beside one with",
    versions="1+",
    source="protocol guide",
    expected='offset -1, leader epoch -1, metadata "", NONE for it; the committed one as committed',
)
async def unknown_partition(scene: CheckContext) -> None:
    await _commit(scene, {(scene.topic, 0): 7})
    response = await fetch(scene, [(scene.topic, 0), (scene.topic, 3)])
    scene.equal("the partition without", response.partitions.get((scene.topic.name, 3)), NOTHING)
    scene.equal("the offset of the other", response.partitions[scene.topic.name, 0].offset, 7)


@_check(
    "G1c",
    "A topic that does not exist",
    versions="1-9",
    source="protocol guide",
    expected="offset -1 and NONE, as for any partition without a commit",
)
async def unknown_topic(scene: CheckContext) -> None:
    gone = Topic(f"{scene.group}-gone", scene.topic.id, 1)
    scene.equal("the partition", (await fetch(scene, [(gone, 0)])).partitions.get((gone.name, 0)), NOTHING)


@_check(
    "G2a",
    "Everything that is committed",
    versions="2+",
    source="KIP-88",
    expected="null topics give every committed partition of the group, and no other",
)
async def everything(scene: CheckContext) -> None:
    await _commit(scene, {(scene.topic, 1): 5, (scene.topic, 2): 6, (scene.other_topic, 0): 7})
    response = await scene.expect(fetch(scene, None), "NONE", "OffsetFetch of everything")
    offsets = {place: entry.offset for place, entry in response.partitions.items()}
    expected = {(scene.topic.name, 1): 5, (scene.topic.name, 2): 6, (scene.other_topic.name, 0): 7}
    scene.equal("the offsets", offsets, expected)


@_check("G2b", "All offsets of an unknown group", versions="2+", source="KIP-88", expected="NONE and no topics")
async def everything_of_unknown_group(scene: CheckContext) -> None:
    response = await scene.expect(fetch(scene, None), "NONE", "OffsetFetch of everything in a new group")
    scene.equal("the partitions", response.partitions, {})


@_check(
    "G2c",
    "An empty list of topics",
    versions="2+",
    source="KIP-88",
    expected="an empty list is not null: NONE and no topics, though the group has commits",
)
async def no_topics(scene: CheckContext) -> None:
    await _commit(scene, {(scene.topic, 1): 5})
    response = await scene.expect(fetch(scene, []), "NONE", "OffsetFetch of an empty list")
    scene.equal("the partitions", response.partitions, {})


@_check(
    "G3",
    "Several groups at once",
    versions="8+",
    source="KIP-709",
    expected="a result for each group, with its own offsets",
)
async def several(scene: CheckContext) -> None:
    if len(scene.target.nodes) > 1:
        scene.not_applicable("in a cluster two groups may have two coordinators")
    groups = (scene.group, scene.new_group(), scene.new_group())
    for offset, group in enumerate(groups[:2], start=1):
        await _commit(scene, {(scene.topic, 0): offset}, group=group)
    topic = {"name": scene.topic.name, "topic_id": scene.topic.id, "partition_indexes": (0,)}
    requested = tuple({"group_id": group, "topics": (topic,)} for group in groups)
    response = await scene.send("OffsetFetch", groups=requested, require_stable=False)
    offsets = {entry.group_id: entry.topics[0].partitions[0].committed_offset for entry in response.groups}
    scene.equal("the offsets", offsets, dict(zip(groups, (1, 2, -1), strict=True)))
    scene.equal("the groups' codes", {entry.error_code for entry in response.groups}, {0})


@_check("G4a", "require_stable without a transaction", versions="7+", source="KIP-447", expected="as without it")
async def stable(scene: CheckContext) -> None:
    await _commit(scene, {(scene.topic, 0): 3})
    response = await fetch(scene, [(scene.topic, 0)], require_stable=True)
    scene.equal("offset and code", response.partitions[scene.topic.name, 0][::3], (3, 0))


@_check(
    "G8",
    "While members are active",
    versions="1+",
    source="protocol guide",
    expected="any client may read them: the offsets, NONE",
)
async def while_active(scene: CheckContext) -> None:
    (leader,) = await scene.stable(1)
    await _commit(scene, {(scene.topic, 0): 9}, **leader.identity)
    response = await fetch(scene, [(scene.topic, 0)])
    scene.equal("offset and code", response.partitions[scene.topic.name, 0][::3], (9, 0))


async def _commit(scene: CheckContext, offsets: dict[tuple[Topic, int], int], **how: Any) -> None:
    for place, code in (await commit(scene, offsets, **how)).items():
        scene.error(code, "NONE", f"OffsetCommit of {place} before")


# -- OffsetDelete -----------------------------------------------------------------------------------------------------


async def _delete(
    scene: CheckContext, offsets: list[tuple[str, int]], group: str | None = None
) -> tuple[int, dict[tuple[str, int], int]]:
    """Send one OffsetDelete. Returns (code of the request, codes by partition)."""
    names = dict.fromkeys(name for name, _ in offsets)
    topics = tuple(
        {"name": name, "partitions": tuple({"partition_index": index} for of, index in offsets if of == name)}
        for name in names
    )
    response = await scene.send("OffsetDelete", group_id=scene.group if group is None else group, topics=topics)
    codes = {
        (topic.name, entry.partition_index): entry.error_code for topic in response.topics for entry in topic.partitions
    }
    return response.error_code, codes


@_delete_check(
    "G5a",
    "OffsetDelete of a topic that a member reads",
    expected="GROUP_SUBSCRIBED_TO_TOPIC for it, NONE for a topic without a subscriber",
)
async def subscribed(scene: CheckContext) -> None:
    (leader,) = await scene.stable(1, protocols=(("range", subscribe(scene.topic.name)),))
    await _commit(scene, {(scene.topic, 0): 1, (scene.other_topic, 0): 2}, **leader.identity)
    top, codes = await _delete(scene, [(scene.topic.name, 0), (scene.other_topic.name, 0)])
    scene.error(top, "NONE", "the request")
    scene.error(codes[scene.topic.name, 0], "GROUP_SUBSCRIBED_TO_TOPIC", "the topic that is read")
    scene.error(codes[scene.other_topic.name, 0], "NONE", "the topic that is not read")


@_delete_check(
    "G5b",
    "OffsetDelete of a partition that does not exist",
    expected="UNKNOWN_TOPIC_OR_PARTITION for it, NONE for its neighbour",
)
async def delete_unknown_partition(scene: CheckContext) -> None:
    await _commit(scene, {(scene.topic, 0): 1})
    top, codes = await _delete(scene, [(scene.topic.name, 0), (scene.topic.name, 999)])
    scene.error(top, "NONE", "the request")
    scene.error(codes[scene.topic.name, 999], "UNKNOWN_TOPIC_OR_PARTITION", "partition 999")
    scene.error(codes[scene.topic.name, 0], "NONE", "partition 0")


@_delete_check("G5c", "OffsetDelete in an unknown group", expected="GROUP_ID_NOT_FOUND")
async def delete_unknown_group(scene: CheckContext) -> None:
    top, _ = await _delete(scene, [(scene.topic.name, 0)])
    scene.error(top, "GROUP_ID_NOT_FOUND", "OffsetDelete in a new group")


@_delete_check(
    "G5d",
    "OffsetDelete in the empty group id",
    expected="INVALID_GROUP_ID",
    note="Apache Kafka 3.9's coordinator returns it. The rule is read from its sources.",
)
async def delete_empty_id(scene: CheckContext) -> None:
    top, _ = await _delete(scene, [(scene.topic.name, 0)], group="")
    scene.error(top, "INVALID_GROUP_ID", "OffsetDelete of the empty group")


@_delete_check(
    "G5e",
    "OffsetDelete removes the named partitions only",
    apis=("OffsetFetch 2+",),
    expected="the deleted partition is without a commit, the others as before",
)
async def deleted(scene: CheckContext) -> None:
    await _commit(scene, {(scene.topic, 0): 1, (scene.topic, 1): 2})
    top, codes = await _delete(scene, [(scene.topic.name, 0)])
    scene.error(top, "NONE", "the request")
    scene.equal("the partitions in the response", codes, {(scene.topic.name, 0): 0})
    response = await fetch(scene, None)
    left = {index: entry.offset for (_, index), entry in response.partitions.items() if entry.offset >= 0}
    scene.equal("the offsets left", left, {1: 2})


@_delete_check("G6", "OffsetDelete in an active group that is no consumers'", expected="NON_EMPTY_GROUP")
async def active_other(scene: CheckContext) -> None:
    await scene.stable(1, protocol_type="connect", protocols=(("sessioned", b""),))
    top, _ = await _delete(scene, [(scene.topic.name, 0)])
    scene.error(top, "NON_EMPTY_GROUP", "OffsetDelete in an active connect group")
