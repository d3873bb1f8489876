"""ShareFetch (78), versions 1-2: sessions, acknowledgements and acquisition; see shares.py and share_partition.py.

A fetch waits until it acquires records, for `max_wait_ms` at most. `min_bytes` is not counted.
Not done: authorization; max_bytes, which ends no response early.
"""

import asyncio
import contextlib
from collections.abc import Iterable
from uuid import UUID

from kohort.protocol.apis.share_acknowledge import LeaderIdAndEpoch, NodeEndpoint
from kohort.protocol.apis.share_fetch import (
    AcquiredRecords,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)
from kohort.protocol.errors import ErrorCode
from kohort.testing.fake_broker.cluster import FakePartition
from kohort.testing.fake_broker.consumer_group import Place
from kohort.testing.fake_broker.handler_context import Work
from kohort.testing.fake_broker.share_coordinator import LONGEST_MEMBER_ID
from kohort.testing.fake_broker.share_partition import Acks, Acquired, batches_error
from kohort.testing.fake_broker.shares import CLOSING, OPENING, SessionKey

KEY = 78
VERSIONS = (1, 2)


async def handle(work: Work, request: ShareFetchRequest) -> ShareFetchResponse:
    acks = acks_of(request.topics)
    if error := _request_error(request, acks):
        return ShareFetchResponse(error_code=error)
    shares = work.cluster.shares
    key = SessionKey(work.call.node, request.group_id or "", request.member_id or "")
    error = shares.enter(
        key,
        request.share_session_epoch,
        work.call.connection,
        opens=True,
        added=[Place(topic.topic_id, one.partition_index) for topic in request.topics for one in topic.partitions],
        forgotten=[Place(topic.topic_id, one) for topic in request.forgotten_topics_data for one in topic.partitions],
    )
    if error == ErrorCode.SHARE_SESSION_LIMIT_REACHED:
        await asyncio.sleep(request.max_wait_ms / 1000)
    if error:
        return ShareFetchResponse(error_code=error)
    settled = {place: acknowledged(work, key, place, batches, request.is_renew_ack) for place, batches in acks.items()}
    if any(code == ErrorCode.NONE for code in settled.values()):
        work.wake_fetches()
    if request.share_session_epoch == CLOSING:
        shares.close(key)
        work.wake_fetches()
        return _response(work, key, settled, {}, ())
    shown = set(shares.sessions[key].places) if request.share_session_epoch == OPENING else set()
    deadline = work.now + request.max_wait_ms / 1000
    while True:
        arrived = work.arrived()
        found = _acquire(work, key, request)
        left_s = deadline - work.now
        if any(not isinstance(one, list) or one for one in found.values()) or left_s <= 0 or key not in shares.sessions:
            return _response(work, key, settled, found, shown)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(left_s):  # wait_for swallows cancellations before Python 3.12
                await arrived.wait()


def _request_error(request: ShareFetchRequest, acks: dict[Place, list[Acks]]) -> int:
    renews = request.is_renew_ack
    limits = (request.max_bytes, request.min_bytes, request.max_records, request.max_wait_ms)
    opens_with_acks = request.share_session_epoch == OPENING and any(acks.values())
    if ids_error(request.group_id, request.member_id) or opens_with_acks or (renews and any(limits)):
        return ErrorCode.INVALID_REQUEST
    return ErrorCode.NONE if request.share_acquire_mode in (0, 1) else ErrorCode.UNKNOWN_SERVER_ERROR


def ids_error(group_id: str | None, member_id: str | None) -> bool:
    """True for a missing group, and for a member id that is missing or too long."""
    return group_id is None or not member_id or len(member_id) > LONGEST_MEMBER_ID


def acks_of(topics: Iterable[object]) -> dict[Place, list[Acks]]:
    """The acknowledgements of a request, by partition."""
    return {
        Place(topic.topic_id, one.partition_index): [  # type: ignore[attr-defined]
            Acks(each.first_offset, each.last_offset, each.acknowledge_types) for each in one.acknowledgement_batches
        ]
        for topic in topics
        for one in topic.partitions  # type: ignore[attr-defined]
        if one.acknowledgement_batches
    }


def acknowledged(work: Work, key: SessionKey, place: Place, batches: list[Acks], renews: bool) -> int:
    """Apply acknowledgements of one partition. Returns the error code."""
    shares = work.cluster.shares
    topic = work.cluster.topic_by_id(place.topic_id)
    partition = work.cluster.partition(topic, place.partition)
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    known = shares.partitions.get((key.group_id, place))
    if partition is None or known is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if partition.leader != work.call.node:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    error = batches_error(batches, renews=renews, version=work.call.version)
    error = error or known.acknowledge(key.member_id, batches, shares.limits(key.group_id), work.now)
    work.tick()
    return error


