"""S: streams groups: brokers that err with topologies, tasks, statuses and epochs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kohort.protocol.apis.streams_group_heartbeat import StreamsGroupHeartbeatResponse
from kohort.protocol.errors import ErrorCode
from kohort.testing.fake_broker import Call, FakeBroker
from kohort.testing.fake_broker.streams_coordinator import MISSING_SOURCES, SHUTDOWN, UNEQUAL, by_subtopology
from kohort.testing.fake_broker.streams_group import NONE, StreamsGroup
from tests.conformance.bending import Fault, altered, responded
from tests.conformance.faults_in_shares import code_becomes, joins

HEARTBEAT = "StreamsGroupHeartbeat"
Install = Callable[[FakeBroker], None]


def served(call: Call) -> StreamsGroupHeartbeatResponse:
    request: Any = call.request
    return StreamsGroupHeartbeatResponse(
        member_id=request.member_id, member_epoch=2, heartbeat_interval_ms=5000, status=()
    )


def accepts(wrong: Callable[[Any], bool]) -> Install:
    """A heartbeat that must be refused is served."""
    return responded(HEARTBEAT, served, lambda call, _broker: wrong(call.request))


def changed(**fields: object) -> Install:
    """Other fields in every response without an error."""

    def change(_call: Call, response: Any) -> Any:
        return response if response.error_code else response._replace(**fields)

    return altered(HEARTBEAT, change)


def group_of(broker: FakeBroker, request: Any) -> StreamsGroup | None:
    return broker._cluster.groups.streams.groups.get(request.group_id)


def of_streams(call: Call, broker: FakeBroker) -> bool:
    """True if the request is about a streams group."""
    return group_of(broker, call.request) is not None


def subtopologies(request: Any) -> tuple[Any, ...]:
    return request.topology.subtopologies if request.topology is not None else ()


def reads(topic: str) -> Callable[[Any], bool]:
    return lambda request: any(topic in one.source_topics for one in subtopologies(request))


def without_status(code: int, when: Callable[[Any], bool] = lambda request: True) -> Install:
    """A status is left out of responses."""

    def change(call: Call, response: Any) -> Any:
        if not when(call.request):
            return response
        return response._replace(status=tuple(one for one in response.status or () if one.status_code != code))

    return altered(HEARTBEAT, change)


def missing_sources_are_an_error(_call: Call, response: Any) -> Any:
    if any(one.status_code == MISSING_SOURCES for one in response.status or ()):
        return StreamsGroupHeartbeatResponse(error_code=ErrorCode.STREAMS_INVALID_TOPOLOGY, status=())
    return response


def tasks_come_each_time(broker: FakeBroker) -> None:
    def change(call: Call, response: Any) -> Any:
        request: Any = call.request
        group = group_of(broker, request)
        if group is None or request.member_id not in group.members or response.active_tasks is not None:
            return response
        member = group.members[request.member_id]
        return response._replace(
            active_tasks=by_subtopology(member.active), standby_tasks=by_subtopology(member.standby), warmup_tasks=()
        )

    altered(HEARTBEAT, change)(broker)


def heartbeats_with(**given: Any) -> Install:
    """The coordinator handles heartbeats with other arguments."""

    def install(broker: FakeBroker) -> None:
        streams = broker._cluster.groups.streams
        heartbeat = streams.heartbeat
        streams.heartbeat = lambda request, **named: heartbeat(request, **(named | given))  # type: ignore[method-assign]

    return install


def changelogs_of_one_partition(broker: FakeBroker) -> None:
    create = broker._cluster.create_topic
    heartbeats_with(create=lambda name, _partitions: create(name, 1))(broker)


def tasks_move_at_once(broker: FakeBroker) -> None:
    """A task is given away before its former owner has let it go."""
    streams = broker._cluster.groups.streams
    heartbeat = streams.heartbeat

    def beat(request: Any, **named: Any) -> Any:
        response = heartbeat(request, **named)
        for group in streams.groups.values():
            for member in group.members.values():
                member.active &= group.target.get(member.member_id, NONE)
                member.revoking = NONE
        return response

    streams.heartbeat = beat  # type: ignore[method-assign]


def no_commit_is_fenced(broker: FakeBroker) -> None:
    broker._cluster.groups.streams.commit_error = (  # type: ignore[method-assign]
        lambda group_id, epoch, member_id, *, version: ErrorCode.NONE
    )


def other_topologies_are_accepted(broker: FakeBroker) -> None:
    def wrong(call: Call, broker: FakeBroker) -> bool:
        request: Any = call.request
        group = group_of(broker, request)
        return (
            group is not None
            and bool(subtopologies(request))
            and request.topology.subtopologies != (group.topology.subtopologies)
        )

    responded(HEARTBEAT, served, wrong)(broker)


def listed_as_classic(_call: Call, response: Any) -> Any:
    return response._replace(
        groups=tuple(
            one._replace(protocol_type="consumer") if one.group_type == "streams" else one for one in response.groups
        )
    )


def deleted_with_members(_call: Call, response: Any) -> Any:
    return response._replace(results=tuple(one._replace(error_code=ErrorCode.NONE) for one in response.results))


def deletes_streams(call: Call, broker: FakeBroker) -> bool:
    request: Any = call.request
    return set(request.groups_names) <= broker._cluster.groups.streams.groups.keys()


def no_topology(_call: Call, response: Any) -> Any:
    """The topology is described by its epoch only."""
    return response._replace(
        groups=tuple(
            one._replace(topology=one.topology._replace(subtopologies=())) if one.topology is not None else one
            for one in response.groups
        )
    )


FAULTS: tuple[Fault, ...] = (
    Fault("a streams join without a topology", accepts(lambda one: joins(one) and one.topology is None), ("S1a",)),
    Fault("no rebalance time-out", accepts(lambda one: joins(one) and one.rebalance_timeout_ms < 0), ("S1b",)),
    Fault("a streams join with tasks", accepts(lambda one: joins(one) and bool(one.active_tasks)), ("S1c",)),
    Fault(
        "a streams join without lists of tasks",
        accepts(lambda one: joins(one) and one.topology is not None and one.active_tasks is None),
        ("S1d",),
    ),
    Fault("an empty streams member id", accepts(lambda one: not one.member_id), ("S1e",)),
    Fault("an empty streams group id", accepts(lambda one: not one.group_id), ("S1f",)),
    Fault("a streams epoch of -3", accepts(lambda one: one.member_epoch == -3), ("S1g",)),
    Fault("a streams epoch of -2 without a name", accepts(lambda one: one.member_epoch == -2), ("S1h",)),
    Fault("a streams member without an interval", changed(heartbeat_interval_ms=0), ("S2a",)),
    Fault(
        "an unknown streams group is an unknown member",
        code_becomes(HEARTBEAT, ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNKNOWN_MEMBER_ID),
        ("S2b",),
    ),
    Fault(
        "an unknown streams member is fenced",
        code_becomes(HEARTBEAT, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH),
        ("S2c", "S7a"),
    ),
    Fault("tasks come in each response", tasks_come_each_time, ("S3a",)),
    Fault(
        "a topology in a later heartbeat",
        accepts(lambda one: one.member_epoch > 0 and one.topology is not None),
        ("S3b",),
    ),
    Fault(
        "one kind of tasks alone",
        accepts(lambda one: one.active_tasks is not None and one.standby_tasks is None),
        ("S3c",),
    ),
    Fault(
        "an unknown task",
        accepts(lambda one: any(each.subtopology_id == "9" for each in one.active_tasks or ())),
        ("S3d",),
    ),
    Fault(
        "a later streams epoch is accepted",
        code_becomes(HEARTBEAT, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.NONE),
        ("S3e",),
    ),
    Fault("an internal topic as a source", accepts(reads("__consumer_offsets")), ("S4a",)),
    Fault("a source with a space", accepts(reads("a b")), ("S4b",)),
    Fault(
        "a changelog of three partitions",
        accepts(lambda one: any(each.partitions for sub in subtopologies(one) for each in sub.state_changelog_topics)),
        ("S4c",),
    ),
    Fault("missing sources are an error", altered(HEARTBEAT, missing_sources_are_an_error), ("S5a",)),
    Fault("a changelog of one partition", changelogs_of_one_partition, ("S5b",)),
    Fault("unequal topics go unseen", without_status(UNEQUAL), ("S5c",)),
    Fault("tasks move at once", tasks_move_at_once, ("S6a",)),
    Fault("no standbys", heartbeats_with(standbys=0), ("S6b",)),
    Fault(
        "a streams member leaves with epoch 0",
        altered(HEARTBEAT, lambda call, response: response._replace(member_epoch=max(response.member_epoch, 0))),
        ("S7a",),
    ),
    Fault(
        "only one member shuts down",
        without_status(SHUTDOWN, lambda request: not request.shutdown_application),
        ("S7b",),
    ),
    Fault("a topology is not described", altered("StreamsGroupDescribe", no_topology), ("S8a",)),
    Fault("a streams group is listed as a consumer's", altered("ListGroups", listed_as_classic), ("S8b",)),
    Fault(
        "a streams group is deleted with its members",
        altered("DeleteGroups", deleted_with_members, deletes_streams),
        ("S8c",),
    ),
    Fault(
        "a share member joins a streams group",
        altered(
            "ShareGroupHeartbeat", lambda _call, response: response._replace(error_code=ErrorCode.NONE), of_streams
        ),
        ("S8d",),
    ),
    Fault("no commit of a streams member is fenced", no_commit_is_fenced, ("S9a",)),
    Fault("another topology is accepted", other_topologies_are_accepted, ("S10a",)),
    Fault("addresses are left out", changed(partitions_by_user_endpoint=None), ("S10b",)),
)
