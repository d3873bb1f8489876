"""DeleteTopics (20), versions 1-6: by name, from version 6 on by name or id; logs and ids are gone at once.

Its committed offsets are gone, too. Not done: authorization, and a topic that is named both by name and by id.
"""

from collections import Counter
from uuid import UUID

from kohort.protocol.apis.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from kohort.protocol.errors import ErrorCode
from kohort.testing.fake_broker.handler_context import Work

KEY = 20
VERSIONS = (1, 6)
_NO_ID = UUID(int=0)


async def handle(work: Work, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    requested = request.topics or tuple(DeleteTopicState(name=name, topic_id=_NO_ID) for name in request.topic_names)
    named = Counter(requested)
    return DeleteTopicsResponse(responses=tuple(_delete(work, topic, times) for topic, times in named.items()))


def _delete(work: Work, requested: DeleteTopicState, times: int) -> DeletableTopicResult:
    if times > 1 or (requested.name is None) == (requested.topic_id == _NO_ID):
        return DeletableTopicResult(
            name=requested.name, topic_id=requested.topic_id, error_code=ErrorCode.INVALID_REQUEST
        )
    if requested.name is not None:
        found = work.cluster.topics.get(requested.name)
        missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    else:
        found = work.cluster.topic_by_id(requested.topic_id)
        missing = ErrorCode.UNKNOWN_TOPIC_ID
    if found is None:
        return DeletableTopicResult(name=requested.name, topic_id=requested.topic_id, error_code=missing)
    work.cluster.delete_topic(found.name)
    return DeletableTopicResult(name=found.name, topic_id=found.topic_id)
