"""R3 to R6: members of share groups: epochs, assignments, descriptions, and members of other kinds."""

from __future__ import annotations

from functools import partial

from kohort.conformance.check import Need, Section
from kohort.conformance.check_context import CheckContext
from kohort.conformance.group_steps import (
    deletes_empty_group,
    describe_group,
    lists_type,
    refuses_consumer_heartbeat,
)
from kohort.conformance.share.share_member import ASSIGNED_S, ScriptedShareMember, assigned

SECTION = Section("R", "Share groups (KIP-932)", "ShareGroupHeartbeat")
_heartbeat = partial(SECTION.check, versions="1+", needs=(Need.SHARE, Need.TOPIC), source="KIP-932")
_describe = partial(describe_group, api="ShareGroupDescribe")


@_heartbeat("R3c", "The epoch before", expected="NONE with the new epoch, as the last response may be lost")
async def previous_epoch(scene: CheckContext) -> None:
    first = await ScriptedShareMember(scene).joined()
    before = first.epoch
    await ScriptedShareMember(scene).join()

    async def moved() -> bool:
        await first.beat()
        return first.epoch > before

    scene.true("the epoch after a second join", await scene.until(moved, ASSIGNED_S), f"above {before}", first.epoch)
    response = await scene.expect(first.beat(member_epoch=before), "NONE", "a heartbeat of the epoch before")
    scene.equal("the epoch", response.member_epoch, first.epoch)


@_heartbeat(
    "R3d",
    "A join of a member",
    apis=("ShareGroupDescribe",),
    expected="NONE with the whole assignment, and the group still has one member",
)
async def rejoins(scene: CheckContext) -> None:
    member = await ScriptedShareMember(scene).joined()
    response = await scene.expect(member.join(), "NONE", "epoch 0 of a member")
    scene.equal("the number of partitions", len(assigned(response)), scene.topic.partitions)
    scene.equal("the members", [one.member_id for one in (await _describe(scene)).members], [member.id])


@_heartbeat("R4b", "Two members and four partitions", expected="each member has half of the partitions")
async def halves(scene: CheckContext) -> None:
    members = [ScriptedShareMember(scene) for _ in range(2)]
    for member in members:
        await member.join()

    async def even() -> bool:
        found = [assigned(await one.beat(subscribed_topic_names=(scene.topic.name,))) for one in members]
        return {len(one) for one in found} == {scene.topic.partitions // 2} and not found[0] & found[1]

    scene.true("the assignments", await scene.until(even, ASSIGNED_S), "two halves", "no halves in time")


@_heartbeat("R4c", "Other topics", expected="a later epoch, and then the partitions of the new topic only")
async def other_topics(scene: CheckContext) -> None:
    member = await ScriptedShareMember(scene).joined()
    before, wanted = member.epoch, scene.other_topic

    async def moved() -> bool:
        found = assigned(await member.beat(subscribed_topic_names=(wanted.name,)))
        return found == {(wanted.id, index) for index in range(wanted.partitions)}

    scene.true("the assignment", await scene.until(moved, ASSIGNED_S), "all of the other topic", "another")
    scene.true("the epoch", member.epoch > before, f"above {before}", member.epoch)


@_heartbeat(
    "R4d",
    "No topics in a later heartbeat",
    apis=("ShareGroupDescribe",),
    expected="NONE, an empty assignment, and the member stays in the group",
)
async def no_topics(scene: CheckContext) -> None:
    member = await ScriptedShareMember(scene).joined()

    async def empty() -> bool:
        response = await scene.expect(member.beat(subscribed_topic_names=()), "NONE", "a heartbeat without topics")
        return response.assignment is not None and not assigned(response)

    scene.true("the assignment", await scene.until(empty, ASSIGNED_S), "empty", "not empty")
    scene.equal("the members", [one.member_id for one in (await _describe(scene)).members], [member.id])


@_heartbeat(
    "R6b",
    "A share group in ListGroups",
    subject="ListGroups",
    versions="5+",
    expected="the type share, also as a filter",
)
async def listed(scene: CheckContext) -> None:
    await lists_type(scene, ScriptedShareMember(scene), "share", "SHARE")


@_heartbeat(
    "R6c",
    "A consumer in a share group",
    apis=("ConsumerGroupHeartbeat",),
    expected="GROUP_ID_NOT_FOUND for ConsumerGroupHeartbeat, INCONSISTENT_GROUP_PROTOCOL for JoinGroup",
)
async def consumers(scene: CheckContext) -> None:
    await ScriptedShareMember(scene).join()
    await refuses_consumer_heartbeat(scene)
    member = scene.member()
    joined = await member.join()
    if joined.member_id:
        joined = await member.join(member_id=joined.member_id)
    scene.error(joined.error_code, "INCONSISTENT_GROUP_PROTOCOL", "JoinGroup")


@_heartbeat("R6d", "DeleteGroups", apis=("DeleteGroups",), expected="NON_EMPTY_GROUP with a member, NONE without one")
async def deleted(scene: CheckContext) -> None:
    await deletes_empty_group(scene, ScriptedShareMember(scene))


@_heartbeat(
    "R6e",
    "A described share member",
    subject="ShareGroupDescribe",
    expected="its epoch, topics and assignment; authorized operations only if they are requested",
)
async def described(scene: CheckContext) -> None:
    member = await ScriptedShareMember(scene).joined()
    response = await _describe(scene)
    (one,) = response.members
    scene.equal("the epoch", one.member_epoch, member.epoch)
    scene.equal("the topics", tuple(one.subscribed_topic_names), (scene.topic.name,))
    parts = {(each.topic_name, index) for each in one.assignment.topic_partitions for index in each.partitions}
    scene.equal("the assignment", parts, {(scene.topic.name, index) for index in range(scene.topic.partitions)})
    scene.equal("the authorized operations", response.authorized_operations, -(2**31))
    response = await _describe(scene, include_authorized_operations=True)
    scene.true("the requested operations", response.authorized_operations > 0, "a set", response.authorized_operations)
