"""The settings of every client by name and type. Made by `make docs` from `ClientConfig`."""

from collections.abc import Callable, Iterable
from typing import Any, Literal, TypedDict

SecurityProtocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
SaslMechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI"]
MetadataRecoveryStrategy = Literal["rebootstrap", "none"]


class ClientSettings(TypedDict, total=False):
    """Keyword arguments of every client."""

    security_protocol: SecurityProtocol
    """The protocol of connections to brokers: TLS (SSL) or not, SASL or not."""

    ssl_ca_path: str | None
    """PEM file of trusted authorities. Default: the system's."""

    ssl_cert_path: str | None
    """PEM file of the client's certificate (mutual TLS)."""

    ssl_key_path: str | None
    """PEM file of the client's key."""

    ssl_key_password: str | None
    """The password of the client's key; never logged."""

    ssl_check_hostname: bool
    """Check that the broker's certificate has the host name of the address."""

    ssl_context: Any | None
    """An ssl.SSLContext, which overrides the ssl_ settings."""

    sasl_mechanism: SaslMechanism | None
    """The SASL mechanism."""

    sasl_username: str | None
    """For PLAIN and SCRAM."""

    sasl_password: str | None
    """For PLAIN and SCRAM; never logged."""

    sasl_oauth_token: Callable[..., Any] | None
    """For OAUTHBEARER: a function without arguments, called on a separate thread. It returns a token, (token,
    expires_at) or (token, expires_at, extensions), with expires_at in seconds since 1970."""

    sasl_oauth_token_endpoint_url: str | None
    """For OAUTHBEARER: the issuer's token endpoint, called with the client's credentials."""

    sasl_oauth_allowed_urls: str | Iterable[str]
    """The only token endpoints that the client's secret may be sent to."""

    sasl_oauth_client_id: str | None
    """The client id at the issuer."""

    sasl_oauth_client_secret: str | None
    """The client secret at the issuer; never logged."""

    sasl_oauth_header_urlencode: bool
    """URL-encode id and secret, as RFC 6749 requires, but not every issuer."""

    sasl_oauth_scope: str | None
    """The requested scope of the token."""

    sasl_oauth_extensions: str | Iterable[str]
    """SASL extensions to show with the token (KIP-342), as name=value."""

    sasl_oauth_ca_path: str | None
    """PEM file of trusted authorities for the token endpoint. Default: the system's."""

    sasl_oauth_timeout_ms: int
    """Maximum time that a connection waits for a token."""

    sasl_kerberos_service_name: str
    """For GSSAPI: SERVICE in the brokers' principal SERVICE/HOST."""

    sasl_kerberos_principal: str | None
    """For GSSAPI: the client's principal, if keytab or cache have several."""

    sasl_kerberos_keytab: str | None
    """For GSSAPI: the client's keytab. Default: the tickets of kinit."""

    sasl_kerberos_ccache: str | None
    """For GSSAPI: the credential cache. Default: KRB5CCNAME."""

    client_id: str
    """Shown in the broker's logs, quotas and metrics."""

    max_frame_bytes: int
    """Maximum bytes of a response. A longer one is rejected before memory is allocated."""

    request_timeout_ms: int
    """Time after which a request without a response closes its connection."""

    connection_setup_timeout_ms: int
    """Time-out of connecting, TLS and SASL."""

    reconnect_backoff_ms: int
    """First delay before a reconnection."""

    reconnect_backoff_max_ms: int
    """Longest delay before a reconnection."""

    retry_backoff_ms: int
    """First delay before a retry."""

    retry_backoff_max_ms: int
    """Longest delay before a retry."""

    metadata_max_age_ms: int
    """Maximum age of metadata, after which it is requested again."""

    metadata_recovery_strategy: MetadataRecoveryStrategy
    """rebootstrap: use `bootstrap` again if no known broker responds (KIP-899)."""

    metadata_cluster_check_enable: bool
    """Use `bootstrap` again when a known address has another cluster or, from Kafka 4.4 on, another broker (KIP-1242).
    Off if `metadata_recovery_strategy` is none."""

    receive_buffer_bytes: int
    """SO_RCVBUF; -1 means the system's default."""

    send_buffer_bytes: int
    """SO_SNDBUF; -1 means the system's default."""

    tape: str | None
    """File to which every frame is appended as a JSON line, without secrets (`kohort wire explain` reads it). Each
    client needs its own file."""
