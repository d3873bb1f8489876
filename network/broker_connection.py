"""One connection to one broker, without the socket.

It covers the handshake, requests in flight, their deadlines and responses. The driver calls `opened` when bytes can
flow, `outgoing` to write, `received` for each whole frame, `overdue` at each turn, and `closed` at the end. Every
`PendingRequest` has exactly one outcome.
"""

from collections import deque
from math import inf
from typing import TYPE_CHECKING, Any, Protocol

from kohort.common import KohortError, WireError
from kohort.common.foreign_text import cut, escaped, scrubbed
from kohort.common.version import __version__
from kohort.network._follow_up import ConnectionFields, follow_up
from kohort.network._guard import Guard
from kohort.network.connection_states import FIRST_WITH_IDENTITY
from kohort.network.errors import (
    AuthenticationFailed,
    ConnectionFailed,
    FrameTooLarge,
    RebootstrapRequired,
    TokenUnavailable,
)
from kohort.network.frame_reader import LENGTH_BYTES
from kohort.network.metadata import WITHOUT_TOPICS
from kohort.network.requests import (
    NO_FEATURES,
    AwaitedResponse,
    BrokerIdentity,
    Endpoint,
    FinalizedFeatures,
    NoResponse,
    Outcomes,
    PendingRequest,
    RequestResult,
    ResponseReceived,
    SendFailed,
    Stage,
    VersionRanges,
)
from kohort.network.throttle import Throttle
from kohort.protocol.apis.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kohort.protocol.apis.metadata import MetadataResponse
from kohort.protocol.catalogue import API, choose_version
from kohort.protocol.errors import BrokerError, ErrorCode, error_name
from kohort.protocol.wire import WireConnection

if TYPE_CHECKING:
    from kohort.network.auth.gssapi import KerberosTicket
    from kohort.network.auth.sasl import Conversation, Credentials
    from kohort.network.auth.token_refresh import Token
    from kohort.network.tape_writer import Keep
    from kohort.protocol.apis.sasl_authenticate import SaslAuthenticateResponse
    from kohort.protocol.apis.sasl_handshake import SaslHandshakeResponse

PART_OF_LIFETIME = 0.85  # of a session, as Apache Kafka's client; then the client authenticates again
OF_A_LOGIN = frozenset({"SaslHandshake", "SaslAuthenticate"})
LOGIN_FRAME_BYTES = {"ApiVersions": 1 << 16, "Metadata": 1 << 20, "SaslHandshake": 1 << 20, "SaslAuthenticate": 1 << 20}
LOGIN_BUDGET_BYTES = 4 << 20
VALUES_BESIDE_BYTES = 16 << 20  # of values, beside a frame of max_frame_bytes
LEAST_RESPONSE_BYTES = 80 << 20  # a frame and its values; 100,000 partitions of any response fit
LAST_WITHOUT_IDENTITY = FIRST_WITH_IDENTITY - 1  # an older broker rejects a newer version, which costs a round trip
LEAST_SESSION_S = 1.1  # brokers do not have sessions renewed more than once a second
LATE_S, LATE_GROWTH = 4.0, 1.25  # a controller fences a broker after 9 s by default (`broker.session.timeout.ms`)
TLS_ALERT, TLS_MAJOR = 0x15, 0x03


class CredentialSource(Protocol):
    """The source of a connection's token or ticket: `TokenRefresher`, or a `TicketSource` of a `TicketCache`."""

    def take(self, now: float, since: float, *, session_s: float | None = None) -> Any: ...
    def accepted(self, proof: Any, /) -> None: ...
    def refused(self, proof: Any, now: float, /) -> bool: ...


