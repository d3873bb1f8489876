"""S: groups of Kafka Streams (KIP-1071), whose coordinator assigns tasks."""

from __future__ import annotations

from functools import partial
from typing import Any

from kohort.conformance.check import Need, Section
from kohort.conformance.check_context import CheckContext
from kohort.conformance.group_steps import (
    deletes_empty_group,
    describe_group,
    leaves_once,
    lists_type,
    refuses_consumer_heartbeat,
    refuses_unknown_group,
    refuses_unknown_member,
)
from kohort.conformance.request_builders import commit
from kohort.conformance.share.share_member import configure
from kohort.conformance.streams.streams_member import (
    ASSIGNED_S,
    NOTHING,
    ScriptedStreamsMember,
    as_tasks,
    internal_topic,
    member_of,
    tasks_of,
    topology,
)

SECTION = Section("S", "Streams groups (KIP-1071)", "StreamsGroupHeartbeat")
MISSING_SOURCES, UNEQUAL, SHUTDOWN = 1, 2, 4
_heartbeat = partial(SECTION.check, needs=(Need.STREAMS, Need.TOPIC), source="KIP-1071")
_describe = partial(_heartbeat, apis=("StreamsGroupDescribe",))
_described = partial(describe_group, api="StreamsGroupDescribe")


def _invalid(row: str, title: str, **changes: object) -> None:
    @_heartbeat(row, title, expected="INVALID_REQUEST")
    async def invalid(scene: CheckContext) -> None:
        await scene.expect(member_of(scene).join(**changes), "INVALID_REQUEST", f"the first heartbeat with {changes}")


_invalid("S1a", "A first heartbeat without a topology", topology=None)
_invalid("S1b", "A first heartbeat without a rebalance time-out", rebalance_timeout_ms=-1)
_invalid("S1c", "A first heartbeat with tasks", active_tasks=as_tasks([("0", 0)]))
_invalid("S1d", "A first heartbeat without lists of tasks", active_tasks=None, standby_tasks=None, warmup_tasks=None)
_invalid("S1e", "An empty member id of a streams group", member_id="")
_invalid("S1f", "An empty group id of a streams group", group_id="")
_invalid("S1g", "An epoch below -2", member_epoch=-3)
_invalid("S1h", "Epoch -2 without an instance id", member_epoch=-2, topology=None)


@_heartbeat("S2a", "A first heartbeat", expected="NONE, an epoch and an interval; then a task for each partition")
async def joins(scene: CheckContext) -> None:
    member = member_of(scene)
    response = await scene.expect(member.join(), "NONE", "the first heartbeat")
    scene.true("the epoch", response.member_epoch > 0, "above 0", response.member_epoch)
    scene.true("the interval", response.heartbeat_interval_ms > 0, "above 0", response.heartbeat_interval_ms)
    await member.gets(scene.topic.partitions)
    scene.equal("the active tasks", member.active, _all(scene))


@_heartbeat("S2b", "A streams group that does not exist", expected="GROUP_ID_NOT_FOUND")
async def unknown_group(scene: CheckContext) -> None:
    await refuses_unknown_group(scene, member_of)


@_heartbeat("S2c", "An unknown member of a streams group", expected="UNKNOWN_MEMBER_ID")
async def unknown_member(scene: CheckContext) -> None:
    await refuses_unknown_member(scene, member_of)


@_heartbeat("S3a", "An unchanged streams member", expected="no tasks in the response, and the same epoch")
async def unchanged(scene: CheckContext) -> None:
    member = await member_of(scene).joined(scene.topic.partitions)
    epoch = member.epoch
    response = await scene.expect(member.beat(), "NONE", "an unchanged heartbeat")
    scene.equal("the epoch", response.member_epoch, epoch)
    found = (response.active_tasks, response.standby_tasks, response.warmup_tasks)
    scene.equal("the tasks", found, (None, None, None))


def _refused(row: str, title: str, code: str, **changes: object) -> None:
    @_heartbeat(row, title, expected=code)
    async def refused(scene: CheckContext) -> None:
        member = await member_of(scene).joined(scene.topic.partitions)
        given = {name: value(member) if callable(value) else value for name, value in changes.items()}
        await scene.expect(member.beat(**given), code, f"a later heartbeat with {given}")


_refused("S3b", "A topology in a later heartbeat", "INVALID_REQUEST", topology=lambda member: member.topology)
_refused("S3c", "Active tasks without the other lists", "INVALID_REQUEST", active_tasks=as_tasks([("0", 0)]))
_refused(
    "S3d", "A task that the topology lacks", "INVALID_REQUEST", **{**NOTHING, "active_tasks": as_tasks([("9", 0)])}
)
_refused("S3e", "A later epoch", "FENCED_MEMBER_EPOCH", member_epoch=lambda member: member.epoch + 3)


