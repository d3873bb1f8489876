"""B: JoinGroup, and the forming of a generation."""

import asyncio
import time
from functools import partial

from kohort.conformance.check import CheckKind, Need, Section
from kohort.conformance.check_context import CheckContext
from kohort.conformance.member import subscribe
from kohort.protocol.errors import ErrorCode

SECTION = Section("B", "JoinGroup", "JoinGroup")
_check = partial(SECTION.check, source="protocol guide")
LATE_S = 6.5  # a response that is due
SAME_GENERATION_S = 2.0  # between the responses to two members of a generation


@_check(
    "B1",
    "First join of a dynamic member",
    versions="4+",
    source="KIP-394",
    expected='MEMBER_ID_REQUIRED and an id to use, without a protocol name ("" before version 7, null from then on)',
)
async def id_required(scene: CheckContext) -> None:
    response = await scene.expect(scene.member().join(), "MEMBER_ID_REQUIRED", "JoinGroup without a member id")
    scene.true("the member id", bool(response.member_id), "an id", repr(response.member_id))
    scene.equal("the protocol name", response.protocol_name, None if scene.version >= 7 else "")
    scene.equal("the generation", response.generation_id, -1)
    scene.equal("the members", response.members, ())


@_check(
    "B2",
    "First join before member ids were required",
    versions="0-3",
    source="KIP-394",
    expected="joined at once: NONE, generation 1, an id, leader itself",
)
async def joined_at_once(scene: CheckContext) -> None:
    response = await scene.expect(scene.member().join(), "NONE", "JoinGroup without a member id")
    scene.equal("the generation", response.generation_id, 1)
    scene.true("the member id", bool(response.member_id), "an id", repr(response.member_id))
    scene.equal("the leader", response.leader, response.member_id)


@_check(
    "B3a",
    "Join with the id that was given",
    versions="4+",
    source="KIP-394",
    expected="NONE, generation 1, the same id, leader itself, members only itself",
)
async def second_step(scene: CheckContext) -> None:
    member = scene.member()
    requested = await member.join()
    response = await scene.expect(member.join(member_id=requested.member_id), "NONE", "JoinGroup with the id given")
    scene.equal("the generation", response.generation_id, 1)
    scene.equal("the member id", response.member_id, requested.member_id)
    scene.equal("the leader", response.leader, requested.member_id)
    scene.equal("the members", [entry.member_id for entry in response.members], [requested.member_id])


@_check(
    "B3b",
    "The selected protocol is in the response",
    source="KIP-559",
    kind=CheckKind.VERSIONED,
    expected='protocol_name is the only candidate; protocol_type is "consumer" from version 7 on',
)
async def reports_protocol(scene: CheckContext) -> None:
    response = await scene.member(protocols=(("mine", b""),)).enter()
    scene.equal("the protocol name", response.protocol_name, "mine")
    if scene.version >= 7:
        scene.equal("the protocol type", response.protocol_type, "consumer")


@_check("B4", "An unknown member id", expected="UNKNOWN_MEMBER_ID")
async def unknown_member(scene: CheckContext) -> None:
    await scene.stable(1)
    await scene.expect(scene.member(id="unknown-member-1").join(), "UNKNOWN_MEMBER_ID", "JoinGroup with a made-up id")


@_check("B5", "A member id in an unknown group", expected="UNKNOWN_MEMBER_ID, not GROUP_ID_NOT_FOUND")
async def unknown_group(scene: CheckContext) -> None:
    response = await scene.member(id="unknown-member-1").join()
    scene.error(response.error_code, "UNKNOWN_MEMBER_ID", "JoinGroup with a made-up id in a new group")


@_check("B5b", "An id that was given for another group", versions="4+", source="KIP-394", expected="UNKNOWN_MEMBER_ID")
async def id_of_other_group(scene: CheckContext) -> None:
    await scene.stable(1)
    requested = await scene.member(group=scene.new_group()).join()
    scene.error(requested.error_code, "MEMBER_ID_REQUIRED", "JoinGroup in the other group")
    response = await scene.member(id=requested.member_id).join()
    scene.error(response.error_code, "UNKNOWN_MEMBER_ID", "JoinGroup with the other group's id")


