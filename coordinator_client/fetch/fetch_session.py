"""One fetch session with one broker (KIP-227): after the first request only what changed is said again.

The broker keeps the list of partitions; epoch 0 opens a session, each answered request raises the epoch by one, and
any doubt (an error, a lost answer) is settled by opening a new one, never by guessing what the broker remembers.
"""

import uuid
from collections.abc import Mapping
from typing import NamedTuple

from kohort.common import TopicPartition
from kohort.network.metadata import NO_TOPIC_ID

NO_SESSION, OPENING, WITHOUT = 0, 0, -1
INT32_MAX = 2**31 - 1


class Wanted(NamedTuple):
    """What is to be fetched of one partition, as the broker has to know it."""

    topic_id: uuid.UUID
    offset: int
    leader_epoch: int
    max_bytes: int


class SessionAsk(NamedTuple):
    """The session part of one Fetch request. `changed` are sent, `forgotten` are taken off the broker's list."""

    session_id: int
    epoch: int
    changed: Mapping[TopicPartition, Wanted]
    forgotten: Mapping[TopicPartition, uuid.UUID]


class FetchSession:
    """The client's half: what the broker has been told, under which id and epoch."""

    def __init__(self, session_id: int = NO_SESSION, epoch: int = OPENING) -> None:
        self.session_id = session_id
        self.epoch = epoch
        self.session_partitions: dict[TopicPartition, Wanted] = {}
        self._names: dict[uuid.UUID, str] = {}

    def next_request(self, wanted: Mapping[TopicPartition, Wanted], *, kept: bool = True) -> SessionAsk:
        """What to say so that the broker's list becomes `wanted`; call `answered` or `reset` before the next.

        `kept`: whether the broker is to keep a session where it has none yet.
        """
        before, self.session_partitions = self.session_partitions, dict(wanted)
        # By name first: a UUID is hashed in Python, which is affordable for each topic but not for each partition.
        ids = {partition.topic: want.topic_id for partition, want in wanted.items()}
        self._names = {topic_id: topic for topic, topic_id in ids.items() if topic_id != NO_TOPIC_ID}
        if self.epoch == OPENING:
            return SessionAsk(self.session_id, OPENING if kept else WITHOUT, self.session_partitions, {})
        # A topic made anew under the same name is another topic: the old one must be forgotten by its own id.
        forgotten = {
            partition: known.topic_id
            for partition, known in before.items()
            if partition not in wanted or wanted[partition].topic_id != known.topic_id
        }
        changed = {partition: want for partition, want in wanted.items() if before.get(partition) != want}
        return SessionAsk(self.session_id, self.epoch, changed, forgotten)

    def answered(self, session_id: int) -> None:
        """The broker answered without an error of the session. Id 0: it keeps no session, so each request is whole."""
        # The epoch is 31 bits and wraps to 1: 0 would open a new session.
        same = session_id == self.session_id and self.epoch != INT32_MAX
        self.epoch = OPENING if session_id == NO_SESSION else self.epoch + 1 if same else 1
        self.session_id = session_id

    def reset(self, *, gone: bool = False) -> None:
        """The next request opens a new session; it names the old one, which the broker forgets then, unless it has."""
        self.epoch = OPENING
        if gone:
            self.session_id = NO_SESSION

    def topic_name(self, topic_id: uuid.UUID) -> str | None:
        """The topic that the last request named by this id; None for the zero id, which stands for no topic."""
        return self._names.get(topic_id)
