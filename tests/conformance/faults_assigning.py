"""M: brokers that misunderstand KIP-848; only messages are bent, so that all else stays sound."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kohort.protocol.errors import ErrorCode
from kohort.testing.fake_broker import Call, FakeBroker
from tests.conformance.bending import Change, Fault, altered, bent, code, in_partitions, reported, requested

HEARTBEAT = "ConsumerGroupHeartbeat"
Where = Callable[[Any], bool]


def fetched(found: str, wrong: str) -> Change:
    """A code of a group in an OffsetFetch response."""
    return _groups(
        lambda entry: entry._replace(error_code=ErrorCode[wrong]) if entry.error_code == ErrorCode[found] else entry
    )


def _groups(change: Callable[[Any], Any]) -> Change:
    return lambda call, response: response._replace(groups=tuple(map(change, response.groups)))


def invalid(what: str, where: Where, caught_by: str) -> Fault:
    """An invalid first heartbeat gets GROUP_MAX_SIZE_REACHED."""
    return Fault(
        f"a first heartbeat {what} is no invalid request",
        altered(HEARTBEAT, code("INVALID_REQUEST", "GROUP_MAX_SIZE_REACHED", where)),
        (caught_by,),
    )


def heartbeat(name: str, found: str, wrong: str, *caught_by: str, where: Where = lambda request: True) -> Fault:
    return Fault(name, altered(HEARTBEAT, code(found, wrong, where)), caught_by)


def first(request: Any) -> bool:
    return bool(request.member_epoch == 0)


def loses_offsets(api: str, where: Where, kind: str) -> Callable[[FakeBroker], None]:
    """A group of this kind has no committed offsets after such a request."""

    def install(broker: FakeBroker) -> None:
        def control(call: Call) -> None:
            request = requested(call)
            group = getattr(broker._cluster.groups, kind).groups.get(request.group_id)
            if group is not None and where(request):
                group.offsets.clear()

        broker.control(api, control)

    return install


FAULTS: tuple[Fault, ...] = (
    invalid("without a rebalance timeout", lambda request: first(request) and request.rebalance_timeout_ms < 0, "M1a"),
    invalid(
        "without topics",
        lambda request: (
            first(request) and request.subscribed_topic_names is None and request.subscribed_topic_regex is None
        ),
        "M1b",
    ),
    invalid("that owns partitions", lambda request: first(request) and bool(request.topic_partitions), "M1c"),
    invalid("of epoch -3", lambda request: request.member_epoch < -2, "M1d"),
    invalid("of the empty group", lambda request: not request.group_id, "M1e"),
    invalid("without a member id", lambda request: not request.member_id, "M1f"),
    invalid("with an empty instance id", lambda request: request.instance_id == "", "M1g"),
    Fault(
        "the heartbeat interval in responses is 0",
        altered(HEARTBEAT, reported(heartbeat_interval_ms=0)),
        ("M1k",),
    ),
    heartbeat("an assignor that is not there is an invalid request", "UNSUPPORTED_ASSIGNOR", "INVALID_REQUEST", "M2a"),
    heartbeat("epochs are stale, not fenced", "FENCED_MEMBER_EPOCH", "STALE_MEMBER_EPOCH", "M3a", "M3b", "M3d"),
    heartbeat("a fenced member is unknown", "FENCED_MEMBER_EPOCH", "UNKNOWN_MEMBER_ID", "M3a", "M3b", "M3d"),
    heartbeat("an instance in use is fenced", "UNRELEASED_INSTANCE_ID", "FENCED_INSTANCE_ID", "M4a"),
    heartbeat("another's instance is unknown", "FENCED_INSTANCE_ID", "UNKNOWN_MEMBER_ID", "M4b"),
    heartbeat(
        "an unknown instance is fenced",
        "UNKNOWN_MEMBER_ID",
        "FENCED_INSTANCE_ID",
        "M4c",
        where=lambda request: request.instance_id == "i-9",
    ),
    heartbeat(
        "an unknown member is fenced",
        "UNKNOWN_MEMBER_ID",
        "FENCED_MEMBER_EPOCH",
        "M4d",
        "M5a",
        "M4e",
        where=lambda request: request.instance_id is None,
    ),
    Fault(
        "the response to a leave has another epoch",
        altered(HEARTBEAT, reported(lambda request, response: request.member_epoch == -1, member_epoch=0)),
        ("M5a",),
    ),
    Fault(
        "the response to a temporary leave is that of a final one",
        altered(HEARTBEAT, reported(lambda request, response: request.member_epoch == -2, member_epoch=-1)),
        ("M5b",),
    ),
    Fault(
        "a commit of a stale epoch is of an illegal generation",
        altered("OffsetCommit", in_partitions("STALE_MEMBER_EPOCH", "ILLEGAL_GENERATION")),
        ("M6a", "S9a"),
    ),
    Fault(
        "a commit of a consumer group in an old version is taken",
        altered("OffsetCommit", in_partitions("UNSUPPORTED_VERSION", "NONE")),
        ("M6b",),
    ),
    Fault(
        "a classic group that becomes a consumer group loses its offsets",
        loses_offsets(HEARTBEAT, first, "classic"),
        ("M6d",),
    ),
    Fault(
        "a consumer group that becomes a classic group loses its offsets",
        loses_offsets("JoinGroup", lambda request: True, "consumer"),
        ("M6d",),
    ),
    Fault(
        "a consumer group loses its offsets with its last member",
        loses_offsets(HEARTBEAT, lambda request: request.member_epoch == -1, "consumer"),
        ("M6d",),
    ),
    Fault(
        "an unknown member may read a consumer group's offsets",
        altered("OffsetFetch", fetched("UNKNOWN_MEMBER_ID", "NONE")),
        ("M7a",),
    ),
    Fault(
        "a stale member may read a consumer group's offsets",
        altered("OffsetFetch", fetched("STALE_MEMBER_EPOCH", "NONE")),
        ("M7b",),
    ),
    Fault(
        "ConsumerGroupDescribe knows every group",
        altered("ConsumerGroupDescribe", _groups(lambda entry: entry._replace(error_code=0, error_message=None))),
        ("M12b",),
    ),
    Fault(
        "ConsumerGroupDescribe is an epoch ahead",
        altered("ConsumerGroupDescribe", _groups(lambda entry: entry._replace(group_epoch=entry.group_epoch + 1))),
        ("M12",),
    ),
    Fault(
        "ConsumerGroupDescribe names no assignor",
        altered("ConsumerGroupDescribe", _groups(lambda entry: entry._replace(assignor_name=""))),
        ("M12c",),
    ),
    Fault(
        "ConsumerGroupDescribe has no subscriptions",
        altered(
            "ConsumerGroupDescribe",
            _groups(
                lambda entry: entry._replace(
                    members=tuple(member._replace(subscribed_topic_names=()) for member in entry.members)
                )
            ),
        ),
        ("M12",),
    ),
    Fault(
        "consumer groups are listed as classic ones",
        altered(
            "ListGroups",
            _groups(
                lambda entry: entry._replace(group_type="Classic") if entry.group_type.lower() == "consumer" else entry
            ),
        ),
        ("M14",),
    ),
    heartbeat("a pattern that is none is an invalid request", "INVALID_REGULAR_EXPRESSION", "INVALID_REQUEST", "M17b"),
    Fault(
        "another subscription is accepted and forgotten",
        bent(
            HEARTBEAT,
            lambda request: (
                request._replace(subscribed_topic_names=None)
                if request.subscribed_topic_names is not None and request.member_epoch > 0
                else request
            ),
        ),
        ("M16",),
    ),
)
