"""N: unusual and malformed bytes."""

import asyncio
from functools import partial

from kohort.conformance.apiversions import CLOSE_TIMEOUT_S, closes
from kohort.conformance.broker_client import request_bytes, request_for
from kohort.conformance.check import CheckKind, Need, Section
from kohort.conformance.check_context import CheckContext
from kohort.conformance.member import subscribe
from kohort.conformance.request_builders import GROUP_REQUESTS, GroupRequest, describe_one
from kohort.protocol.catalogue import API
from kohort.protocol.errors import ErrorCode
from kohort.protocol.framing import response_header_version

SECTION = Section("N", "Malformed and unusual bytes, restarts", "JoinGroup")
_check = partial(SECTION.check, source="protocol guide")
ODD_TAG = b"\x01\xe7\x07\x03odd"  # one tagged field, number 999, of three bytes
HUGE = b"\x00\x01\x7f\xff\xff\xff"  # subscription v1 that announces 2**31 - 1 topics and has none


@_check(
    "N1a",
    "Consumer metadata that is no subscription",
    expected="opaque to the coordinator: the member joins, is listed and synced with it",
)
async def garbage(scene: CheckContext) -> None:
    members = await scene.stable(2, protocols=(("range", b"\x00\x01\x00"),))
    scene.equal("the assignments", [member.assignment for member in members], [b"for 0", b"for 1"])
    response = {bytes(entry.metadata) for entry in members[0].members}
    scene.equal("the metadata in the leader's response", response, {b"\x00\x01\x00"})


@_check(
    "N1b",
    "Consumer metadata that announces two thousand million topics",
    once=True,
    needs=(Need.TRACES,),
    kind=CheckKind.SHOULD,
    expected="opaque to the coordinator, like any metadata: a response to the member within a second",
    note="Apache Kafka fails to parse it when the generation completes. Then no JoinGroup of the group gets a "
    "response, and the group cannot be deleted, until its coordinator is reloaded.",
)
async def announces_too_much(scene: CheckContext) -> None:
    member = scene.member(protocols=(("range", HUGE),))
    response = await member.join(timeout_s=3.0)
    if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        response = await member.join(member_id=response.member_id, timeout_s=3.0)
    scene.error(response.error_code, "NONE or INCONSISTENT_GROUP_PROTOCOL", "JoinGroup with this metadata")


@_check(
    "N1c",
    "Other groups, while one group has invalid metadata",
    once=True,
    needs=(Need.TRACES,),
    expected="they join, sync and send heartbeats without errors",
)
async def others_survive(scene: CheckContext) -> None:
    bad = scene.member(
        group=scene.new_group(), instance="i-1" if scene.version >= 5 else None, protocols=(("range", HUGE),)
    )
    scene.start(bad.join(timeout_s=2.0))
    await asyncio.sleep(0.1)
    for member in await scene.stable(2):
        await scene.expect(member.heartbeat(), "NONE", "Heartbeat in another group")


@_check(
    "N2",
    "A subscription of a later version, with more fields",
    source="KIP-429",
    expected="taken as it is: the version is the members' own business",
)
async def later_subscription(scene: CheckContext) -> None:
    metadata = b"\x00\x63" + subscribe("a-topic")[2:] + b"from the future"
    (leader,) = await scene.stable(1, protocols=(("range", metadata),))
    scene.equal("the metadata in the leader's response", bytes(leader.members[0].metadata), metadata)
    await scene.expect(leader.heartbeat(), "NONE", "Heartbeat of the member")


def _tags(row: str, request: GroupRequest) -> None:
    flexible = API[request.api].request.flexible_since

    @_check(
        row,
        f"{request.api} with undefined tagged fields",
        subject=request.api,
        versions=f"{flexible}+",
        source="KIP-482",
        needs=request.needs,
        expected="ignored, in the header and at the end of the body",
    )
    async def tagged(scene: CheckContext) -> None:
        api, version = API[request.api], scene.version
        body = api.request.build(request.values(scene), version)
        assert body.endswith(b"\0"), "a flexible request ends with its tagged fields, of which it has none"
        peer = await scene.connection(await scene.coordinator(scene.group))
        plain = request_for(request.api, version, request.values(scene))
        odd = request_bytes(api.key, version, body[:-1] + ODD_TAG, tags=ODD_TAG)
        codes = []
        for data in (plain, odd):
            (response,) = await peer.raw(data, f"{request.api} v{version}", CLOSE_TIMEOUT_S)
            at = 4 + response_header_version(api.response, version)
            codes.append(request.code(api.response.parse_from(response, at, version)[0]))
        scene.equal("the code, without and with odd tags", codes[1], codes[0])


