"""Error codes about topics, groups and offsets, as the errors that a caller sees."""

from collections.abc import Container

from kohort.common import KohortError, TopicPartition
from kohort.network.errors import AuthorizationFailed, UnknownTopic
from kohort.protocol.errors import BrokerError, ErrorCode, is_retriable

UNKNOWN_TOPIC_GRACE_S = 5.0  # a topic made a moment ago may not be known to every broker yet


def may_pass(code: int) -> bool:
    """True if a leader that refused to give the start or end of its log may give it later."""
    return code == ErrorCode.UNKNOWN_SERVER_ERROR or is_retriable(code)


def topic_error(topic: str, code: int) -> KohortError:
    if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        return AuthorizationFailed("not allowed to read the topic", hint="grant READ and DESCRIBE on it", topic=topic)
    if code == ErrorCode.INVALID_TOPIC_EXCEPTION:
        return UnknownTopic("invalid topic name", hint="use letters, digits, ., _ and -", topic=topic)
    if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return UnknownTopic("no such topic", hint="check its name, or create it; later polls wait for it", topic=topic)
    return BrokerError(code, api="Metadata", topic=topic)


def no_partition(partition: TopicPartition) -> UnknownTopic:
    hint = "check its number, or add partitions to the topic; later polls wait for it"
    return UnknownTopic("no such partition", hint=hint, **partition._asdict())


def is_of_others(
    error: KohortError, topics: frozenset[str], partitions: Container[TopicPartition] | None = None
) -> bool:
    """True if the error is about a topic not in `topics`, or a partition not in `partitions`, which the user named
    before."""
    topic, number = error.place.get("topic"), error.place.get("partition")
    if not isinstance(error, UnknownTopic | AuthorizationFailed) or topic is None:
        return False
    return topic not in topics or (number is not None and partitions is not None and (topic, number) not in partitions)


def group_error(code: int, group: str | None) -> KohortError:
    if code == ErrorCode.GROUP_AUTHORIZATION_FAILED:
        return AuthorizationFailed("not allowed to use the group", hint="grant READ on the group", group=group)
    return BrokerError(code, api="FindCoordinator", group=group)


def offset_error(partition: TopicPartition | None, code: int, group: str | None) -> KohortError:
    if code == ErrorCode.GROUP_AUTHORIZATION_FAILED:
        return group_error(code, group)
    if partition is None:
        return BrokerError(code, api="OffsetFetch", group=group)
    if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        return topic_error(partition.topic, code)
    return BrokerError(code, api="OffsetFetch", group=group, **partition._asdict())
