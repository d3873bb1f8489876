"""Tickets from the system's Kerberos, through the library `gssapi` (the extra `kerberos`).

Called on a separate thread, since it may contact a KDC. The result is a ticket or one error. TicketUnavailable means
that a retry may succeed (a KDC that is down, an empty cache). AuthenticationFailed means that it cannot.
"""

import os
import threading
from collections import defaultdict
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from kohort.common import KohortError
from kohort.common.foreign_text import cut, escaped
from kohort.common.named_tuple import NamedTuple
from kohort.network.auth.gssapi import KerberosTicket
from kohort.network.auth.security_config import SecurityConfig
from kohort.network.errors import AuthenticationFailed, ConfigError, TicketUnavailable

INSTALL: Final = (
    'pip install "kohort[kerberos]": built from source, so it needs a compiler '
    "and krb5's headers (Debian: libkrb5-dev)"
)
NEW_TICKET: Final = "run kinit, or set sasl_kerberos_keytab"


class _Meaning(NamedTuple):
    text: str
    hint: str
    passes: bool = False


_NO_CACHE: Final = _Meaning("there is no Kerberos ticket", NEW_TICKET, passes=True)
_EXPIRED: Final = _Meaning("the Kerberos ticket has expired", NEW_TICKET, passes=True)
_NO_KDC: Final = _Meaning("no KDC can be reached", "check krb5.conf (KRB5_CONFIG), and that the KDC runs", passes=True)
_NO_KEY: Final = _Meaning(
    "the keytab has no key of the principal",
    "run `klist -k` to list the keytab's principals; check sasl_kerberos_keytab and sasl_kerberos_principal",
)
_OLD_KEY: Final = _Meaning(
    "the keytab's key is not the principal's", "export the keytab again: the KDC has a newer key"
)
_CLOCK: Final = _Meaning(
    "this machine's clock and the KDC's are too far apart",
    "set the clocks; at most five minutes of difference are allowed",
)
# MIT krb5's numbers less their base (krb5_err.et, in the order of RFC 4120 7.5.9 up to 127).
KRB5_BASE: Final = -1765328384
_MEANINGS: Mapping[int, _Meaning] = MappingProxyType(
    {
        1: _Meaning("the principal has expired", "contact the administrator of the KDC"),
        2: _Meaning("the broker's service principal has expired", "contact the administrator of the KDC"),
        6: _Meaning("the client's principal is unknown to the KDC", "check sasl_kerberos_principal, and the realm"),
        7: _Meaning(
            "the broker's service principal is unknown to the KDC",
            "it is sasl_kerberos_service_name/HOST, with the host that bootstrap or advertised.listeners names (or "
            "what krb5.conf makes of it: dns_canonicalize_hostname, rdns)",
        ),
        18: _Meaning("the principal is locked or has been revoked", "contact the administrator of the KDC"),
        23: _Meaning("the principal's password has expired", "change it with kpasswd"),
        24: _OLD_KEY,
        31: _OLD_KEY,
        32: _EXPIRED,
        33: _Meaning("the ticket is not yet valid", _CLOCK.hint),
        37: _CLOCK,
        141: _NO_CACHE,
        154: _Meaning("krb5.conf names no KDC of the realm", "[realms] in krb5.conf (KRB5_CONFIG)"),
        156: _NO_KDC,
        181: _NO_KEY,
        195: _NO_CACHE,
        220: _NO_KDC,
    }
)

# RFC 2744 3.9.1: error codes of GSS-API itself, used if the mechanism's code is unknown.
ROUTINE_ERRORS: Final = 0xFF << 16
NO_CREDENTIALS: Final = 7 << 16
CREDENTIALS_EXPIRED: Final = 11 << 16

# The cached tickets of a keytab are shared by all clients of this process, one at a time, with the number of times they
# were dropped.
_locks: defaultdict[tuple[str | None, str | None], threading.Lock] = defaultdict(threading.Lock)
_lives: defaultdict[tuple[str | None, str | None], int] = defaultdict(int)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_locks.clear)  # the child has no thread that would release them


def check(config: SecurityConfig) -> None:
    """Raises ConfigError where no ticket can come."""
    from importlib.util import find_spec

    if config.sasl_kerberos_keytab is not None and config.sasl_kerberos_ccache is not None:
        raise ConfigError(
            "sasl_kerberos_keytab and sasl_kerberos_ccache exclude each other",
            hint="omit sasl_kerberos_ccache: a keytab's tickets are kept in memory",
            setting="sasl_kerberos_ccache",
        )
    if find_spec("gssapi") is None:
        raise ConfigError("GSSAPI needs the library gssapi", hint=INSTALL, setting="sasl_mechanism")


