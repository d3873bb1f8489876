"""The output of `wire explain` for good frames, broken ones, and the contents of bytes fields."""

from __future__ import annotations

import pytest

from kohort.fastpath import Codec, encode
from kohort.fastpath.compression import CODECS, XERIAL_MAGIC
from kohort.protocol import explain
from kohort.protocol.construct_types import FieldSource
from kohort.protocol.explain import ExplainedPart, explain_request, explain_response
from kohort.protocol.membership import (
    Assignment,
    Subscription,
    TopicPartitions,
    build_assignment,
    build_subscription,
)
from kohort.protocol.record_batch import build_batch
from kohort.protocol.stream_decoder import Conversation
from kohort.protocol.wire import WireConnection

SUBSCRIPTION = build_subscription(
    Subscription(
        topics=("flights",), owned_partitions=(TopicPartitions(topic="flights", partitions=(1, 2)),), generation_id=4
    )
)
JOIN = {
    "group_id": "billing",
    "session_timeout_ms": 45_000,
    "rebalance_timeout_ms": 60_000,
    "member_id": "m-1",
    "protocol_type": "consumer",
    "protocols": [{"name": "range", "metadata": SUBSCRIPTION}, {"name": "mine", "metadata": b"\xff\xff"}],
}


def request(api: str, version: int, value: dict[str, object]) -> bytes:
    return WireConnection("me").send(api, version, value)[1]


def find(root: ExplainedPart, name: str) -> ExplainedPart:
    return next(part for _, part in root.walk() if part.name == name)


@pytest.mark.parametrize("version", range(10))
def test_every_byte_of_a_request_belongs_to_a_field(version: int) -> None:
    frame = request("JoinGroup", version, JOIN)
    root = explain_request(frame)
    assert root.name == f"JoinGroup request v{version}"
    assert root.faults() == []
    assert find(root, "session_timeout_ms").value == 45_000
    assert [part.start for part in root.parts[1:]] == [part.end for part in root.parts[:-1]]
    assert root.parts[-1].end == len(frame)


def test_the_embedded_protocol_is_opened_and_other_peoples_bytes_are_left() -> None:
    frame = request("JoinGroup", 9, JOIN)
    root = explain_request(frame)
    inner = find(root, "Subscription")
    assert find(inner, "generation_id").value == 4
    owned = find(inner, "partitions")
    assert [part.value for part in owned.parts] == [1, 2]
    at = owned.parts[0].start
    assert frame[at : at + 4] == b"\0\0\0\1", "offsets inside embedded bytes are offsets into the frame"
    metadata = [part for _, part in root.walk() if part.name == "metadata"]
    assert metadata[1].note == "no Subscription of the consumer protocol"
    assert metadata[1].value == b"\xff\xff"


def test_a_cut_frame_is_explained_up_to_the_cut() -> None:
    frame = request("JoinGroup", 9, JOIN)
    root = explain_request(frame[:50])
    assert find(root, "group_id").value == "billing"
    first, last = root.faults()
    assert first.name == "size"
    assert last.end <= 50


def test_a_response_is_explained_by_its_request() -> None:
    from kohort.protocol.catalogue import API

    assignment = build_assignment(Assignment(assigned_partitions=(TopicPartitions(topic="flights", partitions=(0,)),)))
    body = API["SyncGroup"].response.build({"error_code": 27, "assignment": assignment}, 5)
    header = (7).to_bytes(4, "big") + b"\0"
    frame = (len(header) + len(body)).to_bytes(4, "big") + header + body
    root = explain_response(frame, "SyncGroup", 5)
    assert root.faults() == []
    assert find(root, "error_code").note == "REBALANCE_IN_PROGRESS"
    assert find(find(root, "Assignment"), "topic").value == "flights"


@pytest.mark.parametrize("codec", list(Codec))
def test_record_batches_are_opened_down_to_their_records(codec: Codec) -> None:
    batch = encode([(b"key", b"value", 5, [("carrier", b"UA")]), (None, None, 6, [])], codec=codec, base_offset=40)
    frame = request("Produce", 9, _produce(bytes(batch)))
    root = explain_request(frame)
    assert root.faults() == []
    assert find(root, "count").value == 2
    second = [part for _, part in root.walk() if part.kind == "record"][1]
    assert second.note == "offset 41"
    assert find(root, "value").value == b"value"
    assert codec.name.lower() in find(root, "batch 0, magic 2").note


def test_a_flipped_bit_in_a_batch_is_pointed_at() -> None:
    batch = bytearray(encode([(b"key", b"value", 5, [])], codec=Codec.NONE))
    batch[-1] ^= 1
    root = explain_request(request("Produce", 9, _produce(bytes(batch))))
    assert root.faults()[0].name == "crc"


@pytest.mark.parametrize("payload", [b"\xff" * 10, XERIAL_MAGIC + bytes(8) + b"\0\0\1\0", b""])
@pytest.mark.parametrize("codec", [one for one in Codec if one])
def test_records_that_cannot_be_decompressed_are_pointed_at(codec: Codec, payload: bytes) -> None:
    batch = build_batch(payload, attributes=int(codec), count=1)
    (fault,) = explain_request(request("Produce", 9, _produce(batch))).faults()
    assert fault.name == "records"


