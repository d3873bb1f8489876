"""False lengths: each is refused at its field and offset, before memory is taken for it. Both codecs, alike."""

from __future__ import annotations

import functools
import random
import tracemalloc
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kohort.common.errors import WireError
from kohort.protocol.apis.fetch import FetchResponse
from kohort.protocol.apis.join_group import JoinGroupResponse
from kohort.protocol.apis.metadata import MetadataRequest
from kohort.protocol.apis.sync_group import SyncGroupResponse
from kohort.protocol.catalogue import APIS
from kohort.protocol.codec import Message
from kohort.protocol.compiled_codec import LoweredCodec
from kohort.protocol.construct_codec import ConstructCodec
from kohort.protocol.construct_types import FieldSource, Fixed, Malformed, Subcon, Text, Uuid, Varint, subcon_of
from kohort.protocol.primitives import WireType
from kohort.protocol.schema import Struct, Top
from tests.protocol.definitions import KAFKA_VERSIONS, valid_versions
from tests.protocol.kafka_jvm import jvm
from tests.protocol.sampling import Choices, sample

MESSAGES = [message for api in APIS for message in (api.request, api.response)]
PAIRS = [(message, version) for message in MESSAGES for version in range(message.versions[0], message.versions[1] + 1)]
EVERY = [pytest.param(message, version, id=f"{message.name}-v{version}") for message, version in PAIRS]
FLEXIBLE = [each for each, pair in zip(EVERY, PAIRS, strict=True) if pair[0].is_flexible(pair[1])]


def codecs(struct: type[Top], version: int) -> Iterator[LoweredCodec | ConstructCodec]:
    message = Message.of(struct)
    yield message.reference(version)
    yield message.codec(version)


@functools.cache
def one(message: Message[Any], version: int, seed: int) -> tuple[Any, bytes]:
    """A random message that stays the same from run to run."""
    blob = random.Random(f"{message.name} {version} {seed}").randbytes(150)
    value = sample(message.struct, version, Choices(blob))
    return value, message.build(value, version)


# ------------------------------------------------------------------------------------------------------------------
# every message
# ------------------------------------------------------------------------------------------------------------------


@pytest.mark.proves("B-02", "B-05")
@pytest.mark.parametrize(("message", "version"), EVERY)
def test_no_part_of_a_message_is_a_message(message: Message[Any], version: int) -> None:
    for seed in range(3):
        _, data = one(message, version, seed)
        for size in range(len(data)):
            with pytest.raises(WireError) as raised:
                message.parse(data[:size], version)
            place = raised.value.place
            assert (place["api"], place["version"]) == (message.name, version)
            assert 0 <= int(str(place["offset"])) <= size


@pytest.mark.proves("B-02")
@pytest.mark.parametrize(("message", "version"), EVERY)
def test_trailing_bytes_are_an_error(message: Message[Any], version: int) -> None:
    value, data = one(message, version, 0)
    with pytest.raises(WireError, match="3 unread bytes") as raised:
        message.parse(data + b"\0\0\0", version)
    assert raised.value.place["offset"] == len(data)
    assert message.parse_from(b"ab" + data + b"\0\0\0", 2, version) == (value, 2 + len(data))


@pytest.mark.proves("B-06")
@pytest.mark.parametrize(("message", "version"), FLEXIBLE)
def test_unknown_tags_are_stepped_over_and_no_tag_comes_twice(message: Message[Any], version: int) -> None:
    value = sample(message.struct, version, Choices(b""))  # the simplest: no tagged fields, so the last byte counts 0
    data = message.build(value, version)
    assert data[-1] == 0
    for codec in codecs(message.struct, version):
        unknown = data[:-1] + bytes.fromhex("026500808080800103616263")
        assert codec.read(unknown, 0) == (value, len(unknown))
        twice = data[:-1] + bytes.fromhex("0265006500")
        with pytest.raises(WireError, match="repeated") as raised:
            codec.read(twice, 0)
        assert raised.value.place["offset"] == len(data) + 2


changes = st.lists(st.tuples(st.integers(0, 999), st.integers(0, 3), st.integers(0, 255)), min_size=1, max_size=3)