class BrokerConnection(ConnectionFields):
    """The sans-IO half of a connection. `ranges`: the broker's versions, if an earlier connection learned them.

    `expected` is named to brokers that read it. Without `names_identity` they do not, and the cluster's id is requested
    in its place.

    `guard` is the driver's lock, under which `PendingRequest.follow_up` is called. A broker may hold a request for the
    time that its time-out exceeds `request_timeout_s`. It is late when it has no response `LATE_S` after that.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        client_id: str,
        max_frame_bytes: int,
        *,
        setup_timeout_s: float,
        opened_at: float,
        request_timeout_s: float = inf,
        ranges: VersionRanges | None = None,
        tape: "Keep | None" = None,
        credentials: "Credentials | None" = None,
        nonce: str = "",
        tokens: CredentialSource | None = None,
        guard: Guard | None = None,
        expected: BrokerIdentity | None = None,
        names_identity: bool = True,
    ) -> None:
        self.endpoint = endpoint
        self.max_frame_bytes = max_frame_bytes
        self.setup_timeout_s = setup_timeout_s
        self.request_timeout_s = request_timeout_s
        self.opened_at = opened_at
        self.is_removed = False  # True while the metadata no longer has the broker
        self.ranges = ranges
        self.features = NO_FEATURES  # of the cluster, if this connection has learned them
        self.tape = tape
        self.credentials = credentials
        self.nonce = nonce
        self.tokens = tokens
        self.guard = guard
        self.expected = expected if ranges is None else None  # the broker that is yet to be checked; None: none
        self.names_identity = names_identity
        self.stage = Stage.OPENING
        self.served = False  # True after the first response to a request of the core
        self.wire = WireConnection(client_id, max_frame_bytes=max_frame_bytes)
        self._waiting = deque()
        self._held = deque()
        self._throttle = Throttle()
        self._versions: dict[tuple[str, int | None, int | None], int] = {}  # by API, and the limits of requests
        self._in_flight = {}
        self._settled: Outcomes = []
        self._out: list[bytes | memoryview] = []
        self._unwritten: deque[AwaitedResponse | None] = deque()  # of each frame: its request, if it has no response
        self._conversation: Conversation
        self._authentications = 0
        self._ready_by = opened_at + setup_timeout_s
        self._reauthenticate_at = inf
        self._found_late_at = -inf  # the time of the last `is_late` that was True
        self._session_s = 0.0
        self._token: Token | KerberosTicket | None = None
        self._token_since: float | None = None  # the time since which a token is wanted

    # --- requests

    def send(self, pending: PendingRequest, now: float) -> None:
        """Send when the connection is ready. The time-out begins now, or when the broker's throttle time ends."""
        if self.stage is Stage.READY and self._throttle.holds(pending.api, now):
            self._held.append(pending)
            return
        self._waiting.append((pending, now + pending.timeout_s))
        if self.stage is Stage.READY:
            self._flush(now)

    def opened(self, now: float) -> None:
        """Bytes can flow."""
        if self.ranges is None:
            is_named = self._is_to_be_named and self.credentials is None  # otherwise only after the login
            self._send_api_versions(FIRST_WITH_IDENTITY if is_named else LAST_WITHOUT_IDENTITY, now)
        else:
            self._authenticate(now)

    def outgoing(self) -> list[bytes | memoryview]:
        """Return the frames to write, in order. Each is returned once."""
        out, self._out = self._out, []
        return out

    def written(self) -> None:
        """The oldest frame is written. A request without a response has its outcome then."""
        sent = self._unwritten.popleft()
        if sent is not None:
            self._settled.append((sent.request, ResponseReceived(None, sent.version)))

    @property
    def busy(self) -> bool:
        return bool(self._in_flight or self._waiting or self._held or any(self._unwritten))

    # --- responses

    def received(self, frame: memoryview, now: float) -> Outcomes:
        """The outcomes that a frame brings. WireError: the stream is broken, and the connection must be closed."""
        outcomes: Outcomes = []
        request = follow_up(self, frame, now)
        if request is not None:
            if request:
                self.write(request)
            return outcomes
        if self.tape is not None:
            self._keep_response(frame, now)
        response = self.wire.receive_frame(frame[LENGTH_BYTES:], self._budget(len(frame)))
        sent = self._in_flight.pop(response.correlation_id)
        if sent.request.done is not _own_response:
            # Also during a re-authentication: earlier requests still get their responses, in order.
            self.served = True
            self._throttle.on_response(response.value, now, self.endpoint)
            outcomes.append((sent.request, ResponseReceived(response.value, sent.version)))
        elif self.stage is Stage.CHECKING_API_VERSIONS:
            self._versions_received(response.value, sent.version, now)
        elif self.stage is Stage.CHECKING_CLUSTER:
            self._cluster_received(response.value, now)
        else:
            self._continue_authentication(response.value, now)
        return outcomes

    @property
    def frame_limit(self) -> int:
        """The largest frame that may come next. The connection's own requests have small responses.

        Responses come in the order of their requests, so the oldest request in flight decides.
        """
        due = next(iter(self._in_flight.values()), None)
        own = due is None or due.request.done is _own_response
        limit = LOGIN_FRAME_BYTES["ApiVersions" if due is None else due.request.api] if own else self.max_frame_bytes
        return min(limit, self.max_frame_bytes)

    def _budget(self, frame_bytes: int) -> int:
        """The memory that the values of the next response may take, in bytes. Its frame is held beside them."""
        due = next(iter(self._in_flight.values()), None)
        if due is None or due.request.done is _own_response:
            return LOGIN_BUDGET_BYTES
        return max(self.max_frame_bytes + VALUES_BESIDE_BYTES, LEAST_RESPONSE_BYTES) - frame_bytes

    def settled(self) -> Outcomes:
        """The outcomes without a response: of requests that cannot be sent here, and of sent ones that have none."""
        settled, self._settled = self._settled, []
        return settled

    # --- time and end

    def deadline(self) -> float:
        """The time (monotonic s) at which `overdue` must be called. It is infinite if nothing waits."""
        limit = inf
        for sent in self._in_flight.values():
            limit = min(limit, sent.deadline)
        for _request, until in self._waiting:
            limit = min(limit, until)
        for unanswered in self._unwritten:
            if unanswered is not None:
                limit = min(limit, unanswered.deadline)
        if self.stage is not Stage.READY and self.stage is not Stage.ENDED:
            if self._token_since is None:  # otherwise the token source wakes the connection and limits the wait
                limit = min(limit, self._ready_by)
        elif self._reauthenticate_at < limit and self._may_prove_again:
            limit = self._reauthenticate_at
        if self._held:
            limit = min(limit, self._throttle.until)
        return limit

    def late_at(self) -> float:
        """The time (monotonic s) at which `is_late` must be called. Once a response is late, it is called after each
        further quarter of its time."""
        sent: AwaitedResponse | None = next(iter(self._in_flight.values()), None)
        if sent is None:
            return inf
        timeout_s = sent.request.timeout_s
        if self.is_removed:
            return sent.deadline - timeout_s + LATE_S
        since = sent.deadline - min(timeout_s, self.request_timeout_s)
        return since + max(LATE_S, (self._found_late_at - since) * LATE_GROWTH)

    def is_late(self, now: float) -> bool:
        """True if the next response is late: new metadata may name another leader. Then False until `late_at`."""
        if now < self.late_at():
            return False
        self._found_late_at = now
        return True

    def overdue(self, now: float) -> KohortError | None:
        """The error to close the connection with, if something has waited too long. What was held back goes out."""
        if self._held and now >= self._throttle.until:
            self._waiting.extend((pending, now + pending.timeout_s) for pending in self._held)
            self._held.clear()
            if self.stage is Stage.READY:  # otherwise a session is being renewed, and the broker would read no request
                self._flush(now)
        if self.stage is Stage.READY and now >= self._reauthenticate_at and self._may_prove_again:
            self._reauthenticate_at, self._ready_by = inf, self._login_until(now)
            self._authenticate(now)
        if self._token_since is not None and (tokenless := self._seek_token(now)) is not None:
            return tokenless
        if self.is_removed and not self.busy:
            return ConnectionFailed("the broker left the metadata", **self.endpoint.place)
        if self.is_removed and now >= self.late_at():
            return ConnectionFailed(
                f"no response to {self._awaited()}, and the broker left the metadata", **self.endpoint.place
            )
        if now < self.deadline():
            return None
        if self._token_since is not None and self.stage is not Stage.READY:
            return TokenUnavailable(
                "no token within connection_setup_timeout_ms",
                hint="check the token source, or raise connection_setup_timeout_ms",
            )
        if self.stage is not Stage.READY and not self.served:
            return ConnectionFailed(
                "no response while connecting", hint="check that the port is a Kafka listener", **self.endpoint.place
            )
        return ConnectionFailed(f"no response to {self._awaited()} in time", **self.endpoint.place)

    def _awaited(self) -> str:
        return ", ".join(sorted({sent.request.api for sent in self._in_flight.values()})) or "a request"

    def closed(self, error: KohortError, *, timed_out: bool = False) -> Outcomes:
        """End the connection: all waiting requests get an outcome."""
        self.stage = Stage.ENDED
        unsettled: list[PendingRequest] = [
            *(sent.request for sent in self._in_flight.values()),
            *(pending for pending, _limit in self._waiting),
            *self._held,
            *(sent.request for sent in self._unwritten if sent is not None),
        ]
        for requests in (self._in_flight, self._waiting, self._held, self._unwritten):
            requests.clear()
        return [(pending, NoResponse(error, timed_out)) for pending in unsettled if pending.timeout_s >= 0]

    # --- inner

    def _send_api_versions(self, version: int, now: float) -> None:
        self.stage = Stage.CHECKING_API_VERSIONS
        request = ApiVersionsRequest(client_software_name="kohort", client_software_version=__version__)
        if self.expected is not None:  # an older version drops it
            request = request._replace(cluster_id=self.expected.cluster_id, node_id=self.expected.node_id)
        self._send_own("ApiVersions", request, now, version)

    def _versions_received(self, response: ApiVersionsResponse, version: int, now: float) -> None:
        # KIP-511: a broker that does not support the version of ApiVersions responds in version 0.
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION and version != 0:
            self._send_api_versions(LAST_WITHOUT_IDENTITY if version > LAST_WITHOUT_IDENTITY else 0, now)
            return
        if response.error_code == ErrorCode.REBOOTSTRAP_REQUIRED:
            raise RebootstrapRequired(self._misrouted(), **self.endpoint.place)
        if response.error_code:
            raise BrokerError(response.error_code, api="ApiVersions", **self.endpoint.place)
        self.ranges = {one.api_key: (one.min_version, one.max_version) for one in response.api_keys}
        self._versions.clear()
        levels = {one.name: one.max_version_level for one in response.finalized_features}
        self.features = FinalizedFeatures(response.finalized_features_epoch, levels)
        if version >= FIRST_WITH_IDENTITY:
            self.expected = None
        if self._authentications:
            self._ready(now)
        else:
            self._authenticate(now)

    def _ready(self, now: float) -> None:
        if self.expected is not None and API["Metadata"].key in (self.ranges or {}):
            # The broker does not read the expected id, so the cluster's is requested.
            self.stage = Stage.CHECKING_CLUSTER
            self._send_own("Metadata", WITHOUT_TOPICS, now)
            return
        self.stage, self.expected = Stage.READY, None
        self._flush(now)

    @property
    def _is_to_be_named(self) -> bool:
        return self.expected is not None and self.names_identity

    def _cluster_received(self, response: MetadataResponse, now: float) -> None:
        if self.expected is not None and response.cluster_id not in (None, self.expected.cluster_id):
            raise RebootstrapRequired(self._misrouted(), **self.endpoint.place)
        self.expected = None
        self._ready(now)

    def _misrouted(self) -> str:
        if self.expected is None:
            return "the broker requires a new bootstrap"
        cluster_id, node_id = self.expected
        return f"another broker is at this address than broker {node_id} of the cluster {escaped(cut(cluster_id))}"

    # --- SASL (KIP-43, KIP-152, KIP-368)

    @property
    def _may_prove_again(self) -> bool:
        """True if the broker would read the request. Behind a JoinGroup it reads nothing while the group gathers."""
        return not any(sent.request.api == "JoinGroup" for sent in self._in_flight.values())

    def _login_until(self, now: float) -> float:
        """The deadline of a login. The broker responds to the requests in flight first, and may hold a Fetch. It reads
        nothing during a throttle time."""
        begins: float = max([now, self._throttle.until, *(sent.deadline for sent in self._in_flight.values())])
        return begins + self.setup_timeout_s

    def _authenticate(self, now: float) -> None:
        """Authenticate if credentials are set; otherwise the connection is ready."""
        if self.credentials is None:
            self._ready(now)
            return
        if self.credentials.needs_token and self._token_since is None:
            # Of a session that is renewed, requests go on until there is a token to renew it with.
            self.stage = Stage.READY if self.stage is Stage.READY else Stage.AUTHENTICATING
            self._token_since = now
            self._seek_token(now)
            return
        from kohort.protocol.apis.sasl_handshake import SaslHandshakeRequest

        self.stage, self._token_since = Stage.AUTHENTICATING, None
        self._send_own("SaslHandshake", SaslHandshakeRequest(mechanism=self.credentials.mechanism), now)

    def _seek_token(self, now: float) -> KohortError | None:
        """Authenticate if there is a token. Returns the error if there will be none for this connection."""
        assert self.tokens is not None
        assert self._token_since is not None
        renewing = self.stage is Stage.READY
        if renewing and not self._may_prove_again:
            return None
        found = self.tokens.take(now, self._token_since, session_s=self._session_s if renewing else None)
        if found is None or isinstance(found, KohortError):
            return found
        self._token, self._ready_by = found, self._login_until(now)
        self._authenticate(now)
        return None

    def _no_handshake(self, response: "SaslHandshakeResponse", place: dict[str, Any]) -> KohortError:
        assert self.credentials is not None
        if response.error_code == ErrorCode.ILLEGAL_SASL_STATE and self._authentications:
            return ConnectionFailed("the broker does not allow the session to be renewed now", **place)
        if response.error_code == ErrorCode.ILLEGAL_SASL_STATE:
            return AuthenticationFailed(
                "the listener does not use SASL", hint="use another port, or security_protocol without SASL", **place
            )
        offers = cut(scrubbed(", ".join(sorted(response.mechanisms)), self.credentials.secrets)) or "nothing"
        return AuthenticationFailed(
            f"the broker does not offer {self.credentials.mechanism}",
            hint=f"set sasl_mechanism to one of the broker's: {offers}",
            **place,
        )

    def _refusal(self, why: str, place: dict[str, Any], now: float) -> KohortError:
        """The error for a broker's refusal. It is final unless brokers took the token before."""
        from kohort.network.auth.sasl import CHECK_PASSWORD

        assert self.credentials is not None
        token = getattr(self._token, "value", "")  # a ticket has none
        why = cut(scrubbed(why, (*self.credentials.secrets, token)))
        if self._token is None or self.tokens is None:
            text, hint = f"the broker refused the credentials: {why}", CHECK_PASSWORD
        elif self.tokens.refused(self._token, now):
            return ConnectionFailed(
                f"the broker does not accept this {self._token.noun} any more: {why}",
                hint="a new one is requested",
                **place,
            )
        else:
            text, hint = f"the broker refused the {self._token.noun}: {why}", self._token.check
        return AuthenticationFailed(text, hint=hint, **place)

    def _continue_authentication(
        self, response: "SaslHandshakeResponse | SaslAuthenticateResponse", now: float
    ) -> None:
        from kohort.network.auth.sasl import LoginRefused
        from kohort.protocol.apis.sasl_authenticate import SaslAuthenticateRequest
        from kohort.protocol.apis.sasl_handshake import SaslHandshakeResponse

        assert self.credentials is not None
        place = self.endpoint.place
        try:
            if isinstance(response, SaslHandshakeResponse):
                if response.error_code:
                    raise self._no_handshake(response, place)
                self._authentications += 1
                self._conversation = self.credentials.conversation(f"{self.nonce}{self._authentications}", self._token)
                message = next(self._conversation)
            elif response.error_code:
                message = self._conversation.throw(
                    LoginRefused(response.error_message or error_name(response.error_code))
                )
            else:
                if response.session_lifetime_ms > 0:
                    self._session_s = response.session_lifetime_ms / 1000
                    self._reauthenticate_at = now + max(PART_OF_LIFETIME * self._session_s, LEAST_SESSION_S)
                message = self._conversation.send(bytes(response.auth_bytes))
        except LoginRefused as refused:
            raise self._refusal(str(refused), place, now) from None
        except StopIteration:
            if self._token is not None and self.tokens is not None:
                self.tokens.accepted(self._token)
            if self._is_to_be_named:
                self._send_api_versions(FIRST_WITH_IDENTITY, now)
            else:
                self._ready(now)
            return
        self._send_own("SaslAuthenticate", SaslAuthenticateRequest(auth_bytes=message), now)

    def _send_own(self, api: str, request: Any, now: float, version: int | None = None) -> None:
        if version is None:
            version = choose_version(api, self.ranges or {})
        correlation_id, frame = self.wire.send(api, version, request)
        pending = PendingRequest(api, request, _own_response, -1.0)
        self._in_flight[correlation_id] = AwaitedResponse(pending, version, self._ready_by)
        self.write(frame)
        if self.tape is not None and api not in OF_A_LOGIN:  # a login is never on the tape, nor is its response
            self.tape("request", api, version, correlation_id, frame, now)

    def _flush(self, now: float) -> None:
        while self._waiting:
            pending, deadline = self._waiting.popleft()
            limits = pending.api, pending.max_version, pending.min_version
            try:
                version = self._versions.get(limits, -1)
                if version < 0:
                    version = self._versions[limits] = choose_version(
                        pending.api, self.ranges or {}, pending.max_version, pending.min_version
                    )
                request = pending.request(version) if callable(pending.request) else pending.request
                correlation_id, frame = self.wire.send(pending.api, version, request)
            except KohortError as error:
                self._settled.append((pending, SendFailed(error)))
                continue
            sent = AwaitedResponse(pending, version, deadline)
            if pending.has_response:
                self._in_flight[correlation_id] = sent
            self.write(frame, None if pending.has_response else sent)
            if self.tape is not None:
                self.tape("request", pending.api, version, correlation_id, frame, now)

    def write(self, frame: bytes | memoryview, unanswered: AwaitedResponse | None = None) -> None:
        """Put a frame, or the rest of one, behind those to write."""
        self._out.append(frame)
        self._unwritten.append(unanswered)

    def _keep_response(self, frame: memoryview, now: float) -> None:
        """Put a response on the tape before it is parsed, so that an invalid frame is on it."""
        correlation_id = correlation_id_of(frame)
        sent = self._in_flight.get(correlation_id)
        if self.tape is not None and sent is not None and sent.request.api not in OF_A_LOGIN:
            self.tape("response", sent.request.api, sent.version, correlation_id, bytes(frame), now)


def correlation_id_of(frame: memoryview) -> int:
    return int.from_bytes(frame[LENGTH_BYTES : LENGTH_BYTES + 4], "big", signed=True)


def _own_response(_outcome: RequestResult, _now: float) -> None:
    """The callback of the connection's own requests, for example ApiVersions."""


def explained(error: KohortError, first_bytes: bytes, endpoint: Endpoint, *, responded: bool) -> KohortError:
    """Return the likely reason for an invalid first response: only one side uses TLS."""
    if len(first_bytes) >= 2 and first_bytes[0] == TLS_ALERT and first_bytes[1] == TLS_MAJOR:
        return ConnectionFailed(
            "the broker's listener uses TLS",
            hint='set security_protocol="SSL" (or "SASL_SSL")',
            **endpoint.place,
        )
    if isinstance(error, FrameTooLarge | WireError) and not responded:
        return ConnectionFailed(
            f"the server does not use Kafka's protocol: {error.message}",
            hint="check host, port and security_protocol",
            **endpoint.place,
        )
    return error
