"""The meaning of error codes for a group member, by API: literal tables. An absent code is fatal.

The machine acts on `REACTIONS`. The sender of OffsetCommit calls `commit_verdict` for the commit itself. Codes are
Kafka's (`kohort.protocol.errors`). The reactions are those of Apache Kafka's own consumer, except where a comment says
otherwise.
"""

from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING, Final

from kohort.common.errors import KohortError
from kohort.coordinator_client.group.states import REBALANCING
from kohort.network.errors import AuthorizationFailed
from kohort.network.group_types import ConsumerGroupMetadata
from kohort.protocol.errors import BrokerError, ErrorCode

if TYPE_CHECKING:
    from kohort.coordinator_client.group.ready import MemberView


class ErrorAction(Enum):
    """The action of the machine for an error code in a response."""

    RETRY = "retry after a backoff"
    REDISCOVER = "send FindCoordinator, then retry"
    REJOIN = "this attempt is void: join again with the same member id"
    FORGET_GENERATION = "membership of this generation is gone: partitions are lost, join again with the same member id"
    FORGET_MEMBER = "the member is unknown: partitions are lost, join again without a member id"
    TAKE_ID = "take the member id of the response, and join again at once (KIP-394)"
    RELEASE = "release the instance id in case this member holds it, and join again for a session timeout"
    REPORT = "raise it from poll once, and retry after a backoff"
    FATAL = "no retry cures it: raise it from poll"


_R = ErrorAction

REACTIONS: Final[Mapping[str, Mapping[int, ErrorAction]]] = {
    "FindCoordinator": {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: _R.RETRY,
        ErrorCode.COORDINATOR_NOT_AVAILABLE: _R.RETRY,
        ErrorCode.INVALID_GROUP_ID: _R.FATAL,
        ErrorCode.GROUP_AUTHORIZATION_FAILED: _R.FATAL,
    },
    "JoinGroup": {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: _R.RETRY,
        ErrorCode.COORDINATOR_NOT_AVAILABLE: _R.REDISCOVER,
        ErrorCode.NOT_COORDINATOR: _R.REDISCOVER,
        ErrorCode.UNKNOWN_MEMBER_ID: _R.FORGET_MEMBER,
        ErrorCode.REBALANCE_IN_PROGRESS: _R.RETRY,
        ErrorCode.MEMBER_ID_REQUIRED: _R.TAKE_ID,
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL: _R.FATAL,
        ErrorCode.INVALID_GROUP_ID: _R.FATAL,
        ErrorCode.INVALID_SESSION_TIMEOUT: _R.FATAL,
        ErrorCode.GROUP_AUTHORIZATION_FAILED: _R.FATAL,
        ErrorCode.UNSUPPORTED_VERSION: _R.FATAL,
        ErrorCode.GROUP_MAX_SIZE_REACHED: _R.FATAL,
        ErrorCode.FENCED_INSTANCE_ID: _R.FATAL,
    },
    "SyncGroup": {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: _R.REJOIN,
        ErrorCode.COORDINATOR_NOT_AVAILABLE: _R.REDISCOVER,
        ErrorCode.NOT_COORDINATOR: _R.REDISCOVER,
        ErrorCode.ILLEGAL_GENERATION: _R.FORGET_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID: _R.FORGET_MEMBER,
        ErrorCode.REBALANCE_IN_PROGRESS: _R.REJOIN,
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL: _R.FATAL,
        ErrorCode.GROUP_AUTHORIZATION_FAILED: _R.FATAL,
        ErrorCode.FENCED_INSTANCE_ID: _R.FATAL,
    },
    "Heartbeat": {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: _R.RETRY,
        ErrorCode.COORDINATOR_NOT_AVAILABLE: _R.REDISCOVER,
        ErrorCode.NOT_COORDINATOR: _R.REDISCOVER,
        ErrorCode.ILLEGAL_GENERATION: _R.FORGET_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID: _R.FORGET_MEMBER,
        ErrorCode.REBALANCE_IN_PROGRESS: _R.REJOIN,
        ErrorCode.GROUP_AUTHORIZATION_FAILED: _R.FATAL,
        ErrorCode.FENCED_INSTANCE_ID: _R.FATAL,
    },
    # KIP-848. The member makes up its own id, so losing its place costs it the epoch and the partitions, never the id.
    "ConsumerGroupHeartbeat": {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: _R.RETRY,
        ErrorCode.COORDINATOR_NOT_AVAILABLE: _R.REDISCOVER,
        ErrorCode.NOT_COORDINATOR: _R.REDISCOVER,
        ErrorCode.UNKNOWN_MEMBER_ID: _R.FORGET_GENERATION,
        ErrorCode.GROUP_ID_NOT_FOUND: _R.FORGET_GENERATION,
        ErrorCode.FENCED_MEMBER_EPOCH: _R.FORGET_GENERATION,
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL: _R.FATAL,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED: _R.REPORT,
        ErrorCode.GROUP_AUTHORIZATION_FAILED: _R.FATAL,
        ErrorCode.UNSUPPORTED_VERSION: _R.FATAL,
        ErrorCode.INVALID_REQUEST: _R.FATAL,
        ErrorCode.GROUP_MAX_SIZE_REACHED: _R.FATAL,
        ErrorCode.FENCED_INSTANCE_ID: _R.FATAL,
        ErrorCode.UNRELEASED_INSTANCE_ID: _R.RELEASE,
        ErrorCode.UNSUPPORTED_ASSIGNOR: _R.FATAL,
        ErrorCode.INVALID_REGULAR_EXPRESSION: _R.FATAL,
    },
    # Only what touches membership: the rest of a commit's errors are between it and its caller.
    "OffsetCommit": {
        ErrorCode.REQUEST_TIMED_OUT: _R.REDISCOVER,
        ErrorCode.COORDINATOR_NOT_AVAILABLE: _R.REDISCOVER,
        ErrorCode.NOT_COORDINATOR: _R.REDISCOVER,
        ErrorCode.ILLEGAL_GENERATION: _R.FORGET_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID: _R.FORGET_MEMBER,
        ErrorCode.REBALANCE_IN_PROGRESS: _R.REJOIN,
        ErrorCode.FENCED_INSTANCE_ID: _R.FATAL,
    },
}
"""API -> error code -> reaction. LeaveGroup has no row: a response ends the leave, unless the coordinator moves."""

