"""The only sockets and the only clock of a client. A thread (`event_loop.py`) gives the turns.

A turn passes the received responses to the core and polls the core under the lock. It writes the core's requests, and
returns the time of the next turn. The core is not polled for bytes that complete no response, nor for a response from
which the next request follows (`PendingRequest.follow_up`). User code never runs here and never holds the lock, so it
cannot delay a heartbeat. For the same reason names are resolved on a separate thread.
"""

import contextlib
import os
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from kohort.common import KohortError, WireError
from kohort.common.log_context import logger, prepare, set_log_context
from kohort.network._guard import Bell, Guard
from kohort.network._poller import DriverFields, IdleConnection, Lease, Poller
from kohort.network._samples import Counters
from kohort.network.auth.tls import Certificates
from kohort.network.broker_connection import BrokerConnection
from kohort.network.client_config import ClientConfig
from kohort.network.connection_states import BoundedTable
from kohort.network.errors import (
    AuthenticationFailed,
    ConcurrentUseError,
    ConnectionFailed,
    ForkError,
    FrameTooLarge,
    RebootstrapRequired,
    TokenUnavailable,
)
from kohort.network.event_loop import ConnectQueue, EventLoop, Ready, place
from kohort.network.frame_reader import FrameReader
from kohort.network.metadata_updater import ClientContext, MetadataUpdater
from kohort.network.notices import Notice
from kohort.network.promise import Flag, Helpers, Promise, run_uninterrupted
from kohort.network.requests import (
    BackgroundJob,
    ConnectionPurpose,
    Endpoint,
    NoResponse,
    Outcomes,
    PendingRequest,
    PollResult,
    ResponseReceived,
    Stage,
    UnsentRequest,
    VersionRanges,
    was_called,
)
from kohort.network.transport import Address, Channel, Ended

if TYPE_CHECKING:
    import ssl

    from kohort.network.auth.gssapi import TicketCache
    from kohort.network.auth.sasl import Credentials
    from kohort.network.auth.token_refresh import TokenRefresher
    from kohort.network.tape_writer import Tape

log = logger("kohort.driver")

MOST_HELPERS = 8
MOST_PORT = 65_535
NUMBER_BYTES = 6
NUMBERS_AT_ONCE = 64
LATE_ADDRESSES_S = 60.0  # for which the addresses of a name are used that came too late for their connection
EARLY_S = 2.0  # by which a turn looks after channels before they are due: an idle member wakes up for heartbeats only


class Driven(ClientContext, Protocol):
    """The interface of a client that a driver drives. All methods return quickly."""

    counters: Counters

    @property
    def cluster(self) -> MetadataUpdater: ...
    def poll(self, now: float, wall_ms: int) -> PollResult: ...
    def is_at_rest(self) -> bool:
        """True if the responses of this turn leave nothing to send. `poll` is not called then."""
        ...

    def log_fields(self) -> Mapping[str, object]: ...


T = TypeVar("T")
C = TypeVar("C", bound=Driven)
Made = TypeVar("Made", bound=Driven, covariant=True)


class CoreFactory(Protocol[Made]):
    """Creates the core from a source of random numbers in [0, 1) and the start time."""

    def __call__(self, *, chance: Callable[[], float], started: float) -> Made: ...


_drawn: list[float] = []  # random numbers, each of which is returned once
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_drawn.clear)  # otherwise a child returns the numbers of its parent


def chance() -> float:
    """A random number in [0, 1).

    Numbers are drawn in advance, because each system call releases the GIL. `random` takes 1 ms to load.
    """
    while True:
        try:
            return _drawn.pop()
        except IndexError:
            drawn = os.urandom(NUMBER_BYTES * NUMBERS_AT_ONCE)
            _drawn.extend(
                int.from_bytes(drawn[at : at + NUMBER_BYTES], "big") / (1 << 8 * NUMBER_BYTES)
                for at in range(0, len(drawn), NUMBER_BYTES)
            )


