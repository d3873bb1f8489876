"""One member of one group, speaking the classic protocol (JoinGroup, SyncGroup, Heartbeat), as a pure machine.

Two verbs: `step(event, now)` takes in what happened, `ready(now)` gives out what is to be done. There is no socket, no
thread, no clock and no chance in here, so the same code runs under the driver, under a scripted coordinator in tests
and under a simulator, and every run of it can be repeated.

How to read it. `step` only records: it finds the handler of the event, which draws conclusions (a `Trigger`) and walks
(`_go`). Whatever is due because of the state and the time is found by one pass (`_advance`) in `ready`: the `_turn__*`
methods, one a state that acts by itself. So no handler needs to remember to send something: being in JOINING is what
makes a join go out, whoever brought us there.

What keeps it from the classic troubles of group clients:

* Generation and member id live here and nowhere else, and every request in flight is remembered with the identity it
  was sent under. An answer to a request that is not waited for any more is dropped; an expulsion is believed only if it
  speaks of the identity we still have. (A generation reset while a join was in flight is how members of other clients
  rejoin for ever.)
* One intention (`_then`) says what follows when everything is let go: join, take what arrived, leave, or stop. A close
  or a fatal error that comes in the middle changes the intention, not the walk.
* At most one hook call is due, and while it runs the machine does not leave its state but by loss or stall; so hooks
  come in the order in which things happened, each before its consequences.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from enum import Enum, auto
from math import inf
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kohort.assignors import Assignor, Rebalance
from kohort.coordinator_client import events as ev
from kohort.coordinator_client import leading, reconcile, requests
from kohort.coordinator_client.events import Identity, OffsetToCommit, TopicInfo
from kohort.coordinator_client.hooks import Assigned, Cause, HookCall, HookEvent, Lost, Revoked, Why
from kohort.coordinator_client.pulse import Pulse
from kohort.coordinator_client.reactions import REACTIONS, GroupProtocolError, Reaction, fatal_error
from kohort.coordinator_client.ready import CommitOrder, Coordinator, MemberView, Notice, Ready, Send, WantedTopics
from kohort.coordinator_client.search import CoordinatorSearch
from kohort.coordinator_client.settings import CONSUMER_PROTOCOL_TYPE, MemberSettings
from kohort.coordinator_client.states import (
    COMMITS_HELD,
    HEARTBEATING,
    CoordinatorState,
    MemberState,
    Trigger,
    after,
)
from kohort.coordinator_client.subscription import Assignment, Subscription
from kohort.coordinator_client.timeline import Timeline
from kohort.fastpath.errors import KohortError, WireError
from kohort.fastpath.topic_partition import TopicPartition
from kohort.protocol.errors import error_name

if TYPE_CHECKING:
    from kohort.protocol.apis.sync_group import SyncGroupRequestAssignment

JOIN_GRACE_MS: Final = 5_000
"""A JoinGroup may wait this much longer than the rebalance timeout for its answer, as in Apache Kafka's client."""

ANSWER_GRACE_MS: Final = 2_000
"""Whoever sends our requests owes each of them an outcome within its timeout. After this much more we stop waiting, so
that not even a defect there makes a member wait for ever."""

_NOTHING: Final[frozenset[TopicPartition]] = frozenset()
_ENDS: Final = frozenset(
    {MemberState.STABLE, MemberState.OUT, MemberState.STALLED, MemberState.FAILED, MemberState.CLOSED}
)
_IN_GROUP: Final = HEARTBEATING | {MemberState.JOINING}


class _Then(Enum):
    """What follows when everything is let go."""

    JOIN = auto()
    TAKE = auto()
    LEAVE = auto()
    STOP = auto()


class _Asked(NamedTuple):
    """A request that is waited for."""

    api: str
    identity: Identity
    sent_at: float
    node_id: int | None
    overdue_at: float