COORDINATOR_MOVES: Final = frozenset(
    {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR}
)
"""Codes after which a leave is sent again, to the coordinator that is found then."""


class GroupRefused(BrokerError):
    """The coordinator rejects this member, and no retry helps: `code`, `name`, `api`, `group`.

    Cure:
        Follow the hint, which is that of the error code, and make a new consumer.
    """


REFUSED_FIELDS: Final = frozenset(
    {ErrorCode.INVALID_REQUEST, ErrorCode.UNSUPPORTED_ASSIGNOR, ErrorCode.INVALID_REGULAR_EXPRESSION}
)
"""Fatal codes about the fields of a heartbeat. The coordinator keeps the member and its partitions (KIP-848)."""


class FencedInstance(GroupRefused):
    """Another process joined with the same instance id and has this member's partitions now (82).

    Cure:
        Give each process its own `group_instance_id`.
    """


class GroupAuthorizationFailed(GroupRefused, AuthorizationFailed):
    """The principal may not read with this group (30).

    Cure:
        Grant READ on the group, and make a new consumer.
    """


class InconsistentGroup(GroupRefused):
    """No assignor in common with the members that are there already, or another kind of group (23).

    Cure:
        Name an assignor of the other members in `assignors`. `kohort group describe` shows the group's.
    """


class ProtocolNotOffered(GroupRefused):
    """The brokers do not support this group's protocol, or have switched it off (35).

    Cure:
        Set `protocol="classic"`, or switch KIP-848 on at the brokers.
    """

    def __init__(self, code: int, message: str | None = None, **place: object) -> None:
        super().__init__(code, message, **place)
        if place.get("api") == "ConsumerGroupHeartbeat":
            self.hint = (
                "Consumer(..., protocol='classic'), or have the brokers offer KIP-848: Kafka 4.0 or later, "
                "group.coordinator.rebalance.protocols=classic,consumer"
            )


class UnreleasedInstance(GroupRefused):
    """Another member holds this member's instance id and did not release it within a session timeout (111, KIP-848):
    `instance_id`.

    Cure:
        Close the other consumer, or remove it with `kohort group remove-members`, and make a new consumer.
    """

    def __init__(self, code: int, message: str | None = None, **place: object) -> None:
        super().__init__(code, message, **place)
        self.hint = (
            "close the other consumer with this group_instance_id, wait until its session is over "
            "(group.consumer.session.timeout.ms of the broker), or remove it: kohort group remove-members"
        )


