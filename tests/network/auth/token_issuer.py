"""The token issuer of tests: it knows its clients, sets the lifetime, and serves the keys to brokers."""

import base64
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa

KEY_ID = "tests"


def unsecured(**claims: object) -> str:
    """A JWT without a signature, which a broker with its default settings accepts."""
    parts = (json.dumps(part).encode() for part in ({"alg": "none"}, claims))
    return ".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts) + "."


@contextmanager
def served(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """The address of a web server on this machine."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@dataclass
class Issuer:
    """`token_url` and `jwks_url`, while `issuing` runs. What tests change meanwhile counts from the next request on."""

    clients: dict[str, str]
    audience: str = "kafka"
    lifetime_s: float = 300.0
    up: bool = True
    requested: int = 0
    address: str = ""
    key: rsa.RSAPrivateKey = field(default_factory=lambda: rsa.generate_private_key(65537, 2048), repr=False)

    @property
    def token_url(self) -> str:
        return f"{self.address}/token"

    @property
    def jwks_url(self) -> str:
        return f"{self.address}/jwks"

    def token(self, client: str) -> str:
        now = time.time()
        claims = {
            "sub": client,
            "iss": "kohort tests",
            "aud": self.audience,
            "iat": int(now),
            "exp": int(now + self.lifetime_s),
        }
        return jwt.encode(claims, self.key, algorithm="RS256", headers={"kid": KEY_ID})

    def jwks(self) -> dict[str, Any]:
        public = jwt.algorithms.RSAAlgorithm.to_jwk(self.key.public_key(), as_dict=True)
        return {"keys": [public | {"kid": KEY_ID, "use": "sig", "alg": "RS256"}]}

    def respond(self, authorization: str | None) -> tuple[int, dict[str, Any]]:
        self.requested += 1
        if not self.up:
            return 503, {}
        client, _, secret = base64.b64decode((authorization or "").removeprefix("Basic ")).decode().partition(":")
        if self.clients.get(client) != secret or not client:
            return 401, {"error": "invalid_client"}
        return 200, {"access_token": self.token(client), "token_type": "Bearer", "expires_in": self.lifetime_s}


@contextmanager
def issuing(issuer: Issuer) -> Iterator[Issuer]:
    """Have it serve."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._say(200, issuer.jwks())

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self._say(*issuer.respond(self.headers["Authorization"]))

        def _say(self, status: int, body: dict[str, Any]) -> None:
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_details: object) -> None:
            pass

    with served(Handler) as issuer.address:
        yield issuer
