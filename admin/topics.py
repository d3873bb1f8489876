"""Lists, describes, creates and deletes topics."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Self
from uuid import UUID

from kohort.admin.acl_operations import operations
from kohort.admin.describe_configs import TOPIC, describe_configs, described_configs
from kohort.admin.request_driver import OVER_QUOTA, RequestDriver, endpoints, first_of
from kohort.common import KohortError, TopicPartition
from kohort.network.error_mapping import UNKNOWN_TOPIC_GRACE_S, topic_error
from kohort.network.errors import AuthorizationFailed, UnknownTopic
from kohort.network.metadata import NO_TOPIC_ID
from kohort.network.requests import Endpoint
from kohort.protocol.apis.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kohort.protocol.apis.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from kohort.protocol.apis.describe_configs import DescribeConfigsResult
from kohort.protocol.apis.metadata import MetadataRequest, MetadataRequestTopic
from kohort.protocol.errors import BrokerError, ErrorCode
from kohort.protocol.schema import first_version

TOPIC_ITSELF: Final = 1
FIRST_VERSION_BY_STATE: Final = first_version(DeleteTopicsRequest, "topics")
FIRST_WITH_RIGHTS: Final = first_version(MetadataRequest, "include_topic_authorized_operations")


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    """A partition; nodes are given by id, and `leader` is -1 if there is none."""

    partition: int
    leader: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic.

    `configs`: settings other than defaults, if they were requested. `allowed`: authorized operations (KIP-430), if they
    were requested.
    """

    topic: str
    topic_id: UUID
    internal: bool
    partitions: tuple[PartitionDescription, ...]
    configs: Mapping[str, str | None]
    allowed: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class Leaders:
    """The leaders of partitions. `coming`: partitions with a running election. `unknown`: those the broker lacks."""

    of: Mapping[TopicPartition, Endpoint]
    coming: frozenset[TopicPartition]
    unknown: frozenset[TopicPartition]

    @classmethod
    def requested(cls, driver: RequestDriver, partitions: Iterable[TopicPartition]) -> Self:
        """The leaders in current metadata."""
        wanted = frozenset(partitions)
        response = metadata(driver, sorted({one.topic for one in wanted}))
        brokers = endpoints(response)
        topics = [one for one in response.topics if one.name is not None]
        states = {
            TopicPartition(one.name, each.partition_index): each
            for one in topics
            if not one.error_code
            for each in one.partitions
        }
        made = {one.name for one in topics if one.error_code == ErrorCode.LEADER_NOT_AVAILABLE}  # no partitions so far
        lacking = {one.name for one in topics if one.error_code in (0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)}
        return cls(
            {one: brokers[each.leader_id] for one, each in states.items() if each.leader_id in brokers},
            frozenset(one for one in wanted if one.topic in made or (one in states and _awaits_leader(states[one]))),
            frozenset(one for one in wanted if one.topic in lacking and one not in states),
        )


def _awaits_leader(one: Any) -> bool:
    """True if the partition has no leader and an election can provide one.

    That is so if an in-sync replica runs, or if no replica is known. If all of them are down, the partition waits for a
    broker, which may take hours. With eligible leader replicas (KIP-966) no replica is in sync then.
    """
    candidates = one.isr_nodes or one.replica_nodes
    return one.leader_id < 0 and (not candidates or not set(candidates) <= set(one.offline_replicas))


def metadata(driver: RequestDriver, names: Iterable[str] | None, *, rights: bool = False) -> Any:
    """Metadata of these topics, or of all; `rights`: with authorized operations."""
    topics = None
    if names is not None:
        topics = tuple(MetadataRequestTopic(topic_id=NO_TOPIC_ID, name=name) for name in names)

    def request(version: int) -> MetadataRequest:
        return MetadataRequest(
            topics=topics,
            allow_auto_topic_creation=False,
            include_cluster_authorized_operations=False,
            include_topic_authorized_operations=rights and version >= FIRST_WITH_RIGHTS,
        )

    return driver.one("Metadata", request)


def list_topics(driver: RequestDriver, *, internal: bool) -> list[TopicDescription]:
    """All visible topics of the cluster, by name."""
    described = [_described(one, {}) for one in metadata(driver, None).topics if not one.error_code]
    return sorted((one for one in described if internal or not one.internal), key=lambda one: one.topic)


def describe_topics(driver: RequestDriver, topics: Iterable[str]) -> dict[str, TopicDescription | KohortError]:
    """These topics, with authorized operations.

    The value is UnknownTopic or AuthorizationFailed for a topic with an error.
    """
    names = sorted(set(topics))
    found = metadata(driver, names, rights=True).topics if names else ()
    return {
        one.name: _topic_error(one.name, one.error_code) if one.error_code else _described(one, {}) for one in found
    }


def describe_topic(driver: RequestDriver, topic: str) -> TopicDescription:
    """One topic with its own settings. Raises UnknownTopic, AuthorizationFailed."""
    found = once_made(driver, topic)
    result = first_of(once_described(driver, TOPIC, [topic]), "DescribeConfigs", topic=topic)
    if result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:  # deleted meanwhile
        raise _topic_error(topic, result.error_code)
    own = {one.name: one.value for one in described_configs(result) if _is_own(one)}
    if any(map(_awaits_leader, found.partitions)):
        found = once_led(driver, topic)  # last, since it may take the rest of the call's time
    return _described(found, own)