def _bad_topology(row: str, title: str, **changes: Any) -> None:
    @_heartbeat(row, title, expected="STREAMS_INVALID_TOPOLOGY")
    async def bad(scene: CheckContext) -> None:
        sources = changes.get("sources", (scene.topic.name,))
        rest = {name: value for name, value in changes.items() if name != "sources"}
        response = await ScriptedStreamsMember(scene, topology(*sources, **rest)).join()
        scene.error(response.error_code, "STREAMS_INVALID_TOPOLOGY", f"the first heartbeat with {changes}")


_bad_topology("S4a", "An internal topic of Kafka as a source", sources=("__consumer_offsets",))
_bad_topology("S4b", "A source with an invalid name", sources=("a b",))
_bad_topology(
    "S4c", "A changelog with a number of partitions", state_changelog_topics=(internal_topic("changelog", 3),)
)


@_describe(
    "S5a",
    "A missing source topic",
    expected="NONE with status 1 and no tasks, and state NotReady. The tasks come with the topic, without a new join",
)
async def missing_source(scene: CheckContext) -> None:
    label = scene.name().removeprefix(f"{scene.target.prefix}-")
    member = ScriptedStreamsMember(scene, topology(f"{scene.target.prefix}-{label}"))
    await scene.expect(member.join(), "NONE", "the first heartbeat")
    scene.true("the status", MISSING_SOURCES in member.status, "has 1", set(member.status))
    scene.equal("the active tasks", member.active, frozenset())
    scene.equal("the state", (await _described(scene)).group_state, "NotReady")
    await scene.target.make_topic(label, 2)
    await member.gets(2)
    scene.equal("the active tasks with the topic", member.active, frozenset({("0", 0), ("0", 1)}))
    scene.true("the status", MISSING_SOURCES not in member.status, "without 1", set(member.status))


@_heartbeat("S5b", "A missing changelog", expected="the broker creates it with a partition for each task, then assigns")
async def changelog(scene: CheckContext) -> None:
    name = scene.name()
    scene.target.made_topics.append(name)
    made = topology(scene.topic.name, state_changelog_topics=(internal_topic(name),))
    await ScriptedStreamsMember(scene, made).joined(scene.topic.partitions)
    (topic,) = (await scene.target.describe_topic(name)).topics
    scene.equal("the partitions of the changelog", len(topic.partitions), scene.topic.partitions)


@_heartbeat("S5c", "Topics that must be partitioned alike", expected="status 2 and no tasks while they are not")
async def unequal(scene: CheckContext) -> None:
    group = {"source_topics": (0, 1), "source_topic_regex": (), "repartition_source_topics": ()}
    names = (scene.topic.name, scene.other_topic.name)
    member = ScriptedStreamsMember(scene, topology(*names, copartition_groups=(group,)))
    await member.join()
    scene.true("the status", UNEQUAL in member.status, "has 2", set(member.status))
    scene.equal("the active tasks", member.active, frozenset())


@_describe(
    "S6a",
    "A second process",
    expected="the first keeps its epoch until it has reported that it let go; only then the second gets the tasks",
)
async def moves(scene: CheckContext) -> None:
    first, second = member_of(scene), member_of(scene)
    await first.joined(scene.topic.partitions)
    epoch = first.epoch
    await second.join()

    async def gives_up() -> bool:
        await second.report()
        scene.equal("the tasks of the second before the first has let go", second.active, frozenset())
        await first.beat()
        return len(first.active) < scene.topic.partitions

    scene.true("the tasks of the first", await scene.until(gives_up, ASSIGNED_S), "fewer", len(first.active))
    scene.equal("the epoch of the first until it reports", first.epoch, epoch)
    scene.equal("the state", (await _described(scene)).group_state, "Reconciling")
    await first.report()
    scene.true("the epoch of the first afterwards", first.epoch > epoch, f"above {epoch}", first.epoch)
    await second.gets(scene.topic.partitions - len(first.active))
    scene.equal("the tasks of both", first.active | second.active, _all(scene))
    scene.equal("the tasks that both have", first.active & second.active, frozenset())


@_heartbeat(
    "S6b",
    "A standby",
    apis=("IncrementalAlterConfigs",),
    expected="with streams.num.standby.replicas=1, each task of a store is active on one process, standby on another",
)
async def standby(scene: CheckContext) -> None:
    await configure(scene, streams_num_standby_replicas="1")
    name = scene.name()
    scene.target.made_topics.append(name)
    made = topology(scene.other_topic.name, state_changelog_topics=(internal_topic(name),))
    both = [ScriptedStreamsMember(scene, made) for _ in range(2)]
    for member in both:
        await member.join()

    async def complete() -> bool:
        for member in both:
            await member.report()
        return sum(len(one.active) + len(one.standby) for one in both) == 2 * scene.other_topic.partitions

    done = await scene.until(complete, ASSIGNED_S)
    scene.true("the tasks", done, "each twice", [(set(one.active), set(one.standby)) for one in both])
    scene.equal("the active tasks", len(both[0].active | both[1].active), scene.other_topic.partitions)
    scene.equal("a task twice in one process", [one.active & one.standby for one in both], [frozenset()] * 2)


