"""The active session of a thread, by which Spark finds sources in Python.

A session is active in the thread that made it. Other threads begin without an active session.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def active(spark: "SparkSession") -> Iterator[None]:
    """Make a session the active one of its thread. The session that was active before is so again at the end."""
    ours = getattr(spark, "_jsparkSession", None)
    if ours is None:  # a client of Spark Connect
        yield
        return
    sessions = spark._jvm.org.apache.spark.sql.classic.SparkSession
    before = sessions.getActiveSession()
    sessions.setActiveSession(ours)
    try:
        yield
    finally:
        if before.isDefined():
            sessions.setActiveSession(before.get())
