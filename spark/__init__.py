"""Kafka for PySpark: plan on the driver, read on executors. The only place that knows PySpark.

`plan` and `OffsetRange` need no PySpark and may be used without it.
"""

from typing import TYPE_CHECKING

from kohort.spark.errors import DataLossError, DecoderFailed, PlanError
from kohort.spark.plan import plan
from kohort.spark.ranges import OffsetRange, split

if TYPE_CHECKING:
    from kohort.spark.rdd import DecodedRecord, KafkaRDD, kafka_rdd

__all__ = [
    "DataLossError",
    "DecodedRecord",
    "DecoderFailed",
    "KafkaRDD",
    "OffsetRange",
    "PlanError",
    "kafka_rdd",
    "plan",
    "split",
]
_NEEDS_PYSPARK = frozenset({"DecodedRecord", "KafkaRDD", "kafka_rdd"})


def __getattr__(name: str) -> object:
    if name in _NEEDS_PYSPARK:
        from kohort.spark import rdd

        return getattr(rdd, name)
    raise AttributeError(f"module 'kohort.spark' has no attribute {name!r}")
