"""Steps of checks that share groups and streams groups have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from kohort.conformance.check_context import CheckContext


class ScriptedMember(Protocol):
    """A scripted member of a group, of one kind."""

    async def beat(self, **changes: object) -> Any: ...
    async def join(self, **changes: object) -> Any: ...
    async def leave(self) -> Any: ...


async def refuses_unknown_group(scene: CheckContext, member: Callable[[CheckContext], ScriptedMember]) -> None:
    """Only epoch 0 makes a group."""
    for epoch in (1, -1):
        response = await member(scene).beat(member_epoch=epoch)
        scene.error(response.error_code, "GROUP_ID_NOT_FOUND", f"a heartbeat of epoch {epoch} to a new group id")


async def refuses_unknown_member(scene: CheckContext, member: Callable[[CheckContext], ScriptedMember]) -> None:
    """Only epoch 0 adds a member to a group."""
    await member(scene).join()
    for epoch in (1, -1):
        response = await member(scene).beat(member_epoch=epoch)
        scene.error(response.error_code, "UNKNOWN_MEMBER_ID", f"a heartbeat of epoch {epoch} of another member")


async def leaves_once(scene: CheckContext, member: ScriptedMember) -> None:
    """A member joins and leaves. The coordinator does not know it any more."""
    await member.join()
    response = await member.leave()
    scene.error(response.error_code, "NONE", "the leave")
    scene.equal("the epoch", response.member_epoch, -1)
    scene.error((await member.leave()).error_code, "UNKNOWN_MEMBER_ID", "a second leave")


async def describe_group(scene: CheckContext, api: str, **changes: object) -> Any:
    """The description of the check's group, or that of the field `group_ids` in `changes`."""
    values = {"group_ids": (scene.group,), "include_authorized_operations": False} | changes
    (response,) = (await scene.send(api, values)).groups
    return response


async def lists_type(scene: CheckContext, member: ScriptedMember, kind: str, as_filter: str) -> None:
    """ListGroups has the group's type, and filters by it."""
    await member.join()
    values = {"states_filter": (), "types_filter": (as_filter,)}
    response = await scene.send("ListGroups", values, node=await scene.coordinator(scene.group))
    found = [(one.group_type, one.protocol_type) for one in response.groups if one.group_id == scene.group]
    scene.equal("the type and the protocol type of the group", found, [(kind, kind)])
    scene.equal("other types", {one.group_type for one in response.groups} - {kind}, set())


async def refuses_consumer_heartbeat(scene: CheckContext) -> None:
    """No consumer joins a group of another kind."""
    values: dict[str, object] = {
        "group_id": scene.group,
        "member_id": "m" * 22,
        "member_epoch": 0,
        "rebalance_timeout_ms": 60_000,
        "subscribed_topic_names": (scene.topic.name,),
        "topic_partitions": (),
    }
    response = await scene.send("ConsumerGroupHeartbeat", values)
    scene.error(response.error_code, "GROUP_ID_NOT_FOUND", "ConsumerGroupHeartbeat")


async def deletes_empty_group(scene: CheckContext, member: ScriptedMember) -> None:
    """DeleteGroups refuses a group with a member, and deletes it without one."""
    await member.join()
    for code in ("NON_EMPTY_GROUP", "NONE"):
        response = await scene.send("DeleteGroups", groups_names=(scene.group,))
        scene.error(response.results[0].error_code, code, "DeleteGroups")
        if code != "NONE":
            await member.leave()