def fetch(config: SecurityConfig, host: str, forget: bool) -> KerberosTicket | KohortError:
    """A ticket for `host`, or the error. Never raises, since no code waits for its thread.

    `forget`: tickets that a keytab has brought until now must not be used any more.
    """
    whose = config.sasl_kerberos_keytab, config.sasl_kerberos_principal
    try:
        with _locks[whose]:
            _lives[whose] += forget
            return _begun(config, host, f"MEMORY:kohort-{_lives[whose]}-{'-'.join(filter(None, whose))}")
    except KohortError as error:
        return error
    except ImportError as problem:
        return AuthenticationFailed(f"the library gssapi cannot be used: {problem}", hint=INSTALL)
    except BaseException as problem:
        strange = TicketUnavailable(
            f"the library gssapi raised {type(problem).__name__}", hint="what it raised is this error's cause"
        )
        strange.__cause__ = problem
        return strange


def _begun(config: SecurityConfig, host: str, cache: str) -> KerberosTicket:
    import gssapi

    service = f"{config.sasl_kerberos_service_name}@{host}"
    try:
        target = gssapi.Name(service, gssapi.NameType.hostbased_service)
        wanted = gssapi.RequirementFlag
        context = _Context(
            gssapi.SecurityContext(
                name=target,
                creds=_credentials(config, cache),
                usage="initiate",
                mech=gssapi.MechType.kerberos,
                flags=[wanted.mutual_authentication, wanted.integrity, wanted.out_of_sequence_detection],
            ),
            service,
        )
        return KerberosTicket(context, context.first())
    except gssapi.exceptions.GSSError as problem:
        raise explained(problem, config, service) from None


def _credentials(config: SecurityConfig, cache: str) -> Any:
    """Return credentials of the keytab, kept in memory, or else those of the user, as krb5 finds them."""
    import gssapi

    store = {}
    if config.sasl_kerberos_keytab is not None:
        store = {"client_keytab": config.sasl_kerberos_keytab, "ccache": cache}
    elif config.sasl_kerberos_ccache is not None:
        store = {"ccache": config.sasl_kerberos_ccache}
    principal = config.sasl_kerberos_principal
    name = None if principal is None else gssapi.Name(principal, gssapi.NameType.kerberos_principal)
    return gssapi.Credentials(name=name, usage="initiate", mechs=[gssapi.MechType.kerberos], store=store or None)


class _Context:
    """The library's context with bytes in and bytes out. It raises kohort's errors."""

    def __init__(self, context: Any, service: str) -> None:
        self._context = context
        self._service = service

    @property
    def complete(self) -> bool:
        return bool(self._context.complete)

    def first(self) -> bytes:
        return bytes(self._context.step() or b"")

    def step(self, challenge: bytes) -> bytes:
        return bytes(self._guarded("step", challenge) or b"")

    def wrap(self, message: bytes) -> bytes:
        return bytes(self._guarded("wrap", message, False).message)

    def unwrap(self, message: bytes) -> bytes:
        return bytes(self._guarded("unwrap", message).message)

    def _guarded(self, name: str, *given: object) -> Any:
        import gssapi

        try:
            return getattr(self._context, name)(*given)
        except gssapi.exceptions.GSSError as problem:
            raise AuthenticationFailed(
                f"the server did not prove that it is {self._service}: {_said(problem)}",
                hint="check the broker's address: another server may respond in its place",
                mechanism="GSSAPI",
            ) from None


def explained(problem: Any, config: SecurityConfig, service: str) -> KohortError:
    """The error to report for an error of the library."""
    place = {
        "service": service,
        "principal": config.sasl_kerberos_principal,
        "keytab": config.sasl_kerberos_keytab,
        "ccache": config.sasl_kerberos_ccache,
    }
    place = {name: value for name, value in place.items() if value is not None}
    number = problem.min_code and _signed(problem.min_code) - KRB5_BASE
    meaning = _MEANINGS.get(number)
    if meaning is None:
        meaning = {NO_CREDENTIALS: _NO_CACHE, CREDENTIALS_EXPIRED: _EXPIRED}.get(problem.maj_code & ROUTINE_ERRORS)
    if meaning is _NO_CACHE and config.sasl_kerberos_keytab is not None:
        # GSS-API reports "no credentials" for every failure of a keytab. Another number of the mechanism is another
        # reason.
        meaning = _NO_KEY if number == 0 or number in _MEANINGS else None
    if meaning is None:
        return AuthenticationFailed(
            f"no Kerberos ticket: {_said(problem)}", hint="run kinit and kvno for details", **place
        )
    kind = TicketUnavailable if meaning.passes else AuthenticationFailed
    return kind(f"{meaning.text} ({_said(problem)})", hint=meaning.hint, **place)


def _signed(code: int) -> int:
    """GSS-API has krb5's negative numbers as unsigned ones."""
    return code - (1 << 32) if code >= 1 << 31 else code


def _said(problem: Any) -> str:
    """The mechanism's own words, which are more to the point than those of the interface above it."""
    reported = problem.get_all_statuses(problem.min_code, False) if problem.min_code else ()
    text = "; ".join(reported) or "; ".join(problem.get_all_statuses(problem.maj_code, True))
    return cut(escaped(text))
