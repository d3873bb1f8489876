"""H: DescribeGroups, ListGroups and DeleteGroups."""

from functools import partial

from kohort.conformance.broker_client import CLIENT_ID
from kohort.conformance.check import CheckKind, Need, Section
from kohort.conformance.check_context import CheckContext
from kohort.conformance.member import subscribe
from kohort.conformance.request_builders import commit, describe, describe_one, fetch_offset

SECTION = Section("H", "DescribeGroups, ListGroups and DeleteGroups", "DescribeGroups")
_check = partial(SECTION.check, source="protocol guide")
NOT_REQUESTED = -(2**31)
_list_check = partial(_check, subject="ListGroups")
_delete_check = partial(SECTION.check, subject="DeleteGroups", source="KIP-229")


@_check(
    "H1",
    "An unknown group",
    source="KIP-1043",
    kind=CheckKind.VERSIONED,
    expected="state Dead without members; NONE up to version 5, GROUP_ID_NOT_FOUND from version 6 on",
)
async def unknown(scene: CheckContext) -> None:
    response = await describe_one(scene)
    scene.error(
        response.error_code, "GROUP_ID_NOT_FOUND" if scene.version >= 6 else "NONE", "DescribeGroups of a new group"
    )
    scene.equal("state and members", (response.group_state, response.members), ("Dead", ()))


@_check(
    "H2a",
    "A Stable group",
    expected="state, type, protocol, and each member's metadata, assignment, client id and host",
)
async def stable(scene: CheckContext) -> None:
    metadata = subscribe("a-topic")
    members = await scene.stable(2, protocols=(("range", metadata),))
    response = await scene.expect(describe_one(scene), "NONE", "DescribeGroups")
    scene.equal(
        "state, type and protocol",
        (response.group_state, response.protocol_type, response.protocol_data),
        ("Stable", "consumer", "range"),
    )
    found = {
        entry.member_id: (bytes(entry.member_metadata), bytes(entry.member_assignment)) for entry in response.members
    }
    scene.equal("metadata and assignment", found, {member.id: (metadata, member.assignment) for member in members})
    scene.equal("the client ids", {entry.client_id for entry in response.members}, {CLIENT_ID})
    scene.true("the hosts", all(entry.client_host for entry in response.members), "a host each", "an empty one")


@_check(
    "H2b",
    "A group that waits for its assignment",
    expected="CompletingRebalance; the members are listed, their metadata and assignments are empty",
)
async def completing(scene: CheckContext) -> None:
    members = await scene.stable(2, sync=False)
    response = await describe_one(scene)
    scene.equal("the state", response.group_state, "CompletingRebalance")
    scene.equal(
        "the members", sorted(entry.member_id for entry in response.members), sorted(member.id for member in members)
    )
    contents = {(bytes(entry.member_metadata), bytes(entry.member_assignment)) for entry in response.members}
    scene.equal("metadata and assignments", contents, {(b"", b"")})
    scene.equal("the protocol", response.protocol_data, "")


@_check(
    "H2c",
    "A group whose members are joining",
    expected="PreparingRebalance; the metadata is empty, as no protocol is chosen",
    note="Apache Kafka up to 3.9 empties the assignments too, and 4.x has those of the previous generation. No "
    "specification covers it, so only the metadata is judged.",
)
async def preparing(scene: CheckContext) -> None:
    leader, follower = await scene.stable(2)
    scene.start(leader.join())
    await scene.rebalancing(follower)
    response = await describe_one(scene)
    scene.equal("the state", response.group_state, "PreparingRebalance")
    scene.equal("the members' metadata", {bytes(entry.member_metadata) for entry in response.members}, {b""})


@_check("H2d", "A group that only keeps offsets", needs=(Need.TOPIC,), expected="Empty, without a protocol type")
async def simple(scene: CheckContext) -> None:
    await commit(scene, {(scene.topic, 0): 1})
    response = await scene.expect(describe_one(scene), "NONE", "DescribeGroups")
    scene.equal(
        "state, type, members", (response.group_state, response.protocol_type, response.members), ("Empty", "", ())
    )


@_check("H2e", "Several groups in one request", expected="an entry each, known or not")
async def several(scene: CheckContext) -> None:
    if len(scene.target.nodes) > 1:
        scene.not_applicable("in a cluster two groups may have two coordinators")
    await scene.stable(1)
    other = scene.new_group()
    response = {entry.group_id: entry.group_state for entry in await describe(scene, scene.group, other)}
    scene.equal("the states", response, {scene.group: "Stable", other: "Dead"})


@_check(
    "H2f",
    "Authorised operations",
    versions="3+",
    source="KIP-430",
    expected="-2**31 if not requested, a bit field with READ if requested",
)
async def operations(scene: CheckContext) -> None:
    await scene.stable(1)
    (without,) = await describe(scene, scene.group)
    (response,) = await describe(scene, scene.group, authorized=True)
    scene.equal("not requested", without.authorized_operations, NOT_REQUESTED)
    read = 1 << 3  # AclOperation.READ
    scene.true(
        "requested",
        response.authorized_operations > 0 and bool(response.authorized_operations & read),
        "READ",
        response.authorized_operations,
    )


