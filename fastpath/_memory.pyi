from typing_extensions import Buffer

class Block:
    """Pooled memory that speaks the buffer protocol, writable; back in the pool when its last reader lets go."""

    size: int
    def __init__(self, size: int) -> None: ...
    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

class Source:
    """A held buffer; nothing of it is for Python."""

    def __init__(self, buffer: Buffer) -> None: ...
