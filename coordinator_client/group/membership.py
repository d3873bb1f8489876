"""The membership of a group: the member's identity, the partitions that it revokes, keeps and takes, and its end.

Generation and member id are kept here only. `on_joined` and `assign_member_id` set them, `_drop` clears them.
`after_revocation` is the step that follows a revocation: rejoin, accept the assignment, leave, or close. A close or a
fatal error in the middle changes that step, and not the state.

EAGER (before KIP-429): a join revokes everything, so after a sync nothing is kept and all partitions are new.

COOPERATIVE (KIP-429): a join keeps everything except partitions of topics no longer subscribed. A sync then revokes the
partitions that move. A member that lost one joins again, because only then is it free for its next owner. One round
revokes, the next one assigns. Unmoved partitions are never touched.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum, auto
from math import inf
from typing import Any, Final

from kohort.assignors import Assignor, Rebalance
from kohort.common.errors import KohortError
from kohort.common.foreign_text import exception_text
from kohort.common.named_tuple import NamedTuple
from kohort.common.topic_partition import TopicPartition
from kohort.coordinator_client.group.error_actions import REFUSED_FIELDS, GroupRefused, fatal_error
from kohort.coordinator_client.group.events import HookDone
from kohort.coordinator_client.group.member_context import (
    HEARTBEAT_APIS,
    LEAVE_APIS,
    NOTHING,
    MemberComponent,
    MemberContext,
)
from kohort.coordinator_client.group.ready import CommitOrder
from kohort.coordinator_client.group.states import IN_GROUP, MemberState, Trigger
from kohort.coordinator_client.hooks import (
    Assigned,
    HookCall,
    HookEvent,
    Lost,
    RebalanceCause,
    RebalanceReason,
    Revoked,
    Start,
)
from kohort.coordinator_client.subscription_state import Subscription
from kohort.network.group_types import ConsumerGroupMetadata, OffsetAndMetadata
from kohort.protocol.errors import error_name

Partitions = frozenset[TopicPartition]


class Moves(NamedTuple):
    """The changes that an assignment makes for this member."""

    revoked: Partitions
    kept: Partitions
    added: Partitions


def mode_of(assignors: Sequence[Assignor]) -> Rebalance:
    """Return the rebalance protocol of a member with these assignors.

    It is COOPERATIVE only if all of them are. Before a join the group's choice is unknown, and a range assignor would
    assign a kept partition to another member at once. A mixed list is therefore EAGER. It is the first of two rolling
    restarts that move a running group from eager to cooperative (KIP-429). In the first, every member still revokes all
    partitions, while the group already votes for the cooperative assignor. The second restart drops the eager assignor
    from the list.
    """
    cooperative = all(assignor.rebalance is Rebalance.COOPERATIVE for assignor in assignors)
    return Rebalance.COOPERATIVE if cooperative else Rebalance.EAGER


def before_join(mode: Rebalance, owned: Partitions, topics: Iterable[str]) -> Partitions:
    """Return the partitions to revoke before a join that subscribes to `topics`."""
    if mode is Rebalance.EAGER:
        return owned
    subscribed = frozenset(topics)
    return frozenset(partition for partition in owned if partition.topic not in subscribed)


def after_sync(owned: Partitions, assigned: Partitions) -> Moves:
    """The partitions that an assignment takes, leaves and brings. Under EAGER `owned` is empty by then."""
    return Moves(revoked=owned - assigned, kept=owned & assigned, added=assigned - owned)


def strangers(assigned: Partitions, subscription: Subscription, topics: frozenset[str]) -> Partitions:
    """Return assigned partitions outside of the subscription: their topic is neither in `topics` nor matched by its
    pattern.

    A topic that a pattern matches is valid even if it is missing from this member's metadata: the leader's may be
    newer.
    """
    return frozenset(
        partition
        for partition in assigned
        if partition.topic not in topics and not subscription.matches(partition.topic)
    )


LeaveRequest = Callable[[ConsumerGroupMetadata, str], tuple[str, Any] | None]
"""(identity, reason) -> the API and request of the leave, or None if the protocol needs no request."""


JOIN_PATIENCE_S: Final = 2.0
"""Maximum wait (s) of a leave for the member id in the response to a first join."""

LEAVE_PATIENCE_S: Final = 2.0
"""Maximum time (s) of a leave after the connection to the coordinator has ended. All brokers may be down."""


class AfterRevocation(Enum):
    """The next step after the revocation."""

    REJOIN = auto()
    ACCEPT_ASSIGNMENT = auto()
    LEAVE = auto()
    CLOSE = auto()


class Membership(MemberComponent):
    """The identity and the state of the membership. Times are monotonic seconds.

    `identity`: the member in the group (generation -1: not in one). `last_identity`: the last one with a generation,
    which fences offsets read in it. `protocol`: the assignor that the group selected. `rejoin`: the cause of a wanted
    rebalance, if any. `commit_order`: the commit that the next state waits for. `closing`: the deadline of close, once
    it was called. `fatal`: the error that every poll raises.
    """

    def __init__(self, shared: MemberContext, leave_request: "LeaveRequest", forget: Callable[[], None]) -> None:
        super().__init__(shared)
        self._leave_request = leave_request
        self._forget = forget

        self.identity = ConsumerGroupMetadata(shared.settings.group_id, instance_id=shared.settings.instance_id)
        self.protocol: str | None = None
        self.last_identity = self.identity
        self.after_revocation = AfterRevocation.REJOIN
        self.rejoin: RebalanceCause | None = None
        self._leave_reason = ""
        self._pending_leave: tuple[str, Any] | None = None  # the API and request, until there is a response
        self.leave_deadline = inf
        self.closing: float | None = None
        self.fatal: KohortError | None = None
        self.commit_order: CommitOrder | None = None
        self._new_order: CommitOrder | None = None
        self._new_error: KohortError | None = None

    @property
    def in_generation(self) -> bool:
        """True if this member is in a generation."""
        return self.identity.generation >= 0

    def send(self, api: str, request: Any, timeout_ms: int, *, anywhere: bool = False, awaited: bool = True) -> None:
        """Send a request with the current identity: to the coordinator, or `anywhere`."""
        to = None if anywhere else self._coordinator.coordinator
        self._in_flight.send(
            api, request, timeout_ms, to=to, identity=self.identity, now=self._tracker.now, awaited=awaited
        )

    def drain_commit_order(self) -> CommitOrder | None:
        """The commit order that was given since the last call, if one was."""
        order, self._new_order = self._new_order, None
        return order

    def report(self, error: KohortError) -> None:
        """Have the next poll raise an error that does not end the membership."""
        self._new_error = error

    def drain_error(self) -> KohortError | None:
        """The error that was reported since the last call, if one was."""
        error, self._new_error = self._new_error, None
        return error

    # ----------------------------------------------------------------------------------------------------------
    # identity

    def assign_member_id(self, member_id: str) -> None:
        """The coordinator assigned a member id to join with (KIP-394)."""
        self.identity = self.identity._replace(member_id=member_id)

    def on_joined(self, generation: int, member_id: str, protocol: str | None) -> None:
        """A join succeeded."""
        self.identity = self.last_identity = self.identity._replace(generation=generation, member_id=member_id)
        self.protocol = protocol

    def _drop(self, member_id: str = "") -> None:
        self.identity = self.identity._replace(generation=-1, member_id=member_id)
        self._in_flight.cancel("JoinGroup", "SyncGroup", *HEARTBEAT_APIS)
        self.commit_order = self._new_order = None
        self._owned.forget_generation()
        self.protocol = None
        self._forget()
        self.rejoin = None
        if self.after_revocation is AfterRevocation.ACCEPT_ASSIGNMENT:
            self.after_revocation = AfterRevocation.REJOIN

    # ------------------------------------------------------------------------------------------ letting go, and taking

    def revoke_before_join(self, revoked: frozenset[TopicPartition]) -> None:
        """Revoke partitions before a join, with the user's consent."""
        self.after_revocation = AfterRevocation.REJOIN
        self._revoke(revoked)

    def apply_assignment(
        self, revoked: frozenset[TopicPartition], added: frozenset[TopicPartition], *, rejoins: bool = True
    ) -> None:
        """Apply an assignment. `rejoins`: a member that revokes partitions joins again, to free them (KIP-429)."""
        self._owned.newly_assigned = added
        if revoked:
            self.after_revocation = AfterRevocation.ACCEPT_ASSIGNMENT
            self._revoke(revoked)
            self.rejoin = RebalanceCause(RebalanceReason.FOLLOW_UP) if rejoins else None
        else:
            self._tracker.transition(Trigger.ASSIGNED)
            self._call_on_assigned()

    def join_again(self, why: str) -> None:
        """This attempt is void: join again, with the same member id."""
        self._in_flight.cancel("JoinGroup", "SyncGroup")
        self._tracker.timeline.add_error(why)
        self._tracker.transition(Trigger.AGAIN)

    def _revoke(self, partitions: frozenset[TopicPartition]) -> None:
        """Request a call of `on_revoked`. None of these partitions is fetched or returned from now on."""
        self._tracker.transition(Trigger.MUST_REVOKE)
        owned = self._owned.partitions
        cause = self._tracker.cause or RebalanceCause(RebalanceReason.REBALANCE_IN_PROGRESS)
        self._call(Revoked(partitions, owned, self.identity.generation, cause), owned, owned - partitions)
        self._tracker.timeline.noted(revoked=partitions)

    def _revocation_done(self) -> None:
        """Everything that had to go has gone (and is committed): on to what was intended."""
        owned = self._owned.partitions
        if self.after_revocation is AfterRevocation.LEAVE and owned:
            self._revoke(owned)
            return
        match self.after_revocation:
            case AfterRevocation.REJOIN:
                self._tracker.transition(Trigger.FREE_TO_JOIN)
            case AfterRevocation.ACCEPT_ASSIGNMENT:
                self._tracker.transition(Trigger.FREE_TO_TAKE)
                self._call_on_assigned()
            case AfterRevocation.LEAVE:
                self._tracker.transition(Trigger.FREE_TO_LEAVE)
                self._send_leave()
            case AfterRevocation.CLOSE:
                self._tracker.transition(Trigger.FREE_TO_STOP)

    def _call_on_assigned(self) -> None:
        holding, generation = self._owned, self.identity.generation
        before = holding.partitions
        holding.accept(generation)
        owned = holding.partitions
        cause = self._tracker.cause or RebalanceCause(RebalanceReason.FIRST_JOIN)
        self._call(Assigned(holding.newly_assigned, owned, generation, cause), owned, owned)
        self._tracker.timeline.noted(added=holding.newly_assigned, kept=before)

    def commit_settled(self, refused: Mapping[TopicPartition, int]) -> None:
        """The ordered commit has its outcome; `refused`: partition -> error code."""
        self.commit_order = None
        if refused:
            names = ", ".join(f"{tp}: {error_name(code)}" for tp, code in sorted(refused.items())[:5])
            self._tracker.notice("commit_refused", f"revoked partitions were not committed: {names}")
            self._tracker.timeline.add_error(f"not committed: {names}")
        self._revocation_done()

    def commit_late(self) -> None:
        """Its deadline came first."""
        self._tracker.notice(
            "commit_late", "the outcome of the commit of revoked partitions is unknown: no response in time"
        )
        self.commit_order = None
        self._revocation_done()

    # --------------------------------------------------------------------------------------------------------- hooks

    def _call(self, event: HookEvent, before: frozenset[TopicPartition], then: frozenset[TopicPartition]) -> None:
        self._owned.call(self._in_flight.next_serial(), event, before, then)

    def hook_done(self, hook: HookCall, event: HookDone) -> None:
        """The due call is done: handle its result, and continue after it."""
        if event.error is not None:
            text = f"{type(hook.event).__name__.lower()} hook raised {exception_text(event.error)}"
            self._tracker.notice("hook_failed", text)
            self._tracker.timeline.add_error(text)
        match hook.event:
            case Revoked(partitions=partitions):
                self._revoked_done(partitions, hook.before, event.commit)
            case Assigned():
                self._assigned_done(event.start)
            case Lost():
                self._owned.drop(hook.before)
                self._revocation_done()

    def _revoked_done(
        self,
        partitions: frozenset[TopicPartition],
        owned: frozenset[TopicPartition],
        commit: Mapping[TopicPartition, OffsetAndMetadata],
    ) -> None:
        self._owned.drop(partitions)
        if foreign := commit.keys() - owned:
            self._tracker.notice("commit_dropped", f"not owned, not committed: {', '.join(map(str, sorted(foreign)))}")
        offsets = {tp: offset for tp, offset in commit.items() if tp in owned}
        if not self.in_generation:
            if offsets:
                self._tracker.notice(
                    "commit_dropped", "membership was lost while the hook ran: its offsets are not committed"
                )
            if self._tracker.state is MemberState.STALLED:
                self.return_from_stall()
            elif self._owned.assignment:
                self._call_on_lost()
            else:
                self._revocation_done()
        elif offsets:
            serial = self._in_flight.next_serial()
            patience_ms = min(self._settings.request_timeout_ms, self._settings.rebalance_ms / 2)
            deadline = min(self._tracker.now + patience_ms / 1000, inf if self.closing is None else self.closing)
            self.commit_order = self._new_order = CommitOrder(serial, offsets, self.identity, deadline)
            self._tracker.transition(Trigger.LET_GO)
        else:
            self._revocation_done()

    def _assigned_done(self, start: Mapping[TopicPartition, Start]) -> None:
        holding = self._owned
        holding.newly_assigned = NOTHING
        if self._tracker.state is MemberState.STALLED:
            self.return_from_stall()
        elif not self.in_generation:
            if holding.assignment:
                self._call_on_lost()
            else:
                self._nothing_lost()
        elif self.after_revocation is AfterRevocation.LEAVE:
            self._let_go_and_leave()
        else:
            holding.assignment = holding.assignment.started(start)
            self._tracker.transition(Trigger.TAKEN)

    # ---------------------------------------------------------------------------------------- losing, stalling, failing

    def lose(self, cause: RebalanceCause, *, keep_id: bool = False) -> None:
        """Membership is gone. Its partitions may have another owner by now: `on_lost`, no commit."""
        member_id = self.identity.member_id if keep_id else ""
        self._drop(member_id)
        self._tracker.begin_rebalance(cause)
        if self._owned.callback_running:
            return  # when it ends, it finds the membership lost, and continues from there
        self._owned.withdraw()
        if self._owned.assignment:
            self._call_on_lost()
        else:
            self._nothing_lost()

    def _call_on_lost(self) -> None:
        self._tracker.transition(Trigger.LOST)
        owned = self._owned.partitions
        cause = self._tracker.cause or RebalanceCause(RebalanceReason.UNKNOWN_MEMBER)
        self._call(Lost(owned, self.last_identity.generation, cause), owned, NOTHING)
        self._tracker.timeline.noted(lost=owned)
        self._tracker.notice("lost", f"lost {len(owned)} partitions: {cause}")

    def _nothing_lost(self) -> None:
        """Membership is gone and nothing was held, so no hook is called."""
        if self._tracker.state is MemberState.COMMITTING:
            self._revocation_done()
        elif self._tracker.state in IN_GROUP:
            match self.after_revocation:
                case AfterRevocation.CLOSE:
                    self._tracker.transition(Trigger.GAVE_UP)
                case AfterRevocation.LEAVE:
                    self._tracker.transition(Trigger.MUST_LEAVE)
                    self._send_leave()
                case _:
                    self._tracker.transition(Trigger.LOST_NOTHING)

    def fail(self, error: KohortError) -> None:
        """Fail for good: every poll raises the error, after `on_lost` for the owned partitions.

        If the group has not rejected this member, it leaves at once. Otherwise the group would wait for a session
        timeout.
        """
        if self.fatal is None:
            self.fatal = error
        if self.after_revocation is not AfterRevocation.LEAVE:
            self.after_revocation = AfterRevocation.CLOSE
        self._tracker.notice("fatal", str(error))
        match self._tracker.state:
            case MemberState.OUT:
                self._tracker.transition(Trigger.GAVE_UP)
            case MemberState.LEAVING:
                self.left()
            case MemberState.LOSING | MemberState.STALLED | MemberState.FAILED:
                pass  # the next hook's end, or the next poll, finds the error
            case _:
                if not isinstance(error, GroupRefused) or error.code in REFUSED_FIELDS:
                    self._leave_unawaited(f"it failed: {type(error).__name__}")
                self.lose(RebalanceCause(RebalanceReason.FATAL, error.message))

    def fail_by_code(self, code: int, api: str, message: str | None = None, **place: object) -> None:
        """As `fail`, with the error of a code in a response."""
        self.fail(fatal_error(code, api, self._settings.group_id, message, **place))

    def stall(self) -> None:
        """KIP-62: "the consumer will proactively leave the group" when poll is not called in time."""
        reason = f"no poll for more than {self._settings.max_poll_interval_ms} ms"
        self._tracker.notice("poll_stalled", reason)
        self._leave_unawaited(reason)
        self._drop()
        self._tracker.begin_rebalance(RebalanceCause(RebalanceReason.POLL_STALLED))
        if not self._owned.callback_running:
            self._owned.withdraw()
        self._tracker.transition(Trigger.STALLED)

    def return_from_stall(self) -> None:
        """The caller is back, and no hook runs."""
        if self._owned.assignment:
            self._tracker.begin_rebalance(RebalanceCause(RebalanceReason.POLL_STALLED))
            self._call_on_lost()
        elif self.after_revocation is AfterRevocation.CLOSE:
            self._tracker.transition(Trigger.GAVE_UP)
        elif self.after_revocation is AfterRevocation.LEAVE:
            self._tracker.transition(Trigger.MUST_LEAVE)
            self._send_leave()
        else:
            self._tracker.begin_rebalance(RebalanceCause(RebalanceReason.POLL_STALLED))
            self._tracker.transition(Trigger.POLLED_AGAIN)

    # -------------------------------------------------------------------------------------------------------- leaving

    def leave(self, cause: RebalanceCause, reason: str) -> None:
        """Revoke, commit, leave: from any state."""
        self.after_revocation = AfterRevocation.LEAVE
        self.rejoin = None
        self._leave_reason = reason
        match self._tracker.state:
            case MemberState.OUT:
                self._finish()
            case MemberState.FAILED:
                self.fatal = None
                self._tracker.transition(Trigger.MUST_LEAVE)
                self._send_leave()
            case MemberState.STALLED if not self._owned.callback_running:
                self.return_from_stall()
            case MemberState.JOINING | MemberState.PLANNING | MemberState.SYNCING | MemberState.STABLE:
                self._tracker.begin_rebalance(cause)
                self._let_go_and_leave()
            case MemberState.ASSIGNING if not self._owned.callback_running:
                self._owned.withdraw()
                self._tracker.begin_rebalance(cause)
                self._let_go_and_leave()
            case _:
                pass  # a hook, a commit or a leave is under way; what follows is in `after_revocation`
        if self.closing is not None and self.commit_order is not None:
            self.commit_order = self.commit_order._replace(deadline=min(self.commit_order.deadline, self.closing))

    def _let_go_and_leave(self) -> None:
        if self._owned.assignment:
            self._in_flight.cancel("JoinGroup", "SyncGroup")
            self._revoke(self._owned.partitions)
        else:
            self._tracker.transition(Trigger.MUST_LEAVE)
            self._send_leave()

    def _goodbye(self, reason: str) -> tuple[str, Any] | None:
        """Return the API and request of the leave; None without a coordinator or a member id."""
        known = self._coordinator.coordinator is not None and bool(self.identity.member_id)
        return self._leave_request(self.identity, reason) if known else None

    def _leave_unawaited(self, reason: str) -> None:
        if (goodbye := self._goodbye(reason)) is not None:
            self.send(*goodbye, self._settings.request_timeout_ms, awaited=False)

    def _send_leave(self) -> None:
        """Leave the group, with a request if the protocol has one. Leaving waits for no other member.

        The first response to a dynamic member has its id (KIP-394). The coordinator ends no rebalance until a member
        with such an id joins or leaves, or until its session timeout.
        """
        self._pending_leave = None
        joins = self._settings.leaves and not self.identity.member_id and self._in_flight.is_in_flight("JoinGroup")
        if joins and self._coordinator.coordinator is not None:
            deadline = self._tracker.now + JOIN_PATIENCE_S
            self.leave_deadline = deadline if self.closing is None else min(deadline, self.closing)
            return
        self._pending_leave = self._goodbye(self._leave_reason)
        self._drop()
        if self._pending_leave is None:
            self.left()
            return
        self.repeat_leave()
        deadline = self._tracker.now + self._settings.request_timeout_ms / 1000
        self.leave_deadline = deadline if self.closing is None else min(deadline, self.closing)

    def leave_as(self, member_id: str) -> None:
        """Leave with the member id in the response to a first join."""
        self.assign_member_id(member_id)
        self._send_leave()

    @property
    def owes_leave(self) -> bool:
        """True if a leave has no response yet."""
        return self._tracker.state is MemberState.LEAVING and self._pending_leave is not None

    def repeat_leave(self) -> None:
        """Send the leave, unless it is in flight or there is no coordinator."""
        in_flight = any(map(self._in_flight.is_in_flight, LEAVE_APIS))
        if self._pending_leave is not None and not in_flight and self._coordinator.coordinator is not None:
            self.send(*self._pending_leave, self._settings.request_timeout_ms)

    def leave_later(self, patience_s: float) -> None:
        """The coordinator is lost. The leave is sent to the next one, if that is found in this time (s)."""
        if self._pending_leave is None:
            self.left()
            return
        self._in_flight.cancel(*LEAVE_APIS)
        self.leave_deadline = min(self.leave_deadline, self._tracker.now + patience_s)

    def left(self, *codes: int) -> None:
        """The leave is settled or no longer waited for. An error code in its response is only noticed."""
        if any(codes):
            self._tracker.notice("leave_failed", f"the leave: {error_name(next(code for code in codes if code))}")
        self._in_flight.cancel("JoinGroup", *LEAVE_APIS)
        self._pending_leave, self.leave_deadline = None, inf
        self._tracker.transition(Trigger.LEFT)
        self._finish()

    def _finish(self) -> None:
        if self.closing is not None:
            self._tracker.transition(Trigger.CLOSED)

    def shut(self, why: str) -> None:
        """The deadline of close has come: end in any state."""
        self._tracker.notice("close_late", why)
        self._pending_leave = self._goodbye(why)
        self._drop()
        if not self._owned.callback_running:
            self.leave_after_close()
        self._owned.hook = None
        self._owned.drop(self._owned.assignment)
        self._tracker.transition(Trigger.CLOSED)

    def leave_after_close(self) -> None:
        """Leave without a wait, once no hook runs: it may be writing what the next owner of the partitions reads."""
        if self._pending_leave is not None:
            self.send(*self._pending_leave, self._settings.request_timeout_ms, awaited=False)
            self._pending_leave = None
