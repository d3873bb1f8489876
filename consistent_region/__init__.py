"""A consistent region: state over a consumer group in which every record counts exactly once.

`region_member.py` has the machine, `coordinator_rules.py` the rules of a checkpoint, `region_driver.py` the driver.
"""

from typing import TYPE_CHECKING

from kohort.consistent_region.dict_state import DictState as DictState
from kohort.consistent_region.effects import DueEffects as DueEffects
from kohort.consistent_region.effects import SinkPlace as SinkPlace
from kohort.consistent_region.effects import TaskTerm as TaskTerm
from kohort.consistent_region.effects import TransactionalSink as TransactionalSink
from kohort.consistent_region.file_state import FileState as FileState
from kohort.consistent_region.region import ConsistentRegion as ConsistentRegion
from kohort.consistent_region.sql_sink import SqlSink as SqlSink
from kohort.consistent_region.start_positions import StartPosition as StartPosition
from kohort.consistent_region.state import SqliteState as SqliteState
from kohort.consistent_region.state import StateHandle as StateHandle
from kohort.consistent_region.store import MemoryStore as MemoryStore
from kohort.consistent_region.tasks import TaskId as TaskId
from kohort.consistent_region.triggers import Manual as Manual
from kohort.consistent_region.triggers import OperatorDriven as OperatorDriven
from kohort.consistent_region.triggers import Periodic as Periodic
from kohort.consistent_region.witness import Witness as Witness

__all__ = [
    "ConsistentRegion",
    "DictState",
    "DueEffects",
    "FileState",
    "KafkaSink",
    "Manual",
    "MemoryStore",
    "OperatorDriven",
    "Periodic",
    "SinkPlace",
    "SqlSink",
    "SqliteState",
    "StartPosition",
    "StateHandle",
    "TaskId",
    "TaskTerm",
    "TransactionalSink",
    "Witness",
]

if TYPE_CHECKING:
    from kohort.consistent_region.kafka_sink import KafkaSink as KafkaSink


if not TYPE_CHECKING:  # a name that is missing is an error of a type checker

    def __getattr__(name: str) -> object:
        """Import the Kafka sink, with its producer, at its first use."""
        if name == "KafkaSink":
            from kohort.consistent_region.kafka_sink import KafkaSink

            return KafkaSink
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
