"""M: the consumer group protocol of KIP-848, in which the coordinator assigns partitions."""

from __future__ import annotations

import asyncio
from functools import partial
from uuid import UUID, uuid4

from kohort.conformance.check import CheckKind, Need, Section
from kohort.conformance.check_context import CheckContext
from kohort.conformance.kip848_member import Kip848Consumer, as_request, assigned_group, describe, settle
from kohort.conformance.member import subscribe
from kohort.conformance.request_builders import commit, describe_one, expect_commit, fetch, fetch_offset
from kohort.protocol.errors import ErrorCode

SECTION = Section("M", "Consumer groups (KIP-848)", "ConsumerGroupHeartbeat")
NEEDS = (Need.CONSUMER, Need.TOPIC)
_check = partial(SECTION.check, needs=NEEDS, source="KIP-848")
LEAVE, LEAVE_FOR_A_WHILE = -1, -2


def _invalid(row: str, title: str, versions: str = "0+", **changes: object) -> None:
    @_check(row, title, versions=versions, expected="INVALID_REQUEST")
    async def invalid(scene: CheckContext) -> None:
        response = await Kip848Consumer(scene).join(**changes)
        scene.error(response.error_code, "INVALID_REQUEST", f"the first heartbeat with {changes}")


_invalid("M1a", "A first heartbeat without a rebalance timeout", rebalance_timeout_ms=-1)
_invalid("M1b", "A first heartbeat without topics", subscribed_topic_names=None)
_invalid(
    "M1c",
    "A first heartbeat that owns partitions already",
    topic_partitions=({"topic_id": UUID(int=7), "partitions": (0,)},),
)
_invalid("M1d", "An epoch below -2", member_epoch=-3)
_invalid("M1e", "An empty group id", group_id="")
_invalid("M1f", "No member id of its own", versions="1+", member_id="")
_invalid("M1g", "An empty instance id", instance_id="")


@_check(
    "M1i",
    "A member id from the coordinator",
    versions="0",
    source="KIP-848, KIP-1082",
    expected="version 0 may have no id and gets one; epoch above 0",
)
async def id_given(scene: CheckContext) -> None:
    response = await scene.expect(Kip848Consumer(scene).join(member_id=""), "NONE", "the first heartbeat")
    scene.true("the member id", bool(response.member_id), "an id", repr(response.member_id))
    scene.true("the epoch", response.member_epoch > 0, "above 0", response.member_epoch)


@_check("M1j", "A member id of one's own", source="KIP-1082", expected="NONE, and the same id in the response")
async def own_id(scene: CheckContext) -> None:
    member = Kip848Consumer(scene, id=str(uuid4()))
    given = member.id
    response = await scene.expect(member.join(), "NONE", "the first heartbeat")
    scene.equal("the member id", response.member_id, given)


@_check("M1k", "How often to beat", expected="heartbeat_interval_ms is above 0")
async def interval(scene: CheckContext) -> None:
    response = await Kip848Consumer(scene).join()
    scene.true("the interval", response.heartbeat_interval_ms > 0, "above 0", response.heartbeat_interval_ms)


@_check("M2a", "An assignor that the broker lacks", expected="UNSUPPORTED_ASSIGNOR")
async def unknown_assignor(scene: CheckContext) -> None:
    response = await Kip848Consumer(scene).join(server_assignor="astrology")
    scene.error(response.error_code, "UNSUPPORTED_ASSIGNOR", "the first heartbeat with server_assignor=astrology")


@_check("M2b", "The assignors of KIP-848", kind=CheckKind.CONFIG, expected="uniform and range are offered")
async def known_assignors(scene: CheckContext) -> None:
    for name in ("uniform", "range"):
        scene.group = scene.new_group()
        response = await Kip848Consumer(scene).join(server_assignor=name)
        scene.error(response.error_code, "NONE", f"the first heartbeat with server_assignor={name}")


