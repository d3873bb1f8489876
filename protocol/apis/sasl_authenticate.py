"""SaslAuthenticate (36): carries one message of the SASL mechanism in each direction.

Sent to: the connected broker, after SaslHandshake version 1, as often as the mechanism needs.

Errors
    SASL_AUTHENTICATION_FAILED    the credentials are wrong: see `error_message`
    ILLEGAL_SASL_STATE            no SaslHandshake came before
"""

from kohort.protocol.primitives import bytes_, int16, int64, string
from kohort.protocol.schema import Request, Response, field


class SaslAuthenticateRequest(Request, key=36, versions="0-2", flexible="2+"):
    auth_bytes: bytes = field(bytes_, "0+")
    """The mechanism's own message."""


class SaslAuthenticateResponse(Response, key=36, versions="0-2", flexible="2+"):
    error_code: int = field(int16, "0+")
    """0, or what went wrong."""
    error_message: str | None = field(string, "0+", null="0+")
    """The error message, or null."""
    auth_bytes: bytes = field(bytes_, "0+")
    """The mechanism's own message."""
    session_lifetime_ms: int = field(int64, "1+", default=0, ignorable=True)
    """Milliseconds until the client must authenticate again (KIP-368); 0 means never."""
