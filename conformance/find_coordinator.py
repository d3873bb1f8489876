"""A, second half: FindCoordinator, and the responses of brokers that are not the coordinator."""

from collections.abc import Callable
from functools import partial
from typing import Any

from kohort.conformance.broker_under_test import metadata_request
from kohort.conformance.check import CheckKind, Need, Section
from kohort.conformance.check_context import CheckContext
from kohort.conformance.request_builders import GROUP_REQUESTS, GroupRequest

SECTION = Section("A", "ApiVersions, FindCoordinator and the connection", "FindCoordinator")
_check = partial(SECTION.check, source="protocol guide")
GROUP, TRANSACTION, SHARE = 0, 1, 2


async def find(scene: CheckContext, key: str, key_type: int = GROUP) -> Any:
    """Send one look-up. The result has error_code, node_id, host and port in every version."""
    if scene.version >= 4:
        response = await scene.send("FindCoordinator", key_type=key_type, coordinator_keys=(key,))
        scene.equal("entries in the response", len(response.coordinators), 1)
        return response.coordinators[0]
    values: dict[str, object] = {"key": key} | ({"key_type": key_type} if scene.version >= 1 else {})
    return await scene.send("FindCoordinator", values)


@_check(
    "A6a",
    "The first look-up of a cluster",
    once=True,
    source="Apache Kafka",
    expected="COORDINATOR_NOT_AVAILABLE until the offsets topic is there, then NONE",
)
async def first_lookups(scene: CheckContext) -> None:
    *before, last = scene.target.first_lookups
    scene.equal("the last look-up before the first check", last, "NONE")
    odd = sorted(set(before) - {"COORDINATOR_NOT_AVAILABLE"})
    scene.equal("other codes while the coordinator was not there", odd, [])


@_check(
    "A6b",
    "A group's coordinator",
    expected="NONE, and a node that Metadata lists under the same id, host and port",
)
async def names_a_node(scene: CheckContext) -> None:
    entry = await scene.expect(find(scene, scene.group), "NONE", "FindCoordinator")
    metadata = await scene.send("Metadata", topics=(), version=scene.target.version("Metadata", at_most=7))
    nodes = {node.node_id: (node.host, node.port) for node in metadata.brokers}
    scene.equal("the coordinator's address", (entry.host, entry.port), nodes.get(entry.node_id))


@_check("A6c", "The same group twice", expected="the same node both times")
async def steady(scene: CheckContext) -> None:
    first, second = await find(scene, scene.group), await find(scene, scene.group)
    scene.error(first.error_code, "NONE", "FindCoordinator")
    scene.equal("the second look-up's node", second.node_id, first.node_id)


@_check(
    "A15",
    "Metadata of a topic",
    subject="Metadata",
    needs=(Need.TOPIC,),
    expected="readable to the last byte: NONE, every partition once, each with a leader among the brokers",
)
async def topic_metadata(scene: CheckContext) -> None:
    response = await scene.send("Metadata", metadata_request(scene.version, scene.topic.name, create=False))
    nodes = {node.node_id for node in response.brokers}
    (described,) = response.topics
    scene.error(described.error_code, "NONE", "the topic")
    indexes = sorted(entry.partition_index for entry in described.partitions)
    scene.equal("the partitions", indexes, list(range(scene.topic.partitions)))
    strangers = [entry.leader_id for entry in described.partitions if entry.leader_id not in nodes]
    scene.equal("leaders that are no brokers", strangers, [])


@_check(
    "A7",
    "Several keys in one look-up",
    versions="4+",
    source="KIP-699",
    expected="one entry a key, each with its own error and node",
)
async def several_keys(scene: CheckContext) -> None:
    keys = tuple(scene.name() for _ in range(3))
    response = await scene.send("FindCoordinator", key_type=GROUP, coordinator_keys=keys)
    scene.equal("the keys in the response", sorted(entry.key for entry in response.coordinators), sorted(keys))
    for entry in response.coordinators:
        scene.error(entry.error_code, "NONE", f"the entry of {entry.key}")
        scene.true("its node", entry.node_id in scene.target.nodes, sorted(scene.target.nodes), entry.node_id)


@_check("A8a", "Key type 2 (share) before version 6", versions="1-5", source="KIP-932", expected="INVALID_REQUEST")
async def share_too_early(scene: CheckContext) -> None:
    entry = await find(scene, f"{scene.group}:AAAAAAAAAAAAAAAAAAAAAA:0", SHARE)
    scene.error(entry.error_code, "INVALID_REQUEST", "FindCoordinator with key type 2")


@_check("A8b", "An undefined key type", versions="1+", expected="INVALID_REQUEST")
async def unknown_key_type(scene: CheckContext) -> None:
    await scene.expect(find(scene, scene.group, 99), "INVALID_REQUEST", "FindCoordinator with key type 99")


def _not_coordinator(row: str, request: GroupRequest) -> None:
    @_check(
        row,
        f"{request.api} at a broker that is not the coordinator",
        subject=request.api,
        versions=request.versions,
        needs=(Need.CLUSTER, *request.needs),
        expected="NOT_COORDINATOR",
    )
    async def elsewhere(scene: CheckContext) -> None:
        home = await scene.coordinator(scene.group)
        other = next(node for node in scene.target.nodes if node != home)
        response = await scene.send(request.api, request.values(scene), node=other)
        scene.error(request.code(response), "NOT_COORDINATOR", f"{request.api} at node {other}")


def _not_allowed(row: str, request: GroupRequest) -> None:
    @_check(
        row,
        f"{request.api} without rights on the group",
        subject=request.api,
        versions=request.versions,
        source="KIP-11",
        needs=(Need.STRANGER, *request.needs),
        kind=CheckKind.CONFIG,
        expected="GROUP_AUTHORIZATION_FAILED",
    )
    async def refused(scene: CheckContext) -> None:
        response = await scene.send(request.api, request.values(scene), access=scene.target.stranger)
        scene.error(request.code(response), "GROUP_AUTHORIZATION_FAILED", f"{request.api} by a stranger")


def _enter(make: Callable[[str, GroupRequest], None], row: str) -> None:
    for letter, request in zip("bcdefghijklmnop", GROUP_REQUESTS, strict=False):
        make(f"{row}{letter}", request)


@_check(
    "A11a",
    "FindCoordinator without rights on the group",
    source="KIP-11",
    needs=(Need.STRANGER,),
    kind=CheckKind.CONFIG,
    expected="GROUP_AUTHORIZATION_FAILED",
)
async def find_refused(scene: CheckContext) -> None:
    values: dict[str, object] = {"key": scene.group}
    if scene.version >= 4:
        values = {"key_type": GROUP, "coordinator_keys": (scene.group,)}
    response = await scene.send("FindCoordinator", values, access=scene.target.stranger)
    code = response.coordinators[0].error_code if scene.version >= 4 else response.error_code
    scene.error(code, "GROUP_AUTHORIZATION_FAILED", "FindCoordinator by a stranger")


_enter(_not_coordinator, "A9")
_enter(_not_allowed, "A11")
