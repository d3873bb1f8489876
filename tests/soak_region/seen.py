"""The strictest state a soak can have: one bit for every record, so that lost and repeated ones are both found."""

import base64
import json
import zlib
from collections import Counter
from collections.abc import Iterable
from typing import Any

from kohort.consistent_region.manifest import canonical
from kohort.consistent_region.offsets import Positions

ROW_EVERY = 16


def marked(offset: int) -> bool:
    """True for the records that have a row in the database."""
    return offset % ROW_EVERY == 0


class Seen:
    """The offsets of each partition that took effect (`offsets`, a bit each), totals by key, and the number of
    repeated records (`twice`). A `StateHandle`."""

    def __init__(self) -> None:
        self.offsets: dict[int, bytearray] = {}
        self.keys: Counter[str] = Counter()
        self.twice = 0

    def add(self, record: Any) -> None:
        """One record's effect."""
        bits = self.offsets.setdefault(record.partition, bytearray())
        place, bit = record.offset >> 3, 1 << (record.offset & 7)
        if place >= len(bits):
            bits.extend(bytes(max(place + 1 - len(bits), 4096)))
        self.twice += bool(bits[place] & bit)
        bits[place] |= bit
        self.keys[record.key.decode()] += 1

    def snapshot(self, offsets: Positions) -> bytes:
        seen = {str(n): base64.b64encode(zlib.compress(bits, 1)).decode() for n, bits in self.offsets.items()}
        return canonical({"keys": dict(self.keys), "offsets": seen, "twice": self.twice})

    def restore(self, snapshot: bytes, offsets: Positions) -> None:
        value = json.loads(snapshot)
        self.keys, self.twice = Counter(value["keys"]), value["twice"]
        self.offsets = {
            int(n): bytearray(zlib.decompress(base64.b64decode(bits))) for n, bits in value["offsets"].items()
        }

    def reset_initial(self) -> None:
        self.__init__()  # type: ignore[misc]


def total(seen: Seen) -> int:
    """The number of effects."""
    return seen.keys.total()


def whole(states: Iterable[Seen]) -> Seen:
    """All members' states as one; what two of them have counts as twice."""
    merged = Seen()
    for one in states:
        merged.twice += one.twice
        merged.keys += one.keys
        for number, bits in one.offsets.items():
            there = merged.offsets.setdefault(number, bytearray())
            size = max(len(there), len(bits))
            ours, theirs = (int.from_bytes(some.ljust(size, b"\0"), "little") for some in (there, bits))
            merged.twice += (ours & theirs).bit_count()
            merged.offsets[number] = bytearray((ours | theirs).to_bytes(size, "little"))
    return merged


def differences(found: Seen, wanted: Seen) -> list[str]:
    """The differences of `found`, in words; empty if each record of `wanted` took effect exactly once."""
    wrong = [f"{found.twice} effects came twice"] if found.twice else []
    for number in sorted(found.offsets.keys() | wanted.offsets.keys()):
        ours, theirs = (
            int.from_bytes(bytes(one.offsets.get(number, bytearray())), "little") for one in (found, wanted)
        )
        if missing := (theirs & ~ours).bit_count():
            wrong.append(f"partition {number}: {missing} records took no effect")
        if alien := (ours & ~theirs).bit_count():
            wrong.append(f"partition {number}: {alien} effects are of no record")
    if found.keys != wanted.keys:
        off = [key for key in found.keys | wanted.keys if found.keys[key] != wanted.keys[key]]
        wrong.append(f"totals of {len(off)} keys differ, {off[0]} is {found.keys[off[0]]} of {wanted.keys[off[0]]}")
    return wrong
