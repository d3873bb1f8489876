"""Kafka's error codes as a table, and the exception that carries one.

`retriable` is Kafka's own verdict (its exception class is a RetriableException): the same request may succeed later,
most often after fresh metadata or a new coordinator. What else a client should do stands beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from kohort.common.errors import KohortError
from kohort.common.foreign_text import cut


class KafkaErrorInfo(NamedTuple):
    """One line of the table."""

    code: int
    name: str
    retriable: bool
    advice: str


_RETRY = True
_STOP = False

_TABLE: tuple[tuple[int, str, bool, str], ...] = (
    (-1, "UNKNOWN_SERVER_ERROR", _STOP, "the broker's log says more; retry with care"),
    (0, "NONE", _STOP, "nothing is wrong"),
    (1, "OFFSET_OUT_OF_RANGE", _STOP, "reset the position as the policy says"),
    (2, "CORRUPT_MESSAGE", _RETRY, "fetch or send again; if it stays, the broker's copy is damaged"),
    (3, "UNKNOWN_TOPIC_OR_PARTITION", _RETRY, "refresh metadata and retry; if it stays, the topic is gone or misspelt"),
    (4, "INVALID_FETCH_SIZE", _STOP, "ask for a size above zero"),
    (5, "LEADER_NOT_AVAILABLE", _RETRY, "refresh metadata and retry"),
    (6, "NOT_LEADER_OR_FOLLOWER", _RETRY, "refresh metadata and retry at the leader"),
    (7, "REQUEST_TIMED_OUT", _RETRY, "retry; the work may have been done all the same"),
    (8, "BROKER_NOT_AVAILABLE", _STOP, "wait for the broker, or ask another"),
    (9, "REPLICA_NOT_AVAILABLE", _RETRY, "refresh metadata and retry"),
    (10, "MESSAGE_TOO_LARGE", _STOP, "send smaller batches, or raise max.message.bytes on the topic"),
    (11, "STALE_CONTROLLER_EPOCH", _STOP, "refresh metadata; another broker is the controller now"),
    (12, "OFFSET_METADATA_TOO_LARGE", _STOP, "commit a shorter metadata text"),
    (13, "NETWORK_EXCEPTION", _RETRY, "reconnect and retry"),
    (14, "COORDINATOR_LOAD_IN_PROGRESS", _RETRY, "retry at the same coordinator after a while"),
    (15, "COORDINATOR_NOT_AVAILABLE", _RETRY, "find the coordinator again after a while"),
    (16, "NOT_COORDINATOR", _RETRY, "find the coordinator again"),
    (17, "INVALID_TOPIC_EXCEPTION", _STOP, "use a name that topics may have"),
    (18, "RECORD_LIST_TOO_LARGE", _STOP, "send smaller batches, or raise segment.bytes on the topic"),
    (19, "NOT_ENOUGH_REPLICAS", _RETRY, "retry when replicas are back in sync"),
    (20, "NOT_ENOUGH_REPLICAS_AFTER_APPEND", _RETRY, "retry only if doubled records do no harm"),
    (21, "INVALID_REQUIRED_ACKS", _STOP, "use acks of -1, 0 or 1"),
    (22, "ILLEGAL_GENERATION", _STOP, "rejoin the group; do not commit for the old generation"),
    (23, "INCONSISTENT_GROUP_PROTOCOL", _STOP, "give all members an assignor in common, and the same kind of group"),
    (24, "INVALID_GROUP_ID", _STOP, "use a group id that is not empty"),
    (25, "UNKNOWN_MEMBER_ID", _STOP, "rejoin with an empty member id"),
    (
        26,
        "INVALID_SESSION_TIMEOUT",
        _STOP,
        "choose session_timeout_ms within the broker's group.min/max.session.timeout.ms",
    ),
    (27, "REBALANCE_IN_PROGRESS", _STOP, "give back what must be given back, and rejoin"),
    (28, "INVALID_COMMIT_OFFSET_SIZE", _STOP, "commit fewer partitions at once"),
    (29, "TOPIC_AUTHORIZATION_FAILED", _STOP, "grant the principal access to the topic"),
    (30, "GROUP_AUTHORIZATION_FAILED", _STOP, "grant the principal access to the group"),
    (31, "CLUSTER_AUTHORIZATION_FAILED", _STOP, "grant the principal access to the cluster"),
    (32, "INVALID_TIMESTAMP", _STOP, "keep timestamps within the topic's bounds"),
    (33, "UNSUPPORTED_SASL_MECHANISM", _STOP, "use one of the mechanisms that the broker lists"),
    (34, "ILLEGAL_SASL_STATE", _STOP, "send SaslHandshake first, then SaslAuthenticate, then the rest"),
    (35, "UNSUPPORTED_VERSION", _STOP, "ask ApiVersions and use a version from its list"),
    (36, "TOPIC_ALREADY_EXISTS", _STOP, "treat it as created, after a look at its settings"),
    (37, "INVALID_PARTITIONS", _STOP, "ask for one partition at least, and for more than there are when adding"),
    (38, "INVALID_REPLICATION_FACTOR", _STOP, "ask for a replication factor between 1 and the number of brokers"),
    (39, "INVALID_REPLICA_ASSIGNMENT", _STOP, "name live brokers, and as many for each partition"),
    (40, "INVALID_CONFIG", _STOP, "correct the setting that the message names"),
    (41, "NOT_CONTROLLER", _RETRY, "refresh metadata and ask the controller"),
    (42, "INVALID_REQUEST", _STOP, "correct the request; the message and the broker's log say what is wrong"),
    (43, "UNSUPPORTED_FOR_MESSAGE_FORMAT", _STOP, "use an older version of the API, or convert the topic"),
    (44, "POLICY_VIOLATION", _STOP, "ask for what the cluster's policy allows"),
    (
        45,
        "OUT_OF_ORDER_SEQUENCE_NUMBER",
        _STOP,
        "records were lost or overtaken: abort, or start with a new producer id",
    ),
    (46, "DUPLICATE_SEQUENCE_NUMBER", _STOP, "take the record as written already"),
    (47, "INVALID_PRODUCER_EPOCH", _STOP, "abort the transaction, or start with a new epoch"),
    (48, "INVALID_TXN_STATE", _STOP, "abort and begin anew; steps came out of order"),
    (49, "INVALID_PRODUCER_ID_MAPPING", _STOP, "initialise the producer again"),
    (50, "INVALID_TRANSACTION_TIMEOUT", _STOP, "choose a timeout within transaction.max.timeout.ms"),
    (51, "CONCURRENT_TRANSACTIONS", _RETRY, "retry after a while; the last transaction is still being completed"),
    (
        52,
        "TRANSACTION_COORDINATOR_FENCED",
        _STOP,
        "nothing for a client to do: a newer transaction coordinator took over",
    ),
    (53, "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", _STOP, "grant the principal access to the transactional id"),
    (54, "SECURITY_DISABLED", _STOP, "enable security on the cluster first"),
    (55, "OPERATION_NOT_ATTEMPTED", _STOP, "look at the errors of the other items in the same request"),
    (56, "KAFKA_STORAGE_ERROR", _RETRY, "refresh metadata and retry; the replica's disk failed"),
    (57, "LOG_DIR_NOT_FOUND", _STOP, "name a log directory that the broker has"),
    (58, "SASL_AUTHENTICATION_FAILED", _STOP, "check user name and password"),
    (59, "UNKNOWN_PRODUCER_ID", _STOP, "start with a new producer id; the old one's records have expired"),
    (60, "REASSIGNMENT_IN_PROGRESS", _STOP, "wait for the reassignment to end"),
    (61, "DELEGATION_TOKEN_AUTH_DISABLED", _STOP, "enable delegation tokens on the cluster"),
    (62, "DELEGATION_TOKEN_NOT_FOUND", _STOP, "use a token that exists"),
    (63, "DELEGATION_TOKEN_OWNER_MISMATCH", _STOP, "ask as the token's owner or renewer"),
    (64, "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED", _STOP, "ask over TLS with a client certificate or over SASL"),
    (65, "DELEGATION_TOKEN_AUTHORIZATION_FAILED", _STOP, "grant the principal access to the token"),
    (66, "DELEGATION_TOKEN_EXPIRED", _STOP, "get a new token"),
    (67, "INVALID_PRINCIPAL_TYPE", _STOP, "name a User principal"),
    (68, "NON_EMPTY_GROUP", _STOP, "wait until the group has no members"),
    (69, "GROUP_ID_NOT_FOUND", _STOP, "check the group's name; it may have expired"),
    (70, "FETCH_SESSION_ID_NOT_FOUND", _RETRY, "open a new fetch session"),
    (71, "INVALID_FETCH_SESSION_EPOCH", _RETRY, "open a new fetch session"),
    (72, "LISTENER_NOT_FOUND", _RETRY, "refresh metadata and retry; the leader's listener is not up"),
    (73, "TOPIC_DELETION_DISABLED", _STOP, "set delete.topic.enable on the brokers"),
    (74, "FENCED_LEADER_EPOCH", _RETRY, "refresh metadata and retry"),
    (75, "UNKNOWN_LEADER_EPOCH", _RETRY, "retry; the broker will catch up"),
    (76, "UNSUPPORTED_COMPRESSION_TYPE", _STOP, "use a newer version of the API for zstd"),
    (77, "STALE_BROKER_EPOCH", _STOP, "nothing for a client to do: a broker must register again"),
    (78, "OFFSET_NOT_AVAILABLE", _RETRY, "retry; the new leader is still finding its end"),
    (79, "MEMBER_ID_REQUIRED", _STOP, "rejoin with the member id in the answer"),
    (80, "PREFERRED_LEADER_NOT_AVAILABLE", _RETRY, "retry when the preferred leader is up"),
    (81, "GROUP_MAX_SIZE_REACHED", _STOP, "use fewer members, or raise group.max.size"),
    (82, "FENCED_INSTANCE_ID", _STOP, "stop: another process uses this group_instance_id"),
    (83, "ELIGIBLE_LEADERS_NOT_AVAILABLE", _RETRY, "retry when an eligible replica is up"),
    (84, "ELECTION_NOT_NEEDED", _RETRY, "treat it as done: the leader is the wanted one"),
    (85, "NO_REASSIGNMENT_IN_PROGRESS", _STOP, "treat it as done: nothing was being moved"),
    (86, "GROUP_SUBSCRIBED_TO_TOPIC", _STOP, "let the group unsubscribe from the topic first"),
    (87, "INVALID_RECORD", _STOP, "correct the records that the answer lists"),
    (88, "UNSTABLE_OFFSET_COMMIT", _RETRY, "retry after a while; a transaction on the offsets is open"),
    (89, "THROTTLING_QUOTA_EXCEEDED", _RETRY, "retry after throttle_time_ms"),
    (90, "PRODUCER_FENCED", _STOP, "stop: a newer producer uses this transactional id"),
    (91, "RESOURCE_NOT_FOUND", _STOP, "name something that exists"),
    (92, "DUPLICATE_RESOURCE", _STOP, "name each thing once"),
    (93, "UNACCEPTABLE_CREDENTIAL", _STOP, "choose a password that the mechanism takes"),
    (94, "INCONSISTENT_VOTER_SET", _STOP, "nothing for a client to do: the voters disagree about who votes"),
    (95, "INVALID_UPDATE_VERSION", _STOP, "read the feature's state again, and update from there"),
    (96, "FEATURE_UPDATE_FAILED", _STOP, "look at the controller's log"),
    (
        97,
        "PRINCIPAL_DESERIALIZATION_FAILURE",
        _STOP,
        "nothing for a client to do: brokers differ in how they name principals",
    ),
    (98, "SNAPSHOT_NOT_FOUND", _STOP, "nothing for a client to do: ask for the newest snapshot"),
    (99, "POSITION_OUT_OF_RANGE", _STOP, "ask for a position inside the snapshot"),
    (100, "UNKNOWN_TOPIC_ID", _RETRY, "refresh metadata and retry; if it stays, the topic was deleted"),
    (101, "DUPLICATE_BROKER_REGISTRATION", _STOP, "give the broker an id of its own"),
    (102, "BROKER_ID_NOT_REGISTERED", _STOP, "register the broker first"),
    (103, "INCONSISTENT_TOPIC_ID", _RETRY, "refresh metadata and retry; the topic was re-created"),
    (104, "INCONSISTENT_CLUSTER_ID", _STOP, "connect to the cluster that is meant"),
    (105, "TRANSACTIONAL_ID_NOT_FOUND", _STOP, "check the transactional id; it may have expired"),
    (106, "FETCH_SESSION_TOPIC_ID_ERROR", _RETRY, "open a new fetch session"),
    (107, "INELIGIBLE_REPLICA", _STOP, "nothing for a client to do: the replica may not rejoin yet"),
    (
        108,
        "NEW_LEADER_ELECTED",
        _STOP,
        "nothing for a client to do: the partition's state was updated, and it has a new leader",
    ),
    (
        109,
        "OFFSET_MOVED_TO_TIERED_STORAGE",
        _STOP,
        "nothing for a client to do: the follower must build its state from tiered storage",
    ),
    (110, "FENCED_MEMBER_EPOCH", _STOP, "give up all partitions and rejoin"),
    (111, "UNRELEASED_INSTANCE_ID", _STOP, "wait until the old member has gone, then join again"),
    (112, "UNSUPPORTED_ASSIGNOR", _STOP, "use an assignor that the coordinator offers"),
    (113, "STALE_MEMBER_EPOCH", _STOP, "retry with the epoch of the next heartbeat"),
    (114, "MISMATCHED_ENDPOINT_TYPE", _STOP, "connect to a broker, or to a controller, as the request needs"),
    (115, "UNSUPPORTED_ENDPOINT_TYPE", _STOP, "use a broker's listener"),
    (116, "UNKNOWN_CONTROLLER_ID", _STOP, "name a controller that exists"),
    (117, "UNKNOWN_SUBSCRIPTION_ID", _STOP, "fetch the telemetry subscription again"),
    (118, "TELEMETRY_TOO_LARGE", _STOP, "push less telemetry at once"),
    (119, "INVALID_REGISTRATION", _STOP, "correct the broker's registration"),
    (120, "TRANSACTION_ABORTABLE", _STOP, "abort the transaction and begin anew"),
    (121, "INVALID_RECORD_STATE", _STOP, "do not acknowledge again; the record is somebody else's now"),
    (122, "SHARE_SESSION_NOT_FOUND", _RETRY, "open a new share session"),
    (123, "INVALID_SHARE_SESSION_EPOCH", _RETRY, "open a new share session"),
    (124, "FENCED_STATE_EPOCH", _STOP, "read the share group's state again; a newer epoch took over"),
    (125, "INVALID_VOTER_KEY", _STOP, "use the voter's own directory id"),
    (126, "DUPLICATE_VOTER", _STOP, "treat it as done: it is a voter already"),
    (127, "VOTER_NOT_FOUND", _STOP, "name a voter that exists"),
    (128, "INVALID_REGULAR_EXPRESSION", _STOP, "correct the regular expression; the broker speaks RE2"),
    (129, "REBOOTSTRAP_REQUIRED", _STOP, "forget all brokers and start at the bootstrap addresses again"),
    (130, "STREAMS_INVALID_TOPOLOGY", _STOP, "correct the topology"),
    (131, "STREAMS_INVALID_TOPOLOGY_EPOCH", _STOP, "send the topology epoch that the group has"),
    (132, "STREAMS_TOPOLOGY_FENCED", _STOP, "deploy the newer topology"),
    (133, "SHARE_SESSION_LIMIT_REACHED", _RETRY, "retry later, or raise group.share.max.share.sessions"),
)

ERRORS: Mapping[int, KafkaErrorInfo] = MappingProxyType({line[0]: KafkaErrorInfo(*line) for line in _TABLE})
CODES: Mapping[str, int] = MappingProxyType({info.name: info.code for info in ERRORS.values()})


def error_name(code: int) -> str:
    """Kafka's name of a code; `ERROR_<code>` for one that is newer than the table."""
    return ERRORS[code].name if code in ERRORS else f"ERROR_{code}"


class UnsupportedVersion(KohortError):
    """An API or a version of it that one side does not speak: `api`, and the versions in question."""


class BrokerError(KohortError):
    """A broker answered with an error code. `code`, `name` and `retriable` are the table's; the rest is the place."""

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
