"""The store that a URL or path names."""

from kohort.consistent_region.errors import ConfigurationError
from kohort.consistent_region.store import MemoryStore, SqliteStore, Store
from kohort.consistent_region.urls import veiled


def open_store(url: str, *, create: bool = True) -> Store:
    """Open the store of a URL: `sqlite:///PATH`, `postgresql://...`, or `memory:`.

    An SQLite URL has three slashes before a relative path and four before an absolute one. Each `memory:` is a new
    store: for members on threads of one process, pass the same `MemoryStore`. Raises ConfigurationError for another
    URL, and if psycopg is missing. With `create=False` only a store that exists is opened: the first transaction raises
    ConfigurationError if there is none.
    """
    scheme, _, rest = url.partition(":")
    if scheme == "sqlite" and rest.startswith("///") and len(rest) > 3:
        return SqliteStore(rest[3:], create=create)
    if scheme == "postgresql":
        try:
            from kohort.consistent_region.postgres_store import PostgresStore
        except ModuleNotFoundError as missing:
            raise ConfigurationError(
                f"a PostgreSQL coordinator needs {missing.name}", hint='pip install "kohort[postgres]"'
            ) from missing
        return PostgresStore(url, create=create)
    if url == "memory:":
        return MemoryStore()
    raise ConfigurationError(
        f"unknown coordinator {veiled(url)!r}",
        hint='use "sqlite:///PATH", "postgresql://USER@HOST/DATABASE", or "memory:" for one member alone',
    )
