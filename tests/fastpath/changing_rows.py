"""Buffers that another thread writes to while their rows are laid out, or their records pickled.

It is for AddressSanitizer, which ends the run at a bad access.

python -m tests.sanitized tests.fastpath.changing_rows --seconds 10
"""

import argparse
import ctypes
import pickle
import threading
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy

from kohort.fastpath import decode, encode
from kohort.fastpath._rows import BytesRows, grouped, lay_out, spread

COUNT = 5_000
NO_LIMIT = 1 << 30


def hammer(write: Callable[[], None], read: Callable[[], object], seconds: float) -> Counter[str]:
    """`read` again and again while a thread does nothing but `write`; its outcomes."""
    stop, outcomes = threading.Event(), Counter[str]()

    def run() -> None:
        while not stop.is_set():
            write()

    thread = threading.Thread(target=run)
    thread.start()
    until = time.monotonic() + seconds
    try:
        while time.monotonic() < until:
            try:
                read()
                outcomes["done"] += 1
            except (RuntimeError, ValueError) as error:
                outcomes[type(error).__name__] += 1
    finally:
        stop.set()
        thread.join()
    return outcomes


def flip(array: Any, bad: int, good: int) -> None:
    """Values that lead elsewhere, and back."""
    array[1:] = bad
    array[1:] = good


def records_with_headers() -> tuple[Callable[[], None], Callable[[], object]]:
    """Records in a buffer that gains and loses all of their headers."""
    headed = encode([(None, bytes(100), 0, [("h", b"!" * 60)])] * COUNT)
    bare = headed.replace(b"\x02\x02hx!", b"\x00\x02hx!")
    buffer = bytearray(headed)
    columns = decode(buffer)
    room = (ctypes.c_char * len(buffer)).from_buffer(buffer)

    def write() -> None:
        ctypes.memmove(room, bare, len(bare))
        ctypes.memmove(room, headed, len(headed))

    return write, partial(pickle.dumps, columns)


def cases() -> dict[str, tuple[Callable[[], None], Callable[[], object]]]:
    """By name: the write, and the read that it disturbs."""
    counted: Any = numpy.arange(COUNT + 1, dtype="int32")
    plain = BytesRows(counted, bytes(COUNT), count=COUNT)
    offsets: Any = numpy.zeros(COUNT + 1, dtype="int64")
    moving = BytesRows(offsets, bytes(COUNT), wide=True, count=COUNT)
    stamps: Any = numpy.zeros(COUNT, "int64")
    places: Any = numpy.zeros(COUNT, "int64")
    partitions: Any = numpy.zeros(COUNT, "int32")
    return {
        "timestamps": (
            partial(flip, stamps, 1 << 61, 0),
            partial(lay_out, None, plain, stamps, 0, None, 0, COUNT, NO_LIMIT),
        ),
        "offsets": (
            partial(flip, offsets, 1 << 40, 0),
            partial(lay_out, None, moving, None, 0, None, 0, COUNT, NO_LIMIT),
        ),
        "offsets of keys": (partial(flip, offsets, 1 << 40, 0), partial(spread, moving, 7, "murmur2", 0, 0, COUNT)),
        "places": (
            partial(flip, places, 1 << 40, 0),
            partial(lay_out, None, plain, None, 0, places, 0, COUNT, NO_LIMIT),
        ),
        "partitions": (partial(flip, partitions, 1 << 20, 1), partial(grouped, partitions, 2)),
        "headers of pickled records": records_with_headers(),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=10.0)
    seconds = parser.parse_args().seconds
    for name, (write, read) in cases().items():
        print(f"{name}: {dict(hammer(write, read, seconds))}", flush=True)


if __name__ == "__main__":
    main()
