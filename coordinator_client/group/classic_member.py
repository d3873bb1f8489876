"""One member of one group, speaking the classic protocol (JoinGroup, SyncGroup, Heartbeat), as a pure machine.

Two verbs: `step(event, now)` takes in what happened, `ready(now)` gives out what is to be done. There is no socket, no
thread, no clock and no chance in here, so the same code runs under the driver, under a scripted coordinator in tests
and under a simulator, and every run of it can be repeated.

How to read it. `step` only records: it finds the handler of the event, which draws conclusions (a `Trigger`) and walks
(`StateTracker.go`). Whatever is due because of the state and the time is found by one pass (`_advance`) in `ready`: the
`_turn__*` methods, one a state that acts by itself. So no handler needs to remember to send something: being in JOINING
is what makes a join go out, whoever brought us there.

Its parts, each of which knows only those above it:

* what is so, shared by all (`member_context.py`): `state_tracker.py` (the state), `inflight_requests.py` (requests that
  wait), `coordinator_state.py` and `heartbeat_timers.py` (coordinator and deadlines), `topic_subscription.py`,
  `owned_partitions.py` (partitions and the hook that is due);
* `leader_members.py`: what only a leader knows;
* `membership.py`: who we are in the group; letting go, taking, losing, leaving;
* `coordinator_lookup.py`: the coordinator comes and goes;
* `leader_planning.py` (what a plan depends on, and the plan), `join_group.py` (join, sync), `heartbeat.py` (heartbeats,
  refused commits);
* `member_base.py`: the two verbs, the user's part, and when what is due, as any group protocol has it;
* this file: when the classic protocol joins, plans and rejoins.

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

from collections.abc import Sequence
from typing import Any

from kohort.assignors import Assignor
from kohort.common.errors import KohortError
from kohort.coordinator_client.group import events as ev
from kohort.coordinator_client.group import group_requests, reconcile
from kohort.coordinator_client.group.coordinator_lookup import CoordinatorLink
from kohort.coordinator_client.group.heartbeat import Standing
from kohort.coordinator_client.group.join_group import Gathering
from kohort.coordinator_client.group.leader_assignment import PlanOrder
from kohort.coordinator_client.group.leader_members import Leadership
from kohort.coordinator_client.group.leader_planning import Planning
from kohort.coordinator_client.group.member_base import COMMON_HANDLERS, COMMON_TURNS, MemberBase
from kohort.coordinator_client.group.member_config import MemberSettings
from kohort.coordinator_client.group.member_context import MemberContext
from kohort.coordinator_client.group.membership import AfterRevocation, Membership
from kohort.coordinator_client.group.ready import BacklogOrder
from kohort.coordinator_client.group.state_tracker import StateTracker
from kohort.coordinator_client.group.states import MemberState, Trigger
from kohort.coordinator_client.hooks import RebalanceCause, RebalanceReason
from kohort.network.group_types import ConsumerGroupMetadata
from kohort.network.metadata import TopicsChanged
from kohort.network.metadata_refresh import WantedTopics


class ClassicMember(MemberBase):
    """The machine of the classic protocol. `assignors`: at least one, in order of preference; all that this member
    offers in the vote."""

    def __init__(self, settings: MemberSettings, assignors: Sequence[Assignor]) -> None:
        if not assignors:
            raise KohortError(
                "a group member needs an assignor", hint="name one, e.g. 'range'", group=settings.group_id
            )
        self.mode = reconcile.mode_of(assignors)
        by_name = {assignor.name: assignor for assignor in assignors}

        shared = MemberContext.of(settings, StateTracker())
        leadership = Leadership(shared.topics, racks_matter=settings.rack_id is not None)

        def farewell(identity: ConsumerGroupMetadata, reason: str) -> tuple[str, Any] | None:
            return ("LeaveGroup", group_requests.leave_group(identity, reason)) if settings.leaves else None

        membership = Membership(shared, farewell, leadership.end)
        link = CoordinatorLink(shared, membership)
        super().__init__(shared, membership, link)
        self._leadership = leadership
        self._planning = Planning(shared, by_name, leadership)
        self._gathering = Gathering(shared, by_name, leadership, self._planning, membership, link)
        self._standing = Standing(shared, membership, link)

    # ---------------------------------------------------------------------------------------------- what is due, when

    def _leads(self) -> bool:
        return self._leadership.leads

    def _wanted(self) -> WantedTopics:
        return self._topics.wanted(self._leadership.group_topics)

    def _drain_backlog(self) -> BacklogOrder | None:
        return self._planning.drain_backlog()

    def _drain_plan(self) -> PlanOrder | None:
        return self._planning.drain_plan()

    def _watch(self) -> None:
        self._standing.watch_silence()

    def _beat(self) -> None:
        self._standing.beat()

    def _start_afresh(self) -> None:
        self._gathering.start_afresh()

    def _turn__stable(self) -> bool:
        cause = self._wants_rebalance()
        if cause is None or self._topics.meant is None:
            return False
        self._tracker.begin_rebalance(cause)
        if not self._lets_go_first(self._topics.meant):
            self._membership.after_revocation = AfterRevocation.REJOIN
            self._tracker.transition(Trigger.MUST_JOIN)
        return True

    def _wants_rebalance(self) -> RebalanceCause | None:
        """The cause of a rebalance, if one is due.

        Causes: a request to rejoin, topics other than those joined with, or, in a leader, changes of assigned topics.
        """
        if self._membership.rejoin is not None:
            return self._membership.rejoin
        topics, moved = self._topics, self._leadership.moved
        if topics.meant is not None and topics.meant != topics.joined:
            changed = ", ".join(sorted(topics.meant ^ topics.joined)[:5])
            return RebalanceCause(
                RebalanceReason.TOPICS_CHANGED if topics.by_pattern else RebalanceReason.SUBSCRIPTION_CHANGED, changed
            )
        if moved:
            return RebalanceCause(RebalanceReason.TOPICS_CHANGED, ", ".join(moved[:5]))
        return None

    def _lets_go_first(self, topics: frozenset[str]) -> bool:
        """Before a join: revoke the partitions that the rebalance protocol requires, by the user's hook."""
        revoked = reconcile.before_join(self.mode, self._owned.partitions, topics)
        if revoked:
            self._membership.revoke_before_join(revoked)
        return bool(revoked)

    def _turn__joining(self) -> bool:
        if self._in_flight.is_in_flight("JoinGroup"):
            return False
        topics, waits = self._topics.meant, self._tracker.now < self._gathering.join_not_before
        if topics is None or waits or self._coordinator.coordinator is None:
            return False
        # The subscription may have shrunk while we waited here.
        if self._lets_go_first(topics):
            return True
        self._gathering.join(topics)
        return False

    def _turn__planning(self) -> bool:
        error = self._planning.advance(self._membership.protocol or "")
        if error is not None:
            self._membership.fail(error)
        return error is not None

    def _times(self) -> list[float]:
        times = self._standing.times()
        match self._tracker.state:
            case MemberState.JOINING if self._in_flight.is_in_flight("JoinGroup"):
                pass  # its answer is waited for, and `heartbeat.py` looks after what we hold meanwhile
            case MemberState.JOINING if self._coordinator.coordinator is not None and self._topics.meant is not None:
                times.append(self._gathering.join_not_before)
            case MemberState.PLANNING:
                times.append(self._planning.wake_at())
        return times

    # ------------------------------------------------------------------------------------------ what is told to us

    def _on_rebalance_enforced(self, event: ev.RebalanceEnforced) -> None:
        """KIP-568: "if a rebalance is already in progress, this is a no-op"."""
        if self._tracker.state is MemberState.STABLE:
            self._membership.rejoin = RebalanceCause(RebalanceReason.ENFORCED, event.reason)
        else:
            self._tracker.notice("rebalance_not_enforced", f"not now: {self._tracker.state.value}")

    def _on_topics_changed(self, event: TopicsChanged) -> None:
        self._topics.learn(event)
        self._leadership.look_again()

    HANDLERS = {
        **COMMON_HANDLERS,
        ev.JoinGroupResponded: lambda member, event: member._gathering.on_joined(event),
        ev.SyncGroupResponded: lambda member, event: member._gathering.on_synced(event),
        ev.HeartbeatResponded: lambda member, event: member._standing.on_response(event),
        ev.LeaveGroupResponded: lambda member, event: member._membership.on_left(event),
        ev.CommitRefused: lambda member, event: member._standing.on_commit_refused(event),
        ev.RebalanceEnforced: _on_rebalance_enforced,
        TopicsChanged: _on_topics_changed,
        ev.LagKnown: lambda member, event: member._planning.on_backlog(event),
        ev.PlanMade: lambda member, event: member._gathering.on_planned(event),
    }

    TURNS = {
        **COMMON_TURNS,
        MemberState.JOINING: _turn__joining,
        MemberState.PLANNING: _turn__planning,
        MemberState.STABLE: _turn__stable,
    }
