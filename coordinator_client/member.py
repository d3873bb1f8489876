"""One member of one group, speaking the classic protocol (JoinGroup, SyncGroup, Heartbeat), as a pure machine.

Two verbs: `step(event, now)` takes in what happened, `ready(now)` gives out what is to be done. There is no socket, no
thread, no clock and no chance in here, so the same code runs under the driver, under a scripted coordinator in tests
and under a simulator, and every run of it can be repeated.

How to read it. `step` only records: it finds the handler of the event, which draws conclusions (a `Trigger`) and walks
(`Walk.go`). Whatever is due because of the state and the time is found by one pass (`_advance`) in `ready`: the
`_turn__*` methods, one a state that acts by itself. So no handler needs to remember to send something: being in JOINING
is what makes a join go out, whoever brought us there.

Its parts, each of which knows only those above it:

* what is so: `walk.py` (the state), `in_flight.py` (requests that wait), `search.py` and `pulse.py` (coordinator and
  deadlines), `topics.py`, `leadership.py`, `holding.py` (partitions and the hook that is due);
* `membership.py`: who we are in the group; letting go, taking, losing, leaving;
* `coordinator_link.py`: the coordinator comes and goes;
* `gathering.py` (join, plan, sync) and `standing.py` (heartbeats, refused commits);
* this file: the user's verbs, and when what is due.

What keeps it from the classic troubles of group clients:

* Generation and member id live in `membership.py` and nowhere else, and every request in flight is remembered with the
  identity it was sent under. An answer to a request that is not waited for any more is dropped; an expulsion is
  believed only if it speaks of the identity we still have. (A generation reset while a join was in flight is how
  members of other clients rejoin for ever.)
* One intention (`Membership.then`) says what follows when everything is let go: join, take what arrived, leave, or
  stop. A close or a fatal error that comes in the middle changes the intention, not the walk.
* At most one hook call is due, and while it runs the machine does not leave its state but by loss or stall; so hooks
  come in the order in which things happened, each before its consequences.
"""

from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import Any, Final

