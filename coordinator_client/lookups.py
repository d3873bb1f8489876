"""Questions about offsets that a caller waits for: spread over the leaders, asked again where a retry helps."""

from collections.abc import Callable, Mapping
from typing import Any

from kohort.coordinator_client.errors import AuthorizationFailed, OperationTimeout, UnknownTopic
from kohort.coordinator_client.offsets.positions import ListedOffset
from kohort.fastpath import KohortError, TopicPartition
from kohort.network.backoff import FRESH, Attempts, Backoff
from kohort.network.error_mapping import TOPIC_AUTHORIZATION, may_pass
from kohort.network.metadata import ClusterView
from kohort.network.offset_requests import ListFailure
from kohort.protocol.errors import BrokerError

Listed = Mapping[TopicPartition, ListedOffset]


class Lookup:
    """One ListOffsets question of a caller: `wanted` is timestamp by partition, `finished` hears the end of it.
    `stable`: whether isolation bounds the answer, if it is read_committed."""

    def __init__(
        self,
        wanted: dict[TopicPartition, int],
        deadline: float,
        finished: Callable[[Listed | KohortError], None],
        *,
        stable: bool = True,
    ) -> None:
        self.wanted = wanted
        self.stable = stable
        self.deadline = deadline
        self.finished = finished
        self.found: dict[TopicPartition, ListedOffset] = {}
        self.asking: set[TopicPartition] = set()
        self.attempts: Attempts = FRESH
        self.unknown: set[TopicPartition] = set()

    @property
    def topics(self) -> frozenset[str]:
        return frozenset(partition.topic for partition in self.wanted)

    def owed(self, view: ClusterView, now: float) -> dict[int, list[tuple[TopicPartition, int, int]]]:
        """(partition, timestamp, leader epoch) by leader, for what is neither known nor being asked."""
        owed: dict[int, list[tuple[TopicPartition, int, int]]] = {}
        if not self.attempts.may_try(now):
            return owed
        for partition, timestamp in self.wanted.items():
            if partition in self.found or partition in self.asking:
                continue
            known, leader = view.partition(partition), view.leader(partition)
            if known is None or leader is None:
                continue
            owed.setdefault(leader.node, []).append((partition, timestamp, known.leader_epoch))
            self.asking.add(partition)
        return owed

    def refused_by(self, view: ClusterView) -> KohortError | None:
        """An error in metadata that no waiting cures."""
        for partition in self.wanted:
            if view.refused.get(partition.topic) == TOPIC_AUTHORIZATION:
                return AuthorizationFailed("not allowed to read the topic", topic=partition.topic)
        return None

    def answered(
        self, answer: Mapping[TopicPartition, ListedOffset | ListFailure], now: float, backoff: Backoff, chance: float
    ) -> KohortError | None:
        """Take what came. The error, if one came that no retry cures."""
        retry = False
        for partition, got in answer.items():
            if partition not in self.wanted:
                continue  # else it would be counted for one that is
            self.asking.discard(partition)
            if isinstance(got, ListedOffset) and got.answers(self.wanted[partition]):
                self.found[partition] = got
            elif isinstance(got, ListedOffset) or may_pass(got.code):
                retry = True
            else:
                return _refusal(partition, got.code)
        if retry:
            self.attempts = self.attempts.failed(now, backoff, chance)
        return None

    def failed(self, partitions: set[TopicPartition], now: float, backoff: Backoff, chance: float) -> None:
        self.asking -= partitions
        self.attempts = self.attempts.failed(now, backoff, chance)

    @property
    def complete(self) -> bool:
        return len(self.found) == len(self.wanted)

    @property
    def answer(self) -> Listed:
        """What was found, in the order in which it was wanted."""
        return {partition: self.found[partition] for partition in self.wanted if partition in self.found}

    def expired(self, view: ClusterView) -> KohortError:
        """Why it did not end in time, as well as can be told."""
        for partition in self.wanted:
            if partition in self.found:
                continue
            place: dict[str, Any] = {"topic": partition.topic, "partition": partition.partition}
            if view.brokers and view.partition(partition) is None:
                return UnknownTopic("no such topic or partition", hint="check its name", **place)
            return OperationTimeout("no answer about offsets in time", **place)
        return OperationTimeout("no answer about offsets in time")


def _refusal(partition: TopicPartition, code: int) -> KohortError:
    place: dict[str, Any] = {"topic": partition.topic, "partition": partition.partition}
    if code == TOPIC_AUTHORIZATION:
        return AuthorizationFailed("not allowed to read the topic", **place)
    return BrokerError(code, api="ListOffsets", **place)
