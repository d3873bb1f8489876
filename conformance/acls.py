"""F9: a user with READ permission on some topics only. The run grants and revokes its permissions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from kohort.conformance.check import CheckKind, Need, Section
from kohort.conformance.check_context import CheckContext
from kohort.conformance.request_builders import fetch
from kohort.protocol.errors import error_name

SECTION = Section("F", "OffsetCommit", "OffsetCommit")
TOPIC_RESOURCE, GROUP_RESOURCE = 2, 3
LITERAL, READ, ALLOW = 3, 3, 3
GRANTED_WITHIN_S = 15.0
MAY_NOT = "TOPIC_AUTHORIZATION_FAILED"


@asynccontextmanager
async def _granted(scene: CheckContext, *things: tuple[int, str]) -> AsyncIterator[None]:
    """Allow the `--stranger` user to READ these during the block. Ends the check if the run may not grant it."""
    stranger = scene.target.stranger
    assert stranger is not None
    principal = f"User:{stranger.user}"
    creations = tuple(
        {
            "resource_type": kind,
            "resource_name": name,
            "resource_pattern_type": LITERAL,
            "principal": principal,
            "host": "*",
            "operation": READ,
            "permission_type": ALLOW,
        }
        for kind, name in things
    )
    response = await scene.send("CreateAcls", creations=creations)
    refused = [error_name(entry.error_code) for entry in response.results if entry.error_code]
    if refused:
        scene.not_applicable(f"CreateAcls for a user failed: {refused[0]}")
    try:
        yield
    finally:
        filters = tuple(
            {
                "resource_type_filter": kind,
                "resource_name_filter": name,
                "pattern_type_filter": LITERAL,
                "principal_filter": principal,
                "host_filter": "*",
                "operation": READ,
                "permission_type": ALLOW,
            }
            for kind, name in things
        )
        await scene.send("DeleteAcls", filters=filters)


@SECTION.check(
    "F9",
    "A topic that the user may not read, beside one that it may",
    versions="2+",
    needs=(Need.TOPIC, Need.STRANGER),
    apis=("CreateAcls 1+", "DeleteAcls 1+", "OffsetFetch 1+"),
    source="KIP-11",
    kind=CheckKind.CONFIG,
    expected="TOPIC_AUTHORIZATION_FAILED there and nothing stored, NONE elsewhere",
)
async def one_topic_only(scene: CheckContext) -> None:
    # A topic of its own: the same right given for two versions at a time would be taken away by the first to end.
    allowed = await scene.target.make_topic(f"f9-v{scene.version}", 1)
    topics = (allowed, scene.other_topic)
    async with _granted(scene, (GROUP_RESOURCE, scene.group), (TOPIC_RESOURCE, allowed.name)):
        values: dict[str, object] = {
            "group_id": scene.group,
            "member_id": "",
            "topics": tuple(
                {
                    "name": topic.name,
                    "topic_id": topic.id,
                    "partitions": ({"partition_index": 0, "committed_offset": 5, "committed_metadata": ""},),
                }
                for topic in topics
            ),
        }
        codes: dict[str, str] = {}

        async def commits() -> bool:
            response = await scene.send("OffsetCommit", values, access=scene.target.stranger)
            by_id = {topic.id: topic.name for topic in topics} if scene.version >= 10 else {}
            codes.update(
                (by_id.get(entry.topic_id, entry.name), error_name(entry.partitions[0].error_code))
                for entry in response.topics
            )
            return codes[allowed.name] == "NONE"  # rights take a moment to reach the coordinator

        await scene.until(commits, GRANTED_WITHIN_S)
    scene.equal("the codes", codes, {allowed.name: "NONE", scene.other_topic.name: MAY_NOT})
    stored = await fetch(scene, [(topic, 0) for topic in topics])
    offsets = {name: entry.offset for (name, _), entry in stored.partitions.items()}
    scene.equal("the offsets stored", offsets, {allowed.name: 5, scene.other_topic.name: -1})