@pytest.mark.proves("B-04", "B-05", "B-06")
@settings(max_examples=40, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_what_kafka_cannot_read_we_refuse(data: st.DataObject) -> None:
    """Mutated messages through Kafka's own reader: we may refuse more than it does, and never less."""
    message = data.draw(st.sampled_from(MESSAGES))
    version = data.draw(st.integers(*message.versions))
    mutated = []
    for seed in range(25):
        body = bytearray(one(message, version, seed)[1])
        for where, how, byte in data.draw(changes):
            at = where % (len(body) + 1)
            match how:
                case 0:
                    body[at : at + 1] = bytes([byte])
                case 1:
                    del body[at : at + 1 + byte % 4]
                case 2:
                    body[at:at] = bytes([byte] * (1 + byte % 3))
                case _:
                    body[at : at + 4] = (0x7FFFFFFF, 0xFFFFFFFF, 0x80000000, 0xFFFFFF)[byte % 4].to_bytes(4, "big")
        mutated.append(bytes(body))
    kafka = next(each for each in KAFKA_VERSIONS if version in valid_versions(each, message.name))
    for each, reply in zip(mutated, jvm(kafka).read(message.name, version, mutated), strict=True):
        try:
            value = message.parse(each, version)
        except WireError:
            continue
        assert reply.refused is None, each.hex()
        # What was read can be written, and reads as the same again, though unknown tags and padded varints are gone.
        assert message.parse(message.build(value, version), version) == value


# ------------------------------------------------------------------------------------------------------------------
# one false length each
# ------------------------------------------------------------------------------------------------------------------

LIES: dict[str, tuple[type[Top], int, str, str, int, str]] = {
    # B-04: counts
    "classic count": (MetadataRequest, 0, "7fffffff", "topics", 0, "2147483647 elements where 0"),
    "compact count": (MetadataRequest, 9, "ffffffff0f 00", "topics", 0, "elements where 1"),
    "count of tags": (MetadataRequest, 9, "02 0274 7f 0000", "topics[0]._tags", 3, "127 tagged fields where 2"),
    "size of a tag": (MetadataRequest, 9, "02 0274 01 637f 00", "topics[0]._tags", 4, "tag 99 of 127 bytes where 1"),
    "negative count": (MetadataRequest, 1, "fffffffe", "topics", 0, "negative length: -2"),
    # B-05: strings and bytes
    "compact string": (MetadataRequest, 9, "02 ffffffff07 74", "topics[0].name", 1, "2147483646 bytes where 1"),
    "classic string": (JoinGroupResponse, 0, "0000 00000001 7fff 61", "protocol_name", 6, "32767 bytes where 1"),
    "negative string": (JoinGroupResponse, 0, "0000 00000001 8000", "protocol_name", 6, "negative length: -32768"),
    "null string": (JoinGroupResponse, 0, "0000 00000001 ffff", "protocol_name", 6, "null"),
    "null compact string": (MetadataRequest, 9, "02 00 00", "topics[0].name", 1, "null"),
    "null bytes": (SyncGroupResponse, 0, "0000 ffffffff", "assignment", 2, "null"),
    "negative bytes": (SyncGroupResponse, 0, "0000 80000000", "assignment", 2, "negative length: -2147483648"),
    "bytes": (SyncGroupResponse, 0, "0000 7fffffff 61", "assignment", 2, "2147483647 bytes where 1"),
    "compact bytes": (SyncGroupResponse, 4, "00000000 0000 ffffffff0f", "assignment", 6, "4294967294 bytes where 0"),
    "no UTF-8": (MetadataRequest, 9, "02 02ff 00", "topics[0].name", 1, "UTF-8"),
    "half a character": (MetadataRequest, 0, "00000001 0002 e286", "topics[0].name", 4, "UTF-8"),
    "a lone surrogate": (MetadataRequest, 0, "00000001 0003 eda080", "topics[0].name", 4, "UTF-8"),
    "an overlong slash": (MetadataRequest, 0, "00000001 0002 c0af", "topics[0].name", 4, "UTF-8"),
    "a string too long": (MetadataRequest, 9, "02 818002" + "61" * 32768, "topics[0].name", 1, "32768 bytes"),
    # B-06: tags; B-07's cousin on the wire: varints
    "tag twice": (FetchResponse, 16, "00000000 0000 00000000 01 02 000101 000101", "_tags", 15, "tag 0 is repeated"),
    "tag too long": (FetchResponse, 16, "00000000 0000 00000000 01 01 00020100", "_tags", 12, "tag 0"),
    "tag too short": (FetchResponse, 16, "00000000 0000 00000000 01 01 000001", "_tags", 12, "tag 0"),
    "varint of 33 bits": (MetadataRequest, 9, "ffffffff1f", "topics", 0, "varint"),
    "varint of 6 bytes": (MetadataRequest, 9, "808080808000", "topics", 0, "varint"),
    "varint without end": (MetadataRequest, 9, "8080", "topics", 2, "cut short"),
}


@pytest.mark.proves("B-04", "B-05", "B-06")
@pytest.mark.parametrize("lie", LIES)
def test_a_false_length_is_refused_at_its_field_and_offset(lie: str) -> None:
    struct, version, text, path, offset, reason = LIES[lie]
    data = bytes.fromhex(text)
    for codec in codecs(struct, version):
        tracemalloc.start()
        try:
            with pytest.raises(WireError) as raised:
                codec.read(data, 0)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        error = raised.value
        assert error.place == {"api": struct.__name__, "version": version, "path": path, "offset": offset}
        assert reason in error.message
        assert peak < 100 * 1024


@pytest.mark.proves("B-04")
def test_a_count_that_the_bytes_can_pay_for_takes_memory_in_proportion() -> None:
    """Two bytes are an empty topic name: 8,192 topics in 16 KiB are honest."""
    body = (1 << 13).to_bytes(4, "big") + bytes(1 << 14)
    for codec in codecs(MetadataRequest, 0):
        tracemalloc.start()
        try:
            value, end = codec.read(body, 0)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert (len(value.topics), end) == (1 << 13, len(body))
        assert peak < 100 * len(body)


@pytest.mark.proves("B-06")
def test_nesting_is_as_deep_as_the_declarations_and_they_end() -> None:
    def depth(struct: type[Struct], above: tuple[type[Struct], ...] = ()) -> int:
        assert struct not in above
        inner = [each.of for each in struct._table if not isinstance(each.of, WireType)]
        return 1 + max((depth(kind, (*above, struct)) for kind in inner), default=0)

    assert max(depth(message.struct) for message in MESSAGES) == 6


# ------------------------------------------------------------------------------------------------------------------
# primitives
# ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("subcon", "value", "text"),
    [
        (Varint(32, signed=True), 0, "00"),
        (Varint(32, signed=True), -1, "01"),
        (Varint(32, signed=True), 1, "02"),
        (Varint(32, signed=True), 2**31 - 1, "feffffff0f"),
        (Varint(32, signed=True), -(2**31), "ffffffff0f"),
        (Varint(64, signed=True), 300, "d804"),
        (Varint(64, signed=True), 2**63 - 1, "feffffffffffffffff01"),
        (Varint(64, signed=True), -(2**63), "ffffffffffffffffff01"),
        (Varint(32, signed=False), 127, "7f"),
        (Varint(32, signed=False), 128, "8001"),
        (Varint(32, signed=False), 2**32 - 1, "ffffffff0f"),
        (subcon_of("int32", flexible=True, nullable=False), -2, "fffffffe"),
        (subcon_of("string", flexible=False, nullable=True), None, "ffff"),
        (subcon_of("string", flexible=True, nullable=True), None, "00"),
        (subcon_of("string", flexible=True, nullable=False), "é", "03c3a9"),
        (subcon_of("uint16", flexible=False, nullable=False), 2**16 - 1, "ffff"),
        (subcon_of("uint32", flexible=False, nullable=False), 2**32 - 1, "ffffffff"),
        (subcon_of("float64", flexible=False, nullable=False), 1.5, "3ff8000000000000"),
        (subcon_of("uuid", flexible=True, nullable=False), UUID(int=255), "00" * 15 + "ff"),
    ],
)
def test_known_bytes_of_each_type(subcon: Subcon, value: object, text: str) -> None:
    assert subcon.build(value).hex() == text
    assert subcon.parse_stream(FieldSource(bytes.fromhex(text))) == value


