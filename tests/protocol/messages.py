"""Hypothesis strategies of any declared message, made from its declaration."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from kohort.protocol.message import Field, Message, Struct
from kohort.protocol.primitives import WireType

_INTEGERS = {
    "int8": (-(1 << 7), (1 << 7) - 1),
    "int16": (-(1 << 15), (1 << 15) - 1),
    "uint16": (0, (1 << 16) - 1),
    "int32": (-(1 << 31), (1 << 31) - 1),
    "uint32": (0, (1 << 32) - 1),
    "int64": (-(1 << 63), (1 << 63) - 1),
}
_SCALARS: dict[str, st.SearchStrategy[Any]] = {
    **{kind: st.integers(low, high) for kind, (low, high) in _INTEGERS.items()},
    "bool": st.booleans(),
    "float64": st.floats(allow_nan=False),
    "uuid": st.uuids(),
    "string": st.text(max_size=8),
    "bytes": st.binary(max_size=12),
    "records": st.binary(max_size=12),
}


def values(message: Message[Any], version: int) -> st.SearchStrategy[Any]:
    """Any value that the message can hold in that version."""
    return structs(message.struct, version)


def structs(kind: type[Struct], version: int) -> st.SearchStrategy[Any]:
    """Any value of a struct; fields that the version lacks hold what a parse gives them."""
    columns = [_field(each, version) if version in each.versions else st.just(each.zero) for each in kind._table]
    return st.tuples(*columns).map(kind._make)


def _field(each: Field, version: int) -> st.SearchStrategy[Any]:
    one = _SCALARS[each.of.name] if isinstance(each.of, WireType) else structs(each.of, version)
    many = st.lists(one, max_size=3).map(tuple) if each.array else one
    return st.none() | many if version in each.nullable else many