class GroupProtocolError(KohortError):
    """A coordinator's response contradicts the group protocol: `api`, `group`."""


_FATAL_ERRORS: Final[Mapping[int, type[GroupRefused]]] = {
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: InconsistentGroup,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: GroupAuthorizationFailed,
    ErrorCode.UNSUPPORTED_VERSION: ProtocolNotOffered,
    ErrorCode.FENCED_INSTANCE_ID: FencedInstance,
    ErrorCode.UNRELEASED_INSTANCE_ID: UnreleasedInstance,
}


def fatal_error(code: int, api: str, group: str, message: str | None = None, **place: object) -> GroupRefused:
    """The error that poll raises for a fatal code."""
    return _FATAL_ERRORS.get(code, GroupRefused)(code, message, api=api, group=group, **place)


class CommitVerdict(Enum):
    """The handling of an OffsetCommit whose response has an error code."""

    RETRY = "send it again, after a backoff, under the same identity"
    CHECK_TOPIC = "send it again, unless metadata requested from now on does not have the topic"
    HOLD = "keep it for the next generation"
    """Until `commits_open` with a newer generation; then send it for partitions still owned under the same epoch. The
    others fail with RebalanceInProgress."""
    FAIL = "membership was lost: raise CommitFailed"
    FENCED = "another member has the instance id: raise the fatal error"
    RAISE = "raise the broker's error to the caller of commit"


_COMMIT_CODES: Final[Mapping[int, CommitVerdict]] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: CommitVerdict.CHECK_TOPIC,
    ErrorCode.UNKNOWN_TOPIC_ID: CommitVerdict.CHECK_TOPIC,
    ErrorCode.REQUEST_TIMED_OUT: CommitVerdict.RETRY,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: CommitVerdict.RETRY,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: CommitVerdict.RETRY,
    ErrorCode.NOT_COORDINATOR: CommitVerdict.RETRY,
    ErrorCode.REBALANCE_IN_PROGRESS: CommitVerdict.HOLD,
    ErrorCode.FENCED_INSTANCE_ID: CommitVerdict.FENCED,
    ErrorCode.FENCED_MEMBER_EPOCH: CommitVerdict.FAIL,
}

VERDICTS_WITHOUT_MEMBER: Final[Mapping[int, CommitVerdict]] = {
    ErrorCode.LEADER_NOT_AVAILABLE: CommitVerdict.RETRY,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: CommitVerdict.RETRY,
    **{code: on for code, on in _COMMIT_CODES.items() if on in (CommitVerdict.RETRY, CommitVerdict.CHECK_TOPIC)},
}
"""The same for a consumer that is not a member of the group: it assigns its partitions by hand. Else RAISE."""


def commit_verdict(code: int, sent: ConsumerGroupMetadata, view: "MemberView") -> CommitVerdict:
    """Return the verdict on a commit that was sent as `sent` and rejected with `code`.

    `view`: the member after it has stepped `CommitRefused`. Codes 22 and 25 have two meanings. In the first, the
    generation moved on while the commit was in flight. If the member moved with it, or is joining the next one with
    kept partitions, the commit lost a race. Kept partitions may then be committed again under the new generation. In
    the second, the group moved on without the member, and they must not be committed.
    """
    if code == ErrorCode.STALE_MEMBER_EPOCH:
        # KIP-848: the coordinator has a newer epoch, which the next heartbeat returns. The partitions stay owned as
        # long as the member id is the same.
        alive = view.identity.generation >= 0 and view.identity.member_id == sent.member_id
        return CommitVerdict.RETRY if alive else CommitVerdict.FAIL
    if code not in (ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID):
        return _COMMIT_CODES.get(code, CommitVerdict.RAISE)
    if sent.generation < 0 or view.identity.generation < 0:
        return CommitVerdict.FAIL
    moved_on = view.identity.member_id == sent.member_id and view.identity.generation > sent.generation
    rejoining = view.identity == sent and view.state in REBALANCING
    return CommitVerdict.HOLD if moved_on or rejoining else CommitVerdict.FAIL
