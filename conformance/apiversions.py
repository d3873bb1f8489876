"""A, first half: ApiVersions, and requests that no broker can serve."""

from functools import partial

from kohort.conformance.broker_client import request_bytes, request_for
from kohort.conformance.check import CheckKind, Section
from kohort.conformance.check_context import CheckContext
from kohort.conformance.errors import PeerClosed
from kohort.protocol.catalogue import API

SECTION = Section("A", "ApiVersions, FindCoordinator and the connection", "ApiVersions")
_check = partial(SECTION.check, source="protocol guide")
NAMED = {"client_software_name": "kohort", "client_software_version": "1.0"}
CLOSE_TIMEOUT_S = 5.0
_KEY = API["ApiVersions"].key


def _values(version: int, **changes: object) -> dict[str, object]:
    return {**NAMED, **changes} if version >= 3 else {}


async def closes(scene: CheckContext, data: bytes, what: str) -> None:
    """Check that the broker closes the connection on these bytes without a response, and still serves others."""
    peer = await scene.connection(fresh=True)
    try:
        responses = await peer.raw(data, what, CLOSE_TIMEOUT_S)
    except PeerClosed:
        pass
    else:
        scene.true(what, False, "the connection closed", f"a response of {len(responses[0])} bytes")
    await scene.expect(scene.send("ApiVersions", version=0), "NONE", "ApiVersions on a new connection afterwards")


@_check(
    "A1",
    "A version from the future",
    once=True,
    source="KIP-511",
    expected="a v0 body with UNSUPPORTED_VERSION that names ApiVersions' own range",
)
async def future_version(scene: CheckContext) -> None:
    peer = await scene.connection()
    data = request_bytes(_KEY, 32767, b"\x02x\x02y\x00", tags=b"\0")
    (response,) = await peer.raw(data, "ApiVersions v32767", CLOSE_TIMEOUT_S)
    parsed, end = API["ApiVersions"].response.parse_from(response, 4, 0)
    scene.equal("the body read as version 0 ends with the frame", end, len(response))
    scene.error(parsed.error_code, "UNSUPPORTED_VERSION", "ApiVersions v32767")
    ranges = {entry.api_key: (entry.min_version, entry.max_version) for entry in parsed.api_keys}
    scene.equal("its own range", ranges.get(_KEY), scene.target.ranges[_KEY])


@_check(
    "A1b",
    "After UNSUPPORTED_VERSION the connection lives",
    once=True,
    source="KIP-511",
    kind=CheckKind.SHOULD,
    expected="a second ApiVersions, in a version of the first response, gets a response on the same connection",
)
async def lives_after_unsupported(scene: CheckContext) -> None:
    peer = await scene.connection()
    await peer.raw(request_bytes(_KEY, 32767, b"\x02x\x02y\x00", tags=b"\0"), "ApiVersions v32767", CLOSE_TIMEOUT_S)
    response = await peer.send("ApiVersions", scene.version, _values(scene.version), CLOSE_TIMEOUT_S)
    scene.error(response.error_code, "NONE", "the second ApiVersions")


def _invalid(row: str, title: str, **changes: object) -> None:
    @_check(row, title, versions="3+", source="KIP-511", expected="INVALID_REQUEST")
    async def invalid(scene: CheckContext) -> None:
        response = await scene.send("ApiVersions", _values(scene.version, **changes))
        scene.error(response.error_code, "INVALID_REQUEST", f"ApiVersions with {changes}")


_invalid("A2a", "Empty client software name", client_software_name="")
_invalid("A2b", "Empty client software version", client_software_version="")
_invalid("A2c", "Client software name with characters outside [a-zA-Z0-9.-]", client_software_name="-bad name!")


@_check(
    "A3",
    "The response header has no tagged fields in any version",
    source="KIP-511",
    expected="after the correlation id the body starts at once, and fills the frame",
)
async def plain_header(scene: CheckContext) -> None:
    peer = await scene.connection()
    data = request_for("ApiVersions", scene.version, _values(scene.version), correlation_id=99)
    (response,) = await peer.raw(data, f"ApiVersions v{scene.version}", CLOSE_TIMEOUT_S)
    scene.equal("the correlation id", int.from_bytes(response[:4], "big"), 99)
    parsed, end = API["ApiVersions"].response.parse_from(response, 4, scene.version)
    scene.equal("the body ends with the frame", end, len(response))
    scene.error(parsed.error_code, "NONE", "ApiVersions")


@_check("A4a", "Unknown API key", once=True, expected="the connection is closed, and other connections are served")
async def unknown_key(scene: CheckContext) -> None:
    await closes(scene, request_bytes(32000, 0, b""), "API key 32000")