@_check("M3a", "An epoch that is yet to come", expected="FENCED_MEMBER_EPOCH")
async def ahead(scene: CheckContext) -> None:
    (member,) = await assigned_group(scene)
    response = await member.beat(member_epoch=member.epoch + 1)
    scene.error(response.error_code, "FENCED_MEMBER_EPOCH", "a heartbeat of the epoch after")


@_check(
    "M3b",
    "An epoch that is over",
    expected="FENCED_MEMBER_EPOCH, unless it is the one before and what the member owns is part of its assignment",
)
async def behind(scene: CheckContext) -> None:
    first, _ = await assigned_group(scene, 2)
    stranger = ({"topic_id": scene.topic.id, "partitions": tuple(range(scene.topic.partitions))},)
    response = await first.beat(member_epoch=first.epoch - 1, topic_partitions=stranger)
    scene.error(response.error_code, "FENCED_MEMBER_EPOCH", "a heartbeat of the epoch before that owns too much")


@_check(
    "M3c",
    "A response was lost",
    expected="a heartbeat of the epoch before, with partitions that are part of the assignment, is served",
)
async def lost_response(scene: CheckContext) -> None:
    (member,) = await assigned_group(scene)
    await Kip848Consumer(scene).join()
    for _ in range(200):
        before, owned = member.epoch, as_request(member.owned)
        response = await member.beat(topic_partitions=owned)
        if response.member_epoch != before:
            break
        await asyncio.sleep(0.03)
    scene.true("the epoch after another member joined", response.member_epoch > before, f"above {before}", before)
    again = await member.beat(member_epoch=before, topic_partitions=owned)
    scene.error(again.error_code, "NONE", f"the same heartbeat of epoch {before} again")
    scene.equal("the epoch", again.member_epoch, response.member_epoch)


@_check("M3d", "Fenced, and back", expected="a member that was fenced joins again with epoch 0 and its own id")
async def back_after_fence(scene: CheckContext) -> None:
    (member,) = await assigned_group(scene)
    fenced = await member.beat(member_epoch=member.epoch + 5)
    scene.error(fenced.error_code, "FENCED_MEMBER_EPOCH", "a heartbeat of a later epoch")
    before, member.owned = member.id, {}
    response = await scene.expect(member.join(), "NONE", "the first heartbeat again")
    scene.equal("the member id", response.member_id, before)


@_check("M4a", "An instance id that is in use", expected="UNRELEASED_INSTANCE_ID")
async def in_use(scene: CheckContext) -> None:
    await assigned_group(scene, instance="i-1")
    response = await Kip848Consumer(scene, instance="i-1").join()
    scene.error(response.error_code, "UNRELEASED_INSTANCE_ID", "the first heartbeat under a name in use")


@_check("M4b", "An instance id of another member", expected="FENCED_INSTANCE_ID")
async def wrong_owner(scene: CheckContext) -> None:
    (member,) = await assigned_group(scene, instance="i-1")
    response = await member.beat(member_id=str(uuid4()))
    scene.error(response.error_code, "FENCED_INSTANCE_ID", "a heartbeat with another member's instance id")


@_check("M4c", "An unknown instance id", expected="UNKNOWN_MEMBER_ID")
async def unknown_instance(scene: CheckContext) -> None:
    (member,) = await assigned_group(scene)
    response = await member.beat(instance_id="i-9", member_id=str(uuid4()))
    scene.error(response.error_code, "UNKNOWN_MEMBER_ID", "a heartbeat with an unknown instance id")


@_check("M4d", "An unknown member", expected="UNKNOWN_MEMBER_ID")
async def unknown_member(scene: CheckContext) -> None:
    (member,) = await assigned_group(scene)
    await scene.expect(member.beat(member_id=str(uuid4())), "UNKNOWN_MEMBER_ID", "a heartbeat of a made-up member")


@_check("M4e", "An epoch in an unknown group", expected="GROUP_ID_NOT_FOUND or UNKNOWN_MEMBER_ID")
async def unknown_group(scene: CheckContext) -> None:
    response = await Kip848Consumer(scene, id=str(uuid4()), epoch=3).beat()
    scene.error(response.error_code, "GROUP_ID_NOT_FOUND or UNKNOWN_MEMBER_ID", "a heartbeat of epoch 3 in a new group")


