"""A consumer without its driver: its requests, and made-up responses."""

import uuid
from typing import Any

from kohort.assignors import get_all
from kohort.common import TopicPartition
from kohort.coordinator_client.consumer_config import ConsumerConfig
from kohort.coordinator_client.consumer_core import ConsumerCore
from kohort.network.requests import Endpoint, PendingRequest, PollResult
from kohort.protocol.apis.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from kohort.protocol.apis.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tests.support.sent_requests import sent

ID = uuid.UUID(int=1)


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
    """A core that reads partitions 0 and 1, and its requests in flight."""

    def __init__(self, **settings: Any) -> None:
        config = ConsumerConfig.of(bootstrap="b:1", auto_offset_reset="earliest", **settings)
        self.core = ConsumerCore(config, tuple(get_all(config.assignors)), chance=lambda: 0.5, started=0.0)
        self.core.assign(
            frozenset(TopicPartition("t", n) for n in (0, 1)), {TopicPartition("t", n): 0 for n in (0, 1)}, {}
        )
        self.open: list[tuple[Endpoint | None, PendingRequest]] = []

    def turn(self, now: float) -> PollResult:
        turn = self.core.poll(now, 0)
        self.open += [(one.endpoint, one.request) for one in sent(turn)]
        return turn

    def settle(self, api: str, outcome: object, now: float, host: str | None = None) -> None:
        found = next(one for one in self.open if one[1].api == api and (host is None or one[0] == Endpoint(host, 9092)))
        self.open.remove(found)
        found[1].done(outcome, now)  # type: ignore[arg-type]
