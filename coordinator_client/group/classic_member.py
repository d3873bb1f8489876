"""One member of one group with the classic protocol (JoinGroup, SyncGroup, Heartbeat), as a pure machine.

There are two methods: `step(event, now)` takes an event, `ready(now)` returns the due work. The machine has no socket,
thread, clock or source of randomness. The same code runs under the driver, under a scripted coordinator in tests and in
a simulator, and every run can be repeated.

Reading guide. `step` only records: it finds the handler of the event, which draws a conclusion (a `Trigger`) and
changes the state (`StateTracker.transition`). `ready` finds all work that is due by state and time in one pass
(`_advance`). These are the `_turn__*` methods, one for each state that acts by itself. No handler therefore needs to
send a request. JOINING, for example, causes a join, regardless of the event that led there.

Its parts, each of which uses only those above it:

* the shared state: `states.py` (the state and its history), `member_timers.py` (deadlines), `member_context.py`
  (coordinator, requests in flight, topics, partitions and the due hook);
* `membership.py`: the identity in the group; revoking, assigning, losing, leaving;
* `coordinator_lookup.py`: finding and losing the coordinator;
* `leader_assignment.py` (the data that only a leader has, and the plan), `join_group.py` (join, sync);
* `member_base.py`: the two methods, the user's part, and the deadlines of any group protocol;
* this file: heartbeats and rejected commits, then the joins, plans and rejoins of the classic protocol.

It avoids the known defects of group clients as follows:

* Generation and member id are only in `membership.py`, and every request in flight has the identity under which it was
  sent. Responses to cancelled requests are dropped. UNKNOWN_MEMBER_ID and ILLEGAL_GENERATION are ignored unless the
  request was sent with the current identity. (In other clients, a generation that is reset during a join makes members
  rejoin for ever.)
* One intention (`Membership.after_revocation`) is the step after the revocation: rejoin, accept the assignment, leave
  or close. A close or a fatal error in between changes the intention, not the sequence of states.
* At most one hook call is due, and while it runs the machine leaves its state only by a loss or a stall. Hooks are
  therefore called in the order of the events, each before its consequences.
"""

from collections.abc import Sequence
from math import inf
from typing import TYPE_CHECKING, Any, Final

from kohort.assignors import Assignor
from kohort.common.errors import KohortError
from kohort.coordinator_client.group import events as ev
from kohort.coordinator_client.group.coordinator_lookup import CoordinatorLink
from kohort.coordinator_client.group.error_actions import REACTIONS, ErrorAction
from kohort.coordinator_client.group.join_group import Gathering
from kohort.coordinator_client.group.leader_assignment import Leadership, Planning
from kohort.coordinator_client.group.member_base import COMMON_HANDLERS, COMMON_TURNS, Heartbeats, MemberBase
from kohort.coordinator_client.group.member_context import MemberContext
from kohort.coordinator_client.group.member_timers import MemberSettings
from kohort.coordinator_client.group.membership import AfterRevocation, Membership, before_join, mode_of
from kohort.coordinator_client.group.ready import BacklogOrder, PlanOrder
from kohort.coordinator_client.group.states import HEARTBEATING, MemberState, StateTracker, Trigger
from kohort.coordinator_client.hooks import RebalanceCause, RebalanceReason
from kohort.network.group_types import REASON_CHARACTERS_MAX, ConsumerGroupMetadata
from kohort.network.metadata import TopicsChanged
from kohort.network.metadata_refresh import WantedTopics
from kohort.protocol.errors import ErrorCode, error_name

if TYPE_CHECKING:
    from kohort.protocol.apis.leave_group import LeaveGroupRequest

ENOUGH_PROBES: Final = 3
"""Number of successive heartbeats with a newer generation after which a join's response counts as lost."""


def leave_group(identity: ConsumerGroupMetadata, reason: str) -> "LeaveGroupRequest":
    from kohort.protocol.apis.leave_group import LeaveGroupRequest, MemberIdentity

    return LeaveGroupRequest(
        group_id=identity.group_id,
        member_id=identity.member_id,
        members=(
            MemberIdentity(
                member_id=identity.member_id,
                group_instance_id=identity.instance_id,
                reason=reason[:REASON_CHARACTERS_MAX],
            ),
        ),
    )


