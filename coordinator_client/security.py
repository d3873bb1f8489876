"""How a connection is protected: plain, or TLS by the standard library's own context."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeGuard

from kohort.coordinator_client.config import Config
from kohort.coordinator_client.errors import ConfigError

if TYPE_CHECKING:
    import ssl


def tls_context(config: Config) -> ssl.SSLContext | None:
    """The context for `config`, or None for plaintext. Certificates are always checked.

    Raises ConfigError for files that cannot be read.
    """
    if config.security_protocol not in ("SSL", "SASL_SSL"):
        return None
    import ssl  # OpenSSL takes longer to load than a broker to answer, and plaintext needs none of it

    if config.ssl_context is not None:
        if not isinstance(config.ssl_context, ssl.SSLContext):
            raise ConfigError("ssl_context must be an ssl.SSLContext", setting="ssl_context")
        return config.ssl_context
    try:
        context = ssl.create_default_context(cafile=config.ssl_ca_path)
        context.check_hostname = config.ssl_check_hostname
        if config.ssl_cert_path is not None:
            context.load_cert_chain(config.ssl_cert_path, config.ssl_key_path, config.ssl_key_password)
    except OSError as error:  # ssl.SSLError is one
        raise ConfigError(f"the TLS files cannot be used: {error}", setting="ssl_ca_path") from error
    return context


def is_secure(sock: object) -> TypeGuard[ssl.SSLSocket]:
    """Whether a socket speaks TLS."""
    return hasattr(sock, "do_handshake")


def must_wait(problem: OSError) -> bool:
    """Whether a TLS socket only has nothing to do now: its protocol wants to read or write something first."""
    import ssl

    return isinstance(problem, ssl.SSLWantReadError | ssl.SSLWantWriteError)
