"""Kafka's types as construct subcons: the readable truth that the lowered codec is held against.

The subcons are few, and each is an instance whose attributes say all there is to know: whoever walks a construct tree
reads them and needs no source. `subcon_of` hands out the one of a type of `kohort.protocol.primitives`.

Reads are bounded: a length or a count is held against the bytes that remain before anything is allocated for it.
What bytes or values get wrong is raised as `Malformed`, which `kohort.protocol.construct_codec` turns into a WireError.
"""

import io
import struct
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple
from uuid import UUID

import construct

MAX_STRING_BYTES = 0x7FFF  # also for compact strings, whose varint could hold more: brokers refuse longer ones

Length = Literal["int16", "int32", "uvarint"]


class Malformed(construct.ConstructError):  # type: ignore[misc]
    """Bytes or a value that do not fit a declaration. `path` is construct's own, `offset` counts from the start."""

    def __init__(self, reason: str, path: str, offset: int | None = None) -> None:
        super().__init__(reason, path=path)
        self.reason = reason
        self.offset = offset


class FieldSource(io.BytesIO):
    """The stream that messages are parsed from; it keeps the caller's buffer, so that a span of it is no copy."""

    def __init__(self, data: bytes | bytearray | memoryview) -> None:
        super().__init__(data)
        self.view = memoryview(data).cast("B")


def remaining(stream: io.BytesIO) -> int:
    """The number of bytes that are left to read."""
    with stream.getbuffer() as buffer:
        return buffer.nbytes - stream.tell()


def take(stream: io.BytesIO, size: int, path: str) -> bytes:
    """Exactly `size` bytes, or Malformed with the stream still where the field starts."""
    left = remaining(stream)
    if size > left:
        raise Malformed(f"cut short: {size} bytes needed, {left} left", path, stream.tell())
    return stream.read(size)


class Subcon(construct.Construct):  # type: ignore[misc]
    """The base of every subcon here: an instance with attributes, no lambdas."""

    def _sizeof(self, context: object, path: str) -> int:
        raise construct.SizeofError("a Kafka field has no size of its own", path=path)


class Fixed(Subcon):
    """A number of fixed size, big endian. `kind` is Kafka's name of it, `format` the struct module's."""

    FORMATS: Mapping[str, str] = {
        "bool": ">?",
        "int8": ">b",
        "int16": ">h",
        "uint16": ">H",
        "int32": ">i",
        "uint32": ">I",
        "int64": ">q",
        "float64": ">d",
    }

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.format = struct.Struct(self.FORMATS[kind])
        self.size = self.format.size

    def _parse(self, stream: io.BytesIO, context: object, path: str) -> int | float | bool:
        value: int | float | bool = self.format.unpack(take(stream, self.size, path))[0]
        return value

    def _build(self, obj: Any, stream: io.BytesIO, context: object, path: str) -> Any:
        if self.kind == "bool" and not isinstance(obj, bool):
            raise Malformed(f"a bool is needed, not {obj!r}", path)
        try:
            stream.write(self.format.pack(obj))
        except struct.error:
            raise Malformed(f"{_shown(obj)} is no {self.kind}", path) from None
        return obj

    def _sizeof(self, context: object, path: str) -> int:
        return self.size


class Uuid(Subcon):
    """16 bytes as a uuid.UUID."""

    kind = "uuid"

    def _parse(self, stream: io.BytesIO, context: object, path: str) -> UUID:
        return UUID(bytes=take(stream, 16, path))

    def _build(self, obj: Any, stream: io.BytesIO, context: object, path: str) -> Any:
        if not isinstance(obj, UUID):
            raise Malformed(f"a uuid.UUID is needed, not {_shown(obj)}", path)
        stream.write(obj.bytes)
        return obj

    def _sizeof(self, context: object, path: str) -> int:
        return 16


class Varint(Subcon):
    """A base-128 varint of `bits` (32 or 64), low groups first; zigzag coded where `signed`.

    At most ceil(bits / 7) bytes, and the value must fit `bits`. Overlong zero padding is read, as Kafka itself does.
    """

    def __init__(self, bits: Literal[32, 64], *, signed: bool) -> None:
        super().__init__()
        self.bits = bits
        self.signed = signed
        self.kind = {32: "varint", 64: "varlong"}[bits] if signed else "uvarint"

    def _parse(self, stream: io.BytesIO, context: object, path: str) -> int:
        start = stream.tell()
        value = shift = 0
        while True:
            byte = take(stream, 1, path)[0]
            value |= (byte & 0x7F) << shift
            shift += 7
            if not byte & 0x80:
                break
            if shift >= self.bits:
                raise Malformed(f"a varint longer than {self.bits} bits", path, start)
        if value >> self.bits:
            raise Malformed(f"a varint longer than {self.bits} bits", path, start)
        return (value >> 1) ^ -(value & 1) if self.signed else value

    def _build(self, obj: Any, stream: io.BytesIO, context: object, path: str) -> Any:
        low, high = (-(1 << self.bits - 1), 1 << self.bits - 1) if self.signed else (0, 1 << self.bits)
        if not isinstance(obj, int) or not low <= obj < high:
            raise Malformed(f"{_shown(obj)} is no {self.kind}", path)
        left = ((obj << 1) ^ (obj >> self.bits - 1)) if self.signed else obj
        while left > 0x7F:
            stream.write(bytes((left & 0x7F | 0x80,)))
            left >>= 7
        stream.write(bytes((left,)))
        return obj


