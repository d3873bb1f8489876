"""`kohort segment`: what a user sees of a log segment."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet

from kohort.cli.main import main
from kohort.fastpath import encode


@pytest.fixture
def path(tmp_path: Path) -> Path:
    folder = tmp_path / "flights-3"
    folder.mkdir()
    path = folder / "00000000000000000000.log"
    new: list[Any] = [
        (b"N%d" % i, None if i == 4 else b"\x00\x01", 1_700_000_000_000 + i, [("c", b"UA")]) for i in range(9)
    ]
    path.write_bytes(encode(new, codec="zstd") + encode([(None, b"plain", 1_700_000_000_500)], base_offset=9))
    return path


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_batches(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["segment", "dump", str(path), "--json"]) == 0
    first, second = lines(capsys)
    assert (first["codec"], first["base_offset"], first["record_count"], first["sound"]) == ("zstd", 0, 9, True)
    assert (second["codec"], second["position"], second["last_offset"]) == ("none", first["size_bytes"], 9)


def test_records(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["segment", "dump", str(path), "--records", "--from-offset", "4", "--limit", "2", "--json"]) == 0
    tombstone, binary = lines(capsys)
    assert (tombstone["offset"], tombstone["key"], tombstone["value"]) == (4, "N4", None)
    assert (binary["value"], binary["headers"]) == ("0x0001", [["c", "UA"]])
    assert binary["timestamp"] == "2023-11-14T22:13:20.005+00:00"
    assert main(["segment", "dump", str(path), "--records"]) == 0
    assert "offset=9  timestamp=2023-11-14T22:13:20.500+00:00  key=None  value=plain" in capsys.readouterr().out


def test_stats(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["segment", "stats", str(path), "--json"]) == 0
    (figures,) = lines(capsys)
    assert (figures["topic"], figures["partition"], figures["records"], figures["batches"]) == ("flights", 3, 10, 2)
    assert (figures["null_keys"], figures["null_values"], figures["last_offset"]) == (1, 1, 9)
    assert figures["codecs"] == {"zstd": 1, "none": 1}
    assert main(["segment", "stats", str(path)]) == 0
    assert "zstd: 1, none: 1" in capsys.readouterr().out


INTERRUPTED = """
import os, signal, sys
from kohort.cli.main import main
from kohort.fastpath.segment import Segment

read = Segment.read

def interrupted(segment, **how):
    yield from read(segment, **how)
    os.kill(os.getpid(), signal.SIGTERM)

Segment.read = interrupted
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.skipif(os.name == "nt", reason="Windows ends a process without a signal")
def test_no_file_is_left_by_sigterm(path: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-c", INTERRUPTED, "segment", "to-parquet", str(path), str(tmp_path / "flights.parquet")]
    assert subprocess.run(command, check=False).returncode == 128 + signal.SIGTERM
    assert list(tmp_path.iterdir()) == [path.parent]


def test_parquet(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "flights.parquet"
    assert main(["segment", "to-parquet", str(path), str(target)]) == 0
    assert "10 records" in capsys.readouterr().out
    assert main(["segment", "to-parquet", str(path), str(target), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"records": 10, "file": str(target)}
    table = parquet.read_table(target)
    assert table["offset"].to_pylist() == list(range(10))
    assert table["value"].to_pylist()[4:6] == [None, b"\x00\x01"]
    assert table["headers"].to_pylist()[0] == [{"key": "c", "value": b"UA"}]
    assert sorted(each.name for each in tmp_path.iterdir()) == ["flights-3", "flights.parquet"]


def test_a_broken_checksum_is_seen_and_read_around(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = bytearray(path.read_bytes())
    data[80] ^= 1
    path.write_bytes(bytes(data))
    assert main(["segment", "dump", str(path)]) == 1
    shown = capsys.readouterr()
    assert "sound=False" in shown.out
    assert "batches with a wrong checksum: 1" in shown.err
    target = tmp_path / "flights.parquet"
    assert main(["segment", "to-parquet", str(path), str(target)]) == 1
    assert "CRC-32C" in capsys.readouterr().err
    assert not target.exists()
    assert main(["segment", "to-parquet", str(path), str(target), "--on-corrupt", "skip_batch"]) == 0
    assert "skipped: " in capsys.readouterr().err
    assert parquet.read_table(target)["offset"].to_pylist() == [9]


@pytest.mark.parametrize("kind", ["pipe", "folder", "link to a pipe"])
def test_parquet_takes_the_place_of_files_only(
    kind: str, path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "target"
    if kind == "folder":
        target.mkdir()
    else:
        os.mkfifo(tmp_path / "pipe" if kind != "pipe" else target)
    if kind == "link to a pipe":
        target.symlink_to(tmp_path / "pipe")
    before = target.lstat()
    assert main(["segment", "to-parquet", str(path), str(target)]) == 1
    assert capsys.readouterr().err == f"kohort: error: the target is no file (path={target})\n"
    assert target.lstat().st_mode == before.st_mode


@pytest.mark.parametrize("name", ["", "x" * 300])
def test_parquet_without_a_usable_name_is_one_error(name: str, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["segment", "to-parquet", str(path), name]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "Errno" not in error


def test_no_such_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["segment", "stats", str(tmp_path / "00000000000000000000.log")]) == 1
    assert "No such file" in capsys.readouterr().err
