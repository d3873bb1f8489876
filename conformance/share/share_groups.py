"""R: share groups (KIP-932), whose members acquire and acknowledge single records."""

from __future__ import annotations

from functools import partial

from kohort.conformance.check import CheckKind, Need, Section
from kohort.conformance.check_context import CheckContext
from kohort.conformance.group_steps import (
    describe_group,
    leaves_once,
    refuses_unknown_group,
    refuses_unknown_member,
)
from kohort.conformance.share.share_member import (
    ACCEPT,
    GAP,
    REJECT,
    RELEASE,
    RENEW,
    Range,
    ScriptedShareMember,
    another,
    assigned,
    code_of,
    holder,
    ranges_of,
    reader,
    refuses_acknowledgements,
)
from kohort.protocol.errors import error_name

SECTION = Section("R", "Share groups (KIP-932)", "ShareGroupHeartbeat")
_heartbeat = partial(SECTION.check, versions="1+", needs=(Need.SHARE, Need.TOPIC), source="KIP-932")
_reading = partial(_heartbeat, apis=("ShareFetch 1+", "ShareAcknowledge 1+", "IncrementalAlterConfigs", "Produce"))
_fetch = partial(_reading, subject="ShareFetch")
_acknowledge = partial(_reading, subject="ShareAcknowledge")


def _invalid(row: str, title: str, **changes: object) -> None:
    @_heartbeat(row, title, expected="INVALID_REQUEST")
    async def invalid(scene: CheckContext) -> None:
        response = await ScriptedShareMember(scene).join(**changes)
        scene.error(response.error_code, "INVALID_REQUEST", f"the first heartbeat with {changes}")


_invalid("R1a", "A first heartbeat without topics", subscribed_topic_names=None)
_invalid("R1b", "A first heartbeat with an empty list of topics", subscribed_topic_names=())
_invalid("R1c", "An empty member id", member_id="")
_invalid("R1d", "A member id of 37 characters", member_id="m" * 37)
_invalid("R1e", "An empty group id", group_id="")
_invalid("R1f", "An empty rack", rack_id="")
_invalid("R1g", "An epoch below -1", member_epoch=-2)


@_heartbeat("R2a", "A first heartbeat", expected="NONE, an epoch and an interval")
async def joins(scene: CheckContext) -> None:
    member = ScriptedShareMember(scene)
    response = await scene.expect(member.join(member_id="m" * 36), "NONE", "the first heartbeat")
    scene.true("the epoch", response.member_epoch > 0, "above 0", response.member_epoch)
    scene.true("the interval", response.heartbeat_interval_ms > 0, "above 0", response.heartbeat_interval_ms)
    scene.true("the assignment", response.assignment is not None, "present", None)


@_heartbeat("R2b", "A group that does not exist", expected="GROUP_ID_NOT_FOUND")
async def unknown_group(scene: CheckContext) -> None:
    await refuses_unknown_group(scene, ScriptedShareMember)


@_heartbeat("R2c", "An unknown member", expected="UNKNOWN_MEMBER_ID")
async def unknown_member(scene: CheckContext) -> None:
    await refuses_unknown_member(scene, ScriptedShareMember)


@_heartbeat("R3a", "An epoch that is yet to come", expected="FENCED_MEMBER_EPOCH")
async def ahead(scene: CheckContext) -> None:
    member = await ScriptedShareMember(scene).joined()
    response = await member.beat(member_epoch=member.epoch + 3)
    scene.error(response.error_code, "FENCED_MEMBER_EPOCH", "a heartbeat of a later epoch")


@_heartbeat(
    "R3b",
    "The assignment again",
    expected="no assignment in an unchanged heartbeat; all of it in one that names the topics",
)
async def again(scene: CheckContext) -> None:
    member = await ScriptedShareMember(scene).joined()

    async def quiet() -> bool:
        return (await member.beat()).assignment is None

    scene.true("unchanged heartbeats", await scene.until(quiet), "without an assignment", "an assignment each time")
    response = await member.beat(subscribed_topic_names=(scene.topic.name,))
    scene.equal("the number of partitions", len(assigned(response)), scene.topic.partitions)


@_reading(
    "R4a", "Two members and one partition", expected="each has the partition: more members than partitions share them"
)
async def shared(scene: CheckContext) -> None:
    first = await reader(scene, 0)
    second = ScriptedShareMember(scene, first.topic)
    await second.join()
    for member in (first, second):

        async def has_it(member: ScriptedShareMember = member) -> bool:
            return len(assigned(await member.beat(subscribed_topic_names=(first.topic.name,)))) == 1

        scene.true("the assignment of both members", await scene.until(has_it), "the partition", "nothing")


