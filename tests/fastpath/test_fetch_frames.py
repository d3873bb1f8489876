"""The compiled reader and writer of Fetch in an open session agree with the codec, or leave the frame to it."""

import random
import uuid
from typing import Any

import pytest

from kohort.common import WireError
from kohort.fastpath import encode
from kohort.fastpath._fetch import FIRST_VERSION, LAST_VERSION, FetchedPartition, fetch_request_topics, fetch_response
from kohort.protocol.apis.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from kohort.protocol.catalogue import API

VERSIONS = range(FIRST_VERSION, LAST_VERSION + 1)
SESSION = 77
MANY = 1_000
HEAD = bytes(4) + (5).to_bytes(4, "big") + b"\x00"  # length, correlation id, no tagged fields


def batch(first: int, count: int) -> bytes:
    return encode(((None, b"v") for _ in range(count)), base_offset=first, timestamp_ms=1, partition_leader_epoch=4)


def partition(number: int, **more: Any) -> PartitionData:
    usual: dict[str, Any] = {
        "high_watermark": 9,
        "last_stable_offset": 8,
        "log_start_offset": 1,
        "records": batch(2, 3),
        "aborted_transactions": None,
    }
    return PartitionData(partition_index=number, **(usual | more))


def response(*partitions: PartitionData, **more: Any) -> FetchResponse:
    topic = FetchableTopicResponse(topic_id=uuid.UUID(int=1), partitions=partitions)
    usual: dict[str, Any] = {"session_id": SESSION, "responses": (topic,)}
    return FetchResponse(**(usual | more))


def framed(value: FetchResponse, version: int) -> memoryview:
    return memoryview(HEAD + API["Fetch"].response.build(value, version))


def read(frame: memoryview, version: int, most: int = MANY) -> list[FetchedPartition] | None:
    return fetch_response(frame, version, SESSION, most)


def as_codec_reads(value: FetchResponse) -> list[tuple[Any, ...]]:
    return [
        (
            topic.topic_id.bytes,
            one.partition_index,
            one.high_watermark,
            one.last_stable_offset,
            one.log_start_offset,
            bytes(one.records or b""),
        )
        for topic in value.responses
        for one in topic.partitions
    ]


def plain(found: list[FetchedPartition]) -> list[tuple[Any, ...]]:
    return [(*one[:5], bytes(one.records or b"")) for one in found]