class GroupMember:
    """The machine. `assignors`: at least one, in order of preference; all that this member offers in the vote.

    Raises `IllegalTransition` (a defect of ours) but no other error: what goes wrong is in `Ready.view.fatal`.
    """

    def __init__(self, settings: MemberSettings, assignors: Sequence[Assignor]) -> None:
        if not assignors:
            raise KohortError(
                "a group member needs an assignor", hint="name one, e.g. 'range'", group=settings.group_id
            )
        self.settings = settings
        self.mode = reconcile.mode_of(assignors)
        self.timeline = Timeline()
        self._assignors = {assignor.name: assignor for assignor in assignors}

        self._now = -inf
        self._state = MemberState.OUT
        self._since = -inf
        self._identity = Identity(settings.group_id, instance_id=settings.instance_id)
        self._search = CoordinatorSearch(settings)
        self._pulse = Pulse(settings)
        self._coordinator_wanted = False
        self._serial = 0
        self._asked: dict[int, _Asked] = {}
        self._join_on_wire: int | None = None  # also one that nobody waits for any more

        self._subscription: Subscription | None = None
        self._known: dict[str, TopicInfo] = {}
        self._looked_up: set[str] = set()  # asked for and answered, existing or not
        self._everything_known = False
        self._told: frozenset[str] = frozenset()  # topics of our pattern that the leader knew before our metadata did
        self._topics: frozenset[str] | None = None  # what the subscription means now; None: not known yet
        self._joined_topics: frozenset[str] = frozenset()

        self._assignment = Assignment()
        self._last_owned: frozenset[TopicPartition] = _NOTHING
        self._last_generation = -1
        self._held_generation = -1  # the last one we were in, for telling which one was lost
        self._arriving: frozenset[TopicPartition] = _NOTHING

        self._leader = False
        self._protocol: str | None = None
        self._said: dict[str, leading.Said] = {}
        self._group_topics: frozenset[str] = _NO_TOPICS
        self._snapshot: dict[str, leading.Shape] = {}
        self._members_before: frozenset[str] | None = None
        self._moved: tuple[str, ...] = ()  # topics that are not as they were when we assigned them
        self._plan_deadline = inf

        self._then = _Then.JOIN
        self._rejoin: Cause | None = None
        self._cause: Cause | None = None
        self._parting = ""
        self._join_failures = 0
        self._join_not_before = -inf
        self._leave_deadline = inf
        self._closing: float | None = None
        self._fatal: KohortError | None = None

        self._hook: HookCall | None = None
        self._hook_runs = False
        self._order: CommitOrder | None = None

        self._new_order: CommitOrder | None = None
        self._sends: list[Send] = []
        self._notices: list[Notice] = []
        self._fetchable_for: tuple[Assignment, HookCall | None, bool] = (self._assignment, None, False)
        self._fetchable_now: frozenset[TopicPartition] = _NOTHING

    # ------------------------------------------------------------------------------------------------- the two verbs

    def step(self, event: ev.Event, now: float) -> None:
        """Take in what happened at `now` (monotonic seconds)."""
        self._now = max(now, self._now)
        if self._join_on_wire is not None and getattr(event, "serial", None) == self._join_on_wire:
            self._join_on_wire = None
        if self._state is not MemberState.CLOSED:
            _HANDLERS[type(event)](self, event)

    def ready(self, now: float) -> Ready:
        """What is to be done at `now`. Drains: sends, notices and commit orders are given once."""
        self._now = max(now, self._now)
        self._advance()
        sends, self._sends = tuple(self._sends), []
        notices, self._notices = tuple(self._notices), []
        order, self._new_order = self._new_order, None
        return Ready(
            view=self.view(),
            hook=self._hook,
            commit=order,
            sends=sends,
            wanted=self._wanted(),
            notices=notices,
            wake_at=self._wake_at(),
        )

    def view(self) -> MemberView:
        """The member as it stands, without advancing it."""
        return MemberView(
            state=self._state,
            since=self._since,
            coordinator_state=self._search.state,
            coordinator=self._search.coordinator,
            identity=self._identity,
            leader=self._leader,
            protocol=self._protocol,
            assignment=self._assignment,
            fetchable=self._fetchable(),
            lease_until=self._pulse.lease_until if self._identity.generation >= 0 else inf,
            commits_open=self._state not in COMMITS_HELD,
            rejoin_wanted=self._rejoin is not None,
            last_beat_at=self._pulse.last_beat_at,
            cause=self._cause,
            fatal=self._fatal,
        )

    # ---------------------------------------------------------------------------------------------- what is due, when

    def _advance(self) -> None:
        if self._state is MemberState.CLOSED:
            return
        if self._closing is not None and self._now >= self._closing:
            self._shut("no time left to close in order")
            return
        self._watch_poll()
        self._watch_silence()
        self._watch_answers()
        while (turn := _TURNS.get(self._state)) is not None and turn(self):
            pass
        self._find()
        self._beat()

    def _watch_poll(self) -> None:
        """KIP-62: a handler that does not come back to poll in time makes its member leave: others take over."""
        if self._state not in _IN_GROUP or self._closing is not None:
            return
        if self._now >= self._pulse.stall_at:
            self._stall()
        elif self._now >= self._pulse.warn_at:
            self._pulse.warned = True
            left_s = self._pulse.stall_at - self._now
            self._notice(
                "poll_stalling",
                f"no poll for {self._now - (self._pulse.busy_since or 0.0):.1f} s: in {left_s:.1f} s this member "
                f"leaves the group (max_poll_interval_ms={self.settings.max_poll_interval_ms})",
            )

    def _watch_silence(self) -> None:
        if self._beating and self._search.coordinator is not None and self._now >= self._pulse.silent_at:
            self._coordinator_gone("no answer for a whole session timeout")

    def _watch_answers(self) -> None:
        for serial in [serial for serial, asked in self._asked.items() if self._now >= asked.overdue_at]:
            self._on_disconnected(ev.Disconnected(serial, None, "no outcome in time"))

    @property
    def _needs_coordinator(self) -> bool:
        return self._fatal is None and (self._state in _IN_GROUP or self._coordinator_wanted)

    def _find(self) -> None:
        if self._needs_coordinator and self._search.due(self._now):
            self._search.asked()
            request = requests.find_coordinator(self.settings)
            self._ask("FindCoordinator", request, self.settings.request_timeout_ms, anywhere=True)

    @property
    def _beating(self) -> bool:
        return self._state in HEARTBEATING and self._identity.generation >= 0

    def _beat(self) -> None:
        if not self._beating or self._search.coordinator is None or self._waits_for("Heartbeat"):
            return
        if self._now >= self._pulse.next_beat_at:
            self._pulse.beat_sent_at = self._now
            timeout_ms = min(self.settings.request_timeout_ms, self.settings.session_timeout_ms)
            self._ask("Heartbeat", requests.heartbeat(self._identity), timeout_ms)

    def _turn__stable(self) -> bool:
        cause = self._wants_rebalance()
        if cause is None or self._topics is None:
            return False
        self._begin(cause)
        self._prepare()
        return True

    def _wants_rebalance(self) -> Cause | None:
        """Told so, or our topics are not those we joined with, or we lead and what we assigned has changed."""
        if self._rejoin is not None:
            return self._rejoin
        if self._topics is not None and self._topics != self._joined_topics:
            by_pattern = self._subscription is not None and self._subscription.by_pattern
            changed = ", ".join(sorted(self._topics ^ self._joined_topics)[:5])
            return Cause(Why.TOPICS_CHANGED if by_pattern else Why.SUBSCRIPTION_CHANGED, changed)
        if self._moved:
            return Cause(Why.TOPICS_CHANGED, ", ".join(self._moved[:5]))
        return None

    def _prepare(self) -> None:
        """Before a join: let go what the rebalance protocol asks for, with the user's consent first."""
        self._then = _Then.JOIN
        revoked = reconcile.before_join(self.mode, self._assignment.partitions, self._topics or _NO_TOPICS)
        if revoked:
            self._revoke(revoked)
        else:
            self._go(Trigger.MUST_JOIN)

    def _turn__joining(self) -> bool:
        if (sent_at := self._asked_at("JoinGroup")) is not None:
            self._pulse.joining(self._now, sent_at)
            return False
        if self._topics is None or self._now < self._join_not_before or self._search.coordinator is None:
            return False
        # The subscription may have shrunk while we waited here.
        if revoked := reconcile.before_join(self.mode, self._assignment.partitions, self._topics):
            self._then = _Then.JOIN
            self._revoke(revoked)
            return True
        self._send_join(self._topics)
        return False

    def _turn__planning(self) -> bool:
        if self._missing_topics() and self._now < self._plan_deadline:
            return False
        self._plan(Trigger.PLANNED)
        return True

    def _turn__committing(self) -> bool:
        if self._order is not None and self._now < self._order.deadline:
            return False
        self._notice("commit_late", "the commit of revoked partitions was not settled in time; its outcome is unknown")
        self._order = None
        self._all_let_go()
        return True

    def _turn__leaving(self) -> bool:
        if self._now < self._leave_deadline:
            return False
        self._left()
        return True

    def _wake_at(self) -> float | None:
        if self._state is MemberState.CLOSED:
            return None
        times = [inf if self._closing is None else self._closing, *(each.overdue_at for each in self._asked.values())]
        if self._state in _IN_GROUP and self._closing is None:
            times += [self._pulse.stall_at, self._pulse.warn_at]
        if self._beating and self._search.coordinator is not None:
            times.append(self._pulse.silent_at)
            if not self._waits_for("Heartbeat"):
                times.append(self._pulse.next_beat_at)
        if self._needs_coordinator and self._search.state is CoordinatorState.UNKNOWN:
            times.append(self._search.retry_at)
        match self._state:
            case MemberState.JOINING if self._waits_for("JoinGroup"):
                times.append(self._now + self._pulse.interval_s)  # the lease moves while we look
            case MemberState.JOINING if self._search.coordinator is not None and self._topics is not None:
                times.append(self._join_not_before)
            case MemberState.PLANNING:
                times.append(self._plan_deadline)
            case MemberState.COMMITTING if self._order is not None:
                times.append(self._order.deadline)
            case MemberState.LEAVING:
                times.append(self._leave_deadline)
        earliest = min(times)
        return None if earliest == inf else earliest

    # --------------------------------------------------------------------------------------------------- requests out

    def _ask(self, api: str, request: Any, timeout_ms: int, *, anywhere: bool = False, awaited: bool = True) -> None:
        to = None if anywhere else self._search.coordinator
        self._serial += 1
        aside = api == "LeaveGroup" and self._join_on_wire is not None
        self._sends.append(Send(self._serial, to, api, request, timeout_ms, aside))
        if api == "JoinGroup":
            self._join_on_wire = self._serial
        if awaited:
            node_id = None if to is None else to.node_id
            overdue_at = self._now + (timeout_ms + ANSWER_GRACE_MS) / 1000
            self._asked[self._serial] = _Asked(api, self._identity, self._now, node_id, overdue_at)

    def _waits_for(self, api: str) -> bool:
        return any(asked.api == api for asked in self._asked.values())

    def _asked_at(self, api: str) -> float | None:
        return next((asked.sent_at for asked in self._asked.values() if asked.api == api), None)

    def _forget_asked(self, *apis: str) -> None:
        """Whatever is answered to these is nobody's business any more."""
        self._asked = {serial: asked for serial, asked in self._asked.items() if asked.api not in apis}

    def _send_join(self, topics: frozenset[str]) -> None:
        protocols = [(name, self._subscription_for(assignor, topics)) for name, assignor in self._assignors.items()]
        reason = "" if self._cause is None else str(self._cause)
        timeout_ms = max(self.settings.request_timeout_ms, self.settings.rebalance_ms + JOIN_GRACE_MS)
        # From here until the answer nobody may tell us that we are dead: a heartbeat still under way was sent by the
        # member that we will no longer be when it is answered.
        self._forget_asked("Heartbeat")
        self._ask("JoinGroup", requests.join_group(self.settings, self._identity, protocols, reason), timeout_ms)
        self._joined_topics = topics
        self._rejoin = None
        self.timeline.attempt()

    def _subscription_for(self, assignor: Assignor, topics: frozenset[str]) -> bytes:
        """A cooperative assignor is told what we hold now, in the generation we are in; an eager one what we held last,
        since all of it has been given up by now and only serves as a memory."""
        if assignor.rebalance is Rebalance.COOPERATIVE:
            owned, generation = self._assignment.partitions, self._identity.generation
        else:
            owned, generation = self._last_owned, self._last_generation
        return leading.write_subscription(assignor, topics, owned, generation, self.settings.rack_id)

    def _send_sync(self, assignments: "tuple[SyncGroupRequestAssignment, ...]") -> None:
        timeout_ms = max(self.settings.request_timeout_ms, self.settings.rebalance_ms + JOIN_GRACE_MS)
        self._ask("SyncGroup", requests.sync_group(self._identity, self._protocol or "", assignments), timeout_ms)

    # -------------------------------------------------------------------------------------------------- the coordinator

    def _on_coordinator_found(self, event: ev.CoordinatorFound) -> None:
        if self._asked.pop(event.serial, None) is None:
            return
        answer = event.response
        if answer.coordinators:
            only = answer.coordinators[0]
            code, message = only.error_code, only.error_message
            coordinator = Coordinator(only.node_id, only.host, only.port)
        else:
            code, message = answer.error_code, answer.error_message
            coordinator = Coordinator(answer.node_id, answer.host, answer.port)
        if len(answer.coordinators) > 1 or (code == 0 and not coordinator.host):
            self._search.not_found(self._now)
            self._fail(
                GroupProtocolError(
                    f"asked for one coordinator, told of {len(answer.coordinators)}",
                    api="FindCoordinator",
                    group=self.settings.group_id,
                )
            )
        elif code == 0:
            self._search.found(coordinator)
            self._pulse.heard_at = self._now
        else:
            self._search.not_found(self._now)
            if REACTIONS["FindCoordinator"].get(code, Reaction.FATAL) is Reaction.FATAL:
                self._fail(fatal_error(code, "FindCoordinator", self.settings.group_id, message))
            else:
                self._still_searching(error_name(code))

    def _still_searching(self, why: str) -> None:
        failures = self._search.failures
        if failures & (failures - 1) == 0:  # 1, 2, 4, 8, ...: said often enough to be seen, not to drown the log
            self._notice("coordinator_missing", f"no coordinator after {failures} attempts: {why}")

    def _coordinator_gone(self, why: str) -> None:
        """Find it again. Nothing of our membership is lost by this: same generation, same partitions."""
        if self._search.state is not CoordinatorState.KNOWN:
            return
        self._search.gone(self._now)
        self._pulse.heard_at = self._now
        self._notice("coordinator_gone", why)
        self._forget_asked("Heartbeat")
        if self._waits_for("JoinGroup"):
            self._forget_asked("JoinGroup")
            self._again(why)
        elif self._waits_for("SyncGroup"):
            self._again(why)
        if self._state is MemberState.LEAVING:
            self._left()

    def _on_disconnected(self, event: ev.Disconnected) -> None:
        known = self._search.coordinator
        if event.serial is None:
            if known is not None and event.node_id == known.node_id:
                self._coordinator_gone(event.reason or "the connection was closed")
            return
        asked = self._asked.get(event.serial)
        if asked is None:
            return
        if asked.api == "FindCoordinator":
            self._search.not_found(self._now)
            self._still_searching(event.reason or "the connection was closed")
        elif known is not None and asked.node_id == known.node_id:
            self._coordinator_gone(event.reason or "the connection was closed")
        self._asked.pop(event.serial, None)

    def _on_coordinator_wanted(self, event: ev.CoordinatorWanted) -> None:
        self._coordinator_wanted = event.wanted

    def _on_refused(self, event: ev.Refused) -> None:
        asked = self._asked.pop(event.serial, None)
        if asked is None:
            return
        if asked.api == "LeaveGroup":
            self._notice("leave_failed", str(event.error))
            self._left()
            return
        if asked.api == "FindCoordinator":
            self._search.not_found(self._now)
        self._fail(event.error)

    # ------------------------------------------------------------------------------------------------- the walk, shared

    def _go(self, trigger: Trigger) -> None:
        """The only place that changes the state."""
        came_from, self._state = self._state, after(self._state, trigger)
        if self._state is came_from:
            return  # another attempt: it has been in this state since it came here first
        self._since = self._now
        if self._state not in _ENDS:
            self.timeline.entered(self._state, self._now)
        elif (ended := self.timeline.current) is not None:
            self.timeline.end(self._state, self._now)
            took_s = self._now - ended.started_at
            self._notice("rebalance_ended", f"{ended.cause}: {self._state.value}, after {took_s:.3f} s")

    def _begin(self, cause: Cause) -> None:
        self._cause = cause
        if self.timeline.current is not None:
            self.timeline.trouble(str(cause))
        self.timeline.begin(cause, self._now)

    def _again(self, why: str) -> None:
        """This attempt is void: join again, with the same member id."""
        self._forget_asked("JoinGroup", "SyncGroup")
        self.timeline.trouble(why)
        self._go(Trigger.AGAIN)

    def _back_off(self, why: str) -> None:
        self._join_failures += 1
        self._join_not_before = self._now + self.settings.backoff_s(self._join_failures)
        if self._join_failures & (self._join_failures - 1) == 0:
            self._notice("join_waiting", f"not in the group after {self._join_failures} attempts: {why}")

    def _revoke(self, partitions: frozenset[TopicPartition]) -> None:
        """Ask the user to let go. Nothing of it is fetched or returned from now on."""
        self._go(Trigger.MUST_REVOKE)
        owned = self._assignment.partitions
        cause = self._cause or Cause(Why.COORDINATOR_ASKED)
        self._call(Revoked(partitions, owned, self._identity.generation, cause), owned, owned - partitions)
        self.timeline.noted(revoked=partitions)

    def _all_let_go(self) -> None:
        """Everything that had to go has gone (and is committed): on to what was intended."""
        owned = self._assignment.partitions
        if self._then is _Then.LEAVE and owned:
            self._revoke(owned)
            return
        match self._then:
            case _Then.JOIN:
                self._go(Trigger.FREE_TO_JOIN)
            case _Then.TAKE:
                self._go(Trigger.FREE_TO_TAKE)
                self._offer_arrived()
            case _Then.LEAVE:
                self._go(Trigger.FREE_TO_LEAVE)
                self._say_goodbye()
            case _Then.STOP:
                self._go(Trigger.FREE_TO_STOP)

    def _offer_arrived(self) -> None:
        before = self._assignment.partitions
        self._assignment = self._assignment.brought(self._arriving)
        owned = self._assignment.partitions
        cause = self._cause or Cause(Why.FIRST_JOIN)
        self._call(Assigned(self._arriving, owned, self._identity.generation, cause), owned, owned)
        self._last_owned, self._last_generation = owned, self._identity.generation
        self.timeline.noted(added=self._arriving, kept=before)

    # ---------------------------------------------------------------------------------------- losing, stalling, failing

    def _lose(self, cause: Cause, *, keep_id: bool = False) -> None:
        """Membership is gone. What was owned may be somebody else's by now: `on_lost`, no commit."""
        member_id = self._identity.member_id if keep_id else ""
        self._drop_membership(member_id)
        self._begin(cause)
        if self._hook_runs:
            return  # its end finds the membership gone, and goes on from there
        self._withdraw_hook()
        if self._assignment:
            self._tell_lost()
        else:
            self._nothing_lost()

    def _drop_membership(self, member_id: str = "") -> None:
        self._identity = Identity(self.settings.group_id, -1, member_id, self.settings.instance_id)
        self._forget_asked("JoinGroup", "SyncGroup", "Heartbeat")
        self._order = self._new_order = None
        self._arriving = _NOTHING
        self._last_owned, self._last_generation = _NOTHING, -1
        self._leader, self._protocol = False, None
        self._hear({})
        self._members_before = None
        self._rejoin = None
        if self._then is _Then.TAKE:
            self._then = _Then.JOIN

    def _tell_lost(self) -> None:
        self._go(Trigger.LOST)
        owned = self._assignment.partitions
        cause = self._cause or Cause(Why.UNKNOWN_MEMBER)
        self._call(Lost(owned, self._held_generation, cause), owned, _NOTHING)
        self.timeline.noted(lost=owned)
        self._notice("lost", f"lost {len(owned)} partitions: {cause}")

    def _nothing_lost(self) -> None:
        """Membership is gone and nothing was held, so nobody has to be told."""
        if self._state is MemberState.COMMITTING:
            self._all_let_go()
        elif self._state in _IN_GROUP:
            match self._then:
                case _Then.STOP:
                    self._go(Trigger.GAVE_UP)
                case _Then.LEAVE:
                    self._go(Trigger.MUST_LEAVE)
                    self._say_goodbye()
                case _:
                    self._go(Trigger.LOST_NOTHING)

    def _fail(self, error: KohortError) -> None:
        """No retry cures it. The error is raised by every poll; what was held is told to be lost first."""
        if self._fatal is None:
            self._fatal = error
        if self._then is not _Then.LEAVE:
            self._then = _Then.STOP
        self._notice("fatal", str(error))
        match self._state:
            case MemberState.OUT:
                self._go(Trigger.GAVE_UP)
            case MemberState.LEAVING:
                self._left()
            case MemberState.LOSING | MemberState.STALLED | MemberState.FAILED:
                pass  # the next hook's end, or the next poll, finds the error
            case _:
                self._lose(Cause(Why.FATAL, error.message))

    def _stall(self) -> None:
        """KIP-62: "the consumer will proactively leave the group" when poll is not called in time."""
        cause = Cause(Why.POLL_STALLED)
        reason = f"no poll for more than {self.settings.max_poll_interval_ms} ms"
        self._notice("poll_stalled", reason)
        if self._may_tell_leave():
            request = requests.leave_group(self._identity, reason)
            self._ask("LeaveGroup", request, self.settings.request_timeout_ms, awaited=False)
        self._drop_membership()
        self._begin(cause)
        if not self._hook_runs:
            self._withdraw_hook()
        self._go(Trigger.STALLED)

    def _back_from_stall(self) -> None:
        if self._assignment:
            self._begin(Cause(Why.POLL_STALLED))
            self._tell_lost()
        elif self._then is _Then.STOP:
            self._go(Trigger.GAVE_UP)
        elif self._then is _Then.LEAVE:
            self._go(Trigger.MUST_LEAVE)
            self._say_goodbye()
        else:
            self._begin(Cause(Why.POLL_STALLED))
            self._go(Trigger.POLLED_AGAIN)

    # ------------------------------------------------------------------------------------------------------- joining

    def _on_joined(self, event: ev.Joined) -> None:
        asked = self._asked.pop(event.serial, None)
        if asked is None:
            return
        answer = event.response
        self._search.proved()
        if answer.error_code != 0:
            self._join_refused(answer.error_code, answer.member_id)
            return
        self._identity = Identity(
            self.settings.group_id, answer.generation_id, answer.member_id, self.settings.instance_id
        )
        self._held_generation = answer.generation_id
        self._join_failures = 0
        self._pulse.restarted(self._now)
        # The lease of what is kept is not moved by this answer: when the coordinator gave it is not known.
        self._pulse.confirmed(asked.sent_at)
        self._leader = answer.leader == answer.member_id
        self._protocol = answer.protocol_name
        self._hear({})
        self.timeline.noted(generation=answer.generation_id, protocol=answer.protocol_name, leader=self._leader)
        if answer.protocol_type not in (None, CONSUMER_PROTOCOL_TYPE) or answer.protocol_name not in self._assignors:
            self._fail(
                fatal_error(23, "JoinGroup", self.settings.group_id, f"the group chose {answer.protocol_name!r}")
            )
            return
        if not self._leader:
            self._go(Trigger.JOINED)
            self._send_sync(())
            return
        try:
            self._hear(leading.read_members(answer.members, answer.protocol_name or ""))
        except leading.MemberUnreadable as error:
            self._fail(error)
            return
        self._note_members()
        if answer.skip_assignment:
            # KIP-814: a static leader that came back is not asked to assign again, "but still needs to monitor
            # partitions of the group's topics", so it leads in every other respect.
            self._take_snapshot(known_only=True)
            self._go(Trigger.JOINED)
            self._send_sync(())
        elif self._missing_topics():
            patience_ms = min(self.settings.request_timeout_ms, self.settings.session_timeout_ms / 2)
            self._plan_deadline = self._now + patience_ms / 1000
            self._go(Trigger.LEADS_BLIND)
        else:
            self._plan(Trigger.JOINED)

    def _join_refused(self, code: int, member_id: str) -> None:
        match REACTIONS["JoinGroup"].get(code, Reaction.FATAL):
            case Reaction.RETRY:
                self._back_off(error_name(code))
                self._again(f"JoinGroup: {error_name(code)}")
            case Reaction.REDISCOVER:
                self._back_off(error_name(code))
                self._again(f"JoinGroup: {error_name(code)}")
                self._coordinator_gone(error_name(code))
            case Reaction.TAKE_ID:
                self._identity = self._identity._replace(member_id=member_id)
                self._go(Trigger.AGAIN)
            case Reaction.FORGET_MEMBER:
                self._lose(Cause(Why.UNKNOWN_MEMBER, "JoinGroup"))
            case _:
                self._fail(fatal_error(code, "JoinGroup", self.settings.group_id))

    def _hear(self, said: dict[str, leading.Said]) -> None:
        """What the members of the generation said, which only its leader is told."""
        self._said, self._group_topics = said, leading.topics_of(said)
        self._snapshot, self._moved = {}, ()

    def _note_members(self) -> None:
        """Who came and who left, which only a leader can see, and only from one generation that it led to the next."""
        members = frozenset(self._said)
        if self._members_before is not None:
            self.timeline.noted(
                members_joined=members - self._members_before, members_left=self._members_before - members
            )
        self._members_before = members

    def _missing_topics(self) -> frozenset[str]:
        if self._everything_known:
            return _NO_TOPICS
        return self._group_topics - self._looked_up

    def _shape(self, topic: str) -> leading.Shape:
        return leading.shape_of(self._known.get(topic), self.settings.rack_id is not None)

    def _take_snapshot(self, *, known_only: bool = False) -> None:
        topics = self._group_topics
        self._snapshot = {topic: self._shape(topic) for topic in topics if not known_only or topic in self._known}
        self._moved = ()

    def _plan(self, trigger: Trigger) -> None:
        self._take_snapshot()
        try:
            plan = leading.make_plan(self._assignors[self._protocol or ""], self._said, self._known)
        except leading.AssignorFailed as error:
            self._fail(error)
            return
        self._go(trigger)
        self._send_sync(leading.write_plan(plan))

    # ------------------------------------------------------------------------------------------------------- syncing

    def _on_synced(self, event: ev.Synced) -> None:
        asked = self._asked.pop(event.serial, None)
        if asked is None:
            return
        answer = event.response
        self._search.proved()
        if answer.error_code != 0:
            self._sync_refused(answer.error_code)
            return
        self._pulse.confirmed(asked.sent_at)
        self._forget_asked("Heartbeat")  # one sent before this answer may speak of the rebalance that this one ends
        if answer.protocol_type not in (None, CONSUMER_PROTOCOL_TYPE) or answer.protocol_name not in (
            None,
            self._protocol,
        ):
            self._fail(fatal_error(23, "SyncGroup", self.settings.group_id, f"synced as {answer.protocol_name!r}"))
            return
        try:
            assigned = leading.read_assignment(bytes(answer.assignment))
        except WireError as error:
            self._fail(error)
            return
        self._take_assignment(assigned)

    def _take_assignment(self, assigned: frozenset[TopicPartition]) -> None:
        subscription = self._subscription or Subscription()
        if strange := reconcile.strangers(assigned, subscription, self._joined_topics):
            self._cause = Cause(Why.ASSIGNMENT_UNFIT, ", ".join(sorted({each.topic for each in strange})[:5]))
            self._back_off(str(self._cause))
            self._again(str(self._cause))
            return
        told = frozenset(each.topic for each in assigned) - self._joined_topics
        if told:
            self._told |= told
            self._joined_topics |= told
            self._resolve()
        moves = reconcile.after_sync(self._assignment.partitions, assigned)
        self._arriving = moves.added
        if moves.revoked:
            # KIP-429: whoever revokes rejoins, "triggering another rebalance" in which others get what it let go.
            self._then = _Then.TAKE
            self._revoke(moves.revoked)
            self._rejoin = Cause(Why.FOLLOW_UP)
        else:
            self._go(Trigger.ASSIGNED)
            self._offer_arrived()

    def _sync_refused(self, code: int) -> None:
        why = f"SyncGroup: {error_name(code)}"
        match REACTIONS["SyncGroup"].get(code, Reaction.FATAL):
            case Reaction.REJOIN:
                self._cause = Cause(Why.SYNC_REFUSED, error_name(code))
                if code != 27:
                    self._back_off(why)
                self._again(why)
            case Reaction.REDISCOVER:
                self._back_off(why)
                self._again(why)
                self._coordinator_gone(error_name(code))
            case Reaction.FORGET_GENERATION:
                self._lose(Cause(Why.STALE_GENERATION, "SyncGroup"), keep_id=True)
            case Reaction.FORGET_MEMBER:
                self._lose(Cause(Why.UNKNOWN_MEMBER, "SyncGroup"))
            case _:
                self._fail(fatal_error(code, "SyncGroup", self.settings.group_id))

    # --------------------------------------------------------------------------------------------- heartbeats, commits

    def _on_beat(self, event: ev.Beat) -> None:
        asked = self._asked.pop(event.serial, None)
        if asked is None:
            return
        code = event.response.error_code
        current = asked.identity == self._identity
        if code in (0, 14, 27):
            self._search.proved()
        if code in (0, 27) and current:
            self._pulse.confirmed(asked.sent_at)
            self._pulse.last_beat_at = asked.sent_at
        if code != 0:
            self._expelled_or_not("Heartbeat", code, current)

    def _on_commit_refused(self, event: ev.CommitRefused) -> None:
        self.timeline.commit_refused(event.partitions, event.code)
        if event.code not in REACTIONS["OffsetCommit"]:
            return
        current = event.sent == self._identity and event.sent.generation >= 0
        if self._waits_for("JoinGroup") and event.code in (22, 25):
            return  # it lost the race against our own join, whose answer will say where we stand
        self._expelled_or_not("OffsetCommit", event.code, current)

    def _expelled_or_not(self, api: str, code: int, current: bool) -> None:
        """An error that speaks of our membership, and whether it speaks of the one we still have."""
        reaction = REACTIONS[api].get(code, Reaction.FATAL)
        match reaction:
            case Reaction.REJOIN if current and self._state is MemberState.STABLE:
                why = Why.COORDINATOR_ASKED if api == "Heartbeat" else Why.COMMIT_REFUSED
                self._rejoin = self._rejoin or Cause(why)
            case Reaction.REDISCOVER:
                self._coordinator_gone(f"{api}: {error_name(code)}")
            case Reaction.FORGET_GENERATION if current:
                self._lose(Cause(Why.STALE_GENERATION, api), keep_id=True)
            case Reaction.FORGET_MEMBER if current:
                self._lose(Cause(Why.UNKNOWN_MEMBER, api))
            case Reaction.FATAL if current or code != 82:
                self._fail(fatal_error(code, api, self.settings.group_id))

    def _on_commit_settled(self, event: ev.CommitSettled) -> None:
        if self._order is None or event.serial != self._order.serial:
            return
        self._order = None
        if event.refused:
            names = ", ".join(f"{tp}: {error_name(code)}" for tp, code in sorted(event.refused.items())[:5])
            self._notice("commit_refused", f"revoked partitions were not committed: {names}")
            self.timeline.trouble(f"not committed: {names}")
        self._all_let_go()

    # --------------------------------------------------------------------------------------------------------- hooks

    def _call(self, event: HookEvent, before: frozenset[TopicPartition], then: frozenset[TopicPartition]) -> None:
        self._serial += 1
        self._hook = HookCall(self._serial, event, before, then)
        self._hook_runs = False

    def _withdraw_hook(self) -> None:
        """A call that nobody took is replaced by what is true now. What it would have brought was never ours."""
        if self._hook is not None and isinstance(self._hook.event, Assigned):
            self._assignment = self._assignment.without(self._hook.event.partitions)
        self._hook = None

    def _on_hook_started(self, event: ev.HookStarted) -> None:
        if self._hook is not None and event.serial == self._hook.serial:
            self._hook_runs = True
            self._pulse.busy(event.at)

    def _on_hook_done(self, event: ev.HookDone) -> None:
        hook = self._hook
        if hook is None or event.serial != hook.serial:
            return
        self._hook, self._hook_runs = None, False
        self._pulse.polling()
        if event.error is not None:
            text = f"{type(hook.event).__name__.lower()} hook raised {type(event.error).__name__}: {event.error}"
            self._notice("hook_failed", text)
            self.timeline.trouble(text)
        match hook.event:
            case Revoked(partitions=partitions):
                self._revoked_done(partitions, hook.before, event.commit)
            case Assigned():
                self._assigned_done(event.start)
            case Lost():
                self._assignment = self._assignment.without(hook.before)
                self._all_let_go()

    def _revoked_done(
        self,
        partitions: frozenset[TopicPartition],
        owned: frozenset[TopicPartition],
        commit: Mapping[TopicPartition, OffsetToCommit],
    ) -> None:
        self._assignment = self._assignment.without(partitions)
        if foreign := commit.keys() - owned:
            self._notice("commit_dropped", f"not owned, not committed: {', '.join(map(str, sorted(foreign)))}")
        offsets = {tp: offset for tp, offset in commit.items() if tp in owned}
        if self._identity.generation < 0:
            if offsets:
                self._notice("commit_dropped", "membership was lost while the hook ran: its offsets are not committed")
            if self._state is MemberState.STALLED:
                self._back_from_stall()
            elif self._assignment:
                self._tell_lost()
            else:
                self._all_let_go()
        elif offsets:
            self._serial += 1
            patience_ms = min(self.settings.request_timeout_ms, self.settings.rebalance_ms / 2)
            deadline = min(self._now + patience_ms / 1000, inf if self._closing is None else self._closing)
            self._order = self._new_order = CommitOrder(self._serial, offsets, self._identity, deadline)
            self._go(Trigger.LET_GO)
        else:
            self._all_let_go()

    def _assigned_done(self, start: Mapping[TopicPartition, int]) -> None:
        self._arriving = _NOTHING
        if self._state is MemberState.STALLED:
            self._back_from_stall()
        elif self._identity.generation < 0:
            if self._assignment:
                self._tell_lost()
            else:
                self._nothing_lost()
        elif self._then is _Then.LEAVE:
            self._let_go_and_leave()
        else:
            self._assignment = self._assignment.started(start)
            self._go(Trigger.TAKEN)

    # ------------------------------------------------------------------------------------------------------ the user

    def _on_subscribed(self, event: ev.Subscribed) -> None:
        if self._closing is not None:
            return
        self._subscription = event.subscription
        self._told = _NO_TOPICS
        self._resolve()
        match self._state:
            case MemberState.OUT | MemberState.LEAVING | MemberState.FAILED:
                self._forget_asked("LeaveGroup")
                self._then = _Then.JOIN
                self._fatal = None
                self._join_failures, self._join_not_before = 0, -inf
                self._pulse.busy(self._now)
                self._begin(Cause(Why.FIRST_JOIN))
                self._go(Trigger.SUBSCRIBED)
            case _ if self._then is _Then.LEAVE:
                self._then = _Then.JOIN

    def _on_unsubscribed(self, event: ev.Unsubscribed) -> None:
        self._part(Cause(Why.UNSUBSCRIBED), "the consumer unsubscribed")

    def _on_close_requested(self, event: ev.CloseRequested) -> None:
        self._closing = event.deadline
        self._part(Cause(Why.CLOSED), event.reason)

    def _part(self, cause: Cause, reason: str) -> None:
        """Let go, commit, leave: from wherever we are."""
        self._subscription = None
        self._told = _NO_TOPICS
        self._resolve()
        self._then = _Then.LEAVE
        self._rejoin = None
        self._parting = reason
        match self._state:
            case MemberState.OUT:
                self._finish()
            case MemberState.FAILED:
                self._fatal = None
                self._go(Trigger.MUST_LEAVE)
                self._say_goodbye()
            case MemberState.STALLED if not self._hook_runs:
                self._back_from_stall()
            case MemberState.JOINING | MemberState.PLANNING | MemberState.SYNCING | MemberState.STABLE:
                self._begin(cause)
                self._let_go_and_leave()
            case MemberState.ASSIGNING if not self._hook_runs:
                self._withdraw_hook()
                self._begin(cause)
                self._let_go_and_leave()
            case _:
                pass  # a hook, a commit or a leave is under way; what follows it is in `_then`
        if self._closing is not None and self._order is not None:
            self._order = replace(self._order, deadline=min(self._order.deadline, self._closing))

    def _let_go_and_leave(self) -> None:
        self._forget_asked("JoinGroup", "SyncGroup")
        if self._assignment:
            self._revoke(self._assignment.partitions)
        else:
            self._go(Trigger.MUST_LEAVE)
            self._say_goodbye()

    def _may_tell_leave(self) -> bool:
        known = self._search.coordinator is not None
        return self.settings.leaves and known and bool(self._identity.member_id)

    def _say_goodbye(self) -> None:
        """LeaveGroup, if we are to send one and there is somebody to send it to. Leaving waits for nobody else."""
        identity = self._identity
        told = self._may_tell_leave()
        self._drop_membership()
        if not told:
            self._left()
            return
        self._ask("LeaveGroup", requests.leave_group(identity, self._parting), self.settings.request_timeout_ms)
        deadline = self._now + self.settings.request_timeout_ms / 1000
        self._leave_deadline = deadline if self._closing is None else min(deadline, self._closing)

    def _on_left(self, event: ev.Left) -> None:
        if self._asked.pop(event.serial, None) is None:
            return
        codes = [event.response.error_code, *(member.error_code for member in event.response.members)]
        if any(codes):
            self._notice("leave_failed", f"LeaveGroup: {error_name(next(code for code in codes if code))}")
        self._left()

    def _left(self) -> None:
        self._forget_asked("LeaveGroup")
        self._leave_deadline = inf
        self._go(Trigger.LEFT)
        self._finish()

    def _finish(self) -> None:
        if self._closing is not None:
            self._go(Trigger.CLOSED)

    def _shut(self, why: str) -> None:
        """The deadline of close has come: the end, in whatever state."""
        self._notice("close_late", why)
        self._drop_membership()
        self._hook = None
        self._assignment = self._assignment.without(self._assignment)
        self._go(Trigger.CLOSED)

    def _on_polled(self, event: ev.Polled) -> None:
        self._pulse.polling()
        if self._state is MemberState.STALLED and not self._hook_runs:
            self._back_from_stall()

    def _on_poll_ended(self, event: ev.PollEnded) -> None:
        self._pulse.busy(event.at)

    def _on_rebalance_enforced(self, event: ev.RebalanceEnforced) -> None:
        """KIP-568: "if a rebalance is already in progress, this is a no-op"."""
        if self._state is MemberState.STABLE:
            self._rejoin = Cause(Why.ENFORCED, event.reason)
        else:
            self._notice("rebalance_not_enforced", f"not now: {self._state.value}")

    # ------------------------------------------------------------------------------------------------------- metadata

    def _on_topics_changed(self, event: ev.TopicsChanged) -> None:
        usable = {name: info for name, info in event.topics.items() if info.partitions >= 0}
        if event.complete:
            self._known = usable
            self._looked_up = set(usable)
            self._everything_known = True
            self._told = _NO_TOPICS
        else:
            for name in event.asked:
                self._known.pop(name, None)
            self._known.update(usable)
            self._looked_up |= event.asked | usable.keys()
        if self._leader:
            for topic in self._group_topics & self._known.keys():
                self._snapshot.setdefault(topic, self._shape(topic))
            self._moved = tuple(sorted(topic for topic, was in self._snapshot.items() if was != self._shape(topic)))
        self._resolve()

    def _resolve(self) -> None:
        """What the subscription means, given what is known of the cluster."""
        subscription = self._subscription
        if subscription is None:
            self._topics = _NO_TOPICS
        elif not subscription.by_pattern:
            self._topics = subscription.topics
        elif not self._everything_known:
            self._topics = None
        else:
            hidden = self.settings.exclude_internal_topics
            found = subscription.resolved({name: hidden and info.internal for name, info in self._known.items()})
            self._topics = found | self._told

    def _wanted(self) -> WantedTopics:
        subscription = self._subscription
        if subscription is None:
            return WantedTopics()
        return WantedTopics(subscription.topics | self._group_topics, subscription.by_pattern)

    # ----------------------------------------------------------------------------------------------------------- views

    def _fetchable(self) -> frozenset[TopicPartition]:
        """Owned, of a living membership, not on its way out, and past its `on_assigned`."""
        assignment, hook, alive = self._assignment, self._hook, self._identity.generation >= 0
        before = self._fetchable_for
        if before[0] is not assignment or before[1] is not hook or before[2] is not alive:
            waiting = _NOTHING if hook is None else hook.event.partitions
            self._fetchable_now = assignment.partitions - waiting if alive else _NOTHING
            self._fetchable_for = (assignment, hook, alive)
        return self._fetchable_now

    def _notice(self, kind: str, text: str) -> None:
        self._notices.append(Notice(kind, text))


