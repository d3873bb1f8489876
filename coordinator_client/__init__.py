"""One member of one group: Consumer and AsyncConsumer over one driver, and the pure machines beneath.

Consumer, AsyncConsumer and the errors of groups are imported at first use. asyncio takes 30 ms to load. A Spark query
starts several Python processes only to check settings, and the consumer would take 90 ms in each.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from kohort.coordinator_client.consumer_config import SETTINGS, ConsumerConfig
from kohort.coordinator_client.errors import (
    CallbackError,
    CommitRewind,
    ConsumerClosed,
    FetchFailed,
    NoOffset,
    OffsetOutOfRange,
    RebalanceInProgress,
    TopicRecreated,
    Truncation,
)
from kohort.coordinator_client.hooks import Assigned, Lost, RebalanceCause, RebalanceHooks, RebalanceReason, Revoked
from kohort.coordinator_client.offset_reset import OffsetReset
from kohort.coordinator_client.offsets.positions import Position
from kohort.coordinator_client.subscription_state import PauseReason, Subscription
from kohort.network.errors import (
    AuthenticationFailed,
    AuthorizationFailed,
    CommitFailed,
    ConcurrentUseError,
    ConfigError,
    ConnectionFailed,
    ForkError,
    FrameTooLarge,
    IllegalState,
    OperationTimeout,
    RebootstrapRequired,
    TicketUnavailable,
    TlsError,
    TokenUnavailable,
    UnknownTopic,
    WakeupError,
)
from kohort.network.group_types import OffsetAndMetadata
from kohort.network.offset_requests import ListedOffset

if TYPE_CHECKING:
    from kohort.coordinator_client.async_consumer import AsyncConsumer
    from kohort.coordinator_client.consumer import Consumer
    from kohort.coordinator_client.group.error_actions import (
        FencedInstance,
        GroupAuthorizationFailed,
        GroupRefused,
        InconsistentGroup,
        ProtocolNotOffered,
        UnreleasedInstance,
    )
    from kohort.coordinator_client.group.leader_assignment import AssignorFailed

__all__ = [
    "SETTINGS",
    "Assigned",
    "AssignorFailed",
    "AsyncConsumer",
    "AuthenticationFailed",
    "AuthorizationFailed",
    "CallbackError",
    "RebalanceCause",
    "CommitFailed",
    "CommitRewind",
    "ConcurrentUseError",
    "ConsumerConfig",
    "ConfigError",
    "ConnectionFailed",
    "Consumer",
    "ConsumerClosed",
    "FencedInstance",
    "FetchFailed",
    "ForkError",
    "FrameTooLarge",
    "GroupAuthorizationFailed",
    "GroupRefused",
    "OffsetReset",
    "IllegalState",
    "InconsistentGroup",
    "ListedOffset",
    "Lost",
    "NoOffset",
    "OffsetOutOfRange",
    "OffsetAndMetadata",
    "OperationTimeout",
    "PauseReason",
    "Position",
    "ProtocolNotOffered",
    "RebalanceHooks",
    "RebalanceInProgress",
    "RebootstrapRequired",
    "Revoked",
    "Subscription",
    "TicketUnavailable",
    "TlsError",
    "TokenUnavailable",
    "TopicRecreated",
    "Truncation",
    "UnknownTopic",
    "UnreleasedInstance",
    "WakeupError",
    "RebalanceReason",
]


_HOME = {
    "AssignorFailed": "group.leader_assignment",
    "AsyncConsumer": "async_consumer",
    "Consumer": "consumer",
    "FencedInstance": "group.error_actions",
    "GroupAuthorizationFailed": "group.error_actions",
    "GroupRefused": "group.error_actions",
    "InconsistentGroup": "group.error_actions",
    "ProtocolNotOffered": "group.error_actions",
    "UnreleasedInstance": "group.error_actions",
}


if not TYPE_CHECKING:  # a name that is missing is an error of a type checker

    def __getattr__(name: str) -> object:
        if name not in _HOME:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found: object = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
        globals()[name] = found
        return found
