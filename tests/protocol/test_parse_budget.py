"""Parsing is bounded by the memory of what it makes, not only by the frame."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from kohort.common import WireError
from kohort.network.broker_connection import LEAST_RESPONSE_BYTES, LOGIN_BUDGET_BYTES
from kohort.protocol.apis.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kohort.protocol.catalogue import API
from tests.protocol.hostile_responses import MIB, RESPONSES, cost, parsed


@pytest.mark.proves("B-04")
@pytest.mark.parametrize("api", RESPONSES)
def test_small_elements_take_no_more_than_their_budget(api: str) -> None:
    data = RESPONSES[api][1](MIB)
    for budget in (LOGIN_BUDGET_BYTES // 2, 16 * MIB):
        peak, _outcome = parsed(api, data, budget)
        assert peak < budget + 2 * MIB


@pytest.mark.parametrize("api", RESPONSES)
def test_a_parse_within_its_budget_gives_what_it_gives_without(api: str) -> None:
    version, made = RESPONSES[api]
    message, data = API[api].response, made(10_000)
    assert message.parse_from(data, 0, version, 1 << 20) == message.parse_from(data, 0, version)
    with pytest.raises(WireError, match="more memory than a response may") as raised:
        message.parse_from(data, 0, version, 4_000)
    assert raised.value.place["api"] == message.name
    assert raised.value.place["path"]
    assert isinstance(raised.value.place["offset"], int)


def test_an_honest_response_of_100_000_partitions_of_metadata_fits_the_least_budget() -> None:
    topics = tuple(
        MetadataResponseTopic(
            name=f"topic-{number:04d}",
            partitions=tuple(
                MetadataResponsePartition(
                    partition_index=index,
                    leader_id=1 + (number + index) % 9,
                    leader_epoch=1_000_000 + index,
                    replica_nodes=tuple((number + index + copy) % 300 for copy in range(3)),
                    isr_nodes=tuple((number + index + copy) % 300 for copy in range(2)),
                )
                for index in range(50)
            ),
        )
        for number in range(2_000)
    )
    brokers = tuple(
        MetadataResponseBroker(node_id=node, host=f"broker-{node}.example", port=9092) for node in range(300)
    )
    response = MetadataResponse(brokers=brokers, topics=topics)
    message = API["Metadata"].response
    data = message.build(response, 12)
    assert message.parse_from(data, 0, 12, LEAST_RESPONSE_BYTES - len(data))[0] == response


ONE = {"partition_index": 40_000, "committed_offset": 10**9, "committed_leader_epoch": 7, "metadata": "by consumer-1"}
BY_TOPIC = {
    "Produce": (9, "responses", "name", "partition_responses", {"index": 40_000, "base_offset": 10**9}),
    "Fetch": (12, "responses", "topic", "partitions", {"partition_index": 40_000, "high_watermark": 10**9}),
    "ListOffsets": (7, "topics", "name", "partitions", {"partition_index": 40_000, "offset": 10**9}),
    "OffsetCommit": (8, "topics", "name", "partitions", {"partition_index": 40_000}),
    "OffsetFetch": (7, "topics", "name", "partitions", ONE),
    "OffsetDelete": (0, "topics", "name", "partitions", {"partition_index": 40_000}),
    "OffsetForLeaderEpoch": (4, "topics", "topic", "partitions", {"partition": 40_000, "end_offset": 10**9}),
    "TxnOffsetCommit": (4, "topics", "name", "partitions", {"partition_index": 40_000}),
    "DeleteRecords": (2, "topics", "name", "partitions", {"partition_index": 40_000, "low_watermark": 10**9}),
}
"""API: version, topics, their name, their partitions, and one of these."""


def by_topic(api: str) -> tuple[int, dict[str, Any]]:
    """A version, and a response with 50 partitions of 2,000 topics each."""
    version, topics, name, partitions, one = BY_TOPIC[api]
    return version, {topics: [{name: f"topic-{number:04d}", partitions: [one] * 50} for number in range(2_000)]}


def numbered(fields: dict[str, Any], name: str, count: int = 100_000) -> list[dict[str, Any]]:
    return [{**fields, name: f"some-longer-name-{number:06d}"} for number in range(count)]


HOST = {"node_id": 40_000, "host": "broker-40000.example", "port": 9092}
GROUP = {"protocol_type": "consumer", "group_state": "Stable", "group_type": "classic"}
MEMBER = {"client_id": "consumer-1", "client_host": "/10.0.0.1", "member_metadata": bytes(500)}
CONFIG = {"value": "604800000", "config_source": 5, "config_type": 5}
SYNONYM = {"name": "log.retention.ms", "value": "604800000", "source": 5}
OF_NAMES: dict[str, tuple[int, Callable[[], dict[str, Any]]]] = {
    "ListGroups": (5, lambda: {"groups": numbered(GROUP, "group_id")}),
    "FindCoordinator": (4, lambda: {"coordinators": numbered(HOST, "key")}),
    "DeleteTopics": (5, lambda: {"responses": numbered({}, "name")}),
    "DeleteGroups": (2, lambda: {"results": numbered({}, "group_id")}),
    "CreatePartitions": (3, lambda: {"results": numbered({}, "name")}),
    "CreateTopics": (
        7,
        lambda: {
            "topics": numbered(
                {"configs": numbered({"value": "604800000", "config_source": 5}, "name", 40)}, "name", 1_000
            )
        },
    ),
    "DescribeConfigs": (
        4,
        lambda: {
            "results": numbered(
                {"configs": numbered({**CONFIG, "synonyms": [SYNONYM] * 2}, "name", 40)}, "resource_name", 1_000
            )
        },
    ),
    "DescribeGroups": (
        5,
        lambda: {"groups": numbered({"members": numbered(MEMBER, "member_id", 10)}, "group_id", 2_000)},
    ),
    "JoinGroup": (
        9,
        lambda: {"protocol_name": "range", "members": numbered({"metadata": bytes(2_000)}, "member_id", 10_000)},
    ),
    "ConsumerGroupHeartbeat": (
        1,
        lambda: {"assignment": {"topic_partitions": [{"topic_id": UUID(int=7), "partitions": [40_000] * 50}] * 2_000}},
    ),
    "SyncGroup": (5, lambda: {"assignment": bytes(8 * MIB)}),
}


@pytest.mark.parametrize("api", [*BY_TOPIC, *OF_NAMES])
def test_an_honest_large_response_fits_the_least_budget(api: str) -> None:
    """100,000 partitions, names or settings, for any `max_frame_bytes`: a larger one only gives a larger budget."""
    version, given = by_topic(api) if api in BY_TOPIC else (OF_NAMES[api][0], OF_NAMES[api][1]())
    message = API[api].response
    data = message.build(given, version)
    value, end = message.parse_from(data, 0, version, LEAST_RESPONSE_BYTES - len(data))
    assert end == len(data)
    assert message.build(value, version) == data


def test_an_error_of_the_budget_names_the_setting() -> None:
    version, made = RESPONSES["Metadata"]
    with pytest.raises(WireError, match="max_frame_bytes"):
        API["Metadata"].response.parse_from(made(10_000), 0, version, 4_000)


@pytest.mark.proves("B-04")
@pytest.mark.parametrize(("api", "most_mib"), [("ApiVersions", 8), ("SaslHandshake", 8), ("Metadata", 32)])
def test_what_a_hostile_port_costs_a_client(api: str, most_mib: int) -> None:
    peak, outcome = cost("kohort", api, seconds=1.5)
    assert 0 <= peak < most_mib * MIB, outcome
    assert outcome in ("ConnectionFailed", "FrameTooLarge", "WireError", "OperationTimeout")


@pytest.mark.proves("B-04")
@pytest.mark.parametrize("size_mib", [20, *(pytest.param(size, marks=pytest.mark.full) for size in (60, 100)), 127])
def test_a_hostile_response_costs_no_more_than_a_frame_and_16_mib(size_mib: int) -> None:
    """Also the next ones: the client connects again and requests again, and none of what was refused stays."""
    for seconds in (5, 20, 80):  # on a busy machine one response can take longer than 5 s
        peak, outcome = cost("kohort", "Metadata", size=size_mib * MIB, seconds=seconds)
        if outcome != "OperationTimeout":
            break
    assert outcome == "WireError"
    assert 0 <= peak < (128 + 16) * MIB