@_heartbeat("R5a", "A leave", expected="epoch -1; then UNKNOWN_MEMBER_ID")
async def leaves(scene: CheckContext) -> None:
    await leaves_once(scene, ScriptedShareMember(scene))


@_heartbeat(
    "R6a",
    "ShareGroupDescribe",
    subject="ShareGroupDescribe",
    expected="Stable with its member; Empty after the leave; GROUP_ID_NOT_FOUND for an unknown group",
)
async def described(scene: CheckContext) -> None:
    member = await ScriptedShareMember(scene).joined()
    for state, members in (("Stable", [member.id]), ("Empty", [])):
        response = await scene.expect(describe_group(scene, "ShareGroupDescribe"), "NONE", "ShareGroupDescribe")
        scene.equal("the state", response.group_state, state)
        scene.equal("the members", [one.member_id for one in response.members], members)
        if members:
            await member.leave()
    response = await describe_group(scene, "ShareGroupDescribe", group_ids=(scene.new_group(),))
    scene.error(response.error_code, "GROUP_ID_NOT_FOUND", "ShareGroupDescribe of an unknown group")


@_fetch(
    "R7a",
    "The first share session",
    expected="epoch 0 opens it, then 1, 2; another epoch gets INVALID_SHARE_SESSION_EPOCH and ends nothing",
)
async def session(scene: CheckContext) -> None:
    member = await reader(scene, 0)
    for _ in range(2):
        response = await scene.expect(member.fetch(max_wait_ms=0), "NONE", "a ShareFetch of the next epoch")
    right = member.session_epoch
    response = await member.fetch(share_session_epoch=right + 5)
    scene.error(response.error_code, "INVALID_SHARE_SESSION_EPOCH", "a ShareFetch of a later epoch")
    response = await member.fetch(share_session_epoch=right, max_wait_ms=0)
    scene.error(response.error_code, "NONE", "a ShareFetch of the right epoch afterwards")


@_fetch("R7b", "No share session", expected="SHARE_SESSION_NOT_FOUND")
async def no_session(scene: CheckContext) -> None:
    response = await (await reader(scene, 0)).fetch(share_session_epoch=3)
    scene.error(response.error_code, "SHARE_SESSION_NOT_FOUND", "a ShareFetch of epoch 3 without a session")


@_fetch("R7c", "Acknowledgements in epoch 0", expected="INVALID_REQUEST")
async def opening_with_acks(scene: CheckContext) -> None:
    response = await (await reader(scene, 0)).fetch([(0, 0, (ACCEPT,))])
    scene.error(response.error_code, "INVALID_REQUEST", "a ShareFetch of epoch 0 with an acknowledgement")


@_acknowledge("R7d", "ShareAcknowledge in epoch 0", expected="INVALID_SHARE_SESSION_EPOCH: it opens no session")
async def acknowledge_opens_nothing(scene: CheckContext) -> None:
    response = await (await reader(scene, 0)).acknowledge([], share_session_epoch=0)
    scene.error(response.error_code, "INVALID_SHARE_SESSION_EPOCH", "a ShareAcknowledge of epoch 0")


@_fetch("R8a", "The first delivery", expected="all records, with delivery count 1, and the duration of the lock")
async def first_delivery(scene: CheckContext) -> None:
    member = await reader(scene)
    scene.equal("the acquired ranges", await member.acquire(10), [(0, 9, 1)])
    response = await member.fetch(max_wait_ms=0)
    scene.true("the lock", response.acquisition_lock_timeout_ms > 0, "above 0 ms", response.acquisition_lock_timeout_ms)


@_fetch("R8b", "Acquired records and another member", expected="no record, as all are acquired")
async def exclusive(scene: CheckContext) -> None:
    first = await holder(scene)
    second = await another(first)
    scene.equal("the acquired ranges of another member", ranges_of(await second.fetch()), [])


@_fetch(
    "R8c",
    "The limit of records (KIP-1206)",
    versions="2+",
    source="KIP-1206",
    expected="acquire mode 1: no more than max_records, also inside a batch",
)
async def record_limit(scene: CheckContext) -> None:
    member = await reader(scene)
    for expected in ([], [(0, 3, 1)], [(4, 7, 1)]):

        async def found(want: list[tuple[int, int, int]] = expected) -> bool:
            got = ranges_of(await member.fetch(max_records=4, share_acquire_mode=1))
            scene.true("the acquired ranges", got in ([], want), want, got)
            return got == want

        if expected:
            scene.true("the records", await scene.until(found), expected, "nothing")


