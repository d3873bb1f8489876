"""Compiles a declaration to a tree of nodes of `kohort.fastpath._codec`.

The declarations are the single source. This module has one rule for each kind of part. It walks a declaration once for
each message and version, at the first use. Interpreted construct (`construct_codec.py`) takes about 45 microseconds for
each partition of a Metadata response, and the nodes take a quarter of one. Both read and write the same bytes, and
reject the same bytes at the same field. tests/protocol/test_compiled_codec.py checks this for every API and version.
"""

from __future__ import annotations

import functools
from typing import Any

from kohort.common.errors import WireError
from kohort.common.named_tuple import NamedTuple
from kohort.fastpath import _codec
from kohort.protocol.schema import MISSING, UNBOUNDED, Buffer, MessageBuilder, Struct, Top, members

FIXED: dict[str, _codec.Node] = {
    "bool": _codec.Bool(),
    "int8": _codec.Int8(),
    "int16": _codec.Int16(),
    "uint16": _codec.UInt16(),
    "int32": _codec.Int32(),
    "uint32": _codec.UInt32(),
    "int64": _codec.Int64(),
    "float64": _codec.Float64(),
    "uuid": _codec.Uuid(),
}
SIZED: dict[str, type[_codec.Sized]] = {"string": _codec.Text, "bytes": _codec.Blob, "records": _codec.Span}


class LoweredCodec(NamedTuple):
    """One message in one version, run by the extension. Its errors are equal to those of
    `construct_codec.ConstructCodec`."""

    name: str
    version: int
    node: _codec.Node

    def read(self, data: Buffer, at: int, budget: int = UNBOUNDED) -> tuple[Any, int]:
        """Return the value that starts at `at`, and its end. Raises WireError, also above `budget` bytes of memory."""
        try:
            return _codec.read(self.node, data, at, budget)
        except _codec.Malformed as error:
            raise self._error(error) from None

    def write(self, value: object) -> bytes:
        """Return the bytes of a typed value or a mapping. Raises WireError."""
        try:
            return _codec.write(self.node, value)
        except _codec.Malformed as error:
            raise self._error(error) from None

    def write_frame(self, header: bytes, value: object) -> bytes:
        """Return a frame of the header and a value. Raises WireError."""
        try:
            return _codec.write_frame(self.node, header, value)
        except _codec.Malformed as error:
            raise self._error(error) from None

    def _error(self, error: _codec.Malformed) -> WireError:
        path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in reversed(error.steps))
        hint = "raise max_frame_bytes if the cluster has so many topics" if "more memory" in error.reason else None
        return WireError(
            error.reason,
            hint=hint,
            api=self.name,
            version=self.version,
            path=path.lstrip(".") or None,
            offset=error.offset,
        )


def lower(type_: type[Top], version: int) -> LoweredCodec:
    """Return the compiled codec of a message in a version that it has."""
    return LoweredCodec(type_.__name__, version, NODES.struct(type_, version, version in type_._flexible))


class _Nodes:
    """Builds the compiled nodes."""

    def plain(self, name: str, *, flexible: bool, nullable: bool) -> _codec.Node:
        if name in FIXED:
            return FIXED[name]
        return SIZED[name](compact=flexible, nullable=nullable)

    def array(self, element: _codec.Node, *, flexible: bool, nullable: bool) -> _codec.Node:
        if element is FIXED["int32"]:
            return _codec.Int32Array(compact=flexible, nullable=nullable)
        return _codec.Array(element, compact=flexible, nullable=nullable)

    def nullable(self, struct: _codec.Node) -> _codec.Node:
        return _codec.Nullable(struct)

    def struct(self, type_: type[Struct], version: int, flexible: bool) -> _codec.Node:
        return _struct(type_, version, flexible)


NODES: MessageBuilder[_codec.Node] = _Nodes()


@functools.cache
def _struct(type_: type[Struct], version: int, flexible: bool) -> _codec.Node:
    plain, tagged = members(type_, NODES, version, flexible)
    return _codec.Struct(
        type_,
        names=type_._fields,
        fields=tuple((slot, each.name, node) for slot, each, node in plain),
        tags=tuple((each.tag_number, slot, each.name, node) for slot, each, node in tagged) if flexible else None,
        blank=type_._zeros,
        refused=frozenset(each.name for each in type_._table if not each.ignorable),
        missing=MISSING,
    )
