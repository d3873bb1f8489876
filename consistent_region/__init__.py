"""A consistent region: state over a consumer group in which every record counts exactly once.

`region_member.py` has the machine, `coordinator_rules.py` the rules of a checkpoint, `region_driver.py` the driver.
"""

from typing import TYPE_CHECKING

from kohort.consistent_region.dict_state import DictState
from kohort.consistent_region.effects import DueEffects, SinkPlace, TaskTerm, TransactionalSink
from kohort.consistent_region.file_state import FileState
from kohort.consistent_region.region import ConsistentRegion
from kohort.consistent_region.sql_sink import SqlSink
from kohort.consistent_region.start_positions import StartPosition
from kohort.consistent_region.state import SqliteState, StateHandle
from kohort.consistent_region.store import MemoryStore
from kohort.consistent_region.tasks import TaskId
from kohort.consistent_region.triggers import Manual, OperatorDriven, Periodic
from kohort.consistent_region.witness import Witness

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