@_acknowledge(
    "R9a",
    "Acknowledgements",
    expected="released records come again with delivery count 2; accepted and rejected ones do not",
)
async def acknowledged(scene: CheckContext) -> None:
    member = await holder(scene)
    response = await member.acknowledge([(0, 4, (ACCEPT,)), (5, 7, (RELEASE, REJECT, RELEASE)), (8, 9, (GAP,))])
    scene.error(response.error_code, "NONE", "ShareAcknowledge")
    scene.error(code_of(response), "NONE", "the partition of ShareAcknowledge")
    scene.equal("the acquired ranges", await member.acquired(2), [(5, 5, 2), (7, 7, 2)])


@_fetch("R9b", "Acknowledgements in a ShareFetch", expected="they apply, and the error of the acknowledgement is NONE")
async def riding(scene: CheckContext) -> None:
    member = await holder(scene)
    response = await member.fetch([(0, 9, (ACCEPT,))], max_wait_ms=0)
    codes = [one.acknowledge_error_code for topic in response.responses for one in topic.partitions]
    scene.equal("the errors of acknowledgements", [error_name(code) for code in codes], ["NONE"])
    late = await member.acknowledge([(0, 9, (RELEASE,))])
    scene.error(code_of(late), "NONE", "an acknowledgement below the start offset, which has no effect")
    scene.equal("the acquired ranges afterwards", ranges_of(await member.fetch()), [])


@_acknowledge("R9c", "Records of another member", expected="INVALID_RECORD_STATE, and the records stay acquired")
async def foreign(scene: CheckContext) -> None:
    first = await holder(scene)
    second = await another(first)
    await second.fetch(max_wait_ms=0)
    response = await second.acknowledge([(0, 9, (ACCEPT,))])
    scene.error(code_of(response), "INVALID_RECORD_STATE", "an acknowledgement of another member's records")
    scene.error(code_of(await first.acknowledge([(0, 9, (ACCEPT,))])), "NONE", "the owner's acknowledgement")


@_acknowledge(
    "R9d",
    "One bad acknowledgement",
    expected="INVALID_RECORD_STATE for the partition, and none of its acknowledgements applies",
)
async def all_or_nothing(scene: CheckContext) -> None:
    member = await holder(scene)
    await member.acknowledge([(5, 5, (ACCEPT,))])
    response = await member.acknowledge([(0, 4, (ACCEPT,)), (5, 5, (RELEASE,))])
    scene.error(code_of(response), "INVALID_RECORD_STATE", "acknowledgements of which one is settled")
    scene.error(code_of(await member.acknowledge([(0, 4, (ACCEPT,))])), "NONE", "the others again")


def _refused(row: str, title: str, acks: tuple[Range, ...]) -> None:
    _acknowledge(row, title, expected="INVALID_REQUEST for the partition")(partial(refuses_acknowledgements, acks=acks))


_refused("R9e", "A range that ends before it begins", ((5, 4, (ACCEPT,)),))
_refused("R9f", "Ranges out of order", ((5, 6, (ACCEPT,)), (0, 1, (ACCEPT,))))
_refused("R9g", "No type", ((0, 1, ()),))
_refused("R9h", "An unknown type", ((0, 1, (9,)),))
_refused("R9i", "Two types for three offsets", ((0, 2, (ACCEPT, RELEASE)),))
_refused("R9j", "A renewal without the flag", ((0, 2, (RENEW,)),))


@_acknowledge(
    "R10a", "The end of a session", expected="epoch -1 applies its acknowledgements and releases the other records"
)
async def closes(scene: CheckContext) -> None:
    member = await holder(scene)
    response = await member.acknowledge([(0, 4, (ACCEPT,))], share_session_epoch=-1)
    scene.error(response.error_code, "NONE", "ShareAcknowledge of epoch -1")
    scene.error(code_of(response), "NONE", "its acknowledgements")
    scene.equal("the acquired ranges afterwards", await member.acquired(5), [(5, 9, 2)])


@_fetch("R10b", "The end of a connection", expected="the session ends, and its records are delivered to another member")
async def connection_ends(scene: CheckContext) -> None:
    member = await holder(scene)
    # The same member might open its next session before the broker notices, and would then keep its locks.
    other = await another(member)
    # With the group's last session a broker forgets the share partition, and with it the count of open deliveries.
    await other.fetch(max_wait_ms=0)
    await member.disconnect()
    scene.equal("the acquired ranges of another member", await other.acquired(10), [(0, 9, 2)])


@_fetch(
    "R11a",
    "The delivery limit",
    kind=CheckKind.CONFIG,
    source="KIP-932, KIP-1240",
    expected="a record that is released after share.delivery.count.limit deliveries does not come again",
)
async def limit(scene: CheckContext) -> None:
    member = await reader(scene, 1, share_delivery_count_limit="2")
    for count in (1, 2):
        scene.equal("the acquired range", await member.acquire(1), [(0, 0, count)])
        await member.acknowledge([(0, 0, (RELEASE,))])
    scene.equal("the acquired ranges afterwards", ranges_of(await member.fetch()), [])
