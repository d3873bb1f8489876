"""From a JoinGroup to the assignment: one round of the group's gathering, as a follower or as its leader."""

from collections.abc import Mapping
from math import inf
from typing import Final

from kohort.assignors import Assignor, Rebalance
from kohort.common.errors import WireError
from kohort.common.topic_partition import TopicPartition
from kohort.coordinator_client.group import events as ev
from kohort.coordinator_client.group.coordinator_lookup import CoordinatorLink
from kohort.coordinator_client.group.error_actions import REACTIONS, ErrorAction
from kohort.coordinator_client.group.leader_assignment import (
    AssignorFailed,
    Leadership,
    Planning,
    read_members,
    write_subscription,
)
from kohort.coordinator_client.group.member_context import MemberComponent, MemberContext
from kohort.coordinator_client.group.membership import Membership, after_sync, strangers
from kohort.coordinator_client.group.ready import MemberMetadata
from kohort.coordinator_client.group.states import MemberState, Trigger
from kohort.coordinator_client.hooks import RebalanceCause, RebalanceReason
from kohort.coordinator_client.subscription_state import Subscription
from kohort.network.group_types import REASON_CHARACTERS_MAX
from kohort.protocol.apis.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kohort.protocol.apis.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from kohort.protocol.errors import ErrorCode, error_name
from kohort.protocol.membership import read_assignment

CONSUMER_PROTOCOL_TYPE = "consumer"

JOIN_GRACE_MS: Final = 5_000
"""Time (ms) that a JoinGroup may wait for its response beyond the rebalance timeout, as in Apache Kafka's client."""