INT8, INT16, INT32 = Fixed("int8"), Fixed("int16"), Fixed("int32")
UVARINT = Varint(32, signed=False)
_CLASSIC_LENGTHS = {"int16": INT16, "int32": INT32}


class Sized(Subcon):
    """What starts with a length: how the length is written (`length`) and whether null may stand there (`nullable`)."""

    def __init__(self, length: Length, *, nullable: bool) -> None:
        super().__init__()
        self.length: Length = length
        self.nullable = nullable

    def read_length(self, stream: io.BytesIO, path: str, unit: str = "bytes") -> int | None:
        """The length, held against what remains; None for null. Every unit takes at least one byte."""
        start = stream.tell()
        if self.length == "uvarint":
            size = UVARINT._parse(stream, None, path) - 1
        else:
            size = int(_CLASSIC_LENGTHS[self.length]._parse(stream, None, path))
        if size == -1:
            if self.nullable:
                return None
            raise Malformed("null where the version allows none", path, start)
        if size < 0:
            raise Malformed(f"a negative length: {size}", path, start)
        if size > (left := remaining(stream)):
            raise Malformed(f"a length of {size} {unit} where {left} bytes are left", path, start)
        return size

    def write_length(self, size: int | None, stream: io.BytesIO, path: str) -> None:
        """Null is written for None, and refused where the version allows none."""
        if size is None:
            if not self.nullable:
                raise Malformed("null where the version allows none", path)
            size = -1
        if self.length == "uvarint":
            UVARINT._build(size + 1, stream, None, path)
        else:
            _CLASSIC_LENGTHS[self.length]._build(size, stream, None, path)


class Text(Sized):
    """A string: UTF-8, at most 32,767 bytes."""

    kind = "string"

    def _parse(self, stream: io.BytesIO, context: object, path: str) -> str | None:
        start = stream.tell()
        size = self.read_length(stream, path)
        if size is None:
            return None
        if size > MAX_STRING_BYTES:
            raise Malformed(f"a string of {size} bytes; {MAX_STRING_BYTES} is the most", path, start)
        try:
            return take(stream, size, path).decode()
        except UnicodeDecodeError as error:
            raise Malformed(f"no UTF-8: {error.reason}", path, start) from None

    def _build(self, obj: Any, stream: io.BytesIO, context: object, path: str) -> Any:
        if obj is None:
            self.write_length(None, stream, path)
            return obj
        if not isinstance(obj, str):
            raise Malformed(f"a str is needed, not {_shown(obj)}", path)
        try:
            data = obj.encode()
        except UnicodeEncodeError as error:
            raise Malformed(f"no UTF-8: {error.reason}", path) from None
        if len(data) > MAX_STRING_BYTES:
            raise Malformed(f"a string of {len(data)} bytes; {MAX_STRING_BYTES} is the most", path)
        self.write_length(len(data), stream, path)
        stream.write(data)
        return obj


class Blob(Sized):
    """Bytes. Where `span` is set (a `records` field) a memoryview of the frame is given instead of a copy."""

    def __init__(self, length: Length, *, nullable: bool, span: bool = False) -> None:
        super().__init__(length, nullable=nullable)
        self.span = span
        self.kind = "records" if span else "bytes"

    def _parse(self, stream: io.BytesIO, context: object, path: str) -> bytes | memoryview | None:
        size = self.read_length(stream, path)
        if size is None:
            return None
        start = stream.tell()
        data = take(stream, size, path)
        if not self.span:
            return data
        return stream.view[start : start + size] if isinstance(stream, FieldSource) else memoryview(data)

    def _build(self, obj: Any, stream: io.BytesIO, context: object, path: str) -> Any:
        if obj is None:
            self.write_length(None, stream, path)
            return obj
        if not isinstance(obj, bytes | bytearray | memoryview):
            raise Malformed(f"bytes are needed, not {_shown(obj)}", path)
        self.write_length(obj.nbytes if isinstance(obj, memoryview) else len(obj), stream, path)
        stream.write(obj)
        return obj


