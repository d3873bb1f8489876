"""Frames out of a byte stream, however it is cut."""

import random

import pytest

from kohort.network import frame_reader
from kohort.network.errors import FrameTooLarge
from kohort.network.frame_reader import SCRATCH_BYTES, FrameReader


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


def feed(reader: FrameReader, stream: bytes, chunks: random.Random) -> list[memoryview]:
    frames: list[memoryview] = []
    at = 0
    while at < len(stream):
        target = reader.target()
        assert len(target) > 0
        count = min(chunks.choice([1, 3, 1000, 50_000, 10**6]), len(target), len(stream) - at)
        target[:count] = stream[at : at + count]
        frames += reader.received(count)
        at += count
    return frames


@pytest.mark.parametrize("seed", range(20))
def test_frames_come_out_as_they_went_in(seed: int) -> None:
    chances = random.Random(seed)
    sizes = [
        chances.choice([0, 1, 5, 4000, SCRATCH_BYTES - 4, SCRATCH_BYTES - 3, SCRATCH_BYTES, 300_000]) for _ in range(12)
    ]
    bodies = [chances.randbytes(size) for size in sizes]
    frames = feed(FrameReader(1 << 20), b"".join(map(framed, bodies)), chances)
    # Held until here: later frames must not have been written over earlier ones.
    assert [bytes(frame) for frame in frames] == [framed(body) for body in bodies]


@pytest.mark.proves("B-01")
@pytest.mark.parametrize("length", [-1, -(2**31), 2**20 + 1, 2**31 - 1])
def test_an_impossible_length_is_refused_before_anything_is_allocated(length: int) -> None:
    reader = FrameReader(1 << 20)
    reader.target()[:4] = length.to_bytes(4, "big", signed=True)
    with pytest.raises(FrameTooLarge) as caught:
        list(reader.received(4))
    assert reader.large is None
    assert caught.value.place["max_frame_bytes"] == 1 << 20


@pytest.mark.proves("B-01")
def test_a_frame_for_which_there_is_no_memory_is_an_error_of_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(size: int) -> None:
        raise MemoryError(f"cannot allocate a block of {size} bytes")

    monkeypatch.setattr(frame_reader, "Block", none_left)
    reader = FrameReader(1 << 20)
    reader.target()[:4] = (1 << 20).to_bytes(4, "big")
    with pytest.raises(FrameTooLarge, match="there is no memory for a frame of 1048580 bytes"):
        list(reader.received(4))
    assert reader.large is None
