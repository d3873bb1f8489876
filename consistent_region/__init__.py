"""A consistent region: state over a consumer group in which every record counts exactly once.

Read `region_member.py` for the machine, `rules.py` for what a checkpoint is, `conductor.py` for what drives them.
"""

from kohort.consistent_region.region import ConsistentRegion as ConsistentRegion
from kohort.consistent_region.start import StartPosition as StartPosition
from kohort.consistent_region.state_handles import DictState as DictState
from kohort.consistent_region.state_handles import SqliteState as SqliteState
from kohort.consistent_region.state_handles import StateHandle as StateHandle
from kohort.consistent_region.triggers import Manual as Manual
from kohort.consistent_region.triggers import OperatorDriven as OperatorDriven
from kohort.consistent_region.triggers import Periodic as Periodic

__all__ = [
    "ConsistentRegion",
    "DictState",
    "Manual",
    "OperatorDriven",
    "Periodic",
    "SqliteState",
    "StartPosition",
    "StateHandle",
]
