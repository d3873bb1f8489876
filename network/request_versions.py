"""Converts requests whose shape, not only their fields, changed between versions.

The machine sets all fields. Kafka's definitions mark most later fields as ignorable, and the codec drops those itself.
Three requests replaced one field by another, which this module converts.
"""

from collections.abc import Mapping
from typing import Any, Final

from kohort.protocol.apis.fetch import FetchRequest, ForgottenTopic
from kohort.protocol.apis.metadata import MetadataRequest
from kohort.protocol.errors import UnsupportedVersion
from kohort.protocol.schema import Request, first_version

# By class name: a text, and the list that later versions have in its place.
REPLACED: Final[Mapping[str, tuple[str, str]]] = {
    "FindCoordinatorRequest": ("key", "coordinator_keys"),  # KIP-699: many keys at once
    "LeaveGroupRequest": ("member_id", "members"),  # KIP-345: with their instance ids
}

FIRST_WITHOUT_TOPIC_CREATION: Final = first_version(MetadataRequest, "allow_auto_topic_creation")


def fit(request: Any, version: int) -> Any:
    """`request` as `version` of its API can carry it. Requests that need no fitting come back as they are.

    Raises UnsupportedVersion where a static member would become another one by that, where a pattern would be lost, or
    where the broker would create topics.
    """
    kind: type[Request] = type(request)
    is_static = getattr(request, "group_instance_id", None) is not None
    if is_static and version < (since := first_version(kind, "group_instance_id")):
        raise _too_old(request, version, since, "static members (KIP-345)", "Kafka 2.3, or no group_instance_id")
    if kind is MetadataRequest and not request.allow_auto_topic_creation and version < FIRST_WITHOUT_TOPIC_CREATION:
        raise UnsupportedVersion(
            "the broker is too old: its Metadata requests may create topics",
            hint="upgrade the broker to 0.11 or newer",
            api="Metadata",
            version=version,
            least=FIRST_WITHOUT_TOPIC_CREATION,
        )
    if kind.__name__ in REPLACED:
        text, many = REPLACED[kind.__name__]
        return request._replace(**({many: ()} if version < first_version(kind, many) else {text: ""}))
    pattern = getattr(request, "subscribed_topic_regex", None)
    if pattern is not None and version < (since := first_version(kind, "subscribed_topic_regex")):
        if pattern:
            hint = "use Kafka 4.0 or newer, or subscribe(pattern=...) instead of broker_pattern"
            raise _too_old(request, version, since, "patterns that the coordinator matches (KIP-848)", hint)
        return request._replace(subscribed_topic_regex=None)  # there is none to remove
    # KIP-516: v13 has topic ids. By name, a re-created topic would be removed from the session with the old one.
    if kind is FetchRequest and version < first_version(ForgottenTopic, "topic_id") and request.forgotten_topics_data:
        return _without_reported(request)
    return request


def _too_old(request: Any, version: int, least: int, what: str, hint: str) -> UnsupportedVersion:
    """The error of a request of a group that needs version `least` of its API."""
    api = type(request).__name__.removesuffix("Request")
    message = f"the broker is too old for {what}"
    return UnsupportedVersion(message, hint=hint, api=api, version=version, least=least, group=request.group_id)


def _without_reported(request: FetchRequest) -> FetchRequest:
    reported = {(topic.topic, one.partition) for topic in request.topics for one in topic.partitions}
    forgotten = (
        one._replace(partitions=tuple(number for number in one.partitions if (one.topic, number) not in reported))
        for one in request.forgotten_topics_data
    )
    return request._replace(forgotten_topics_data=tuple(one for one in forgotten if one.partitions))
