"""SASL authentication. Each mechanism is a generator of messages that is sent the responses.

RFC 4616 (PLAIN), RFC 5802 and 7677 (SCRAM). Of RFC 7628 (OAUTHBEARER, in `token_refresh.py`) and RFC 4752 (GSSAPI, in
`gssapi.py`) it knows the `Proof` that is passed in, as is the nonce. Nothing here is ever logged.
"""

from collections.abc import Generator
from typing import Protocol

from kohort.common.foreign_text import cut
from kohort.common.named_tuple import NamedTuple
from kohort.network.auth.security_config import SecurityConfig
from kohort.network.errors import AuthenticationFailed

Conversation = Generator[bytes, bytes, None]

CHECK_PASSWORD = "check sasl_username and sasl_password"
MOST_ITERATIONS = 1_000_000  # about a second of the driver's thread; Apache Kafka allows 16,384


class Proof(Protocol):
    """A token or ticket for a login. `noun` names its kind, `check` is the hint for a broker that refuses it."""

    @property
    def noun(self) -> str: ...
    @property
    def check(self) -> str: ...
    def conversation(self) -> Conversation: ...


class Credentials(NamedTuple):
    """The credentials of a client, and the SASL mechanism that uses them."""

    mechanism: str
    username: str
    password: str

    @classmethod
    def of(cls, config: SecurityConfig) -> "Credentials":
        return cls(config.sasl_mechanism or "", config.sasl_username or "", config.sasl_password or "")

    def __repr__(self) -> str:
        return f"Credentials({self.mechanism!r}, {self.username!r})"

    @property
    def secrets(self) -> tuple[str, ...]:
        """The spellings that no text may show."""
        return (self.password, f"\0{self.username}\0{self.password}") if self.password else ()

    @property
    def needs_token(self) -> bool:
        return self.mechanism in ("OAUTHBEARER", "GSSAPI")

    def conversation(self, nonce: str, token: Proof | None = None) -> Conversation:
        """The messages to send in SaslAuthenticate; raises AuthenticationFailed for a server that proves nothing.

        If the broker rejects a message, `LoginRefused` is thrown in, and the resulting error has the reason.
        """
        if token is not None:
            return token.conversation()
        return self._plain() if self.mechanism == "PLAIN" else self._scram(nonce)

    def _plain(self) -> Conversation:
        yield f"\0{self.username}\0{self.password}".encode()

    def _scram(self, nonce: str) -> Conversation:
        from scramp import ScramClient, ScramException  # loads ssl, which other mechanisms have no use for

        client = ScramClient([self.mechanism], "-", "-", c_nonce=nonce)
        client.username, client.password = _AsTyped(self.username), _AsTyped(self.password)
        server_first = yield client.get_client_first().encode()
        try:
            # It requires the client's nonce in front of the server's, and 4096 iterations or more.
            client.set_server_first(server_first.decode())
        except (ScramException, UnicodeDecodeError) as problem:
            raise self._unsound(f"invalid SCRAM message of the server: {cut(str(problem))}") from None
        if int(client.iterations) > MOST_ITERATIONS:
            raise self._unsound(f"invalid SCRAM message of the server: {client.iterations} iterations")
        server_final = yield client.get_client_final().encode()
        try:
            client.set_server_final(server_final.decode())
        except (ScramException, UnicodeDecodeError):
            raise self._unsound("the server did not prove that it has the password") from None

    def _unsound(self, text: str) -> AuthenticationFailed:
        return AuthenticationFailed(
            text, hint="check the broker's address: another server may respond in its place", mechanism=self.mechanism
        )


class LoginRefused(Exception):
    """The SaslAuthenticate response carried an error."""


class _AsTyped(str):
    """A name or password as scramp sends it, without SASLprep: Apache Kafka's brokers keep what was typed."""

    __slots__ = ()

    def __bytes__(self) -> bytes:
        return self.encode()

    def escape(self) -> str:
        """RFC 5802's spelling of a name (saslname)."""
        return self.replace("=", "=3D").replace(",", "=2C")