class _Change(Generic[C, T]):
    """A change of the core that the driver's thread carries out. `adds`: it adds commits, and changes nothing else."""

    __slots__ = ("_change", "adds", "value")

    def __init__(self, change: Callable[[C], T], *, adds: bool) -> None:
        self._change = change
        self.adds = adds
        self.value: Promise[T] = Promise()

    def carry_out(self, core: C) -> None:
        self.value.give(self._change, core)


class Driver(DriverFields, Generic[C]):
    """Owns the sockets. `lock` guards `core`. `wakeup` makes the thread poll it again.

    `bell` rings when the core has updates. A caller reads the core by `lock.run`, and changes it by `execute`, which no
    signal handler can interrupt.
    """

    def __init__(self, config: ClientConfig, core: CoreFactory[C]) -> None:
        self.config = config
        self.core = core(chance=chance, started=self.now())
        self.lock = Guard(_reentered)
        self.bell = Bell()
        self.chore: Callable[[], bool] | None = None  # called before each turn, under the lock, until it is done
        self.poll_added = self.core.poll  # of a turn in which there are only additions, see `wakeup_for_added`
        self.on_update: Callable[[], None] | None = None
        self.on_notice: Callable[[Notice], None] | None = None  # called under the lock
        self.crashed: BaseException | None = None
        self.orders: deque[_Change[C, Any]] = deque()  # changes that were enqueued and have yet to be made
        self._over = False
        self._tape = _tape(config.tape, self.now()) if config.tape else None
        self._credentials = _credentials(config)
        self._tokens = _keeper(config, self._credentials, self.wall_ms)
        self._tokens_made: deque[Any] = deque()
        self._reported_tokenless = ""
        self._certificates = Certificates(config)
        self._channels: dict[tuple[ConnectionPurpose, Endpoint], Channel] = {}
        self._ranges: BoundedTable[Endpoint, VersionRanges] = BoundedTable()
        # Of connections that have ended last, with the address to call first. Other brokers may have them.
        self._ended: BoundedTable[Endpoint, Address | None] = BoundedTable()
        # Of names whose resolution has outlasted the connection that it was for, with the time (monotonic s).
        self._found_late: BoundedTable[Endpoint, tuple[float, list[Address]]] = BoundedTable()
        self._polls_at = inf  # the time of the core's next poll if nothing happens
        self._must_poll = True  # another thread has changed the core, or the last turn has
        self._has_added = False  # another thread has added records or commits to the core
        self._newest_job: BackgroundJob | None = None
        self._one_job = threading.Lock()
        self._helpers: Helpers | None = None
        self._loop: EventLoop | None = None
        self.ended = Flag()

    def start(self) -> None:
        """Have a loop give it turns. An interrupt before the end of this call leaves it without a turn."""
        prepare()  # on the caller's thread, which may have the lock of `logging`
        run_uninterrupted(self._start)
        self.wakeup()

    def _start(self) -> None:
        loop = place(self)
        self._poller: Poller = loop.poller
        self._queue: ConnectQueue = loop.queue
        self.lease = Lease(self, loop.poller, _reentered)
        self._loop = loop
        if self.stopping:  # its caller was interrupted, and has stopped it before it had a loop
            self.wakeup()

    now = staticmethod(time.monotonic)
    """Monotonic seconds: what every deadline here is measured in. Clock jumps do not touch it (B-32)."""

    @staticmethod
    def wall_ms() -> int:
        return time.time_ns() // 1_000_000

    def run_parallel(self, jobs: Sequence[Callable[[], T]]) -> list[T]:
        """Run jobs that release the GIL on as many threads as there are cores. Returns their results, in order."""
        return self._helper_threads().run(jobs)

    def run_aside(self, job: Callable[[], T], done: Callable[[T], object]) -> None:
        """Run a job that releases the GIL on a helper thread, then `done` with its result, under the lock.

        Called under the lock: if no thread could be started, both are run at once. A job that raises ends the client.
        """

        def run() -> None:
            try:
                made = job()
            except Exception as problem:
                log.exception("a helper thread failed")
                error = KohortError(f"a helper thread failed: {problem!r}")
                self.enqueue(lambda core: core.fail(error))
            else:
                self.enqueue(lambda _core: done(made))

        helpers = self._helper_threads()
        if helpers.count:
            helpers.start(run)
        else:
            done(job())

    def idle_connection(
        self, purpose: ConnectionPurpose, endpoint: Endpoint, api_key: int, version: int
    ) -> IdleConnection | None:
        """The connection to a broker for requests of an API from another thread. None if there is none, or it has TLS.

        Called on the driver's thread.
        """
        channel = self._channels.get((purpose, endpoint))
        if channel is None or channel.watched is None:
            return None
        return self._poller.idle_connection(channel.watched, api_key, version)

    def _helper_threads(self) -> Helpers:
        if self._helpers is None:
            self._helpers = Helpers(min(os.cpu_count() or 1, MOST_HELPERS), "kohort-helper")
        return self._helpers

    def wakeup(self) -> None:
        """Make the thread take a turn soon. From any thread, with or without the lock."""
        self._must_poll = True
        if self._loop is not None:
            self._loop.wakeup(self)

    def wakeup_for_added(self) -> None:
        """As `wakeup`, where the caller adds records or commits under the lock and changes nothing else.

        Also for any change in `orders`, after which the turn itself knows what to poll.
        """
        self._has_added = True
        if self._loop is not None:
            self._loop.wakeup(self)

    def execute(self, change: Callable[[C], T], *, adds: bool = False) -> T:
        """Have the driver's thread call `change(core)` under the lock, and return its value, or raise its error.

        A signal handler that raises meanwhile ends the wait only: the change is made whole all the same. Raises
        ConcurrentUseError in a handler that has interrupted the owner of the lock.
        """
        if self._loop is not None and self._loop.is_current:
            return self.lock.run(change, self.core)  # a finalizer on the driver's thread would wait for itself
        return self.enqueue(change, adds=adds).result()

    def enqueue(self, change: Callable[[C], T], *, adds: bool = False) -> "Promise[T]":
        """As `execute`, without waiting. Changes are made in the order of these calls.

        `adds`: the change adds commits, and changes nothing else. So only they are polled.
        """
        self.check_reentry()
        order = _Change(change, adds=adds)
        self.orders.append(order)
        self.wakeup_for_added()  # the turn polls everything after any other change
        if self._over:
            run_uninterrupted(self.lock.run, self._carry_out)  # no thread is left to do it
        return order.value

    def wake_callers(self) -> None:
        """Make waiting callers look again. From any thread, and from a signal handler."""
        self.bell.ring()
        if self.on_update is not None:
            self.on_update()

    def check_reentry(self) -> None:
        """Raises ConcurrentUseError in a signal handler that has interrupted the owner of the lock."""
        if self.lock.owned:
            raise _reentered()

    def apply_pending_changes(self) -> None:
        """Wait for changes whose callers were interrupted."""
        if self.orders:
            self.execute(lambda _core: None)

    def stop_soon(self) -> None:
        """As `stop`, without waiting."""
        try:
            self.stopping = True
            self.wakeup()
        except BaseException:  # an interrupt in between: the thread might sleep for a minute yet
            self.wakeup()
            raise
        if self._helpers is not None:
            self._helpers.stop()

    def stop(self, timeout_s: float) -> None:
        """Give no more turns, and close every socket."""
        self.stop_soon()
        if self._loop is not None:
            self._loop.join(self, timeout_s)

    # --- the thread

    def check_same_process(self) -> None:
        """Raises ForkError in a forked child, which has no driver thread and may find the lock held for ever."""
        if self.is_forked:
            raise ForkError("this client belongs to the process that made it", hint="make a new one after forking")

    def check(self) -> None:
        """Raises KohortError if this driver's thread has ended by a defect, so that no caller waits for it."""
        if self.crashed is not None:
            raise KohortError("the driver's thread ended by a defect: please report it") from self.crashed

    def log_fields(self) -> Mapping[str, object]:
        """The log fields of a turn's lines."""
        return self.core.log_fields()

    def turn(self, ready: Ready, *, due: bool) -> float | None:
        """Read the sockets, poll the core, send its requests. Returns the time of the next turn; 0.0 is at once.

        `due`: the time of the turn has come, or another thread has called `wakeup`. Otherwise the core is only polled
        if the sockets bring outcomes. None: it was not polled, and the time of the next turn stays.
        """
        with self.lease.guard:
            return self._turn(ready, due=due)

    def _turn(self, ready: Ready, *, due: bool) -> float | None:
        undisturbed = not due and self.core.endpoints.last_error is None
        steady = undisturbed
        outcomes: Outcomes = []
        for channel, mask in ready:
            steady = steady and channel.connection.stage is Stage.READY
            outcomes += self._on_event(channel, mask)
            steady = steady and channel.connection.stage is Stage.READY
        if steady and not outcomes:
            self._announce()
            return None
        if undisturbed and not outcomes and self._tokens is None and all(channel.sock for channel, _mask in ready):
            # Connections have gone on with their setup. The core learns of it by their first responses.
            for channel, _mask in ready:
                self._set_due(channel)
            return self._due_at()
        everything = outcomes or self._must_poll or self._tokens is not None or self._polls_at <= self.now()
        if not everything and not self._has_added:
            return self._look_after_channels([], self.now(), due=due)
        self.turns += 1
        if self.chore is not None:
            while not self.lock.run(self.chore):
                pass
        if outcomes:
            self._settle(outcomes)
            responded = all(isinstance(outcome, ResponseReceived) for _request, outcome in outcomes)
            if steady and responded and not self.orders and self.lock.run(self.core.is_at_rest):
                self._announce()
                return None
        now = self.now()
        self._has_added = False
        if everything:
            self._must_poll = False
        with self.lock:
            if self.orders:
                everything = not self._carry_out() or everything
            turn = (self.core.poll if everything else self.poll_added)(now, self.wall_ms())
        self._polls_at = inf if turn.next_poll_at is None else turn.next_poll_at
        self._announce()
        if turn.job is not None:
            self._newest_job = turn.job
            run_in_thread(turn.job.thread_name, self._run_job, turn.job)
        outcomes = []
        for outgoing in turn.requests:
            outcomes += self._submit(outgoing, now)
        if self._tokens is not None:
            self._hand_in_tokens(self._tokens, now)
        return self._look_after_channels(outcomes, now, due=due)

    def _look_after_channels(self, outcomes: Outcomes, now: float, *, due: bool) -> float:
        """Do the work of the channels that are due, and settle `outcomes` and theirs. Returns the next turn's time."""
        removed, known_at = self.core.cluster.removed, self.core.cluster.known_at
        until = now + EARLY_S if due else now
        for channel in list(self._channels.values()):
            # A broker may have come back since the metadata: a coordinator's look-up or another leader has named it.
            is_removed = channel.endpoint in removed and channel.connection.opened_at < known_at
            channel.connection.is_removed = is_removed
            is_due = channel.has_changed or channel.found is not None or channel.due_at <= until
            if is_due or is_removed or self._tokens is not None:
                outcomes += self._look_after(channel, now)
        if self._tokens is not None:
            self._owe_token(self._tokens, now)
        if outcomes:
            self._settle(outcomes)
            self._must_poll = True
        return 0.0 if self._must_poll else self._due_at()

    def _announce(self) -> None:
        """Count the turn, and wake the callers if the core has updates."""
        self.turns += 1
        if self.core.has_updates:
            if self._loop is not None:
                self._loop.write_lines()
            self.wake_callers()

    def over(self, defect: BaseException | None) -> None:
        """The last turn was taken, by a `defect` or since it is stopping."""
        if defect is not None:
            self.crashed = defect
            self.turns += 1
            self.wake_callers()
        self._over = True
        with self.lock:
            self._carry_out()
        with self.lease.guard:
            for channel in list(self._channels.values()):
                self._forget(channel)
        if self._tape is not None:
            self._tape.close()

    def _carry_out(self) -> bool:
        """Make the changes that were enqueued. Returns True if they are additions only."""
        only_adds = True
        while self.orders:
            order = self.orders.popleft()
            only_adds = only_adds and order.adds
            order.carry_out(self.core)
        return only_adds

    def _run_job(self, job: BackgroundJob) -> None:
        with self._one_job:
            if job is not self._newest_job or self.stopping:
                return
            set_log_context(self.log_fields)
            result = job.run()
        with self.lock:
            job.done(result)
        self.wakeup()

    def _hand_in_tokens(self, tokens: "TokenRefresher | TicketCache", now: float) -> None:
        while self._tokens_made:
            made = self._tokens_made.popleft()
            if isinstance(made, KohortError):
                log.warning("no new credentials: %s", made)
            tokens.came(made, now)

    def _owe_token(self, tokens: "TokenRefresher | TicketCache", now: float) -> None:
        """Let an issuer, a KDC, or the user's function, take its time elsewhere."""
        if tokens.next_request(now):
            run_in_thread("kohort-token", self._fetch_token, tokens.requested(now))

    def _fetch_token(self, source: Callable[[], object]) -> None:
        self._tokens_made.append(source())
        self.wakeup()

    def _settle(self, outcomes: Outcomes) -> None:
        now = self.now()
        with self.lock:
            for pending, outcome in outcomes:
                if isinstance(outcome, ResponseReceived):
                    self.core.counters.requests += 1
                    self.core.counters.throttled_ms += getattr(outcome.value, "throttle_time_ms", 0)
                elif was_called(outcome):
                    self.core.counters.requests += 1
                    self.core.counters.request_failures += 1
                pending.done(outcome, now)

    def _due_at(self) -> float:
        if self._tokens_made:
            return 0.0
        due_at = self._polls_at
        for channel in self._channels.values():
            due_at = min(due_at, channel.due_at)
        tokens_at = self._tokens.next_poll_at(self.now()) if self._tokens is not None else None
        return due_at if tokens_at is None else min(due_at, tokens_at)

    # --- connections

    def _submit(self, outgoing: UnsentRequest, now: float) -> Outcomes:
        endpoint = outgoing.endpoint or self.lock.run(self.core.cluster.pick, now)
        channel = self._channels.get((outgoing.purpose, endpoint)) if endpoint is not None else None
        if channel is not None and not outgoing.use_new_connection:
            self._send(channel, outgoing.request, now)
            return []
        outcomes = self._give_up(channel) if channel is not None else []
        error = self.lock.run(self._obstacle, endpoint, now)
        if error is not None:
            return [*outcomes, (outgoing.request, NoResponse(error, called=False))]
        assert endpoint is not None
        self._send(self._open(outgoing.purpose, endpoint, now), outgoing.request, now)
        return outcomes

    def _send(self, channel: Channel, pending: PendingRequest, now: float) -> None:
        self._poller.reclaim(channel.watched)
        channel.connection.send(pending, now)
        channel.has_changed = True

    def _obstacle(self, endpoint: Endpoint | None, now: float) -> KohortError | None:
        """The reason why no connection is opened now; None if there is none."""
        endpoints, fatal = self.core.endpoints, self.core.fatal
        if endpoint is None:
            return endpoints.last_error or ConnectionFailed("no broker can be called now")
        if isinstance(fatal, AuthenticationFailed):
            # Counted as a failure without a connection, because too many failed logins lock an account.
            endpoints.failed(endpoint, fatal, now)
            return fatal
        if not endpoints.may_try(endpoint, now):
            return endpoints.last_error or ConnectionFailed("the broker is not called again yet", **endpoint.place)
        return None

    def _give_up(self, channel: Channel) -> Outcomes:
        """Close a channel without responses. It does not count as a failure of its broker."""
        error = ConnectionFailed(
            "the connection was closed after a request without a response", **channel.endpoint.place
        )
        outcomes = channel.connection.closed(error)
        self._forget(channel)
        with self.lock:
            self.core.counters.connections_ended += 1
        return outcomes

    def _open(self, line: ConnectionPurpose, endpoint: Endpoint, now: float) -> Channel:
        config = self.config
        with self.lock:
            self.core.counters.connections_opened += 1
            expected = self.core.cluster.expected(endpoint, again=endpoint in self._ended)
            names_identity = self.core.endpoints.reads_identity
        connection = BrokerConnection(
            endpoint=endpoint,
            client_id=config.client_id,
            max_frame_bytes=config.max_frame_bytes,
            setup_timeout_s=config.connection_setup_timeout_ms / 1000,
            opened_at=now,
            request_timeout_s=config.request_timeout_ms / 1000,
            ranges=self._ranges.get(endpoint),
            credentials=self._credentials,
            nonce=_nonce() if self._credentials is not None else "",
            tokens=self._tokens.window(endpoint.host) if self._tokens is not None else None,
            tape=self._tape.connection(str(endpoint)) if self._tape is not None else None,
            guard=self.lock,
            expected=expected,
            names_identity=names_identity,
        )
        channel = Channel(
            line,
            connection,
            FrameReader(config.max_frame_bytes),
            self._tls(),
            config.receive_buffer_bytes,
            config.send_buffer_bytes,
            responded=connection.ranges is not None,  # a broker has responded at this address before
        )
        self._channels[line, endpoint] = channel
        if wait_s := self._queue.enter(channel, partial(self._connect_later, channel)):
            channel.address_deadline = now + wait_s
        else:
            self._connect(channel)
        return channel

    def _connect(self, channel: Channel) -> None:
        found_at, found = self.lock.run(self._found_late.pop, channel.endpoint, (-inf, []))
        if self.now() - found_at < LATE_ADDRESSES_S:
            channel.found = found
        elif _family(channel.endpoint.host) is not None:  # there is no name to resolve
            self._resolve(channel)
        else:
            run_in_thread("kohort-resolver", self._resolve_elsewhere, channel)

    def _connect_later(self, channel: Channel) -> None:
        """As `_connect`, in a turn of any driver of this thread."""
        channel.address_deadline = inf
        self._connect(channel)
        self.wakeup()

    def _resolve_elsewhere(self, channel: Channel) -> None:
        self._resolve(channel)
        found = channel.found
        if isinstance(found, list) and channel.connection.stage is Stage.ENDED:
            # Otherwise no connection would be opened by a resolver that is slower than their time-out.
            self.lock.run(self._found_late.__setitem__, channel.endpoint, (self.now(), found))
        self.wakeup()

    def _tls(self) -> "ssl.SSLContext | None":
        notice = self._certificates.reload()
        if notice is not None:
            (log.info if notice.kind == "tls_files_renewed" else log.warning)("%s", notice.text)
            if self.on_notice is not None:
                self.lock.run(self.on_notice, notice)
        return self._certificates.context

    def _resolve(self, channel: Channel) -> None:
        endpoint = channel.endpoint
        try:
            channel.found = _addresses(endpoint)
        except (OSError, ValueError) as problem:  # a broker may name anything as host and port of another
            channel.found = ConnectionFailed(
                f"the host's name cannot be resolved: {getattr(problem, 'strerror', None) or problem}",
                hint="check bootstrap, or the broker's advertised.listeners",
                **endpoint.place,
            )

    def _look_after(self, channel: Channel, now: float) -> Outcomes:
        """Do a channel's work of a turn: resolved addresses, bytes to write, deadlines."""
        if (found := channel.found) is not None:  # another thread sets it, once
            channel.found = None
            if isinstance(found, KohortError):
                return self._end(channel, found)
            try:
                channel.resolved(_from(self._ended.get(channel.endpoint), found), now)
            except Ended as ended:
                return self._end(channel, ended.error)
        if channel.due_at <= now or channel.connection.is_removed or self._tokens is not None:
            try:
                error = channel.connection.overdue(now)
            except KohortError as refused:  # a token arrived, and the broker rejects the login
                return self._end(channel, refused)
            if error is not None:
                return self._end(channel, channel.unresolved() or error, timed_out=True)
            if channel.connection.is_late(now):
                self._update_late(channel.endpoint)
        try:
            if now >= channel.address_deadline and channel.sock is None:
                self._queue.wait_no_longer(channel)
            elif now >= channel.address_deadline:
                channel.call_next(ConnectionFailed("no response while connecting", **channel.endpoint.place), now)
            channel.write()
        except Ended as ended:
            return self._end(channel, ended.error)
        self._watch(channel)
        self._set_due(channel)
        channel.has_changed = False
        return channel.connection.settled()

    def _update_late(self, endpoint: Endpoint) -> None:
        """Request metadata from another broker, since a response of this one is late."""
        with self.lock:
            self.core.endpoints.late(endpoint)
            self.core.metadata.request_update()
        self._must_poll = True

    def _set_due(self, channel: Channel) -> None:
        connection = channel.connection
        channel.due_at = min(connection.deadline(), connection.late_at(), channel.address_deadline)

    def _on_event(self, channel: Channel, mask: int) -> Outcomes:
        now = self.now()
        outcomes: Outcomes = []
        first = not channel.received_any
        try:
            outcomes = channel.on_event(mask, now)
            channel.write()
        except Ended as ended:
            # Valid responses may precede the error that ended the connection, and their requests get no other outcome
            # (B-02).
            return outcomes + ended.outcomes + self._end(channel, ended.error)
        if outcomes and channel.connection.stage is Stage.READY and channel.connection.served:
            self._is_ready(channel)  # a listener with SASL also responds to ApiVersions
        if first and channel.received_any:
            self._queue.leave(channel)
        self._watch(channel)
        channel.has_changed = True
        return outcomes + channel.connection.settled()

    def _is_ready(self, channel: Channel) -> None:
        if channel.shares_ranges and channel.endpoint not in self._ranges and channel.connection.ranges is not None:
            self._ranges[channel.endpoint] = channel.connection.ranges
        with self.lock:
            self.core.endpoints.responded(channel.endpoint, self._ranges.get(channel.endpoint))
            self.core.endpoints.finalized(channel.connection.features)
        self._reported_tokenless = ""

    def _watch(self, channel: Channel) -> None:
        """Keep the selector's idea of a socket equal to the channel's, which may have closed and replaced it."""
        if channel.watched is channel.sock and channel.watched_events == channel.events:
            return
        if channel.watched is not None and channel.watched is not channel.sock:
            self._unwatch(channel)
        if channel.sock is None:
            return
        if channel.watched is None:
            self._poller.register(channel.sock, channel.events, (self, channel))
            channel.watched = channel.sock
        elif channel.watched_events != channel.events:
            self._poller.modify(channel.sock, channel.events, (self, channel))
        channel.watched_events = channel.events

    def _end(self, channel: Channel, error: KohortError, *, timed_out: bool = False) -> Outcomes:
        """Close a channel and complete the requests that waited for it."""
        connection = channel.connection
        was_ready = connection.stage is Stage.READY
        idle = was_ready and not connection.busy
        outcomes = connection.closed(error, timed_out=timed_out)
        outcomes += connection.settled()
        self._forget(channel)
        self._ranges.pop(channel.endpoint, None)
        self._ended[channel.endpoint] = channel.next_address or self._ended.get(channel.endpoint)
        for other in self._channels.values():
            if other.endpoint == channel.endpoint:
                other.shares_ranges = False  # another broker may have the address by now
        with self.lock:
            self.core.counters.connections_ended += 1
            if isinstance(error, AuthenticationFailed):
                self.core.fail(error)  # retries with rejected credentials could lock the account
            elif self._unreported(error, was_ready):
                self.core.put_error(error)  # a retry may fail in the same way, and the caller must learn of it
            first = not idle and self.core.endpoints.failed(channel.endpoint, error, self.now())
            if channel.line is ConnectionPurpose.GROUP and not outcomes:
                self.core.cluster.coordinator_lost(channel.endpoint, error)
            if channel.line is ConnectionPurpose.DATA:
                self.core.cluster.data_lost(channel.endpoint, self.now())
            if isinstance(error, RebootstrapRequired):
                self.core.cluster.rebootstrap(self.now())
            self.core.metadata.request_update()
        self._must_poll = True
        # A user with a wrong address sees why nothing comes, and a log is not filled by a broker that stays away.
        write = log.warning if first and not was_ready else log.info
        write("%s connection ended: %s", channel.line.value, error)
        return outcomes

    def _unreported(self, error: KohortError, was_ready: bool) -> bool:
        if isinstance(error, TokenUnavailable) and self.core.endpoints.ever_responded:
            reported, self._reported_tokenless = self._reported_tokenless, error.message
            return reported != error.message  # once for each reason in a row
        return was_ready and isinstance(error, FrameTooLarge | WireError)

    def _forget(self, channel: Channel) -> None:
        self._channels.pop((channel.line, channel.endpoint), None)
        self._queue.leave(channel)
        self._unwatch(channel)
        channel.close()

    def _unwatch(self, channel: Channel) -> None:
        watched, channel.watched = channel.watched, None
        if watched is None:
            return
        self._poller.unregister(watched)
        # It is closed after that: a forked child may have it, too, and epoll then keeps what was registered.
        if watched is not channel.sock:
            watched.close()


