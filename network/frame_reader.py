"""Buffers for a socket's bytes: one scratch buffer for small frames, one block for each large frame.

A large frame is received once and never copied. Its slices are decoded in place, and columns point into it. Its memory
comes from fastpath's pool and returns there with its last view, so it cannot change under a reader. In the steady state
nothing is allocated and no page is touched first.
"""

from collections.abc import Iterator

from kohort.fastpath._memory import Block
from kohort.network._follow_up import ReaderFields
from kohort.network.errors import FrameTooLarge

SCRATCH_BYTES = 8 * 1024
LENGTH_BYTES = 4


class FrameReader(ReaderFields):
    """Frames of one connection. Loop: recv into `target()`, then take what `received(n)` yields.

    A yielded frame starts with its length field. It is valid as long as a reference to it exists.
    """

    def __init__(self, max_frame_bytes: int) -> None:
        self.max_frame_bytes = max_frame_bytes
        self.limit = max_frame_bytes  # of the next frame; the channel lowers it until the login is complete
        self.scratch = bytearray(SCRATCH_BYTES)
        self.fill = 0
        self.large = None

    def target(self) -> memoryview:
        """The buffer for the next bytes; never empty."""
        if self.large is not None:
            return self.large[self.fill :]
        return memoryview(self.scratch)[self.fill :]

    def received(self, count: int) -> Iterator[memoryview]:
        """`count` bytes were written to `target()`. Raises FrameTooLarge for a length that no frame may have."""
        self.fill += count
        if self.large is not None:
            if self.fill == len(self.large):
                frame, self.large, self.fill = self.large, None, 0
                yield frame
            return
        at = 0
        while self.fill - at >= LENGTH_BYTES:
            size = LENGTH_BYTES + self._length(at)
            if self.fill - at >= size:
                yield memoryview(bytes(memoryview(self.scratch)[at : at + size]))
                at += size
            elif size > SCRATCH_BYTES:
                have = self.fill - at
                self.large = memoryview(self._block(size))
                self.large[:have] = memoryview(self.scratch)[at : self.fill]
                self.fill = have
                return
            else:
                break
        if at:
            have = self.fill - at
            self.scratch[:have] = self.scratch[at : self.fill]
            self.fill = have

    def _block(self, size: int) -> Block:
        try:
            return Block(size)
        except MemoryError:  # else it would end the client, which can go on with less or with memory that is free again
            raise FrameTooLarge(
                f"there is no memory for a frame of {size} bytes",
                hint="give the process more memory, or request less at once (fetch_max_bytes)",
                max_frame_bytes=self.max_frame_bytes,
            ) from None

    def first_bytes(self) -> bytes:
        """The first bytes of the unfinished frame, from which the peer's protocol is guessed."""
        return bytes(self.scratch[: min(self.fill, 8)])

    def _length(self, at: int) -> int:
        length = int.from_bytes(self.scratch[at : at + LENGTH_BYTES], "big", signed=True)
        if 0 <= length <= self.limit:
            return length
        raise FrameTooLarge(
            f"a frame of {length} bytes was announced",
            hint=(
                "raise max_frame_bytes if such responses are expected"
                if length > self.limit == self.max_frame_bytes
                else "check that the port is a Kafka listener"
            ),
            max_frame_bytes=self.limit,
        )
