"""The frozen values, and what a declaration refuses to build."""

from __future__ import annotations

import copy
import enum
import pickle
import sys
import uuid
from typing import Any

import pytest

import kohort.protocol
from kohort.common.errors import WireError
from kohort.protocol.apis.create_topics import CreateTopicsResponse
from kohort.protocol.apis.fetch import FetchRequest
from kohort.protocol.apis.find_coordinator import FindCoordinatorRequest
from kohort.protocol.apis.heartbeat import HeartbeatRequest, HeartbeatResponse
from kohort.protocol.apis.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from kohort.protocol.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kohort.protocol.codec import Message
from kohort.protocol.compiled_codec import LoweredCodec
from kohort.protocol.construct_codec import ConstructCodec
from kohort.protocol.errors import UnsupportedVersion
from kohort.protocol.schema import MISSING, Top, Versions

REQUEST = HeartbeatRequest(group_id="billing", generation_id=7, member_id="m-1")


class TestValues:
    def test_read_by_name_and_shown_by_name(self) -> None:
        assert (REQUEST.group_id, REQUEST.generation_id, REQUEST.group_instance_id) == ("billing", 7, None)
        assert repr(REQUEST) == (
            "HeartbeatRequest(group_id='billing', generation_id=7, member_id='m-1', group_instance_id=None)"
        )

    def test_equal_and_hashed_by_value(self) -> None:
        again = HeartbeatRequest(group_id="billing", generation_id=7, member_id="m-1")
        assert again == REQUEST
        assert hash(again) == hash(REQUEST)
        assert again._replace(generation_id=8) != REQUEST
        assert REQUEST.generation_id == 7

    def test_frozen_and_without_a_dict(self) -> None:
        with pytest.raises(AttributeError):
            REQUEST.group_id = "other"  # type: ignore[misc]
        with pytest.raises(AttributeError):
            REQUEST.no_such_field = 1  # type: ignore[attr-defined]
        assert not hasattr(REQUEST, "__dict__")

    def test_a_value_is_a_tuple_that_a_codec_may_fill(self) -> None:
        filled = tuple.__new__(HeartbeatRequest, ("billing", 7, "m-1", None))  # type: ignore[type-var]
        assert filled == REQUEST
        assert type(filled) is HeartbeatRequest

    def test_an_unknown_field_is_refused_at_once(self) -> None:
        with pytest.raises(TypeError, match="HeartbeatRequest has no field 'grup_id'"):
            HeartbeatRequest(grup_id="billing")  # type: ignore[call-arg]

    def test_matched_by_position_and_name(self) -> None:
        match REQUEST:
            case HeartbeatRequest(group_id=group, generation_id=generation):
                assert (group, generation) == ("billing", 7)
            case _:
                pytest.fail("no match")

    @pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value))])
    def test_copies_and_pickles(self, again: Any) -> None:
        partial = FindCoordinatorRequest(coordinator_keys=("g",))
        for value in (REQUEST, partial):
            assert again(value) == value
            assert type(again(value)) is type(value)
        assert again(partial)._asdict()["key"] is MISSING


class TestDefaults:
    def test_a_response_needs_no_fields(self) -> None:
        assert HeartbeatResponse() == HeartbeatResponse(throttle_time_ms=0, error_code=0)
        assert MetadataResponseTopic().topic_id == uuid.UUID(int=0)
        assert Message.of(HeartbeatResponse).parse(b"\0\0", 0) == HeartbeatResponse()

    def test_a_request_says_which_fields_it_lacks(self) -> None:
        assert repr(FindCoordinatorRequest(key="g")) == "FindCoordinatorRequest(key='g', key_type=0)"
        message = Message.of(FindCoordinatorRequest)
        assert message.build(FindCoordinatorRequest(key="g"), 0) == b"\0\1g"
        assert message.build(FindCoordinatorRequest(coordinator_keys=("g",)), 4) == b"\0\2\2g\0"
        for value, wrong in (
            (FindCoordinatorRequest(key_type=1), "no value"),
            (FindCoordinatorRequest(key="g"), "omitted"),
        ):
            with pytest.raises(WireError, match=wrong) as raised:
                message.build(value, 4)
            path = {"no value": "coordinator_keys", "omitted": "key"}[wrong]
            assert raised.value.place == {"api": "FindCoordinatorRequest", "version": 4, "path": path}

    def test_fields_that_a_version_lacks_come_back_at_their_defaults(self) -> None:
        message = Message.of(OffsetCommitRequest)
        assert message.parse(message.build({"group_id": "g", "topics": ()}, 0), 0) == OffsetCommitRequest(
            group_id="g", member_id="", topics=()
        )

    def test_a_tagged_struct_at_its_default_is_not_written(self) -> None:
        request = {"max_wait_ms": 1, "min_bytes": 1, "topics": (), "forgotten_topics_data": ()}
        plain = Message.of(FetchRequest).build(request, 17)
        assert plain[-1:] == b"\0"
        state = {"replica_id": 3, "replica_epoch": 4}
        tagged = Message.of(FetchRequest).build({**request, "replica_state": state}, 17)
        assert tagged.startswith(plain[:-1])
        assert Message.of(FetchRequest).parse(tagged, 17).replica_state._asdict() == state


