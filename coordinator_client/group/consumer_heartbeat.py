"""ConsumerGroupHeartbeat (KIP-848): the content and times of reports, and the handling of responses.

One request does everything: epoch 0 joins, a growing epoch stays, a negative epoch leaves. A field is sent only if it
changed since the last successful response. After an error or a lost response all fields are sent. Only such a full
report makes the coordinator repeat an assignment whose response was lost.

Owned partitions are the exception. After each new assignment one report lists them, even if they did not change. The
coordinator takes null as "unchanged" and continues to wait for a list.

A join is rejected while its instance id is not released, also if this same member holds it by an earlier join. The
member then releases it (epoch -2), which the coordinator accepts from the holder only, and joins again.
"""

from math import inf
from typing import Any, Final

from kohort.coordinator_client.group import events as ev
from kohort.coordinator_client.group.coordinator_lookup import CoordinatorLink
from kohort.coordinator_client.group.error_actions import REACTIONS, ErrorAction, GroupProtocolError, fatal_error
from kohort.coordinator_client.group.member_base import Heartbeats
from kohort.coordinator_client.group.member_context import MemberContext
from kohort.coordinator_client.group.membership import Membership
from kohort.coordinator_client.group.states import IN_GROUP, MemberState
from kohort.coordinator_client.group.target_assignment import TargetAssignment
from kohort.coordinator_client.hooks import RebalanceCause, RebalanceReason
from kohort.network.errors import AuthorizationFailed
from kohort.network.group_types import ConsumerGroupMetadata
from kohort.protocol.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kohort.protocol.errors import ErrorCode, error_name

JOIN_EPOCH: Final = 0  # epochs with a special meaning
LEAVE_EPOCH: Final = -1
LEAVE_FOR_A_WHILE_EPOCH: Final = -2


def leave_consumer_group(identity: ConsumerGroupMetadata, *, for_good: bool) -> ConsumerGroupHeartbeatRequest:
    """Return the leave request. A static member leaves temporarily and keeps its partitions, unless `for_good`."""
    return ConsumerGroupHeartbeatRequest(
        group_id=identity.group_id,
        member_id=identity.member_id,
        member_epoch=LEAVE_EPOCH if for_good else LEAVE_FOR_A_WHILE_EPOCH,
        instance_id=identity.instance_id,
    )


API: Final = "ConsumerGroupHeartbeat"

OTHER_TYPE_HINT: Final = (
    "a group of another type has this id: use another id, or have the brokers convert a classic group "
    "(group.consumer.migration.policy)"
)

NOT_CONVERTED: Final = "Cannot upgrade"
"""The message of GROUP_ID_NOT_FOUND begins so, where members prevent the conversion of their classic group."""

MAY_ACKNOWLEDGE: Final = frozenset({MemberState.ASSIGNING, MemberState.STABLE})
"""States in which the owned partitions equal the assignment, since all others are revoked and committed."""

RELEASING: Final = frozenset({MemberState.REVOKING, MemberState.COMMITTING})
"""States in which the coordinator waits for partitions of this member, at most for the rebalance timeout."""


