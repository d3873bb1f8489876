"""The lowered codec against interpreted construct: same values, same bytes, same refusals at the same field."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kohort.common.errors import WireError
from kohort.fastpath._memory import Pieces
from kohort.protocol.apis.leave_group import LeaveGroupRequest
from kohort.protocol.apis.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic
from kohort.protocol.apis.offset_commit import OffsetCommitRequest
from kohort.protocol.apis.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kohort.protocol.catalogue import APIS
from kohort.protocol.codec import Message
from kohort.protocol.compiled_codec import LoweredCodec, lower
from kohort.protocol.construct_codec import ConstructCodec
from kohort.protocol.framing import frame
from tests.protocol.fuzz_codec import fuzz
from tests.protocol.sampling import Choices, sample

MESSAGES = [message for api in APIS for message in (api.request, api.response)]
some_inputs = settings(max_examples=12, suppress_health_check=list(HealthCheck))


def outcome(run: Callable[[], object]) -> object:
    """The result of a codec, or the field that it refuses."""
    try:
        return run()
    except WireError as error:
        return ("refused", error.place.get("path"))


def drawn(data: st.DataObject, message: Message[Any], version: int) -> Any:
    return sample(message.struct, version, Choices(data.draw(st.binary(max_size=300))))


def pair(message: Message[Any], version: int) -> tuple[ConstructCodec, LoweredCodec]:
    return message.reference(version), lower(message.struct, version)


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message.name)
@some_inputs
@given(data=st.data())
def test_both_write_and_read_the_same(message: Message[Any], data: st.DataObject) -> None:
    for version in range(message.versions[0], message.versions[1] + 1):
        reference, lowered = pair(message, version)
        value = drawn(data, message, version)
        written = lowered.write(value)
        assert written == reference.write(value)
        assert lowered.read(written, 0) == reference.read(written, 0) == (value, len(written))


@pytest.mark.proves("B-04", "B-05", "B-06")
@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message.name)
@some_inputs
@given(data=st.data())
def test_both_refuse_mutated_bytes_at_the_same_field(message: Message[Any], data: st.DataObject) -> None:
    version = data.draw(st.integers(*message.versions))
    reference, lowered = pair(message, version)
    mutated = bytearray(lowered.write(drawn(data, message, version)))
    for _ in range(data.draw(st.integers(1, 4))):
        if mutated:
            mutated[data.draw(st.integers(0, len(mutated) - 1))] = data.draw(
                st.integers(0, 255) | st.sampled_from((0, 1, 0x7F, 0x80, 0xFF))
            )
    cut = bytes(mutated[: data.draw(st.integers(0, len(mutated)))]) if data.draw(st.booleans()) else bytes(mutated)
    assert outcome(lambda: lowered.read(cut, 0)) == outcome(lambda: reference.read(cut, 0))


@pytest.mark.parametrize(
    "value",
    [
        {"group_id": "g", "topics": ()},  # generation and member are left at their defaults
        {"topics": ()},
        {"group_id": None, "topics": ()},
        {"group_id": "g", "topics": (), "no_such_field": 1},
        {"group_id": "g", "generation_id_or_member_epoch": 1 << 31, "topics": ()},
        {"group_id": "g", "generation_id_or_member_epoch": "7", "topics": ()},
        {
            "group_id": "g",
            "topics": ({"name": "t", "partitions": ({"partition_index": 1, "committed_offset": None},)},),
        },
        {"group_id": "\ud800", "topics": ()},
        {"group_id": "g" * 40_000, "topics": ()},
        {"group_id": "g", "group_instance_id": "i", "topics": ()},
        "no mapping at all",
    ],
)
@pytest.mark.parametrize("version", [2, 6, 9])
def test_both_refuse_bad_values_at_the_same_field(value: Any, version: int) -> None:
    reference, lowered = pair(Message.of(OffsetCommitRequest), version)
    assert outcome(lambda: lowered.write(value)) == outcome(lambda: reference.write(value))


def test_a_refusal_names_message_version_field_and_offset() -> None:
    _, lowered = pair(Message.of(MetadataResponse), 12)
    good = lowered.write(
        MetadataResponse(
            topics=(
                MetadataResponseTopic(
                    name="flights", partitions=(MetadataResponsePartition(partition_index=3, replica_nodes=(1, 2)),)
                ),
            )
        )
    )
    with pytest.raises(WireError) as caught:
        lowered.read(good[:45], 0)
    assert caught.value.place["api"] == "MetadataResponse"
    assert caught.value.place["version"] == 12
    assert str(caught.value.place["path"]).startswith("topics[0].partitions")
    assert 0 < int(str(caught.value.place["offset"])) <= 45


def test_equal_arrays_in_a_row_are_one_tuple() -> None:
    _, lowered = pair(Message.of(MetadataResponse), 12)
    partition = MetadataResponsePartition(replica_nodes=(1, 2, 3), isr_nodes=(1, 2, 3), offline_replicas=(3,))
    data = lowered.write(MetadataResponse(topics=(MetadataResponseTopic(name="t", partitions=(partition,)),)))
    read = lowered.read(data, 0)[0].topics[0].partitions[0]
    assert read == partition
    assert read.isr_nodes is read.replica_nodes


def test_records_are_a_span_of_the_frame_and_not_a_copy() -> None:
    fetch = next(api for api in APIS if api.name == "Fetch")
    frame = bytearray(fetch.response.build({"responses": ({"topic": "t", "partitions": ({"records": b"abc"},)},)}, 4))
    records = fetch.response.parse(frame, 4).responses[0].partitions[0].records
    frame[frame.index(b"abc")] = ord("z")
    assert bytes(records) == b"zbc"


@pytest.mark.parametrize("size", [0, 1, 100, 70_000])
@pytest.mark.parametrize("version", [3, 9, 13])
def test_records_in_pieces_are_written_as_one(version: int, size: int) -> None:
    whole = bytes(range(200)) + b"x" * size

    def request(records: bytes | Pieces) -> ProduceRequest:
        data = PartitionProduceData(index=1, records=records)
        topic = TopicProduceData(name="t", topic_id=UUID(int=1), partition_data=(data, data))
        return ProduceRequest(acks=-1, timeout_ms=1, topic_data=(topic,))

    message = Message.of(ProduceRequest)
    pieces = Pieces(whole[:61], memoryview(whole)[61:])
    assert (len(pieces), bytes(pieces)) == (len(whole), whole)
    assert message.build(request(pieces), version) == message.build(request(whole), version)
    assert message.reference(version).write(request(pieces)) == message.build(request(whole), version)


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None, max_examples=20)
@given(st.binary(max_size=600))
def test_a_frame_has_its_length_and_header_first(header: bytes) -> None:
    request = LeaveGroupRequest(group_id="g" * len(header), member_id="m")
    message = Message.of(LeaveGroupRequest)
    expected = frame(header, message.build(request, 0))
    assert message.build_frame(header, request, 0) == expected
    assert message.reference(0).write_frame(header, request) == expected


def test_a_bad_value_in_a_frame_is_refused_at_its_field() -> None:
    for codec in (lower(LeaveGroupRequest, 0), Message.of(LeaveGroupRequest).reference(0)):
        with pytest.raises(WireError) as refused:
            codec.write_frame(b"header", {"group_id": 7, "member_id": "m"})
        assert refused.value.place["path"] == "group_id"


def test_a_cut_of_the_fuzz_run_that_make_fuzz_does_in_full() -> None:
    assert fuzz(inputs=5_000, seed=7) == 0
