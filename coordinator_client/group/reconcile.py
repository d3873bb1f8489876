"""The partitions that a member revokes, keeps and takes, as pure functions of sets.

EAGER (before KIP-429): a join revokes everything, so after a sync nothing is kept and all partitions are new.

COOPERATIVE (KIP-429): a join keeps everything except partitions of topics no longer subscribed. A sync then revokes the
partitions that move. A member that lost one joins again, because only then is it free for its next owner. One round
revokes, the next one assigns. Unmoved partitions are never touched.
"""

from collections.abc import Iterable, Sequence

from kohort.assignors import Assignor, Rebalance
from kohort.common.named_tuple import NamedTuple
from kohort.common.topic_partition import TopicPartition
from kohort.coordinator_client.subscription_state import Subscription

Partitions = frozenset[TopicPartition]


class Moves(NamedTuple):
    """The changes that an assignment makes for this member."""

    revoked: Partitions
    kept: Partitions
    added: Partitions


def mode_of(assignors: Sequence[Assignor]) -> Rebalance:
    """Return the rebalance protocol of a member with these assignors.

    It is COOPERATIVE only if all of them are. Before a join the group's choice is unknown, and a range assignor would
    assign a kept partition to another member at once. A mixed list is therefore EAGER. It is the first of two rolling
    restarts that move a running group from eager to cooperative (KIP-429). In the first, every member still revokes all
    partitions, while the group already votes for the cooperative assignor. The second restart drops the eager assignor
    from the list.
    """
    cooperative = all(assignor.rebalance is Rebalance.COOPERATIVE for assignor in assignors)
    return Rebalance.COOPERATIVE if cooperative else Rebalance.EAGER


def before_join(mode: Rebalance, owned: Partitions, topics: Iterable[str]) -> Partitions:
    """Return the partitions to revoke before a join that subscribes to `topics`."""
    if mode is Rebalance.EAGER:
        return owned
    subscribed = frozenset(topics)
    return frozenset(partition for partition in owned if partition.topic not in subscribed)


def after_sync(owned: Partitions, assigned: Partitions) -> Moves:
    """The partitions that an assignment takes, leaves and brings. Under EAGER `owned` is empty by then."""
    return Moves(revoked=owned - assigned, kept=owned & assigned, added=assigned - owned)


def strangers(assigned: Partitions, subscription: Subscription, topics: frozenset[str]) -> Partitions:
    """Return assigned partitions outside of the subscription: their topic is neither in `topics` nor matched by its
    pattern.

    A topic that a pattern matches is valid even if it is missing from this member's metadata: the leader's may be
    newer.
    """
    return frozenset(
        partition
        for partition in assigned
        if partition.topic not in topics and not subscription.matches(partition.topic)
    )