def _acquire(work: Work, key: SessionKey, request: ShareFetchRequest) -> dict[Place, list[Acquired] | int]:
    """The report of each partition of the session: acquired ranges, or an error code."""
    shares = work.cluster.shares
    room = request.max_records if request.max_bytes > 0 else 0
    session = shares.sessions.get(key)
    found: dict[Place, list[Acquired] | int] = {}
    places = list(session.places) if session is not None else []
    turn = request.share_session_epoch % len(places) if places else 0
    for place in places[turn:] + places[:turn]:
        partition = work.cluster.partition(work.cluster.topic_by_id(place.topic_id), place.partition)
        error = _leader_error(work, place, partition)
        if error or partition is None:
            found[place] = error
            continue
        log = partition.log
        stable = shares.config(key.group_id, "share.isolation.level") == "read_committed"
        ranges = shares.partition(key.group_id, place, log.start, log.end).acquire(
            key.member_id,
            visible=partition.stable_offset if stable else log.end,
            most=room,
            strict=request.share_acquire_mode == 1,
            batch_end=log.batch_end,
            limits=shares.limits(key.group_id),
            now=work.now,
        )
        found[place] = ranges
        room = max(room - sum(one.last - one.first + 1 for one in ranges), 0)
    work.tick()
    return found


def _leader_error(work: Work, place: Place, partition: FakePartition | None) -> int:
    if work.cluster.topic_by_id(place.topic_id) is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    if partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.NONE if partition.leader == work.call.node else ErrorCode.NOT_LEADER_OR_FOLLOWER


def leader_of(work: Work, place: Place, error: int) -> LeaderIdAndEpoch:
    """The leader of a partition, with the error that says that it has moved; else (0, 0), as brokers have it."""
    partition = work.cluster.partition(work.cluster.topic_by_id(place.topic_id), place.partition)
    if error != ErrorCode.NOT_LEADER_OR_FOLLOWER or partition is None:
        return LeaderIdAndEpoch(leader_id=0, leader_epoch=0)
    return LeaderIdAndEpoch(leader_id=partition.leader, leader_epoch=partition.epoch)


def endpoints_of(work: Work, leaders: Iterable[LeaderIdAndEpoch]) -> tuple[NodeEndpoint, ...]:
    """The addresses of new leaders (KIP-951)."""
    nodes = sorted({one.leader_id for one in leaders if one.leader_id > 0})
    return tuple(NodeEndpoint(node_id=node, **work.cluster.address_of(node)._asdict()) for node in nodes)


def _response(
    work: Work,
    key: SessionKey,
    settled: dict[Place, int],
    found: dict[Place, list[Acquired] | int],
    shown: Iterable[Place],
) -> ShareFetchResponse:
    """Partitions without records, error or acknowledgement are left out, but for those of a new session."""
    topics: dict[UUID, list[PartitionData]] = {}
    leaders = []
    for place in dict.fromkeys([*found, *settled]):
        acquired = found.get(place, [])
        if not acquired and place not in settled and place not in shown:
            continue
        error = acquired if isinstance(acquired, int) else ErrorCode.NONE
        ranges = [] if isinstance(acquired, int) else acquired
        leader = leader_of(work, place, error or settled.get(place, 0))
        leaders.append(leader)
        topics.setdefault(place.topic_id, []).append(
            PartitionData(
                partition_index=place.partition,
                error_code=error,
                acknowledge_error_code=settled.get(place, ErrorCode.NONE),
                current_leader=leader,
                records=_records(work, place, ranges),
                acquired_records=tuple(
                    AcquiredRecords(first_offset=one.first, last_offset=one.last, delivery_count=one.deliveries)
                    for one in ranges
                ),
            )
        )
    return ShareFetchResponse(
        acquisition_lock_timeout_ms=int(work.cluster.shares.limits(key.group_id).lock_s * 1000),
        responses=tuple(
            ShareFetchableTopicResponse(topic_id=topic_id, partitions=tuple(partitions))
            for topic_id, partitions in topics.items()
        ),
        node_endpoints=endpoints_of(work, leaders),
    )


def _records(work: Work, place: Place, ranges: list[Acquired]) -> bytes:
    partition = work.cluster.partition(work.cluster.topic_by_id(place.topic_id), place.partition)
    if not ranges or partition is None:
        return b""
    return partition.log.read(ranges[0].first, 1 << 30, ranges[-1].last + 1)
