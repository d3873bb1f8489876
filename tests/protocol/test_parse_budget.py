"""Parsing is bounded by the memory of what it makes, not only by the frame."""

import pytest

from kohort.coordinator_client.connections import LEAST_BUDGET_BYTES, LOGIN_BUDGET_BYTES
from kohort.fastpath import WireError
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
    with pytest.raises(WireError, match="more values than fit") as raised:
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
    assert message.parse_from(data, 0, 12, LEAST_BUDGET_BYTES)[0] == response


TOPICS = [f"topic-{number:04d}" for number in range(2_000)]
LARGE = {
    "Produce": (9, "responses", "name", "partition_responses", {"index": 40_000, "base_offset": 10**9}),
    "Fetch": (12, "responses", "topic", "partitions", {"partition_index": 40_000, "high_watermark": 10**9}),
    "ListOffsets": (7, "topics", "name", "partitions", {"partition_index": 40_000, "offset": 10**9}),
    "OffsetCommit": (8, "topics", "name", "partitions", {"partition_index": 40_000}),
}


@pytest.mark.parametrize("api", LARGE)
def test_an_honest_response_of_100_000_partitions_fits_the_least_budget(api: str) -> None:
    version, topics, name, partitions, one = LARGE[api]
    message = API[api].response
    data = message.build({topics: [{name: topic, partitions: [one] * 50} for topic in TOPICS]}, version)
    value, end = message.parse_from(data, 0, version, LEAST_BUDGET_BYTES)
    assert end == len(data)
    assert sum(len(getattr(topic, partitions)) for topic in getattr(value, topics)) == 100_000


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
