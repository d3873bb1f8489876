"""The known topics of the cluster, and the topics that the subscription means because of them."""

from typing import Final

from kohort.coordinator_client.subscription_state import Subscription
from kohort.network.metadata import TopicInfo, TopicsChanged
from kohort.network.metadata_refresh import WantedTopics

NO_TOPICS: Final[frozenset[str]] = frozenset()


class TopicSubscription:
    """The topics of the subscription.

    `known`: the existing topics. `meant`: those of the current subscription, None while a pattern waits for the
    cluster's topics. `joined`: those of the last JoinGroup.
    """

    __slots__ = (
        "_everything_known",
        "_hide_internal",
        "_looked_up",
        "_reported",
        "joined",
        "known",
        "meant",
        "subscription",
    )

    def __init__(self, *, hide_internal: bool) -> None:
        self._hide_internal = hide_internal
        self.subscription: Subscription | None = None
        self.known: dict[str, TopicInfo] = {}
        self._looked_up: set[str] = set()  # topics with a Metadata response, existing or not
        self._everything_known = False
        self._reported = (
            NO_TOPICS  # topics of the pattern that the leader assigned before this member's metadata had them
        )
        self.meant: frozenset[str] | None = None
        self.joined = NO_TOPICS

    @property
    def by_pattern(self) -> bool:
        return self.subscription is not None and self.subscription.by_pattern

    def subscribe(self, subscription: Subscription | None) -> None:
        """The user replaced the subscription, or gave it up (None)."""
        self.subscription = subscription
        self._reported = NO_TOPICS
        self._resolve()

    def learn(self, event: TopicsChanged) -> None:
        """Add metadata: of the whole cluster, or of the requested topics."""
        usable = {name: info for name, info in event.topics.items() if info.partitions >= 0}
        if event.complete:
            self.known = usable
            self._looked_up = set(usable)
            self._everything_known = True
            self._reported = NO_TOPICS
        else:
            for name in event.requested:
                self.known.pop(name, None)
            self.known.update(usable)
            self._looked_up |= event.requested | usable.keys()
        self._resolve()

    def believe(self, reported: frozenset[str]) -> None:
        """Add topics that the leader assigned and the join did not name: its metadata is newer."""
        self._reported |= reported
        self.joined |= reported
        self._resolve()

    def never_looked_up(self, topics: frozenset[str]) -> frozenset[str]:
        """Those of `topics` of which not even the absence is known."""
        return NO_TOPICS if self._everything_known else topics - self._looked_up

    def wanted(self, group_topics: frozenset[str]) -> WantedTopics:
        """The topics with needed metadata: the subscribed ones, and those that a leader has to assign."""
        subscription = self.subscription
        if subscription is None:
            return WantedTopics()
        own = subscription.topics
        return WantedTopics(own | group_topics, subscription.by_pattern, of_others=group_topics - own)

    def _resolve(self) -> None:
        """Work out the topics of the subscription from what is known of the cluster."""
        subscription = self.subscription
        if subscription is None:
            self.meant = NO_TOPICS
        elif not subscription.by_pattern:
            self.meant = subscription.topics
        elif not self._everything_known:
            self.meant = None
        else:
            hidden = self._hide_internal
            found = subscription.resolved({name: hidden and info.internal for name, info in self.known.items()})
            self.meant = found | self._reported
