"""Refreshes a bearer token in time, and decides which connections may use it.

Pure: the driver runs the request on a separate thread and hands in the result. A token is renewed at PART_OF_LIFE. If
that fails, the old one serves new connections until it expires.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import ClassVar

from kohort.common import KohortError
from kohort.common.foreign_text import cut, escaped
from kohort.network.auth.sasl import Conversation, LoginRefused
from kohort.network.backoff import FRESH, Attempts, Backoff
from kohort.network.errors import AuthenticationFailed, TokenUnavailable

# Of a token, as Apache Kafka's client. It is below the part of a session after which that is authenticated again.
PART_OF_LIFE = 0.8
PATIENCE = Backoff(1_000, 60_000)  # between requests to an issuer that does not respond, so that no account is locked


@dataclass(frozen=True, slots=True)
class Token:
    """The token for the broker. `lifetime_s` counts from its creation. None: unknown, so it serves once."""

    value: str = field(repr=False)
    lifetime_s: float | None = None
    extensions: Mapping[str, str] = field(default_factory=dict)

    noun: ClassVar[str] = "token"
    check: ClassVar[str] = "see the broker's log; the broker checks issuer, audience, scope and expiry of a token"

    def conversation(self) -> Conversation:
        """The messages to send in SaslAuthenticate (RFC 7628)."""
        pairs = {"auth": f"Bearer {self.value}", **self.extensions}
        challenge = yield ("n,,\1" + "".join(f"{name}={value}\1" for name, value in pairs.items()) + "\1").encode()
        if not challenge:
            return
        # A refusal is a challenge with reasons in JSON. The error comes only after the response to it (RFC 7628 3.2.3).
        said = _reasons(challenge)
        try:
            yield b"\1"
        except LoginRefused:
            raise LoginRefused(said) from None
        raise AuthenticationFailed("the broker refused the token and went on", hint=self.check, status=said)


@dataclass(slots=True)
class TokenRefresher:
    """The token of one client. All times are monotonic seconds; used by the driver's thread only."""

    timeout_s: float
    chance: Callable[[], float]
    source: Callable[[], Token | KohortError]
    _token: Token | None = None
    _came_at: float = -inf
    _fresh_until: float = -inf
    _expires_at: float = -inf
    _requested_at: float | None = None
    _wanted: bool = False
    _attempts: Attempts = FRESH
    _error: KohortError | None = None
    _accepted: bool = False
    _forgiven: bool = False

    # --- for connections

    def window(self, _host: str) -> "TokenRefresher":
        """For one connection: one token serves all."""
        return self

    def take(self, now: float, since: float, *, session_s: float | None = None) -> Token | KohortError | None:
        """Return the token to authenticate with, wanted since `since`; None: wait; an error: there is none now.

        `session_s`: the length of the session to renew. A renewal waits for a fresh token, without errors, while the
        session has time left. An old token would make the session shorter with each renewal.
        """
        lasts = session_s is None or self._expires_at - now >= session_s
        if self._token is not None and now < self._fresh_until and lasts:
            return self._token
        if self._token is not None and self._came_at >= since:
            return self._token
        self._wanted = True
        if session_s is not None:
            return None
        if self._token is not None and now < self._expires_at:
            return self._token
        if self._requested_at is not None:
            return self._late() if now >= self._requested_at + self.timeout_s else None
        return None if self._error is None or self.next_request(now) else self._error

    def accepted(self, token: Token) -> None:
        """A broker has taken it."""
        self._accepted = self._accepted or token is self._token
        self._attempts = FRESH

    def refused(self, token: Token, now: float) -> bool:
        """Handles a refused token. True if another one is worth a try: once, if brokers took this one before."""
        if token is not self._token:
            return True  # there is a newer one already
        if not self._accepted or self._forgiven:
            return False
        self._token, self._forgiven, self._fresh_until, self._expires_at = None, True, -inf, -inf
        self._attempts = self._attempts.failed(now, PATIENCE, self.chance())
        return True

    # --- for the driver

    def next_request(self, now: float) -> bool:
        """True if a token must be requested now."""
        if isinstance(self._error, AuthenticationFailed) or self._requested_at is not None:
            return False  # no retry after a refusal, and no second request to a slow issuer
        return self._attempts.may_try(now) and (self._wanted or (self._renewable and now >= self._fresh_until))

    def requested(self, now: float) -> Callable[[], Token | KohortError]:
        """Begins a request. Returns the function to run, which may take long."""
        self._requested_at = now
        return self.source

    def came(self, made: Token | KohortError, now: float) -> None:
        """Takes the result of a request, even if it is late."""
        self._requested_at, self._wanted = None, False
        if isinstance(made, Token) and made.lifetime_s is not None and made.lifetime_s <= 0:
            made = TokenUnavailable(
                "the token that came has expired already", hint="check the clocks of this machine and of the issuer"
            )
        if isinstance(made, KohortError):
            self._error = made
            self._attempts = self._attempts.failed(now, PATIENCE, self.chance())
            return
        if self._token is not None:
            self._forgiven = False
        self._token, self._error, self._accepted, self._came_at = made, None, False, now
        self._attempts = self._attempts if self._forgiven else FRESH
        lifetime_s = made.lifetime_s or 0.0
        self._fresh_until, self._expires_at = now + PART_OF_LIFE * lifetime_s, now + lifetime_s

    def next_poll_at(self, now: float) -> float | None:
        """The time (monotonic s) of the next check if nothing happens."""
        if self._requested_at is not None:
            late_at = self._requested_at + self.timeout_s
            return late_at if self._wanted and late_at > now else None
        if isinstance(self._error, AuthenticationFailed) or not (self._wanted or self._renewable):
            return None
        return max(self._attempts.not_before, -inf if self._wanted else self._fresh_until)

    @property
    def _renewable(self) -> bool:
        return self._token is not None and self._token.lifetime_s is not None

    def _late(self) -> TokenUnavailable:
        return TokenUnavailable(
            f"no token came within {self.timeout_s:g} s",
            hint="check sasl_oauth_token or the token endpoint, or raise sasl_oauth_timeout_ms",
        )


def _reasons(challenge: bytes) -> str:
    import json

    try:
        found = json.loads(challenge)
    except (ValueError, RecursionError):
        found = None
    names = ("status", "scope", "openid-configuration")
    said = [f"{name} {found[name]}" for name in names if found.get(name)] if isinstance(found, dict) else []
    return cut(escaped(", ".join(said))) or "no reason given"
