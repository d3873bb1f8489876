"""Messages out of bytes: a blob is read as a list of choices, and one that is used up chooses the simplest.

Hypothesis draws blobs quickly and shrinks them well (shorter, then smaller), so a failing message ends up nearly empty.
`KafkaOracle.java` makes Kafka's own messages out of blobs in the same way.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from kohort.protocol.primitives import WireType
from kohort.protocol.schema import Field, Struct

_BITS = {"int8": 8, "int16": 16, "uint16": 16, "int32": 32, "uint32": 32, "int64": 64}
_LETTERS = "aZ0-_. é→\U0001d54a\x00\x7f"  # one, two, three and four bytes in UTF-8


class Choices:
    """A blob, read from the front."""

    def __init__(self, blob: bytes) -> None:
        self._blob = blob
        self._at = 0

    def byte(self) -> int:
        self._at += 1
        return self._blob[self._at - 1] if self._at <= len(self._blob) else 0

    def bytes(self, size: int) -> bytes:
        return bytes(self.byte() for _ in range(size))


def sample(struct: type[Struct], version: int, choices: Choices) -> Any:
    """A value of the struct; fields that the version lacks hold what a parse gives them."""
    return struct._make(
        _field(each, version, choices) if version in each.versions else each.zero for each in struct._table
    )


def _field(each: Field, version: int, choices: Choices) -> Any:
    first = choices.byte()
    if version in each.nullable and 0 < first < 50:
        return None
    if version in each.tagged and first < 100:
        return each.zero
    if not each.array:
        return _one(each, version, choices)
    return tuple(_one(each, version, choices) for _ in range(max(0, first - 100) % 4))


def _one(each: Field, version: int, choices: Choices) -> Any:
    if not isinstance(each.of, WireType):
        return sample(each.of, version, choices)
    kind = each.of.name
    if kind in _BITS:
        return _integer(_BITS[kind], not kind.startswith("u"), choices)
    match kind:
        case "bool":
            return choices.byte() > 127
        case "uuid":
            return UUID(bytes=choices.bytes(16)) if choices.byte() > 63 else UUID(int=choices.byte())
        case "string":
            return "".join(_LETTERS[choices.byte() % len(_LETTERS)] for _ in range(_size(choices)))
        case "bytes" | "records":
            return choices.bytes(_size(choices))
    raise AssertionError(kind)


def _integer(bits: int, signed: bool, choices: Choices) -> int:
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    how = choices.byte()
    if how < 100:
        return how % 8
    if how < 150:
        return (low, high, max(low, -1), high // 2)[how % 4]
    return low + int.from_bytes(choices.bytes(bits // 8), "big")


def _size(choices: Choices) -> int:
    # Lengths about 127 and 128 take one and two bytes as a varint.
    first = choices.byte()
    return first % 6 if first < 250 else 122 + first % 8
