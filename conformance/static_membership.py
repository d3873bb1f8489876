"""I: static members (KIP-345), which rejoin with the same instance id."""

import asyncio
from functools import partial

from kohort.conformance.check import CheckKind, Need, Section
from kohort.conformance.check_context import CheckContext
from kohort.conformance.errors import Blocked
from kohort.conformance.member import CheckMember, subscribe
from kohort.conformance.request_builders import commit, describe_one, leave
from kohort.protocol.errors import ErrorCode

SECTION = Section("I", "Static members", "JoinGroup")
_check = partial(SECTION.check, versions="5+", source="KIP-345")


async def _pair(scene: CheckContext) -> tuple[CheckMember, CheckMember]:
    """Return a Stable group of two static members, the leader first."""
    (leader,) = await scene.stable(1, sync=False, instance="i-1")
    follower = await scene.add([leader], instance="i-2")
    await scene.sync([leader, follower])
    return leader, follower


async def _return(scene: CheckContext, instance: str, **how: object) -> tuple[CheckMember, int]:
    """Rejoin as a new process of the instance, without a member id. Returns (member, error code)."""
    back = scene.member(instance=instance, **how)
    return back, (await back.join()).error_code


@_check(
    "I1",
    "A follower comes back while Stable",
    expected="a new member id, the same generation, and no member has to rejoin",
)
async def follower_back(scene: CheckContext) -> None:
    leader, follower = await _pair(scene)
    back, code = await _return(scene, "i-2")
    scene.error(code, "NONE", "JoinGroup of the follower that came back")
    scene.true("its member id", back.id not in ("", follower.id), f"another than {follower.id}", back.id)
    scene.equal("the generation", back.generation, follower.generation)
    await scene.expect(leader.heartbeat(), "NONE", "Heartbeat of the leader")


@_check("I1b", "It gets its old assignment", expected="SyncGroup with the new id gives the old bytes")
async def old_assignment(scene: CheckContext) -> None:
    await _pair(scene)
    back, code = await _return(scene, "i-2")
    scene.error(code, "NONE", "JoinGroup of the follower that came back")
    response = await scene.expect(back.sync(), "NONE", "SyncGroup of the follower that came back")
    scene.equal("the assignment", bytes(response.assignment), b"for 1")


@_check(
    "I2",
    "The leader comes back while Stable",
    source="KIP-345, KIP-814",
    kind=CheckKind.VERSIONED,
    expected="version 9: it leads with skip_assignment and the members. Before: a response without members, so that "
    "it does not assign again",
)
async def leader_back(scene: CheckContext) -> None:
    leader, follower = await _pair(scene)
    back = scene.member(instance="i-1")
    response = await scene.expect(back.join(), "NONE", "JoinGroup of the leader that came back")
    scene.equal("the generation", response.generation_id, leader.generation)
    if scene.version >= 9:
        scene.equal("skip_assignment", response.skip_assignment, True)
        scene.equal("the leader", response.leader, back.id)
        scene.equal(
            "the members", sorted(entry.member_id for entry in response.members), sorted((back.id, follower.id))
        )
    else:
        scene.equal("the leader", response.leader, leader.id)
        scene.equal("the members", response.members, ())


def _fenced(row: str, api: str) -> None:
    @_check(
        row,
        f"{api} with the id from before",
        expected="FENCED_INSTANCE_ID",
        apis=(f"{api} {'7+' if api == 'OffsetCommit' else '3+'}",) if api != "JoinGroup" else (),
        needs=(Need.TOPIC,) if api == "OffsetCommit" else (),
    )
    async def fenced(scene: CheckContext) -> None:
        _, old = await _pair(scene)
        back, code = await _return(scene, "i-2")
        if code or back.id == old.id:
            raise Blocked("the member that came back did not get another id")
        if api == "JoinGroup":
            code = (await old.join()).error_code
        elif api == "SyncGroup":
            code = (await old.sync()).error_code
        elif api == "Heartbeat":
            code = (await old.heartbeat()).error_code
        elif api == "LeaveGroup":
            _, (code,) = await leave(scene, [(old.id, old.instance)])
        else:
            (code,) = (await commit(scene, {(scene.topic, 0): 1}, **old.identity, instance="i-2")).values()
        scene.error(code, "FENCED_INSTANCE_ID", f"{api} with the id from before")


for _letter, _api in zip("abcde", ("JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup", "OffsetCommit"), strict=True):
    _fenced(f"I3{_letter}", _api)


@_check(
    "I4a",
    "A member comes back before the assignment is made",
    expected="a rebalance: its JoinGroup completes in a later generation, with the others",
)
async def back_while_completing(scene: CheckContext) -> None:
    (leader,) = await scene.stable(1, sync=False, instance="i-1")
    follower = await scene.add([leader], instance="i-2")
    back = scene.member(instance="i-2")
    entering = scene.start(back.enter())
    await scene.rebalancing(leader)
    await asyncio.gather(entering, leader.enter())
    scene.equal("the generations", (leader.generation, back.generation), (follower.generation + 1,) * 2)


