"""The `Assignor` protocol, and the types of its arguments and results."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from kohort.assignors.group import NO_GENERATION
from kohort.common import TopicPartition
from kohort.common.named_tuple import NamedTuple

if TYPE_CHECKING:
    from kohort.assignors.group import GroupView
    from kohort.assignors.plan import Plan


class Rebalance(Enum):
    """The rebalance protocol (KIP-429).

    EAGER: every member revokes all its partitions before it joins. COOPERATIVE: a member continues to read what it
    owns. It revokes, in a second round, only what the plan took from it.
    """

    EAGER = "eager"
    COOPERATIVE = "cooperative"


class MemberSubscription(NamedTuple):
    """A member's subscription in JoinGroup, with the fields of the consumer protocol, version 3.

    `rack_id` is None from an assignor, and `generation_id` may be -1; the client sets them.
    """

    topics: tuple[str, ...]
    user_data: bytes | None = None
    owned_partitions: tuple[TopicPartition, ...] = ()
    generation_id: int = NO_GENERATION
    rack_id: str | None = None


@runtime_checkable
class Assignor(Protocol):
    """A strategy that assigns partitions to the members of a group.

    Passed to a consumer as an instance, or registered under entry point group "kohort.assignors".

    `assign` must be pure and deterministic: the same group gives the same plan in every process, for any leader. It may
    return a `Plan` or any mapping of member id to `TopicPartition`s. Members left out get no partitions. It runs on its
    own thread, one call at a time. It may take long, but not longer than a rebalance.

    If the attribute `needs_lag` is true, `GroupView.lag` has the lag of each partition. The leader's client requests it
    before it calls `assign`. A lag that is still unknown after a few seconds counts as 0.
    """

    @property
    def name(self) -> str:
        """The assignor's name in the group protocol."""

    @property
    def rebalance(self) -> Rebalance:
        """EAGER if members revoke all partitions before they join, else COOPERATIVE."""

    def subscription(
        self, topics: Sequence[str], owned: Sequence[TopicPartition], generation: int
    ) -> MemberSubscription:
        """This member's subscription for the leader.

        `topics`: the subscribed topics, sorted. `owned`: the partitions of its last completed generation, also if an
        eager member has revoked them already; empty after they were lost. `generation`: that generation, or -1. An
        exception is raised as AssignorFailed in this member's `poll`.
        """

    def assign(self, group: GroupView) -> Plan:
        """Assign each partition of the subscribed topics to one subscriber.

        Called by the group's leader only. An exception or an invalid plan is raised as AssignorFailed in its `poll`.
        """
