"""Kafka for PySpark: the driver plans, executors read. Only this package imports PySpark.

`plan` and `OffsetRange` work without PySpark.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from kohort.common.optional_libraries import needed
from kohort.spark.errors import DataLossError, DecoderFailed, OptionError, PlanError
from kohort.spark.plan import PlanGap, ReadPlan, plan
from kohort.spark.ranges import OffsetRange, split

if TYPE_CHECKING:
    from kohort.spark.progress import LagListener, PartitionProgress, lag_of
    from kohort.spark.rdd import DecodedRecord, KafkaRDD, kafka_rdd
    from kohort.spark.source import register
    from kohort.spark.transactional_batch import TransactionalWriter

__all__ = [
    "DataLossError",
    "DecodedRecord",
    "DecoderFailed",
    "KafkaRDD",
    "LagListener",
    "OffsetRange",
    "OptionError",
    "PartitionProgress",
    "ReadPlan",
    "PlanError",
    "PlanGap",
    "TransactionalWriter",
    "kafka_rdd",
    "lag_of",
    "plan",
    "register",
    "split",
]
_HOME = {
    "DecodedRecord": "rdd",
    "KafkaRDD": "rdd",
    "LagListener": "progress",
    "PartitionProgress": "progress",
    "lag_of": "progress",
    "kafka_rdd": "rdd",
    "register": "source",
    "TransactionalWriter": "transactional_batch",
}


if not TYPE_CHECKING:  # a name that is missing is an error of a type checker

    def __getattr__(name: str) -> object:
        if name in _HOME:
            with needed(f"kohort.spark.{name}", "'kohort[spark]'"):
                return getattr(import_module(f"kohort.spark.{_HOME[name]}"), name)
        raise AttributeError(f"module 'kohort.spark' has no attribute {name!r}")
