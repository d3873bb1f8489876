"""Connections to PostgreSQL that do not wait for a server for ever."""

import time
from collections.abc import Generator
from typing import Any, TypeVar, cast

import psycopg

_T = TypeVar("_T")


class PostgresSession(psycopg.Connection[tuple[Any, ...]]):
    """A connection that is closed if the server does not respond within `limit_s`."""

    limit_s = 10.0

    def wait(self, gen: Any, *args: Any, **kwargs: Any) -> Any:
        return super().wait(_limited(gen, time.monotonic() + self.limit_s, self), *args, **kwargs)


def _limited(gen: Generator[Any, Any, _T], deadline: float, session: PostgresSession) -> Generator[Any, Any, _T]:
    """Run `gen` with a deadline, which is checked every tenth of a second."""
    try:
        wanted = next(gen)
        while True:
            ready = yield wanted
            if not ready and time.monotonic() >= deadline:
                session.pgconn.finish()
                raise psycopg.OperationalError(f"no response within {session.limit_s:g} s")
            wanted = gen.send(ready)
    except StopIteration as done:
        return cast(_T, done.value)
