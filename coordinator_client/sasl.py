"""Proving who we are: PLAIN and SCRAM as conversations, each a generator of messages that is sent the answers.

RFC 4616 (PLAIN), RFC 5802 and 7677 (SCRAM). Chance comes in as the nonce; nothing here is ever logged.
"""

from collections.abc import Generator
from dataclasses import dataclass, field

from kohort.coordinator_client.config import Config
from kohort.coordinator_client.errors import AuthenticationFailed

Conversation = Generator[bytes, bytes, None]

HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
LEAST_ITERATIONS = 4096


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
        return self._plain() if self.mechanism == "PLAIN" else self._scram(HASHES[self.mechanism], nonce)

    def _plain(self) -> Conversation:
        yield f"\0{self.username}\0{self.password}".encode()

    def _scram(self, name: str, nonce: str) -> Conversation:
        import base64
        import hashlib
        import hmac

        who = self.username.replace("=", "=3D").replace(",", "=2C")
        first = f"n={who},r={nonce}"
        server_first = (yield f"n,,{first}".encode()).decode()
        said = dict(part.split("=", 1) for part in server_first.split(",") if "=" in part)
        iterations = int(said.get("i", "0"))
        if not said.get("r", "").startswith(nonce) or iterations < LEAST_ITERATIONS:
            # A nonce that is not ours, or a key that is cheap to guess: somebody else may be answering.
            raise AuthenticationFailed("the server's part of SCRAM is not sound", mechanism=self.mechanism)
        salted = hashlib.pbkdf2_hmac(name, self.password.encode(), base64.b64decode(said["s"]), iterations)
        final = f"c=biws,r={said['r']}"
        message = f"{first},{server_first},{final}".encode()
        client_key = hmac.digest(salted, b"Client Key", name)
        stored_key = hashlib.new(name, client_key).digest()
        signature = hmac.digest(stored_key, message, name)
        proof = bytes(one ^ other for one, other in zip(client_key, signature, strict=True))
        server_final = yield f"{final},p={base64.b64encode(proof).decode()}".encode()
        server_key = hmac.digest(salted, b"Server Key", name)
        expected = b"v=" + base64.b64encode(hmac.digest(server_key, message, name))
        if not hmac.compare_digest(server_final.split(b",")[0], expected):
            raise AuthenticationFailed("the server did not prove that it knows the password", mechanism=self.mechanism)
