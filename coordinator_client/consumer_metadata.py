"""Metadata of a consumer, and the coordinator of one without membership."""

from collections.abc import Callable

from kohort.common import KohortError
from kohort.coordinator_client.consumer_context import ConsumerContext
from kohort.coordinator_client.group.events import Disconnected
from kohort.coordinator_client.group.states import MemberState
from kohort.network.backoff import FRESH
from kohort.network.error_mapping import group_error
from kohort.network.find_coordinator import CoordinatorNode
from kohort.network.metadata_updater import ClientContext, MetadataUpdater
from kohort.network.request_versions import fit
from kohort.network.requests import Endpoint, PendingRequest, RequestResult, ResponseReceived, SendFailed
from kohort.protocol.apis.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse

RETRIED_COORDINATOR = frozenset({14, 15, 16})
IDLE = frozenset({MemberState.OUT, MemberState.FAILED, MemberState.CLOSED})


class ConsumerMetadata(MetadataUpdater):
    """A consumer's metadata and broker addresses, and its coordinator.

    It looks for the coordinator only where no membership does, while `is_needed()`.
    """

    def __init__(
        self,
        client: ClientContext,
        context: ConsumerContext,
        named: Callable[[], frozenset[str]],
        is_needed: Callable[[], bool],
    ) -> None:
        super().__init__(client, named, context.post_event, self._idle_connection_lost)
        self._context = context
        self._is_needed = is_needed
        self._coordinator: CoordinatorNode | None = None
        self._looking = False
        self._look_attempts = FRESH

    def poll(self, now: float) -> None:
        """Ask what is owed."""
        super().poll(now)
        self._find_coordinator(now)

    def next_poll_at(self, now: float) -> list[float | None]:
        """The time at which to take a turn again if nothing happens."""
        return [
            *super().next_poll_at(now),
            self._look_attempts.not_before if self._look_attempts.failures else None,
        ]

    def _idle_connection_lost(self, endpoint: Endpoint, error: KohortError) -> None:
        view, own = self._context.view(), self._coordinator
        if view is not None and view.coordinator is not None and _address(view.coordinator) == endpoint:
            self._context.post_event(Disconnected(None, view.coordinator.node_id, error.message))
        if own is not None and _address(own) == endpoint:
            self._coordinator = None

    def coordinator(self) -> CoordinatorNode | None:
        view = self._context.view()
        if view is not None and view.coordinator is not None:
            return view.coordinator
        return self._coordinator

    def _find_coordinator(self, now: float) -> None:
        view, group = self._context.view(), self._context.config.group
        if group is None or not self._is_needed() or self.coordinator() is not None or self._looking:
            return
        if view is not None and view.state not in IDLE:
            return  # the machine is looking
        if not self._look_attempts.may_try(now) or self.no_broker_available(now):
            return
        self._looking = True
        request = FindCoordinatorRequest(key=group, key_type=0, coordinator_keys=(group,))

        def done(outcome: RequestResult, when: float) -> None:
            self._looking = False
            if isinstance(outcome, ResponseReceived) and self._found(outcome.value):
                self._look_attempts = FRESH
                return
            if isinstance(outcome, SendFailed):
                self._context.fail(outcome.error)
            self._look_attempts = self._look_attempts.failed(when, self._context.backoff, self._context.chance())

        ask = PendingRequest("FindCoordinator", lambda version: fit(request, version), done, self._context.request_s)
        self.send_to_any(ask, now)

    def _found(self, answer: FindCoordinatorResponse) -> bool:
        one = answer.coordinators[0] if answer.coordinators else answer
        if one.error_code:
            if one.error_code not in RETRIED_COORDINATOR:
                self._context.fail(group_error(one.error_code, self._context.config.group))
            return False
        self._coordinator = CoordinatorNode(one.node_id, one.host, one.port)
        return True

    def coordinator_gone(self) -> None:
        """It said that it is not, or was not reached: look again."""
        self._coordinator = None


def _address(node: CoordinatorNode) -> Endpoint:
    return Endpoint(node.host, node.port)
