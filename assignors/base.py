"""What an assignor is: a name, a way of rebalancing, and a pure function from a group to a plan."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

from kohort.assignors.group import NO_GENERATION
from kohort.common import TopicPartition

if TYPE_CHECKING:
    from kohort.assignors.group import GroupView
    from kohort.assignors.plan import Plan


class Rebalance(Enum):
    """How partitions change hands (KIP-429).

    EAGER: every member gives up all its partitions before it joins. COOPERATIVE: a member keeps reading what it owns
    and gives up, in a second round, only what the plan took from it.
    """

    EAGER = "eager"
    COOPERATIVE = "cooperative"


class MemberSubscription(NamedTuple):
    """What a member tells the group's leader when it joins; the fields of the embedded consumer protocol, version 3.

    `rack_id` is None from an assignor: the client that knows its rack fills it in.
    """

    topics: tuple[str, ...]
    user_data: bytes | None = None
    owned_partitions: tuple[TopicPartition, ...] = ()
    generation_id: int = NO_GENERATION
    rack_id: str | None = None


@runtime_checkable
class Assignor(Protocol):
    """Who reads what. Passed to a consumer as an instance, or registered under entry point group "kohort.assignors".

    `assign` must be pure and deterministic: the same group gives the same plan in every process, whichever member
    leads. It may return a `Plan` or any mapping of member id to `TopicPartition`s; members left out get nothing. It
    runs on a thread that has nothing else to do, one call at a time, so it may take its time, though no longer than a
    rebalance.

    An assignor with an attribute `needs_lag` that is true finds in `GroupView.lag` how many records wait: the leader's
    client asks before it plans. What could not be found out in a few seconds counts 0.
    """

    @property
    def name(self) -> str:
        """What the members of a group call it on the wire."""

    @property
    def rebalance(self) -> Rebalance:
        """Whether members give up everything before they join."""

    def subscription(
        self, topics: Sequence[str], owned: Sequence[TopicPartition], generation: int
    ) -> MemberSubscription:
        """What this member tells the leader.

        `topics`: what it subscribes to, sorted. `owned`: the partitions its last completed generation gave it, also
        where an eager member has already let go of them; empty after they were lost. `generation`: that generation,
        or -1.
        """

    def assign(self, group: GroupView) -> Plan:
        """Run by the leader alone: every partition of every subscribed topic to one member subscribed to it."""