_NO_TOPICS: Final[frozenset[str]] = frozenset()

_HANDLERS: Final[Mapping[type, Callable[[GroupMember, Any], None]]] = {
    ev.CoordinatorFound: GroupMember._on_coordinator_found,
    ev.Joined: GroupMember._on_joined,
    ev.Synced: GroupMember._on_synced,
    ev.Beat: GroupMember._on_beat,
    ev.Left: GroupMember._on_left,
    ev.Refused: GroupMember._on_refused,
    ev.Disconnected: GroupMember._on_disconnected,
    ev.Subscribed: GroupMember._on_subscribed,
    ev.Unsubscribed: GroupMember._on_unsubscribed,
    ev.Polled: GroupMember._on_polled,
    ev.PollEnded: GroupMember._on_poll_ended,
    ev.HookStarted: GroupMember._on_hook_started,
    ev.HookDone: GroupMember._on_hook_done,
    ev.RebalanceEnforced: GroupMember._on_rebalance_enforced,
    ev.CoordinatorWanted: GroupMember._on_coordinator_wanted,
    ev.CloseRequested: GroupMember._on_close_requested,
    ev.TopicsChanged: GroupMember._on_topics_changed,
    ev.CommitRefused: GroupMember._on_commit_refused,
    ev.CommitSettled: GroupMember._on_commit_settled,
}

_TURNS: Final[Mapping[MemberState, Callable[[GroupMember], bool]]] = {
    MemberState.JOINING: GroupMember._turn__joining,
    MemberState.PLANNING: GroupMember._turn__planning,
    MemberState.COMMITTING: GroupMember._turn__committing,
    MemberState.LEAVING: GroupMember._turn__leaving,
    MemberState.STABLE: GroupMember._turn__stable,
}