class Gathering(MemberComponent):
    """Joins, plans as the leader, and syncs. `join_not_before`: the earliest time (monotonic s) of the next join."""

    def __init__(
        self,
        shared: MemberContext,
        assignors: Mapping[str, Assignor],
        leadership: Leadership,
        planning: Planning,
        membership: Membership,
        link: CoordinatorLink,
    ) -> None:
        super().__init__(shared)
        self._assignors = assignors
        self._leadership = leadership
        self._planning = planning
        self._membership = membership
        self._link = link
        self._failures = 0
        self.join_not_before = -inf

    def start_afresh(self) -> None:
        """Reset the backoff for a new subscription."""
        self._failures, self.join_not_before = 0, -inf

    def _back_off(self, why: str) -> None:
        self._failures += 1
        self.join_not_before = self._tracker.now + self._settings.backoff_s(self._failures)
        if self._failures & (self._failures - 1) == 0:
            self._tracker.notice("join_waiting", f"not in the group after {self._failures} attempts: {why}")

    # ------------------------------------------------------------------------------------------------------- joining

    def join(self, topics: frozenset[str]) -> None:
        """Send a JoinGroup that subscribes to `topics`."""
        try:
            protocols = tuple(
                JoinGroupRequestProtocol(name=name, metadata=self._subscription_for(assignor, topics))
                for name, assignor in self._assignors.items()
            )
        except AssignorFailed as error:
            self._membership.fail(error)
            return
        reason = "" if self._tracker.cause is None else str(self._tracker.cause)
        # A heartbeat in flight was sent under the old identity, so its error must not end the membership while the join
        # waits.
        self._in_flight.cancel("Heartbeat")
        request = JoinGroupRequest(
            group_id=self._settings.group_id,
            session_timeout_ms=self._settings.session_timeout_ms,
            rebalance_timeout_ms=self._settings.rebalance_ms,
            member_id=self._membership.identity.member_id,
            group_instance_id=self._settings.instance_id,
            protocol_type=CONSUMER_PROTOCOL_TYPE,
            protocols=protocols,
            reason=reason[:REASON_CHARACTERS_MAX],
        )
        self._membership.send("JoinGroup", request, self._patience_ms)
        self._topics.joined, self._topics.awaited_until = topics, None
        self._membership.rejoin = None
        self._tracker.timeline.attempt()

    @property
    def _patience_ms(self) -> int:
        return max(self._settings.request_timeout_ms, self._settings.rebalance_ms + JOIN_GRACE_MS)

    def _subscription_for(self, assignor: Assignor, topics: frozenset[str]) -> bytes:
        """Return the subscription for one assignor.

        For a cooperative assignor it has the partitions held now, in the last generation that has ended. After a lost
        sync, the join then equals the previous one, and the coordinator returns its generation without a rebalance. For
        an eager assignor it has the previously owned partitions, because all are revoked by now.
        """
        if assignor.rebalance is Rebalance.COOPERATIVE:
            owned, generation = self._owned.partitions, self._owned.claimed_generation
        else:
            owned, generation = self._owned.previously_owned, self._owned.last_generation
        return write_subscription(assignor, topics, owned, generation, self._settings.rack_id)

    def on_joined(self, event: ev.JoinGroupResponded) -> None:
        requested = self._in_flight.complete(event.serial)
        if requested is None:
            return
        response = event.response
        self._coordinator.proved()
        if self._tracker.state is MemberState.LEAVING:
            self._membership.leave_as(response.member_id)
            return
        if response.error_code != 0:
            self._join_refused(response.error_code, response.member_id)
            return
        self._membership.on_joined(response.generation_id, response.member_id, response.protocol_name)
        self._timers.restarted(self._tracker.now)
        self._in_flight.cancel("Heartbeat")  # a heartbeat on the other connection has the old identity
        # The time of this response does not extend the lease, because the time at the coordinator is unknown.
        self._timers.confirmed(requested.sent_at)
        leads = response.leader == response.member_id
        self._leadership.begin(leads=leads)
        self._tracker.timeline.noted(generation=response.generation_id, protocol=response.protocol_name, leader=leads)
        if (
            response.protocol_type not in (None, CONSUMER_PROTOCOL_TYPE)
            or response.protocol_name not in self._assignors
        ):
            self._strange_group("JoinGroup", f"the group chose {response.protocol_name!r}")
            return
        if not leads:
            self._tracker.transition(Trigger.JOINED)
            self._sync(())
            return
        said = read_members(response.members, response.protocol_name or "", response.generation_id)
        self._leadership.set_members(said)
        self._notice_troubles(said)
        if (turnover := self._leadership.turnover()) is not None:
            joined, left = turnover
            self._tracker.timeline.noted(members_joined=joined, members_left=left)
        if response.skip_assignment:
            # KIP-814: a returning static leader must not assign again, but goes on to watch the topics.
            self._leadership.look_again()
            self._tracker.transition(Trigger.JOINED)
            self._sync(())
        else:
            self._planning.begin()
            self._tracker.transition(Trigger.LEADS)

    def _notice_troubles(self, said: Mapping[str, MemberMetadata]) -> None:
        group, generation = self._settings.group_id, self._membership.identity.generation
        for member_id, each in said.items():
            if not each.error:
                continue
            instance = "" if each.instance_id is None else f" (instance id {each.instance_id!r})"
            self._tracker.notice(
                "bad_subscription",
                f"member {member_id!r}{instance} of group {group!r}, generation {generation}: {each.error}; "
                f"run `kohort group describe {group}` to see its client id and host",
            )

    def _join_refused(self, code: int, member_id: str) -> None:
        match REACTIONS["JoinGroup"].get(code, ErrorAction.FATAL):
            case ErrorAction.RETRY | ErrorAction.REDISCOVER as action:
                self._back_off(error_name(code))
                self._membership.join_again(f"JoinGroup: {error_name(code)}")
                if action is ErrorAction.REDISCOVER:
                    self._link.gone(error_name(code))
            case ErrorAction.TAKE_ID:
                self._membership.assign_member_id(member_id)
                self._tracker.transition(Trigger.AGAIN)
            case ErrorAction.FORGET_MEMBER:
                self._membership.lose(RebalanceCause(RebalanceReason.UNKNOWN_MEMBER, "JoinGroup"))
            case _ if code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL:
                self._strange_group("JoinGroup", f"the group refuses this member's {', '.join(self._assignors)}")
            case _:
                self._membership.fail_by_code(code, "JoinGroup")

    def _strange_group(self, api: str, what: str) -> None:
        self._membership.fail_by_code(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, api, what)

    # ------------------------------------------------------------------------------------------------------- syncing

    def on_planned(self, event: ev.PlanMade) -> None:
        """The assignor is done: sync."""
        if not self._planning.is_due(event):
            return
        if event.error is not None:
            self._membership.fail(event.error)
            return
        self._tracker.transition(Trigger.PLANNED)
        if self._coordinator.coordinator is None:
            # It was lost while the assignor ran. No request was in flight then, whose loss would have led to a join.
            self._membership.join_again("the coordinator was lost before the SyncGroup")
            return
        self._sync(event.assignments)

    def _sync(self, assignments: tuple[SyncGroupRequestAssignment, ...]) -> None:
        identity = self._membership.identity
        request = SyncGroupRequest(
            group_id=identity.group_id,
            generation_id=identity.generation,
            member_id=identity.member_id,
            group_instance_id=identity.instance_id,
            protocol_type=CONSUMER_PROTOCOL_TYPE,
            protocol_name=self._membership.protocol or "",
            assignments=assignments,
        )
        self._membership.send("SyncGroup", request, self._patience_ms)

    def on_synced(self, event: ev.SyncGroupResponded) -> None:
        requested = self._in_flight.complete(event.serial)
        if requested is None:
            return
        response = event.response
        self._coordinator.proved()
        if response.error_code != 0:
            self._sync_refused(response.error_code)
            return
        self._timers.confirmed(requested.sent_at)
        self._in_flight.cancel("Heartbeat")  # one sent before may report the rebalance that ends here
        protocols = (None, self._membership.protocol)
        if response.protocol_type not in (None, CONSUMER_PROTOCOL_TYPE) or response.protocol_name not in protocols:
            self._strange_group("SyncGroup", f"synced as {response.protocol_name!r}")
            return
        try:
            assigned = read_assignment(bytes(response.assignment))
        except WireError as error:
            self._membership.fail(error)
            return
        self._take_assignment(assigned)

    def _take_assignment(self, assigned: frozenset[TopicPartition]) -> None:
        topics = self._topics
        if strange := strangers(assigned, topics.subscription or Subscription(), topics.joined):
            cause = RebalanceCause(
                RebalanceReason.ASSIGNMENT_UNFIT, ", ".join(sorted({each.topic for each in strange})[:5])
            )
            self._tracker.cause = cause
            # An equal join would return the same assignment.
            self._owned.end_generation(self._membership.identity.generation)
            self._back_off(str(cause))
            self._membership.join_again(str(cause))
            return
        self._failures = 0  # not before: a leader may repeat an assignment that no member accepts, after each join
        if reported := frozenset(each.topic for each in assigned) - topics.joined:
            topics.believe(reported)
        moves = after_sync(self._owned.partitions, assigned)
        self._membership.apply_assignment(moves.revoked, moves.added)

    def _sync_refused(self, code: int) -> None:
        why = f"SyncGroup: {error_name(code)}"
        match REACTIONS["SyncGroup"].get(code, ErrorAction.FATAL):
            case ErrorAction.REJOIN:
                self._tracker.cause = RebalanceCause(RebalanceReason.SYNC_REFUSED, error_name(code))
                if code == ErrorCode.REBALANCE_IN_PROGRESS:
                    # Some leaders keep only partitions that are claimed in the newest generation.
                    self._owned.claimed_generation = self._membership.identity.generation
                else:
                    self._back_off(why)
                self._membership.join_again(why)
            case ErrorAction.REDISCOVER:
                self._back_off(why)
                self._membership.join_again(why)
                self._link.gone(error_name(code))
            case ErrorAction.FORGET_GENERATION:
                self._membership.lose(RebalanceCause(RebalanceReason.STALE_GENERATION, "SyncGroup"), keep_id=True)
            case ErrorAction.FORGET_MEMBER:
                self._membership.lose(RebalanceCause(RebalanceReason.UNKNOWN_MEMBER, "SyncGroup"))
            case _:
                self._membership.fail_by_code(code, "SyncGroup")
