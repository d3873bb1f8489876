"""SaslHandshake (17): selects the SASL mechanism.

Sent to: the connected broker, after ApiVersions. In version 0 the mechanism's messages follow as bare frames;
from version 1 on they are inside SaslAuthenticate (KIP-152).

Errors
    UNSUPPORTED_SASL_MECHANISM    `mechanisms` lists those of the broker
    ILLEGAL_SASL_STATE            the connection is authenticated already, or needs no SASL
"""

from kohort.protocol.primitives import int16, string
from kohort.protocol.schema import Request, Response, field


class SaslHandshakeRequest(Request, key=17, versions="0-1"):
    mechanism: str = field(string, "0+")
    """The SASL mechanism that the client selects."""


class SaslHandshakeResponse(Response, key=17, versions="0-1"):
    error_code: int = field(int16, "0+")
    """0, or what went wrong."""
    mechanisms: tuple[str, ...] = field([string], "0+")
    """The mechanisms that the broker offers."""
