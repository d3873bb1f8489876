"""Assignors: pure functions from a `GroupView` to a `Plan`."""

from kohort.assignors.base import Assignor, MemberSubscription, Rebalance
from kohort.assignors.errors import AssignorError, BadGroup, DuplicateAssignor, PlanError, UnknownAssignor
from kohort.assignors.group import GroupView, Member
from kohort.assignors.plan import Partitions, Plan
from kohort.assignors.registry import get, get_all, names
from kohort.assignors.run_assignor import make_plan, replay

__all__ = [
    "Assignor",
    "AssignorError",
    "BadGroup",
    "DuplicateAssignor",
    "GroupView",
    "Member",
    "MemberSubscription",
    "Partitions",
    "Plan",
    "PlanError",
    "Rebalance",
    "UnknownAssignor",
    "get",
    "get_all",
    "make_plan",
    "names",
    "replay",
]
