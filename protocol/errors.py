"""Kafka's error codes as a table, and the exception that carries a code.

`retriable` is true if the Java client's exception class is a RetriableException. The same request may then succeed
later, most often after a metadata refresh or with a new coordinator. `hint` gives the remedy.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Self

from kohort.common.errors import KohortError
from kohort.common.foreign_text import cut

_RETRY = True
_STOP = False


class ErrorCode(IntEnum):
    """Kafka's error codes by name. Each member is its number, and has `retriable` and `advice`."""

    retriable: bool
    advice: str

    def __new__(cls, code: int, retriable: bool, advice: str) -> Self:
        member = int.__new__(cls, code)
        member._value_ = code
        member.retriable = retriable
        member.advice = advice
        return member

    UNKNOWN_SERVER_ERROR = -1, _STOP, "look at the broker's log"
    NONE = 0, _STOP, "no error"
    OFFSET_OUT_OF_RANGE = 1, _STOP, "reset the position by auto_offset_reset"
    CORRUPT_MESSAGE = 2, _RETRY, "fetch or send again; if it persists, the broker's replica is damaged"
    UNKNOWN_TOPIC_OR_PARTITION = 3, _RETRY, "refresh metadata and retry; if it persists, check the topic's name"
    INVALID_FETCH_SIZE = 4, _STOP, "request a size above zero"
    LEADER_NOT_AVAILABLE = 5, _RETRY, "refresh metadata and retry"
    NOT_LEADER_OR_FOLLOWER = 6, _RETRY, "refresh metadata and retry at the leader"
    REQUEST_TIMED_OUT = 7, _RETRY, "retry; the request may have been processed"
    BROKER_NOT_AVAILABLE = 8, _STOP, "wait for the broker, or use another"
    REPLICA_NOT_AVAILABLE = 9, _RETRY, "refresh metadata and retry"
    MESSAGE_TOO_LARGE = 10, _STOP, "send smaller batches, or raise max.message.bytes on the topic"
    STALE_CONTROLLER_EPOCH = 11, _STOP, "refresh metadata, and send to the new controller"
    OFFSET_METADATA_TOO_LARGE = 12, _STOP, "commit shorter metadata"
    NETWORK_EXCEPTION = 13, _RETRY, "reconnect and retry"
    COORDINATOR_LOAD_IN_PROGRESS = 14, _RETRY, "retry at the same coordinator after a backoff"
    COORDINATOR_NOT_AVAILABLE = 15, _RETRY, "send FindCoordinator again after a backoff"
    NOT_COORDINATOR = 16, _RETRY, "send FindCoordinator again"
    INVALID_TOPIC_EXCEPTION = 17, _STOP, "use a valid topic name"
    RECORD_LIST_TOO_LARGE = 18, _STOP, "send smaller batches, or raise segment.bytes on the topic"
    NOT_ENOUGH_REPLICAS = 19, _RETRY, "retry when replicas are back in sync"
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20, _RETRY, "retry only if duplicate records are acceptable"
    INVALID_REQUIRED_ACKS = 21, _STOP, "use acks of -1, 0 or 1"
    ILLEGAL_GENERATION = 22, _STOP, "rejoin the group; do not commit for the old generation"
    INCONSISTENT_GROUP_PROTOCOL = 23, _STOP, "give all members a common assignor and the same protocol type"
    INVALID_GROUP_ID = 24, _STOP, "use a group id that is not empty"
    UNKNOWN_MEMBER_ID = 25, _STOP, "rejoin with an empty member id"
    INVALID_SESSION_TIMEOUT = (
        26,
        _STOP,
        "choose session_timeout_ms within the broker's group.min/max.session.timeout.ms",
    )
    REBALANCE_IN_PROGRESS = 27, _STOP, "revoke partitions, and rejoin"
    INVALID_COMMIT_OFFSET_SIZE = 28, _STOP, "commit fewer partitions at once"
    TOPIC_AUTHORIZATION_FAILED = 29, _STOP, "grant the principal access to the topic"
    GROUP_AUTHORIZATION_FAILED = 30, _STOP, "grant the principal access to the group"
    CLUSTER_AUTHORIZATION_FAILED = 31, _STOP, "grant the principal access to the cluster"
    INVALID_TIMESTAMP = 32, _STOP, "keep timestamps within the topic's bounds"
    UNSUPPORTED_SASL_MECHANISM = 33, _STOP, "use one of the mechanisms that the broker lists"
    ILLEGAL_SASL_STATE = 34, _STOP, "send SaslHandshake first, then SaslAuthenticate, then the rest"
    UNSUPPORTED_VERSION = 35, _STOP, "send ApiVersions, and use a version of its response"
    TOPIC_ALREADY_EXISTS = 36, _STOP, "treat the topic as created, and check its settings"
    INVALID_PARTITIONS = 37, _STOP, "request at least one partition, or more than the current number"
    INVALID_REPLICATION_FACTOR = 38, _STOP, "use a replication factor between 1 and the number of brokers"
    INVALID_REPLICA_ASSIGNMENT = 39, _STOP, "name live brokers, the same number for each partition"
    INVALID_CONFIG = 40, _STOP, "correct the setting in the error message"
    NOT_CONTROLLER = 41, _RETRY, "refresh metadata and send to the controller"
    INVALID_REQUEST = 42, _STOP, "correct the request; see the error message and the broker's log"
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43, _STOP, "use an older version of the API, or convert the topic"
    POLICY_VIOLATION = 44, _STOP, "change the request to comply with the cluster's policy"
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45, _STOP, "abort, or start with a new producer id"
    DUPLICATE_SEQUENCE_NUMBER = 46, _STOP, "treat the record as written"
    INVALID_PRODUCER_EPOCH = 47, _STOP, "abort the transaction, or start with a new epoch"
    INVALID_TXN_STATE = 48, _STOP, "abort the transaction, and begin again"
    INVALID_PRODUCER_ID_MAPPING = 49, _STOP, "send InitProducerId again"
    INVALID_TRANSACTION_TIMEOUT = 50, _STOP, "choose a timeout within transaction.max.timeout.ms"
    CONCURRENT_TRANSACTIONS = 51, _RETRY, "retry after a backoff"
    TRANSACTION_COORDINATOR_FENCED = 52, _STOP, "no action: a newer transaction coordinator took over"
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53, _STOP, "grant the principal access to the transactional id"
    SECURITY_DISABLED = 54, _STOP, "enable security on the cluster first"
    OPERATION_NOT_ATTEMPTED = 55, _STOP, "see the errors of the other items in the same request"
    KAFKA_STORAGE_ERROR = 56, _RETRY, "refresh metadata and retry"
    LOG_DIR_NOT_FOUND = 57, _STOP, "name a log directory that the broker has"
    SASL_AUTHENTICATION_FAILED = 58, _STOP, "check the user name and the password"
    UNKNOWN_PRODUCER_ID = 59, _STOP, "start with a new producer id"
    REASSIGNMENT_IN_PROGRESS = 60, _STOP, "wait for the reassignment to end"
    DELEGATION_TOKEN_AUTH_DISABLED = 61, _STOP, "enable delegation tokens on the cluster"
    DELEGATION_TOKEN_NOT_FOUND = 62, _STOP, "use a token that exists"
    DELEGATION_TOKEN_OWNER_MISMATCH = 63, _STOP, "use the token's owner or renewer"
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64, _STOP, "connect over TLS with a client certificate, or over SASL"
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65, _STOP, "grant the principal access to the token"
    DELEGATION_TOKEN_EXPIRED = 66, _STOP, "get a new token"
    INVALID_PRINCIPAL_TYPE = 67, _STOP, "name a User principal"
    NON_EMPTY_GROUP = 68, _STOP, "wait until the group has no members"
    GROUP_ID_NOT_FOUND = 69, _STOP, "check the group id"
    FETCH_SESSION_ID_NOT_FOUND = 70, _RETRY, "open a new fetch session"
    INVALID_FETCH_SESSION_EPOCH = 71, _RETRY, "open a new fetch session"
    LISTENER_NOT_FOUND = 72, _RETRY, "refresh metadata and retry"
    TOPIC_DELETION_DISABLED = 73, _STOP, "set delete.topic.enable on the brokers"
    FENCED_LEADER_EPOCH = 74, _RETRY, "refresh metadata and retry"
    UNKNOWN_LEADER_EPOCH = 75, _RETRY, "retry after a metadata refresh"
    UNSUPPORTED_COMPRESSION_TYPE = 76, _STOP, "use a newer version of the API for zstd"
    STALE_BROKER_EPOCH = 77, _STOP, "no action: the broker registers again"
    OFFSET_NOT_AVAILABLE = 78, _RETRY, "retry after a backoff"
    MEMBER_ID_REQUIRED = 79, _STOP, "rejoin with the member id of the response"
    PREFERRED_LEADER_NOT_AVAILABLE = 80, _RETRY, "retry when the preferred leader is available"
    GROUP_MAX_SIZE_REACHED = 81, _STOP, "use fewer members, or raise group.max.size"
    FENCED_INSTANCE_ID = 82, _STOP, "stop: another process uses this group_instance_id"
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83, _RETRY, "retry when an eligible replica is available"
    ELECTION_NOT_NEEDED = 84, _RETRY, "treat the request as done"
    NO_REASSIGNMENT_IN_PROGRESS = 85, _STOP, "treat the request as done"
    GROUP_SUBSCRIBED_TO_TOPIC = 86, _STOP, "unsubscribe the group from the topic first"
    INVALID_RECORD = 87, _STOP, "correct the records in the response"
    UNSTABLE_OFFSET_COMMIT = 88, _RETRY, "retry after a backoff"
    THROTTLING_QUOTA_EXCEEDED = 89, _RETRY, "retry after throttle_time_ms"
    PRODUCER_FENCED = 90, _STOP, "stop: a newer producer uses this transactional id"
    RESOURCE_NOT_FOUND = 91, _STOP, "name an existing resource"
    DUPLICATE_RESOURCE = 92, _STOP, "name each resource once"
    UNACCEPTABLE_CREDENTIAL = 93, _STOP, "choose a password that the mechanism accepts"
    INCONSISTENT_VOTER_SET = 94, _STOP, "no action: the KRaft voter sets are inconsistent"
    INVALID_UPDATE_VERSION = 95, _STOP, "describe the feature again, and update its current level"
    FEATURE_UPDATE_FAILED = 96, _STOP, "look at the controller's log"
    PRINCIPAL_DESERIALIZATION_FAILURE = 97, _STOP, "set the same principal.builder.class on all brokers"
    SNAPSHOT_NOT_FOUND = 98, _STOP, "no action: the replica requests the newest snapshot"
    POSITION_OUT_OF_RANGE = 99, _STOP, "the replica requests a valid position"
    UNKNOWN_TOPIC_ID = 100, _RETRY, "refresh metadata and retry; if it persists, the topic was deleted"
    DUPLICATE_BROKER_REGISTRATION = 101, _STOP, "give the broker an id of its own"
    BROKER_ID_NOT_REGISTERED = 102, _STOP, "register the broker first"
    INCONSISTENT_TOPIC_ID = 103, _RETRY, "refresh metadata and retry"
    INCONSISTENT_CLUSTER_ID = 104, _STOP, "check bootstrap_servers"
    TRANSACTIONAL_ID_NOT_FOUND = 105, _STOP, "check the transactional id"
    FETCH_SESSION_TOPIC_ID_ERROR = 106, _RETRY, "open a new fetch session"
    INELIGIBLE_REPLICA = 107, _STOP, "no action: the replica rejoins later"
    NEW_LEADER_ELECTED = 108, _STOP, "no action: the partition has a new leader"
    OFFSET_MOVED_TO_TIERED_STORAGE = 109, _STOP, "no action: the follower restores its state from tiered storage"
    FENCED_MEMBER_EPOCH = 110, _STOP, "abandon all partitions, and rejoin"
    UNRELEASED_INSTANCE_ID = 111, _STOP, "wait until the old member has left, then join again"
    UNSUPPORTED_ASSIGNOR = 112, _STOP, "use an assignor that the coordinator offers"
    STALE_MEMBER_EPOCH = 113, _STOP, "retry with the epoch of the next heartbeat"
    MISMATCHED_ENDPOINT_TYPE = 114, _STOP, "connect to a broker, or to a controller, as the request needs"
    UNSUPPORTED_ENDPOINT_TYPE = 115, _STOP, "use a broker's listener"
    UNKNOWN_CONTROLLER_ID = 116, _STOP, "name a controller that exists"
    UNKNOWN_SUBSCRIPTION_ID = 117, _STOP, "send GetTelemetrySubscriptions again"
    TELEMETRY_TOO_LARGE = 118, _STOP, "push less telemetry in one request"
    INVALID_REGISTRATION = 119, _STOP, "correct the broker's registration"
    TRANSACTION_ABORTABLE = 120, _STOP, "abort the transaction, and begin again"
    INVALID_RECORD_STATE = 121, _STOP, "do not acknowledge again"
    SHARE_SESSION_NOT_FOUND = 122, _RETRY, "open a new share session"
    INVALID_SHARE_SESSION_EPOCH = 123, _RETRY, "open a new share session"
    FENCED_STATE_EPOCH = 124, _STOP, "read the share group's state again"
    INVALID_VOTER_KEY = 125, _STOP, "use the voter's own directory id"
    DUPLICATE_VOTER = 126, _STOP, "treat the request as done"
    VOTER_NOT_FOUND = 127, _STOP, "name a voter that exists"
    INVALID_REGULAR_EXPRESSION = 128, _STOP, "correct the regular expression (RE2 syntax)"
    REBOOTSTRAP_REQUIRED = 129, _STOP, "discard the metadata, and use the bootstrap addresses again"
    STREAMS_INVALID_TOPOLOGY = 130, _STOP, "correct the topology"
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131, _STOP, "send the group's topology epoch"
    STREAMS_TOPOLOGY_FENCED = 132, _STOP, "deploy the newer topology"
    SHARE_SESSION_LIMIT_REACHED = 133, _RETRY, "retry later, or raise group.share.max.share.sessions"
    GROUP_DELETION_FAILED = 134, _STOP, "read the broker's message, and delete the group again"
    STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED = 135, _STOP, "read the broker's message, and send it again"
    CONTROLLER_ID_NOT_REGISTERED = 136, _STOP, "name a controller that is registered"