@_check("B6", "Another protocol type than the group's", expected="INCONSISTENT_GROUP_PROTOCOL")
async def other_type(scene: CheckContext) -> None:
    await scene.stable(1)
    response = await scene.member(protocol_type="connect").join()
    scene.error(response.error_code, "INCONSISTENT_GROUP_PROTOCOL", "JoinGroup of a connect worker in a consumer group")


@_check("B7", "No protocol in common with the members", expected="INCONSISTENT_GROUP_PROTOCOL")
async def nothing_in_common(scene: CheckContext) -> None:
    await scene.stable(1, protocols=(("range", b""), ("sticky", b"")))
    response = await scene.member(protocols=(("mine", b""),)).join()
    scene.error(
        response.error_code, "INCONSISTENT_GROUP_PROTOCOL", "JoinGroup with ['mine'] where all have range, sticky"
    )


@_check("B7b", "Protocols that overlap with some members only", expected="INCONSISTENT_GROUP_PROTOCOL")
async def overlap_with_some(scene: CheckContext) -> None:
    (first,) = await scene.stable(1, sync=False, protocols=(("a", b""), ("b", b"")))
    await scene.add([first], protocols=(("b", b""), ("c", b"")))
    response = await scene.member(protocols=(("a", b""), ("c", b""))).join()
    scene.error(response.error_code, "INCONSISTENT_GROUP_PROTOCOL", "JoinGroup with a, c where all have b only")


@_check("B8a", "Empty protocol type on a new group", expected="INCONSISTENT_GROUP_PROTOCOL")
async def empty_type(scene: CheckContext) -> None:
    response = await scene.member(protocol_type="").join()
    scene.error(response.error_code, "INCONSISTENT_GROUP_PROTOCOL", "JoinGroup with an empty protocol type")


@_check("B8b", "Empty protocol list on a new group", expected="INCONSISTENT_GROUP_PROTOCOL")
async def empty_list(scene: CheckContext) -> None:
    response = await scene.member(protocols=()).join()
    scene.error(response.error_code, "INCONSISTENT_GROUP_PROTOCOL", "JoinGroup without any protocol")


@_check("B9", "Empty group id", source="KIP-289", expected="INVALID_GROUP_ID")
async def empty_group(scene: CheckContext) -> None:
    await scene.expect(scene.member(group="").join(), "INVALID_GROUP_ID", "JoinGroup of the empty group")


@_check(
    "B10a",
    "Session timeout below the least",
    kind=CheckKind.CONFIG,
    needs=(Need.SETTINGS,),
    source="group.min.session.timeout.ms",
    expected="INVALID_SESSION_TIMEOUT",
)
async def session_too_short(scene: CheckContext) -> None:
    least = scene.target.setting("group.min.session.timeout.ms")
    if not least:
        scene.not_applicable("group.min.session.timeout.ms is unknown, or is 0")
    response = await scene.member(session_ms=least - 1).join()
    scene.error(response.error_code, "INVALID_SESSION_TIMEOUT", f"JoinGroup with session_timeout_ms={least - 1}")


@_check(
    "B10b",
    "Session timeout above the most",
    kind=CheckKind.CONFIG,
    needs=(Need.SETTINGS,),
    source="group.max.session.timeout.ms",
    expected="INVALID_SESSION_TIMEOUT",
)
async def session_too_long(scene: CheckContext) -> None:
    most = scene.target.setting("group.max.session.timeout.ms")
    if most is None or most >= 2**31 - 1:
        scene.not_applicable("group.max.session.timeout.ms is unknown, or is no limit")
    response = await scene.member(session_ms=most + 1).join()
    scene.error(response.error_code, "INVALID_SESSION_TIMEOUT", f"JoinGroup with session_timeout_ms={most + 1}")


