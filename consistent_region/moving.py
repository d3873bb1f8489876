"""How a region member lets go of partitions and takes others without a reset (COOPERATIVE groups): two handlers of its.

What stays is read on throughout. What goes is dropped from the queue, and read on elsewhere from where this member came
to; what it made of the records before stays in its state. See `hand_over.py` for why that counts each record once.
"""

from collections import deque
from typing import TYPE_CHECKING

from kohort.common.topic_partition import TopicPartition
from kohort.consistent_region import events as ev
from kohort.consistent_region.states import CLEAN, READING

if TYPE_CHECKING:
    from kohort.consistent_region.region_member import RegionMember

NO_GENERATION = -1


def handed_over(member: "RegionMember", event: ev.HandedOver) -> None:
    """Partitions went; where the coordinator knows how far they were read, nothing else changes."""
    member._generation = NO_GENERATION
    member.metrics["partitions_handed_over_total"] += len(event.partitions) if event.view is not None else 0
    member.offsets.register(member.offsets.partitions - event.partitions)
    for name in ("_queue", "_drained"):
        kept = (one for one in getattr(member, name) if TopicPartition(one.topic, one.partition) in member.offsets)
        setattr(member, name, deque(kept))
    if event.view is not None:
        member._saw(event.view)
    elif member.state not in CLEAN:
        member._void("partitions moved, and could not be handed over", forced=True, rebalance=False)
    member._check_room()


def taken(member: "RegionMember", event: ev.Taken) -> None:
    """Partitions came; `starts` says where those are read on that were not here before."""
    member._count_assignment(event.partitions)
    member._generation = event.generation
    member.offsets.register(event.partitions)
    if member.state in READING:
        member.offsets.place({one: to for one, to in event.starts.items() if one in member.offsets.unplaced})
    if event.view is not None:
        member._saw(event.view)
    if member.state in READING and (event.view is None or member.offsets.unplaced):
        missing = "nobody handed them over" if event.view is not None else "the coordinator could not be told"
        member._void(f"partitions came, and {missing}", forced=True, rebalance=False)
    member._check_room()
