"""A construct tree -> a tree of the compiled nodes of `kohort.fastpath._codec`.

The declarations stay the single source: what stands here is one rule a kind of subcon, and the tree is walked once for
each message and version, at its first use. Interpreted construct needs some 45 microseconds for each partition of a
Metadata answer; the nodes need a quarter of one. That both read and write the same bytes, and refuse the same bytes at
the same field, is held by tests/protocol/test_lowering.py over every API and version.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import construct

from kohort.fastpath import _codec
from kohort.fastpath.errors import WireError
from kohort.protocol.message import MISSING, Buffer, ConstructCodec, Typed
from kohort.protocol.primitives import Array, Blob, Fixed, Nullable, Sized, Tags, Text, Uuid

FIXED: dict[str, _codec.Node] = {
    "bool": _codec.Bool(),
    "int8": _codec.Int8(),
    "int16": _codec.Int16(),
    "uint16": _codec.UInt16(),
    "int32": _codec.Int32(),
    "uint32": _codec.UInt32(),
    "int64": _codec.Int64(),
    "float64": _codec.Float64(),
}
UUID = _codec.Uuid()


class LoweredCodec(NamedTuple):
    """One message in one version, run by the extension. Its errors are those of `message.ConstructCodec`."""

    name: str
    version: int
    node: _codec.Node

    def read(self, data: Buffer, at: int) -> tuple[Any, int]:
        """The value that starts at `at`, and where it ends. Raises WireError."""
        try:
            return _codec.read(self.node, data, at)
        except _codec.Malformed as error:
            raise self._error(error) from None

    def write(self, value: object) -> bytes:
        """The bytes of a typed value or a mapping. Raises WireError."""
        try:
            return _codec.write(self.node, value)
        except _codec.Malformed as error:
            raise self._error(error) from None

    def _error(self, error: _codec.Malformed) -> WireError:
        path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in reversed(error.steps))
        return WireError(
            error.reason, api=self.name, version=self.version, path=path.lstrip(".") or None, offset=error.offset
        )


def lower(reference: ConstructCodec) -> LoweredCodec:
    """The compiled twin of an interpreted codec."""
    return LoweredCodec(reference.name, reference.version, node_of(reference.subcon))


def node_of(subcon: construct.Construct) -> _codec.Node:
    """The node of any subcon that a declaration can hold."""
    return _RULES[type(subcon)](subcon)


def _struct(typed: Typed) -> _codec.Node:
    table = typed.type._table
    slot_of = {each.name: slot for slot, each in enumerate(table)}
    fields: list[tuple[int, str, _codec.Node]] = []
    tags: tuple[tuple[int, int, str, _codec.Node], ...] | None = None
    for member in typed.subcon.subcons:  # construct.Renamed: a name and what it names
        if isinstance(member.subcon, Tags):
            tags = tuple(
                (each.tag, slot_of[each.name], each.name, node_of(each.subcon)) for each in member.subcon.fields
            )
        else:
            fields.append((slot_of[member.name], member.name, node_of(member.subcon)))
    return _codec.Struct(
        typed.type,
        names=tuple(slot_of),
        fields=tuple(fields),
        tags=tags,
        blank=typed.type._zeros,
        refused=frozenset(each.name for each in table if not each.ignorable),
        missing=MISSING,
    )


def _array(subcon: Array) -> _codec.Node:
    how = _lengths(subcon)
    if isinstance(subcon.subcon, Fixed) and subcon.subcon.kind == "int32":
        return _codec.Int32Array(**how)
    return _codec.Array(node_of(subcon.subcon), **how)


def _lengths(subcon: Sized) -> dict[str, bool]:
    return {"compact": subcon.length == "uvarint", "nullable": subcon.nullable}


_RULES: dict[type[construct.Construct], Callable[[Any], _codec.Node]] = {
    Typed: _struct,
    Fixed: lambda subcon: FIXED[subcon.kind],
    Uuid: lambda _: UUID,
    Text: lambda subcon: _codec.Text(**_lengths(subcon)),
    Blob: lambda subcon: (_codec.Span if subcon.span else _codec.Blob)(**_lengths(subcon)),
    Array: _array,
    Nullable: lambda subcon: _codec.Nullable(node_of(subcon.subcon)),
}
