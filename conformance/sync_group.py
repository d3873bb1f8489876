"""C: SyncGroup, and the distribution of assignments."""

import asyncio
from functools import partial
from typing import Any

from kohort.conformance.check import CheckKind, Section
from kohort.conformance.check_context import CheckContext
from kohort.protocol.errors import ErrorCode

SECTION = Section("C", "SyncGroup", "SyncGroup")
_check = partial(SECTION.check, source="protocol guide")


@_check("C1a", "An unknown group", expected="UNKNOWN_MEMBER_ID")
async def unknown_group(scene: CheckContext) -> None:
    response = await scene.member(id="unknown-member", generation=1).sync()
    scene.error(response.error_code, "UNKNOWN_MEMBER_ID", "SyncGroup in a new group")


@_check("C1b", "An unknown member", expected="UNKNOWN_MEMBER_ID")
async def unknown_member(scene: CheckContext) -> None:
    (leader,) = await scene.stable(1)
    await scene.expect(leader.sync(member_id="unknown-member"), "UNKNOWN_MEMBER_ID", "SyncGroup of a made-up member")


@_check(
    "C1c",
    "A member id that was given and never joined",
    source="KIP-394",
    expected="UNKNOWN_MEMBER_ID",
    apis=("JoinGroup 4+",),
)
async def pending_member(scene: CheckContext) -> None:
    (leader,) = await scene.stable(1)
    requested = await scene.expect(scene.member().join(), "MEMBER_ID_REQUIRED", "JoinGroup of the newcomer")
    await scene.expect(leader.sync(member_id=requested.member_id), "UNKNOWN_MEMBER_ID", "SyncGroup with the unused id")


@_check("C2a", "An older generation", expected="ILLEGAL_GENERATION")
async def old_generation(scene: CheckContext) -> None:
    leader, _ = await scene.stable(2, sync=False)
    response = await leader.sync(generation_id=leader.generation - 1)
    scene.error(response.error_code, "ILLEGAL_GENERATION", "SyncGroup of the generation before")


@_check("C2b", "A generation that is yet to come", expected="ILLEGAL_GENERATION")
async def future_generation(scene: CheckContext) -> None:
    (leader,) = await scene.stable(1, sync=False)
    response = await leader.sync(generation_id=leader.generation + 1)
    scene.error(response.error_code, "ILLEGAL_GENERATION", "SyncGroup of the generation after")


def _inconsistent(row: str, title: str, **changes: Any) -> None:
    @_check(
        row, title, versions="5+", source="KIP-559", expected="INCONSISTENT_GROUP_PROTOCOL, and null for both names"
    )
    async def inconsistent(scene: CheckContext) -> None:
        (leader,) = await scene.stable(1, sync=False)
        response = await leader.sync({leader.id: b"mine"}, **changes)
        scene.error(response.error_code, "INCONSISTENT_GROUP_PROTOCOL", f"SyncGroup with {changes}")
        scene.equal("type and name in the response", (response.protocol_type, response.protocol_name), (None, None))


_inconsistent("C3a", "Another protocol name than the chosen one", protocol_name="roundrobin")
_inconsistent("C3b", "Another protocol type than the group's", protocol_type="connect")
_inconsistent("C4a", "No protocol name", protocol_name=None)
_inconsistent("C4b", "No protocol type", protocol_type=None)


@_check(
    "C5",
    "A follower syncs before the leader",
    expected="delayed until the leader's SyncGroup, then a response with its own bytes",
)
async def follower_first(scene: CheckContext) -> None:
    leader, follower = await scene.stable(2, sync=False)
    parked = scene.start(follower.sync())
    await scene.parked(parked, "the follower's SyncGroup, before the leader's")
    own = await leader.sync({leader.id: b"one", follower.id: b"two"})
    response = await parked
    scene.error(own.error_code, "NONE", "SyncGroup of the leader")
    scene.equal("the leader's assignment", bytes(own.assignment), b"one")
    scene.error(response.error_code, "NONE", "SyncGroup of the follower")
    scene.equal("the follower's assignment", bytes(response.assignment), b"two")


@_check("C5b", "A follower syncs after the leader", expected="a response at once with its own bytes")
async def follower_second(scene: CheckContext) -> None:
    leader, follower = await scene.stable(2, sync=False)
    await scene.expect(leader.sync({leader.id: b"one", follower.id: b"two"}), "NONE", "SyncGroup of the leader")
    response = await scene.expect(follower.sync(), "NONE", "SyncGroup of the follower")
    scene.equal("the follower's assignment", bytes(response.assignment), b"two")


@_check("C6a", "SyncGroup again while Stable", expected="NONE, and the same assignment")
async def again(scene: CheckContext) -> None:
    leader, follower = await scene.stable(2)
    for member, expected in ((leader, b"for 0"), (follower, b"for 1")):
        response = await scene.expect(member.sync(), "NONE", "SyncGroup while Stable")
        scene.equal("the assignment", bytes(response.assignment), expected)


