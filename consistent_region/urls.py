"""URLs of databases, which may hold a password, mistyped ones too: no error shows more of them than is safe."""

import re
from typing import Any, Final

from kohort.consistent_region.errors import ConfigurationError

_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


def veiled(url: str) -> str:
    """All of a URL that an error may show."""
    scheme = _SCHEME.match(url)
    return f"{scheme[0] if scheme else ''}..."


def conninfo(url: str) -> dict[str, Any]:
    """What libpq reads in a URL.

    Raises ConfigurationError for one that it cannot read, and for one in which it takes a part of a password for
    something else, as it does where an @ or / of it is not quoted: of host and database, errors tell.
    """
    import psycopg
    from psycopg.conninfo import conninfo_to_dict

    try:
        given = conninfo_to_dict(url)
    except (psycopg.Error, UnicodeError):
        given = None  # libpq's own words quote what it could not read, which may be the password
    if given is None or _cut_wrongly(given):
        raise ConfigurationError(
            "not a PostgreSQL URL",
            hint='"postgresql://USER@HOST/DATABASE"; in a password %, @ and / are %25, %40 and %2F',
        )
    return given


def _cut_wrongly(given: dict[str, Any]) -> bool:
    host, ports, database = (str(given.get(name) or "") for name in ("host", "port", "dbname"))
    return (
        "@" in host[1:]  # at its beginning it names a socket
        or not all(port.strip().isdecimal() for port in ports.split(",") if port.strip())
        or ("@" in database and "user" not in given)
    )