@_check(
    "B11",
    "A group at group.max.size",
    kind=CheckKind.CONFIG,
    needs=(Need.SETTINGS,),
    source="KIP-389",
    expected="GROUP_MAX_SIZE_REACHED for one member more; those inside stay",
)
async def full(scene: CheckContext) -> None:
    size = scene.target.setting("group.max.size")
    if size is None or size > 20:
        scene.not_applicable(f"group.max.size is {size}; filling a group takes 20 or less")
    members = await scene.stable(size)
    newcomer = scene.member()
    response = await newcomer.join()
    if scene.version >= 4 and response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        response = await newcomer.join(member_id=response.member_id)
    scene.error(response.error_code, "GROUP_MAX_SIZE_REACHED", f"JoinGroup of member {size + 1}")
    await scene.expect(members[0].heartbeat(), "NONE", "Heartbeat of a member inside")


@_check(
    "B12",
    "Each member votes for its first common protocol",
    expected="of [x, a, b], [b, a], [b, a] the group takes b: a and b are common, b has two votes",
)
async def votes(scene: CheckContext) -> None:
    (first,) = await scene.stable(1, sync=False, protocols=(("x", b""), ("a", b""), ("b", b"")))
    others = [first]
    for _ in range(2):
        others.append(await scene.add(others, protocols=(("b", b""), ("a", b""))))
    for member in others:
        scene.equal("the protocol", member.protocol_name, "b")


@_check(
    "B12b",
    "A protocol that not all support is no candidate",
    expected="of [x, a], [x, a], [a] the group takes a, though x has two votes",
)
async def candidates(scene: CheckContext) -> None:
    (first,) = await scene.stable(1, sync=False, protocols=(("x", b""), ("a", b"")))
    second = await scene.add([first], protocols=(("x", b""), ("a", b"")))
    scene.equal("the protocol of the first two", second.protocol_name, "x")
    third = await scene.add([first, second], protocols=(("a", b""),))
    scene.equal("the protocol with the third", third.protocol_name, "a")


@_check("B13a", "Only the leader gets the members", expected="the leader's list has all, a follower's none")
async def list_for_leader(scene: CheckContext) -> None:
    members = await scene.stable(3, sync=False)
    everybody = sorted(member.id for member in members)
    for member in members:
        expected = everybody if member.id == member.leader else []
        scene.equal(f"the list of {member.id}", sorted(entry.member_id for entry in member.members), expected)


@_check(
    "B13b",
    "Members' metadata comes to the leader unchanged",
    expected="for each member the bytes that it sent under the chosen protocol",
)
async def metadata_unchanged(scene: CheckContext) -> None:
    metadata = subscribe("a", "b", user_data=bytes(range(256)))
    (first,) = await scene.stable(1, sync=False, protocols=(("other", b""), ("mine", metadata)))
    second = await scene.add([first], protocols=(("mine", b""),))
    leader = first if first.leader == first.id else second
    response = {entry.member_id: bytes(entry.metadata) for entry in leader.members}
    scene.equal("the metadata", response, {first.id: metadata, second.id: b""})


@_check(
    "B13c",
    "The leader gets the instance ids",
    versions="5+",
    source="KIP-345",
    expected="the list has each member's own instance id, null for a dynamic one",
)
async def instances_reported(scene: CheckContext) -> None:
    (first,) = await scene.stable(1, sync=False, instance="i-1")
    second = await scene.add([first])
    leader = first if first.leader == first.id else second
    response = {entry.member_id: entry.group_instance_id for entry in leader.members}
    scene.equal("the instance ids", response, {first.id: "i-1", second.id: None})


@_check("B14a", "The leader stays the leader", expected="it rejoins, and leads the next generation too")
async def leader_stays(scene: CheckContext) -> None:
    first = (await scene.stable(1))[0]
    second = await scene.add([first])
    third = await scene.add([first, second])
    scene.equal("the leaders in the responses", {member.leader for member in (first, second, third)}, {first.id})


