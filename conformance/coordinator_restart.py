"""A10 and N3: error codes while a coordinator stops, restarts and loads, and the state afterwards.

These checks kill a broker, so they run last, one at a time, and only with an `Operator` (see `broker_control.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from kohort.common.errors import WireError
from kohort.conformance.check import CheckKind, Need, Section
from kohort.conformance.check_context import CheckContext
from kohort.conformance.errors import Blocked, MissingResponse, PeerClosed
from kohort.conformance.frame_log import Frame
from kohort.conformance.member import CheckMember
from kohort.conformance.request_builders import commit, describe_one, expect_commit, fetch, leave_unknown
from kohort.protocol.errors import ErrorCode, error_name

SECTION = Section("A", "ApiVersions, FindCoordinator and the connection", "FindCoordinator")
FAILOVER_SECTION = Section("N", "Malformed and unusual bytes, restarts", "JoinGroup")
SESSION_MS = 60_000  # a restart must not look like a time-out
SHORTEST_SESSION_MS = 20_000
LIMIT_S = 240.0
SETTLED_S = 90.0
FILLING = 360
FILLERS = 6
AWAY = frozenset({"COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR"})
LOADING = "COORDINATOR_LOAD_IN_PROGRESS"
_RESTART = (Need.OPERATOR, Need.TOPIC)
_check = partial(SECTION.check, once=True, needs=_RESTART, kind=CheckKind.TIMING, limit_s=LIMIT_S)
_failover_check = partial(
    FAILOVER_SECTION.check,
    once=True,
    subject="Heartbeat",
    needs=_RESTART,
    kind=CheckKind.TIMING,
    limit_s=LIMIT_S,
    source="protocol guide",
)
RestartRequest = Callable[[CheckContext, CheckMember], Awaitable[int]]


def _stranger(scene: CheckContext, member: CheckMember) -> CheckMember:
    return scene.member(id="unknown-member", generation=member.generation)


async def _join(scene: CheckContext, member: CheckMember) -> int:
    return int((await _stranger(scene, member).join()).error_code)


async def _sync(scene: CheckContext, member: CheckMember) -> int:
    return int((await _stranger(scene, member).sync()).error_code)


async def _heartbeat(scene: CheckContext, member: CheckMember) -> int:
    return int((await member.heartbeat()).error_code)


async def _leave(scene: CheckContext, member: CheckMember) -> int:
    response = await scene.send("LeaveGroup", leave_unknown(scene))
    return int(response.error_code or next((one.error_code for one in response.members), 0))


async def _commit(scene: CheckContext, member: CheckMember) -> int:
    codes = await commit(scene, {(scene.topic, 0): 1}, generation=member.generation, member="unknown-member")
    return codes[scene.topic.name, 0]


async def _fetch(scene: CheckContext, member: CheckMember) -> int:
    response = await fetch(scene, [(scene.topic, 0)])
    return response.error_code or response.partitions[scene.topic.name, 0].error_code


async def _describe(scene: CheckContext, member: CheckMember) -> int:
    return int((await describe_one(scene)).error_code)


async def _delete(scene: CheckContext, member: CheckMember) -> int:
    return int((await scene.send("DeleteGroups", groups_names=(member.group,))).results[0].error_code)


# The error code of each request about a Stable group after the restart. Requests that could change the group
# come from an unknown member.
REQUESTS: dict[str, tuple[RestartRequest, str]] = {
    "JoinGroup": (_join, "UNKNOWN_MEMBER_ID"),
    "SyncGroup": (_sync, "UNKNOWN_MEMBER_ID"),
    "LeaveGroup": (_leave, "UNKNOWN_MEMBER_ID"),
    "OffsetCommit": (_commit, "UNKNOWN_MEMBER_ID"),
    "OffsetFetch": (_fetch, "NONE"),
    "DescribeGroups": (_describe, "NONE"),
    "DeleteGroups": (_delete, "NON_EMPTY_GROUP"),
}


# Apache Kafka up to 3.9 sends a SyncGroup back to JoinGroup: while it loads, the rebalance that it was for is lost.
MEANWHILE = {"SyncGroup": "REBALANCE_IN_PROGRESS"}


async def _settle(scene: CheckContext) -> CheckMember:
    """Return a Stable member of a group with commits whose loading takes a moment.

    If possible, the coordinator is not the run's first address.
    """
    target = scene.target
    home = {node for node, address in target.nodes.items() if address == (target.host, target.port)}
    for _ in range(64):
        if len(target.nodes) < 2 or await target.coordinator(scene.group) not in home:
            break
        scene.group = scene.new_group()
    else:
        raise Blocked("every group has the address that was given for its coordinator")
    session_ms = target.session_within(SESSION_MS)
    if session_ms < SHORTEST_SESSION_MS:
        scene.not_applicable(f"sessions end after {session_ms} ms at most, which a restart may outlast")
    member = scene.member(session_ms=session_ms)

    async def has_joined() -> bool:
        """Return True once the member has joined. After another check's restart the coordinator may still load."""
        try:
            response = await member.join()
            if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                response = await member.join(member_id=response.member_id)
        except (PeerClosed, MissingResponse, WireError):
            return False
        return error_name(response.error_code) not in (*AWAY, LOADING)

    await scene.until(has_joined, SETTLED_S)
    if member.generation < 0:
        await member.enter()
    await member.settle({member.id: b"the share"})
    return member