class Flavour(enum.IntEnum):
    CHOSEN = 3


def codecs(struct: type[Top], version: int) -> dict[str, LoweredCodec | ConstructCodec]:
    message = Message.of(struct)
    return {"construct": message.reference(version), "lowered": message.codec(version)}


@pytest.mark.parametrize("codec", ["construct", "lowered"])
class TestBuilding:
    """Every refusal names the field."""

    GOOD = OffsetCommitRequest(
        group_id="g",
        member_id="m",
        topics=(
            OffsetCommitRequestTopic(
                name="t",
                partitions=(
                    OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata=None),
                    OffsetCommitRequestPartition(partition_index=1, committed_offset=2, committed_metadata=""),
                ),
            ),
        ),
    )

    def refusal(self, codec: str, struct: type[Top], version: int, value: object) -> WireError:
        with pytest.raises(WireError) as raised:
            codecs(struct, version)[codec].write(value)
        assert raised.value.place["api"] == struct.__name__
        assert raised.value.place["version"] == version
        return raised.value

    @pytest.mark.parametrize(
        ("change", "path"),
        [
            ({"committed_offset": 2**63}, "committed_offset"),
            ({"committed_offset": "1"}, "committed_offset"),
            ({"committed_offset": None}, "committed_offset"),
            ({"committed_offset": 1.0}, "committed_offset"),
            ({"committed_offset": MISSING}, "committed_offset"),
            ({"partition_index": -(2**31) - 1}, "partition_index"),
            ({"committed_metadata": b"bytes"}, "committed_metadata"),
            ({"committed_metadata": "x" * 32768}, "committed_metadata"),
            ({"committed_metadata": "\ud800"}, "committed_metadata"),
        ],
    )
    def test_a_value_that_does_not_fit(self, codec: str, change: dict[str, Any], path: str) -> None:
        topic = self.GOOD.topics[0]
        spoilt = topic._replace(partitions=(topic.partitions[0], topic.partitions[1]._replace(**change)))
        for version in (6, 9):
            error = self.refusal(codec, OffsetCommitRequest, version, self.GOOD._replace(topics=(spoilt,)))
            assert error.place["path"] == f"topics[0].partitions[1].{path}"

    def test_a_field_too_many(self, codec: str) -> None:
        value = {"group_id": "g", "member_id": "m", "topics": ({"name": "t", "partitions": (), "colour": 1},)}
        error = self.refusal(codec, OffsetCommitRequest, 8, value)
        assert (error.place["path"], "no field of this name" in str(error)) == ("topics[0].colour", True)

    @pytest.mark.parametrize("topics", [None, "t", {"name": "t"}, 3, (None,), ("t",), ((),), (HeartbeatResponse(),)])
    def test_no_array_of_topics(self, codec: str, topics: object) -> None:
        error = self.refusal(codec, OffsetCommitRequest, 8, {"group_id": "g", "member_id": "m", "topics": topics})
        assert str(error.place["path"]).startswith("topics")

    def test_a_field_that_the_version_lacks(self, codec: str) -> None:
        """A static name cannot be left out without an error; a leader epoch can."""
        error = self.refusal(codec, OffsetCommitRequest, 6, self.GOOD._replace(group_instance_id="i"))
        assert error.place["path"] == "group_instance_id"
        topic = self.GOOD.topics[0]
        partition = topic.partitions[0]._replace(committed_leader_epoch=5)
        quiet = self.GOOD._replace(topics=(topic._replace(partitions=(partition, topic.partitions[1])),))
        both = codecs(OffsetCommitRequest, 5)[codec]
        assert both.write(quiet) == both.write(self.GOOD)

    def test_null_depends_on_the_version(self, codec: str) -> None:
        assert (
            codecs(MetadataRequest, 1)[codec].write({"topics": None, "allow_auto_topic_creation": True}) == b"\xff" * 4
        )
        assert self.refusal(codec, MetadataRequest, 0, {"topics": None}).place["path"] == "topics"
        by_id = {"topics": (MetadataRequestTopic(name=None, topic_id=uuid.UUID(int=5)),)}
        given = {"allow_auto_topic_creation": True, "include_topic_authorized_operations": False}
        assert codecs(MetadataRequest, 12)[codec].write({**by_id, **given})
        error = self.refusal(
            codec, MetadataRequest, 9, {**by_id, **given, "include_cluster_authorized_operations": False}
        )
        assert error.place["path"] == "topics[0].name"

    def test_booleans_are_booleans(self, codec: str) -> None:
        error = self.refusal(codec, MetadataRequest, 4, {"topics": (), "allow_auto_topic_creation": 1})
        assert error.place["path"] == "allow_auto_topic_creation"

    def test_no_mapping_at_all(self, codec: str) -> None:
        self.refusal(codec, OffsetCommitRequest, 8, ("g", 1))
        self.refusal(codec, OffsetCommitRequest, 8, REQUEST)

    def test_any_integer_will_do(self, codec: str) -> None:
        value = self.GOOD._replace(generation_id_or_member_epoch=Flavour.CHOSEN)
        both = codecs(OffsetCommitRequest, 8)[codec]
        assert both.write(value) == both.write(self.GOOD._replace(generation_id_or_member_epoch=3))

    def test_lists_do_for_tuples_and_mappings_for_values(self, codec: str) -> None:
        loose = {
            "group_id": "g",
            "member_id": "m",
            "topics": [
                {
                    "name": "t",
                    "partitions": [
                        {"partition_index": 0, "committed_offset": 1, "committed_metadata": None},
                        {"partition_index": 1, "committed_offset": 2, "committed_metadata": ""},
                    ],
                }
            ],
        }
        both = codecs(OffsetCommitRequest, 8)[codec]
        assert both.write(loose) == both.write(self.GOOD)


