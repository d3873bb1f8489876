"""Manifests: one form, and every kind of damage refused by its own error (CR-51, CR-71, CR-72, B-45)."""

import json
import struct
import zlib
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort import TopicPartition
from kohort.consistent_region.errors import (
    AlienManifest,
    CorruptManifest,
    InconsistentCheckpointError,
    ResetFailedError,
    StaleManifest,
)
from kohort.consistent_region.manifest import Manifest, StateReference, TaskSnapshot, decode, encode, merged
from kohort.consistent_region.offsets import OffsetManager, RegionPosition, starts_of
from kohort.consistent_region.tasks import TaskId

P0, P1, P2 = (TopicPartition("payments", n) for n in range(3))
HEAD_BYTES = 22


def cut(number: int, offsets: dict[TopicPartition, int], member: str = "a", state: bytes = b"state") -> TaskSnapshot:
    positions = {one: RegionPosition(to, 3, UUID(int=7)) for one, to in offsets.items()}
    return TaskSnapshot(TaskId("", number), member, positions, StateReference.of(state), 2)


def manifest(sequence: int = 1) -> Manifest:
    cuts = (cut(0, {P0: 10}), cut(1, {P1: 0}, "b"), cut(2, {P2: 2**40}, "b"))
    return Manifest("bills", "billing", sequence, 4, 17, cuts)


def framed(payload: bytes, *, magic: bytes = b"KREGION\n", version: int = 2) -> bytes:
    return struct.pack(">8sHQI", magic, version, len(payload), zlib.crc32(payload)) + payload


@pytest.mark.proves("CR-51")
@pytest.mark.parametrize("sequence", [1, 999, 1000, 1001, 2**31, 2**63 - 1])
def test_sequences_come_back(sequence: int) -> None:
    again = decode(encode(manifest(sequence)), sequence=sequence)
    assert again == manifest(sequence)
    assert again.members == ("a", "b")
    assert again.offsets[P2] == RegionPosition(2**40, 3, UUID(int=7))


def test_a_task_is_found_with_its_version() -> None:
    found = decode(encode(manifest())).of(TaskId("", 1))
    assert found is not None
    assert (found.member, found.version, dict(found.offsets)) == ("b", 2, {P1: RegionPosition(0, 3, UUID(int=7))})
    assert decode(encode(manifest())).of(TaskId("payments", 1)) is None


def test_tasks_are_in_the_order_of_their_numbers() -> None:
    cuts = [cut(number, {TopicPartition("payments", number): 0}) for number in range(12)]
    whole = Manifest("r", "g", 1, 1, 1, tuple(cuts))
    assert decode(encode(whole)) == whole


def test_the_form_is_one_in_any_order_of_making() -> None:
    a, b = cut(0, {P1: 2, P0: 1}), cut(0, {P0: 1, P1: 2})
    assert encode(Manifest("r", "g", 1, 1, 1, (a,))) == encode(Manifest("r", "g", 1, 1, 1, (b,)))


def test_a_manifest_with_a_state_for_each_member_is_refused_with_what_to_do() -> None:
    with pytest.raises(AlienManifest, match=r"a state for each member.*another group"):
        decode(framed(encode(manifest())[HEAD_BYTES:], version=1))


@pytest.mark.proves("CR-72", "B-45")
def test_every_truncation_is_refused() -> None:
    whole = encode(manifest())
    for length in range(len(whole)):
        with pytest.raises(CorruptManifest):
            decode(whole[:length])
    with pytest.raises(CorruptManifest):
        decode(whole + b"\0")


@pytest.mark.proves("CR-72", "B-45")
def test_every_flipped_bit_is_refused() -> None:
    whole = encode(manifest())
    for at in range(len(whole)):
        for bit in range(8):
            damaged = bytearray(whole)
            damaged[at] ^= 1 << bit
            with pytest.raises(ResetFailedError):
                decode(bytes(damaged))


