"""Threads that share what the data plane gives out. A free-threaded Python runs them at the same time."""

import os
import subprocess
import sys
import sysconfig
import threading
from collections.abc import Callable
from glob import glob
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec

import pytest

import kohort
from kohort.fastpath import RecordColumns, decode, encode
from kohort.fastpath._encode import BatchBuilder, seal
from kohort.fastpath._memory import Block
from kohort.protocol.apis.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from kohort.protocol.catalogue import API

SUFFIX = EXTENSION_SUFFIXES[0]
FILES = glob(f"**/*{SUFFIX}", root_dir=kohort.__path__[0], recursive=True)
EXTENSIONS = sorted(f"kohort.{file.removesuffix(SUFFIX).replace(os.sep, '.')}" for file in FILES)
THREADS, ROUNDS, RECORDS = 4, 50, 500
CODECS = ("none", *(("gzip", "snappy", "lz4", "zstd") if find_spec("cramjam") else ()))


def at_once(work: Callable[[int], None]) -> None:
    """Run `work(number)` on THREADS threads that begin together. Raises what the first of them raised."""
    start = threading.Barrier(THREADS)
    raised: list[BaseException] = []

    def run(number: int) -> None:
        start.wait()
        try:
            work(number)
        except BaseException as error:  # of any thread, for the test
            raised.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if raised:
        raise raised[0]


def rows(number: int) -> list[tuple[bytes, bytes, int, dict[str, bytes]]]:
    return [(b"%d" % number, b"value %d of %d" % (i, number), i, {"h": b"%d" % i}) for i in range(RECORDS)]


def pairs(columns: RecordColumns) -> list[tuple[bytes | None, bytes | None]]:
    return [(record.key, record.value) for record in columns]


@pytest.mark.skipif(not sysconfig.get_config_var("Py_GIL_DISABLED"), reason="this Python always has its GIL")
@pytest.mark.parametrize("name", EXTENSIONS)
def test_an_extension_leaves_the_gil_off(name: str) -> None:
    """In a process without PYTHON_GIL, which would keep the GIL off whatever an extension declares."""
    code = f"import sys, {name}; sys.exit(sys._is_gil_enabled())"
    environment = {key: value for key, value in os.environ.items() if key != "PYTHON_GIL"}
    subprocess.run([sys.executable, "-W", "error", "-c", code], env=environment, check=True)


@pytest.mark.parametrize("codec", CODECS)
def test_threads_decode_and_encode_at_once(codec: str) -> None:
    def work(number: int) -> None:
        expected = [(key, value) for key, value, _, _ in rows(number)]
        for _ in range(ROUNDS):
            assert pairs(decode(encode(rows(number), codec=codec))) == expected

    at_once(work)


def test_no_two_threads_get_the_same_block_of_the_pool() -> None:
    def work(number: int) -> None:
        mark = b"%d" % number
        for turn in range(ROUNDS * 20):
            size = 4096 << turn % 4
            kept = [Block(size) for _ in range(6)]
            for block in kept:
                memoryview(block)[:] = mark * size
            assert all(bytes(block) == mark * size for block in kept)

    at_once(work)


def test_threads_read_the_same_columns() -> None:
    columns = decode(encode(rows(7)))
    expected = pairs(columns)

    def work(number: int) -> None:
        for _ in range(ROUNDS):
            assert pairs(columns) == expected
            assert list(columns.values) == [value for _, value in expected]
            assert columns[number:].compact() == columns[number:]
            assert columns.headers is not None

    at_once(work)


def test_threads_share_an_iterator_and_none_sees_a_record_twice() -> None:
    for _ in range(ROUNDS):
        columns = decode(encode(rows(1), base_offset=0) + encode(rows(2), base_offset=RECORDS))
        records = iter(columns)
        seen: list[list[tuple[int, bytes | None]]] = [[] for _ in range(THREADS)]

        def work(number: int, records: object = records, seen: list[list[tuple[int, bytes | None]]] = seen) -> None:
            seen[number] += [(record.offset, record.value) for record in records]  # type: ignore[attr-defined]

        at_once(work)
        expected = [(record.offset, record.value) for record in columns]
        assert sorted(pair for part in seen for pair in part) == expected


def test_threads_append_to_one_batch() -> None:
    builder = BatchBuilder()

    def work(number: int) -> None:
        for _, value, _, _ in rows(number):
            builder.append(b"%d" % number, value * 10, 0)

    at_once(work)
    columns = decode(seal(builder.finish()))
    expected = sorted((b"%d" % number, value * 10) for number in range(THREADS) for _, value, _, _ in rows(number))
    assert sorted((key or b"", value or b"") for key, value in pairs(columns)) == expected


def test_threads_decode_the_parts_of_one_frame_while_others_are_dropped() -> None:
    """As the network's thread does, which reads a frame and keeps none of its views."""
    partitions = tuple(
        PartitionData(partition_index=number, records=encode(rows(number)), aborted_transactions=None)
        for number in range(THREADS)
    )
    body = API["Fetch"].response.build(FetchResponse(responses=(FetchableTopicResponse(partitions=partitions),)), 18)
    expected = [[(key, value) for key, value, _, _ in rows(number)] for number in range(THREADS)]
    for _ in range(ROUNDS):
        frame = Block(len(body))
        memoryview(frame)[:] = body
        topic = API["Fetch"].response.parse_from(memoryview(frame), 0, 18)[0].responses[0]
        parts = [partition.records for partition in topic.partitions]
        del frame, topic

        def work(number: int, parts: list[memoryview] = parts) -> None:
            records, parts[number] = parts[number], memoryview(b"")
            columns = decode(records)
            del records
            assert pairs(columns) == expected[number]

        at_once(work)


def test_threads_take_the_views_of_the_same_columns() -> None:
    data = encode(rows(3))
    columns = decode(memoryview(data))

    def work(number: int) -> None:
        for _ in range(ROUNDS):
            _views, buffers = columns.values.views()
            assert bytes(buffers[0]) == data
            assert memoryview(buffers[0]).readonly

    at_once(work)
