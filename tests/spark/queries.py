"""Streams that run to an end."""

from collections.abc import Callable
from typing import Any

STARTS = 4
BUSY = "failed to connect back"
"""Spark's words for a Python process that took longer than 10 s to start."""


def ended(start: Callable[[], Any], timeout_s: float = 150) -> Any:
    """The query that `start` starts, once it has ended well.

    On a busy machine Spark gives up on a Python process that takes 10 s to start. Users start such a stream again.
    """
    from pyspark.errors import StreamingQueryException

    for attempt in range(1, STARTS + 1):
        query = start()
        try:
            assert query.awaitTermination(timeout_s), "the query does not end"
        except StreamingQueryException as error:
            if BUSY not in str(error) or attempt == STARTS:
                raise
        else:
            return query
        finally:
            query.stop()
    raise AssertionError("unreachable: the last start returns or raises")