@pytest.mark.proves("CR-71")
@pytest.mark.parametrize(
    "data",
    [
        framed(b"{}", magic=b"SOMEBODY"),
        framed(encode(manifest())[HEAD_BYTES:], version=3),
        framed(encode(manifest())[HEAD_BYTES:].replace(b'"0":{"by"', b'"00":{"by"')),
        framed(encode(manifest())[HEAD_BYTES:].replace(b'"0":{"by"', b'"x":{"by"')),
        framed(b"{}"),
        framed(b"not json"),
        framed(b"[" * 100_000),
        framed(json.dumps(json.loads(encode(manifest())[HEAD_BYTES:]), indent=1).encode()),
        framed(encode(manifest())[HEAD_BYTES:].replace(b'"epoch":4', b'"epoch":4.0')),
        framed(encode(manifest())[HEAD_BYTES:].replace(b'"epoch":4', b'"epoch":true')),
        framed(encode(manifest())[HEAD_BYTES:].replace(b"[10,3,", b"[-1,3,")),
        framed(encode(manifest())[HEAD_BYTES:].replace(b'"epoch":4', b'"epoch":' + b"9" * 4_000)),
        framed(encode(manifest())[HEAD_BYTES:].replace(b'"epoch":4', b'"epoch":' + b"9" * 5_000)),
        framed(encode(manifest())[HEAD_BYTES:].replace(b'"region":"bills"', b'"region":"\\ud800"')),
        framed(encode(manifest())[HEAD_BYTES:].replace(b'"region":"bills"', b'"region":["bills"]')),
        framed(encode(manifest())[HEAD_BYTES:].replace(b'"sha256":"', b'"sha256":"../../')),
    ],
)
def test_what_another_program_wrote_is_refused_though_its_checksum_is_right(data: bytes) -> None:
    with pytest.raises(AlienManifest):
        decode(data)


@pytest.mark.proves("CR-71")
@pytest.mark.parametrize("wanted", [{"region": "other"}, {"group": "other"}, {"sequence": 2}])
def test_a_manifest_of_something_else_is_stale(wanted: dict[str, object]) -> None:
    with pytest.raises(StaleManifest, match=next(iter(wanted))):
        decode(encode(manifest()), **wanted)  # type: ignore[arg-type]


@given(st.binary(max_size=200))
def test_no_bytes_raise_anything_else(data: bytes) -> None:
    with pytest.raises(ResetFailedError):
        decode(data)


def joined(*cuts: TaskSnapshot, ever: tuple[TopicPartition, ...] = (P0, P1)) -> Manifest:
    return merged(Manifest("r", "g", 1, 1, 1, cuts), ever)


@pytest.mark.proves("CR-57", "CR-63", "I6")
def test_each_task_is_in_a_checkpoint_once() -> None:
    a, b = cut(0, {P0: 1}), cut(1, {P1: 2}, "b")
    assert joined(b, a).tasks == (a, b)
    for cuts in [(a,), (a, a), (a, b, b)]:
        with pytest.raises(InconsistentCheckpointError):
            joined(*cuts)


@pytest.mark.proves("CR-64")
def test_a_partition_contributed_twice_is_inconsistent() -> None:
    with pytest.raises(InconsistentCheckpointError, match=r"contributed twice.*members=a,b"):
        joined(cut(0, {P0: 1, P1: 3}), cut(1, {P1: 2}, "b"))


@pytest.mark.proves("CR-52", "I6")
def test_a_partition_without_an_owner_keeps_the_checkpoint_from_completing() -> None:
    with pytest.raises(InconsistentCheckpointError, match="no contribution"):
        joined(cut(0, {P0: 1}), cut(1, {P1: 2}), ever=(P0, P1, P2))


@pytest.mark.proves("CR-18")
def test_zero_is_an_offset_and_less_is_none() -> None:
    assert RegionPosition.of(0) == RegionPosition(0)
    with pytest.raises(ValueError, match="negative"):
        RegionPosition.of(-1)
    assert starts_of([P0, P1], {}, {P0: RegionPosition(0)}) == {P0: RegionPosition(0)}


@pytest.mark.proves("CR-65")
def test_a_reset_goes_to_the_checkpoint_and_else_to_the_initial_offset() -> None:
    initial = {P0: RegionPosition(1), P1: RegionPosition(2)}
    starts = starts_of([P2, P1, P0], {P0: RegionPosition(10)}, initial)
    assert starts == {P0: RegionPosition(10), P1: RegionPosition(2)}


@pytest.mark.proves("I5")
def test_offsets_grow_and_only_a_seek_takes_them_back() -> None:
    offsets = OffsetManager()
    offsets.register([P0, P1])
    assert offsets.unplaced == {P0, P1}
    offsets.place({P0: RegionPosition(5), P2: RegionPosition(9)})
    assert dict(offsets.positions()) == {P0: RegionPosition(5)}
    offsets.advance(P0, 8)
    with pytest.raises(ValueError, match="does not follow"):
        offsets.advance(P2, 10)
    for wrong in (8, 7):
        with pytest.raises(ValueError, match="does not follow"):
            offsets.advance(P0, wrong)
    with pytest.raises(ValueError, match="does not follow"):
        offsets.advance(P1, 1)
    offsets.register([P0, P2])
    assert dict(offsets.positions()) == {P0: RegionPosition(8)}
    assert offsets.partitions == {P0, P2}
    offsets.place({P0: RegionPosition(5)})
    assert offsets.positions()[P0].offset == 5
