"""R: share groups: brokers that err with members, sessions, locks and acknowledgements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kohort.protocol.apis.consumer_group_heartbeat import Assignment
from kohort.protocol.apis.share_acknowledge import (
    PartitionData,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)
from kohort.protocol.apis.share_fetch import ShareFetchResponse
from kohort.protocol.apis.share_group_heartbeat import ShareGroupHeartbeatResponse
from kohort.protocol.errors import ErrorCode
from kohort.testing.fake_broker import Call, FakeBroker
from tests.conformance.bending import Fault, altered, bent, responded

RENEW = 4
COUNTS = ("R9a", "R10a", "R10b", "R11a", "R9o", "R11b")  # checks of delivery counts
FIRST_COUNTS = ("R8d", "R8e", "R8f", "R8g", "R11c")  # checks of first deliveries
Install = Callable[[FakeBroker], None]


def served(call: Call) -> ShareGroupHeartbeatResponse:
    request: Any = call.request
    return ShareGroupHeartbeatResponse(member_id=request.member_id, member_epoch=2, heartbeat_interval_ms=5000)


def accepts(wrong: Callable[[Any], bool]) -> Install:
    """A heartbeat that must be refused is served."""
    return responded("ShareGroupHeartbeat", served, lambda call, _broker: wrong(call.request))


def joins(request: Any) -> bool:
    return bool(request.member_epoch == 0)


def code_becomes(api: str, before: ErrorCode, after: ErrorCode) -> Install:
    """An error code at the top of the response becomes another."""

    def change(_call: Call, response: Any) -> Any:
        return response._replace(error_code=after) if response.error_code == before else response

    return altered(api, change)


def deliveries(change: Callable[[int], int]) -> Install:
    """Other delivery counts in ShareFetch responses."""

    def partition(one: Any) -> Any:
        ranges = (each._replace(delivery_count=change(each.delivery_count)) for each in one.acquired_records)
        return one._replace(acquired_records=tuple(ranges))

    def topics(_call: Call, response: ShareFetchResponse) -> ShareFetchResponse:
        return response._replace(
            responses=tuple(
                topic._replace(partitions=tuple(map(partition, topic.partitions))) for topic in response.responses
            )
        )

    return altered("ShareFetch", topics)


def types_of(request: Any) -> list[Any]:
    """The ranges of a request."""
    return [batch for topic in request.topics for one in topic.partitions for batch in one.acknowledgement_batches]


def accepts_ranges(wrong: Callable[[list[Any]], bool]) -> Install:
    """Acknowledgements that must be refused are confirmed, and ignored."""

    def respond(call: Call) -> ShareAcknowledgeResponse:
        request: Any = call.request
        return ShareAcknowledgeResponse(
            responses=tuple(
                ShareAcknowledgeTopicResponse(
                    topic_id=topic.topic_id,
                    partitions=tuple(PartitionData(partition_index=one.partition_index) for one in topic.partitions),
                )
                for topic in request.topics
            )
        )

    return responded("ShareAcknowledge", respond, lambda call, _broker: wrong(types_of(call.request)))


def partition_code_becomes(before: ErrorCode, after: ErrorCode) -> Install:
    """An error code of a partition in ShareAcknowledge responses becomes another."""

    def partition(one: Any) -> Any:
        return one._replace(error_code=after) if one.error_code == before else one

    def change(_call: Call, response: Any) -> Any:
        return response._replace(
            responses=tuple(
                topic._replace(partitions=tuple(map(partition, topic.partitions))) for topic in response.responses
            )
        )

    return altered("ShareAcknowledge", change)


def without_acks(request: Any) -> Any:
    return request._replace(
        topics=tuple(
            topic._replace(partitions=tuple(one._replace(acknowledgement_batches=()) for one in topic.partitions))
            for topic in request.topics
        )
    )


def first_range_only(request: Any) -> Any:
    return request._replace(
        topics=tuple(
            topic._replace(
                partitions=tuple(
                    one._replace(acknowledgement_batches=one.acknowledgement_batches[:1]) for one in topic.partitions
                )
            )
            for topic in request.topics
        )
    )


def no_assignment(call: Call, response: Any) -> Any:
    """A heartbeat that names the topics of a known member gets no assignment."""
    request: Any = call.request
    return response if joins(request) else response._replace(assignment=None)


def only_one_owner(broker: FakeBroker) -> None:
    """A second member of one partition gets nothing."""

    def change(call: Call, response: Any) -> Any:
        request: Any = call.request
        group = broker._cluster.groups.share.groups.get(request.group_id)
        if response.assignment is None or group is None or list(group.members)[:1] == [request.member_id]:
            return response
        return response._replace(assignment=Assignment(topic_partitions=()))

    altered("ShareGroupHeartbeat", change)(broker)


def wrong_epoch_ends_the_session(broker: FakeBroker) -> None:
    shares = broker._cluster.shares
    enter = shares.enter

    def entered(key: Any, *given: Any, **named: Any) -> int:
        error = enter(key, *given, **named)
        if error == ErrorCode.INVALID_SHARE_SESSION_EPOCH:
            shares.close(key)
        return error

    shares.enter = entered  # type: ignore[method-assign]


def locks_are_not_exclusive(broker: FakeBroker) -> None:
    """Every new session releases what others have acquired."""
    shares = broker._cluster.shares
    enter = shares.enter

    def entered(key: Any, epoch: int, *given: Any, **named: Any) -> int:
        if epoch == 0 and named["opens"]:
            for one in shares.of_group(key.group_id).values():
                one.forget_locks(shares.limits(key.group_id))
        return enter(key, epoch, *given, **named)

    shares.enter = entered  # type: ignore[method-assign]


def close_releases_nothing(broker: FakeBroker) -> None:
    broker._cluster.shares.close = lambda key: None  # type: ignore[method-assign]


def disconnect_releases_nothing(broker: FakeBroker) -> None:
    broker._cluster.shares.disconnected = lambda connection: False  # type: ignore[method-assign]


def no_delivery_limit(broker: FakeBroker) -> None:
    shares = broker._cluster.shares
    limits = shares.limits
    shares.limits = lambda group_id: limits(group_id)._replace(delivery_count=100)  # type: ignore[method-assign]


FAULTS: tuple[Fault, ...] = (
    Fault("a join without topics", accepts(lambda one: joins(one) and one.subscribed_topic_names is None), ("R1a",)),
    Fault("a join with no topics", accepts(lambda one: joins(one) and one.subscribed_topic_names == ()), ("R1b",)),
    Fault("an empty share member id", accepts(lambda one: not one.member_id), ("R1c",)),
    Fault("a member id of 37", accepts(lambda one: len(one.member_id) > 36), ("R1d",)),
    Fault("an empty share group id", accepts(lambda one: not one.group_id), ("R1e",)),
    Fault("an empty share rack", accepts(lambda one: one.rack_id == ""), ("R1f",)),
    Fault("a share epoch of -2", accepts(lambda one: one.member_epoch == -2), ("R1g",)),
    Fault(
        "a share member joins without an interval",
        altered("ShareGroupHeartbeat", lambda _call, response: response._replace(heartbeat_interval_ms=0)),
        ("R2a",),
    ),
    Fault(
        "an unknown share group is an unknown member",
        code_becomes("ShareGroupHeartbeat", ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNKNOWN_MEMBER_ID),
        ("R2b", "S8d"),
    ),
    Fault(
        "an unknown share member is fenced",
        code_becomes("ShareGroupHeartbeat", ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH),
        ("R2c", "R5a"),
    ),
    Fault(
        "a later share epoch is accepted",
        code_becomes("ShareGroupHeartbeat", ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.NONE),
        ("R3a",),
    ),
    Fault(
        "the share assignment comes once",
        altered("ShareGroupHeartbeat", no_assignment),
        ("R3b", "R4a", "R4b", "R4c", "R4d"),
    ),
    Fault("a share partition has one owner", only_one_owner, ("R4a", "R4b")),
    Fault(
        "a share member leaves with epoch 0",
        altered(
            "ShareGroupHeartbeat",
            lambda call, response: response._replace(member_epoch=max(response.member_epoch, 0)),
        ),
        ("R5a",),
    ),
    Fault(
        "an empty share group is Stable",
        altered(
            "ShareGroupDescribe",
            lambda _call, response: response._replace(
                groups=tuple(one._replace(group_state="Stable") for one in response.groups)
            ),
        ),
        ("R6a",),
    ),
    Fault("a wrong epoch ends the share session", wrong_epoch_ends_the_session, ("R7a",)),
    Fault(
        "a missing share session is a wrong epoch",
        code_becomes("ShareFetch", ErrorCode.SHARE_SESSION_NOT_FOUND, ErrorCode.INVALID_SHARE_SESSION_EPOCH),
        ("R7b", "R7e"),
    ),
    Fault(
        "acknowledgements open a session",
        bent("ShareFetch", lambda request: without_acks(request) if request.share_session_epoch == 0 else request),
        ("R7c",),
    ),
    Fault(
        "ShareAcknowledge opens a session",
        code_becomes("ShareAcknowledge", ErrorCode.INVALID_SHARE_SESSION_EPOCH, ErrorCode.NONE),
        ("R7d",),
    ),
    Fault("delivery counts begin at 0", deliveries(lambda count: count - 1), ("R8a", *COUNTS, "R8c", *FIRST_COUNTS)),
    Fault("locks are not exclusive", locks_are_not_exclusive, ("R8b", "R9c", "R7h", "R8e", "R9o", "R10b")),
    Fault(
        "the record limit overshoots",
        bent("ShareFetch", lambda request: request._replace(share_acquire_mode=0)),
        ("R8c", "R8e"),
    ),
    Fault("delivery counts stay at 1", deliveries(lambda _count: 1), COUNTS),
    Fault(
        "acknowledgements in ShareFetch are dropped",
        bent("ShareFetch", lambda request: without_acks(request) if request.share_session_epoch else request),
        ("R9b",),
    ),
    Fault(
        "acknowledgements of others succeed",
        partition_code_becomes(ErrorCode.INVALID_RECORD_STATE, ErrorCode.NONE),
        ("R9c", "R9d", "R11d"),
    ),
    Fault("the good half is kept", bent("ShareAcknowledge", first_range_only), ("R9d", "R9a", "R9f", "R9m", "R12a")),
    Fault(
        "a range backwards",
        accepts_ranges(lambda ranges: any(one.first_offset > one.last_offset for one in ranges)),
        ("R9e",),
    ),
    Fault(
        "ranges out of order",
        accepts_ranges(
            lambda ranges: [one.first_offset for one in ranges] != sorted(one.first_offset for one in ranges)
        ),
        ("R9f",),
    ),
    Fault("no type", accepts_ranges(lambda ranges: any(not one.acknowledge_types for one in ranges)), ("R9g",)),
    Fault("type 9", accepts_ranges(lambda ranges: any(9 in one.acknowledge_types for one in ranges)), ("R9h",)),
    Fault(
        "two types for three offsets",
        accepts_ranges(lambda ranges: any(len(one.acknowledge_types) == 2 and one.last_offset == 2 for one in ranges)),
        ("R9i",),
    ),
    Fault(
        "a renewal without its flag",
        accepts_ranges(lambda ranges: any(RENEW in one.acknowledge_types for one in ranges)),
        ("R9j", "R9o", "R11d"),
    ),
    Fault("closing releases nothing", close_releases_nothing, ("R10a", "R10b", "R7e")),
    Fault("disconnecting releases nothing", disconnect_releases_nothing, ("R10b",)),
    Fault("no delivery limit", no_delivery_limit, ("R11a",)),
)
