"""D: Heartbeat, and the expiry of members."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from kohort.conformance.check import CheckKind, Need, Section
from kohort.conformance.check_context import CheckContext
from kohort.conformance.member import CheckMember
from kohort.conformance.request_builders import commit
from kohort.protocol.errors import ErrorCode

SECTION = Section("D", "Heartbeat", "Heartbeat")
_check = partial(SECTION.check, source="protocol guide")


@_check("D1a", "While Stable", expected="NONE")
async def stable(scene: CheckContext) -> None:
    for member in await scene.stable(2):
        await scene.expect(member.heartbeat(), "NONE", "Heartbeat while Stable")


@_check("D1b", "While the assignment is awaited", expected="NONE")
async def completing(scene: CheckContext) -> None:
    for member in await scene.stable(2, sync=False):
        await scene.expect(member.heartbeat(), "NONE", "Heartbeat before SyncGroup")


@_check("D2a", "While others join", expected="REBALANCE_IN_PROGRESS, to every member")
async def preparing(scene: CheckContext) -> None:
    leader, follower = await scene.stable(2)
    scene.start(leader.join())
    await scene.sees_rebalance(follower, "the follower")


@_check(
    "D2b",
    "Heartbeats during a rebalance keep a member",
    kind=CheckKind.TIMING,
    expected="with a short session and a long rebalance, a member that beats and does not rejoin is not removed",
)
async def kept_while_preparing(scene: CheckContext) -> None:
    session = scene.session_within(1500)
    (leader,) = await scene.stable(1, sync=False, session_ms=session)
    slow = await scene.add([leader], session_ms=session)
    await scene.sync([leader, slow])
    scene.start(leader.join())
    await scene.rebalancing(slow)
    for _ in range(8):
        await asyncio.sleep(session / 4000)
        await scene.sees_rebalance(slow, "the slow member")


@_check("D3a", "An older generation", expected="ILLEGAL_GENERATION")
async def old_generation(scene: CheckContext) -> None:
    leader, _ = await scene.stable(2)
    response = await leader.heartbeat(generation_id=leader.generation - 1)
    scene.error(response.error_code, "ILLEGAL_GENERATION", "Heartbeat of the generation before")


@_check("D3b", "A generation that is yet to come", expected="ILLEGAL_GENERATION")
async def future_generation(scene: CheckContext) -> None:
    (leader,) = await scene.stable(1)
    response = await leader.heartbeat(generation_id=leader.generation + 1)
    scene.error(response.error_code, "ILLEGAL_GENERATION", "Heartbeat of the generation after")


@_check("D3c", "An unknown member", expected="UNKNOWN_MEMBER_ID")
async def unknown_member(scene: CheckContext) -> None:
    (leader,) = await scene.stable(1)
    response = await leader.heartbeat(member_id="unknown-member")
    scene.error(response.error_code, "UNKNOWN_MEMBER_ID", "Heartbeat of a made-up member")


@_check("D3d", "An unknown group", expected="UNKNOWN_MEMBER_ID")
async def unknown_group(scene: CheckContext) -> None:
    response = await scene.member(id="unknown-member", generation=1).heartbeat()
    scene.error(response.error_code, "UNKNOWN_MEMBER_ID", "Heartbeat in a new group")


@_check("D4", "After all members left", apis=("LeaveGroup",), expected="UNKNOWN_MEMBER_ID")
async def empty(scene: CheckContext) -> None:
    (leader,) = await scene.stable(1)
    await leader.leave()
    await scene.expect(leader.heartbeat(), "UNKNOWN_MEMBER_ID", "Heartbeat in an empty group")


@_check(
    "D5",
    "No heartbeat for longer than the session timeout",
    kind=CheckKind.TIMING,
    expected="the member is removed and unknown, and the others get REBALANCE_IN_PROGRESS",
)
async def silence(scene: CheckContext) -> None:
    session = scene.session_within(1500)
    (leader,) = await scene.stable(1, sync=False)
    silent = await scene.add([leader], session_ms=session)
    await scene.sync([leader, silent])
    await scene.expect(leader.heartbeat(), "NONE", "the leader's Heartbeat before")

    async def reported() -> bool:
        return bool((await leader.heartbeat()).error_code == ErrorCode.REBALANCE_IN_PROGRESS)

    found = await scene.until(reported, session / 1000 + 5)
    scene.true("the leader's heartbeats", found, "REBALANCE_IN_PROGRESS after the session timeout", "NONE all the time")
    await scene.expect(silent.heartbeat(), "UNKNOWN_MEMBER_ID", "Heartbeat of the removed member")


async def _stays(scene: CheckContext, request: Callable[[CheckMember, int], Awaitable[int]], what: str) -> CheckMember:
    """The member of a group of one, after eight requests that must keep it alive for two session timeouts."""
    session_ms = scene.session_within(1_500)
    (leader,) = await scene.stable(1, session_ms=session_ms)
    for number in range(8):
        await asyncio.sleep(session_ms / 4000)
        scene.error(await request(leader, number), "NONE", what)
    return leader


@_check("D5b", "Heartbeats for longer than the session timeout", kind=CheckKind.TIMING, expected="NONE all the time")
async def alive(scene: CheckContext) -> None:
    async def beat(leader: CheckMember, _number: int) -> int:
        return int((await leader.heartbeat()).error_code)

    await _stays(scene, beat, "Heartbeat every quarter of the session timeout")


@_check(
    "D6",
    "An instance id that belongs to another member id",
    versions="3+",
    source="KIP-345",
    expected="FENCED_INSTANCE_ID",
    apis=("JoinGroup 5+",),
)
async def fenced(scene: CheckContext) -> None:
    (leader,) = await scene.stable(1, instance="i-1")
    response = await leader.heartbeat(member_id="other-member")
    scene.error(response.error_code, "FENCED_INSTANCE_ID", "Heartbeat with another member's instance id")


@_check(
    "D7",
    "Commits keep a member alive",
    kind=CheckKind.TIMING,
    needs=(Need.TOPIC,),
    expected="a member that only commits, for longer than its session timeout, is not removed",
)
async def commits_count(scene: CheckContext) -> None:
    async def committed(leader: CheckMember, offset: int) -> int:
        return (await commit(scene, {(scene.topic, 0): offset}, **leader.identity))[scene.topic.name, 0]

    leader = await _stays(scene, committed, "OffsetCommit every quarter of the session timeout")
    await scene.expect(leader.heartbeat(), "NONE", "Heartbeat afterwards")


@_check("D8", "Empty group id", source="KIP-289", expected="INVALID_GROUP_ID")
async def empty_group(scene: CheckContext) -> None:
    response = await scene.member(group="", id="unknown-member", generation=1).heartbeat()
    scene.error(response.error_code, "INVALID_GROUP_ID", "Heartbeat of the empty group")


@_check(
    "D9",
    "A member id that was given and never joined",
    source="KIP-394",
    expected="UNKNOWN_MEMBER_ID",
    apis=("JoinGroup 4+",),
)
async def pending_member(scene: CheckContext) -> None:
    (leader,) = await scene.stable(1)
    requested = await scene.expect(scene.member().join(), "MEMBER_ID_REQUIRED", "JoinGroup of the newcomer")
    response = await leader.heartbeat(member_id=requested.member_id)
    scene.error(response.error_code, "UNKNOWN_MEMBER_ID", "Heartbeat with the unused id")
