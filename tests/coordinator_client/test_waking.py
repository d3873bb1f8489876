"""When a consumer's next turn is due: each retry has its own time, and none hides behind one that has passed."""

import uuid

import pytest

from kohort.coordinator_client.config import Config
from kohort.coordinator_client.connections import Answered, Ask, Endpoint, Unanswered
from kohort.coordinator_client.core import Core
from kohort.coordinator_client.errors import ConnectionFailed
from kohort.coordinator_client.outgoing import Turn
from kohort.fastpath import TopicPartition
from kohort.protocol.apis.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from kohort.protocol.apis.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

ID = uuid.UUID(int=1)
UNKNOWN_SERVER_ERROR = -1
GONE = Unanswered(ConnectionFailed("the broker closed the connection"))


def metadata(leaders: dict[int, int]) -> MetadataResponse:
    partitions = tuple(
        MetadataResponsePartition(partition_index=number, leader_id=node, leader_epoch=node, replica_nodes=(node,))
        for number, node in leaders.items()
    )
    topic = MetadataResponseTopic(error_code=0, name="t", topic_id=ID, partitions=partitions)
    brokers = tuple(MetadataResponseBroker(node_id=node, host=f"b{node}", port=9092) for node in (1, 2))
    return MetadataResponse(brokers=brokers, cluster_id="c", topics=(topic,))


def fetched(*data: PartitionData) -> FetchResponse:
    return FetchResponse(error_code=0, session_id=7, responses=(FetchableTopicResponse(topic_id=ID, partitions=data),))


class Rig:
    """A core that reads partitions 0 and 1, and what it has asked that nobody has answered."""

    def __init__(self) -> None:
        config = Config.of(bootstrap="b:1", auto_offset_reset="earliest")
        self.core = Core(config, (), chance=lambda: 0.5, started=0.0)
        self.core.assign(
            frozenset(TopicPartition("t", n) for n in (0, 1)), {TopicPartition("t", n): 0 for n in (0, 1)}, {}
        )
        self.open: list[tuple[Endpoint | None, Ask]] = []

    def turn(self, now: float) -> Turn:
        turn = self.core.turn(now, 0)
        self.open += [(one.endpoint, one.ask) for one in turn.outgoing]
        return turn

    def settle(self, api: str, outcome: object, now: float, host: str | None = None) -> None:
        found = next(one for one in self.open if one[1].api == api and (host is None or one[0] == Endpoint(host, 9092)))
        self.open.remove(found)
        found[1].done(outcome, now)  # type: ignore[arg-type]


@pytest.mark.proves("I14")
def test_a_broker_that_is_asked_no_more_hides_no_other_retry() -> None:
    rig = Rig()
    rig.turn(0.0)
    rig.settle("Metadata", Answered(metadata({0: 1, 1: 2}), 12), 0.0)
    rig.turn(0.0)
    rig.settle("Fetch", GONE, 0.0, "b2")
    rig.turn(1.0)
    rig.settle("Metadata", Answered(metadata({0: 1, 1: 1}), 12), 1.0)
    rig.turn(1.0)
    rig.settle("Fetch", Answered(fetched(), 13), 10.0, "b1")
    rig.turn(10.0)
    refusal = PartitionData(partition_index=0, error_code=UNKNOWN_SERVER_ERROR, high_watermark=-1, records=None)
    rig.settle("Fetch", Answered(fetched(refusal), 13), 10.0, "b1")
    assert rig.turn(10.0).wake_at == pytest.approx(10.1)


@pytest.mark.proves("I14", "B-27")
def test_an_address_that_is_no_brokers_any_more_hides_no_other_retry() -> None:
    rig = Rig()
    rig.turn(0.0)
    rig.settle("Metadata", Answered(metadata({0: 1, 1: 1}), 12), 0.0)
    endpoints = rig.core.endpoints
    endpoints.answered(Endpoint("b1", 9092))
    error = ConnectionFailed("cannot reach the broker")
    endpoints.failed(Endpoint("b9", 9092), error, 0.0)
    for host, port in (("b1", 9092), ("b2", 9092), ("b", 1)):
        endpoints.failed(Endpoint(host, port), error, 10.0)
    assert rig.core.cluster.starving(10.0)
    assert rig.turn(10.0).wake_at == pytest.approx(10.05)