def once_described(driver: RequestDriver, kind: int, names: Iterable[str]) -> Sequence[DescribeConfigsResult]:
    """All settings of topics or groups (`kind`: TOPIC or GROUP), with the error of each."""
    request = describe_configs(kind, names)
    results: Sequence[DescribeConfigsResult] = driver.once_known(
        lambda: driver.one("DescribeConfigs", request).results, lambda found: [one.error_code for one in found]
    )
    return results


def once_led(driver: RequestDriver, topic: str) -> Any:
    """Metadata of one topic, with leaders. Raises UnknownTopic, AuthorizationFailed.

    Leaders that are being elected are awaited within the call's time. After that the metadata is returned as it is.
    """
    found = once_made(driver, topic)
    while any(map(_awaits_leader, found.partitions)) and driver.retry():
        found = once_made(driver, topic)
    return found


def once_made(driver: RequestDriver, topic: str) -> Any:
    """Metadata of one topic. Raises UnknownTopic, AuthorizationFailed.

    An unknown topic is retried for UNKNOWN_TOPIC_GRACE_S, since brokers learn of a new topic at different times.
    """
    while True:
        found = first_of(metadata(driver, [topic]).topics, "Metadata", topic=topic)
        if found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            again = driver.retry(UNKNOWN_TOPIC_GRACE_S)
        else:
            again = found.error_code == ErrorCode.LEADER_NOT_AVAILABLE and driver.retry()
        if not found.error_code:
            return found
        if not again:
            raise _topic_error(topic, found.error_code)


def _is_own(config: Any) -> bool:
    """True if the setting is the topic's own.

    Brokers before 1.1 send no source of a setting, only whether it is a default.
    """
    reported = config.config_source >= 0
    return config.config_source == TOPIC_ITSELF if reported else not config.is_default


def _topic_error(topic: str, code: int) -> KohortError:
    if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return UnknownTopic("no such topic", hint="list the topics with `kohort topic list`", topic=topic)
    return topic_error(topic, code)


def _described(one: Any, configs: Mapping[str, str | None]) -> TopicDescription:
    partitions = tuple(
        PartitionDescription(each.partition_index, each.leader_id, each.replica_nodes, each.isr_nodes)
        for each in sorted(one.partitions, key=lambda each: each.partition_index)
    )
    allowed = operations(one.topic_authorized_operations)
    return TopicDescription(one.name or "", one.topic_id, one.is_internal, partitions, configs, allowed)


def create_topic(
    driver: RequestDriver, topic: str, *, partitions: int, replication_factor: int, configs: Mapping[str, str]
) -> None:
    """Create a topic; -1 leaves a number to the broker.

    Raises TopicExists, BrokerError with the broker's message.
    """
    made = CreatableTopic(
        name=topic,
        num_partitions=partitions,
        replication_factor=replication_factor,
        assignments=(),
        configs=tuple(CreatableTopicConfig(name=name, value=value) for name, value in configs.items()),
    )
    request = CreateTopicsRequest(topics=(made,), timeout_ms=driver.config.request_timeout_ms)
    response = driver.of_controller(
        "CreateTopics", request, codes=lambda found: [one.error_code for one in found.topics]
    )
    result = first_of(response.topics, "CreateTopics", topic=topic)
    if result.error_code == ErrorCode.TOPIC_ALREADY_EXISTS:
        raise TopicExists("the topic is there already", hint="delete it, or choose another name", topic=topic)
    if result.error_code:
        raise BrokerError(result.error_code, result.error_message, api="CreateTopics", topic=topic)


def _codes_of_deleted(response: DeleteTopicsResponse) -> list[int]:
    codes = [one.error_code for one in response.responses]
    return [code for code in codes if code != OVER_QUOTA]  # of a part of the topics; the others are deleted


class TopicExists(KohortError):
    """A topic with this name exists already; the error's place has `topic`.

    Cure:
        Treat the topic as created, if its partitions and settings are right: `describe_topic`.
    """


def delete_topics(driver: RequestDriver, topics: Iterable[str]) -> None:
    """Delete topics and their records. Raises the error of one topic, after all were requested."""
    left = tuple(topics)
    failed: KohortError | None = None

    def build(names: tuple[str, ...], version: int) -> DeleteTopicsRequest:
        by_state = version >= FIRST_VERSION_BY_STATE
        states = tuple(DeleteTopicState(name=name, topic_id=NO_TOPIC_ID) for name in names) if by_state else ()
        return DeleteTopicsRequest(
            topics=states, topic_names=() if by_state else names, timeout_ms=driver.config.request_timeout_ms
        )

    while left:
        deleted = driver.of_controller("DeleteTopics", partial(build, left), codes=_codes_of_deleted)
        found = {one.name or name: one for name, one in zip(left, deleted.responses, strict=False)}
        over_quota = tuple(name for name, one in found.items() if one.error_code == OVER_QUOTA)
        again = over_quota if over_quota and driver.retry() else ()
        for name, one in found.items():
            if one.error_code and name not in again:
                failed = failed or _not_deleted(name, one)
        if left_out := set(left) - found.keys():
            raise KohortError("the DeleteTopics response lacks the topic", api="DeleteTopics", topic=min(left_out))
        left = again
    if failed is not None:
        raise failed


def _not_deleted(name: str, one: DeletableTopicResult) -> KohortError:
    if one.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return _topic_error(name, one.error_code)
    if one.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        return AuthorizationFailed("not allowed to delete the topic", hint="grant DELETE on the topic", topic=name)
    return BrokerError(one.error_code, one.error_message, api="DeleteTopics", topic=name)
