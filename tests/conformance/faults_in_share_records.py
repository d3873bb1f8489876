"""R: share groups: brokers that err with members of share groups, their records, their offsets and their settings."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

from kohort.protocol.apis.consumer_group_heartbeat import Assignment, TopicPartitions
from kohort.protocol.apis.share_acknowledge import (
    PartitionData,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)
from kohort.protocol.apis.share_fetch import ShareFetchResponse
from kohort.protocol.apis.share_group_heartbeat import ShareGroupHeartbeatResponse
from kohort.protocol.errors import ErrorCode
from kohort.testing.fake_broker import Answer, Call, FakeBroker, Instead
from kohort.testing.fake_broker.consumer_group import Place
from tests.conformance.bending import Fault, When, altered, bent, responded
from tests.conformance.faults_in_shares import (
    RENEW,
    Install,
    accepts_ranges,
    code_becomes,
    joins,
    partition_code_becomes,
)

ACQUIRE = "ShareFetch"
HEARTBEAT = "ShareGroupHeartbeat"


def member_of(broker: FakeBroker, request: Any) -> Any:
    """The member that sends a heartbeat, or None."""
    group = broker._cluster.groups.share.groups.get(request.group_id)
    return group.members.get(request.member_id) if group is not None else None


def of_shares(call: Call, broker: FakeBroker) -> bool:
    """True if the request is about a share group."""
    request: Any = call.request
    return request.group_id in broker._cluster.groups.share.groups


def previous_epoch(call: Call, broker: FakeBroker) -> bool:
    request: Any = call.request
    member = member_of(broker, request)
    return member is not None and 0 < request.member_epoch != member.epoch == max(member.epoch, request.member_epoch)


def fenced(_call: Call) -> ShareGroupHeartbeatResponse:
    return ShareGroupHeartbeatResponse(error_code=ErrorCode.FENCED_MEMBER_EPOCH)


def a_rejoin_gets_no_assignment(broker: FakeBroker) -> None:
    known: set[str] = set()

    def change(call: Call, response: Any) -> Any:
        request: Any = call.request
        if not joins(request) or response.error_code:
            return response
        again = request.member_id in known
        known.add(request.member_id)
        return response._replace(assignment=None) if again else response

    altered(HEARTBEAT, change)(broker)


def everything_for_everyone(broker: FakeBroker) -> None:
    """Each member is assigned all partitions of its topics."""

    def change(call: Call, response: Any) -> Any:
        member = member_of(broker, call.request)
        if response.assignment is None or member is None:
            return response
        topics = [broker._cluster.topics[name] for name in sorted(member.topics) if name in broker._cluster.topics]
        parts = (TopicPartitions(topic_id=one.topic_id, partitions=tuple(range(len(one.partitions)))) for one in topics)
        return response._replace(assignment=Assignment(topic_partitions=tuple(parts)))

    altered(HEARTBEAT, change)(broker)


def other_topics_are_ignored(broker: FakeBroker) -> None:
    def control(call: Call) -> Instead | None:
        request: Any = call.request
        member = member_of(broker, request)
        named = request.subscribed_topic_names
        if member is None or joins(request) or named is None or frozenset(named) == member.topics:
            return None
        return Instead(request._replace(subscribed_topic_names=tuple(sorted(member.topics))))

    broker.control(HEARTBEAT, control)


def no_topics_are_refused(broker: FakeBroker) -> None:
    def wrong(call: Call, _broker: FakeBroker) -> bool:
        request: Any = call.request
        return bool(request.member_epoch > 0 and request.subscribed_topic_names == ())

    refusal = ShareGroupHeartbeatResponse(error_code=ErrorCode.INVALID_REQUEST)
    responded(HEARTBEAT, lambda _call: refusal, wrong)(broker)


def listed_as_consumers(_call: Call, response: Any) -> Any:
    return response._replace(
        groups=tuple(
            one._replace(protocol_type="consumer") if one.group_type == "share" else one for one in response.groups
        )
    )


def without_error(_call: Call, response: Any) -> Any:
    return response._replace(error_code=ErrorCode.NONE)


def all_deleted(_call: Call, response: Any) -> Any:
    return response._replace(results=tuple(one._replace(error_code=ErrorCode.NONE) for one in response.results))


def deletes_shares(call: Call, broker: FakeBroker) -> bool:
    request: Any = call.request
    return set(request.groups_names) <= broker._cluster.groups.share.groups.keys()


def described_with_operations(_call: Call, response: Any) -> Any:
    return response._replace(groups=tuple(one._replace(authorized_operations=8) for one in response.groups))


def opening_releases(broker: FakeBroker) -> None:
    """A session that is opened again releases the member's records."""
    shares = broker._cluster.shares
    enter = shares.enter

    def entered(key: Any, epoch: int, *given: Any, **named: Any) -> int:
        if epoch == 0 and named["opens"]:
            shares.close(key)
        return enter(key, epoch, *given, **named)

    shares.enter = entered  # type: ignore[method-assign]