for _letter, _request in zip("abcdefgh", GROUP_REQUESTS, strict=True):
    _tags(f"N4{_letter}", _request)


def _throttled(row: str, request: GroupRequest, versions: str) -> None:
    @_check(
        row,
        f"The throttle time of {request.api}",
        subject=request.api,
        versions=versions,
        source="KIP-219",
        needs=request.needs,
        expected="0 or more milliseconds",
    )
    async def throttled(scene: CheckContext) -> None:
        response = await scene.send(request.api, request.values(scene))
        scene.true("throttle_time_ms", response.throttle_time_ms >= 0, "0 or more", response.throttle_time_ms)


_THROTTLED_SINCE = {
    "JoinGroup": "2+",
    "SyncGroup": "1+",
    "Heartbeat": "1+",
    "LeaveGroup": "1+",
    "OffsetCommit": "3+",
    "OffsetFetch": "3+",
    "DescribeGroups": "1+",
    "DeleteGroups": "0+",
}
for _letter, _request in zip("abcdefgh", GROUP_REQUESTS, strict=True):
    _throttled(f"N9{_letter}", _request, _THROTTLED_SINCE[_request.api])


@_check(
    "N5a",
    "A frame longer than anything",
    subject="ApiVersions",
    once=True,
    source="socket.request.max.bytes",
    kind=CheckKind.SHOULD,
    expected="the connection is closed, and other connections are served",
)
async def long_frame(scene: CheckContext) -> None:
    await closes(scene, b"\x7f\xff\xff\xff\x00\x12\x00\x00", "a frame of 2 GiB")


@_check(
    "N5b",
    "A frame of negative length",
    subject="ApiVersions",
    once=True,
    expected="the connection is closed, and other connections are served",
)
async def negative_frame(scene: CheckContext) -> None:
    await closes(scene, b"\xff\xff\xff\xff\x00\x12\x00\x00", "a frame of -1 bytes")


@_check(
    "N5c",
    "A body that ends in the middle",
    subject="Heartbeat",
    expected="the connection is closed, and other connections are served",
)
async def short_body(scene: CheckContext) -> None:
    body = API["Heartbeat"].request.build(
        {"group_id": scene.group, "generation_id": 1, "member_id": "unknown-member"}, scene.version
    )
    tags = b"\0" if API["Heartbeat"].request.is_flexible(scene.version) else b""
    data = request_bytes(API["Heartbeat"].key, scene.version, body[:-4], tags=tags)
    await closes(scene, data, f"Heartbeat v{scene.version} without its last bytes")


@_check(
    "N5d",
    "An array that announces more than the frame can hold",
    subject="JoinGroup",
    expected="the connection is closed, and other connections are served",
)
async def huge_array(scene: CheckContext) -> None:
    version, request = scene.version, API["JoinGroup"].request
    values: dict[str, object] = {
        "group_id": scene.group,
        "session_timeout_ms": scene.target.session_ms,
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": (),
    }
    body = request.build(values, version)
    if request.is_flexible(version):
        tail = b"\x01" + (b"\x00" if version >= 8 else b"") + b"\x00"  # no protocols, null reason, no tags
        assert body.endswith(tail)
        body = body[: -len(tail)] + b"\xff\xff\xff\xff\x07" + tail[1:]
    else:
        assert body.endswith(b"\0\0\0\0")
        body = body[:-4] + b"\x7f\xff\xff\xff"
    tags = b"\0" if request.is_flexible(version) else b""
    await closes(scene, request_bytes(11, version, body, tags=tags), f"JoinGroup v{version} with 2**31 - 1 protocols")


@_check(
    "N6",
    "A group id beyond ASCII",
    apis=("DescribeGroups",),
    expected="joined and described under the same letters",
)
async def letters(scene: CheckContext) -> None:
    group = f"{scene.new_group()}-läuft-✓-数据"
    scene.target.made_groups[group] = None
    await scene.stable(1, group=group)
    scene.equal("the state", (await describe_one(scene, group)).group_state, "Stable")


@_check("N7", "An empty assignment", subject="SyncGroup", expected="comes back as no bytes, NONE")
async def no_bytes(scene: CheckContext) -> None:
    (leader,) = await scene.stable(1, sync=False)
    response = await scene.expect(leader.sync({leader.id: b""}), "NONE", "SyncGroup")
    scene.equal("the assignment", bytes(response.assignment), b"")


@_check(
    "N8",
    "A list with nothing in it",
    subject="OffsetCommit",
    versions="2+",
    needs=(Need.TOPIC,),
    expected="a response with an empty list",
)
async def nothing(scene: CheckContext) -> None:
    response = await scene.send("OffsetCommit", group_id=scene.group, member_id="", topics=())
    scene.equal("the topics", response.topics, ())