@_check(
    "M5a", "Leaving", expected="NONE and epoch -1. The member is unknown then, and another member gets its partitions"
)
async def leaves(scene: CheckContext) -> None:
    first, second = await assigned_group(scene, 2)
    epoch = first.epoch
    response = await scene.expect(first.beat(member_epoch=LEAVE), "NONE", "a heartbeat of epoch -1")
    scene.equal("the epoch", response.member_epoch, LEAVE)
    code = (await first.beat(member_epoch=epoch)).error_code
    scene.error(code, "UNKNOWN_MEMBER_ID", "a heartbeat of the one that left")
    await settle(scene, [second])


@_check(
    "M5b",
    "A static member leaves temporarily",
    expected="NONE and epoch -2. The same instance id with another member id gets the same partitions",
)
async def leaves_for_a_while(scene: CheckContext) -> None:
    members = [Kip848Consumer(scene, instance=f"i-{index}") for index in (1, 2)]
    for member in members:
        await member.join()
    await settle(scene, members)
    first = members[0]
    share = first.partitions
    response = await scene.expect(first.beat(member_epoch=LEAVE_FOR_A_WHILE), "NONE", "a heartbeat of epoch -2")
    scene.equal("the epoch", response.member_epoch, LEAVE_FOR_A_WHILE)
    back = Kip848Consumer(scene, instance="i-1")
    await scene.expect(back.join(), "NONE", "the first heartbeat of the one that came back")
    scene.true("its id", back.id != first.id, f"another than {first.id}", back.id)
    scene.true("its partitions", await back.gets(share), share, back.partitions)


@_check(
    "M6a",
    "A commit of a stale epoch",
    subject="OffsetCommit",
    versions="9+",
    expected="STALE_MEMBER_EPOCH; NONE with the current one",
    note="Since KIP-1251 (Apache Kafka 4.3) a stale epoch is accepted for partitions that the member owned in it and "
    "still owns. The check therefore commits a partition that it does not own.",
)
async def stale_commit(scene: CheckContext) -> None:
    first, second = await assigned_group(scene, 2)
    place = (scene.topic, second.partitions[0][1])
    for epoch, expected in ((first.epoch - 1, "STALE_MEMBER_EPOCH"), (first.epoch, "NONE")):
        codes = await commit(scene, {place: 1}, generation=epoch, member=first.id)
        what = f"OffsetCommit of epoch {epoch}, the member's being {first.epoch}, for a partition it does not own"
        scene.error(codes[scene.topic.name, place[1]], expected, what)


@_check(
    "M6b", "A commit in a version from before", subject="OffsetCommit", versions="2-8", expected="UNSUPPORTED_VERSION"
)
async def old_commit(scene: CheckContext) -> None:
    (member,) = await assigned_group(scene)
    what = f"OffsetCommit v{scene.version} in a consumer group"
    await expect_commit(scene, 1, "UNSUPPORTED_VERSION", what, **member.identity)


@_check("M6c", "A commit of a made-up member", subject="OffsetCommit", versions="9+", expected="UNKNOWN_MEMBER_ID")
async def unknown_commit(scene: CheckContext) -> None:
    (member,) = await assigned_group(scene)
    unknown = {"generation": member.epoch, "member": str(uuid4())}
    await expect_commit(scene, 1, "UNKNOWN_MEMBER_ID", "OffsetCommit of a made-up member", **unknown)


@_check(
    "M6d",
    "Offsets outlive the members and the protocol of a group",
    subject="OffsetFetch",
    versions="1+",
    expected="a classic group's offset is there in its consumer group, in the empty one, and in the classic one again",
)
async def outlives(scene: CheckContext) -> None:
    place = (scene.topic, 1)

    async def keeps(state: str) -> None:
        scene.equal(f"the offset {state}", await fetch_offset(scene, *place), 21)

    (classic,) = await scene.stable(1)
    await commit(scene, {place: 21}, **classic.identity)
    await classic.leave()
    await keeps("in the empty classic group")
    member = Kip848Consumer(scene)
    await scene.expect(member.join(), "NONE", "the first heartbeat in the empty classic group")
    await keeps("in the consumer group")
    await member.beat(member_epoch=LEAVE)
    await keeps("in the empty consumer group")
    await scene.member().enter()
    await keeps("in the classic group again")


