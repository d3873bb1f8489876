"""Metadata of a consumer, and the coordinator of one without membership."""

from collections.abc import Callable, Iterable

from kohort.common import KohortError, TopicPartition
from kohort.coordinator_client.consumer_context import ConsumerContext
from kohort.coordinator_client.group.events import Disconnected
from kohort.coordinator_client.group.states import MemberState
from kohort.network.error_mapping import group_error
from kohort.network.find_coordinator import CoordinatorFinder, CoordinatorKind, CoordinatorNode
from kohort.network.metadata_updater import ClientContext, MetadataUpdater
from kohort.network.requests import Endpoint
from kohort.protocol.errors import BrokerError, ErrorCode

IDLE = frozenset({MemberState.OUT, MemberState.FAILED, MemberState.CLOSED})


class ConsumerMetadata(MetadataUpdater):
    """A consumer's metadata and broker addresses, and its coordinator.

    It looks for the coordinator only where no membership does, while `is_needed()`. `assigned`: the partitions that the
    user has named; missing ones are reported.
    """

    def __init__(
        self,
        client: ClientContext,
        context: ConsumerContext,
        named: Callable[[], frozenset[str]],
        assigned: Callable[[], Iterable[TopicPartition]],
        is_needed: Callable[[], bool],
    ) -> None:
        super().__init__(client, named, context.post_event, self._coordinator_lost)
        self._assigned = assigned
        self._context = context
        self._is_needed = is_needed
        self.finder = CoordinatorFinder(
            self.send_to_any, context.request_s, context.backoff, context.chance, self._refused
        )

    def _coordinator_lost(self, endpoint: Endpoint, error: KohortError) -> None:
        view = self._context.view()
        if view is not None and view.coordinator is not None and view.coordinator.endpoint == endpoint:
            self._context.post_event(Disconnected(None, view.coordinator.node_id, error.message))
        self.finder.lost(endpoint)

    def coordinator(self) -> CoordinatorNode | None:
        view = self._context.view()
        if view is not None and view.coordinator is not None:
            return view.coordinator
        return self.finder.known(CoordinatorKind.GROUP, self._context.config.group or "")

    def _missing(self) -> dict[str | TopicPartition, int]:
        topics = self._context.metadata.view.topics
        return super()._missing() | {
            one: int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            for one in self._assigned()
            if one.topic in topics and one.partition not in topics[one.topic].partitions
        }

    def _times(self, now: float) -> list[float | None]:
        return [*super()._times(now), *self.finder.next_poll_at()]

    def _look_up(self, now: float) -> None:
        view, group = self._context.view(), self._context.config.group
        if group is None or self.coordinator() is not None or not self._is_needed():
            return
        if view is not None and view.state not in IDLE:
            return  # the machine is looking
        if not self.no_broker_available(now):
            self.finder.of(CoordinatorKind.GROUP, group, now)

    def _refused(self, _kind: CoordinatorKind, group: str, error: KohortError) -> None:
        self._context.fail(group_error(error.code, group) if isinstance(error, BrokerError) else error)
