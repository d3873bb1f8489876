"""The partitions that a member lets go, keeps and takes, as pure functions of sets.

EAGER (KIP-54 and before): a join gives everything up, so after a sync there is nothing to keep and all is new.

COOPERATIVE (KIP-429): a join keeps everything except partitions of topics no longer subscribed. A sync then takes away
the partitions that move. A member that lost one joins once more, because only then is it free for its next owner. One
round lets go, the next one takes. Unmoved partitions are never touched.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from kohort.assignors import Assignor, Rebalance
from kohort.common.topic_partition import TopicPartition
from kohort.coordinator_client.subscription_state import Subscription

Partitions = frozenset[TopicPartition]


class Moves(NamedTuple):
    """The changes that an assignment makes for this member."""

    revoked: Partitions
    kept: Partitions
    added: Partitions


def mode_of(assignors: Sequence[Assignor]) -> Rebalance:
    """The rebalance protocol a member follows, given all the assignors it offers.

    COOPERATIVE only if every one of them is: before a join we do not know which the group will choose, and a range
    assignor would hand a kept partition to somebody else at once. So a list that mixes both is EAGER, which is the
    first of the two rolling restarts that take a running group from eager to cooperative (KIP-429): in it every
    member still gives all up, while the group already votes for the cooperative assignor. The second restart drops
    the eager one from the list.
    """
    cooperative = all(assignor.rebalance is Rebalance.COOPERATIVE for assignor in assignors)
    return Rebalance.COOPERATIVE if cooperative else Rebalance.EAGER


def before_join(mode: Rebalance, owned: Partitions, topics: Iterable[str]) -> Partitions:
    """The partitions to let go before a join that subscribes to `topics`."""
    if mode is Rebalance.EAGER:
        return owned
    subscribed = frozenset(topics)
    return frozenset(partition for partition in owned if partition.topic not in subscribed)


def after_sync(owned: Partitions, assigned: Partitions) -> Moves:
    """The partitions that an assignment takes, leaves and brings. Under EAGER `owned` is empty by then."""
    return Moves(revoked=owned - assigned, kept=owned & assigned, added=assigned - owned)


def strangers(assigned: Partitions, subscription: Subscription, topics: frozenset[str]) -> Partitions:
    """Assigned partitions that this member did not ask for: of a topic neither in `topics` nor matched by its pattern.

    A topic that a pattern matches is no stranger, even if our metadata lacks it: the leader's may be newer than ours.
    """
    return frozenset(
        partition
        for partition in assigned
        if partition.topic not in topics and not subscription.matches(partition.topic)
    )
