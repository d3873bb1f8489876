"""R7 to R11: share sessions, and the records that they acquire and acknowledge."""

from __future__ import annotations

from functools import partial
from typing import Any
from uuid import UUID

from kohort.conformance.check import CheckKind, Need, Section
from kohort.conformance.check_context import CheckContext
from kohort.conformance.share.share_member import (
    ACCEPT,
    ASSIGNED_S,
    RELEASE,
    RENEW,
    Range,
    ScriptedShareMember,
    another,
    code_of,
    configure,
    holder,
    produce,
    ranges_of,
    reader,
    refuses_acknowledgements,
)

SECTION = Section("R", "Share groups (KIP-932)", "ShareFetch")
NOWHERE = UUID(int=12)
_reading = partial(
    SECTION.check,
    versions="1+",
    needs=(Need.SHARE, Need.TOPIC),
    source="KIP-932",
    apis=("ShareGroupHeartbeat 1+", "ShareFetch 1+", "ShareAcknowledge 1+", "IncrementalAlterConfigs", "Produce"),
)
_fetch = partial(_reading, subject="ShareFetch")
_acknowledge = partial(_reading, subject="ShareAcknowledge")


@_fetch("R7e", "After the end of a session", expected="SHARE_SESSION_NOT_FOUND for its next epoch")
async def after_the_end(scene: CheckContext) -> None:
    member = await holder(scene)
    following = member.session_epoch + 1
    await member.acknowledge([], share_session_epoch=-1)
    response = await member.fetch(share_session_epoch=following)
    scene.error(response.error_code, "SHARE_SESSION_NOT_FOUND", "a ShareFetch after the session was closed")


@_fetch("R7f", "An epoch twice", expected="INVALID_SHARE_SESSION_EPOCH")
async def twice(scene: CheckContext) -> None:
    member = await reader(scene, 0)
    for _ in range(2):
        await member.fetch(max_wait_ms=0)
    response = await member.fetch(share_session_epoch=member.session_epoch - 1)
    scene.error(response.error_code, "INVALID_SHARE_SESSION_EPOCH", "a ShareFetch of the epoch before")


@_acknowledge("R7g", "One count of epochs", expected="ShareFetch and an empty ShareAcknowledge advance the same epoch")
async def one_count(scene: CheckContext) -> None:
    member = await reader(scene, 0)
    await member.fetch(max_wait_ms=0)
    for _ in range(2):
        await scene.expect(member.acknowledge([]), "NONE", "an empty ShareAcknowledge")
        await scene.expect(member.fetch(max_wait_ms=0), "NONE", "the ShareFetch after it")


@_fetch("R7h", "A session that is opened again", expected="the records stay acquired by the member")
async def opened_again(scene: CheckContext) -> None:
    member = await holder(scene)
    member.session_epoch = 0
    response = await scene.expect(member.fetch(), "NONE", "a ShareFetch of epoch 0 in an open session")
    scene.equal("the acquired ranges", ranges_of(response), [])
    late = await member.acknowledge([(0, 9, (ACCEPT,))])
    scene.error(code_of(late), "NONE", "the acknowledgement of records from before")


def _bad_member(row: str, title: str, **changes: Any) -> None:
    @_fetch(row, title, expected="INVALID_REQUEST")
    async def bad(scene: CheckContext) -> None:
        member = await reader(scene, 0)
        await scene.expect(member.fetch(**changes), "INVALID_REQUEST", f"a ShareFetch with {changes}")


_bad_member("R7i", "An empty member id in ShareFetch", member_id="")
_bad_member("R7j", "A member id of 37 characters in ShareFetch", member_id="m" * 37)


@_acknowledge("R7k", "ShareAcknowledge without a session", expected="SHARE_SESSION_NOT_FOUND")
async def no_session(scene: CheckContext) -> None:
    response = await (await reader(scene, 0)).acknowledge([], share_session_epoch=2)
    scene.error(response.error_code, "SHARE_SESSION_NOT_FOUND", "a ShareAcknowledge of epoch 2 without a session")


