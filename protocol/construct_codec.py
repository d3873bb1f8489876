"""Builds an interpreted construct for each version of a declaration.

It is the readable reference of the compiled codec, and runs if the extension is not built. `kohort wire explain` walks
the same trees.
"""

from __future__ import annotations

import functools
import io
from collections.abc import Mapping
from typing import Any

import construct

from kohort.common.errors import WireError
from kohort.common.named_tuple import NamedTuple
from kohort.protocol.construct_types import Array, FieldSource, Malformed, Nullable, Tagged, Tags, subcon_of
from kohort.protocol.schema import MISSING, UNBOUNDED, Buffer, MessageBuilder, Struct, Top, members

TAGS = "_tags"  # the construct name of a flexible struct's tagged fields


class Typed(construct.Adapter):  # type: ignore[misc]
    """A construct.Struct with values of the class `type`. Its `subcon.subcons` are the fields of `version`, in order.
    In flexible versions the last subcon is named `_tags` and has the tagged fields.
    """

    kind = "struct"

    def __init__(self, type_: type[Struct], version: int, flexible: bool) -> None:
        self.type = type_
        self.version = version
        self.flexible = flexible
        plain, tagged = members(type_, CONSTRUCTS, version, flexible)
        subcons = [each.name / subcon for _, each, subcon in plain]
        if flexible:
            subcons.append(
                TAGS / Tags(tuple(Tagged(each.tag_number, each.name, of, each.zero) for _, each, of in tagged))
            )
        super().__init__(construct.Struct(*subcons))

    def _decode(self, obj: Any, context: object, path: str) -> Struct:
        tagged = obj.get(TAGS, {})
        return self.type._make(
            obj[name] if name in obj else tagged.get(name, zero)
            for name, zero in zip(self.type._fields, self.type._zeros, strict=True)
        )

    def _encode(self, obj: Any, context: object, path: str) -> dict[str, Any]:
        if isinstance(obj, self.type):
            given: Mapping[str, Any] = obj._asdict()
        elif isinstance(obj, Mapping):
            given = dict(zip(self.type._fields, self.type._defaults, strict=True)) | dict(obj)
        else:
            raise Malformed(f"{self.type.__name__} or a mapping is required, not {type(obj).__name__}", path)
        if len(given) > len(self.type._fields):
            extra = next(name for name in given if name not in self.type._fields)
            raise Malformed(f"{self.type.__name__} has no field of this name", f"{path} -> {extra}")
        values: dict[str, Any] = {}
        for each in self.type._table:
            value = given[each.name]
            if self.version in each.versions:
                if value is MISSING:
                    raise Malformed("no value and no default", f"{path} -> {each.name}")
                values[each.name] = value
            elif not each.ignorable and value is not MISSING and value != each.zero:
                raise Malformed(
                    f"only versions {each.versions} have the field: the value cannot be omitted",
                    f"{path} -> {each.name}",
                )
        return {**values, TAGS: values}


@functools.cache
def struct_of(type_: type[Struct], version: int, flexible: bool) -> Typed:
    """Return the construct of one struct in one version, built at first use. The cache has one entry for each declared
    version."""
    return Typed(type_, version, flexible)


class _Constructs:
    """Builds constructs."""

    def plain(self, name: str, *, flexible: bool, nullable: bool) -> construct.Construct:
        return subcon_of(name, flexible=flexible, nullable=nullable)

    def array(self, element: construct.Construct, *, flexible: bool, nullable: bool) -> construct.Construct:
        return Array(element, "uvarint" if flexible else "int32", nullable=nullable)

    def nullable(self, struct: construct.Construct) -> construct.Construct:
        return Nullable(struct)

    def struct(self, type_: type[Struct], version: int, flexible: bool) -> construct.Construct:
        return struct_of(type_, version, flexible)


CONSTRUCTS: MessageBuilder[construct.Construct] = _Constructs()


class ConstructCodec(NamedTuple):
    """The reference codec: interpreted construct."""

    name: str
    version: int
    subcon: Typed

    def read(self, data: Buffer, at: int, budget: int = UNBOUNDED) -> tuple[Any, int]:
        """Return the value that starts at `at`, and its end. Raises WireError. `budget` is ignored."""
        stream = FieldSource(data)
        stream.seek(at)
        try:
            return self.subcon.parse_stream(stream), stream.tell()
        except Malformed as error:
            raise self._error(error) from None

    def write(self, value: object) -> bytes:
        """Return the bytes of a typed value or a mapping. Raises WireError."""
        stream = io.BytesIO()
        try:
            self.subcon.build_stream(value, stream)
        except Malformed as error:
            raise self._error(error) from None
        return stream.getvalue()

    def write_frame(self, header: bytes, value: object) -> bytes:
        """Return a frame of the header and a value. Raises WireError."""
        body = self.write(value)
        return b"".join(((len(header) + len(body)).to_bytes(4, "big"), header, body))

    def _error(self, error: Malformed) -> WireError:
        return WireError(
            error.reason, api=self.name, version=self.version, path=field_path(error.path), offset=error.offset
        )


def field_path(path: str) -> str | None:
    """Convert construct's "(parsing) -> topics -> [3] -> name" to "topics[3].name"; None for the message itself."""
    return ".".join(path.split(" -> ")[1:]).replace(".[", "[") or None


def interpreted(type_: type[Top], version: int) -> ConstructCodec:
    """Return the interpreted codec of a message in a version that it has."""
    return ConstructCodec(type_.__name__, version, struct_of(type_, version, version in type_._flexible))
