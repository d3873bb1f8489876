"""A checkpoint as bytes: one manifest with length and checksum, in canonical and readable form.

    magic "KREGION\\n" (8 bytes) | version (u16) | payload length (u64) | CRC-32 of the payload (u32) | payload

All numbers are big-endian. The payload is JSON with sorted keys and no spaces, so equal manifests are equal bytes. It
can be read without this library, and runs no code. Decoding ends by encoding the result again. Bytes that are not the
canonical form are rejected, because kohort did not write them.
"""

import hashlib
import json
import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final
from uuid import UUID

from kohort.common.foreign_text import parsed_json
from kohort.common.named_tuple import NamedTuple
from kohort.common.topic_partition import TopicPartition
from kohort.consistent_region.errors import AlienManifest, CorruptManifest, InconsistentCheckpointError, StaleManifest
from kohort.consistent_region.offsets import Positions, RegionPosition
from kohort.consistent_region.tasks import TaskId

MAGIC: Final = b"KREGION\n"
VERSION: Final = 2
OF_MEMBERS: Final = 1
MAX_PAYLOAD_BYTES: Final = 256 * 1024 * 1024
_HEAD: Final = struct.Struct(">8sHQI")
INT64_MAX: Final = 2**63 - 1


class StateReference(NamedTuple):
    """A task's snapshot: its SHA-256 (hex), by which it is stored and found, and its length in bytes."""

    digest: str
    length_bytes: int

    @classmethod
    def of(cls, state: bytes) -> "StateReference":
        return cls(hashlib.sha256(state).hexdigest(), len(state))


class Block(NamedTuple):
    """A part of a snapshot that is stored by itself. `data` is None if the store has the block already."""

    reference: StateReference
    data: bytes | None

    @classmethod
    def of(cls, data: bytes) -> "Block":
        """A block that is not stored yet."""
        return cls(StateReference.of(data), data)


class TaskState(NamedTuple):
    """One cut of a task: its snapshot, and for each of its partitions the offset behind the last record in it.

    `version`: the version of the state's form. `blocks`: the parts of a state that is written in blocks.
    """

    offsets: Positions
    state: bytes
    version: int = 1
    blocks: tuple[Block, ...] = ()


@dataclass(frozen=True, slots=True)
class TaskSnapshot:
    """A cut of a task as a checkpoint names it. `member`: the label of the process that contributed it. `blocks`: the
    parts of a state that is written in blocks, in order. `effects_of`: the checkpoint that the cut is copied from,
    whose effects it has; None for the checkpoint's own."""

    task: TaskId
    member: str
    offsets: Positions
    state: StateReference
    version: int = 1
    blocks: tuple[StateReference, ...] = ()
    effects_of: int | None = None

    @classmethod
    def of(cls, task: TaskId, member: str, cut: TaskState) -> "TaskSnapshot":
        blocks = tuple(one.reference for one in cut.blocks)
        return cls(task, member, cut.offsets, StateReference.of(cut.state), cut.version, blocks)

    @property
    def references(self) -> tuple[StateReference, ...]:
        """All that the store must have for this cut."""
        return (self.state, *self.blocks)

    @property
    def size_bytes(self) -> int:
        """The size of all that the store has for this cut."""
        return sum(one.length_bytes for one in self.references)


@dataclass(frozen=True, slots=True)
class Manifest:
    """A complete checkpoint: one snapshot of each task of the region.

    `sequence` grows for ever within a region. `epoch` counts its resets. `generation` is the group's.
    """

    region: str
    group: str
    sequence: int
    epoch: int
    generation: int
    tasks: tuple[TaskSnapshot, ...]

    @property
    def members(self) -> tuple[str, ...]:
        """The processes that contributed, for people."""
        return tuple(sorted({one.member for one in self.tasks}))

    @property
    def offsets(self) -> Positions:
        """The positions of all tasks: where the whole region is."""
        return MappingProxyType({place: at for one in self.tasks for place, at in one.offsets.items()})

    def of(self, task: TaskId) -> TaskSnapshot | None:
        """The snapshot of `task`."""
        return next((one for one in self.tasks if one.task == task), None)


