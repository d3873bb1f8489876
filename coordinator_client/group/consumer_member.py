"""One member of one group with the consumer group protocol (KIP-848), as a pure machine.

It has the same two methods, hooks and `Ready` as `classic_member.py`, but another protocol: the coordinator assigns,
and one heartbeat carries everything. A rebalance has no round of all members. Each member gets its target assignment,
revokes other partitions (`on_revoked`, commit), takes new ones (`on_assigned`), and reports the owned ones. Only then
does the coordinator assign the revoked partitions to other members. Partitions that stay are never interrupted.

JOINING leads to ASSIGNING with the first epoch and assignment, then to STABLE. From there every change of the
assignment leads to REVOKING, COMMITTING and ASSIGNING. Heartbeats run all the time. Its own parts are
`target_assignment.py` (the coordinator's target) and `consumer_heartbeat.py` (the heartbeats).
"""

from math import inf
from typing import Any, Final

from kohort.coordinator_client.group import events as ev
from kohort.coordinator_client.group.consumer_heartbeat import API, ConsumerHeartbeat, leave_consumer_group
from kohort.coordinator_client.group.coordinator_lookup import CoordinatorLink
from kohort.coordinator_client.group.member_base import COMMON_HANDLERS, COMMON_TURNS, MemberBase
from kohort.coordinator_client.group.member_context import MemberContext
from kohort.coordinator_client.group.member_timers import MemberSettings
from kohort.coordinator_client.group.membership import Membership, after_sync
from kohort.coordinator_client.group.states import CONSUMER_GROUP_TRANSITIONS, MemberState, StateTracker
from kohort.coordinator_client.group.target_assignment import TargetAssignment
from kohort.coordinator_client.hooks import RebalanceCause, RebalanceReason
from kohort.network.group_types import ConsumerGroupMetadata
from kohort.network.metadata import TopicsChanged
from kohort.network.metadata_refresh import WantedTopics

NAMES_PATIENCE_S: Final = 5.0
"""Maximum wait (s) for the names of new topic ids: one hook call is better than two."""


class ConsumerMember(MemberBase):
    """The machine of the consumer group protocol. There are no assignors on this side of it: the coordinator's are
    named by `settings.remote_assignor`, or left to the group."""

    _heartbeat: ConsumerHeartbeat

    def __init__(self, settings: MemberSettings) -> None:
        shared = MemberContext.of(settings, StateTracker(CONSUMER_GROUP_TRANSITIONS))
        target = TargetAssignment()
        for_good = settings.instance_id is None or bool(settings.leave_on_close)

        def farewell(identity: ConsumerGroupMetadata, _reason: str) -> tuple[str, Any]:
            return API, leave_consumer_group(identity, for_good=for_good)

        membership = Membership(shared, farewell, lambda: self._heartbeat.forget())
        link = CoordinatorLink(shared, membership)
        super().__init__(shared, membership, link, ConsumerHeartbeat(shared, target, membership, link))
        self._target = target
        self._looked_at: tuple[float, int] | None = None
        self._names_by = inf
        self._requested_names = 0

    def _wanted(self) -> WantedTopics:
        subscription = self._topics.subscription
        if subscription is None:
            return WantedTopics()
        assigned = frozenset(partition.topic for partition in self._owned.partitions)
        # A topic matched by the coordinator's pattern is known by its id only. Its name is found in the metadata of all
        # topics.
        everything = subscription.by_pattern or self._names_by < inf
        return WantedTopics(subscription.topics | assigned, everything, self._requested_names)

    def _times(self) -> list[float]:
        waits = self._tracker.state in (MemberState.JOINING, MemberState.STABLE)
        return [self._names_by if waits else inf]

    def _start_afresh(self) -> None:
        self._heartbeat.start_afresh()

    # ------------------------------------------------------------------------------------------------ reconciliation

    def _turn__reconcile(self) -> bool:
        """Reconcile the owned partitions with the coordinator's target."""
        if not self._membership.in_generation or self._target.reported is None:
            return False
        # The outcome can only change with a new state, a change of the target or the topics, or the end of the wait.
        seen, overdue = (self._tracker.since, self._heartbeat.news), self._tracker.now >= self._names_by
        if self._looked_at == seen and not overdue:
            return False
        self._looked_at = seen
        owned = self._owned.partitions
        wanted, unknown = self._target.named(self._topics.known, owned, self._is_subscribed)
        if not unknown:
            self._names_by = inf
        elif self._names_by == inf or overdue:
            self._requested_names += 1
            self._names_by = self._tracker.now + NAMES_PATIENCE_S
        moves = after_sync(owned, wanted)
        joining = self._tracker.state is MemberState.JOINING
        waits = bool(unknown) and not overdue and not moves.revoked
        changes = not waits and (joining or bool(moves.revoked or moves.added))
        self._heartbeat.compared(moves=changes)
        if not changes:
            return False
        if not joining:
            self._tracker.begin_rebalance(RebalanceCause(RebalanceReason.REBALANCE_IN_PROGRESS))
            self._tracker.timeline.noted(generation=self._membership.identity.generation)
        self._target.came(moves.added, self._topics.known)
        self._membership.apply_assignment(moves.revoked, moves.added, rejoins=False)
        return True

    def _is_subscribed(self, topic: str) -> bool:
        subscription = self._topics.subscription
        if subscription is None or subscription.broker_pattern is not None:
            return True
        return subscription.matches(topic)

    # --------------------------------------------------------------------------------------------------- events

    def _on_topics_changed(self, event: TopicsChanged) -> None:
        self._topics.learn(event)
        self._heartbeat.news += 1

    def _on_resubscribed(self, event: ev.Subscribed) -> None:
        self._on_subscribed(event)
        self._heartbeat.news += 1

    def _on_rebalance_enforced(self, event: ev.RebalanceEnforced) -> None:
        self._tracker.notice("rebalance_not_enforced", "the coordinator assigns this group, and only when it must")

    HANDLERS = {
        **COMMON_HANDLERS,
        ev.ConsumerGroupHeartbeatResponded: lambda member, event: member._heartbeat.on_response(event),
        ev.Subscribed: _on_resubscribed,
        TopicsChanged: _on_topics_changed,
        ev.RebalanceEnforced: _on_rebalance_enforced,
    }

    TURNS = {
        **COMMON_TURNS,
        MemberState.JOINING: _turn__reconcile,
        MemberState.STABLE: _turn__reconcile,
    }