@_check(
    "B14b",
    "A leader that left is replaced by a member",
    apis=("LeaveGroup",),
    expected="all members that rejoin get the same leader, which is one of them",
)
async def leader_replaced(scene: CheckContext) -> None:
    leader, *others = await scene.stable(3)
    await leader.leave()
    await scene.rebalancing(others[0])
    await asyncio.gather(*(member.enter() for member in others))
    response = {member.leader for member in others}
    scene.equal("the number of leaders in the responses", len(response), 1)
    scene.true("the leader", response <= {member.id for member in others}, "one of those that rejoined", response)


@_check(
    "B15",
    "A follower rejoins unchanged while Stable",
    expected="a response at once with the same generation, and no other member has to rejoin",
)
async def follower_again(scene: CheckContext) -> None:
    leader, follower = await scene.stable(2)
    generation = follower.generation
    response = await scene.expect(follower.join(), "NONE", "JoinGroup of the follower")
    scene.equal("the generation", response.generation_id, generation)
    scene.equal("the leader", response.leader, leader.id)
    await scene.expect(leader.heartbeat(), "NONE", "Heartbeat of the leader")


@_check(
    "B16",
    "The leader rejoins unchanged while Stable",
    expected="a rebalance: the others get REBALANCE_IN_PROGRESS, and the generation grows",
)
async def leader_again(scene: CheckContext) -> None:
    leader, follower = await scene.stable(2)
    generation = leader.generation
    parked = scene.start(leader.join())
    await scene.parked(parked, "the leader's JoinGroup, before the follower's")
    await scene.sees_rebalance(follower, "the follower")
    await follower.join()
    response = await scene.expect(parked, "NONE", "JoinGroup of the leader")
    scene.equal("the generation", response.generation_id, generation + 1)


@_check(
    "B17",
    "A follower rejoins with other metadata while Stable",
    expected="a rebalance, after which the leader gets the new metadata",
)
async def changed(scene: CheckContext) -> None:
    leader, follower = await scene.stable(2)
    generation = leader.generation
    follower.protocols = (("range", subscribe("something-else")),)
    parked = scene.start(follower.join())
    await scene.parked(parked, "the follower's JoinGroup, before the leader's")
    await scene.sees_rebalance(leader, "the leader")
    response = await leader.join()
    await parked
    scene.equal("the generation", response.generation_id, generation + 1)
    metadata = {entry.member_id: bytes(entry.metadata) for entry in response.members}
    scene.equal("the follower's metadata", metadata.get(follower.id), subscribe("something-else"))


@_check("B18a", "One generation more with every completed join", expected="1, 2, 3, and all members agree")
async def counts_up(scene: CheckContext) -> None:
    (first,) = await scene.stable(1, sync=False)
    scene.equal("the first generation", first.generation, 1)
    second = await scene.add([first])
    scene.equal("the second", (first.generation, second.generation), (2, 2))
    third = await scene.add([first, second])
    scene.equal("the third", (first.generation, second.generation, third.generation), (3, 3, 3))


@_check("B18b", "An error has no generation", expected="generation -1, no leader, no members")
async def error_body(scene: CheckContext) -> None:
    response = await scene.member(protocol_type="").join()
    scene.true("the error", response.error_code != 0, "an error", response.error_code)
    scene.equal(
        "generation, leader, members", (response.generation_id, response.leader, response.members), (-1, "", ())
    )


