"""Describes groups of Kafka Streams (KIP-1071)."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from kohort.admin.acl_operations import operations
from kohort.admin.groups import described
from kohort.admin.request_driver import RequestDriver
from kohort.protocol.apis.streams_group_describe import StreamsGroupDescribeRequest

STREAMS: Final = "streams"


class Task(NamedTuple):
    """A task: a partition of a subtopology."""

    subtopology: str
    partition: int


@dataclass(frozen=True, slots=True)
class SubtopologyDescription:
    """A part of the topology. `changelogs` and `repartition_sources` are internal topics."""

    subtopology: str
    source_topics: tuple[str, ...]
    repartition_sources: tuple[str, ...]
    repartition_sinks: tuple[str, ...]
    changelogs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StreamsMemberDescription:
    """A member of a streams group. `target`: the active tasks of its target assignment."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    rack: str | None
    epoch: int
    topology_epoch: int
    process_id: str
    active: frozenset[Task]
    standby: frozenset[Task]
    warmup: frozenset[Task]
    target: frozenset[Task]


@dataclass(frozen=True, slots=True)
class StreamsGroupDescription:
    """A streams group. `subtopologies` is empty if the group is not ready. `allowed`: authorized operations."""

    group: str
    state: str
    epoch: int
    assignment_epoch: int
    topology_epoch: int | None
    subtopologies: tuple[SubtopologyDescription, ...]
    members: tuple[StreamsMemberDescription, ...]
    allowed: frozenset[str] | None = None


def describe_streams_group(driver: RequestDriver, group: str) -> StreamsGroupDescription | None:
    """A streams group; None if there is none by this id. Raises AuthorizationFailed."""
    request = StreamsGroupDescribeRequest(group_ids=(group,), include_authorized_operations=True)
    one = described(driver, group, "StreamsGroupDescribe", request)
    if one is None:
        return None
    return StreamsGroupDescription(
        group,
        one.group_state,
        one.group_epoch,
        one.assignment_epoch,
        None if one.topology is None else one.topology.epoch,
        () if one.topology is None else tuple(map(_subtopology, one.topology.subtopologies or ())),
        tuple(sorted(map(_member, one.members), key=lambda member: (member.client_id, member.member_id))),
        operations(one.authorized_operations),
    )


def _subtopology(one: Any) -> SubtopologyDescription:
    return SubtopologyDescription(
        one.subtopology_id,
        one.source_topics,
        tuple(topic.name for topic in one.repartition_source_topics),
        one.repartition_sink_topics,
        tuple(topic.name for topic in one.state_changelog_topics),
    )


def _member(one: Any) -> StreamsMemberDescription:
    return StreamsMemberDescription(
        member_id=one.member_id,
        instance_id=one.instance_id,
        client_id=one.client_id,
        host=one.client_host.lstrip("/"),
        rack=one.rack_id,
        epoch=one.member_epoch,
        topology_epoch=one.topology_epoch,
        process_id=one.process_id,
        active=_tasks(one.assignment.active_tasks),
        standby=_tasks(one.assignment.standby_tasks),
        warmup=_tasks(one.assignment.warmup_tasks),
        target=_tasks(one.target_assignment.active_tasks),
    )


def _tasks(found: Iterable[Any]) -> frozenset[Task]:
    return frozenset(Task(one.subtopology_id, number) for one in found for number in one.partitions)