@_check(
    "I4b",
    "A member comes back with protocols that change the choice",
    expected="a rebalance, after which the group uses the protocol in common",
)
async def back_with_others(scene: CheckContext) -> None:
    (leader,) = await scene.stable(1, sync=False, instance="i-1", protocols=(("a", b""), ("b", b"")))
    follower = await scene.add([leader], instance="i-2", protocols=(("a", b""), ("b", b"")))
    await scene.sync([leader, follower])
    scene.equal("the protocol before", leader.protocol_name, "a")
    back = scene.member(instance="i-2", protocols=(("b", b""),))
    entering = scene.start(back.enter())
    await scene.rebalancing(leader)
    await asyncio.gather(entering, leader.enter())
    scene.equal("the protocol", (leader.protocol_name, back.protocol_name), ("b", "b"))
    scene.equal("the generation", back.generation, follower.generation + 1)


@_check(
    "I4c",
    "A follower comes back with other metadata",
    source="KIP-345, KAFKA-9801",
    kind=CheckKind.SHOULD,
    expected="its JoinGroup gets a response, and the leader's next list has the new metadata",
)
async def back_changed(scene: CheckContext) -> None:
    leader, _ = await _pair(scene)
    back = scene.member(instance="i-2", protocols=(("range", subscribe("something-else")),))
    entering = scene.start(back.enter())

    async def decided() -> bool:
        """True once decided. Some versions of Kafka rebalance at once, others keep the old generation."""
        return entering.done() or (await leader.heartbeat()).error_code == ErrorCode.REBALANCE_IN_PROGRESS

    await scene.until(decided)
    response = None if entering.done() else await leader.join()
    await asyncio.wait({entering}, timeout=5)
    if response is None:
        rejoining = scene.start(leader.join())
        await scene.rebalancing(back)
        await back.enter()
        response = await rejoining
    metadata = {entry.group_instance_id: bytes(entry.metadata) for entry in response.members}
    scene.equal("the metadata of i-2", metadata.get("i-2"), subscribe("something-else"))


@_check("I5", "An unknown instance id, with a member id", expected="UNKNOWN_MEMBER_ID")
async def unknown_instance(scene: CheckContext) -> None:
    await scene.stable(1)
    response = await scene.member(instance="i-9", id="other-member").join()
    scene.error(response.error_code, "UNKNOWN_MEMBER_ID", "JoinGroup with an unknown instance id and a member id")


@_check(
    "I6",
    "A static member misses a rebalance",
    kind=CheckKind.TIMING,
    expected="the others complete after the rebalance timeout, and it is still a member until its session is over",
)
async def kept(scene: CheckContext) -> None:
    how = {"rebalance_ms": scene.stretched(1500), "session_ms": scene.session_within(10_000)}
    (leader,) = await scene.stable(1, sync=False, instance="i-1", **how)
    absent = await scene.add([leader], instance="i-2", **how)
    await scene.sync([leader, absent])
    rejoining = scene.start(leader.join())
    await scene.parked(rejoining, "the leader's JoinGroup while i-2 has not rejoined")
    response = await scene.expect(rejoining, "NONE", "JoinGroup of the leader")
    instances = sorted(str(entry.group_instance_id) for entry in response.members)
    scene.equal("the instances of the new generation", instances, ["i-1", "i-2"])


@_check(
    "I6b",
    "A static member sends no heartbeat for its session timeout",
    kind=CheckKind.TIMING,
    expected="it is removed like a dynamic member: UNKNOWN_MEMBER_ID",
)
async def expires(scene: CheckContext) -> None:
    session = scene.session_within(1000)
    (leader,) = await scene.stable(1, instance="i-1", session_ms=session)
    await asyncio.sleep(session / 1000 + 1.5)
    await scene.expect(leader.heartbeat(), "UNKNOWN_MEMBER_ID", "Heartbeat after the session timeout")


@_check("I7", "Two instances are two members", expected="both in one generation with different ids")
async def two(scene: CheckContext) -> None:
    leader, follower = await _pair(scene)
    scene.true("the member ids", leader.id != follower.id, "two ids", leader.id)
    response = sorted(str(entry.group_instance_id) for entry in leader.members)
    scene.equal("the instances", response, ["i-1", "i-2"])


@_check(
    "I8",
    "DescribeGroups shows the instance",
    subject="DescribeGroups",
    versions="4+",
    apis=("JoinGroup 5+",),
    expected="group_instance_id of each member",
)
async def described(scene: CheckContext) -> None:
    leader, follower = await _pair(scene)
    response = {entry.member_id: entry.group_instance_id for entry in (await describe_one(scene)).members}
    scene.equal("the instances", response, {leader.id: "i-1", follower.id: "i-2"})


@_check(
    "I9",
    "The same member joins again with its id",
    expected="as for a dynamic follower: the same generation, the same id, no rebalance",
)
async def again(scene: CheckContext) -> None:
    leader, follower = await _pair(scene)
    generation = follower.generation
    before = follower.id
    response = await scene.expect(follower.join(), "NONE", "JoinGroup of the follower")
    scene.equal("generation and id", (response.generation_id, response.member_id), (generation, before))
    await scene.expect(leader.heartbeat(), "NONE", "Heartbeat of the leader")