def _reentered() -> ConcurrentUseError:
    return ConcurrentUseError(
        "called from a signal handler while the client is in use",
        hint="in a handler call only wakeup(), or set a flag that the program looks at",
    )


def _credentials(config: ClientConfig) -> "Credentials | None":
    """None unless `security_protocol` requires SASL."""
    if not config.security_protocol.startswith("SASL"):
        return None
    from kohort.network.auth.sasl import Credentials

    return Credentials.of(config)


def _keeper(
    config: ClientConfig, credentials: "Credentials | None", wall_ms: Callable[[], int]
) -> "TokenRefresher | TicketCache | None":
    """Of what the mechanism shows to brokers, where that has to be fetched."""
    if credentials is None or not credentials.needs_token:
        return None
    if credentials.mechanism == "GSSAPI":
        from kohort.network.auth import gssapi, kerberos_tickets

        patience_s, keeps = config.connection_setup_timeout_ms / 1000, config.sasl_kerberos_keytab is not None
        return gssapi.TicketCache(partial(kerberos_tickets.fetch, config), patience_s, chance, keeps)
    from kohort.network.auth import oauth_tokens
    from kohort.network.auth import token_refresh as tokens

    source = partial(oauth_tokens.fetch, config, wall_ms)
    return tokens.TokenRefresher(config.sasl_oauth_timeout_ms / 1000, chance, source)


