"""A member's place in the group: who it is there, what it holds because of it, and how it comes to lose or leave it.

Generation and member id live here and nowhere else: `joined` and `named` are the only ways in, `_drop` the only way
out. One intention (`then`) says what follows when everything is let go: join, take what arrived, leave, or stop. A
close or a fatal error that comes in the middle changes the intention, not the walk.
"""

from collections.abc import Callable, Mapping
from enum import Enum, auto
from math import inf
from typing import Any

from kohort.common.errors import KohortError
from kohort.common.topic_partition import TopicPartition
from kohort.coordinator_client.group.error_actions import GroupRefused
from kohort.coordinator_client.group.events import HookDone, Left
from kohort.coordinator_client.group.inflight_requests import BEATS, FAREWELLS
from kohort.coordinator_client.group.member_context import Part, Shared
from kohort.coordinator_client.group.owned_partitions import NOTHING
from kohort.coordinator_client.group.ready import CommitOrder
from kohort.coordinator_client.group.states import IN_GROUP, MemberState, Trigger
from kohort.coordinator_client.hooks import Assigned, Cause, HookCall, HookEvent, Lost, Revoked, Why
from kohort.coordinator_client.subscription_state import Start
from kohort.network.group_types import Identity, OffsetToCommit
from kohort.protocol.errors import error_name

Farewell = Callable[[Identity, str], tuple[str, Any] | None]
"""(who we are, why we leave) -> the API and request by which a member leaves, or None if it leaves without a word."""


class Then(Enum):
    """What follows when everything is let go."""

    JOIN = auto()
    TAKE = auto()
    LEAVE = auto()
    STOP = auto()


