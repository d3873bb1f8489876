"""Streams that run to an end."""

from collections.abc import Callable
from typing import Any


def ended(start: Callable[[], Any], timeout_s: float = 150) -> Any:
    """The query that `start` starts, once it has ended well.

    On a busy machine Spark gives up on a Python process that takes 10 s to start; who runs a stream starts it again.
    """
    from pyspark.errors import StreamingQueryException

    while True:
        query = start()
        try:
            assert query.awaitTermination(timeout_s), "the query does not end"
        except StreamingQueryException as error:
            if "failed to connect back" not in str(error):
                raise
        else:
            return query
        finally:
            query.stop()
