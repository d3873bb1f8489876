"""Keeps one `ClusterView` fresh: decides the time and the topics of Metadata requests. No I/O, no clock."""

from collections.abc import Callable, Iterable
from functools import cache
from math import inf

from kohort.common.named_tuple import NamedTuple
from kohort.common.topic_partition import TopicPartition
from kohort.network.backoff import FRESH, Attempts, Backoff
from kohort.network.metadata import (
    NO_TOPIC_ID,
    NOTHING_KNOWN,
    WITHOUT_TOPICS,
    BrokerNode,
    ClusterView,
    TopicInfo,
    TopicsChanged,
    TopicView,
)
from kohort.protocol.apis.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse


class WantedTopics(NamedTuple):
    """The topics whose metadata the member needs: `names`, or all of the cluster if `all_topics`.

    `attempt` grows when the known metadata turns out to be old.
    """

    names: frozenset[str] = frozenset()
    all_topics: bool = False
    attempt: int = 0
    of_others: frozenset[str] = frozenset()


NAMES_PER_S = 10_000
"""The most names a second that are requested again because a topic is missing, or lacks a partition or a leader."""

HELD_UP_S = 15.0
"""The time (s) between requests for metadata while a join or sync has no response. Its coordinator may hang: then it
leaves the metadata, and its connection is closed."""

OTHERS_NAMES_PER_S = 200
"""The same, where only topics of other members are missing: a member may name any number that do not exist."""