@_check(
    "B19",
    "The first join of a group waits for more members",
    kind=CheckKind.TIMING,
    needs=(Need.SETTINGS,),
    source="KIP-134",
    expected="no response before group.initial.rebalance.delay.ms, and both members of that time are in generation 1",
)
async def initial_delay(scene: CheckContext) -> None:
    delay = scene.target.setting("group.initial.rebalance.delay.ms")
    if not delay or delay > 10_000:
        scene.not_applicable(f"group.initial.rebalance.delay.ms is {delay}; 1 to 10,000 can be seen")
    # On a busy machine one JoinGroup can arrive more than the delay after the other. The broker is right to part them.
    for last in (False, False, True):
        group = scene.new_group()
        first, second = scene.member(group=group), scene.member(group=group)
        started = time.monotonic()
        joining = scene.start(first.enter())
        await asyncio.sleep(delay / 2000)
        entering = scene.start(second.enter())
        await asyncio.wait({joining}, timeout=delay / 1000 + SAME_GENERATION_S)
        took = (time.monotonic() - started) * 1000
        scene.true("the time until it was complete", took >= delay, f"at least {delay} ms", f"{took:.0f} ms")
        _, parked = await asyncio.wait({joining, entering}, timeout=SAME_GENERATION_S)
        if not parked:
            await asyncio.gather(joining, entering)
        if not parked and (first.generation, second.generation) == (1, 1):
            return
        if last:
            limit = f"responses within {SAME_GENERATION_S:g} s of each other"
            scene.true("JoinGroup of both", not parked, limit, "no response")
            scene.equal("the generations", (first.generation, second.generation), (1, 1))


@_check(
    "B20",
    "A dynamic member that does not rejoin",
    kind=CheckKind.TIMING,
    versions="1+",
    expected="after the rebalance timeout the others complete without it, and it is unknown",
)
async def dropped(scene: CheckContext) -> None:
    # The session is long, so that its end is not confused with the end of the rebalance timeout. The rebalance timeout
    # leaves time for the other member's JoinGroup on a busy machine. The broker would be right to refuse a later one.
    session, rebalance_ms = scene.session_within(20_000), scene.stretched(5_000)
    staying, absent = await scene.stable(rebalance_ms=rebalance_ms, session_ms=session)
    newcomer = scene.member(rebalance_ms=rebalance_ms, session_ms=session)
    joining = scene.start(newcomer.enter())
    await scene.rebalancing(staying)
    again = scene.start(staying.join())
    await scene.parked(again, "JoinGroup while one member has not rejoined")
    await asyncio.wait({again}, timeout=rebalance_ms / 1000 + LATE_S)
    waits = f"JoinGroup with a rebalance timeout of {rebalance_ms / 1000:g} s"
    scene.true(waits, again.done(), f"a response at most {LATE_S:g} s later", "none")
    response = await again
    await joining
    scene.error(response.error_code, "NONE", "JoinGroup of the member that rejoined")
    ids = sorted(entry.member_id for entry in (*response.members, *newcomer.members))
    scene.equal("the members of the new generation", ids, sorted((staying.id, newcomer.id)))
    await scene.expect(absent.heartbeat(), "UNKNOWN_MEMBER_ID", "Heartbeat of the one that stayed away")


@_check(
    "B21a",
    "An id that was given and never used",
    kind=CheckKind.TIMING,
    versions="4+",
    source="KIP-394",
    expected="forgotten after its session timeout: UNKNOWN_MEMBER_ID",
)
async def pending_expires(scene: CheckContext) -> None:
    session = scene.session_within(1000)
    member = scene.member(session_ms=session)
    requested = await scene.expect(member.join(), "MEMBER_ID_REQUIRED", "the first JoinGroup")
    await asyncio.sleep(session / 1000 + 1.5)
    response = await member.join(member_id=requested.member_id)
    scene.error(response.error_code, "UNKNOWN_MEMBER_ID", "JoinGroup after the id's session timeout")


@_check(
    "B21b",
    "A join waits for an assigned member id",
    kind=CheckKind.TIMING,
    versions="4+",
    source="KIP-394",
    expected="a generation is not complete while an assigned member id is unused, until that id's session timeout",
)
async def waits_for_pending(scene: CheckContext) -> None:
    session = scene.session_within(2000)
    (leader,) = await scene.stable(1)
    pending = scene.member(session_ms=session)
    await scene.expect(pending.join(), "MEMBER_ID_REQUIRED", "the newcomer's first JoinGroup")
    again = scene.start(leader.join())
    await scene.parked(again, "the leader's JoinGroup while an id is unused")
    response = await scene.expect(again, "NONE", "the leader's JoinGroup after the id's session timeout")
    scene.equal("the members", [entry.member_id for entry in response.members], [leader.id])


