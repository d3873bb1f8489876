"""Spark's schemas in Arrow."""

from typing import TYPE_CHECKING

from pyspark.sql.types import StructType

if TYPE_CHECKING:
    import pyarrow as pa


def arrow_schema(schema: StructType) -> "pa.Schema":
    """Spark's schema in Arrow. Spark refuses a batch with another schema."""
    from pyspark.sql.pandas.types import to_arrow_schema

    try:
        return to_arrow_schema(schema, timezone="UTC")
    except TypeError:  # Spark 4.0 and 4.1 have no argument timezone
        return to_arrow_schema(schema)
