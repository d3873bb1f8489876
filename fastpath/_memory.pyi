from typing_extensions import Buffer

class Block:
    """Pooled memory with the buffer protocol, writable. It returns to the pool when its last reader releases it."""

    size: int
    def __init__(self, size: int) -> None: ...
    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

class Source:
    """A held buffer. It has no Python interface."""

    def __init__(self, buffer: Buffer) -> None: ...