@_check(
    "M7a",
    "OffsetFetch of a made-up member",
    subject="OffsetFetch",
    versions="9+",
    expected="UNKNOWN_MEMBER_ID of the group",
)
async def unknown_fetch(scene: CheckContext) -> None:
    (member,) = await assigned_group(scene)
    response = await fetch(scene, [(scene.topic, 0)], member=str(uuid4()), epoch=member.epoch)
    scene.error(response.error_code, "UNKNOWN_MEMBER_ID", "OffsetFetch of a made-up member")


@_check(
    "M7b",
    "OffsetFetch of a stale epoch",
    subject="OffsetFetch",
    versions="9+",
    expected="STALE_MEMBER_EPOCH of the group; NONE with the current one",
)
async def stale_fetch(scene: CheckContext) -> None:
    first, _ = await assigned_group(scene, 2)
    for epoch, expected in ((first.epoch - 1, "STALE_MEMBER_EPOCH"), (first.epoch, "NONE")):
        response = await fetch(scene, [(scene.topic, 0)], member=first.id, epoch=epoch)
        scene.error(response.error_code, expected, f"OffsetFetch of epoch {epoch}, the member's being {first.epoch}")


@_check(
    "M8",
    "The protocol is supported and switched off",
    needs=(Need.NO_CONSUMER,),
    kind=CheckKind.CONFIG,
    expected="UNSUPPORTED_VERSION",
)
async def switched_off(scene: CheckContext) -> None:
    values = {"group_id": scene.group, "member_id": str(uuid4()), "member_epoch": 0, "rebalance_timeout_ms": 30_000}
    response = await scene.send("ConsumerGroupHeartbeat", values, subscribed_topic_names=("x",), topic_partitions=())
    scene.error(response.error_code, "UNSUPPORTED_VERSION", "the first heartbeat")


@_check(
    "M9a",
    "A classic member of another kind in a consumer group",
    subject="JoinGroup",
    expected="INCONSISTENT_GROUP_PROTOCOL",
)
async def other_kind(scene: CheckContext) -> None:
    await assigned_group(scene)
    response = await scene.member(protocol_type="connect", protocols=(("sessioned", b""),)).join()
    scene.error(response.error_code, "INCONSISTENT_GROUP_PROTOCOL", "JoinGroup of a connect worker")


def _require_downgrade(scene: CheckContext) -> None:
    policy = scene.target.settings.get("group.consumer.migration.policy", "").lower()
    if policy not in ("bidirectional", "downgrade"):
        scene.not_applicable(f"group.consumer.migration.policy is {policy or 'unknown'}")


@_check(
    "M9b",
    "A classic consumer in a consumer group",
    subject="JoinGroup",
    needs=(*NEEDS, Need.SETTINGS),
    kind=CheckKind.CONFIG,
    expected="if migration allows it, it joins, and gets REBALANCE_IN_PROGRESS when it is assigned partitions",
)
async def classic_member(scene: CheckContext) -> None:
    _require_downgrade(scene)
    (member,) = await assigned_group(scene)
    (classic,) = await scene.stable(1, sync=False, protocols=(("range", subscribe(scene.topic.name)),))
    await scene.expect(classic.sync(), "NONE", "SyncGroup of the classic member")

    async def reported() -> bool:
        await member.acknowledge()
        return bool((await classic.heartbeat()).error_code)

    await scene.until(reported)
    await scene.expect(classic.heartbeat(), "REBALANCE_IN_PROGRESS", "Heartbeat once partitions fall to it")