class ClassicHeartbeat(Heartbeats):
    """Sends heartbeats while the group expects them, and acts on their responses, time-outs and refused commits.

    UNKNOWN_MEMBER_ID and ILLEGAL_GENERATION are ignored unless the request was sent with the present identity.
    """

    def __init__(self, shared: MemberContext, membership: Membership, link: CoordinatorLink) -> None:
        super().__init__(shared, membership, link)
        self._gone_on = 0

    @property
    def _beating(self) -> bool:
        known = self._coordinator.coordinator is not None
        return known and self._tracker.state in HEARTBEATING and self._membership.in_generation

    @property
    def _probing(self) -> bool:
        """True if heartbeats are sent while partitions are kept and a join waits at the coordinator.

        The group expects none then. They check that the join's response can still come. It may have been lost on the
        way. The coordinator may also be another broker by now, and the partitions may have other owners.
        """
        waits = self._tracker.state is MemberState.JOINING and self._in_flight.is_in_flight("JoinGroup")
        return waits and self._membership.in_generation and bool(self._owned.assignment)

    def _due_at(self) -> float:
        if self._in_flight.is_in_flight("Heartbeat") or not (self._beating or self._probing):
            return inf
        return self._timers.next_heartbeat_at

    def beat(self) -> None:
        """Send a heartbeat, if one is due."""
        if self._tracker.state is MemberState.STABLE:
            self._timers.stable_since(self._tracker.since)
        super().beat()

    def _send(self, timeout_ms: int) -> None:
        from kohort.protocol.apis.heartbeat import HeartbeatRequest

        identity = self._membership.identity
        request = HeartbeatRequest(
            group_id=identity.group_id,
            generation_id=identity.generation,
            member_id=identity.member_id,
            group_instance_id=identity.instance_id,
        )
        self._membership.send("Heartbeat", request, timeout_ms)

    def on_response(self, event: ev.HeartbeatResponded) -> None:
        requested = self._in_flight.complete(event.serial)
        if requested is None:
            return
        code = event.response.error_code
        current = requested.identity == self._membership.identity
        if code in (0, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.REBALANCE_IN_PROGRESS):
            self._coordinator.proved()
        if code in (0, ErrorCode.REBALANCE_IN_PROGRESS) and current:
            self._timers.confirmed(requested.sent_at, settled=code == 0 or requested.use_other_connection)
            self._timers.last_heartbeat_at = requested.sent_at
        if requested.use_other_connection:
            self._probed(code, current)
        elif code != 0:
            self._reported("Heartbeat", code, current)

    def _probed(self, code: int, current: bool) -> None:
        """Handle the response to a heartbeat that was sent by another connection during a join.

        The join's own response decides about membership. If the group has gone on since, that response should be on its
        way. After `ENOUGH_PROBES` such heartbeats in a row it counts as lost.
        """
        gone_on = (
            current
            and code in (ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID)
            and self._in_flight.is_in_flight("JoinGroup")
        )
        self._gone_on = self._gone_on + 1 if gone_on else 0
        if self._gone_on >= ENOUGH_PROBES:
            self._gone_on = 0
            self._in_flight.use_new_connection_next()
            self._link.gone("the response to the JoinGroup was lost")
        elif REACTIONS["Heartbeat"].get(code) is ErrorAction.REDISCOVER:
            self._link.gone(f"Heartbeat: {error_name(code)}")

    def on_commit_refused(self, event: ev.CommitRefused) -> None:
        if event.code not in REACTIONS["OffsetCommit"]:
            return
        current = event.sent == self._membership.identity and event.sent.generation >= 0
        if self._in_flight.is_in_flight("JoinGroup") and event.code in (
            ErrorCode.ILLEGAL_GENERATION,
            ErrorCode.UNKNOWN_MEMBER_ID,
        ):
            return  # it lost a race against the member's own join, whose response decides
        self._reported("OffsetCommit", event.code, current)

    def _reported(self, api: str, code: int, current: bool) -> None:
        """Act on an error code about membership. `current`: it was sent with the present identity."""
        reaction = REACTIONS[api].get(code, ErrorAction.FATAL)
        match reaction:
            case ErrorAction.REJOIN if current and self._tracker.state is MemberState.STABLE:
                why = RebalanceReason.REBALANCE_IN_PROGRESS if api == "Heartbeat" else RebalanceReason.COMMIT_REFUSED
                self._membership.rejoin = self._membership.rejoin or RebalanceCause(why)
            case ErrorAction.REDISCOVER:
                self._link.gone(f"{api}: {error_name(code)}")
            case ErrorAction.FORGET_GENERATION if current:
                self._membership.lose(RebalanceCause(RebalanceReason.STALE_GENERATION, api), keep_id=True)
            case ErrorAction.FORGET_MEMBER if current:
                self._membership.lose(RebalanceCause(RebalanceReason.UNKNOWN_MEMBER, api))
            case ErrorAction.FATAL if current or code != ErrorCode.FENCED_INSTANCE_ID:
                self._membership.fail_by_code(code, api)