def fetches(wrong: Callable[[Any], bool]) -> Install:
    """A ShareFetch that must be refused gets an empty response."""
    return responded(ACQUIRE, lambda _call: ShareFetchResponse(), lambda call, _broker: wrong(call.request))


def empty_acknowledgements_do_not_count(call: Call, _broker: FakeBroker) -> bool:
    request: Any = call.request
    return request.share_session_epoch > 0 and not request.topics


def a_topic_has_one_group(broker: FakeBroker) -> None:
    """A second group gets nothing of a topic."""

    def control(call: Call) -> Instead | None:
        request: Any = call.request
        wanted = {Place(topic.topic_id, one.partition_index) for topic in request.topics for one in topic.partitions}
        taken = {place for group, place in broker._cluster.shares.partitions if group != request.group_id}
        return Instead(request._replace(topics=())) if wanted & taken else None

    broker.control(ACQUIRE, control)


def settled_below_start(broker: FakeBroker) -> None:
    """An acknowledgement below the start offset fails."""

    def control(call: Call) -> Answer | None:
        request: Any = call.request
        for topic in request.topics:
            for one in topic.partitions:
                found = broker._cluster.shares.partitions.get(
                    (request.group_id, Place(topic.topic_id, one.partition_index))
                )
                last = max((each.last_offset for each in one.acknowledgement_batches), default=-1)
                if found is not None and 0 <= last < found.start:
                    part = PartitionData(partition_index=one.partition_index, error_code=ErrorCode.INVALID_RECORD_STATE)
                    response = ShareAcknowledgeTopicResponse(topic_id=topic.topic_id, partitions=(part,))
                    broker._cluster.shares.sessions[
                        next(key for key in broker._cluster.shares.sessions if key.member_id == request.member_id)
                    ].epoch += 1
                    return Answer(ShareAcknowledgeResponse(responses=(response,)))
        return None

    broker.control("ShareAcknowledge", control)


def overlaps(ranges: list[Any]) -> bool:
    firsts = [one.first_offset for one in ranges]
    return firsts == sorted(firsts) and any(one.last_offset >= other.first_offset for one, other in pairwise(ranges))


def renewals_release(request: Any) -> Any:
    """A renewal with its flag releases the records."""
    if not request.is_renew_ack:
        return request

    def batch(one: Any) -> Any:
        return one._replace(acknowledge_types=tuple(2 if kind == RENEW else kind for kind in one.acknowledge_types))

    return request._replace(
        topics=tuple(
            topic._replace(
                partitions=tuple(
                    one._replace(acknowledgement_batches=tuple(map(batch, one.acknowledgement_batches)))
                    for one in topic.partitions
                )
            )
            for topic in request.topics
        )
    )


def without_limits(request: Any) -> Any:
    if not request.is_renew_ack:
        return request
    return request._replace(max_records=0, max_bytes=0, min_bytes=0, max_wait_ms=0)


def limits_with(**given: Any) -> Install:
    """The limits of each group are others."""

    def install(broker: FakeBroker) -> None:
        shares = broker._cluster.shares
        limits = shares.limits
        shares.limits = lambda group_id: limits(group_id)._replace(**given)  # type: ignore[method-assign]

    return install


def every_group_starts_at_the_beginning(broker: FakeBroker) -> None:
    shares = broker._cluster.shares
    config = shares.config
    shares.config = (  # type: ignore[method-assign]
        lambda group_id, name: "earliest" if name == "share.auto.offset.reset" else config(group_id, name)
    )


def offsets_with(change: Callable[[Any], Any]) -> Install:
    """Other partitions in DescribeShareGroupOffsets responses."""

    def topics(group: Any) -> Any:
        return group._replace(
            topics=tuple(one._replace(partitions=tuple(map(change, one.partitions))) for one in group.topics)
        )

    return altered(
        "DescribeShareGroupOffsets",
        lambda _call, response: response._replace(groups=tuple(map(topics, response.groups))),
    )


def every_partition_is_altered(_call: Call, response: Any) -> Any:
    return response._replace(
        responses=tuple(
            topic._replace(partitions=tuple(one._replace(error_code=0) for one in topic.partitions))
            for topic in response.responses
        )
    )


def settings_are_accepted(_call: Call, response: Any) -> Any:
    return response._replace(responses=tuple(one._replace(error_code=0) for one in response.responses))