async def _fill(scene: CheckContext, member: CheckMember) -> None:
    """Write commits to load. The last one is offset 7 of partition 0."""
    text = "x" * min(scene.target.setting("offset.metadata.max.bytes") or 4096, 4096)
    places = [(topic, index) for topic in (scene.topic, scene.other_topic) for index in range(topic.partitions)]

    async def some(count: int) -> None:
        for number in range(count):
            await commit(scene, dict.fromkeys(places, number), **member.identity, metadata=text)

    mark = len(scene.frames)
    await asyncio.gather(*(some(FILLING // FILLERS) for _ in range(FILLERS)))
    del scene.frames[mark:]
    await _keep(scene, member)


async def _keep(scene: CheckContext, member: CheckMember) -> None:
    codes = await commit(scene, {(scene.topic, 0): 7}, **member.identity)
    if codes[scene.topic.name, 0]:
        raise Blocked(f"OffsetCommit failed: {error_name(codes[scene.topic.name, 0])}")


async def _watch(
    scene: CheckContext, member: CheckMember, request: RestartRequest, final: str, over: Callable[[], bool]
) -> list[str]:
    """Repeat the request until it returns `final` and `over()`. Returns the codes in order, without repetitions."""
    response: list[str] = []
    end = asyncio.get_running_loop().time() + SETTLED_S
    while asyncio.get_running_loop().time() < end:
        mark: list[Frame] = list(scene.frames)
        try:
            name = error_name(await request(scene, member))
            if name in AWAY:
                await _look_again(scene, member)
        except (PeerClosed, MissingResponse, WireError):
            name = ""
            await _look_again(scene, member)
        if not name or name in response[-1:]:
            scene.frames[:] = mark  # hundreds of equal frames are no evidence
        if name and name not in response[-1:]:
            response.append(name)
        if name == final and over():
            return response
        await asyncio.sleep(0.004)
    return response


async def _look_again(scene: CheckContext, member: CheckMember) -> None:
    """Look up the coordinator again, since another broker of a cluster may have taken over."""
    try:
        scene.moved(member.group, await scene.target.coordinator(member.group))
    except (Blocked, PeerClosed, MissingResponse, WireError):
        return  # no coordinator yet


async def _through_restart(
    scene: CheckContext,
    requests: dict[str, tuple[RestartRequest, str]],
    prepare: Callable[[CheckContext, CheckMember], Awaitable[None]],
) -> tuple[CheckMember, dict[str, list[str]]]:
    """Restart the coordinator of a group while sending requests. Returns the codes of each request."""
    operator = scene.target.operator
    assert operator is not None
    member = await _settle(scene)
    await prepare(scene, member)
    node = scene.target.node_of(await scene.coordinator(member.group))
    starting: asyncio.Task[None] | None = None
    try:
        await operator.stop(node)
        starting = scene.start(operator.start(node))
        response = await asyncio.gather(
            *(_watch(scene, member, request, final, starting.done) for request, final in requests.values()),
            asyncio.shield(starting),
        )
    except asyncio.CancelledError:  # a run that is interrupted leaves no broker down
        await (starting or operator.start(node))
        raise
    return member, dict(zip(requests, response, strict=False))  # type: ignore[arg-type]


@_check(
    "A10a",
    "While the coordinator loads",
    subject="OffsetFetch",
    apis=("DescribeGroups", "DeleteGroups"),
    source="protocol guide",
    expected="COORDINATOR_LOAD_IN_PROGRESS (or an error about the coordinator) and no other code, until the group is "
    "loaded",
    note="Apache Kafka 3.9 responds to SyncGroup with REBALANCE_IN_PROGRESS meanwhile, so that the member joins "
    "again. The check accepts it.",
)
async def loading(scene: CheckContext) -> None:
    _, response = await _through_restart(scene, REQUESTS, _fill)
    seen = {name for codes in response.values() for name in codes}
    for api, codes in response.items():
        *before, last = codes or [""]
        scene.equal(f"the last response to {api}", last, REQUESTS[api][1])
        odd = sorted(set(before) - AWAY - {LOADING, MEANWHILE.get(api, LOADING)})
        scene.equal(f"other codes of {api} before that, beside loading", odd, [])
    if LOADING not in seen:
        scene.not_applicable("the group was loaded before the first request; all codes until then were correct")


@_check(
    "A10b",
    "A classic Heartbeat while the coordinator loads",
    subject="Heartbeat",
    source="Apache Kafka",
    expected="NONE, at most COORDINATOR_LOAD_IN_PROGRESS: never a code that costs the member its place",
)
async def beating(scene: CheckContext) -> None:
    requests: dict[str, tuple[RestartRequest, str]] = {
        "Heartbeat": (_heartbeat, "NONE"),
        "OffsetFetch": (_fetch, "NONE"),
    }
    _, response = await _through_restart(scene, requests, _fill)
    odd = sorted(set(response["Heartbeat"]) - AWAY - {LOADING, "NONE"})
    scene.equal("codes that cost the member its place", odd, [])
    scene.equal("the last response", response["Heartbeat"][-1:], ["NONE"])
    if LOADING not in response["OffsetFetch"]:
        scene.not_applicable("the group was loaded before the first request; all codes until then were correct")


async def _same_as_before(scene: CheckContext, member: CheckMember) -> None:
    """Check the member, its generation, its assignment and its offset."""
    offset = -1

    async def has_offset() -> bool:
        nonlocal offset
        response = await fetch(scene, [(scene.topic, 0)])
        scene.error(response.error_code, "NONE", "OffsetFetch once the group is served again")
        offset = response.partitions[scene.topic.name, 0].offset
        return offset == 7

    scene.true("the offset", await scene.until(has_offset), 7, offset)
    await scene.expect(member.heartbeat(), "NONE", "Heartbeat in the generation from before")
    again = await scene.expect(member.sync(), "NONE", "SyncGroup in the generation from before")
    scene.equal("the assignment", bytes(again.assignment), b"the share")
    await expect_commit(scene, 8, "NONE", "OffsetCommit in the generation from before", **member.identity)


@_failover_check(
    "N3a",
    "A coordinator that is killed and comes back",
    expected="members, generation, assignments and offsets are as before",
)
async def comes_back(scene: CheckContext) -> None:
    if len(scene.target.nodes) > 1:
        scene.not_applicable("in a cluster another broker takes over: N3b")
    requests: dict[str, tuple[RestartRequest, str]] = {"OffsetFetch": (_fetch, "NONE")}
    member, _ = await _through_restart(scene, requests, _keep)
    await _same_as_before(scene, member)


@_failover_check(
    "N3b",
    "A coordinator that is killed, in a cluster",
    needs=(*_RESTART, Need.CLUSTER),
    expected="FindCoordinator returns another broker, with the same members, generation, assignments and offsets. The "
    "old broker, after its restart, returns NOT_COORDINATOR",
    note="Apache Kafka 4.3.1 may first return no offset, with NONE, for up to a second. The check waits for it.",
)
async def fails_over(scene: CheckContext) -> None:
    target = scene.target
    operator = target.operator
    assert operator is not None
    member = await _settle(scene)
    await _keep(scene, member)
    old = target.node_of(await scene.coordinator(member.group))
    try:
        await operator.stop(old)
        await _moved(scene, member, old)
        await _same_as_before(scene, member)
    finally:
        await operator.start(old)
    if await target.coordinator(member.group) == old:
        scene.not_applicable("the old coordinator took the group back as soon as it was there")

    response: Any = None

    async def responses() -> bool:
        nonlocal response
        try:
            values = {"group_id": member.group, "generation_id": member.generation, "member_id": member.id}
            response = await scene.send("Heartbeat", values, node=old)
        except (PeerClosed, MissingResponse, WireError):
            return False
        return error_name(response.error_code) != "COORDINATOR_NOT_AVAILABLE"

    scene.true("the old coordinator", await scene.until(responses, SETTLED_S), "a response", "none")
    scene.error(response.error_code, "NOT_COORDINATOR", "Heartbeat at the old coordinator")
    await scene.expect(member.heartbeat(), "NONE", "Heartbeat at the new one")


async def _moved(scene: CheckContext, member: CheckMember, old: int) -> None:
    """Wait for another coordinator that has the group loaded. Raises Failed."""
    target = scene.target

    async def is_served() -> bool:
        try:
            found = await target.coordinator(member.group)
            if found == old:
                return False
            scene.moved(member.group, found)
            return await _fetch(scene, member) == 0
        except (Blocked, PeerClosed, MissingResponse, WireError):
            return False

    mark = len(scene.frames)
    found = await scene.until(is_served, SETTLED_S)
    del scene.frames[mark:-2]
    scene.true("FindCoordinator", found, f"another broker than {old}, which serves the group", "none in time")
