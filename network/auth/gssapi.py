"""Kerberos authentication (RFC 4752) over a GSS-API context, and the cache of tickets.

Pure: fetching a ticket may take long, so the driver runs it on a separate thread (`kerberos_tickets.py`). Each login
needs a new ticket, made for the one broker that receives it.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar, Final, Protocol

from kohort.common import KohortError
from kohort.network.auth.sasl import Conversation
from kohort.network.backoff import FRESH, Attempts, Backoff
from kohort.network.errors import AuthenticationFailed, TicketUnavailable

NO_LAYER: Final = 1  # RFC 4752 3.1: bit masks of security layers; Kafka's framing has room for none
OFFER_BYTES: Final = 4
PATIENCE: Final = Backoff(500, 10_000)  # between requests to a KDC, or looks at a cache, without a ticket


class Context(Protocol):
    """One login's state, as `kerberos_tickets.py` makes it of the library's. Each method raises
    AuthenticationFailed."""

    @property
    def complete(self) -> bool: ...
    def step(self, challenge: bytes) -> bytes: ...
    def wrap(self, message: bytes) -> bytes: ...
    def unwrap(self, message: bytes) -> bytes: ...


@dataclass(frozen=True, slots=True, eq=False)
class KerberosTicket:
    """A started login: the first token for the broker, and the context that reads the response. It can be used once."""

    context: Context = field(repr=False)
    first: bytes = field(repr=False)

    noun: ClassVar[str] = "Kerberos ticket"
    check: ClassVar[str] = (
        "see the broker's log; check that all clocks agree within five minutes, and that the broker's keytab has the "
        "current key of its service"
    )

    def conversation(self) -> Conversation:
        """The messages to send in SaslAuthenticate. No security layer is agreed on: that is what TLS is for."""
        message = self.first
        while True:
            challenge = yield message
            if self.context.complete:
                break
            message = self.context.step(challenge)  # which also checks that the broker has its service's key
        offer = self.context.unwrap(challenge)
        if len(offer) != OFFER_BYTES:
            raise AuthenticationFailed(
                "invalid GSSAPI message of the server: no offer of security layers",
                hint="check the broker's address: another server may respond in its place",
                mechanism="GSSAPI",
            )
        if not offer[0] & NO_LAYER:
            raise AuthenticationFailed(
                "the broker requires a SASL security layer",
                hint='use security_protocol="SASL_SSL", and no security layer on the broker',
                mechanism="GSSAPI",
            )
        yield self.context.wrap(bytes([NO_LAYER, 0, 0, 0]))


Source = Callable[[str, bool], KerberosTicket | KohortError]
"""Creates a ticket for a host. The flag is true if cached tickets must not be used any more."""


@dataclass(slots=True, eq=False)
class TicketSource:
    """The tickets of one connection, from a TicketCache."""

    desk: "TicketCache"
    host: str
    ticket: KerberosTicket | None = None
    life: int = 0

    def take(self, now: float, since: float, *, session_s: float | None = None) -> KerberosTicket | KohortError | None:
        """As `TokenRefresher.take`. A session that is renewed waits without errors, for as long as it lasts."""
        if self.ticket is not None:
            found, self.ticket = self.ticket, None
            return found
        return self.desk.wanted(self, now, since, renewing=session_s is not None)

    def accepted(self, _ticket: KerberosTicket) -> None:
        """A broker has taken it."""
        self.desk.accepted(self)

    def refused(self, _ticket: KerberosTicket, _now: float) -> bool:
        """Handles a refused ticket. True if another ticket is worth a try.

        That is so once, if a ticket can be made that contains nothing old.
        """
        return self.desk.refused(self)


@dataclass(slots=True, eq=False)
class TicketCache:
    """The tickets of one client, requested one at a time. Times are monotonic seconds. Used by the driver's thread
    only.

    `keeps`: true if kohort caches the KDC's tickets, and can therefore drop them after a broker's key has changed.
    """

    source: Source
    timeout_s: float
    chance: Callable[[], float]
    keeps: bool = True
    _queue: deque[TicketSource] = field(default_factory=deque)
    _serving: TicketSource | None = None
    _late_at: dict[TicketSource, float] = field(default_factory=dict)
    _error: KohortError | None = None
    _attempts: Attempts = FRESH
    _life: int = 0
    _forget: bool = False
    _forgiven: set[str] = field(default_factory=set)

    # --- for connections

    def window(self, host: str) -> TicketSource:
        """For one connection to `host`."""
        return TicketSource(self, host)

    def wanted(self, window: TicketSource, now: float, since: float, *, renewing: bool) -> KohortError | None:
        """Register a connection that has waited since `since`. Returns the error if it need not wait."""
        if not renewing and self._error is not None and (self._ended or not self._attempts.may_try(now)):
            self._leave(window)
            return self._error
        if window not in self._queue and window is not self._serving:
            self._queue.append(window)
        if renewing:
            self._late_at.pop(window, None)
            return None
        self._late_at[window] = since + self.timeout_s
        if now < since + self.timeout_s:
            return None
        self._leave(window)
        return TicketUnavailable(
            f"no Kerberos ticket came within {self.timeout_s:g} s",
            hint="check the KDC of krb5.conf, or raise connection_setup_timeout_ms",
            host=window.host,
        )

    def accepted(self, window: TicketSource) -> None:
        self._forgiven.discard(window.host)

    def refused(self, window: TicketSource) -> bool:
        if window.life < self._life:
            return True  # it was made of what has been thrown away since
        if not self.keeps or window.host in self._forgiven:
            return False
        self._forgiven.add(window.host)
        self._life += 1
        self._forget = True
        return True

    # --- for the driver

    def next_request(self, now: float) -> bool:
        """True if a ticket must be fetched now."""
        return bool(self._queue) and self._serving is None and not self._ended and self._attempts.may_try(now)

    def requested(self, _now: float) -> Callable[[], KerberosTicket | KohortError]:
        """Begins a fetch. Returns the function to run, which may take long."""
        self._serving, forget, self._forget = self._queue.popleft(), self._forget, False
        self._serving.life = self._life
        return partial(self.source, self._serving.host, forget)

    def came(self, made: KerberosTicket | KohortError, now: float) -> None:
        """Takes the result of a fetch, even if it is late."""
        window, self._serving = self._serving, None
        assert window is not None
        if isinstance(made, KohortError):
            self._error = made
            self._attempts = self._attempts.failed(now, PATIENCE, self.chance())
            return
        self._error, self._attempts, window.ticket = None, FRESH, made
        self._late_at.pop(window, None)

    def next_poll_at(self, now: float) -> float | None:
        """The time (monotonic s) of the next check if nothing happens."""
        times = [late_at for late_at in self._late_at.values() if late_at > now]
        if self._queue and self._serving is None and not self._ended:
            times.append(self._attempts.not_before)
        return min(times, default=None)

    @property
    def _ended(self) -> bool:
        """True after a final refusal: there are no more requests."""
        return isinstance(self._error, AuthenticationFailed)

    def _leave(self, window: TicketSource) -> None:
        self._late_at.pop(window, None)
        if window in self._queue:
            self._queue.remove(window)