def sampled(chance: random.Random) -> FetchResponse:
    return FetchResponse(
        session_id=SESSION,
        responses=tuple(
            FetchableTopicResponse(
                topic_id=uuid.UUID(int=chance.getrandbits(128)),
                partitions=tuple(
                    partition(
                        chance.getrandbits(20),
                        high_watermark=chance.getrandbits(40),
                        aborted_transactions=chance.choice([None, ()]),
                        records=chance.choice([b"", None, batch(chance.getrandbits(30), chance.randrange(1, 5))]),
                    )
                    for _ in range(chance.choice([0, 1, 3, 200]))
                ),
            )
            for _ in range(chance.choice([0, 1, 2, 130]))
        ),
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_a_usual_response_is_read_as_the_codec_reads_it(version: int) -> None:
    chance = random.Random(version)
    for _ in range(10):
        value = sampled(chance)
        found = read(framed(value, version), version, 1_000_000)
        assert found is not None
        assert plain(found) == as_codec_reads(value)


def test_the_end_of_the_last_whole_batch_comes_with_the_records() -> None:
    whole = batch(2, 3) + batch(5, 2)
    found = read(framed(response(partition(0, records=whole + batch(7, 4)[:-1])), 18), 18)
    assert found is not None
    assert (found[0].next_offset, found[0].leader_epoch) == (7, 4)
    assert read(framed(response(partition(0, records=batch(2, 3)[:-1])), 18), 18) is None


UNUSUAL: dict[str, FetchResponse] = {
    "an error": response(partition(0, error_code=6)),
    "an error of the session": response(partition(0), error_code=70),
    "a throttle time": response(partition(0), throttle_time_ms=1),
    "another session": response(partition(0), session_id=SESSION + 1),
    "aborted transactions": response(
        partition(0, aborted_transactions=(AbortedTransaction(producer_id=1, first_offset=2),))
    ),
    "a follower": response(partition(0, preferred_read_replica=2)),
    "a new leader": response(partition(0, current_leader=LeaderIdAndEpoch(leader_id=1, leader_epoch=2))),
    "another log": response(partition(0, diverging_epoch=EpochEndOffset(epoch=1, end_offset=2))),
    "addresses": response(partition(0), node_endpoints=(NodeEndpoint(node_id=1, host="b", port=2),)),
}


@pytest.mark.parametrize("unusual", UNUSUAL.values(), ids=UNUSUAL.keys())
def test_what_is_unusual_is_left_to_the_codec(unusual: FetchResponse) -> None:
    assert read(framed(unusual, 18), 18) is None
    assert read(framed(response(partition(0)), 18), 18) is not None


def test_a_response_has_no_more_partitions_than_the_session() -> None:
    value = response(partition(0), partition(1))
    assert read(framed(value, 18), 18, 2) is not None
    assert read(framed(value, 18), 18, 1) is None


@pytest.mark.parametrize("version", [FIRST_VERSION - 1, LAST_VERSION + 1])
def test_other_versions_are_left_to_the_codec(version: int) -> None:
    assert read(framed(response(partition(0)), 18), version) is None


def test_no_damaged_frame_is_read_in_another_way_than_the_codec_reads_it() -> None:
    whole = bytes(framed(response(partition(0), partition(1, records=None), partition(2)), 18))
    damaged = [whole[:at] for at in range(len(whole))]
    damaged += [
        whole[:at] + bytes([to]) + whole[at + 1 :]
        for at in range(8, len(whole))
        for to in (0, 1, 0x7F, 0x80, 0xFF, whole[at] ^ 1)
    ]
    agreed = 0
    for frame in [*damaged, whole + b"\x00"]:
        found = read(memoryview(frame), 18)
        if found is None:
            continue
        value, end = API["Fetch"].response.parse_from(frame, len(HEAD), 18)
        assert end == len(frame)
        assert plain(found) == as_codec_reads(value)
        agreed += 1
    assert agreed > len(whole)  # records and offsets may be any bytes


@pytest.mark.parametrize("version", VERSIONS)
def test_the_topics_of_a_request_are_written_as_the_codec_writes_them(version: int) -> None:
    chance = random.Random(version)
    for count in (0, 1, 2, 130):
        ids = [uuid.UUID(int=chance.getrandbits(128)) for _ in range(count)]
        rows = [
            (one, number, chance.getrandbits(20), chance.getrandbits(50), chance.getrandbits(30))
            for one in ids
            for number in range(chance.choice([1, 3, 130]))
        ]
        request = FetchRequest(
            max_wait_ms=1,
            min_bytes=1,
            forgotten_topics_data=(),
            topics=tuple(
                FetchTopic(
                    topic_id=one,
                    partitions=tuple(
                        FetchPartition(
                            partition=number,
                            current_leader_epoch=epoch,
                            fetch_offset=offset,
                            partition_max_bytes=most,
                        )
                        for each, number, epoch, offset, most in rows
                        if each == one
                    ),
                )
                for one in ids
            ),
        )
        topics = fetch_request_topics([(row[0].bytes, *row[1:]) for row in rows])
        assert topics in API["Fetch"].request.build(request, version)


def test_a_topic_id_of_another_size_is_refused() -> None:
    with pytest.raises(ValueError, match="16 bytes"):
        fetch_request_topics([(b"short", 0, 0, 0, 0)])


def test_a_frame_is_not_changed_and_its_records_are_views() -> None:
    frame = framed(response(partition(0)), 18)
    found = read(frame, 18)
    assert found is not None
    assert found[0].records is not None
    assert found[0].records.obj is frame.obj
    with pytest.raises(WireError):
        API["Fetch"].response.parse_from(bytes(frame)[:-1], len(HEAD), 18)


def test_each_partition_s_records_count_their_own_views() -> None:
    """CPython counts the views of one buffer without a lock. Threads that hold parts of a frame share no such count."""
    frame = framed(response(partition(0), partition(1)), 18)
    value, _end = API["Fetch"].response.parse_from(frame, len(HEAD), 18)
    first, second = (one.records for one in value.responses[0].partitions)
    assert first.obj is not second.obj
    assert frame.obj not in (first.obj, second.obj)
    assert first == second == batch(2, 3)
