"""Everything a consumer is, but its sockets, thread and clock: the parts, and what each tells the others.

The driver's thread calls `turn` after whatever happened, and sends what it owes; the caller's thread calls the rest.
Both hold the driver's lock meanwhile, and neither does anything slow here: no I/O, no decoding, no user code.

A turn goes in the order in which things depend on each other: the group's machine, the assignment that it left us with,
metadata, offsets, commits, fetches.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Set
from concurrent.futures import Future
from typing import Any

from kohort.assignors import Assignor
from kohort.coordinator_client.commits import BEFORE_TOPIC_IDS as COMMITS_BEFORE_TOPIC_IDS
from kohort.coordinator_client.commits import NOT_THE_COORDINATOR, Commit, Committer, plain
from kohort.coordinator_client.config import Config, split_address
from kohort.coordinator_client.connections import Answered, Ask, Endpoint, NotSent, Outcome, Unanswered
from kohort.coordinator_client.endpoints import Endpoints
from kohort.coordinator_client.errors import (
    AuthenticationFailed,
    CommitRewind,
    ConnectionFailed,
    IllegalState,
    RebalanceInProgress,
    TlsError,
)
from kohort.coordinator_client.events import (
    ANSWERS,
    CloseRequested,
    CommitRefused,
    CommitSettled,
    Disconnected,
    Event,
    HookDone,
    HookStarted,
    Identity,
    OffsetToCommit,
    Polled,
    PollEnded,
    RebalanceEnforced,
    Refused,
    Subscribed,
    Unsubscribed,
)
from kohort.coordinator_client.fetching import Fetcher, FetchOrder, recreated
from kohort.coordinator_client.fit import fit
from kohort.coordinator_client.health import Health, judged
from kohort.coordinator_client.hooks import Assigned, HookCall, Revoked
from kohort.coordinator_client.member import GroupMember
from kohort.coordinator_client.metadata import NO_TOPIC_ID
from kohort.coordinator_client.metrics import Counters
from kohort.coordinator_client.offsets import CommitBook, Positions
from kohort.coordinator_client.outgoing import Line, Outgoing, Turn
from kohort.coordinator_client.questions import Questions
from kohort.coordinator_client.ready import Coordinator, MemberView, Send, WantedTopics
from kohort.coordinator_client.refresh import MetadataKeeper
from kohort.coordinator_client.refusals import UNKNOWN_TOPIC, group_error, topic_error
from kohort.coordinator_client.resets import Gap, ResetPolicy
from kohort.coordinator_client.retry import FRESH, Backoff
from kohort.coordinator_client.settings import MemberSettings
from kohort.coordinator_client.slices import Slice
from kohort.coordinator_client.states import MemberState
from kohort.coordinator_client.subscription import Assignment, PauseMarks, Subscription
from kohort.fastpath import KohortError, TopicPartition
from kohort.protocol.apis.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from kohort.protocol.apis.metadata import MetadataResponse

log = logging.getLogger("kohort.consumer")

WARNINGS = frozenset(
    {"poll_stalling", "poll_stalled", "commit_dropped", "commit_late", "commit_refused", "lost", "fatal"}
)

UNKNOWN_TOPIC_GRACE_S = 5.0  # a topic made a moment ago may not be known to every broker yet
RETRIED_COORDINATOR = frozenset({14, 15, 16})


class Core:
    """See the module. `chance`: a source of numbers in [0, 1); `notify`: called when the caller's poll should look."""

    def __init__(
        self, config: Config, assignors: tuple[Assignor, ...], *, chance: Callable[[], float], started: float
    ) -> None:
        self.config = config
        self.chance = chance
        self.backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self.endpoints = Endpoints(
            tuple(Endpoint(*split_address(address)) for address in config.bootstrap),
            Backoff(config.reconnect_backoff_ms, config.reconnect_backoff_max_ms),
            chance,
            rebootstrap=config.metadata_recovery_strategy == "rebootstrap",
        )
        self.keeper = MetadataKeeper(self.backoff, config.metadata_max_age_ms / 1000, config.allow_auto_create_topics)
        self.positions = Positions(ResetPolicy.of(config.auto_offset_reset))
        self.fetcher = Fetcher(config)
        self.book = CommitBook(config.auto_commit_interval_ms / 1000 if config.enable_auto_commit else None)
        self.committer = Committer(config.group or "", self.backoff)
        self.marks = PauseMarks()
        self.subscription: Subscription | None = None
        self.member: GroupMember | None = None
        self.view: MemberView | None = None
        self.visible: frozenset[TopicPartition] = frozenset()
        self.last_timestamps: dict[TopicPartition, int] = {}
        self.notices: deque[Any] = deque(maxlen=1_000)
        self.news = False
        self._assignors = assignors
        self._started = started
        self._manual = Assignment()
        self._hook: HookCall | None = None
        self._hook_taken = -1
        self._caller_events: list[Event] = []
        self._socket_events: list[Event] = []
        self.questions = Questions(self)
        self.counters = Counters()
        self._done_callbacks: deque[Callable[[], None]] = deque()
        self._outgoing: list[Outgoing] = []
        self._errors: deque[KohortError] = deque()
        self._fatal: KohortError | None = None
        self._told_missing: set[str] = set()
        self._missing_since: dict[str, float] = {}
        self._topic_ids: dict[str, object] = {}
        self._coordinator: Coordinator | None = None
        self._looking = False
        self._look_attempts = FRESH
        self._aligned: Assignment | None = None
        self._allowed: frozenset[TopicPartition] = frozenset()
        self.wall_ms = 0
        self._closing = False

    # ------------------------------------------------------------------ the driver's side

    def turn(self, now: float, wall_ms: int) -> Turn:
        """Look at everything that happened; what is to be sent comes out."""
        self.wall_ms = wall_ms
        wakes = self._step_member(now)
        self._align()
        self._owe_metadata(now)
        self._owe_coordinator(now)
        self.questions.turn(now)
        self._owe_commits(now)
        self._owe_fetches(now)
        if self._socket_events:
            wakes.append(now)  # something settled at once, and the machine wants to hear of it
        wakes += [
            self.keeper.wakes(),
            self.positions.next_attempt(),
            self.fetcher.next_attempt(),
            self.committer.wakes(),
            self.endpoints.next_try() if self._starving(now) else None,
            self.book.wakes() if self._assignment else None,
            self._look_attempts.not_before if self._look_attempts.failures else None,
            *self.questions.wakes(),
            *(since + UNKNOWN_TOPIC_GRACE_S for since in self._missing_since.values()),
            self._bootstrap_limit(),
        ]
        outgoing, self._outgoing = tuple(self._outgoing), []
        # A time that has passed without work being owed is waited for no longer: else the driver would spin.
        later = [wake for wake in wakes if wake is not None and wake > now]
        if self._socket_events:
            return Turn(outgoing, now)
        return Turn(outgoing, min(later, default=None))

    def _starving(self, now: float) -> bool:
        return self.endpoints.pick(self._known(), now) is None

    def _bootstrap_limit(self) -> float | None:
        if self.endpoints.ever_answered or self._fatal is not None:
            return None
        return self._started + self.config.bootstrap_timeout_ms / 1000

    # --- the group's machine

    def _step_member(self, now: float) -> list[float | None]:
        if self.member is None:
            self.committer.judge(None, now, self.chance())
            self._caller_events.clear()
            self._socket_events.clear()
            return []
        # The caller acted on an older view, so its events go first.
        events = self._caller_events + self._socket_events
        self._caller_events, self._socket_events = [], []
        for event in events:
            self.member.step(event, now)
        ready = self.member.ready(now)
        if self.view is None or ready.view.state is not self.view.state or ready.hook != self._hook:
            self.news = True
        self.view = ready.view
        if ready.view.fatal is not None:
            self.news = True
        self.committer.judge(ready.view, now, self.chance())
        self._hook = ready.hook
        # Until its hook has run, what is to go is still ours, and the coordinator takes commits of it. Only where there
        # is none to take them must the caller not wait for one: the hook waits for the caller.
        hook_waits = ready.hook is not None and ready.hook.serial != self._hook_taken
        if hook_waits and ready.view.coordinator is None:
            self.committer.release_blocked(
                RebalanceInProgress("the group is rebalancing", hint="poll, then commit again what is still owned"), now
            )
        if ready.commit is not None:
            self._order_commit(ready.commit.serial, dict(ready.commit.offsets), ready.commit, now)
        for send in ready.sends:
            self._send(send)
        if self.subscription is not None:
            self.keeper.want(ready.wanted)
        for notice in ready.notices:
            self.notices.append(notice)
            log.log(logging.WARNING if notice.kind in WARNINGS else logging.INFO, "%s: %s", notice.kind, notice.text)
        return [ready.wake_at]

    def _send(self, send: Send) -> None:
        def done(outcome: Outcome, _now: float) -> None:
            match outcome:
                case Answered(value):
                    self._socket_events.append(ANSWERS[send.api](send.serial, value))
                case NotSent(error):
                    self._socket_events.append(Refused(send.serial, error))
                case Unanswered(error, timed_out):
                    node = send.to.node_id if send.to else None
                    self._socket_events.append(
                        Disconnected(send.serial, node, "timeout" if timed_out else error.message)
                    )

        request = send.request
        ask = Ask(send.api, lambda version: fit(request, version), done, send.timeout_ms / 1000)
        if send.to is None:
            self._ask_any(ask)
        else:
            line = Line.CONTROL if send.aside else Line.GROUP
            self._outgoing.append(Outgoing(line, Endpoint(send.to.host, send.to.port), ask))

    def _order_commit(self, serial: int, offsets: dict[TopicPartition, OffsetToCommit], order: Any, now: float) -> None:
        def finished(_error: KohortError | None) -> None:
            self._remember(commit.stored)
            self._socket_events.append(CommitSettled(serial, dict(commit.refused)))

        commit = Commit(offsets, {}, order.deadline, finished, identity=order.identity, order=serial)
        self.committer.put(commit)

    def coordinator_lost(self, endpoint: Endpoint, error: KohortError) -> None:
        """A coordinator's connection ended while nothing was waiting for an answer: that is news too."""
        view = self.view
        if view is not None and view.coordinator is not None and _endpoint(view.coordinator) == endpoint:
            self._socket_events.append(Disconnected(None, view.coordinator.node_id, error.message))
        if self._coordinator is not None and _endpoint(self._coordinator) == endpoint:
            self._coordinator = None

    # --- what is assigned

    @property
    def _assignment(self) -> Assignment:
        if self.subscription is not None or (self.member is not None and not self._manual):
            return self.view.assignment if self.view is not None else Assignment()
        return self._manual

    def _align(self) -> None:
        """Make positions follow the assignment: what left is forgotten, what came begins."""
        assignment = self._assignment
        if assignment is not self._aligned:
            before = self._aligned or Assignment()
            self._aligned = assignment
            for partition in [one for one in self.positions if _moved(one, before, assignment)]:
                self.positions.drop(partition)
                self.fetcher.forget(partition)
                self.book.drop(partition)
                self.last_timestamps.pop(partition, None)
            for partition, owned in assignment.items():
                if partition not in self.positions:
                    self.positions.assign(
                        partition, start=owned.start, has_group=self.config.group is not None, wall_ms=self.wall_ms
                    )
                elif owned.start is not None and before.get(partition) != owned:
                    self.positions.seek(partition, owned.start)
                    self.fetcher.drop(partition)
            self.news = True
        self.refresh_allowed()
        for topic in {partition.topic for partition in assignment}:
            self._watch_topic_id(topic)

    def refresh_allowed(self) -> None:
        """After marks or the view changed: which partitions are fetched and shown."""
        assignment = self._assignment
        fetchable = self.view.fetchable if self.view is not None and assignment is not self._manual else assignment
        paused = self.marks.paused(assignment)
        self._allowed = frozenset(one for one in fetchable if one not in paused)

    def _watch_topic_id(self, topic: str) -> None:
        now_id = self.keeper.view.topic_id(topic)
        if now_id == NO_TOPIC_ID:
            return
        before = self._topic_ids.setdefault(topic, now_id)
        if before == now_id:
            return
        self._topic_ids[topic] = now_id
        for partition in [one for one in self.positions if one.topic == topic]:
            state = self.positions.state(partition)
            if state.offset >= 0:
                self.fetcher.drop(partition)
                self.positions.fail(partition, recreated(partition, before, now_id, state.offset))
                self.news = True

    # --- metadata

    def _known(self) -> list[Endpoint]:
        return [Endpoint(broker.host, broker.port) for broker in self.keeper.view.brokers.values()]

    def _ask_any(self, ask: Ask) -> None:
        self._outgoing.append(Outgoing(Line.CONTROL, None, ask))

    def pick(self, now: float) -> Endpoint | None:
        """An address for a request to any broker."""
        return self.endpoints.pick(self._known(), now)

    def _owe_metadata(self, now: float) -> None:
        if self._bootstrap_failed(now):
            return
        if self._starving(now):
            return
        request = self.keeper.owed(now)
        if request is None:
            return

        def done(outcome: Outcome, when: float) -> None:
            if isinstance(outcome, Answered):
                self._metadata_answered(outcome.value, when)
                return
            self.keeper.failed(when, self.chance())
            if isinstance(outcome, NotSent):
                self.fail(outcome.error)

        self._ask_any(Ask("Metadata", request, done, self.config.request_timeout_ms / 1000))

    def _metadata_answered(self, answer: MetadataResponse, now: float) -> None:
        changed = self.keeper.answered(answer, now, self.chance())
        if self.member is not None:
            self._socket_events.append(changed)
        self._tell_missing(now)

    def _tell_missing(self, now: float) -> None:
        """A topic that the user named and that is not there: said once, after it had time to appear."""
        named = self._named_topics()
        refused = self.keeper.view.refused
        missing = {name for name in named if name in refused}
        for name in set(self._missing_since) - missing:
            del self._missing_since[name]
            self._told_missing.discard(name)
        for name in missing - self._told_missing:
            code = refused[name]
            since = self._missing_since.setdefault(name, now)
            if code == UNKNOWN_TOPIC and now - since < UNKNOWN_TOPIC_GRACE_S:
                continue
            self._told_missing.add(name)
            self._errors.append(topic_error(name, code))
            self.news = True

    def _named_topics(self) -> frozenset[str]:
        if self.subscription is not None:
            return self.subscription.topics
        return frozenset(partition.topic for partition in self._manual)

    def _bootstrap_failed(self, now: float) -> bool:
        if self._fatal is not None:
            return True
        error = self.endpoints.last_error
        if self.endpoints.ever_answered or error is None:
            return False
        certain = isinstance(error, TlsError | AuthenticationFailed)
        if certain or now - self._started >= self.config.bootstrap_timeout_ms / 1000:
            self.fail(error)
            return True
        return False

    def fail(self, error: KohortError) -> None:
        self._fatal = error
        self.news = True
        self.questions.fail(error)

    # --- the coordinator, where there is no membership that looks for it

    def coordinator(self) -> Coordinator | None:
        if self.view is not None and self.view.coordinator is not None:
            return self.view.coordinator
        return self._coordinator

    def _owe_coordinator(self, now: float) -> None:
        needed = len(self.committer) or self.questions.needs_coordinator or self.positions.needs_committed
        if not needed or self.config.group is None or self.coordinator() is not None or self._looking:
            return
        if self.view is not None and self.view.state not in (MemberState.OUT, MemberState.FAILED, MemberState.CLOSED):
            return  # the machine is looking
        if not self._look_attempts.may_try(now) or self._starving(now):
            return
        self._looking = True
        group = self.config.group
        request = FindCoordinatorRequest(key=group, key_type=0, coordinator_keys=(group,))

        def done(outcome: Outcome, when: float) -> None:
            self._looking = False
            if isinstance(outcome, Answered) and self._found(outcome.value):
                self._look_attempts = FRESH
                return
            if isinstance(outcome, NotSent):
                self.fail(outcome.error)
            self._look_attempts = self._look_attempts.failed(when, self.backoff, self.chance())

        ask = Ask("FindCoordinator", lambda version: fit(request, version), done, self.config.request_timeout_ms / 1000)
        self._ask_any(ask)

    def _found(self, answer: FindCoordinatorResponse) -> bool:
        one = answer.coordinators[0] if answer.coordinators else answer
        if one.error_code:
            if one.error_code not in RETRIED_COORDINATOR:
                self.fail(group_error(one.error_code, self.config.group))
            return False
        self._coordinator = Coordinator(one.node_id, one.host, one.port)
        return True

    def coordinator_gone(self) -> None:
        """It said that it is not, or was not reached: look again."""
        self._coordinator = None

    def tell_member(self, event: Event) -> None:
        """Something that came from a broker, for the group's machine."""
        if self.member is not None:
            self._socket_events.append(event)

    # --- asking a broker

    def send(self, line: Line, endpoint: Endpoint, ask: Ask) -> None:
        self._outgoing.append(Outgoing(line, endpoint, ask))

    @property
    def request_s(self) -> float:
        return self.config.request_timeout_ms / 1000

    def ask_node(self, node: int, line: Line, ask: Ask, now: float = 0.0) -> None:
        broker = self.keeper.view.brokers.get(node)
        if broker is None:
            ask.done(Unanswered(ConnectionFailed("the broker is not known any more", node=node)), now)
            return
        self._outgoing.append(Outgoing(line, Endpoint(broker.host, broker.port), ask))

    # --- commits

    def _owe_commits(self, now: float) -> None:
        self.committer.expire(now)
        due = self.book.due(now)
        if due and not self._closing:
            self.commit(due, deadline=now + self.config.default_api_timeout_ms / 1000)
        coordinator = self.coordinator()
        if coordinator is None:
            return
        outside = Identity(self.config.group or "", instance_id=None)
        request = self.committer.owed(self.view if self.subscription else None, outside, now)
        if request is None:
            return

        def done(outcome: Outcome, when: float) -> None:
            match outcome:
                case Answered(value):
                    sent = self.committer.in_flight.sent if self.committer.in_flight else None
                    refused = self.committer.answered(value)
                    if set(refused) & NOT_THE_COORDINATOR:
                        self._coordinator = None
                    if self.member is not None and sent is not None:
                        self._socket_events.extend(
                            CommitRefused(code, sent, partitions) for code, partitions in refused.items()
                        )
                case NotSent(error):
                    self.committer.not_sent(error, when)
                case Unanswered():
                    self._coordinator = None
                    self.committer.unanswered(when, self.chance())

        ask = Ask("OffsetCommit", request, done, self.request_s, COMMITS_BEFORE_TOPIC_IDS)
        self._outgoing.append(Outgoing(self.offsets_line, _endpoint(coordinator), ask))

    @property
    def offsets_line(self) -> Line:
        """How commits, and questions about them, go to the coordinator: by its own connection, unless a join waits
        there. Brokers read nothing behind a request that they have not answered, and a join may take minutes."""
        joining = self.view is not None and self.view.state is MemberState.JOINING
        return Line.CONTROL if joining else Line.GROUP

    def _remember(self, stored: Mapping[TopicPartition, OffsetToCommit]) -> None:
        for partition, found in stored.items():
            self.book.known(partition, found.offset)

    # --- fetches

    def _owe_fetches(self, now: float) -> None:
        self.fetcher.trim(lambda partition: partition not in self._allowed)
        for order in self.fetcher.owed(
            self.positions, self.keeper.view, lambda partition: partition in self._allowed, now
        ):
            self._ask_fetch(order, now)

    def _ask_fetch(self, order: FetchOrder, now: float) -> None:
        def done(outcome: Outcome, when: float) -> None:
            self.counters.fetches += 1
            if not isinstance(outcome, Answered):
                self.counters.fetch_failures += 1
                self.fetcher.failed(order.node, now=when, chance=self.chance())
                self.keeper.stale()
                if isinstance(outcome, NotSent):
                    self.fail(outcome.error)
                return
            result = self.fetcher.answered(
                order.node, outcome.value, self.positions, now=when, wall_ms=self.wall_ms, chance=self.chance()
            )
            self.counters.fetched_bytes += result.parked_bytes
            self.keeper.view = self.keeper.view.with_brokers(result.brokers)
            for partition, leader, epoch in result.leaders:
                self.keeper.view = self.keeper.view.with_leader(partition, leader, epoch)
            if result.stale:
                self.keeper.stale()
            self.news = True

        timeout_s = self.request_s + self.config.fetch_max_wait_ms / 1000
        self.ask_node(order.node, Line.DATA, Ask("Fetch", order.request, done, timeout_s, order.at_most), now)

    # ------------------------------------------------------------------ the caller's side

    def subscribe(self, subscription: Subscription, now: float) -> None:
        if self.config.group is None:
            raise IllegalState("subscribing needs a group", hint='Consumer(..., group="..."), or assign()')
        if self._manual:
            raise IllegalState("partitions are assigned by hand", hint="unsubscribe() first")
        if self.member is None:
            self.member = GroupMember(self._member_settings(), self._assignors)
        self.subscription = subscription
        self.marks = self.marks.resubscribed(subscription)
        self._told_missing.clear()
        self._missing_since.clear()
        self._caller_events.append(Subscribed(subscription))

    def _member_settings(self) -> MemberSettings:
        config = self.config
        return MemberSettings(
            group_id=config.group or "",
            instance_id=config.group_instance_id,
            rack_id=config.rack,
            session_timeout_ms=config.session_timeout_ms,
            heartbeat_interval_ms=config.heartbeat_interval_ms,
            max_poll_interval_ms=config.max_poll_interval_ms,
            request_timeout_ms=config.request_timeout_ms,
            retry_backoff_ms=config.retry_backoff_ms,
            retry_backoff_ms_max=config.retry_backoff_max_ms,
            jitter=self.chance(),
            exclude_internal_topics=config.exclude_internal_topics,
        )

    def unsubscribe(self) -> None:
        if self.subscription is not None:
            self.subscription = None
            self._caller_events.append(Unsubscribed())
        self._manual = Assignment()
        self.marks = self.marks.resubscribed(None)
        self.keeper.want(WantedTopics())
        if self.member is None:
            self.visible = frozenset()

    def assign(self, partitions: frozenset[TopicPartition], starts: Mapping[TopicPartition, int]) -> None:
        if self.subscription is not None:
            raise IllegalState("this consumer is subscribed", hint="unsubscribe() first")
        self._manual = self._manual.replaced(partitions).started(starts)
        self.visible = partitions
        self.marks = self.marks.kept_on(partitions)
        self.keeper.want(WantedTopics(frozenset(partition.topic for partition in partitions)))
        self._align()  # now, not at the next turn: a seek may follow at once

    @property
    def owes_loss(self) -> bool:
        """Whether the next hook, `on_lost`, is certain but not here yet."""
        return self.view is not None and self.view.state is MemberState.STALLED

    def polled(self, now: float, *, handled: bool) -> None:
        self._caller_events = [event for event in self._caller_events if not isinstance(event, Polled)]
        self._caller_events.append(Polled(now))
        self.counters.polls += 1
        if handled and self.config.enable_auto_commit:
            self.book.returned(self.positions.snapshot())

    def poll_ended(self, now: float) -> None:
        self._caller_events = [event for event in self._caller_events if not isinstance(event, PollEnded)]
        self._caller_events.append(PollEnded(now))

    def enforce_rebalance(self, reason: str) -> None:
        if self.subscription is None:
            raise IllegalState("not subscribed")
        self._caller_events.append(RebalanceEnforced(reason))

    def commit_on_close(self, deadline: float) -> None:
        """What is handled and not committed, of a manual assignment; a member commits when it lets go."""
        unsaved = self.book.unsaved()
        if self.subscription is None and unsaved:
            self.commit(unsaved, deadline=deadline)

    def request_close(self, deadline: float) -> None:
        self._closing = True
        if self.member is not None:
            self._caller_events.append(CloseRequested(deadline))

    @property
    def out(self) -> bool:
        """Whether nothing of a subscription is left."""
        settled = (MemberState.OUT, MemberState.CLOSED, MemberState.FAILED)
        queued = any(isinstance(event, Unsubscribed) for event in self._caller_events)
        return self.member is None or (self.view is not None and self.view.state in settled and not queued)

    @property
    def left(self) -> bool:
        """Whether the group's machine has ended."""
        if self._fatal is not None and not self.endpoints.ever_answered:
            return True
        member_ended = self.member is None or (self.view is not None and self.view.state is MemberState.CLOSED)
        return member_ended and not len(self.committer)

    # --- hooks

    def take_hook(self, now: float) -> HookCall | None:
        """The hook call that is due, taken: `hook_done` must follow."""
        call = self._hook
        if call is None or call.serial == self._hook_taken:
            return None
        self._hook_taken = call.serial
        self.counters.hooks += 1
        self._caller_events.append(HookStarted(call.serial, now))
        self.visible = call.before
        self.marks = self.marks.settled(call)
        self.refresh_allowed()
        return call

    def hook_done(self, call: HookCall, answer: object, error: BaseException | None, now: float) -> None:
        """The user's hook is over. Raises what is wrong with its answer, after the machine was told."""
        commit: dict[TopicPartition, OffsetToCommit] = {}
        start: dict[TopicPartition, int] = {}
        wrong: BaseException | None = None
        if isinstance(call.event, Revoked):
            commit = {one: to for one, to in self.book.unsaved().items() if one in call.event.partitions}
        if error is None and answer is not None:
            try:
                given = _answered(call, answer)
            except (TypeError, ValueError, KohortError) as problem:
                wrong = problem
            else:
                if isinstance(call.event, Revoked):
                    commit |= given
                elif isinstance(call.event, Assigned):
                    start = {partition: to.offset for partition, to in given.items()}
        self.visible = call.after
        self._caller_events.append(HookDone(call.serial, now, commit, start, error or wrong))
        if wrong is not None:
            raise wrong

    # --- seeing

    def health(self, now: float, *, crashed: bool) -> Health:
        """How this consumer is."""
        view = self.view
        state = view.state if view is not None else None
        for_s = max(now - view.since, 0.0) if view is not None and view.since > 0 else 0.0
        error = self._fatal or (view.fatal if view is not None else None)
        reason = judged(
            state=state,
            for_s=for_s,
            rebalance_timeout_s=self.config.max_poll_interval_ms / 1000,
            crashed=crashed,
            error=error,
            unreachable=self.endpoints.last_error if self._starving(now) or not self.endpoints.ever_answered else None,
        )
        coordinator = self.coordinator()
        beat = view.last_beat_at if view is not None else None
        return Health(
            healthy=not reason,
            reason=reason,
            state=state.value if state is not None else "assigned by hand",
            for_s=for_s,
            generation=view.identity.generation if view is not None else -1,
            member_id=view.identity.member_id if view is not None else "",
            owned=self.visible,
            coordinator=f"{coordinator.host}:{coordinator.port}" if coordinator is not None else None,
            last_heartbeat_s=None if beat is None else max(now - beat, 0.0),
            error=error,
        )

    def metrics(self) -> dict[str, int]:
        """Counters, and gauges of now."""
        rebalances = self.member.timeline.rebalances if self.member is not None else ()
        return {
            **self.counters.as_mapping(),
            "rebalances_kept": len(rebalances),
            "assigned_partitions": len(self.visible),
            "paused_partitions": len(self.marks.paused(self.visible)),
            "parked_bytes": self.fetcher.parked.total_bytes,
            "fetches_in_flight": self.fetcher.in_flight,
            "commits_waiting": len(self.committer),
        }

    # --- records

    def take_slice(self, now: float, seen: Set[TopicPartition]) -> Slice | None:
        """The next slice to decode, of a partition that is not in `seen`; none once membership is uncertain."""
        if self.view is not None and self.subscription is not None and now >= self.view.lease_until:
            return None
        return self.fetcher.take(self.positions, lambda partition: partition in self._allowed and partition not in seen)

    def delivered(self, slice_: Slice, next_offset: int, count: int, timestamp_ms: int | None) -> bool:
        """A decoded slice goes to the user; False if it must not (something moved meanwhile)."""
        partition = slice_.partition
        if partition not in self._allowed:
            return False
        if not self.positions.consumed(partition, slice_.serial, next_offset, slice_.leader_epoch):
            return False
        self.counters.slices += 1
        self.counters.records += count
        if timestamp_ms is not None:
            self.last_timestamps[partition] = timestamp_ms
        return True

    def refetch(self, partition: TopicPartition) -> None:
        """A slice could not be decoded: what follows it is given up, and fetched again from the position."""
        self.fetcher.drop(partition)
        self.positions.void(partition)

    def take_error(self) -> KohortError | None:
        """The next error to raise from poll: fatal ones every time."""
        if self._fatal is not None:
            return self._fatal
        if self.view is not None and self.view.fatal is not None and self.subscription is not None:
            return self.view.fatal
        if self._errors:
            return self._errors.popleft()
        return self.positions.take_error()

    def put_error(self, error: KohortError) -> None:
        """Have the next poll raise it."""
        self._errors.append(error)
        self.news = True

    @property
    def fatal(self) -> KohortError | None:
        return self._fatal

    def take_gaps(self) -> list[Gap]:
        gaps = self.positions.take_gaps()
        self.counters.resets += len(gaps)
        for gap in gaps:
            level = logging.INFO if gap.wanted is None else logging.WARNING
            log.log(level, "%s: reading at %d instead of %s: %s", gap.partition, gap.start, gap.wanted, gap.reason)
        return gaps

    def take_callback(self) -> Callable[[], None] | None:
        return self._done_callbacks.popleft() if self._done_callbacks else None

    # --- pausing

    def pause(self, partitions: frozenset[TopicPartition] | None, topics: tuple[str, ...], pattern: str | None) -> None:
        """Lay marks; nothing given: on everything."""
        marks = self.marks
        if partitions is None and not topics and pattern is None:
            marks = marks.pause_all()
        if partitions is not None:
            marks = marks.pause(partitions, self.visible)
        if topics:
            marks = marks.pause_topics(topics, self.subscription)
        if pattern is not None:
            marks = marks.pause_pattern(pattern, self.subscription)
        self._mark(marks)

    def resume(
        self, partitions: frozenset[TopicPartition] | None, topics: tuple[str, ...], pattern: str | None
    ) -> None:
        marks = self.marks
        if partitions is None and not topics and pattern is None:
            marks = marks.resume_all()
        if partitions is not None:
            marks = marks.resume(partitions)
        if topics:
            marks = marks.resume_topics(topics)
        if pattern is not None:
            marks = marks.resume_pattern(pattern)
        self._mark(marks)

    def hold(self, partitions: frozenset[TopicPartition]) -> None:
        self._mark(self.marks.hold(partitions))

    def release(self, partitions: frozenset[TopicPartition]) -> None:
        self._mark(self.marks.release(partitions))

    def _mark(self, marks: PauseMarks) -> None:
        self.marks = marks
        self.refresh_allowed()
        self.news = True

    # --- positions

    def position(self, partition: TopicPartition) -> tuple[int | None, KohortError | None]:
        """(offset or None while it is being found out, the error that keeps it from being found)."""
        if partition not in self.positions and partition in self._assignment:
            return None, self._fatal
        return self.positions.known_position(partition), self._fatal

    def known_ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The logs' ends as fetches have told them."""
        stable = self.config.isolation_level == "read_committed"
        ends = {one: self.fetcher.ends[one] for one in partitions if one in self.fetcher.ends}
        return {
            one: end.last_stable if stable and end.last_stable >= 0 else end.high_watermark for one, end in ends.items()
        }

    @property
    def identity(self) -> Identity:
        """Who this consumer is to its group."""
        if self.config.group is None:
            raise IllegalState("there is no group", hint='Consumer(..., group="...")')
        if self.view is not None:
            return self.view.identity
        return Identity(self.config.group, instance_id=self.config.group_instance_id)

    def seek(self, partition: TopicPartition, offset: int, epoch: int = -1) -> None:
        self.positions.seek(partition, offset, epoch)
        self.fetcher.drop(partition)

    def seek_by_time(self, partition: TopicPartition, timestamp: int) -> None:
        self.positions.seek_by_time(partition, timestamp)
        self.fetcher.drop(partition)

    # --- commits

    def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetToCommit] | None,
        *,
        deadline: float,
        allow_rewind: bool = False,
        blocking: bool = False,
        on_done: Callable[[Mapping[TopicPartition, OffsetToCommit], KohortError | None], None] | None = None,
    ) -> "Future[None]":
        """Queue a commit; the future ends when it is settled. None: all positions, as far as poll has returned."""
        future: Future[None] = Future()
        future.set_running_or_notify_cancel()
        if self.config.group is None:
            raise IllegalState("committing needs a group", hint='Consumer(..., group="...")')
        wanted = self.positions.snapshot() if offsets is None else plain(offsets.items())
        wanted = {partition: self._with_epoch(partition, to) for partition, to in wanted.items()}
        backwards = {} if allow_rewind else self.book.rewinds(wanted)
        if backwards:
            partition, committed = next(iter(backwards.items()))
            raise CommitRewind(
                f"the commit of {wanted[partition].offset} would go back behind {committed}",
                hint="commit(..., allow_rewind=True) if that is meant",
                topic=partition.topic,
                partition=partition.partition,
            )
        epochs = {partition: owned.epoch for partition, owned in self._assignment.items()}

        def finished(error: KohortError | None) -> None:
            self._remember(commit.stored)
            self.counters.commits += error is None
            self.counters.commits_refused += error is not None
            if on_done is not None:
                self._done_callbacks.append(lambda: on_done(wanted, error))
                self.news = True
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)

        commit = Commit(dict(wanted), epochs, deadline, finished, blocking=blocking)
        if not wanted:
            finished(None)
        elif self._fatal is not None:
            finished(self._fatal)
        else:
            self.committer.put(commit)
        return future

    def _with_epoch(self, partition: TopicPartition, to: OffsetToCommit) -> OffsetToCommit:
        # The epoch lets the next owner notice that the log behind this offset was cut (KIP-320).
        state = self.positions.get(partition)
        if to.leader_epoch >= 0 or state is None or state.offset != to.offset:
            return to
        return to._replace(leader_epoch=state.epoch)

    def unsaved(self) -> dict[TopicPartition, OffsetToCommit]:
        return self.book.unsaved()


def _endpoint(coordinator: Coordinator) -> Endpoint:
    return Endpoint(coordinator.host, coordinator.port)


def _moved(partition: TopicPartition, before: Assignment, after: Assignment) -> bool:
    was, now = before.get(partition), after.get(partition)
    return now is None or was is None or was.epoch != now.epoch


def _answered(call: HookCall, answer: object) -> dict[TopicPartition, OffsetToCommit]:
    if not isinstance(answer, Mapping):
        raise TypeError(f"a hook answers None or offsets by partition, not {answer!r}")
    given = plain(answer.items())
    allowed = call.before if isinstance(call.event, Revoked) else call.after
    for partition in given:
        if partition not in allowed:
            raise IllegalState(
                "the hook answered for a partition that is not owned",
                topic=partition.topic,
                partition=partition.partition,
            )
    return given