def test_a_version_that_does_not_exist() -> None:
    message = Message.of(CreateTopicsResponse)
    for version in (-1, 8):
        with pytest.raises(UnsupportedVersion) as raised:
            message.parse(b"", version)
        assert raised.value.place == {"api": "CreateTopicsResponse", "version": version}


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [("0+", (0, 99), (-1,)), ("2-4", (2, 4), (1, 5)), ("7", (7,), (6, 8)), ("", (), (0,))],
)
def test_ranges_of_versions(text: str, inside: tuple[int, ...], outside: tuple[int, ...]) -> None:
    versions = Versions.of(text)
    assert all(version in versions for version in inside)
    assert not any(version in versions for version in outside)
    assert str(versions) == text


def test_without_the_extension_construct_itself_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(kohort.protocol, "lowering", raising=False)
    monkeypatch.setitem(sys.modules, "kohort.protocol.compiled_codec", None)
    message = Message(HeartbeatRequest)  # none of the codecs that the rest of the run has built
    assert message.codec(4) == message.reference(4)
    assert message.parse(message.build(REQUEST, 4), 4) == REQUEST
    assert message.build(REQUEST, 4) == Message.of(HeartbeatRequest).build(REQUEST, 4)


class TestIds:
    """The compiled codec makes them without the constructor of `uuid.UUID`."""

    @pytest.mark.parametrize("raw", [bytes(16), bytes(range(16)), b"\xff" * 16])
    def test_an_id_that_was_read_is_an_ordinary_one(self, raw: bytes) -> None:
        message = Message.of(MetadataResponse)
        topics = (MetadataResponseTopic(name="t", topic_id=uuid.UUID(bytes=raw)),)
        (read,) = message.parse(message.build(MetadataResponse(topics=topics), 12), 12).topics
        made = uuid.UUID(bytes=raw)
        assert (read.topic_id, hash(read.topic_id), repr(read.topic_id)) == (made, hash(made), repr(made))
        assert (read.topic_id.bytes, read.topic_id.is_safe, type(read.topic_id)) == (raw, made.is_safe, uuid.UUID)
        assert pickle.loads(pickle.dumps(read.topic_id)) == copy.copy(read.topic_id) == made
