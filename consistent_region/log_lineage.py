"""The identity of the log of an offset: the topic's id, and the leader epoch of the record before the offset.

A checkpoint stores both with each offset. Without them, other records at the same offsets would not be noticed.
There are other records after a topic was created again, or after a log was truncated and written again.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable
from typing import Protocol
from uuid import UUID

from kohort.common.errors import KohortError
from kohort.common.topic_partition import TopicPartition
from kohort.consistent_region.errors import TopicRecreatedError, TruncationError
from kohort.consistent_region.offsets import NO_EPOCH, NO_TOPIC_ID, Positions, RegionPosition
from kohort.coordinator_client.errors import TopicRecreated, Truncation
from kohort.network.errors import IllegalState, OperationTimeout

MOST_POLLS = 1_000


class Whereabouts(Protocol):
    """The result of `kohort.Consumer.position_of`."""

    @property
    def offset(self) -> int: ...
    @property
    def leader_epoch(self) -> int: ...


class Lineage:
    """Records the ends of leader epochs in polled records. The handler's position is at or before the last of them.

    `topic_id`, `position_of`: methods of `kohort.Consumer`.
    """

    def __init__(self, topic_id: Callable[[str], UUID], position_of: Callable[[TopicPartition], Whereabouts]) -> None:
        self._topic_id = topic_id
        self._position_of = position_of
        self._polled: dict[TopicPartition, list[tuple[int, int]]] = {}  # (next offset, its epoch), ascending

    def polled(self, partitions: Iterable[TopicPartition]) -> None:
        """Add the partitions of polled records. The consumer's position is behind the last of them."""
        for partition in partitions:
            try:
                here = self._position_of(partition)
            except (IllegalState, OperationTimeout):
                continue  # it went with the poll that brought them
            ends = self._polled.setdefault(partition, [])
            if ends and here.offset <= ends[-1][0]:
                ends.clear()  # it was sought back
            if ends and ends[-1][1] == here.leader_epoch:
                ends[-1] = (here.offset, here.leader_epoch)
            else:
                ends.append((here.offset, here.leader_epoch))
            del ends[:-MOST_POLLS]

    def placed(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget what was polled of these partitions: they are read from another position now."""
        for partition in partitions:
            self._polled.pop(partition, None)

    def named(self, positions: Positions) -> dict[TopicPartition, RegionPosition]:
        """With the ids that the topics have now, where none is known yet."""
        return {
            one: at if at.topic_id != NO_TOPIC_ID else at._replace(topic_id=self._topic_id(one.topic))
            for one, at in positions.items()
        }

    def reported(self, positions: Positions) -> dict[TopicPartition, RegionPosition]:
        """As `named`, and with the epochs of what was polled."""
        return {one: at._replace(leader_epoch=self._epoch(one, at)) for one, at in self.named(positions).items()}

    def check(self, starts: Positions) -> None:
        """Raises TopicRecreatedError if a start is of a topic that is not there any more, but another of its name."""
        for partition, position in starts.items():
            now = self._topic_id(partition.topic)
            if NO_TOPIC_ID not in (now, position.topic_id) and now != position.topic_id:
                raise TopicRecreatedError(
                    "the topic was deleted and created again since the checkpoint",
                    hint="its offsets mean nothing in the new one, which the region reads after `kohort region forget`",
                    **partition._asdict(),
                    offset=position.offset,
                    checkpoint_topic_id=position.topic_id,
                    topic_id=now,
                )

    def typed(self, error: KohortError) -> KohortError:
        """The consumer's error about a log, as an error of the region."""
        kind = {TopicRecreated: TopicRecreatedError, Truncation: TruncationError}.get(type(error))
        return error if kind is None else kind(error.message, hint=error.hint, **error.place)

    def _epoch(self, partition: TopicPartition, at: RegionPosition) -> int:
        ends = self._polled.get(partition, [])
        place = bisect_left(ends, (at.offset, NO_EPOCH))
        if place == len(ends):
            return at.leader_epoch
        # Positions before `place` are handled, and are not requested again.
        del ends[:place]
        return ends[0][1] if ends[0][1] != NO_EPOCH else at.leader_epoch