@_fetch("R8d", "Two share groups", expected="each gets all records of the topic")
async def two_groups(scene: CheckContext) -> None:
    first = await reader(scene)
    scene.equal("the ranges of the first group", await first.acquire(10), [(0, 9, 1)])
    scene.group = scene.new_group()
    await configure(scene, share_auto_offset_reset="earliest")
    second = await ScriptedShareMember(scene, first.topic).joined()
    scene.equal("the ranges of the second group", await second.acquired(10), [(0, 9, 1)])


@_fetch(
    "R8e",
    "Two members in turn",
    versions="2+",
    source="KIP-1206",
    expected="disjoint records, in the order of offsets",
)
async def in_turn(scene: CheckContext) -> None:
    first = await reader(scene)
    second = await another(first)
    found: list[tuple[int, int, int]] = []

    async def complete() -> bool:
        for member in (first, second):
            found.extend(ranges_of(await member.fetch(max_records=3, share_acquire_mode=1, max_wait_ms=0)))
        return sum(last - start + 1 for start, last, _count in found) >= 10

    await scene.until(complete)
    scene.equal("the acquired ranges", found, [(0, 2, 1), (3, 5, 1), (6, 8, 1), (9, 9, 1)])


@_fetch("R8f", "No records are wanted", expected="NONE without records for max_records 0")
async def none_wanted(scene: CheckContext) -> None:
    member = await reader(scene)
    for _ in range(2):
        response = await scene.expect(member.fetch(max_records=0, max_wait_ms=0), "NONE", "a ShareFetch of no records")
        scene.equal("the acquired ranges", ranges_of(response), [])
    scene.equal("the acquired ranges afterwards", await member.acquire(10), [(0, 9, 1)])


@_fetch("R8g", "A waiting fetch", expected="a response with new records before max_wait_ms is over")
async def waiting(scene: CheckContext) -> None:
    member = await holder(scene)
    waits = scene.start(member.fetch(max_wait_ms=25_000))
    await scene.parked(waits, "a ShareFetch without records")
    await produce(scene, member.topic, 2)
    scene.equal("the acquired ranges", ranges_of(await waits), [(10, 11, 1)])


@_acknowledge("R9k", "An acknowledgement twice", expected="NONE below the start offset, and no effect")
async def repeated(scene: CheckContext) -> None:
    member = await holder(scene)
    for how in (ACCEPT, ACCEPT, RELEASE):
        response = await member.acknowledge([(0, 4, (how,))])
        scene.error(code_of(response), "NONE", f"type {how} for records that are accepted")
    scene.equal("the acquired ranges afterwards", ranges_of(await member.fetch()), [])


def _refused(row: str, title: str, acks: tuple[Range, ...]) -> None:
    _acknowledge(row, title, expected="INVALID_REQUEST for the partition")(partial(refuses_acknowledgements, acks=acks))


_refused("R9l", "Offsets that were not acquired", ((5, 99, (ACCEPT,)),))
_refused("R9m", "Ranges that overlap", ((0, 5, (ACCEPT,)), (3, 9, (ACCEPT,))))
_refused("R9n", "A negative type", ((0, 1, (-1,)),))


@_acknowledge(
    "R9o",
    "Renewals beside other types (KIP-1222)",
    versions="2+",
    source="KIP-1222",
    expected="the accepted records are done, the renewed ones stay acquired",
)
async def renewals(scene: CheckContext) -> None:
    member = await holder(scene)
    response = await member.acknowledge([(0, 4, (ACCEPT,)), (5, 9, (RENEW,))], is_renew_ack=True)
    scene.error(code_of(response), "NONE", "a renewal and an acceptance")
    scene.true("the lock", response.acquisition_lock_timeout_ms > 0, "above 0 ms", response.acquisition_lock_timeout_ms)
    other = await another(member)
    scene.equal("the acquired ranges of another member", ranges_of(await other.fetch()), [])
    response = await member.acknowledge([(5, 9, (RELEASE,))])
    scene.error(code_of(response), "NONE", "the release of the renewed records")
    scene.equal("the acquired ranges afterwards", await other.acquired(5), [(5, 9, 2)])


