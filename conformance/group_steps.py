"""Steps of checks that share groups and streams groups have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar
from uuid import uuid4

from kohort.conformance.check_context import CheckContext
from kohort.conformance.errors import Blocked
from kohort.protocol.errors import error_name


class ScriptedMember:
    """A scripted member of a share group or a streams group."""

    heartbeat: ClassVar[str]
    """The API of its heartbeats."""

    def __init__(self, scene: CheckContext) -> None:
        self.scene = scene
        self.id = str(uuid4())
        self.epoch = 0

    async def beat(self, **changes: object) -> Any:
        """Send one heartbeat of the current epoch. A successful response is kept."""
        values: dict[str, object] = {"group_id": self.scene.group, "member_id": self.id, "member_epoch": self.epoch}
        body = values | changes
        response = await self.scene.send(self.heartbeat, body)
        if response.error_code == 0:
            self.epoch = response.member_epoch
            if response.member_epoch > 0:
                self.scene.target.members_with_epochs.add((self.heartbeat, self.scene.group, str(body["member_id"])))
        return response

    async def join(self, **changes: object) -> Any:
        """Send the first heartbeat."""
        return await self.beat(**{"member_epoch": 0} | changes)

    async def enter(self) -> Any:
        """Send the first heartbeat. Raises Blocked if it is refused."""
        response = await self.join()
        if response.error_code:
            raise Blocked(f"the first heartbeat failed: {error_name(response.error_code)}: {response.error_message}")
        return response

    async def leave(self) -> Any:
        return await self.beat(member_epoch=-1)


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
    scene.equal("the epoch", (await scene.expect(member.leave(), "NONE", "the leave")).member_epoch, -1)
    await scene.expect(member.leave(), "UNKNOWN_MEMBER_ID", "a second leave")


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
    await scene.expect(scene.send("ConsumerGroupHeartbeat", values), "GROUP_ID_NOT_FOUND", "ConsumerGroupHeartbeat")


async def deletes_empty_group(scene: CheckContext, member: ScriptedMember) -> None:
    """DeleteGroups refuses a group with a member, and deletes it without one."""
    await member.join()
    for code in ("NON_EMPTY_GROUP", "NONE"):
        response = await scene.send("DeleteGroups", groups_names=(scene.group,))
        scene.error(response.results[0].error_code, code, "DeleteGroups")
        if code != "NONE":
            await member.leave()