class MetadataRefresher:
    """Tracks the topics needed (`set_topics`, `add_transient`), the next request and the `view`.

    `partitions`: returns the partitions needed, if a client needs certain ones. `add_transient` counts: a look-up of a
    topic that is not consumed needs its metadata only while it runs.
    `requests_sent`: the number of requests. `last_with_response`: the number of the last one with a response,
    received at `responded_at` (monotonic s). `held_up_since`: the time (monotonic s) since which a join or sync waits.

    While the known topics are fresh, new ones are requested alone (KIP-526).
    """

    def __init__(self, backoff: Backoff, max_age_s: float, auto_create: bool = False) -> None:
        self.backoff = backoff
        self.max_age_s = max_age_s
        self.auto_create = auto_create
        self.partitions: Callable[[], Iterable[TopicPartition]] = tuple
        self.view: ClusterView = NOTHING_KNOWN
        self.requests_sent = 0
        self.last_with_response = 0
        self.held_up_since = inf
        self._wanted = WantedTopics()
        self._transient: dict[str, int] = {}
        self._all_topics_users = 0
        self._names_in_response: frozenset[str] | None = frozenset()
        self._stale = True
        self._at_once = False
        self._names_in_flight: frozenset[str] | None = None
        self._in_flight = False
        self.responded_at = -inf
        self._all_since = -inf  # the time (monotonic s) of the last response with all topics that were needed
        self._is_partial = False  # the last request named new topics only
        self._attempts: Attempts = FRESH
        self._failed = False  # the last request had no response
        self._paced_until = -inf

    def set_topics(self, wanted: WantedTopics) -> None:
        """Sets the topics that the group, or the manual assignment, needs. Replaces the earlier ones."""
        if wanted.attempt > self._wanted.attempt:
            self._stale = True
        changed = wanted.names != self._wanted.names
        self._wanted = wanted
        if changed:
            self._forget_unwatched()

    def _forget_unwatched(self) -> None:
        """Forgets topics not needed any more: the name may belong to a new topic when it is needed again."""
        if self._names_in_response is not None:
            self._names_in_response = _common(self._names_in_response, self.names)
            self.view = self.view.forgetting(self.names)

    def add_transient(self, topics: Iterable[str]) -> None:
        for topic in topics:
            self._transient[topic] = self._transient.get(topic, 0) + 1

    def remove_transient(self, topics: Iterable[str]) -> None:
        for topic in topics:
            self._transient[topic] -= 1
            if not self._transient[topic]:
                del self._transient[topic]

    def add_all_topics(self) -> None:
        """Request all topics as they are now. An older response does not count."""
        self._all_topics_users += 1
        self.request_update(at_once=True)

    def remove_all_topics(self) -> None:
        self._all_topics_users -= 1

    @property
    def has_all_topics(self) -> bool:
        """True if the last response was to a request for all topics."""
        return self._names_in_response is None

    @property
    def _all_topics(self) -> bool:
        return self._wanted.all_topics or self._all_topics_users > 0

    def request_update(self, *, at_once: bool = False) -> None:
        """Requests new metadata, since something did not fit the view. The backoff paces these requests.

        `at_once`: a call of the user needs it, and is sent without that pace unless the last request failed.
        """
        self._stale = True
        self._at_once |= at_once

    @property
    def names(self) -> frozenset[str]:
        return self._wanted.names | self._transient.keys() if self._transient else self._wanted.names

    def next_request(self, now: float) -> Callable[[], MetadataRequest] | None:
        """A function that makes the request to send to any broker, or None.

        It is called when a connection can send, and then names what is wanted. A client names its topics while its
        first connection opens. Call `on_response` or `on_failure` before the next `next_request`.
        """
        if self._in_flight or now < self._due():
            return None
        self._in_flight = True
        self._stale = self._stale or now >= self._all_since + self.max_age_s
        return cache(self._request)

    def _request(self) -> MetadataRequest:
        self._names_in_flight = None if self._all_topics else self.names
        known = self._names_in_response
        self._is_partial = False
        if known and self.view.brokers and not (self._stale or self._all_topics or self._covers()):
            self._is_partial, self._names_in_flight = True, self.names - known
        self._stale = self._at_once = False
        self.requests_sent += 1
        topics = None
        if self._names_in_flight is not None:
            names = sorted(self._names_in_flight)
            topics = tuple(MetadataRequestTopic(topic_id=NO_TOPIC_ID, name=name) for name in names)
        return WITHOUT_TOPICS._replace(topics=topics, allow_auto_topic_creation=self.auto_create)

    def _due(self) -> float:
        """The time of the next request: at once for topics never requested or a call, else at the backoff's pace."""
        covers = self._covers()
        if (self._at_once and not self._failed) or (not covers and not self._attempts.failures):
            return -inf
        if self._stale or not covers or not self.view.brokers:
            pace = self.responded_at + self.backoff.initial_ms / 1000
            paced_until = self._paced_until if covers else -inf
            return max(self._attempts.not_before, paced_until if self._attempts.failures else pace)
        held_up_at = max(self.responded_at, self.held_up_since) + HELD_UP_S
        return max(self._attempts.not_before, min(self._all_since + self.max_age_s, held_up_at))

    def _covers(self) -> bool:
        if self._names_in_response is None:
            # All topics of that time are known. A missing topic may have been created since.
            return self.names <= self.view.topics.keys()
        names = self.names
        return not self._all_topics and (names is self._names_in_response or names <= self._names_in_response)

    def on_response(self, response: MetadataResponse, now: float, chance: float) -> TopicsChanged:
        """Updates the view from a response that names brokers. Returns the event for the group's state machine."""
        requested, self._in_flight, self._failed = self._names_in_flight, False, False
        self.last_with_response = self.requests_sent
        self.view = self.view.updated(response, requested=requested)
        known = self._names_in_response
        if self._is_partial and known is not None and requested is not None:
            self._names_in_response = known | requested
        else:
            self._names_in_response, self._all_since = requested, now
        self._forget_unwatched()
        self.responded_at = now
        # A topic that is missing, or lacks a partition or a leader, is requested again, with growing delays.
        missing = self.missing() if requested is None else self.missing() & requested
        if unready := missing | self._leaderless() | self.view.lacking(self.partitions()):
            self._stale = True
            self._attempts = self._attempts.failed(now, self.backoff, chance)
            names_per_s = OTHERS_NAMES_PER_S if unready <= self._wanted.of_others else NAMES_PER_S
            self._paced_until = now + min(len(self.names) / names_per_s, self.max_age_s)
        else:
            self._attempts = FRESH
        return topics_changed(self.view, requested)

    def update_leaders(self, brokers: Iterable[BrokerNode], leaders: Iterable[tuple[TopicPartition, int, int]]) -> None:
        """Updates the view from a Fetch or Produce response that names new leaders (KIP-951)."""
        self.view = self.view.with_brokers(brokers).with_leaders(leaders)

    def on_failure(self, now: float, chance: float) -> None:
        """Handles a request without a response."""
        self._in_flight = False
        self._stale = self._failed = True
        self._attempts = self._attempts.failed(now, self.backoff, chance)

    def missing(self) -> frozenset[str]:
        """The topics that are wanted by name and missing from the view."""
        return frozenset(self.names - self.view.topics.keys()) if self.responded_at > -inf else frozenset()

    def _leaderless(self) -> frozenset[str]:
        return frozenset(
            name
            for name in self.names
            if (topic := self.view.topics.get(name))
            and not self.view.brokers.keys() >= {partition.leader for partition in topic.partitions.values()}
        )

    def next_poll_at(self) -> float | None:
        """The time (monotonic s) to call `next_request` again if nothing happens."""
        return None if self._in_flight else self._due()


def _common(names: frozenset[str], wanted: frozenset[str]) -> frozenset[str]:
    """The names in both. It is `wanted` itself if it can be, which is then known without a look at the names."""
    return wanted if wanted <= names else names & wanted


def topics_changed(view: ClusterView, requested: frozenset[str] | None) -> TopicsChanged:
    """Return the event for the group's state machine from a view. `requested`: as in `ClusterView.updated`."""
    names = view.topics.keys() if requested is None else requested & view.topics.keys()
    topics = {name: _info(view, view.topics[name]) for name in names}
    return TopicsChanged(topics, complete=requested is None, requested=requested or frozenset())


def _info(view: ClusterView, topic: TopicView) -> TopicInfo:
    racks = view.racks_of(topic.name)
    count = max(topic.partitions, default=-1) + 1
    return TopicInfo(count, topic.id, topic.internal, {number: known for number, known in racks.items() if known})
