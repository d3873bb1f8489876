"""Requests whose shape, not only their fields, changed between versions: from what is meant to what a version can say.

The machine fills in everything it means. Kafka's definitions then mark most later fields as ignorable, and the codec
drops those by itself; three requests replaced one field by another, which only this knows.
"""

from typing import Any, Final

from kohort.protocol.apis.fetch import FetchRequest
from kohort.protocol.errors import UnsupportedVersion

STATIC_SINCE: Final = {"JoinGroupRequest": 5, "SyncGroupRequest": 3, "HeartbeatRequest": 3, "OffsetCommitRequest": 7}


def fit(request: Any, version: int) -> Any:
    """`request` as `version` of its API can carry it. Requests that need no fitting come back as they are.

    Raises UnsupportedVersion where a static member would become another one by that.
    """
    name = type(request).__name__
    if version < (since := STATIC_SINCE.get(name, 0)) and request.group_instance_id is not None:
        raise UnsupportedVersion(
            "the broker is too old for static members (KIP-345)", hint="Kafka 2.3, or no group_instance_id",
            api=name.removesuffix("Request"), version=version, least=since, group=request.group_id,
        )  # fmt: skip
    match name:
        # KIP-699: v4 asks for many keys at once and drops the single one.
        case "FindCoordinatorRequest":
            return request._replace(coordinator_keys=()) if version < 4 else request._replace(key="")
        # KIP-345: v3 names members in a list, with their instance ids.
        case "LeaveGroupRequest":
            return request._replace(members=()) if version < 3 else request._replace(member_id="")
        # KIP-516: v13 has ids for names; by name a topic made anew would be forgotten together with the old one.
        case "FetchRequest" if version < 13 and request.forgotten_topics_data:
            return _without_what_is_told(request)
    return request


def _without_what_is_told(request: FetchRequest) -> FetchRequest:
    told = {(topic.topic, one.partition) for topic in request.topics for one in topic.partitions}
    forgotten = (
        one._replace(partitions=tuple(number for number in one.partitions if (one.topic, number) not in told))
        for one in request.forgotten_topics_data
    )
    return request._replace(forgotten_topics_data=tuple(one for one in forgotten if one.partitions))