class Membership(Part):
    """`identity`: who we are in the group (generation -1: not in one). `held`: who we were when we last were in one;
    what was read then is fenced by it. `protocol`: the assignor that the group chose.
    `rejoin`: why a rebalance is wanted, if one is. `order`: the commit that the walk waits for. `closing`: the deadline
    of close, once it was asked for. `fatal`: what every poll raises. Times are monotonic seconds.
    """

    def __init__(self, shared: Shared, farewell: "Farewell", forget: Callable[[], None]) -> None:
        super().__init__(shared)
        self._farewell = farewell
        self._forget = forget

        self.identity = Identity(shared.settings.group_id, instance_id=shared.settings.instance_id)
        self.protocol: str | None = None
        self.held = self.identity
        self.then = Then.JOIN
        self.rejoin: Cause | None = None
        self._parting = ""
        self.leave_deadline = inf
        self.closing: float | None = None
        self.fatal: KohortError | None = None
        self.order: CommitOrder | None = None
        self._new_order: CommitOrder | None = None

    @property
    def alive(self) -> bool:
        """Whether we are in a generation."""
        return self.identity.generation >= 0

    @property
    def holds(self) -> bool:
        """Whether anything is owned."""
        return bool(self._holding.assignment)

    def ask(self, api: str, request: Any, timeout_ms: int, *, anywhere: bool = False, awaited: bool = True) -> None:
        """Send a request as who we are now: to the coordinator, or `anywhere`."""
        to = None if anywhere else self._search.coordinator
        self._in_flight.ask(
            api, request, timeout_ms, to=to, identity=self.identity, now=self._walk.now, awaited=awaited
        )

    def drain_order(self) -> CommitOrder | None:
        """The commit order that was given since the last call, if one was."""
        order, self._new_order = self._new_order, None
        return order

    # --------------------------------------------------------------------------------------------------- who we are

    def named(self, member_id: str) -> None:
        """The coordinator gave us an id to join with (KIP-394)."""
        self.identity = self.identity._replace(member_id=member_id)

    def joined(self, generation: int, member_id: str, protocol: str | None) -> None:
        """A join was answered well."""
        self.identity = Identity(self._settings.group_id, generation, member_id, self._settings.instance_id)
        self.held = self.identity
        self.protocol = protocol

    def _drop(self, member_id: str = "") -> None:
        self.identity = Identity(self._settings.group_id, -1, member_id, self._settings.instance_id)
        self._in_flight.forget("JoinGroup", "SyncGroup", *BEATS)
        self.order = self._new_order = None
        self._holding.forget_generation()
        self.protocol = None
        self._forget()
        self.rejoin = None
        if self.then is Then.TAKE:
            self.then = Then.JOIN

    # ------------------------------------------------------------------------------------------ letting go, and taking

    def let_go_before_join(self, revoked: frozenset[TopicPartition]) -> None:
        """What has to go before a join goes first, with the user's consent."""
        self.then = Then.JOIN
        self._revoke(revoked)

    def move(
        self, revoked: frozenset[TopicPartition], added: frozenset[TopicPartition], *, rejoins: bool = True
    ) -> None:
        """An assignment moves these. `rejoins`: whoever lets go joins again, so that others may have it (KIP-429)."""
        self._holding.arriving = added
        if revoked:
            self.then = Then.TAKE
            self._revoke(revoked)
            self.rejoin = Cause(Why.FOLLOW_UP) if rejoins else None
        else:
            self._walk.go(Trigger.ASSIGNED)
            self._offer_arrived()

    def again(self, why: str) -> None:
        """This attempt is void: join again, with the same member id."""
        self._in_flight.forget("JoinGroup", "SyncGroup")
        self._walk.timeline.trouble(why)
        self._walk.go(Trigger.AGAIN)

    def _revoke(self, partitions: frozenset[TopicPartition]) -> None:
        """Ask the user to let go. Nothing of it is fetched or returned from now on."""
        self._walk.go(Trigger.MUST_REVOKE)
        owned = self._holding.partitions
        cause = self._walk.cause or Cause(Why.COORDINATOR_ASKED)
        self._call(Revoked(partitions, owned, self.identity.generation, cause), owned, owned - partitions)
        self._walk.timeline.noted(revoked=partitions)

    def _all_let_go(self) -> None:
        """Everything that had to go has gone (and is committed): on to what was intended."""
        owned = self._holding.partitions
        if self.then is Then.LEAVE and owned:
            self._revoke(owned)
            return
        match self.then:
            case Then.JOIN:
                self._walk.go(Trigger.FREE_TO_JOIN)
            case Then.TAKE:
                self._walk.go(Trigger.FREE_TO_TAKE)
                self._offer_arrived()
            case Then.LEAVE:
                self._walk.go(Trigger.FREE_TO_LEAVE)
                self._say_goodbye()
            case Then.STOP:
                self._walk.go(Trigger.FREE_TO_STOP)

    def _offer_arrived(self) -> None:
        holding, generation = self._holding, self.identity.generation
        before = holding.partitions
        holding.take(generation)
        owned = holding.partitions
        cause = self._walk.cause or Cause(Why.FIRST_JOIN)
        self._call(Assigned(holding.arriving, owned, generation, cause), owned, owned)
        self._walk.timeline.noted(added=holding.arriving, kept=before)

    def commit_settled(self, refused: Mapping[TopicPartition, int]) -> None:
        """The ordered commit has its outcome; `refused`: partition -> error code."""
        self.order = None
        if refused:
            names = ", ".join(f"{tp}: {error_name(code)}" for tp, code in sorted(refused.items())[:5])
            self._walk.notice("commit_refused", f"revoked partitions were not committed: {names}")
            self._walk.timeline.trouble(f"not committed: {names}")
        self._all_let_go()

    def commit_late(self) -> None:
        """Its deadline came first."""
        self._walk.notice(
            "commit_late", "the commit of revoked partitions was not settled in time; its outcome is unknown"
        )
        self.order = None
        self._all_let_go()

    # --------------------------------------------------------------------------------------------------------- hooks

    def _call(self, event: HookEvent, before: frozenset[TopicPartition], then: frozenset[TopicPartition]) -> None:
        self._holding.call(self._in_flight.next_serial(), event, before, then)

    def hook_done(self, hook: HookCall, event: HookDone) -> None:
        """The call that was due is done: its answer, and what was waiting for it."""
        if event.error is not None:
            text = f"{type(hook.event).__name__.lower()} hook raised {type(event.error).__name__}: {event.error}"
            self._walk.notice("hook_failed", text)
            self._walk.timeline.trouble(text)
        match hook.event:
            case Revoked(partitions=partitions):
                self._revoked_done(partitions, hook.before, event.commit)
            case Assigned():
                self._assigned_done(event.start)
            case Lost():
                self._holding.drop(hook.before)
                self._all_let_go()

    def _revoked_done(
        self,
        partitions: frozenset[TopicPartition],
        owned: frozenset[TopicPartition],
        commit: Mapping[TopicPartition, OffsetToCommit],
    ) -> None:
        self._holding.drop(partitions)
        if foreign := commit.keys() - owned:
            self._walk.notice("commit_dropped", f"not owned, not committed: {', '.join(map(str, sorted(foreign)))}")
        offsets = {tp: offset for tp, offset in commit.items() if tp in owned}
        if not self.alive:
            if offsets:
                self._walk.notice(
                    "commit_dropped", "membership was lost while the hook ran: its offsets are not committed"
                )
            if self._walk.state is MemberState.STALLED:
                self.back_from_stall()
            elif self._holding.assignment:
                self._tell_lost()
            else:
                self._all_let_go()
        elif offsets:
            serial = self._in_flight.next_serial()
            patience_ms = min(self._settings.request_timeout_ms, self._settings.rebalance_ms / 2)
            deadline = min(self._walk.now + patience_ms / 1000, inf if self.closing is None else self.closing)
            self.order = self._new_order = CommitOrder(serial, offsets, self.identity, deadline)
            self._walk.go(Trigger.LET_GO)
        else:
            self._all_let_go()

    def _assigned_done(self, start: Mapping[TopicPartition, Start]) -> None:
        holding = self._holding
        holding.arriving = NOTHING
        if self._walk.state is MemberState.STALLED:
            self.back_from_stall()
        elif not self.alive:
            if holding.assignment:
                self._tell_lost()
            else:
                self._nothing_lost()
        elif self.then is Then.LEAVE:
            self._let_go_and_leave()
        else:
            holding.assignment = holding.assignment.started(start)
            self._walk.go(Trigger.TAKEN)

    # ---------------------------------------------------------------------------------------- losing, stalling, failing

    def lose(self, cause: Cause, *, keep_id: bool = False) -> None:
        """Membership is gone. What was owned may be somebody else's by now: `on_lost`, no commit."""
        member_id = self.identity.member_id if keep_id else ""
        self._drop(member_id)
        self._walk.begin(cause)
        if self._holding.hook_runs:
            return  # its end finds the membership gone, and goes on from there
        self._holding.withdraw()
        if self._holding.assignment:
            self._tell_lost()
        else:
            self._nothing_lost()

    def _tell_lost(self) -> None:
        self._walk.go(Trigger.LOST)
        owned = self._holding.partitions
        cause = self._walk.cause or Cause(Why.UNKNOWN_MEMBER)
        self._call(Lost(owned, self.held.generation, cause), owned, NOTHING)
        self._walk.timeline.noted(lost=owned)
        self._walk.notice("lost", f"lost {len(owned)} partitions: {cause}")

    def _nothing_lost(self) -> None:
        """Membership is gone and nothing was held, so nobody has to be told."""
        if self._walk.state is MemberState.COMMITTING:
            self._all_let_go()
        elif self._walk.state in IN_GROUP:
            match self.then:
                case Then.STOP:
                    self._walk.go(Trigger.GAVE_UP)
                case Then.LEAVE:
                    self._walk.go(Trigger.MUST_LEAVE)
                    self._say_goodbye()
                case _:
                    self._walk.go(Trigger.LOST_NOTHING)

    def fail(self, error: KohortError) -> None:
        """No retry cures it. The error is raised by every poll; what was held is told to be lost first. A group that
        has not refused us is left at once: it would wait a session's time for a leader whose plan failed."""
        if self.fatal is None:
            self.fatal = error
        if self.then is not Then.LEAVE:
            self.then = Then.STOP
        self._walk.notice("fatal", str(error))
        match self._walk.state:
            case MemberState.OUT:
                self._walk.go(Trigger.GAVE_UP)
            case MemberState.LEAVING:
                self.left()
            case MemberState.LOSING | MemberState.STALLED | MemberState.FAILED:
                pass  # the next hook's end, or the next poll, finds the error
            case _:
                if not isinstance(error, GroupRefused):
                    self._leave_unawaited(f"it failed: {type(error).__name__}")
                self.lose(Cause(Why.FATAL, error.message))

    def stall(self) -> None:
        """KIP-62: "the consumer will proactively leave the group" when poll is not called in time."""
        reason = f"no poll for more than {self._settings.max_poll_interval_ms} ms"
        self._walk.notice("poll_stalled", reason)
        self._leave_unawaited(reason)
        self._drop()
        self._walk.begin(Cause(Why.POLL_STALLED))
        if not self._holding.hook_runs:
            self._holding.withdraw()
        self._walk.go(Trigger.STALLED)

    def back_from_stall(self) -> None:
        """The caller is back, and no hook runs."""
        if self._holding.assignment:
            self._walk.begin(Cause(Why.POLL_STALLED))
            self._tell_lost()
        elif self.then is Then.STOP:
            self._walk.go(Trigger.GAVE_UP)
        elif self.then is Then.LEAVE:
            self._walk.go(Trigger.MUST_LEAVE)
            self._say_goodbye()
        else:
            self._walk.begin(Cause(Why.POLL_STALLED))
            self._walk.go(Trigger.POLLED_AGAIN)

    # -------------------------------------------------------------------------------------------------------- leaving

    def part(self, cause: Cause, reason: str) -> None:
        """Let go, commit, leave: from wherever we are."""
        self.then = Then.LEAVE
        self.rejoin = None
        self._parting = reason
        match self._walk.state:
            case MemberState.OUT:
                self._finish()
            case MemberState.FAILED:
                self.fatal = None
                self._walk.go(Trigger.MUST_LEAVE)
                self._say_goodbye()
            case MemberState.STALLED if not self._holding.hook_runs:
                self.back_from_stall()
            case MemberState.JOINING | MemberState.PLANNING | MemberState.SYNCING | MemberState.STABLE:
                self._walk.begin(cause)
                self._let_go_and_leave()
            case MemberState.ASSIGNING if not self._holding.hook_runs:
                self._holding.withdraw()
                self._walk.begin(cause)
                self._let_go_and_leave()
            case _:
                pass  # a hook, a commit or a leave is under way; what follows it is in `then`
        if self.closing is not None and self.order is not None:
            self.order = self.order._replace(deadline=min(self.order.deadline, self.closing))

    def _let_go_and_leave(self) -> None:
        self._in_flight.forget("JoinGroup", "SyncGroup")
        if self._holding.assignment:
            self._revoke(self._holding.partitions)
        else:
            self._walk.go(Trigger.MUST_LEAVE)
            self._say_goodbye()

    def _goodbye(self, reason: str) -> tuple[str, Any] | None:
        """What to tell the group, if it is to be told and there is somebody to tell it to: (API, request)."""
        known = self._search.coordinator is not None and bool(self.identity.member_id)
        return self._farewell(self.identity, reason) if known else None

    def _leave_unawaited(self, reason: str) -> None:
        if (goodbye := self._goodbye(reason)) is not None:
            self.ask(*goodbye, self._settings.request_timeout_ms, awaited=False)

    def _say_goodbye(self) -> None:
        """Leave, aloud if the protocol has it so. Leaving waits for nobody else."""
        goodbye = self._goodbye(self._parting)
        self._drop()
        if goodbye is None:
            self.left()
            return
        self.ask(*goodbye, self._settings.request_timeout_ms)
        deadline = self._walk.now + self._settings.request_timeout_ms / 1000
        self.leave_deadline = deadline if self.closing is None else min(deadline, self.closing)

    def on_left(self, event: Left) -> None:
        """LeaveGroup was answered."""
        if self._in_flight.answered(event.serial) is not None:
            self.left(event.response.error_code, *(member.error_code for member in event.response.members))

    def left(self, *codes: int) -> None:
        """The leave is settled, or nobody waits for it any more. An error in its answer is told; it changes nothing."""
        if any(codes):
            self._walk.notice("leave_failed", f"the leave: {error_name(next(code for code in codes if code))}")
        self._in_flight.forget(*FAREWELLS)
        self.leave_deadline = inf
        self._walk.go(Trigger.LEFT)
        self._finish()

    def _finish(self) -> None:
        if self.closing is not None:
            self._walk.go(Trigger.CLOSED)

    def shut(self, why: str) -> None:
        """The deadline of close has come: the end, in whatever state."""
        self._walk.notice("close_late", why)
        self._drop()
        self._holding.hook = None
        self._holding.drop(self._holding.assignment)
        self._walk.go(Trigger.CLOSED)
