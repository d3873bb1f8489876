"""`rack`: the plan of another assignor with the fewest possible reads from other racks.

See KIP-881 and KIP-392. The wrapper keeps each member's number of partitions and exchanges partitions between members.
No plan with these numbers has fewer reads from other racks, and none of those differs from the inner plan in fewer
partitions. Guarantees of the inner assignor about numbers therefore remain valid. Guarantees about particular
partitions (that they stay together, or with their owner) may not. An assignor that plans in bundles is rejected.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from kohort.assignors.base import Assignor, MemberSubscription, Rebalance
from kohort.assignors.core import core
from kohort.assignors.errors import AssignorError
from kohort.assignors.group import GroupView
from kohort.assignors.integer_group import Classes, withheld
from kohort.assignors.plan import NO_MEMBER, Plan
from kohort.common import TopicPartition


class RackAssignor:
    """Wraps an assignor: `RackAssignor(WeightedAssignor(4))`, or by name as in "rack-weighted"."""

    def __init__(self, inner: Assignor) -> None:
        if getattr(inner, "bundled", False):
            raise AssignorError(
                "exchanging single partitions would break what the inner assignor keeps together", assignor=inner.name
            )
        if inner.rebalance is Rebalance.COOPERATIVE and not hasattr(inner, "target"):
            raise AssignorError(
                "a cooperative assignor without a target",
                assignor=inner.name,
                hint="give it target(group) -> Plan: its plan before it withholds what is on the move",
            )
        self.inner = inner

    @property
    def name(self) -> str:
        return f"rack-{self.inner.name}"

    @property
    def rebalance(self) -> Rebalance:
        return self.inner.rebalance

    @property
    def needs_lag(self) -> bool:
        return getattr(self.inner, "needs_lag", False)

    def subscription(
        self, topics: Sequence[str], owned: Sequence[TopicPartition], generation: int
    ) -> MemberSubscription:
        return self.inner.subscription(topics, owned, generation)

    def target(self, group: GroupView) -> Plan:
        """The plan of the group once every moving partition has been revoked."""
        planned = getattr(self.inner, "target", self.inner.assign)(group)
        plan = planned if isinstance(planned, Plan) else Plan.of(group, planned)
        return Plan(group, _nearer(plan))

    def assign(self, group: GroupView) -> Plan:
        target = self.target(group)
        if self.rebalance is Rebalance.COOPERATIVE:
            return Plan(group, withheld(group, target.owners))
        return target


def _nearer(plan: Plan) -> array[int]:
    group = plan.group
    if group.racks is None or not any(member.rack for member in group.members):
        return plan.owners
    rows = Classes.in_group(group)
    given = [index for index, owner in enumerate(plan.owners) if owner != NO_MEMBER]
    kinds = array("i", [rows.of[index] for index in given])
    owners = array("i", [plan.owners[index] for index in given])
    supplies = core.count_classes(kinds, len(rows.supplies))
    owned = core.count_owned(owners, kinds, rows.stops, rows.members)
    flow = core.place(supplies, rows.stops, rows.members, owned, rows.far, array("i", plan.counts))
    nearer = array("i", [NO_MEMBER]) * group.size
    for index, owner in zip(given, core.deal(owners, kinds, rows.stops, rows.members, owned, flow), strict=True):
        nearer[index] = owner
    return nearer
