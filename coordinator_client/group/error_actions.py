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
from kohort.protocol.errors import BrokerError

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
    FATAL = "no retry cures it: raise it from poll"


_R = ErrorAction

REACTIONS: Final[Mapping[str, Mapping[int, ErrorAction]]] = {
    "FindCoordinator": {14: _R.RETRY, 15: _R.RETRY, 24: _R.FATAL, 30: _R.FATAL},
    "JoinGroup": {
        14: _R.RETRY,
        15: _R.REDISCOVER,
        16: _R.REDISCOVER,
        25: _R.FORGET_MEMBER,
        27: _R.RETRY,
        79: _R.TAKE_ID,
        23: _R.FATAL,
        24: _R.FATAL,
        26: _R.FATAL,
        30: _R.FATAL,
        35: _R.FATAL,
        81: _R.FATAL,
        82: _R.FATAL,
    },
    "SyncGroup": {
        14: _R.REJOIN,
        15: _R.REDISCOVER,
        16: _R.REDISCOVER,
        22: _R.FORGET_GENERATION,
        25: _R.FORGET_MEMBER,
        27: _R.REJOIN,
        23: _R.FATAL,
        30: _R.FATAL,
        82: _R.FATAL,
    },
    "Heartbeat": {
        14: _R.RETRY,
        15: _R.REDISCOVER,
        16: _R.REDISCOVER,
        22: _R.FORGET_GENERATION,
        25: _R.FORGET_MEMBER,
        27: _R.REJOIN,
        30: _R.FATAL,
        82: _R.FATAL,
    },
    # KIP-848. The member makes up its own id, so losing its place costs it the epoch and the partitions, never the id.
    "ConsumerGroupHeartbeat": {
        14: _R.RETRY,
        15: _R.REDISCOVER,
        16: _R.REDISCOVER,
        25: _R.FORGET_GENERATION,
        69: _R.FORGET_GENERATION,
        110: _R.FORGET_GENERATION,
        23: _R.FATAL,
        29: _R.FATAL,
        30: _R.FATAL,
        35: _R.FATAL,
        42: _R.FATAL,
        81: _R.FATAL,
        82: _R.FATAL,
        111: _R.RELEASE,
        112: _R.FATAL,
        128: _R.FATAL,
    },
    # Only what touches membership: the rest of a commit's errors are between it and its caller.
    "OffsetCommit": {
        7: _R.REDISCOVER,
        15: _R.REDISCOVER,
        16: _R.REDISCOVER,
        22: _R.FORGET_GENERATION,
        25: _R.FORGET_MEMBER,
        27: _R.REJOIN,
        82: _R.FATAL,
    },
}
"""API -> error code -> reaction. LeaveGroup has no row: any response, also with an error, ends the leave."""


class GroupRefused(BrokerError):
    """The coordinator rejects this member, and no retry helps: `code`, `name`, `api`, `group`."""


class FencedInstance(GroupRefused):
    """Another process joined with the same instance id and has this member's partitions now (82)."""


class GroupAuthorizationFailed(GroupRefused, AuthorizationFailed):
    """The principal may not read with this group (30)."""


class InconsistentGroup(GroupRefused):
    """No assignor in common with the members that are there already, or another kind of group (23)."""


class ProtocolNotOffered(GroupRefused):
    """The brokers do not support this group's protocol, or have switched it off (35)."""

    def __init__(self, code: int, message: str | None = None, **place: object) -> None:
        super().__init__(code, message, **place)
        if place.get("api") == "ConsumerGroupHeartbeat":
            self.hint = (
                "Consumer(..., protocol='classic'), or have the brokers offer KIP-848: Kafka 4.0 or later, "
                "group.coordinator.rebalance.protocols=classic,consumer"
            )


class UnreleasedInstance(GroupRefused):
    """Another member holds this member's instance id and did not release it within a session timeout (111, KIP-848):
    `instance_id`."""

    def __init__(self, code: int, message: str | None = None, **place: object) -> None:
        super().__init__(code, message, **place)
        self.hint = (
            "close the other consumer with this group_instance_id, wait until its session is over "
            "(group.consumer.session.timeout.ms of the broker), or remove it: kohort group remove-members"
        )


class GroupProtocolError(KohortError):
    """A coordinator's response contradicts the group protocol: `api`, `group`."""


_FATAL_ERRORS: Final[Mapping[int, type[GroupRefused]]] = {
    23: InconsistentGroup,
    30: GroupAuthorizationFailed,
    35: ProtocolNotOffered,
    82: FencedInstance,
    111: UnreleasedInstance,
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
    3: CommitVerdict.CHECK_TOPIC,
    100: CommitVerdict.CHECK_TOPIC,
    7: CommitVerdict.RETRY,
    14: CommitVerdict.RETRY,
    15: CommitVerdict.RETRY,
    16: CommitVerdict.RETRY,
    27: CommitVerdict.HOLD,
    82: CommitVerdict.FENCED,
    110: CommitVerdict.FAIL,
}

VERDICTS_WITHOUT_MEMBER: Final[Mapping[int, CommitVerdict]] = {
    **dict.fromkeys((3, 100), CommitVerdict.CHECK_TOPIC),
    **dict.fromkeys((5, 6, 7, 14, 15, 16), CommitVerdict.RETRY),
}
"""The same for a consumer that is not a member of the group: it assigns its partitions by hand. Else RAISE."""


def commit_verdict(code: int, sent: ConsumerGroupMetadata, view: "MemberView") -> CommitVerdict:
    """Return the verdict on a commit that was sent as `sent` and rejected with `code`.

    `view`: the member after it has stepped `CommitRefused`. Codes 22 and 25 have two meanings. In the first, the
    generation moved on while the commit was in flight. If the member moved with it, or is joining the next one with
    kept partitions, the commit lost a race. Kept partitions may then be committed again under the new generation. In
    the second, the group moved on without the member, and they must not be committed.
    """
    if code == 113:
        # KIP-848: the coordinator has a newer epoch, which the next heartbeat returns. The partitions stay owned as
        # long as the member id is the same.
        alive = view.identity.generation >= 0 and view.identity.member_id == sent.member_id
        return CommitVerdict.RETRY if alive else CommitVerdict.FAIL
    if code not in (22, 25):
        return _COMMIT_CODES.get(code, CommitVerdict.RAISE)
    if sent.generation < 0 or view.identity.generation < 0:
        return CommitVerdict.FAIL
    moved_on = view.identity.member_id == sent.member_id and view.identity.generation > sent.generation
    rejoining = view.identity == sent and view.state in REBALANCING
    return CommitVerdict.HOLD if moved_on or rejoining else CommitVerdict.FAIL