@_describe("S7a", "A leave of a streams member", expected="epoch -1; then UNKNOWN_MEMBER_ID, and the group is Empty")
async def leaves(scene: CheckContext) -> None:
    await leaves_once(scene, member_of(scene))
    scene.equal("the state", (await _described(scene)).group_state, "Empty")


@_heartbeat("S7b", "A request to shut down", expected="status 4 for the other members as well")
async def shuts_down(scene: CheckContext) -> None:
    first, second = member_of(scene), member_of(scene)
    await first.join()
    await second.join()
    await first.beat(shutdown_application=True)
    await second.beat()
    scene.true("the status of the other member", SHUTDOWN in second.status, "has 4", set(second.status))


@_describe(
    "S8a",
    "StreamsGroupDescribe",
    subject="StreamsGroupDescribe",
    expected="Stable with topology, member and tasks; GROUP_ID_NOT_FOUND without a topology for an unknown group",
)
async def described(scene: CheckContext) -> None:
    member = await member_of(scene).joined(scene.topic.partitions)

    async def stable() -> bool:
        await member.report()
        return bool((await _described(scene)).group_state == "Stable")

    scene.true("the state", await scene.until(stable), "Stable", "another")
    response = await _described(scene)
    scene.equal("the source topics", response.topology.subtopologies[0].source_topics, (scene.topic.name,))
    (one,) = response.members
    scene.equal("the member and its process", (one.member_id, one.process_id), (member.id, member.process))
    scene.equal("the tasks", tasks_of(one.assignment.active_tasks), _all(scene))
    response = await _described(scene, group_ids=(scene.new_group(),))
    scene.error(response.error_code, "GROUP_ID_NOT_FOUND", "StreamsGroupDescribe of an unknown group")
    scene.equal("its topology", response.topology, None)


@_heartbeat("S8b", "ListGroups", subject="ListGroups", versions="5+", expected="the type streams, also as a filter")
async def listed(scene: CheckContext) -> None:
    await lists_type(scene, member_of(scene), "streams", "Streams")


@_heartbeat("S8c", "DeleteGroups", apis=("DeleteGroups",), expected="NON_EMPTY_GROUP with a member, NONE without one")
async def deleted(scene: CheckContext) -> None:
    await deletes_empty_group(scene, member_of(scene))


@_heartbeat(
    "S8d",
    "Members of other kinds",
    apis=("ShareGroupHeartbeat", "ConsumerGroupHeartbeat"),
    expected="GROUP_ID_NOT_FOUND for ShareGroupHeartbeat and ConsumerGroupHeartbeat",
)
async def other_kinds(scene: CheckContext) -> None:
    await member_of(scene).join()
    values = {"group_id": scene.group, "member_id": "m" * 22, "member_epoch": 0}
    share = await scene.send("ShareGroupHeartbeat", values | {"subscribed_topic_names": (scene.topic.name,)})
    scene.error(share.error_code, "GROUP_ID_NOT_FOUND", "ShareGroupHeartbeat")
    await refuses_consumer_heartbeat(scene)


@_heartbeat(
    "S9a",
    "Commits of a streams member",
    apis=("OffsetCommit 9+",),
    expected="NONE; STALE_MEMBER_EPOCH for a later epoch",
)
async def commits(scene: CheckContext) -> None:
    member = await member_of(scene).joined(scene.topic.partitions)
    for epoch, code in ((member.epoch, "NONE"), (member.epoch + 1, "STALE_MEMBER_EPOCH")):
        codes = await commit(scene, {(scene.topic, 0): 1}, generation=epoch, member=member.id)
        scene.error(codes[scene.topic.name, 0], code, f"OffsetCommit of epoch {epoch}, the member's is {member.epoch}")


@_heartbeat("S10a", "Another topology", expected="INVALID_REQUEST; a lower epoch of the same topology joins with NONE")
async def other_topology(scene: CheckContext) -> None:
    await ScriptedStreamsMember(scene, topology(scene.topic.name, epoch=2)).join()
    older = ScriptedStreamsMember(scene, topology(scene.topic.name, epoch=1))
    await scene.expect(older.join(), "NONE", "a join with a lower epoch of the topology")
    other = ScriptedStreamsMember(scene, topology(scene.other_topic.name, epoch=2))
    await scene.expect(other.join(), "INVALID_REQUEST", "a join with other topics")


@_heartbeat("S10b", "An address for queries", expected="the partitions by address, for a member that has not seen them")
async def endpoints(scene: CheckContext) -> None:
    first, second = member_of(scene), member_of(scene)
    await first.join(user_endpoint={"host": "example.org", "port": 7})
    await first.gets(scene.topic.partitions)
    await second.join()
    found: list[tuple[str, int]] = []

    async def appear() -> bool:
        response = await second.beat()
        found[:] = [
            (one.user_endpoint.host, one.user_endpoint.port) for one in response.partitions_by_user_endpoint or ()
        ]
        return bool(found)

    await scene.until(appear)
    scene.equal("the addresses", found, [("example.org", 7)])


def _all(scene: CheckContext) -> frozenset[tuple[str, int]]:
    return frozenset(("0", number) for number in range(scene.topic.partitions))
