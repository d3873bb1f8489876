"""Metadata (3), versions 0-13: nodes, topics by name or id, leaders and their epochs; topics made on request.

Not done: authorized operations, racks, replicas other than the leader.
"""

from kohort.protocol.apis.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kohort.protocol.errors import ErrorCode
from kohort.testing.fake_broker.cluster import FakePartition, FakeTopic
from kohort.testing.fake_broker.handler_context import Work
from kohort.testing.fake_broker.topic_names import names_a_topic

KEY = 3
VERSIONS = (0, 13)


async def handle(work: Work, request: MetadataRequest) -> MetadataResponse:
    cluster = work.cluster
    wants_all = request.topics is None or (work.call.version == 0 and not request.topics)
    requested = request.topics or ()
    topics = (
        [_known(topic) for topic in cluster.topics.values()] if wants_all else [_one(work, each) for each in requested]
    )
    if request.allow_auto_topic_creation and work.groups.settings.auto_create_topics_enable:
        for topic in topics:  # the response is of the time before, as a real broker's
            if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and topic.name is not None:
                cluster.create_topic(topic.name, 1)
    brokers = tuple(
        MetadataResponseBroker(node_id=node, host=cluster.address_of(node).host, port=cluster.address_of(node).port)
        for node in sorted(cluster.addresses)
    )
    return MetadataResponse(
        brokers=brokers, cluster_id=cluster.cluster_id, controller_id=min(cluster.addresses), topics=tuple(topics)
    )


def _one(work: Work, requested: MetadataRequestTopic) -> MetadataResponseTopic:
    if requested.name is None:
        by_id = work.cluster.topic_by_id(requested.topic_id)
        if by_id is None:
            return MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, topic_id=requested.topic_id, name=None)
        return _known(by_id)
    topic = work.cluster.topics.get(requested.name)
    if topic is None:
        is_name = names_a_topic(requested.name)
        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_name else ErrorCode.INVALID_TOPIC_EXCEPTION
        return MetadataResponseTopic(error_code=error, name=requested.name)
    return _known(topic)


def _known(topic: FakeTopic) -> MetadataResponseTopic:
    partitions = tuple(_partition(number, partition) for number, partition in enumerate(topic.partitions))
    return MetadataResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=partitions)


def _partition(number: int, partition: FakePartition) -> MetadataResponsePartition:
    replicas = (partition.leader,) if partition.leader >= 0 else ()
    return MetadataResponsePartition(
        error_code=ErrorCode.NONE if replicas else ErrorCode.LEADER_NOT_AVAILABLE,
        partition_index=number,
        leader_id=partition.leader,
        leader_epoch=partition.epoch,
        replica_nodes=replicas,
        isr_nodes=replicas,
    )
