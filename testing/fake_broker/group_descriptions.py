"""Descriptions of groups, as far as those of different kinds are alike."""

from __future__ import annotations

from collections.abc import Container
from typing import Any, Protocol

from kohort.protocol.apis.consumer_group_describe import Assignment, TopicPartitions
from kohort.protocol.errors import ErrorCode
from kohort.testing.fake_broker.consumer_coordinator import by_topic
from kohort.testing.fake_broker.consumer_group import Places
from kohort.testing.fake_broker.handler_context import Work

# AclOperation READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS: what there is to do to a group.
EVERYTHING = 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11
CLIENT_HOST = "/127.0.0.1"


class DescribeRequest(Protocol):
    """A request that may include the authorized operations."""

    @property
    def include_authorized_operations(self) -> bool: ...


def operations_of(request: DescribeRequest) -> dict[str, Any]:
    """The field of the authorized operations, if they are requested."""
    return {"authorized_operations": EVERYTHING} if request.include_authorized_operations else {}


def refusal(work: Work, group_id: str, groups: Container[str]) -> dict[str, Any] | None:
    """The fields of the description of a share or streams group that cannot be described. None if it can."""
    if not group_id:
        return {"error_code": ErrorCode.INVALID_GROUP_ID}
    if error := work.group_error(group_id):
        return {"error_code": error}
    if group_id in groups:
        return None
    message = f"Group {group_id} not found."
    return {"group_state": "Dead", "error_code": ErrorCode.GROUP_ID_NOT_FOUND, "error_message": message}


def assignment_of(work: Work, places: Places) -> Assignment:
    """The assigned partitions, without topics that do not exist any more."""
    topics = ((one, work.cluster.topic_by_id(one.topic_id)) for one in by_topic(places))
    return Assignment(
        topic_partitions=tuple(
            TopicPartitions(topic_id=one.topic_id, topic_name=topic.name, partitions=one.partitions)
            for one, topic in topics
            if topic is not None
        )
    )
