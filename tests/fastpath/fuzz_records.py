"""Mutated batches through decode and everything that reads its columns: no crash, no hang, no read past the end.

    python -m tests.sanitized tests.fastpath.fuzz_records --inputs 1000000 --seed 1

It works in slices, each with a seed of its own (SEED, SEED + 1, ...). Each finished one is written to
out/fuzz/records.jsonl. Started again, it goes on behind the last.

The corpus is made from the seed: every magic, codec and kind of batch. Each input is one or two of them with a few
bytes set, cut, doubled or spliced. Half of the changes are inside the codec, and most have a true checksum. It must
end in columns, whose every record, layout and pickle is then read, or in a CorruptRecord.
"""

import argparse
import ctypes
import json
import pickle
import random
import resource
import sys
import time
from pathlib import Path
from typing import Any

import crc32c

from kohort import fastpath
from kohort.fastpath.compression import CODECS, Codec
from kohort.protocol import record_batch as wire
from tests.fastpath.hostile_batches import small_hostile_batches
from tests.fastpath.legacy_messages import encode_messages

SLICE = 250_000
KEPT = Path(__file__).parents[2] / "out" / "fuzz" / "records.jsonl"
NASTY = (0x00, 0x01, 0x02, 0x7F, 0x80, 0x81, 0xFE, 0xFF)
C = ctypes.CDLL(None)
C.malloc.argtypes, C.malloc.restype = [ctypes.c_size_t], ctypes.c_void_p
C.free.argtypes, C.free.restype = [ctypes.c_void_p], None
MAX_GROWTH_KB = 160 * 1024  # the cap of 1 MiB, the sanitizer's quarantine, and Python's own


def corpus(dice: random.Random) -> list[tuple[bytes, bytes, Codec]]:
    """(header, records before compression, codec) of a batch of magic 2; ("", message set, NONE) of the older ones."""
    made = []
    for codec in Codec:
        for _ in range(12):
            new = [_record(dice) for _ in range(dice.choice((1, 2, 5, 20)))]
            header = wire.encode(
                new,
                base_offset=dice.choice((0, 5, 1 << 40)),
                log_append_time_ms=dice.choice((None, 7)),
                producer_id=dice.choice((-1, 1)),
                transactional=dice.random() < 0.5,
                control=dice.random() < 0.2,
            )
            made.append((header[:61], header[61:], codec))
            if codec != Codec.ZSTD:
                for magic in (0, 1):
                    made.append((b"", encode_messages(new, magic=magic, codec=codec, base_offset=3), Codec.NONE))
    return made + [(data[:61], data[61:], Codec.NONE) for data in small_hostile_batches()]


def _record(dice: random.Random) -> tuple[Any, ...]:
    headers = [(f"h{dice.randrange(99)}", _bytes(dice)) for _ in range(dice.choice((0, 0, 1, 3)))]
    return _bytes(dice), _bytes(dice), dice.randrange(1 << 41), headers


def _bytes(dice: random.Random) -> bytes | None:
    return None if dice.random() < 0.2 else dice.randbytes(dice.choice((0, 1, 11, 12, 13, 60)))


def mutate(data: bytes, other: bytes, dice: random.Random) -> bytearray:
    """A few faults of the kinds that a broken disk or a hostile broker makes."""
    mutated = bytearray(data)
    for _ in range(dice.choice((1, 1, 2, 4))):
        at = dice.randrange(len(mutated) + 1)
        match dice.randrange(6):
            case 0 | 1 | 2 if at < len(mutated):
                mutated[at] = dice.choice(NASTY) if dice.random() < 0.7 else dice.randrange(256)
            case 3:
                del mutated[at : at + dice.randint(1, 6)]
            case 4:
                mutated[at:at] = mutated[at : at + dice.randint(1, 8)]
            case _:
                mutated[at:] = other[dice.randrange(len(other) + 1) :]
    return mutated


