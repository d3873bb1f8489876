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
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final
from uuid import UUID

from kohort.common.foreign_text import parsed_json
from kohort.common.named_tuple import NamedTuple
from kohort.common.topic_partition import TopicPartition
from kohort.consistent_region.errors import AlienManifest, CorruptManifest, InconsistentCheckpointError, StaleManifest
from kohort.consistent_region.offsets import Positions, RegionPosition

MAGIC: Final = b"KREGION\n"
VERSION: Final = 1
MAX_PAYLOAD_BYTES: Final = 256 * 1024 * 1024
_HEAD: Final = struct.Struct(">8sHQI")
INT64_MAX: Final = 2**63 - 1
NO_POSITIONS: Final[Positions] = MappingProxyType({})


class StateReference(NamedTuple):
    """A member's snapshot: its SHA-256 (hex), by which it is stored and found, and its length in bytes."""

    digest: str
    length_bytes: int

    @classmethod
    def of(cls, state: bytes) -> "StateReference":
        return cls(hashlib.sha256(state).hexdigest(), len(state))


@dataclass(frozen=True, slots=True)
class Contribution:
    """One member's part: its state, and for each owned partition the offset behind the last record in the state.

    `carried`: the offsets of a state from an older manifest, because its member is absent or a topic was forgotten.
    They are not positions to read from, but they are restored with the state.
    """

    member: str
    offsets: Positions
    state: StateReference
    carried: Positions = field(default_factory=lambda: NO_POSITIONS)

    @property
    def taken_at(self) -> Positions:
        """The offsets that the state was snapshotted with."""
        return self.carried or self.offsets


@dataclass(frozen=True, slots=True)
class Manifest:
    """A complete checkpoint: the parts of all members of the region at one barrier.

    `sequence` grows for ever within a region. `epoch` counts its resets. `generation` is the group's.
    """

    region: str
    group: str
    sequence: int
    epoch: int
    generation: int
    contributions: tuple[Contribution, ...]

    @property
    def members(self) -> tuple[str, ...]:
        return tuple(one.member for one in self.contributions)

    @property
    def offsets(self) -> Positions:
        """All contributions merged: where the whole region is."""
        merged: dict[TopicPartition, RegionPosition] = {}
        for one in self.contributions:
            merged.update(one.offsets)
        return MappingProxyType(merged)

    def of(self, member: str) -> Contribution | None:
        """The contribution of `member`."""
        return next((one for one in self.contributions if one.member == member), None)


def merged(
    *,
    region: str,
    group: str,
    sequence: int,
    epoch: int,
    generation: int,
    members: Iterable[str],
    contributions: Sequence[Contribution],
    ever_owned: Iterable[TopicPartition],
) -> Manifest:
    """Return the manifest of a barrier to which all its members contributed.

    Raises InconsistentCheckpointError if a member is missing or a stranger contributed. Also raises it if a partition
    was contributed twice, or a partition that the region ever owned is not covered.
    """
    named = sorted(set(members))
    given = sorted(one.member for one in contributions)
    if given != named:
        raise InconsistentCheckpointError(
            "the contributions are not those of the members that the barrier names",
            sequence=sequence,
            named=",".join(named),
            contributed=",".join(given),
        )
    owner: dict[TopicPartition, str] = {}
    for one in contributions:
        for partition in one.offsets:
            if partition in owner:
                raise InconsistentCheckpointError(
                    "two members contributed the same partition",
                    topic=partition.topic,
                    partition=partition.partition,
                    members=f"{owner[partition]},{one.member}",
                    sequence=sequence,
                )
            owner[partition] = one.member
    if uncovered := sorted(set(ever_owned) - owner.keys()):
        raise InconsistentCheckpointError(
            "a partition that the region has owned is in no contribution",
            topic=uncovered[0].topic,
            partition=uncovered[0].partition,
            uncovered=len(uncovered),
            sequence=sequence,
        )
    ordered = tuple(sorted(contributions, key=lambda one: one.member))
    return Manifest(region, group, sequence, epoch, generation, ordered)


def encode(manifest: Manifest) -> bytes:
    """The one way in which this manifest is written."""
    payload = canonical(
        {
            "contributions": {one.member: _plain(one) for one in manifest.contributions},
            "epoch": manifest.epoch,
            "generation": manifest.generation,
            "group": manifest.group,
            "region": manifest.region,
            "sequence": manifest.sequence,
        }
    )
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


def _plain(one: Contribution) -> dict[str, Any]:
    carried = {"carried": plain_positions(one.carried)} if one.carried else {}
    return carried | {
        "offsets": plain_positions(one.offsets),
        "state": {"bytes": one.state.length_bytes, "sha256": one.state.digest},
    }


def _manifest(value: Mapping[str, Any]) -> Manifest:
    contributions = tuple(
        Contribution(
            member=member,
            offsets=MappingProxyType(read_positions(one["offsets"])),
            state=StateReference(digest_of(one["state"]["sha256"]), whole(one["state"]["bytes"])),
            carried=MappingProxyType(read_positions(one.get("carried", {}))),
        )
        for member, one in sorted(value["contributions"].items())
    )
    return merged(
        region=text_of(value["region"]),
        group=text_of(value["group"]),
        sequence=whole(value["sequence"]),
        epoch=whole(value["epoch"]),
        generation=whole(value["generation"]),
        members=value["contributions"],
        contributions=contributions,
        ever_owned=(),
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