@given(st.integers(-(2**63), 2**63 - 1))
def test_varlongs_come_back(value: int) -> None:
    subcon = Varint(64, signed=True)
    data = subcon.build(value)
    assert len(data) <= 10
    assert subcon.parse_stream(FieldSource(data)) == value


@pytest.mark.parametrize(
    ("subcon", "data"),
    [
        (Varint(32, signed=True), b"\xff\xff\xff\xff\x1f"),
        (Varint(32, signed=True), b"\x80\x80\x80\x80\x80\x00"),
        (Varint(64, signed=True), b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02"),
        (Varint(64, signed=True), b"\x80" * 10 + b"\x00"),
        (Varint(64, signed=True), b"\x80"),
    ],
)
def test_varints_too_long_or_cut(subcon: Varint, data: bytes) -> None:
    with pytest.raises(Malformed):
        subcon.parse_stream(FieldSource(data))


@pytest.mark.parametrize(
    ("subcon", "value"),
    [
        (Varint(32, signed=True), 2**31),
        (Varint(32, signed=False), -1),
        (Varint(32, signed=False), "1"),
        (Varint(64, signed=True), -(2**63) - 1),
        (Fixed("int8"), 128),
        (Fixed("uint16"), -1),
        (Fixed("bool"), 1),
        (Fixed("float64"), "x"),
        (Text("int16", nullable=False), None),
        (Uuid(), b"\0" * 16),
    ],
)
def test_values_that_no_bytes_can_hold(subcon: Subcon, value: object) -> None:
    with pytest.raises(Malformed):
        subcon.build(value)
