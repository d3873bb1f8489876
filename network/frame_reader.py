"""Buffers for a socket's bytes: one scratch buffer for small frames, one block for each large frame.

A large frame is received once and never copied. Its slices are decoded in place, and columns point into it. Its memory
comes from fastpath's pool and returns there with its last view, so it cannot change under a reader. In the steady state
nothing is allocated and no page is touched first.
"""

from collections.abc import Iterator

from kohort.fastpath._memory import Block
from kohort.network.errors import FrameTooLarge

SCRATCH_BYTES = 8 * 1024
LENGTH_BYTES = 4


class FrameReader:
    """Frames of one connection. Loop: recv into `target()`, then take what `received(n)` yields.

    A yielded frame starts with its length field. It is valid as long as a reference to it exists.
    """

    def __init__(self, max_frame_bytes: int) -> None:
        self.max_frame_bytes = max_frame_bytes
        self.limit = max_frame_bytes  # of the next frame; the channel lowers it until the login is complete
        self._scratch = bytearray(SCRATCH_BYTES)
        self._fill = 0
        self._large: memoryview | None = None

    def target(self) -> memoryview:
        """The buffer for the next bytes; never empty."""
        if self._large is not None:
            return self._large[self._fill :]
        return memoryview(self._scratch)[self._fill :]

    def received(self, count: int) -> Iterator[memoryview]:
        """`count` bytes were written to `target()`. Raises FrameTooLarge for a length that no frame may have."""
        self._fill += count
        if self._large is not None:
            if self._fill == len(self._large):
                frame, self._large, self._fill = self._large, None, 0
                yield frame
            return
        at = 0
        while self._fill - at >= LENGTH_BYTES:
            size = LENGTH_BYTES + self._length(at)
            if self._fill - at >= size:
                yield memoryview(bytes(memoryview(self._scratch)[at : at + size]))
                at += size
            elif size > SCRATCH_BYTES:
                have = self._fill - at
                self._large = memoryview(Block(size))
                self._large[:have] = memoryview(self._scratch)[at : self._fill]
                self._fill = have
                return
            else:
                break
        if at:
            have = self._fill - at
            self._scratch[:have] = self._scratch[at : self._fill]
            self._fill = have

    def first_bytes(self) -> bytes:
        """The first bytes of the unfinished frame, from which the peer's protocol is guessed."""
        return bytes(self._scratch[: min(self._fill, 8)])

    def _length(self, at: int) -> int:
        length = int.from_bytes(self._scratch[at : at + LENGTH_BYTES], "big", signed=True)
        if 0 <= length <= self.limit:
            return length
        raise FrameTooLarge(
            f"a frame of {length} bytes was announced",
            hint=(
                "raise max_frame_bytes if such responses are expected"
                if length > self.limit == self.max_frame_bytes
                else "is this a Kafka broker?"
            ),
            max_frame_bytes=self.limit,
        )