@_check(
    "M9c",
    "Consumer metadata that cannot be read, in a consumer group",
    subject="JoinGroup",
    needs=(*NEEDS, Need.SETTINGS),
    kind=CheckKind.CONFIG,
    expected="an error, because the coordinator must parse it: INCONSISTENT_GROUP_PROTOCOL or UNKNOWN_SERVER_ERROR",
    note="Apache Kafka intends INCONSISTENT_GROUP_PROTOCOL. Its versions 4.1 and 4.3 return "
    "UNKNOWN_SERVER_ERROR, because their parser raises another exception than the mapped one.",
)
async def unreadable(scene: CheckContext) -> None:
    _require_downgrade(scene)
    await assigned_group(scene)
    for metadata in (b"", b"\x00\x01\x00"):
        joining = scene.member(protocols=(("range", metadata),))
        response = await joining.join()
        if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            response = await joining.join(member_id=response.member_id)
        expected = "INCONSISTENT_GROUP_PROTOCOL or UNKNOWN_SERVER_ERROR"
        scene.error(response.error_code, expected, f"JoinGroup with {len(metadata)} bytes of metadata")


@_check(
    "M10",
    "Every partition has one owner",
    expected="three members come to own all partitions between them, each by one, in one epoch",
)
async def shared(scene: CheckContext) -> None:
    counts = sorted(len(member.partitions) for member in await assigned_group(scene, 3))
    scene.equal("partitions by member", counts, [1, 1, 2])


@_check(
    "M11",
    "No partition is given before it is given back",
    expected="while the old owner has not acknowledged, the newcomer does not get the partitions that it owns",
)
async def one_owner(scene: CheckContext) -> None:
    (first,) = await assigned_group(scene)
    newcomer = Kip848Consumer(scene)
    await newcomer.join()
    for _ in range(5):
        # The old owner gets its smaller assignment, but reports in each heartbeat that it still owns all partitions.
        everything = ({"topic_id": scene.topic.id, "partitions": tuple(range(scene.topic.partitions))},)
        await first.beat(topic_partitions=everything)
        await newcomer.acknowledge()
        scene.equal("the newcomer's partitions", newcomer.partitions, [])
    first.owned = {scene.topic.id: first.owned.get(scene.topic.id, ())}
    await settle(scene, [first, newcomer])


@_check(
    "M12",
    "ConsumerGroupDescribe",
    subject="ConsumerGroupDescribe",
    expected="Stable. Each member has its epoch, subscription and assignment, which is its target",
)
async def described(scene: CheckContext) -> None:
    members = await assigned_group(scene, 2)
    response = await scene.expect(describe(scene), "NONE", "ConsumerGroupDescribe")
    scene.equal("state and epoch", (response.group_state, response.group_epoch), ("Stable", members[0].epoch))
    found = {}
    for entry in response.members:
        owned = sorted((t.topic_id, index) for t in entry.assignment.topic_partitions for index in t.partitions)
        target = sorted((t.topic_id, index) for t in entry.target_assignment.topic_partitions for index in t.partitions)
        found[entry.member_id] = (entry.member_epoch, entry.subscribed_topic_names, owned, target)
    expected = {
        member.id: (member.epoch, (scene.topic.name,), member.partitions, member.partitions) for member in members
    }
    scene.equal("the members", found, expected)


@_check(
    "M12c",
    "ConsumerGroupDescribe names the assignor",
    subject="ConsumerGroupDescribe",
    expected="any name if no member requests one, else the requested name",
)
async def assignor_described(scene: CheckContext) -> None:
    for requested in (None, "range"):
        scene.group = scene.new_group()
        response = await Kip848Consumer(scene).join(server_assignor=requested)
        scene.error(response.error_code, "NONE", f"the first heartbeat with server_assignor={requested}")
        name = (await describe(scene)).assignor_name
        what = f"assignor_name, with server_assignor={requested}"
        scene.true(what, name == requested if requested else bool(name), requested or "a name", repr(name))


@_check(
    "M12b",
    "ConsumerGroupDescribe of an unknown group, and of a classic one",
    subject="ConsumerGroupDescribe",
    needs=(Need.CONSUMER,),
    expected="GROUP_ID_NOT_FOUND for both",
)
async def not_described(scene: CheckContext) -> None:
    await scene.expect(describe(scene), "GROUP_ID_NOT_FOUND", "ConsumerGroupDescribe of a new group")
    await scene.stable(1)
    await scene.expect(describe(scene), "GROUP_ID_NOT_FOUND", "ConsumerGroupDescribe of a classic group")


