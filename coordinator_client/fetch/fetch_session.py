"""One fetch session with one broker (KIP-227).

After the first request of a session, requests contain only the changed partitions. The broker keeps the list of
partitions. Epoch 0 opens a session, and each successful response increments the epoch. After an error or a lost
response a new session is opened.
"""

import uuid
from collections.abc import Mapping
from operator import itemgetter

from kohort.common import TopicPartition
from kohort.common.named_tuple import NamedTuple
from kohort.coordinator_client.fetch._fetch_buffer import SessionFields
from kohort.network.metadata import NO_NODE, NO_TOPIC_ID
from kohort.protocol.apis.fetch import FetchRequest
from kohort.protocol.catalogue import API

NO_SESSION, OPENING, WITHOUT = 0, 0, -1
INT32_MAX = 2**31 - 1
_EPOCH_AT = 17  # in a request: behind the limits, the isolation level and the session's id
_WITHOUT_REPLICA_ID = 15
TOPIC = itemgetter(0)
"""Of a partition. Each run of partitions of one topic is an entry of a request."""


class Wanted(NamedTuple):
    """Fetch parameters of one partition."""

    topic_id: uuid.UUID
    offset: int
    leader_epoch: int
    max_bytes: int


class LogOffsets(NamedTuple):
    """Offsets of a log from the leader's last response; -1 where unknown."""

    high_watermark: int
    last_stable: int
    log_start: int


class RequestedFetch(NamedTuple):
    """One partition of an in-flight Fetch. A response is accepted only if serial and offset still match.

    `leader` and `leader_epoch` are those of the view that the request was built from. The request itself may have gone
    to a follower (KIP-392).
    """

    serial: int
    offset: int
    leader_epoch: int
    leader: int = NO_NODE


class FetchSessionPart(NamedTuple):
    """The session part of one Fetch request.

    `changed`: partitions to send. `forgotten`: partitions that the broker removes from its list.
    """

    session_id: int
    epoch: int
    changed: Mapping[TopicPartition, Wanted]
    forgotten: Mapping[TopicPartition, uuid.UUID]


class RequestTemplate(NamedTuple):
    """An encoded request of a session without its epoch and its topics."""

    version: int
    session_id: int
    before_epoch: bytes
    after_topics: bytes

    @classmethod
    def of(cls, request: FetchRequest, version: int) -> "RequestTemplate":
        encoded = API["Fetch"].request.build(request._replace(topics=(), forgotten_topics_data=()), version)
        epoch_at = _EPOCH_AT if version >= _WITHOUT_REPLICA_ID else _EPOCH_AT + 4
        topics_at = epoch_at + 4
        return cls(version, request.session_id, encoded[:epoch_at], encoded[topics_at + 1 :])


class FetchSession(SessionFields):
    """The client side of a fetch session: its id, its epoch and the partitions sent so far.

    `steady_under`: the revisions and the metadata under which the last request was built. While they are the same, each
    request follows from the response before it. None: the next request does not.
    """

    def __init__(self, session_id: int = NO_SESSION, epoch: int = OPENING) -> None:
        self.session_id = session_id
        self.epoch = epoch
        self.session_partitions = {}
        self.steady_under = None
        self.names = {}
        self.template = None

    def next_request(self, wanted: Mapping[TopicPartition, Wanted], *, kept: bool = True) -> FetchSessionPart:
        """The session part of the next request, so that the broker's list becomes `wanted`.

        Call `responded` or `reset` before the next request. `kept`: true if the broker should create a session when
        there is none.
        """
        before = self.session_partitions
        if self.epoch == OPENING:
            in_turn = [one for one in before if one in wanted]
            wanted = {one: wanted[one] for one in dict.fromkeys((*in_turn, *sorted(wanted, key=TOPIC)))}
        self.session_partitions = dict(wanted)
        # By name first: a UUID is hashed in Python, which is affordable for each topic but not for each partition.
        ids = {partition.topic: want.topic_id for partition, want in wanted.items()}
        self.names = {topic_id.bytes: topic for topic, topic_id in ids.items() if topic_id != NO_TOPIC_ID}
        if self.epoch == OPENING:
            return FetchSessionPart(self.session_id, OPENING if kept else WITHOUT, self.session_partitions, {})
        # A topic that was recreated under the same name has another id: the old one must be removed by its old id.
        forgotten = {
            partition: known.topic_id
            for partition, known in before.items()
            if partition not in wanted or wanted[partition].topic_id != known.topic_id
        }
        changed = [partition for partition, want in wanted.items() if before.get(partition) != want]
        by_topic = {partition: wanted[partition] for partition in sorted(changed, key=TOPIC)}
        return FetchSessionPart(self.session_id, self.epoch, by_topic, forgotten)

    def move_back(self, partition: TopicPartition) -> None:
        """Request a partition after all others, since a response has records of it (KIP-74).

        A broker without a session fills its response in the order of the request. Others would starve.
        """
        self.session_partitions[partition] = self.session_partitions.pop(partition)

    def responded(self, session_id: int) -> None:
        """Handle a response without a session error. Id 0: the broker keeps no session, so each request is a full
        one."""
        # The epoch is 31 bits and wraps to 1: 0 would open a new session.
        same = session_id == self.session_id and self.epoch != INT32_MAX
        self.epoch = OPENING if session_id == NO_SESSION else self.epoch + 1 if same else 1
        self.session_id = session_id

    def reset(self, *, gone: bool = False) -> None:
        """Open a new session with the next request. That request also closes the old session.

        `gone`: the broker no longer has the old session, so its id is not sent.
        """
        self.epoch = OPENING
        self.session_partitions = {}
        if gone:
            self.session_id = NO_SESSION

    def topic_name(self, topic_id: uuid.UUID) -> str | None:
        """The name of the topic that the last request sent with this id; None for the zero id."""
        return self.names.get(topic_id.bytes)

    def template_of(self, request: FetchRequest, version: int) -> RequestTemplate:
        """The encoded form of the session's next requests. `request` is an earlier one."""
        self.template = RequestTemplate.of(request._replace(session_id=self.session_id), version)
        return self.template
