"""Describes the consumer's group (DescribeGroups), with retries until a deadline."""

from typing import TYPE_CHECKING, Final

from kohort.common.errors import KohortError, WireError
from kohort.common.named_tuple import NamedTuple
from kohort.common.topic_partition import TopicPartition
from kohort.coordinator_client.consumer_context import ConsumerContext
from kohort.coordinator_client.consumer_metadata import ConsumerMetadata
from kohort.coordinator_client.offsets.fenced_commit_queue import NOT_THE_COORDINATOR
from kohort.network.backoff import FRESH, Attempts
from kohort.network.errors import AuthorizationFailed, OperationTimeout
from kohort.network.promise import Promise
from kohort.network.request_manager import earliest
from kohort.network.requests import (
    Endpoint,
    NoResponse,
    PendingRequest,
    PollResult,
    RequestResult,
    SendFailed,
    UnsentRequest,
)
from kohort.protocol.errors import BrokerError, ErrorCode
from kohort.protocol.membership import read_assignment

if TYPE_CHECKING:
    from kohort.protocol.apis.describe_groups import DescribedGroupMember


class GroupMemberDescription(NamedTuple):
    """A member of the group, of any client. `host` is the host that it connects from.

    `assignment` is None if it is not known, for example during a rebalance.
    """

    member_id: str
    client_id: str
    host: str
    assignment: frozenset[TopicPartition] | None = None


DESCRIBED: Final = frozenset({ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND})
"""GROUP_ID_NOT_FOUND: the group is unknown (since version 6), or has the KIP-848 protocol."""


def _described(member: "DescribedGroupMember") -> GroupMemberDescription:
    try:
        assignment = read_assignment(bytes(member.member_assignment))
    except WireError:
        assignment = None  # empty so far, or of another protocol: members of a group need not be consumers
    return GroupMemberDescription(member.member_id, member.client_id, member.client_host, assignment)


class _DescribeInFlight:
    def __init__(self, deadline: float, future: "Promise[tuple[GroupMemberDescription, ...]]") -> None:
        self.deadline = deadline
        self.future = future
        self.under_way = False
        self.attempts: Attempts = FRESH


class DescribeGroup:
    """DescribeGroups requests of an `OffsetsRequestManager`; used under the driver's lock. `waiting`: those pending."""

    def __init__(self, context: ConsumerContext, cluster: ConsumerMetadata) -> None:
        self._context = context
        self._cluster = cluster
        self.waiting: list[_DescribeInFlight] = []

    def describe(self, deadline: float) -> "Promise[tuple[GroupMemberDescription, ...]]":
        """The members of the consumer's group.

        The future raises OperationTimeout, AuthorizationFailed, BrokerError.
        """
        requested = _DescribeInFlight(deadline, Promise())
        self.waiting.append(requested)
        return requested.future

    def fail(self, error: KohortError) -> None:
        """Fail all pending requests with a fatal error."""
        requested, self.waiting = self.waiting, []
        for one in requested:
            one.future.set_exception(error)

    def poll(self, now: float) -> PollResult:
        """Return the requests that are due, and fail those past their deadline."""
        coordinator = self._cluster.coordinator()
        requests: list[UnsentRequest] = []
        for one in list(self.waiting):
            if now >= one.deadline:
                self._end(one, OperationTimeout("no response to DescribeGroups in time"))
            elif coordinator is not None and not one.under_way and one.attempts.may_try(now):
                one.under_way = True
                requests.append(self._request(one, coordinator.endpoint))
        retries = [one.attempts.not_before for one in self.waiting if one.attempts.failures]
        return PollResult(tuple(requests), earliest(now, (*(one.deadline for one in self.waiting), *retries)))

    def _request(self, requested: _DescribeInFlight, to: Endpoint) -> UnsentRequest:
        context = self._context
        group = context.config.group or ""

        def again(now: float) -> None:
            requested.under_way = False
            requested.attempts = requested.attempts.failed(now, context.backoff, context.chance())

        def done(outcome: RequestResult, now: float) -> None:
            if isinstance(outcome, SendFailed):
                self._end(requested, outcome.error)
                return
            if isinstance(outcome, NoResponse):
                self._cluster.coordinator_lost(to, outcome.error)
                again(now)
                return
            found = next((one for one in outcome.value.groups if one.group_id == group), None)
            if found is None or found.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                again(now)
            elif found.error_code in NOT_THE_COORDINATOR:
                self._cluster.coordinator_lost(to, BrokerError(found.error_code, "DescribeGroups", group=group))
                again(now)
            elif found.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED:
                hint = "grant DESCRIBE on the group"
                self._end(requested, AuthorizationFailed("not allowed to describe the group", hint=hint, group=group))
            elif found.error_code in DESCRIBED:
                self._end(requested, tuple(map(_described, found.members)))
            else:
                self._end(requested, BrokerError(found.error_code, "describe the group", group=group))

        from kohort.protocol.apis.describe_groups import DescribeGroupsRequest

        request = DescribeGroupsRequest(groups=(group,), include_authorized_operations=False)
        lookup = PendingRequest("DescribeGroups", request, done, context.request_s)
        return UnsentRequest(context.offsets_purpose(), to, lookup)

    def _end(self, requested: _DescribeInFlight, outcome: tuple[GroupMemberDescription, ...] | KohortError) -> None:
        if requested in self.waiting:
            self.waiting.remove(requested)
            requested.future.end(outcome)