def served_to(api: str, when: When) -> Install:
    """A heartbeat to a share group is served."""
    return altered(api, without_error, when)


FAULTS: tuple[Fault, ...] = (
    Fault("the share epoch before is fenced", responded(HEARTBEAT, fenced, previous_epoch), ("R3c",)),
    Fault("a share member that joins again gets nothing", a_rejoin_gets_no_assignment, ("R3d",)),
    Fault("each share member gets all partitions", everything_for_everyone, ("R4b",)),
    Fault("other topics of a share member are ignored", other_topics_are_ignored, ("R4c", "R4d")),
    Fault("a share member must have topics", no_topics_are_refused, ("R4d",)),
    Fault("a share group is listed as a consumer's", altered("ListGroups", listed_as_consumers), ("R6b",)),
    Fault("a consumer joins a share group", served_to("ConsumerGroupHeartbeat", of_shares), ("R6c",)),
    Fault("a share group is deleted with its members", altered("DeleteGroups", all_deleted, deletes_shares), ("R6d",)),
    Fault("operations are always described", altered("ShareGroupDescribe", described_with_operations), ("R6e",)),
    Fault(
        "a share session epoch counts twice",
        code_becomes(ACQUIRE, ErrorCode.INVALID_SHARE_SESSION_EPOCH, ErrorCode.NONE),
        ("R7f", "R7a"),
    ),
    Fault(
        "an empty ShareAcknowledge does not count",
        responded("ShareAcknowledge", lambda _call: ShareAcknowledgeResponse(), empty_acknowledgements_do_not_count),
        ("R7g", "R7k"),
    ),
    Fault("opening a session again releases records", opening_releases, ("R7h",)),
    Fault("a ShareFetch without a member id", fetches(lambda one: not one.member_id), ("R7i",)),
    Fault("a ShareFetch with a member id of 37", fetches(lambda one: len(one.member_id) > 36), ("R7j",)),
    Fault(
        "a ShareAcknowledge needs no session",
        code_becomes("ShareAcknowledge", ErrorCode.SHARE_SESSION_NOT_FOUND, ErrorCode.NONE),
        ("R7k",),
    ),
    Fault("a topic has one share group", a_topic_has_one_group, ("R8d",)),
    Fault(
        "no records means all records",
        bent(ACQUIRE, lambda one: one if one.max_records or one.is_renew_ack else one._replace(max_records=100)),
        ("R8f",),
    ),
    Fault("a ShareFetch does not wait", bent(ACQUIRE, lambda one: one._replace(max_wait_ms=0)), ("R8g",)),
    Fault("acknowledgements below the start fail", settled_below_start, ("R9k", "R9b")),
    Fault(
        "acknowledgements of what was not acquired",
        accepts_ranges(lambda ranges: any(one.last_offset == 99 for one in ranges)),
        ("R9l",),
    ),
    Fault("ranges that overlap", accepts_ranges(overlaps), ("R9m",)),
    Fault("a type of -1", accepts_ranges(lambda ranges: any(-1 in one.acknowledge_types for one in ranges)), ("R9n",)),
    Fault("a renewal releases", bent("ShareAcknowledge", renewals_release), ("R9o", "R11d")),
    Fault("a renewing ShareFetch has limits", bent(ACQUIRE, without_limits), ("R9p",)),
    Fault(
        "acknowledgements of partitions that do not exist",
        partition_code_becomes(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NONE),
        ("R9q",),
    ),
    Fault("no window", limits_with(record_locks=1_000_000), ("R11b",)),
    Fault("a share group always starts at the beginning", every_group_starts_at_the_beginning, ("R11c",)),
    Fault("renewals are always permitted", limits_with(renews=True), ("R11d",)),
    Fault("the lag is one too many", offsets_with(lambda one: one._replace(lag=one.lag + 1)), ("R12a",)),
    Fault(
        "an unknown share group starts at 0",
        offsets_with(lambda one: one._replace(start_offset=max(one.start_offset, 0))),
        ("R12b",),
    ),
    Fault(
        "offsets of a share group with members are set",
        code_becomes("AlterShareGroupOffsets", ErrorCode.NON_EMPTY_GROUP, ErrorCode.NONE),
        ("R12c",),
    ),
    Fault(
        "an offset of a partition that does not exist is set",
        altered("AlterShareGroupOffsets", every_partition_is_altered),
        ("R12d",),
    ),
    Fault(
        "offsets of an unknown share group are deleted",
        code_becomes("DeleteShareGroupOffsets", ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.NONE),
        ("R12e",),
    ),
    Fault("unknown settings are accepted", altered("IncrementalAlterConfigs", settings_are_accepted), ("R12f",)),
)
