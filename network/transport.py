"""One socket of a connection: connecting, TLS, frames in and out. It never blocks. Used by the driver only."""

from __future__ import annotations

import os
import socket
from collections import deque
from collections.abc import Sequence
from selectors import EVENT_READ, EVENT_WRITE
from typing import TYPE_CHECKING, Any

from kohort.common import KohortError
from kohort.network._follow_up import ChannelFields
from kohort.network._poller import recv_into, send
from kohort.network.auth.tls import CURES, alerted, is_secure, must_wait
from kohort.network.broker_connection import BrokerConnection, explained
from kohort.network.errors import ConnectionFailed, TlsError
from kohort.network.frame_reader import FrameReader
from kohort.network.requests import ConnectionPurpose, Outcomes, Stage

if TYPE_CHECKING:
    import ssl

READS_AT_ONCE = 64

DEAD_AFTER_30_S = {
    "TCP_KEEPIDLE": 10,
    "TCP_KEEPALIVE": 10,
    "TCP_KEEPINTVL": 5,
    "TCP_KEEPCNT": 4,
    "TCP_USER_TIMEOUT": 30_000,
}
"""The keepalive that ends a dead connection after 30 s, by Linux's names and units (B-25). TCP_KEEPALIVE is macOS's
name of TCP_KEEPIDLE.

A JoinGroup or a long Fetch may wait for minutes, so a missing response is no sign of a dead connection. The default
keepalive would need two hours.
"""

WANTS_CERTIFICATE = "set ssl_cert_path and ssl_key_path if the broker requires a client certificate"

Address = tuple[int, Any]  # family, sockaddr


class Ended(Exception):
    """The socket ended with `error`. `outcomes`: earlier results, not yet reported."""

    def __init__(self, error: KohortError, outcomes: Outcomes | None = None) -> None:
        super().__init__(str(error))
        self.error = error
        self.outcomes = outcomes or []


