"""The codec of the control plane, kio, kafka-python, aiokafka and interpreted construct, on the same bytes.

aiokafka has neither Metadata v12, OffsetFetch v8, JoinGroup v9 nor OffsetCommit v8. It is measured with its newest
version of each and the same content. The note has the version.
"""

from __future__ import annotations

import io
import tracemalloc
from collections.abc import Callable
from importlib import import_module
from typing import Any
from uuid import UUID

from benchmarks.report import OURS, Report, best_of
from kohort.protocol.apis.join_group import JoinGroupResponse, JoinGroupResponseMember
from kohort.protocol.apis.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kohort.protocol.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kohort.protocol.apis.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from kohort.protocol.codec import Message
from kohort.protocol.schema import Top

TOPIC_ID = UUID(int=0x1234_5678_9ABC_DEF0_1234_5678_9ABC_DEF0)
Work = tuple[str, Callable[[], object]]


def metadata(partitions: int) -> MetadataResponse:
    """One topic on three brokers, replicated three times."""
    return MetadataResponse(
        brokers=tuple(MetadataResponseBroker(node_id=n, host=f"broker-{n}", port=9092, rack="a") for n in range(3)),
        cluster_id="a-cluster",
        controller_id=1,
        topics=(
            MetadataResponseTopic(
                name="flights",
                topic_id=TOPIC_ID,
                partitions=tuple(
                    MetadataResponsePartition(
                        partition_index=p,
                        leader_id=p % 3,
                        leader_epoch=7,
                        replica_nodes=(p % 3, (p + 1) % 3, (p + 2) % 3),
                        isr_nodes=(p % 3, (p + 1) % 3, (p + 2) % 3),
                    )
                    for p in range(partitions)
                ),
            ),
        ),
    )


def offset_fetch(partitions: int) -> OffsetFetchResponse:
    """One group's offsets."""
    return OffsetFetchResponse(
        groups=(
            OffsetFetchResponseGroup(
                group_id="billing",
                topics=(
                    OffsetFetchResponseTopics(
                        name="flights",
                        partitions=tuple(
                            OffsetFetchResponsePartitions(
                                partition_index=p, committed_offset=1_000_000 + p, committed_leader_epoch=7, metadata=""
                            )
                            for p in range(partitions)
                        ),
                    ),
                ),
            ),
        )
    )


def join_group(members: int) -> JoinGroupResponse:
    """The response to the leader of a large group."""
    return JoinGroupResponse(
        generation_id=5,
        protocol_type="consumer",
        protocol_name="range",
        leader="member-0",
        member_id="member-0",
        members=tuple(
            JoinGroupResponseMember(member_id=f"member-{m}", metadata=b"\0\1\0\0\0\1\0\7flights\xff\xff\xff\xff")
            for m in range(members)
        ),
    )


def offset_commit(partitions: int) -> OffsetCommitRequest:
    """One commit of many partitions."""
    return OffsetCommitRequest(
        group_id="billing",
        generation_id_or_member_epoch=5,
        member_id="member-0",
        topics=(
            OffsetCommitRequestTopic(
                name="flights",
                partitions=tuple(
                    OffsetCommitRequestPartition(
                        partition_index=p, committed_offset=p, committed_leader_epoch=7, committed_metadata=""
                    )
                    for p in range(partitions)
                ),
            ),
        ),
    )


CASES: tuple[tuple[str, Any, int, str, str], ...] = (
    # what, value, version, kio's module, kafka-python's class
    ("Metadata v12 x 1,000", metadata(1_000), 12, "metadata.v12.response", "metadata:MetadataResponse"),
    ("Metadata v12 x 100,000", metadata(100_000), 12, "metadata.v12.response", "metadata:MetadataResponse"),
    ("OffsetFetch v8 x 1,000", offset_fetch(1_000), 8, "offset_fetch.v8.response", "consumer:OffsetFetchResponse"),
    ("JoinGroup v9 x 1,000", join_group(1_000), 9, "join_group.v9.response", "consumer:JoinGroupResponse"),
    ("OffsetCommit v8 x 1,000", offset_commit(1_000), 8, "offset_commit.v8.request", "consumer:OffsetCommitRequest"),
)