@_check(
    "C6b",
    "The leader syncs again with other assignments",
    expected="a generation has one assignment: the first one is kept",
)
async def made_once(scene: CheckContext) -> None:
    leader, follower = await scene.stable(2)
    response = await leader.sync({leader.id: b"new", follower.id: b"new"})
    scene.error(response.error_code, "NONE", "SyncGroup of the leader while Stable")
    scene.equal("the leader's assignment", bytes(response.assignment), b"for 0")
    scene.equal("the follower's assignment", bytes((await follower.sync()).assignment), b"for 1")


@_check("C7a", "While the group is preparing a rebalance", expected="REBALANCE_IN_PROGRESS")
async def preparing(scene: CheckContext) -> None:
    leader, _ = await scene.stable(2)
    scene.start(scene.member().enter())
    await scene.rebalancing(leader)
    await scene.expect(leader.sync(), "REBALANCE_IN_PROGRESS", "SyncGroup while others join")


@_check(
    "C7b",
    "A follower waits for its assignment when a newcomer joins",
    expected="its SyncGroup, delayed until then, gets REBALANCE_IN_PROGRESS",
)
async def waiting_interrupted(scene: CheckContext) -> None:
    _, follower = await scene.stable(2, sync=False)
    parked = scene.start(follower.sync())
    await scene.parked(parked, "the follower's SyncGroup, before the leader's")
    scene.start(scene.member().enter())
    await scene.expect(asyncio.wait_for(parked, 10), "REBALANCE_IN_PROGRESS", "the follower's SyncGroup")


@_check("C8", "The leader forgets a member", expected="that member gets empty bytes, and NONE")
async def forgotten(scene: CheckContext) -> None:
    leader, follower = await scene.stable(2, sync=False)
    scene.equal("the leader's assignment", bytes((await leader.sync({leader.id: b"all"})).assignment), b"all")
    response = await scene.expect(follower.sync(), "NONE", "SyncGroup of the forgotten member")
    scene.equal("its assignment", bytes(response.assignment), b"")


@_check("C9", "Empty group id", source="KIP-289", expected="INVALID_GROUP_ID")
async def empty_group(scene: CheckContext) -> None:
    response = await scene.member(group="", id="unknown-member", generation=1).sync()
    scene.error(response.error_code, "INVALID_GROUP_ID", "SyncGroup of the empty group")


@_check(
    "C10",
    "A member never syncs",
    kind=CheckKind.TIMING,
    source="Apache Kafka 3.0 (KAFKA-10134)",
    expected="after the rebalance timeout it is removed, and members that synced get REBALANCE_IN_PROGRESS",
)
async def never_syncs(scene: CheckContext) -> None:
    session, rebalance_ms = scene.session_within(8000), scene.stretched(1500)
    (leader,) = await scene.stable(1, sync=False, rebalance_ms=rebalance_ms, session_ms=session)
    silent = await scene.add([leader], rebalance_ms=rebalance_ms, session_ms=session)
    await scene.expect(leader.sync({leader.id: b"1", silent.id: b"2"}), "NONE", "SyncGroup of the leader")

    async def reported() -> bool:
        return bool((await leader.heartbeat()).error_code == ErrorCode.REBALANCE_IN_PROGRESS)

    within_s = rebalance_ms / 1000 + 4.5
    found = await scene.until(reported, within_s)
    scene.true("the leader's heartbeats", found, f"REBALANCE_IN_PROGRESS within {within_s:g} s", "NONE all the time")
    await scene.expect(silent.heartbeat(), "UNKNOWN_MEMBER_ID", "Heartbeat of the member that never synced")


@_check(
    "C11",
    "A follower's assignments are ignored",
    expected="assignments in a follower's request change no assignment",
)
async def follower_assigns(scene: CheckContext) -> None:
    leader, follower = await scene.stable(2, sync=False)
    parked = scene.start(follower.sync({leader.id: b"stolen", follower.id: b"stolen"}))
    await scene.parked(parked, "the follower's SyncGroup with assignments")
    own = await leader.sync({leader.id: b"one", follower.id: b"two"})
    scene.equal("the leader's assignment", bytes(own.assignment), b"one")
    scene.equal("the follower's assignment", bytes((await parked).assignment), b"two")


@_check(
    "C12",
    "Type and name are in the response",
    versions="5+",
    source="KIP-559",
    expected="the group's type and the chosen name",
)
async def reported_back(scene: CheckContext) -> None:
    (leader,) = await scene.stable(1, sync=False)
    response = await leader.sync({leader.id: b"mine"})
    scene.equal("type and name", (response.protocol_type, response.protocol_name), ("consumer", "range"))


@_check("C13", "A large assignment", expected="a quarter of a megabyte comes back byte for byte")
async def large(scene: CheckContext) -> None:
    (leader,) = await scene.stable(1, sync=False)
    share = bytes(range(256)) * 1024
    response = await scene.expect(leader.sync({leader.id: share}), "NONE", "SyncGroup")
    scene.true(
        "the assignment", bytes(response.assignment) == share, "equal", f"{len(response.assignment)} bytes that differ"
    )


@_check("C14", "An assignment for an unknown member", expected="ignored, and the members get their own")
async def for_stranger(scene: CheckContext) -> None:
    (leader,) = await scene.stable(1, sync=False)
    response = await scene.expect(leader.sync({"unknown-member": b"x", leader.id: b"mine"}), "NONE", "SyncGroup")
    scene.equal("the assignment", bytes(response.assignment), b"mine")
