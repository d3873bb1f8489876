"""Record batches to records: kohort, a straight C loop, and the decoders of the Python clients.

There is no broker and no socket. The input is bytes in memory: batches of 16 KiB, as producers make them by default,
with null keys. Values are words, so that they can be compressed. `columns` is the result of `decode`. `records` is a
Python loop that reads key, value and timestamp of each. Rates are for a second of the thread's CPU time, best of
several runs.
"""

import ctypes
import random
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.report import OURS, Report
from kohort.fastpath import decode, encode

SLICE_BYTES = 8 << 20  # before compression: a few partitions' worth of one fetch
BATCH_BYTES = 16 << 10
CODECS = ("none", "lz4", "zstd", "snappy", "gzip")
VALUE_SIZES_BYTES = (100, 1000)
GOAL = "the goal is 80 % of the straight C loop"


def run(report: Report) -> None:
    for value_bytes in VALUE_SIZES_BYTES:
        values = _values(value_bytes, SLICE_BYTES // value_bytes)
        for codec in CODECS:
            data = _batches(values, codec)
            _measure(report, data, f"{value_bytes}-byte values, {codec}", len(values))
            if codec == "none":
                _measure_c(report, data, f"{value_bytes}-byte values, {codec}", len(values))
        _measure_arrow(report, _batches(values, "none"), f"{value_bytes}-byte values, none", len(values))


def _measure(report: Report, data: bytes, title: str, count: int) -> None:
    assert len(decode(data)) == count
    rate = count / _least_cpu_s(lambda: decode(data))
    report.add(f"columns: {title}", OURS, rate, "records/s")
    for name, read in READERS.items():
        seconds = _least_cpu_s(lambda read=read: _consume(read(data)), times=3)  # type: ignore[misc]
        report.add(f"records: {title}", name, count / seconds, "records/s")


def _measure_c(report: Report, data: bytes, title: str, count: int) -> None:
    loop = c_loop()
    columns = [*((ctypes.c_int64 * count)() for _ in range(4)), (ctypes.c_uint32 * count)()]

    def decode_in_c(check_crc: int) -> None:
        found = loop(data, len(data), check_crc, *columns)
        if found != count:
            raise AssertionError(f"the C loop found {found} records of {count}")

    report.add(f"columns: {title}", "straight C", count / _least_cpu_s(lambda: decode_in_c(1)), "records/s", GOAL)
    report.add(
        f"columns: {title}", "straight C, no checksum", count / _least_cpu_s(lambda: decode_in_c(0)), "records/s"
    )


def _measure_arrow(report: Report, data: bytes, title: str, count: int) -> None:
    import pyarrow as pa

    columns = decode(data)
    views = pa.schema([("key", pa.binary_view()), ("value", pa.binary_view())])
    for note, schema in (("binary", None), ("binary_view, keys and values", views)):
        rate = count / _least_cpu_s(lambda schema=schema: columns.to_arrow(schema))  # type: ignore[misc]
        report.add(f"to_arrow: {title}", OURS, rate, "records/s", note)


def _least_cpu_s(run: Callable[[], object], *, times: int = 9) -> float:
    least = float("inf")
    for _ in range(times):
        start = time.thread_time()
        run()
        least = min(least, time.thread_time() - start)
    return least


def c_loop() -> Callable[..., int]:
    """`decode_loop.c`, compiled as any C program would be."""
    source = Path(__file__).with_name("decode_loop.c")
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "decode_loop.so"
        flags = ["-O3", "-march=native", "-shared", "-fPIC"]
        subprocess.run(["cc", *flags, "-o", str(library), str(source)], check=True)
        loaded = ctypes.CDLL(str(library))
    function = loaded.decode_loop
    function.restype = ctypes.c_int64
    function.argtypes = [ctypes.c_char_p, ctypes.c_int64, ctypes.c_int, *[ctypes.c_void_p] * 5]
    return function


def _by_ours(data: bytes) -> Iterator[Any]:
    return iter(decode(data))


def _by_aiokafka(data: bytes) -> Iterator[Any]:
    from aiokafka.record.memory_records import MemoryRecords

    records = MemoryRecords(data)
    while (batch := records.next_batch()) is not None:
        batch.validate_crc()
        yield from batch


def _by_kafka_python(data: bytes) -> Iterator[Any]:
    from kafka.record.memory_records import MemoryRecords

    records = MemoryRecords(data)
    while (batch := records.next_batch()) is not None:
        batch.validate_crc()
        yield from batch


READERS: dict[str, Callable[[bytes], Iterator[Any]]] = {
    OURS: _by_ours,
    "aiokafka": _by_aiokafka,
    "kafka-python": _by_kafka_python,
}


def _consume(records: Iterator[Any]) -> int:
    total = 0
    first = next(records)
    # Ours names the unit; the others call it timestamp.
    if hasattr(first, "timestamp_ms"):
        for record in records:
            record.key, record.timestamp_ms  # noqa: B018 - reading them is the work
            total += len(record.value)
    else:
        for record in records:
            record.key, record.timestamp  # noqa: B018 - reading them is the work
            total += len(record.value)
    return total


def _values(size: int, count: int) -> list[bytes]:
    dice = random.Random(1)
    words = [dice.randbytes(dice.randint(2, 6)).hex().encode() for _ in range(400)]
    text = b" ".join(dice.choices(words, k=count * size // 8 + size))
    return [text[at : at + size] for at in range(0, count * size, size)]


def _batches(values: list[bytes], codec: str) -> bytes:
    each = max(BATCH_BYTES // (len(values[0]) + 10), 1)
    return b"".join(
        encode([(None, value, 1_700_000_000_000 + at) for value in values[at : at + each]], codec=codec, base_offset=at)
        for at in range(0, len(values), each)
    )
