# ruff: noqa: E501 -- one setting a line reads as the table it is
"""The settings of TLS and of authentication, which every client has."""

from typing import Any, Final

from kohort.network.settings_table import INT32_MAX, Settings, row

LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")


class SecurityConfig(Settings):
    """Protection of connections, and credentials. `ClientConfig` checks that they agree."""

    # fmt: off
    security_protocol: str = row("security.protocol", "str", "PLAINTEXT", "The protocol of connections to brokers: TLS (SSL) or not, SASL or not.", choices=("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"), read=str.upper)
    ssl_ca_path: str | None = row("ssl.ca.location", "str", None, "PEM file of trusted authorities. Default: the system's.", optional=True)
    ssl_cert_path: str | None = row("ssl.certificate.location", "str", None, "PEM file of the client's certificate (mutual TLS).", optional=True)
    ssl_key_path: str | None = row("ssl.key.location", "str", None, "PEM file of the client's key.", optional=True)
    ssl_key_password: str | None = row("ssl.key.password", "str", None, "The password of the client's key; never logged.", optional=True, secret=True)
    ssl_check_hostname: bool = row("kohort.ssl.check.hostname", "bool", True, "Check that the broker's certificate has the host name of the address.")
    ssl_context: Any = row("kohort.ssl.context", "any", None, "An ssl.SSLContext, which overrides the ssl_ settings.", optional=True)
    sasl_mechanism: str | None = row("sasl.mechanism", "str", None, "The SASL mechanism.", choices=("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI"), optional=True, aliases=("sasl.mechanisms",))
    sasl_username: str | None = row("sasl.username", "sent", None, "For PLAIN and SCRAM.", optional=True)
    sasl_password: str | None = row("sasl.password", "sent", None, "For PLAIN and SCRAM; never logged.", optional=True, secret=True)
    sasl_oauth_token: Any = row("kohort.sasl.oauth.token", "callable", None, "For OAUTHBEARER: a function without arguments, called on a separate thread. It returns a token, (token, expires_at) or (token, expires_at, extensions), with expires_at in seconds since 1970.", optional=True, secret=True)
    sasl_oauth_token_endpoint_url: str | None = row("sasl.oauthbearer.token.endpoint.url", "str", None, "For OAUTHBEARER: the issuer's token endpoint, called with the client's credentials.", optional=True)
    sasl_oauth_allowed_urls: tuple[str, ...] = row("org.apache.kafka.sasl.oauthbearer.allowed.urls", "list", (), "The only token endpoints that the client's secret may be sent to.")
    sasl_oauth_client_id: str | None = row("sasl.oauthbearer.client.credentials.client.id", "str", None, "The client id at the issuer.", optional=True, aliases=("sasl.oauthbearer.client.id",))
    sasl_oauth_client_secret: str | None = row("sasl.oauthbearer.client.credentials.client.secret", "str", None, "The client secret at the issuer; never logged.", optional=True, secret=True, aliases=("sasl.oauthbearer.client.secret",))
    sasl_oauth_header_urlencode: bool = row("sasl.oauthbearer.header.urlencode", "bool", False, "URL-encode id and secret, as RFC 6749 requires, but not every issuer.")
    sasl_oauth_scope: str | None = row("sasl.oauthbearer.scope", "str", None, "The requested scope of the token.", optional=True)
    sasl_oauth_extensions: tuple[str, ...] = row("sasl.oauthbearer.extensions", "list", (), "SASL extensions to show with the token (KIP-342), as name=value.")
    sasl_oauth_ca_path: str | None = row("https.ca.location", "str", None, "PEM file of trusted authorities for the token endpoint. Default: the system's.", optional=True)
    sasl_oauth_timeout_ms: int = row("kohort.sasl.oauth.timeout.ms", "int", 10_000, "Maximum time that a connection waits for a token.", low=1, high=INT32_MAX)
    sasl_kerberos_service_name: str = row("sasl.kerberos.service.name", "sent", "kafka", "For GSSAPI: SERVICE in the brokers' principal SERVICE/HOST.")
    sasl_kerberos_principal: str | None = row("sasl.kerberos.principal", "str", None, "For GSSAPI: the client's principal, if keytab or cache have several.", optional=True)
    sasl_kerberos_keytab: str | None = row("sasl.kerberos.keytab", "str", None, "For GSSAPI: the client's keytab. Default: the tickets of kinit.", optional=True)
    sasl_kerberos_ccache: str | None = row("kohort.sasl.kerberos.ccache", "str", None, "For GSSAPI: the credential cache. Default: KRB5CCNAME.", optional=True)
    # fmt: on
