"""The bases of the members of both group protocols, and of their heartbeats: the two methods, the user, and deadlines.

A subclass creates the parts of its protocol, adds its events to `HANDLERS` and its states to `TURNS`. It defines its
other requests and deadlines. `classic_member.py` is the classic protocol and has the reading guide.
"""

from collections.abc import Callable, Mapping
from math import inf
from typing import Any, ClassVar, Final

from kohort.coordinator_client.group import events as ev
from kohort.coordinator_client.group.coordinator_lookup import CoordinatorLink
from kohort.coordinator_client.group.member_context import LEAVE_APIS, MemberComponent, MemberContext
from kohort.coordinator_client.group.membership import AfterRevocation, Membership
from kohort.coordinator_client.group.ready import BacklogOrder, MemberView, PlanOrder, Ready
from kohort.coordinator_client.group.states import COMMITS_HELD, IN_GROUP, CoordinatorState, MemberState, Trigger
from kohort.coordinator_client.hooks import RebalanceCause, RebalanceReason
from kohort.network.metadata_refresh import WantedTopics


class Heartbeats(MemberComponent):
    """The heartbeats of a member. A subclass sends those of its protocol, and handles their responses."""

    def __init__(self, shared: MemberContext, membership: Membership, link: CoordinatorLink) -> None:
        super().__init__(shared)
        self._membership = membership
        self._link = link

    @property
    def _beating(self) -> bool:
        """True if the group expects heartbeats and the coordinator is known."""
        raise NotImplementedError

    def _due_at(self) -> float:
        """The time (monotonic s) of the next heartbeat; infinity if none may be sent."""
        raise NotImplementedError

    def _send(self, timeout_ms: int) -> None:
        """Send a heartbeat."""
        raise NotImplementedError

    def on_commit_refused(self, event: ev.CommitRefused) -> None:
        """Act on an error code of a commit, as on one of a heartbeat."""
        raise NotImplementedError

    @property
    def _silent_at(self) -> float:
        """The time (monotonic s) at which a coordinator without responses counts as gone."""
        return self._timers.session_deadline if self._beating else inf

    def times(self) -> list[float]:
        """The times (monotonic s) at which to look again."""
        return [self._silent_at, self._due_at()]

    def watch_silence(self) -> None:
        if self._tracker.now >= self._silent_at:
            self._link.gone("no response for a whole session timeout")

    def beat(self) -> None:
        """Send a heartbeat, if one is due."""
        if self._tracker.now >= self._due_at():
            self._timers.heartbeat_sent_at = self._tracker.now
            self._send(min(self._settings.request_timeout_ms, self._settings.session_timeout_ms))


