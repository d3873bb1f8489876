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
    for budget in (LOGIN_BUDGET_BYTES // 2, LEAST_BUDGET_BYTES):
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


def test_an_honest_response_of_100_000_partitions_fits_the_default() -> None:
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
    assert message.parse_from(data, 0, 12, 64 * MIB)[0] == response


@pytest.mark.proves("B-04")
@pytest.mark.parametrize(("api", "most_mib"), [("ApiVersions", 8), ("SaslHandshake", 8), ("Metadata", 32)])
def test_what_a_hostile_port_costs_a_client(api: str, most_mib: int) -> None:
    peak, outcome = cost("kohort", api, seconds=1.5)
    assert 0 <= peak < most_mib * MIB, outcome
    assert outcome in ("ConnectionFailed", "FrameTooLarge", "WireError", "OperationTimeout")
