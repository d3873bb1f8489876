"""Spark's schemas in Arrow."""

from typing import TYPE_CHECKING

from pyspark.sql.types import StructType

if TYPE_CHECKING:
    import pyarrow as pa


def arrow_schema(schema: StructType) -> "pa.Schema":
    """The schema with which Spark compares a batch's. A batch of another schema is refused."""
    from pyspark.sql.pandas.types import to_arrow_schema

    try:
        return to_arrow_schema(schema, timezone="UTC")
    except TypeError:  # Spark 4.0 and 4.1 know no time zone here
        return to_arrow_schema(schema)