class MemberBase(MemberComponent):
    """See the module. Raises `IllegalTransition` (a defect of kohort) but no other error. Errors are in
    `Ready.view.fatal`."""

    HANDLERS: ClassVar[Mapping[type, Callable[[Any, Any], None]]]
    TURNS: ClassVar[Mapping[MemberState, Callable[[Any], bool]]]

    def __init__(
        self, shared: MemberContext, membership: Membership, link: CoordinatorLink, heartbeat: Heartbeats
    ) -> None:
        super().__init__(shared)
        self.settings = shared.settings
        self.timeline = shared.tracker.timeline
        self._membership = membership
        self._link = link
        self._heartbeat = heartbeat

    # ------------------------------------------------------------------------------------------------- the two verbs

    def step(self, event: ev.Event, now: float) -> None:
        """Take in what happened at `now` (monotonic seconds)."""
        self._tracker.at(now)
        self._in_flight.on_result(getattr(event, "serial", None))
        if self._tracker.state is not MemberState.CLOSED:
            self.HANDLERS[type(event)](self, event)
        elif isinstance(event, ev.HookDone):
            self._membership.leave_after_close()

    def ready(self, now: float) -> Ready:
        """The work that is due at `now`. Drains: sends, notices and commit orders are given once."""
        self._tracker.at(now)
        self._advance()
        return Ready(
            view=self.view(),
            hook=self._owned.hook,
            commit=self._membership.drain_commit_order(),
            sends=self._in_flight.drain_sends(),
            wanted=self._wanted(),
            backlog=self._drain_backlog(),
            plan=self._drain_plan(),
            error=self._membership.drain_error(),
            notices=self._tracker.drain_notices(),
            wake_at=self._wake_at(),
        )

    def view(self) -> MemberView:
        """Return the member's current view, without advancing it."""
        membership = self._membership
        return MemberView(
            state=self._tracker.state,
            since=self._tracker.since,
            coordinator=self._coordinator.coordinator,
            identity=membership.identity,
            held=membership.last_identity,
            assignment=self._owned.assignment,
            fetchable=self._owned.fetchable(alive=membership.in_generation),
            ownership_deadline=self._timers.ownership_deadline if membership.in_generation else inf,
            commits_open=self._tracker.state not in COMMITS_HELD,
            last_beat_at=self._timers.last_heartbeat_at,
            fatal=membership.fatal,
        )

    @property
    def is_held_up(self) -> bool:
        """True if a join or sync, also a cancelled one, has no response yet."""
        return self._in_flight.is_held_up

    # ------------------------------------------------------------------------------- what the class of a protocol adds

    def _wanted(self) -> WantedTopics:
        """The topics with needed metadata."""
        raise NotImplementedError

    def _drain_backlog(self) -> BacklogOrder | None:
        """The lag query that a plan needs first, if this member makes plans."""
        return None

    def _drain_plan(self) -> PlanOrder | None:
        """The plan to make, if this member makes plans."""
        return None

    def _times(self) -> list[float]:
        """The times (monotonic s) at which the protocol has to look again, without those of heartbeats."""
        raise NotImplementedError

    def _start_afresh(self) -> None:
        """A new subscription pays for nothing that an earlier one met."""
        raise NotImplementedError

    # ---------------------------------------------------------------------------------------------- what is due, when

    def _advance(self) -> None:
        if self._tracker.state is MemberState.CLOSED:
            return
        closing = self._membership.closing
        if closing is not None and self._tracker.now >= closing:
            self._membership.shut("no time left to close in order")
            return
        self._watch_poll()
        self._heartbeat.watch_silence()
        self._link.watch_responses()
        while (turn := self.TURNS.get(self._tracker.state)) is not None and turn(self):
            pass
        self._link.find()
        self._heartbeat.beat()

    @property
    def _poll_matters(self) -> bool:
        return self._tracker.state in IN_GROUP and self._membership.closing is None

    def _watch_poll(self) -> None:
        """KIP-62: a member whose handler does not return to poll in time leaves the group, so that others take over."""
        if not self._poll_matters:
            return
        now, pulse = self._tracker.now, self._timers
        if now >= pulse.poll_deadline:
            self._membership.stall()
        elif now >= pulse.warn_at:
            pulse.warned = True
            left_s = pulse.poll_deadline - now
            self._tracker.notice(
                "poll_stalling",
                f"no poll for {now - (pulse.processing_since or 0.0):.1f} s: in {left_s:.1f} s this member "
                f"leaves the group (max_poll_interval_ms={self.settings.max_poll_interval_ms})",
            )

    def _turn__committing(self) -> bool:
        order = self._membership.commit_order
        if order is not None and self._tracker.now < order.deadline:
            return False
        self._membership.commit_late()
        return True

    def _turn__leaving(self) -> bool:
        if self._tracker.now < self._membership.leave_deadline:
            self._membership.repeat_leave()
            return False
        self._membership.left()
        return True

    def _wake_at(self) -> float | None:
        membership = self._membership
        if self._tracker.state is MemberState.CLOSED:
            return None
        times = [inf if membership.closing is None else membership.closing, *self._in_flight.overdue_times()]
        if self._poll_matters:
            times += [self._timers.poll_deadline, self._timers.warn_at]
        times += [*self._heartbeat.times(), *self._times()]
        if self._link.needed and self._coordinator.state is CoordinatorState.UNKNOWN:
            times.append(self._coordinator.retry_at)
        match self._tracker.state:
            case MemberState.COMMITTING if membership.commit_order is not None:
                times.append(membership.commit_order.deadline)
            case MemberState.LEAVING:
                times.append(membership.leave_deadline)
        earliest = min(times)
        return None if earliest == inf else earliest

    # ------------------------------------------------------------------------------------------------------ the user

    def _on_subscribed(self, event: ev.Subscribed) -> None:
        membership = self._membership
        if membership.closing is not None:
            return
        self._topics.subscribe(event.subscription)
        match self._tracker.state:
            case MemberState.OUT | MemberState.LEAVING | MemberState.FAILED:
                self._in_flight.cancel("JoinGroup", *LEAVE_APIS)
                membership.after_revocation = AfterRevocation.REJOIN
                membership.fatal = None
                self._start_afresh()
                self._timers.processing(self._tracker.now)
                self._tracker.begin_rebalance(RebalanceCause(RebalanceReason.FIRST_JOIN))
                self._tracker.transition(Trigger.SUBSCRIBED)
            case _ if membership.after_revocation is AfterRevocation.LEAVE:
                membership.after_revocation = AfterRevocation.REJOIN

    def _on_unsubscribed(self, event: ev.Unsubscribed) -> None:
        self._topics.subscribe(None)
        self._membership.leave(RebalanceCause(RebalanceReason.UNSUBSCRIBED), "the consumer unsubscribed")

    def _on_close_requested(self, event: ev.CloseRequested) -> None:
        self._membership.closing = event.deadline
        self._topics.subscribe(None)
        self._membership.leave(RebalanceCause(RebalanceReason.CLOSED), event.reason)

    def _on_polled(self, event: ev.Polled) -> None:
        self._timers.polling()
        if self._tracker.state is MemberState.STALLED and not self._owned.callback_running:
            self._membership.return_from_stall()

    def _on_poll_ended(self, event: ev.PollEnded) -> None:
        self._timers.processing(event.at)

    def _on_hook_started(self, event: ev.HookStarted) -> None:
        if self._owned.started(event.serial):
            self._timers.processing(event.at)

    def _on_hook_done(self, event: ev.HookDone) -> None:
        if (hook := self._owned.ended(event.serial)) is not None:
            self._timers.polling()
            self._membership.hook_done(hook, event)

    # ------------------------------------------------------------------------------------------- the rest of the client

    def _on_commit_refused(self, event: ev.CommitRefused) -> None:
        self.timeline.commit_refused(event.partitions, event.code)
        self._heartbeat.on_commit_refused(event)

    def _on_commit_settled(self, event: ev.CommitSettled) -> None:
        order = self._membership.commit_order
        if order is not None and event.serial == order.serial:
            self._membership.commit_settled(event.refused)


COMMON_HANDLERS: Final[Mapping[type, Callable[[MemberBase, Any], None]]] = {
    ev.FindCoordinatorResponded: lambda member, event: member._link.on_found(event),
    ev.RequestFailed: lambda member, event: member._link.on_refused(event),
    ev.Disconnected: lambda member, event: member._link.on_disconnected(event),
    ev.Subscribed: MemberBase._on_subscribed,
    ev.Unsubscribed: MemberBase._on_unsubscribed,
    ev.Polled: MemberBase._on_polled,
    ev.PollEnded: MemberBase._on_poll_ended,
    ev.HookStarted: MemberBase._on_hook_started,
    ev.HookDone: MemberBase._on_hook_done,
    ev.CloseRequested: MemberBase._on_close_requested,
    ev.CommitRefused: MemberBase._on_commit_refused,
    ev.CommitSettled: MemberBase._on_commit_settled,
}

COMMON_TURNS: Final[Mapping[MemberState, Callable[[MemberBase], bool]]] = {
    MemberState.COMMITTING: MemberBase._turn__committing,
    MemberState.LEAVING: MemberBase._turn__leaving,
}