def test_half_a_batch_at_the_end_is_no_fault() -> None:
    batch = bytes(encode([(b"key", b"value" * 20, 5, [])], codec=Codec.NONE))
    root = explain_request(request("Produce", 9, _produce(batch + batch[:70])))
    assert root.faults() == []
    assert next(part for _, part in root.walk() if part.name == "batch 1").note == f"cut: 70 of {len(batch)} bytes"


def test_unknown_apis_and_versions_are_named() -> None:
    assert "999" in str(explain_request(b"\0\0\0\x08\x03\xe7\0\0\0\0\0\1").faults()[0].fault)
    assert "JoinGroup has versions 0-9, not 77" in str(
        explain_request(b"\0\0\0\x08\0\x0b\0\x4d\0\0\0\1").faults()[0].fault
    )


def test_a_conversation_pairs_answers_with_requests_however_the_bytes_are_cut() -> None:
    wire, seen = WireConnection("me"), Conversation()
    requests = b"".join(
        wire.send(api, 3, {"group_id": "g", "generation_id": 1, "member_id": "m"})[1] for api in ["Heartbeat"] * 2
    )
    said = [each for at in range(len(requests)) for each in seen.request_bytes(requests[at : at + 1])]
    assert [each.part.name for each in said] == ["Heartbeat request v3"] * 2
    frame = b"\0\0\0\x0a" + b"\0\0\0\0" + b"\0\0\0\0" + b"\0\x1b"
    assert seen.response_bytes(frame[:5]) == []
    (response,) = seen.response_bytes(frame[5:])
    assert find(response.part, "error_code").note == "REBALANCE_IN_PROGRESS"
    assert seen.unanswered() == ["Heartbeat v3, correlation id 1"]
    (stranger,) = seen.response_bytes(frame)
    assert "matches no captured request" in str(stranger.part.fault)


def test_a_stream_that_is_no_kafka_is_one_fault_and_then_nothing() -> None:
    seen = Conversation()
    (said,) = seen.response_bytes(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    assert said.part.fault
    assert seen.response_bytes(b"more") == []


def _produce(records: bytes) -> dict[str, object]:
    return {
        "acks": -1,
        "timeout_ms": 1000,
        "topic_data": [{"name": "flights", "partition_data": [{"index": 0, "records": records}]}],
    }


def test_the_bytes_before_a_batch_or_a_member_are_not_copied_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten thousand small batches in a frame of megabytes would take minutes."""
    copied: list[int] = []

    class Counted(FieldSource):
        def __init__(self, data: bytes | bytearray | memoryview) -> None:
            copied.append(len(data))
            super().__init__(data)

    monkeypatch.setattr(explain, "FieldSource", Counted)
    frame = request("Produce", 9, _produce(encode([(b"k", b"v")]) * 100))
    root = explain_request(frame)
    assert root.faults() == []
    assert sum(copied) < 2 * len(frame)
    value = [part for _, part in root.walk() if part.name == "value"][-1]
    assert frame[value.start : value.end] == b"\2v"
    assert value.start > len(frame) - 20
    protocols = [{"name": f"p{number}", "metadata": SUBSCRIPTION} for number in range(100)]
    copied.clear()
    frame = request("JoinGroup", 9, JOIN | {"protocols": protocols})
    assert explain_request(frame).faults() == []
    assert sum(copied) < 2 * len(frame)


def _times(number: int, records: bytes) -> dict[str, object]:
    part = [{"index": index, "records": records} for index in range(number)]
    return _produce(b"") | {"topic_data": [{"name": "flights", "partition_data": part}]}


@pytest.mark.parametrize("size", [0, 1_000])
def test_small_batches_of_very_many_bytes_or_records_take_limited_memory(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[object] = []

    def decompress(source: memoryview, target: bytearray) -> int:
        read.append(None)
        return CODECS[Codec.GZIP].decompress_into(source, target)

    monkeypatch.setattr(explain, "CODECS", {Codec.GZIP: CODECS[Codec.GZIP]._replace(decompress_into=decompress)})
    monkeypatch.setattr(explain, "MAX_DECOMPRESSED_MEMORY", 1 << 20)
    batch = bytes(encode([(b"k", bytes(size), 5, [("h", b"")] * 10)] * 50, codec=Codec.GZIP))
    plain = bytes(encode([(b"k", b"the last")]))
    root = explain_request(request("Produce", 9, _times(200, batch + plain)))
    assert root.faults() == []
    assert sum(1 for _depth, part in root.walk() if part.name == "value") < (1 << 20) // 256 + 200
    assert len(read) < 200
    batches = [part for _, part in root.walk() if part.kind == "batch"]
    assert "take too much memory" not in batches[0].note
    assert "take too much memory" in batches[-2].note
    assert find(batches[-1], "value").value == b"the last"
