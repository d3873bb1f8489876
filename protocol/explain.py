"""Explains a frame field by field, and shows the fault of a malformed frame.

The walk uses the same construct trees that parse and build messages, so it shows exactly the declarations. Nested
formats are expanded too: headers, tagged fields, the consumer protocol inside JoinGroup and SyncGroup, sticky user
data, and record batches with their records.

Malformed bytes raise no exception: the fault is the last part of the tree (`ExplainedPart.fault`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NoReturn

import construct
import crc32c

from kohort.common.errors import WireError
from kohort.fastpath.compression import CODECS, Broken, Codec, DoesNotFit
from kohort.protocol import membership, record_format
from kohort.protocol.catalogue import API
from kohort.protocol.codec import Message
from kohort.protocol.construct_codec import TAGS, Typed
from kohort.protocol.construct_types import (
    INT16,
    INT32,
    UVARINT,
    Array,
    FieldSource,
    Malformed,
    Nullable,
    Subcon,
    Tags,
    take,
)
from kohort.protocol.errors import ERRORS
from kohort.protocol.framing import (
    RequestHeader,
    ResponseHeader,
    request_header_version,
    response_header_version,
)

MAX_BATCH_BYTES = 8 << 20  # limit of decompressed bytes in one batch
MAX_DECOMPRESSED_MEMORY = 256 << 20  # limit of a frame: decompressed bytes, and the parts that are made of them
PART_BYTES = 256  # the memory of a part, about
SIZE_BYTES = 4


@dataclass(slots=True)
class ExplainedPart:
    """One node of the tree: bytes [`start`, `end`) of the frame, counted with the frame's length field.

    Leaves have a `value`, and `note` explains it. `fault` is the reason why reading stopped here. Offsets of parts
    inside compressed records count from the start of the decompressed bytes. `note` of the parent states this.
    """

    name: str
    kind: str
    start: int
    end: int = -1
    value: Any = None
    note: str = ""
    fault: str | None = None
    parts: list[ExplainedPart] = field(default_factory=list)

    def walk(self, depth: int = 0) -> Iterator[tuple[int, ExplainedPart]]:
        """Yield every part with its depth, in byte order."""
        yield depth, self
        for part in self.parts:
            yield from part.walk(depth + 1)

    def faults(self) -> list[ExplainedPart]:
        """Return the parts with a fault."""
        return [part for _, part in self.walk() if part.fault]

    def as_dict(self) -> dict[str, Any]:
        """Return a dict for JSON: bytes are hex, UUIDs are strings."""
        shown = {"name": self.name, "kind": self.kind, "start": self.start, "end": self.end}
        if not self.parts:
            shown["value"] = _plain(self.value)
        shown |= {key: text for key, text in (("note", self.note), ("fault", self.fault)) if text}
        return shown | ({"parts": [part.as_dict() for part in self.parts]} if self.parts else {})


class Stopped(Exception):
    """The walk met a fault and added it to the tree."""


class Full(Exception):
    """The decompressed records of a frame take more memory than the limit."""


class Room:
    """The memory that decompressed records of a frame may still take, in bytes."""

    def __init__(self) -> None:
        self.left = MAX_DECOMPRESSED_MEMORY

    def take(self, size: int) -> None:
        """Take `size` bytes. Raises Full if there are fewer."""
        self.left -= size
        if self.left < 0:
            raise Full


class DecompressedSource(FieldSource):
    """The decompressed records of a batch. Each part of them takes from the room of the frame."""

    def __init__(self, data: bytes, room: Room) -> None:
        super().__init__(data)
        self.room = room


def explain_request(frame: bytes) -> ExplainedPart:
    """Explain a request, with its length field in front. The header gives the API and the version of the body."""

    def walk(root: ExplainedPart, stream: FieldSource) -> None:
        head = bytes(frame[SIZE_BYTES : SIZE_BYTES + 4])
        key, version = (int.from_bytes(head[at : at + 2], "big", signed=True) for at in (0, 2))
        api = API.get(key)
        if api is None:
            _fault(root, "request", f"API key {key} is unknown to kohort", SIZE_BYTES)
        root.name = f"{api.name} request v{version}"
        low, high = api.versions
        if not low <= version <= high:
            _fault(root, "header", f"{api.name} has versions {low}-{high}, not {version}", SIZE_BYTES + 2)
        header = Message.of(RequestHeader).reference(request_header_version(api.request, version))
        _member(root, "header", header.subcon, stream)
        _member(root, "body", api.request.reference(version).subcon, stream)

    return _explained(frame, walk)


def explain_response(frame: bytes, api_key: int | str, version: int) -> ExplainedPart:
    """Explain a response, with its length field in front. The caller gives the API and version."""
    api = API[api_key]

    def walk(root: ExplainedPart, stream: FieldSource) -> None:
        root.name, spoken = f"{api.name} response v{version}", version
        header = Message.of(ResponseHeader).reference(response_header_version(api.response, version))
        _member(root, "header", header.subcon, stream)
        if api.name == "ApiVersions" and bytes(frame[stream.tell() : stream.tell() + 2]) == b"\0\x23":
            spoken = 0
            root.note = "a broker that does not support the version responds in version 0 (KIP-511)"
        _member(root, "body", api.response.reference(spoken).subcon, stream)

    return _explained(frame, walk)


def _explained(frame: bytes, walk: Callable[[ExplainedPart, FieldSource], None]) -> ExplainedPart:
    root = ExplainedPart("frame", "frame", 0, len(frame))
    stream = FieldSource(frame)
    size = int.from_bytes(frame[:SIZE_BYTES], "big", signed=True)
    root.parts.append(ExplainedPart("size", "int32", 0, min(SIZE_BYTES, len(frame)), size))
    if len(frame) < SIZE_BYTES or size != len(frame) - SIZE_BYTES:
        root.parts[-1].fault = f"{len(frame) - SIZE_BYTES} bytes follow the length"
    stream.seek(SIZE_BYTES)
    try:
        walk(root, stream)
        if (left := root.end - stream.tell()) > 0:
            _fault(root, "rest", f"{left} unread bytes at the end", stream.tell())
    except Stopped:
        pass
    room = Room()
    for part in [part for _, part in root.walk() if part.kind == "records" and part.value]:
        _open_records(part, part.value, room)
    return root


def _fault(parent: ExplainedPart, name: str, reason: str, at: int) -> NoReturn:
    parent.parts.append(ExplainedPart(name, "fault", at, at, fault=reason))
    raise Stopped


# ---- the walk: one rule for each kind of subcon --------------------------------------------------------------------


def _member(parent: ExplainedPart, name: str, subcon: construct.Construct, stream: FieldSource) -> Any:
    """Add the part that `subcon` reads as the next child of the parent, and return its value."""
    if isinstance(stream, DecompressedSource):
        stream.room.take(PART_BYTES)
    part = ExplainedPart(name, getattr(subcon, "kind", "bytes"), stream.tell())
    parent.parts.append(part)
    rule: Callable[[ExplainedPart, Any, FieldSource], Any] = _RULES.get(type(subcon), _leaf)
    try:
        part.value = rule(part, subcon, stream)
    except Malformed as error:
        part.fault, part.end = error.reason, stream.tell()
        raise Stopped from None
    part.end = stream.tell()
    return part.value


def _leaf(part: ExplainedPart, subcon: Subcon, stream: FieldSource) -> Any:
    value = subcon._parse(stream, None, part.name)
    if part.name.endswith("error_code") and value in ERRORS:
        part.note = ERRORS[value].name
    return value


def _struct(part: ExplainedPart, subcon: Typed, stream: FieldSource) -> dict[str, Any]:
    part.kind = subcon.type.__name__
    values: dict[str, Any] = {}
    for member in subcon.subcon.subcons:
        values[member.name] = _member(part, member.name, member.subcon, stream)
        opener = OPENERS.get((part.kind, member.name))
        if opener and values[member.name]:
            opener(part.parts[-1], values[member.name], values)
    return values


def _plain_struct(part: ExplainedPart, subcon: construct.Struct, stream: FieldSource) -> dict[str, Any]:
    part.kind = "struct" if part.kind == "bytes" else part.kind
    return {member.name: _member(part, member.name, member.subcon, stream) for member in subcon.subcons}


def _array(part: ExplainedPart, subcon: Array, stream: FieldSource) -> list[Any] | None:
    count = subcon.read_length(stream, part.name, "elements")
    if count is None:
        return None
    part.note = f"{count} element{'' if count == 1 else 's'}"
    return [_member(part, f"[{index}]", subcon.subcon, stream) for index in range(count)]


def _counted(part: ExplainedPart, subcon: record_format.Counted, stream: FieldSource) -> list[Any]:
    count = record_format.VARINT._parse(stream, None, part.name)
    part.kind, part.note = "array", f"{count} element{'' if count == 1 else 's'}"
    return [_member(part, f"[{index}]", subcon.one, stream) for index in range(count)]


def _nullable(part: ExplainedPart, subcon: Nullable, stream: FieldSource) -> Any:
    if take(stream, 1, part.name)[0] >= 0x80:
        return None
    return _RULES[type(subcon.subcon)](part, subcon.subcon, stream)


def _tags(part: ExplainedPart, subcon: Tags, stream: FieldSource) -> dict[str, Any]:
    part.name = "tagged fields"
    count = UVARINT._parse(stream, None, TAGS)
    part.note = f"{count} elements"
    values: dict[str, Any] = {}
    for _ in range(count):
        start = stream.tell()
        tag, size = UVARINT._parse(stream, None, TAGS), UVARINT._parse(stream, None, TAGS)
        end = stream.tell() + size
        known = subcon.by_tag.get(tag)
        if known is None:
            unknown = ExplainedPart(f"tag {tag}", "bytes", start, note="unknown to kohort")
            part.parts.append(unknown)
            unknown.value = take(stream, size, TAGS)
            unknown.end = end
            continue
        values[known.name] = _member(part, known.name, known.subcon, stream)
        part.parts[-1].note = f"tag {tag}"
        if stream.tell() != end:
            raise Malformed(f"tag {tag}: its value does not fill its size of {size} bytes", TAGS)
    return values


_RULES: dict[type[construct.Construct], Callable[[ExplainedPart, Any, FieldSource], Any]] = {
    Typed: _struct,
    construct.Struct: _plain_struct,
    Array: _array,
    Nullable: _nullable,
    Tags: _tags,
    record_format.Counted: _counted,
}


# ---- nested formats ------------------------------------------------------------------------------------------------


def _open_embedded(message: Message[Any], part: ExplainedPart, data: bytes) -> dict[str, Any] | None:
    """Expand the consumer protocol: an int16 version, then a message. None if the bytes have another format."""
    inner = ExplainedPart(message.name, message.name, 0, len(data))
    stream = FieldSource(data)
    try:
        version = _member(inner, "version", INT16, stream)
        known = min(version, membership.HIGHEST_VERSION)
        value: dict[str, Any] = _member(inner, "body", message.reference(max(known, 0)).subcon, stream)
    except Stopped:
        part.note = f"no {message.name} of the consumer protocol"
        return None
    _move([inner], part.end - len(data))
    part.parts.append(inner)
    return value


def _open_subscription(part: ExplainedPart, data: bytes, beside: dict[str, Any]) -> None:
    value = _open_embedded(Message.of(membership.Subscription), part, data)
    assignor = str(beside.get("name"))
    if value and value["user_data"] and assignor in USER_DATA:
        try:
            part.note = f"user data: {USER_DATA[assignor](value['user_data'])}"
        except WireError as error:
            part.note = f"user data that is not the {assignor} assignor's: {error}"


def _open_assignment(part: ExplainedPart, data: bytes, beside: dict[str, Any]) -> None:
    _open_embedded(Message.of(membership.Assignment), part, data)


def _open_records(part: ExplainedPart, data: memoryview, room: Room) -> None:
    """Expand each batch. A broker ends a response with part of a batch if the next batch does not fit."""
    start, at = part.end - len(data), 0
    while len(data) - at >= record_format.LOG_OVERHEAD_BYTES:
        size = record_format.LOG_OVERHEAD_BYTES + int.from_bytes(data[at + 8 : at + 12], "big", signed=True)
        batch = ExplainedPart(f"batch {len(part.parts)}", "batch", start + at)
        part.parts.append(batch)
        whole = size > record_format.MAGIC_AT and at + size <= len(data)
        batch.end = start + (at + size if whole else len(data))
        if size <= record_format.MAGIC_AT:
            batch.fault = f"a length of {size - record_format.LOG_OVERHEAD_BYTES}"
            return
        if not whole:
            batch.note = f"cut: {len(data) - at} of {size} bytes"
            return
        try:
            _open_batch(batch, bytes(data[at : at + size]), room)
        except Stopped:
            return
        finally:
            _move(batch.parts, batch.start)
        at += size


def _move(parts: list[ExplainedPart], by: int) -> None:
    """Count the offsets of parts from the start of the frame. `_open_batch` does it for records."""
    for part in parts:
        part.start += by
        part.end += by if part.end >= 0 else 0
        if part.kind != "records":
            _move(part.parts, by)


def _open_batch(batch: ExplainedPart, data: bytes, room: Room) -> None:
    magic = data[record_format.MAGIC_AT]
    stream = FieldSource(data)
    batch.name += f", magic {magic}"
    if magic in record_format.MESSAGES:
        _member(batch, "offset", record_format.INT64, stream)
        _member(batch, "size", INT32, stream)
        _plain_struct(batch, record_format.MESSAGES[magic], stream)
        return
    if magic != 2:
        _fault(batch, "magic", f"magic {magic} is newer than any known", record_format.MAGIC_AT)
    header = _plain_struct(batch, record_format.BATCH_HEADER, stream)
    codec = header["attributes"] & record_format.CODEC_MASK
    flags = [name for bit, name in _FLAGS if header["attributes"] & bit]
    batch.note = ", ".join([f"{header['count']} records", _codec_name(codec), *flags])
    if header["crc"] != crc32c.crc32c(data[record_format.CRC_COVERS_FROM :]):
        next(part for part in batch.parts if part.name == "crc").fault = "does not match the bytes behind it"
    records = ExplainedPart("records", "records", stream.tell(), len(data))
    batch.parts.append(records)
    try:
        if codec:
            plain = _decompressed(codec, memoryview(data)[stream.tell() :], records, room)
            stream = DecompressedSource(plain, room)
            records.note = (
                f"offsets below count from the start of the {len(plain)} bytes that {_codec_name(codec)} gives"
            )
        _open_each_record(records, header, stream)
    except Full:
        batch.note += ", not all shown: the decompressed records of the frame take too much memory"
    finally:
        if not codec:
            _move(records.parts, batch.start)


def _open_each_record(records: ExplainedPart, header: dict[str, Any], stream: FieldSource) -> None:
    for index in range(header["count"]):
        record = ExplainedPart(f"[{index}]", "record", stream.tell(), note=f"offset {header['base_offset'] + index}")
        records.parts.append(record)
        try:
            _member(record, "length", record_format.VARINT, stream)
            values = _plain_struct(record, record_format.RECORD, stream)
        except Stopped:
            record.fault = record.fault or "see below"
            raise
        record.note = f"offset {header['base_offset'] + values['offset_delta']}"
        record.end = stream.tell()


def _decompressed(codec: int, source: memoryview, part: ExplainedPart, room: Room) -> bytes:
    room.take(0)
    if codec not in CODECS:
        part.fault = f"compression codec {codec} is unknown"
        raise Stopped
    try:
        size = min(max(CODECS[codec].size_bound(source, MAX_BATCH_BYTES), 64), MAX_BATCH_BYTES)
        while True:
            target = bytearray(size)
            try:
                size = CODECS[codec].decompress_into(source, target)
            except DoesNotFit:
                room.take(size)
                if size >= MAX_BATCH_BYTES:
                    part.fault = f"decompresses to more than the {MAX_BATCH_BYTES} bytes that are looked at"
                    raise Stopped from None
                size = min(size * 2, MAX_BATCH_BYTES)
            else:
                room.take(size)
                return bytes(target[:size])
    except Broken as error:
        part.fault = str(error)
        raise Stopped from None


def _codec_name(codec: int) -> str:
    return Codec(codec).name.lower() if codec in set(Codec) else f"codec {codec}"


_FLAGS = (
    (record_format.APPEND_TIME_BIT, "append time"),
    (record_format.TRANSACTIONAL_BIT, "transactional"),
    (record_format.CONTROL_BIT, "control"),
)

USER_DATA: dict[str, Callable[[bytes], object]] = {
    "sticky": membership.parse_sticky,
    "cooperative-sticky": membership.parse_cooperative_sticky,
}

# (struct, field) -> function that expands the field's bytes, called with the part, its bytes and the sibling fields
OPENERS: dict[tuple[str, str], Callable[[ExplainedPart, Any, dict[str, Any]], None]] = {
    ("JoinGroupRequestProtocol", "metadata"): _open_subscription,
    ("JoinGroupResponseMember", "metadata"): _open_subscription,
    ("SyncGroupRequestAssignment", "assignment"): _open_assignment,
    ("SyncGroupResponse", "assignment"): _open_assignment,
    ("DescribedGroupMember", "member_metadata"): _open_subscription,
    ("DescribedGroupMember", "member_assignment"): _open_assignment,
}


def _plain(value: Any) -> Any:
    if isinstance(value, bytes | memoryview | bytearray):
        return bytes(value).hex()
    return value if isinstance(value, int | float | str | None) else str(value)
