"""CreateTopics (19), versions 2-7: names and numbers of partitions; `validate_only` makes none.

Not done: settings (taken and forgotten), replica assignments (refused), replication (a factor above the number of
nodes is refused, any other one taken).
"""

from collections import Counter

from kohort.protocol.apis.create_topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from kohort.protocol.errors import ErrorCode
from kohort.testing.fake_broker.handler_context import Work
from kohort.testing.fake_broker.topic_names import names_a_topic

KEY = 19
VERSIONS = (2, 7)
_DEFAULT = -1


async def handle(work: Work, request: CreateTopicsRequest) -> CreateTopicsResponse:
    named, known = Counter(topic.name for topic in request.topics), frozenset(work.cluster.topics)
    created = [_create(work, topic, known, request.validate_only) for topic in request.topics if named[topic.name] == 1]
    refused = [
        CreatableTopicResult(
            name=name, error_code=ErrorCode.INVALID_REQUEST, error_message="Duplicate topic name.", configs=()
        )
        for name, times in named.items()
        if times > 1
    ]
    return CreateTopicsResponse(topics=(*created, *refused))


def _create(work: Work, requested: CreatableTopic, known: frozenset[str], validate_only: bool) -> CreatableTopicResult:
    """`known`: the topics before the request."""
    error, message = _refusal(work, requested, known)
    if error:
        return CreatableTopicResult(name=requested.name, error_code=error, error_message=message, configs=())
    count = 1 if requested.num_partitions == _DEFAULT else requested.num_partitions
    made = None if validate_only else work.cluster.create_topic(requested.name, count)
    result = CreatableTopicResult(
        name=requested.name, error_message=None, num_partitions=count, replication_factor=1, configs=()
    )
    return result if made is None else result._replace(topic_id=made.topic_id)


def _refusal(work: Work, requested: CreatableTopic, known: frozenset[str]) -> tuple[int, str]:
    if not names_a_topic(requested.name):
        return ErrorCode.INVALID_TOPIC_EXCEPTION, f"{requested.name!r} is no name for a topic"
    if requested.name in known:
        return ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic {requested.name!r} already exists."
    alike = next((name for name in known if name.replace(".", "_") == requested.name.replace(".", "_")), None)
    if alike is not None:
        return ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic {requested.name!r} collides with existing topic: {alike}"
    if requested.assignments:
        return ErrorCode.INVALID_REQUEST, "replica assignments are not done by this fake"
    if requested.num_partitions != _DEFAULT and requested.num_partitions < 1:
        return ErrorCode.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value."
    factor = requested.replication_factor
    if factor != _DEFAULT and not 0 < factor <= len(work.cluster.addresses):
        return ErrorCode.INVALID_REPLICATION_FACTOR, f"replication factor {factor} is out of reach"
    return ErrorCode.NONE, ""
