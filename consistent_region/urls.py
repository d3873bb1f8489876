"""URLs of databases, which may hold a password, mistyped ones too: no error shows more of them than is safe."""

import os
import re
from typing import Any, Final

from kohort.consistent_region.errors import ConfigurationError

_LOCAL: Final = re.compile(r"|[/@].*|localhost|127(\.\d{1,3}){3}|::1", re.IGNORECASE)
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


def veiled(url: str) -> str:
    """All of a URL that an error may show."""
    scheme = _SCHEME.match(url)
    return f"{scheme[0] if scheme else ''}..."


def conninfo(url: str) -> dict[str, Any]:
    """Return the settings that libpq reads in a URL.

    `sslmode=require` is added for another host, unless the URL, PGSSLMODE or a service file sets it. libpq's own
    default sends a password in the clear to a server without TLS.

    Raises ConfigurationError for an invalid URL. Also raises it if libpq takes part of a password for another field, as
    with an unquoted @ or /, because errors show host and database.
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
            hint='use "postgresql://USER@HOST/DATABASE"; in a password %, @ and / are %25, %40 and %2F',
        )
    is_set = given.keys() & {"sslmode", "service"} or os.environ.keys() & {"PGSSLMODE", "PGSERVICE"}
    if not is_set and not _is_local(given):
        given["sslmode"] = "require"
    return given


def _is_local(given: dict[str, Any]) -> bool:
    """True if every host is a socket of this machine or its loopback."""
    environment = os.environ.get("PGHOSTADDR") or os.environ.get("PGHOST") or ""
    hosts = str(given.get("hostaddr") or given.get("host") or environment)
    return all(_LOCAL.fullmatch(host.strip()) for host in hosts.split(","))


def _cut_wrongly(given: dict[str, Any]) -> bool:
    host, ports, database = (str(given.get(name) or "") for name in ("host", "port", "dbname"))
    return (
        "@" in host[1:]  # at its beginning it names a socket
        or not all(port.strip().isdecimal() for port in ports.split(",") if port.strip())
        or ("@" in database and "user" not in given)
    )