@_fetch(
    "R9p",
    "A renewal in ShareFetch (KIP-1222)",
    versions="2+",
    source="KIP-1222",
    expected="INVALID_REQUEST with limits above 0; NONE without records if all limits are 0",
)
async def renewing_fetch(scene: CheckContext) -> None:
    member = await holder(scene)
    acks = [(0, 9, (RENEW,))]
    response = await member.fetch(acks, is_renew_ack=True)
    scene.error(response.error_code, "INVALID_REQUEST", "a ShareFetch with a renewal and limits")
    nothing: dict[str, Any] = {"max_records": 0, "max_bytes": 0, "min_bytes": 0, "max_wait_ms": 0}
    response = await member.fetch(acks, is_renew_ack=True, **nothing)
    scene.error(response.error_code, "NONE", "a ShareFetch with a renewal, of the same epoch")
    scene.equal("the acquired ranges", ranges_of(response), [])


@_acknowledge(
    "R9q",
    "Partitions and topics that do not exist",
    expected="UNKNOWN_TOPIC_OR_PARTITION for the index, UNKNOWN_TOPIC_ID for the topic id",
)
async def nowhere(scene: CheckContext) -> None:
    member = await holder(scene)
    batches = ({"first_offset": 0, "last_offset": 1, "acknowledge_types": (ACCEPT,)},)
    for topic_id, index, code in (
        (member.topic.id, 77, "UNKNOWN_TOPIC_OR_PARTITION"),
        (NOWHERE, 0, "UNKNOWN_TOPIC_ID"),
    ):
        partition = {"partition_index": index, "acknowledgement_batches": batches}
        response = await member.acknowledge([], topics=({"topic_id": topic_id, "partitions": (partition,)},))
        scene.error(code_of(response), code, f"an acknowledgement of partition {index} of topic {topic_id}")


@_fetch(
    "R11b",
    "The window of a share partition",
    kind=CheckKind.CONFIG,
    source="KIP-932, KIP-1240",
    expected="no new batch once share.partition.max.record.locks offsets are open, but released records come again",
)
async def window(scene: CheckContext) -> None:
    member = await reader(scene, 20, share_partition_max_record_locks="100")
    for _ in range(11):
        await produce(scene, member.topic, 20)
    most = max(last for _first, last, _count in await member.acquire(100))
    scene.true("the last acquired offset", 99 <= most < 120, "99 to 119", most)
    await member.acknowledge([(10, 11, (RELEASE,))])
    scene.equal("the acquired ranges afterwards", await member.acquired(2), [(10, 11, 2)])
    scene.equal("the acquired ranges of a full window", ranges_of(await member.fetch()), [])


@_fetch(
    "R11c",
    "The start of a group",
    expected="with share.auto.offset.reset=latest, only records from after the first fetch",
)
async def latest(scene: CheckContext) -> None:
    member = await reader(scene, 10, share_auto_offset_reset="latest")
    found = ranges_of(await member.fetch(max_wait_ms=0))
    scene.equal("the acquired ranges before new records", found, [])

    async def finds_new() -> bool:
        # A broker may respond before it has determined the start, which is then behind some of the new records.
        await produce(scene, member.topic, 2)
        found.extend(ranges_of(await member.fetch()))
        return bool(found)

    await scene.until(finds_new, ASSIGNED_S)
    scene.true("the acquired ranges", bool(found) and found[0][0] >= 10, "of new records", found)
    await produce(scene, member.topic, 2)
    first, _last, count = (await member.acquire(2))[0]
    scene.equal("the next acquired offset and its delivery count", (first, count), (found[-1][1] + 1, 1))


@_acknowledge(
    "R11d",
    "Renewals that the group does not permit (KIP-1222)",
    versions="2+",
    kind=CheckKind.CONFIG,
    source="KIP-1222",
    expected="INVALID_RECORD_STATE with share.renew.acknowledge.enable=false",
)
async def not_permitted(scene: CheckContext) -> None:
    member = await holder(scene, share_renew_acknowledge_enable="false")
    response = await member.acknowledge([(0, 9, (RENEW,))], is_renew_ack=True)
    scene.error(code_of(response), "INVALID_RECORD_STATE", "a renewal")
