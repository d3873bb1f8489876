"""Proving who we are: PLAIN and SCRAM as conversations, each a generator of messages that is sent the answers.

RFC 4616 (PLAIN), RFC 5802 and 7677 (SCRAM). Chance comes in as the nonce; nothing here is ever logged.
"""

from collections.abc import Generator
from dataclasses import dataclass, field

from kohort.coordinator_client.config import Config
from kohort.coordinator_client.errors import AuthenticationFailed

Conversation = Generator[bytes, bytes, None]

MOST_ITERATIONS = 1_000_000  # about a second of the driver's thread; Apache Kafka allows 16,384


@dataclass(frozen=True, slots=True)
class Credentials:
    """Who, and how it is proved."""

    mechanism: str
    username: str
    password: str = field(repr=False)

    @classmethod
    def of(cls, config: Config) -> "Credentials | None":
        """None unless `security_protocol` asks for SASL."""
        if not config.security_protocol.startswith("SASL"):
            return None
        return cls(config.sasl_mechanism or "", config.sasl_username or "", config.sasl_password or "")

    def conversation(self, nonce: str) -> Conversation:
        """The messages to send in SaslAuthenticate; raises AuthenticationFailed for a server that proves nothing."""
        return self._plain() if self.mechanism == "PLAIN" else self._scram(nonce)

    def _plain(self) -> Conversation:
        yield f"\0{self.username}\0{self.password}".encode()

    def _scram(self, nonce: str) -> Conversation:
        from scramp import ScramClient, ScramException  # loads ssl, which other mechanisms have no use for

        client = ScramClient([self.mechanism], "-", "-", c_nonce=nonce)
        client.username, client.password = _AsTyped(self.username), _AsTyped(self.password)
        server_first = yield client.get_client_first().encode()
        try:
            client.set_server_first(server_first.decode())  # our nonce in front of its own, 4096 iterations or more
        except (ScramException, UnicodeDecodeError) as problem:
            raise self._unsound(f"the server's part of SCRAM is not sound: {problem}") from None
        if int(client.iterations) > MOST_ITERATIONS:
            raise self._unsound(f"the server's part of SCRAM is not sound: {client.iterations} iterations")
        server_final = yield client.get_client_final().encode()
        try:
            client.set_server_final(server_final.decode())
        except (ScramException, UnicodeDecodeError):
            raise self._unsound("the server did not prove that it knows the password") from None

    def _unsound(self, text: str) -> AuthenticationFailed:
        return AuthenticationFailed(
            text, hint="somebody else may be answering in the broker's place", mechanism=self.mechanism
        )


class _AsTyped(str):
    """A name or password as scramp sends it, without SASLprep: Apache Kafka's brokers keep what was typed."""

    __slots__ = ()

    def __bytes__(self) -> bytes:
        return self.encode()

    def escape(self) -> str:
        """RFC 5802's spelling of a name (saslname)."""
        return self.replace("=", "=3D").replace(",", "=2C")