# -- ListGroups -------------------------------------------------------------------------------------------------------


async def _list(scene: CheckContext, **filters: tuple[str, ...]) -> dict[str, object]:
    """Return the groups of every broker, by id."""
    version = scene.version_of("ListGroups")
    values: dict[str, object] = {}
    if version >= 4:
        values["states_filter"] = filters.get("states", ())
    if version >= 5:
        values["types_filter"] = filters.get("types", ())
    found: dict[str, object] = {}
    for node in scene.target.nodes if len(scene.target.nodes) > 1 else (None,):
        response = await scene.expect(scene.send("ListGroups", values, node=node), "NONE", "ListGroups")
        found |= {entry.group_id: entry for entry in response.groups}
    return found


@_list_check(
    "H3a",
    "An active group is listed",
    kind=CheckKind.VERSIONED,
    expected="its id and protocol type; its state from version 4 on, its type from version 5 on",
)
async def listed(scene: CheckContext) -> None:
    await scene.stable(1)
    entry = (await _list(scene)).get(scene.group)
    scene.true("the group", entry is not None, "listed", "not listed")
    scene.equal("the protocol type", getattr(entry, "protocol_type", None), "consumer")
    if scene.version >= 4:
        scene.equal("the state", getattr(entry, "group_state", None), "Stable")
    if scene.version >= 5:
        scene.equal("the type", str(getattr(entry, "group_type", "")).lower(), "classic")


@_list_check(
    "H3b",
    "Filter by state",
    versions="4+",
    source="KIP-518",
    needs=(Need.TOPIC,),
    expected="only groups in the requested states",
)
async def by_state(scene: CheckContext) -> None:
    await scene.stable(1)
    empty = scene.new_group()
    await commit(scene, {(scene.topic, 0): 1}, group=empty)
    for states, expected in (
        (("Stable",), (True, False)),
        (("Empty",), (False, True)),
        (("Stable", "Empty"), (True, True)),
    ):
        found = await _list(scene, states=states)
        scene.equal(f"Stable and Empty group listed under {states}", (scene.group in found, empty in found), expected)


@_list_check("H3c", "Filter by type", versions="5+", source="KIP-848", expected="only groups of the requested types")
async def by_type(scene: CheckContext) -> None:
    await scene.stable(1)
    for types, expected in ((("classic",), True), (("consumer",), False), ((), True)):
        found = await _list(scene, types=types)
        scene.equal(f"the classic group listed under {types}", scene.group in found, expected)


@_list_check("H3d", "An undefined state", versions="4+", source="KIP-518", expected="NONE, and no groups")
async def unknown_state(scene: CheckContext) -> None:
    await scene.stable(1)
    scene.equal("the groups", sorted(await _list(scene, states=("Purple",))), [])


# -- DeleteGroups -----------------------------------------------------------------------------------------------------


async def _remove(scene: CheckContext, *groups: str) -> dict[str, int]:
    response = await scene.send("DeleteGroups", groups_names=groups)
    return {entry.group_id: entry.error_code for entry in response.results}


@_delete_check("H4a", "An active group", expected="NON_EMPTY_GROUP, and its members stay")
async def active(scene: CheckContext) -> None:
    (leader,) = await scene.stable(1)
    codes = await _remove(scene, scene.group)
    scene.error(codes[scene.group], "NON_EMPTY_GROUP", "DeleteGroups of an active group")
    await scene.expect(leader.heartbeat(), "NONE", "Heartbeat of its member")


@_delete_check("H4b", "An unknown group", expected="GROUP_ID_NOT_FOUND")
async def unknown_group(scene: CheckContext) -> None:
    codes = await _remove(scene, scene.group)
    scene.error(codes[scene.group], "GROUP_ID_NOT_FOUND", "DeleteGroups of a new group")


@_delete_check(
    "H5",
    "An emptied group",
    needs=(Need.TOPIC,),
    apis=("LeaveGroup", "OffsetFetch 2+"),
    expected="NONE; its offsets are gone, and it is Dead",
)
async def emptied(scene: CheckContext) -> None:
    (leader,) = await scene.stable(1)
    await commit(scene, {(scene.topic, 0): 8}, **leader.identity)
    await leader.leave()
    scene.error((await _remove(scene, scene.group))[scene.group], "NONE", "DeleteGroups of an emptied group")
    scene.equal("the offset", await fetch_offset(scene), -1)
    scene.equal("the state", (await describe_one(scene)).group_state, "Dead")


@_delete_check("H6", "Good and bad groups in one request", needs=(Need.TOPIC,), expected="a code of its own for each")
async def mixed(scene: CheckContext) -> None:
    if len(scene.target.nodes) > 1:
        scene.not_applicable("in a cluster two groups may have two coordinators")
    await scene.stable(1)
    empty, unknown = scene.new_group(), scene.new_group()
    await commit(scene, {(scene.topic, 0): 1}, group=empty)
    codes = await _remove(scene, scene.group, empty, unknown)
    for group, expected in ((scene.group, "NON_EMPTY_GROUP"), (empty, "NONE"), (unknown, "GROUP_ID_NOT_FOUND")):
        scene.error(codes[group], expected, f"DeleteGroups of {group}")
