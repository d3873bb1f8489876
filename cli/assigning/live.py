"""A group as it runs on a broker: members, subscriptions, assignments, racks and lag."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kohort.admin import Admin, GroupDescription, MemberDescription, TopicDescription
from kohort.assignors.lag import lag_from_offsets
from kohort.cli.assigning.events import Document
from kohort.common import KohortError, TopicPartition
from kohort.common.topic_partition import grouped


class GroupNotReadable(KohortError):
    """The group cannot be read in its present state. The message has the broker's response."""


def read_group(admin: Admin, group: str) -> tuple[Document, str]:
    """Return (the group's document, the assignor it uses). Raises `GroupNotReadable`, or what `admin` raises."""
    described = admin.describe_group(group)
    _refuse(described)
    document: Document = {"kohort": "group", "version": 1, "partitions": {}, "members": {}}
    for member in described.members:
        document["members"][member.member_id] = _member(member)
    wanted = {topic for member in described.members for topic in member.topics}
    topics = [one for one in admin.describe_topics(wanted).values() if isinstance(one, TopicDescription)]
    racks = {one.node: one.rack for one in admin.brokers()}
    for one in topics:  # a topic that does not exist has no partitions to plan
        document["partitions"][one.topic] = len(one.partitions)
    if any(racks.values()):
        document["racks"] = {
            one.topic: [[rack for node in each.replicas if (rack := racks.get(node))] for each in one.partitions]
            for one in topics
        }
    document["lag"] = _lag(admin, group, topics)
    return document, described.assignor


def _refuse(described: GroupDescription) -> None:
    if described.protocol_type not in ("consumer", ""):
        raise GroupNotReadable(f"a group of {described.protocol_type}, not of consumers", group=described.group)
    if described.type != "classic" or described.state != "Stable":
        raise GroupNotReadable(
            f"the group is {described.state}" if described.type == "classic" else "the coordinator assigns this group",
            group=described.group,
            hint="a classic group is readable while it is Stable; one of KIP-848 plans on the broker",
        )


def _member(member: MemberDescription) -> dict[str, Any]:
    said: dict[str, Any] = {
        "topics": list(member.topics),
        "owned": grouped(sorted(member.owned)),
        "generation": max(member.generation, 1),
        "rack": member.rack,
        "instance_id": member.instance_id,
    }
    return {name: value for name, value in said.items() if value is not None}


def _lag(admin: Admin, group: str, topics: Iterable[TopicDescription]) -> dict[str, list[int]]:
    places = [TopicPartition(one.topic, each.partition) for one in topics for each in one.partitions]
    committed = {one: at.offset for one, at in admin.committed(group).items()}
    lag = lag_from_offsets(committed, admin.end_offsets(places), admin.first_offsets(places))
    return {
        one.topic: [lag.get(TopicPartition(one.topic, each.partition), 0) for each in one.partitions] for one in topics
    }
