"""Fetch (1), versions 4-18: waits for `min_bytes` up to `max_wait_ms`. Version 13 and later name topics by id.

The first batch is returned whole for any limit (KIP-74). read_committed readers stop at the last stable offset, and
receive the aborted transactions. Transactions that a test appends as bytes count for neither.
Sessions are in `fetch_sessions.py`. Not done: truncation by epoch, followers.
"""

import asyncio
import contextlib

from kohort.protocol.apis.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from kohort.protocol.errors import ErrorCode
from kohort.testing.fake_broker.cluster import FakeTopic
from kohort.testing.fake_broker.fetch_sessions import OPENING, FakeFetchSession
from kohort.testing.fake_broker.handler_context import Work
from kohort.testing.fake_broker.handlers.list_offsets import leader_error

KEY = 1
VERSIONS = (4, 18)
WITH_SESSIONS = 7


async def handle(work: Work, request: FetchRequest) -> FetchResponse:
    session, error = (None, 0) if work.call.version < WITH_SESSIONS else work.cluster.fetch_sessions.of(request)
    if error:
        return FetchResponse(error_code=error)
    full = session is None or request.session_epoch == OPENING
    topics = request.topics if session is None else session.topics
    deadline = work.now + request.max_wait_ms / 1000
    while True:
        arrived = work.arrived()
        found, size, failed = _read(work, request, topics)
        left_s = deadline - work.now
        if failed or size >= request.min_bytes or left_s <= 0 or not topics:
            break
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(left_s):  # wait_for swallows cancellations before Python 3.12
                await arrived.wait()
    if session is None:
        return FetchResponse(responses=found)
    return FetchResponse(session_id=session.session_id, responses=_news(session, found, full=full))


def _news(
    session: FakeFetchSession, found: tuple[FetchableTopicResponse, ...], *, full: bool
) -> tuple[FetchableTopicResponse, ...]:
    """The topics with the partitions that a response of the session has. `full`: all of them."""
    news = []
    for topic in found:
        partitions = tuple([one for one in topic.partitions if session.is_news(topic, one) or full])
        if partitions:
            news.append(topic._replace(partitions=partitions))
    return tuple(news)


def _read(
    work: Work, request: FetchRequest, wanted: tuple[FetchTopic, ...]
) -> tuple[tuple[FetchableTopicResponse, ...], int, bool]:
    """The topics as of now, their records' bytes, and whether a partition failed."""
    room = request.max_bytes
    size, failed = 0, False
    topics = []
    for requested in wanted:
        topic = _topic(work, requested)
        partitions = []
        for each in requested.partitions:
            data = _partition(work, each, topic, room, isolation_level=request.isolation_level, is_first=size == 0)
            taken = len(data.records or b"")
            size, room, failed = size + taken, room - taken, failed or bool(data.error_code)
            partitions.append(data)
        topics.append(
            FetchableTopicResponse(topic=requested.topic, topic_id=requested.topic_id, partitions=tuple(partitions))
        )
    return tuple(topics), size, failed


def _topic(work: Work, requested: FetchTopic) -> FakeTopic | None:
    if work.call.version >= 13:
        return work.cluster.topic_by_id(requested.topic_id)
    return work.cluster.topics.get(requested.topic)


def _partition(
    work: Work, requested: FetchPartition, topic: FakeTopic | None, room: int, *, isolation_level: int, is_first: bool
) -> PartitionData:
    partition = work.cluster.partition(topic, requested.partition)
    error = leader_error(work, partition, requested.current_leader_epoch)
    if topic is None and work.call.version >= 13:
        error = ErrorCode.UNKNOWN_TOPIC_ID
    if error or partition is None:
        return _failed(requested, error)
    log = partition.log
    isolated = bool(isolation_level)
    if not log.start <= requested.fetch_offset <= log.end:
        return _failed(requested, ErrorCode.OFFSET_OUT_OF_RANGE)
    records = b""
    if room > 0 or is_first:
        stop = partition.stable_offset if isolated else None
        records = log.read(requested.fetch_offset, min(requested.partition_max_bytes, max(room, 0)), stop)
        if len(records) > room and not is_first:
            records = b""
    return PartitionData(
        partition_index=requested.partition,
        high_watermark=log.end,
        last_stable_offset=partition.stable_offset,
        log_start_offset=log.start,
        aborted_transactions=tuple(
            AbortedTransaction(producer_id=one.producer_id, first_offset=one.first_offset)
            for one in partition.transactions.aborted_within(requested.fetch_offset, partition.stable_offset)
        )
        if isolated
        else None,
        records=records,
    )


def _failed(requested: FetchPartition, error: int) -> PartitionData:
    return PartitionData(
        partition_index=requested.partition,
        error_code=error,
        high_watermark=-1,
        last_stable_offset=-1,
        log_start_offset=-1,
        aborted_transactions=None,
        records=b"",
    )