class ClassicMember(MemberBase):
    """The machine of the classic protocol. `assignors`: at least one, in order of preference, as sent in JoinGroup."""

    def __init__(self, settings: MemberSettings, assignors: Sequence[Assignor]) -> None:
        if not assignors:
            raise KohortError(
                "a group member needs an assignor", hint="name one, e.g. 'range'", group=settings.group_id
            )
        self.mode = mode_of(assignors)
        by_name = {assignor.name: assignor for assignor in assignors}

        shared = MemberContext.of(settings, StateTracker())
        leadership = Leadership(shared.topics, racks_matter=settings.rack_id is not None)

        def farewell(identity: ConsumerGroupMetadata, reason: str) -> tuple[str, Any] | None:
            return ("LeaveGroup", leave_group(identity, reason)) if settings.leaves else None

        membership = Membership(shared, farewell, leadership.end)
        link = CoordinatorLink(shared, membership)
        super().__init__(shared, membership, link, ClassicHeartbeat(shared, membership, link))
        self._leadership = leadership
        self._planning = Planning(shared, by_name, leadership)
        self._gathering = Gathering(shared, by_name, leadership, self._planning, membership, link)

    # ---------------------------------------------------------------------------------------------- what is due, when

    def _wanted(self) -> WantedTopics:
        return self._topics.wanted(self._leadership.group_topics)

    def _drain_backlog(self) -> BacklogOrder | None:
        return self._planning.drain_backlog()

    def _drain_plan(self) -> PlanOrder | None:
        return self._planning.drain_plan()

    def _start_afresh(self) -> None:
        self._gathering.start_afresh()

    def _turn__stable(self) -> bool:
        cause = self._wants_rebalance()
        if cause is None:
            return False
        # Another member may have joined for a topic that matches. One rebalance is enough if all members know it.
        awaited = cause.reason is RebalanceReason.REBALANCE_IN_PROGRESS and self._topics.refresh(self._tracker.now)
        if awaited or self._topics.meant is None:
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
        revoked = before_join(self.mode, self._owned.partitions, topics)
        if revoked:
            self._membership.revoke_before_join(revoked)
        return bool(revoked)

    def _turn__joining(self) -> bool:
        if self._in_flight.is_in_flight("JoinGroup"):
            return False
        topics, waits = self._topics.meant, self._tracker.now < self._gathering.join_not_before
        if topics is None or waits or self._coordinator.coordinator is None:
            return False
        # The subscription may have shrunk while the member waited here.
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
        match self._tracker.state:
            case MemberState.JOINING if self._in_flight.is_in_flight("JoinGroup"):
                pass  # waits for the response, while `ClassicHeartbeat` watches the owned partitions
            case MemberState.JOINING if self._coordinator.coordinator is not None and self._topics.meant is not None:
                return [self._gathering.join_not_before]
            case MemberState.PLANNING:
                return [self._planning.wake_at()]
            case MemberState.STABLE if (until := self._topics.awaited_until) is not None and until > self._tracker.now:
                return [until]
        return []

    # --------------------------------------------------------------------------------------------------- events

    def _on_rebalance_enforced(self, event: ev.RebalanceEnforced) -> None:
        """KIP-568: "if a rebalance is already in progress, this is a no-op"."""
        if self._tracker.state is MemberState.STABLE:
            self._membership.rejoin = RebalanceCause(RebalanceReason.ENFORCED, event.reason)
        else:
            self._tracker.notice("rebalance_not_enforced", f"not now: {self._tracker.state.value}")

    def _on_topics_changed(self, event: TopicsChanged) -> None:
        self._topics.learn(event)
        self._leadership.look_again()

    def _on_left(self, event: ev.LeaveGroupResponded) -> None:
        if self._in_flight.complete(event.serial) is not None:
            response = event.response
            self._link.on_left(response.error_code, *(member.error_code for member in response.members))

    HANDLERS = {
        **COMMON_HANDLERS,
        ev.JoinGroupResponded: lambda member, event: member._gathering.on_joined(event),
        ev.SyncGroupResponded: lambda member, event: member._gathering.on_synced(event),
        ev.HeartbeatResponded: lambda member, event: member._heartbeat.on_response(event),
        ev.LeaveGroupResponded: _on_left,
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