def before_groups(value: OffsetFetchResponse) -> OffsetFetchResponse:
    """The same offsets as versions before 8 say them, for one group that is not named."""
    return OffsetFetchResponse(
        topics=tuple(
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=tuple(
                    OffsetFetchResponsePartition(
                        partition_index=each.partition_index,
                        committed_offset=each.committed_offset,
                        metadata=each.metadata,
                    )
                    for each in topic.partitions
                ),
            )
            for topic in value.groups[0].topics
        )
    )


# What -> aiokafka's class, its version, and the same content as that version says it.
AIOKAFKA: dict[str, tuple[str, int, Callable[[Any], Top]]] = {
    "Metadata v12": ("metadata:MetadataResponse_v5", 5, lambda value: value),
    "OffsetFetch v8": ("commit:OffsetFetchResponse_v3", 3, before_groups),
    "JoinGroup v9": ("group:JoinGroupResponse_v5", 5, lambda value: value),
    "OffsetCommit v8": ("commit:OffsetCommitRequest_v3", 3, lambda value: value),
}


def run(report: Report) -> None:
    """Parse and build each case with every codec that can."""
    for what, value, version, kio_path, kafka_path in CASES:
        message = Message.of(type(value))
        data = message.build(value, version)
        times = 3 if len(data) > 1_000_000 else 40
        readers, writers = _codecs(message, value, data, version, kio_path, kafka_path)
        aiokafka = _aiokafka(what, value)
        for verb, works in (("parse", readers), ("build", writers)):
            for client, work in works:
                slow = client == "construct" and times == 40
                report.add(f"{verb} {what}", client, best_of(work, times=3 if slow else times) * 1e3, "ms")
            for client, work in aiokafka.get(verb, ()):
                report.add(f"{verb} {what}", client, best_of(work, times=times) * 1e3, "ms", note="its newest version")
    for partitions in (1_000, 10_000, 100_000):
        data = Message.of(MetadataResponse).build(metadata(partitions), 12)
        tracemalloc.start()
        kept = Message.of(MetadataResponse).parse(data, 12)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        del kept
        report.add(f"peak memory per byte parsed, Metadata x {partitions:,}", OURS, peak / len(data), "bytes")


def _codecs(
    message: Message[Top], value: Top, data: bytes, version: int, kio_path: str, kafka_path: str
) -> tuple[list[Work], list[Work]]:
    reference = message.reference(version)
    entity = _kio_entity(kio_path)
    kio_read, kio_write = (
        import_module("kio.serial").entity_reader(entity),
        import_module("kio.serial").entity_writer(entity),
    )
    kio_value = kio_read(data, 0)[0]
    theirs = _attribute("kafka.protocol", kafka_path)
    theirs_value = theirs.decode(data, version=version)
    theirs_value._header = None  # its encode() reads what its decode() leaves unset

    def kio_build() -> bytes:
        buffer = io.BytesIO()
        kio_write(buffer, kio_value)
        return buffer.getvalue()

    if kio_build() != data:
        raise AssertionError(f"kio writes {message.name} v{version} otherwise than kohort")
    readers = [
        (OURS, lambda: message.parse(data, version)),
        ("kio", lambda: kio_read(data, 0)),
        ("kafka-python", lambda: theirs.decode(data, version=version)),
        ("construct", lambda: reference.read(data, 0)),
    ]
    writers = [
        (OURS, lambda: message.build(value, version)),
        ("kio", kio_build),
        ("kafka-python", lambda: theirs_value.encode(version=version)),
        ("construct", lambda: reference.write(value)),
    ]
    return readers, writers


def _aiokafka(what: str, value: Top) -> dict[str, list[Work]]:
    path, version, older = AIOKAFKA[what.partition(" x ")[0]]
    theirs = _attribute("aiokafka.protocol", path)
    data = Message.of(type(value)).build(older(value), version)
    parsed = theirs.decode(io.BytesIO(data))
    return {
        "parse": [("aiokafka", lambda: theirs.decode(io.BytesIO(data)))],
        "build": [("aiokafka", lambda: parsed.encode())],
    }


def _attribute(package: str, path: str) -> Any:
    module, _, name = path.partition(":")
    return getattr(import_module(f"{package}.{module}"), name)


def _kio_entity(path: str) -> Any:
    module = import_module(f"kio.schema.{path}")
    name = "".join(part.title() for part in path.split(".")[0].split("_")) + path.split(".")[-1].title()
    return getattr(module, name)
