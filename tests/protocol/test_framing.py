"""Streams into frames: however they are cut, and with any claimed length."""

from __future__ import annotations

import itertools
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.common.errors import WireError
from kohort.protocol.catalogue import API, APIS
from kohort.protocol.codec import Message
from kohort.protocol.framing import Unframer, frame, request_header_version, response_header_version

frames = st.lists(st.binary(min_size=4, max_size=40), max_size=6)


@pytest.mark.proves("B-01")
@given(frames, st.lists(st.integers(0, 200), max_size=12))
def test_frames_come_out_whole_however_the_stream_is_cut(bodies: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(map(frame, bodies))
    edges = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    unframer, out = Unframer(), []
    for start, end in itertools.pairwise(edges):
        buffer = bytearray(stream[start:end])
        out += unframer.push(buffer)
        buffer[:] = bytes(len(buffer))  # a frame must not depend on memory that the caller writes over
    assert out == bodies
    assert unframer.offset == len(stream)


@pytest.mark.proves("B-01")
@pytest.mark.parametrize("size", [-1, -(2**31), 0, 3, 1025, 2**31 - 1])
def test_a_bad_length_is_refused_with_its_fourth_byte(size: int) -> None:
    unframer = Unframer(max_frame_bytes=1024)
    unframer.push(frame(b"good one"))
    claimed = size.to_bytes(4, "big", signed=True)
    assert unframer.push(claimed[:3]) == []
    tracemalloc.start()
    try:
        with pytest.raises(WireError) as raised:
            unframer.push(claimed[3:])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert raised.value.place["offset"] == 12
    assert str(size) in str(raised.value)
    assert peak < 64 * 1024


@pytest.mark.proves("B-01")
def test_a_claimed_length_takes_no_memory_before_its_bytes_come() -> None:
    unframer = Unframer(max_frame_bytes=2**30)
    tracemalloc.start()
    try:
        assert unframer.push((2**30).to_bytes(4, "big") + b"only these") == []
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 64 * 1024


@pytest.mark.parametrize(
    ("response", "kind"), [(b"\x15\x03\x03\x00\x02\x02\x0a", "TLS"), (b"HTTP/1.1 400", "Kafka listener")]
)
def test_another_protocol_on_the_port_is_recognised(response: bytes, kind: str) -> None:
    with pytest.raises(WireError) as raised:
        Unframer().push(response)
    assert kind in str(raised.value)


def test_the_largest_frame_allowed_is_allowed() -> None:
    (whole,) = Unframer(max_frame_bytes=64).push(frame(bytes(64)))
    assert len(whole) == 64


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
def test_header_versions(api: object) -> None:
    assert isinstance(api, type(API["Fetch"]))
    for version in range(api.versions[0], api.versions[1] + 1):
        since = api.request.flexible_since
        flexible = since is not None and version >= since
        assert request_header_version(api.request, version) == (2 if flexible else 1)
        assert response_header_version(api.response, version) == (1 if flexible and api.name != "ApiVersions" else 0)


def test_a_message_has_one_codec_object() -> None:
    request = API["Fetch"].request
    assert Message.of(request.struct) is request