def merged(manifest: Manifest, ever_owned: Iterable[TopicPartition] = ()) -> Manifest:
    """Return the manifest with its tasks in order.

    Raises InconsistentCheckpointError if a task or a partition was contributed twice, or if a partition that the region
    ever owned is not covered.
    """
    ordered = tuple(sorted(manifest.tasks, key=lambda one: one.task))
    owner: dict[TopicPartition, TaskSnapshot] = {}
    seen: dict[TaskId, TaskSnapshot] = {}
    for one in ordered:
        check_apart(seen.get(one.task), one, manifest.sequence)
        seen[one.task] = one
        for partition in one.offsets:
            check_apart(owner.get(partition), one, manifest.sequence)
            owner[partition] = one
    if uncovered := sorted(set(ever_owned) - owner.keys()):
        raise InconsistentCheckpointError(
            "a partition that the region has owned is in no contribution",
            topic=uncovered[0].topic,
            partition=uncovered[0].partition,
            uncovered=len(uncovered),
            sequence=manifest.sequence,
        )
    return replace(manifest, tasks=ordered)


def check_apart(before: TaskSnapshot | None, now: TaskSnapshot, sequence: int) -> None:
    """Raise InconsistentCheckpointError if there is a snapshot before this one."""
    if before is not None:
        raise InconsistentCheckpointError(
            "a task was contributed twice, or a partition in two tasks",
            hint="the assignor must give all partitions of a task to one member",
            tasks=", ".join(sorted({str(before.task), str(now.task)})),
            members=f"{before.member},{now.member}",
            sequence=sequence,
        )


def encode(manifest: Manifest) -> bytes:
    """The one way in which this manifest is written."""
    plain = {one.name: getattr(manifest, one.name) for one in fields(manifest)}
    payload = canonical({**plain, "tasks": plain_snapshots(manifest.tasks)})
    return _HEAD.pack(MAGIC, VERSION, len(payload), zlib.crc32(payload)) + payload


def decode(
    data: bytes, *, region: str | None = None, group: str | None = None, sequence: int | None = None
) -> Manifest:
    """Read a manifest. If `region`, `group` or `sequence` are given, the manifest must match them.

    Raises CorruptManifest (torn, truncated, damaged), AlienManifest (another format or an unknown version),
    StaleManifest (valid, but of another region, group or sequence). All are ResetFailedError: its offsets must not be
    used.
    """
    payload = _payload(data)
    try:
        manifest = _manifest(parsed_json(payload))
        ours = encode(manifest)  # a lone surrogate, which JSON can spell, has no bytes
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as problem:
        raise AlienManifest(f"the payload is not a kohort manifest: {problem}") from problem
    if ours != data:
        raise AlienManifest("the manifest is not in its canonical form", hint="something else wrote it")
    for name, wanted in (("region", region), ("group", group), ("sequence", sequence)):
        found = getattr(manifest, name)
        if wanted is not None and found != wanted:
            raise StaleManifest(f"the manifest is of another {name}", wanted=wanted, found=found)
    return manifest