def hostile(seeds: list[tuple[bytes, bytes, Codec]], dice: random.Random) -> bytes:
    header, records, codec = dice.choice(seeds)
    if dice.random() < 0.5:
        records = bytes(mutate(records, dice.choice(seeds)[1], dice))
    payload = CODECS[codec].compress(records, None) if codec else records
    data = bytearray(header + payload)
    if header:
        data[22] = data[22] & 0xF8 | codec
    if dice.random() < 0.5:
        data = mutate(bytes(data), dice.choice(seeds)[1], dice)
    if len(data) >= 61 and data[16] == 2 and dice.random() < 0.8:
        data[8:12] = (len(data) - 12).to_bytes(4, "big")
        data[17:21] = crc32c.crc32c(data[21:]).to_bytes(4, "big")
    return bytes(data)


def read_all(columns: fastpath.RecordColumns) -> None:
    """Everything that follows a span."""
    for record in columns:
        hash(record)
    for column in (columns.keys, columns.values):
        column.contiguous()
        column.contiguous(wide=True)
        column.views()
        _ = column.validity
    _ = columns.headers, columns.timestamp_types
    middle = len(columns) // 2
    assert pickle.loads(pickle.dumps(columns[middle:])) == columns[middle:]


def in_slices(inputs: int, seed: int) -> int:
    """0 when all slices are done and good; those that an earlier run has done are not done again."""
    KEPT.parent.mkdir(parents=True, exist_ok=True)
    done = {}
    for line in KEPT.read_text().splitlines() if KEPT.exists() else ():
        row = json.loads(line)
        done[row["seed"]] = (row["inputs"], row["accepted"])
    total = good = 0
    while total < inputs:
        size = min(SLICE, inputs - total)
        known, accepted = done.get(seed, (0, 0))
        if known < size:
            fresh = fuzz(size, seed)
            if fresh is None:
                return 1
            accepted = fresh
            with KEPT.open("a") as kept:
                kept.write(json.dumps({"seed": seed, "inputs": size, "accepted": accepted}) + "\n")
        total += size
        good += accepted
        seed += 1
        print(f"{total:,} inputs of {inputs:,} done, {good:,} accepted, 0 crashes", flush=True)
    return 0


def fuzz(inputs: int, seed: int) -> int | None:
    """The number of accepted inputs; every other ended in a CorruptRecord. None: memory did not stay where it was."""
    dice = random.Random(seed)
    seeds = corpus(dice)
    print(f"{len(seeds)} batches; extension {fastpath._records.__file__}; seed {seed}", flush=True)
    for _ in range(1_000):
        _decoded(hostile(seeds, dice), dice)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    accepted, start = 0, time.monotonic()
    for number in range(1, inputs + 1):
        accepted += _decoded(hostile(seeds, dice), dice)
        if number % 100_000 == 0:
            print(f"{number:,} inputs, {accepted:,} accepted, {time.monotonic() - start:.0f} s", flush=True)
    growth = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    print(f"{inputs:,} inputs, {accepted:,} accepted, 0 crashes, memory grew by {growth / 1024:.1f} MiB")
    return accepted if growth < MAX_GROWTH_KB else None


def _decoded(data: bytes, dice: random.Random) -> bool:
    """Decodes it from memory of the C library that ends where it ends: `bytes` have one byte more, and may share."""
    place = C.malloc(len(data))
    try:
        return _read((ctypes.c_char * len(data)).from_address(ctypes.memmove(place, data, len(data))), dice)
    finally:
        C.free(place)


def _read(data: ctypes.Array[ctypes.c_char], dice: random.Random) -> bool:
    try:
        columns = fastpath.decode(
            data,
            from_offset=dice.choice((0, 0, 4)),
            aborted=[(1, 0)] if dice.random() < 0.2 else (),
            on_corrupt="skip_batch" if dice.random() < 0.2 else "raise",
            max_decompressed_bytes=1 << 20,
        )
    except fastpath.CorruptRecord:
        return False
    read_all(columns)
    return True


def main() -> int:
    options = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    options.add_argument("--inputs", type=int, default=20_000)
    options.add_argument("--seed", type=int, default=1)
    chosen = options.parse_args()
    return in_slices(chosen.inputs, chosen.seed)


if __name__ == "__main__":
    sys.exit(main())