def run_in_thread(name: str, work: Callable[..., None], *given: object) -> None:
    """Run `work` on a new thread, or on this one if no thread can be started, as at the interpreter's end."""
    try:
        threading.Thread(target=work, args=given, name=name, daemon=True).start()
    except RuntimeError:
        work(*given)


def _tape(path: str, started: float) -> "Tape":
    from kohort.network.tape_writer import Tape

    return Tape(path, started)


def _nonce() -> str:
    import secrets  # for SASL only

    return secrets.token_urlsafe(24)


def _family(host: str) -> int | None:
    """The family of an address; None for a name."""
    for family in (socket.AF_INET, socket.AF_INET6):
        with contextlib.suppress(OSError, ValueError):
            socket.inet_pton(family, host)
            return int(family)
    return None


def _from(first: Address | None, addresses: list[Address]) -> list[Address]:
    """The addresses in their order, from `first` on if it is one of them, and then the others."""
    at = addresses.index(first) if first in addresses else 0
    return addresses[at:] + addresses[:at]


def _addresses(endpoint: Endpoint) -> list[Address]:
    family = _family(endpoint.host)
    if family is not None and 0 <= endpoint.port <= MOST_PORT:  # a broker may name any port
        return [(family, (endpoint.host, endpoint.port))]
    # A name in bytes is not passed through IDNA, whose tables ASCII names do not need.
    host = endpoint.host.encode() if endpoint.host.isascii() else endpoint.host
    found = socket.getaddrinfo(host, endpoint.port, type=socket.SOCK_STREAM)
    return [(int(family), address) for family, _kind, _protocol, _name, address in found]
