"""Formatted folders that are kept: a second node of a version gets the same files with its own ids, and serves."""

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from kohort.testing import RealBroker, kafka_node
from kohort.testing.blank_storage import META, RECORDS, copy_storage, keep_storage, new_id
from kohort.testing.broker_settings import format_arguments
from tests.support.broker_selection import wanted_version

IDS = {"cluster.id": "kCLUSTER", "node.id": "2", "directory.id": "kDIRECTORY"}


MADE = "#made\nversion=1\nof.node.id=0\nnode.id=0\ncluster.id=x-/+1\ndirectory.id=y\n"


def formatted(folder: Path, meta: str = MADE, records: str = RECORDS[0]) -> Path:
    (folder / records).parent.mkdir(parents=True)
    (folder / META).write_text(meta)
    (folder / records).write_bytes(b"levels\x00")
    return folder


@pytest.mark.parametrize("records", RECORDS)
def test_a_copy_has_its_own_ids_and_the_same_records(tmp_path: Path, records: str) -> None:
    kept = tmp_path / "cache" / "kept"
    keep_storage(kept, formatted(tmp_path / "first", records=records))
    assert copy_storage(kept, tmp_path / "node" / "data", IDS)
    assert (tmp_path / "node" / "data" / records).read_bytes() == b"levels\x00"
    meta = (tmp_path / "node" / "data" / META).read_text()
    assert meta == "#made\nversion=1\nof.node.id=0\nnode.id=2\ncluster.id=kCLUSTER\ndirectory.id=kDIRECTORY\n"


def test_an_id_that_the_version_does_not_know_is_not_added(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    keep_storage(kept, formatted(tmp_path / "first", "cluster.id=x\n"))
    assert copy_storage(kept, tmp_path / "data", IDS)
    assert (tmp_path / "data" / META).read_text() == "cluster.id=kCLUSTER\n"


def test_nothing_is_copied_where_nothing_is_kept(tmp_path: Path) -> None:
    assert not copy_storage(tmp_path / "kept", tmp_path / "data", IDS)
    assert not (tmp_path / "data").exists()


def test_the_first_of_two_stays_and_an_incomplete_one_is_not_kept(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    without = formatted(tmp_path / "without")
    (without / RECORDS[0]).unlink()
    keep_storage(kept, without)
    assert not kept.exists()
    keep_storage(kept, formatted(tmp_path / "first"))
    keep_storage(kept, formatted(tmp_path / "second", "cluster.id=second\n"))
    assert "x-/+1" in (kept / META).read_text()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["first", "kept", "second", "without"]


def test_ids_differ_and_begin_with_no_dash() -> None:
    ids = {new_id() for _ in range(200)}
    assert len(ids) == 200
    assert all(re.fullmatch(r"k[\w-]{21}", one) for one in ids)


@pytest.mark.broker
def test_a_broker_on_copied_storage_serves_and_the_tool_is_not_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_node, "kept_storage", lambda _jars: tmp_path / "kept")
    runs = []

    def arguments(users: Mapping[str, str]) -> list[str]:
        runs.append(users)
        return format_arguments(users)

    monkeypatch.setattr(kafka_node, "format_arguments", arguments)
    ids = set()
    for _ in range(2):
        with RealBroker(version=wanted_version()) as broker:
            meta = (broker.node.layout.folder / "data" / META).read_text()
            ids.add(re.findall(r"(?m)^(cluster|directory)\.id=(.+)$", meta)[0])
    assert runs == [{}]
    assert len(ids) == 2
    RealBroker(version=wanted_version(), users={"alice": "s3cret"}).close()
    assert runs == [{}, {"alice": "s3cret"}]
    RealBroker(version=wanted_version(), properties={"unstable.feature.versions.enable": "true"}).close()
    assert runs == [{}, {"alice": "s3cret"}, {}]
