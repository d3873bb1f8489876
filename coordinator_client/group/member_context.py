"""What all working parts of a member look at and write to, in one place: each part is made of this and of what is its
own."""

from typing import NamedTuple, Self

from kohort.coordinator_client.group.coordinator_state import CoordinatorSearch
from kohort.coordinator_client.group.heartbeat_timers import Pulse
from kohort.coordinator_client.group.inflight_requests import InFlight
from kohort.coordinator_client.group.member_config import MemberSettings
from kohort.coordinator_client.group.owned_partitions import Holding
from kohort.coordinator_client.group.state_tracker import Walk
from kohort.coordinator_client.group.topic_subscription import Topics


class Shared(NamedTuple):
    """What is so with one member: where it stands, what it asked, whom, when, about what, and what it holds."""

    settings: MemberSettings
    walk: Walk
    search: CoordinatorSearch
    pulse: Pulse
    topics: Topics
    in_flight: InFlight
    holding: Holding

    @classmethod
    def of(cls, settings: MemberSettings, walk: Walk) -> Self:
        """A member that has not begun."""
        topics = Topics(hide_internal=settings.exclude_internal_topics)
        return cls(settings, walk, CoordinatorSearch(settings), Pulse(settings), topics, InFlight(), Holding())


class Part:
    """A part of a member that acts on what is shared."""

    def __init__(self, shared: Shared) -> None:
        self._settings = shared.settings
        self._walk = shared.walk
        self._search = shared.search
        self._pulse = shared.pulse
        self._topics = shared.topics
        self._in_flight = shared.in_flight
        self._holding = shared.holding