class Array(Sized):
    """A count, then as many of `subcon`; a tuple in Python."""

    kind = "array"

    def __init__(self, subcon: construct.Construct, length: Length, *, nullable: bool) -> None:
        super().__init__(length, nullable=nullable)
        self.subcon = subcon

    def _parse(self, stream: io.BytesIO, context: object, path: str) -> tuple[Any, ...] | None:
        count = self.read_length(stream, path, "elements")
        if count is None:
            return None
        return tuple(self.subcon._parsereport(stream, context, f"{path} -> [{index}]") for index in range(count))

    def _build(self, obj: Any, stream: io.BytesIO, context: object, path: str) -> Any:
        if obj is None:
            self.write_length(None, stream, path)
            return obj
        if not isinstance(obj, tuple | list):
            raise Malformed(f"a tuple or a list is needed, not {_shown(obj)}", path)
        self.write_length(len(obj), stream, path)
        for index, item in enumerate(obj):
            self.subcon._build(item, stream, context, f"{path} -> [{index}]")
        return obj


class Nullable(Subcon):
    """A struct that may be null: one signed byte before it, negative for null and 1 for present."""

    kind = "nullable"

    def __init__(self, subcon: construct.Construct) -> None:
        super().__init__()
        self.subcon = subcon

    def _parse(self, stream: io.BytesIO, context: object, path: str) -> Any:
        return None if INT8._parse(stream, context, path) < 0 else self.subcon._parsereport(stream, context, path)

    def _build(self, obj: Any, stream: io.BytesIO, context: object, path: str) -> Any:
        INT8._build(-1 if obj is None else 1, stream, context, path)
        if obj is not None:
            self.subcon._build(obj, stream, context, path)
        return obj


class Tagged(NamedTuple):
    """One tagged field of a struct in one version: written only where the value differs from `default`."""

    tag: int
    name: str
    subcon: construct.Construct
    default: object


class Tags(Subcon):
    """The tagged fields at the end of a flexible struct (KIP-482): a count, then tag, size, value of each.

    Parses to {field name: value}; tags that no declaration knows are stepped over, a tag that comes twice and a value
    that does not fill its size are refused.
    """

    kind = "tags"

    def __init__(self, fields: tuple[Tagged, ...]) -> None:
        super().__init__()
        self.fields = tuple(sorted(fields, key=lambda field: field.tag))
        self.by_tag = {field.tag: field for field in self.fields}

    def _parse(self, stream: io.BytesIO, context: object, path: str) -> dict[str, object]:
        start = stream.tell()
        count = UVARINT._parse(stream, context, path)
        # A tagged field takes two bytes at least: its tag and its size.
        if count * 2 > (left := remaining(stream)):
            raise Malformed(f"{count} tagged fields where {left} bytes are left", path, start)
        values: dict[str, object] = {}
        seen: set[int] = set()
        for _ in range(count):
            start = stream.tell()
            tag = UVARINT._parse(stream, context, path)
            if tag in seen:
                raise Malformed(f"tag {tag} comes twice", path, start)
            seen.add(tag)
            size = UVARINT._parse(stream, context, path)
            if size > (left := remaining(stream)):
                raise Malformed(f"tag {tag} of {size} bytes where {left} are left", path, start)
            end = stream.tell() + size
            field = self.by_tag.get(tag)
            if field is None:
                stream.seek(end)
                continue
            values[field.name] = field.subcon._parsereport(stream, context, f"{path} -> {field.name}")
            if stream.tell() != end:
                raise Malformed(f"tag {tag} says {size} bytes and holds another number", path, start)
        return values

    def _build(self, obj: Any, stream: io.BytesIO, context: object, path: str) -> Any:
        present = [field for field in self.fields if obj[field.name] != field.default]
        UVARINT._build(len(present), stream, context, path)
        for field in present:
            body = io.BytesIO()
            field.subcon._build(obj[field.name], body, context, f"{path} -> {field.name}")
            UVARINT._build(field.tag, stream, context, path)
            UVARINT._build(body.tell(), stream, context, path)
            stream.write(body.getvalue())
        return obj


def _shown(value: object, limit: int = 60) -> str:
    text = repr(value)
    return text if len(text) <= limit else f"{text[:limit]}..."


def subcon_of(name: str, *, flexible: bool, nullable: bool) -> Subcon:
    """The construct of a type by Kafka's name, in its classic or flexible form."""
    match name:
        case "string":
            return Text("uvarint" if flexible else "int16", nullable=nullable)
        case "bytes" | "records":
            return Blob("uvarint" if flexible else "int32", nullable=nullable, span=name == "records")
        case "uuid":
            return Uuid()
        case _:
            return Fixed(name)
