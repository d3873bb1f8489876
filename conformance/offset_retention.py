"""G7: the retention of offsets (KIP-211).

These checks take minutes, since `offsets.retention.minutes` is at least 1. They need a broker that checks often, such
as one with `offsets.retention.minutes=1` and `offsets.retention.check.interval.ms=1000`. Such a broker also deletes
empty groups at once, which other checks do not expect.
"""

from __future__ import annotations

import asyncio
import time
from functools import partial

from kohort.conformance.broker_under_test import Topic
from kohort.conformance.check import CheckKind, Need, Section
from kohort.conformance.check_context import CheckContext
from kohort.conformance.member import CheckMember, subscribe
from kohort.conformance.request_builders import commit, expect_commit, fetch_offset

SECTION = Section("G", "OffsetFetch and OffsetDelete", "OffsetFetch")
NEEDS = (Need.TOPIC, Need.SETTINGS)
APIS = ("OffsetFetch 1+",)
LONGEST_RETENTION_S, LONGEST_INTERVAL_S = 60, 5.0
SLACK_S = 6.0
LIMIT_S = 240.0
KEPT = 41
_BEAT_S = 2.0
_check = partial(
    SECTION.check,
    subject="OffsetCommit",
    kind=CheckKind.TIMING,
    needs=NEEDS,
    apis=APIS,
    limit_s=LIMIT_S,
    source="KIP-211",
)


def _times(scene: CheckContext) -> tuple[float, float]:
    """Return (retention, time until it is noticed) in seconds. Ends the check if they are too long."""
    minutes = scene.target.setting("offsets.retention.minutes")
    interval_ms = scene.target.setting("offsets.retention.check.interval.ms")
    if minutes is None or interval_ms is None:
        scene.not_applicable("the broker's offset retention is unknown")
    if minutes * 60 > LONGEST_RETENTION_S or interval_ms / 1000 > LONGEST_INTERVAL_S:
        scene.not_applicable(
            f"offsets are kept for {minutes} minutes and checked every {interval_ms / 1000:g} s; "
            "1 and 5 at most can be waited for"
        )
    return minutes * 60.0, interval_ms / 1000 + SLACK_S


async def _kept(scene: CheckContext, member: CheckMember | None, topics: tuple[Topic, ...]) -> None:
    identity = {} if member is None else member.identity
    codes = await commit(scene, {(topic, 0): KEPT for topic in topics}, **identity)
    scene.equal("the commits", set(codes.values()), {0})


async def _until_gone(scene: CheckContext, topic: Topic, limit_s: float) -> float:
    """Return the seconds until the offset was gone. Raises Failed."""
    began = time.monotonic()

    async def gone() -> bool:
        await asyncio.sleep(0.2)
        return await fetch_offset(scene, topic) == -1

    mark = len(scene.frames)
    found = await scene.until(gone, limit_s)
    del scene.frames[mark:-2]
    scene.true("the offset", found, f"gone within {limit_s:g} s", "still there")
    return time.monotonic() - began


async def _wait(scene: CheckContext, seconds: float, member: CheckMember | None = None) -> None:
    """Wait, and send heartbeats of the member meanwhile."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        await asyncio.sleep(min(left, _BEAT_S))
        if member is not None:
            await scene.expect(member.heartbeat(), "NONE", "Heartbeat meanwhile")


@_check(
    "G7a",
    "Offsets of a group that never had members",
    versions="5+",
    once=True,
    expected="kept for offsets.retention.minutes since the commit, and gone soon after",
)
async def simple(scene: CheckContext) -> None:
    retention_s, late_s = _times(scene)
    began = time.monotonic()
    await _kept(scene, None, (scene.topic,))
    await _wait(scene, retention_s - 8)
    scene.equal("the offset shortly before", await fetch_offset(scene), KEPT)
    await _until_gone(scene, scene.topic, 8 + late_s)
    scene.true("it went", time.monotonic() - began >= retention_s - 1, "not before its time", "earlier")


@_check(
    "G7b",
    "Offsets of a group that emptied",
    versions="5+",
    once=True,
    apis=(*APIS, "LeaveGroup", "JoinGroup 5+"),
    expected="kept for offsets.retention.minutes since the last member left, however old the commit is",
)
async def emptied(scene: CheckContext) -> None:
    retention_s, late_s = _times(scene)
    # A static member comes in with one request: a broker that looks this often may forget a group that has none yet.
    (leader,) = await scene.stable(1, instance="i-1")
    await _kept(scene, leader, (scene.topic,))
    await _wait(scene, retention_s / 2, leader)
    await leader.leave()
    left = time.monotonic()
    await _wait(scene, retention_s / 2 + late_s)
    scene.equal("the offset, longer than the retention after the commit", await fetch_offset(scene), KEPT)
    await _until_gone(scene, scene.topic, retention_s / 2 + late_s)
    scene.true("it went", time.monotonic() - left >= retention_s - 1, "not before its time", "earlier")


@_check(
    "G7c",
    "Offsets of a Stable group",
    versions="5+",
    once=True,
    expected="offsets of subscribed topics stay, others expire offsets.retention.minutes after the commit",
)
async def stable(scene: CheckContext) -> None:
    retention_s, late_s = _times(scene)
    (leader,) = await scene.stable(1, instance="i-1", protocols=(("range", subscribe(scene.topic.name)),))
    await _kept(scene, leader, (scene.topic, scene.other_topic))
    await _wait(scene, retention_s - 8, leader)
    scene.equal("the offset of the topic without a subscriber", await fetch_offset(scene, scene.other_topic), KEPT)
    await _wait(scene, 8 + late_s, leader)
    scene.equal("the same, after its time", await fetch_offset(scene, scene.other_topic), -1)
    scene.equal("the offset of the topic that is read", await fetch_offset(scene), KEPT)


@_check(
    "G7d",
    "A commit that brings its own retention time",
    versions="2-4",
    expected="kept for exactly that time, while an offset without a retention time stays",
)
async def own_time(scene: CheckContext) -> None:
    _, late_s = _times(scene)
    other = scene.new_group()
    for group, retention_ms in ((scene.group, 4000), (other, -1)):
        what = f"OffsetCommit with a retention time of {retention_ms} ms"
        await expect_commit(scene, KEPT, "NONE", what, group=group, retention_time_ms=retention_ms)
    await asyncio.sleep(2)
    scene.equal("the offset after half its time", await fetch_offset(scene), KEPT)
    await _until_gone(scene, scene.topic, 2 + late_s)
    scene.equal("the one without", await fetch_offset(scene, group=other), KEPT)