@_check(
    "M13",
    "DescribeGroups of a consumer group",
    subject="DescribeGroups",
    source="KIP-848, KIP-1043",
    kind=CheckKind.VERSIONED,
    expected="like an unknown group: Dead with NONE up to version 5, GROUP_ID_NOT_FOUND from version 6 on",
)
async def described_classic(scene: CheckContext) -> None:
    await assigned_group(scene)
    response = await describe_one(scene)
    scene.error(response.error_code, "GROUP_ID_NOT_FOUND" if scene.version >= 6 else "NONE", "DescribeGroups")
    scene.equal("state and members", (response.group_state, response.members), ("Dead", ()))


@_check(
    "M14",
    "ListGroups by type",
    subject="ListGroups",
    versions="5+",
    expected="the group is listed as Consumer, under that type only",
)
async def listed(scene: CheckContext) -> None:
    await assigned_group(scene)
    node = await scene.coordinator(scene.group)
    for kind, expected in (("consumer", True), ("classic", False)):
        response = await scene.send("ListGroups", node=node, states_filter=(), types_filter=(kind,))
        found = {entry.group_id: entry.group_type for entry in response.groups}
        scene.equal(f"listed under {kind}", scene.group in found, expected)
        if expected:
            scene.equal("the type in the response", found[scene.group].lower(), "consumer")


@_check("M15", "DeleteGroups while active", subject="DeleteGroups", expected="NON_EMPTY_GROUP")
async def not_deleted(scene: CheckContext) -> None:
    await assigned_group(scene)
    response = await scene.send("DeleteGroups", groups_names=(scene.group,))
    scene.error(response.results[0].error_code, "NON_EMPTY_GROUP", "DeleteGroups of an active consumer group")


@_check("M16", "Another subscription", expected="the epoch goes up, and the new topic's partitions come")
async def resubscribed(scene: CheckContext) -> None:
    (member,) = await assigned_group(scene)
    epoch = member.epoch
    member.topics = (scene.topic, scene.other_topic)
    response = await member.beat(subscribed_topic_names=tuple(topic.name for topic in member.topics))
    scene.error(response.error_code, "NONE", "a heartbeat with another topic")
    wanted = sorted((topic.id, index) for topic in member.topics for index in range(topic.partitions))
    scene.true("its partitions", await member.gets(wanted), wanted, member.partitions)
    scene.true("the epoch", member.epoch > epoch, f"above {epoch}", member.epoch)


@_check("M17a", "Topics by pattern", versions="1+", expected="the topics that match are assigned")
async def pattern(scene: CheckContext) -> None:
    member = Kip848Consumer(scene)
    response = await member.join(subscribed_topic_names=None, subscribed_topic_regex=f"{scene.topic.name}.*")
    scene.error(response.error_code, "NONE", "the first heartbeat with a pattern")
    wanted = [(scene.topic.id, index) for index in range(scene.topic.partitions)]
    scene.true("the partitions", await member.gets(wanted), "all of the topic's", member.partitions)


@_check("M17b", "A pattern that is none", versions="1+", expected="INVALID_REGULAR_EXPRESSION")
async def bad_pattern(scene: CheckContext) -> None:
    response = await Kip848Consumer(scene).join(subscribed_topic_names=None, subscribed_topic_regex="[")
    scene.error(response.error_code, "INVALID_REGULAR_EXPRESSION", "the first heartbeat with the pattern [")


@_check("M18", "A heartbeat without changes", expected="NONE, the same epoch, and no assignment repeated")
async def nothing_new(scene: CheckContext) -> None:
    (member,) = await assigned_group(scene)
    epoch = member.epoch
    response = await scene.expect(member.beat(), "NONE", "a bare heartbeat")
    scene.equal("epoch and assignment", (response.member_epoch, response.assignment), (epoch, None))