from kohort.assignors import Assignor
from kohort.coordinator_client import events as ev
from kohort.coordinator_client import reconcile
from kohort.coordinator_client.coordinator_link import CoordinatorLink
from kohort.coordinator_client.gathering import Gathering
from kohort.coordinator_client.holding import Holding
from kohort.coordinator_client.hooks import Cause, Why
from kohort.coordinator_client.in_flight import InFlight
from kohort.coordinator_client.leadership import Leadership
from kohort.coordinator_client.membership import Membership, Then
from kohort.coordinator_client.pulse import Pulse
from kohort.coordinator_client.ready import MemberView, Ready
from kohort.coordinator_client.search import CoordinatorSearch
from kohort.coordinator_client.settings import MemberSettings
from kohort.coordinator_client.standing import Standing
from kohort.coordinator_client.states import COMMITS_HELD, IN_GROUP, CoordinatorState, MemberState, Trigger
from kohort.coordinator_client.topics import Topics
from kohort.coordinator_client.walk import Walk
from kohort.fastpath.errors import KohortError


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
        by_name = {assignor.name: assignor for assignor in assignors}

        walk, in_flight, holding = Walk(), InFlight(), Holding()
        search, pulse = CoordinatorSearch(settings), Pulse(settings)
        topics = Topics(hide_internal=settings.exclude_internal_topics)
        leadership = Leadership(topics, racks_matter=settings.rack_id is not None)
        membership = Membership(settings, walk, in_flight, search, leadership, holding)
        link = CoordinatorLink(settings, walk, in_flight, search, pulse, membership)

        self.timeline = walk.timeline
        self._walk = walk
        self._in_flight = in_flight
        self._holding = holding
        self._search = search
        self._pulse = pulse
        self._topics = topics
        self._leadership = leadership
        self._membership = membership
        self._link = link
        self._gathering = Gathering(
            settings, by_name, walk, in_flight, search, pulse, topics, leadership, holding, membership, link
        )
        self._standing = Standing(settings, walk, in_flight, search, pulse, membership, link)

    # ------------------------------------------------------------------------------------------------- the two verbs

    def step(self, event: ev.Event, now: float) -> None:
        """Take in what happened at `now` (monotonic seconds)."""
        self._walk.at(now)
        self._in_flight.off_the_wire(getattr(event, "serial", None))
        if self._walk.state is not MemberState.CLOSED:
            _HANDLERS[type(event)](self, event)

    def ready(self, now: float) -> Ready:
        """What is to be done at `now`. Drains: sends, notices and commit orders are given once."""
        self._walk.at(now)
        self._advance()
        return Ready(
            view=self.view(),
            hook=self._holding.hook,
            commit=self._membership.drain_order(),
            sends=self._in_flight.drain_sends(),
            wanted=self._topics.wanted(self._leadership.group_topics),
            notices=self._walk.drain_notices(),
            wake_at=self._wake_at(),
        )

    def view(self) -> MemberView:
        """The member as it stands, without advancing it."""
        membership = self._membership
        return MemberView(
            state=self._walk.state,
            since=self._walk.since,
            coordinator_state=self._search.state,
            coordinator=self._search.coordinator,
            identity=membership.identity,
            leader=self._leadership.leads,
            protocol=membership.protocol,
            assignment=self._holding.assignment,
            fetchable=self._holding.fetchable(alive=membership.alive),
            lease_until=self._pulse.lease_until if membership.alive else inf,
            commits_open=self._walk.state not in COMMITS_HELD,
            rejoin_wanted=membership.rejoin is not None,
            last_beat_at=self._pulse.last_beat_at,
            cause=self._walk.cause,
            fatal=membership.fatal,
        )

    # ---------------------------------------------------------------------------------------------- what is due, when

    def _advance(self) -> None:
        if self._walk.state is MemberState.CLOSED:
            return
        closing = self._membership.closing
        if closing is not None and self._walk.now >= closing:
            self._membership.shut("no time left to close in order")
            return
        self._watch_poll()
        self._standing.watch_silence()
        self._link.watch_answers()
        while (turn := _TURNS.get(self._walk.state)) is not None and turn(self):
            pass
        self._link.find()
        self._standing.beat()

    @property
    def _poll_matters(self) -> bool:
        return self._walk.state in IN_GROUP and self._membership.closing is None

    def _watch_poll(self) -> None:
        """KIP-62: a handler that does not come back to poll in time makes its member leave: others take over."""
        if not self._poll_matters:
            return
        now, pulse = self._walk.now, self._pulse
        if now >= pulse.stall_at:
            self._membership.stall()
        elif now >= pulse.warn_at:
            pulse.warned = True
            left_s = pulse.stall_at - now
            self._walk.notice(
                "poll_stalling",
                f"no poll for {now - (pulse.busy_since or 0.0):.1f} s: in {left_s:.1f} s this member "
                f"leaves the group (max_poll_interval_ms={self.settings.max_poll_interval_ms})",
            )

    def _turn__stable(self) -> bool:
        cause = self._wants_rebalance()
        if cause is None or self._topics.meant is None:
            return False
        self._walk.begin(cause)
        if not self._lets_go_first(self._topics.meant):
            self._membership.then = Then.JOIN
            self._walk.go(Trigger.MUST_JOIN)
        return True

    def _wants_rebalance(self) -> Cause | None:
        """Told so, or our topics are not those we joined with, or we lead and what we assigned has changed."""
        if self._membership.rejoin is not None:
            return self._membership.rejoin
        topics, moved = self._topics, self._leadership.moved
        if topics.meant is not None and topics.meant != topics.joined:
            changed = ", ".join(sorted(topics.meant ^ topics.joined)[:5])
            return Cause(Why.TOPICS_CHANGED if topics.by_pattern else Why.SUBSCRIPTION_CHANGED, changed)
        if moved:
            return Cause(Why.TOPICS_CHANGED, ", ".join(moved[:5]))
        return None

    def _lets_go_first(self, topics: frozenset[str]) -> bool:
        """Before a join: let go what the rebalance protocol asks for, with the user's consent first."""
        revoked = reconcile.before_join(self.mode, self._holding.partitions, topics)
        if revoked:
            self._membership.let_go_before_join(revoked)
        return bool(revoked)

    def _turn__joining(self) -> bool:
        if (sent_at := self._in_flight.asked_at("JoinGroup")) is not None:
            self._pulse.joining(self._walk.now, sent_at)
            return False
        topics, waits = self._topics.meant, self._walk.now < self._gathering.join_not_before
        if topics is None or waits or self._search.coordinator is None:
            return False
        # The subscription may have shrunk while we waited here.
        if self._lets_go_first(topics):
            return True
        self._gathering.join(topics)
        return False

    def _turn__planning(self) -> bool:
        if self._leadership.missing and self._walk.now < self._leadership.plan_deadline:
            return False
        self._gathering.plan(Trigger.PLANNED)
        return True

    def _turn__committing(self) -> bool:
        order = self._membership.order
        if order is not None and self._walk.now < order.deadline:
            return False
        self._membership.commit_late()
        return True

    def _turn__leaving(self) -> bool:
        if self._walk.now < self._membership.leave_deadline:
            return False
        self._membership.left()
        return True

    def _wake_at(self) -> float | None:
        membership, now = self._membership, self._walk.now
        if self._walk.state is MemberState.CLOSED:
            return None
        times = [inf if membership.closing is None else membership.closing, *self._in_flight.overdue_times()]
        if self._poll_matters:
            times += [self._pulse.stall_at, self._pulse.warn_at]
        times += self._standing.times()
        if self._link.needed and self._search.state is CoordinatorState.UNKNOWN:
            times.append(self._search.retry_at)
        match self._walk.state:
            case MemberState.JOINING if self._in_flight.waits_for("JoinGroup"):
                times.append(now + self._pulse.interval_s)  # the lease moves while we look
            case MemberState.JOINING if self._search.coordinator is not None and self._topics.meant is not None:
                times.append(self._gathering.join_not_before)
            case MemberState.PLANNING:
                times.append(self._leadership.plan_deadline)
            case MemberState.COMMITTING if membership.order is not None:
                times.append(membership.order.deadline)
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
        match self._walk.state:
            case MemberState.OUT | MemberState.LEAVING | MemberState.FAILED:
                self._in_flight.forget("LeaveGroup")
                membership.then = Then.JOIN
                membership.fatal = None
                self._gathering.start_afresh()
                self._pulse.busy(self._walk.now)
                self._walk.begin(Cause(Why.FIRST_JOIN))
                self._walk.go(Trigger.SUBSCRIBED)
            case _ if membership.then is Then.LEAVE:
                membership.then = Then.JOIN

    def _on_unsubscribed(self, event: ev.Unsubscribed) -> None:
        self._topics.subscribe(None)
        self._membership.part(Cause(Why.UNSUBSCRIBED), "the consumer unsubscribed")

    def _on_close_requested(self, event: ev.CloseRequested) -> None:
        self._membership.closing = event.deadline
        self._topics.subscribe(None)
        self._membership.part(Cause(Why.CLOSED), event.reason)

    def _on_polled(self, event: ev.Polled) -> None:
        self._pulse.polling()
        if self._walk.state is MemberState.STALLED and not self._holding.hook_runs:
            self._membership.back_from_stall()

    def _on_poll_ended(self, event: ev.PollEnded) -> None:
        self._pulse.busy(event.at)

    def _on_hook_started(self, event: ev.HookStarted) -> None:
        if self._holding.started(event.serial):
            self._pulse.busy(event.at)

    def _on_hook_done(self, event: ev.HookDone) -> None:
        if (hook := self._holding.ended(event.serial)) is not None:
            self._pulse.polling()
            self._membership.hook_done(hook, event)

    def _on_rebalance_enforced(self, event: ev.RebalanceEnforced) -> None:
        """KIP-568: "if a rebalance is already in progress, this is a no-op"."""
        if self._walk.state is MemberState.STABLE:
            self._membership.rejoin = Cause(Why.ENFORCED, event.reason)
        else:
            self._walk.notice("rebalance_not_enforced", f"not now: {self._walk.state.value}")

    # ------------------------------------------------------------------------------------------- the rest of the client

    def _on_coordinator_wanted(self, event: ev.CoordinatorWanted) -> None:
        self._link.wanted = event.wanted

    def _on_topics_changed(self, event: ev.TopicsChanged) -> None:
        self._topics.learn(event)
        self._leadership.look_again()

    def _on_commit_settled(self, event: ev.CommitSettled) -> None:
        order = self._membership.order
        if order is not None and event.serial == order.serial:
            self._membership.commit_settled(event.refused)


_HANDLERS: Final[Mapping[type, Callable[[GroupMember, Any], None]]] = {
    ev.CoordinatorFound: lambda member, event: member._link.on_found(event),
    ev.Joined: lambda member, event: member._gathering.on_joined(event),
    ev.Synced: lambda member, event: member._gathering.on_synced(event),
    ev.Beat: lambda member, event: member._standing.on_beat(event),
    ev.Left: lambda member, event: member._membership.on_left(event),
    ev.Refused: lambda member, event: member._link.on_refused(event),
    ev.Disconnected: lambda member, event: member._link.on_disconnected(event),
    ev.CommitRefused: lambda member, event: member._standing.on_commit_refused(event),
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
    ev.CommitSettled: GroupMember._on_commit_settled,
}

_TURNS: Final[Mapping[MemberState, Callable[[GroupMember], bool]]] = {
    MemberState.JOINING: GroupMember._turn__joining,
    MemberState.PLANNING: GroupMember._turn__planning,
    MemberState.COMMITTING: GroupMember._turn__committing,
    MemberState.LEAVING: GroupMember._turn__leaving,
    MemberState.STABLE: GroupMember._turn__stable,
}
