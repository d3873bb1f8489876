"""Kafka's error codes as a table, and the exception that carries a code.

`retriable` is true if the Java client's exception class is a RetriableException. The same request may then succeed
later, most often after a metadata refresh or with a new coordinator. `hint` gives the remedy.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from kohort.common.errors import KohortError
from kohort.common.foreign_text import cut


class KafkaErrorInfo(NamedTuple):
    """One row of the table."""

    code: int
    name: str
    retriable: bool
    advice: str


_RETRY = True
_STOP = False

_TABLE: tuple[tuple[int, str, bool, str], ...] = (
    (-1, "UNKNOWN_SERVER_ERROR", _STOP, "look at the broker's log"),
    (0, "NONE", _STOP, "no error"),
    (1, "OFFSET_OUT_OF_RANGE", _STOP, "reset the position by auto_offset_reset"),
    (2, "CORRUPT_MESSAGE", _RETRY, "fetch or send again; if it persists, the broker's replica is damaged"),
    (3, "UNKNOWN_TOPIC_OR_PARTITION", _RETRY, "refresh metadata and retry; if it persists, check the topic's name"),
    (4, "INVALID_FETCH_SIZE", _STOP, "request a size above zero"),
    (5, "LEADER_NOT_AVAILABLE", _RETRY, "refresh metadata and retry"),
    (6, "NOT_LEADER_OR_FOLLOWER", _RETRY, "refresh metadata and retry at the leader"),
    (7, "REQUEST_TIMED_OUT", _RETRY, "retry; the request may have been processed"),
    (8, "BROKER_NOT_AVAILABLE", _STOP, "wait for the broker, or use another"),
    (9, "REPLICA_NOT_AVAILABLE", _RETRY, "refresh metadata and retry"),
    (10, "MESSAGE_TOO_LARGE", _STOP, "send smaller batches, or raise max.message.bytes on the topic"),
    (11, "STALE_CONTROLLER_EPOCH", _STOP, "refresh metadata, and send to the new controller"),
    (12, "OFFSET_METADATA_TOO_LARGE", _STOP, "commit shorter metadata"),
    (13, "NETWORK_EXCEPTION", _RETRY, "reconnect and retry"),
    (14, "COORDINATOR_LOAD_IN_PROGRESS", _RETRY, "retry at the same coordinator after a backoff"),
    (15, "COORDINATOR_NOT_AVAILABLE", _RETRY, "send FindCoordinator again after a backoff"),
    (16, "NOT_COORDINATOR", _RETRY, "send FindCoordinator again"),
    (17, "INVALID_TOPIC_EXCEPTION", _STOP, "use a valid topic name"),
    (18, "RECORD_LIST_TOO_LARGE", _STOP, "send smaller batches, or raise segment.bytes on the topic"),
    (19, "NOT_ENOUGH_REPLICAS", _RETRY, "retry when replicas are back in sync"),
    (20, "NOT_ENOUGH_REPLICAS_AFTER_APPEND", _RETRY, "retry only if duplicate records are acceptable"),
    (21, "INVALID_REQUIRED_ACKS", _STOP, "use acks of -1, 0 or 1"),
    (22, "ILLEGAL_GENERATION", _STOP, "rejoin the group; do not commit for the old generation"),
    (23, "INCONSISTENT_GROUP_PROTOCOL", _STOP, "give all members a common assignor and the same protocol type"),
    (24, "INVALID_GROUP_ID", _STOP, "use a group id that is not empty"),
    (25, "UNKNOWN_MEMBER_ID", _STOP, "rejoin with an empty member id"),
    (
        26,
        "INVALID_SESSION_TIMEOUT",
        _STOP,
        "choose session_timeout_ms within the broker's group.min/max.session.timeout.ms",
    ),
    (27, "REBALANCE_IN_PROGRESS", _STOP, "revoke partitions, and rejoin"),
    (28, "INVALID_COMMIT_OFFSET_SIZE", _STOP, "commit fewer partitions at once"),
    (29, "TOPIC_AUTHORIZATION_FAILED", _STOP, "grant the principal access to the topic"),
    (30, "GROUP_AUTHORIZATION_FAILED", _STOP, "grant the principal access to the group"),
    (31, "CLUSTER_AUTHORIZATION_FAILED", _STOP, "grant the principal access to the cluster"),
    (32, "INVALID_TIMESTAMP", _STOP, "keep timestamps within the topic's bounds"),
    (33, "UNSUPPORTED_SASL_MECHANISM", _STOP, "use one of the mechanisms that the broker lists"),
    (34, "ILLEGAL_SASL_STATE", _STOP, "send SaslHandshake first, then SaslAuthenticate, then the rest"),
    (35, "UNSUPPORTED_VERSION", _STOP, "send ApiVersions, and use a version of its response"),
    (36, "TOPIC_ALREADY_EXISTS", _STOP, "treat the topic as created, and check its settings"),
    (37, "INVALID_PARTITIONS", _STOP, "request at least one partition, or more than the current number"),
    (38, "INVALID_REPLICATION_FACTOR", _STOP, "use a replication factor between 1 and the number of brokers"),
    (39, "INVALID_REPLICA_ASSIGNMENT", _STOP, "name live brokers, the same number for each partition"),
    (40, "INVALID_CONFIG", _STOP, "correct the setting in the error message"),
    (41, "NOT_CONTROLLER", _RETRY, "refresh metadata and send to the controller"),
    (42, "INVALID_REQUEST", _STOP, "correct the request; see the error message and the broker's log"),
    (43, "UNSUPPORTED_FOR_MESSAGE_FORMAT", _STOP, "use an older version of the API, or convert the topic"),
    (44, "POLICY_VIOLATION", _STOP, "change the request to comply with the cluster's policy"),
    (
        45,
        "OUT_OF_ORDER_SEQUENCE_NUMBER",
        _STOP,
        "abort, or start with a new producer id",
    ),
    (46, "DUPLICATE_SEQUENCE_NUMBER", _STOP, "treat the record as written"),
    (47, "INVALID_PRODUCER_EPOCH", _STOP, "abort the transaction, or start with a new epoch"),
    (48, "INVALID_TXN_STATE", _STOP, "abort the transaction, and begin again"),
    (49, "INVALID_PRODUCER_ID_MAPPING", _STOP, "send InitProducerId again"),
    (50, "INVALID_TRANSACTION_TIMEOUT", _STOP, "choose a timeout within transaction.max.timeout.ms"),
    (51, "CONCURRENT_TRANSACTIONS", _RETRY, "retry after a backoff"),
    (
        52,
        "TRANSACTION_COORDINATOR_FENCED",
        _STOP,
        "no action: a newer transaction coordinator took over",
    ),
    (53, "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", _STOP, "grant the principal access to the transactional id"),
    (54, "SECURITY_DISABLED", _STOP, "enable security on the cluster first"),
    (55, "OPERATION_NOT_ATTEMPTED", _STOP, "see the errors of the other items in the same request"),
    (56, "KAFKA_STORAGE_ERROR", _RETRY, "refresh metadata and retry"),
    (57, "LOG_DIR_NOT_FOUND", _STOP, "name a log directory that the broker has"),
    (58, "SASL_AUTHENTICATION_FAILED", _STOP, "check the user name and the password"),
    (59, "UNKNOWN_PRODUCER_ID", _STOP, "start with a new producer id"),
    (60, "REASSIGNMENT_IN_PROGRESS", _STOP, "wait for the reassignment to end"),
    (61, "DELEGATION_TOKEN_AUTH_DISABLED", _STOP, "enable delegation tokens on the cluster"),
    (62, "DELEGATION_TOKEN_NOT_FOUND", _STOP, "use a token that exists"),
    (63, "DELEGATION_TOKEN_OWNER_MISMATCH", _STOP, "use the token's owner or renewer"),
    (64, "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED", _STOP, "connect over TLS with a client certificate, or over SASL"),
    (65, "DELEGATION_TOKEN_AUTHORIZATION_FAILED", _STOP, "grant the principal access to the token"),
    (66, "DELEGATION_TOKEN_EXPIRED", _STOP, "get a new token"),
    (67, "INVALID_PRINCIPAL_TYPE", _STOP, "name a User principal"),
    (68, "NON_EMPTY_GROUP", _STOP, "wait until the group has no members"),
    (69, "GROUP_ID_NOT_FOUND", _STOP, "check the group id"),
    (70, "FETCH_SESSION_ID_NOT_FOUND", _RETRY, "open a new fetch session"),
    (71, "INVALID_FETCH_SESSION_EPOCH", _RETRY, "open a new fetch session"),
    (72, "LISTENER_NOT_FOUND", _RETRY, "refresh metadata and retry"),
    (73, "TOPIC_DELETION_DISABLED", _STOP, "set delete.topic.enable on the brokers"),
    (74, "FENCED_LEADER_EPOCH", _RETRY, "refresh metadata and retry"),
    (75, "UNKNOWN_LEADER_EPOCH", _RETRY, "retry after a metadata refresh"),
    (76, "UNSUPPORTED_COMPRESSION_TYPE", _STOP, "use a newer version of the API for zstd"),
    (77, "STALE_BROKER_EPOCH", _STOP, "no action: the broker registers again"),
    (78, "OFFSET_NOT_AVAILABLE", _RETRY, "retry after a backoff"),
    (79, "MEMBER_ID_REQUIRED", _STOP, "rejoin with the member id of the response"),
    (80, "PREFERRED_LEADER_NOT_AVAILABLE", _RETRY, "retry when the preferred leader is available"),
    (81, "GROUP_MAX_SIZE_REACHED", _STOP, "use fewer members, or raise group.max.size"),
    (82, "FENCED_INSTANCE_ID", _STOP, "stop: another process uses this group_instance_id"),
    (83, "ELIGIBLE_LEADERS_NOT_AVAILABLE", _RETRY, "retry when an eligible replica is available"),
    (84, "ELECTION_NOT_NEEDED", _RETRY, "treat the request as done"),
    (85, "NO_REASSIGNMENT_IN_PROGRESS", _STOP, "treat the request as done"),
    (86, "GROUP_SUBSCRIBED_TO_TOPIC", _STOP, "unsubscribe the group from the topic first"),
    (87, "INVALID_RECORD", _STOP, "correct the records in the response"),
    (88, "UNSTABLE_OFFSET_COMMIT", _RETRY, "retry after a backoff"),
    (89, "THROTTLING_QUOTA_EXCEEDED", _RETRY, "retry after throttle_time_ms"),
    (90, "PRODUCER_FENCED", _STOP, "stop: a newer producer uses this transactional id"),
    (91, "RESOURCE_NOT_FOUND", _STOP, "name an existing resource"),
    (92, "DUPLICATE_RESOURCE", _STOP, "name each resource once"),
    (93, "UNACCEPTABLE_CREDENTIAL", _STOP, "choose a password that the mechanism accepts"),
    (94, "INCONSISTENT_VOTER_SET", _STOP, "no action: the KRaft voter sets are inconsistent"),
    (95, "INVALID_UPDATE_VERSION", _STOP, "describe the feature again, and update its current level"),
    (96, "FEATURE_UPDATE_FAILED", _STOP, "look at the controller's log"),
    (
        97,
        "PRINCIPAL_DESERIALIZATION_FAILURE",
        _STOP,
        "set the same principal.builder.class on all brokers",
    ),
    (98, "SNAPSHOT_NOT_FOUND", _STOP, "no action: the replica requests the newest snapshot"),
    (99, "POSITION_OUT_OF_RANGE", _STOP, "the replica requests a valid position"),
    (100, "UNKNOWN_TOPIC_ID", _RETRY, "refresh metadata and retry; if it persists, the topic was deleted"),
    (101, "DUPLICATE_BROKER_REGISTRATION", _STOP, "give the broker an id of its own"),
    (102, "BROKER_ID_NOT_REGISTERED", _STOP, "register the broker first"),
    (103, "INCONSISTENT_TOPIC_ID", _RETRY, "refresh metadata and retry"),
    (104, "INCONSISTENT_CLUSTER_ID", _STOP, "check bootstrap_servers"),
    (105, "TRANSACTIONAL_ID_NOT_FOUND", _STOP, "check the transactional id"),
    (106, "FETCH_SESSION_TOPIC_ID_ERROR", _RETRY, "open a new fetch session"),
    (107, "INELIGIBLE_REPLICA", _STOP, "no action: the replica rejoins later"),
    (
        108,
        "NEW_LEADER_ELECTED",
        _STOP,
        "no action: the partition has a new leader",
    ),
    (
        109,
        "OFFSET_MOVED_TO_TIERED_STORAGE",
        _STOP,
        "no action: the follower restores its state from tiered storage",
    ),
    (110, "FENCED_MEMBER_EPOCH", _STOP, "abandon all partitions, and rejoin"),
    (111, "UNRELEASED_INSTANCE_ID", _STOP, "wait until the old member has left, then join again"),
    (112, "UNSUPPORTED_ASSIGNOR", _STOP, "use an assignor that the coordinator offers"),
    (113, "STALE_MEMBER_EPOCH", _STOP, "retry with the epoch of the next heartbeat"),
    (114, "MISMATCHED_ENDPOINT_TYPE", _STOP, "connect to a broker, or to a controller, as the request needs"),
    (115, "UNSUPPORTED_ENDPOINT_TYPE", _STOP, "use a broker's listener"),
    (116, "UNKNOWN_CONTROLLER_ID", _STOP, "name a controller that exists"),
    (117, "UNKNOWN_SUBSCRIPTION_ID", _STOP, "send GetTelemetrySubscriptions again"),
    (118, "TELEMETRY_TOO_LARGE", _STOP, "push less telemetry in one request"),
    (119, "INVALID_REGISTRATION", _STOP, "correct the broker's registration"),
    (120, "TRANSACTION_ABORTABLE", _STOP, "abort the transaction, and begin again"),
    (121, "INVALID_RECORD_STATE", _STOP, "do not acknowledge again"),
    (122, "SHARE_SESSION_NOT_FOUND", _RETRY, "open a new share session"),
    (123, "INVALID_SHARE_SESSION_EPOCH", _RETRY, "open a new share session"),
    (124, "FENCED_STATE_EPOCH", _STOP, "read the share group's state again"),
    (125, "INVALID_VOTER_KEY", _STOP, "use the voter's own directory id"),
    (126, "DUPLICATE_VOTER", _STOP, "treat the request as done"),
    (127, "VOTER_NOT_FOUND", _STOP, "name a voter that exists"),
    (128, "INVALID_REGULAR_EXPRESSION", _STOP, "correct the regular expression (RE2 syntax)"),
    (129, "REBOOTSTRAP_REQUIRED", _STOP, "discard the metadata, and use the bootstrap addresses again"),
    (130, "STREAMS_INVALID_TOPOLOGY", _STOP, "correct the topology"),
    (131, "STREAMS_INVALID_TOPOLOGY_EPOCH", _STOP, "send the group's topology epoch"),
    (132, "STREAMS_TOPOLOGY_FENCED", _STOP, "deploy the newer topology"),
    (133, "SHARE_SESSION_LIMIT_REACHED", _RETRY, "retry later, or raise group.share.max.share.sessions"),
)

ERRORS: Mapping[int, KafkaErrorInfo] = MappingProxyType({line[0]: KafkaErrorInfo(*line) for line in _TABLE})
CODES: Mapping[str, int] = MappingProxyType({info.name: info.code for info in ERRORS.values()})


def error_name(code: int) -> str:
    """Return Kafka's name of a code, or `ERROR_<code>` for an unknown code."""
    return ERRORS[code].name if code in ERRORS else f"ERROR_{code}"


class UnsupportedVersion(KohortError):
    """An API, or a version of it, that the broker or kohort does not support. `api` and the versions give the place."""


class BrokerError(KohortError):
    """An error code in a broker's response. `code`, `name` and `retriable` are from the table. Other arguments give the
    place."""

    def __init__(self, code: int, message: str | None = None, **place: object) -> None:
        info = ERRORS.get(code)
        self.code = code
        self.name = error_name(code)
        self.retriable = info is not None and info.retriable
        text = f"{self.name} [{code}]" + (f": {cut(message)}" if message else "")
        super().__init__(text, hint=info.advice if info else None, **place)
        self.broker_message = message

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.code, self.broker_message, dict(self.place))


def _rebuild(kind: type[BrokerError], code: int, message: str | None, place: dict[str, object]) -> BrokerError:
    return kind(code, message, **place)