def canonical(value: Mapping[str, Any]) -> bytes:
    """Return JSON in canonical form."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def plain_positions(positions: Positions) -> dict[str, dict[str, list[Any]]]:
    """topic -> partition -> [offset, leader epoch, topic id], as JSON takes it."""
    topics: dict[str, dict[str, list[Any]]] = {}
    for partition, one in sorted(positions.items()):
        entry = [one.offset, one.leader_epoch, one.topic_id.hex]
        topics.setdefault(partition.topic, {})[str(partition.partition)] = entry
    return topics


def read_positions(topics: Mapping[str, Mapping[str, Sequence[Any]]]) -> dict[TopicPartition, RegionPosition]:
    """Parse positions. Raises ValueError or TypeError for invalid ones."""
    positions = {}
    for topic, partitions in topics.items():
        text_of(topic)
        for number, (offset, leader_epoch, topic_id) in partitions.items():
            if not 0 <= whole(offset) <= INT64_MAX or whole(leader_epoch) < -1 or not 0 <= int(number) < 2**31:
                raise ValueError(f"{topic} {number}: offset {offset}, leader epoch {leader_epoch}")
            positions[TopicPartition(topic, int(number))] = RegionPosition(offset, leader_epoch, _topic_id(topic_id))
    return positions


@lru_cache(maxsize=1024)
def _topic_id(text: str) -> UUID:
    return UUID(hex=text)


def _payload(data: bytes) -> bytes:
    if len(data) < _HEAD.size:
        raise CorruptManifest("the manifest is shorter than its head", length_bytes=len(data))
    magic, version, length, crc = _HEAD.unpack_from(data)
    if magic != MAGIC:
        raise AlienManifest("the bytes are not a kohort manifest", magic=magic.hex())
    if version == OF_MEMBERS:
        raise AlienManifest(
            "the manifest has a state for each member, and this version of kohort one for each task",
            hint="go on with the version that wrote it, or begin a region in another group",
            version=version,
        )
    if version != VERSION:
        raise AlienManifest("the manifest's version is not known here", version=version, hint="upgrade kohort")
    if length > MAX_PAYLOAD_BYTES or len(data) != _HEAD.size + length:
        raise CorruptManifest(
            "the manifest is torn or truncated", announced_bytes=length, found_bytes=len(data) - _HEAD.size
        )
    payload = data[_HEAD.size :]
    if zlib.crc32(payload) != crc:
        raise CorruptManifest("the manifest contradicts its checksum", length_bytes=length)
    return payload


def plain_snapshots(tasks: Iterable[TaskSnapshot]) -> dict[str, dict[str, Any]]:
    """The snapshots by task, as JSON takes them."""
    return {
        str(one.task): {
            "by": one.member,
            "offsets": plain_positions(one.offsets),
            "state": _plain(one.state),
            "version": one.version,
            **({"blocks": [_plain(block) for block in one.blocks]} if one.blocks else {}),
            **({"effects_of": one.effects_of} if one.effects_of is not None else {}),
        }
        for one in tasks
    }


def read_snapshots(value: Mapping[str, Any]) -> tuple[TaskSnapshot, ...]:
    """Parse snapshots. Raises ValueError, TypeError or KeyError for invalid ones."""
    return tuple(
        TaskSnapshot(
            task=TaskId.parsed(text_of(task)),
            member=text_of(one["by"]),
            offsets=MappingProxyType(read_positions(one["offsets"])),
            state=_reference(one["state"]),
            version=whole(one["version"]),
            blocks=tuple(map(_reference, one.get("blocks", ()))),
            effects_of=whole(one["effects_of"]) if "effects_of" in one else None,
        )
        for task, one in value.items()
    )


def _plain(reference: StateReference) -> dict[str, Any]:
    return {"bytes": reference.length_bytes, "sha256": reference.digest}


def _reference(value: Mapping[str, Any]) -> StateReference:
    return StateReference(digest_of(value["sha256"]), whole(value["bytes"]))


def _manifest(value: Mapping[str, Any]) -> Manifest:
    return merged(
        Manifest(
            region=text_of(value["region"]),
            group=text_of(value["group"]),
            sequence=whole(value["sequence"]),
            epoch=whole(value["epoch"]),
            generation=whole(value["generation"]),
            tasks=read_snapshots(value["tasks"]),
        )
    )


def whole(value: object) -> int:
    """An int64. Raises TypeError and ValueError for anything else that JSON may hold."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"not a whole number: {value!r}")
    if not -INT64_MAX <= value <= INT64_MAX:
        raise ValueError(f"a number of {value.bit_length()} bits is no int64")
    return value


def text_of(value: object) -> str:
    """Return a string that UTF-8 can encode. Raises TypeError, and ValueError for a lone surrogate."""
    if not isinstance(value, str):
        raise TypeError(f"not a text: {value!r}")
    value.encode()
    return value


def digest_of(value: object) -> str:
    """A SHA-256 in hex. Raises TypeError and ValueError."""
    text = text_of(value)
    if len(text) != 64 or set(text) - set("0123456789abcdef"):
        raise ValueError(f"not a SHA-256: {text!r}")
    return text
