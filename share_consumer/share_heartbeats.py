"""Sends the member's heartbeats to the group's coordinator, which it looks up."""

from functools import partial

from kohort.common import KohortError
from kohort.network.backoff import NEVER
from kohort.network.error_mapping import group_error
from kohort.network.find_coordinator import CoordinatorFinder, CoordinatorKind, CoordinatorNode
from kohort.network.request_manager import earliest
from kohort.network.requests import (
    ConnectionPurpose,
    PendingRequest,
    PollResult,
    RequestResult,
    ResponseReceived,
    SendFailed,
    UnsentRequest,
)
from kohort.protocol.errors import BrokerError, ErrorCode, UnsupportedVersion
from kohort.share_consumer.share_context import ShareContext
from kohort.share_consumer.share_member import LEAVE_PATIENCE_S, ShareMember, unsupported
from kohort.share_consumer.states import ShareState


class ShareHeartbeats:
    """The member, and the requests that it sends. Used under the driver's lock."""

    def __init__(self, context: ShareContext) -> None:
        self._context = context
        self.member = ShareMember(context.config, context.member_id, context.backoff, context.chance)
        self._lost_since = NEVER  # the time (monotonic s) since when the coordinator is not known
        self.coordinators = CoordinatorFinder(
            context.send_to_any, context.request_s, context.backoff, context.chance, self._refused
        )

    def poll(self, now: float) -> PollResult:
        """Return the heartbeat that is due."""
        member, group = self.member, self._context.config.group
        if member.end_late_leave(now, self._lost_since):
            self._context.updated()
        if member.state in (ShareState.OUT, ShareState.FAILED):
            return PollResult((), None)
        coordinator = self.coordinators.of(CoordinatorKind.GROUP, group, now)
        if coordinator is None:
            self._lost_since = min(self._lost_since, now)
            times = (*self.coordinators.next_poll_at(), member.leave_by, self._lost_since + LEAVE_PATIENCE_S)
            return PollResult((), earliest(now, times))
        self._lost_since = NEVER
        due = member.next_request(now)
        if due is None:
            return PollResult((), member.next_poll_at())
        serial, request = due
        pending = PendingRequest(
            "ShareGroupHeartbeat",
            request,
            partial(self._on_result, serial, coordinator, now),
            self._context.request_s,
        )
        outgoing = UnsentRequest(ConnectionPurpose.GROUP, coordinator.endpoint, pending)
        return PollResult((outgoing,), member.next_poll_at())

    def _on_result(
        self, serial: int, coordinator: CoordinatorNode, sent_at: float, outcome: RequestResult, now: float
    ) -> None:
        member, before = self.member, (self.member.state, self.member.assignment)
        if isinstance(outcome, ResponseReceived):
            self._context.sensors.heartbeat(sent_at, now)
            if member.on_response(serial, outcome.value, sent_at, now):
                self.coordinators.lost(coordinator.endpoint)
        elif isinstance(outcome, SendFailed):
            group = self._context.config.group
            self._fail(unsupported(group) if isinstance(outcome.error, UnsupportedVersion) else outcome.error)
        else:
            self.coordinators.lost(coordinator.endpoint)
            member.on_failure(serial, now)
        if member.error is not None:
            error, member.error = member.error, None
            if member.state is ShareState.FAILED:
                self._context.fail(error)
            else:
                self._context.put_error(error)
        if before != (member.state, member.assignment):
            self._context.sensors.rebalances += before[1] != member.assignment
            self._context.updated()

    def _refused(self, _kind: CoordinatorKind, group: str, error: KohortError) -> None:
        if isinstance(error, BrokerError) and error.code == ErrorCode.GROUP_AUTHORIZATION_FAILED:
            error = group_error(error.code, group)
        self._fail(error)

    def _fail(self, error: KohortError) -> None:
        self.member.fail(error)
        self.member.error = None
        self._context.fail(error)
