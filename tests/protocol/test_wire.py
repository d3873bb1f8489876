"""One connection's conversation: what is sent, what may come back, and what ends it."""

from __future__ import annotations

from typing import Any

import pytest

from kohort.common.errors import WireError
from kohort.protocol.apis.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from kohort.protocol.apis.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from kohort.protocol.apis.heartbeat import HeartbeatRequest, HeartbeatResponse
from kohort.protocol.apis.produce import ProduceRequest
from kohort.protocol.catalogue import API, APIS, choose_version
from kohort.protocol.codec import Message
from kohort.protocol.errors import UnsupportedVersion
from kohort.protocol.framing import RequestHeader, ResponseHeader, Unframer, frame, response_header_version
from kohort.protocol.wire import ReceivedResponse, WireConnection

HEARTBEAT = HeartbeatRequest(group_id="billing", generation_id=7, member_id="m-1")


def respond(correlation_id: int, name: str, version: int, value: Any) -> bytes:
    """A response as a broker frames it."""
    response = API[name].response
    header = Message.of(ResponseHeader).build(
        ResponseHeader(correlation_id=correlation_id), response_header_version(response, version)
    )
    return frame(header, response.build(value, version))


def test_a_request_is_framed_with_the_header_that_its_version_wants() -> None:
    wire = WireConnection("me")
    for version, header_version in ((3, 1), (4, 2)):
        correlation_id, data = wire.send("Heartbeat", version, HEARTBEAT)
        (body,) = Unframer().push(data)
        header, at = Message.of(RequestHeader).parse_from(body, 0, header_version)
        assert header == RequestHeader(
            request_api_key=12, request_api_version=version, correlation_id=correlation_id, client_id="me"
        )
        assert API["Heartbeat"].request.parse(body[at:], version) == HEARTBEAT
    assert len(wire.open) == 2


def test_answers_find_their_requests_in_order_however_they_are_cut() -> None:
    wire = WireConnection("me")
    first, _ = wire.send("Heartbeat", 4, HEARTBEAT)
    second, _ = wire.send("Heartbeat", 0, HEARTBEAT)
    stream = respond(first, "Heartbeat", 4, HeartbeatResponse(error_code=27)) + respond(
        second, "Heartbeat", 0, HeartbeatResponse()
    )
    got = [each for byte in stream for each in wire.receive(bytes([byte]))]
    assert got == [
        ReceivedResponse(first, 12, 4, HeartbeatResponse(error_code=27)),
        ReceivedResponse(second, 12, 0, HeartbeatResponse()),
    ]
    assert len(wire.open) == 0


@pytest.mark.proves("B-03")
@pytest.mark.parametrize("wrong", [-1, 1, 2, 99])
def test_a_wrong_correlation_id_ends_the_conversation_without_a_result(wrong: int) -> None:
    wire = WireConnection("me")
    right = [wire.send("Heartbeat", 4, HEARTBEAT)[0] for _ in range(3)]
    assert right == [0, 1, 2]
    with pytest.raises(WireError, match="correlation id"):
        wire.receive(respond(wrong, "Heartbeat", 4, HeartbeatResponse()))
    with pytest.raises(WireError, match="correlation id"):
        wire.receive(respond(0, "Heartbeat", 4, HeartbeatResponse()))
    with pytest.raises(WireError, match="correlation id"):
        wire.send("Heartbeat", 4, HEARTBEAT)


@pytest.mark.proves("B-03")
def test_a_response_that_comes_twice_is_refused() -> None:
    wire = WireConnection("me")
    wire.send("Heartbeat", 4, HEARTBEAT)
    data = respond(0, "Heartbeat", 4, HeartbeatResponse())
    assert len(wire.receive(data)) == 1
    with pytest.raises(WireError, match="without an open request"):
        wire.receive(data)


@pytest.mark.proves("B-02")
@pytest.mark.parametrize("header_only", [b"\0\0\0\0", b"\0\0\0\0\0"])
def test_a_frame_without_its_body_gives_no_partial_result(header_only: bytes) -> None:
    wire = WireConnection("me")
    wire.send("Heartbeat", 4, HEARTBEAT)
    with pytest.raises(WireError, match="cut short"):
        wire.receive(frame(header_only))
    assert len(wire.open) == 1


