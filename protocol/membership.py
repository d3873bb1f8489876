"""The consumers' bytes inside the group protocol: subscription, assignment, and user data of the sticky assignors.

The embedded consumer protocol has its own version, an int16 in front, and a rule of its own for growth: a reader takes
what it knows of a newer version and leaves the rest, since versions only ever add fields at the end (KIP-429). A
version below the reader's highest simply has fewer fields.
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
    """The topics it wants to read."""
    user_data: bytes | None = field(bytes_, "0+", null="0+", default=None)
    """Whatever its assignor wants to tell."""
    owned_partitions: tuple[TopicPartitions, ...] = field([TopicPartitions], "1+", ignorable=True)
    """What it owns while it rejoins (KIP-429)."""
    generation_id: int = field(int32, "2+", default=-1, ignorable=True)
    """The generation in which it came to own that; -1 where it was in none (KIP-792)."""
    rack_id: str | None = field(string, "3+", null="3+", default=None, ignorable=True)
    """Its rack, or null (KIP-881)."""


class Assignment(Data, versions="0-3"):
    """The data that the leader sends to a member. Every version has the same fields."""

    assigned_partitions: tuple[TopicPartitions, ...] = field([TopicPartitions], "0+")
    """What it shall own."""
    user_data: bytes | None = field(bytes_, "0+", null="0+", default=None)
    """Whatever the assignor wants it to know."""


class StickyUserData(Data, versions="0-1"):
    """The `user_data` of the sticky assignor's subscriptions (no version in front)."""

    previous_assignment: tuple[TopicPartitions, ...] = field([TopicPartitions], "0+")
    """What the member owned in the last generation it knows of."""
    generation: int = field(int32, "1+", default=-1, ignorable=True)
    """That generation; -1 where it is unknown."""


class CooperativeStickyUserData(Data, versions="0"):
    """The `user_data` of the cooperative-sticky assignor. The owned partitions are in the subscription itself."""

    generation: int = field(int32, "0+", default=-1)
    """The generation in which they came to own it; -1 where it is unknown."""


T = TypeVar("T", Subscription, Assignment)


def build_subscription(value: Subscription, version: int = HIGHEST_VERSION) -> bytes:
    """The bytes of JoinGroup's `metadata`. Raises WireError, or UnsupportedVersion."""
    return _build(Message.of(Subscription), value, version)


def parse_subscription(data: Buffer) -> Subscription:
    """Parse a member's subscription of any version. Raises WireError.

    Some clients say version 1 or higher and stop after version 0's fields; they are taken for what they sent, since
    one odd member must not keep a leader from assigning to all the others.
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
    """The bytes of SyncGroup's `assignment`. Raises WireError, or UnsupportedVersion."""
    return _build(Message.of(Assignment), value, version)


def parse_assignment(data: Buffer) -> Assignment:
    """Parse an assignment of any version. No bytes at all mean that nothing is assigned. Raises WireError."""
    return _parse(Message.of(Assignment), data) if len(data) else Assignment()


def build_sticky(value: StickyUserData) -> bytes:
    """The sticky assignor's user data, in version 1."""
    return Message.of(StickyUserData).build(value, 1)


def parse_sticky(data: Buffer) -> StickyUserData:
    """The sticky assignor's user data of either version. Raises WireError.

    Nothing in the bytes says which version they are: version 1 only has four bytes more. So the newer is tried first,
    as Kafka's own assignor does.
    """
    message = Message.of(StickyUserData)
    try:
        return message.parse(data, 1)
    except WireError:
        return message.parse(data, 0)


def build_cooperative_sticky(value: CooperativeStickyUserData) -> bytes:
    """The cooperative-sticky assignor's user data."""
    return Message.of(CooperativeStickyUserData).build(value, 0)


def parse_cooperative_sticky(data: Buffer) -> CooperativeStickyUserData:
    """The cooperative-sticky assignor's user data. Raises WireError."""
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
        raise WireError(f"{len(data) - end} bytes too many", api=message.name, version=version, offset=end)
    return value


def read_assignment(data: bytes) -> frozenset[TopicPartition]:
    """The partitions of a SyncGroup response. Raises WireError, also for no bytes at all: a leader that assigns nothing
    says so, and a response without even a version is a bug of the leader or the coordinator."""
    if len(data) < 2:
        raise WireError(f"an assignment of {len(data)} bytes", api="SyncGroup", path="assignment")
    return frozenset(
        TopicPartition(each.topic, number)
        for each in parse_assignment(data).assigned_partitions
        for number in each.partitions
    )
