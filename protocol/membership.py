"""The consumer protocol inside the group protocol: subscription, assignment, and user data of the sticky assignors.

The consumer protocol has its own version, an int16 in front. Versions only add fields at the end (KIP-429). A reader
therefore reads the fields that it knows of a newer version, and ignores the rest. An older version has fewer fields.
"""

from __future__ import annotations

from typing import TypeVar

from kohort.common.errors import WireError
from kohort.common.topic_partition import TopicPartition
from kohort.protocol.codec import Message
from kohort.protocol.primitives import bytes_, int32, string
from kohort.protocol.schema import Buffer, Data, ResponsePart, field

HIGHEST_VERSION = 3


class TopicPartitions(ResponsePart):
    """Partitions of one topic."""

    topic: str = field(string, "0+")
    """The topic's name."""
    partitions: tuple[int, ...] = field([int32], "0+")
    """The partitions' numbers."""


class Subscription(Data, versions="0-3"):
    """The data that a member sends to the leader."""

    topics: tuple[str, ...] = field([string], "0+")
    """The subscribed topics."""
    user_data: bytes | None = field(bytes_, "0+", null="0+", default=None)
    """The assignor's own data."""
    owned_partitions: tuple[TopicPartitions, ...] = field([TopicPartitions], "1+", ignorable=True)
    """The partitions that the member owns while it rejoins (KIP-429)."""
    generation_id: int = field(int32, "2+", default=-1, ignorable=True)
    """The generation in which `owned_partitions` were assigned; -1 if there is none (KIP-792)."""
    rack_id: str | None = field(string, "3+", null="3+", default=None, ignorable=True)
    """The member's rack, or null (KIP-881)."""


class Assignment(Data, versions="0-3"):
    """The data that the leader sends to a member. Every version has the same fields."""

    assigned_partitions: tuple[TopicPartitions, ...] = field([TopicPartitions], "0+")
    """The partitions that the member owns from now on."""
    user_data: bytes | None = field(bytes_, "0+", null="0+", default=None)
    """The assignor's own data."""


class StickyUserData(Data, versions="0-1"):
    """The `user_data` in the sticky assignor's subscriptions (without a version)."""

    previous_assignment: tuple[TopicPartitions, ...] = field([TopicPartitions], "0+")
    """The partitions of the last generation that the member was in."""
    generation: int = field(int32, "1+", default=-1, ignorable=True)
    """The number of that generation; -1 if unknown."""


class CooperativeStickyUserData(Data, versions="0"):
    """The `user_data` of the cooperative-sticky assignor. The owned partitions are in the subscription itself."""

    generation: int = field(int32, "0+", default=-1)
    """The generation in which the owned partitions were assigned; -1 if unknown."""


T = TypeVar("T", Subscription, Assignment)


def build_subscription(value: Subscription, version: int = HIGHEST_VERSION) -> bytes:
    """Return the bytes of JoinGroup's `metadata`. Raises WireError, or UnsupportedVersion."""
    return _build(Message.of(Subscription), value, version)


def parse_subscription(data: Buffer) -> Subscription:
    """Parse a member's subscription of any version. Raises WireError.

    Some clients declare version 1 or higher, but send only the fields of version 0. Their subscriptions are accepted,
    so that one such member does not block the assignment of all others.
    """
    try:
        return _parse(Message.of(Subscription), data)
    except WireError:
        if len(data) < 2:
            raise
        value, end = Message.of(Subscription).parse_from(data, 2, 0)
        if end != len(data):
            raise
        return value


def build_assignment(value: Assignment, version: int = HIGHEST_VERSION) -> bytes:
    """Return the bytes of SyncGroup's `assignment`. Raises WireError, or UnsupportedVersion."""
    return _build(Message.of(Assignment), value, version)


def parse_assignment(data: Buffer) -> Assignment:
    """Parse an assignment of any version. Empty bytes mean an empty assignment. Raises WireError."""
    return _parse(Message.of(Assignment), data) if len(data) else Assignment()


def build_sticky(value: StickyUserData) -> bytes:
    """Return the sticky assignor's user data, in version 1."""
    return Message.of(StickyUserData).build(value, 1)


def parse_sticky(data: Buffer) -> StickyUserData:
    """Parse the sticky assignor's user data of either version. Raises WireError.

    The bytes have no version. Version 1 only has four bytes more. As in Kafka's own assignor, version 1 is tried first.
    """
    message = Message.of(StickyUserData)
    try:
        return message.parse(data, 1)
    except WireError:
        return message.parse(data, 0)


def build_cooperative_sticky(value: CooperativeStickyUserData) -> bytes:
    """Return the cooperative-sticky assignor's user data."""
    return Message.of(CooperativeStickyUserData).build(value, 0)


def parse_cooperative_sticky(data: Buffer) -> CooperativeStickyUserData:
    """Parse the cooperative-sticky assignor's user data. Raises WireError."""
    return Message.of(CooperativeStickyUserData).parse(data, 0)


def _build(message: Message[T], value: T, version: int) -> bytes:
    return version.to_bytes(2, "big", signed=True) + message.build(value, version)


def _parse(message: Message[T], data: Buffer) -> T:
    if len(data) < 2:
        raise WireError("too short for a version", api=message.name, offset=0)
    version = int.from_bytes(bytes(data[:2]), "big", signed=True)
    if version < 0:
        raise WireError(f"version {version}", api=message.name, offset=0)
    known = min(version, HIGHEST_VERSION)
    value, end = message.parse_from(data, 2, known)
    if version <= HIGHEST_VERSION and end != len(data):
        raise WireError(f"{len(data) - end} unread bytes at the end", api=message.name, version=version, offset=end)
    return value


def read_assignment(data: bytes) -> frozenset[TopicPartition]:
    """Parse the partitions of a SyncGroup response. Raises WireError, also for empty bytes: an empty assignment still
    has a version, so empty bytes show a defect of the leader or the coordinator.
    """
    if len(data) < 2:
        raise WireError(f"an assignment of {len(data)} bytes", api="SyncGroup", path="assignment")
    return frozenset(
        TopicPartition(each.topic, number)
        for each in parse_assignment(data).assigned_partitions
        for number in each.partitions
    )
