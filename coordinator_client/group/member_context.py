"""State shared by the components of a group member."""

from typing import Self

from kohort.common.named_tuple import NamedTuple
from kohort.coordinator_client.group.coordinator_state import CoordinatorSearch
from kohort.coordinator_client.group.inflight_requests import InFlightRequests
from kohort.coordinator_client.group.member_settings import MemberSettings
from kohort.coordinator_client.group.member_timers import MemberTimers
from kohort.coordinator_client.group.owned_partitions import OwnedPartitions
from kohort.coordinator_client.group.state_tracker import StateTracker
from kohort.coordinator_client.group.topic_subscription import TopicSubscription


class MemberContext(NamedTuple):
    """The shared state of one member: its tracker, coordinator, timers, topics, requests and partitions."""

    settings: MemberSettings
    tracker: StateTracker
    coordinator_state: CoordinatorSearch
    timers: MemberTimers
    topics: TopicSubscription
    in_flight: InFlightRequests
    owned: OwnedPartitions

    @classmethod
    def of(cls, settings: MemberSettings, walk: StateTracker) -> Self:
        """A member that has not begun."""
        topics = TopicSubscription(hide_internal=settings.exclude_internal_topics)
        return cls(
            settings,
            walk,
            CoordinatorSearch(settings),
            MemberTimers(settings),
            topics,
            InFlightRequests(),
            OwnedPartitions(),
        )


class MemberComponent:
    """A part of a member that acts on what is shared."""

    def __init__(self, shared: MemberContext) -> None:
        self._settings = shared.settings
        self._tracker = shared.tracker
        self._coordinator = shared.coordinator_state
        self._timers = shared.timers
        self._topics = shared.topics
        self._in_flight = shared.in_flight
        self._owned = shared.owned
