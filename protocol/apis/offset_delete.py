"""OffsetDelete (47): deletes a group's committed offsets of some partitions (KIP-496).

Sent to: the group's coordinator.

Errors (of the group, and by partition)
    GROUP_SUBSCRIBED_TO_TOPIC     a member reads the topic: unsubscribe first
    GROUP_ID_NOT_FOUND            no such group
    NON_EMPTY_GROUP               the group has members, and its protocol type is not `consumer`
    UNKNOWN_TOPIC_OR_PARTITION    no such partition
    NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS   send FindCoordinator, retry
    INVALID_GROUP_ID, GROUP_AUTHORIZATION_FAILED, TOPIC_AUTHORIZATION_FAILED   fatal
"""

from kohort.protocol.primitives import int16, int32, string
from kohort.protocol.schema import Request, RequestPart, Response, ResponsePart, field


class OffsetDeleteRequestPartition(RequestPart):
    partition_index: int = field(int32, "0+")
    """The partition's number within its topic."""


class OffsetDeleteRequestTopic(RequestPart):
    name: str = field(string, "0+")
    """The topic's name."""
    partitions: tuple[OffsetDeleteRequestPartition, ...] = field([OffsetDeleteRequestPartition], "0+")
    """The partitions, one entry each."""


class OffsetDeleteRequest(Request, key=47, versions="0"):
    group_id: str = field(string, "0+")
    """The group."""
    topics: tuple[OffsetDeleteRequestTopic, ...] = field([OffsetDeleteRequestTopic], "0+")
    """The topics, one entry each."""


class OffsetDeleteResponsePartition(ResponsePart):
    partition_index: int = field(int32, "0+")
    """The partition's number within its topic."""
    error_code: int = field(int16, "0+")
    """0, or what went wrong."""


class OffsetDeleteResponseTopic(ResponsePart):
    name: str = field(string, "0+")
    """The topic's name."""
    partitions: tuple[OffsetDeleteResponsePartition, ...] = field([OffsetDeleteResponsePartition], "0+")
    """The partitions, one entry each."""


class OffsetDeleteResponse(Response, key=47, versions="0"):
    error_code: int = field(int16, "0+")
    """0, or what is wrong with the group."""
    throttle_time_ms: int = field(int32, "0+", ignorable=True)
    """Milliseconds the request was throttled by a quota. Since KIP-219 the client must wait for them."""
    topics: tuple[OffsetDeleteResponseTopic, ...] = field([OffsetDeleteResponseTopic], "0+")
    """The topics, one entry each."""