class Channel(ChannelFields):
    """A connection and its socket. `addresses` are tried in order until one accepts."""

    def __init__(
        self,
        line: ConnectionPurpose,
        connection: BrokerConnection,
        reader: FrameReader,
        tls: ssl.SSLContext | None,
        receive_buffer_bytes: int = -1,
        send_buffer_bytes: int = -1,
        *,
        responded: bool = False,
    ) -> None:
        self.line = line
        self.connection = connection
        self.endpoint = connection.endpoint
        self.reader = reader
        self.tls = tls
        self.receive_buffer_bytes = receive_buffer_bytes
        self.send_buffer_bytes = send_buffer_bytes
        self.responded = responded
        self.shares_ranges = True  # its broker's versions are those of further connections to the address
        self.received_any = False  # True after the first response of this connection
        self.found: list[Address] | KohortError | None = None  # the result of resolving the name, until it is used
        self.addresses: deque[Address] = deque()
        self._called: Address | None = None
        self.sock = None
        self.watched: socket.socket | None = None  # the socket registered at the selector
        self.events = 0
        self.watched_events = 0
        self.address_deadline = float("inf")
        self.due_at = float("-inf")  # the time (monotonic s) at which the driver has to look after it
        self.has_changed = True  # the driver has to look after it in the next turn
        self._address_s = 0.0
        self._shaking_hands = False
        self.failure = None  # of a read outside of a turn
        self.defect = None  # raised outside of a turn
        self.to_write = deque()

    # --- opening

    def resolved(self, addresses: Sequence[Address], now: float) -> None:
        """The name's addresses are known: call the first. Raises Ended if there is none that can be called."""
        self.addresses = deque(addresses)
        # Each address gets its share of the time, so that a dead first one does not take all of it (B-28).
        self._address_s = self.connection.setup_timeout_s / max(len(addresses), 1)
        self.call_next(ConnectionFailed("the name has no address", **self.endpoint.place), now)

    def unresolved(self) -> KohortError | None:
        """The error of a name that has no addresses yet; None if it has some, or is not looked up."""
        if self.sock is not None or self.address_deadline != float("inf"):
            return None
        return ConnectionFailed(
            "the host's name was not resolved in time",
            hint="check this machine's name servers, or raise connection_setup_timeout_ms",
            **self.endpoint.place,
        )

    def call_next(self, error: KohortError, now: float) -> None:
        """Connect to the next address. Raises Ended(error) if none is left."""
        self._drop_socket()
        while self.addresses:
            family, address = self._called = self.addresses.popleft()
            try:
                self._call(family, address)
            except OSError as problem:
                error = self._failed(problem)
                self._drop_socket()
                continue
            self.address_deadline = now + self._address_s
            return
        raise Ended(error)

    @property
    def next_address(self) -> Address | None:
        """The address that the next connection calls first: this one's, or the next one if this had no response."""
        return self._called if self.received_any else next(iter(self.addresses), None)

    def _call(self, family: int, address: Any) -> None:
        self.sock = socket.socket(family, socket.SOCK_STREAM)
        self.sock.setblocking(False)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in DEAD_AFTER_30_S.items():
            if hasattr(socket, name):
                self.sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        if self.receive_buffer_bytes >= 0:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self.receive_buffer_bytes)
        if self.send_buffer_bytes >= 0:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self.send_buffer_bytes)
        code = self.sock.connect_ex(address)
        if code not in (0, 115, 36, 10035):  # in progress, on Linux, macOS and Windows
            raise OSError(code, f"cannot connect: {code}")
        self.events = EVENT_WRITE

    def _connected(self, now: float) -> None:
        assert self.sock is not None
        code = self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            self.call_next(self._failed(OSError(code, "")), now)
            return
        self.address_deadline = float("inf")
        if self.tls is None:
            self._open(now)
            return
        host = self.endpoint.host
        try:
            self.sock = self.tls.wrap_socket(self.sock, server_hostname=host, do_handshake_on_connect=False)
        except (OSError, ValueError) as problem:  # the peer has closed already, or the name cannot be in a certificate
            self.call_next(self._failed(problem), now)
            return
        self._shaking_hands = True
        self._shake_hands(now)

    def _shake_hands(self, now: float) -> None:
        import ssl

        assert isinstance(self.sock, ssl.SSLSocket)
        try:
            self.sock.do_handshake()
        except ssl.SSLWantReadError:
            self.events = EVENT_READ
        except ssl.SSLWantWriteError:
            self.events = EVENT_WRITE
        except (ssl.SSLError, OSError) as problem:
            raise Ended(self._tls_error(problem)) from problem
        else:
            self._shaking_hands = False
            self._open(now)

    def _tls_error(self, problem: OSError) -> TlsError:
        import ssl

        if isinstance(problem, ssl.SSLCertVerificationError):
            return TlsError(
                f"the broker's certificate is not good: {problem.verify_message}",
                hint=CURES.get(problem.verify_code, "check ssl_ca_path"),
                **self.endpoint.place,
            )
        reason = alerted(problem) or str(problem)
        plaintext = "set security_protocol without SSL, if this is a plaintext port"
        hint = WANTS_CERTIFICATE if "ALERT" in reason else plaintext
        error = TlsError(f"no TLS handshake: {reason}", hint=hint, **self.endpoint.place)
        error.is_cut = isinstance(problem, ssl.SSLEOFError | ConnectionError)
        return error

    def _open(self, now: float) -> None:
        self.events = EVENT_READ
        self.connection.opened(now)

    # --- both ways

    def on_event(self, mask: int, now: float) -> Outcomes:
        """Handle a socket that is ready for `mask`. Returns the requests' outcomes. Raises Ended, or the `defect`."""
        if self.defect is not None:
            raise self.defect
        if self.sock is None:
            return []
        if self._shaking_hands:
            self._shake_hands(now)
            return []
        if self.connection.stage is Stage.OPENING:
            self._connected(now)
            return []
        if mask & EVENT_WRITE:
            self.write()
        return self._read(now) if mask & EVENT_READ else []

    def write(self) -> None:
        """Write what the connection owes, as far as the socket takes it."""
        self.to_write.extend(map(memoryview, self.connection.outgoing()))
        if self.sock is None or self.connection.stage in (Stage.OPENING, Stage.ENDED):
            return
        while self.to_write:
            try:
                sent = send(self.sock, self.to_write[0])
            except BlockingIOError:
                self.events = EVENT_READ | EVENT_WRITE
                return
            except OSError as problem:
                if is_secure(self.sock) and must_wait(problem):
                    self.events = EVENT_READ | EVENT_WRITE
                    return
                raise Ended(self._failed(problem)) from problem
            rest = self.to_write[0][sent:]
            self.to_write.popleft()
            if rest:
                self.to_write.appendleft(rest)
            else:
                self.connection.written()
        self.events = EVENT_READ

    def _read(self, now: float) -> Outcomes:
        assert self.sock is not None
        outcomes: Outcomes = []
        left, count = READS_AT_ONCE, 0  # first the bytes that were read outside of a turn
        while True:
            self.reader.limit = self.connection.frame_limit
            try:
                whole = self._take(count, now, outcomes)
            except KohortError as error:
                _clear_locals(error)
                first = self.reader.first_bytes()
                raise Ended(explained(error, first, self.endpoint, responded=self.responded), outcomes) from error
            if (whole or not left) and not self.withholds:
                return outcomes
            left = max(left - 1, 0)
            count = self.receive()
            if self.failure is not None:
                raise Ended(self._failed(self.failure), outcomes) from self.failure
            if count < 0:
                return outcomes
            if count == 0:
                raise Ended(self._hung_up(), outcomes)

    def receive(self) -> int:
        """Read bytes into the reader's target. Returns their number, 0 at the end or with a `failure`, -1 if there are
        none yet."""
        assert self.sock is not None
        try:
            return recv_into(self.sock, self.reader.target())
        except BlockingIOError:
            return -1
        except OSError as problem:
            if is_secure(self.sock) and must_wait(problem):
                return -1
            self.failure = problem
            return 0

    def send(self, request: bytes) -> int:
        """Send the first bytes of a request, and return their number. An error is that of the next `write`, too."""
        assert self.sock is not None
        try:
            return send(self.sock, request)
        except OSError:
            return 0

    def _take(self, count: int, now: float, outcomes: Outcomes) -> bool:
        """True if a frame is complete."""
        whole = False
        for frame in self.reader.received(count):
            outcomes += self.connection.received(frame, now)
            self.reader.limit = self.connection.frame_limit
            self.responded = self.received_any = whole = True
        return whole

    @property
    def withholds(self) -> bool:
        """True if a TLS socket holds decrypted bytes, which no selector sees. It is read until it has none."""
        return self.tls is not None and is_secure(self.sock) and self.sock.pending() > 0

    def _hung_up(self) -> KohortError:
        if self.responded:
            login = None
            if self.connection.credentials is None and not self.connection.served:
                login = 'set security_protocol="SASL_SSL" or "SASL_PLAINTEXT" if the listener uses SASL'
            return ConnectionFailed("the broker closed the connection", hint=login, **self.endpoint.place)
        hint = (
            'set security_protocol="SSL" if the listener uses TLS, and check the port'
            if self.tls is None
            else f"check the port; {WANTS_CERTIFICATE}"
        )
        error = ConnectionFailed(
            "the connection was closed before the first response", hint=hint, **self.endpoint.place
        )
        return explained(error, self.reader.first_bytes(), self.endpoint, responded=False)

    def _failed(self, problem: OSError | ValueError) -> KohortError:
        if is_secure(self.sock) and isinstance(problem, OSError) and (alert := alerted(problem)) is not None:
            # In TLS 1.3 the broker may reject the client's certificate after the client has completed the handshake.
            return TlsError(f"the broker ended TLS: {alert}", hint=WANTS_CERTIFICATE, **self.endpoint.place)
        reason = os.strerror(problem.errno) if isinstance(problem, OSError) and problem.errno else str(problem)
        hint = WANTS_CERTIFICATE if is_secure(self.sock) and not self.responded else None
        return ConnectionFailed(f"cannot reach the broker: {reason}", hint=hint, **self.endpoint.place)

    def _drop_socket(self) -> None:
        """Let the socket go. One that is registered at the selector stays open until it is unregistered."""
        if self.sock is not None and self.sock is not self.watched:
            self.sock.close()
        self.sock = None

    def close(self) -> None:
        self._drop_socket()
        self.events = 0


def _clear_locals(error: BaseException) -> None:
    """Drop the local variables that the tracebacks of an error and of its causes hold.

    The frame and its values are among them. The error outlives them: it waits for a caller to be raised to.
    """
    import traceback

    at: BaseException | None = error
    while at is not None:
        traceback.clear_frames(at.__traceback__)
        at = at.__cause__ or at.__context__
