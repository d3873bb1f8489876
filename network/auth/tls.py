"""Protection of a connection: plain, or TLS by the standard library's own context."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeGuard

from kohort.common.private_files import is_open_to_others
from kohort.network.auth.security_config import LOOPBACK, SecurityConfig
from kohort.network.client_config import ClientConfig
from kohort.network.errors import ConfigError
from kohort.network.notices import Notice
from kohort.network.settings_table import split_address

if TYPE_CHECKING:
    import ssl

_AUTHORITY = "ssl_ca_path must hold the authority that signed it"
# OpenSSL's numbers of what is wrong with a broker's certificate -> the cure.
CURES: Mapping[int, str] = {
    9: "is this machine's clock right? It is not valid yet",
    10: "the broker needs a new one, or this machine's clock is wrong",
    18: "if it is yours, make it known by ssl_ca_path",
    19: _AUTHORITY,
    20: _AUTHORITY,
    21: _AUTHORITY,
    62: "call the broker by a name that is in it (bootstrap, advertised.listeners), or ssl_check_hostname=False",
    64: "call the broker by an address that is in it (bootstrap, advertised.listeners), or ssl_check_hostname=False",
}

_Stamp = tuple[int, int, int] | None


class Certificates:
    """The TLS context of new connections, made of the current files or of those that last worked.

    Client certificates may be valid for days only, so replaced files need no restart (KIP-651). An incomplete file, or
    one with a missing key, has no effect, and is read again later.
    """

    def __init__(self, config: ClientConfig) -> None:
        self._config = config
        self._stamps = self._look()
        self._has_failed = False  # True if the files could not be used the last time
        self.context = tls_context(config)
        self._exposures = exposures(config)

    def reload(self) -> Notice | None:
        """Take up files that have changed. Returns the next notice: each exposure once, then changes of the files."""
        if self._exposures:
            return self._exposures.pop(0)
        stamps = self._look()
        has_changed = stamps != self._stamps
        if not has_changed and not self._has_failed:
            return None
        self._stamps = stamps
        try:
            self.context = tls_context(self._config)
        except ConfigError as error:
            self._has_failed = True  # a later try may succeed without a change: a permission may be missing
            if not has_changed:
                return None
            return Notice("tls_files_unusable", f"{error}; new connections use the previous files")
        self._has_failed = False
        return Notice("tls_files_renewed", "the TLS files have changed: new connections use them")

    def _look(self) -> tuple[_Stamp, ...]:
        config = self._config
        if not _is_tls(config) or config.ssl_context is not None:
            return ()
        return tuple(_stamp(path) for path in (config.ssl_ca_path, config.ssl_cert_path, config.ssl_key_path) if path)


def exposures(config: ClientConfig) -> list[Notice]:
    """Notices of secrets that others may read by these settings, and of protection that the protocol does not use."""
    found = []
    if unused := _unused(config):
        login = any(name.startswith("sasl_") for name in unused) or config.security_protocol != "PLAINTEXT"
        found.append(
            Notice(
                "security_settings_unused",
                f"security_protocol={config.security_protocol!r} does not use {', '.join(unused)}: "
                f"set security_protocol={'SASL_SSL' if login else 'SSL'!r}, or leave them out",
            )
        )
    remote = any(split_address(address)[0] not in LOOPBACK for address in config.bootstrap)
    if config.security_protocol == "SASL_PLAINTEXT" and remote and config.sasl_mechanism in _IN_THE_CLEAR:
        found.append(
            Notice(
                "password_in_the_clear",
                f"{config.sasl_mechanism} without TLS sends the {_IN_THE_CLEAR[config.sasl_mechanism]} in the clear: "
                f"set security_protocol='SASL_SSL'",
            )
        )
    key = config.ssl_key_path
    if _is_tls(config) and key is not None and is_open_to_others(key):
        found.append(Notice("key_file_open_to_others", f"other users may read the key in {key}: chmod 600 it"))
    return found


def _unused(config: ClientConfig) -> list[str]:
    """The settings of TLS and of logins that are set, and without effect under the protocol."""
    used = {"ssl_": _is_tls(config), "sasl_": config.security_protocol.startswith("SASL")}
    return [
        row.name
        for row in SecurityConfig.table.values()
        if not used.get(row.name.partition("_")[0] + "_", True) and getattr(config, row.name) != row.default
    ]


_IN_THE_CLEAR = {"PLAIN": "password", "OAUTHBEARER": "token"}


def _stamp(path: str) -> _Stamp:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def _is_tls(config: SecurityConfig) -> bool:
    return config.security_protocol in ("SSL", "SASL_SSL")


def tls_context(config: SecurityConfig) -> ssl.SSLContext | None:
    """The context for `config`, or None for plaintext. Certificates are always checked.

    Raises ConfigError for files that cannot be read, or do not belong together.
    """
    if not _is_tls(config):
        return None
    import ssl  # OpenSSL takes longer to load than a broker to respond, and plaintext needs none of it

    if config.ssl_context is not None:
        if not isinstance(config.ssl_context, ssl.SSLContext):
            raise ConfigError("ssl_context must be an ssl.SSLContext", setting="ssl_context")
        return config.ssl_context
    try:
        context = ssl.create_default_context(cafile=config.ssl_ca_path)
    except OSError as error:  # ssl.SSLError is one
        raise _unusable("ssl_ca_path", error, "name a PEM file of authorities", config.ssl_ca_path) from None
    context.check_hostname = config.ssl_check_hostname
    if config.ssl_cert_path is not None:
        try:
            context.load_cert_chain(config.ssl_cert_path, config.ssl_key_path, config.ssl_key_password or _no_password)
        except OSError as error:
            raise _unusable(
                "ssl_cert_path",
                error,
                "PEM files of a certificate and of its key, with ssl_key_password if need be",
                config.ssl_cert_path,
            ) from None
    return context


def _no_password() -> str:
    """Prevents OpenSSL from prompting for a password at the terminal."""
    raise ConfigError("the client's key is encrypted", hint="set ssl_key_password", setting="ssl_key_password")


def _unusable(setting: str, error: OSError, hint: str, path: str | None) -> ConfigError:
    reason = getattr(error, "reason", None) or error.strerror or str(error)
    return ConfigError(f"{setting} cannot be used: {reason}", hint=hint, setting=setting, path=path)


def is_secure(sock: object) -> TypeGuard[ssl.SSLSocket]:
    """True if a socket uses TLS."""
    return hasattr(sock, "do_handshake")


def must_wait(problem: OSError) -> bool:
    """True if a TLS socket only has nothing to do now: its protocol must first read or write."""
    import ssl

    return isinstance(problem, ssl.SSLWantReadError | ssl.SSLWantWriteError)


def alerted(problem: OSError) -> str | None:
    """Return the reason of a TLS alert; None if the error is not a TLS error."""
    import ssl

    return problem.reason or str(problem) if isinstance(problem, ssl.SSLError) else None