@pytest.mark.proves("B-02")
def test_trailing_bytes_are_an_error_with_their_offset() -> None:
    wire = WireConnection("me")
    wire.send("Heartbeat", 0, HEARTBEAT)
    body = respond(0, "Heartbeat", 0, HeartbeatResponse())[4:]
    with pytest.raises(WireError, match="2 unread bytes") as raised:
        wire.receive(frame(body, b"xx"))
    assert raised.value.place == {"api": "HeartbeatResponse", "version": 0, "offset": len(body)}


def test_a_whole_frame_is_returned_without_a_copy() -> None:
    wire = WireConnection("me")
    wire.send("Fetch", 4, {"max_wait_ms": 1, "min_bytes": 1, "topics": ()})
    value = FetchResponse(
        responses=(FetchableTopicResponse(topic="t", partitions=(PartitionData(records=b"batches"),)),)
    )
    body = bytearray(respond(0, "Fetch", 4, value)[4:])
    got = wire.receive_frame(memoryview(body))
    records = got.value.responses[0].partitions[0].records
    assert bytes(records) == b"batches"
    body[body.index(b"batches")] = ord("B")
    assert bytes(records) == b"Batches"


def test_an_old_broker_responds_to_api_versions_in_version_0() -> None:
    wire = WireConnection("me")
    request = ApiVersionsRequest(client_software_name="kohort", client_software_version="1")
    correlation_id, _ = wire.send("ApiVersions", 4, request)
    value = ApiVersionsResponse(error_code=35, api_keys=(ApiVersion(api_key=18, min_version=0, max_version=2),))
    assert wire.receive(respond(correlation_id, "ApiVersions", 0, value)) == [
        ReceivedResponse(correlation_id, 18, 0, value)
    ]


def test_produce_without_acks_does_not_wait() -> None:
    wire = WireConnection("me")
    silent = ProduceRequest(acks=0, timeout_ms=1, topic_data=())
    wire.send("Produce", 3, silent)
    wire.send("Produce", 3, {"acks": 0, "timeout_ms": 1, "topic_data": ()})
    assert len(wire.open) == 0
    received, _ = wire.send("Produce", 3, silent._replace(acks=1))
    assert len(wire.open) == 1
    assert [each.correlation_id for each in wire.receive(respond(received, "Produce", 3, {"responses": ()}))] == [
        received
    ]


def test_a_request_that_cannot_be_built_opens_nothing() -> None:
    wire = WireConnection("me")
    with pytest.raises(WireError, match="no value"):
        wire.send("Heartbeat", 4, {"group_id": "g"})
    with pytest.raises(UnsupportedVersion):
        wire.send("Heartbeat", 5, HEARTBEAT)
    assert len(wire.open) == 0
    assert wire.send("Heartbeat", 4, HEARTBEAT)[0] == 0


def test_correlation_ids_wrap_below_the_sign() -> None:
    wire = WireConnection("me")
    wire.next_id = 2**31 - 1
    assert [wire.send("Heartbeat", 4, HEARTBEAT)[0] for _ in range(2)] == [2**31 - 1, 0]


class TestChooseVersion:
    def test_the_highest_that_both_speak(self) -> None:
        assert choose_version("Fetch", {1: (4, 18)}) == 18
        assert choose_version(1, {1: (0, 11)}) == 11
        assert choose_version("Fetch", {1: (0, 99)}) == API["Fetch"].versions[1]

    def test_no_higher_than_requested(self) -> None:
        assert choose_version("Fetch", {1: (4, 18)}, at_most=12) == 12

    @pytest.mark.parametrize(
        ("ranges", "at_most", "theirs"),
        [({}, None, "none"), ({12: (5, 9)}, None, "5-9"), ({12: (3, 4)}, 2, "3-4")],
    )
    def test_nothing_in_common_names_the_api_and_both_ranges(
        self, ranges: dict[int, tuple[int, int]], at_most: int | None, theirs: str
    ) -> None:
        with pytest.raises(UnsupportedVersion) as raised:
            choose_version("Heartbeat", ranges, at_most)
        ours = f"0-{4 if at_most is None else at_most}"
        assert raised.value.place == {"api": "Heartbeat", "ours": ours, "broker": theirs}

    def test_every_api_can_be_chosen(self) -> None:
        for api in APIS:
            assert choose_version(api.key, {api.key: api.versions}) == api.versions[1]
