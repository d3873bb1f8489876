"""Kafka's types as construct subcons: the readable reference of the compiled codec.

Each subcon is an instance with all its properties as attributes, so code that walks a construct tree needs no source.
`subcon_of` returns the subcon of a type of `kohort.protocol.primitives`.

Reads are bounded: a length or a count is compared with the remaining bytes before anything is allocated for it.
Invalid bytes or values are raised as `Malformed`. `kohort.protocol.construct_codec` turns it into a WireError.
"""

import io
import struct
from collections.abc import Mapping
from typing import Any, Literal
from uuid import UUID

import construct

from kohort.common.named_tuple import NamedTuple

MAX_STRING_BYTES = 0x7FFF  # also for compact strings, although their varint allows more: brokers reject longer strings

Length = Literal["int16", "int32", "uvarint"]


class Malformed(construct.ConstructError):  # type: ignore[misc]
    """Bytes or a value that do not match the declaration. `path` is construct's, `offset` counts from the start."""

    def __init__(self, reason: str, path: str, offset: int | None = None) -> None:
        super().__init__(reason, path=path)
        self.reason = reason
        self.offset = offset


class FieldSource(io.BytesIO):
    """The stream that messages are parsed from. It keeps the caller's buffer, so that a slice of it is no copy."""

    def __init__(self, data: bytes | bytearray | memoryview) -> None:
        super().__init__(data)
        self.view = memoryview(data).cast("B")


def remaining(stream: io.BytesIO) -> int:
    """Return the number of unread bytes."""
    with stream.getbuffer() as buffer:
        return buffer.nbytes - stream.tell()


def take(stream: io.BytesIO, size: int, path: str) -> bytes:
    """Return exactly `size` bytes. On Malformed the stream remains at the start of the field."""
    left = remaining(stream)
    if size > left:
        raise Malformed(f"cut short: {size} bytes required, {left} left", path, stream.tell())
    return stream.read(size)


class Subcon(construct.Construct):  # type: ignore[misc]
    """The base of every subcon here: an instance with attributes, no lambdas."""

    def _sizeof(self, context: object, path: str) -> int:
        raise construct.SizeofError("a Kafka field has no size of its own", path=path)


class Fixed(Subcon):
    """A number of fixed size, big endian. `kind` is Kafka's name of the type, `format` the struct module's."""

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
            raise Malformed(f"a bool is required, not {obj!r}", path)
        try:
            stream.write(self.format.pack(obj))
        except struct.error:
            raise Malformed(f"{_shown(obj)} is not a valid {self.kind}", path) from None
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
            raise Malformed(f"a uuid.UUID is required, not {_shown(obj)}", path)
        stream.write(obj.bytes)
        return obj

    def _sizeof(self, context: object, path: str) -> int:
        return 16


class Varint(Subcon):
    """A base-128 varint of `bits` (32 or 64), low groups first; zigzag-encoded if `signed`.

    It has at most ceil(bits / 7) bytes, and the value must fit in `bits`. Overlong zero padding is accepted, as in
    Kafka.
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
            raise Malformed(f"{_shown(obj)} is not a valid {self.kind}", path)
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
    """A type that begins with its length. `length` is the type of the length, and `nullable` allows null."""

    def __init__(self, length: Length, *, nullable: bool) -> None:
        super().__init__()
        self.length: Length = length
        self.nullable = nullable

    def read_length(self, stream: io.BytesIO, path: str, unit: str = "bytes") -> int | None:
        """Return the length, or None for null. It is at most the number of remaining bytes, since a unit takes one at
        least."""
        start = stream.tell()
        if self.length == "uvarint":
            size = UVARINT._parse(stream, None, path) - 1
        else:
            size = int(_CLASSIC_LENGTHS[self.length]._parse(stream, None, path))
        if size == -1:
            if self.nullable:
                return None
            raise Malformed("null, but the version does not allow null", path, start)
        if size < 0:
            raise Malformed(f"a negative length: {size}", path, start)
        if size > (left := remaining(stream)):
            raise Malformed(f"a length of {size} {unit} where {left} bytes are left", path, start)
        return size

    def write_length(self, size: int | None, stream: io.BytesIO, path: str) -> None:
        """Write null for None. Raises Malformed if the version does not allow null."""
        if size is None:
            if not self.nullable:
                raise Malformed("null, but the version does not allow null", path)
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
            raise Malformed(f"a string of {size} bytes, more than the maximum of {MAX_STRING_BYTES}", path, start)
        try:
            return take(stream, size, path).decode()
        except UnicodeDecodeError as error:
            raise Malformed(f"not valid UTF-8: {error.reason}", path, start) from None

    def _build(self, obj: Any, stream: io.BytesIO, context: object, path: str) -> Any:
        if obj is None:
            self.write_length(None, stream, path)
            return obj
        if not isinstance(obj, str):
            raise Malformed(f"a str is required, not {_shown(obj)}", path)
        try:
            data = obj.encode()
        except UnicodeEncodeError as error:
            raise Malformed(f"not valid UTF-8: {error.reason}", path) from None
        if len(data) > MAX_STRING_BYTES:
            raise Malformed(f"a string of {len(data)} bytes, more than the maximum of {MAX_STRING_BYTES}", path)
        self.write_length(len(data), stream, path)
        stream.write(data)
        return obj


class Blob(Sized):
    """Bytes. If `span` is set (a `records` field), the value is a memoryview of the frame instead of a copy."""

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
        if self.span and hasattr(obj, "__bytes__"):
            obj = bytes(obj)  # of `fastpath._memory.Pieces`, which need no extension here
        if not isinstance(obj, bytes | bytearray | memoryview):
            raise Malformed(f"bytes are required, not {_shown(obj)}", path)
        self.write_length(obj.nbytes if isinstance(obj, memoryview) else len(obj), stream, path)
        stream.write(obj)
        return obj


class Array(Sized):
    """A count and that many values of `subcon`, as a tuple."""

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
            raise Malformed(f"a tuple or a list is required, not {_shown(obj)}", path)
        self.write_length(len(obj), stream, path)
        for index, item in enumerate(obj):
            self.subcon._build(item, stream, context, f"{path} -> [{index}]")
        return obj


class Nullable(Subcon):
    """A struct that may be null. Before it is one signed byte: negative for null, 1 for present."""

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
    """A tagged field of a struct in one version, written only if the value differs from `default`."""

    tag: int
    name: str
    subcon: construct.Construct
    default: object


class Tags(Subcon):
    """The tagged fields at the end of a flexible struct (KIP-482). A count precedes the tag, size and value of each
    field.

    Parses to {field name: value}. Unknown tags are skipped. A repeated tag, or a value that does not fill its size, is
    Malformed.
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
                raise Malformed(f"tag {tag} is repeated", path, start)
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
                raise Malformed(f"tag {tag}: its value does not fill its size of {size} bytes", path, start)
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


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}..."


def subcon_of(name: str, *, flexible: bool, nullable: bool) -> Subcon:
    """Return the construct of a type by Kafka's name, in its classic or flexible form."""
    match name:
        case "string":
            return Text("uvarint" if flexible else "int16", nullable=nullable)
        case "bytes" | "records":
            return Blob("uvarint" if flexible else "int32", nullable=nullable, span=name == "records")
        case "uuid":
            return Uuid()
        case _:
            return Fixed(name)
