"""A group as it runs on a broker right now: members, subscriptions, assignments, racks and lag.

Plaintext only. Each request is of a version with the classic header, which every broker from 0.11 to 4.3 speaks.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from kohort.assignors.lag import lag_from_offsets
from kohort.cli.assigning.events import Document
from kohort.fastpath import KohortError, TopicPartition
from kohort.protocol.catalogue import API
from kohort.protocol.errors import error_name
from kohort.protocol.membership import parse_assignment, parse_subscription
from kohort.testing.plain_wire import ask

TIMEOUT_S = 10.0
_EARLIEST, _LATEST = -2, -1


class GroupNotReadable(KohortError):
    """The group cannot be read as it is now: the message says what the broker answered."""


def read_group(bootstrap: str, group: str) -> tuple[Document, str]:
    """(the group's document, the assignor it uses). Raises `GroupNotReadable`."""
    found = _find_coordinator(bootstrap, group)
    coordinator = f"{found.host}:{found.port}"
    described = _ask(
        coordinator, "DescribeGroups", 4, {"groups": (group,), "include_authorized_operations": False}
    ).groups[0]
    _refuse(described.error_code, "describe the group", group)
    if described.protocol_type not in ("consumer", ""):
        raise GroupNotReadable(f"a group of {described.protocol_type}, not of consumers", group=group)
    if described.group_state != "Stable":
        raise GroupNotReadable(
            f"the group is {described.group_state}", group=group,
            hint="a classic group is readable while it is Stable; one of KIP-848 plans on the broker",
        )  # fmt: skip
    document: Document = {"kohort": "group", "version": 1, "partitions": {}, "members": {}}
    for member in described.members:
        told = parse_subscription(member.member_metadata)
        said: dict[str, Any] = {
            "topics": list(told.topics),
            "owned": {
                row.topic: list(row.partitions)
                for row in parse_assignment(member.member_assignment).assigned_partitions
            },
            "generation": max(told.generation_id, 1),
            "rack": told.rack_id,
            "instance_id": member.group_instance_id,
        }
        document["members"][member.member_id] = {name: value for name, value in said.items() if value is not None}
    wanted = sorted({topic for said in document["members"].values() for topic in said["topics"]})
    leaders = _add_topics(bootstrap, wanted, document)
    _add_lag(coordinator, group, leaders, document)
    return document, described.protocol_data


def _find_coordinator(bootstrap: str, group: str) -> Any:
    """A broker that was just started makes the offsets topic at the first question, and says so for a while."""
    limit = time.monotonic() + TIMEOUT_S
    while True:
        found = _ask(bootstrap, "FindCoordinator", 1, {"key": group, "key_type": 0})
        if error_name(found.error_code) != "COORDINATOR_NOT_AVAILABLE" or time.monotonic() > limit:
            _refuse(found.error_code, "find the group's coordinator", group)
            return found
        time.sleep(0.2)


def _add_topics(bootstrap: str, wanted: Iterable[str], document: Document) -> dict[str, list[TopicPartition]]:
    """Partition counts and racks into the document; returns {leader's address: its partitions}."""
    answer = _ask(
        bootstrap, "Metadata", 8,
        {
            "topics": tuple({"name": topic} for topic in wanted), "allow_auto_topic_creation": False,
            "include_cluster_authorized_operations": False, "include_topic_authorized_operations": False,
        },
    )  # fmt: skip
    brokers = {broker.node_id: broker for broker in answer.brokers}
    leaders: dict[str, list[TopicPartition]] = {}
    racks: dict[str, list[list[str]]] = {}
    for topic in answer.topics:
        if topic.error_code:
            continue  # a topic that does not exist has no partitions to plan
        rows = sorted(topic.partitions, key=lambda each: int(each.partition_index))
        document["partitions"][topic.name] = len(rows)
        racks[topic.name] = [
            [rack for node in row.replica_nodes if node in brokers and (rack := brokers[node].rack)] for row in rows
        ]
        for row in rows:
            if row.leader_id in brokers:
                address = f"{brokers[row.leader_id].host}:{brokers[row.leader_id].port}"
                leaders.setdefault(address, []).append(TopicPartition(topic.name, row.partition_index))
    if any(replicas for rows in racks.values() for replicas in rows):
        document["racks"] = racks
    return leaders


def _add_lag(coordinator: str, group: str, leaders: dict[str, list[TopicPartition]], document: Document) -> None:
    partitions = [each for row in leaders.values() for each in row]
    fetched = _ask(
        coordinator, "OffsetFetch", 5, {"group_id": group, "topics": _by_topic(partitions, "partition_indexes")}
    )
    committed: dict[TopicPartition, int | None] = {
        TopicPartition(topic.name, row.partition_index): row.committed_offset if row.committed_offset >= 0 else None
        for topic in fetched.topics
        for row in topic.partitions
        if not row.error_code
    }
    ends: dict[int, dict[TopicPartition, int]] = {_EARLIEST: {}, _LATEST: {}}
    for address, row in leaders.items():
        for timestamp, into in ends.items():
            asked = _by_topic(row, "partitions", timestamp)
            answer = _ask(address, "ListOffsets", 2, {"replica_id": -1, "isolation_level": 0, "topics": asked})
            for topic in answer.topics:
                for each in topic.partitions:
                    if not each.error_code:
                        into[TopicPartition(topic.name, each.partition_index)] = each.offset
    lag = lag_from_offsets(committed, ends[_LATEST], ends[_EARLIEST])
    document["lag"] = {
        topic: [lag.get(TopicPartition(topic, number), 0) for number in range(count)]
        for topic, count in document["partitions"].items()
    }


def _by_topic(
    partitions: Iterable[TopicPartition], field: str, timestamp: int | None = None
) -> tuple[dict[str, Any], ...]:
    rows: dict[str, list[Any]] = {}
    for topic, number in partitions:
        each = number if timestamp is None else {"partition_index": number, "timestamp": timestamp}
        rows.setdefault(topic, []).append(each)
    return tuple({"name": topic, field: tuple(row)} for topic, row in rows.items())


def _ask(address: str, api: str, version: int, values: dict[str, Any]) -> Any:
    entry = API[api]
    try:
        answer = ask(address, entry.key, version, entry.request.build(values, version), timeout_s=TIMEOUT_S)
    except OSError as error:
        raise GroupNotReadable(f"no answer to {api}: {error}", address=address) from error
    return entry.response.parse(answer, version)


def _refuse(code: int, doing: str, group: str) -> None:
    if code:
        raise GroupNotReadable(f"cannot {doing}: {error_name(code)}", group=group)