class ConsumerHeartbeat(Heartbeats):
    """The heartbeats of a KIP-848 member. `target`: the partitions that the coordinator assigns to it.

    `news` grows with each change that requires another comparison with the target.
    """

    def __init__(
        self, shared: MemberContext, target: TargetAssignment, membership: Membership, link: CoordinatorLink
    ) -> None:
        super().__init__(shared, membership, link)
        self.target = target
        self.news = 0
        self._reported: dict[str, Any] = {}
        self._saying: dict[str, Any] | None = None
        # Names alone do not replace a pattern, of this member or of the predecessor with the same instance id.
        self._may_have_pattern = shared.settings.instance_id is not None
        self._arrived = False  # an assignment came, and no report of what is owned has followed it yet
        self._owes_ack = False
        self._hurry = False
        self._must_release = False  # the next request releases the instance id
        self._releasing = False  # the request in flight does
        self._held_since: float | None = None  # when another member's hold of the instance id was confirmed
        self._unconverted_since: float | None = None  # when a join was first refused since the group is classic
        self._failures = 0
        self._not_before = -inf

    def start_afresh(self) -> None:
        """Reset the backoff for a new subscription."""
        self._failures, self._not_before, self._held_since, self._unconverted_since = 0, -inf, None, None

    def compared(self, *, moves: bool) -> None:
        """Record a comparison of the target with the owned partitions.

        A report of the owned partitions follows once nothing is left to revoke, one for each assignment and each move.
        """
        self._owes_ack = self._owes_ack or self._arrived or moves

    # -------------------------------------------------------------------------------------------------------- sending

    @property
    def _joins(self) -> bool:
        """True if a join may go out. One that subscribes to nothing would be refused."""
        subscription = self._topics.subscription
        wants = subscription is not None and (subscription.broker_pattern is not None or bool(self._topics.meant))
        return self._tracker.state is MemberState.JOINING and not self._membership.in_generation and wants

    @property
    def _beating(self) -> bool:
        known = self._coordinator.coordinator is not None
        return known and self._membership.in_generation and self._tracker.state in IN_GROUP

    def _due_at(self) -> float:
        if self._coordinator.coordinator is None or self._in_flight.is_in_flight(API):
            return inf
        if self._joins:
            return self._not_before
        if not self._beating:
            return inf
        said = self._said()
        unsaid = self._saying is not None or any(self._reported.get(name, _UNSAID) != said[name] for name in said)
        soon = unsaid or self._hurry or self._acknowledges
        return max(self._not_before, -inf if soon else self._timers.next_heartbeat_at)

    @property
    def _acknowledges(self) -> bool:
        return self._owes_ack and self._tracker.state in MAY_ACKNOWLEDGE

    def _send(self, timeout_ms: int) -> None:
        membership = self._membership
        if self._saying is not None:
            self._reported = {}  # the last report has no response, so it is unknown which part was processed
            self._held_since = None  # a lost join may have succeeded, so this member may hold the instance id itself
        self._releasing = self._must_release and not membership.in_generation
        if self._releasing:
            self._saying = None
            membership.send(API, leave_consumer_group(membership.identity, for_good=False), timeout_ms)
            return
        if not membership.in_generation:
            self._reported = {}
            membership.assign_member_id(self._settings.member_id)
            self._tracker.timeline.attempt()
        said = self._said()
        self._saying = {name: value for name, value in said.items() if self._reported.get(name, _UNSAID) != value}
        if not membership.in_generation:
            self._saying["topic_partitions"] = ()
        elif not self._reported or self._acknowledges:
            # Partitions under commit are not released yet: their next owner would not see the offset.
            committing = () if membership.commit_order is None else membership.commit_order.offsets
            self._saying["topic_partitions"] = self.target.by_id(self._owned.partitions.union(committing))
            self._owes_ack = self._owes_ack and not self._acknowledges
            self._arrived = False
        self._may_have_pattern |= bool(said.get("subscribed_topic_regex"))
        self._hurry = False
        identity = membership.identity
        request = ConsumerGroupHeartbeatRequest(
            group_id=identity.group_id,
            member_id=identity.member_id,
            member_epoch=max(identity.generation, JOIN_EPOCH),
            instance_id=identity.instance_id,
            **self._saying,
        )
        membership.send(API, request, timeout_ms)

    def _said(self) -> dict[str, Any]:
        """Return all fields, except the owned partitions."""
        subscription, settings = self._topics.subscription, self._settings
        said: dict[str, Any] = {"rebalance_timeout_ms": settings.rebalance_ms}
        if settings.rack_id is not None:
            said["rack_id"] = settings.rack_id
        if settings.remote_assignor is not None:
            said["server_assignor"] = settings.remote_assignor
        if subscription is None:
            return said
        if subscription.broker_pattern is not None:
            said["subscribed_topic_names"] = ()
            said["subscribed_topic_regex"] = subscription.broker_pattern
        elif self._topics.meant is not None:
            said["subscribed_topic_names"] = tuple(sorted(self._topics.meant))
            if self._may_have_pattern:
                said["subscribed_topic_regex"] = ""
        return said

    # ------------------------------------------------------------------------------------------------------- responses

    def forget(self) -> None:
        """Membership is gone: forget the fields that were sent and the target assignment."""
        self._reported, self._saying = {}, None
        self._arrived = self._owes_ack = self._hurry = self._must_release = False
        self.target.forget()

    def on_response(self, event: ev.ConsumerGroupHeartbeatResponded) -> None:
        requested = self._in_flight.complete(event.serial)
        if requested is None:
            return
        response = event.response
        if self._tracker.state is MemberState.LEAVING:
            self._link.on_left(response.error_code)
            return
        if self._releasing:
            self._released(response.error_code)
            return
        current = requested.identity == self._membership.identity
        if response.error_code != 0:
            self._refused(response.error_code, response.error_message, current, requested.sent_at)
            return
        self._coordinator.proved()
        if not current:
            return
        if response.member_epoch <= 0:
            self._membership.fail(
                GroupProtocolError(
                    f"a member cannot be in epoch {response.member_epoch}", api=API, group=self._settings.group_id
                )
            )
            return
        self._reported |= self._saying or {}
        self._saying, self._failures, self._held_since, self._unconverted_since = None, 0, None, None
        self._timers.broker_interval_s = response.heartbeat_interval_ms / 1000
        self._timers.confirmed(requested.sent_at, settled=self._tracker.state not in RELEASING)
        self._timers.last_heartbeat_at = requested.sent_at
        self._enter(response.member_epoch)
        if response.assignment is not None:
            self.target.post(response.assignment.topic_partitions)
            self._arrived = True
            self.news += 1
        elif self.target.reported is None:
            self.target.post(())

    def _enter(self, epoch: int) -> None:
        membership = self._membership
        if membership.identity.generation == epoch:
            return
        membership.on_joined(epoch, membership.identity.member_id, self._settings.remote_assignor)
        self._tracker.timeline.noted(generation=epoch)

    def _refused(self, code: int, message: str | None, current: bool, sent_at: float) -> None:
        why = f"{API}: {error_name(code)}"
        self._saying = None
        self._reported = {}
        match REACTIONS[API].get(code, ErrorAction.FATAL):
            case ErrorAction.RETRY:
                self._back_off()
            case ErrorAction.REPORT:
                self._back_off()
                self._membership.report(
                    AuthorizationFailed(
                        f"not allowed to read a topic: {message or ''}",
                        hint="grant READ and DESCRIBE on each topic of the subscription",
                        group=self._settings.group_id,
                    )
                )
            case ErrorAction.REDISCOVER:
                self._link.gone(why)
            case ErrorAction.FORGET_GENERATION if (
                current and code == ErrorCode.GROUP_ID_NOT_FOUND and not self._membership.in_generation
            ):
                self._is_of_other_type(message or "")
            case ErrorAction.FORGET_GENERATION if current:
                if not self._membership.in_generation:
                    self._back_off()  # it was the join itself that was refused
                cause = RebalanceCause(
                    RebalanceReason.STALE_GENERATION
                    if code == ErrorCode.FENCED_MEMBER_EPOCH
                    else RebalanceReason.UNKNOWN_MEMBER,
                    API,
                )
                self._membership.lose(cause, keep_id=True)
            case ErrorAction.RELEASE if current and not self._membership.in_generation:
                self._instance_is_held(sent_at)
            case ErrorAction.RELEASE | ErrorAction.FATAL:
                self._membership.fail_by_code(code, API, message)

    def _is_of_other_type(self, message: str) -> None:
        """Handle GROUP_ID_NOT_FOUND of a join. A join makes a missing group, so the group exists.

        A classic group is not converted while an assignment of its members has data of the assignor. In a rolling
        change of protocols, that may be over soon.
        """
        now, patience_s = self._tracker.now, self._settings.session_timeout_ms / 1000
        if message.startswith(NOT_CONVERTED):
            if self._unconverted_since is None:
                self._unconverted_since = now
                self._tracker.notice("group_not_converted", f"{message} Joining again for up to {patience_s:.0f} s")
            if now < self._unconverted_since + patience_s:
                self._back_off()
                return
        error = fatal_error(ErrorCode.GROUP_ID_NOT_FOUND, API, self._settings.group_id, message)
        error.hint = OTHER_TYPE_HINT
        self._membership.fail(error)

    def _instance_is_held(self, sent_at: float) -> None:
        """Handle UNRELEASED_INSTANCE_ID of a join.

        The holder may be an earlier join of this member, whose response was lost. A release by this member id ends that
        hold, and no other.
        """
        if self._held_since is None:
            self._must_release = True
        elif sent_at < self._held_since + self._settings.session_timeout_ms / 1000:
            self._back_off()
        else:
            waited_s = self._tracker.now - self._held_since
            held = f"another member has held the instance id for {waited_s:.0f} s"
            self._membership.fail_by_code(
                ErrorCode.UNRELEASED_INSTANCE_ID, API, held, instance_id=self._settings.instance_id
            )

    def _released(self, code: int) -> None:
        """The response to the release. Another member's hold ends with its session, so joins go on until then."""
        why = f"{API}: {error_name(code)}"
        self._releasing = False
        match REACTIONS[API].get(code):
            case ErrorAction.RETRY:
                self._back_off()
                return
            case ErrorAction.REDISCOVER:
                self._link.gone(why)
                return
        self._must_release = False
        if code == 0:
            return
        self._back_off()
        self._held_since = self._tracker.now
        self._tracker.notice(
            "instance_held",
            f"instance id {self._settings.instance_id!r} of group {self._settings.group_id!r} is held by another "
            f"member: joining again for up to {self._settings.session_timeout_ms / 1000:.0f} s",
        )

    def _back_off(self) -> None:
        self._failures += 1
        self._not_before = self._tracker.now + self._settings.backoff_s(self._failures)

    def on_commit_refused(self, event: ev.CommitRefused) -> None:
        current = event.sent == self._membership.identity and self._membership.in_generation
        is_replaced = event.code == ErrorCode.UNKNOWN_MEMBER_ID and self._settings.instance_id is not None
        if current and (event.code == ErrorCode.STALE_MEMBER_EPOCH or is_replaced):
            # The coordinator has a newer epoch than this member, or another member with the same instance id. The
            # response to a heartbeat decides. A fenced member must not take the id back, an expelled one joins again.
            self._hurry = True
            return
        match REACTIONS["OffsetCommit"].get(event.code):
            case ErrorAction.REDISCOVER:
                self._link.gone(f"OffsetCommit: {error_name(event.code)}")
            case ErrorAction.FORGET_MEMBER if current:
                self._membership.lose(RebalanceCause(RebalanceReason.UNKNOWN_MEMBER, "OffsetCommit"), keep_id=True)
            case ErrorAction.FATAL:
                self._membership.fail_by_code(event.code, "OffsetCommit")


_UNSAID: Final = object()