@_check(
    "A4b",
    "A version above the highest",
    subject="Heartbeat",
    once=True,
    source="KIP-35",
    expected="the connection is closed, and other connections are served",
)
async def version_above(scene: CheckContext) -> None:
    key = API["Heartbeat"].key
    high = scene.target.ranges[key][1]
    body = API["Heartbeat"].request.build(
        {"group_id": scene.group, "generation_id": 1, "member_id": "x"}, scene.version
    )
    await closes(scene, request_bytes(key, high + 1, body, tags=b"\0"), f"Heartbeat v{high + 1}")


@_check(
    "A4c",
    "A header that ends in the middle",
    once=True,
    expected="the connection is closed, and other connections are served",
)
async def short_header(scene: CheckContext) -> None:
    await closes(scene, (6).to_bytes(4, "big") + b"\x00\x12\x00\x00\x00\x00", "a header of six bytes")


@_check("A5", "Null client id", expected="served as any other")
async def null_client_id(scene: CheckContext) -> None:
    peer = await scene.connection()
    data = request_for("ApiVersions", scene.version, _values(scene.version), client_id=None)
    (response,) = await peer.raw(data, f"ApiVersions v{scene.version}, client id null", CLOSE_TIMEOUT_S)
    parsed, _ = API["ApiVersions"].response.parse_from(response, 4, scene.version)
    scene.error(parsed.error_code, "NONE", "ApiVersions with a null client id")


@_check(
    "A12",
    "The ranges are ranges, and the same in every version",
    source="KIP-35",
    expected="each key once, lowest <= highest, equal to the ranges of version 0",
)
async def sane_ranges(scene: CheckContext) -> None:
    response = await scene.send("ApiVersions", _values(scene.version))
    keys = [entry.api_key for entry in response.api_keys]
    scene.equal("each key once", sorted(set(keys)), sorted(keys))
    upside_down = [entry.api_key for entry in response.api_keys if not 0 <= entry.min_version <= entry.max_version]
    scene.equal("keys with a range upside down", upside_down, [])
    ranges = {entry.api_key: (entry.min_version, entry.max_version) for entry in response.api_keys}
    scene.equal("the ranges, against version 0's", ranges, scene.target.ranges)


@_check("A13", "Three requests in one write", expected="three responses, in the order of the requests")
async def in_order(scene: CheckContext) -> None:
    peer = await scene.connection()
    ids = (5, 2**31 - 1, 6)
    data = b"".join(
        request_for("ApiVersions", scene.version, _values(scene.version), correlation_id=identity) for identity in ids
    )
    responses = await peer.raw(data, f"three ApiVersions v{scene.version}", CLOSE_TIMEOUT_S, responses=3)
    scene.equal("the correlation ids", tuple(int.from_bytes(response[:4], "big") for response in responses), ids)


@_check("A14", "A request byte by byte", once=True, expected="the same response as to one segment")
async def dribble(scene: CheckContext) -> None:
    peer = await scene.connection()
    data = request_for("ApiVersions", scene.version, _values(scene.version), correlation_id=3)
    await peer.dribble(data[:-1])
    (response,) = await peer.raw(data[-1:], "the last byte of ApiVersions", CLOSE_TIMEOUT_S)
    scene.equal("the correlation id", int.from_bytes(response[:4], "big"), 3)


def _expectation(row: str, title: str, expected: str, *, cluster_id: str | None = None, added: int = 0) -> None:
    """Declare a check of a request that names a broker: of another cluster with `cluster_id`, or with another id."""

    @_check(row, title, versions="5+", source="KIP-1242", expected=expected)
    async def names_a_broker(scene: CheckContext) -> None:
        target = scene.target
        node = min(target.nodes)
        values = _values(scene.version, cluster_id=cluster_id or target.cluster_id, node_id=node + added)
        response = await scene.send("ApiVersions", values, node=node if len(target.nodes) > 1 else None)
        scene.error(response.error_code, expected, f"ApiVersions for broker {values['node_id']}")


_expectation("A16a", "The broker that the client expects", "NONE")
_expectation("A16b", "A broker of another cluster", "REBOOTSTRAP_REQUIRED", cluster_id="another-cluster")
_expectation("A16c", "Another broker of the cluster", "REBOOTSTRAP_REQUIRED", added=1000)


@_check("A16d", "A broker without a cluster", versions="5+", source="KIP-1242", expected="INVALID_REQUEST")
async def names_no_cluster(scene: CheckContext) -> None:
    response = await scene.send("ApiVersions", _values(scene.version, node_id=min(scene.target.nodes)))
    scene.error(response.error_code, "INVALID_REQUEST", "ApiVersions for a broker of no cluster")


@_check("A16e", "A cluster without a broker", versions="5+", source="KIP-1242", expected="INVALID_REQUEST")
async def names_no_broker(scene: CheckContext) -> None:
    response = await scene.send("ApiVersions", _values(scene.version, cluster_id=scene.target.cluster_id))
    scene.error(response.error_code, "INVALID_REQUEST", "ApiVersions for a cluster")
