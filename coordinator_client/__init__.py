"""One member of one group: Consumer and AsyncConsumer over one driver, and the pure machines beneath.

Consumer and AsyncConsumer are imported at first use. asyncio takes 30 ms to load. A Spark query starts several Python
processes only to check settings, and the consumer would take 90 ms in each.
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

__all__ = [
    "SETTINGS",
    "Assigned",
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
    "FetchFailed",
    "ForkError",
    "FrameTooLarge",
    "OffsetReset",
    "IllegalState",
    "ListedOffset",
    "Lost",
    "NoOffset",
    "OffsetOutOfRange",
    "OffsetAndMetadata",
    "OperationTimeout",
    "PauseReason",
    "Position",
    "RebalanceHooks",
    "RebalanceInProgress",
    "Revoked",
    "Subscription",
    "TlsError",
    "TokenUnavailable",
    "TopicRecreated",
    "Truncation",
    "UnknownTopic",
    "WakeupError",
    "RebalanceReason",
]


_HOME = {"AsyncConsumer": "async_consumer", "Consumer": "consumer"}


if not TYPE_CHECKING:  # a name that is missing is an error of a type checker

    def __getattr__(name: str) -> object:
        if name not in _HOME:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found: object = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
        globals()[name] = found
        return found
