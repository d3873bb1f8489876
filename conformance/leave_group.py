"""E: LeaveGroup."""

import asyncio
from functools import partial

from kohort.conformance.check import CheckKind, Section
from kohort.conformance.check_context import CheckContext
from kohort.conformance.request_builders import describe_one, leave, leave_unknown

SECTION = Section("E", "LeaveGroup", "LeaveGroup")
_check = partial(SECTION.check, source="protocol guide")
_static = partial(_check, versions="3+", source="KIP-345")


@_check(
    "E1a",
    "An unknown member",
    source="KIP-345",
    kind=CheckKind.VERSIONED,
    expected="UNKNOWN_MEMBER_ID: of the member from version 3 on (top NONE), of the request before",
)
async def unknown_member(scene: CheckContext) -> None:
    await scene.stable(1)
    await _refuses_unknown(scene)


@_check(
    "E1b",
    "An unknown group",
    source="KIP-345",
    kind=CheckKind.VERSIONED,
    expected="UNKNOWN_MEMBER_ID: of the member from version 3 on (top NONE), of the request before",
)
async def unknown_group(scene: CheckContext) -> None:
    await _refuses_unknown(scene)


async def _refuses_unknown(scene: CheckContext) -> None:
    top, codes = await leave(scene, [("unknown-member", None)])
    if scene.version >= 3:
        scene.error(top, "NONE", "the request")
        scene.error(codes[0], "UNKNOWN_MEMBER_ID", "the member")
    else:
        scene.error(top, "UNKNOWN_MEMBER_ID", "the request")


@_static(
    "E1c",
    "Good and bad members in one request",
    expected="each has its own code, in order, and the valid ones are removed",
)
async def mixed(scene: CheckContext) -> None:
    leader, follower = await scene.stable(2)
    top, codes = await leave(scene, [(follower.id, None), ("unknown-member", None), (leader.id, None)])
    scene.error(top, "NONE", "the request")
    for code, expected in zip(codes, ("NONE", "UNKNOWN_MEMBER_ID", "NONE"), strict=True):
        scene.error(code, expected, "the member")
    await scene.expect(leader.heartbeat(), "UNKNOWN_MEMBER_ID", "Heartbeat of one that left")


@_check("E2", "Empty group id", source="KIP-289", expected="INVALID_GROUP_ID")
async def empty_group(scene: CheckContext) -> None:
    response = await scene.send("LeaveGroup", leave_unknown(scene) | {"group_id": ""})
    scene.error(response.error_code, "INVALID_GROUP_ID", "LeaveGroup of the empty group")


@_static("E3", "A static member by its instance id alone", apis=("JoinGroup 5+",), expected="NONE, and it is gone")
async def by_instance(scene: CheckContext) -> None:
    (leader,) = await scene.stable(1, instance="i-1")
    top, codes = await leave(scene, [("", "i-1")])
    scene.error(top, "NONE", "the request")
    scene.error(codes[0], "NONE", "the member")
    code = (await leader.heartbeat()).error_code
    scene.error(code, "UNKNOWN_MEMBER_ID", "Heartbeat of the one that was removed")


@_static(
    "E4a",
    "A static member with another's id",
    apis=("JoinGroup 5+",),
    expected="FENCED_INSTANCE_ID of the member, which stays",
)
async def wrong_id(scene: CheckContext) -> None:
    (leader,) = await scene.stable(1, instance="i-1")
    top, codes = await leave(scene, [("other-member", "i-1")])
    scene.error(top, "NONE", "the request")
    scene.error(codes[0], "FENCED_INSTANCE_ID", "the member")
    await scene.expect(leader.heartbeat(), "NONE", "Heartbeat of the member")


@_static("E4b", "An unknown instance id", expected="UNKNOWN_MEMBER_ID of the member")
async def unknown_instance(scene: CheckContext) -> None:
    await scene.stable(1)
    top, codes = await leave(scene, [("", "i-9")])
    scene.error(top, "NONE", "the request")
    scene.error(codes[0], "UNKNOWN_MEMBER_ID", "the member")


@_check(
    "E5",
    "An id that was given and not used yet",
    apis=("JoinGroup 4+",),
    source="KIP-394",
    expected="NONE, and a generation that waited for the member completes",
)
async def pending(scene: CheckContext) -> None:
    (leader,) = await scene.stable(1)
    requested = await scene.expect(scene.member().join(), "MEMBER_ID_REQUIRED", "JoinGroup of the newcomer")
    waiting = scene.start(leader.join())
    await scene.parked(waiting, "the leader's JoinGroup while an id is unused")
    top, codes = await leave(scene, [(requested.member_id, None)])
    scene.error(codes[0] if scene.version >= 3 else top, "NONE", "LeaveGroup with the unused id")
    response = await scene.expect(asyncio.wait_for(waiting, 10), "NONE", "the leader's JoinGroup")
    scene.equal("the members", [entry.member_id for entry in response.members], [leader.id])


@_check("E6", "Leaving while one's own JoinGroup is held back", expected="the delayed JoinGroup gets UNKNOWN_MEMBER_ID")
async def leave_while_joining(scene: CheckContext) -> None:
    leader, _ = await scene.stable(2)
    waiting = scene.start(leader.join())
    await scene.parked(waiting, "the leader's JoinGroup, before the follower's")
    top, codes = await leave(scene, [(leader.id, None)])
    scene.error(codes[0] if scene.version >= 3 else top, "NONE", "LeaveGroup of the leader")
    await scene.expect(asyncio.wait_for(waiting, 10), "UNKNOWN_MEMBER_ID", "the JoinGroup that was held back")


@_check("E7", "The others get REBALANCE_IN_PROGRESS", expected="their heartbeats get REBALANCE_IN_PROGRESS")
async def others_notified(scene: CheckContext) -> None:
    leader, follower = await scene.stable(2)
    top, codes = await leave(scene, [(follower.id, None)])
    scene.error(codes[0] if scene.version >= 3 else top, "NONE", "LeaveGroup of the follower")
    await scene.sees_rebalance(leader, "the leader")


@_check("E8", "Leaving twice", expected="NONE, then UNKNOWN_MEMBER_ID")
async def twice(scene: CheckContext) -> None:
    _, follower = await scene.stable(2)
    for expected in ("NONE", "UNKNOWN_MEMBER_ID"):
        top, codes = await leave(scene, [(follower.id, None)])
        scene.error(codes[0] if scene.version >= 3 else top, expected, "LeaveGroup")


@_check("E9", "The last one leaves", apis=("DescribeGroups",), expected="the group stays, Empty")
async def last(scene: CheckContext) -> None:
    (leader,) = await scene.stable(1)
    await leave(scene, [(leader.id, None)])
    response = await scene.expect(describe_one(scene), "NONE", "DescribeGroups")
    scene.equal("the state", response.group_state, "Empty")


@_check("E10", "A reason for leaving", versions="5+", source="KIP-800", expected="accepted, null or long")
async def reasons(scene: CheckContext) -> None:
    for member, reason in zip(await scene.stable(2), ("long " * 100, None), strict=True):
        entry = {"member_id": member.id, "reason": reason}
        response = await scene.send("LeaveGroup", group_id=scene.group, members=(entry,))
        scene.error(response.members[0].error_code, "NONE", f"LeaveGroup with a reason of {len(reason or '')} letters")