ERRORS: Mapping[int, ErrorCode] = MappingProxyType({int(code): code for code in ErrorCode})


def error_name(code: int) -> str:
    """Return Kafka's name of a code, or `ERROR_<code>` for an unknown code."""
    return ERRORS[code].name if code in ERRORS else f"ERROR_{code}"


def is_retriable(code: int) -> bool:
    """Return True if the same request may succeed later, as far as the code is known."""
    return code in ERRORS and ERRORS[code].retriable


class UnsupportedVersion(KohortError):
    """An API, or a version of it, that the broker or kohort does not support. `api` and the versions give the place.

    Cure:
        Use newer brokers, or leave out the setting or the call that needs the API. `kohort wire apis` lists all
        versions.
    """


class BrokerError(KohortError):
    """An error code in a broker's response. Some codes have a class of their own.

    `code` and `name` are Kafka's. `retriable` is true if the same call may succeed later. `broker_message` is the
    broker's text, or None.

    Cure:
        Follow the hint, which is that of the code.
    """

    def __init__(self, code: int, message: str | None = None, **place: object) -> None:
        info = ERRORS.get(code)
        self.code = code
        self.name = error_name(code)
        self.retriable = is_retriable(code)
        text = f"{self.name} [{code}]" + (f": {cut(message)}" if message else "")
        super().__init__(text, hint=info.advice if info else None, **place)
        self.broker_message = message

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.code, self.broker_message, dict(self.place))


def _rebuild(kind: type[BrokerError], code: int, message: str | None, place: dict[str, object]) -> BrokerError:
    return kind(code, message, **place)
