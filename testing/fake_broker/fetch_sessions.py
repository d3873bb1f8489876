"""Fetch sessions (KIP-227) of the fake's nodes: the partitions that each client reads, and what it was sent of them."""

from __future__ import annotations

import itertools
import uuid
from dataclasses import dataclass, field

from kohort.common.topic_partition import grouped
from kohort.protocol.apis.fetch import FetchableTopicResponse, FetchPartition, FetchRequest, FetchTopic, PartitionData
from kohort.protocol.errors import ErrorCode

NO_SESSION, OPENING, CLOSING = 0, 0, -1
MAX_EPOCH = 2**31 - 1

Place = tuple[str, uuid.UUID, int]


@dataclass(eq=False, slots=True)
class FakeFetchSession:
    """One session. `epoch`: of the next request. `sent`: the offsets of each partition in the last response."""

    session_id: int
    epoch: int = 1
    partitions: dict[Place, FetchPartition] = field(default_factory=dict)
    sent: dict[Place, tuple[int, int, int]] = field(default_factory=dict)

    def update(self, request: FetchRequest) -> None:
        """Take the changes of a request."""
        for topic in request.forgotten_topics_data:
            for number in topic.partitions:
                self.partitions.pop((topic.topic, topic.topic_id, number), None)
        for requested in request.topics:
            for one in requested.partitions:
                self.partitions[requested.topic, requested.topic_id, one.partition] = one

    @property
    def topics(self) -> tuple[FetchTopic, ...]:
        """All partitions, as a full request has them."""
        by_topic = grouped(((topic, topic_id), one) for (topic, topic_id, _number), one in self.partitions.items())
        return tuple(
            FetchTopic(topic=topic, topic_id=topic_id, partitions=tuple(partitions))
            for (topic, topic_id), partitions in by_topic.items()
        )

    def is_news(self, topic: FetchableTopicResponse, data: PartitionData) -> bool:
        """True if a response has the partition: it has records, an error, or other offsets than the last response."""
        place = (topic.topic, topic.topic_id, data.partition_index)
        offsets = (data.high_watermark, data.last_stable_offset, data.log_start_offset)
        before = self.sent.get(place)
        self.sent[place] = offsets
        return bool(data.records) or bool(data.error_code) or offsets != before


class FakeFetchSessions:
    """The sessions of all nodes. Ids are never used again."""

    def __init__(self) -> None:
        self._sessions: dict[int, FakeFetchSession] = {}
        self._ids = itertools.count(1)

    def of(self, request: FetchRequest) -> tuple[FakeFetchSession | None, int]:
        """The session of a request, with its changes, or None; and the error code."""
        if request.session_epoch in (OPENING, CLOSING):
            self._sessions.pop(request.session_id, None)
            if request.session_epoch == CLOSING:
                return None, ErrorCode.NONE
            session = FakeFetchSession(next(self._ids))
            self._sessions[session.session_id] = session
        else:
            known = self._sessions.get(request.session_id)
            if known is None:
                return None, ErrorCode.FETCH_SESSION_ID_NOT_FOUND
            if request.session_epoch != known.epoch:
                return None, ErrorCode.INVALID_FETCH_SESSION_EPOCH
            session = known
            session.epoch = 1 if session.epoch == MAX_EPOCH else session.epoch + 1
        session.update(request)
        return session, ErrorCode.NONE