@_check(
    "B22",
    "No member rejoins in time, and one rejoins late",
    kind=CheckKind.TIMING,
    versions="5+",
    source="KIP-345",
    expected="no generation is empty: the late static member gets exactly the next one",
)
async def no_empty_generation(scene: CheckContext) -> None:
    session, rebalance_ms = scene.session_within(10_000), scene.stretched(3_000)
    how = {"rebalance_ms": rebalance_ms, "session_ms": session}  # long enough that a busy machine leaves before it ends
    (first,) = await scene.stable(1, sync=False, instance="i-1", **how)
    second = await scene.add([first], instance="i-2", **how)
    await scene.sync([first, second])
    generation = first.generation
    newcomer = scene.member(**how)
    requested = scene.start(newcomer.enter())
    await scene.rebalancing(first)
    requested.cancel()
    await newcomer.leave()
    await asyncio.sleep(rebalance_ms / 1000 + 1.5)
    response = await scene.expect(first.join(), "NONE", "JoinGroup of the static member that comes late")
    scene.equal("the generation", response.generation_id, generation + 1)


@_check(
    "B23",
    "A static member needs no second step",
    versions="5+",
    source="KIP-345",
    expected="NONE with an id and generation 1 at its first JoinGroup",
)
async def static_at_once(scene: CheckContext) -> None:
    response = await scene.member(instance="i-1").join()
    scene.error(response.error_code, "NONE", "JoinGroup of a static member without an id")
    scene.true("the member id", bool(response.member_id), "an id", repr(response.member_id))
    scene.equal("the generation", response.generation_id, 1)


@_check("B24", "Every member gets an id of its own", expected="three members, three ids")
async def ids_differ(scene: CheckContext) -> None:
    members = [scene.member(group=scene.new_group()) for _ in range(3)]
    await asyncio.gather(*(member.enter() for member in members))
    scene.equal("different ids", len({member.id for member in members}), 3)


@_check(
    "B25",
    "A group of another kind",
    expected="the coordinator accepts any protocol type: Connect workers join in the same way",
)
async def connect_group(scene: CheckContext) -> None:
    members = await scene.stable(2, protocol_type="connect", protocols=(("sessioned", b"\x00\x01"),))
    scene.equal("the protocol", {member.protocol_name for member in members}, {"sessioned"})
    scene.equal("the assignments", [member.assignment for member in members], [b"for 0", b"for 1"])


@_check(
    "B26", "A reason for joining", versions="8+", source="KIP-800", expected="accepted, a long one and a null one alike"
)
async def reasons(scene: CheckContext) -> None:
    for reason in ("because", "long " * 100, None):
        response = await scene.member(group=scene.new_group(), instance="i").join(reason=reason)
        scene.error(response.error_code, "NONE", f"JoinGroup with a reason of {len(reason or '')} letters")


@_check(
    "B27",
    "A newcomer makes the others rejoin",
    expected="its JoinGroup is held back until every member has rejoined, then all are in one generation",
)
async def newcomer(scene: CheckContext) -> None:
    leader, follower = await scene.stable(2)
    third = scene.member()
    entering = scene.start(third.enter())
    await scene.rebalancing(leader)
    rejoined = scene.start(leader.join())
    await scene.parked(entering, "the newcomer's JoinGroup, with one of two rejoined")
    last = await follower.join()
    await asyncio.gather(entering, rejoined)
    scene.equal("the generations", {leader.generation, last.generation_id, third.generation}, {3})


@_check(
    "B28",
    "An emptied group keeps its generation",
    apis=("LeaveGroup",),
    expected="a member that joins an emptied group gets a higher generation than the last, not 1 again",
)
async def goes_on_counting(scene: CheckContext) -> None:
    first, second = await scene.stable(2)
    await first.leave()
    await second.leave()
    (newcomer,) = await scene.stable(1, sync=False)
    scene.true("the generation", newcomer.generation > 2, "more than 2", newcomer.generation)
